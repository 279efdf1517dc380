//! The place of one replica in the world: its machine (disk, connections, clock), and the replica itself while
//! it runs.

use crate::byzantine::{Role, Voice};
use crate::clock::Clock;
use crate::disk::{Lie, Shared, SimDisk};
use crate::exit::{Exit, Leaving};
use crate::settings::{Cluster, Settings};
use crate::shadow::Shadow;
use crate::witness::{Journal, Perjury, Witness};
use bytes::Bytes;
use quorate_consensus::LinkEvent;
use quorate_host::{Host, HostFault, HostSetup, TurnEnd, TurnWork};
use quorate_net::link::{Identity, LinkEvent as NetEvent};
use quorate_net::{Direction, Link, Loss, ResendLimits};
use quorate_replica::{ConnId, ReplicaSetup};
use quorate_storage::MemDisk;
use quorate_types::digest::context;
use quorate_types::rng::Rng;
use quorate_types::wire::CLIENT_BUNDLE_TAG;
use quorate_types::{ClientId, Height, Incarnation, ReplicaId, Time};
use std::collections::BTreeMap;

/// Wall-clock time at which worlds begin: some day in 2026.
pub(crate) const WALL_NS: u64 = 1_770_000_000_000_000_000;
/// How long checks or execution may hold up a turn.
const SLICE_NS: u64 = 3_000_000;

/// What has become of what a replica had entrusted to its disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Damage {
    /// Everything is there.
    None,
    /// It makes trouble for a while: the replica may stop, and comes back.
    Trouble,
    /// Something is wrong in the middle: the replica may stop for good, and keeps its word while it runs.
    Broken,
    /// What it had been told is safe is gone, and no trace of it: the replica may break its word.
    Forgetful,
}

/// What arrived and waits for the next turn.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A frame that travelled by itself.
    Frame { from: ReplicaId, frame_type: u8, body: Bytes },
    /// A frame for one of the two of a twin.
    Apart { from: ReplicaId, frame_type: u8, body: Bytes, ear: Voice },
    /// Bytes on a connection.
    Bytes { from: ReplicaId, conn: u64, bytes: Bytes },
    /// A connection that this replica dialled is there.
    Dialled { peer: ReplicaId, conn: u64 },
    /// A connection that the peer dialled is there.
    Accepted { peer: ReplicaId, conn: u64 },
    /// A connection is gone.
    Closed { peer: ReplicaId, conn: u64 },
    /// What transports that need no connections say of links.
    Link(ReplicaId, LinkEvent),
    /// A message of a client.
    Client { index: usize, message: Bytes },
}

/// Which connections speak for which client.
#[derive(Default, Debug)]
pub(crate) struct Speakers(BTreeMap<ClientId, Vec<usize>>);

impl Speakers {
    pub(crate) fn of(&self, client: &ClientId) -> &[usize] {
        self.0.get(client).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn attach(&mut self, index: usize, client: ClientId) {
        let conns = self.0.entry(client).or_default();
        if !conns.contains(&index) {
            conns.push(index);
        }
    }

    pub(crate) fn detach(&mut self, index: usize) {
        self.0.values_mut().for_each(|conns| conns.retain(|conn| *conn != index));
    }
}

/// The link to one peer and the connection that it is on.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) link: Link,
    pub(crate) conn: Option<u64>,
}

/// A replica that runs.
pub(crate) struct Running {
    pub(crate) host: Host<SimDisk>,
    pub(crate) clock: Clock,
    /// By peer; none for itself, and none at all where frames travel by themselves.
    pub(crate) lines: Vec<Option<Line>>,
    /// The last height that was executed when somebody looked.
    pub(crate) executed: Height,
    pub(crate) is_owing: bool,
    /// Who has to do the same, if the settings want that.
    pub(crate) shadow: Option<Shadow>,
}

impl Running {
    /// The replica's own time.
    pub(crate) fn local(&self, now: Time) -> Time {
        self.clock.local(now)
    }

    pub(crate) fn line(&mut self, peer: ReplicaId) -> Option<&mut Line> {
        line_of(&mut self.lines, peer)
    }
}

/// See the module.
pub(crate) struct Seat {
    pub(crate) id: ReplicaId,
    pub(crate) shared: Shared,
    pub(crate) running: Option<Box<Running>>,
    pub(crate) inbox: Vec<Arrival>,
    /// What it has read for this turn, while somebody reads along.
    pub(crate) heard: Option<Vec<Arrival>>,
    /// Until then its last turn lasts.
    pub(crate) busy_until: Time,
    /// The event that counts among those that were scheduled for it.
    pub(crate) wake: Option<(Time, u64)>,
    pub(crate) wakes: u64,
    pub(crate) speakers: Speakers,
    pub(crate) journal: Journal,
    pub(crate) opens: u64,
    pub(crate) lie: Lie,
    pub(crate) perjury: Perjury,
    pub(crate) role: Role,
    /// The other replica of a twin: a disk and a life of its own behind the same links.
    pub(crate) second: Option<Box<Self>>,
    /// Whether the host was handed something for the next turn.
    has_read: bool,
    /// How far its clock on the wall is off, from its next start on.
    pub(crate) skew_ns: i64,
    /// How much faster its time passes than that of the world, in millionths.
    pub(crate) drift_ppm: i64,
    /// Its process stands still until then.
    pub(crate) paused_until: Time,
    /// Its machine dies when the turn that is under way is over.
    pub(crate) is_doomed: bool,
    /// What is wrong with its disk.
    pub(crate) damage: Damage,
    /// Its disk after the last crash, if that or an earlier one has left what was not synced: it is as durable as if it
    /// had been.
    pub(crate) survived: Option<MemDisk>,
    /// Turns in a row that nothing had arrived for, without time going on much.
    pub(crate) spins: u32,
    pub(crate) turns: u64,
    work_rng: Rng,
    disk_rng: Rng,
}

/// What reading the inbox led to beside what the host was handed.
#[derive(Debug)]
pub(crate) enum Read {
    /// A connection must be closed, because the peer broke a rule.
    Refused(ReplicaId, u64, &'static str),
    /// The peer closed the connection and said why.
    Closed(ReplicaId, String),
}

impl Seat {
    pub(crate) fn new(id: ReplicaId, shared: Shared, rng: &mut Rng) -> Self {
        Self {
            id,
            shared,
            running: None,
            inbox: Vec::new(),
            heard: None,
            busy_until: Time::ZERO,
            wake: None,
            wakes: 0,
            speakers: Speakers::default(),
            journal: Journal::default(),
            opens: 0,
            lie: Lie::None,
            perjury: Perjury::None,
            role: Role::Honest,
            second: None,
            has_read: false,
            skew_ns: 0,
            drift_ppm: 0,
            paused_until: Time::ZERO,
            is_doomed: false,
            damage: Damage::None,
            survived: None,
            spins: 0,
            turns: 0,
            work_rng: rng.fork(),
            disk_rng: rng.fork(),
        }
    }

    /// Opens a replica on what the disk has. What it sends meanwhile waits in `leaving`.
    pub(crate) fn open(
        &mut self,
        now: Time,
        settings: &Settings,
        cluster: &Cluster,
        leaving: &mut Leaving,
    ) -> Result<(), HostFault> {
        self.opens = self.opens.saturating_add(1);
        self.journal.look().clear();
        let key = cluster.keys.get(self.id.index()).cloned();
        let Some(key) = key else { return Ok(()) };
        let witness = Witness::new(self.journal.clone(), self.perjury, self.opens);
        let setup = HostSetup {
            entry: settings.entry,
            replica: ReplicaSetup {
                me: self.id,
                committee: cluster.committee.clone(),
                genesis: cluster.genesis.clone(),
                params: cluster.params.clone(),
                wall_offset_ns: WALL_NS.saturating_add(now.0).saturating_add_signed(self.skew_ns),
                secret: key.secret(&context::PROBE),
            },
            key,
            scheme: settings.scheme,
            application: match &settings.companion {
                Some(companion) => (companion.0)(Box::new(witness)),
                None => Box::new(witness),
            },
            keep_bytes: settings.keep_bytes,
            disk_bytes_max: settings.disk_bytes_max,
            snapshot_every_bytes: settings.snapshot_every_bytes,
        };
        if !self.shared.open_wrongly(self.lie) {
            let (doing, error) = ("opening", "made to refuse a torn tail".to_owned());
            return Err(HostFault::Storage(quorate_storage::Fault::Io { doing, error }));
        }
        let disk = SimDisk::new(self.shared.clone(), self.disk_rng.fork(), self.lie);
        let follows = settings.replay && matches!(self.role, Role::Honest);
        let shadow = follows.then(|| Shadow::of(&setup.entry, setup.replica.clone()));
        let mut exit = Exit {
            leaving,
            shared: &self.shared,
            speakers: &self.speakers,
            shadow: shadow.as_ref(),
            clock: None,
        };
        let host = Host::open(setup, disk, &mut exit)?;
        let executed = host.executor().execution().height();
        self.running = Some(Box::new(Running {
            host,
            clock: Clock::new(now, self.drift_ppm),
            lines: Vec::new(),
            executed,
            is_owing: true,
            shadow,
        }));
        Ok(())
    }

    /// Gives a replica that was just opened its links: their numbers begin anew with its incarnation.
    pub(crate) fn string_lines(&mut self, cluster: &Cluster) {
        let me = self.id;
        let Some(running) = &mut self.running else { return };
        // Who forgets its incarnations would never be heard again, and that would be kind.
        let incarnation = match self.role {
            Role::Byzantine(_) => Incarnation(self.opens),
            Role::Honest | Role::Puppet(_) => running.host.replica().incarnation(),
        };
        let identity = Identity {
            cluster: cluster.committee.cluster,
            epoch: cluster.committee.epoch,
            protocol: cluster.committee.protocol,
            me,
            incarnation,
        };
        running.lines = cluster
            .committee
            .ids()
            .map(|peer| {
                (peer != me)
                    .then(|| Line { link: Link::new(identity, peer, ResendLimits::default()), conn: None })
            })
            .collect();
    }

    /// Hands the inbox to the replica, or to both.
    pub(crate) fn read(&mut self, now: Time, trouble: &mut Vec<Read>) {
        let Self { running, inbox, heard, speakers, role, second, has_read, .. } = self;
        *has_read = false;
        let Some(running) = running else {
            inbox.clear();
            return;
        };
        let Running { host, lines, .. } = &mut **running;
        let backwards = matches!(role, Role::Byzantine(conduct) if conduct.reads_backwards());
        let mut ears = Ears { host, has_read, is_deaf: false, copies: None, told: heard.as_mut() };
        match (role, second.as_mut()) {
            (Role::Puppet(heard), _) => {
                ears.is_deaf = true;
                ears.copies = Some(heard);
            }
            (_, Some(second)) => ears.copies = Some(&mut second.inbox),
            _ => {}
        }
        for arrival in inbox.drain(..) {
            match arrival {
                Arrival::Frame { from, frame_type, body } => ears.frame(from, frame_type, &body),
                Arrival::Apart { from, frame_type, body, ear } => match ear {
                    Voice::First => ears.host().peer_frame(from, frame_type, &body),
                    Voice::Second => ears.copy(Arrival::Frame { from, frame_type, body }),
                },
                Arrival::Link(peer, event) => ears.link(peer, event),
                Arrival::Client { index, message } => ears.client(speakers, index, message),
                arrival => connection(lines, &mut ears, now, arrival, trouble),
            }
        }
        if let Some(second) = second {
            if backwards {
                second.inbox.reverse();
            }
            second.read(now, trouble);
        }
    }

    /// A connection of a client wants its replies here.
    pub(crate) fn attach(&mut self, index: usize, client: ClientId) {
        self.speakers.attach(index, client);
        if let Some(second) = &mut self.second {
            second.speakers.attach(index, client);
        }
    }

    /// No longer.
    pub(crate) fn detach(&mut self, index: usize) {
        self.speakers.detach(index);
        if let Some(second) = &mut self.second {
            second.speakers.detach(index);
        }
    }

    /// Whether a turn would do anything: links have work of their own, and acknowledgements are for nobody else.
    fn is_due(&self, now: Time) -> bool {
        self.running.as_ref().is_some_and(|running| {
            let deadline = running.host.deadline().map(|at| running.clock.world(at));
            self.has_read || running.is_owing || deadline.is_some_and(|at| at <= now)
        })
    }

    /// Takes a turn.
    pub(crate) fn turn(&mut self, now: Time, leaving: &mut Leaving) -> Result<(), HostFault> {
        if !self.is_due(now) {
            return Ok(());
        }
        self.turns = self.turns.saturating_add(1);
        let Self { running, shared, speakers, work_rng, .. } = self;
        let Some(running) = running else { return Ok(()) };
        let local = running.local(now);
        let mut exit = Exit { leaving, shared, speakers, shadow: None, clock: Some((running.clock, now)) };
        let mut more = |what| {
            shared.watch(|watch| {
                watch.work(work_rng, what == TurnWork::Execute);
                watch.spent_ns < SLICE_NS
            })
        };
        let end = running.host.turn(local, Some(local), true, &mut more, &mut exit)?;
        running.is_owing = end == TurnEnd::Owing;
        Ok(())
    }

    /// When the next turn is, if nothing arrives before.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let running = self.running.as_ref()?;
        if running.is_owing || !self.inbox.is_empty() {
            return Some(self.busy_until);
        }
        let host = running.host.deadline().map(|at| running.clock.world(at));
        let lines = running.lines.iter().flatten().filter_map(|line| line.link.deadline());
        let second = self.second.as_ref().and_then(|second| second.deadline());
        host.into_iter().chain(lines).chain(second).min().map(|at| at.max(self.busy_until))
    }
}

impl Running {
    /// Lets links notice what is due: acknowledgements, greetings that take too long.
    pub(crate) fn tick_lines(&mut self, now: Time, trouble: &mut Vec<Read>) {
        for line in self.lines.iter_mut().flatten() {
            if let (Err(refusal), Some(conn)) = (line.link.tick(now), line.conn) {
                line.conn = None;
                line.link.disconnect();
                trouble.push(Read::Refused(line.link.peer(), conn, refusal.reason()));
            }
        }
    }

    /// Losses that links noticed while they wrote.
    pub(crate) fn hear_losses(&mut self) {
        let Self { host, lines, .. } = self;
        for line in lines.iter_mut().flatten() {
            let peer = line.link.peer();
            line.link.losses(&mut |event| {
                if let NetEvent::Lost(loss) = event {
                    host.link(peer, event_of(host, loss));
                }
            });
        }
    }
}

/// Who hears what reaches a seat.
struct Ears<'a> {
    host: &'a mut Host<SimDisk>,
    /// Whether the host was handed anything.
    has_read: &'a mut bool,
    /// The replica hears nothing itself.
    is_deaf: bool,
    /// Where everything goes as well.
    copies: Option<&'a mut Vec<Arrival>>,
    /// Where everything goes for who reads along.
    told: Option<&'a mut Vec<Arrival>>,
}

impl Ears<'_> {
    fn host(&mut self) -> &mut Host<SimDisk> {
        *self.has_read = true;
        self.host
    }

    /// The second replica of a twin hears this, and the first does not.
    fn copy(&mut self, arrival: Arrival) {
        if let Some(copies) = &mut self.copies {
            copies.push(arrival);
        }
    }

    fn frame(&mut self, from: ReplicaId, frame_type: u8, body: &[u8]) {
        for copies in [&mut self.copies, &mut self.told].into_iter().flatten() {
            copies.push(Arrival::Frame { from, frame_type, body: Bytes::copy_from_slice(body) });
        }
        if !self.is_deaf {
            self.host().peer_frame(from, frame_type, body);
        }
    }

    fn link(&mut self, peer: ReplicaId, event: LinkEvent) {
        for copies in [&mut self.copies, &mut self.told].into_iter().flatten() {
            copies.push(Arrival::Link(peer, event));
        }
        if !self.is_deaf {
            self.host().link(peer, event);
        }
    }

    fn client(&mut self, speakers: &mut Speakers, index: usize, message: Bytes) {
        match message.split_first() {
            Some((&CLIENT_BUNDLE_TAG, bundle)) if !self.is_deaf => {
                let conn = ConnId(u64::try_from(index).unwrap_or(u64::MAX));
                self.host().client_bundle(conn, bundle);
            }
            Some((&CLIENT_BUNDLE_TAG, _)) => {}
            // The only other thing that clients here say is that they want their replies.
            _ => speakers.detach(index),
        }
        for copies in [&mut self.copies, &mut self.told].into_iter().flatten() {
            copies.push(Arrival::Client { index, message: message.clone() });
        }
    }
}

/// What a loss is to the protocol.
fn event_of(host: &Host<SimDisk>, loss: Loss) -> LinkEvent {
    host.loss(loss.lane, loss.direction == Direction::Incoming)
}

/// What happens on connections.
fn connection(
    lines: &mut [Option<Line>],
    ears: &mut Ears<'_>,
    now: Time,
    arrival: Arrival,
    trouble: &mut Vec<Read>,
) {
    match arrival {
        Arrival::Dialled { peer, conn } => {
            if let Some(line) = line_of(lines, peer) {
                line.conn = Some(conn);
                line.link.connect(now);
            }
        }
        Arrival::Accepted { peer, conn } => {
            if let Some(line) = line_of(lines, peer) {
                line.conn = Some(conn);
                line.link.accept(now);
            }
        }
        Arrival::Closed { peer, conn } => {
            if let Some(line) = line_of(lines, peer).filter(|line| line.conn == Some(conn)) {
                line.conn = None;
                line.link.disconnect();
            }
        }
        Arrival::Bytes { from, conn, bytes } => {
            let Some(line) = line_of(lines, from).filter(|line| line.conn == Some(conn)) else { return };
            let result = line.link.read(now, &bytes, &mut |event| match event {
                NetEvent::Up => ears.link(from, LinkEvent::Back),
                NetEvent::Lost(loss) => ears.link(from, event_of(ears.host, loss)),
                NetEvent::Frame { frame_type, body, .. } => ears.frame(from, frame_type, body),
                NetEvent::Closed { reason } => {
                    trouble.push(Read::Closed(from, String::from_utf8_lossy(reason).into_owned()));
                }
            });
            if let Err(refusal) = result {
                line.conn = None;
                line.link.disconnect();
                trouble.push(Read::Refused(from, conn, refusal.reason()));
            }
        }
        Arrival::Frame { .. } | Arrival::Apart { .. } | Arrival::Link(..) | Arrival::Client { .. } => {}
    }
}

fn line_of(lines: &mut [Option<Line>], peer: ReplicaId) -> Option<&mut Line> {
    lines.get_mut(peer.index())?.as_mut()
}
