//! Heights of the view at which its leader may have said what was not kept here: too high when it came, or left out of an
//! ANSWER. Nothing is voted for there for a while (S2; §8, Lemma 1 b).
//!
//! Not for ever: a liar could keep this replica from voting, and the others would not blame its leader. Whoever has voted for
//! what was missed has shown its certificate within 2 Δ, and commits it, or never does by that wait. From then on it is
//! what is certified that keeps this replica from voting beside it ([`super::SyncHotStuff::agrees`]).

use quorate_types::{Height, Time};

/// How long a height is missed at least, in Δ: 3 in which its certificate comes, and 3 until that counts although nobody
/// knows yet where its block lies.
pub(super) const MISSED: u64 = 6;

/// From the lowest to the highest of some heights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) low: Height,
    pub(super) high: Height,
}

impl Span {
    pub(super) fn of(height: Height) -> Self {
        Self { low: height, high: height }
    }

    /// Both, and what lies between them.
    pub(super) fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// See the module. Each span is kept for one to two terms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missed {
    older: Option<Span>,
    newer: Option<Span>,
    /// When the older one is forgotten.
    turns: Time,
}

impl Missed {
    /// Something was missed there; `term_ns` is [`MISSED`] Δ.
    pub(super) fn note(&mut self, now: Time, term_ns: u64, span: Span) {
        self.turn(now, term_ns);
        if self.older.is_none() && self.newer.is_none() {
            self.turns = now.plus(term_ns);
        }
        self.newer = Some(self.newer.map_or(span, |newer| newer.with(span)));
    }

    /// Until when nothing may be voted for at a height; to be asked again then.
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

    /// However often liars have something missed far up, what was missed below is forgotten.
    #[test]
    fn each_is_missed_for_one_to_two_terms() {
        let mut missed = Missed::default();
        let until = |missed: &mut Missed, now, height| missed.until(Time(now), TERM_NS, Height(height));
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
