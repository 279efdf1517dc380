//! The index of the log: locations of all undecided blocks and bodies, and one small entry for each decided height.

use crate::log::record::Location;
use crate::number::to_u64;
use quorate_types::limits::POOL_BUNDLES_MAX;
use quorate_types::{BlockId, BundleDigest, Height, Payload};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The largest number of bodies that wait for a decision, apart from those that blocks name. The replica's pool has
/// half as many.
pub(crate) const WAITING_BODIES_MAX: usize = 8 * POOL_BUNDLES_MAX;
/// The factor of that limit while the log is read. The log also has bodies that were dropped since. A body that is
/// dropped before the block that names it is read would be missing.
const WAITING_WHILE_READ: usize = 4;
/// The number of recent decided bodies that can still be read by digest. They can be decided once more without another
/// append.
pub(crate) const RECENT_BODIES_MAX: usize = 16_384;
/// The number of windows of heights whose undecided full blocks are remembered. A replica votes in half as many
/// windows, but after a view change it votes for another block at the same height.
const NAMED_WINDOWS: usize = 16;
/// The smallest limit on bundles that undecided blocks name, for any window and size of blocks.
const NAMED_MIN: usize = 1 << 20;

/// The location and state of a body.
#[derive(Clone, Copy, Debug, Default)]
struct BodyAt {
    /// The location; `None` as long as the log has only blocks that name the body.
    location: Option<Location>,
    /// The number of undecided blocks that name the body.
    named: u32,
    /// Whether the body was appended, and not decided since.
    waiting: bool,
    /// The number of entries in `recent`.
    recent: u32,
}

impl BodyAt {
    /// Whether an undecided block has the body, or may have it.
    fn is_undecided(&self) -> bool {
        self.waiting || self.named > 0
    }
}

#[derive(Clone, Debug)]
struct BlockAt {
    location: Location,
    payload: Arc<Payload>,
}

/// The location of a decided height.
#[derive(Clone, Copy, Debug)]
struct DecidedAt {
    record: Location,
    /// The oldest generation that has a part of the height.
    oldest: u32,
}

/// Entries that are still needed, in segments that are to be used again. They must be moved before.
#[derive(Debug, Default)]
pub(crate) struct LiveEntries {
    pub(crate) bodies: Vec<(BundleDigest, Location)>,
    pub(crate) blocks: Vec<((Height, BlockId), Location)>,
}

/// Returns the largest number of bundles that undecided blocks may name. A replica has the bundles themselves in
/// memory for the same time.
pub(crate) fn named_max(window: u64, block_bundles_max: u32) -> usize {
    let heights = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(NAMED_WINDOWS);
    heights.saturating_mul(usize::try_from(block_bundles_max).unwrap_or(usize::MAX)).max(NAMED_MIN)
}

impl LiveEntries {
    /// Returns the bytes of all entries.
    pub(crate) fn bytes(&self) -> u64 {
        let bodies = self.bodies.iter().map(|(_, location)| location);
        let blocks = self.blocks.iter().map(|(_, location)| location);
        bodies.chain(blocks).map(|location| u64::from(location.length)).sum()
    }
}

/// The index; see the module.
#[derive(Debug, Default)]
pub(crate) struct Index {
    bodies: BTreeMap<BundleDigest, BodyAt>,
    blocks: BTreeMap<(Height, BlockId), BlockAt>,
    recent: VecDeque<BundleDigest>,
    /// The decided heights up to `last`, without gaps.
    decided: VecDeque<DecidedAt>,
    last: Height,
    /// The height of the newest durable snapshot.
    released: Height,
    waiting: usize,
    named: usize,
    named_max: usize,
    /// Whether the log is being read.
    is_reading: bool,
    /// The number of waiting bodies above which orphans are searched. It grows when the waiting bodies are no orphans.
    orphans_at: usize,
}

impl Index {
    /// Returns an empty index that is ready for reading a log.
    pub(crate) fn new(named_max: usize) -> Self {
        Self { named_max, is_reading: true, ..Self::default() }
    }

    /// Ends the reading of the log.
    pub(crate) fn end_reading(&mut self) {
        (self.is_reading, self.orphans_at) = (false, 0);
        self.drop_orphans();
    }

    pub(crate) fn last(&self) -> Height {
        self.last
    }

    /// Returns the first and the last kept decided height. The first lies above the last when none is kept.
    pub(crate) fn kept(&self) -> (Height, Height) {
        (self.last.next().minus(to_u64(self.decided.len())), self.last)
    }

    /// Returns the location of the record of a decided height.
    pub(crate) fn decided(&self, height: Height) -> Option<Location> {
        let index = height.0.checked_sub(self.kept().0.0)?;
        let at = self.decided.get(usize::try_from(index).ok()?)?;
        Some(at.record)
    }

    pub(crate) fn body(&self, digest: &BundleDigest) -> Option<Location> {
        self.bodies.get(digest)?.location
    }

    /// Whether this body waits in generation `oldest` or a later one, so that it need not be written again. A decided
    /// body is written again, even if an undecided block names it. Nothing would keep it after the death of that
    /// block, and reading the log must give the same index.
    pub(crate) fn has_body(&self, digest: &BundleDigest, oldest: u32) -> bool {
        let location = self.bodies.get(digest).filter(|body| body.waiting).and_then(|body| body.location);
        location.is_some_and(|location| location.generation >= oldest)
    }

    pub(crate) fn insert_body(&mut self, digest: BundleDigest, location: Location) {
        let body = self.bodies.entry(digest).or_default();
        body.location = Some(location);
        if !std::mem::replace(&mut body.waiting, true) {
            self.waiting += 1;
        }
        self.drop_orphans();
    }

    /// Changes the location of a body.
    pub(crate) fn move_body(&mut self, digest: &BundleDigest, location: Location) {
        if let Some(body) = self.bodies.get_mut(digest) {
            body.location = Some(location);
        }
    }

    /// Returns the location of an undecided block.
    pub(crate) fn block(&self, key: &(Height, BlockId)) -> Option<Location> {
        self.blocks.get(key).map(|block| block.location)
    }

    pub(crate) fn payload(&self, key: &(Height, BlockId)) -> Option<&Arc<Payload>> {
        self.blocks.get(key).map(|block| &block.payload)
    }

    /// Remembers an undecided block and its location. If the blocks name too many bundles, forgets the highest block.
    /// A liar can send many high blocks, but the next decided block is the lowest.
    pub(crate) fn insert_block(
        &mut self,
        key: (Height, BlockId),
        location: Location,
        payload: &Arc<Payload>,
    ) {
        if let Some(block) = self.blocks.get_mut(&key) {
            block.location = location;
            return;
        }
        if key.0 <= self.last {
            return;
        }
        for digest in &payload.bundles {
            let body = self.bodies.entry(*digest).or_default();
            body.named = body.named.saturating_add(1);
        }
        self.named += payload.bundles.len();
        let payload = Arc::clone(payload);
        self.blocks.insert(key, BlockAt { location, payload });
        while self.named > self.named_max && self.blocks.len() > 1 {
            let Some((highest, _)) = self.blocks.last_key_value() else { break };
            let highest = *highest;
            self.forget_block(&highest);
        }
    }

    fn forget_block(&mut self, key: &(Height, BlockId)) {
        let Some(block) = self.blocks.remove(key) else {
            return;
        };
        self.named -= block.payload.bundles.len();
        for digest in &block.payload.bundles {
            if let Some(body) = self.bodies.get_mut(digest) {
                body.named = body.named.saturating_sub(1);
                if !body.is_undecided() && body.recent == 0 {
                    self.bodies.remove(digest);
                }
            }
        }
    }

    /// Adds a decided height. Its bodies no longer wait, and the other blocks up to it are dead.
    pub(crate) fn decide(&mut self, key: (Height, BlockId), record: Location, oldest: Option<u32>) {
        let oldest = oldest.map_or(record.generation, |oldest| oldest.min(record.generation));
        self.decided.push_back(DecidedAt { record, oldest });
        self.last = key.0;
        if let Some(payload) = self.payload(&key).map(Arc::clone) {
            for digest in &payload.bundles {
                self.mark_decided(digest);
            }
        }
        self.forget_dead_blocks();
    }

    /// Forgets the blocks up to the last decided height, which will never be decided.
    fn forget_dead_blocks(&mut self) {
        while let Some((first, _)) = self.blocks.first_key_value()
            && first.0 <= self.last
        {
            let first = *first;
            self.forget_block(&first);
        }
    }

    fn mark_decided(&mut self, digest: &BundleDigest) {
        let Some(body) = self.bodies.get_mut(digest) else {
            return;
        };
        body.recent = body.recent.saturating_add(1);
        if std::mem::take(&mut body.waiting) {
            self.waiting -= 1;
        }
        self.recent.push_back(*digest);
        if self.recent.len() <= RECENT_BODIES_MAX {
            return;
        }
        if let Some(old) = self.recent.pop_front()
            && let Some(body) = self.bodies.get_mut(&old)
        {
            body.recent = body.recent.saturating_sub(1);
            if !body.is_undecided() && body.recent == 0 {
                self.bodies.remove(&old);
            }
        }
    }

    /// Sets the height of the newest durable snapshot.
    pub(crate) fn release(&mut self, snapshot: Height) {
        self.released = self.released.max(snapshot);
    }

    /// Takes over a state of this height from a peer. All entries of the log lie before it.
    pub(crate) fn jump(&mut self, height: Height) {
        if self.last < height {
            self.last = height;
            self.decided.clear();
            self.forget_dead_blocks();
        }
    }

    /// Sets the height after which the log begins, unless the log has decided heights.
    pub(crate) fn begin_after(&mut self, last: Height) {
        if self.decided.is_empty() {
            self.last = self.last.max(last);
        }
    }

    /// Returns the oldest generation that has a part of a decided height above the newest snapshot.
    pub(crate) fn oldest_needed(&self) -> Option<u32> {
        let first = self.kept().0;
        let above = usize::try_from(self.released.next().since(first)).unwrap_or(usize::MAX);
        self.decided.iter().skip(above).map(|at| at.oldest).min()
    }

    /// Returns the entries that must be moved before the segments below this generation are used again. A body that
    /// no block names is lost with its segment. The host appends it again with the block that names it, which a
    /// liar's body never has.
    pub(crate) fn live_below(&self, generation: u32) -> LiveEntries {
        let gone = |location: &Location| location.generation < generation;
        let body = |(digest, body): (&BundleDigest, &BodyAt)| {
            let location = body.location.filter(|location| body.named > 0 && gone(location))?;
            Some((*digest, location))
        };
        let block = |(key, block): (&(Height, BlockId), &BlockAt)| {
            gone(&block.location).then_some((*key, block.location))
        };
        LiveEntries {
            bodies: self.bodies.iter().filter_map(body).collect(),
            blocks: self.blocks.iter().filter_map(block).collect(),
        }
    }

    /// Forgets the segments below this generation, and with them the bodies that no block names. Needed entries were
    /// moved before.
    pub(crate) fn forget_below(&mut self, generation: u32) {
        let last_gone = self.decided.iter().rposition(|at| at.oldest < generation);
        if let Some(last_gone) = last_gone {
            self.decided.drain(..=last_gone);
        }
        let waiting = &mut self.waiting;
        self.bodies.retain(|_, body| {
            let gone = body.location.is_some_and(|location| location.generation < generation);
            assert!(
                !gone || body.named == 0,
                "a body that a block names was not moved out of a released segment"
            );
            if gone {
                *waiting -= usize::from(body.waiting);
            }
            !gone
        });
    }

    /// Drops the older half of the orphans, which no block names, if too many bodies wait. The host appends a dropped
    /// body again with the block that names it.
    fn drop_orphans(&mut self) {
        let limit = WAITING_BODIES_MAX * if self.is_reading { WAITING_WHILE_READ } else { 1 };
        if self.waiting <= self.orphans_at.max(limit) {
            return;
        }
        let orphan = |(digest, body): (&BundleDigest, &BodyAt)| {
            let location = body.location.filter(|_| body.waiting && body.named == 0)?;
            Some((location, *digest))
        };
        let mut orphans: Vec<(Location, BundleDigest)> = self.bodies.iter().filter_map(orphan).collect();
        orphans.sort_unstable();
        for (_, digest) in orphans {
            if self.waiting <= limit / 2 {
                break;
            }
            self.waiting -= 1;
            if let Some(body) = self.bodies.get_mut(&digest) {
                body.waiting = false;
                if body.recent == 0 {
                    self.bodies.remove(&digest);
                }
            }
        }
        self.orphans_at = self.waiting.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Digest;

    fn digest(n: u32) -> BundleDigest {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        BundleDigest(Digest(bytes))
    }

    fn at(generation: u32, offset: u32) -> Location {
        Location { generation, offset, length: 100 }
    }

    fn payload(bundles: &[u32]) -> Arc<Payload> {
        Arc::new(Payload { bundles: bundles.iter().map(|n| digest(*n)).collect() })
    }

    fn key(height: u64) -> (Height, BlockId) {
        (Height(height), BlockId(Digest([height as u8; 32])))
    }

    /// Returns an index whose log was read.
    fn new() -> Index {
        let mut index = Index::new(NAMED_MIN);
        index.end_reading();
        index
    }

    /// The index remembers full blocks of two views in all windows that a replica votes in, for the largest blocks.
    /// Beyond that it forgets the highest block, in any order of arrival.
    #[test]
    fn blocks_to_vote_for_are_remembered_and_higher_ones_forgotten() {
        let bundles: Vec<u32> = (0..4_096).collect();
        let (full, windows) = (payload(&bundles), 8 * 32);
        let mut index = Index::new(named_max(32, 4_096));
        let high = (1..=20).map(|n| key(1_000 + n));
        let views = |height| [1, 2].map(|view| (Height(height), BlockId(Digest([view; 32]))));
        let low: Vec<_> = (1..=windows).flat_map(views).collect();
        let (before, after) = low.split_at(100);
        let all = before.iter().copied().chain(high.clone()).chain(after.iter().copied());
        for (offset, key) in (0..).zip(all) {
            index.insert_block(key, at(1, offset), &full);
        }
        assert!(index.named <= 16 * 32 * 4_096);
        assert!(low.iter().all(|key| index.block(key).is_some()));
        assert!(high.clone().all(|key| index.block(&key).is_none()));
        assert_eq!(named_max(4, 16), 1 << 20);
    }

    /// The log still has bodies that were dropped before, and a later block may name one that was not dropped.
    #[test]
    fn more_bodies_may_wait_while_the_log_is_read() {
        let mut index = Index::new(NAMED_MIN);
        let last = 2 * WAITING_BODIES_MAX as u32;
        (0..=last).for_each(|n| index.insert_body(digest(n), at(1, n)));
        index.insert_block(key(1), at(1, last), &payload(&[0, 1]));
        index.end_reading();
        assert!(index.body(&digest(0)).is_some() && index.body(&digest(1)).is_some());
        assert_eq!(index.waiting, WAITING_BODIES_MAX / 2);
    }

    #[test]
    fn orphans_are_dropped_and_bodies_that_a_block_names_are_kept() {
        let mut index = new();
        index.insert_block(key(1), at(1, 0), &payload(&[0, 1]));
        for n in 0..=WAITING_BODIES_MAX as u32 {
            index.insert_body(digest(n), at(1, n));
        }
        assert_eq!(index.waiting, WAITING_BODIES_MAX / 2);
        assert!(index.body(&digest(0)).is_some() && index.body(&digest(1)).is_some());
        assert_eq!(index.body(&digest(2)), None);
        assert!(index.body(&digest(WAITING_BODIES_MAX as u32)).is_some());
    }

    #[test]
    fn only_recent_decided_bodies_are_remembered() {
        let mut index = new();
        let count = RECENT_BODIES_MAX as u32 + 10;
        for n in 0..count {
            index.insert_body(digest(n), at(1, n));
            index.insert_block(key(u64::from(n) + 1), at(1, n), &payload(&[n]));
            index.decide(key(u64::from(n) + 1), at(1, n), None);
        }
        assert_eq!(index.waiting, 0);
        assert_eq!(index.bodies.len(), RECENT_BODIES_MAX);
        assert_eq!(index.body(&digest(9)), None);
        assert!(index.body(&digest(10)).is_some());
        assert_eq!(index.kept(), (Height(1), Height(u64::from(count))));
    }

    #[test]
    fn dead_blocks_are_forgotten() {
        let mut index = new();
        index.insert_body(digest(1), at(1, 1));
        index.insert_block(key(1), at(1, 2), &payload(&[1]));
        index.insert_block((Height(1), BlockId::ZERO), at(1, 3), &payload(&[1, 2]));
        index.insert_block(key(2), at(1, 4), &payload(&[1]));
        index.decide(key(1), at(1, 5), Some(1));
        assert_eq!(index.blocks.len(), 1);
        assert_eq!(index.named, 1);
        // The block at height 2 names the body, so it is still needed, although it was decided.
        assert_eq!(index.live_below(2).bodies.len(), 1);
        index.decide(key(2), at(1, 6), Some(1));
        assert!(index.live_below(2).bodies.is_empty());
        assert!(!index.bodies.contains_key(&digest(2)), "only a dead block names the body");
    }

    #[test]
    fn height_is_kept_as_long_as_all_of_its_parts() {
        let mut index = new();
        for height in 1..=6u64 {
            let oldest = if height == 3 { 1 } else { height as u32 };
            index.decide(key(height), at(height as u32, 0), Some(oldest));
        }
        assert_eq!(index.oldest_needed(), Some(1));
        index.release(Height(3));
        assert_eq!(index.oldest_needed(), Some(4));
        index.forget_below(2);
        assert_eq!(index.kept(), (Height(4), Height(6)), "height 3 has lost a part");
        assert_eq!(index.decided(Height(3)), None);
        assert_eq!(index.decided(Height(5)), Some(at(5, 0)));
        index.jump(Height(9));
        assert_eq!(index.kept(), (Height(10), Height(9)));
    }
}
