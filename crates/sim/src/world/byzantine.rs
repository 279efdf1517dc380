//! Byzantine replicas in the world, and puppets.

use super::{Event, World};
use crate::byzantine::{Conduct, Deed, Role, Voice};
use crate::disk::Shared;
use crate::exit::Leaving;
use crate::frame::{Content, Frame};
use crate::oracles::Oracle;
use crate::queue::Class;
use crate::seat::{Arrival, Seat};
use crate::trace::Who;
use crate::{Byzantine, Survives};
use bytes::Bytes;
use quorate_consensus::{Auth, LinkEvent, Message, To};
use quorate_crypto::statement_preimage;
use quorate_storage::MemDisk;
use quorate_types::codec::Wire as _;
use quorate_types::wire::{Lane, frame};
use quorate_types::{Kind, ReplicaId, Signature, Statement};

/// The first replica of a twin and the second propose at different times, and so different blocks.
const SKEW_NS: u64 = 1;

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

impl World {
    /// Gives everybody the role that the settings say.
    pub(super) fn cast(&mut self) {
        let roles: Vec<(ReplicaId, Byzantine)> =
            self.settings.byzantine.iter().map(|(id, kind)| (*id, *kind)).collect();
        for (id, kind) in roles {
            let conduct = Conduct::new(kind, self.role_rng.fork());
            let mut rng = self.role_rng.fork();
            let is_lean = self.parts.is_some();
            let second = (kind == Byzantine::Twin).then(|| {
                let shared = Shared::new(self.empty_disk(), self.settings.costs);
                let mut seat = Box::new(Seat::new(id, shared, &mut rng));
                seat.role = Role::Byzantine(Box::new(Conduct::new(kind, rng.fork())));
                seat.skew_ns = SKEW_NS;
                seat.is_lean = is_lean;
                seat
            });
            let Some(seat) = self.seat_mut(id) else { continue };
            seat.role = Role::Byzantine(Box::new(conduct));
            seat.second = second;
            seat.is_lean = is_lean;
            // A scenario has moods enough.
            if self.parts.is_none() {
                self.queue.push(self.now, Class::Answer, Event::Mood(id));
            }
        }
    }

    fn empty_disk(&self) -> MemDisk {
        MemDisk::new(self.settings.segment_bytes, self.settings.page_bytes)
    }

    /// Whether the oracles judge a replica.
    #[must_use]
    pub fn is_honest(&self, id: ReplicaId) -> bool {
        let is_honest = self.seat(id).is_some_and(|seat| matches!(seat.role, Role::Honest));
        is_honest || self.trusted.contains(&id)
    }

    /// All replicas that the oracles judge.
    pub fn honest(&self) -> impl Iterator<Item = ReplicaId> {
        self.replicas().filter(|id| self.is_honest(*id))
    }

    /// Whether all honest replicas have executed all that any of them has.
    #[must_use]
    pub fn is_level(&self) -> bool {
        let height = self.height();
        self.honest().all(|id| self.executed(id) == height)
    }

    /// Whether something that a replica wants to send leaves.
    pub(super) fn lets(&self, from: ReplicaId, voice: Voice, kind: Kind, to: usize) -> bool {
        self.seat(from).is_some_and(|seat| seat.role.lets(voice, kind, to))
    }

    /// A Byzantine replica changes its mood.
    pub(super) fn change_mood(&mut self, id: ReplicaId) {
        let (now, places) = (self.now, self.settings.n.saturating_add(self.clients.len()));
        let blank = self.empty_disk();
        let Some(seat) = self.seat_mut(id) else { return };
        let (is_running, shared) = (seat.running.is_some() && seat.busy_until <= now, seat.shared.clone());
        let Role::Byzantine(conduct) = &mut seat.role else { return };
        let (mood_ns, outage_ns) = conduct.spans();
        let deed = if is_running { conduct.change(places, || blank) } else { Deed::Nothing };
        if matches!(deed, Deed::Remember) {
            conduct.remember(shared.synced_image());
        }
        let mood = conduct.shown();
        self.trace.note(now, Who::Replica(id), "mood", &[mood.as_bytes()], || mood.clone());
        if let Deed::Forget(image) = deed {
            self.lose_power(id, Survives::Nothing);
            shared.replace(*image);
            self.plan(now.plus(outage_ns), super::Plan::Start(id));
        }
        self.queue.push(now.plus(mood_ns), Class::Answer, Event::Mood(id));
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
        let lane = match frame_type {
            frame::BUNDLE | frame::PAYLOAD => Lane::Bodies,
            _ => Lane::Consensus,
        };
        let all: Vec<ReplicaId> = self.receivers(puppet, to).collect();
        self.trace.note(now, Who::Replica(puppet), "says", &[&body], || {
            let to: Vec<String> = all.iter().map(|id| format!("r{id}")).collect();
            format!("{content} to {}", to.join(" "))
        });
        for to in all.iter().copied() {
            let frame = Frame { from: puppet, to, lane, frame_type, body: body.clone(), content };
            self.put_on_the_way(now, &frame);
        }
    }

    /// A protocol's message as a frame of a replica has it: with its signature, where the message is signed.
    #[must_use]
    pub fn seal(&self, by: ReplicaId, message: &dyn Message) -> Bytes {
        let mut body = Vec::new();
        message.encode(&mut body);
        if let Auth::Signed(statement) = message.auth() {
            self.sign(by, &statement).encode(&mut body);
        }
        Bytes::from(body)
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
