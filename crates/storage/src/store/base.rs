//! When the host writes its base, and from where on the log can do without what lies before it.

/// What is known of bases: everything that still binds the replica, written once more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Base {
    /// Generation and appended bytes at the beginning of the base that is being written.
    begun: Option<(u32, u64)>,
    /// Generation where the last complete base begins, and its sync number.
    ended: Option<(u32, u64)>,
    /// Generation where the last durable base begins: what binds stands here or later.
    durable: u32,
    /// Bytes of the last base.
    bytes: u64,
    /// Bytes appended when it ended.
    ended_at: u64,
    /// The log has begun a segment since.
    wanted: bool,
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

    /// Everything below this sync number is durable.
    pub(super) fn synced(&mut self, sync: u64) {
        if let Some((generation, _)) = self.ended.take_if(|(_, at)| *at < sync) {
            self.durable = generation;
        }
    }

    /// The log was read to its end, which is durable. A base that was begun there is none.
    pub(super) fn reopened(&mut self, generation: u32) {
        self.begun = None;
        self.ended_at = 0;
        if let Some((begin, _)) = self.ended.take() {
            self.durable = begin;
        }
        self.wanted = generation > self.durable.max(1);
    }

    /// The log has begun a segment.
    pub(super) fn rolled(&mut self) {
        // A base that reaches over the end of a segment needs no other one.
        self.wanted |= self.begun.is_none();
    }

    /// Whether the host is to write a base now. Where segments are small against the base, it is written only
    /// when as much was appended since the last one as it takes itself.
    pub(super) fn take_wanted(&mut self, appended_bytes: u64) -> bool {
        let due = self.begun.is_none() && appended_bytes.saturating_sub(self.ended_at) >= self.bytes;
        due && std::mem::take(&mut self.wanted)
    }

    /// Segments of generations below this bind nobody.
    pub(super) fn generation(&self) -> u32 {
        self.durable
    }
}
