use super::*;
use crate::mem_disk::{Keep, MemDisk};
use quorate_types::rng::Rng;

fn disk() -> MemDisk {
    MemDisk::new(4096, 512)
}

/// A state: the version of each chunk. Index and version determine a chunk's content.
type State = Vec<u64>;

fn content(index: usize, version: u64) -> Vec<u8> {
    let mut bytes = format!("chunk {index} version {version} ").into_bytes();
    bytes.resize(100 + index * 10, version as u8);
    bytes
}

fn ids(state: &State) -> Vec<ChunkId> {
    state.iter().enumerate().map(|(index, version)| ChunkId::of(&content(index, *version))).collect()
}

/// Writes a snapshot, and returns the chunks that it needed.
fn write(
    snapshots: &mut Snapshots,
    disk: &mut MemDisk,
    height: u64,
    state: &State,
) -> Result<Vec<usize>, Fault> {
    let header = height.to_le_bytes().to_vec();
    let mut writer = snapshots.begin(disk, Height(height), (header, &ids(state)), Origin::Own)?;
    let needed: Vec<usize> = writer.needed().iter().copied().collect();
    for index in &needed {
        Snapshots::write(disk, &mut writer, *index, &content(*index, state[*index]))?;
    }
    let mut done = false;
    while !done {
        let before = disk.syncs();
        done = snapshots.commit(disk, &mut writer)?;
        assert_eq!(disk.syncs() - before, 1, "each step makes one sync");
    }
    Ok(needed)
}

fn check(snapshots: &Snapshots, disk: &MemDisk, height: u64, state: &State) {
    let stored = snapshots.read(disk, Height(height)).unwrap();
    assert_eq!((stored.height(), stored.chunks()), (Height(height), state.len()));
    assert_eq!(stored.header(), height.to_le_bytes());
    for (index, version) in state.iter().enumerate() {
        assert_eq!(snapshots.chunk(disk, &stored, index).unwrap(), content(index, *version));
    }
}

#[test]
fn only_changed_chunks_are_written() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    let mut state: State = vec![0; 20];
    assert_eq!(write(&mut snapshots, &mut disk, 1, &state).unwrap().len(), 20);
    check(&snapshots, &disk, 1, &state);
    state[3] = 1;
    state[19] = 1;
    assert_eq!(write(&mut snapshots, &mut disk, 2, &state).unwrap(), [3, 19]);
    check(&snapshots, &disk, 2, &state);
    assert_eq!(write(&mut snapshots, &mut disk, 3, &state).unwrap(), [0usize; 0]);
    check(&snapshots, &disk, 3, &state);
    // After a restart the snapshots are found again. Chunks may move, and their number may change.
    let mut snapshots = Snapshots::find(&disk).unwrap();
    assert_eq!(snapshots.heights(), [Height(2), Height(3)], "two snapshots are kept");
    state.truncate(15);
    // Without chunk 19 less than half of the second file is in use, so chunk 3 moves.
    assert_eq!(write(&mut snapshots, &mut disk, 4, &state).unwrap(), [3]);
    check(&snapshots, &disk, 4, &state);
    write(&mut snapshots, &mut disk, 5, &Vec::new()).unwrap();
    check(&snapshots, &disk, 5, &Vec::new());
}

/// After any number of snapshots with any number of changed chunks, the disk has little garbage and few files.
#[test]
fn garbage_of_snapshots_is_bounded() {
    const CHUNKS: usize = 150;
    for changed in [1, 3, 20] {
        let (mut disk, mut snapshots) = (disk(), Snapshots::default());
        let mut rng = Rng::new(changed);
        let mut state: State = vec![0; CHUNKS];
        let live: usize = (0..CHUNKS).map(|index| content(index, 0).len()).sum();
        let mut written = 0;
        for height in 1..=400 {
            for _ in 0..changed {
                let index = rng.index(CHUNKS);
                state[index] = height;
            }
            written += write(&mut snapshots, &mut disk, height, &state).unwrap().len();
            let files = disk.blobs().unwrap();
            let bytes: u64 = files.iter().map(|(_, bytes)| *bytes).sum();
            assert_eq!(bytes, snapshots.bytes());
            let manifests = 2 * (CHUNKS * CHUNK_AT_BYTES + 100);
            // There are two snapshots, each of which may use only half of its files' bytes.
            assert!(bytes as usize <= 4 * live + manifests, "height {height}: {bytes} for {live}");
            assert!(files.len() <= 2 + 2 * FILES_MAX, "{}", files.len());
        }
        check(&snapshots, &disk, 400, &state);
        assert!(written < 400 * CHUNKS / 2, "{written} chunks written for {changed} changed");
    }
}

#[test]
fn snapshots_survive_a_power_cut_at_every_operation() {
    let mut rng = Rng::new(9);
    for cut in 1.. {
        let (mut disk, mut snapshots) = (disk(), Snapshots::default());
        let mut states: BTreeMap<u64, State> = BTreeMap::new();
        let (mut tried, mut done) = (0, 0);
        disk.cut_power_after(cut);
        let ended = (1..=5).try_for_each(|height| {
            let state: State = (0..6).map(|index| height / (1 + index % 3)).collect();
            states.insert(height, state.clone());
            tried = height;
            write(&mut snapshots, &mut disk, height, &state)?;
            done = height;
            Ok::<(), Fault>(())
        });
        for keep in 0..4 {
            let mut disk = disk.clone();
            disk.crash(match keep {
                0 => Keep::Nothing,
                1 => Keep::Everything,
                _ => Keep::Sectors(&mut rng),
            });
            let mut snapshots = Snapshots::find(&disk).unwrap();
            let newest = snapshots.heights().last().map_or(0, |height| height.0);
            assert!(newest == done || newest == tried, "cut at {cut}: {newest}, done {done}");
            for height in snapshots.heights() {
                check(&snapshots, &disk, height.0, &states[&height.0]);
            }
            // Later snapshots succeed, and delete the files of the attempt.
            let state: State = vec![77; 6];
            write(&mut snapshots, &mut disk, 6, &state).unwrap();
            write(&mut snapshots, &mut disk, 7, &state).unwrap();
            check(&snapshots, &disk, 7, &state);
            assert_eq!(disk.blobs().unwrap().len(), 3, "expected two manifests and one file of chunks");
        }
        if ended.is_ok() {
            assert!(cut > 20, "{cut}");
            break;
        }
    }
}

#[test]
fn every_damaged_byte_is_found() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    let state: State = vec![1; 4];
    write(&mut snapshots, &mut disk, 1, &state).unwrap();
    for (name, bytes) in disk.blobs().unwrap() {
        for byte in 0..bytes as usize {
            let mut damaged = disk.clone();
            assert!(damaged.flip_blob(&name, byte, byte as u8));
            let read = snapshots.read(&damaged, Height(1));
            let read = read.and_then(|stored| {
                (0..4).try_for_each(|index| snapshots.chunk(&damaged, &stored, index).map(|_| ()))
            });
            assert!(matches!(read, Err(Fault::DamagedSnapshot { .. })), "{name} byte {byte}: {read:?}");
        }
    }
    for (name, _) in disk.blobs().unwrap() {
        let mut gone = disk.clone();
        gone.blob_delete(&name).unwrap();
        let read = snapshots.read(&gone, Height(1)).and_then(|stored| snapshots.chunk(&gone, &stored, 0));
        assert!(matches!(read, Err(Fault::DamagedSnapshot { .. })), "{name}: {read:?}");
    }
}

/// A manifest with a right checksum takes no more memory than its files have bytes.
#[test]
fn chunk_outside_its_file_is_refused() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    write(&mut snapshots, &mut disk, 1, &vec![0; 3]).unwrap();
    let stored = snapshots.read(&disk, Height(1)).unwrap();
    let changes: [fn(&mut ChunkAt); 4] = [
        |chunk| chunk.id.length = u32::MAX,
        |chunk| chunk.offset = u64::MAX,
        |chunk| chunk.offset += 1,
        |chunk| chunk.file = 7,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut other = stored.clone();
        change(&mut other.chunks[2]);
        let body = other.to_bytes();
        disk.blob_begin(&manifest_name(Height(1))).unwrap();
        disk.blob_append(&crc32c::crc32c(&body).to_le_bytes()).unwrap();
        disk.blob_append(&body).unwrap();
        disk.blob_sync().unwrap();
        disk.blob_commit().unwrap();
        let why = snapshots.read(&disk, Height(1)).unwrap_err().to_string();
        assert!(why.contains("chunk 2 does not lie inside"), "change {number}: {why}");
    }
}

#[test]
fn calls_out_of_order_are_refused() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    write(&mut snapshots, &mut disk, 5, &vec![1; 4]).unwrap();
    let refused = |result: Result<(), Fault>| assert!(matches!(result, Err(Fault::Snapshot { .. })));
    refused(snapshots.begin(&mut disk, Height(5), (Vec::new(), &[]), Origin::Own).map(|_| ()));
    let state = vec![2; 4];
    let mut writer = snapshots.begin(&mut disk, Height(6), (Vec::new(), &ids(&state)), Origin::Own).unwrap();
    refused(Snapshots::write(&mut disk, &mut writer, 4, b""));
    Snapshots::write(&mut disk, &mut writer, 1, &content(1, 2)).unwrap();
    refused(Snapshots::write(&mut disk, &mut writer, 1, &content(1, 2)));
    refused(snapshots.commit(&mut disk, &mut writer).map(|_| ()));
    let stored = snapshots.read(&disk, Height(5)).unwrap();
    refused(snapshots.chunk(&disk, &stored, 4).map(|_| ()));
    // An abandoned snapshot leaves no file.
    write(&mut snapshots, &mut disk, 7, &vec![3; 4]).unwrap();
    check(&snapshots, &disk, 7, &vec![3; 4]);
}

#[test]
fn full_disk_keeps_the_previous_snapshot() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    write(&mut snapshots, &mut disk, 1, &vec![1; 4]).unwrap();
    disk.set_capacity(disk.used_bytes() + 300);
    let refused = write(&mut snapshots, &mut disk, 2, &vec![2; 4]);
    assert!(matches!(refused, Err(Fault::Full { .. })), "{refused:?}");
    disk.crash(Keep::Nothing);
    let snapshots = Snapshots::find(&disk).unwrap();
    assert_eq!(snapshots.heights(), [Height(1)]);
    check(&snapshots, &disk, 1, &vec![1; 4]);
}

/// Begins a snapshot that peers send.
fn receive(
    snapshots: &mut Snapshots,
    disk: &mut MemDisk,
    (height, state): (u64, &State),
    carried: Option<SnapshotWriter>,
) -> SnapshotWriter {
    let header = height.to_le_bytes().to_vec();
    snapshots
        .begin(disk, Height(height), (header, &ids(state)), Origin::Peers(carried.map(Box::new)))
        .unwrap()
}

fn needed(writer: &SnapshotWriter) -> Vec<usize> {
    writer.needed().iter().copied().collect()
}

fn finish(snapshots: &mut Snapshots, disk: &mut MemDisk, writer: &mut SnapshotWriter, state: &State) {
    for index in needed(writer) {
        Snapshots::write(disk, writer, index, &content(index, state[index])).unwrap();
    }
    while !snapshots.commit(disk, writer).unwrap() {}
}

/// A state that comes from peers uses the chunks that the disk has already, after it has read them.
#[test]
fn received_state_uses_the_chunks_that_are_there_and_replaces_damaged_ones() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    let mut state: State = vec![0; 10];
    write(&mut snapshots, &mut disk, 1, &state).unwrap();
    state[4] = 1;
    let mut writer = receive(&mut snapshots, &mut disk, (7, &state), None);
    assert_eq!(needed(&writer), [4]);
    assert!(
        matches!(snapshots.commit(&mut disk, &mut writer), Err(Fault::Snapshot { .. })),
        "nothing was read"
    );
    // Chunk 2 of the old snapshot is damaged on the disk.
    let at = writer.snapshot.chunks[2].offset;
    assert!(disk.flip_blob(&chunks_name(1), usize::try_from(at).unwrap(), 3));
    let mut calls = 0;
    while !writer.unread.is_empty() {
        snapshots.read_again(&disk, &mut writer, 100).unwrap();
        calls += 1;
    }
    assert!(calls > 3, "each call reads a bounded number of bytes");
    assert_eq!(needed(&writer), [2, 4]);
    finish(&mut snapshots, &mut disk, &mut writer, &state);
    check(&snapshots, &disk, 7, &state);
}

/// Peers may drop a state while it is sent. The newer state that replaces it uses the received chunks.
#[test]
fn newer_state_uses_the_chunks_that_were_received_for_an_older_one() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    let mut state: State = vec![3; 10];
    let mut writer = receive(&mut snapshots, &mut disk, (5, &state), None);
    assert_eq!(needed(&writer).len(), 10);
    for index in [0, 1, 2, 7] {
        Snapshots::write(&mut disk, &mut writer, index, &content(index, 3)).unwrap();
    }
    Snapshots::sync(&mut disk, &mut writer).unwrap();
    state[1] = 4;
    let mut writer = receive(&mut snapshots, &mut disk, (9, &state), Some(writer));
    assert_eq!(needed(&writer), [1, 3, 4, 5, 6, 8, 9]);
    finish(&mut snapshots, &mut disk, &mut writer, &state);
    check(&snapshots, &disk, 9, &state);
    assert_eq!(Snapshots::find(&disk).unwrap().heights(), [Height(9)]);
}

#[test]
fn equal_chunks_are_written_once() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    let equal = ChunkId::of(b"equal");
    let ids = [equal, ChunkId::of(b"other"), equal, equal];
    let mut writer = snapshots.begin(&mut disk, Height(1), (Vec::new(), &ids), Origin::Own).unwrap();
    assert_eq!((needed(&writer), writer.needed_bytes()), (vec![0, 1], 10));
    Snapshots::write(&mut disk, &mut writer, 1, b"other").unwrap();
    Snapshots::write(&mut disk, &mut writer, 0, b"equal").unwrap();
    while !snapshots.commit(&mut disk, &mut writer).unwrap() {}
    let stored = snapshots.read(&disk, Height(1)).unwrap();
    let chunks: Vec<Vec<u8>> = (0..4).map(|index| snapshots.chunk(&disk, &stored, index).unwrap()).collect();
    assert_eq!(chunks, [b"equal", b"other", b"equal", b"equal"]);
    assert_eq!(snapshots.piece(&disk, &stored, (3, 1, 3)).unwrap(), b"qua");
    assert!(matches!(snapshots.piece(&disk, &stored, (3, 3, 3)), Err(Fault::Snapshot { .. })));
    assert!(matches!(snapshots.piece(&disk, &stored, (4, 0, 0)), Err(Fault::Snapshot { .. })));
}

/// Peers may be receiving the newest snapshot with a proof, so it stays until a newer one has a proof.
#[test]
fn snapshot_with_a_proof_is_kept_until_a_newer_one_has_a_proof() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    let state: State = vec![0; 3];
    let mut kept = Vec::new();
    for height in 1..=6 {
        let mut writer =
            snapshots.begin(&mut disk, Height(height), (Vec::new(), &ids(&state)), Origin::Own).unwrap();
        if [1, 4].contains(&height) {
            writer.prove(b"proof");
        }
        finish(&mut snapshots, &mut disk, &mut writer, &state);
        let found = Snapshots::find(&disk).unwrap();
        assert_eq!(found.heights(), snapshots.heights());
        assert_eq!(found.newest_proven(), snapshots.newest_proven());
        let heights: Vec<u64> = found.heights().iter().map(|height| height.0).collect();
        kept.push((heights, found.newest_proven().map(|height| height.0)));
    }
    let expected = [
        (vec![1], Some(1)),
        (vec![1, 2], Some(1)),
        (vec![1, 3], Some(1)),
        (vec![3, 4], Some(4)),
        (vec![4, 5], Some(4)),
        (vec![4, 6], Some(4)),
    ];
    assert_eq!(kept, expected);
    assert_eq!(snapshots.read(&disk, Height(4)).unwrap().proof(), b"proof");
}

/// A damaged note about wrong states is no disk that failed: all own states are wrong then, and a state with a proof is right.
#[test]
fn damaged_note_about_wrong_states_distrusts_all() {
    let mut noted = disk();
    Snapshots::default().distrust(&mut noted, Height(7)).unwrap();
    assert_eq!(Snapshots::find(&noted).unwrap().distrusted(), Height(7));
    for byte in 0..12 {
        let mut flipped = noted.clone();
        assert!(flipped.flip_blob("distrusted", byte, 3));
        assert_eq!(Snapshots::find(&flipped).unwrap().distrusted(), Height(1), "byte {byte} is flipped");
        let mut cut = noted.clone();
        cut.truncate_blob("distrusted", byte);
        assert_eq!(Snapshots::find(&cut).unwrap().distrusted(), Height(1), "{byte} bytes are left");
    }
    // States with a proof are right, and only later ones may be wrong.
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    let state: State = vec![0; 3];
    for height in [2, 9] {
        let ids = ids(&state);
        let mut writer = snapshots.begin(&mut disk, Height(height), (Vec::new(), &ids), Origin::Own).unwrap();
        if height == 2 {
            writer.prove(b"proof");
        }
        finish(&mut snapshots, &mut disk, &mut writer, &state);
    }
    snapshots.distrust(&mut disk, Height(7)).unwrap();
    assert!(disk.flip_blob("distrusted", 0, 3));
    assert_eq!(Snapshots::find(&disk).unwrap().distrusted(), Height(3));
}

/// The cost of a state is known before anything changes: the own snapshot may be in progress.
#[test]
fn cost_of_a_state_is_that_of_its_unknown_chunks_and_changes_nothing() {
    let (mut disk, mut snapshots) = (disk(), Snapshots::default());
    let mut state: State = vec![0; 5];
    write(&mut snapshots, &mut disk, 1, &state).unwrap();
    state[1] = 1;
    let own = ids(&state);
    let mut writer = snapshots.begin(&mut disk, Height(2), (Vec::new(), &own), Origin::Own).unwrap();
    Snapshots::write(&mut disk, &mut writer, 1, &content(1, 1)).unwrap();
    let other = ids(&vec![0, 2, 2, 0, 0]);
    let bytes = |index| content(index, 2).len() as u64;
    let cost = |carried: Option<&SnapshotWriter>| snapshots.missing_bytes(&disk, &other, carried).unwrap();
    assert_eq!(cost(None), bytes(1) + bytes(2));
    let twice: Vec<ChunkId> = other.iter().chain(&other).copied().collect();
    assert_eq!(snapshots.missing_bytes(&disk, &twice, None).unwrap(), cost(None), "equal chunks arrive once");
    assert_eq!(snapshots.missing_bytes(&disk, &own, Some(&writer)).unwrap(), 0);
    while !snapshots.commit(&mut disk, &mut writer).unwrap() {}
    let stored = snapshots.read(&disk, Height(2)).unwrap();
    assert_eq!(snapshots.chunk(&disk, &stored, 1).unwrap(), content(1, 1));
}
