//! Arguments that several commands have, and checks of them.

use crate::exit::Failure;
use quorate_client::config::CLUSTER_FILE;
use quorate_consensus::Entry;
use std::convert::Infallible;
use std::path::PathBuf;

/// Reads the path of a cluster's file; the command line names the file or its folder.
///
/// # Errors
/// Never fails: the reader of the file reports a missing file.
pub fn cluster_file(text: &str) -> Result<PathBuf, Infallible> {
    let path = PathBuf::from(text);
    Ok(if path.is_dir() { path.join(CLUSTER_FILE) } else { path })
}

/// Refuses options that would have no effect.
///
/// # Errors
/// Fails when one of them is given; `why` is the reason.
pub fn refuse(options: &[(&str, bool)], why: &str) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::usage(format!("{name} would do nothing: {why}"))),
        None => Ok(()),
    }
}

/// Checks that a cluster of n replicas tolerates a fault: without one there is nothing to test.
///
/// # Errors
/// Fails when it tolerates none; the error names the smallest n that does.
pub fn tolerates_one(entry: &Entry, n: usize) -> Result<(), Failure> {
    if (entry.spec.faults)(n) > 0 {
        return Ok(());
    }
    let (name, least) = (entry.spec.name, entry.smallest(1));
    Err(Failure::usage(format!(
        "--n {n}: {name} tolerates no fault with so few replicas; expected at least {least}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_that_tolerates_a_fault_has_enough_replicas_for_its_protocol() {
        let tolerates = |name, n| tolerates_one(quorate_protocols::find(name).unwrap(), n).is_ok();
        assert_eq!([3, 4].map(|n| tolerates("pbft", n)), [false, true]);
        assert_eq!([2, 3].map(|n| tolerates("optsync", n)), [false, true]);
    }

    #[test]
    fn cluster_is_named_by_its_file_or_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.toml");
        for named in [folder.path(), file.as_path()] {
            assert_eq!(cluster_file(named.to_str().unwrap()), Ok(file.clone()));
        }
    }
}
