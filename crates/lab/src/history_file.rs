//! Files of histories.

use quorate_history::History;
use quorate_node::exit::Failure;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a history to a file, which is created or replaced.
///
/// # Errors
/// Fails when the system refuses.
pub fn save(history: &History, file: &Path) -> Result<(), Failure> {
    // The run is over: its file is no matter of usage any more.
    HistoryOutput::open(file).map_err(Failure::run)?.append(history)
}

/// The file of a history. It is opened before a run, so that a wrong name is noticed at once. It keeps its old content until
/// the first operations are written.
#[derive(Debug)]
pub struct HistoryOutput {
    name: PathBuf,
    file: File,
    has_begun: bool,
}

impl HistoryOutput {
    /// Opens a file, which is created if it does not exist.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn open(name: &Path) -> Result<Self, Failure> {
        let file = File::options().create(true).write(true).truncate(false).open(name);
        let file = file.map_err(|error| Failure::usage(format!("{}: {error}", name.display())))?;
        Ok(Self { name: name.to_owned(), file, has_begun: false })
    }

    /// Adds the operations of the next part of a run. The first part is preceded by the values that keys had before.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn append(&mut self, history: &History) -> Result<(), Failure> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.write(history, is_first)
            .map_err(|error| Failure::run(format!("{}: {error}", self.name.display())))
    }

    fn write(&self, history: &History, is_first: bool) -> io::Result<()> {
        let mut out = BufWriter::new(&self.file);
        if is_first {
            // A file that cannot be truncated, for example a pipe, has no old content.
            let _ = self.file.set_len(0);
            history.write(&mut out)?;
        } else {
            history.write_records(&mut out)?;
        }
        out.flush()
    }
}
