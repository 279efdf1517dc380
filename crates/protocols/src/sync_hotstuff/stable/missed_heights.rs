//! Heights at which the leader of the view may have signed headers that this replica does not have. They were too high when
//! they arrived, or were left out of an ANSWER. Nothing is voted for at these heights for a while (S2; §8, Lemma 1 b).
//!
//! The ban ends: otherwise a liar could keep this replica from voting, and nobody would blame the leader. A replica that has
//! voted for a missed header has shown its certificate within 2 Δ, and commits it, or never does by that wait. Afterwards
//! certified blocks keep this replica from conflicting votes (`SyncHotStuff::agrees`).

use quorate_types::{Height, Time};

/// Minimum time in Δ for which a height counts as missed. Its certificate arrives within 3 Δ. Another 3 Δ later the certificate
/// counts although the ancestry of its block is unknown.
pub(super) const MISSED: u64 = 6;

/// Heights from the lowest to the highest of some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) low: Height,
    pub(super) high: Height,
}

impl Span {
    pub(super) fn of(height: Height) -> Self {
        Self { low: height, high: height }
    }

    /// Returns the span of both, with all heights between them.
    pub(super) fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// Missed heights. Each span is kept for one to two terms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MissedHeights {
    older: Option<Span>,
    newer: Option<Span>,
    /// Time at which the older one is forgotten.
    turns: Time,
}

impl MissedHeights {
    /// Notes missed heights; `term_ns` is [`MISSED`] Δ.
    pub(super) fn note(&mut self, now: Time, term_ns: u64, span: Span) {
        self.turn(now, term_ns);
        if self.older.is_none() && self.newer.is_none() {
            self.turns = now.plus(term_ns);
        }
        self.newer = Some(self.newer.map_or(span, |newer| newer.with(span)));
    }

    /// Returns until when nothing may be voted for at a height. The caller asks again then.
    pub(super) fn until(&mut self, now: Time, term_ns: u64, height: Height) -> Option<Time> {
        self.turn(now, term_ns);
        let is_in = |span: &Span| (span.low..=span.high).contains(&height);
        self.older.iter().chain(&self.newer).any(is_in).then_some(self.turns)
    }

    fn turn(&mut self, now: Time, term_ns: u64) {
        while now >= self.turns && (self.older.is_some() || self.newer.is_some()) {
            self.older = self.newer.take();
            self.turns = self.turns.plus(term_ns.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM_NS: u64 = 60;

    /// Low heights are forgotten, however often liars cause misses far above.
    #[test]
    fn missed_height_is_kept_for_one_to_two_terms() {
        let mut missed = MissedHeights::default();
        let until =
            |missed: &mut MissedHeights, now, height| missed.until(Time(now), TERM_NS, Height(height));
        assert_eq!(until(&mut missed, 5, 7), None);
        missed.note(Time(10), TERM_NS, Span::of(Height(7)));
        missed.note(Time(11), TERM_NS, Span::of(Height(9)));
        assert_eq!(
            [6, 7, 8, 9, 10].map(|at| until(&mut missed, 12, at).is_some()),
            [false, true, true, true, false]
        );
        let mut now = 12;
        while until(&mut missed, now, 8).is_some() {
            missed.note(Time(now), TERM_NS, Span::of(Height(1_000 + now)));
            now += 1;
        }
        assert!((10 + TERM_NS..=10 + 2 * TERM_NS).contains(&now), "{now}");
        assert!(until(&mut missed, now, 1_000 + now - 1).is_some());
        assert_eq!(until(&mut missed, now + 2 * TERM_NS, 1_000 + now - 1), None);
    }
}
