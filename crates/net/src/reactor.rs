//! The reactor: all sockets of a node, driven by the loop that owns it.
//!
//! The reactor starts no thread. Each pass of the loop calls [`Reactor::wait`], [`Reactor::read_ready`] and
//! [`Reactor::flush`]; only `wait` sleeps. Nothing is sent while a connection is read: the sink collects
//! events, the caller queues its answers afterwards, and they leave with the next flush, many frames in one write.
//!
//! Everything that a stranger can make grow has a bound: connections, half-open handshakes, unfinished frames,
//! unread replies. Beyond a bound the reactor closes a connection with the reason, and no other connection notices.
//!
//! A read that did not fill the buffer emptied its socket as of that moment. A caller may need to
//! have handled *everything* that arrived by some time (the tie rule of timers). It takes the time, then calls
//! [`Reactor::wait`] with a zero timeout, then reads until [`Reactor::read_ready`] returns that nothing is left.
//!
//! A file of this folder imports only earlier ones of this list: `event`, `config`, `client`, `delay`, `socket`, `entrance`,
//! `queues`, `peer`. The files `peers` and `clients` are the exception: they extend [`Reactor`] by its two kinds of connections, so they
//! import it from this file, and its methods call theirs.

#![allow(clippy::disallowed_types, reason = "this is where sockets live")]

mod alarm;
mod client;
mod clients;
mod config;
mod delay;
mod entrance;
mod event;
mod peer;
mod peers;
mod queues;
mod socket;

pub use config::{LINK_DELAY_NS_MAX, NetConfig, NetFault, PeerConfig, Security, bind};
pub use event::{ConnId, Event, SendError, Who};
pub use peer::PeerStatus;

use crate::frame::Refusal;
use crate::lanes::Oversize;
use crate::session::Session;
use crate::tls;
use alarm::Alarm;
use client::ClientTotals;
use config::LINGERING_MAX;
use entrance::Entrance;
use mio::{Events, Poll, Token, Waker};
use peer::Peer;
use queues::{FlushQueue, ReadQueue};
use quorate_types::ledger::Ledger;
use quorate_types::limits::BUNDLE_OVERHEAD_BYTES;
use quorate_types::rng::Rng;
use quorate_types::wire::Lane;
use quorate_types::{FrameBody, ReplicaId, ReplicaSet, Time};
use socket::{Role, Socket, SocketKey, SocketTable};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

const WAKER: Token = Token(0);
const PEERS: Token = Token(1);
const CLIENTS: Token = Token(2);
const ALARM: Token = Token(3);

/// Bytes that one read takes at most.
const READ_BYTES: usize = 256 << 10;
/// Bytes read from clients in one pass at most, with [`BUNDLE_OVERHEAD_BYTES`] for each message. This is more than the rest of a
/// replica can handle in that time. Otherwise the excess would wait in sockets, unseen by the limits of the pool.
const CLIENT_TURN_COST: usize = 1 << 20;
/// Plain text handed to a session at a time: its records wait in memory until the socket takes them.
const WRITE_BYTES: usize = 512 << 10;
/// Bytes that one flush writes to one connection at most before the next connection has its turn.
const FLUSH_BYTES: usize = 8 << 20;
/// Connections accepted from one listener in one pass of the loop.
const ACCEPTS_PER_PASS: usize = 16;
/// The time that the other side of a closed connection has to read the reason.
const LINGER_NS: u64 = 1_000_000_000;

/// All sockets of a node. The module's documentation describes its use.
#[derive(Debug)]
pub struct Reactor {
    me: ReplicaId,
    poll: Poll,
    events: Events,
    waker: Arc<Waker>,
    peer_entrance: Entrance,
    client_entrance: Option<Entrance>,
    /// Links by id; `None` for this replica itself.
    peers: Vec<Option<Peer>>,
    clients: ClientTotals,
    sockets: SocketTable,
    reads: ReadQueue,
    flushes: FlushQueue,
    /// Closed connections whose other side may still read the reason, each with its deadline.
    lingering: VecDeque<(Time, SocketKey)>,
    /// Events that were noticed without a sink; the next pass delivers them.
    deferred: VecDeque<Event<'static>>,
    buffer: Vec<u8>,
    /// Whether all links have ended for good: [`Reactor::cut_off`].
    is_cut_off: bool,
    /// The longest emulated delay to a replica, in nanoseconds; zero if there is none.
    delay_ns_max: u64,
    /// Ends a wait on time; `None` without emulated delays.
    alarm: Option<Alarm>,
    rng: Rng,
    ledger: Ledger,
    now: Time,
}

impl Reactor {
    /// Takes the listeners. The first [`Reactor::tick`] begins to dial.
    ///
    /// # Errors
    /// Fails when the configuration contradicts itself, or the system gives no poll or takes no listener.
    pub fn new(config: NetConfig) -> Result<Self, NetFault> {
        let me = config.identity.me;
        // One poll reports all sockets: events of busy clients must not keep those of replicas out of it.
        let sockets = config.client_connections_max.saturating_add(config.descriptors_beside_clients());
        let mut rng = Rng::new(config.seed);
        let peers = peer::table(&config, &mut rng)?;
        let delay_ns_max = peers.iter().flatten().map(|peer| peer.delay_ns).max().unwrap_or(0);
        let (peer_tls, client_tls) = match &config.security {
            Security::Plain => (None, None),
            Security::Tls(key) => {
                let committee: Vec<_> = config.peers.iter().map(|peer| peer.key).collect();
                // The TLS library gathers entropy for its first random number, which takes many milliseconds:
                // now, and not inside the loop.
                drop(Session::dial(&tls::dial_replica(key.public())?));
                (Some(tls::listen_to_peers(key, &committee)?), Some(tls::listen_to_clients(key)?))
            }
        };
        let poll = Poll::new().map_err(NetFault::Poll)?;
        let registry = poll.registry();
        let waker = Waker::new(registry, WAKER).map_err(NetFault::Poll)?;
        let alarm = (delay_ns_max > 0).then(|| Alarm::new(registry, ALARM));
        let alarm = alarm.transpose().map_err(NetFault::Poll)?;
        let open =
            |listener, tls, token| Entrance::new(listener, tls, registry, token).map_err(NetFault::Listen);
        let peer_entrance = open(config.listen_peers, peer_tls, PEERS)?;
        let client_entrance =
            config.listen_clients.map(|listener| open(listener, client_tls, CLIENTS)).transpose()?;
        Ok(Self {
            me,
            events: Events::with_capacity(sockets),
            waker: Arc::new(waker),
            peer_entrance,
            client_entrance,
            peers,
            clients: ClientTotals::new(config.client_connections_max),
            sockets: SocketTable::default(),
            reads: ReadQueue::default(),
            flushes: FlushQueue::default(),
            lingering: VecDeque::new(),
            deferred: VecDeque::new(),
            buffer: vec![0; READ_BYTES],
            is_cut_off: false,
            delay_ns_max,
            alarm,
            rng,
            ledger: Ledger::default(),
            now: Time::ZERO,
            poll,
        })
    }

    /// Sleeps until a socket has news, another thread wakes it, or `timeout` is over (`None`: no end). It does not
    /// sleep if the last pass left work over.
    ///
    /// # Errors
    /// Fails when the system's poll fails.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), NetFault> {
        let mut timeout = if self.left_over() { Some(Duration::ZERO) } else { timeout };
        self.ledger.wakeups = self.ledger.wakeups.saturating_add(1);
        if let (Some(alarm), Some(wait)) = (&self.alarm, timeout.filter(|wait| !wait.is_zero())) {
            alarm.set(wait).map_err(NetFault::Poll)?;
        }
        while let Err(error) = self.poll.poll(&mut self.events, timeout) {
            if error.kind() != ErrorKind::Interrupted {
                return Err(NetFault::Poll(error));
            }
            // The process may have stood still: events that arrived meanwhile are collected all the same.
            timeout = Some(Duration::ZERO);
        }
        for event in &self.events {
            match event.token() {
                WAKER | ALARM => {}
                PEERS => self.peer_entrance.wake(),
                CLIENTS => self.client_entrance.iter_mut().for_each(|entrance| entrance.wake()),
                token => {
                    let Some((key, socket)) = self.sockets.by_token(token) else {
                        continue;
                    };
                    socket.ended |= event.is_read_closed() || event.is_error();
                    let readable = event.is_readable() || socket.ended;
                    if readable || (socket.connecting && event.is_writable()) {
                        self.reads.add(key, socket);
                    }
                    if event.is_writable() && !socket.writable {
                        socket.writable = true;
                        self.flushes.add(key, socket);
                    }
                }
            }
        }
        Ok(())
    }

    fn entrances(&self) -> impl Iterator<Item = &Entrance> {
        std::iter::once(&self.peer_entrance).chain(&self.client_entrance)
    }

    fn left_over(&self) -> bool {
        self.flushes.unfinished
            || !self.reads.is_empty()
            || !self.deferred.is_empty()
            || self.entrances().any(Entrance::is_ready)
    }

    /// Reads the sockets, replicas before clients, until about `budget` bytes were read, and passes the events to `sink`.
    /// Clients have only a part of the budget; otherwise their messages would delay those of replicas.
    /// Returns whether replicas have nothing left to read.
    pub fn read_ready(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        self.now = now;
        self.deliver(sink);
        self.accept_guests(now);
        self.accept_clients(now, sink);
        if let Some(urgent) = self.reads.urgent.and_then(|id| self.peer(id)?.socket) {
            self.reads.move_to_front(urgent);
        }
        let mut left = budget;
        for _ in 0..self.reads.peers.len() {
            if left == 0 {
                break;
            }
            let Some(key) = self.reads.peers.pop_front() else { break };
            if self.is_held(key) {
                self.reads.peers.push_back(key);
            } else {
                left = left.saturating_sub(self.read_socket(now, key, sink));
            }
        }
        // Replicas that use up the budget do not silence the clients: one client is read all the same.
        self.read_clients(now, left.clamp(1, CLIENT_TURN_COST), sink);
        self.reads.peers.is_empty() && !self.peer_entrance.is_ready()
    }

    /// Reads clients by turns, each until its socket is empty.
    fn read_clients(&mut self, now: Time, most: usize, sink: &mut dyn FnMut(Event<'_>)) {
        let mut cost = 0usize;
        while cost < most
            && let Some(key) = self.reads.clients.pop_front()
        {
            let mut messages = 0usize;
            let bytes = self.read_socket(now, key, &mut |event| {
                messages = messages.saturating_add(usize::from(matches!(event, Event::Client { .. })));
                sink(event);
            });
            // The read itself costs as much as a message, for example if it brings a handshake.
            let overhead = messages.saturating_add(1).saturating_mul(BUNDLE_OVERHEAD_BYTES);
            cost = cost.saturating_add(bytes).saturating_add(overhead);
        }
    }

    fn is_held(&self, key: SocketKey) -> bool {
        let role = self.sockets.get(key).map(|socket| &socket.role);
        matches!(role, Some(Role::Peer(id)) if self.reads.held.contains(*id))
    }

    /// Reads one socket once; returns the number of bytes.
    fn read_socket(&mut self, now: Time, key: SocketKey, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let Some(socket) = self.sockets.get_mut(key) else {
            return 0;
        };
        socket.listed = false;
        if socket.connecting && !self.finish_connecting(now, key) {
            self.deliver(sink);
            return 0;
        }
        let Some(socket) = self.sockets.get_mut(key) else {
            return 0;
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = socket.stream.read(&mut buffer);
        self.ledger.reads = self.ledger.reads.saturating_add(1);
        let count = match read {
            Ok(0) => {
                self.gone(key);
                0
            }
            Ok(count) => {
                self.ledger.bytes_in = self.ledger.bytes_in.saturating_add(wide(count));
                // A read that filled the buffer leaves the rest of the socket unknown, and no event will announce it.
                if count == buffer.len() || socket.ended {
                    self.reads.add(key, socket);
                }
                let bytes = buffer.get(..count).unwrap_or_default();
                if let Err(refusal) = self.take(now, key, bytes, sink) {
                    self.refuse(key, refusal);
                }
                self.mark_dirty(key);
                count
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                self.reads.add(key, socket);
                0
            }
            Err(_) => {
                self.gone(key);
                0
            }
        };
        self.buffer = buffer;
        self.deliver(sink);
        count
    }

    /// Passes received bytes to the part that handles this kind of connection.
    fn take(
        &mut self,
        now: Time,
        key: SocketKey,
        bytes: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Refusal> {
        let Some(socket) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        match &socket.role {
            Role::Peer(id) => {
                let id = *id;
                self.take_from_peer(now, key, id, bytes, sink)
            }
            Role::Guest(_) => self.take_from_guest(key, bytes, sink),
            Role::Client(_) => self.take_from_client(key, bytes, sink),
            Role::Leaving => Ok(()),
        }
    }

    /// Delivers the deferred events.
    fn deliver(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        while let Some(event) = self.deferred.pop_front() {
            sink(event);
        }
    }

    fn mark_dirty(&mut self, key: SocketKey) {
        if let Some(socket) = self.sockets.get_mut(key) {
            self.flushes.add(key, socket);
        }
    }

    /// Queues a frame for one replica. While there is no connection the frame waits, in the order of its lane. The reactor
    /// reports frames that it cannot keep any more by [`Event::Lost`].
    ///
    /// # Errors
    /// Fails when the body exceeds the limit of its lane.
    pub fn send_peer(
        &mut self,
        to: ReplicaId,
        lane: Lane,
        frame_type: u8,
        body: FrameBody,
    ) -> Result<(), Oversize> {
        let Some(peer) = self.peer_mut(to) else {
            return Ok(());
        };
        peer.link.send(lane, frame_type, body)?;
        if let Some(key) = peer.socket {
            self.mark_dirty(key);
        }
        Ok(())
    }

    /// Queues a frame for every other replica; the body is shared, not copied.
    ///
    /// # Errors
    /// Fails when the body exceeds the limit of its lane.
    pub fn broadcast(&mut self, lane: Lane, frame_type: u8, body: &FrameBody) -> Result<(), Oversize> {
        (0..u16::try_from(self.peers.len()).unwrap_or(u16::MAX))
            .try_for_each(|id| self.send_peer(ReplicaId(id), lane, frame_type, body.clone()))
    }

    /// Returns the other replicas.
    pub fn others(&self) -> impl Iterator<Item = ReplicaId> {
        let all = (0..u16::try_from(self.peers.len()).unwrap_or(u16::MAX)).map(ReplicaId);
        all.filter(|id| self.peers.get(id.index()).is_some_and(Option::is_some))
    }

    /// Pauses the sockets of exactly these replicas (back-pressure): they sent more than the caller can handle, and the excess
    /// waits in their sockets. The next call replaces the set.
    pub fn hold(&mut self, peers: ReplicaSet) {
        self.reads.held = peers;
    }

    /// Sets the replica whose frames are read first from now on.
    pub fn urgent(&mut self, peer: Option<ReplicaId>) {
        self.reads.urgent = peer;
    }

    /// Writes the queued bytes: one write per connection, if the socket takes them all. Other bytes
    /// wait until the socket is writable. Bytes to a replica whose link has a delay leave with the first flush after it; the delay
    /// counts from `now`, so `now` must be recent if [`Reactor::has_delays`].
    pub fn flush(&mut self, now: Time) {
        self.now = now;
        self.flushes.add_due(now, &mut self.sockets);
        let mut flushing = self.flushes.begin();
        for key in flushing.drain(..) {
            if let Some(socket) = self.sockets.get_mut(key) {
                socket.dirty = false;
                self.flush_socket(key);
            }
        }
        self.flushes.end(flushing);
        self.forget_settled();
    }

    fn flush_socket(&mut self, key: SocketKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        let mut written = 0usize;
        while socket.writable && !socket.connecting {
            let has_bytes = match &socket.line {
                None => has_pending(socket, &mut self.peers, &mut self.clients),
                Some(line) => line.is_due(self.now),
            };
            if !has_bytes {
                break;
            }
            if written >= FLUSH_BYTES {
                self.flushes.unfinished = true;
                self.flushes.add(key, socket);
                break;
            }
            self.ledger.writes = self.ledger.writes.saturating_add(1);
            match socket.write(self.now) {
                Ok(count) => {
                    written = written.saturating_add(count);
                    self.ledger.bytes_out = self.ledger.bytes_out.saturating_add(wide(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone(key);
                    return;
                }
            }
        }
        if socket.line.is_some() {
            self.enter_line(key);
        }
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        if let Role::Leaving = socket.role
            && !socket.has_unwritten()
            && !socket.finished
        {
            socket.finished = true;
            // The other side may be gone already; then there is nothing to end.
            let _ = socket.stream.shutdown(Shutdown::Write);
        }
        if let Role::Peer(id) = socket.role {
            self.note_losses(id);
        }
    }

    /// Moves queued bytes of a connection into its delay line, as far as the line has room.
    fn enter_line(&mut self, key: SocketKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        let mut moved = 0usize;
        while !socket.connecting
            && socket.line.as_ref().is_some_and(|line| !line.is_full())
            && has_pending(socket, &mut self.peers, &mut self.clients)
        {
            if moved >= FLUSH_BYTES {
                self.flushes.unfinished = true;
                self.flushes.add(key, socket);
                break;
            }
            // A line with room takes bytes and never fails.
            let Socket { session, line: Some(line), .. } = socket else { break };
            match session.write(&mut line.entrance(self.now)) {
                Ok(count) if count > 0 => moved = moved.saturating_add(count),
                _ => break,
            }
        }
        self.flushes.add_delayed(key, socket);
    }

    /// Whether frames to some replica have an emulated delay.
    #[must_use]
    pub fn has_delays(&self) -> bool {
        self.delay_ns_max > 0
    }

    /// Returns the time of the next necessary call to [`Reactor::tick`], or to [`Reactor::flush`] for bytes with a delay.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let fronts = self.entrances().map(|entrance| &entrance.unsettled).chain([&self.lingering]);
        let peers = self.peers.iter().flatten().filter_map(Peer::deadline);
        peers
            .chain(fronts.filter_map(|queue| queue.front().map(|(due, _)| *due)))
            .chain(self.entrances().filter_map(Entrance::deadline))
            .chain(self.flushes.deadline(&self.sockets))
            .min()
    }

    /// Does due work: acknowledgements, attempts to dial, handshakes that took too long. Bytes that this causes leave with
    /// the next flush.
    pub fn tick(&mut self, now: Time) {
        self.now = now;
        for entrance in std::iter::once(&mut self.peer_entrance).chain(&mut self.client_entrance) {
            entrance.tick(now);
        }
        self.tick_peers(now);
        while let Some(key) = pop_due(&mut self.peer_entrance.unsettled, now) {
            self.refuse_unsettled(key);
        }
        while let Some(key) =
            self.client_entrance.as_mut().and_then(|entrance| pop_due(&mut entrance.unsettled, now))
        {
            self.refuse_unsettled(key);
        }
        while let Some(key) = pop_due(&mut self.lingering, now) {
            self.sockets.remove(key);
        }
    }

    /// Closes a connection if its handshake or first frame is late.
    fn refuse_unsettled(&mut self, key: SocketKey) {
        if self.is_unsettled(key) {
            self.refuse(key, Refusal::TooSlow);
        }
    }

    /// Whether a connection still owes its handshake or first frame.
    fn is_unsettled(&self, key: SocketKey) -> bool {
        match self.sockets.get(key).map(|socket| &socket.role) {
            Some(Role::Guest(_)) => true,
            Some(Role::Client(client)) => !client.spoken,
            _ => false,
        }
    }

    /// Drops the deadlines of connections that have settled: they would only cause wake-ups.
    fn forget_settled(&mut self) {
        while self.peer_entrance.unsettled.front().is_some_and(|(_, key)| !self.is_unsettled(*key)) {
            self.peer_entrance.unsettled.pop_front();
        }
        let first = |reactor: &Self| Some(reactor.client_entrance.as_ref()?.unsettled.front()?.1);
        while first(self).is_some_and(|key| !self.is_unsettled(key)) {
            self.client_entrance.as_mut().and_then(|entrance| entrance.unsettled.pop_front());
        }
        let sockets = &self.sockets;
        while self.lingering.front().is_some_and(|(_, key)| sockets.get(*key).is_none()) {
            self.lingering.pop_front();
        }
    }

    /// Handles the end of a connection by the other side.
    fn gone(&mut self, key: SocketKey) {
        if let Some(socket) = self.sockets.remove(key) {
            self.forget(key, socket.role);
        }
    }

    /// Updates the link or client to which a lost connection belonged.
    fn forget(&mut self, key: SocketKey, role: Role) {
        match role {
            Role::Peer(id) => self.peer_gone(id),
            Role::Client(client) => self.client_gone(key, &client),
            Role::Guest(_) | Role::Leaving => {}
        }
    }

    /// Closes a connection because of an act of the other side, and reports the reason to both sides.
    fn refuse(&mut self, key: SocketKey, refusal: Refusal) {
        let Some(socket) = self.sockets.get(key) else {
            return;
        };
        let who = match &socket.role {
            Role::Peer(id) => Who::Replica(*id),
            Role::Leaving => return,
            Role::Guest(_) => self.guest(socket),
            Role::Client(_) => Who::Client(socket.address),
        };
        if refusal == Refusal::Closed {
            self.gone(key);
        } else {
            tracing::debug!(%who, %refusal, "closing a connection");
            self.remember_refusal(who, refusal);
            self.deferred.push_back(Event::Refused { who, why: refusal });
            self.leave(key, refusal.reason());
        }
    }

    /// Sends the reason, stops reading, and closes the connection once the other side had time to read it.
    fn leave(&mut self, key: SocketKey, reason: &str) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        let role = std::mem::replace(&mut socket.role, Role::Leaving);
        socket.say_goodbye(&role, reason);
        self.forget(key, role);
        self.mark_dirty(key);
        // The reason may have to pass a delay line. The order of the deadlines needs the same time for all.
        let until = self.now.plus(LINGER_NS).plus(self.delay_ns_max);
        self.lingering.push_back((until, key));
        if self.lingering.len() > LINGERING_MAX
            && let Some((_, oldest)) = self.lingering.pop_front()
        {
            self.sockets.remove(oldest);
        }
    }

    /// Returns the handle with which another thread wakes [`Reactor::wait`].
    #[must_use]
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Returns the costs so far: wake-ups, reads, writes, bytes in and out.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// Whether the session of this connection has bytes to write, after it was given queued frames.
fn has_pending(socket: &mut Socket, peers: &mut [Option<Peer>], totals: &mut ClientTotals) -> bool {
    socket.session.pending() || fill(socket, peers, totals)
}

/// Hands queued frames of this connection to its session; false if none wait.
fn fill(socket: &mut Socket, peers: &mut [Option<Peer>], totals: &mut ClientTotals) -> bool {
    let session = &mut socket.session;
    match &mut socket.role {
        Role::Peer(id) => match peers.get_mut(id.index()) {
            Some(Some(peer)) => peer.fill(session, WRITE_BYTES),
            _ => false,
        },
        Role::Client(client) => client.fill(session, WRITE_BYTES, totals),
        Role::Guest(_) | Role::Leaving => false,
    }
}

fn pop_due(queue: &mut VecDeque<(Time, SocketKey)>, now: Time) -> Option<SocketKey> {
    match queue.front() {
        Some((due, key)) if *due <= now => {
            let key = *key;
            queue.pop_front();
            Some(key)
        }
        _ => None,
    }
}

/// Converts a count of bytes for the ledger.
fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
