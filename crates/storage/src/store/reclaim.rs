//! Which segments are used again, and what is moved out of them before.

use super::{Store, budget, segments_in};
use crate::disk::Disk;
use crate::entry;
use crate::fault::Fault;
use crate::index::Live;
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
        match self.worth_moving(until, allowed) {
            Some((until, live)) => self.move_out(until, live),
            None => Ok(()),
        }
    }

    /// What lives in the oldest segments up to `until` or fewer, and which these are, if that is to be moved.
    fn worth_moving(&self, until: u32, allowed: u32) -> Option<(u32, Live)> {
        let segment_bytes = u64::from(self.log.disk().segment_bytes()).max(1);
        let oldest = self.log.oldest();
        // Moving what costs more than it gains may wait while half of the disk is free: most of it will be decided later.
        // After that what lies behind it must be reached, or whoever has much there could fill the disk.
        let is_tight = self.log.generation() - oldest >= allowed / 2;
        (oldest.saturating_add(1)..=until).rev().find_map(|until| {
            let live = self.index.live_below(until);
            let segments = u64::from(until - oldest);
            let bytes = live.bytes();
            let is_cheap = bytes <= segments.saturating_mul(segment_bytes) / 2;
            // It lies twice on the disk until the copy is durable. Half of each segment may stay empty.
            let fits =
                bytes == 0 || bytes.saturating_mul(2) / segment_bytes + 2 <= u64::from(self.log.room());
            ((is_cheap || is_tight) && fits).then_some((until, live))
        })
    }

    fn move_out(&mut self, until: u32, live: Live) -> Result<(), Fault> {
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
