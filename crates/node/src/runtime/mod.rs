//! The inline placement: one thread, one loop, one place to sleep.
//!
//! ```text
//! wait ─▶ read every readable socket ─▶ Host::turn ─▶ flush ─▶ wait
//! (the reactor's poll: nothing else in a replica ever waits, except the sync inside a turn)
//! ```
//!
//! [`quorate_host::Host::turn`] fixes the order inside a turn; this file gives it inputs and time.

mod alarms;
mod block_times;
mod clients;
mod clock;
mod descriptors;
mod full_disk;
mod links;
mod log_lines;
mod quarantine;
mod rejects;
mod reporter;
mod status;
mod stop;
mod transfer_lines;
mod wire;

pub use clients::Clients;
pub use clock::{NodeClock, wall_ns};
pub use rejects::{Origin, Rejects};
pub use status::Facts;

use crate::disguise::Disguise;
use crate::metered::MeteredApplication;
use crate::step_times::StepTimes;
use alarms::Alarms;
use bytes::Bytes;
use links::Links;
use log_lines::LogLine;
use quarantine::Quarantine;
pub(crate) use quarantine::alarm as excluded;
use quorate_consensus::{Alarm, LinkEvent};
use quorate_host::{DivergedState, Host, HostFault, HostSetup, Outgoing as _, TurnEnd, TurnWork};
use quorate_net::link::Identity;
use quorate_net::reactor::{
    ConnId as NetConn, Event, NetConfig, NetFault, PeerConfig, Reactor, Security, Who,
};
use quorate_net::{Direction, Refusal};
use quorate_replica::ConnId;
use quorate_storage::folder::{FolderError, FolderGuard};
use quorate_storage::{Disk, Fault, MemDisk, PAGE_BYTES, SEGMENT_BYTES};
use quorate_types::codec::Wire as _;
use quorate_types::wire::{CLIENT_BUNDLE_TAG, FromClient, FromReplica, StopAnswer, VERSION};
use quorate_types::{BundleDigest, ClientId, ClusterId, ReplicaId, Time};
use reporter::EventReporter;
use std::net::TcpListener;
use std::time::Duration;
use stop::StopGate;
use transfer_lines::TransferLines;
use wire::{EarlyOutput, NodeOutput};

/// Bytes read from all sockets in one turn; the next turn reads the rest, and does not sleep before.
const TURN_BYTES: usize = 4 << 20;
/// The longest sleep. A replica that was stopped in its sleep compares the time with its planned wake-up, so it notices the
/// duration. One turn a second costs nothing.
const SLEEP_MAX_NS: u64 = 1_000_000_000;
/// The time for which body checks may delay a turn.
const CHECK_SLICE_NS: u64 = 3_000_000;
/// The time for which execution may delay a turn.
const EXECUTE_SLICE_NS: u64 = 5_000_000;

/// The parts of a node.
pub struct NodeSetup {
    /// The replica with its application and key.
    pub host: HostSetup,
    /// The disk that keeps its promises.
    pub disk: Box<dyn Disk>,
    /// Keys and addresses of all replicas, by id.
    pub peers: Vec<PeerConfig>,
    /// The protection of links.
    pub security: Security,
    /// The listener for peers.
    pub listen_peers: TcpListener,
    /// The listener for clients.
    pub listen_clients: TcpListener,
    /// The emulated one-way delays of frames to each replica, in nanoseconds, by id; empty for none.
    pub link_delays_ns: Vec<u64>,
    /// The settings that `status` reports.
    pub facts: Facts,
    /// Whether the admin's key may stop the node.
    pub allow_stop: bool,
    /// The data folder, held as long as the node lives; `None` if no data outlives the process.
    pub folder: Option<FolderGuard>,
}

/// The reason why a node stops.
#[derive(Debug, thiserror::Error)]
pub enum NodeFault {
    /// A fault of disk, log or protocol.
    #[error(transparent)]
    Host(#[from] HostFault),
    /// A fault of sockets.
    #[error(transparent)]
    Net(#[from] NetFault),
    /// A fault of the data folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// Checks that a replica opens, before there is a node: opens it on an empty disk in memory.
///
/// # Errors
/// The reason why it does not open.
pub fn rehearse(setup: HostSetup) -> Result<(), NodeFault> {
    let disk = MemDisk::volatile(SEGMENT_BYTES, PAGE_BYTES);
    open_alone(setup, Box::new(disk)).map(drop)
}

/// Opens a replica without a network. Its first messages are dropped.
///
/// # Errors
/// The reason why it does not open.
pub fn open_alone(setup: HostSetup, disk: Box<dyn Disk>) -> Result<Host, NodeFault> {
    Ok(Host::open(setup, disk, &mut EarlyOutput::default())?)
}

/// An answer to a message of a client. It leaves after the turn, because the node sends nothing while it reads sockets.
enum PendingAnswer {
    Hello(ConnId),
    Status(ConnId),
    Stop(ConnId, StopAnswer),
    Close(ConnId, &'static str),
}

/// The reason for which a node ends its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// It was asked to stop.
    Stopped,
    /// The state on the disk is another one: the replica must be opened on it.
    Reopen,
    /// The disk is full: the replica must be opened again when there is room ([`Node::wait_for_room`]).
    DiskFull,
}

/// One replica on this machine.
pub struct Node {
    host: Host,
    net: Reactor,
    clients: Clients,
    rejects: Rejects,
    clock: NodeClock,
    facts: Facts,
    me: ReplicaId,
    cluster: ClusterId,
    answers: Vec<PendingAnswer>,
    reporter: EventReporter,
    links: Links,
    quarantine: Quarantine,
    alarms: Alarms,
    progress: status::ExecutionProgress,
    transfer_lines: TransferLines,
    /// The alarm of a full disk.
    full_disk: Option<String>,
    /// The rewriting of its frames, for a replica that lies.
    disguise: Option<Box<dyn Disguise>>,
    stop_gate: StopGate,
    /// The times of the steps since the opening.
    steps: StepTimes,
}

impl Node {
    /// Opens the replica on its disk, and the sockets.
    ///
    /// # Errors
    /// Fails when the data on the disk does not fit the configuration, or a socket cannot be used.
    pub fn open(mut setup: NodeSetup) -> Result<Self, NodeFault> {
        setup.host.application = Box::new(MeteredApplication(setup.host.application));
        let committee = setup.host.replica.committee.clone();
        let me = setup.host.replica.me;
        let admin = setup.host.replica.genesis.admin;
        let mut early = EarlyOutput::default();
        let mut host = Host::open(setup.host, setup.disk, &mut early)?;
        let identity = Identity {
            cluster: committee.cluster,
            epoch: committee.epoch,
            protocol: committee.protocol,
            me,
            // Durable since `Host::open`: it distinguishes this incarnation from earlier ones.
            incarnation: host.replica().incarnation(),
        };
        let mut config = NetConfig::new(identity, setup.peers, setup.security, setup.listen_peers);
        config.listen_clients = Some(setup.listen_clients);
        config.delays_ns = setup.link_delays_ns;
        config.client_connections_max = descriptors::client_connections_max(&config);
        let stop_gate =
            StopGate::new(setup.allow_stop, admin, committee.cluster, (me, host.replica().incarnation()));
        let quarantine = Quarantine::open(setup.folder, host.replica().incarnation(), &committee)?;
        let delta_ns = host.replica().guard().map(|guard| guard.bound.delta_ns);
        let net = Reactor::new(config)?;
        // The clock starts after the log was read, which may take long: waits that begin at the opening need reachable peers
        // (`sync-hotstuff` §18).
        let clock = NodeClock::default();
        if let Some(why) = host.missing_state() {
            tracing::warn!("the disk gives no state ({why}): this replica receives one from its peers");
        }
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
            answers: Vec::new(),
            reporter: EventReporter::new(delta_ns),
            links: Links::default(),
            quarantine,
            alarms: Alarms::new(me),
            progress: status::ExecutionProgress::default(),
            transfer_lines: TransferLines::default(),
            full_disk: None,
            disguise: None,
            stop_gate,
            steps: StepTimes::default(),
        };
        let mut wire = NodeOutput {
            net: &mut node.net,
            clients: &mut node.clients,
            rejects: &mut node.rejects,
            steps: &mut node.steps,
            now: Time::ZERO,
            clock: node.clock,
            disguise: &mut node.disguise,
        };
        wire.urgent(early.urgent);
        for (to, lane, frame_type, body) in early.frames {
            wire.peer(to, lane, frame_type, body);
        }
        node.apply_quarantine();
        Ok(node)
    }

    /// Makes the replica Byzantine: its frames leave as `disguise` decides.
    pub fn disguise(&mut self, disguise: Box<dyn Disguise>) {
        // A liar contradicts itself, and goes on.
        self.host.ignore_own_statements();
        self.disguise = Some(disguise);
    }

    /// Ends the links of an excluded replica.
    fn apply_quarantine(&mut self) {
        if let Some(reason) = self.quarantine.reason() {
            tracing::error!("{}", quarantine::alarm(reason));
            self.net.cut_off();
        }
    }

    /// Runs until `must_stop` returns true, the admin stops the node, or the replica must be opened anew. Each pass checks it:
    /// once a second at least, and soon after a signal.
    ///
    /// # Errors
    /// The fault that stopped the node.
    pub fn run(&mut self, must_stop: &mut dyn FnMut() -> bool) -> Result<RunEnd, NodeFault> {
        let mut end = TurnEnd::Owing;
        while !must_stop() && !self.is_stopped_by_admin() {
            end = match self.pass(end) {
                Ok(TurnEnd::Transferred) => {
                    tracing::info!("the state of the peers is on the disk: the replica is opened on it");
                    return Ok(RunEnd::Reopen);
                }
                Ok(end) => end,
                Err(NodeFault::Host(HostFault::Stopped(alarm @ Alarm::StateDiverged { height }))) => {
                    self.log_alarms();
                    tracing::error!(
                        "{alarm}: this replica drops its state, receives one from its peers, and counts among the f faulty replicas \
                         until then. If it happens again, replace the machine"
                    );
                    self.host.distrust(height)?;
                    return Ok(RunEnd::Reopen);
                }
                Err(NodeFault::Host(HostFault::Stopped(alarm @ Alarm::RolledBack { .. })))
                    if self.quarantine.is_durable() =>
                {
                    self.log_alarms();
                    // The next opening reads the reason from the folder. It serves the status, and sends nothing.
                    self.quarantine.exclude(alarm.to_string())?;
                    return Ok(RunEnd::Reopen);
                }
                Err(NodeFault::Host(HostFault::Storage(Fault::Full { doing })))
                    if self.quarantine.is_durable() =>
                {
                    self.note_full_disk(doing);
                    return Ok(RunEnd::DiskFull);
                }
                Err(fault) => {
                    self.log_alarms();
                    return Err(fault);
                }
            };
        }
        Ok(RunEnd::Stopped)
    }

    /// Returns a state that was dropped because a quorum has signed another one, once, and the bytes for which
    /// `disk_bytes_max` has room.
    pub fn take_diverged(&mut self) -> Option<(DivergedState, u64)> {
        let room = self.host.store().snapshot_room();
        self.host.take_diverged().map(|wrong| (wrong, room))
    }

    /// Closes the node, and returns its disk and its folder for the next opening.
    #[must_use]
    pub fn close(self) -> (Box<dyn Disk>, Option<FolderGuard>) {
        (self.host.into_disk(), self.quarantine.into_folder())
    }

    /// Sleeps if no work is left, for a limited time, then takes one turn.
    fn pass(&mut self, end: TurnEnd) -> Result<TurnEnd, NodeFault> {
        let before = self.clock.now();
        let wake = match end {
            TurnEnd::Owing | TurnEnd::Transferred => before,
            TurnEnd::Idle => self.time_to_wake(before),
        };
        self.net.wait(Some(Duration::from_nanos(wake.since(before))))?;
        // Before the read: the frames will contain all that arrived by `due`.
        let due = self.clock.now();
        let is_bound = self.host.replica().delta_ns().is_some();
        if is_bound || self.host.deadline().is_some_and(|at| at <= due) {
            // Frames that arrived between the poll and `due` must be known before a timer fires. If safety rests on a bound
            // on delays, they must be known before the replica sends anything.
            self.net.wait(Some(Duration::ZERO))?;
        }
        let drained = self.read(due)?;
        self.net.tick(due);
        let now = self.clock.now();
        let mut slices = TimeSlices { clock: self.clock, checking: now, executing: None };
        let mut output = NodeOutput {
            net: &mut self.net,
            clients: &mut self.clients,
            rejects: &mut self.rejects,
            steps: &mut self.steps,
            now,
            clock: self.clock,
            disguise: &mut self.disguise,
        };
        let end = self.host.turn(now, Some(due), drained, &mut |work| slices.has_time(work), &mut output)?;
        self.send_answers(now);
        // A sleep beyond the planned wake-up is a standstill, so the pass began at the planned time.
        self.report(due.min(wake));
        self.log_alarms();
        Ok(end)
    }

    /// Logs the due lines about the pass that began at `began`.
    fn report(&mut self, began: Time) {
        let sync_ns = self.host.take_longest_sync_ns();
        let now = self.clock.now();
        let Self { host, reporter, progress, .. } = self;
        let replica = host.replica();
        let (decided, executed) = replica.decided_and_executed();
        progress.update(now, replica.waiting(), (decided, executed), replica.delta_ns().is_some());
        let (view, leader) = replica.leader();
        let reason = || replica.status().last_view_change.to_string();
        self.transfer_lines.after_pass(now, host.transfer()).into_iter().for_each(LogLine::log);
        let lines = [
            reporter.after_pass(now, now.since(began), sync_ns),
            reporter.too_far_behind(now, || replica.is_out(), decided.next()),
            reporter.view(now, view, leader, reason),
        ];
        lines.into_iter().flatten().for_each(LogLine::log);
        if let Some(doubt) = replica.doubt() {
            let (alarm, alarms) = replica.doubted();
            let lines = [
                reporter.doubt(now, doubt, || replica.guard()),
                reporter.alarm(now, alarm, alarms),
                reporter.round_trips(now, || replica.guard()),
            ];
            lines.into_iter().flatten().for_each(LogLine::log);
        }
        self.report_links(now);
    }

    fn report_links(&mut self, now: Time) {
        let Self { links, net, quarantine, facts, .. } = self;
        let is_any_down = quarantine.reason().is_none() && net.links_up().saturating_add(1) < facts.n;
        let lines = [
            links.unreported(now),
            links.missing(now, is_any_down, || net.peers()),
            links.earlier_incarnations(now, || net.peers()),
        ];
        lines.into_iter().flatten().for_each(LogLine::log);
    }

    /// Checks the states of the other replicas and the time of the executed blocks, and logs the alarms.
    fn log_alarms(&mut self) {
        let Self { host, alarms, clock, .. } = self;
        let now = clock.now();
        let mut lines = alarms.check_states(now, host.replica());
        if !host.executor().stamps().is_empty() {
            lines.extend(alarms.check_times(now, wall_ns(), host.replica(), host.executor()));
            host.executor_mut().clear_stamps();
        }
        lines.into_iter().for_each(LogLine::log);
    }

    /// Returns the time of the next work that is due without an arrival.
    fn time_to_wake(&self, now: Time) -> Time {
        let latest = now.plus(SLEEP_MAX_NS);
        [self.host.deadline(), self.net.deadline()].into_iter().flatten().fold(latest, Time::min).max(now)
    }

    /// Hands all that has arrived to the host, and sends nothing meanwhile.
    fn read(&mut self, now: Time) -> Result<bool, NodeFault> {
        let cluster = self.cluster;
        let Self { host, net, clients, rejects, answers, links, quarantine, disguise, stop_gate, .. } = self;
        net.hold(host.paused_peers());
        let mut excluded = Ok(false);
        let log = |line: Option<LogLine>| line.into_iter().for_each(LogLine::log);
        let drained = net.read_ready(now, TURN_BYTES, &mut |event| match event {
            Event::Peer { from, frame_type, body, .. } => {
                if let Some(disguise) = disguise {
                    disguise.hears(frame_type, body);
                }
                host.peer_frame(from, frame_type, body);
            }
            Event::PeerUp(peer) => {
                log(links.changed(now, peer, true));
                host.link(peer, LinkEvent::Back);
            }
            Event::PeerDown(peer) => log(links.changed(now, peer, false)),
            Event::Lost { peer, loss } => {
                log(links.lost(now, peer, (loss.direction, loss.lane), (loss.from, loss.to)));
                host.link(peer, host.loss(loss.lane, loss.direction == Direction::Incoming));
            }
            Event::ClientUp { conn, address } => clients.up(ConnId(conn.0), address),
            Event::Client { conn, body } => {
                let conn = ConnId(conn.0);
                match body.split_first() {
                    _ if clients.is_closing(conn) => {}
                    Some((&CLIENT_BUNDLE_TAG, bundle)) if clients.is_greeted(conn) => {
                        host.client_bundle(conn, bundle);
                    }
                    _ => match client_message(clients, (cluster, stop_gate), conn, body, now) {
                        Ok(Taken::Nothing) => {}
                        Ok(Taken::Answer(answer)) => answers.push(answer),
                        Ok(Taken::Order(client, bundle)) => host.ask_order(conn, client, bundle),
                        Err(RefusedMessage::Ignored(reason)) => rejects.count(clients.origin(conn), reason),
                        Err(RefusedMessage::Closes(conn, reason)) => {
                            clients.close(conn);
                            answers.push(PendingAnswer::Close(conn, reason));
                        }
                    },
                }
            }
            Event::ClientDown(conn) => {
                clients.down(ConnId(conn.0));
                host.client_gone(ConnId(conn.0));
            }
            Event::Refused { who, why } => {
                if let Some(often) = rejects.count_due(now, who.into(), why.reason()) {
                    tracing::warn!("connection of {who} refused: {why}{often}{}", advice(why));
                }
                if let (Who::Replica(peer), Ok(is_excluded)) = (who, &excluded) {
                    excluded = quarantine.refused(peer, why).map(|now_excluded| *is_excluded || now_excluded);
                }
            }
            Event::Closed { by, reason } => {
                // The log shows the reason that the other side has sent. The count has a name of this replica's.
                if let Some(often) = rejects.count_due(now, Origin::Replica(by), "refuses our connection") {
                    tracing::warn!("replica {by} refuses our connection: {reason}{often}");
                }
            }
        });
        if excluded? {
            self.apply_quarantine();
        }
        Ok(drained)
    }

    fn send_answers(&mut self, now: Time) {
        wire::notify_displaced(&mut self.clients, &mut self.net, &mut self.rejects);
        if self.answers.is_empty() {
            return;
        }
        // Strangers may request the status, many at once: all of them get the same bytes.
        let mut status = None;
        for answer in std::mem::take(&mut self.answers) {
            let (conn, message) = match answer {
                PendingAnswer::Hello(conn) => {
                    let hello = FromReplica::Hello { version: VERSION, cluster: self.cluster, id: self.me };
                    (conn, hello.to_bytes().into())
                }
                PendingAnswer::Status(conn) => {
                    let encode = || Bytes::from(FromReplica::Status(self.status_json(now)).to_bytes());
                    (conn, status.get_or_insert_with(encode).clone())
                }
                PendingAnswer::Stop(conn, answer) => {
                    (conn, self.answer_stop(now, conn, answer).to_bytes().into())
                }
                PendingAnswer::Close(conn, reason) => {
                    self.rejects.count(self.clients.origin(conn), reason);
                    self.net.close_client(NetConn(conn.0), reason);
                    continue;
                }
            };
            // A connection that is gone by now needs no answer.
            let _ = self.net.send_client(NetConn(conn.0), &|out| out.extend_from_slice(&message));
        }
        // Time has passed since the turn began, and frames with a delay may leave too.
        self.net.flush(self.clock.now());
    }
}

/// Returns advice to the operator about a refusal; empty if there is none.
const fn advice(why: Refusal) -> &'static str {
    match why {
        // One peer may lie. Several peers do not.
        Refusal::NeverSent => {
            "; if several replicas report this, this replica has sent more than its disk has: an old backup is in the place of \
             its disk, or a second machine uses its key. It must take no part: stop it"
        }
        _ => "",
    }
}

/// The effect of a message of a client that is no bundle.
enum Taken {
    /// The message needs no answer.
    Nothing,
    /// The node answers.
    Answer(PendingAnswer),
    /// The replica answers a question for the order of a bundle.
    Order(ClientId, BundleDigest),
}

/// The effect of a refused message of a client.
enum RefusedMessage {
    /// The message is only counted.
    Ignored(&'static str),
    /// This connection is closed, mostly that of the message.
    Closes(ConnId, &'static str),
}

/// Handles a message of a client that is no bundle.
fn client_message(
    clients: &mut Clients,
    (cluster, stop_gate): (ClusterId, &StopGate),
    conn: ConnId,
    body: &[u8],
    now: Time,
) -> Result<Taken, RefusedMessage> {
    let close = |reason| Err(RefusedMessage::Closes(conn, reason));
    match FromClient::from_bytes(body) {
        Ok(FromClient::Hello { version, .. }) if version != VERSION => close("another wire version"),
        Ok(FromClient::Hello { cluster: meant, .. }) if meant != cluster => close("another cluster"),
        Ok(FromClient::Hello { .. }) if clients.greet(conn) => Ok(Taken::Answer(PendingAnswer::Hello(conn))),
        Ok(FromClient::Hello { .. }) => close("second hello"),
        Ok(_) if !clients.is_greeted(conn) => close("no hello"),
        Ok(FromClient::Attach(wanted)) => {
            clients.attach(conn, &wanted).map_err(|conn| RefusedMessage::Closes(conn, "too many clients"))?;
            Ok(Taken::Nothing)
        }
        Ok(FromClient::AskOrder { client, bundle }) if clients.may_ask_order(conn, now) => {
            Ok(Taken::Order(client, bundle))
        }
        Ok(FromClient::AskOrder { .. }) => Err(RefusedMessage::Ignored("order asked too often")),
        Ok(FromClient::Status) if clients.may_ask_status(conn, now) => {
            Ok(Taken::Answer(PendingAnswer::Status(conn)))
        }
        Ok(FromClient::Status) => Err(RefusedMessage::Ignored("status asked too often")),
        Ok(FromClient::Stop { incarnation, signature }) if clients.may_ask_stop(conn, now) => {
            Ok(Taken::Answer(PendingAnswer::Stop(conn, stop_gate.judge(incarnation, &signature))))
        }
        Ok(FromClient::Stop { .. }) => Err(RefusedMessage::Ignored("stop asked too often")),
        // The host takes the bundles of greeted connections.
        Ok(FromClient::Bundle { .. }) | Err(_) => close("malformed message"),
    }
}

/// The time limits of each kind of work in a turn.
struct TimeSlices {
    clock: NodeClock,
    checking: Time,
    executing: Option<Time>,
}

impl TimeSlices {
    /// Whether this kind of work may go on.
    fn has_time(&mut self, work: TurnWork) -> bool {
        let now = self.clock.now();
        match work {
            TurnWork::Check => now.since(self.checking) < CHECK_SLICE_NS,
            TurnWork::Execute => now.since(*self.executing.get_or_insert(now)) < EXECUTE_SLICE_NS,
        }
    }
}

#[cfg(test)]
mod tests;
