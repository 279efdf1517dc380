//! Where things lie: the undecided in full, the decided by one small entry for each height.

use crate::log::record::Location;
use crate::number::to_u64;
use quorate_types::limits::{POOL_BUNDLES_MAX, POOL_BYTES_MAX};
use quorate_types::{BlockId, BundleDigest, Height, Payload};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bodies that wait for being decided at most. The pool of the replica holds half as many.
pub(crate) const WAITING_BODIES_MAX: usize = 2 * POOL_BUNDLES_MAX;
/// Bytes of bodies that wait for being decided at most.
pub(crate) const WAITING_BYTES_MAX: usize = 4 * POOL_BYTES_MAX;
/// Bodies of decided blocks that can still be asked for by digest, and decided once more without being appended
/// again.
pub(crate) const RECENT_BODIES_MAX: usize = 16_384;
/// Bundles named by undecided blocks at most; beyond it the oldest block is forgotten.
pub(crate) const NAMED_MAX: usize = 1 << 20;

/// What is known of a body.
#[derive(Clone, Copy, Debug, Default)]
struct BodyAt {
    /// `None` as long as only blocks name it.
    location: Option<Location>,
    /// How often undecided blocks name it.
    named: u32,
    /// It was appended, and not decided since.
    waiting: bool,
    /// How often it stands in `recent`.
    recent: u32,
}

impl BodyAt {
    /// Whether it must be found when a block is decided.
    fn is_live(&self) -> bool {
        self.waiting || self.named > 0
    }
}

#[derive(Clone, Debug)]
struct BlockAt {
    location: Location,
    payload: Arc<Payload>,
}

/// Where a decided height lies.
#[derive(Clone, Copy, Debug)]
struct DecidedAt {
    record: Location,
    /// The oldest generation that any part of it lies in.
    oldest: u32,
}

/// What lives in a segment that is to be used again, and must be moved before.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) bodies: Vec<(BundleDigest, Location)>,
    pub(crate) blocks: Vec<((Height, BlockId), Location)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Index {
    bodies: BTreeMap<BundleDigest, BodyAt>,
    blocks: BTreeMap<(Height, BlockId), BlockAt>,
    recent: VecDeque<BundleDigest>,
    /// The heights up to `last`, without gaps.
    decided: VecDeque<DecidedAt>,
    last: Height,
    /// Height of the newest durable snapshot.
    released: Height,
    waiting: usize,
    waiting_bytes: u64,
    named: usize,
    /// Orphans are looked for when more wait than this; grows where they are not orphans.
    orphans_at: (usize, u64),
}

impl Index {
    pub(crate) fn last(&self) -> Height {
        self.last
    }

    /// First and last decided height that are kept; the first lies above the last when none is.
    pub(crate) fn kept(&self) -> (Height, Height) {
        (self.last.next().minus(to_u64(self.decided.len())), self.last)
    }

    /// Where the record of a decided height lies.
    pub(crate) fn decided(&self, height: Height) -> Option<Location> {
        let index = height.0.checked_sub(self.kept().0.0)?;
        let at = self.decided.get(usize::try_from(index).ok()?)?;
        Some(at.record)
    }

    pub(crate) fn body(&self, digest: &BundleDigest) -> Option<Location> {
        self.bodies.get(digest)?.location
    }

    /// Whether this body waits, and lies in this generation or a later one, so that it need not be written again.
    /// One that was decided is written again, also where an undecided block names it: when that block is dead nothing
    /// would keep it, and reading the log later must come to the same index.
    pub(crate) fn has_body(&self, digest: &BundleDigest, oldest: u32) -> bool {
        let location = self.bodies.get(digest).filter(|body| body.waiting).and_then(|body| body.location);
        location.is_some_and(|location| location.generation >= oldest)
    }

    pub(crate) fn insert_body(&mut self, digest: BundleDigest, location: Location) {
        let body = self.bodies.entry(digest).or_default();
        let old = body.location.replace(location);
        if body.waiting {
            self.waiting_bytes -= old.map_or(0, |old| u64::from(old.length));
        } else {
            body.waiting = true;
            self.waiting += 1;
        }
        self.waiting_bytes += u64::from(location.length);
        self.drop_orphans();
    }

    /// A body lies somewhere else now.
    pub(crate) fn move_body(&mut self, digest: &BundleDigest, location: Location) {
        if let Some(body) = self.bodies.get_mut(digest) {
            body.location = Some(location);
        }
    }

    /// Where an undecided block lies.
    pub(crate) fn block(&self, key: &(Height, BlockId)) -> Option<Location> {
        self.blocks.get(key).map(|block| block.location)
    }

    pub(crate) fn payload(&self, key: &(Height, BlockId)) -> Option<&Arc<Payload>> {
        self.blocks.get(key).map(|block| &block.payload)
    }

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
        while self.named > NAMED_MAX && self.blocks.len() > 1 {
            let oldest = self.blocks.iter().min_by_key(|(_, block)| block.location);
            let Some(key) = oldest.map(|(key, _)| *key) else { break };
            self.forget_block(&key);
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
                if !body.is_live() && body.recent == 0 {
                    self.bodies.remove(digest);
                }
            }
        }
    }

    /// A height was decided. Its bodies no longer wait, and the other blocks up to it never will be decided.
    pub(crate) fn decide(&mut self, key: (Height, BlockId), record: Location, oldest: Option<u32>) {
        let oldest = oldest.map_or(record.generation, |oldest| oldest.min(record.generation));
        self.decided.push_back(DecidedAt { record, oldest });
        self.last = key.0;
        if let Some(payload) = self.payload(&key).map(Arc::clone) {
            for digest in &payload.bundles {
                self.settle(digest);
            }
        }
        self.forget_dead_blocks();
    }

    /// Blocks up to the last decided height never will be decided.
    fn forget_dead_blocks(&mut self) {
        while let Some((first, _)) = self.blocks.first_key_value()
            && first.0 <= self.last
        {
            let first = *first;
            self.forget_block(&first);
        }
    }

    fn settle(&mut self, digest: &BundleDigest) {
        let Some(body) = self.bodies.get_mut(digest) else {
            return;
        };
        body.recent = body.recent.saturating_add(1);
        if std::mem::take(&mut body.waiting) {
            self.waiting -= 1;
            self.waiting_bytes -= body.location.map_or(0, |location| u64::from(location.length));
        }
        self.recent.push_back(*digest);
        if self.recent.len() <= RECENT_BODIES_MAX {
            return;
        }
        if let Some(old) = self.recent.pop_front()
            && let Some(body) = self.bodies.get_mut(&old)
        {
            body.recent = body.recent.saturating_sub(1);
            if !body.is_live() && body.recent == 0 {
                self.bodies.remove(&old);
            }
        }
    }

    /// The newest durable snapshot is of this height.
    pub(crate) fn release(&mut self, snapshot: Height) {
        self.released = self.released.max(snapshot);
    }

    /// A state of this height came from elsewhere: all that the log has lies before it.
    pub(crate) fn jump(&mut self, height: Height) {
        if self.last < height {
            self.last = height;
            self.decided.clear();
            self.forget_dead_blocks();
        }
    }

    /// The log begins after a height that it does not say anything about any more.
    pub(crate) fn begin_after(&mut self, last: Height) {
        if self.decided.is_empty() {
            self.last = self.last.max(last);
        }
    }

    /// The oldest generation that a decided height above the newest snapshot has a part in.
    pub(crate) fn oldest_needed(&self) -> Option<u32> {
        let first = self.kept().0;
        let above = usize::try_from(self.released.next().since(first)).unwrap_or(usize::MAX);
        self.decided.iter().skip(above).map(|at| at.oldest).min()
    }

    /// What in this generation or older ones must be moved before they go.
    pub(crate) fn live_below(&self, generation: u32) -> Live {
        let gone = |location: &Location| location.generation < generation;
        let body = |(digest, body): (&BundleDigest, &BodyAt)| {
            let location = body.location.filter(|location| body.is_live() && gone(location))?;
            Some((*digest, location))
        };
        let block = |(key, block): (&(Height, BlockId), &BlockAt)| {
            gone(&block.location).then_some((*key, block.location))
        };
        Live {
            bodies: self.bodies.iter().filter_map(body).collect(),
            blocks: self.blocks.iter().filter_map(block).collect(),
        }
    }

    /// The segments below this generation are gone. What lives was moved before.
    pub(crate) fn forget_below(&mut self, generation: u32) {
        let last_gone = self.decided.iter().rposition(|at| at.oldest < generation);
        if let Some(last_gone) = last_gone {
            self.decided.drain(..=last_gone);
        }
        self.bodies.retain(|_, body| {
            let gone = body.location.is_some_and(|location| location.generation < generation);
            assert!(!gone || !body.waiting, "a waiting body was left in a segment that goes");
            if gone {
                body.location = None;
            }
            body.named > 0 || body.location.is_some()
        });
    }

    /// Too many bodies wait: drops the older half of those that no block names. The pool of the replica is
    /// smaller than the half that stays; what was dropped and is needed after all will be appended again.
    fn drop_orphans(&mut self) {
        let limits = (WAITING_BODIES_MAX, to_u64(WAITING_BYTES_MAX));
        let most = (self.orphans_at.0.max(limits.0), self.orphans_at.1.max(limits.1));
        if self.waiting <= most.0 && self.waiting_bytes <= most.1 {
            return;
        }
        let orphan = |(digest, body): (&BundleDigest, &BodyAt)| {
            let location = body.location.filter(|_| body.waiting && body.named == 0)?;
            Some((location, *digest))
        };
        let mut orphans: Vec<(Location, BundleDigest)> = self.bodies.iter().filter_map(orphan).collect();
        orphans.sort_unstable();
        for (location, digest) in orphans {
            if self.waiting <= limits.0 / 2 && self.waiting_bytes <= limits.1 / 2 {
                break;
            }
            self.waiting -= 1;
            self.waiting_bytes -= u64::from(location.length);
            if let Some(body) = self.bodies.get_mut(&digest) {
                body.waiting = false;
                if body.recent == 0 {
                    self.bodies.remove(&digest);
                }
            }
        }
        self.orphans_at = (self.waiting.saturating_mul(2), self.waiting_bytes.saturating_mul(2));
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

    #[test]
    fn orphans_go_and_what_a_block_names_stays() {
        let mut index = Index::default();
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
    fn decided_bodies_are_remembered_for_a_while_only() {
        let mut index = Index::default();
        let count = RECENT_BODIES_MAX as u32 + 10;
        for n in 0..count {
            index.insert_body(digest(n), at(1, n));
            index.insert_block(key(u64::from(n) + 1), at(1, n), &payload(&[n]));
            index.decide(key(u64::from(n) + 1), at(1, n), None);
        }
        assert_eq!(index.waiting, 0);
        assert_eq!(index.waiting_bytes, 0);
        assert_eq!(index.bodies.len(), RECENT_BODIES_MAX);
        assert_eq!(index.body(&digest(9)), None);
        assert!(index.body(&digest(10)).is_some());
        assert_eq!(index.kept(), (Height(1), Height(u64::from(count))));
    }

    #[test]
    fn blocks_that_can_no_longer_be_decided_go() {
        let mut index = Index::default();
        index.insert_body(digest(1), at(1, 1));
        index.insert_block(key(1), at(1, 2), &payload(&[1]));
        index.insert_block((Height(1), BlockId::ZERO), at(1, 3), &payload(&[1, 2]));
        index.insert_block(key(2), at(1, 4), &payload(&[1]));
        index.decide(key(1), at(1, 5), Some(1));
        assert_eq!(index.blocks.len(), 1);
        assert_eq!(index.named, 1);
        // Named by the block at height 2, so it lives, although it was decided.
        assert_eq!(index.live_below(2).bodies.len(), 1);
        index.decide(key(2), at(1, 6), Some(1));
        assert!(index.live_below(2).bodies.is_empty());
        assert!(!index.bodies.contains_key(&digest(2)), "named by a dead block only");
    }

    #[test]
    fn a_height_is_kept_as_long_as_all_of_its_parts_are() {
        let mut index = Index::default();
        for height in 1..=6u64 {
            let oldest = if height == 3 { 1 } else { height as u32 };
            index.decide(key(height), at(height as u32, 0), Some(oldest));
        }
        assert_eq!(index.oldest_needed(), Some(1));
        index.release(Height(3));
        assert_eq!(index.oldest_needed(), Some(4));
        index.forget_below(2);
        assert_eq!(index.kept(), (Height(4), Height(6)), "a part of height 3 is gone");
        assert_eq!(index.decided(Height(3)), None);
        assert_eq!(index.decided(Height(5)), Some(at(5, 0)));
        index.jump(Height(9));
        assert_eq!(index.kept(), (Height(10), Height(9)));
    }
}
