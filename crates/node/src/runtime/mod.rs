//! The inline placement: one thread, one loop, one place to sleep.
//!
//! ```text
//! wait ─▶ read every readable socket ─▶ Host::turn ─▶ flush ─▶ wait
//! (the reactor's poll: nothing else in a replica ever waits, except the sync inside a turn)
//! ```
//!
//! The order inside a turn is [`quorate_host::Host::turn`]'s business; this file feeds it and gives it time.

mod alarms;
mod block_times;
mod clients;
mod clock;
mod descriptors;
mod links;
mod quarantine;
mod rare;
mod rejects;
mod status;
mod trouble;
mod wire;

pub use clients::Clients;
pub use clock::{Clock, wall_ns};
pub use rejects::{Origin, Rejects};
pub use status::Facts;

use crate::metered::Metered;
use alarms::{Alarms, LogLine};
use bytes::Bytes;
use links::{Links, Told};
use quarantine::Quarantine;
use quorate_consensus::LinkEvent;
use quorate_host::{Host, HostFault, HostSetup, Outgoing as _, TurnEnd, TurnWork};
use quorate_net::link::Identity;
use quorate_net::reactor::{
    ConnId as NetConn, Event, NetConfig, NetFault, PeerConfig, Reactor, Security, Who,
};
use quorate_net::{Direction, Refusal};
use quorate_replica::ConnId;
use quorate_storage::folder::{FolderError, FolderGuard};
use quorate_storage::{Disk, MemDisk, PAGE_BYTES, SEGMENT_BYTES};
use quorate_types::codec::Wire as _;
use quorate_types::wire::{CLIENT_BUNDLE_TAG, FromClient, FromReplica, VERSION};
use quorate_types::{ClusterId, ReplicaId, Time};
use rare::of_how_many;
use std::net::TcpListener;
use std::time::Duration;
use trouble::Trouble;
use wire::{Early, Wire};

/// Bytes read from all sockets in one turn; what is left is read in the next one, which does not sleep.
const TURN_BYTES: usize = 4 << 20;
/// Sleeps are not longer, so that a replica that was stopped in its sleep notices how long: it knows when it meant to
/// wake. One turn a second costs nothing.
const SLEEP_MAX_NS: u64 = 1_000_000_000;
/// Time for which body checks may hold up a turn, and time for which execution may.
const CHECK_SLICE_NS: u64 = 3_000_000;
const EXECUTE_SLICE_NS: u64 = 5_000_000;

/// The parts that a node runs with.
pub struct NodeSetup<D> {
    /// The replica with its application and key.
    pub host: HostSetup,
    /// The disk that keeps its promises.
    pub disk: D,
    /// Keys and addresses of all replicas, by id.
    pub peers: Vec<PeerConfig>,
    /// The protection of links.
    pub security: Security,
    /// The listener for peers.
    pub listen_peers: TcpListener,
    /// The listener for clients.
    pub listen_clients: TcpListener,
    /// The settings that `status` reports.
    pub facts: Facts,
    /// Its data folder, held as long as the node lives; `None` where nothing outlives the process.
    pub folder: Option<FolderGuard>,
}

/// Why a node stops.
#[derive(Debug, thiserror::Error)]
pub enum NodeFault {
    /// Disk, log or protocol.
    #[error(transparent)]
    Host(#[from] HostFault),
    /// Sockets.
    #[error(transparent)]
    Net(#[from] NetFault),
    /// The data folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// Opens a replica as a node does, on an empty disk in memory: whether it would, before there is a node.
///
/// # Errors
/// Why it does not open.
pub fn rehearse(setup: HostSetup) -> Result<(), NodeFault> {
    let disk = MemDisk::volatile(SEGMENT_BYTES, PAGE_BYTES);
    Host::open(setup, disk, &mut Early::default())?;
    Ok(())
}

/// A question of a client that came while sockets were read. It is answered after the turn, because nothing is sent while
/// a connection is being read.
enum Asked {
    Hello(ConnId),
    Status(ConnId),
    Close(ConnId, &'static str),
}

/// One replica on this machine.
pub struct Node<D: Disk> {
    host: Host<D>,
    net: Reactor,
    clients: Clients,
    rejects: Rejects,
    clock: Clock,
    facts: Facts,
    me: ReplicaId,
    cluster: ClusterId,
    asked: Vec<Asked>,
    trouble: Trouble,
    links: Links,
    quarantine: Quarantine,
    alarms: Alarms,
    progress: status::Progress,
}

impl<D: Disk> Node<D> {
    /// Opens the folder's state and the sockets.
    ///
    /// # Errors
    /// When the disk holds what does not fit, or a socket cannot be used.
    pub fn open(mut setup: NodeSetup<D>) -> Result<Self, NodeFault> {
        setup.host.application = Box::new(Metered(setup.host.application));
        let committee = setup.host.replica.committee.clone();
        let me = setup.host.replica.me;
        let mut early = Early::default();
        let mut host = Host::open(setup.host, setup.disk, &mut early)?;
        let identity = Identity {
            cluster: committee.cluster,
            epoch: committee.epoch,
            protocol: committee.protocol,
            me,
            // Durable since `Host::open`: peers tell this life from earlier ones by it.
            incarnation: host.replica().incarnation(),
        };
        let mut config = NetConfig::new(identity, setup.peers, setup.security, setup.listen_peers);
        config.listen_clients = Some(setup.listen_clients);
        config.client_connections_max = descriptors::client_connections_max(&config);
        let quarantine = Quarantine::open(setup.folder, host.replica().incarnation(), committee.weak())?;
        let delta_ns = host.replica().guard().map(|guard| guard.bound.delta_ns);
        let net = Reactor::new(config)?;
        // Not before: to read a long log takes a while, and what a replica waits for from its opening on it waits for in vain
        // as long as nobody can reach it (`sync-hotstuff` §18).
        let clock = Clock::default();
        host.set_wall_offset(wall_ns().saturating_sub(clock.now().0));
        let mut node = Self {
            net,
            host,
            clients: Clients::default(),
            rejects: Rejects::default(),
            clock,
            facts: setup.facts,
            me,
            cluster: committee.cluster,
            asked: Vec::new(),
            trouble: Trouble::new(delta_ns),
            links: Links::default(),
            quarantine,
            alarms: Alarms::new(me),
            progress: status::Progress::default(),
        };
        let mut wire = Wire {
            net: &mut node.net,
            clients: &mut node.clients,
            rejects: &mut node.rejects,
            now: Time::ZERO,
            clock: node.clock,
        };
        wire.urgent(early.urgent);
        for (to, lane, frame_type, body) in early.frames {
            wire.peer(to, lane, frame_type, body);
        }
        node.heed_quarantine();
        Ok(node)
    }

    /// Ends the links of a replica that must take no part.
    fn heed_quarantine(&mut self) {
        if let Some(why) = self.quarantine.why() {
            tracing::error!("{}", quarantine::words(why));
            self.net.cut_off();
        }
    }

    /// Runs until `is_asked` to stop, which is looked at after each pass: once a second at least, and soon after a signal.
    ///
    /// # Errors
    /// Why it stopped without being asked.
    pub fn run(&mut self, is_asked: &mut dyn FnMut() -> bool) -> Result<(), NodeFault> {
        let mut end = TurnEnd::Owing;
        while !is_asked() {
            end = match self.pass(end) {
                Ok(end) => end,
                Err(fault) => {
                    // Why it stops may be that its state differs from the others'.
                    self.look_for_alarms();
                    return Err(fault);
                }
            };
        }
        Ok(())
    }

    /// Sleeps if nothing is owed, but not for ever, then takes one turn.
    fn pass(&mut self, end: TurnEnd) -> Result<TurnEnd, NodeFault> {
        let before = self.clock.now();
        let wake = match end {
            TurnEnd::Owing => before,
            TurnEnd::Idle => self.time_to_wake(before),
        };
        self.net.wait(Some(Duration::from_nanos(wake.since(before))))?;
        // Before the read: what arrived by `due` will be among the frames.
        let due = self.clock.now();
        let is_bound = self.host.replica().delta_ns().is_some();
        if is_bound || self.host.deadline().is_some_and(|at| at <= due) {
            // A timer will fire: what arrived between the poll and `due` must be known before it does. And before anything is said
            // where safety rests on a bound on delays.
            self.net.wait(Some(Duration::ZERO))?;
        }
        let drained = self.read(due)?;
        self.net.tick(due);
        let now = self.clock.now();
        let mut slices = Slices { clock: self.clock, checking: now, executing: None };
        let mut wire = Wire {
            net: &mut self.net,
            clients: &mut self.clients,
            rejects: &mut self.rejects,
            now,
            clock: self.clock,
        };
        let end = self.host.turn(now, Some(due), drained, &mut |work| slices.more(work), &mut wire)?;
        self.answer_asked(now);
        // What it slept beyond its time it was kept from working: it stood still.
        self.look(due.min(wake));
        self.look_for_alarms();
        Ok(end)
    }

    /// Tells of what went wrong in the pass that began at `began`.
    fn look(&mut self, began: Time) {
        let sync_ns = self.host.take_longest_sync_ns();
        let now = self.clock.now();
        if let Some(line) = self.trouble.passed(now, now.since(began), sync_ns) {
            tracing::warn!("{line}");
        }
        self.look_at_links(now);
        let replica = self.host.replica();
        self.progress.look(
            now,
            replica.waiting(),
            replica.decided_and_executed(),
            replica.delta_ns().is_some(),
        );
        if let Some(line) =
            self.trouble.out(now, || replica.is_out(), replica.decided_and_executed().0.next())
        {
            tracing::warn!("{line}");
        }
        let (view, leader) = replica.leader();
        let why = || replica.status().last_view_change.to_string();
        if let Some(line) = self.trouble.leads(now, view, leader, why) {
            tracing::info!("{line}");
        }
        if let Some(doubt) = replica.doubt() {
            let (alarm, alarms) = replica.doubted();
            let lines = [
                self.trouble.doubt(now, doubt, || replica.guard()),
                self.trouble.alarmed(now, alarm, alarms),
                self.trouble.round_trips(now, || replica.guard()),
            ];
            lines.iter().flatten().for_each(|line| tracing::warn!("{line}"));
        }
    }

    fn look_at_links(&mut self, now: Time) {
        self.links.untold(now).iter().for_each(|line| tracing::info!("{line}"));
        let is_any_down =
            self.quarantine.why().is_none() && self.net.links_up().saturating_add(1) < self.facts.n;
        let missing = self.links.missing(now, is_any_down, || self.net.peers());
        let earlier = self.links.earlier_lives(now, || self.net.peers());
        missing.iter().chain(&earlier).for_each(|line| tracing::warn!("{line}"));
    }

    /// Looks at the states of the others, and at the time of what was executed.
    fn look_for_alarms(&mut self) {
        let Self { host, alarms, clock, .. } = self;
        let now = clock.now();
        let mut lines = alarms.look_at_states(now, host.replica());
        if !host.executor().stamps().is_empty() {
            lines.extend(alarms.look_at_times(now, wall_ns(), host.replica(), host.executor()));
            host.executor_mut().clear_stamps();
        }
        lines.into_iter().for_each(LogLine::log);
    }

    /// When the next thing is due that is not an arrival.
    fn time_to_wake(&self, now: Time) -> Time {
        let latest = now.plus(SLEEP_MAX_NS);
        [self.host.deadline(), self.net.deadline()].into_iter().flatten().fold(latest, Time::min).max(now)
    }

    /// Hands everything that has arrived to the host. Nothing is sent meanwhile.
    fn read(&mut self, now: Time) -> Result<bool, NodeFault> {
        let Self { host, net, clients, rejects, asked, cluster, links, quarantine, .. } = self;
        net.hold(host.paused_peers());
        let mut is_denied = Ok(false);
        let mut denied = |denied: Result<bool, FolderError>| match (&mut is_denied, denied) {
            (Ok(is_denied), Ok(denied)) => *is_denied |= denied,
            (is_denied, Err(error)) => *is_denied = Err(error),
            (Err(_), Ok(_)) => {}
        };
        let drained = net.read_ready(now, TURN_BYTES, &mut |event| match event {
            Event::Peer { from, frame_type, body, .. } => host.peer_frame(from, frame_type, body),
            Event::PeerUp(peer) => {
                tell(links.changed(now, peer, true).map(Told::Usual));
                host.link(peer, LinkEvent::Back);
            }
            Event::PeerDown(peer) => tell(links.changed(now, peer, false).map(Told::Usual)),
            Event::Lost { peer, direction, lane, from, to } => {
                tell(links.lost(now, peer, (direction, lane), (from, to)));
                host.link(peer, host.loss(lane, direction == Direction::Incoming));
            }
            Event::ClientUp { conn, address } => clients.up(ConnId(conn.0), address),
            Event::Client { conn, body } => {
                let conn = ConnId(conn.0);
                match body.split_first() {
                    _ if clients.is_closing(conn) => {}
                    Some((&CLIENT_BUNDLE_TAG, bundle)) if clients.is_greeted(conn) => {
                        host.client_bundle(conn, bundle);
                    }
                    _ => match client_message(clients, *cluster, conn, body, now) {
                        Ok(None) => {}
                        Ok(Some(answer)) => asked.push(answer),
                        Err(Refused::Unheard(reason)) => rejects.count(clients.origin(conn), reason),
                        Err(Refused::Closed(conn, reason)) => {
                            clients.close(conn);
                            asked.push(Asked::Close(conn, reason));
                        }
                    },
                }
            }
            Event::ClientDown(conn) => clients.down(ConnId(conn.0)),
            Event::Refused { who, why } => {
                if let Some(count) = rejects.tell(now, who.into(), why.reason()) {
                    tracing::warn!("connection of {who} refused: {why}{}{}", of_how_many(count), advice(why));
                }
                if let Who::Replica(peer) = who {
                    denied(quarantine.refused(peer, why));
                }
            }
            Event::Closed { by, reason } => {
                // The words are the other side's own: they are shown, and counted under a name of ours.
                if let Some(count) = rejects.tell(now, Origin::Replica(by), "refuses our connection") {
                    tracing::warn!("replica {by} refuses our connection: {reason}{}", of_how_many(count));
                }
            }
        });
        if is_denied? {
            self.heed_quarantine();
        }
        Ok(drained)
    }

    fn answer_asked(&mut self, now: Time) {
        wire::tell_displaced(&mut self.clients, &mut self.net, &mut self.rejects);
        if self.asked.is_empty() {
            return;
        }
        // Strangers may ask, and many at once: all of them are told the same.
        let mut status = None;
        for asked in std::mem::take(&mut self.asked) {
            let (conn, message) = match asked {
                Asked::Hello(conn) => {
                    let hello = FromReplica::Hello { version: VERSION, cluster: self.cluster, id: self.me };
                    (conn, hello.to_bytes().into())
                }
                Asked::Status(conn) => {
                    let encode = || Bytes::from(FromReplica::Status(self.status_json(now)).to_bytes());
                    (conn, status.get_or_insert_with(encode).clone())
                }
                Asked::Close(conn, reason) => {
                    self.rejects.count(self.clients.origin(conn), reason);
                    self.net.close_client(NetConn(conn.0), reason);
                    continue;
                }
            };
            // A connection that is gone by now needs no answer.
            let _ = self.net.send_client(NetConn(conn.0), &|out| out.extend_from_slice(&message));
        }
        self.net.flush(now);
    }
}

fn tell(line: Option<Told>) {
    match line {
        None => {}
        Some(Told::Usual(line)) => tracing::info!("{line}"),
        Some(Told::Bad(line)) => tracing::warn!("{line}"),
    }
}

/// The place where an operator should look, where that is not obvious.
const fn advice(why: Refusal) -> &'static str {
    match why {
        // A peer that lies can say so too; when several do, it is so.
        Refusal::NeverSent => {
            "; if several replicas say so, this one has said more than its disk knows: an old backup was put in the \
             place of its disk, or its key runs on a second machine. It must not take part: stop it"
        }
        _ => "",
    }
}

/// The fate of a message of a client that is not answered.
enum Refused {
    /// It is counted, and nothing else happens.
    Unheard(&'static str),
    /// This connection, mostly its own, is closed.
    Closed(ConnId, &'static str),
}

/// Takes in a client's message that is no bundle.
fn client_message(
    clients: &mut Clients,
    cluster: ClusterId,
    conn: ConnId,
    body: &[u8],
    now: Time,
) -> Result<Option<Asked>, Refused> {
    let close = |reason| Err(Refused::Closed(conn, reason));
    match FromClient::from_bytes(body) {
        Ok(FromClient::Hello { version, .. }) if version != VERSION => close("another wire version"),
        Ok(FromClient::Hello { cluster: meant, .. }) if meant != cluster => close("another cluster"),
        Ok(FromClient::Hello { .. }) if clients.greet(conn) => Ok(Some(Asked::Hello(conn))),
        Ok(FromClient::Hello { .. }) => close("second hello"),
        Ok(_) if !clients.is_greeted(conn) => close("no hello"),
        Ok(FromClient::Attach(wanted)) => {
            clients.attach(conn, &wanted).map_err(|conn| Refused::Closed(conn, "too many clients"))?;
            Ok(None)
        }
        Ok(FromClient::Status) if clients.may_ask_status(conn, now) => Ok(Some(Asked::Status(conn))),
        Ok(FromClient::Status) => Err(Refused::Unheard("status asked too often")),
        // Bundles of greeted connections do not come this way.
        Ok(FromClient::Bundle { .. }) | Err(_) => close("malformed message"),
    }
}

/// Time of a turn that each kind of work has used.
struct Slices {
    clock: Clock,
    checking: Time,
    executing: Option<Time>,
}

impl Slices {
    fn more(&mut self, work: TurnWork) -> bool {
        let now = self.clock.now();
        match work {
            TurnWork::Check => now.since(self.checking) < CHECK_SLICE_NS,
            TurnWork::Execute => now.since(*self.executing.get_or_insert(now)) < EXECUTE_SLICE_NS,
        }
    }
}

#[cfg(test)]
mod tests;
