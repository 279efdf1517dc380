//! Weather fronts: changes of the weather between some places, for a while.

use crate::fault::Fault;
use crate::link_conditions::{LinkConditions, Map};
use crate::places::Places;
use quorate_types::Time;

/// What changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Messages take so much longer, at least and in the mean.
    Slow {
        /// Added to every message.
        delay_ns: u64,
        /// Mean of what is added at random.
        jitter_ns: u64,
    },
    /// So many in a million are lost.
    Lossy(u32),
    /// So many in a million arrive twice.
    Twice(u32),
    /// So many in a million arrive changed.
    Corrupt(u32),
    /// For a million that are sent, so many of long ago arrive again.
    Old(u32),
    /// What is written arrives a few bytes at a time.
    Trickle,
    /// Nothing passes.
    Cut,
    /// Nothing arrives before this.
    Clogged(Time),
    /// What replicas say leaves later. What they had said before is on its way and arrives in time: for protocols that
    /// rest on a bound on delays, and are promised something for when it does not hold any more from some moment on.
    Late {
        /// By so much.
        by_ns: u64,
        /// And not before that moment.
        until: Time,
    },
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkFault {
    /// What is sent from here …
    pub from: Places,
    /// … to here …
    pub to: Places,
    /// … and the other way round as well?
    pub both_ways: bool,
    /// What happens to it.
    pub change: Change,
    /// What it counts as whenever it meets a message; what is lost, doubled or corrupted counts when it is.
    pub fault: Option<Fault>,
}

impl NetworkFault {
    pub(crate) fn covers(&self, from: usize, to: usize) -> bool {
        let covers = |from, to| self.from.contains(from) && self.to.contains(to);
        covers(from, to) || (self.both_ways && covers(to, from))
    }
}

/// The weather that follows from the fronts that are there.
pub(crate) fn conditions_under(
    map: &mut Map,
    places: usize,
    base: LinkConditions,
    network_faults: &[(u64, NetworkFault)],
) {
    map.fill(base);
    for (_, network_fault) in network_faults {
        for from in 0..places {
            for to in (0..places).filter(|to| network_fault.covers(from, *to)) {
                let conditions = map.get_mut(from, to);
                if let Some(fault) = network_fault.fault {
                    conditions.faults.insert(fault);
                }
                match network_fault.change {
                    Change::Slow { delay_ns, jitter_ns } => {
                        conditions.delay_ns = conditions.delay_ns.saturating_add(delay_ns);
                        conditions.jitter_ns = conditions.jitter_ns.saturating_add(jitter_ns);
                        let most = delay_ns.saturating_add(jitter_ns.saturating_mul(8));
                        conditions.delay_ns_max = conditions.delay_ns_max.saturating_add(most);
                    }
                    Change::Lossy(ppm) => conditions.loss_ppm = conditions.loss_ppm.max(ppm),
                    Change::Twice(ppm) => conditions.duplicate_ppm = conditions.duplicate_ppm.max(ppm),
                    Change::Corrupt(ppm) => conditions.corrupt_ppm = conditions.corrupt_ppm.max(ppm),
                    Change::Old(ppm) => conditions.old_ppm = conditions.old_ppm.max(ppm),
                    Change::Trickle => conditions.trickles = true,
                    Change::Cut => conditions.is_cut = true,
                    Change::Clogged(until) => conditions.clogged_until = conditions.clogged_until.max(until),
                    Change::Late { by_ns, until } => {
                        conditions.later_ns = conditions.later_ns.max(by_ns);
                        conditions.later_until = conditions.later_until.max(until);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fronts_add_up_and_pass() {
        let mut map = Map::new(3, LinkConditions::GOOD);
        let cut = NetworkFault {
            from: Places::one(0),
            to: Places::one(0).others(),
            both_ways: false,
            change: Change::Cut,
            fault: Some(Fault::OneWay),
        };
        let slow = NetworkFault {
            from: Places::of([1, 2]),
            to: Places::one(0),
            both_ways: true,
            change: Change::Slow { delay_ns: 10, jitter_ns: 5 },
            fault: None,
        };
        conditions_under(&mut map, 3, LinkConditions::GOOD, &[(1, cut), (2, slow)]);
        assert!(map.get(0, 1).is_cut && map.get(0, 2).is_cut && !map.get(1, 0).is_cut);
        assert!(map.get(0, 1).faults.iter().eq([Fault::OneWay]) && map.get(1, 0).faults.is_empty());
        assert_eq!(map.get(1, 0).delay_ns, LinkConditions::GOOD.delay_ns + 10);
        assert_eq!(map.get(0, 1).delay_ns, LinkConditions::GOOD.delay_ns + 10, "both ways");
        assert_eq!(*map.get(1, 2), LinkConditions::GOOD);
        conditions_under(&mut map, 3, LinkConditions::GOOD, &[]);
        assert_eq!(*map.get(0, 1), LinkConditions::GOOD);
    }
}
