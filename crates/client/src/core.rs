//! One client as a pure state machine: one key, one session at a time, bundles in flight.
//!
//! It takes operations, replies, link changes and the time, and says what to send and what became of the
//! operations. It owns no socket, clock or randomness, so the drivers and the simulator run the same code.
//!
//! * The content of a bundle never changes after it was sent: what is sent again is the same bytes.
//! * A result is believed when f + 1 distinct replicas report it for exactly this content and it hashes to
//!   what they report.
//! * What one replica says about itself (view, refusals) is advice: it moves retries, never results.
//! * After the loss of a session nothing is executed a second time behind the caller's back. What was not sent waits for
//!   the next session, and so does what f + 1 replicas have certainly never executed (`flight` says when that is
//!   certain). All else fails with an unknown fate.
//!
//! Not here: sockets and reconnects (`driver`, `asynchronous`), keys from files, random nonces.

mod allowance;
mod draft;
mod event;
mod flight;
mod leader;
mod opening;
mod replies;
#[cfg(test)]
mod tests;
mod tried;

pub use draft::{Prepared, Size, SubmitError, Ticket};
pub use event::{Answer, BundleResults, Counters, Event, Failure, Fate, Output};
pub use tried::Tried;

use crate::cluster::ClusterInfo;
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

/// Who is sent a bundle at first; what has no answer in time goes to all in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Audience {
    /// Whoever leads, as far as the client knows.
    #[default]
    Leader,
    /// This replica, whoever leads: it hands the bundle on.
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
    /// Which cluster.
    pub cluster: ClusterId,
    /// How many replicas there are.
    pub n: usize,
    /// Faulty replicas tolerated.
    pub f: usize,
    /// How bundles prove where they come from.
    pub client_auth: ClientAuth,
    /// Limits on requests and bundles.
    pub limits: BodyLimits,
    /// `W_c`: bundle numbers above a session's floor that may be in use.
    pub client_window: u32,
    /// Bundles in flight at most. Fewer until the first answers have come (slow start from 4), and while replicas
    /// say that they are busy or do not answer in time. What is submitted meanwhile is collected into the next
    /// bundle, so a larger number means smaller bundles.
    pub in_flight_max: usize,
    /// Bytes of operations that wait to be sent at most.
    pub waiting_bytes_max: usize,
    /// `Tc`: what has no answer after this many nanoseconds goes to all replicas.
    pub retry_ns: u64,
    /// The pause between retries doubles up to this many nanoseconds.
    pub retry_ns_max: u64,
    /// The leader of view 0.
    pub first_leader: ReplicaId,
    /// Who is sent a bundle at first.
    pub audience: Audience,
}

impl Settings {
    /// The usual settings for a cluster.
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
    /// The connection stands: what is sent will arrive unless it breaks.
    Up,
    /// There is no connection, or it could not be made.
    Down,
}

/// How long a bundle stays put off when the client may not have more under way.
const STANDSTILL_NS: u64 = 80_000_000;

/// What holds a number of the session.
#[derive(Debug)]
enum Slot {
    /// Given to a prepared bundle that was not submitted yet.
    Reserved,
    /// On its way.
    Flying(Box<Flight>),
    /// Answered.
    Done,
}

#[derive(Debug)]
enum Session {
    Closed,
    Opening(Box<Flight>, BundleNo),
    Open(SessionId),
}

/// A client.
///
/// Call [`Core::poll`] until `None` after every other call, and [`Core::tick`] when [`Core::deadline`] has come.
/// Say with [`Core::link`] which replicas can be reached: nothing is sent to one that is not up.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    key: SigningKey,
    now: Time,
    session: Session,
    /// Number of the first of `slots`: everything below it was answered.
    first: BundleNo,
    slots: VecDeque<Slot>,
    /// Flights by content, for refusals, which name nothing else.
    by_digest: BTreeMap<BundleDigest, BundleNo>,
    allowance: Allowance,
    waiting: VecDeque<Draft>,
    waiting_bytes: usize,
    next_ticket: u64,
    leader: LeaderGuess,
    /// `None` until the first attempt to connect has ended.
    links: Vec<Option<LinkState>>,
    /// Replicas that have answered on the connection that stands now, and have not said since that their replies go
    /// elsewhere: all that they execute for this client, they tell it.
    heard: ReplicaSet,
    /// Replicas whose replies go to newer connections with the same key, until they are sent a bundle.
    displaced: ReplicaSet,
    /// Enough replicas say that the session is gone: by then it is given up, whatever is known of what is in flight.
    gone_by: Option<Time>,
    /// Nothing is due before this; may be early.
    wake: Time,
    outputs: VecDeque<Output>,
    counters: Counters,
}

impl Core {
    /// A client without a session; operations may be submitted already and wait for [`Core::open`].
    #[must_use]
    pub fn new(settings: Settings, key: SigningKey) -> Self {
        Self {
            settings,
            key,
            now: Time::ZERO,
            session: Session::Closed,
            first: BundleNo(1),
            slots: VecDeque::new(),
            by_digest: BTreeMap::new(),
            allowance: Allowance::new(settings.in_flight_max),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            next_ticket: 0,
            leader: LeaderGuess::new(settings.n, quorum::weak(settings.f), settings.first_leader),
            links: vec![None; settings.n],
            heard: ReplicaSet::EMPTY,
            displaced: ReplicaSet::EMPTY,
            gone_by: None,
            wake: Time::MAX,
            outputs: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Whose operations these are.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.key.public()
    }

    /// The session, once it is open.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self.session {
            Session::Open(id) => Some(id),
            Session::Closed | Session::Opening(..) => None,
        }
    }

    /// Who probably leads.
    #[must_use]
    pub fn leader(&self) -> ReplicaId {
        self.leader.get()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bundles without an answer: sent ones and waiting ones.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        let opening = usize::from(matches!(self.session, Session::Opening(..)));
        let flying = self.by_digest.len().saturating_sub(opening);
        flying.saturating_add(self.waiting.len())
    }

    /// A replica said something.
    pub fn handle(&mut self, now: Time, from: ReplicaId, message: FromReplica) {
        self.advance(now);
        if from.index() >= self.settings.n {
            return;
        }
        match message {
            FromReplica::Reply(client, reply) if client == self.client() => {
                self.heard.insert(from);
                self.on_reply(from, &reply);
            }
            FromReplica::Refused { client, bundle: BundleDigest::ZERO, .. } if client == self.client() => {
                self.on_displaced(from);
            }
            FromReplica::Refused { client, bundle, why } if client == self.client() => {
                self.heard.insert(from);
                self.on_refusal(from, bundle, why);
            }
            // Meant for other clients of the connection, or for the driver.
            FromReplica::Reply(..)
            | FromReplica::Refused { .. }
            | FromReplica::Hello { .. }
            | FromReplica::Status(_)
            | FromReplica::Close(_) => {}
        }
    }

    /// A connection was made, has ended, or could not be made.
    pub fn link(&mut self, now: Time, replica: ReplicaId, state: LinkState) {
        self.advance(now);
        let before = match self.links.get_mut(replica.index()) {
            Some(link) if *link != Some(state) => link.replace(state),
            _ => return,
        };
        let is_leader = replica == self.target();
        self.displaced.remove(replica);
        self.unhear(replica);
        match state {
            LinkState::Up => {
                for flight in flights(&mut self.session, &mut self.slots) {
                    // What was written to an earlier connection may be lost with it, and a reply to what was
                    // executed before this connection stood went nowhere.
                    if flight.everyone || is_leader || before.is_none() && flight.is_out() {
                        send(&mut self.outputs, replica, flight);
                    }
                }
            }
            LinkState::Down if is_leader => {
                let mut out = Sender::new(&self.links, &mut self.outputs, &mut self.wake);
                for flight in flights(&mut self.session, &mut self.slots).filter(|flight| !flight.everyone) {
                    self.counters.repeats = self.counters.repeats.saturating_add(1);
                    out.ask_all(self.now, &self.settings, flight);
                }
            }
            LinkState::Down => {}
        }
    }

    /// Sends again what has waited for its answer too long.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
        if now < self.wake {
            return;
        }
        self.wake = self.gone_by.unwrap_or(Time::MAX);
        if self.wake <= now {
            self.lose_session();
            self.wake = Time::MAX;
        }
        let is_open = matches!(self.session, Session::Open(_));
        let leader = self.target();
        let under_way =
            flights(&mut self.session, &mut self.slots).filter(|flight| flight.again_at.is_none());
        let mut room = self.allowance.get().saturating_sub(under_way.count());
        let mut out = Sender::new(&self.links, &mut self.outputs, &mut self.wake);
        for flight in flights(&mut self.session, &mut self.slots) {
            if flight.due() <= now && flight.again_at.is_some() && room == 0 {
                // Whoever has put it off has not become less busy.
                flight.put_off_until(now.plus(STANDSTILL_NS));
            } else if flight.due() <= now {
                room = room.saturating_sub(usize::from(flight.again_at.is_some()));
                flight.repeats = flight.repeats.saturating_add(1);
                self.counters.repeats = self.counters.repeats.saturating_add(1);
                if flight.retry_at <= now {
                    if is_open && flight.is_out() && flight.again_at.is_none() {
                        self.allowance.late(now, flight.sent);
                    }
                    out.ask_all(now, &self.settings, flight);
                } else {
                    flight.again_at = None;
                    out.once_more(leader, flight);
                }
            }
            out.wake_at(flight.due());
        }
    }

    /// When [`Core::tick`] should be called; `None` while nothing is in flight. May be earlier than needed.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (self.wake < Time::MAX).then_some(self.wake)
    }

    /// The next thing to send or to tell, until `None`. Operations that wait are put into bundles here, so
    /// that what is submitted between two polls travels together.
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

    /// The position of a number among the slots.
    fn position(&self, number: BundleNo) -> Option<usize> {
        usize::try_from(number.0.checked_sub(self.first.0)?).ok()
    }

    /// Whether another bundle may be in flight.
    fn has_room(&self) -> bool {
        self.gone_by.is_none() && self.by_digest.len() < self.allowance.get()
    }

    /// Whether a number lies in the window, as far as this client can know: the session's floor is at least
    /// the end of what was answered without gaps.
    fn in_window(&self, number: BundleNo) -> bool {
        number.since(self.first) < u64::from(self.settings.client_window)
    }

    /// Who is asked first.
    fn target(&self) -> ReplicaId {
        match self.settings.audience {
            Audience::One(replica) => replica,
            Audience::Leader | Audience::All => self.leader.get(),
        }
    }

    /// This client may no longer hear of executions by this replica.
    fn unhear(&mut self, replica: ReplicaId) {
        self.heard.remove(replica);
        for flight in flights(&mut self.session, &mut self.slots) {
            flight.witnesses.remove(replica);
        }
    }

    /// Sends a bundle for the first time: to the leader alone (or whoever stands for it) if it can be reached, and to those
    /// that send their replies elsewhere until they get one.
    fn launch(&mut self, mut flight: Flight, number: BundleNo) -> Box<Flight> {
        flight.sent = self.now;
        flight.witnesses = self.heard;
        flight.pause = self.settings.retry_ns;
        flight.retry_at = self.now.plus(flight.pause);
        self.by_digest.insert(flight.digest, number);
        self.counters.bundles = self.counters.bundles.saturating_add(1);
        let leader = self.target();
        let mut out = Sender::new(&self.links, &mut self.outputs, &mut self.wake);
        match out.state(leader) {
            _ if self.settings.audience == Audience::All => {
                out.ask_all(self.now, &self.settings, &mut flight);
            }
            Some(LinkState::Up) => send(out.outputs, leader, &mut flight),
            Some(LinkState::Down) => out.ask_all(self.now, &self.settings, &mut flight),
            // Its connection is being made: the bundle leaves when that has ended one way or the other.
            None => {}
        }
        if !self.displaced.is_empty() {
            for replica in std::mem::take(&mut self.displaced).iter() {
                if !flight.sent_to.contains(replica) && out.state(replica) == Some(LinkState::Up) {
                    send(out.outputs, replica, &mut flight);
                }
            }
        }
        out.wake_at(flight.due());
        Box::new(flight)
    }
}

/// All that is in flight, in the order in which it was sent.
fn flights<'a>(
    session: &'a mut Session,
    slots: &'a mut VecDeque<Slot>,
) -> impl Iterator<Item = &'a mut Flight> {
    let opening = match session {
        Session::Opening(flight, _) => Some(&mut **flight),
        Session::Closed | Session::Open(_) => None,
    };
    let flying = slots.iter_mut().filter_map(|slot| match slot {
        Slot::Flying(flight) => Some(&mut **flight),
        Slot::Reserved | Slot::Done => None,
    });
    opening.into_iter().chain(flying)
}

fn send(outputs: &mut VecDeque<Output>, to: ReplicaId, flight: &mut Flight) {
    flight.sent_to.insert(to);
    let frame = flight.frame.clone();
    outputs.push_back(Output::Send { to, frame });
}

/// The parts of a core that sending needs, while its flights are borrowed.
struct Sender<'a> {
    links: &'a [Option<LinkState>],
    outputs: &'a mut VecDeque<Output>,
    wake: &'a mut Time,
}

impl<'a> Sender<'a> {
    fn new(links: &'a [Option<LinkState>], outputs: &'a mut VecDeque<Output>, wake: &'a mut Time) -> Self {
        Self { links, outputs, wake }
    }

    fn state(&self, replica: ReplicaId) -> Option<LinkState> {
        self.links.get(replica.index()).copied().flatten()
    }

    fn wake_at(&mut self, time: Time) {
        *self.wake = time.min(*self.wake);
    }

    /// To all that can be reached, and once more after a pause that doubles.
    fn ask_all(&mut self, now: Time, settings: &Settings, flight: &mut Flight) {
        flight.widen();
        flight.again_at = None;
        self.send_all(flight);
        flight.retry_at = now.plus(flight.pause);
        flight.pause = flight.pause.saturating_mul(2).min(settings.retry_ns_max);
        self.wake_at(flight.retry_at);
    }

    /// Where there is too much to do, only whoever leads is asked once more: everybody is in the retry's time.
    fn once_more(&mut self, leader: ReplicaId, flight: &mut Flight) {
        let is_up = self.state(leader) == Some(LinkState::Up);
        if is_up && (!flight.everyone || flight.is_unwelcome) {
            send(self.outputs, leader, flight);
        } else if flight.everyone {
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
