//! Replicas in the world: starting, turns, losing power.

use super::telling::Eyes;
use super::{Event, World};
use crate::byzantine::Voice;
use crate::fault::Fault as Named;
use crate::oracles::Oracle;
use crate::queue::Class;
use crate::seat::{Arrival, Damage};
use crate::trace::{Tale, Who};
use quorate_client::core::LinkState;
use quorate_host::HostFault;
use quorate_replica::FrameSource;
use quorate_storage::Keep;
use quorate_types::{Height, ReplicaId, Time};

/// What a crash leaves of what was written and not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survives {
    /// Nothing.
    Nothing,
    /// Any part, in sectors.
    Some,
    /// All of it.
    Everything,
    /// All of it, and it still is not synced: only the process died.
    Cached,
}

/// So many turns in a row without anything arriving, each at most this long after the one before, are a loop
/// that will not end.
const SPINS_MAX: u32 = 2_000;
const SPIN_NS: u64 = 1_000_000;

impl World {
    /// Starts a replica on what its disk has, unless it runs.
    ///
    /// # Errors
    /// Why it does not open.
    pub fn start(&mut self, id: ReplicaId) -> Result<(), String> {
        let now = self.now;
        if self.is_running(id) {
            return Ok(());
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.clear();
        let Some(seat) = self.seats.get_mut(id.index()) else { return Ok(()) };
        seat.shared.watch(crate::disk::Watch::begin);
        let opened = seat.open(now, &self.settings, &self.cluster, &mut leaving);
        let result = match opened {
            Ok(()) => {
                self.start_second(id);
                if !self.is_datagrams()
                    && let Some(seat) = self.seats.get_mut(id.index())
                {
                    seat.string_lines(&self.cluster);
                }
                self.opened(id);
                self.finish(id, now, None, &mut leaving);
                Ok(())
            }
            Err(fault) => self.fell(id, &fault),
        };
        self.leaving = leaving;
        result
    }

    fn opened(&mut self, id: ReplicaId) {
        let (incarnation, executed) =
            self.status(id).map(|status| (status.incarnation, status.executed)).unwrap_or_default();
        self.trace.note(self.now, Who::Replica(id), "starts", &[&incarnation.0.to_le_bytes()], || {
            Tale::text(format!("for the {incarnation}. time")).at(None, Some(executed))
        });
        self.tell_view(id);
        let verdict = self.order.opened(id, self.executed(id));
        if self.is_honest(id) {
            self.judge(self.now, verdict);
        }
        if let Some(seat) = self.seat_mut(id) {
            seat.inbox.clear();
        }
        self.reconnect(id, true);
        for client in self.begun() {
            let after = self.net_rng.between(1, 50_000_000);
            self.connect_client(client, id, after);
        }
    }

    /// Cuts the power of a replica's machine; a turn that is under way is finished first. For cuts inside of
    /// turns there is [`World::crash_at_step`].
    pub fn crash(&mut self, id: ReplicaId, survives: Survives) {
        let now = self.now;
        let Some(seat) = self.seat_mut(id).filter(|seat| seat.running.is_some()) else { return };
        if seat.busy_until > now {
            seat.is_doomed = true;
            let at = seat.busy_until;
            return self.plan(at, super::Plan::Crash(id, survives));
        }
        self.feel(if survives == Survives::Cached { Named::Kill } else { Named::PowerCut });
        self.lose_power(id, survives);
    }

    /// Cuts the power of a replica's machine during the so-manyth step from now: a change of its disk, or a flush
    /// of its network.
    pub fn crash_at_step(&mut self, id: ReplicaId, steps: u64, survives: Survives) {
        if let Some(fuse) = self.fuses.get_mut(id.index()) {
            *fuse = Some(survives);
        }
        if let Some(seat) = self.seat(id) {
            seat.shared.watch(|watch| watch.set_fuse(steps));
        }
    }

    /// Takes back what [`World::crash_at_step`] has planned and has not happened yet.
    pub fn disarm(&mut self) {
        self.fuses.fill(None);
        for seat in &self.seats {
            seat.shared.watch(crate::disk::Watch::disarm);
        }
    }

    pub(super) fn lose_power(&mut self, id: ReplicaId, survives: Survives) {
        let now = self.now;
        self.trace.note(now, Who::Replica(id), "crashes", &[], || match survives {
            Survives::Cached => "its process dies".to_owned(),
            _ => format!("{survives:?} of what was not synced is left").to_lowercase(),
        });
        self.trace.tell_view(now, id, None);
        if self.seat(id).is_some_and(|seat| seat.shared.watch(|watch| watch.is_dead)) {
            self.feel(Named::PowerCut);
            self.feel(Named::PowerCutInTurn);
        }
        if let Some(fuse) = self.fuses.get_mut(id.index()) {
            *fuse = None;
        }
        let Self { seats, crash_rng, .. } = self;
        if let Some(seat) = seats.get_mut(id.index()) {
            seat.running = None;
            seat.inbox.clear();
            if let Some(second) = &mut seat.second {
                second.running = None;
                second.inbox.clear();
                second.shared.crash(Keep::Everything);
            }
            seat.wake = None;
            seat.busy_until = now;
            seat.paused_until = now;
            seat.is_doomed = false;
            let was_unsynced = seat.shared.is_unsynced();
            let may_survive = matches!(survives, Survives::Some | Survives::Everything) && was_unsynced;
            match survives {
                Survives::Nothing => seat.shared.crash(Keep::Nothing),
                Survives::Everything => seat.shared.crash(Keep::Everything),
                Survives::Some => seat.shared.crash(Keep::Sectors(crash_rng)),
                Survives::Cached => seat.shared.kill(),
            }
            seat.shared.watch(|watch| match survives {
                Survives::Nothing if was_unsynced => watch.feel(Named::LostWrite),
                Survives::Some if was_unsynced => {
                    watch.is_torn = true;
                    watch.feel(Named::TornWrite);
                }
                _ => {}
            });
            if may_survive || seat.survived.is_some() {
                seat.survived = Some(seat.shared.synced_image());
            }
        }
        self.order.falls(id);
        if let Some(views) = &mut self.views {
            views.falls(id);
        }
        self.reconnect(id, false);
        for client in self.begun() {
            let at = now.plus(self.net_rng.between(1, 20_000_000));
            let event = Event::Link { client, replica: id, state: LinkState::Down };
            self.queue.push(at, Class::Arrival, event);
        }
        if let Some(seat) = self.seat_mut(id) {
            seat.speakers = Default::default();
            if let Some(second) = &mut seat.second {
                second.speakers = Default::default();
            }
        }
    }

    pub(super) fn arrive(&mut self, id: ReplicaId, arrival: Arrival) {
        let (now, wake_ns) = (self.now, self.settings.costs.wake_ns);
        if self.is_stale(id, &arrival) {
            return;
        }
        let Some(seat) = self.seat_mut(id) else { return };
        if seat.running.is_none() {
            return self.tell_at_closed_door(id, &arrival);
        }
        seat.inbox.push(arrival);
        seat.spins = 0;
        let at = seat.busy_until.max(now.plus(wake_ns));
        self.wake(id, at);
    }

    /// A replica takes its next turn at this moment or earlier.
    fn wake(&mut self, id: ReplicaId, at: Time) {
        let Self { seats, queue, .. } = self;
        let Some(seat) = seats.get_mut(id.index()) else { return };
        if seat.wake.is_none_or(|(planned, _)| at < planned) {
            seat.wakes = seat.wakes.saturating_add(1);
            seat.wake = Some((at, seat.wakes));
            queue.push(at, Class::Tick, Event::Turn(id, seat.wakes));
        }
    }

    pub(super) fn turn_if_due(&mut self, id: ReplicaId, ticket: u64) {
        let now = self.now;
        let due = self.seat(id).and_then(|seat| seat.wake).is_some_and(|(_, current)| current == ticket);
        if !due {
            return;
        }
        if let Some(until) = self.seat(id).map(|seat| seat.paused_until).filter(|until| *until > now) {
            if let Some(seat) = self.seat_mut(id) {
                seat.wake = None;
            }
            return self.wake(id, until);
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.clear();
        let mut trouble = std::mem::take(&mut self.trouble);
        self.listen(id);
        let Some(seat) = self.seat_mut(id) else { return };
        seat.wake = None;
        seat.shared.watch(crate::disk::Watch::begin);
        seat.read(now, &mut trouble);
        if let Some(running) = &mut seat.running {
            running.tick_lines(now, &mut trouble);
        }
        let before = seat.running.as_ref().map(|running| running.executed);
        self.tell_heard(id);
        let due = self.timers_due(id);
        let Some(seat) = self.seat_mut(id) else { return };
        let result = seat.turn(now, &mut leaving);
        self.tell_timers(id, due);
        self.trouble = trouble;
        self.turn_second(id);
        match result {
            Ok(()) => self.finish(id, now, before, &mut leaving),
            Err(fault) => {
                // What had left before has left.
                self.let_go(id, now, &mut leaving);
                self.judge_executed(id, before);
                self.judge_replay(id);
                let stopped = self.fell(id, &fault);
                let is_sound = self.seat(id).is_some_and(|seat| seat.damage == Damage::None);
                if let Err(why) = stopped
                    && self.is_honest(id)
                    && is_sound
                {
                    self.judge(now, Err((Oracle::Stopped, format!("replica {id} stops: {why}"))));
                }
            }
        }
        self.hear_trouble(id);
        self.leaving = leaving;
    }

    /// A host gave up: because the power went, or for a reason of its own.
    fn fell(&mut self, id: ReplicaId, fault: &HostFault) -> Result<(), String> {
        let is_dead = self.seat(id).is_some_and(|seat| seat.shared.watch(|watch| watch.is_dead));
        let survives = self.fuses.get(id.index()).copied().flatten().unwrap_or(Survives::Nothing);
        self.lose_power(id, survives);
        if is_dead { Ok(()) } else { Err(fault.to_string()) }
    }

    /// A turn is over: everything that it led to happens, and the next one is planned.
    fn finish(
        &mut self,
        id: ReplicaId,
        began: Time,
        before: Option<Height>,
        leaving: &mut crate::exit::Leaving,
    ) {
        self.let_go(id, began, leaving);
        self.tell_view(id);
        let Some(seat) = self.seats.get_mut(id.index()) else { return };
        let (spent, is_dead) = seat.shared.watch(|watch| (watch.spent_ns, watch.is_dead));
        let end = began.plus(spent);
        seat.busy_until = end;
        if let Some(running) = &mut seat.running {
            running.hear_losses();
        }
        self.judge_executed(id, before);
        self.judge_replay(id);
        if is_dead {
            // The power went at the last flush: the host has not noticed, because no change of its disk followed.
            let survives = self.fuses.get(id.index()).copied().flatten().unwrap_or(Survives::Nothing);
            return self.lose_power(id, survives);
        }
        self.write_lines(id, end);
        self.plan_turn(id, began, end);
    }

    /// Whether a second replica that is handed the same has done the same.
    fn judge_replay(&mut self, id: ReplicaId) {
        let running = self.seat(id).and_then(|seat| seat.running.as_ref());
        let strayed = running.and_then(|running| running.shadow.as_ref()?.strayed());
        if let Some(what) = strayed {
            self.judge(self.now, Err((Oracle::Replay, format!("replica {id}: {what}"))));
        }
    }

    /// What a replica waits for is due at another moment than it was.
    pub(super) fn plan_again(&mut self, id: ReplicaId) {
        let now = self.now;
        if let Some(seat) = self.seat_mut(id) {
            seat.wake = None;
            self.plan_turn(id, now, now);
        }
    }

    fn plan_turn(&mut self, id: ReplicaId, began: Time, end: Time) {
        let Some(seat) = self.seat_mut(id) else { return };
        let Some(next) = seat.deadline() else { return };
        // Time goes on, or a deadline that is never met would stop it.
        let next = next.max(began.plus(1)).max(end);
        let is_spin = next.since(began) < SPIN_NS;
        seat.spins = if is_spin { seat.spins.saturating_add(1) } else { 0 };
        let spins = seat.spins;
        self.wake(id, next);
        if spins > SPINS_MAX {
            let what = format!("replica {id} takes turn after turn and nothing arrives");
            self.judge(began, Err((Oracle::Bounds, what)));
        }
    }

    /// What a turn sent leaves, and what it refused and noted is written down.
    fn let_go(&mut self, id: ReplicaId, began: Time, leaving: &mut crate::exit::Leaving) {
        let Some(seat) = self.seat_mut(id) else { return };
        for (index, client) in leaving.proven.drain(..) {
            seat.attach(index, client);
        }
        let synced = seat.shared.watch(|watch| std::mem::take(&mut watch.synced));
        if !synced.is_empty() {
            let bytes = u64::try_from(synced.len()).unwrap_or(u64::MAX);
            self.trace
                .note(began, Who::Replica(id), "syncs", &[&bytes.to_le_bytes()], || format!("{bytes} bytes"));
        }
        let is_new = !leaving.notes.is_empty();
        self.judge_view(id, &leaving.notes);
        for note in leaving.notes.drain(..) {
            let what = note.what;
            self.trace.note(began, Who::Replica(id), "notes", &[what.as_bytes()], || {
                Tale::kind(what).at(Some(note.view), (note.height > Height::ZERO).then_some(note.height))
            });
        }
        for from in leaving.passed.drain(..) {
            if let Some(count) = self.passed.get_mut(from.index()) {
                *count = count.saturating_add(1);
            }
        }
        for (source, kind, reason) in leaving.rejected.drain(..) {
            let count = self.rejected.entry(reason).or_default();
            *count = count.saturating_add(1);
            let from = match source {
                FrameSource::Peer(peer) => Who::Replica(peer),
                FrameSource::Client(conn) => Who::Client(usize::try_from(conn.0).unwrap_or(usize::MAX)),
            };
            let Self { trace, seats, settings, cluster, .. } = self;
            trace.note(began, Who::Replica(id), "refuses", &[reason.as_bytes()], || {
                let heard = seats.get(id.index()).and_then(|seat| seat.heard.as_ref());
                Self::refusal(heard, &Eyes { settings, cluster }, from, kind, reason)
            });
        }
        for (height, block) in &leaving.decided {
            self.trace.tell(began, Who::Replica(id), "decides", || {
                Tale::kind("block").at(None, Some(*height)).about(block.0.short())
            });
        }
        if is_new {
            self.look_for_circles();
        }
        self.judge_blame(id, leaving);
        self.depart(id, Voice::First, began, leaving, &synced);
        let now = self.now;
        let judged: Vec<ReplicaId> =
            if leaving.decided.is_empty() { Vec::new() } else { self.honest().collect() };
        for (height, block) in leaving.decided.drain(..).filter(|_| judged.contains(&id)) {
            let verdict = self.order.decided(id, height, block, &judged);
            self.judge(now, verdict);
        }
        if let Some(seat) = self.seat(id) {
            // The buffer is used again.
            let mut synced = synced;
            synced.clear();
            seat.shared.watch(|watch| watch.synced = synced);
        }
    }

    /// The oracles look at what a replica has executed since it was at `before`; `None`: since it was opened.
    fn judge_executed(&mut self, id: ReplicaId, before: Option<Height>) {
        let (now, is_honest) = (self.now, self.is_honest(id));
        let Self { seats, order, history, trace, .. } = self;
        let Some(seat) = seats.get_mut(id.index()) else { return };
        let Some(running) = &mut seat.running else { return };
        let height = running.host.executor().execution().height();
        let mut journal = seat.journal.look();
        if before == Some(height) && journal.is_empty() {
            return;
        }
        running.executed = height;
        let began_at = before.unwrap_or_else(|| height.min(order.height()));
        let verdict =
            if is_honest { order.executed(history, id, began_at, height, &journal) } else { Ok(()) };
        trace.note(now, Who::Replica(id), "executes", &[&height.0.to_le_bytes()], || {
            let numbers: Vec<String> = journal.iter().map(|(_, op)| format!("#{}", op.0)).collect();
            Tale::text(numbers.join(" ")).at(None, Some(height))
        });
        journal.clear();
        drop(journal);
        self.judge(now, verdict);
    }
}
