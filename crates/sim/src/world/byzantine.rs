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
use crate::trace::{Fingerprint, Transit, Who};
use crate::turn_output::TurnOutput;
use bytes::Bytes;
use quorate_consensus::{Message, To};
use quorate_crypto::statement_preimage;
use quorate_storage::{Disk as _, MemDisk};
use quorate_types::rng::Rng;
use quorate_types::wire::{Lane, frame};
use quorate_types::{Kind, ReplicaId, Signature, Statement, Time};
use std::collections::BTreeMap;

/// The first replica of a twin and the second propose at different times, and so different blocks.
const SKEW_NS: i64 = 1;
/// When a leader is corrupted, between these.
const CORRUPT_NS: (u64, u64) = (2_000_000_000, 30_000_000_000);
/// What is taken for somebody's patience where nobody waits for anything.
const PATIENCE_NS: u64 = 300_000_000;

/// The lane on which frames of a type travel.
fn lane_of(frame_type: u8) -> Lane {
    match frame_type {
        frame::BUNDLE | frame::PAYLOAD => Lane::Bodies,
        _ => Lane::Consensus,
    }
}

impl World {
    /// Gives everybody the role that the settings say.
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

    /// From now on a replica that was honest breaks the rules in this way; one whose power is off does it when it is back.
    /// Nothing becomes of [`Byzantine::Adaptive`], who has to be there from the beginning.
    pub fn corrupt_now(&mut self, id: ReplicaId, kind: Byzantine) {
        if kind != Byzantine::Adaptive && !self.roles.byzantine.contains_key(&id) {
            self.roles.byzantine.insert(id, kind);
            let rng = self.rngs.roles.fork();
            self.corrupt(id, kind, rng);
        }
    }

    /// From now on a replica breaks the rules in this way.
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
        // A scenario has moods enough.
        if self.schedule.is_none() {
            self.queue.push(self.now, EventClass::Answer, Event::Mood(id));
        }
    }

    /// Whoever leads is honest no longer, where leaders can be replaced.
    pub(super) fn corrupt_leader(&mut self) {
        let first = u16::from(!self.settings.entry.spec.replaces_leader);
        let leader = self.leader().filter(|leader| leader.0 >= first && self.is_honest(*leader));
        let others = || self.honest().find(|id| id.0 >= first);
        let Some(victim) = leader.or_else(others) else { return };
        let kind = self.rngs.roles.pick(&Byzantine::LATER).copied().unwrap_or(Byzantine::Mute);
        self.trace.note(self.now, Who::Replica(victim), "corrupted", &[kind.name().as_bytes()], || {
            format!("it leads, and is {kind} from now on")
        });
        self.count_fault(Fault::Adaptive);
        let rng = self.rngs.roles.fork();
        self.roles.byzantine.insert(victim, Byzantine::Adaptive);
        self.corrupt(victim, kind, rng);
    }

    fn empty_disk(&self) -> MemDisk {
        MemDisk::new(self.settings.storage.segment_bytes, self.settings.storage.page_bytes)
    }

    /// Who has been Byzantine so far, and how: an adaptive host is where it has struck.
    #[must_use]
    pub fn liars(&self) -> &BTreeMap<ReplicaId, Byzantine> {
        &self.roles.byzantine
    }

    /// Who has said two things where only one may be said, and what they were.
    #[must_use]
    pub fn equivocators(&self) -> &BTreeMap<ReplicaId, String> {
        &self.roles.equivocators
    }

    /// Looks at what a liar really says.
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
        // Who has lost what it was told is safe cannot keep its word.
        let remembers = self.slot(id).is_some_and(|slot| slot.machine.damage != Damage::Forgetful);
        (is_honest && remembers && !self.roles.exempt.contains(&id)) || self.roles.trusted.contains(&id)
    }

    /// All replicas that have to run and to follow the others: the honest ones whose disks are whole.
    pub fn sound(&self) -> impl Iterator<Item = ReplicaId> {
        let is_whole = |id| self.slot(id).is_some_and(|slot| slot.machine.damage <= Damage::DiskTrouble);
        self.honest().filter(move |id| is_whole(*id))
    }

    /// All replicas that the oracles judge.
    pub fn honest(&self) -> impl Iterator<Item = ReplicaId> {
        self.replicas().filter(|id| self.is_honest(*id))
    }

    /// Whether all honest replicas have executed all that any of them has.
    #[must_use]
    pub fn is_level(&self) -> bool {
        let height = self.height();
        self.sound().all(|id| self.executed(id) == height)
    }

    /// Whether something that a replica wants to send leaves.
    pub(super) fn lets(&self, from: ReplicaId, half: TwinHalf, kind: Kind, to: usize) -> bool {
        self.slot(from).is_some_and(|slot| slot.role.lets(half, kind, to))
    }

    /// A Byzantine replica changes its mood.
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
        let told = has_reader.then(|| behaviour.told(&|some| names(n, places, some)));
        self.trace.note(now, Who::Replica(id), "mood", &[mood.as_bytes()], || told.unwrap_or_default());
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

    /// How long an honest replica still waits for something, whichever and for whatever.
    fn patience_ns(&mut self) -> u64 {
        let running: Vec<ReplicaId> = self.honest().filter(|id| self.is_running(*id)).collect();
        let Some(id) = self.rngs.roles.pick(&running).copied() else { return PATIENCE_NS };
        let now = self.now;
        let running = self.slot(id).and_then(|slot| slot.running.as_ref());
        let Some(running) = running else { return PATIENCE_NS };
        let local = running.local(now);
        let waits = running.host.replica().status().timers.into_iter().map(|(at, _)| at.since(local));
        let waits: Vec<u64> = waits.filter(|wait| *wait > 0).collect();
        self.rngs.roles.pick(&waits).copied().unwrap_or(PATIENCE_NS)
    }

    /// Whether what a replica says is changed on its way.
    pub(super) fn forges(&self, from: ReplicaId) -> bool {
        self.slot(from).is_some_and(|slot| match &slot.role {
            Role::Byzantine(behaviour) => behaviour.forges(),
            Role::Honest | Role::Controlled(_) => false,
        })
    }

    /// One frame of a liar leaves for one replica: whatever it makes of it.
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
            // What is not well signed proves nothing.
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

    /// A liar speaks with two voices, or not to all who are meant.
    pub(super) fn count_byzantine_faults(
        &mut self,
        (from, half): (ReplicaId, TwinHalf),
        (to, told): (To, usize),
    ) {
        let Some(slot) = self.slot(from) else { return };
        let Role::Byzantine(behaviour) = &slot.role else { return };
        let (is_silent, is_twin) = (behaviour.is_silent(), slot.second.is_some());
        if is_twin && half == TwinHalf::Second && told > 0 {
            self.count_fault(Fault::DoubleIdentity);
        }
        if !is_twin && told < self.receivers(from, to).count() {
            self.count_fault(if is_silent { Fault::Silence } else { Fault::SelectiveSilence });
        }
    }

    /// What a replica tells a client, if it is a liar.
    pub(super) fn forged_reply(&mut self, from: ReplicaId, body: Bytes) -> Bytes {
        let Some(slot) = self.slot_mut(from) else { return body };
        let Role::Byzantine(behaviour) = &mut slot.role else { return body };
        let (told, is_lie) = behaviour.forge_reply_body(body);
        if is_lie {
            self.count_fault(Fault::LieToClients);
        }
        told
    }

    /// A liar writes to its connections what is no frame: the header of one that is larger than any may be.
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

    /// The second replica of a twin is started.
    pub(super) fn start_second(&mut self, id: ReplicaId) {
        let mut output = std::mem::take(&mut self.buffers.output_of_second);
        output.clear();
        let Self { slots, settings, cluster, now, .. } = self;
        if let Some(second) = slots.get_mut(id.index()).and_then(|slot| slot.second.as_mut()) {
            second.machine.disk.watch(DiskWatch::begin);
            // One that does not open is silent.
            let _ = second.open(*now, settings, cluster, &mut output);
            self.flush_second(id, &mut output);
        }
        self.buffers.output_of_second = output;
    }

    /// The second replica of a twin takes its turn: before the first, because it has to be heard first sometimes.
    pub(super) fn turn_second(&mut self, id: ReplicaId) {
        let now = self.now;
        let mut output = std::mem::take(&mut self.buffers.output_of_second);
        output.clear();
        let Some(second) = self.slot_mut(id).and_then(|slot| slot.second.as_mut()) else {
            self.buffers.output_of_second = output;
            return;
        };
        second.machine.disk.watch(DiskWatch::begin);
        if second.turn(now, &mut output).is_err() {
            second.running = None;
        }
        self.flush_second(id, &mut output);
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
        self.depart(id, TwinHalf::Second, now, output, &[]);
    }

    /// What a replica says of others: no honest one may be held for a liar.
    pub(super) fn judge_accusations(&mut self, by: ReplicaId, output: &mut TurnOutput) {
        for (peer, reason) in output.blamed.drain(..) {
            let innocent = self.is_honest(peer) && !self.roles.altered.contains(&peer);
            if innocent && self.is_honest(by) {
                let what = format!("replica {by} refuses what replica {peer} says: {reason}");
                self.judge(self.now, Err((Oracle::Accusation, what)));
            }
        }
    }

    /// From now on a replica is a controlled replica: it says what [`World::say`] makes it say and nothing else, and what
    /// reaches it is for [`World::heard`]. Its key is the caller's.
    pub fn take_control(&mut self, id: ReplicaId) {
        if let Some(slot) = self.slot_mut(id) {
            slot.role = Role::Controlled(Vec::new());
            slot.second = None;
        }
    }

    /// What has reached a controlled replica since somebody asked last.
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

    /// Messages of a replica that others' intakes have passed on to a handler so far.
    #[must_use]
    pub fn passed(&self, from: ReplicaId) -> u64 {
        self.counters.passed.get(from.index()).copied().unwrap_or_default()
    }

    /// A controlled replica says something now, signed where the message is.
    pub fn send_as(&mut self, controlled: ReplicaId, to: To, message: &dyn Message) {
        let body = self.seal(controlled, message);
        self.send_frame_as(controlled, to, frame::PROTOCOL, body);
    }

    /// A controlled replica sends a frame of any type with any body now.
    pub fn send_frame_as(&mut self, controlled: ReplicaId, to: To, frame_type: u8, body: Bytes) {
        let is_controlled =
            self.slot(controlled).is_some_and(|slot| matches!(slot.role, Role::Controlled(_)));
        assert!(is_controlled, "only puppets are spoken for");
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

    /// A protocol's message as a frame of a replica has it: with its signature, where the message is signed.
    #[must_use]
    pub fn seal(&self, by: ReplicaId, message: &dyn Message) -> Bytes {
        Bytes::from(seal(message, &|statement| self.sign(by, statement)))
    }

    /// The signature of a replica under a statement: its key is in the hands of who made the world.
    #[must_use]
    pub fn sign(&self, by: ReplicaId, statement: &Statement) -> Signature {
        let preimage = statement_preimage(&self.cluster.committee.domain(), statement);
        self.cluster.keys.get(by.index()).map(|key| key.sign(&preimage)).unwrap_or(Signature([0; 64]))
    }

    /// A controlled replica sends a client something now.
    pub fn send_to_client_as(&mut self, controlled: ReplicaId, client: usize, message: Bytes) {
        self.reply(self.now, controlled, client, message);
    }
}
