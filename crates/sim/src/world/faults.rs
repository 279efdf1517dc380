//! What goes wrong in the world: planned for later, or at once.

use super::turns::Survives;
use super::{Event, World};
use crate::disk::Trouble;
use crate::fault::{Fault, FaultSet};
use crate::front::{Change, Front, Places, forecast};
use crate::oracles::Oracle;
use crate::queue::Class;
use crate::seat::{Damage, Running};
use crate::trace::{Tale, Who};
use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;

/// How often it is looked at who leads, for as long as leaders are cut off.
const LEADER_LOOK_NS: u64 = 250_000_000;

/// Something that can be planned for later.
#[derive(Clone, Debug)]
pub enum Plan {
    /// The replica's machine loses power, or its process dies.
    Crash(ReplicaId, Survives),
    /// The replica's machine loses power at the so-manyth step from then: a change of the disk, or a flush.
    CrashAtStep(ReplicaId, u64, Survives),
    /// The replica is started, if it is not running.
    Start(ReplicaId),
    /// The replica's process stands still until then.
    Pause(ReplicaId, Time),
    /// The replica's time passes so much faster, in millionths.
    Drift(ReplicaId, i64),
    /// From the replica's next start on its clock on the wall is off by so many nanoseconds.
    WallClock(ReplicaId, i64),
    /// This is wrong with the replica's disk from then on. [`Trouble::None`] sees to it.
    Disk(ReplicaId, Trouble),
    /// The replica's executor takes five hundred times as long from then on, or as long as it should.
    Executor(ReplicaId, bool),
    /// The replica's disk is damaged for good: one of the faults that break promises.
    Damage(ReplicaId, Fault),
    /// The connection of two replicas breaks.
    Disconnect(ReplicaId, ReplicaId),
    /// The connection of two replicas is gone, and the first of them hears of it only at that moment.
    HalfOpen(ReplicaId, ReplicaId, Time),
    /// A front comes, under this number.
    Begin(u64, Front),
    /// The front with this number passes.
    End(u64),
    /// Whoever leads is cut off, under this number, until that moment.
    CutLeader(u64, Time),
    /// The connection of a client to a replica breaks, and comes back after so long.
    ClientCut(usize, ReplicaId, u64),
    /// Whoever leads is corrupted.
    Corrupt,
    /// Nothing is promised to the replica from then on.
    Adrift(ReplicaId),
    /// Somebody does to a client's name what clients must not do.
    Rogue(Fault),
}

impl World {
    /// Plans something for later.
    pub fn plan(&mut self, at: Time, plan: Plan) {
        self.queue.push(at.max(self.now), Class::Answer, Event::Plan(Box::new(plan)));
    }

    pub(super) fn carry_out(&mut self, plan: Plan) {
        self.tell_plan(&plan);
        match plan {
            Plan::Crash(id, survives) => self.crash(id, survives),
            Plan::CrashAtStep(id, steps, survives) => self.crash_at_step(id, steps, survives),
            Plan::Start(id) => self.start_again(id),
            Plan::Pause(id, until) => self.pause(id, until),
            Plan::Drift(id, ppm) => self.drift(id, ppm),
            Plan::WallClock(id, off_ns) => {
                if let Some(seat) = self.seat_mut(id) {
                    seat.skew_ns = off_ns;
                }
                self.feel(Fault::ClockJump);
            }
            Plan::Disk(id, trouble) => self.trouble(id, trouble),
            Plan::Executor(id, labours) => self.labour(id, labours),
            Plan::Damage(id, fault) => self.damage(id, fault),
            Plan::Disconnect(a, b) => {
                if self.disconnect(a, b) {
                    self.feel(Fault::Churn);
                }
            }
            Plan::HalfOpen(deaf, other, until) => self.half_open(deaf, other, until),
            Plan::Begin(number, front) => {
                self.fronts.push((number, front));
                self.change_weather();
            }
            Plan::End(number) => {
                self.fronts.retain(|(known, _)| *known != number);
                self.change_weather();
            }
            Plan::CutLeader(number, until) => self.cut_leader(number, until),
            Plan::ClientCut(client, replica, after_ns) => self.cut_client(client, replica, after_ns),
            Plan::Corrupt => self.corrupt_leader(),
            Plan::Adrift(id) => self.leave_adrift(id),
            Plan::Rogue(fault) => self.misuse(fault),
        }
    }

    /// A front comes now; the number that [`World::pass`] takes.
    pub fn front(&mut self, front: Front) -> u64 {
        let number = self.next_front;
        self.next_front = number.saturating_add(1);
        self.carry_out(Plan::Begin(number, front));
        number
    }

    /// A front passes.
    pub fn pass(&mut self, number: u64) {
        self.carry_out(Plan::End(number));
    }

    /// All fronts pass, disks do what they are there for, and time passes as it should.
    pub fn heal(&mut self) {
        self.trace.tell(self.now, Who::World, "heals", Tale::default);
        self.fronts.clear();
        self.change_weather();
        for id in self.replicas() {
            self.trouble(id, Trouble::None);
            self.labour(id, false);
            self.drift(id, 0);
            if let Some(seat) = self.seat_mut(id) {
                seat.skew_ns = 0;
                seat.shared.watch(|watch| watch.misdirects = false);
            }
        }
    }

    pub(super) fn change_weather(&mut self) {
        let places = self.settings.n.saturating_add(self.clients.len());
        forecast(&mut self.map, places, self.settings.weather, &self.fronts);
        let fronts = &self.fronts;
        self.trace.note(
            self.now,
            Who::World,
            "weather",
            &[&[u8::try_from(fronts.len()).unwrap_or(u8::MAX)]],
            || Self::weather_tale(fronts),
        );
        self.weather_changed();
    }

    /// A fault was felt.
    pub(super) fn feel(&mut self, fault: Fault) {
        let count = self.felt.entry(fault).or_default();
        *count = count.saturating_add(1);
    }

    /// What a message meets was felt.
    pub(super) fn feel_all(&mut self, faults: FaultSet) {
        if !faults.is_empty() {
            faults.iter().for_each(|fault| self.feel(fault));
        }
    }

    /// How often each fault was felt so far: one that was planned need not have been.
    #[must_use]
    pub fn felt(&self) -> BTreeMap<Fault, u64> {
        let mut felt = self.felt.clone();
        for seat in &self.seats {
            seat.shared.watch(|watch| {
                for (fault, more) in &watch.felt {
                    let count = felt.entry(*fault).or_default();
                    *count = count.saturating_add(*more);
                }
            });
        }
        felt
    }

    fn start_again(&mut self, id: ReplicaId) {
        // A turn that is under way is finished before its machine dies: what is to come after that waits too.
        let seat = self.seat(id).filter(|seat| seat.is_doomed && seat.running.is_some());
        if let Some(at) = seat.map(|seat| seat.busy_until) {
            return self.plan(at.plus(1), Plan::Start(id));
        }
        let Err(why) = self.start(id) else { return };
        let damage = self.seat(id).map_or(Damage::None, |seat| seat.damage);
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
        self.feel(Fault::Pause);
        self.trace.note(self.now, Who::Replica(id), "pauses", &[&until.0.to_le_bytes()], || {
            format!("until {} ms", until.0 / 1_000_000)
        });
        if let Some(seat) = self.seat_mut(id) {
            seat.paused_until = seat.paused_until.max(until);
        }
    }

    fn drift(&mut self, id: ReplicaId, ppm: i64) {
        let now = self.now;
        let Some(seat) = self.seat_mut(id) else { return };
        if seat.drift_ppm == ppm {
            return;
        }
        seat.drift_ppm = ppm;
        for running in
            [seat.running.as_mut(), seat.second.as_mut().and_then(|second| second.running.as_mut())]
        {
            running.into_iter().for_each(|running: &mut Box<Running>| running.clock.drift(now, ppm));
        }
        if ppm != 0 {
            self.feel(Fault::ClockDrift);
        }
        self.trace.note(now, Who::Replica(id), "drifts", &[&ppm.to_le_bytes()], || format!("by {ppm} ppm"));
        // What was due at a moment of its own time is due at another now.
        self.plan_again(id);
    }

    fn trouble(&mut self, id: ReplicaId, trouble: Trouble) {
        let now = self.now;
        let Some(seat) = self.seat_mut(id) else { return };
        if seat.shared.watch(|watch| std::mem::replace(&mut watch.trouble, trouble)) == trouble {
            return;
        }
        seat.damage = match trouble {
            Trouble::None | Trouble::Slow if seat.damage == Damage::Trouble => Damage::None,
            Trouble::None | Trouble::Slow => seat.damage,
            Trouble::Full | Trouble::Reads | Trouble::Syncs => seat.damage.max(Damage::Trouble),
        };
        self.trace.note(now, Who::Replica(id), "disk", &[&[trouble.tag()]], || format!("{trouble:?}"));
    }

    fn labour(&mut self, id: ReplicaId, labours: bool) {
        let now = self.now;
        let Some(seat) = self.seat_mut(id) else { return };
        if seat.shared.watch(|watch| std::mem::replace(&mut watch.labours, labours)) != labours {
            let says = if labours { "its executor is slow" } else { "no longer" };
            self.trace.note(now, Who::Replica(id), "labours", &[&[u8::from(labours)]], || says.to_owned());
        }
    }

    fn damage(&mut self, id: ReplicaId, fault: Fault) {
        let Self { seats, crash_rng, .. } = self;
        let Some(seat) = seats.get_mut(id.index()) else { return };
        let (is_done, damage) = match fault {
            Fault::RotAtTail => (seat.shared.rot_at_tail(crash_rng), Damage::Forgetful),
            Fault::RotInLog => (seat.shared.rot_in_log(crash_rng), Damage::Broken),
            Fault::RotInSnapshot => (seat.shared.rot_in_snapshot(crash_rng), Damage::Broken),
            Fault::MisdirectedWrite => {
                seat.shared.watch(|watch| watch.misdirects = true);
                (true, Damage::Forgetful)
            }
            _ => (false, Damage::None),
        };
        if !is_done {
            return;
        }
        seat.damage = seat.damage.max(damage);
        // A write that goes astray is counted when it does.
        if fault != Fault::MisdirectedWrite {
            self.feel(fault);
        }
        self.trace.note(self.now, Who::Replica(id), "damage", &[fault.name().as_bytes()], || {
            format!("of its disk: {fault}")
        });
    }

    fn cut_leader(&mut self, number: u64, until: Time) {
        self.fronts.retain(|(known, _)| *known != number);
        if self.now < until
            && let Some(leader) = self.leader()
        {
            self.feel(Fault::LeaderCut);
            let from = Places::one(leader.index());
            let replicas = Places::of(0..self.settings.n);
            let to = Places(replicas.0 & from.others().0);
            self.fronts.push((
                number,
                Front { from, to, both_ways: true, change: Change::Cut, fault: Some(Fault::LeaderCut) },
            ));
            let next = self.now.plus(LEADER_LOOK_NS).min(until);
            self.plan(next, Plan::CutLeader(number, until));
        }
        self.change_weather();
    }

    /// Whom most honest replicas hold for the leader.
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
