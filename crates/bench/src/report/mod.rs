//! The report of a benchmark, from its archive alone: one HTML file that opens offline, pictures, tables, and a comparison.
//!
//! The same archive gives the same bytes, wherever the folder is and whenever the report is made. Parts that an archive has
//! not recorded are named as such. A cell without a result is listed with its reason, and is never drawn as zero.

mod cells;
mod chart;
mod compare;
mod counted;
mod coverage;
mod csv;
mod figures;
mod histogram;
mod noise;
mod numbers;
mod page;
mod png;
mod reading;
mod summary;

use crate::archive::{Archive, ArchiveError, Outcome, PROFILE_PICTURE, cell_name, run_folder};
pub use compare::{Changed, Comparison, Regression, compare, compared};
pub use counted::{CountedCell, CountedChange, CountedComparison, Tolerances, compare_counted};
use coverage::Coverage;
pub use csv::summary_csv;
pub use noise::noise;
use std::fmt;
use std::path::{Path, PathBuf};

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A folder has too few files.
    #[error("{folder}: {what}")]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// The missing files, and those that are needed.
        what: String,
    },
    /// `summary.csv` is wrong.
    #[error("{path}: {why}")]
    Summary {
        /// The file.
        path: PathBuf,
        /// The first mistake.
        why: String,
    },
    /// A file of the report cannot be written.
    #[error("{path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A chart cannot be drawn.
    #[error("chart {chart:?} cannot be drawn: {why}")]
    Draw {
        /// The title of the chart.
        chart: String,
        /// The error of the library.
        why: String,
    },
    /// The page cannot be made.
    #[error("the page of the report cannot be made: {0}")]
    Page(#[from] minijinja::Error),
}

/// The files of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// PNG files, one for each chart; none without the feature `png`.
    pub pictures: Vec<PathBuf>,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.page.display())?;
        if png::IS_AVAILABLE {
            write!(f, ", and {} PNG files beside it", self.pictures.len())
        } else {
            write!(f, "; {}", png::WITHOUT)
        }
    }
}

/// Returns the folder of a report that has no other: `report` in the folder of the benchmark.
#[must_use]
pub fn default_folder(folder: &Path) -> PathBuf {
    folder.join("report")
}

/// Makes the report of the benchmark in `folder`, as `index.html` and PNG files in `out`. Files of an earlier report with
/// the same names are replaced.
///
/// # Errors
/// Fails when the archive cannot be read, or the report cannot be drawn or written.
pub fn write(folder: &Path, out: &Path) -> Result<Written, ReportError> {
    let archive = Archive::read(folder)?;
    if archive.runs.is_empty() {
        let what =
            "no runs. A report needs the file cell.json of each run; a summary suffices for --compare alone";
        return Err(ReportError::Missing { folder: folder.to_owned(), what: what.to_owned() });
    }
    let profiles = profiles(folder, &archive);
    let page = page::page(&archive, Coverage::read(folder)?.as_ref(), &profiles)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Write { path, source }
    };
    std::fs::create_dir_all(out).map_err(failed(out))?;
    let mut pictures = Vec::new();
    for (name, svg) in &page.pictures {
        let Some(bytes) = png::picture(name, svg)? else { continue };
        let path = out.join(name);
        std::fs::write(&path, bytes).map_err(failed(&path))?;
        pictures.push(path);
    }
    for profile in &profiles {
        let path = out.join(&profile.file);
        std::fs::copy(&profile.source, &path).map_err(failed(&path))?;
    }
    let path = out.join("index.html");
    std::fs::write(&path, page.html).map_err(failed(&path))?;
    Ok(Written { page: path, pictures })
}

/// A flame graph of a run.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
struct Profiled {
    /// The run, for people.
    name: String,
    /// The name of the file beside the page.
    file: String,
    /// The file in the archive.
    #[serde(skip)]
    source: PathBuf,
}

/// Returns the flame graphs of an archive, in the order of its runs.
fn profiles(folder: &Path, archive: &Archive) -> Vec<Profiled> {
    let runs = archive.runs.iter();
    let with = runs.filter(|run| run.outcome == Outcome::Done).filter_map(|run| {
        let source = folder.join(run_folder(run)).join(PROFILE_PICTURE);
        let cell = cell_name(&run.study, &run.axes);
        let name = format!("{} n={} {cell}, run {}", run.protocol, run.n, run.run);
        source.is_file().then_some((name, source))
    });
    let numbered = with.zip(1..);
    numbered
        .map(|((name, source), number): (_, u32)| Profiled {
            name,
            file: format!("profile-{number}.svg"),
            source,
        })
        .collect()
}

#[cfg(test)]
mod tests;
