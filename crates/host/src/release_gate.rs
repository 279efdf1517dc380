//! The release gate: holds promises back a second time where safety rests on a bound on delays.
//!
//! The outbox of the replica holds a promise until its mark is durable. A synchronous protocol needs more: a message
//! that arrived while the disk or the service took long may forbid the promise. So the host reports a durable mark to
//! the replica only after the replica has handled everything that arrived during such a stall.
//!
//! ```text
//! sync done ──▶ on_synced(mark) ──▶ release(now) ──▶ Some(mark): report Durable, send the promises
//!                                       │
//!                                       └──▶ None: a stall was noticed since the last complete reading
//! ```
//!
//! * `check` notices a stall: the disk or the service took long since the last check, or the reading is old.
//! * `on_handled` ends a stall: a recent reading was handled completely, or the marks have waited long enough.
//!   Otherwise a peer that floods the replica could keep it silent forever.
//!
//! If the protocol assumes no bound the gate is always open. Its only state is then the mark between the sync and
//! the report to the replica.

use quorate_types::{Mark, Time};

/// The shortest span of the disk or the service that is a stall.
const STALL_NS: u64 = 5_000_000;
/// The longest hold after a short stall.
const SHORT_HOLD_NS: u64 = 20_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ReleaseGate {
    /// The bound on delays, Δ; `None` where safety rests on none.
    delta_ns: Option<u64>,
    /// A mark that is on disk and was not reported to the replica yet.
    synced: Option<Mark>,
    /// The longest hold for the present stall, in nanoseconds; `None` without a stall.
    hold_ns_max: Option<u64>,
    /// The time at which the gate first held `synced` back.
    held_since: Option<Time>,
    /// The end of the span that was checked last.
    checked_at: Time,
    /// The time at which the inputs of this turn were read.
    read_at: Time,
}

impl ReleaseGate {
    /// Returns a gate for a protocol with this bound on delays.
    pub(crate) fn new(delta_ns: Option<u64>) -> Self {
        Self { delta_ns, ..Self::default() }
    }

    /// Whether safety rests on a bound on delays.
    pub(crate) fn is_guarding(&self) -> bool {
        self.delta_ns.is_some()
    }

    /// Whether a durable mark waits for its report to the replica.
    pub(crate) fn has_mark(&self) -> bool {
        self.synced.is_some()
    }

    /// Begins a turn whose inputs were read at this time.
    pub(crate) fn begin_turn(&mut self, read_at: Time) {
        self.read_at = read_at;
    }

    /// Begins the next span that [`ReleaseGate::check`] measures.
    pub(crate) fn begin_span(&mut self, now: Time) {
        self.checked_at = now;
    }

    /// Takes in a mark up to which the log is on disk.
    pub(crate) fn on_synced(&mut self, mark: Mark) {
        self.synced = Some(mark);
    }

    /// Notes a stall if the span since the last check or the time since the reading is too long.
    pub(crate) fn check(&mut self, now: Time) {
        let Some(delta_ns) = self.delta_ns else { return };
        let span_ns = now.since(std::mem::replace(&mut self.checked_at, now));
        if span_ns > delta_ns / 4 || now.since(self.read_at) > delta_ns / 2 {
            self.hold_ns_max = Some(delta_ns);
        } else if span_ns > STALL_NS {
            // A disk may take that long at each sync, so the hold is short.
            self.hold_ns_max.get_or_insert(SHORT_HOLD_NS);
        }
    }

    /// Ends the stall if it may end. The replica has handled all inputs of this turn; `is_complete` where these were
    /// all that had arrived.
    pub(crate) fn on_handled(&mut self, now: Time, is_complete: bool) {
        let Some(delta_ns) = self.delta_ns else { return };
        let is_long_enough = || {
            let hold = self.held_since.zip(self.hold_ns_max);
            hold.is_some_and(|(since, most)| self.read_at >= since.plus(most))
        };
        // After a standstill between the reading and now, the replica does not know what has arrived meanwhile.
        let is_recent = now.since(self.read_at) <= delta_ns.max(SHORT_HOLD_NS);
        if is_recent && (is_complete || is_long_enough()) {
            self.hold_ns_max = None;
        }
    }

    /// Returns the durable mark to report to the replica; `None` where there is none or a stall holds it back.
    pub(crate) fn release(&mut self, now: impl FnOnce() -> Time) -> Option<Mark> {
        if self.synced.is_some() && self.hold_ns_max.is_some() {
            self.held_since.get_or_insert_with(now);
            return None;
        }
        let mark = self.synced.take()?;
        self.held_since = None;
        Some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// Δ of the tests: a quarter of it is 10 ms.
    const DELTA_NS: u64 = 40 * MS;

    fn at(ms: u64) -> Time {
        Time(ms * MS)
    }

    /// A gate whose sync took `sync_ms` in a turn that was read at 0.
    fn after_sync(sync_ms: u64) -> ReleaseGate {
        let mut gate = ReleaseGate::new(Some(DELTA_NS));
        gate.begin_turn(at(0));
        gate.on_handled(at(0), true);
        gate.begin_span(at(0));
        gate.on_synced(Mark(1));
        gate.check(at(sync_ms));
        gate
    }

    fn release(gate: &mut ReleaseGate, ms: u64) -> Option<Mark> {
        gate.release(|| at(ms))
    }

    #[test]
    fn mark_is_released_at_once_without_a_bound() {
        let mut gate = ReleaseGate::new(None);
        assert!(!gate.is_guarding());
        gate.on_synced(Mark(7));
        gate.check(at(1_000));
        assert!(gate.has_mark());
        assert_eq!(release(&mut gate, 1_000), Some(Mark(7)));
        assert!(!gate.has_mark());
        assert_eq!(release(&mut gate, 1_000), None, "a mark is released once");
    }

    #[test]
    fn mark_is_released_at_once_after_a_quick_sync() {
        assert_eq!(release(&mut after_sync(5), 5), Some(Mark(1)));
    }

    #[test]
    fn mark_is_held_after_a_slow_sync_until_a_complete_reading_is_handled() {
        for sync_ms in [6, 11] {
            let mut gate = after_sync(sync_ms);
            assert_eq!(release(&mut gate, sync_ms), None, "{sync_ms} ms");
            gate.begin_turn(at(sync_ms));
            gate.on_handled(at(sync_ms), false);
            assert_eq!(release(&mut gate, sync_ms), None, "unread inputs remain");
            gate.on_handled(at(sync_ms), true);
            assert_eq!(release(&mut gate, sync_ms), Some(Mark(1)));
        }
    }

    #[test]
    fn mark_is_held_where_its_turn_was_read_long_ago() {
        let mut gate = after_sync(0);
        gate.begin_span(at(20));
        gate.check(at(20));
        gate.begin_span(at(21));
        gate.check(at(21));
        assert_eq!(release(&mut gate, 21), None, "more than half of Δ since the reading");
    }

    #[test]
    fn hold_ends_at_its_maximum_although_inputs_keep_arriving() {
        for (sync_ms, hold_ms) in [(6, 20), (11, 40)] {
            let mut gate = after_sync(sync_ms);
            assert_eq!(release(&mut gate, sync_ms), None);
            for (waited_ms, expected) in [(hold_ms - 1, None), (hold_ms, Some(Mark(1)))] {
                let now = sync_ms + waited_ms;
                gate.begin_turn(at(now));
                gate.on_handled(at(now), false);
                assert_eq!(release(&mut gate, now), expected, "after {waited_ms} ms");
            }
        }
    }

    #[test]
    fn hold_goes_on_where_the_replica_stood_still_after_the_reading() {
        let mut gate = after_sync(11);
        gate.begin_turn(at(11));
        gate.on_handled(at(11 + 41), true);
        assert_eq!(release(&mut gate, 52), None, "inputs of the standstill are unread");
        gate.begin_turn(at(52));
        gate.on_handled(at(52 + 40), true);
        assert_eq!(release(&mut gate, 92), Some(Mark(1)));
    }

    #[test]
    fn long_stall_replaces_a_short_one_and_no_short_one_replaces_a_long_one() {
        let mut gate = after_sync(6);
        assert_eq!(gate.hold_ns_max, Some(SHORT_HOLD_NS));
        gate.check(at(17));
        assert_eq!(gate.hold_ns_max, Some(DELTA_NS));
        gate.begin_turn(at(17));
        gate.check(at(23));
        assert_eq!(gate.hold_ns_max, Some(DELTA_NS));
    }

    #[test]
    fn hold_is_measured_from_the_first_refusal() {
        let mut gate = after_sync(6);
        for ms in [6, 10, 20] {
            assert_eq!(release(&mut gate, ms), None);
        }
        assert_eq!(gate.held_since, Some(at(6)));
    }
}
