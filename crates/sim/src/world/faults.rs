//! Faults of the world, planned or immediate.

use super::plan::Plan;
use super::{Event, World};
use crate::disk::{DiskTrouble, Survives};
use crate::fault::{Fault, FaultSet};
use crate::network_fault::{Change, NetworkFault, conditions_under};
use crate::oracles::Oracle;
use crate::places::Places;
use crate::queue::EventClass;
use crate::replica_slot::{Damage, Running};
use crate::trace::{EventDetails, Who};
use quorate_types::{Incarnation, ReplicaId, Time};
use std::collections::BTreeMap;

/// Interval of checks for a new leader while leaders are cut off.
const LEADER_LOOK_NS: u64 = 250_000_000;

impl World {
    /// Plans an event for a moment.
    pub fn plan(&mut self, at: Time, plan: Plan) {
        self.queue.push(at.max(self.now), EventClass::Answer, Event::Plan(Box::new(plan)));
    }

    pub(super) fn carry_out(&mut self, plan: Plan) {
        self.report_plan(&plan);
        match plan {
            Plan::Crash(id, survives) => self.crash(id, survives),
            Plan::CrashAtStep(id, steps, survives) => self.crash_at_step(id, steps, survives),
            Plan::Start(id) => self.start_again(id),
            Plan::Reopen(id) => self.reopen(id),
            Plan::Wipe(id) => self.wipe(id),
            Plan::Pause(id, until) => self.pause(id, until),
            Plan::Drift(id, ppm) => self.drift(id, ppm),
            Plan::WallClock(id, off_ns) => {
                if let Some(slot) = self.slot_mut(id) {
                    slot.clock.skew_ns = off_ns;
                }
                self.count_fault(Fault::ClockJump);
            }
            Plan::Disk(id, trouble) => self.trouble(id, trouble),
            Plan::Executor(id, is_slow) => self.slow_executor(id, is_slow),
            Plan::Damage(id, fault) => self.damage(id, fault),
            Plan::Disconnect(a, b) => {
                if self.disconnect(a, b) {
                    self.count_fault(Fault::Churn);
                }
            }
            Plan::HalfOpen(deaf, other, until) => self.half_open(deaf, other, until),
            Plan::Begin(number, network_fault) => {
                self.network.faults.push((number, network_fault));
                self.update_conditions();
            }
            Plan::End(number) => {
                self.network.faults.retain(|(known, _)| *known != number);
                self.update_conditions();
            }
            Plan::CutLeader(number, until) => self.cut_leader(number, until),
            Plan::ClientCut(client, replica, after_ns) => self.cut_client(client, replica, after_ns),
            Plan::Corrupt => self.corrupt_leader(),
            Plan::Exempt(id) => self.exempt(id),
            Plan::ByzantineClient(fault) => self.misbehave(fault),
        }
    }

    /// Begins a network fault now. Returns its number for [`World::end_fault`].
    pub fn begin_fault(&mut self, network_fault: NetworkFault) -> u64 {
        let number = self.network.next_fault_number;
        self.network.next_fault_number = number.saturating_add(1);
        self.carry_out(Plan::Begin(number, network_fault));
        number
    }

    /// Ends a network fault.
    pub fn end_fault(&mut self, number: u64) {
        self.carry_out(Plan::End(number));
    }

    /// Ends all network faults, repairs disks, and makes all times exact.
    pub fn heal(&mut self) {
        self.trace.report(self.now, Who::World, "heals", EventDetails::default);
        self.network.faults.clear();
        self.update_conditions();
        for id in self.replicas() {
            self.trouble(id, DiskTrouble::None);
            self.slow_executor(id, false);
            self.drift(id, 0);
            if let Some(slot) = self.slot_mut(id) {
                slot.clock.skew_ns = 0;
                slot.machine.disk.watch(|watch| watch.misdirects = false);
            }
        }
    }

    pub(super) fn update_conditions(&mut self) {
        let places = self.settings.n.saturating_add(self.clients.len());
        conditions_under(&mut self.network.map, places, self.settings.conditions, &self.network.faults);
        let network_faults = &self.network.faults;
        self.trace.note(
            self.now,
            Who::World,
            "faults",
            &[&[u8::try_from(network_faults.len()).unwrap_or(u8::MAX)]],
            || Self::conditions_details(network_faults),
        );
        self.conditions_changed();
    }

    /// Counts an effect of a fault.
    pub(super) fn count_fault(&mut self, fault: Fault) {
        let count = self.counters.faults.entry(fault).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts the faults that a message meets.
    pub(super) fn count_faults(&mut self, faults: FaultSet) {
        if !faults.is_empty() {
            faults.iter().for_each(|fault| self.count_fault(fault));
        }
    }

    /// Returns the number of effects of each fault so far. A planned fault may have none.
    #[must_use]
    pub fn felt(&self) -> BTreeMap<Fault, u64> {
        let mut felt = self.counters.faults.clone();
        for slot in &self.slots {
            slot.machine.disk.watch(|watch| {
                for (fault, more) in &watch.felt {
                    let count = felt.entry(*fault).or_default();
                    *count = count.saturating_add(*more);
                }
            });
        }
        felt
    }

    /// Takes the disk of a replica away for good, with all its promises, and gives it an empty one, as `--rejoin` does. The
    /// replica stays down until it is started.
    pub fn wipe(&mut self, id: ReplicaId) {
        let empty = self.empty_disk();
        if self.is_running(id) {
            self.lose_power(id, Survives::Nothing);
        }
        self.count_fault(Fault::Wiped);
        self.trace.note(self.now, Who::Replica(id), "damage", &[b"wiped"], || "disk: a new one".to_owned());
        if let Some(slot) = self.slot_mut(id) {
            slot.machine.disk.replace(empty);
            slot.machine.survived = None;
            let trouble = slot.machine.disk.watch(|watch| watch.trouble);
            let is_sound = matches!(trouble, DiskTrouble::None | DiskTrouble::Slow);
            slot.machine.damage = if is_sound { Damage::None } else { Damage::DiskTrouble };
            // More than it has ever counted.
            let from = Incarnation(slot.opens.saturating_add(1).saturating_mul(1_000));
            slot.machine.amnesiac_from = Some(from);
        }
    }

    /// Closes a replica and opens it anew, as a node does after a transfer of state, or when its own state is wrong. The machine
    /// goes on meanwhile, and so does the count of steps to a planned power cut.
    fn reopen(&mut self, id: ReplicaId) {
        let slot =
            self.slot(id).filter(|slot| slot.running.as_ref().is_some_and(|running| running.must_reopen));
        let Some(slot) = slot else { return };
        let planned = (slot.machine.fuse, slot.machine.disk.watch(|watch| watch.fuse()));
        self.lose_power(id, Survives::Cached);
        if let Some(slot) = self.slot_mut(id) {
            slot.machine.fuse = planned.0;
            slot.machine.disk.watch(|watch| watch.restore_fuse(planned.1));
        }
        self.start_again(id);
    }

    fn start_again(&mut self, id: ReplicaId) {
        // A turn in progress is finished before its machine dies, so the start waits as well.
        let slot = self.slot(id).filter(|slot| slot.agenda.is_doomed && slot.running.is_some());
        if let Some(at) = slot.map(|slot| slot.agenda.busy_until) {
            return self.plan(at.plus(1), Plan::Start(id));
        }
        let Err(why) = self.start(id) else { return };
        let damage = self.slot(id).map_or(Damage::None, |slot| slot.machine.damage);
        if self.is_honest(id) && damage == Damage::None {
            let what = format!("replica {id} does not open: {why}");
            return self.judge(self.now, Err((Oracle::Stopped, what)));
        }
        self.trace.note(self.now, Who::Replica(id), "stays", &[why.as_bytes()], || format!("down: {why}"));
    }

    fn pause(&mut self, id: ReplicaId, until: Time) {
        if !self.is_running(id) {
            return;
        }
        self.count_fault(Fault::Pause);
        self.trace.note(self.now, Who::Replica(id), "pauses", &[&until.0.to_le_bytes()], || {
            format!("until {} ms", until.0 / 1_000_000)
        });
        if let Some(slot) = self.slot_mut(id) {
            slot.agenda.paused_until = slot.agenda.paused_until.max(until);
        }
    }

    fn drift(&mut self, id: ReplicaId, ppm: i64) {
        let now = self.now;
        let Some(slot) = self.slot_mut(id) else { return };
        if slot.clock.drift_ppm == ppm {
            return;
        }
        slot.clock.drift_ppm = ppm;
        for running in
            [slot.running.as_mut(), slot.second.as_mut().and_then(|second| second.running.as_mut())]
        {
            running.into_iter().for_each(|running: &mut Box<Running>| running.clock.drift(now, ppm));
        }
        if ppm != 0 {
            self.count_fault(Fault::ClockDrift);
        }
        self.trace.note(now, Who::Replica(id), "drifts", &[&ppm.to_le_bytes()], || format!("by {ppm} ppm"));
        // Deadlines in local time are due at other world times now.
        self.plan_again(id);
    }

    fn trouble(&mut self, id: ReplicaId, trouble: DiskTrouble) {
        let now = self.now;
        let Some(slot) = self.slot_mut(id) else { return };
        if slot.machine.disk.watch(|watch| std::mem::replace(&mut watch.trouble, trouble)) == trouble {
            return;
        }
        slot.machine.damage = match trouble {
            DiskTrouble::None | DiskTrouble::Slow if slot.machine.damage == Damage::DiskTrouble => {
                Damage::None
            }
            DiskTrouble::None | DiskTrouble::Slow => slot.machine.damage,
            DiskTrouble::Full | DiskTrouble::Reads | DiskTrouble::Syncs => {
                slot.machine.damage.max(Damage::DiskTrouble)
            }
        };
        self.trace.note(now, Who::Replica(id), "disk", &[&[trouble.tag()]], || format!("{trouble:?}"));
    }

    fn slow_executor(&mut self, id: ReplicaId, is_slow: bool) {
        let now = self.now;
        let Some(slot) = self.slot_mut(id) else { return };
        if slot.machine.disk.watch(|watch| std::mem::replace(&mut watch.is_slow, is_slow)) != is_slow {
            let says = if is_slow { "slow" } else { "normal" };
            self.trace.note(now, Who::Replica(id), "executor", &[&[u8::from(is_slow)]], || says.to_owned());
        }
    }

    fn damage(&mut self, id: ReplicaId, fault: Fault) {
        let Self { slots, rngs, .. } = self;
        let Some(slot) = slots.get_mut(id.index()) else { return };
        let (is_done, damage) = match fault {
            Fault::RotAtTail => (slot.machine.disk.rot_at_tail(&mut rngs.crash), Damage::Forgetful),
            Fault::RotInLog => (slot.machine.disk.rot_in_log(&mut rngs.crash), Damage::Broken),
            Fault::RotInSnapshot => (slot.machine.disk.rot_in_snapshot(&mut rngs.crash), Damage::Broken),
            Fault::MisdirectedWrite => {
                slot.machine.disk.watch(|watch| watch.misdirects = true);
                (true, Damage::Forgetful)
            }
            _ => (false, Damage::None),
        };
        if !is_done {
            return;
        }
        slot.machine.damage = slot.machine.damage.max(damage);
        // A misdirected write counts when it happens.
        if fault != Fault::MisdirectedWrite {
            self.count_fault(fault);
        }
        self.trace.note(self.now, Who::Replica(id), "damage", &[fault.name().as_bytes()], || {
            format!("disk: {fault}")
        });
    }

    fn cut_leader(&mut self, number: u64, until: Time) {
        self.network.faults.retain(|(known, _)| *known != number);
        if self.now < until
            && let Some(leader) = self.leader()
        {
            self.count_fault(Fault::LeaderCut);
            let from = Places::one(leader.index());
            let replicas = Places::of(0..self.settings.n);
            let to = Places(replicas.0 & from.others().0);
            self.network.faults.push((
                number,
                NetworkFault {
                    from,
                    to,
                    both_ways: true,
                    change: Change::Cut,
                    fault: Some(Fault::LeaderCut),
                },
            ));
            let next = self.now.plus(LEADER_LOOK_NS).min(until);
            self.plan(next, Plan::CutLeader(number, until));
        }
        self.update_conditions();
    }

    /// Returns the replica that most honest replicas regard as the leader.
    #[must_use]
    pub fn leader(&self) -> Option<ReplicaId> {
        let mut votes: BTreeMap<ReplicaId, usize> = BTreeMap::new();
        for id in self.honest() {
            if let Some(status) = self.status(id) {
                let count = votes.entry(status.leader).or_default();
                *count = count.saturating_add(1);
            }
        }
        votes.into_iter().max_by_key(|(id, count)| (*count, std::cmp::Reverse(*id))).map(|(id, _)| id)
    }
}
