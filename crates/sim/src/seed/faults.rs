//! The faults of a standard run: of the network, of machines and their disks, and of clients. They affect honest and
//! Byzantine replicas alike, and end when the run heals.

use super::synchrony::BoundedFaults;
use crate::disk::{DiskTrouble, Survives};
use crate::fault::{Fault, FaultClass};
use crate::network_fault::{Change, NetworkFault};
use crate::places::Places;
use crate::settings::Transport;
use crate::world::{Plan, World};
use crate::{ms, secs};
use quorate_types::rng::Rng;
use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;

/// Time of the heal.
pub(super) const HEAL_NS: u64 = secs(40);
/// Shortest and longest duration of a fault.
const FAULT_NS: (u64, u64) = (ms(300), secs(7));
/// Classes that every run draws from.
const CLASSES: [FaultClass; 4] =
    [FaultClass::Network, FaultClass::Process, FaultClass::Disk, FaultClass::Client];
/// Mean interval between actions of a Byzantine client.
const BYZANTINE_CLIENT_NS: u64 = ms(400);

/// A planner that draws faults and schedules them.
pub(super) struct FaultPlanner {
    pub(super) n: usize,
    pub(super) clients: usize,
    pub(super) transport: Transport,
    pub(super) rng: Rng,
    pub(super) next: u64,
    /// Beginning of the first fault.
    pub(super) first: Time,
    /// Replicas that may lose durable data: as many as the Byzantine ones leave of the f.
    pub(super) may_forget: Vec<ReplicaId>,
    /// Replicas that faults may affect in a synchronous protocol. `None`: every replica.
    pub(super) bounded: Option<BoundedFaults>,
}

impl FaultPlanner {
    /// Plans all faults of a run. Returns the number of each.
    pub(super) fn plan(&mut self, world: &mut World) -> BTreeMap<Fault, u32> {
        let mut all = self.draw();
        let again = self.rng.between(1, 5);
        for _ in 0..again {
            let more = self.rng.pick(&all).copied();
            all.extend(more);
        }
        let mut counts = BTreeMap::new();
        for fault in all {
            self.one(world, fault);
            let count: &mut u32 = counts.entry(fault).or_default();
            *count = count.saturating_add(1);
        }
        self.plan_exempt(world);
        counts
    }

    /// Draws at least one fault of each class, with a crash among them.
    fn draw(&mut self) -> Vec<Fault> {
        let mut drawn = Vec::new();
        for class in CLASSES {
            // A fault that loses durable data has to affect a replica that may lose it.
            let meets = |fault: &Fault| !fault.breaks_promises() || !self.may_forget.is_empty();
            let suits = |fault: &Fault| suits(*fault, self.transport) && self.meets_somebody(*fault);
            let mut pool: Vec<Fault> = Fault::drawn(class).filter(meets).filter(suits).collect();
            self.rng.shuffle(&mut pool);
            let most = if class == FaultClass::Client { 1 } else { 3 };
            let count = usize::try_from(self.rng.between(1, most)).unwrap_or(1);
            drawn.extend(pool.into_iter().take(count));
        }
        if !drawn.iter().any(|fault| fault.is_crash()) {
            let crashes = Fault::drawn(FaultClass::Process).filter(|fault| fault.is_crash());
            let crashes: Vec<Fault> = crashes.filter(|fault| self.meets_somebody(*fault)).collect();
            drawn.extend(self.rng.pick(&crashes));
        }
        drawn
    }

    /// Plans one fault.
    fn one(&mut self, world: &mut World, fault: Fault) {
        let span = self.rng.between(FAULT_NS.0, FAULT_NS.1);
        let latest = HEAL_NS.saturating_sub(span);
        // Half of the faults last until the heal: otherwise nothing would be left to recover from.
        let from = Time(if self.rng.chance(500_000) { latest } else { self.rng.between(secs(1), latest) });
        let to = from.plus(span);
        self.first = self.first.min(from);
        match fault.class() {
            _ if self.bounded.is_some() => self.one_bounded(world, fault, from, to),
            FaultClass::Network => self.network(world, fault, from, to),
            FaultClass::Process => self.process(world, fault, from, to),
            FaultClass::Disk => self.disk(world, fault, from, to),
            _ => self.client(world, fault, from, to),
        }
    }

    /// Whether the fault may affect any replica.
    fn meets_somebody(&self, fault: Fault) -> bool {
        self.bounded.as_ref().is_none_or(|bounded| bounded.suits(fault))
    }

    /// Returns the replica that a fault affects.
    pub(super) fn replica(&mut self) -> ReplicaId {
        let Self { bounded, rng, .. } = self;
        let member = bounded.as_mut().and_then(|bounded| bounded.pick(rng));
        member.unwrap_or_else(|| self.any_replica())
    }

    pub(super) fn any_replica(&mut self) -> ReplicaId {
        ReplicaId(u16::try_from(self.rng.index(self.n)).unwrap_or(0))
    }

    /// Returns two different replicas.
    fn pair(&mut self) -> (ReplicaId, ReplicaId) {
        let first = self.rng.index(self.n);
        let step = self.rng.index(self.n.saturating_sub(1)).saturating_add(1);
        let second = first.saturating_add(step) % self.n.max(1);
        let id = |place| ReplicaId(u16::try_from(place).unwrap_or(0));
        (id(first), id(second))
    }

    pub(super) fn survives(&mut self) -> Survives {
        match self.rng.below(3) {
            0 => Survives::Nothing,
            1 => Survives::Some,
            _ => Survives::Everything,
        }
    }

    /// Returns moments in a span with this mean distance: at least one.
    pub(super) fn moments(&mut self, from: Time, to: Time, pause_ns: u64) -> Vec<Time> {
        let mut moments = vec![from];
        let mut at = from;
        loop {
            at = at.plus(self.rng.exponential_ns(pause_ns).max(ms(1)));
            if at >= to {
                return moments;
            }
            moments.push(at);
        }
    }

    fn network(&mut self, world: &mut World, fault: Fault, from: Time, to: Time) {
        let number = self.next;
        self.next = number.saturating_add(1);
        match fault {
            Fault::LeaderCut => world.plan(from, Plan::CutLeader(number, to)),
            Fault::Churn => {
                let one = self.rng.chance(500_000).then(|| self.replica());
                for at in self.moments(from, to, ms(150)) {
                    let (a, b) = self.pair();
                    let a = one.filter(|one| *one != b).unwrap_or(a);
                    world.plan(at, Plan::Disconnect(a, b));
                }
            }
            Fault::HalfOpen => {
                let (deaf, other) = self.pair();
                world.plan(from, Plan::HalfOpen(deaf, other, to));
            }
            conditions => {
                let network_fault = self.network_fault(conditions, to);
                world.plan(from, Plan::Begin(number, network_fault));
                world.plan(to, Plan::End(number));
            }
        }
    }

    pub(super) fn process(&mut self, world: &mut World, fault: Fault, from: Time, to: Time) {
        let id = self.replica();
        match fault {
            Fault::Pause => world.plan(from, Plan::Pause(id, to)),
            Fault::RestartLoop => {
                for at in self.moments(from, to, ms(400)) {
                    world.plan(at, Plan::Crash(id, Survives::Cached));
                    world.plan(at.plus(self.rng.between(ms(1), ms(100))), Plan::Start(id));
                }
            }
            Fault::ClockJump => {
                let seconds = i64::try_from(self.rng.between(0, secs(20))).unwrap_or(0);
                let ten = i64::try_from(secs(10)).unwrap_or(0);
                world.plan(from, Plan::Crash(id, Survives::Cached));
                world.plan(from, Plan::WallClock(id, seconds.saturating_sub(ten)));
                world.plan(from.plus(ms(50)), Plan::Start(id));
            }
            Fault::ClockDrift => {
                let ppm = i64::try_from(self.rng.between(1_000, 50_000)).unwrap_or(0);
                let sign = if self.rng.chance(500_000) { -1 } else { 1 };
                world.plan(from, Plan::Drift(id, ppm.saturating_mul(sign)));
                world.plan(to, Plan::Drift(id, 0));
            }
            Fault::SlowExecutor => {
                world.plan(from, Plan::Executor(id, true));
                world.plan(to, Plan::Executor(id, false));
            }
            Fault::PowerCutInTurn => self.power_cut_in_turn(world, from, to),
            Fault::PowerCutOfAll => self.power_cut_of_all(world, from),
            Fault::Kill => {
                world.plan(from, Plan::Crash(id, Survives::Cached));
                world.plan(from.plus(self.rng.between(ms(1), secs(2))), Plan::Start(id));
                // Unsynced writes in the cache are not safe yet, so some machines lose power as well.
                if self.rng.chance(500_000) {
                    world.plan(
                        from.plus(self.rng.between(ms(1), secs(3))),
                        Plan::Crash(id, Survives::Nothing),
                    );
                    world.plan(to.max(from.plus(secs(3))), Plan::Start(id));
                }
            }
            _ => {
                let survives = self.survives();
                world.plan(from, Plan::Crash(id, survives));
                world.plan(to, Plan::Start(id));
            }
        }
    }

    fn power_cut_in_turn(&mut self, world: &mut World, from: Time, to: Time) {
        let (id, survives, steps) = (self.replica(), self.survives(), self.rng.between(1, 60));
        world.plan(from, Plan::CrashAtStep(id, steps, survives));
        // The first start may come before the power has failed, or the power may fail during it.
        for start in [to, to.plus(secs(1)), to.plus(secs(3))] {
            world.plan(start, Plan::Start(id));
        }
    }

    fn power_cut_of_all(&mut self, world: &mut World, from: Time) {
        for id in world.replicas() {
            let survives = self.survives();
            // All replicas crash at one moment, or almost at one.
            let at = from.plus(if self.rng.chance(500_000) { 0 } else { self.rng.below(ms(5)) });
            world.plan(at, Plan::Crash(id, survives));
            world.plan(at.plus(self.rng.between(ms(100), secs(3))), Plan::Start(id));
        }
    }

    pub(super) fn disk(&mut self, world: &mut World, fault: Fault, from: Time, to: Time) {
        let trouble = match fault {
            Fault::SlowDisk => DiskTrouble::Slow,
            Fault::FullDisk => DiskTrouble::Full,
            Fault::ReadError => DiskTrouble::Reads,
            Fault::SyncError => DiskTrouble::Syncs,
            Fault::TornWrite | Fault::LostWrite => {
                let survives = if fault == Fault::TornWrite { Survives::Some } else { Survives::Nothing };
                // The power fails between a write and its sync, because no write is unsynced between two turns.
                let (id, steps) = (self.replica(), self.rng.between(1, 12));
                world.plan(from, Plan::CrashAtStep(id, steps, survives));
                for start in [to, to.plus(secs(1))] {
                    world.plan(start, Plan::Start(id));
                }
                return;
            }
            _ => return self.damage(world, fault, from, to),
        };
        let id = self.replica();
        world.plan(from, Plan::Disk(id, trouble));
        if trouble == DiskTrouble::Reads {
            // Opening a replica reads its disk.
            world.plan(from.plus(ms(1)), Plan::Crash(id, Survives::Cached));
            world.plan(from.plus(ms(100)), Plan::Start(id));
        }
        world.plan(to, Plan::Disk(id, DiskTrouble::None));
        world.plan(to.plus(ms(10)), Plan::Start(id));
    }

    /// Damages a replica that may lose durable data. The damage shows at its next start.
    fn damage(&mut self, world: &mut World, fault: Fault, from: Time, to: Time) {
        let Some(id) = self.rng.pick(&self.may_forget).copied() else { return };
        if let Some(bounded) = &mut self.bounded {
            bounded.meets(id);
        }
        if fault == Fault::MisdirectedWrite {
            world.plan(from, Plan::Damage(id, fault));
            world.plan(from.plus(self.rng.between(ms(1), secs(1))), Plan::Crash(id, Survives::Nothing));
        } else {
            world.plan(from, Plan::Crash(id, Survives::Nothing));
            world.plan(from.plus(1), Plan::Damage(id, fault));
        }
        world.plan(to, Plan::Start(id));
    }

    pub(super) fn client(&mut self, world: &mut World, fault: Fault, from: Time, to: Time) {
        if fault == Fault::RetryStorm {
            return self.network(world, fault, from, to);
        }
        if fault != Fault::Disconnect {
            for at in self.moments(from, to, BYZANTINE_CLIENT_NS) {
                world.plan(at, Plan::ByzantineClient(fault));
            }
            return;
        }
        for at in self.moments(from, to, ms(100)) {
            let (client, id) = (self.rng.index(self.clients), self.any_replica());
            world.plan(at, Plan::ClientCut(client, id, self.rng.between(ms(1), ms(800))));
        }
    }

    /// Returns some replicas: neither none nor all.
    fn some(&mut self) -> Places {
        let mut ids: Vec<usize> = (0..self.n).collect();
        self.rng.shuffle(&mut ids);
        let count = self.rng.between(1, u64::try_from(self.n.saturating_sub(1)).unwrap_or(1));
        Places::of(ids.into_iter().take(usize::try_from(count).unwrap_or(1)))
    }

    fn network_fault(&mut self, fault: Fault, until: Time) -> NetworkFault {
        let replicas = Places::of(0..self.n);
        let one = Places::one(self.rng.index(self.n));
        let some = self.some();
        let (a, b) = self.pair();
        let (from, to, both_ways) = match fault {
            Fault::Partition => (some, Places(replicas.0 & some.others().0), true),
            Fault::Isolation => (one, one.others(), true),
            Fault::OneWay => (one, Places(replicas.0 & one.others().0), false),
            Fault::RetryStorm => (replicas, replicas.others(), false),
            Fault::SlowLink => (Places::one(a.index()), Places::one(b.index()), true),
            _ if self.rng.chance(500_000) => (one, Places::ALL, true),
            _ => (Places::ALL, Places::ALL, false),
        };
        NetworkFault { from, to, both_ways, change: self.change(fault, until), fault: whole(fault) }
    }

    pub(super) fn change(&mut self, fault: Fault, until: Time) -> Change {
        let mut ppm = |from, to| u32::try_from(self.rng.between(from, to)).unwrap_or(0);
        match fault {
            Fault::Delay | Fault::SlowLink => Change::Slow {
                delay_ns: self.rng.between(ms(5), ms(300)),
                jitter_ns: self.rng.between(ms(1), ms(100)),
            },
            Fault::Reordering => Change::Slow { delay_ns: 0, jitter_ns: self.rng.between(ms(10), ms(200)) },
            Fault::Loss => Change::Lossy(ppm(10_000, 350_000)),
            Fault::Duplication => Change::Twice(ppm(50_000, 500_000)),
            Fault::OldPackets => Change::Old(ppm(2_000, 100_000)),
            Fault::CorruptFrame => Change::Corrupt(ppm(2_000, 50_000)),
            Fault::SlowLoris => Change::Trickle,
            Fault::Clog => Change::Clogged(until),
            _ => Change::Cut,
        }
    }
}

/// Whether the transport can have the fault. Only streams break or trickle, and they carry nothing twice.
fn suits(fault: Fault, transport: Transport) -> bool {
    match fault {
        Fault::Churn | Fault::HalfOpen | Fault::SlowLoris => transport == Transport::Links,
        Fault::Duplication => transport == Transport::Datagrams,
        _ => true,
    }
}

/// Returns the fault if it affects every message and not only some.
pub(super) fn whole(fault: Fault) -> Option<Fault> {
    use Fault::{Clog, Delay, Isolation, OneWay, Partition, Reordering, RetryStorm, SlowLink, SlowLoris};
    let meets_all = [Clog, Delay, Isolation, OneWay, Partition, Reordering, RetryStorm, SlowLink, SlowLoris]
        .contains(&fault);
    meets_all.then_some(fault)
}
