mod power;

use super::*;
use crate::index::WAITING_BODIES_MAX;
use crate::mem_disk::{Keep, MemDisk};
use quorate_types::bundle::{BundleBuilder, BundleKind};
use quorate_types::{
    Authenticator, BundleNo, ChunkId, Digest, Floors, Incarnation, Kind, PayloadId, PublicKey, ReplicaId,
    SessionId, Signature, Slot, Statement, View,
};

pub(super) const PAGE: usize = 512;
pub(super) const SEGMENT: u32 = 16 << 10;

pub(super) fn config() -> StoreConfig {
    StoreConfig {
        limits: BodyLimits {
            request_bytes_max: 4096,
            bundle_bytes_max: 8192,
            block_bundles_max: 64,
            ..BodyLimits::default()
        },
        window: 8,
        keep_bytes: 4 * u64::from(SEGMENT),
        disk_bytes_max: 1 << 20,
        ..StoreConfig::default()
    }
}

pub(super) fn open(disk: MemDisk) -> Result<(Store<MemDisk>, Vec<LogEntry>), Fault> {
    let mut entries = Vec::new();
    let store = Store::open(disk, config(), &mut |entry| entries.push(entry))?;
    Ok((store, entries))
}

pub(super) fn new() -> Store<MemDisk> {
    open(MemDisk::new(SEGMENT, PAGE)).unwrap().0
}

/// Returns the n-th bundle of every test, with a request of `bytes` bytes.
pub(super) fn bundle(n: u64, bytes: usize) -> Bundle {
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([3; 32]), session, BundleNo(n + 1));
    builder.push(&vec![n as u8; bytes]);
    let authenticator = if n.is_multiple_of(2) {
        Authenticator::None
    } else {
        Authenticator::Signature(Signature([n as u8; 64]))
    };
    Bundle::parse(&builder.finish(), authenticator, &config().limits).unwrap()
}

pub(super) fn block(height: u64, view: u64, bundles: &[Bundle]) -> (Arc<Block>, Arc<Payload>) {
    let payload = Payload { bundles: bundles.iter().map(|bundle| bundle.digest()).collect() };
    let block = Block {
        parent: BlockId::ZERO,
        height: Height(height),
        view: View(view),
        proposer: ReplicaId(1),
        time_ns: height * 1000,
        payload: payload.id(),
        extra: Digest::ZERO,
    };
    (Arc::new(block), Arc::new(payload))
}

fn append(store: &mut Store<MemDisk>, entry: &LogEntry) {
    let mark = Mark(store.appended().0 + 1);
    store.append(mark, entry).unwrap();
}

/// Appends bodies, block and decision, and returns the full block.
fn decide(store: &mut Store<MemDisk>, height: u64, bundles: &[Bundle]) -> FullBlock {
    let (block, payload) = block(height, 1, bundles);
    for bundle in bundles {
        append(store, &LogEntry::Body(bundle.clone()));
    }
    append(store, &LogEntry::Block(Arc::clone(&block), payload));
    let id = block.id();
    let height = Height(height);
    append(store, &LogEntry::Decided { height, id });
    FullBlock { height, id, block: Some(Arc::unwrap_or_clone(block)), bundles: bundles.to_vec() }
}

fn base(store: &mut Store<MemDisk>) {
    for entry in [LogEntry::BaseBegin, LogEntry::Incarnation(Incarnation(1)), LogEntry::BaseEnd] {
        append(store, &entry);
    }
}

/// Writes a durable snapshot with one chunk.
fn snapshot(store: &mut Store<MemDisk>, height: u64) {
    let id = ChunkId::of(&height.to_le_bytes());
    let mut writer = store.begin_snapshot(Height(height), vec![1, 2], &[id]).unwrap();
    assert_eq!(writer.needed().iter().copied().collect::<Vec<_>>(), [0]);
    store.write_chunk(&mut writer, 0, &height.to_le_bytes()).unwrap();
    store.commit_snapshot(writer).unwrap();
}

#[test]
fn entries_of_every_kind_are_recovered_in_order() {
    let mut store = new();
    let statement = Statement::new(Kind::new("vote"), View(3), Height(4), Digest([5; 32]));
    let (one, payload) = block(1, 1, &[bundle(1, 10)]);
    let entries = [
        LogEntry::Incarnation(Incarnation(7)),
        LogEntry::Record(b"record".as_slice().into()),
        LogEntry::Guard(statement),
        LogEntry::Floors(Floors { height: Height(2), views: vec![(Kind::new("vote"), View(1))] }),
        LogEntry::Block(one.clone(), payload),
        LogEntry::Body(bundle(1, 10)),
        LogEntry::Decided { height: Height(1), id: one.id() },
        LogEntry::Certificate(vec![1; 300]),
        LogEntry::Proof(Vec::new()),
        LogEntry::BaseBegin,
        LogEntry::BaseEnd,
    ];
    for (n, entry) in (1..).zip(&entries) {
        store.append(Mark(n), entry).unwrap();
        assert_eq!((store.appended(), store.durable()), (Mark(n), Mark(0)));
    }
    assert!(store.buffered() > 0);
    assert_eq!(store.write_and_sync().unwrap(), Mark(11));
    assert_eq!((store.durable(), store.buffered()), (Mark(11), 0));
    let (_, found) = open(store.into_disk()).unwrap();
    let expected = entries.into_iter().filter(|entry| !matches!(entry, LogEntry::Body(_)));
    assert_eq!(found, expected.collect::<Vec<_>>());
    let _: Slot = statement.slot();
}

#[test]
fn decided_blocks_are_loaded_completely_before_and_after_a_restart() {
    let mut store = new();
    let mut decided = Vec::new();
    for height in 1..=20 {
        let bundles: Vec<_> = (0..height % 4).map(|i| bundle(height * 10 + i, 100 * i as usize)).collect();
        decided.push(decide(&mut store, height, &bundles));
        if height % 3 == 0 {
            store.write_and_sync().unwrap();
        }
    }
    let id = BlockId::null(Height(21));
    append(&mut store, &LogEntry::Decided { height: Height(21), id });
    decided.push(FullBlock::null(Height(21)));
    for restarted in [false, true] {
        assert_eq!(store.kept(), (Height(1), Height(21)));
        for full in &decided {
            assert_eq!(store.load(full.height).unwrap().as_ref(), Some(full), "restarted: {restarted}");
        }
        assert_eq!(store.load(Height(22)).unwrap(), None);
        assert_eq!(store.load(Height(0)).unwrap(), None);
        let ids: Vec<BlockId> = decided.iter().map(|full| full.id).collect();
        assert_eq!(store.decided_ids(Height(1), 100).unwrap(), ids);
        assert_eq!(store.decided_ids(Height(5), 3).unwrap(), ids[4..7]);
        assert!(store.decided_ids(Height(22), 3).unwrap().is_empty());
        store.write_and_sync().unwrap();
        store = open(store.into_disk()).unwrap().0;
    }
}

#[test]
fn body_is_copied_once_and_written_once() {
    let mut store = new();
    let body = bundle(1, 1000);
    append(&mut store, &LogEntry::Body(body.clone()));
    append(&mut store, &LogEntry::Body(body.clone()));
    assert_eq!(store.ledger().body_bytes_copied, body.size() as u64);
    assert_eq!(store.body(body.digest()).unwrap(), Some(body.clone()));
    store.write_and_sync().unwrap();
    assert_eq!(store.body(body.digest()).unwrap(), Some(body.clone()));
    let ledger = *store.ledger();
    assert_eq!((ledger.log_writes, ledger.syncs), (1, 1));
    assert!(ledger.log_bytes <= 2048, "{}", ledger.log_bytes);
    let (mut store, _) = open(store.into_disk()).unwrap();
    assert_eq!(store.body(body.digest()).unwrap(), Some(body));
    assert_eq!(store.body(bundle(2, 1).digest()).unwrap(), None);
}

#[test]
fn bundle_of_two_blocks_is_loaded_with_both() {
    let mut store = new();
    let body = bundle(1, 50);
    let first = decide(&mut store, 1, std::slice::from_ref(&body));
    // The body is not appended again, because it was decided recently.
    let (again, payload) = block(2, 1, std::slice::from_ref(&body));
    append(&mut store, &LogEntry::Block(Arc::clone(&again), payload));
    let id = again.id();
    append(&mut store, &LogEntry::Decided { height: Height(2), id });
    store.write_and_sync().unwrap();
    let (mut store, _) = open(store.into_disk()).unwrap();
    assert_eq!(store.load(Height(1)).unwrap(), Some(first));
    assert_eq!(store.load(Height(2)).unwrap().unwrap().bundles, [body]);
}

/// A body was executed and is appended again while an undecided block names it. That block dies, and the segments of
/// both entries are released. The body is appended with another block and must be available for it.
#[test]
fn body_that_is_appended_again_is_available_again() {
    let mut store = new();
    let body = bundle(1, 50);
    decide(&mut store, 1, std::slice::from_ref(&body));
    let (dead, payload) = block(5, 2, std::slice::from_ref(&body));
    append(&mut store, &LogEntry::Block(dead, payload));
    append(&mut store, &LogEntry::Body(body.clone()));
    let first = store.log.oldest();
    let mut height = 1;
    while store.log.oldest() <= first + 2 {
        height += 1;
        decide(&mut store, height, &[bundle(height, 400)]);
        store.write_and_sync().unwrap();
        if height % 20 == 0 {
            snapshot(&mut store, height);
        }
        if store.take_base_due() {
            base(&mut store);
        }
    }
    let (block, payload) = block(height + 1, 2, std::slice::from_ref(&body));
    let id = block.id();
    append(&mut store, &LogEntry::Block(block, payload));
    append(&mut store, &LogEntry::Body(body.clone()));
    append(&mut store, &LogEntry::Decided { height: Height(height + 1), id });
    store.write_and_sync().unwrap();
    let (mut store, _) = open(store.into_disk()).unwrap();
    assert_eq!(store.load(Height(height + 1)).unwrap().unwrap().bundles, [body]);
}

#[test]
fn conflicting_decisions_and_gaps_are_refused() {
    let mut store = new();
    let full = decide(&mut store, 1, &[bundle(1, 1)]);
    let again = LogEntry::Decided { height: Height(1), id: full.id };
    append(&mut store, &again);
    let other = LogEntry::Decided { height: Height(1), id: BlockId::null(Height(1)) };
    let refused = store.append(Mark(99), &other);
    assert!(matches!(refused, Err(Fault::ConflictingDecision { .. })), "{refused:?}");
    let gap = LogEntry::Decided { height: Height(3), id: BlockId::null(Height(3)) };
    assert!(matches!(store.append(Mark(99), &gap), Err(Fault::ConflictingDecision { .. })));
    let (second, payload) = block(2, 1, &[bundle(2, 1)]);
    let decided = LogEntry::Decided { height: Height(2), id: second.id() };
    assert!(matches!(store.append(Mark(99), &decided), Err(Fault::MissingBlock { .. })));
    append(&mut store, &LogEntry::Block(second, payload));
    assert!(matches!(store.append(Mark(99), &decided), Err(Fault::MissingBody { .. })));
    append(&mut store, &LogEntry::Body(bundle(2, 1)));
    append(&mut store, &decided);
    assert_eq!(store.kept(), (Height(1), Height(2)));
}

#[test]
fn damaged_body_is_never_returned() {
    let mut store = new();
    let full = decide(&mut store, 1, &[bundle(1, 600)]);
    store.write_and_sync().unwrap();
    for height in 2..10 {
        decide(&mut store, height, &[bundle(height, 10)]);
        store.write_and_sync().unwrap();
    }
    let at = store.index.body(&full.bundles[0].digest()).unwrap();
    assert!(store.disk_mut().flip(0, at.offset + 300, 4));
    assert!(matches!(store.load(Height(1)), Err(Fault::Damaged { .. })));
    assert!(matches!(store.body(full.bundles[0].digest()), Err(Fault::Damaged { .. })));
    assert!(matches!(open(store.into_disk()), Err(Fault::Damaged { .. })));
}

/// With snapshots and bases, any number of heights fits into a fixed number of segments.
#[test]
fn segments_are_used_again_with_base_and_snapshot() {
    let mut store = new();
    let (mut bases, mut kept_least) = (0, u64::MAX);
    for height in 1..=2_000u64 {
        decide(&mut store, height, &[bundle(height, 400)]);
        if height % 2 == 0 {
            store.write_and_sync().unwrap();
        }
        if height % 50 == 0 {
            snapshot(&mut store, height);
        }
        if store.take_base_due() {
            base(&mut store);
            bases += 1;
        }
        if height > 500 {
            let (first, last) = store.kept();
            kept_least = kept_least.min(last.0 - first.0);
        }
        if height % 333 == 0 {
            store.write_and_sync().unwrap();
            store = open(store.into_disk()).unwrap().0;
        }
    }
    assert!(store.disk().segments() <= 4 + 6, "{}", store.disk().segments());
    assert!(bases >= 50, "{bases}");
    // Each height takes less than a kilobyte of the four kept segments.
    assert!(kept_least > 40, "{kept_least}");
    let (first, last) = store.kept();
    for height in first.0..=last.0 {
        assert_eq!(store.load(Height(height)).unwrap().unwrap().bundles, [bundle(height, 400)]);
    }
    assert_eq!(store.load(first.minus(1)).unwrap(), None);
}

#[test]
fn no_segment_is_released_without_base_or_snapshot() {
    for (with_base, with_snapshot) in [(false, true), (true, false)] {
        let mut store = new();
        for height in 1..=300u64 {
            decide(&mut store, height, &[bundle(height, 400)]);
            store.write_and_sync().unwrap();
            if with_snapshot && height % 20 == 0 {
                snapshot(&mut store, height);
            }
            if store.take_base_due() && with_base {
                base(&mut store);
            }
        }
        assert_eq!(store.kept(), (Height(1), Height(300)), "{with_base} {with_snapshot}");
        let (mut store, _) = open(store.into_disk()).unwrap();
        assert!(store.load(Height(1)).unwrap().is_some());
    }
}

#[test]
fn exceeded_disk_budget_stops_the_store() {
    let mut store = new();
    let filled = (1..).find_map(|height| {
        let body = LogEntry::Body(bundle(height, 4000));
        store.append(Mark(height), &body).err()
    });
    assert_eq!(filled, Some(Fault::Budget { limit: 1 << 20 }));
    assert_eq!(store.write_and_sync(), Err(Fault::Stopped));
    assert!(store.disk().used_bytes() <= 1 << 20);
}

/// Bodies that an undecided block names stay available over any number of reused segments. Other undecided bodies are
/// dropped.
#[test]
fn undecided_entries_are_moved_out_of_released_segments() {
    let mut store = new();
    let waiting = [bundle(50_000, 700), bundle(50_001, 300)];
    let (far, far_payload) = block(5_000, 1, &waiting[1..]);
    append(&mut store, &LogEntry::Body(waiting[0].clone()));
    append(&mut store, &LogEntry::Body(waiting[1].clone()));
    append(&mut store, &LogEntry::Block(Arc::clone(&far), far_payload));
    for height in 1..=1_000u64 {
        decide(&mut store, height, &[bundle(height, 500)]);
        store.write_and_sync().unwrap();
        if height % 25 == 0 {
            snapshot(&mut store, height);
        }
        if store.take_base_due() {
            base(&mut store);
        }
        if height % 100 == 99 {
            let (again, entries) = open(store.into_disk()).unwrap();
            store = again;
            let found =
                entries.iter().any(|entry| matches!(entry, LogEntry::Block(block, _) if *block == far));
            assert!(found, "the undecided block is gone at height {height}");
        }
    }
    assert!(store.kept().0 > Height(500));
    assert_eq!(store.body(waiting[0].digest()).unwrap(), None);
    assert_eq!(store.body(waiting[1].digest()).unwrap().as_ref(), Some(&waiting[1]));
    // Finally both are decided: the moved one at its new location, and the other after a new append.
    let full = decide(&mut store, 1_001, &waiting);
    store.write_and_sync().unwrap();
    assert_eq!(store.load(Height(1_001)).unwrap(), Some(full));
}

/// A peer deposits more bodies than the oldest segments that are released at once. Bodies that no block names are
/// dropped with the segments. Bodies that one names are moved before the disk is full. Both also hold after a
/// restart.
#[test]
fn deposited_bodies_do_not_fill_the_disk() {
    for is_named in [false, true] {
        let mut store = new();
        let deposit: Vec<_> = (0..60).map(|n| bundle(60_000 + n, 3_000)).collect();
        if is_named {
            let (far, payload) = block(5_000, 1, &deposit);
            append(&mut store, &LogEntry::Block(far, payload));
        }
        for body in &deposit {
            append(&mut store, &LogEntry::Body(body.clone()));
        }
        assert!(store.log.generation() > 10);
        for height in 1..=2_000u64 {
            decide(&mut store, height, &[bundle(height, 500)]);
            store.write_and_sync().unwrap();
            if height % 25 == 0 {
                snapshot(&mut store, height);
            }
            if store.take_base_due() {
                base(&mut store);
            }
            if height == 1_000 {
                store = open(store.into_disk()).unwrap().0;
            }
        }
        assert!(store.kept().0 > Height(1_500));
        assert!(store.disk().used_bytes() < 1 << 20);
        for body in &deposit {
            assert_eq!(store.body(body.digest()).unwrap().is_some(), is_named);
        }
    }
}

/// A body that was dropped among too many waiting ones is written again with the block that names it, and is then
/// kept. A body that the log has is not written again.
#[test]
fn only_missing_bodies_of_a_block_are_appended_with_it() {
    let mut store = new();
    let bodies = [bundle(1, 500), bundle(2, 500)];
    bodies.iter().for_each(|body| append(&mut store, &LogEntry::Body(body.clone())));
    store.write_and_sync().unwrap();
    let (voted, payload) = block(2, 1, &bodies);
    let voted = LogEntry::Block(voted, payload);
    let entries: Vec<_> = std::iter::once(voted).chain(bodies.iter().cloned().map(LogEntry::Body)).collect();
    let before = store.log.totals.appended_bytes;
    entries.iter().for_each(|entry| append(&mut store, entry));
    let once = store.log.totals.appended_bytes - before;
    assert!(once < 500, "{once} bytes: a body was written again");
    entries.iter().for_each(|entry| append(&mut store, entry));
    assert_eq!(store.log.totals.appended_bytes - before, once, "the block was written again");

    let mut store = new();
    append(&mut store, &LogEntry::Body(bodies[0].clone()));
    for n in 0..WAITING_BODIES_MAX as u64 {
        let mut digest = [1; 32];
        digest[..8].copy_from_slice(&n.to_le_bytes());
        let location = Location { generation: 1, offset: 1 << 20, length: 1 };
        store.index.insert_body(BundleDigest(Digest(digest)), location);
    }
    assert_eq!(store.body(bodies[0].digest()).unwrap(), None, "the body was not dropped");
    entries.iter().for_each(|entry| append(&mut store, entry));
    store.write_and_sync().unwrap();
    let (mut store, _) = open(store.into_disk()).unwrap();
    for body in &bodies {
        assert_eq!(
            store.body(body.digest()).unwrap().as_ref(),
            Some(body),
            "a body of the voted block is missing"
        );
    }
}

/// A base repeats a block exactly once.
#[test]
fn block_is_written_again_only_in_a_base() {
    let mut store = new();
    let (far, payload) = block(50, 1, &[]);
    let far = LogEntry::Block(far, payload);
    append(&mut store, &far);
    for height in 1..=49u64 {
        decide(&mut store, height, &[bundle(height, 900)]);
    }
    assert!(store.log.generation() > 2);
    let (first, before) = (store.log.totals.appended_bytes, store.index.live_below(2).blocks.len());
    append(&mut store, &far);
    assert_eq!((store.log.totals.appended_bytes, before), (first, 1));
    append(&mut store, &LogEntry::BaseBegin);
    append(&mut store, &far);
    append(&mut store, &LogEntry::BaseEnd);
    assert_eq!(store.index.live_below(2).blocks.len(), 0);
}

#[test]
fn base_is_due_once_for_each_segment() {
    let mut store = new();
    assert!(!store.take_base_due(), "the first segment needs no base");
    let mut asked = 0;
    let mut height = 0;
    while store.log.generation() < 6 {
        height += 1;
        decide(&mut store, height, &[bundle(height, 900)]);
        if store.take_base_due() {
            asked += 1;
            assert!(!store.take_base_due());
            base(&mut store);
        }
    }
    assert_eq!(asked, 5);
    // An unfinished base does not count after a restart.
    append(&mut store, &LogEntry::BaseBegin);
    store.write_and_sync().unwrap();
    let (mut store, _) = open(store.into_disk()).unwrap();
    assert!(!store.take_base_due(), "the previous base is in this segment");
    while store.log.generation() < 7 {
        height += 1;
        decide(&mut store, height, &[bundle(height, 900)]);
    }
    store.write_and_sync().unwrap();
    let (mut store, _) = open(store.into_disk()).unwrap();
    assert!(store.take_base_due(), "the base was due before the restart");
}

/// A base that is larger than a segment is not written for each new segment.
#[test]
fn large_base_is_not_written_for_each_segment() {
    let mut store = new();
    let mut bases = 0;
    let mut appended = 0u64;
    for height in 1..=400u64 {
        decide(&mut store, height, &[bundle(height, 900)]);
        appended += 1_500;
        while store.take_base_due() {
            append(&mut store, &LogEntry::BaseBegin);
            for _ in 0..40 {
                append(&mut store, &LogEntry::Record([1; 1000].into()));
            }
            append(&mut store, &LogEntry::BaseEnd);
            bases += 1;
        }
        if height % 4 == 0 {
            store.write_and_sync().unwrap();
        }
        if height % 20 == 0 {
            snapshot(&mut store, height);
        }
    }
    assert!(bases > 3 && bases <= 1 + appended / 40_000, "{bases} bases for {appended} bytes");
}

#[test]
fn older_image_of_the_disk_has_an_older_state() {
    let mut store = new();
    decide(&mut store, 1, &[bundle(1, 10)]);
    store.write_and_sync().unwrap();
    let image = store.disk().clone();
    for height in 2..100 {
        decide(&mut store, height, &[bundle(height, 300)]);
        store.write_and_sync().unwrap();
    }
    let (mut older, entries) = open(image).unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(older.kept(), (Height(1), Height(1)));
    decide(&mut older, 2, &[bundle(77, 10)]);
    older.write_and_sync().unwrap();
}

#[test]
fn limits_beyond_a_segment_are_refused() {
    let mut too_large = config();
    too_large.limits.bundle_bytes_max = SEGMENT;
    let refused = Store::open(MemDisk::new(SEGMENT, PAGE), too_large, &mut |_| {}).err();
    assert!(matches!(refused, Some(Fault::TooLarge { .. })), "{refused:?}");
}

#[test]
fn heights_continue_after_a_transferred_state() {
    let mut store = new();
    decide(&mut store, 1, &[bundle(1, 10)]);
    let (dead, payload) = block(7, 1, &[bundle(2, 10)]);
    append(&mut store, &LogEntry::Block(dead, payload));
    snapshot(&mut store, 40);
    assert_eq!(store.kept(), (Height(41), Height(40)));
    assert_eq!(store.load(Height(1)).unwrap(), None);
    let full = decide(&mut store, 41, &[bundle(41, 10)]);
    store.write_and_sync().unwrap();
    let (mut store, _) = open(store.into_disk()).unwrap();
    assert_eq!(store.kept(), (Height(41), Height(41)));
    assert_eq!(store.load(Height(41)).unwrap(), Some(full));
    let _ = PayloadId::ZERO;
}

/// A durable snapshot replaces the decided heights below it that are not durable.
#[test]
fn snapshot_may_be_newer_than_the_log() {
    let mut store = new();
    decide(&mut store, 1, &[bundle(1, 10)]);
    store.write_and_sync().unwrap();
    decide(&mut store, 2, &[bundle(2, 10)]);
    snapshot(&mut store, 2);
    let mut disk = store.into_disk();
    disk.crash(Keep::Nothing);
    let (mut store, _) = open(disk).unwrap();
    assert_eq!(store.kept().1, Height(2));
    decide(&mut store, 3, &[bundle(3, 10)]);
    store.write_and_sync().unwrap();
    let (mut store, _) = open(store.into_disk()).unwrap();
    assert_eq!(store.kept(), (Height(3), Height(3)));
    assert!(store.load(Height(3)).unwrap().is_some());
}

fn damage_newest(disk: &mut MemDisk, prefix: &str) {
    let names = disk.blobs().unwrap().into_iter().map(|(name, _)| name);
    let newest = names.filter(|name| name.starts_with(prefix)).max().unwrap();
    assert!(disk.flip_blob(&newest, 3, 1));
}

#[test]
fn damaged_snapshot_is_skipped_only_if_the_log_reaches_back() {
    for damage in ["snapshot-", "chunks-"] {
        // The log still has all heights from the older snapshot on.
        let mut store = new();
        for height in 1..=30 {
            decide(&mut store, height, &[bundle(height, 10)]);
            if height % 10 == 0 {
                snapshot(&mut store, height);
            }
        }
        store.write_and_sync().unwrap();
        let mut disk = store.into_disk();
        damage_newest(&mut disk, damage);
        let (mut store, _) = open(disk).unwrap();
        let newest = store.newest_snapshot().unwrap().unwrap();
        assert_eq!(newest.height(), Height(20), "{damage}");
        assert_eq!(store.snapshot_chunk(&newest, 0).unwrap(), 20u64.to_le_bytes());
        assert!(store.load(Height(21)).unwrap().is_some());
        // The next snapshot replaces the damaged one, also at the same height.
        snapshot(&mut store, 30);
        let (store, _) = open(store.into_disk()).unwrap();
        assert_eq!(store.newest_snapshot().unwrap().unwrap().height(), Height(30));

        // Segments below the newest snapshot were used again.
        let mut store = new();
        for height in 1..=600 {
            decide(&mut store, height, &[bundle(height, 500)]);
            store.write_and_sync().unwrap();
            if store.take_base_due() {
                base(&mut store);
            }
            if height % 300 == 0 {
                snapshot(&mut store, height);
            }
        }
        for height in 601..=800 {
            decide(&mut store, height, &[bundle(height, 500)]);
            store.write_and_sync().unwrap();
            if store.take_base_due() {
                base(&mut store);
            }
        }
        assert!(store.kept().0 > Height(301));
        let mut disk = store.into_disk();
        damage_newest(&mut disk, damage);
        let (store, _) = open(disk).unwrap();
        let why = store.missing_state().unwrap();
        assert!(why.contains("is damaged"), "{why}");
    }
}

#[test]
fn missing_snapshots_are_a_gap() {
    let mut store = new();
    for height in 1..=600 {
        decide(&mut store, height, &[bundle(height, 500)]);
        store.write_and_sync().unwrap();
        if store.take_base_due() {
            base(&mut store);
        }
        if height % 100 == 0 {
            snapshot(&mut store, height);
        }
    }
    assert!(store.kept().0 > Height(1));
    let mut disk = store.into_disk();
    for (name, _) in disk.blobs().unwrap() {
        disk.blob_delete(&name).unwrap();
    }
    // The log is whole, so the replica knows its promises. It receives a state from its peers.
    let (store, _) = open(disk).unwrap();
    let why = store.missing_state().unwrap();
    assert!(why.starts_with("heights are missing"), "{why}");
}
