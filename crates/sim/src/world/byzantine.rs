//! Byzantine replicas in the world, and puppets.

use super::telling::{Eyes, names};
use super::{Event, World};
use crate::byzantine::{Around, Conduct, Deed, Means, Role, Sent, Voice, seal};
use crate::disk::Shared;
use crate::exit::Leaving;
use crate::fault::Fault;
use crate::frame::{Content, Frame};
use crate::oracles::Oracle;
use crate::queue::Class;
use crate::seat::{Arrival, Damage, Seat};
use crate::trace::{Passage, Print, Who};
use crate::{Byzantine, Survives};
use bytes::Bytes;
use quorate_consensus::{LinkEvent, Message, To};
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

/// What reaches a puppet.
#[derive(Clone, Debug)]
pub enum Heard {
    /// A frame of a replica.
    Frame {
        /// Whose.
        from: ReplicaId,
        /// Its type, as `types::wire::frame` lists them.
        frame_type: u8,
        /// Its body.
        body: Bytes,
        /// What it is.
        content: Content,
    },
    /// What the link to a replica says of itself.
    Link(ReplicaId, LinkEvent),
    /// A message of the client at this place.
    Client(usize, Bytes),
}

/// The lane on which frames of a type travel.
fn lane_of(frame_type: u8) -> Lane {
    match frame_type {
        frame::BUNDLE | frame::PAYLOAD => Lane::Bodies,
        _ => Lane::Consensus,
    }
}

impl World {
    /// Gives everybody the role that the settings say.
    pub(super) fn cast(&mut self) {
        let roles: Vec<(ReplicaId, Byzantine)> =
            self.settings.byzantine.iter().map(|(id, kind)| (*id, *kind)).collect();
        let together = self.settings.coalition.then(|| self.role_rng.fork());
        if together.is_some() {
            self.feel(Fault::Coalition);
        }
        for (id, kind) in roles {
            let rng = together.clone().unwrap_or_else(|| self.role_rng.fork());
            if kind == Byzantine::Adaptive {
                let at = self.now.plus(self.role_rng.between(CORRUPT_NS.0, CORRUPT_NS.1));
                self.plan(at, super::Plan::Corrupt);
            } else {
                self.liars.insert(id, kind);
                self.corrupt(id, kind, rng);
            }
        }
    }

    /// From now on a replica that was honest breaks the rules in this way; one whose power is off does it when it is back.
    /// Nothing becomes of [`Byzantine::Adaptive`], who has to be there from the beginning.
    pub fn goes_bad(&mut self, id: ReplicaId, kind: Byzantine) {
        if kind != Byzantine::Adaptive && !self.liars.contains_key(&id) {
            self.liars.insert(id, kind);
            let rng = self.role_rng.fork();
            self.corrupt(id, kind, rng);
        }
    }

    /// From now on a replica breaks the rules in this way.
    fn corrupt(&mut self, id: ReplicaId, kind: Byzantine, rng: Rng) {
        let attacks = self.settings.entry.attacks;
        let mut seat_rng = self.role_rng.fork();
        let second = (kind == Byzantine::Twin).then(|| {
            let shared = Shared::new(self.empty_disk(), self.settings.costs);
            let mut seat = Box::new(Seat::new(id, shared, &mut seat_rng));
            seat.role = Role::Byzantine(Box::new(Conduct::new(kind, seat_rng.fork(), attacks)));
            seat.skew_ns = SKEW_NS;
            seat
        });
        let Some(seat) = self.seat_mut(id) else { return };
        seat.role = Role::Byzantine(Box::new(Conduct::new(kind, rng, attacks)));
        seat.second = second;
        // A scenario has moods enough.
        if self.parts.is_none() {
            self.queue.push(self.now, Class::Answer, Event::Mood(id));
        }
    }

    /// Whoever leads is honest no longer, where leaders can be replaced.
    pub(super) fn corrupt_leader(&mut self) {
        let first = u16::from(!self.settings.entry.spec.replaces_leader);
        let leader = self.leader().filter(|leader| leader.0 >= first && self.is_honest(*leader));
        let others = || self.honest().find(|id| id.0 >= first);
        let Some(victim) = leader.or_else(others) else { return };
        let kind = self.role_rng.pick(&Byzantine::LATER).copied().unwrap_or(Byzantine::Mute);
        self.trace.note(self.now, Who::Replica(victim), "corrupted", &[kind.name().as_bytes()], || {
            format!("it leads, and is {kind} from now on")
        });
        self.feel(Fault::Adaptive);
        let rng = self.role_rng.fork();
        self.liars.insert(victim, Byzantine::Adaptive);
        self.corrupt(victim, kind, rng);
    }

    fn empty_disk(&self) -> MemDisk {
        MemDisk::new(self.settings.segment_bytes, self.settings.page_bytes)
    }

    /// Who has been Byzantine so far, and how: an adaptive host is where it has struck.
    #[must_use]
    pub fn liars(&self) -> &BTreeMap<ReplicaId, Byzantine> {
        &self.liars
    }

    /// Who has said two things where only one may be said, and what they were.
    #[must_use]
    pub fn culprits(&self) -> &BTreeMap<ReplicaId, String> {
        &self.culprits
    }

    /// Looks at what a liar really says.
    pub(super) fn convict(&mut self, from: ReplicaId, content: &Content) {
        if self.seat(from).is_some_and(|seat| matches!(seat.role, Role::Byzantine(_)))
            && let Some(what) = self.promises.lies(from, content)
        {
            self.feel(Fault::EquivocateVote);
            self.culprits.entry(from).or_insert(what);
        }
    }

    /// Whether the oracles judge a replica.
    #[must_use]
    pub fn is_honest(&self, id: ReplicaId) -> bool {
        let is_honest = self.seat(id).is_some_and(|seat| matches!(seat.role, Role::Honest));
        // Who has lost what it was told is safe cannot keep its word.
        let remembers = self.seat(id).is_some_and(|seat| seat.damage != Damage::Forgetful);
        (is_honest && remembers && !self.adrift.contains(&id)) || self.trusted.contains(&id)
    }

    /// All replicas that have to run and to follow the others: the honest ones whose disks are whole.
    pub fn sound(&self) -> impl Iterator<Item = ReplicaId> {
        let is_whole = |id| self.seat(id).is_some_and(|seat| seat.damage <= Damage::Trouble);
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
    pub(super) fn lets(&self, from: ReplicaId, voice: Voice, kind: Kind, to: usize) -> bool {
        self.seat(from).is_some_and(|seat| seat.role.lets(voice, kind, to))
    }

    /// A Byzantine replica changes its mood.
    pub(super) fn change_mood(&mut self, id: ReplicaId) {
        let (now, n, is_read) = (self.now, self.settings.n, self.trace.is_read());
        let places = n.saturating_add(self.clients.len());
        let around = Around { places, patience_ns: self.patience_ns() };
        let blank = self.empty_disk();
        let Some(seat) = self.seat_mut(id) else { return };
        let (is_running, shared) = (seat.running.is_some() && seat.busy_until <= now, seat.shared.clone());
        let Role::Byzantine(conduct) = &mut seat.role else { return };
        let (mood_ns, outage_ns) = conduct.spans();
        let deed = if is_running { conduct.change(around, || blank) } else { Deed::Nothing };
        if matches!(deed, Deed::Remember) {
            conduct.remember(shared.synced_image());
        }
        let mood = conduct.shown();
        let told = is_read.then(|| conduct.told(&|some| names(n, places, some)));
        self.trace.note(now, Who::Replica(id), "mood", &[mood.as_bytes()], || told.unwrap_or_default());
        match deed {
            Deed::Forget(image) => {
                let is_blank = image.segments() == 0;
                self.feel(Fault::PowerCut);
                self.feel(if is_blank { Fault::Wiped } else { Fault::RolledBack });
                self.lose_power(id, Survives::Nothing);
                shared.replace(*image);
                self.plan(now.plus(outage_ns), super::Plan::Start(id));
            }
            Deed::Garbage => self.write_garbage(id),
            Deed::Nothing | Deed::Remember => {}
        }
        self.queue.push(now.plus(mood_ns), Class::Answer, Event::Mood(id));
    }

    /// How long an honest replica still waits for something, whichever and for whatever.
    fn patience_ns(&mut self) -> u64 {
        let running: Vec<ReplicaId> = self.honest().filter(|id| self.is_running(*id)).collect();
        let Some(id) = self.role_rng.pick(&running).copied() else { return PATIENCE_NS };
        let now = self.now;
        let running = self.seat(id).and_then(|seat| seat.running.as_ref());
        let Some(running) = running else { return PATIENCE_NS };
        let local = running.local(now);
        let waits = running.host.replica().status().timers.into_iter().map(|(at, _)| at.since(local));
        let waits: Vec<u64> = waits.filter(|wait| *wait > 0).collect();
        self.role_rng.pick(&waits).copied().unwrap_or(PATIENCE_NS)
    }

    /// Whether what a replica says is changed on its way.
    pub(super) fn twists(&self, from: ReplicaId) -> bool {
        self.seat(from).is_some_and(|seat| match &seat.role {
            Role::Byzantine(conduct) => conduct.twists(),
            Role::Honest | Role::Puppet(_) => false,
        })
    }

    /// One frame of a liar leaves for one replica: whatever it makes of it.
    pub(super) fn send_twisted(&mut self, at: Time, frame: &Frame) {
        let from = frame.from;
        let Some(seat) = self.seat_mut(from) else { return };
        let Role::Byzantine(mut conduct) = std::mem::take(&mut seat.role) else { return };
        let mut sent = Vec::new();
        let means = Means {
            entry: &self.settings.entry,
            committee: &self.cluster.committee,
            me: from,
            sign: &|statement| self.sign(from, statement),
        };
        conduct.twist(&means, frame.to, (frame.frame_type, frame.content.kind, &frame.body), &mut sent);
        if let Some(seat) = self.seat_mut(from) {
            seat.role = Role::Byzantine(conduct);
        }
        for Sent { after_ns, frame_type, body, fault } in sent {
            let content = self.kind_of(frame_type, &body);
            if let Some(fault) = fault {
                self.feel(fault);
                self.trace.note(at, Who::Replica(from), "lies", &[&body], || {
                    format!("{fault}: {content} to r{}", frame.to)
                });
            }
            // What is not well signed proves nothing.
            if fault != Some(Fault::InvalidSignature) {
                self.convict(from, &content);
            }
            let lane = if frame_type == frame.frame_type { frame.lane } else { lane_of(frame_type) };
            let frame = Frame { frame_type, body, content, lane, ..frame.clone() };
            if after_ns > 0 {
                self.queue.push(at.plus(after_ns), Class::Arrival, Event::Leaves(Box::new(frame)));
            } else {
                self.send_one(at, frame);
            }
        }
    }

    /// A liar speaks with two voices, or not to all who are meant.
    pub(super) fn feel_manners(&mut self, (from, voice): (ReplicaId, Voice), (to, told): (To, usize)) {
        let Some(seat) = self.seat(from) else { return };
        let Role::Byzantine(conduct) = &seat.role else { return };
        let (is_silent, is_twin) = (conduct.is_silent(), seat.second.is_some());
        if is_twin && voice == Voice::Second && told > 0 {
            self.feel(Fault::DoubleIdentity);
        }
        if !is_twin && told < self.receivers(from, to).count() {
            self.feel(if is_silent { Fault::Silence } else { Fault::SelectiveSilence });
        }
    }

    /// What a replica tells a client, if it is a liar.
    pub(super) fn reply_twisted(&mut self, from: ReplicaId, body: Bytes) -> Bytes {
        let Some(seat) = self.seat_mut(from) else { return body };
        let Role::Byzantine(conduct) = &mut seat.role else { return body };
        let (told, is_lie) = conduct.twist_reply(body);
        if is_lie {
            self.feel(Fault::LieToClients);
        }
        told
    }

    /// A liar writes to its connections what is no frame: the header of one that is larger than any may be.
    fn write_garbage(&mut self, from: ReplicaId) {
        let now = self.now;
        for peer in self.replicas().filter(|peer| *peer != from) {
            let line = self.seat_mut(from).and_then(|seat| seat.running.as_mut()?.line(peer)?.conn);
            if let Some(conn) = line {
                self.feel(Fault::OversizeFrame);
                self.put_on_connection(from, peer, conn, now, Bytes::from_static(&[0xff; 14]));
            }
        }
    }

    /// The second replica of a twin is started.
    pub(super) fn start_second(&mut self, id: ReplicaId) {
        let mut leaving = std::mem::take(&mut self.leaving_second);
        leaving.clear();
        let Self { seats, settings, cluster, now, .. } = self;
        if let Some(second) = seats.get_mut(id.index()).and_then(|seat| seat.second.as_mut()) {
            second.shared.watch(crate::disk::Watch::begin);
            // One that does not open is silent.
            let _ = second.open(*now, settings, cluster, &mut leaving);
            self.let_go_second(id, &mut leaving);
        }
        self.leaving_second = leaving;
    }

    /// The second replica of a twin takes its turn: before the first, because it has to be heard first sometimes.
    pub(super) fn turn_second(&mut self, id: ReplicaId) {
        let now = self.now;
        let mut leaving = std::mem::take(&mut self.leaving_second);
        leaving.clear();
        let Some(second) = self.seat_mut(id).and_then(|seat| seat.second.as_mut()) else {
            self.leaving_second = leaving;
            return;
        };
        second.shared.watch(crate::disk::Watch::begin);
        if second.turn(now, &mut leaving).is_err() {
            second.running = None;
        }
        self.let_go_second(id, &mut leaving);
        self.leaving_second = leaving;
    }

    fn let_go_second(&mut self, id: ReplicaId, leaving: &mut Leaving) {
        let now = self.now;
        if let Some(seat) = self.seat_mut(id) {
            if let Some(second) = &mut seat.second {
                second.journal.look().clear();
                second.shared.watch(|watch| watch.synced.clear());
            }
            for (index, client) in leaving.proven.drain(..) {
                seat.attach(index, client);
            }
        }
        self.depart(id, Voice::Second, now, leaving, &[]);
    }

    /// What a replica says of others: no honest one may be held for a liar.
    pub(super) fn judge_blame(&mut self, by: ReplicaId, leaving: &mut Leaving) {
        for (peer, reason) in leaving.blamed.drain(..) {
            let innocent = self.is_honest(peer) && !self.doctored.contains(&peer);
            if innocent && self.is_honest(by) {
                let what = format!("replica {by} refuses what replica {peer} says: {reason}");
                self.judge(self.now, Err((Oracle::Accusation, what)));
            }
        }
    }

    /// From now on a replica is a puppet: it says what [`World::say`] makes it say and nothing else, and what
    /// reaches it is for [`World::heard`]. Its key is the caller's.
    pub fn take_over(&mut self, id: ReplicaId) {
        if let Some(seat) = self.seat_mut(id) {
            seat.role = Role::Puppet(Vec::new());
            seat.second = None;
        }
    }

    /// What has reached a puppet since somebody asked last.
    pub fn heard(&mut self, id: ReplicaId) -> Vec<Heard> {
        let arrivals = match self.seat_mut(id).map(|seat| &mut seat.role) {
            Some(Role::Puppet(heard)) => std::mem::take(heard),
            _ => Vec::new(),
        };
        let heard = arrivals.into_iter().filter_map(|arrival| match arrival {
            Arrival::Frame { from, frame_type, body } => {
                let content = self.kind_of(frame_type, &body);
                Some(Heard::Frame { from, frame_type, body, content })
            }
            Arrival::Link(peer, event) => Some(Heard::Link(peer, event)),
            Arrival::Client { index, message } => Some(Heard::Client(index, message)),
            _ => None,
        });
        heard.collect()
    }

    /// Messages of a replica that others' intakes have passed on to a handler so far.
    #[must_use]
    pub fn passed(&self, from: ReplicaId) -> u64 {
        self.passed.get(from.index()).copied().unwrap_or_default()
    }

    /// A puppet says something now, signed where the message is.
    pub fn say(&mut self, puppet: ReplicaId, to: To, message: &dyn Message) {
        let body = self.seal(puppet, message);
        self.say_frame(puppet, to, frame::PROTOCOL, body);
    }

    /// A puppet sends a frame of any type with any body now.
    pub fn say_frame(&mut self, puppet: ReplicaId, to: To, frame_type: u8, body: Bytes) {
        let is_puppet = self.seat(puppet).is_some_and(|seat| matches!(seat.role, Role::Puppet(_)));
        assert!(is_puppet, "only puppets are spoken for");
        let content = self.kind_of(frame_type, &body);
        let now = self.now;
        let lane = lane_of(frame_type);
        let all: Vec<ReplicaId> = self.receivers(puppet, to).collect();
        let Self { trace, settings, cluster, .. } = self;
        trace.note(now, Who::Replica(puppet), "says", &[&body], || {
            let tale = Eyes { settings, cluster }.frame(frame_type, &body);
            tale.to(all.iter().copied().map(Who::Replica)).passage(Passage::Leaves(Print::of(&body)))
        });
        for to in all.iter().copied() {
            let frame = Frame { from: puppet, to, lane, frame_type, body: body.clone(), content };
            self.put_on_the_way(now, &frame);
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

    /// A puppet sends a client something now.
    pub fn say_to_client(&mut self, puppet: ReplicaId, client: usize, message: Bytes) {
        self.reply(self.now, puppet, client, message);
    }
}
