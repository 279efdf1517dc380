//! Delays within the bound Δ of a synchronous protocol, as hostile as the bound allows.
//!
//! Δ runs from handler to handler. Frames of the consensus lane wait before they enter their link; the rest of the
//! way is short. This much of Δ is left for the wait:
//!
//! ```text
//! Δ | the link: 1/40 | work at both ends (wake-ups, the disk, turns): 1/20 | the wait
//! held, if a body may be fetched: also a quarter of Δ for its arrival without a request | request, answer, work | the wait
//! guarded: half of that, because a round trip takes no more than Δ
//! ```
//!
//! Held frames keep their order, and so do unheld ones. No protocol may rely on more.

use crate::link_conditions::LinkConditions;
use quorate_types::rng::Rng;
use quorate_types::wire::Lane;
use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;

/// Share of Δ for the link and other fast parts.
const LINK_PARTS: u64 = 40;
/// Share of Δ for work at both ends of a message.
const WORK_PARTS: u64 = 20;
/// Share of Δ that a protocol waits for a body before it asks for the body.
const GRACE_PARTS: u64 = 4;
/// Longest period of one delay on a direction, in Δ. The shortest is a quarter of Δ.
const SPELL_DELTAS: u64 = 6;

/// A pattern of long and short delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayPattern {
    /// Each direction changes between no delay, the longest, and random ones.
    Changing,
    /// Every direction has the same share of the longest delay, in millionths.
    Even(u32),
    /// The direction from the first replica to the second has the longest delay, all others none.
    Direction(ReplicaId, ReplicaId),
    /// Both directions of one replica have the longest delay, all others none.
    Replica(ReplicaId),
}

/// Delays of frames before they enter their links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delays {
    /// The pattern of delays.
    pub pattern: DelayPattern,
    /// Longest delay of frames that carry a promise.
    pub held_ns: u64,
    /// Longest delay of all other frames.
    pub unheld_ns: u64,
    /// Δ.
    pub delta_ns: u64,
}

/// Whether a replica may have to fetch a body after its header has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bodies {
    /// A body may be missing, because a replica withholds it.
    MayLack,
    /// A body arrives before its header.
    AreThere,
}

impl Delays {
    /// Returns the longest delays that Δ allows.
    #[must_use]
    pub fn within(delta_ns: u64, guarded: bool, bodies: Bodies, pattern: DelayPattern) -> Self {
        let (link, work) = (delta_ns / LINK_PARTS, delta_ns / WORK_PARTS);
        let left = |of: u64| of.saturating_sub(link).saturating_sub(work);
        let fetch = (delta_ns / GRACE_PARTS).saturating_add(link.saturating_mul(2)).saturating_add(work);
        let unheld_ns = left(if guarded { delta_ns / 2 } else { delta_ns });
        let held_ns = match bodies {
            Bodies::MayLack => unheld_ns.min(left(delta_ns).saturating_sub(fetch)),
            Bodies::AreThere => unheld_ns,
        };
        Self { pattern, held_ns, unheld_ns, delta_ns }
    }

    /// Returns the longest time on a link.
    #[must_use]
    pub fn link_ns(delta_ns: u64) -> u64 {
        delta_ns / LINK_PARTS
    }

    fn longest(&self, class: FrameClass) -> u64 {
        match class {
            FrameClass::Held => self.held_ns,
            FrameClass::Unheld => self.unheld_ns,
            FrameClass::Body | FrameClass::CatchUp => 0,
        }
    }
}

/// Classes of frames that keep their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum FrameClass {
    Held,
    Unheld,
    Body,
    CatchUp,
}

/// The current delay of a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DelaySpell {
    None,
    Longest,
    Any,
}

#[derive(Clone, Copy, Debug)]
struct DirectionState {
    spell: DelaySpell,
    until: Time,
    /// Time at which the last frame enters the link.
    last: Time,
}

/// Frames that wait before they enter their links.
#[derive(Debug)]
pub(crate) struct Waits {
    rng: Rng,
    ways: BTreeMap<(ReplicaId, ReplicaId, FrameClass), DirectionState>,
}

impl Waits {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed ^ 0xde1a_75de_1a75_de1a), ways: BTreeMap::new() }
    }

    /// Whether any frame has been delayed or checked so far.
    pub(crate) fn is_used(&self) -> bool {
        !self.ways.is_empty()
    }

    /// Returns when a frame that is sent at `at` enters its link. `None`: at once, and no frame is ahead of it.
    pub(crate) fn enters(
        &mut self,
        at: Time,
        (from, to): (ReplicaId, ReplicaId),
        (lane, is_held): (Lane, bool),
        (delays, conditions): (Option<&Delays>, &LinkConditions),
    ) -> Option<Time> {
        let class = match lane {
            Lane::Consensus if is_held => FrameClass::Held,
            Lane::Consensus => FrameClass::Unheld,
            Lane::Bodies => FrameClass::Body,
            Lane::CatchUp => FrameClass::CatchUp,
        };
        let Self { rng, ways } = self;
        let fresh = DirectionState { spell: DelaySpell::None, until: Time::ZERO, last: Time::ZERO };
        let way = ways.entry((from, to, class)).or_insert(fresh);
        let waits_ns = delays.map_or(0, |delays| way.wait(rng, at, (from, to), delays, class));
        let enters = at.plus(waits_ns).plus(conditions.later_ns).max(conditions.later_until).max(way.last);
        way.last = enters;
        // Delayed frames must not overtake each other.
        let is_shaped = delays.is_some() && lane == Lane::Consensus;
        (is_shaped || enters > at).then_some(enters)
    }
}

impl DirectionState {
    fn wait(
        &mut self,
        rng: &mut Rng,
        at: Time,
        (from, to): (ReplicaId, ReplicaId),
        delays: &Delays,
        class: FrameClass,
    ) -> u64 {
        let longest = delays.longest(class);
        let if_so = |is_so: bool| if is_so { longest } else { 0 };
        match delays.pattern {
            DelayPattern::Even(ppm) => {
                let part = u128::from(longest).saturating_mul(u128::from(ppm)) / 1_000_000;
                u64::try_from(part).unwrap_or(longest).min(longest)
            }
            DelayPattern::Direction(slow, peer) => if_so(from == slow && to == peer),
            DelayPattern::Replica(slow) => if_so(from == slow || to == slow),
            DelayPattern::Changing => {
                if at >= self.until {
                    let most = delays.delta_ns.saturating_mul(SPELL_DELTAS);
                    self.until = at.plus(rng.between(delays.delta_ns / 4, most));
                    let spells = [DelaySpell::None, DelaySpell::Longest, DelaySpell::Any];
                    self.spell = rng.pick(&spells).copied().unwrap_or(DelaySpell::None);
                }
                match self.spell {
                    DelaySpell::None => 0,
                    DelaySpell::Longest => longest,
                    DelaySpell::Any => rng.between(0, longest),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELTA_NS: u64 = 80_000_000;
    const TO_ONE: (ReplicaId, ReplicaId) = (ReplicaId(0), ReplicaId(1));
    const AT_ONCE: LinkConditions = LinkConditions::GOOD;

    fn delays(pattern: DelayPattern) -> Delays {
        Delays::within(DELTA_NS, false, Bodies::MayLack, pattern)
    }

    #[test]
    fn longest_delay_leaves_time_for_the_rest_of_the_way() {
        let Delays { held_ns, unheld_ns, .. } = delays(DelayPattern::Changing);
        assert_eq!((held_ns, unheld_ns), (46_000_000, 74_000_000));
        let guarded = Delays::within(DELTA_NS, true, Bodies::MayLack, DelayPattern::Changing);
        assert_eq!((guarded.held_ns, guarded.unheld_ns), (34_000_000, 34_000_000));
        let there = Delays::within(DELTA_NS, false, Bodies::AreThere, DelayPattern::Changing);
        assert_eq!(there.held_ns, there.unheld_ns);
    }

    #[test]
    fn frames_keep_order_and_bound() {
        let delays = delays(DelayPattern::Changing);
        let mut waits = Waits::new(3);
        let (mut last, mut none, mut longest) = (Time::ZERO, 0, 0);
        for step in 0..20_000 {
            let at = Time(step * 1_000_000);
            let enters =
                waits.enters(at, TO_ONE, (Lane::Consensus, true), (Some(&delays), &AT_ONCE)).unwrap();
            assert!(enters >= last && enters <= at.plus(delays.held_ns), "{at} {enters}");
            last = enters;
            none += u32::from(enters == at);
            longest += u32::from(enters == at.plus(delays.held_ns));
        }
        assert!(none > 3_000 && longest > 3_000, "{none} {longest}");
    }

    #[test]
    fn slow_direction_is_slow_in_that_direction_only() {
        let delays = delays(DelayPattern::Direction(ReplicaId(0), ReplicaId(1)));
        let mut waits = Waits::new(4);
        let mut wait = |ends| {
            waits.enters(Time(5), ends, (Lane::Consensus, false), (Some(&delays), &AT_ONCE)).unwrap().0 - 5
        };
        assert_eq!((wait(TO_ONE), wait((ReplicaId(1), ReplicaId(0)))), (delays.unheld_ns, 0));
    }

    #[test]
    fn late_frames_are_late_on_every_lane_and_keep_order() {
        let mut waits = Waits::new(5);
        for lane in Lane::ALL {
            let mut enters = |at, conditions| {
                waits.enters(Time(at), TO_ONE, (lane, false), (None, &conditions)).map(|at| at.0)
            };
            assert_eq!(enters(10, AT_ONCE), None);
            assert_eq!(enters(20, LinkConditions { later_ns: 100, ..AT_ONCE }), Some(120));
            assert_eq!(enters(30, LinkConditions { later_until: Time(110), ..AT_ONCE }), Some(120));
            assert_eq!(enters(40, AT_ONCE), Some(120));
            assert_eq!(enters(130, AT_ONCE), None);
        }
    }
}
