//! Network faults: temporary changes of the conditions between some places.

use crate::fault::Fault;
use crate::link_conditions::{LinkConditions, Map};
use crate::places::Places;
use quorate_types::Time;

/// A change of link conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Messages take longer.
    Slow {
        /// Additional delay of every message.
        delay_ns: u64,
        /// Mean of the additional random delay.
        jitter_ns: u64,
    },
    /// Lost messages, in a million.
    Lossy(u32),
    /// Messages that arrive twice, in a million.
    Twice(u32),
    /// Messages that arrive changed, in a million.
    Corrupt(u32),
    /// Old messages that arrive again, for a million that are sent.
    Old(u32),
    /// Written bytes arrive a few at a time.
    Trickle,
    /// The link is cut.
    Cut,
    /// Messages wait until this time.
    Clogged(Time),
    /// Messages of replicas leave later. Messages in flight arrive in time. This suits protocols with a bound on
    /// delays, whose promises cover a bound that fails from some moment on.
    Late {
        /// Additional time until a message leaves.
        by_ns: u64,
        /// Earliest time at which a message leaves.
        until: Time,
    },
}

/// A temporary change of the conditions between some places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkFault {
    /// The senders.
    pub from: Places,
    /// The receivers.
    pub to: Places,
    /// Whether the opposite direction changes as well.
    pub both_ways: bool,
    /// The change.
    pub change: Change,
    /// The fault that each affected message counts as. Loss, duplication and corruption count only when they occur.
    pub fault: Option<Fault>,
}

impl NetworkFault {
    pub(crate) fn covers(&self, from: usize, to: usize) -> bool {
        let covers = |from, to| self.from.contains(from) && self.to.contains(to);
        covers(from, to) || (self.both_ways && covers(to, from))
    }
}

/// Sets the conditions that follow from the faults in effect.
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
    fn network_faults_combine_and_end() {
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
