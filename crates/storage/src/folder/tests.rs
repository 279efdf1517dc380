use super::*;

fn identity() -> Identity {
    Identity {
        cluster: ClusterId(Digest([0xab; 32])),
        replica: ReplicaId(2),
        protocol: ProtocolId::new("pbft"),
    }
}

fn formatted() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    format(folder.path(), &identity(), 0x0123_4567_89ab_cdef).unwrap();
    folder
}

#[test]
fn replica_opens_its_formatted_folder() {
    let folder = formatted();
    let guard = open(folder.path(), &identity()).unwrap();
    assert_eq!(guard.salt(), 0x0123_4567_89ab_cdef);
    assert!(guard.path().join(FORMAT_FILE).is_file());
    drop(guard);
    open(folder.path(), &identity()).unwrap();
}

#[test]
fn every_wrong_folder_is_refused_with_a_line_of_its_own() {
    let folder = formatted();
    let path = folder.path();
    let mut lines = Vec::new();
    let mut refused = |path: &Path, identity: Identity| {
        let line = open(path, &identity).unwrap_err().to_string();
        assert!(!line.contains('\n') && line.contains(": "), "{line}");
        lines.push(line);
    };
    let other = ClusterId(Digest([1; 32]));
    refused(path, Identity { cluster: other, ..identity() });
    refused(path, Identity { replica: ReplicaId(3), ..identity() });
    refused(path, Identity { protocol: ProtocolId::new("echo"), ..identity() });
    let empty = tempfile::tempdir().unwrap();
    refused(empty.path(), identity());
    let _guard = open(path, &identity()).unwrap();
    refused(path, identity());
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 5, "{lines:#?}");
}

#[test]
fn unknown_version_and_damaged_format_file_are_refused() {
    let folder = formatted();
    let file = folder.path().join(FORMAT_FILE);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("format = 2", "format = 3")).unwrap();
    let refused = open(folder.path(), &identity());
    assert!(matches!(refused, Err(FolderError::UnknownVersion { found: 3, .. })), "{refused:?}");
    for damaged in ["", "format = 2\n", "format = one\n", "\u{0}\u{0}"] {
        fs::write(&file, damaged).unwrap();
        let refused = open(folder.path(), &identity());
        assert!(matches!(refused, Err(FolderError::Malformed { .. })), "{damaged:?}: {refused:?}");
    }
    fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    assert!(matches!(open(folder.path(), &identity()), Err(FolderError::Malformed { .. })));
    for line in text.lines().skip(1) {
        fs::write(&file, text.replace(line, "")).unwrap();
        let refused = open(folder.path(), &identity());
        assert!(matches!(refused, Err(FolderError::Malformed { .. })), "without {line}: {refused:?}");
    }
}

/// A deleted log must not count as a new one, because the replica has made promises.
#[test]
fn folder_without_its_log_is_refused() {
    let folder = formatted();
    fs::remove_file(folder.path().join(LOG_FILE)).unwrap();
    assert!(matches!(open(folder.path(), &identity()), Err(FolderError::Malformed { .. })));
}

#[test]
fn folder_with_data_is_never_formatted() {
    let folder = formatted();
    let again = format(folder.path(), &identity(), 1);
    assert!(matches!(again, Err(FolderError::AlreadyFormatted(_))), "{again:?}");
    // Formatting was interrupted before it wrote FORMAT. It may be repeated as long as the log is empty.
    fs::remove_file(folder.path().join(FORMAT_FILE)).unwrap();
    format(folder.path(), &identity(), 1).unwrap();
    fs::remove_file(folder.path().join(FORMAT_FILE)).unwrap();
    fs::write(folder.path().join(LOG_FILE), "x").unwrap();
    let over = format(folder.path(), &identity(), 1);
    assert!(matches!(over, Err(FolderError::NotEmpty(_))), "{over:?}");
    // The folder may have other files.
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("replica.key"), "x").unwrap();
    format(other.path(), &identity(), 1).unwrap();
}

#[test]
fn log_older_than_its_folder_is_refused_for_ever() {
    let folder = formatted();
    let guard = open(folder.path(), &identity()).unwrap();
    for life in [1, 2, 7] {
        assert_eq!(guard.record_incarnation(life).unwrap(), None, "{life}");
    }
    for life in [7, 1, 8] {
        let foreseen = guard.exclusion(life).unwrap();
        let why = guard.record_incarnation(life).unwrap().unwrap();
        assert_eq!(foreseen.as_ref(), Some(&why), "an inspection says the same");
        assert!(why.starts_with("the log is older than the folder: it counts 7 openings"), "{why}");
    }
}

#[test]
fn refusal_survives_a_restart() {
    let folder = formatted();
    let guard = open(folder.path(), &identity()).unwrap();
    assert_eq!(guard.record_incarnation(1).unwrap(), None);
    guard.refuse("peers know more").unwrap();
    drop(guard);
    let guard = open(folder.path(), &identity()).unwrap();
    assert_eq!(guard.record_incarnation(2).unwrap().as_deref(), Some("peers know more"));
}

#[test]
fn damaged_count_of_openings_is_an_error() {
    let folder = formatted();
    let guard = open(folder.path(), &identity()).unwrap();
    fs::write(folder.path().join("LIVES"), "many").unwrap();
    let error = guard.record_incarnation(1).unwrap_err().to_string();
    assert!(error.contains("LIVES has no number"), "{error}");
}
