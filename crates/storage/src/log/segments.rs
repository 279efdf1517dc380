//! The segments of a log: their slots on the disk, sorted by state.
//!
//! A segment is live, then released, then declared, then free. A released segment is declared when the start of a newer
//! segment says that its generation is gone. It is free when that start is durable.

use crate::number::{to_u32, to_usize};
use std::collections::VecDeque;

/// The share of the disk that a log may use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Budget {
    /// The largest number of segments.
    pub(crate) segments: u32,
    /// The setting that determines the number, for the text of the fault.
    pub(crate) disk_bytes_max: u64,
}

/// The slots of all segments.
#[derive(Default)]
pub(super) struct Segments {
    /// Slots of the live segments, by generation from `oldest` on. The last one is being written.
    pub(super) live: VecDeque<u32>,
    /// The oldest live generation.
    pub(super) oldest: u32,
    /// Slots that are released and not yet declared.
    pub(super) released: Vec<u32>,
    /// Slots declared under the sync number in progress.
    pub(super) declared: Vec<u32>,
    /// Slots that may be written.
    pub(super) free: VecDeque<u32>,
    pub(super) budget: Budget,
    /// The generation that was being written at the last sync.
    pub(super) synced_generation: u32,
}

impl Segments {
    /// Returns no segments, with `oldest` as the first generation.
    pub(super) fn new(oldest: u32, budget: Budget) -> Self {
        Self { oldest, budget, ..Self::default() }
    }

    /// Returns the generation that is being written.
    pub(super) fn generation(&self) -> u32 {
        self.oldest.saturating_add(to_u32(self.live.len())).saturating_sub(1)
    }

    /// Returns the slot of a live generation.
    pub(super) fn slot(&self, generation: u32) -> Option<u32> {
        let index = generation.checked_sub(self.oldest)?;
        self.live.get(to_usize(index)).copied()
    }

    /// Returns the slot that is being written.
    pub(super) fn last_slot(&self) -> u32 {
        self.live.back().copied().unwrap_or_default()
    }

    /// Returns the number of segments that can be begun before others are released.
    pub(super) fn room(&self) -> u32 {
        let used = self.live.len().saturating_add(self.released.len()).saturating_add(self.declared.len());
        self.budget.segments.saturating_sub(to_u32(used))
    }

    /// Releases the segments below `generation` that were ended before the last sync.
    pub(super) fn release(&mut self, generation: u32) {
        while self.oldest < generation.min(self.synced_generation) {
            self.released.extend(self.live.pop_front());
            self.oldest += 1;
        }
    }

    /// Makes `slot` the segment that is being written. Its start declares the released segments.
    pub(super) fn begin(&mut self, slot: u32) {
        self.live.push_back(slot);
        self.declared.append(&mut self.released);
    }

    /// Frees the declared segments, because the start that declares them is durable.
    pub(super) fn synced(&mut self) {
        self.synced_generation = self.generation();
        self.free.extend(self.declared.drain(..));
    }
}
