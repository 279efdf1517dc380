//! Experiment files: studies, and the cells that their axes give.

use crate::archive::{Figure, Published, Quantity, StudyFacts};
use crate::cell::{Cell, CellSettings, is_setting};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Cells of one experiment at most. More of them are a mistake in the file.
pub const CELLS_MAX: usize = 10_000;

/// The form of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The values in `short`, where a study has them: minutes in all.
    Short,
    /// All values.
    Full,
}

impl Form {
    /// Returns the name, as in the manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Full => "full",
        }
    }
}

/// The reason why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is no experiment.
    #[error("{path}: {why}")]
    Format {
        /// The file.
        path: PathBuf,
        /// The first mistake.
        why: String,
    },
    /// A study has a wrong value.
    #[error("study {study}: {why}")]
    Study {
        /// The name of the study.
        study: String,
        /// The mistake.
        why: String,
    },
    /// A restriction leaves no cell.
    #[error("no cell has {0}; `quorate bench FILE --list` shows all cells")]
    NoCell(String),
}

/// The work of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// A cluster under load.
    #[default]
    Load,
    /// A command of this program that prints one JSON object: see [`Study::command`].
    Command,
}

/// A system of others that is run beside our cells.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// Its name.
    pub system: String,
    /// The command and its arguments. It prints one JSON line with `system`, `protocol`, `n`, `tx_per_s`, `latency_ms`,
    /// `cpu_s_total`, `rss_mb_max` and `note`.
    pub command: Vec<String>,
    /// Its authentication, for people.
    pub authentication: String,
    /// Its durability, for people.
    pub durability: String,
    /// Its level of service, for people: what an answer means.
    pub service: String,
    /// Seconds after which it counts as failed.
    #[serde(default = "external_patience")]
    pub patience: u64,
}

fn external_patience() -> u64 {
    300
}

/// A study: cells that are shown together.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The name, unique in the file.
    pub name: String,
    /// The title, for people.
    pub title: String,
    /// Remarks for readers.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The work of its cells.
    #[serde(default)]
    pub work: Work,
    /// The words after `quorate` for [`Work::Command`]. A name in braces, such as `{protocol}` or `{n}`, stands for the value
    /// of that setting. A setting that no cell has otherwise may serve such a name.
    #[serde(default)]
    pub command: Vec<String>,
    /// Runs of each cell.
    #[serde(default = "one")]
    pub repeats: u32,
    /// Saturating loads in a row that find the saturation of a cell, whose rate is a share of it. Their median counts, and
    /// their difference shows the noise of the machine.
    #[serde(default = "one")]
    pub saturating_loads: u32,
    /// The settings of the cells. A list gives an axis: the cells are all combinations.
    #[serde(default)]
    pub cells: Map<String, Value>,
    /// Settings in place of those of `cells` in the short form; `repeats` is one of them.
    #[serde(default)]
    pub short: Map<String, Value>,
    /// Variants of the study that it has no cell for, because a switch is not built yet.
    #[serde(default)]
    pub not_built: Vec<String>,
    /// Combinations that are left out: a cell with all values of an entry.
    #[serde(default)]
    pub without: Vec<BTreeMap<String, Value>>,
    /// Figures to draw.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Figures of others.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Systems of others.
    #[serde(default)]
    pub external: Vec<External>,
}

fn one() -> u32 {
    1
}

/// An experiment.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The short name, for folders: letters, digits and hyphens.
    pub tag: String,
    /// The title, for people.
    pub title: String,
    /// The studies.
    #[serde(rename = "study")]
    pub studies: Vec<Study>,
}

/// A change of an experiment on the command line: an axis and its values.
#[derive(Clone, PartialEq, Debug)]
pub struct AxisValues {
    /// The axis.
    pub axis: String,
    /// Its values.
    pub values: Vec<Value>,
}

impl std::str::FromStr for AxisValues {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: expected AXIS=VALUE, or AXIS=VALUE,VALUE");
        let (axis, values) = text.split_once('=').filter(|(axis, _)| !axis.is_empty()).ok_or_else(wrong)?;
        let values: Vec<Value> = values.split(',').filter(|value| !value.is_empty()).map(value_of).collect();
        if values.is_empty() { Err(wrong()) } else { Ok(Self { axis: axis.to_owned(), values }) }
    }
}

/// Reads a value as a number where it is one.
fn value_of(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// Fails when the file cannot be read or is no experiment.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ExperimentError::File { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|why| ExperimentError::Format { path: path.to_owned(), why })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// Fails with the first mistake.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Self = toml::from_str(text).map_err(|why| why.to_string())?;
        let is_plain =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !is_plain(&read.tag) {
            return Err(format!("tag {:?}: expected letters, digits and hyphens", read.tag));
        }
        for (at, study) in read.studies.iter().enumerate() {
            if !is_plain(&study.name) {
                return Err(format!("study {:?}: expected letters, digits and hyphens", study.name));
            }
            if read.studies.iter().take(at).any(|other| other.name == study.name) {
                return Err(format!("study {}: there are two of this name", study.name));
            }
            study.check_figures()?;
        }
        Ok(read)
    }

    /// Returns this experiment in a form, with other values of some axes.
    #[must_use]
    pub fn in_form(mut self, form: Form, changes: &[AxisValues]) -> Self {
        for study in &mut self.studies {
            let short = std::mem::take(&mut study.short);
            let short = short.into_iter().filter(|_| form == Form::Short);
            let changed = changes.iter().map(|change| match change.values.as_slice() {
                [one] if change.axis == "repeats" => (change.axis.clone(), one.clone()),
                values => (change.axis.clone(), Value::Array(values.to_vec())),
            });
            for (name, value) in short.chain(changed) {
                match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
                    Some(repeats) if name == "repeats" => study.repeats = repeats,
                    _ => drop(study.cells.insert(name, value)),
                }
            }
        }
        self
    }

    /// Returns all cells that have one of the values of each restriction.
    ///
    /// # Errors
    /// Fails when a setting is unknown or wrong, when there are more than [`CELLS_MAX`] cells, or none.
    pub fn cells(&self, only: &[AxisValues]) -> Result<Vec<Cell>, ExperimentError> {
        let mut all = Vec::new();
        for study in &self.studies {
            let wrong = |why: String| ExperimentError::Study { study: study.name.clone(), why };
            for axes in study.combinations().map_err(wrong)? {
                let mut values = study.values(&axes);
                let words = study.take_words(&mut values);
                let settings = CellSettings::read(&values).map_err(wrong)?;
                all.push(Cell::new(study, axes, settings, &words).map_err(wrong)?);
                if all.len() > CELLS_MAX {
                    return Err(wrong(format!("the experiment has more than {CELLS_MAX} cells")));
                }
            }
        }
        for restriction in only {
            all.retain(|cell: &Cell| cell.has(restriction));
            if all.is_empty() {
                let values: Vec<String> = restriction.values.iter().map(crate::archive::axis_text).collect();
                return Err(ExperimentError::NoCell(format!("{}={}", restriction.axis, values.join(","))));
            }
        }
        Ok(all)
    }

    /// Returns the facts of its studies, for the manifest.
    #[must_use]
    pub fn facts(&self) -> Vec<StudyFacts> {
        let facts = |study: &Study| StudyFacts {
            name: study.name.clone(),
            title: study.title.clone(),
            notes: study.notes.clone(),
            settings: study.cells.clone().into_iter().collect(),
            figures: study.figures.clone(),
            published: study.published.clone(),
            repeats: study.repeats,
        };
        self.studies.iter().map(facts).collect()
    }
}

impl Study {
    /// Returns the combinations of the values of all axes.
    fn combinations(&self) -> Result<Vec<BTreeMap<String, Value>>, String> {
        let mut all = vec![BTreeMap::new()];
        for (axis, value) in &self.cells {
            let values = match value {
                Value::Array(values) if values.is_empty() => {
                    return Err(format!("{axis}: the list is empty"));
                }
                Value::Array(values) => values.clone(),
                // Reports group by them, so they are axes also where there is one value.
                one if matches!(axis.as_str(), "protocol" | "n") => vec![one.clone()],
                _ => continue,
            };
            if all.len().saturating_mul(values.len()) > CELLS_MAX {
                return Err(format!("{axis}: the study has more than {CELLS_MAX} cells"));
            }
            all = all
                .into_iter()
                .flat_map(|cell| {
                    values.iter().map(move |value| {
                        let mut cell = cell.clone();
                        cell.insert(axis.clone(), value.clone());
                        cell
                    })
                })
                .collect();
        }
        let is_left_out = |cell: &BTreeMap<String, Value>| {
            let matches = |entry: &BTreeMap<String, Value>| {
                !entry.is_empty() && entry.iter().all(|(axis, value)| cell.get(axis) == Some(value))
            };
            self.without.iter().any(matches)
        };
        all.retain(|cell| !is_left_out(cell));
        Ok(all)
    }

    /// Only a command has values with names of its own.
    fn check_figures(&self) -> Result<(), String> {
        let fields = self.figures.iter().flat_map(|figure| &figure.y).find_map(|quantity| match quantity {
            Quantity::Field(field) => Some(field),
            Quantity::Measure(_) => None,
        });
        match fields {
            Some(field) if self.work == Work::Load => Err(format!(
                "study {}: y = {field}: expected goodput, latency-mean, latency-p50, latency-p99, cpu-per-request or memory",
                self.name
            )),
            _ => Ok(()),
        }
    }

    /// Returns the values that the command names. Those that only a command knows leave `values`.
    fn take_words(&self, values: &mut Map<String, Value>) -> Map<String, Value> {
        if self.work != Work::Command {
            return Map::new();
        }
        let named = |name: &str| self.command.iter().any(|word| word.contains(&format!("{{{name}}}")));
        let words: Map<String, Value> = values
            .iter()
            .filter(|(name, _)| named(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        values.retain(|name, _| is_setting(name) || !words.contains_key(name));
        words
    }

    /// Whether the result of a cell depends on its protocol.
    pub(crate) fn needs_protocol(&self) -> bool {
        self.work == Work::Load || self.command.iter().any(|word| word.contains("{protocol}"))
    }

    /// Returns the values of all settings of a cell.
    fn values(&self, axes: &BTreeMap<String, Value>) -> Map<String, Value> {
        let mut values = self.cells.clone();
        for (axis, value) in axes {
            values.insert(axis.clone(), value.clone());
        }
        values
    }
}

#[cfg(test)]
mod tests;
