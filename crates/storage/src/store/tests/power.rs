//! A workload with early and late bodies, dead blocks, bases, snapshots in slices and reused segments. One test cuts
//! the power at every operation of the disk, another at random for very long.

use super::*;
use quorate_types::ChunkId;
use quorate_types::rng::Rng;
use std::collections::BTreeMap;

const CHUNKS: u64 = 6;

/// A host whose only record is a counter, with the expected content of its store.
struct StoreOwner {
    store: Store<MemDisk>,
    rng: Rng,
    decided: BTreeMap<u64, FullBlock>,
    /// Waiting bodies, each with the mark and the generation of its append.
    waiting: Vec<(Bundle, Mark, u32)>,
    bundles: u64,
    /// The value of the counter at each mark.
    counters: BTreeMap<Mark, u64>,
    heights: BTreeMap<Mark, u64>,
    writer: Option<SnapshotWriter>,
    snapshots: Vec<u64>,
}

use crate::snapshot::SnapshotWriter;

fn chunk(height: u64, index: u64) -> (ChunkId, Vec<u8>) {
    // Half of the chunks change from snapshot to snapshot. One is empty.
    let version = if index.is_multiple_of(2) { height } else { height / 40 };
    let mut bytes = format!("chunk {index} of {version}").into_bytes();
    bytes.resize(if index == 5 { 0 } else { 200 }, 7);
    (ChunkId::of(&bytes), bytes)
}

impl StoreOwner {
    fn new(seed: u64) -> Self {
        Self {
            store: new(),
            rng: Rng::new(seed),
            decided: BTreeMap::new(),
            waiting: Vec::new(),
            bundles: 0,
            counters: BTreeMap::from([(Mark(0), 0)]),
            heights: BTreeMap::from([(Mark(0), 0)]),
            writer: None,
            snapshots: Vec::new(),
        }
    }

    fn append(&mut self, entry: &LogEntry) -> Result<Mark, Fault> {
        let mark = Mark(self.store.appended().0 + 1);
        // An attempt may have succeeded even if the power failed.
        if let LogEntry::Record(bytes) = entry {
            let counter = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            self.counters.insert(mark, counter);
        }
        if let LogEntry::Decided { height, .. } = entry {
            self.heights.insert(mark, height.0);
        }
        self.store.append(mark, entry)?;
        Ok(mark)
    }

    fn count(&mut self, counter: u64) -> Result<(), Fault> {
        let mut bytes = counter.to_le_bytes().to_vec();
        bytes.resize(8 + self.rng.index(60), 0);
        self.append(&LogEntry::Record(bytes.into())).map(|_| ())
    }

    fn counter(&self) -> u64 {
        *self.counters.last_key_value().unwrap().1
    }

    fn last(&self) -> u64 {
        self.decided.last_key_value().map_or(0, |(height, _)| *height)
    }

    fn new_body(&mut self) -> Result<(), Fault> {
        self.bundles += 1;
        let size = self.rng.index(500);
        let body = bundle(self.bundles, size);
        let mark = self.append(&LogEntry::Body(body.clone()))?;
        self.waiting.push((body, mark, self.store.log.generation()));
        Ok(())
    }

    /// Decides the next height, with some of the waiting bodies or with none. Sometimes appends another block before,
    /// which is never decided.
    fn decide(&mut self) -> Result<(), Fault> {
        let height = self.last() + 1;
        if self.rng.below(4) == 0 {
            let full = FullBlock::null(Height(height));
            self.decided.insert(height, full.clone());
            self.append(&LogEntry::Decided { height: full.height, id: full.id })?;
            return Ok(());
        }
        let mut bundles: Vec<Bundle> = Vec::new();
        for _ in 0..self.rng.below(8) {
            if !self.waiting.is_empty() {
                let index = self.rng.index(self.waiting.len());
                bundles.push(self.waiting.swap_remove(index).0);
            }
        }
        if self.rng.below(3) == 0 {
            let (dead, payload) = block(height, 7, &bundles);
            self.append(&LogEntry::Block(dead, payload))?;
        }
        let (block, payload) = block(height, 1, &bundles);
        let id = block.id();
        self.append(&LogEntry::Block(Arc::clone(&block), payload))?;
        for bundle in &bundles {
            self.append(&LogEntry::Body(bundle.clone()))?;
        }
        let full =
            FullBlock { height: Height(height), id, block: Some(Arc::unwrap_or_clone(block)), bundles };
        self.decided.insert(height, full);
        self.append(&LogEntry::Decided { height: Height(height), id })?;
        Ok(())
    }

    fn snapshot_step(&mut self) -> Result<(), Fault> {
        let Some(mut writer) = self.writer.take() else {
            let height = self.last();
            // The heights below a snapshot are durable before, as below a stable checkpoint.
            if height > self.snapshots.last().copied().unwrap_or(0) + 5 && self.durable_height() >= height {
                let ids: Vec<ChunkId> = (0..CHUNKS).map(|index| chunk(height, index).0).collect();
                let header = format!("header {height}").into_bytes();
                self.writer = Some(self.store.begin_snapshot(Height(height), header, &ids)?);
            }
            return Ok(());
        };
        if let Some(index) = writer.needed().first().copied() {
            let (_, bytes) = chunk(writer.height().0, index as u64);
            self.store.write_chunk(&mut writer, index, &bytes)?;
            self.writer = Some(writer);
        } else {
            self.snapshots.push(writer.height().0);
            self.store.commit_snapshot(writer)?;
        }
        Ok(())
    }

    fn durable_height(&self) -> u64 {
        let durable = self.heights.range(..=self.store.durable());
        durable.map(|(_, height)| *height).max().unwrap_or(0)
    }

    fn step(&mut self) -> Result<(), Fault> {
        match self.rng.below(10) {
            0..=2 => self.new_body()?,
            3 | 4 => self.decide()?,
            5 => {
                let counter = self.counter() + 1;
                self.count(counter)?;
            }
            6 => self.snapshot_step()?,
            7..=8 => {
                self.store.write_and_sync()?;
            }
            _ => {
                let view = self.rng.below(100);
                let statement = Statement::new(Kind::new("vote"), View(view), Height(1), Digest::ZERO);
                self.append(&LogEntry::Guard(statement))?;
            }
        }
        if self.store.take_base_due() {
            self.append(&LogEntry::BaseBegin)?;
            let counter = self.counter();
            self.count(counter)?;
            self.append(&LogEntry::BaseEnd)?;
        }
        Ok(())
    }

    /// Loses power and opens the store again. Checks that all durable data is available and none is invented.
    fn crash_and_check(&mut self, keep: Keep<'_>, what: &str) {
        let mut disk = self.store.disk().clone();
        disk.crash(keep);
        self.reopen(disk, what);
    }

    fn reopen(&mut self, disk: MemDisk, what: &str) {
        let durable = self.store.durable();
        let (store, entries) = open(disk).unwrap_or_else(|fault| panic!("{what}: {fault}"));
        let durable_height = self.durable_height();
        self.store = store;
        self.writer = None;

        let seen = entries.iter().rev().find_map(|entry| match entry {
            LogEntry::Record(bytes) => Some(u64::from_le_bytes(bytes[..8].try_into().unwrap())),
            _ => None,
        });
        let seen = seen.unwrap_or(0);
        let least = *self.counters.range(..=durable).next_back().unwrap().1;
        assert!((least..=self.counter()).contains(&seen), "{what}: counter {seen}, durable {least}");
        self.check_snapshot(what);
        let (first, last) = self.check_heights(durable_height, what);
        self.check_waiting(durable, &entries, what);

        // From now on the host knows the recovered state and continues from it.
        self.decided.retain(|height, _| *height <= last.0);
        self.counters = BTreeMap::from([(Mark(0), seen)]);
        self.heights = BTreeMap::from([(Mark(0), last.0)]);
        assert!(first.0 <= last.0 + 1);
    }

    fn check_snapshot(&mut self, what: &str) {
        let newest = self.store.newest_snapshot().unwrap();
        let height = newest.as_ref().map_or(0, |snapshot| snapshot.height().0);
        // The last attempt may or may not have been finished.
        let tried = self.snapshots.last().copied().unwrap_or(0);
        let before = self.snapshots.iter().rev().nth(1).copied().unwrap_or(0);
        assert!(height == tried || height == before, "{what}: snapshot {height}, not {tried} or {before}");
        self.snapshots.retain(|known| *known <= height);
        let Some(newest) = newest else { return };
        assert_eq!(newest.header(), format!("header {height}").as_bytes(), "{what}");
        for index in 0..CHUNKS {
            let read = self.store.snapshot_chunk(&newest, index as usize).unwrap();
            assert_eq!(read, chunk(height, index).1, "{what}: chunk {index} of {height}");
        }
    }

    fn check_heights(&mut self, durable: u64, what: &str) -> (Height, Height) {
        let (first, last) = self.store.kept();
        let snapshot = self.snapshots.last().copied().unwrap_or(0);
        assert!((durable.max(snapshot)..=self.last()).contains(&last.0), "{what}: last {last}, {durable}");
        assert!(first.0 <= snapshot + 1, "{what}: begins at {first}, snapshot at {snapshot}");
        for height in first.0..=last.0 {
            let loaded = self.store.load(Height(height)).unwrap();
            assert_eq!(loaded.as_ref(), self.decided.get(&height), "{what}: height {height}");
        }
        (first, last)
    }

    fn check_waiting(&mut self, durable: Mark, entries: &[LogEntry], what: &str) {
        let decided: Vec<LogEntry> = entries.to_vec();
        assert!(decided.iter().all(|entry| !matches!(entry, LogEntry::Body(_))), "{what}");
        let mut lost = Vec::new();
        let oldest = self.store.log.oldest();
        for (body, mark, generation) in &mut self.waiting {
            let found = self.store.body(body.digest()).unwrap();
            match found {
                Some(found) => assert_eq!(found, *body, "{what}"),
                None => {
                    // No block names the body, so it is dropped with its segment.
                    assert!(*mark > durable || *generation < oldest, "{what}: a durable body is lost");
                    lost.push(body.digest());
                }
            }
            *mark = Mark(0);
        }
        self.waiting.retain(|(body, ..)| !lost.contains(&body.digest()));
        // Bodies of heights that were not durable wait again, if the store has them.
        let (_, last) = self.store.kept();
        let undone: Vec<Bundle> =
            self.decided.range(last.0 + 1..).flat_map(|(_, full)| full.bundles.clone()).collect();
        for body in undone {
            if self.store.body(body.digest()).unwrap().is_some() {
                self.waiting.push((body, Mark(0), 0));
            }
        }
    }
}

#[test]
fn store_survives_a_power_cut_at_every_operation() {
    let mut seeds = Rng::new(1);
    for cut in 1.. {
        let mut host = StoreOwner::new(3);
        host.store.disk_mut().cut_power_after(cut);
        let ended = (0..500).try_for_each(|_| host.step());
        let store_disk = host.store.disk().clone();
        for keep in 0..3 {
            let mut rng = seeds.fork();
            let what = format!("cut at {cut}, kept by {keep}");
            let mut disk = store_disk.clone();
            disk.crash(match keep {
                0 => Keep::Nothing,
                1 => Keep::Everything,
                _ => Keep::Sectors(&mut rng),
            });
            // The checks adapt the host to the recovered state, so each needs a host of its own.
            let mut again = StoreOwner::new(3);
            again.store.disk_mut().cut_power_after(cut);
            let _ = (0..500).try_for_each(|_| again.step());
            again.reopen(disk, &what);
            for _ in 0..20 {
                again.step().unwrap_or_else(|fault| panic!("{what}, afterwards: {fault}"));
            }
            again.crash_and_check(Keep::Sectors(&mut rng), &what);
        }
        if ended.is_ok() {
            assert!(cut > 150, "{cut}");
            break;
        }
    }
}

#[test]
fn store_survives_many_crashes() {
    for seed in 0..12 {
        let mut host = StoreOwner::new(seed);
        let mut rng = Rng::new(seed + 1000);
        for life in 0..60 {
            let what = format!("seed {seed}, life {life}");
            if rng.below(3) > 0 {
                host.store.disk_mut().cut_power_after(rng.between(1, 150));
            }
            let _ = (0..rng.between(1, 400)).try_for_each(|_| host.step());
            match rng.below(4) {
                0 => host.crash_and_check(Keep::Nothing, &what),
                1 => host.crash_and_check(Keep::Everything, &what),
                _ => host.crash_and_check(Keep::Sectors(&mut rng), &what),
            }
        }
        let (first, last) = host.store.kept();
        assert!(first.0 > 100 && last.0 > 300, "seed {seed}: {first} to {last}");
        assert!(host.store.disk().segments() < 40, "seed {seed}: {}", host.store.disk().segments());
    }
}
