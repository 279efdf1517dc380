//! The folder of a cluster that is there for one run only.

use crate::exit::Failure;
use std::path::{Path, PathBuf};

/// A folder below the system's temporary one; removed at the end unless it is to be kept.
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// A folder that is not there yet, named after who uses it.
    pub(super) fn new(user: &str, keep: bool) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("quorate-{user}-{}", std::process::id()));
        if path.exists() {
            return Err(Failure::run(format!("{} exists already; remove it", path.display())));
        }
        Ok(Self { path, keep })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// It is to be kept after all.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep
            && self.path.exists()
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}
