//! The folder of a cluster that exists for one run only.

use quorate_node::exit::Failure;
use std::path::{Path, PathBuf};

/// A folder below the system's temporary folder, which is removed at the end unless it is kept.
pub(super) struct RunFolder {
    path: PathBuf,
    keep: bool,
}

impl RunFolder {
    /// Chooses a folder, named after the command that uses it. The folder must not exist yet.
    pub(super) fn new(command: &str, keep: bool) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("quorate-{command}-{}", std::process::id()));
        if path.exists() {
            return Err(Failure::run(format!("{} exists already; remove it", path.display())));
        }
        Ok(Self { path, keep })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder at the end.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.keep
            && self.path.exists()
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}
