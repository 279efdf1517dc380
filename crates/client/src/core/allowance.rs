//! The number of bundles that a client may have in flight now, up to its setting.
//!
//! The rule is slow start, then additive increase and multiplicative decrease (Jacobson 1988, Chiu and Jain 1989, as in TCP).
//! Clients of a saturated cluster converge to fair shares of its capacity, instead of sending again and again what it
//! cannot take. A missing answer counts like a refusal: the bundle may wait in a queue that cannot refuse it.
//!
//! A refusal by the leader is enough for a cut, because only the leader knows the length of its queue. A client that waited
//! for more refusals would send a saturated cluster everything f + 1 times. A lying leader can therefore slow
//! clients down, to one bundle for each time after which they ask all replicas. It cannot stop them.

use quorate_types::Time;

/// Refusals within this time concern the same queue: they cut once.
const CUT_EVERY_NS: u64 = 100_000_000;
const ONE: u64 = 1_000;
/// Bundles in flight at the start: few, because a thousand clients may start at the same time.
const FIRST: u64 = 4 * ONE;

/// Bundles that may be in flight now.
#[derive(Debug)]
pub(super) struct Allowance {
    /// The allowance, in thousandths of a bundle.
    bundles: u64,
    most: u64,
    /// The end of the slow start: below it the allowance doubles with each round.
    slow_until: u64,
    next_cut: Time,
    /// The time of the last cut.
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

    /// Grows after an answer.
    pub(super) fn grow(&mut self) {
        let is_slow = self.bundles < self.slow_until;
        let more = if is_slow { ONE } else { (ONE * ONE).checked_div(self.bundles).unwrap_or(ONE) };
        self.bundles = self.bundles.saturating_add(more.max(1)).min(self.most);
    }

    /// Halves the allowance: the leader, or enough replicas, have no room.
    pub(super) fn cut(&mut self, now: Time) {
        if now >= self.next_cut {
            self.next_cut = now.plus(CUT_EVERY_NS);
            self.last_cut = now;
            self.bundles = (self.bundles / 2).max(ONE);
            self.slow_until = self.bundles;
        }
    }

    /// Cuts because a bundle `sent` at that time has no answer in time. It may wait in a queue that cannot refuse it, and it goes
    /// to all now, which is more work for the cluster. A bundle sent before the last cut carries no news beyond that cut.
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
    fn late_answers_cut_once_for_all_bundles_sent_before_the_cut() {
        let mut allowance = Allowance::new(16);
        (0..20).for_each(|_| allowance.grow());
        (0..800).for_each(|ms| allowance.late(Time((800 + ms) * 1_000_000), Time(ms * 1_000_000)));
        assert_eq!(allowance.get(), 8, "all bundles were sent before the cut");
        allowance.late(Time(1_600_000_000), Time(800_000_000));
        assert_eq!(allowance.get(), 4, "sent after it");
    }

    #[test]
    fn allowance_halves_once_per_interval_and_grows_by_one_each_round() {
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
        assert_eq!(allowance.get(), 1, "at least one");
    }
}
