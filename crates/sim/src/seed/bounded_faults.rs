//! The faults of a standard run of a synchronous protocol.

use super::faults::{FaultPlanner, whole};
use crate::delays::Delays;
use crate::fault::{Fault, FaultClass};
use crate::ms;
use crate::network_fault::{Change, NetworkFault};
use crate::places::Places;
use crate::world::{Plan, World};
use quorate_types::{ReplicaId, Time};

/// Largest difference between honest clocks, in millionths, as the exam's parameters assume.
const DRIFT_PPM_MAX: u64 = 1_000;
/// Largest number of Δ until replicas that lose power together have recovered. The exam's parameters assume 20.
const BACK_WITHIN_DELTAS: u64 = 17;
/// Number of Δ before and after a power cut of all. A replica that is down within them may be too late to answer
/// questions.
const AWAY_BEFORE_DELTAS: u64 = 5;
const AWAY_AFTER_DELTAS: u64 = 50;

impl FaultPlanner {
    /// Plans one fault of a synchronous protocol.
    pub(super) fn one_bounded(&mut self, world: &mut World, fault: Fault, from: Time, to: Time) {
        match (fault, fault.class()) {
            (Fault::ClockDrift, _) => {
                let id = self.any_replica();
                let ppm = i64::try_from(self.rng.between(100, DRIFT_PPM_MAX)).unwrap_or(0);
                let sign = if self.rng.chance(500_000) { -1 } else { 1 };
                world.plan(from, Plan::Drift(id, ppm.saturating_mul(sign)));
                world.plan(to, Plan::Drift(id, 0));
            }
            (Fault::PowerCutOfAll, _) => self.cut_all_within_bound(world, from),
            (_, FaultClass::Network) => self.network_bounded(world, fault, from, to),
            (_, FaultClass::Process | FaultClass::Disk) => {
                if fault.class() == FaultClass::Process {
                    self.process(world, fault, from, to);
                } else {
                    self.disk(world, fault, from, to);
                }
                self.note_met(world, fault, from, to);
            }
            _ => self.client(world, fault, from, to),
        }
    }

    /// Marks the affected replica as away for a while, or as exempt.
    fn note_met(&mut self, world: &mut World, fault: Fault, from: Time, to: Time) {
        let Some(bounded) = &mut self.bounded else { return };
        match fault {
            Fault::SlowDisk | Fault::SlowExecutor => {}
            // After a pause, the replica handles its input in several turns, and timers do not wait for all of them.
            Fault::Pause if !bounded.guarded => world.plan(from, Plan::Exempt(bounded.met)),
            // The replica may never be opened again.
            fault if fault.breaks_promises() => bounded.away.push((bounded.met, from, Time(u64::MAX))),
            // This is the last planned start of any of them.
            _ => bounded.away.push((bounded.met, from, to.plus(ms(3_500)))),
        }
    }

    /// Cuts the power of all replicas almost at once. All recover in time for each other.
    fn cut_all_within_bound(&mut self, world: &mut World, from: Time) {
        let Some(bounded) = &mut self.bounded else { return };
        bounded.cuts.push(from);
        let (blink, back) = (Delays::link_ns(bounded.delta_ns), bounded.deltas(BACK_WITHIN_DELTAS));
        for id in world.replicas() {
            let survives = self.survives();
            let at = from.plus(if self.rng.chance(500_000) { 0 } else { self.rng.below(blink) });
            world.plan(at, Plan::Crash(id, survives));
            world.plan(at.plus(self.rng.between(ms(10), back)), Plan::Start(id));
        }
    }

    /// Exempts replicas with a fault of their own around a power cut of all. They may recover too late, and count
    /// among the f.
    pub(super) fn plan_exempt(&mut self, world: &mut World) {
        let Some(bounded) = &self.bounded else { return };
        let (before, after) = (bounded.deltas(AWAY_BEFORE_DELTAS), bounded.deltas(AWAY_AFTER_DELTAS));
        for cut in &bounded.cuts {
            let is_near = |from: Time, to: Time| from <= cut.plus(after) && *cut <= to.plus(before);
            for (id, ..) in bounded.away.iter().filter(|(_, from, to)| is_near(*from, *to)) {
                world.plan(*cut, Plan::Exempt(*id));
            }
        }
    }

    /// Plans a network fault at a replica that faults may affect.
    fn network_bounded(&mut self, world: &mut World, fault: Fault, from: Time, to: Time) {
        let number = self.next;
        self.next = number.saturating_add(1);
        let id = self.replica();
        let guarded = self.bounded.as_ref().is_some_and(|bounded| bounded.guarded);
        // With the guard on, a replica that is late to all others notices it. So the protocol keeps its promises to
        // the replica.
        let notices = guarded && matches!(fault, Fault::Isolation | Fault::OneWay | Fault::Delay);
        match &mut self.bounded {
            Some(bounded) if notices => bounded.away.push((id, from, to)),
            _ => world.plan(from, Plan::Exempt(id)),
        }
        match fault {
            Fault::Churn => {
                for at in self.moments(from, to, ms(150)) {
                    let other = self.other(id);
                    world.plan(at, Plan::Disconnect(id, other));
                }
            }
            Fault::HalfOpen => {
                let other = self.other(id);
                let (deaf, other) = if self.rng.chance(500_000) { (id, other) } else { (other, id) };
                world.plan(from, Plan::HalfOpen(deaf, other, to));
            }
            _ => {
                let network_fault =
                    if notices { self.late(fault, id, to) } else { self.network_fault_at(fault, id, to) };
                world.plan(from, Plan::Begin(number, network_fault));
                world.plan(to, Plan::End(number));
            }
        }
    }

    /// Returns another replica.
    fn other(&mut self, id: ReplicaId) -> ReplicaId {
        let step = self.rng.index(self.n.saturating_sub(1)).saturating_add(1);
        let place = id.index().saturating_add(step).checked_rem(self.n).unwrap_or(0);
        ReplicaId(u16::try_from(place).unwrap_or(0))
    }

    /// Returns a fault that makes all messages from one replica late, or those in both directions.
    fn late(&mut self, fault: Fault, id: ReplicaId, until: Time) -> NetworkFault {
        let delta_ns = self.bounded.as_ref().map_or(0, |bounded| bounded.delta_ns);
        let change = match fault {
            Fault::Delay => {
                let by_ns = self.rng.between(delta_ns.saturating_add(1), delta_ns.saturating_mul(5));
                Change::Late { by_ns, until: Time::ZERO }
            }
            _ => Change::Late { by_ns: 0, until },
        };
        let (one, both_ways) = (Places::one(id.index()), fault != Fault::OneWay);
        NetworkFault { from: one, to: one.others(), both_ways, change, fault: Some(fault) }
    }

    /// Returns a network fault at one replica.
    fn network_fault_at(&mut self, fault: Fault, id: ReplicaId, until: Time) -> NetworkFault {
        let one = Places::one(id.index());
        let replicas = Places(Places::of(0..self.n).0 & one.others().0);
        let (from, to, both_ways) = match fault {
            Fault::OneWay if self.rng.chance(500_000) => (replicas, one, false),
            Fault::OneWay => (one, replicas, false),
            Fault::SlowLink => (one, Places::one(self.other(id).index()), true),
            _ => (one, one.others(), true),
        };
        NetworkFault { from, to, both_ways, change: self.change(fault, until), fault: whole(fault) }
    }
}
