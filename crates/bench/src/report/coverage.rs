//! `coverage.json` in the folder of a benchmark: the lines of each protocol that tests run.

use super::figures::Table;
use super::numbers::exact;
use crate::archive::{ArchiveError, read_json};
use serde::Deserialize;
use std::path::Path;

/// The file that `cargo xtask coverage --out` writes.
const FILE: &str = "coverage.json";

/// The covered lines of all folders.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(super) struct Coverage {
    /// The per cent of lines that each protocol should reach.
    floor: f64,
    /// Folders of protocols, and those of the replica.
    folders: Vec<Folder>,
}

/// The covered lines of a folder.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Folder {
    /// The path from the root of the repository.
    folder: String,
    /// Executable lines.
    lines: u64,
    /// Lines that tests run.
    covered: u64,
    /// The share of these, in per cent.
    percent: f64,
}

impl Coverage {
    /// Reads the file of a folder; `None` where it has none.
    ///
    /// # Errors
    /// Fails when the file is of another format.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, ArchiveError> {
        let path = folder.join(FILE);
        if path.is_file() { read_json(&path).map(Some) } else { Ok(None) }
    }

    /// Returns the table.
    pub(super) fn table(&self) -> Table {
        let row = |of: &Folder| {
            let share = format!("{:.1}", of.percent);
            let remark = if of.percent < self.floor { "below the floor" } else { "" };
            let counts = [of.lines.to_string(), of.covered.to_string()];
            let [lines, covered] = counts;
            vec![of.folder.clone(), lines, covered, share, remark.to_owned()]
        };
        Table {
            title: "Lines that tests run".to_owned(),
            note: format!(
                "Executable lines of the product that unit tests, scripts or the exam run. The floor is {} %.",
                exact(self.floor)
            ),
            columns: ["folder", "lines", "covered", "covered (%)", "remarks"].map(str::to_owned).into(),
            rows: self.folders.iter().map(row).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_below_the_floor_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Coverage::read(folder.path()).unwrap(), None);
        let text = r#"{ "format": 1, "floor": 95, "folders": [
            { "folder": "crates/protocols/src/pbft", "lines": 1000, "covered": 949, "percent": 94.9 },
            { "folder": "crates/replica/src", "lines": 10, "covered": 10, "percent": 100.0 } ] }"#;
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let table = Coverage::read(folder.path()).unwrap().unwrap().table();
        assert_eq!(table.rows[0], ["crates/protocols/src/pbft", "1000", "949", "94.9", "below the floor"]);
        assert_eq!(table.rows[1][3..], ["100.0", ""]);
        std::fs::write(folder.path().join(FILE), "{}").unwrap();
        assert!(Coverage::read(folder.path()).is_err());
    }
}
