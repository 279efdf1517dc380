//! Reclaiming segments: chooses those that are used again, and moves needed entries out of them before.

use super::{Store, budget, segments_in};
use crate::disk::Disk;
use crate::entry;
use crate::fault::Fault;
use crate::index::LiveEntries;
use quorate_types::Height;

/// The largest number of segments that one new segment releases. Their needed entries are moved within one turn.
const RELEASED_AT_ONCE: u32 = 4;
/// The number of segments in addition to the kept ones: those that are being written, released, declared or free.
const SEGMENTS_BESIDE: u32 = 4;

impl<D: Disk> Store<D> {
    /// Notes that the snapshot of this height is durable. Only laggards need heights up to it. After a received snapshot the
    /// log continues behind it.
    ///
    /// # Errors
    /// Fails with each fault of the disk.
    pub(crate) fn release(&mut self, snapshot: Height) -> Result<(), Fault> {
        self.index.release(snapshot);
        if snapshot <= self.index.last() {
            return Ok(());
        }
        self.append_encoded(entry::JUMP, &snapshot)?;
        self.index.jump(snapshot);
        self.log.note = snapshot.0;
        self.after_append()
    }

    /// Reclaims segments if the log has begun a new one.
    pub(super) fn after_append(&mut self) -> Result<(), Fault> {
        if self.has_begun_segment() {
            self.reclaim()?;
            // Moving may have filled a segment. The next append reclaims for that one.
            self.has_begun_segment();
        }
        Ok(())
    }

    /// Whether the log has begun a segment since the last call.
    fn has_begun_segment(&mut self) -> bool {
        let has_begun = self.log.generation() != self.generation;
        if has_begun {
            self.generation = self.log.generation();
            self.base.segment_begun();
        }
        has_begun
    }

    /// Finds the oldest segments that can be released, and moves their needed entries to the end of the log. The
    /// segments are released when these are durable.
    fn reclaim(&mut self) -> Result<(), Fault> {
        if self.releasing.is_some() {
            return Ok(());
        }
        let segment_bytes = self.log.disk.segment_bytes();
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

    /// Returns the largest end up to `until` of segments whose needed entries are worth moving, and these entries.
    fn worth_moving(&self, until: u32, allowed: u32) -> Option<(u32, LiveEntries)> {
        let segment_bytes = u64::from(self.log.disk.segment_bytes()).max(1);
        let oldest = self.log.oldest();
        // A move that costs more than it gains may wait while half of the disk is free. Most of its entries will be
        // decided until then. After that, later segments must be reached, or a peer with many entries could fill the
        // disk.
        let is_tight = self.log.generation() - oldest >= allowed / 2;
        (oldest.saturating_add(1)..=until).rev().find_map(|until| {
            let live = self.index.live_below(until);
            let segments = u64::from(until - oldest);
            let bytes = live.bytes();
            let is_cheap = bytes <= segments.saturating_mul(segment_bytes) / 2;
            // The disk has the entries twice until the copy is durable. Half of each segment may stay empty.
            let fits =
                bytes == 0 || bytes.saturating_mul(2) / segment_bytes + 2 <= u64::from(self.log.room());
            ((is_cheap || is_tight) && fits).then_some((until, live))
        })
    }

    fn move_out(&mut self, until: u32, live: LiveEntries) -> Result<(), Fault> {
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
        self.releasing = Some((until, self.log.sync_number()));
        Ok(())
    }

    /// Releases the segments whose entries were moved, now that the copies are durable. Keeps them if a new entry
    /// needs them.
    pub(super) fn release_moved(&mut self) {
        let synced = self.log.sync_number();
        let Some((generation, _)) = self.releasing.take_if(|(_, sync)| *sync < synced) else {
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

    /// Updates the log's budget after a change of the snapshots' size.
    pub(super) fn update_budget(&mut self) {
        let segment_bytes = self.log.disk.segment_bytes();
        self.log.set_budget(budget(&self.config, self.snapshots.bytes(), segment_bytes));
    }
}
