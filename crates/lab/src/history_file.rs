//! Files of histories.

use quorate_history::History;
use quorate_node::exit::Failure;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// Writes a history to a file, which is created or replaced.
///
/// # Errors
/// Fails when the system refuses.
pub fn save(history: &History, file: &Path) -> Result<(), Failure> {
    let write = || {
        let mut out = BufWriter::new(File::create(file)?);
        history.write(&mut out)?;
        out.flush()
    };
    write().map_err(|error: std::io::Error| Failure::run(format!("{}: {error}", file.display())))
}
