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
fn opens_what_was_formatted_for_it() {
    let folder = formatted();
    let guard = open(folder.path(), &identity()).unwrap();
    assert_eq!(guard.salt(), 0x0123_4567_89ab_cdef);
    assert!(is_formatted(guard.path()));
    drop(guard);
    open(folder.path(), &identity()).unwrap();
}

#[test]
fn refuses_every_other_folder_with_its_own_line() {
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
fn refuses_an_unknown_version_and_a_damaged_file() {
    let folder = formatted();
    let file = folder.path().join(FORMAT_FILE);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("format = 1", "format = 2")).unwrap();
    let refused = open(folder.path(), &identity());
    assert!(matches!(refused, Err(FolderError::UnknownVersion { found: 2, .. })), "{refused:?}");
    for damaged in ["", "format = 1\n", "format = one\n", "\u{0}\u{0}"] {
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

/// A log that somebody deleted is not a new one: the replica has made promises.
#[test]
fn refuses_a_folder_whose_log_is_gone() {
    let folder = formatted();
    fs::remove_file(folder.path().join(LOG_FILE)).unwrap();
    assert!(matches!(open(folder.path(), &identity()), Err(FolderError::Malformed { .. })));
}

#[test]
fn formats_once_and_never_over_data() {
    let folder = formatted();
    let again = format(folder.path(), &identity(), 1);
    assert!(matches!(again, Err(FolderError::AlreadyFormatted(_))), "{again:?}");
    // Cut off before FORMAT was there: it may be done again as long as the log is empty.
    fs::remove_file(folder.path().join(FORMAT_FILE)).unwrap();
    format(folder.path(), &identity(), 1).unwrap();
    fs::remove_file(folder.path().join(FORMAT_FILE)).unwrap();
    fs::write(folder.path().join(LOG_FILE), "x").unwrap();
    let over = format(folder.path(), &identity(), 1);
    assert!(matches!(over, Err(FolderError::NotEmpty(_))), "{over:?}");
    // Other files may lie there.
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("replica.key"), "x").unwrap();
    format(other.path(), &identity(), 1).unwrap();
}

#[test]
fn a_log_that_counts_fewer_openings_than_the_folder_is_refused_for_good() {
    let folder = formatted();
    let guard = open(folder.path(), &identity()).unwrap();
    for life in [1, 2, 7] {
        assert_eq!(guard.begin_life(life).unwrap(), None, "{life}");
    }
    for life in [7, 1, 8] {
        let why = guard.begin_life(life).unwrap().unwrap();
        assert!(why.starts_with("the log is older than the folder: it counts 7 openings"), "{why}");
    }
}

#[test]
fn a_refusal_outlives_the_process() {
    let folder = formatted();
    let guard = open(folder.path(), &identity()).unwrap();
    assert_eq!(guard.begin_life(1).unwrap(), None);
    guard.refuse("peers know more").unwrap();
    drop(guard);
    let guard = open(folder.path(), &identity()).unwrap();
    assert_eq!(guard.begin_life(2).unwrap().as_deref(), Some("peers know more"));
}

#[test]
fn a_damaged_count_of_openings_is_an_error() {
    let folder = formatted();
    let guard = open(folder.path(), &identity()).unwrap();
    fs::write(folder.path().join("LIVES"), "many").unwrap();
    let error = guard.begin_life(1).unwrap_err().to_string();
    assert!(error.contains("LIVES holds no number"), "{error}");
}
