//! Disks with arbitrary content: the store opens or reports the error. An open store can read everything and
//! continue.
//!
//! An input is a whole disk: its segments without zeros at their ends, and its blobs. Some changes correct the checksums
//! afterwards, so that the bytes behind them are reached. The layout of a record and of a manifest is in
//! `storage/src/log/record.rs` and `storage/src/snapshot.rs`.

use crate::runner::{Decoder, Read, folder};
use quorate_storage::folder::{self, Identity};
use quorate_storage::{Disk, MemDisk, Store, StoreConfig};
use quorate_types::bundle::BundleBuilder;
use quorate_types::codec::{put_bytes, put_length};
use quorate_types::mutate::{mutate, nudge};
use quorate_types::rng::Rng;
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, Bundle, BundleKind, BundleNo, ChunkId, ClusterId, DecodeError,
    Digest, Floors, Height, Incarnation, Kind, LogEntry, Mark, Payload, PayloadId, ProtocolId, PublicKey,
    Reader, ReplicaId, SessionId, Statement, View,
};
use std::sync::Arc;

const SEGMENT_BYTES: u32 = 2_048;
const PAGE_BYTES: usize = 512;
const SEGMENTS_MAX: usize = 8;
const SALT: u64 = 0x5a17;
/// Bytes before the data of a record: length, checksum, generation, sync number, kind.
const HEADER_BYTES: usize = 4 + 4 + 4 + 8 + 1;

fn config() -> StoreConfig {
    let limits = BodyLimits {
        request_bytes_max: 64,
        bundle_requests_max: 4,
        bundle_bytes_max: 256,
        block_bundles_max: 4,
        block_requests_max: 16,
        block_bytes_max: 1 << 10,
        reply_bytes_max: 256,
    };
    StoreConfig { limits, window: 4, keep_bytes: 4 << 10, disk_bytes_max: 64 << 10, ..StoreConfig::default() }
}

fn bundle(number: u64) -> Bundle {
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([5; 32]), session, BundleNo(number));
    builder.push(b"a request").push(&[number as u8; 20]);
    Bundle::parse(&builder.finish(), Authenticator::None, &config().limits).unwrap()
}

/// The writes of a replica at one height.
fn height(number: u64) -> Vec<LogEntry> {
    let bundle = bundle(number);
    let payload = Payload { bundles: vec![bundle.digest()] };
    let block = Block {
        parent: BlockId::ZERO,
        height: Height(number),
        view: View(0),
        proposer: ReplicaId(0),
        time_ns: number,
        payload: PayloadId(payload.id().0),
        extra: Digest::ZERO,
    };
    let id = block.id();
    let statement = Statement::new(Kind::new("vote"), View(0), Height(number), id.0);
    vec![
        LogEntry::Body(bundle),
        LogEntry::Block(Arc::new(block), Arc::new(payload)),
        LogEntry::Guard(statement),
        LogEntry::Record([number as u8; 60].as_slice().into()),
        LogEntry::Decided { height: Height(number), id },
    ]
}

/// Disks at several times in the life of a store: new, torn, with snapshots, with reused segments.
fn disks() -> Vec<Vec<u8>> {
    let mut disk = MemDisk::new(SEGMENT_BYTES, PAGE_BYTES);
    disk.set_salt(SALT);
    let mut store = Store::open(disk, config(), &mut |_| {}).unwrap();
    let mut all = vec![pack(store.disk())];
    store.append(Mark(1), &LogEntry::Incarnation(Incarnation(1))).unwrap();
    for number in 1..=9u64 {
        for entry in height(number) {
            store.append(Mark(number), &entry).unwrap();
        }
        if number == 4 {
            let views = vec![(Kind::new("vote"), View(0))];
            let base = [
                LogEntry::BaseBegin,
                LogEntry::Floors(Floors { height: Height(3), views }),
                LogEntry::Proof(vec![7; 50]),
                LogEntry::Certificate(vec![8; 50]),
                LogEntry::BaseEnd,
            ];
            base.iter().for_each(|entry| store.append(Mark(number), entry).unwrap());
        }
        store.write_and_sync().unwrap();
        if number % 3 == 0 {
            let chunks = [[1; 80], [number as u8 + 1; 80]];
            let ids = chunks.map(|chunk| ChunkId::of(&chunk));
            let mut writer = store.begin_snapshot(Height(number), vec![9; 30], &ids).unwrap();
            writer.prove(&[number as u8; 40]);
            for index in writer.needed().clone() {
                store.write_chunk(&mut writer, index, &chunks[index]).unwrap();
            }
            store.commit_snapshot(writer).unwrap();
        }
        all.push(pack(store.disk()));
    }
    all
}

fn pack(disk: &MemDisk) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_length(&mut bytes, disk.segments() as usize);
    for slot in 0..disk.segments() {
        let mut segment = vec![0; SEGMENT_BYTES as usize];
        disk.read(slot, 0, &mut segment).unwrap();
        let used = segment.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        put_bytes(&mut bytes, &segment[..used]);
    }
    for (name, size) in disk.blobs().unwrap() {
        let mut blob = vec![0; size as usize];
        disk.blob_read(&name, 0, &mut blob).unwrap();
        put_bytes(&mut bytes, name.as_bytes());
        put_bytes(&mut bytes, &blob);
    }
    bytes
}

/// The parts of a packed disk: segments, and names with blobs.
type Parts = (Vec<Vec<u8>>, Vec<(String, Vec<u8>)>);

fn parts(bytes: &[u8]) -> Result<Parts, DecodeError> {
    let mut reader = Reader::new(bytes);
    let segments = reader
        .list("segments", SEGMENTS_MAX, 4, |r| Ok(r.bytes("segment", SEGMENT_BYTES as usize)?.to_vec()))?;
    let mut blobs = Vec::new();
    while !reader.rest().is_empty() {
        let name = reader.text("name", 64)?.to_owned();
        blobs.push((name, reader.bytes("blob", 1 << 16)?.to_vec()));
    }
    Ok((segments, blobs))
}

fn unpack(bytes: &[u8]) -> Result<MemDisk, DecodeError> {
    let (segments, blobs) = parts(bytes)?;
    let mut disk = MemDisk::volatile(SEGMENT_BYTES, PAGE_BYTES);
    disk.set_salt(SALT);
    for segment in segments {
        let slot = disk.grow().unwrap();
        let pages = segment.len().next_multiple_of(PAGE_BYTES);
        disk.write(slot, 0, &[segment.as_slice(), &vec![0; pages - segment.len()]].concat()).unwrap();
    }
    for (name, blob) in blobs {
        disk.blob_begin(&name).unwrap();
        disk.blob_append(&blob).unwrap();
        disk.blob_sync().unwrap();
        disk.blob_commit().unwrap();
    }
    Ok(disk)
}

/// Changes a disk, and corrects its checksums.
fn forge(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let Ok((mut segments, mut blobs)) = parts(bytes) else { return };
    if rng.chance(250_000) && !blobs.is_empty() {
        let at = rng.index(blobs.len());
        remake_manifest(rng, &mut blobs[at].1, other);
    } else {
        let at = rng.index(segments.len());
        for _ in 0..=rng.below(2) {
            remake_record(rng, segments.get_mut(at).map_or(&mut [], Vec::as_mut_slice), other);
        }
        if rng.chance(50_000) {
            segments.swap(at, 0);
        }
    }
    bytes.clear();
    put_length(bytes, segments.len());
    segments.iter().for_each(|segment| put_bytes(bytes, segment));
    for (name, blob) in blobs {
        put_bytes(bytes, name.as_bytes());
        put_bytes(bytes, &blob);
    }
}

fn remake_manifest(rng: &mut Rng, blob: &mut Vec<u8>, other: &[u8]) {
    if blob.len() < 4 {
        return;
    }
    let mut body = blob.split_off(4);
    if rng.chance(700_000) {
        nudge(rng, &mut body, other);
    } else {
        mutate(rng, &mut body, other);
    }
    *blob = crc32c::crc32c(&body).to_le_bytes().to_vec();
    blob.extend_from_slice(&body);
}

/// Changes the content of a record often and its kind seldom, and corrects its checksum.
fn remake_record(rng: &mut Rng, segment: &mut [u8], other: &[u8]) {
    let records = records(segment);
    let Some((at, length)) = rng.pick(&records).copied() else { return };
    let data = at + HEADER_BYTES;
    let from = if rng.chance(100_000) { at + 8 } else { data };
    let donor = rng.pick(&records).map_or(other, |(other, _)| &segment[*other..]).to_vec();
    let donor = if rng.chance(500_000) { &donor } else { other };
    nudge(rng, &mut segment[from..data + length], donor);
    if rng.chance(50_000) {
        // The kind exists.
        segment[data - 1] = 1 + rng.index(28) as u8;
    }
    let seed = crc32c::crc32c(&SALT.to_le_bytes());
    let place = [(at as u32).to_le_bytes(), (length as u32).to_le_bytes()].concat();
    let sum = crc32c::crc32c_append(crc32c::crc32c_append(seed, &place), &segment[at + 8..data + length]);
    segment[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the places of records in a segment, and the bytes of their data.
fn records(segment: &[u8]) -> Vec<(usize, usize)> {
    let (mut at, mut found) = (0, Vec::new());
    while let Some(header) = segment.get(at..at + HEADER_BYTES) {
        let length = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        let end = at + HEADER_BYTES + length;
        if header[20] == 0 || end > segment.len() {
            // Padding: the next write begins with the next page.
            at = (at + 1).next_multiple_of(PAGE_BYTES);
            continue;
        }
        found.push((at, length));
        let ends_write = (3..=5).contains(&header[20]);
        at = end.next_multiple_of(if ends_write { PAGE_BYTES } else { 8 });
    }
    found
}

/// Whether a store opens on a disk. An open store then reads everything, and writes more.
fn open(bytes: &[u8]) -> Option<Store<MemDisk>> {
    let disk = unpack(bytes).ok()?;
    let mut store = Store::open(disk, config(), &mut |_| {}).ok()?;
    use_it(&mut store);
    Some(store)
}

/// The content of a failing disk: arbitrary bytes.
#[test]
fn damaged_disks_are_recovered_or_refused() {
    Decoder::new("disk", disks(), |bytes| {
        let Some(store) = open(bytes) else { return Read::Refused };
        // A store that has opened once opens again, with the added records.
        if let Err(why) = Store::open(store.into_disk(), config(), &mut |_| {}) {
            panic!("it opens once, and not again: {why}");
        }
        Read::Taken
    })
    .changed_by(in_place)
    .holding(16, 256 << 10)
    .costing(20)
    .fuzz();
}

/// Half of the changes keep the following bytes at their place.
fn in_place(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    if rng.chance(500_000) {
        nudge(rng, bytes, other);
    } else {
        mutate(rng, bytes, other);
    }
}

/// A forged disk: the checksums hold, and the content was never written. The store
/// refuses it, or refuses all that follows from it.
#[test]
fn forged_disks_are_recovered_or_refused() {
    let samples = disks();
    let count =
        |disk: &Vec<u8>| parts(disk).unwrap().0.iter().map(|segment| records(segment).len()).sum::<usize>();
    let found: usize = samples.iter().map(count).sum();
    assert!(found > 200, "{found} records are found where the store has put them");
    Decoder::new("disk-forged", samples, |bytes| {
        let Some(store) = open(bytes) else { return Read::Refused };
        let _ = Store::open(store.into_disk(), config(), &mut |_| {}).is_ok();
        Read::Taken
    })
    .changed_by(forge)
    .holding(16, 256 << 10)
    .costing(20)
    .fuzz();
}

/// Reads all records, and writes more. A record that cannot be read is reported, and harms no other.
fn use_it(store: &mut Store<MemDisk>) {
    let (first, last) = store.kept();
    for number in (first.0..=last.0).take(12) {
        if let Ok(Some(block)) = store.load(Height(number)) {
            assert_eq!(block.height, Height(number));
        }
    }
    let _ = store.decided_ids(first, 12);
    for number in 1..=10 {
        let _ = store.body(bundle(number).digest());
    }
    if let Ok(Some(snapshot)) = store.newest_snapshot() {
        for index in 0..snapshot.chunks().min(8) {
            let _ = store.snapshot_chunk(&snapshot, index);
        }
    }
    let next = last.next();
    for entry in height(next.0) {
        if store.append(Mark(1), &entry).is_err() {
            return;
        }
    }
    let _ = store.write_and_sync();
}

/// The file that names the owner of a folder.
#[test]
fn formats_of_folders_are_read_or_refused() {
    let folder = folder();
    let identity = Identity {
        cluster: ClusterId(Digest([0xab; 32])),
        replica: ReplicaId(2),
        protocol: ProtocolId::new("pbft"),
    };
    folder::format(folder.path(), &identity, SALT).unwrap();
    let file = folder.path().join("FORMAT");
    let sample = std::fs::read(&file).unwrap();
    Decoder::new("folder-format", vec![sample], |bytes| {
        std::fs::write(&file, bytes).unwrap();
        folder::open(folder.path(), &identity).is_ok().into()
    })
    .holding(16, 64 << 10)
    .costing(20)
    .fuzz();
}
