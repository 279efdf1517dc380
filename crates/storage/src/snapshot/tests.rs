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

fn digests(state: &State) -> Vec<Digest> {
    let digest = |(index, version): (usize, &u64)| {
        Digest::of(&quorate_types::digest::Context::new("test chunk"), &content(index, *version))
    };
    state.iter().enumerate().map(digest).collect()
}

/// Writes a snapshot, and returns the chunks that it needed.
fn write(
    snapshots: &mut Snapshots,
    disk: &mut MemDisk,
    height: u64,
    state: &State,
) -> Result<Vec<usize>, Fault> {
    let header = height.to_le_bytes().to_vec();
    let mut writer = snapshots.begin(disk, Height(height), header, &digests(state))?;
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
        |chunk| chunk.length = u32::MAX,
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
    refused(snapshots.begin(&mut disk, Height(5), Vec::new(), &[]).map(|_| ()));
    let state = vec![2; 4];
    let mut writer = snapshots.begin(&mut disk, Height(6), Vec::new(), &digests(&state)).unwrap();
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
