//! Byzantine replicas in the world, and controlled replicas.

use super::controlled_input::ControlledInput;
use super::plan::Plan;
use super::reporting::{FrameReader, names};
use super::{Event, World};
use crate::arrival::{Arrival, TwinHalf};
use crate::byzantine::{Behaviour, DiskAction, Forged, LiarContext, LiarTools, Role, seal};
use crate::byzantine_kind::Byzantine;
use crate::disk::{DiskWatch, SharedDisk, Survives};
use crate::fault::Fault;
use crate::frame::{Content, Frame};
use crate::oracles::Oracle;
use crate::queue::EventClass;
use crate::replica_slot::{Damage, ReplicaSlot};
use crate::settings::{Cluster, Settings};
use crate::trace::{Fingerprint, Transit, Who};
use crate::turn_output::TurnOutput;
use bytes::Bytes;
use quorate_consensus::{Message, To};
use quorate_crypto::statement_preimage;
use quorate_storage::{Disk as _, MemDisk};
use quorate_types::rng::Rng;
use quorate_types::wire::{Lane, frame};
use quorate_types::{Domain, Kind, ReplicaId, Signature, Statement, Time};
use std::collections::BTreeMap;

/// Clock offset between the halves of a twin. It makes them propose at different times, and so different blocks.
const SKEW_NS: i64 = 1;
/// Earliest and latest time at which an adaptive host corrupts the leader.
const CORRUPT_NS: (u64, u64) = (2_000_000_000, 30_000_000_000);
/// Assumed remaining time of a timer where no timer is set.
const PATIENCE_NS: u64 = 300_000_000;

/// Returns the lane of frames of a type.
fn lane_of(frame_type: u8) -> Lane {
    match frame_type {
        frame::BUNDLE | frame::PAYLOAD => Lane::Bodies,
        _ => Lane::Consensus,
    }
}

impl World {
    /// Assigns the roles of the settings.
    pub(super) fn assign_roles(&mut self) {
        let roles: Vec<(ReplicaId, Byzantine)> =
            self.settings.byzantine.replicas.iter().map(|(id, kind)| (*id, *kind)).collect();
        let together = self.settings.byzantine.coalition.then(|| self.rngs.roles.fork());
        if together.is_some() {
            self.count_fault(Fault::Coalition);
        }
        for (id, kind) in roles {
            let rng = together.clone().unwrap_or_else(|| self.rngs.roles.fork());
            if kind == Byzantine::Adaptive {
                let at = self.now.plus(self.rngs.roles.between(CORRUPT_NS.0, CORRUPT_NS.1));
                self.plan(at, Plan::Corrupt);
            } else {
                self.roles.byzantine.insert(id, kind);
                self.corrupt(id, kind, rng);
            }
        }
    }

    /// Corrupts an honest replica from now on. A replica that is down begins at its next start.
    /// [`Byzantine::Adaptive`] has no effect, because such a host has to exist from the beginning.
    pub fn corrupt_now(&mut self, id: ReplicaId, kind: Byzantine) {
        if kind != Byzantine::Adaptive && !self.roles.byzantine.contains_key(&id) {
            self.roles.byzantine.insert(id, kind);
            let rng = self.rngs.roles.fork();
            self.corrupt(id, kind, rng);
        }
    }

    /// Makes a replica Byzantine from now on.
    fn corrupt(&mut self, id: ReplicaId, kind: Byzantine, rng: Rng) {
        let attacks = self.settings.entry.attacks;
        let mut slot_rng = self.rngs.roles.fork();
        let second = (kind == Byzantine::Twin).then(|| {
            let shared = SharedDisk::new(self.empty_disk(), self.settings.costs);
            let mut slot = Box::new(ReplicaSlot::new(id, shared, &mut slot_rng));
            slot.role = Role::Byzantine(Box::new(Behaviour::new(kind, slot_rng.fork(), attacks)));
            slot.clock.skew_ns = SKEW_NS;
            slot
        });
        let Some(slot) = self.slot_mut(id) else { return };
        slot.role = Role::Byzantine(Box::new(Behaviour::new(kind, rng, attacks)));
        slot.second = second;
        // A scenario decides itself who reaches whom.
        if self.schedule.is_none() {
            self.queue.push(self.now, EventClass::Answer, Event::Mood(id));
        }
    }

    /// Corrupts the current leader, where leaders can be replaced.
    pub(super) fn corrupt_leader(&mut self) {
        let first = u16::from(!self.settings.entry.spec.replaces_leader);
        let leader = self.leader().filter(|leader| leader.0 >= first && self.is_honest(*leader));
        let others = || self.honest().find(|id| id.0 >= first);
        let Some(victim) = leader.or_else(others) else { return };
        let kind = self.rngs.roles.pick(&Byzantine::LATER).copied().unwrap_or(Byzantine::Mute);
        self.trace.note(self.now, Who::Replica(victim), "corrupted", &[kind.name().as_bytes()], || {
            format!("the leader is {kind} from now on")
        });
        self.count_fault(Fault::Adaptive);
        let rng = self.rngs.roles.fork();
        self.roles.byzantine.insert(victim, Byzantine::Adaptive);
        self.corrupt(victim, kind, rng);
    }

    pub(super) fn empty_disk(&self) -> MemDisk {
        MemDisk::new(self.settings.storage.segment_bytes, self.settings.storage.page_bytes)
    }

    /// Returns the replicas that have been Byzantine so far, with their hosts. An adaptive host counts from the time
    /// when it corrupts a leader.
    #[must_use]
    pub fn byzantine_replicas(&self) -> &BTreeMap<ReplicaId, Byzantine> {
        &self.roles.byzantine
    }

    /// Returns the replicas that have equivocated, with both statements.
    #[must_use]
    pub fn equivocators(&self) -> &BTreeMap<ReplicaId, String> {
        &self.roles.equivocators
    }

    /// Records an equivocation in a frame that a Byzantine replica really sends.
    pub(super) fn note_equivocation(&mut self, from: ReplicaId, content: &Content) {
        if self.slot(from).is_some_and(|slot| matches!(slot.role, Role::Byzantine(_)))
            && let Some(what) = self.oracles.promises.equivocation(from, content)
        {
            self.count_fault(Fault::EquivocateVote);
            self.roles.equivocators.entry(from).or_insert(what);
        }
    }

    /// Whether the oracles judge a replica.
    #[must_use]
    pub fn is_honest(&self, id: ReplicaId) -> bool {
        let is_honest = self.slot(id).is_some_and(|slot| matches!(slot.role, Role::Honest));
        // A replica without its durable data cannot keep its promises.
        let remembers = self.slot(id).is_some_and(|slot| slot.machine.damage != Damage::Forgetful);
        (is_honest && remembers && !self.roles.exempt.contains(&id)) || self.roles.trusted.contains(&id)
    }

    /// Returns the replicas that have to run and to keep up: honest ones with undamaged disks.
    pub fn sound(&self) -> impl Iterator<Item = ReplicaId> {
        let is_whole = |id| self.slot(id).is_some_and(|slot| slot.machine.damage <= Damage::DiskTrouble);
        self.honest().filter(move |id| is_whole(*id))
    }

    /// Returns the replicas that the oracles judge.
    pub fn honest(&self) -> impl Iterator<Item = ReplicaId> {
        self.replicas().filter(|id| self.is_honest(*id))
    }

    /// Whether all sound replicas have executed everything that any honest replica has.
    #[must_use]
    pub fn is_level(&self) -> bool {
        let height = self.height();
        self.sound().all(|id| self.executed(id) == height)
    }

    /// Whether a replica's message may leave.
    pub(super) fn allows(&self, from: ReplicaId, half: TwinHalf, kind: Kind, to: usize) -> bool {
        self.slot(from).is_some_and(|slot| slot.role.allows(half, kind, to))
    }

    /// Changes the mood of a Byzantine replica.
    pub(super) fn change_mood(&mut self, id: ReplicaId) {
        let (now, n, has_reader) = (self.now, self.settings.n, self.trace.has_reader());
        let places = n.saturating_add(self.clients.len());
        let context = LiarContext { places, patience_ns: self.patience_ns() };
        let blank = self.empty_disk();
        let Some(slot) = self.slot_mut(id) else { return };
        let (is_running, shared) =
            (slot.running.is_some() && slot.agenda.busy_until <= now, slot.machine.disk.clone());
        let Role::Byzantine(behaviour) = &mut slot.role else { return };
        let (mood_ns, outage_ns) = behaviour.spans();
        let action = if is_running { behaviour.change(context, || blank) } else { DiskAction::Nothing };
        if matches!(action, DiskAction::Remember) {
            behaviour.remember(shared.synced_image());
        }
        let mood = behaviour.shown();
        let text = has_reader.then(|| behaviour.description(&|some| names(n, places, some)));
        self.trace.note(now, Who::Replica(id), "behaves", &[mood.as_bytes()], || text.unwrap_or_default());
        match action {
            DiskAction::Forget(image) => {
                let is_blank = image.segments() == 0;
                self.count_fault(Fault::PowerCut);
                self.count_fault(if is_blank { Fault::Wiped } else { Fault::RolledBack });
                self.lose_power(id, Survives::Nothing);
                shared.replace(*image);
                self.plan(now.plus(outage_ns), Plan::Start(id));
            }
            DiskAction::Garbage => self.write_garbage(id),
            DiskAction::Nothing | DiskAction::Remember => {}
        }
        self.queue.push(now.plus(mood_ns), EventClass::Answer, Event::Mood(id));
    }

    /// Returns the remaining time of a random timer of some honest replica.
    fn patience_ns(&mut self) -> u64 {
        let running: Vec<ReplicaId> = self.honest().filter(|id| self.is_running(*id)).collect();
        let Some(id) = self.rngs.roles.pick(&running).copied() else { return PATIENCE_NS };
        let Some(running) = self.running(id) else { return PATIENCE_NS };
        let local = running.local(self.now);
        let waits = running.host.replica().status().timers.into_iter().map(|(at, _)| at.since(local));
        let waits: Vec<u64> = waits.filter(|wait| *wait > 0).collect();
        self.rngs.roles.pick(&waits).copied().unwrap_or(PATIENCE_NS)
    }

    /// Whether a replica forges messages.
    pub(super) fn forges(&self, from: ReplicaId) -> bool {
        self.slot(from).is_some_and(|slot| match &slot.role {
            Role::Byzantine(behaviour) => behaviour.forges(),
            Role::Honest | Role::Controlled(_) => false,
        })
    }

    /// Sends the forgeries of a Byzantine replica instead of one frame to one replica.
    pub(super) fn send_forged(&mut self, at: Time, frame: &Frame) {
        let from = frame.from;
        let Some(slot) = self.slot_mut(from) else { return };
        let Role::Byzantine(mut behaviour) = std::mem::take(&mut slot.role) else { return };
        let mut sent = Vec::new();
        let tools = LiarTools {
            entry: &self.settings.entry,
            committee: &self.cluster.committee,
            me: from,
            sign: &|statement| self.sign(from, statement),
        };
        behaviour.forge(&tools, frame.to, (frame.frame_type, frame.content.kind, &frame.body), &mut sent);
        if let Some(slot) = self.slot_mut(from) {
            slot.role = Role::Byzantine(behaviour);
        }
        for Forged { after_ns, frame_type, body, fault } in sent {
            let content = self.kind_of(frame_type, &body);
            if let Some(fault) = fault {
                self.count_fault(fault);
                self.trace.note(at, Who::Replica(from), "lies", &[&body], || {
                    format!("{fault}: {content} to r{}", frame.to)
                });
            }
            // A message without a valid signature proves nothing.
            if fault != Some(Fault::InvalidSignature) {
                self.note_equivocation(from, &content);
            }
            let lane = if frame_type == frame.frame_type { frame.lane } else { lane_of(frame_type) };
            let frame = Frame { frame_type, body, content, lane, ..frame.clone() };
            if after_ns > 0 {
                self.queue.push(at.plus(after_ns), EventClass::Arrival, Event::Leaves(Box::new(frame)));
            } else {
                self.send_one(at, frame);
            }
        }
    }

    /// Shows a frame to the attack that its receiver runs.
    pub(super) fn show_to_attack(&mut self, frame: &Frame) {
        let Self { slots, settings, .. } = self;
        let role = slots.get_mut(frame.to.index()).map(|slot| &mut slot.role);
        if let Some(Role::Byzantine(behaviour)) = role {
            behaviour.hear(&settings.entry, frame.frame_type, &frame.body);
        }
    }

    /// Counts the faults of a Byzantine replica that uses both halves, or withholds a message.
    pub(super) fn count_byzantine_faults(
        &mut self,
        (from, half): (ReplicaId, TwinHalf),
        (to, sent_to): (To, usize),
    ) {
        let Some(slot) = self.slot(from) else { return };
        let Role::Byzantine(behaviour) = &slot.role else { return };
        let (is_silent, is_twin) = (behaviour.is_silent(), slot.second.is_some());
        if is_twin && half == TwinHalf::Second && sent_to > 0 {
            self.count_fault(Fault::DoubleIdentity);
        }
        if !is_twin && sent_to < self.receivers(from, to).count() {
            self.count_fault(if is_silent { Fault::Silence } else { Fault::SelectiveSilence });
        }
    }

    /// Returns a reply as a Byzantine replica forges it.
    pub(super) fn forged_reply(&mut self, from: ReplicaId, body: Bytes) -> Bytes {
        let Some(slot) = self.slot_mut(from) else { return body };
        let Role::Byzantine(behaviour) = &mut slot.role else { return body };
        let (forged, is_lie) = behaviour.forge_reply_body(body);
        if is_lie {
            self.count_fault(Fault::LieToClients);
        }
        forged
    }

    /// Writes bytes that are no frame to the replica's connections: a header that announces too large a frame.
    fn write_garbage(&mut self, from: ReplicaId) {
        let now = self.now;
        for peer in self.replicas().filter(|peer| *peer != from) {
            let peer_link = self.slot_mut(from).and_then(|slot| slot.running.as_mut()?.peer_link(peer)?.conn);
            if let Some(conn) = peer_link {
                self.count_fault(Fault::OversizeFrame);
                self.put_on_connection(from, peer, conn, now, Bytes::from_static(&[0xff; 14]));
            }
        }
    }

    /// Starts the second half of a twin.
    pub(super) fn start_second(&mut self, id: ReplicaId) {
        self.run_second(id, |second, (now, settings, cluster), output| {
            // A second half that does not open sends nothing.
            let _ = second.open(now, settings, cluster, output);
        });
    }

    /// Runs the turn of a twin's second half. It comes before the first half's turn, because it has to arrive first
    /// sometimes.
    pub(super) fn turn_second(&mut self, id: ReplicaId) {
        self.run_second(id, |second, (now, ..), output| {
            if second.turn(now, output).is_err() {
                second.running = None;
            }
        });
    }

    /// Runs a part of a twin's second half, if there is one, and sends its output.
    fn run_second(
        &mut self,
        id: ReplicaId,
        part: impl FnOnce(&mut ReplicaSlot, (Time, &Settings, &Cluster), &mut TurnOutput),
    ) {
        let mut output = std::mem::take(&mut self.buffers.output_of_second);
        output.clear();
        let Self { slots, settings, cluster, now, .. } = self;
        if let Some(second) = slots.get_mut(id.index()).and_then(|slot| slot.second.as_mut()) {
            second.machine.disk.watch(DiskWatch::begin);
            part(second, (*now, settings, cluster), &mut output);
            self.flush_second(id, &mut output);
        }
        self.buffers.output_of_second = output;
    }

    fn flush_second(&mut self, id: ReplicaId, output: &mut TurnOutput) {
        let now = self.now;
        if let Some(slot) = self.slot_mut(id) {
            if let Some(second) = &mut slot.second {
                second.service.journal.look().clear();
                second.machine.disk.watch(|watch| watch.synced.clear());
            }
            for (index, client) in output.proven.drain(..) {
                slot.attach(index, client);
            }
        }
        self.send_output(id, TwinHalf::Second, now, output, &[]);
    }

    /// Judges accusations: no honest replica may treat another one as Byzantine.
    pub(super) fn judge_accusations(&mut self, by: ReplicaId, output: &mut TurnOutput) {
        for (peer, reason) in output.blamed.drain(..) {
            let innocent = self.is_honest(peer) && !self.roles.altered.contains(&peer);
            if innocent && self.is_honest(by) {
                let what = format!("replica {by} refuses a message of replica {peer}: {reason}");
                self.judge(self.now, Err((Oracle::Accusation, what)));
            }
        }
    }

    /// Takes control of a replica. From now on it sends only what [`World::send_as`] sends, and its input is
    /// collected for [`World::received`]. The caller has its key.
    pub fn take_control(&mut self, id: ReplicaId) {
        if let Some(slot) = self.slot_mut(id) {
            slot.role = Role::Controlled(Vec::new());
            slot.second = None;
        }
    }

    /// Returns the input of a controlled replica since the last call.
    pub fn received(&mut self, id: ReplicaId) -> Vec<ControlledInput> {
        let arrivals = match self.slot_mut(id).map(|slot| &mut slot.role) {
            Some(Role::Controlled(heard)) => std::mem::take(heard),
            _ => Vec::new(),
        };
        let heard = arrivals.into_iter().filter_map(|arrival| match arrival {
            Arrival::Frame { from, frame_type, body } => {
                let content = self.kind_of(frame_type, &body);
                Some(ControlledInput::Frame { from, frame_type, body, content })
            }
            Arrival::Link(peer, event) => Some(ControlledInput::Link(peer, event)),
            Arrival::Client { index, message } => Some(ControlledInput::Client(index, message)),
            _ => None,
        });
        heard.collect()
    }

    /// Returns the number of a replica's messages that passed the intake of others.
    #[must_use]
    pub fn passed(&self, from: ReplicaId) -> u64 {
        self.counters.passed.get(from.index()).copied().unwrap_or_default()
    }

    /// Sends a message of a controlled replica now, signed where the message is.
    pub fn send_as(&mut self, controlled: ReplicaId, to: To, message: &dyn Message) {
        let body = self.seal(controlled, message);
        self.send_frame_as(controlled, to, frame::PROTOCOL, body);
    }

    /// Sends a frame of a controlled replica now, of any type and body.
    pub fn send_frame_as(&mut self, controlled: ReplicaId, to: To, frame_type: u8, body: Bytes) {
        let is_controlled =
            self.slot(controlled).is_some_and(|slot| matches!(slot.role, Role::Controlled(_)));
        assert!(is_controlled, "only a controlled replica sends frames of a test");
        let content = self.kind_of(frame_type, &body);
        let now = self.now;
        let lane = lane_of(frame_type);
        let all: Vec<ReplicaId> = self.receivers(controlled, to).collect();
        let Self { trace, settings, cluster, .. } = self;
        trace.note(now, Who::Replica(controlled), "says", &[&body], || {
            let details = FrameReader { settings, cluster }.frame(frame_type, &body);
            details.to(all.iter().copied().map(Who::Replica)).transit(Transit::Leaves(Fingerprint::of(&body)))
        });
        for to in all.iter().copied() {
            let frame = Frame { from: controlled, to, lane, frame_type, body: body.clone(), content };
            self.transmit(now, &frame);
        }
    }

    /// Encodes a protocol's message as a frame carries it: with its signature, where the message is signed.
    #[must_use]
    pub fn seal(&self, by: ReplicaId, message: &dyn Message) -> Bytes {
        Bytes::from(seal(message, &|statement| self.sign(by, statement)))
    }

    /// Signs a statement with a replica's key.
    #[must_use]
    pub fn sign(&self, by: ReplicaId, statement: &Statement) -> Signature {
        self.sign_in(by, &self.cluster.committee.domain(), statement)
    }

    /// Signs a statement with a replica's key in any domain, such as that of another cluster.
    #[must_use]
    pub fn sign_in(&self, by: ReplicaId, domain: &Domain, statement: &Statement) -> Signature {
        let preimage = statement_preimage(domain, statement);
        self.cluster.keys.get(by.index()).map(|key| key.sign(&preimage)).unwrap_or(Signature([0; 64]))
    }
}
