//! How much of what a client may have in flight it makes use of.
//!
//! Slow start, then additive increase and multiplicative decrease (Jacobson 1988, Chiu and Jain 1989, as in TCP):
//! clients of a saturated cluster come to fair shares of what it can do, instead of sending again and again what it
//! cannot take. What has no answer in time counts like a refusal: it may wait where nobody can say so.
//!
//! The leader's word is enough for a cut, because only the leader knows how long its queue is: a client that waited
//! for others to say so would send a saturated cluster everything f + 1 times. So a leader that lies about it can slow
//! clients down, to one bundle for each time after which they ask all replicas. It cannot stop them.

use quorate_types::Time;

/// Refusals within this time are about the same queue: they cut once.
const CUT_EVERY_NS: u64 = 100_000_000;
const ONE: u64 = 1_000;
/// In flight at the start: few, because a thousand clients may start at the same time.
const FIRST: u64 = 4 * ONE;

/// Bundles that may be in flight now.
#[derive(Debug)]
pub(super) struct Allowance {
    /// In thousandths.
    bundles: u64,
    most: u64,
    /// Doubles with each round until it reaches this.
    slow_until: u64,
    next_cut: Time,
    /// When it was cut last.
    last_cut: Time,
}

impl Allowance {
    pub(super) fn new(most: usize) -> Self {
        let most = u64::try_from(most).unwrap_or(u64::MAX).saturating_mul(ONE).max(ONE);
        Self { bundles: most.min(FIRST), most, slow_until: most, next_cut: Time::ZERO, last_cut: Time::ZERO }
    }

    pub(super) fn get(&self) -> usize {
        usize::try_from(self.bundles / ONE).unwrap_or(usize::MAX)
    }

    /// A bundle was answered.
    pub(super) fn grow(&mut self) {
        let is_slow = self.bundles < self.slow_until;
        let more = if is_slow { ONE } else { (ONE * ONE).checked_div(self.bundles).unwrap_or(ONE) };
        self.bundles = self.bundles.saturating_add(more.max(1)).min(self.most);
    }

    /// Whoever decides has no room.
    pub(super) fn cut(&mut self, now: Time) {
        if now >= self.next_cut {
            self.next_cut = now.plus(CUT_EVERY_NS);
            self.last_cut = now;
            self.bundles = (self.bundles / 2).max(ONE);
            self.slow_until = self.bundles;
        }
    }

    /// What was `sent` then has no answer in time: it may wait where nobody can say so, and goes to all now, which is
    /// more to do for everybody. All that was sent before the last cut says no more than what led to it.
    pub(super) fn late(&mut self, now: Time, sent: Time) {
        if sent >= self.last_cut {
            self.cut(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_cuts_once_and_another_one_again() {
        let mut allowance = Allowance::new(16);
        (0..20).for_each(|_| allowance.grow());
        (0..800).for_each(|ms| allowance.late(Time((800 + ms) * 1_000_000), Time(ms * 1_000_000)));
        assert_eq!(allowance.get(), 8, "all was sent before the cut");
        allowance.late(Time(1_600_000_000), Time(800_000_000));
        assert_eq!(allowance.get(), 4, "sent after it");
    }

    #[test]
    fn halves_once_in_a_while_and_grows_by_one_each_round() {
        let mut allowance = Allowance::new(64);
        assert_eq!(allowance.get(), 4);
        (0..100).for_each(|_| allowance.grow());
        assert_eq!(allowance.get(), 64, "one round for each doubling");
        for _ in 0..10 {
            allowance.cut(Time(5));
        }
        assert_eq!(allowance.get(), 32, "the same queue");
        (0..40).for_each(|_| allowance.grow());
        assert_eq!(allowance.get(), 33);
        (0..10_000).for_each(|_| allowance.grow());
        assert_eq!(allowance.get(), 64, "never more than the settings allow");
        (1..100).for_each(|round| allowance.cut(Time(round * CUT_EVERY_NS)));
        assert_eq!(allowance.get(), 1, "never nothing");
    }
}
