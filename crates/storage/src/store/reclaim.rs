//! Which segments are used again, and what is moved out of them before.

use super::{Store, budget, segments_in};
use crate::disk::Disk;
use crate::entry;
use crate::fault::Fault;
use quorate_types::Height;

/// Segments that are released with one roll at most: what lives in them is moved within one turn.
const RELEASED_AT_ONCE: u32 = 4;
/// Segments beyond those that are kept: being written, waiting to be declared, and ready.
const SEGMENTS_BESIDE: u32 = 4;

impl<D: Disk> Store<D> {
    /// The snapshot of this height is durable, so heights up to it are needed for laggards only. Called by
    /// [`Store::commit_snapshot`]; a host calls it when it has got a state from somewhere else, and then the log
    /// goes on after `snapshot`.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn release(&mut self, snapshot: Height) -> Result<(), Fault> {
        self.index.release(snapshot);
        if snapshot <= self.index.last() {
            return Ok(());
        }
        self.append_encoded(entry::JUMP, &snapshot)?;
        self.index.jump(snapshot);
        self.log.set_note(snapshot.0);
        self.after_append()
    }

    /// Looks whether the log has begun a segment.
    pub(super) fn after_append(&mut self) -> Result<(), Fault> {
        if self.log.generation() == self.generation {
            return Ok(());
        }
        self.generation = self.log.generation();
        self.base.rolled();
        self.reclaim()?;
        // What was moved may have filled a segment; that one is looked at when the next entry comes.
        self.base_rolled_by_moving();
        Ok(())
    }

    fn base_rolled_by_moving(&mut self) {
        if self.log.generation() != self.generation {
            self.generation = self.log.generation();
            self.base.rolled();
        }
    }

    /// Finds the oldest segments that nobody needs, and moves what lives in them to the end of the log. They go
    /// when that is durable.
    fn reclaim(&mut self) -> Result<(), Fault> {
        if self.leaving.is_some() {
            return Ok(());
        }
        let segment_bytes = self.log.disk().segment_bytes();
        let allowed = budget(&self.config, self.snapshots.bytes(), segment_bytes).segments;
        let keep = segments_in(self.config.keep_bytes, segment_bytes);
        let keep = keep.min(allowed.saturating_sub(SEGMENTS_BESIDE));
        let most = self.log.generation().saturating_sub(keep);
        let needed = self.index.oldest_needed().unwrap_or(u32::MAX);
        let until = most
            .min(needed)
            .min(self.base.generation())
            .min(self.log.oldest().saturating_add(RELEASED_AT_ONCE));
        if until <= self.log.oldest() {
            return Ok(());
        }
        let live = self.index.live_below(until);
        let bodies = live.bodies.iter().map(|(_, location)| u64::from(location.length));
        let bytes = bodies.chain(live.blocks.iter().map(|(_, location)| u64::from(location.length)));
        let gained = u64::from(until - self.log.oldest()).saturating_mul(u64::from(segment_bytes));
        if bytes.sum::<u64>() > gained / 2 {
            // Moving this would cost more than it gains; most of it will be decided, or dropped, later.
            return Ok(());
        }
        let mut moved = Vec::new();
        for (digest, location) in live.bodies {
            if let Some(data) = self.log.read(location)? {
                moved.clear();
                moved.extend_from_slice(data);
                let location = self.log.append(entry::BODY, &[&moved])?;
                self.index.move_body(&digest, location);
            }
        }
        for (key, location) in live.blocks {
            let Some(payload) = self.index.payload(&key).cloned() else {
                continue;
            };
            if let Some(data) = self.log.read(location)? {
                moved.clear();
                moved.extend_from_slice(data);
                let location = self.log.append(entry::BLOCK, &[&moved])?;
                self.index.insert_block(key, location, &payload);
            }
        }
        self.leaving = Some((until, self.log.sync_number()));
        Ok(())
    }

    /// Everything up to now is durable: what was to leave may go, unless something has come to need it since.
    pub(super) fn let_go(&mut self) {
        let synced = self.log.sync_number();
        let Some((generation, _)) = self.leaving.take_if(|(_, sync)| *sync < synced) else {
            return;
        };
        let live = self.index.live_below(generation);
        let needed = self.index.oldest_needed().is_some_and(|oldest| oldest < generation);
        if needed || !live.bodies.is_empty() || !live.blocks.is_empty() {
            return;
        }
        self.log.release(generation);
        self.index.forget_below(self.log.oldest());
    }

    /// The snapshots take more or less than before.
    pub(super) fn share_disk(&mut self) {
        let segment_bytes = self.log.disk().segment_bytes();
        self.log.set_budget(budget(&self.config, self.snapshots.bytes(), segment_bytes));
    }
}
