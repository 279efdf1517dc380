//! One replica in the world: its machine (disk, connections, clock), and the replica itself while it runs.

use crate::arrival::{Arrival, TwinHalf};
use crate::byzantine::Role;
use crate::client_connections::ClientConnections;
use crate::clock::Clock;
use crate::disk::{DiskFlaw, SharedDisk, SimDisk, Survives};
use crate::instrumented_store::{InstrumentedStore, Journal, StoreFlaw};
use crate::replay_check::ReplayCheck;
use crate::settings::{Cluster, Settings};
use crate::turn_output::{TurnOutput, TurnSink};
use bytes::Bytes;
use quorate_consensus::{Alarm, LinkEvent};
use quorate_host::{Host, HostFault, HostSetup, TurnEnd, TurnWork};
use quorate_net::link::{Identity, LinkEvent as NetEvent};
use quorate_net::{Direction, Link, Loss, ResendLimits};
use quorate_replica::{ConnId, ReplicaSetup};
use quorate_storage::MemDisk;
use quorate_types::codec::Wire as _;
use quorate_types::digest::context;
use quorate_types::rng::Rng;
use quorate_types::wire::{CLIENT_BUNDLE_TAG, FromClient};
use quorate_types::{ClientId, Height, Incarnation, ReplicaId, ReplicaSet, Time};

/// Wall-clock time at the beginning of a world: some day in 2026.
pub(crate) const WALL_NS: u64 = 1_770_000_000_000_000_000;
/// Longest time that checks or execution may take in a turn.
const SLICE_NS: u64 = 3_000_000;

/// Damage to the durable data of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Damage {
    /// No damage.
    None,
    /// A temporary failure: the replica may stop, and recovers later.
    DiskTrouble,
    /// Damage in the middle of the data: the replica may stop for good, and keeps its promises while it runs.
    Broken,
    /// Unnoticeable loss of durable data: the replica may break promises.
    Forgetful,
}

/// The link to one peer and its connection.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) link: Link,
    pub(crate) conn: Option<u64>,
}

/// A running replica.
pub(crate) struct Running {
    pub(crate) host: Host,
    pub(crate) clock: Clock,
    /// Links by peer; `None` for the replica itself. Empty where frames travel as datagrams.
    pub(crate) peer_links: Vec<Option<PeerLink>>,
    /// Executed height at the last check.
    pub(crate) executed: Height,
    pub(crate) is_owing: bool,
    /// Whether the replica must be closed and opened anew. It takes no turn any more.
    pub(crate) must_reopen: bool,
    /// The alarm for which it must, if its state is not the one that a quorum has signed.
    pub(crate) diverged: Option<Alarm>,
    /// The second copy of the replica, if the settings ask for one.
    pub(crate) replay_check: Option<ReplayCheck>,
}

impl Running {
    /// Returns the replica's own time.
    pub(crate) fn local(&self, now: Time) -> Time {
        self.clock.local(now)
    }

    pub(crate) fn peer_link(&mut self, peer: ReplicaId) -> Option<&mut PeerLink> {
        peer_link_of(&mut self.peer_links, peer)
    }
}

/// The machine of one replica.
pub(crate) struct Machine {
    pub(crate) disk: SharedDisk,
    /// A deliberate flaw of the disk, from the next start on.
    pub(crate) disk_flaw: DiskFlaw,
    /// The damage that the disk has suffered.
    pub(crate) damage: Damage,
    /// The disk after the last crash, if any crash so far has kept bytes that were not synced. Those bytes are as
    /// durable as synced ones from then on.
    pub(crate) survived: Option<MemDisk>,
    /// The number of openings before the disk was lost; `None` as long as it was not.
    pub(crate) amnesiac_from: Option<Incarnation>,
    /// Unsynced bytes that survive the planned power cut at a step of the machine.
    pub(crate) fuse: Option<Survives>,
    disk_rng: Rng,
}

/// The service of one replica.
pub(crate) struct Service {
    /// Operations that the service has applied and no oracle has read yet.
    pub(crate) journal: Journal,
    /// A deliberate flaw of the service, from the next start on.
    pub(crate) flaw: StoreFlaw,
}

/// The errors of a machine's clocks.
#[derive(Default)]
pub(crate) struct ClockErrors {
    /// Offset of the wall clock, from the next start on.
    pub(crate) skew_ns: i64,
    /// Rate error of the replica's time, in millionths.
    pub(crate) drift_ppm: i64,
}

/// The schedule of a replica's turns.
#[derive(Default)]
pub(crate) struct Agenda {
    /// End of the last turn.
    pub(crate) busy_until: Time,
    /// End of a pause of the process.
    pub(crate) paused_until: Time,
    /// The scheduled event that counts; earlier ones are void.
    pub(crate) wake: Option<(Time, u64)>,
    pub(crate) wakes: u64,
    /// Consecutive turns without an arrival and almost without progress of time.
    pub(crate) spins: u32,
    pub(crate) turns: u64,
    /// Whether the machine dies at the end of the current turn.
    pub(crate) is_doomed: bool,
}

/// A place for one replica: its machine, and the replica itself while it runs.
pub(crate) struct ReplicaSlot {
    pub(crate) id: ReplicaId,
    pub(crate) machine: Machine,
    pub(crate) service: Service,
    pub(crate) clock: ClockErrors,
    pub(crate) agenda: Agenda,
    pub(crate) role: Role,
    pub(crate) running: Option<Box<Running>>,
    pub(crate) inbox: Vec<Arrival>,
    /// Arrivals that this turn has read, while the trace has a reader.
    pub(crate) read_log: Option<Vec<Arrival>>,
    pub(crate) client_connections: ClientConnections,
    /// Starts of the replica so far.
    pub(crate) opens: u64,
    /// The reason for which the replica has stopped by itself or did not open, the last time that it did.
    pub(crate) why_stopped: Option<String>,
    /// Peers that have refused a connection with this replica, or were refused by it, since it was opened.
    pub(crate) refused: ReplicaSet,
    /// The second replica of a twin, with a disk and a life of its own behind the same links.
    pub(crate) second: Option<Box<Self>>,
    /// Whether the host has input for the next turn.
    has_read: bool,
    work_rng: Rng,
}

/// Events on connections while the inbox is read.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// The peer broke a rule, so the connection must be closed.
    Refused(ReplicaId, u64, &'static str),
    /// The peer closed the connection, with its reason.
    Closed(ReplicaId, String),
}

impl ReplicaSlot {
    pub(crate) fn new(id: ReplicaId, disk: SharedDisk, rng: &mut Rng) -> Self {
        let (work_rng, disk_rng) = (rng.fork(), rng.fork());
        Self {
            id,
            machine: Machine {
                disk,
                disk_flaw: DiskFlaw::None,
                damage: Damage::None,
                survived: None,
                amnesiac_from: None,
                fuse: None,
                disk_rng,
            },
            service: Service { journal: Journal::default(), flaw: StoreFlaw::None },
            clock: ClockErrors::default(),
            agenda: Agenda::default(),
            role: Role::Honest,
            running: None,
            inbox: Vec::new(),
            read_log: None,
            client_connections: ClientConnections::default(),
            opens: 0,
            why_stopped: None,
            refused: ReplicaSet::EMPTY,
            second: None,
            has_read: false,
            work_rng,
        }
    }

    /// Opens a replica on its disk. Its messages meanwhile wait in `output`.
    pub(crate) fn open(
        &mut self,
        now: Time,
        settings: &Settings,
        cluster: &Cluster,
        output: &mut TurnOutput,
    ) -> Result<(), HostFault> {
        self.opens = self.opens.saturating_add(1);
        self.refused = ReplicaSet::EMPTY;
        self.service.journal.look().clear();
        let key = cluster.keys.get(self.id.index()).cloned();
        let Some(key) = key else { return Ok(()) };
        let store = InstrumentedStore::new(self.service.journal.clone(), self.service.flaw, self.opens);
        let setup = HostSetup {
            entry: settings.entry,
            replica: ReplicaSetup {
                me: self.id,
                committee: cluster.committee.clone(),
                genesis: cluster.genesis.clone(),
                params: cluster.params.clone(),
                wall_offset_ns: WALL_NS.saturating_add(now.0).saturating_add_signed(self.clock.skew_ns),
                secret: key.secret(&context::PROBE),
            },
            key,
            scheme: settings.scheme,
            application: match &settings.companion {
                Some(companion) => (companion.0)(Box::new(store)),
                None => Box::new(store),
            },
            amnesiac_from: self.machine.amnesiac_from,
            keep_bytes: settings.storage.keep_bytes,
            disk_bytes_max: settings.storage.disk_bytes_max,
            snapshot_every_bytes: settings.storage.snapshot_every_bytes,
            far_heights: settings.storage.far_heights,
        };
        if !self.machine.disk.open_wrongly(self.machine.disk_flaw) {
            let (doing, error) = ("opening", "made to refuse a torn tail".to_owned());
            return Err(HostFault::Storage(quorate_storage::Fault::Io { doing, error }));
        }
        let disk =
            SimDisk::new(self.machine.disk.clone(), self.machine.disk_rng.fork(), self.machine.disk_flaw);
        let follows = settings.replay && matches!(self.role, Role::Honest);
        let replay_check = follows.then(|| ReplayCheck::of(&setup.entry, setup.replica.clone()));
        let mut sink = TurnSink {
            output,
            disk: &self.machine.disk,
            client_connections: &self.client_connections,
            replay_check: replay_check.as_ref(),
            clock: None,
        };
        let mut host = Host::open(setup, Box::new(disk), &mut sink)?;
        if !matches!(self.role, Role::Honest) {
            host.ignore_own_statements();
        }
        let executed = host.executor().execution().height();
        self.running = Some(Box::new(Running {
            host,
            clock: Clock::new(now, self.clock.drift_ppm),
            peer_links: Vec::new(),
            executed,
            is_owing: true,
            must_reopen: false,
            diverged: None,
            replay_check,
        }));
        Ok(())
    }

    /// Gives a newly opened replica its links. Their numbers begin anew with its incarnation.
    pub(crate) fn open_links(&mut self, cluster: &Cluster) {
        let me = self.id;
        let Some(running) = &mut self.running else { return };
        // Peers would ignore a replica that forgets its incarnations, which would make this attack harmless.
        let incarnation = match self.role {
            Role::Byzantine(_) => Incarnation(self.opens),
            Role::Honest | Role::Controlled(_) => running.host.replica().incarnation(),
        };
        let identity = Identity {
            cluster: cluster.committee.cluster,
            epoch: cluster.committee.epoch,
            protocol: cluster.committee.protocol,
            me,
            incarnation,
        };
        running.peer_links = cluster
            .committee
            .ids()
            .map(|peer| {
                (peer != me).then(|| PeerLink {
                    link: Link::new(identity, peer, ResendLimits::default()),
                    conn: None,
                })
            })
            .collect();
    }

    /// Hands the inbox to the replica, or to both halves of a twin.
    pub(crate) fn read(&mut self, now: Time, connection_events: &mut Vec<ConnectionEvent>) {
        let Self { running, inbox, read_log, client_connections, role, second, has_read, .. } = self;
        *has_read = false;
        let Some(running) = running else {
            inbox.clear();
            return;
        };
        let Running { host, peer_links, .. } = &mut **running;
        let backwards = matches!(role, Role::Byzantine(behaviour) if behaviour.reads_backwards());
        let mut receiver = Receiver { host, has_read, is_deaf: false, copies: None, log: read_log.as_mut() };
        match (role, second.as_mut()) {
            (Role::Controlled(input), _) => {
                receiver.is_deaf = true;
                receiver.copies = Some(input);
            }
            (_, Some(second)) => receiver.copies = Some(&mut second.inbox),
            _ => {}
        }
        for arrival in inbox.drain(..) {
            match arrival {
                Arrival::Frame { from, frame_type, body } => receiver.frame(from, frame_type, &body),
                Arrival::Apart { from, frame_type, body, half } => match half {
                    TwinHalf::First => receiver.host().peer_frame(from, frame_type, &body),
                    TwinHalf::Second => receiver.copy(Arrival::Frame { from, frame_type, body }),
                },
                Arrival::Link(peer, event) => receiver.link(peer, event),
                Arrival::Client { index, message } => receiver.client(client_connections, index, message),
                arrival => connection(peer_links, &mut receiver, now, arrival, connection_events),
            }
        }
        if let Some(second) = second {
            if backwards {
                second.inbox.reverse();
            }
            second.read(now, connection_events);
        }
    }

    /// Registers a connection for a client's replies.
    pub(crate) fn attach(&mut self, index: usize, client: ClientId) {
        self.client_connections.attach(index, client);
        if let Some(second) = &mut self.second {
            second.client_connections.attach(index, client);
        }
    }

    /// Removes a connection of a client.
    pub(crate) fn detach(&mut self, index: usize) {
        self.client_connections.detach(index);
        if let Some(running) = &mut self.running {
            running.host.client_gone(ConnId(u64::try_from(index).unwrap_or(u64::MAX)));
        }
        if let Some(second) = &mut self.second {
            second.client_connections.detach(index);
        }
    }

    /// Whether a turn would do anything. The work of links and their acknowledgements needs no turn.
    fn is_due(&self, now: Time) -> bool {
        self.running.as_ref().is_some_and(|running| {
            let deadline = running.host.deadline().map(|at| running.clock.world(at));
            let is_due = self.has_read || running.is_owing || deadline.is_some_and(|at| at <= now);
            is_due && !running.must_reopen
        })
    }

    /// Takes a turn.
    pub(crate) fn turn(&mut self, now: Time, output: &mut TurnOutput) -> Result<(), HostFault> {
        if !self.is_due(now) {
            return Ok(());
        }
        self.agenda.turns = self.agenda.turns.saturating_add(1);
        let Self { running, machine, client_connections, work_rng, .. } = self;
        let Some(running) = running else { return Ok(()) };
        let local = running.local(now);
        let mut sink = TurnSink {
            output,
            disk: &machine.disk,
            client_connections,
            replay_check: None,
            clock: Some((running.clock, now)),
        };
        let mut more = |what| {
            machine.disk.watch(|watch| {
                watch.work(work_rng, what == TurnWork::Execute);
                watch.spent_ns < SLICE_NS
            })
        };
        let end = match running.host.turn(local, Some(local), true, &mut more, &mut sink) {
            Err(HostFault::Stopped(alarm @ Alarm::StateDiverged { height })) => {
                running.host.distrust(height)?;
                running.diverged = Some(alarm);
                TurnEnd::Transferred
            }
            end => end?,
        };
        running.is_owing = end == TurnEnd::Owing;
        running.must_reopen = end == TurnEnd::Transferred;
        Ok(())
    }

    /// Returns when the next turn is due, if nothing arrives before.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let running = self.running.as_ref().filter(|running| !running.must_reopen)?;
        if running.is_owing || !self.inbox.is_empty() {
            return Some(self.agenda.busy_until);
        }
        let host = running.host.deadline().map(|at| running.clock.world(at));
        let peer_links =
            running.peer_links.iter().flatten().filter_map(|peer_link| peer_link.link.deadline());
        let second = self.second.as_ref().and_then(|second| second.deadline());
        host.into_iter().chain(peer_links).chain(second).min().map(|at| at.max(self.agenda.busy_until))
    }
}

impl Running {
    /// Handles expired deadlines of links: acknowledgements, and handshakes that take too long.
    pub(crate) fn tick_links(&mut self, now: Time, connection_events: &mut Vec<ConnectionEvent>) {
        for peer_link in self.peer_links.iter_mut().flatten() {
            if let (Err(refusal), Some(conn)) = (peer_link.link.tick(now), peer_link.conn) {
                peer_link.conn = None;
                peer_link.link.disconnect();
                connection_events.push(ConnectionEvent::Refused(
                    peer_link.link.peer(),
                    conn,
                    refusal.reason(),
                ));
            }
        }
    }

    /// Reports losses that links noticed while they wrote.
    pub(crate) fn take_link_losses(&mut self) {
        let Self { host, peer_links, .. } = self;
        for peer_link in peer_links.iter_mut().flatten() {
            let peer = peer_link.link.peer();
            peer_link.link.losses(&mut |event| {
                if let NetEvent::Lost(loss) = event {
                    host.link(peer, event_of(host, loss));
                }
            });
        }
    }
}

/// Receivers of a slot's input.
struct Receiver<'a> {
    host: &'a mut Host,
    /// Whether the host has received input.
    has_read: &'a mut bool,
    /// Whether the replica itself receives nothing.
    is_deaf: bool,
    /// A second receiver of all input.
    copies: Option<&'a mut Vec<Arrival>>,
    /// The log of input for the trace.
    log: Option<&'a mut Vec<Arrival>>,
}

impl Receiver<'_> {
    fn host(&mut self) -> &mut Host {
        *self.has_read = true;
        self.host
    }

    /// Passes input to the second half of a twin only.
    fn copy(&mut self, arrival: Arrival) {
        if let Some(copies) = &mut self.copies {
            copies.push(arrival);
        }
    }

    fn frame(&mut self, from: ReplicaId, frame_type: u8, body: &[u8]) {
        for copies in [&mut self.copies, &mut self.log].into_iter().flatten() {
            copies.push(Arrival::Frame { from, frame_type, body: Bytes::copy_from_slice(body) });
        }
        if !self.is_deaf {
            self.host().peer_frame(from, frame_type, body);
        }
    }

    fn link(&mut self, peer: ReplicaId, event: LinkEvent) {
        for copies in [&mut self.copies, &mut self.log].into_iter().flatten() {
            copies.push(Arrival::Link(peer, event));
        }
        if !self.is_deaf {
            self.host().link(peer, event);
        }
    }

    fn client(&mut self, client_connections: &mut ClientConnections, index: usize, message: Bytes) {
        match message.split_first() {
            Some((&CLIENT_BUNDLE_TAG, bundle)) if !self.is_deaf => {
                let conn = ConnId(u64::try_from(index).unwrap_or(u64::MAX));
                self.host().client_bundle(conn, bundle);
            }
            Some((&CLIENT_BUNDLE_TAG, _)) => {}
            _ => match FromClient::from_bytes(&message) {
                Ok(FromClient::AskOrder { client, bundle }) if !self.is_deaf => {
                    let conn = ConnId(u64::try_from(index).unwrap_or(u64::MAX));
                    self.host().ask_order(conn, client, bundle);
                }
                Ok(FromClient::AskOrder { .. }) => {}
                // The only other message of a client here is a request for its replies.
                _ => client_connections.detach(index),
            },
        }
        for copies in [&mut self.copies, &mut self.log].into_iter().flatten() {
            copies.push(Arrival::Client { index, message: message.clone() });
        }
    }
}

/// Returns the event that a loss means to the protocol.
fn event_of(host: &Host, loss: Loss) -> LinkEvent {
    host.loss(loss.lane, loss.direction == Direction::Incoming)
}

/// Handles an event of a connection.
fn connection(
    peer_links: &mut [Option<PeerLink>],
    receiver: &mut Receiver<'_>,
    now: Time,
    arrival: Arrival,
    connection_events: &mut Vec<ConnectionEvent>,
) {
    match arrival {
        Arrival::Dialled { peer, conn } => {
            if let Some(peer_link) = peer_link_of(peer_links, peer) {
                peer_link.conn = Some(conn);
                peer_link.link.connect(now);
            }
        }
        Arrival::Accepted { peer, conn } => {
            if let Some(peer_link) = peer_link_of(peer_links, peer) {
                peer_link.conn = Some(conn);
                peer_link.link.accept(now);
            }
        }
        Arrival::Closed { peer, conn } => {
            if let Some(peer_link) =
                peer_link_of(peer_links, peer).filter(|peer_link| peer_link.conn == Some(conn))
            {
                peer_link.conn = None;
                peer_link.link.disconnect();
            }
        }
        Arrival::Bytes { from, conn, bytes } => {
            let Some(peer_link) =
                peer_link_of(peer_links, from).filter(|peer_link| peer_link.conn == Some(conn))
            else {
                return;
            };
            let result = peer_link.link.read(now, &bytes, &mut |event| match event {
                NetEvent::Up => receiver.link(from, LinkEvent::Back),
                NetEvent::Lost(loss) => receiver.link(from, event_of(receiver.host, loss)),
                NetEvent::Frame { frame_type, body, .. } => receiver.frame(from, frame_type, body),
                NetEvent::Closed { reason } => {
                    connection_events
                        .push(ConnectionEvent::Closed(from, String::from_utf8_lossy(reason).into_owned()));
                }
            });
            if let Err(refusal) = result {
                peer_link.conn = None;
                peer_link.link.disconnect();
                connection_events.push(ConnectionEvent::Refused(from, conn, refusal.reason()));
            }
        }
        Arrival::Frame { .. } | Arrival::Apart { .. } | Arrival::Link(..) | Arrival::Client { .. } => {}
    }
}

fn peer_link_of(peer_links: &mut [Option<PeerLink>], peer: ReplicaId) -> Option<&mut PeerLink> {
    peer_links.get_mut(peer.index())?.as_mut()
}
