use super::*;
use crate::folder;
use crate::{Store, StoreConfig};
use quorate_types::{ChunkId, ClusterId, Height, LogEntry, Mark, ProtocolId, ReplicaId};

const SEGMENT: u32 = 2 << 20;

fn formatted() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let identity = folder::Identity {
        cluster: ClusterId::ZERO,
        replica: ReplicaId(0),
        protocol: ProtocolId::new("echo"),
    };
    folder::format(folder.path(), &identity, 1).unwrap();
    folder
}

fn config(direct: bool, durability: Durability) -> FileDiskConfig {
    FileDiskConfig { direct, durability, segment_bytes: SEGMENT, prepared_bytes: 0, salt: 1 }
}

fn open(folder: &Path, config: FileDiskConfig) -> Result<(Store<FileDisk>, Vec<LogEntry>), Fault> {
    let mut entries = Vec::new();
    let disk = FileDisk::open(folder, config)?;
    let store = Store::open(disk, StoreConfig::default(), &mut |entry| entries.push(entry))?;
    Ok((store, entries))
}

fn record(n: usize) -> LogEntry {
    let mut bytes = format!("record {n}").into_bytes();
    bytes.resize(bytes.len() + n * 977 % 60_000, n as u8);
    LogEntry::Record(bytes.into())
}

/// The test writes one log with direct I/O, with the page cache, and without syncs, one after the other.
#[test]
fn each_mode_reads_the_log_of_each_other_mode() {
    let folder = formatted();
    let modes = [(true, Durability::Fsync), (false, Durability::Fsync), (true, Durability::Os)];
    let mut expected = Vec::new();
    for round in 0..6 {
        let (direct, durability) = modes[round % 3];
        let (mut store, found) = open(folder.path(), config(direct, durability)).unwrap();
        assert_eq!(found, expected, "round {round}");
        if durability == Durability::Os || !direct {
            assert_eq!(store.disk().mode(), Mode::Buffered);
        }
        for _ in 0..40 {
            let entry = record(expected.len());
            store.append(Mark(expected.len() as u64), &entry).unwrap();
            expected.push(entry);
            if expected.len() % 7 == 0 {
                store.write_and_sync().unwrap();
            }
        }
        store.write_and_sync().unwrap();
    }
    let (store, _) = open(folder.path(), config(true, Durability::Fsync)).unwrap();
    assert!(store.disk().segments() > 2);
}

/// A process that dies keeps synced data. Unsynced data may be lost.
#[test]
fn dropped_store_keeps_synced_data() {
    let folder = formatted();
    let (mut store, _) = open(folder.path(), config(true, Durability::Fsync)).unwrap();
    store.append(Mark(1), &record(1)).unwrap();
    store.write_and_sync().unwrap();
    store.append(Mark(2), &record(2)).unwrap();
    drop(store);
    let (_, found) = open(folder.path(), config(true, Durability::Fsync)).unwrap();
    assert_eq!(found, [record(1)]);
}

#[test]
fn segments_are_prepared_once() {
    let folder = formatted();
    let prepared =
        FileDiskConfig { prepared_bytes: 3 * u64::from(SEGMENT), ..config(true, Durability::Fsync) };
    let (mut store, _) = open(folder.path(), prepared).unwrap();
    assert_eq!(store.disk().segments(), 3);
    assert!(!store.prepare().unwrap(), "a segment is ready already");
    drop(store);
    let (store, _) = open(folder.path(), config(true, Durability::Fsync)).unwrap();
    assert_eq!(store.disk().segments(), 3);
    drop(store);

    let folder = formatted();
    let (mut store, _) = open(folder.path(), config(true, Durability::Fsync)).unwrap();
    assert_eq!(store.disk().segments(), 1);
    let mut slices = 1;
    while store.prepare().unwrap() {
        slices += 1;
    }
    assert_eq!((store.disk().segments(), slices), (2, 2), "each call fills a mebibyte");
}

#[test]
fn log_file_with_a_partial_segment_is_used() {
    let folder = formatted();
    let (mut store, _) = open(folder.path(), config(true, Durability::Fsync)).unwrap();
    store.append(Mark(1), &record(1)).unwrap();
    store.write_and_sync().unwrap();
    drop(store);
    let file = OpenOptions::new().write(true).open(folder.path().join(LOG_FILE)).unwrap();
    file.set_len(u64::from(SEGMENT) + 12_345).unwrap();
    let (mut store, found) = open(folder.path(), config(true, Durability::Fsync)).unwrap();
    assert_eq!((store.disk().segments(), found.len()), (2, 1));
    for n in 0..80 {
        store.append(Mark(n), &LogEntry::Record(vec![n as u8; 50_000].into())).unwrap();
    }
    store.write_and_sync().unwrap();
    drop(store);
    let (_, found) = open(folder.path(), config(true, Durability::Fsync)).unwrap();
    assert_eq!(found.len(), 81);
}

#[test]
fn missing_log_is_not_created() {
    let folder = formatted();
    fs::remove_file(folder.path().join(LOG_FILE)).unwrap();
    let refused = FileDisk::open(folder.path(), config(true, Durability::Fsync));
    assert!(matches!(refused, Err(Fault::Io { .. })));
}

#[test]
fn wrong_salt_is_refused() {
    let folder = formatted();
    drop(open(folder.path(), config(true, Durability::Fsync)).unwrap());
    let other = FileDiskConfig { salt: 2, ..config(true, Durability::Fsync) };
    assert!(matches!(open(folder.path(), other).err(), Some(Fault::Damaged { .. })));
}

#[test]
fn snapshot_is_visible_only_when_it_is_finished() {
    let folder = formatted();
    for durability in [Durability::Fsync, Durability::Os] {
        let (mut store, _) = open(folder.path(), config(true, durability)).unwrap();
        let height = store.newest_snapshot().unwrap().map_or(Height(1), |newest| newest.height().next());
        let chunk = vec![height.0 as u8; 5 << 20];
        let id = ChunkId::of(&chunk);
        let mut writer = store.begin_snapshot(height, b"header".to_vec(), &[id]).unwrap();
        store.write_chunk(&mut writer, 0, &chunk).unwrap();
        assert!(
            fs::read_dir(folder.path().join(SNAPSHOTS_FOLDER))
                .unwrap()
                .any(|entry| { entry.unwrap().file_name().to_string_lossy().ends_with(UNFINISHED) })
        );
        drop(store);
        let (mut store, _) = open(folder.path(), config(true, durability)).unwrap();
        assert!(store.newest_snapshot().unwrap().is_none_or(|newest| newest.height() < height));
        let files = fs::read_dir(folder.path().join(SNAPSHOTS_FOLDER)).unwrap();
        assert!(
            files
                .into_iter()
                .all(|entry| { !entry.unwrap().file_name().to_string_lossy().ends_with(UNFINISHED) })
        );
        let mut writer = store.begin_snapshot(height, b"header".to_vec(), &[id]).unwrap();
        store.write_chunk(&mut writer, 0, &chunk).unwrap();
        store.commit_snapshot(writer).unwrap();
        let (store, _) = open(folder.path(), config(true, durability)).unwrap();
        let newest = store.newest_snapshot().unwrap().unwrap();
        assert_eq!((newest.height(), newest.header()), (height, b"header".as_slice()));
        assert_eq!(store.snapshot_chunk(&newest, 0).unwrap(), chunk);
    }
}

/// What a truncated file of the log still has is read, and never overwritten: here its first segment has lost its end.
#[test]
fn truncated_log_keeps_its_first_records() {
    for prepared_bytes in [0, u64::from(SEGMENT)] {
        let folder = formatted();
        let config = FileDiskConfig { prepared_bytes, ..config(false, Durability::Fsync) };
        let (mut store, _) = open(folder.path(), config).unwrap();
        for n in 0..20 {
            store.append(Mark(n), &record(n as usize)).unwrap();
            store.write_and_sync().unwrap();
        }
        drop(store);
        let log = OpenOptions::new().write(true).open(folder.path().join(LOG_FILE)).unwrap();
        log.set_len(200_001).unwrap();
        let frozen = crate::FrozenDisk::open(folder.path(), 1).unwrap();
        assert_eq!(frozen.segments(), 1, "it is inspected");
        let (store, found) = open(folder.path(), config).unwrap();
        assert!((4..20).contains(&found.len()), "{} records", found.len());
        assert_eq!(found, (0..found.len()).map(record).collect::<Vec<_>>());
        assert_eq!(store.disk().segments(), 1);
        assert_eq!(log.metadata().unwrap().len(), u64::from(SEGMENT), "the segment is whole again");
    }
}
