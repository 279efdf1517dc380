//! A wrong state is kept in the data folder, so that people can find its first different key.

use crate::exit::Failure;
use crate::saved_state::{self, Manifest};
use quorate_host::DivergedState;
use quorate_types::Genesis;
use std::fs;
use std::path::{Path, PathBuf};

/// The beginning of the names of such folders.
const PREFIX: &str = "diverged-";

/// Writes a wrong state to a folder of its own inside the data folder, in place of an earlier one. Logs the result: a node goes
/// on without the evidence.
pub(crate) fn keep(data_dir: &Path, genesis: &Genesis, wrong: &DivergedState, room: u64) {
    match write(data_dir, genesis, wrong, room) {
        Ok(Some(dir)) => tracing::warn!(
            "the wrong state is kept in {}; `quorate inspect DIR --diff {}` names its first different key, where DIR is a stopped \
             node or a backup. Delete the folder afterwards",
            dir.display(),
            dir.display()
        ),
        Ok(None) => tracing::warn!(
            "the wrong state is not kept: disk_bytes_max has no room for it and for the right one"
        ),
        Err(failure) => tracing::warn!("the wrong state is not kept: {failure}"),
    }
}

fn write(
    data_dir: &Path,
    genesis: &Genesis,
    wrong: &DivergedState,
    room: u64,
) -> Result<Option<PathBuf>, Failure> {
    let state = &wrong.state;
    let (header, ids) = (state.header().to_vec(), state.ids().to_vec());
    let manifest = Manifest { genesis: genesis.clone(), proof: None, header, ids };
    // The right state needs about as much.
    if manifest.bytes().saturating_mul(2) > room {
        return Ok(None);
    }
    for entry in fs::read_dir(data_dir).map_err(Failure::run)? {
        let entry = entry.map_err(Failure::run)?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_dir_all(entry.path()).map_err(Failure::run)?;
        }
    }
    let dir = data_dir.join(format!("{PREFIX}{}", wrong.height));
    saved_state::write(&dir, &manifest, &mut |index| {
        let mut chunk = Vec::new();
        state.encode(index, &mut chunk);
        Ok(chunk)
    })?;
    Ok(Some(dir))
}
