//! Conditions of links: delays, loss, duplication, cuts. Each direction between two places has its own.

use crate::fault::FaultSet;
use quorate_types::Time;
use quorate_types::rng::Rng;

/// The conditions of one direction between two places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConditions {
    /// Smallest delay of a message.
    pub delay_ns: u64,
    /// Mean of the random part of the delay, which is exponentially distributed.
    pub jitter_ns: u64,
    /// Largest delay of a message.
    pub delay_ns_max: u64,
    /// Lost messages, in a million.
    pub loss_ppm: u32,
    /// Messages that arrive twice, in a million.
    pub duplicate_ppm: u32,
    /// Messages that arrive changed, in a million. Links detect them and close the connection.
    pub corrupt_ppm: u32,
    /// Old messages that arrive again, for a million that are sent.
    pub old_ppm: u32,
    /// Whether written bytes arrive a few at a time.
    pub trickles: bool,
    /// Whether the link is cut.
    pub is_cut: bool,
    /// Messages wait until this time and are not lost.
    pub clogged_until: Time,
    /// Additional time until a message between replicas leaves. Earlier messages are not affected.
    pub later_ns: u64,
    /// Earliest time at which a message between replicas leaves. Earlier messages are not affected.
    pub later_until: Time,
    /// Faults that every message on the link meets.
    pub faults: FaultSet,
}

impl LinkConditions {
    /// A fault-free local network.
    pub const GOOD: Self = Self {
        delay_ns: 500_000,
        jitter_ns: 300_000,
        delay_ns_max: 5_000_000,
        loss_ppm: 0,
        duplicate_ppm: 0,
        corrupt_ppm: 0,
        old_ppm: 0,
        trickles: false,
        is_cut: false,
        clogged_until: Time::ZERO,
        later_ns: 0,
        later_until: Time::ZERO,
        faults: FaultSet::NONE,
    };

    /// Returns links on which every message takes exactly this long, for counting delays.
    #[must_use]
    pub const fn constant(delay_ns: u64) -> Self {
        Self { delay_ns, jitter_ns: 0, delay_ns_max: delay_ns, ..Self::GOOD }
    }

    /// Returns when a message that leaves at `at` arrives, if it is not lost.
    pub(crate) fn arrival(&self, rng: &mut Rng, at: Time) -> Time {
        let jitter = if self.jitter_ns == 0 { 0 } else { rng.exponential_ns(self.jitter_ns) };
        let delay = self.delay_ns.saturating_add(jitter).min(self.delay_ns_max);
        at.plus(delay).max(self.clogged_until)
    }

    /// Whether a message that leaves now arrives changed.
    pub(crate) fn corrupts(&self, rng: &mut Rng) -> bool {
        self.corrupt_ppm > 0 && rng.chance(self.corrupt_ppm)
    }

    /// Whether a message that leaves now is lost.
    pub(crate) fn loses(&self, rng: &mut Rng) -> bool {
        self.is_cut || (self.loss_ppm > 0 && rng.chance(self.loss_ppm))
    }
}

/// The conditions between all places: replicas first, then clients.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    places: usize,
    each: Vec<LinkConditions>,
    /// The conditions of a place outside the map.
    nowhere: LinkConditions,
}

impl Map {
    pub(crate) fn new(places: usize, conditions: LinkConditions) -> Self {
        Self {
            places,
            each: vec![conditions; places.saturating_mul(places)],
            nowhere: LinkConditions { is_cut: true, ..conditions },
        }
    }

    fn index(&self, from: usize, to: usize) -> usize {
        from.saturating_mul(self.places).saturating_add(to)
    }

    pub(crate) fn get(&self, from: usize, to: usize) -> &LinkConditions {
        self.each.get(self.index(from, to)).unwrap_or(&self.nowhere)
    }

    pub(crate) fn get_mut(&mut self, from: usize, to: usize) -> &mut LinkConditions {
        let index = self.index(from, to);
        self.each.get_mut(index).unwrap_or(&mut self.nowhere)
    }

    pub(crate) fn fill(&mut self, conditions: LinkConditions) {
        self.each.fill(conditions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_stay_within_their_limits() {
        let conditions =
            LinkConditions { delay_ns: 100, jitter_ns: 50, delay_ns_max: 300, ..LinkConditions::GOOD };
        let mut rng = Rng::new(1);
        let delays: Vec<u64> =
            (0..10_000).map(|_| conditions.arrival(&mut rng, Time(1_000)).0 - 1_000).collect();
        assert!(delays.iter().all(|delay| (100..=300).contains(delay)));
        assert!(delays.contains(&300) && delays.iter().any(|delay| *delay < 110));
        assert_eq!(LinkConditions::constant(7).arrival(&mut rng, Time(1)), Time(8));
    }

    #[test]
    fn loss_has_its_rate() {
        let conditions = LinkConditions { loss_ppm: 100_000, ..LinkConditions::GOOD };
        let mut rng = Rng::new(2);
        let lost = (0..10_000).filter(|_| conditions.loses(&mut rng)).count();
        assert!((900..1_100).contains(&lost), "{lost}");
        assert!(LinkConditions { is_cut: true, ..LinkConditions::GOOD }.loses(&mut rng));
    }
}
