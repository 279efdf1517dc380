//! One link of the reactor: its connection, its attempts to dial, its counters.

use super::config::{LINK_DELAY_NS_MAX, NetConfig, NetFault, PeerConfig, Security};
use super::socket::SocketKey;
use crate::link::Link;
use crate::session::Session;
use crate::tls;
use quorate_types::limits::{HANDSHAKE_NS_MAX, REPLICAS_MAX};
use quorate_types::rng::Rng;
use quorate_types::{Incarnation, PublicKey, ReplicaId, Time};
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::sync::Arc;

/// The first pause before another attempt to dial; it doubles.
const BACKOFF_NS: u64 = 20_000_000;
/// The longest pause before another attempt to dial …
const BACKOFF_NS_MAX: u64 = 2_000_000_000;
/// … and the longest one in the first minute without a link. Replicas that lost their power together wait for each other, but
/// not for ever (`sync-hotstuff` §18), so a replica that starts has to be reached soon.
const BACKOFF_NS_MAX_SOON: u64 = 250_000_000;
/// The time in which a machine has to accept a connection. A machine without power is silent, and the system asks it again
/// after 1, 3 and 7 seconds: a new attempt is faster …
const CONNECT_NS_MAX: u64 = 3_000_000_000;
/// … above all in the first minute.
const CONNECT_NS_MAX_SOON: u64 = 1_000_000_000;
/// The length of that minute: with half of 256 replicas gone it costs some hundred attempts in a second.
const SOON_NS: u64 = 60_000_000_000;

/// The state of the link to one replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// The replica.
    pub id: ReplicaId,
    /// Whether frames flow.
    pub connected: bool,
    /// Whether its frames are read before those of others.
    pub urgent: bool,
    /// The time of the last change between connected and not connected.
    pub since: Time,
    /// Its last known incarnation; zero before the first hello.
    pub incarnation: Incarnation,
    /// Connections so far.
    pub connections: u64,
    /// Frames received from it.
    pub frames_in: u64,
    /// Bytes of these frames' bodies.
    pub bytes_in: u64,
    /// Bytes handed to its connections.
    pub bytes_out: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: usize,
    /// Bytes that were sent and not acknowledged.
    pub resend_bytes: usize,
    /// The reason of the last refused connection, by either side; empty if there was none.
    pub last_refusal: String,
    /// Its address.
    pub address: SocketAddr,
    /// The emulated one-way delay of frames to it, in nanoseconds; zero for none.
    pub delay_ns: u64,
    /// Whether this end dials; the other end does otherwise.
    pub dials: bool,
    /// The reason why the last attempt to dial failed; empty after the link was up, and at the end that does not dial.
    pub dial_error: String,
}

/// The link to one replica, with its connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    pub(super) socket: Option<SocketKey>,
    pub(super) key: PublicKey,
    pub(super) address: SocketAddr,
    /// The delay of bytes to it, in nanoseconds.
    pub(super) delay_ns: u64,
    /// The configuration for dialling; `None` for plain links and at the end that does not dial.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// The time of the next attempt to dial; `None` while there is a connection, and always at the end that does not dial.
    pub(super) redial: Option<Time>,
    /// The time at which a dialled connection must exist, and later the time at which it must be up.
    pub(super) due: Option<Time>,
    attempts: u32,
    pub(super) counters: LinkCounters,
}

/// The part of [`PeerStatus`] that the reactor counts itself.
#[derive(Debug, Default)]
pub(super) struct LinkCounters {
    pub(super) since: Time,
    pub(super) connections: u64,
    pub(super) frames_in: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) last_refusal: String,
    pub(super) dial_error: String,
}

impl Peer {
    pub(super) fn deadline(&self) -> Option<Time> {
        [self.redial, self.due, self.link.deadline()].into_iter().flatten().min()
    }

    /// Whether the link went down, or this end started, within the last minute.
    fn is_missed(&self, now: Time) -> bool {
        now.since(self.counters.since) < SOON_NS
    }

    /// Hands frames to the session, at most about `limit` bytes; false if none wait.
    pub(super) fn fill(&mut self, session: &mut Session, limit: usize) -> bool {
        if !self.link.wants_write() {
            return false;
        }
        let count = self.link.transmit(limit, &mut |slices| session.send(slices));
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.counters.bytes_out = self.counters.bytes_out.saturating_add(count);
        session.pending()
    }

    /// Notes that an attempt to dial has begun.
    pub(super) fn dialled(&mut self, now: Time, socket: SocketKey) {
        let most = if self.is_missed(now) { CONNECT_NS_MAX_SOON } else { CONNECT_NS_MAX };
        self.redial = None;
        self.due = Some(now.plus(most));
        self.socket = Some(socket);
    }

    /// Notes that the dialled connection exists; its handshake and hello follow.
    pub(super) fn connected(&mut self, now: Time) {
        self.due = Some(now.plus(HANDSHAKE_NS_MAX));
    }

    /// Notes that the link is up.
    pub(super) fn came_up(&mut self, now: Time) {
        self.redial = None;
        self.due = None;
        self.attempts = 0;
        self.counters.dial_error.clear();
        self.counters.since = now;
        self.counters.connections = self.counters.connections.saturating_add(1);
    }

    /// Schedules the next attempt to dial. The pause doubles, with jitter so that two replicas never dial in step.
    pub(super) fn redial_later(&mut self, now: Time, rng: &mut Rng) {
        let most = if self.is_missed(now) { BACKOFF_NS_MAX_SOON } else { BACKOFF_NS_MAX };
        let pause = BACKOFF_NS.saturating_mul(1 << self.attempts.min(16)).min(most);
        self.attempts = self.attempts.saturating_add(1);
        self.redial = Some(now.plus(rng.between(pause / 2, pause)));
    }

    /// Returns the state of the link, of replica `me`.
    pub(super) fn status(&self, me: ReplicaId, urgent: bool) -> PeerStatus {
        let (kept, queued) = self.link.backlog();
        PeerStatus {
            id: self.link.peer(),
            connected: self.link.is_up(),
            urgent,
            since: self.counters.since,
            incarnation: self.link.heard(),
            connections: self.counters.connections,
            frames_in: self.counters.frames_in,
            bytes_in: self.counters.bytes_in,
            bytes_out: self.counters.bytes_out,
            queued_bytes: queued,
            resend_bytes: kept.saturating_sub(queued),
            last_refusal: self.counters.last_refusal.clone(),
            address: self.address,
            delay_ns: self.delay_ns,
            dials: Link::dials(me, self.link.peer()),
            dial_error: self.counters.dial_error.clone(),
        }
    }
}

/// Returns a link to each replica, by id; `None` for this replica itself.
pub(super) fn table(config: &NetConfig, rng: &mut Rng) -> Result<Vec<Option<Peer>>, NetFault> {
    let me = config.identity.me;
    if config.peers.len() > REPLICAS_MAX {
        return Err(NetFault::Configuration("the list of peers is longer than the largest committee"));
    }
    let Some(own) = config.peers.get(me.index()) else {
        return Err(NetFault::Configuration("the list of peers lacks the id of this replica"));
    };
    if let Security::Tls(key) = &config.security
        && key.public() != own.key
    {
        return Err(NetFault::Configuration(
            "the link key differs from the key that the committee lists for this replica",
        ));
    }
    if !config.delays_ns.is_empty() && config.delays_ns.len() != config.peers.len() {
        return Err(NetFault::Configuration("the list of delays has not one entry for each replica"));
    }
    if config.delays_ns.iter().any(|delay| *delay > LINK_DELAY_NS_MAX) {
        return Err(NetFault::Configuration("a delay of a link exceeds the longest one"));
    }
    let ids = (0..u16::MAX).map(ReplicaId);
    let peer = |(id, peer): (ReplicaId, &PeerConfig)| {
        if id == me {
            return Ok(None);
        }
        let dials = Link::dials(me, id);
        let tls = match &config.security {
            Security::Tls(key) if dials => Some(tls::dial_peer(key, peer.key)?),
            _ => None,
        };
        Ok(Some(Peer {
            link: Link::new(config.identity, id, config.resend),
            socket: None,
            key: peer.key,
            address: peer.address,
            delay_ns: config.delays_ns.get(id.index()).copied().unwrap_or(0),
            tls,
            // Spread a little, so that a cluster that starts at once does not dial at once.
            redial: dials.then(|| Time(rng.below(BACKOFF_NS / 4))),
            due: None,
            attempts: 0,
            counters: LinkCounters::default(),
        }))
    };
    ids.zip(&config.peers).map(peer).collect()
}
