//! The life of replicas: start, turns, power cuts.

use super::plan::Plan;
use super::reporting::FrameReader;
use super::{Event, World};
use crate::arrival::{Arrival, TwinHalf};
use crate::disk::{DiskWatch, Survives};
use crate::fault::Fault as Named;
use crate::oracles::Oracle;
use crate::queue::EventClass;
use crate::replay_check::ReplayCheck;
use crate::replica_slot::Damage;
use crate::trace::{EventDetails, Who};
use crate::turn_output::TurnOutput;
use quorate_client::core::LinkState;
use quorate_host::HostFault;
use quorate_replica::FrameSource;
use quorate_storage::Keep;
use quorate_types::{Height, ReplicaId, Time};

/// Largest number of consecutive turns without an arrival, each at most this time after the one before. More of them
/// are an endless loop.
const SPINS_MAX: u32 = 2_000;
const SPIN_NS: u64 = 1_000_000;

impl World {
    /// Starts a replica on its disk, unless it runs.
    ///
    /// # Errors
    /// Returns the reason why the replica does not open.
    pub fn start(&mut self, id: ReplicaId) -> Result<(), String> {
        let now = self.now;
        if self.is_running(id) {
            return Ok(());
        }
        let mut output = std::mem::take(&mut self.buffers.output);
        output.clear();
        let Some(slot) = self.slots.get_mut(id.index()) else { return Ok(()) };
        slot.machine.disk.watch(DiskWatch::begin);
        let opened = slot.open(now, &self.settings, &self.cluster, &mut output);
        let result = match opened {
            Ok(()) => {
                self.start_second(id);
                if !self.is_datagrams()
                    && let Some(slot) = self.slots.get_mut(id.index())
                {
                    slot.open_links(&self.cluster);
                }
                self.opened(id);
                self.judge_state(id);
                self.finish(id, now, None, &mut output);
                Ok(())
            }
            Err(fault) => self.stop_failed(id, &fault),
        };
        self.buffers.output = output;
        result
    }

    /// Judges whether a replica has found its state: a sound disk that has lost it is a fault of the storage.
    fn judge_state(&mut self, id: ReplicaId) {
        let Some(slot) = self.slot(id).filter(|slot| slot.machine.damage == Damage::None) else { return };
        let Some(host) = slot.running.as_ref().map(|running| &running.host) else { return };
        if let Some(why) = host.missing_state()
            && host.store().distrusted() == Height::ZERO
            && self.is_honest(id)
        {
            let what = format!("replica {id} has lost its state: {why}");
            self.judge(self.now, Err((Oracle::Stopped, what)));
        }
    }

    fn opened(&mut self, id: ReplicaId) {
        let (incarnation, executed) =
            self.status(id).map(|status| (status.incarnation, status.executed)).unwrap_or_default();
        self.trace.note(self.now, Who::Replica(id), "starts", &[&incarnation.0.to_le_bytes()], || {
            EventDetails::text(format!("incarnation {incarnation}")).at(None, Some(executed))
        });
        self.report_view(id);
        let verdict = self.oracles.order.opened(id, self.executed(id));
        if self.is_honest(id) {
            self.judge(self.now, verdict);
        }
        if let Some(slot) = self.slot_mut(id) {
            slot.inbox.clear();
        }
        self.reconnect(id, true);
        for client in self.begun() {
            let after = self.rngs.network.between(1, 50_000_000);
            self.connect_client(client, id, after);
        }
    }

    /// Cuts the power of a replica's machine after the turn in progress. [`World::crash_at_step`] cuts the power
    /// within a turn.
    pub fn crash(&mut self, id: ReplicaId, survives: Survives) {
        let now = self.now;
        let Some(slot) = self.slot_mut(id).filter(|slot| slot.running.is_some()) else { return };
        if slot.agenda.busy_until > now {
            slot.agenda.is_doomed = true;
            let at = slot.agenda.busy_until;
            return self.plan(at, Plan::Crash(id, survives));
        }
        self.count_fault(if survives == Survives::Cached { Named::Kill } else { Named::PowerCut });
        self.lose_power(id, survives);
    }

    /// Cuts the power of a replica's machine at this step from now: a change of its disk, or a flush of its network.
    pub fn crash_at_step(&mut self, id: ReplicaId, steps: u64, survives: Survives) {
        if let Some(slot) = self.slot_mut(id) {
            slot.machine.fuse = Some(survives);
            slot.machine.disk.watch(|watch| watch.set_fuse(steps));
        }
    }

    /// Cancels the power cuts of [`World::crash_at_step`] that have not happened yet.
    pub fn disarm(&mut self) {
        for slot in &mut self.slots {
            slot.machine.fuse = None;
            slot.machine.disk.watch(DiskWatch::disarm);
        }
    }

    pub(super) fn lose_power(&mut self, id: ReplicaId, survives: Survives) {
        let now = self.now;
        self.trace.note(now, Who::Replica(id), "crashes", &[], || match survives {
            Survives::Cached => "the process dies".to_owned(),
            _ => format!("{survives:?} of the unsynced bytes remain").to_lowercase(),
        });
        self.trace.report_view(now, id, None);
        if self.slot(id).is_some_and(|slot| slot.machine.disk.watch(|watch| watch.is_dead)) {
            self.count_fault(Named::PowerCut);
            self.count_fault(Named::PowerCutInTurn);
        }
        let Self { slots, rngs, .. } = self;
        if let Some(slot) = slots.get_mut(id.index()) {
            slot.machine.fuse = None;
            slot.running = None;
            slot.inbox.clear();
            if let Some(second) = &mut slot.second {
                second.running = None;
                second.inbox.clear();
                second.machine.disk.crash(Keep::Everything);
            }
            slot.agenda.wake = None;
            slot.agenda.busy_until = now;
            slot.agenda.paused_until = now;
            slot.agenda.is_doomed = false;
            let was_unsynced = slot.machine.disk.is_unsynced();
            let may_survive = matches!(survives, Survives::Some | Survives::Everything) && was_unsynced;
            match survives {
                Survives::Nothing => slot.machine.disk.crash(Keep::Nothing),
                Survives::Everything => slot.machine.disk.crash(Keep::Everything),
                Survives::Some => slot.machine.disk.crash(Keep::Sectors(&mut rngs.crash)),
                Survives::Cached => slot.machine.disk.kill(),
            }
            slot.machine.disk.watch(|watch| match survives {
                Survives::Nothing if was_unsynced => watch.count_fault(Named::LostWrite),
                Survives::Some if was_unsynced => {
                    watch.is_torn = true;
                    watch.count_fault(Named::TornWrite);
                }
                _ => {}
            });
            if may_survive || slot.machine.survived.is_some() {
                slot.machine.survived = Some(slot.machine.disk.synced_image());
            }
        }
        self.oracles.order.stopped(id);
        if let Some(views) = &mut self.oracles.pacemaker {
            views.stopped(id);
        }
        self.reconnect(id, false);
        for client in self.begun() {
            let at = now.plus(self.rngs.network.between(1, 20_000_000));
            let event = Event::Link { client, replica: id, state: LinkState::Down };
            self.queue.push(at, EventClass::Arrival, event);
        }
        if let Some(slot) = self.slot_mut(id) {
            slot.client_connections = Default::default();
            if let Some(second) = &mut slot.second {
                second.client_connections = Default::default();
            }
        }
    }

    pub(super) fn arrive(&mut self, id: ReplicaId, arrival: Arrival) {
        let (now, wake_ns) = (self.now, self.settings.costs.wake_ns);
        if self.is_stale(id, &arrival) {
            return;
        }
        let Some(slot) = self.slot_mut(id) else { return };
        if slot.running.is_none() {
            return self.report_arrival_at_stopped(id, &arrival);
        }
        slot.inbox.push(arrival);
        slot.agenda.spins = 0;
        let at = slot.agenda.busy_until.max(now.plus(wake_ns));
        self.wake(id, at);
    }

    /// Schedules a replica's next turn at this moment or earlier.
    fn wake(&mut self, id: ReplicaId, at: Time) {
        let Self { slots, queue, .. } = self;
        let Some(slot) = slots.get_mut(id.index()) else { return };
        if slot.agenda.wake.is_none_or(|(planned, _)| at < planned) {
            slot.agenda.wakes = slot.agenda.wakes.saturating_add(1);
            slot.agenda.wake = Some((at, slot.agenda.wakes));
            queue.push(at, EventClass::Tick, Event::Turn(id, slot.agenda.wakes));
        }
    }

    pub(super) fn turn_if_due(&mut self, id: ReplicaId, ticket: u64) {
        let now = self.now;
        let due =
            self.slot(id).and_then(|slot| slot.agenda.wake).is_some_and(|(_, current)| current == ticket);
        if !due {
            return;
        }
        if let Some(until) = self.slot(id).map(|slot| slot.agenda.paused_until).filter(|until| *until > now) {
            if let Some(slot) = self.slot_mut(id) {
                slot.agenda.wake = None;
            }
            return self.wake(id, until);
        }
        let mut output = std::mem::take(&mut self.buffers.output);
        output.clear();
        let mut connection_events = std::mem::take(&mut self.buffers.connection_events);
        self.begin_read_log(id);
        let Some(slot) = self.slot_mut(id) else { return };
        slot.agenda.wake = None;
        slot.machine.disk.watch(DiskWatch::begin);
        slot.read(now, &mut connection_events);
        if let Some(running) = &mut slot.running {
            running.tick_links(now, &mut connection_events);
        }
        let before = slot.running.as_ref().map(|running| running.executed);
        self.report_read(id);
        let due = self.timers_due(id);
        let Some(slot) = self.slot_mut(id) else { return };
        let result = slot.turn(now, &mut output);
        self.report_timers(id, due);
        self.buffers.connection_events = connection_events;
        self.turn_second(id);
        match result {
            Ok(()) => {
                self.finish(id, now, before, &mut output);
                self.plan_reopening(id);
            }
            Err(fault) => {
                // Messages that left before the failure have left.
                self.flush_turn(id, now, &mut output);
                self.judge_executed(id, before);
                self.judge_replay(id);
                let stopped = self.stop_failed(id, &fault);
                let is_sound = self.slot(id).is_some_and(|slot| slot.machine.damage == Damage::None);
                if let Err(why) = stopped
                    && self.is_honest(id)
                    && is_sound
                {
                    self.judge(now, Err((Oracle::Stopped, format!("replica {id} stops: {why}"))));
                }
            }
        }
        self.handle_connection_events(id);
        self.buffers.output = output;
    }

    /// Plans that a replica is opened anew at the end of its turn, if it has to be. The state of a sound machine may not
    /// differ from the one that a quorum has signed.
    fn plan_reopening(&mut self, id: ReplicaId) {
        let Some(slot) = self.slot(id) else { return };
        let Some(running) = slot.running.as_ref().filter(|running| running.must_reopen) else { return };
        let at = slot.agenda.busy_until.max(self.now);
        let alarm = running.diverged.filter(|_| slot.machine.damage == Damage::None);
        let transfers = u64::from(running.diverged.is_none());
        self.counters.transfers = self.counters.transfers.saturating_add(transfers);
        self.plan(at, Plan::Reopen(id));
        if let Some(alarm) = alarm.filter(|_| self.is_honest(id)) {
            self.judge(self.now, Err((Oracle::Stopped, format!("replica {id} stops: {alarm}"))));
        }
    }

    /// Stops a replica whose host has failed: by a power cut, or for a reason of its own.
    fn stop_failed(&mut self, id: ReplicaId, fault: &HostFault) -> Result<(), String> {
        let is_dead = self.slot(id).is_some_and(|slot| slot.machine.disk.watch(|watch| watch.is_dead));
        let survives = self.slot(id).and_then(|slot| slot.machine.fuse).unwrap_or(Survives::Nothing);
        self.lose_power(id, survives);
        if is_dead {
            return Ok(());
        }
        let why = fault.to_string();
        if let Some(slot) = self.slot_mut(id) {
            slot.why_stopped = Some(why.clone());
        }
        Err(why)
    }

    /// Finishes a turn: its output takes effect, and the next turn is scheduled.
    fn finish(&mut self, id: ReplicaId, began: Time, before: Option<Height>, output: &mut TurnOutput) {
        self.flush_turn(id, began, output);
        self.report_view(id);
        let Some(slot) = self.slots.get_mut(id.index()) else { return };
        let (spent, is_dead) = slot.machine.disk.watch(|watch| (watch.spent_ns, watch.is_dead));
        let end = began.plus(spent);
        slot.agenda.busy_until = end;
        if let Some(running) = &mut slot.running {
            running.take_link_losses();
        }
        self.judge_executed(id, before);
        self.judge_replay(id);
        if is_dead {
            // The power failed at the last flush. The host has not noticed, because no change of its disk followed.
            let survives = self.slot(id).and_then(|slot| slot.machine.fuse).unwrap_or(Survives::Nothing);
            return self.lose_power(id, survives);
        }
        self.write_links(id, end);
        self.plan_turn(id, began, end);
    }

    /// Judges whether the second copy of a replica has done the same.
    fn judge_replay(&mut self, id: ReplicaId) {
        let check = self.running(id).and_then(|running| running.replay_check.as_ref());
        if let Some(what) = check.and_then(ReplayCheck::divergence) {
            self.judge(self.now, Err((Oracle::Replay, format!("replica {id}: {what}"))));
        }
    }

    /// Schedules a replica's next turn anew.
    pub(super) fn plan_again(&mut self, id: ReplicaId) {
        let now = self.now;
        if let Some(slot) = self.slot_mut(id) {
            slot.agenda.wake = None;
            self.plan_turn(id, now, now);
        }
    }

    fn plan_turn(&mut self, id: ReplicaId, began: Time, end: Time) {
        let Some(slot) = self.slot_mut(id) else { return };
        let Some(next) = slot.deadline() else { return };
        // Time has to advance, or a deadline that is never met would stop it.
        let next = next.max(began.plus(1)).max(end);
        let is_spin = next.since(began) < SPIN_NS;
        slot.agenda.spins = if is_spin { slot.agenda.spins.saturating_add(1) } else { 0 };
        let spins = slot.agenda.spins;
        self.wake(id, next);
        if spins > SPINS_MAX {
            let what = format!("replica {id} takes turn after turn without an arrival");
            self.judge(began, Err((Oracle::Bounds, what)));
        }
    }

    /// Sends the messages of a turn, and records refusals and notes.
    fn flush_turn(&mut self, id: ReplicaId, began: Time, output: &mut TurnOutput) {
        let Some(slot) = self.slot_mut(id) else { return };
        for (index, client) in output.proven.drain(..) {
            slot.attach(index, client);
        }
        let synced = slot.machine.disk.watch(|watch| std::mem::take(&mut watch.synced));
        if !synced.is_empty() {
            let bytes = u64::try_from(synced.len()).unwrap_or(u64::MAX);
            self.trace
                .note(began, Who::Replica(id), "syncs", &[&bytes.to_le_bytes()], || format!("{bytes} bytes"));
        }
        let is_new = !output.notes.is_empty();
        self.judge_view(id, &output.notes);
        for note in output.notes.drain(..) {
            let what = note.what;
            self.trace.note(began, Who::Replica(id), "notes", &[what.as_bytes()], || {
                EventDetails::kind(what)
                    .at(Some(note.view), (note.height > Height::ZERO).then_some(note.height))
            });
        }
        for from in output.passed.drain(..) {
            if let Some(count) = self.counters.passed.get_mut(from.index()) {
                *count = count.saturating_add(1);
            }
        }
        for (source, kind, reason) in output.rejected.drain(..) {
            let count = self.counters.rejected.entry(reason).or_default();
            *count = count.saturating_add(1);
            let from = match source {
                FrameSource::Peer(peer) => Who::Replica(peer),
                FrameSource::Client(conn) => Who::Client(usize::try_from(conn.0).unwrap_or(usize::MAX)),
            };
            let Self { trace, slots, settings, cluster, .. } = self;
            trace.note(began, Who::Replica(id), "refuses", &[reason.as_bytes()], || {
                let heard = slots.get(id.index()).and_then(|slot| slot.read_log.as_ref());
                Self::refusal(heard, &FrameReader { settings, cluster }, from, kind, reason)
            });
        }
        for (height, block) in &output.decided {
            self.trace.report(began, Who::Replica(id), "decides", || {
                EventDetails::kind("block").at(None, Some(*height)).about(block.0.short())
            });
        }
        if is_new {
            self.look_for_livelock();
        }
        self.judge_accusations(id, output);
        self.send_output(id, TwinHalf::First, began, output, &synced);
        let now = self.now;
        let judged: Vec<ReplicaId> =
            if output.decided.is_empty() { Vec::new() } else { self.honest().collect() };
        for (height, block) in output.decided.drain(..).filter(|_| judged.contains(&id)) {
            let verdict = self.oracles.order.decided(id, height, block, &judged);
            self.judge(now, verdict);
        }
        if let Some(slot) = self.slot(id) {
            // The buffer is reused.
            let mut synced = synced;
            synced.clear();
            slot.machine.disk.watch(|watch| watch.synced = synced);
        }
    }

    /// Judges everything that a replica has executed since height `before`; `None`: since it was opened.
    fn judge_executed(&mut self, id: ReplicaId, before: Option<Height>) {
        let (now, is_honest) = (self.now, self.is_honest(id));
        let Self { slots, oracles, history, trace, .. } = self;
        let order = &mut oracles.order;
        let Some(slot) = slots.get_mut(id.index()) else { return };
        let Some(running) = &mut slot.running else { return };
        let height = running.host.executor().execution().height();
        let mut journal = slot.service.journal.look();
        if before == Some(height) && journal.is_empty() {
            return;
        }
        running.executed = height;
        let began_at = before.unwrap_or_else(|| height.min(order.height()));
        let verdict =
            if is_honest { order.executed(history, id, began_at, height, &journal) } else { Ok(()) };
        trace.note(now, Who::Replica(id), "executes", &[&height.0.to_le_bytes()], || {
            let numbers: Vec<String> = journal.iter().map(|(_, op)| format!("#{}", op.0)).collect();
            EventDetails::text(numbers.join(" ")).at(None, Some(height))
        });
        journal.clear();
        drop(journal);
        self.judge(now, verdict);
    }
}
