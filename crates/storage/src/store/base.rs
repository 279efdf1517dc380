//! Bases: the times at which the host writes one, and the generation from which the log needs nothing older.

/// The state of bases. A base repeats everything that still binds the replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Base {
    /// Generation and appended bytes at the beginning of an unfinished base.
    begun: Option<(u32, u64)>,
    /// The generation at the beginning of the last complete base, and the sync number of its end.
    ended: Option<(u32, u64)>,
    /// The generation at the beginning of the last durable base. All binding entries are in it or later.
    durable: u32,
    /// The bytes of the last base.
    bytes: u64,
    /// The appended bytes at the end of the last base.
    ended_at: u64,
    /// Whether the log has begun a segment since.
    is_due: bool,
}

impl Base {
    pub(super) fn begin(&mut self, generation: u32, appended_bytes: u64) {
        self.begun = Some((generation, appended_bytes));
    }

    /// Whether a base is being written.
    pub(super) fn is_open(&self) -> bool {
        self.begun.is_some()
    }

    pub(super) fn end(&mut self, sync: u64, appended_bytes: u64) {
        if let Some((generation, from)) = self.begun.take() {
            self.ended = Some((generation, sync));
            self.bytes = appended_bytes.saturating_sub(from);
            self.ended_at = appended_bytes;
        }
    }

    /// Notes that everything below this sync number is durable.
    pub(super) fn synced(&mut self, sync: u64) {
        if let Some((generation, _)) = self.ended.take_if(|(_, at)| *at < sync) {
            self.durable = generation;
        }
    }

    /// Ends the reading of the log, whose end is durable. An unfinished base does not count.
    pub(super) fn reopened(&mut self, generation: u32) {
        self.begun = None;
        self.ended_at = 0;
        if let Some((begin, _)) = self.ended.take() {
            self.durable = begin;
        }
        self.is_due = generation > self.durable.max(1);
    }

    /// Notes that the log has begun a segment.
    pub(super) fn segment_begun(&mut self) {
        // A base that crosses the end of a segment needs no further base.
        self.is_due |= self.begun.is_none();
    }

    /// Whether the host must write a base now. If a base is larger than a segment, the next one is due only when as
    /// many bytes as the base has were appended since.
    pub(super) fn take_due(&mut self, appended_bytes: u64) -> bool {
        let due = self.begun.is_none() && appended_bytes.saturating_sub(self.ended_at) >= self.bytes;
        due && std::mem::take(&mut self.is_due)
    }

    /// Returns the generation below which no segment binds the replica.
    pub(super) fn generation(&self) -> u32 {
        self.durable
    }
}
