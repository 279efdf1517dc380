//! One client as a pure state machine: one key, one session at a time, bundles in flight.
//!
//! The core takes operations, replies, link changes and the time. It returns messages to send and the outcomes of
//! operations. It owns no socket, clock or randomness, so the drivers and the simulator run the same code.
//!
//! * The content of a bundle never changes after it was sent: a retry sends the same bytes.
//! * A result is accepted when f + 1 distinct replicas report it for exactly this content and it hashes to
//!   the reported digest.
//! * A proof of order completes only a call that has asked for order. One replica suffices as a witness of the order, and not of
//!   a result.
//! * A replica's claims about itself (view, refusals) are advice: they move retries, never results.
//! * After the loss of a session nothing is executed a second time without the caller's knowledge. Unsent bundles wait for
//!   the next session, and so do bundles that f + 1 replicas have certainly never executed. The module `flight` defines
//!   this certainty. All other bundles fail with an unknown fate.
//!
//! Not here: sockets and reconnects (`driver`, `asynchronous`), keys from files, random nonces.

mod allowance;
mod draft;
mod event;
mod flight;
mod leader;
mod opening;
mod ordering;
mod replies;
#[cfg(test)]
mod tests;
mod tried;

pub use draft::{Prepared, Size, SubmitError, Ticket};
pub use event::{Answer, BundleResults, Counters, Event, Failure, Fate, Output};
pub use tried::Tried;

use crate::cluster::ClusterInfo;
use crate::order::{OrderError, OrderVerifier};
use allowance::Allowance;
use draft::Draft;
use flight::Flight;
use leader::LeaderGuess;
use quorate_crypto::SigningKey;
use quorate_types::wire::FromReplica;
use quorate_types::{
    BodyLimits, BundleDigest, BundleNo, ClientAuth, ClientId, ClusterId, ReplicaId, ReplicaSet, SessionId,
    Time, quorum,
};
use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;
use std::sync::Arc;

/// The replicas that receive a bundle first. A bundle without an answer in time goes to all in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Audience {
    /// The leader, as far as the client knows.
    #[default]
    Leader,
    /// This replica, which forwards the bundle to the leader.
    One(ReplicaId),
    /// All replicas at once: the fastest way, and n times the load.
    All,
}

impl FromStr for Audience {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "leader" => Ok(Self::Leader),
            "all" => Ok(Self::All),
            id => match id.parse() {
                Ok(id) => Ok(Self::One(ReplicaId(id))),
                Err(_) => Err("expected leader, all, or the number of a replica"),
            },
        }
    }
}

/// Settings of a client that are equal for all clients of a cluster, and its own bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The cluster.
    pub cluster: ClusterId,
    /// The number of replicas.
    pub n: usize,
    /// Faulty replicas tolerated.
    pub f: usize,
    /// The authentication of bundles.
    pub client_auth: ClientAuth,
    /// Limits on requests and bundles.
    pub limits: BodyLimits,
    /// `W_c`: bundle numbers above a session's floor that may be in use.
    pub client_window: u32,
    /// Bundles in flight at most. There are fewer until the first answers arrive (slow start from 4), and while replicas
    /// are busy or do not answer in time. Operations submitted meanwhile are collected into the next
    /// bundle, so a larger number means smaller bundles.
    pub in_flight_max: usize,
    /// Bytes of operations that wait to be sent, at most.
    pub waiting_bytes_max: usize,
    /// `Tc`: a bundle without an answer after this many nanoseconds goes to all replicas.
    pub retry_ns: u64,
    /// The longest pause between retries, in nanoseconds; the pause doubles up to it.
    pub retry_ns_max: u64,
    /// The leader of view 0.
    pub first_leader: ReplicaId,
    /// The replicas that receive a bundle first.
    pub audience: Audience,
}

impl Settings {
    /// Returns the usual settings for a cluster.
    #[must_use]
    pub fn of(cluster: &ClusterInfo) -> Self {
        Self {
            cluster: cluster.cluster,
            n: cluster.n(),
            f: cluster.f,
            client_auth: cluster.client_auth,
            limits: cluster.limits,
            client_window: cluster.client_window,
            in_flight_max: 8,
            waiting_bytes_max: 16 << 20,
            retry_ns: 800_000_000,
            retry_ns_max: 10_000_000_000,
            first_leader: ReplicaId(0),
            audience: Audience::Leader,
        }
    }
}

/// Whether a replica can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// The connection is up: messages arrive unless it breaks.
    Up,
    /// There is no connection, or it could not be made.
    Down,
}

/// The further pause of a postponed bundle while the client may not have more bundles in flight.
const STANDSTILL_NS: u64 = 80_000_000;

/// The state of one bundle number of the session.
#[derive(Debug)]
enum BundleSlot {
    /// The number belongs to a prepared bundle that was not submitted yet.
    Reserved,
    /// The bundle is in flight.
    Flying(Box<Flight>),
    /// The bundle has an answer.
    Done,
}

/// The stage of the session.
#[derive(Debug)]
enum SessionStage {
    Closed,
    Opening(Box<Flight>, BundleNo),
    Open(SessionId),
}

/// A client.
///
/// Call [`Core::poll`] until `None` after every other call, and [`Core::tick`] when [`Core::deadline`] has come.
/// Report with [`Core::link`] which replicas can be reached: the core sends nothing to a replica that is not up.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    key: SigningKey,
    /// The check of proofs of order, or the reason why there are none.
    orders: Result<Arc<OrderVerifier>, OrderError>,
    now: Time,
    session: SessionStage,
    /// Number of the first of `slots`: every bundle below it has an answer.
    first: BundleNo,
    slots: VecDeque<BundleSlot>,
    /// Flights by content, because a refusal names nothing else.
    by_digest: BTreeMap<BundleDigest, BundleNo>,
    allowance: Allowance,
    waiting: VecDeque<Draft>,
    waiting_bytes: usize,
    next_ticket: u64,
    leader: LeaderGuess,
    /// The state of each connection; `None` until the first attempt to connect has ended.
    links: Vec<Option<LinkState>>,
    /// Replicas that have answered on the current connection and whose replies still go to it. Each of them reports all its
    /// executions for this client.
    reporting: ReplicaSet,
    /// Replicas whose replies go to newer connections with the same key, until they receive a bundle.
    displaced: ReplicaSet,
    /// The time at which the session is abandoned, whatever is known of the bundles in flight. Set once enough replicas report
    /// that the session is gone.
    abandon_at: Option<Time>,
    /// No work is due before this time; it may be early.
    wake: Time,
    outputs: VecDeque<Output>,
    counters: Counters,
}

impl Core {
    /// Returns a client without a session. Operations can be submitted at once; they wait for [`Core::open`].
    #[must_use]
    pub fn new(settings: Settings, key: SigningKey) -> Self {
        Self {
            settings,
            key,
            orders: Err(OrderError::NoProofs),
            now: Time::ZERO,
            session: SessionStage::Closed,
            first: BundleNo(1),
            slots: VecDeque::new(),
            by_digest: BTreeMap::new(),
            allowance: Allowance::new(settings.in_flight_max),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            next_ticket: 0,
            leader: LeaderGuess::new(settings.n, quorum::weak(settings.f), settings.first_leader),
            links: vec![None; settings.n],
            reporting: ReplicaSet::EMPTY,
            displaced: ReplicaSet::EMPTY,
            abandon_at: None,
            wake: Time::MAX,
            outputs: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Returns the client's key.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.key.public()
    }

    /// Returns the session, once it is open.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self.session {
            SessionStage::Open(id) => Some(id),
            SessionStage::Closed | SessionStage::Opening(..) => None,
        }
    }

    /// Returns the probable leader.
    #[must_use]
    pub fn leader(&self) -> ReplicaId {
        self.leader.get()
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of bundles without an answer: sent ones and waiting ones.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        let opening = usize::from(matches!(self.session, SessionStage::Opening(..)));
        let flying = self.by_digest.len().saturating_sub(opening);
        flying.saturating_add(self.waiting.len())
    }

    /// Handles a message of a replica.
    pub fn handle(&mut self, now: Time, from: ReplicaId, message: FromReplica) {
        self.advance(now);
        if from.index() >= self.settings.n {
            return;
        }
        match message {
            FromReplica::Reply(client, reply) if client == self.client() => {
                self.reporting.insert(from);
                self.on_reply(from, &reply);
            }
            FromReplica::Refused { client, bundle: BundleDigest::ZERO, .. } if client == self.client() => {
                self.on_displaced(from);
            }
            FromReplica::Refused { client, bundle, why } if client == self.client() => {
                self.reporting.insert(from);
                self.on_refusal(from, bundle, why);
            }
            FromReplica::Order { client, bundle, proof } if client == self.client() => {
                self.on_order(from, bundle, &proof);
            }
            FromReplica::NoOrder { client, bundle, why } if client == self.client() => {
                self.on_no_order(from, bundle, why);
            }
            // These messages are for other clients of the connection, or for the driver.
            FromReplica::Reply(..)
            | FromReplica::Refused { .. }
            | FromReplica::Order { .. }
            | FromReplica::NoOrder { .. }
            | FromReplica::Hello { .. }
            | FromReplica::Status(_)
            | FromReplica::Stop(_)
            | FromReplica::Close(_) => {}
        }
    }

    /// Notes that a connection was made, has ended, or could not be made.
    pub fn link(&mut self, now: Time, replica: ReplicaId, state: LinkState) {
        self.advance(now);
        let before = match self.links.get_mut(replica.index()) {
            Some(link) if *link != Some(state) => link.replace(state),
            _ => return,
        };
        let is_leader = replica == self.target();
        self.displaced.remove(replica);
        self.stop_reporting(replica);
        for flight in flights(&mut self.session, &mut self.slots) {
            if let Some(wait) = &mut flight.order {
                wait.link(self.now, replica, state);
                self.wake = self.wake.min(wait.ask_at);
            }
        }
        match state {
            LinkState::Up => {
                for flight in flights(&mut self.session, &mut self.slots) {
                    // A bundle written to an earlier connection may be lost with it. A reply to an execution before this
                    // connection was up reached no connection.
                    if flight.to_all || is_leader || before.is_none() && flight.is_out() {
                        send(&mut self.outputs, replica, flight);
                    }
                }
            }
            LinkState::Down if is_leader => {
                let mut out = BundleSender::new(&self.links, &mut self.outputs, &mut self.wake);
                for flight in flights(&mut self.session, &mut self.slots).filter(|flight| !flight.to_all) {
                    self.counters.repeats = self.counters.repeats.saturating_add(1);
                    out.ask_all(self.now, &self.settings, flight);
                }
            }
            LinkState::Down => {}
        }
    }

    /// Sends bundles again whose answers are late.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
        if now < self.wake {
            return;
        }
        self.wake = self.abandon_at.unwrap_or(Time::MAX);
        if self.wake <= now {
            self.lose_session();
            self.wake = Time::MAX;
        }
        let is_open = matches!(self.session, SessionStage::Open(_));
        let leader = self.target();
        let in_flight =
            flights(&mut self.session, &mut self.slots).filter(|flight| flight.postponed_to.is_none());
        let mut room = self.allowance.get().saturating_sub(in_flight.count());
        let mut out = BundleSender::new(&self.links, &mut self.outputs, &mut self.wake);
        for flight in flights(&mut self.session, &mut self.slots) {
            if flight.due() <= now && flight.postponed_to.is_some() && room == 0 {
                // The replica that postponed the bundle is as busy as before.
                flight.postpone_until(now.plus(STANDSTILL_NS));
            } else if flight.due() <= now {
                room = room.saturating_sub(usize::from(flight.postponed_to.is_some()));
                flight.repeats = flight.repeats.saturating_add(1);
                self.counters.repeats = self.counters.repeats.saturating_add(1);
                if flight.retry_at <= now {
                    if is_open && flight.is_out() && flight.postponed_to.is_none() {
                        self.allowance.late(now, flight.sent);
                    }
                    out.ask_all(now, &self.settings, flight);
                } else {
                    flight.postponed_to = None;
                    out.once_more(leader, flight);
                }
            }
            out.ask_order(now, &self.settings, leader, flight);
            out.wake_at(flight.next_work());
        }
    }

    /// Returns the time of the next call to [`Core::tick`]; `None` while nothing is in flight. It may be earlier than needed.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (self.wake < Time::MAX).then_some(self.wake)
    }

    /// Returns the next output, until `None`. This call puts waiting operations into bundles, so
    /// that operations submitted between two polls share a bundle.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.depart();
        }
        self.outputs.pop_front()
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Returns the position of a number among the slots.
    fn position(&self, number: BundleNo) -> Option<usize> {
        usize::try_from(number.0.checked_sub(self.first.0)?).ok()
    }

    /// Whether another bundle may be in flight.
    fn has_room(&self) -> bool {
        self.abandon_at.is_none() && self.by_digest.len() < self.allowance.get()
    }

    /// Whether a number is in the window, as far as this client can know: the session's floor is at least
    /// the last number below which every bundle has an answer.
    fn in_window(&self, number: BundleNo) -> bool {
        number.since(self.first) < u64::from(self.settings.client_window)
    }

    /// Returns the replica that receives a bundle first.
    fn target(&self) -> ReplicaId {
        match self.settings.audience {
            Audience::One(replica) => replica,
            Audience::Leader | Audience::All => self.leader.get(),
        }
    }

    /// Notes that executions by this replica may no longer reach this client.
    fn stop_reporting(&mut self, replica: ReplicaId) {
        self.reporting.remove(replica);
        for flight in flights(&mut self.session, &mut self.slots) {
            flight.witnesses.remove(replica);
        }
    }

    /// Sends a bundle for the first time: to the leader alone (or the replica of the audience) if it can be reached. Replicas whose
    /// replies go elsewhere until they receive a bundle receive it too.
    fn launch(&mut self, mut flight: Flight, number: BundleNo) -> Box<Flight> {
        flight.sent = self.now;
        flight.witnesses = self.reporting;
        flight.pause = self.settings.retry_ns;
        flight.retry_at = self.now.plus(flight.pause);
        self.by_digest.insert(flight.digest, number);
        self.counters.bundles = self.counters.bundles.saturating_add(1);
        let leader = self.target();
        let mut out = BundleSender::new(&self.links, &mut self.outputs, &mut self.wake);
        match out.state(leader) {
            _ if self.settings.audience == Audience::All => {
                out.ask_all(self.now, &self.settings, &mut flight);
            }
            Some(LinkState::Up) => send(out.outputs, leader, &mut flight),
            Some(LinkState::Down) => out.ask_all(self.now, &self.settings, &mut flight),
            // The connection is being made: the bundle leaves when the attempt has succeeded or failed.
            None => {}
        }
        if !self.displaced.is_empty() {
            for replica in std::mem::take(&mut self.displaced).iter() {
                if !flight.sent_to.contains(replica) && out.state(replica) == Some(LinkState::Up) {
                    send(out.outputs, replica, &mut flight);
                }
            }
        }
        out.ask_order(self.now, &self.settings, leader, &mut flight);
        out.wake_at(flight.next_work());
        Box::new(flight)
    }
}

/// Returns all flights, in the order in which they were sent.
fn flights<'a>(
    session: &'a mut SessionStage,
    slots: &'a mut VecDeque<BundleSlot>,
) -> impl Iterator<Item = &'a mut Flight> {
    let opening = match session {
        SessionStage::Opening(flight, _) => Some(&mut **flight),
        SessionStage::Closed | SessionStage::Open(_) => None,
    };
    let flying = slots.iter_mut().filter_map(|slot| match slot {
        BundleSlot::Flying(flight) => Some(&mut **flight),
        BundleSlot::Reserved | BundleSlot::Done => None,
    });
    opening.into_iter().chain(flying)
}

fn send(outputs: &mut VecDeque<Output>, to: ReplicaId, flight: &mut Flight) {
    flight.sent_to.insert(to);
    let frame = flight.frame.clone();
    outputs.push_back(Output::Send { to, frame });
}

/// The parts of a core that sending needs, while its flights are borrowed.
struct BundleSender<'a> {
    links: &'a [Option<LinkState>],
    outputs: &'a mut VecDeque<Output>,
    wake: &'a mut Time,
}

impl<'a> BundleSender<'a> {
    fn new(links: &'a [Option<LinkState>], outputs: &'a mut VecDeque<Output>, wake: &'a mut Time) -> Self {
        Self { links, outputs, wake }
    }

    fn state(&self, replica: ReplicaId) -> Option<LinkState> {
        self.links.get(replica.index()).copied().flatten()
    }

    fn wake_at(&mut self, time: Time) {
        *self.wake = time.min(*self.wake);
    }

    /// Sends a bundle to all reachable replicas, and schedules the next retry after a pause that doubles.
    fn ask_all(&mut self, now: Time, settings: &Settings, flight: &mut Flight) {
        flight.widen();
        flight.postponed_to = None;
        self.send_all(flight);
        flight.retry_at = now.plus(flight.pause);
        flight.pause = flight.pause.saturating_mul(2).min(settings.retry_ns_max);
        self.wake_at(flight.retry_at);
    }

    /// Sends a postponed bundle again. A busy cluster receives it at the leader alone; the retry asks all replicas.
    fn once_more(&mut self, leader: ReplicaId, flight: &mut Flight) {
        let is_up = self.state(leader) == Some(LinkState::Up);
        if is_up && (!flight.to_all || flight.is_busy_at_many) {
            send(self.outputs, leader, flight);
        } else if flight.to_all {
            self.send_all(flight);
        }
    }

    fn send_all(&mut self, flight: &mut Flight) {
        for (index, link) in self.links.iter().enumerate() {
            if let (Some(LinkState::Up), Ok(id)) = (link, u16::try_from(index)) {
                send(self.outputs, ReplicaId(id), flight);
            }
        }
    }
}
