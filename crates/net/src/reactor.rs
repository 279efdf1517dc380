//! The reactor: all sockets of a node, driven by the loop that owns it.
//!
//! It starts no thread. Each pass of the loop calls [`Reactor::wait`], [`Reactor::read_ready`] and
//! [`Reactor::flush`]; only the first one sleeps. While a connection is read nothing is sent: the sink collects
//! events, and what they cause is queued afterwards and leaves with the next flush, many frames in one write.
//!
//! Everything that a stranger can make grow is bounded: connections, half-open handshakes, unfinished frames,
//! replies that are not read. Beyond a bound a connection is closed with the reason, and nobody else notices.
//!
//! What is drained: a read that did not fill the buffer emptied its socket as of that moment. Who needs to
//! have handled *everything* that arrived by some time (the tie rule of timers) takes the time, then calls
//! [`Reactor::wait`] with a zero timeout, then reads until [`Reactor::read_ready`] says that it is drained.

#![allow(clippy::disallowed_types, reason = "this is where sockets live")]

mod clients;
mod config;
mod peers;
mod socket;

pub use config::{
    ConnId, Event, NetConfig, NetFault, PeerConfig, PeerStatus, Security, SendError, Who, bind,
};

use crate::frame::Refusal;
use crate::lanes::{Loss, Oversize};
use crate::session::Session;
use crate::tls;
use mio::{Events, Poll, Token, Waker};
use peers::Peer;
use quorate_types::ledger::Ledger;
use quorate_types::limits::BUNDLE_OVERHEAD_BYTES;
use quorate_types::rng::Rng;
use quorate_types::wire::Lane;
use quorate_types::{FrameBody, ReplicaId, ReplicaSet, Time};
use rustls::ServerConfig;
use socket::{Key, Listener, Role, Socket, Table};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

const WAKER: Token = Token(0);
const PEERS: Token = Token(1);
const CLIENTS: Token = Token(2);

/// Bytes that one read takes at most.
const READ_BYTES: usize = 256 << 10;
/// What is read from clients in one pass at most, in bytes with [`BUNDLE_OVERHEAD_BYTES`] for each message. More than
/// the rest of a replica can do in that time, or what waits would wait in sockets, where nobody sees that it is too much.
const CLIENT_TURN_COST: usize = 1 << 20;
/// Plain text handed to a session at a time: its records wait in memory until the socket takes them.
const WRITE_BYTES: usize = 512 << 10;
/// Bytes that one flush writes to one connection at most before it is another's turn.
const FLUSH_BYTES: usize = 8 << 20;
/// Connections accepted from one listener in one pass of the loop.
const ACCEPTS_PER_PASS: usize = 16;
/// How long a closed connection may take to read why.
const LINGER_NS: u64 = 1_000_000_000;
/// Closed connections that linger at the same time.
const LINGERING_MAX: usize = 256;

/// An event that was noticed where no sink was at hand.
#[derive(Debug)]
enum Note {
    PeerDown(ReplicaId),
    Lost(ReplicaId, Loss),
    ClientDown(ConnId),
    Refused(Who, Refusal),
}

/// All sockets of a node. See the module's words.
#[derive(Debug)]
pub struct Reactor {
    me: ReplicaId,
    poll: Poll,
    events: Events,
    waker: Arc<Waker>,
    peer_listener: Listener,
    client_listener: Option<Listener>,
    /// `None` where links are plain.
    peer_tls: Option<Arc<ServerConfig>>,
    client_tls: Option<Arc<ServerConfig>>,
    /// By id; `None` for ourselves.
    peers: Vec<Option<Peer>>,
    sockets: Table,
    ready_peers: VecDeque<Key>,
    ready_clients: VecDeque<Key>,
    dirty: Vec<Key>,
    /// Used in turn with `dirty`, so that neither is allocated anew.
    flushing: Vec<Key>,
    /// A flush left something that the sockets would still take.
    unflushed: bool,
    guests: VecDeque<(Time, Key)>,
    newcomers: VecDeque<(Time, Key)>,
    lingering: VecDeque<(Time, Key)>,
    clients: clients::Totals,
    notes: VecDeque<Note>,
    buffer: Vec<u8>,
    urgent: Option<ReplicaId>,
    /// No peer is dialled or let in any more: [`Reactor::cut_off`].
    is_cut_off: bool,
    /// Who is not read just now.
    held: ReplicaSet,
    rng: Rng,
    ledger: Ledger,
    now: Time,
}

impl Reactor {
    /// Takes the listeners and begins to dial at the first [`Reactor::tick`].
    ///
    /// # Errors
    /// When the configuration contradicts itself, or the system gives no poll or takes no listener.
    pub fn new(config: NetConfig) -> Result<Self, NetFault> {
        let me = config.identity.me;
        // One poll tells of all of them: clients that say much must not keep what replicas have said behind them.
        let sockets = config.client_connections_max.saturating_add(config.descriptors_beside_clients());
        let mut rng = Rng::new(config.seed);
        let peers = peers::table(&config, &mut rng)?;
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
        let listen = |listener, token| Listener::new(listener, registry, token).map_err(NetFault::Listen);
        let peer_listener = listen(config.listen_peers, PEERS)?;
        let client_listener = config.listen_clients.map(|listener| listen(listener, CLIENTS)).transpose()?;
        Ok(Self {
            me,
            events: Events::with_capacity(sockets),
            waker: Arc::new(waker),
            peer_listener,
            client_listener,
            peer_tls,
            client_tls,
            peers,
            sockets: Table::default(),
            ready_peers: VecDeque::new(),
            ready_clients: VecDeque::new(),
            dirty: Vec::new(),
            flushing: Vec::new(),
            unflushed: false,
            guests: VecDeque::new(),
            newcomers: VecDeque::new(),
            lingering: VecDeque::new(),
            clients: clients::Totals::new(config.client_connections_max),
            notes: VecDeque::new(),
            buffer: vec![0; READ_BYTES],
            urgent: None,
            is_cut_off: false,
            held: ReplicaSet::EMPTY,
            rng,
            ledger: Ledger::default(),
            now: Time::ZERO,
            poll,
        })
    }

    /// Sleeps until a socket has news, another thread wakes it, or `timeout` is over (`None`: no end). Does not
    /// sleep when something was left over from the last pass.
    ///
    /// # Errors
    /// When the system's poll fails.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), NetFault> {
        let mut timeout = if self.left_over() { Some(Duration::ZERO) } else { timeout };
        self.ledger.wakeups = self.ledger.wakeups.saturating_add(1);
        while let Err(error) = self.poll.poll(&mut self.events, timeout) {
            if error.kind() != ErrorKind::Interrupted {
                return Err(NetFault::Poll(error));
            }
            // The process may have stood still: what has come meanwhile is looked at all the same.
            timeout = Some(Duration::ZERO);
        }
        for event in &self.events {
            match event.token() {
                WAKER => {}
                PEERS => self.peer_listener.wake(),
                CLIENTS => self.client_listener.iter_mut().for_each(Listener::wake),
                token => {
                    let Some((key, socket)) = self.sockets.by_token(token) else {
                        continue;
                    };
                    socket.ended |= event.is_read_closed() || event.is_error();
                    let readable = event.is_readable() || socket.ended;
                    if (readable || (socket.connecting && event.is_writable())) && !socket.listed {
                        socket.listed = true;
                        match socket.role {
                            Role::Client(_) => self.ready_clients.push_back(key),
                            _ => self.ready_peers.push_back(key),
                        }
                    }
                    if event.is_writable() && !socket.writable {
                        socket.writable = true;
                        if !socket.dirty {
                            socket.dirty = true;
                            self.dirty.push(key);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn left_over(&self) -> bool {
        let listeners = std::iter::once(&self.peer_listener).chain(&self.client_listener);
        self.unflushed
            || !self.ready_peers.is_empty()
            || !self.ready_clients.is_empty()
            || !self.notes.is_empty()
            || listeners.into_iter().any(Listener::is_ready)
    }

    /// Reads what the sockets have, replicas before clients, until about `budget` bytes were read; hands out what it
    /// means. Clients get a part of it only, or what they send would hold up what replicas say.
    /// Returns whether replicas have nothing left to read.
    pub fn read_ready(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        self.now = now;
        self.deliver(sink);
        self.accept_guests(now);
        self.accept_clients(now, sink);
        if let Some(position) = self.urgent_position()
            && let Some(key) = self.ready_peers.remove(position)
        {
            self.ready_peers.push_front(key);
        }
        let mut left = budget;
        for _ in 0..self.ready_peers.len() {
            if left == 0 {
                break;
            }
            let Some(key) = self.ready_peers.pop_front() else { break };
            if self.is_held(key) {
                self.ready_peers.push_back(key);
            } else {
                left = left.saturating_sub(self.read_socket(now, key, sink));
            }
        }
        // Replicas that use up the budget do not silence the clients: one of them is read all the same.
        self.read_clients(now, left.clamp(1, CLIENT_TURN_COST), sink);
        self.ready_peers.is_empty() && !self.peer_listener.is_ready()
    }

    /// Reads clients by turns, each until it has no more.
    fn read_clients(&mut self, now: Time, most: usize, sink: &mut dyn FnMut(Event<'_>)) {
        let mut cost = 0usize;
        while cost < most
            && let Some(key) = self.ready_clients.pop_front()
        {
            let mut messages = 0usize;
            let bytes = self.read_socket(now, key, &mut |event| {
                messages = messages.saturating_add(usize::from(matches!(event, Event::Client { .. })));
                sink(event);
            });
            // The read itself costs as much as a message, where it brings a handshake say.
            let overhead = messages.saturating_add(1).saturating_mul(BUNDLE_OVERHEAD_BYTES);
            cost = cost.saturating_add(bytes).saturating_add(overhead);
        }
    }

    fn is_held(&self, key: Key) -> bool {
        let role = self.sockets.get(key).map(|socket| &socket.role);
        matches!(role, Some(Role::Peer(id)) if self.held.contains(*id))
    }

    fn urgent_position(&self) -> Option<usize> {
        let socket = self.peer(self.urgent?)?.socket?;
        self.ready_peers.iter().position(|key| *key == socket)
    }

    /// Reads one socket once; returns how many bytes.
    fn read_socket(&mut self, now: Time, key: Key, sink: &mut dyn FnMut(Event<'_>)) -> usize {
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
                self.ledger.bytes_in = self.ledger.bytes_in.saturating_add(config::wide(count));
                if count == buffer.len() || socket.ended {
                    self.read_again(key);
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
                self.read_again(key);
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

    /// Puts a socket back among those to be read: a read that filled the buffer says nothing about the rest,
    /// and no event will come for it.
    fn read_again(&mut self, key: Key) {
        if let Some(socket) = self.sockets.get_mut(key)
            && !socket.listed
        {
            socket.listed = true;
            match socket.role {
                Role::Client(_) => self.ready_clients.push_back(key),
                _ => self.ready_peers.push_back(key),
            }
        }
    }

    /// Gives what was read to whom it belongs.
    fn take(
        &mut self,
        now: Time,
        key: Key,
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

    fn deliver(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        while let Some(note) = self.notes.pop_front() {
            sink(match note {
                Note::PeerDown(id) => Event::PeerDown(id),
                Note::Lost(peer, loss) => config::lost(peer, loss),
                Note::ClientDown(conn) => Event::ClientDown(conn),
                Note::Refused(who, why) => Event::Refused { who, why },
            });
        }
    }

    fn mark_dirty(&mut self, key: Key) {
        if let Some(socket) = self.sockets.get_mut(key)
            && !socket.dirty
        {
            socket.dirty = true;
            self.dirty.push(key);
        }
    }

    /// Queues a frame for one replica. It waits, in the order of its lane, while there is no connection; what
    /// cannot be kept any more is reported by [`Event::Lost`].
    ///
    /// # Errors
    /// When no peer would take so large a body.
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
    /// When no peer would take so large a body.
    pub fn broadcast(&mut self, lane: Lane, frame_type: u8, body: &FrameBody) -> Result<(), Oversize> {
        (0..u16::try_from(self.peers.len()).unwrap_or(u16::MAX))
            .try_for_each(|id| self.send_peer(ReplicaId(id), lane, frame_type, body.clone()))
    }

    /// These replicas are not read until this is called again: what they have said is more than can be dealt with, and waits
    /// in their sockets.
    pub fn hold(&mut self, peers: ReplicaSet) {
        self.held = peers;
    }

    /// Whose frames are read first from now on.
    pub fn urgent(&mut self, peer: Option<ReplicaId>) {
        self.urgent = peer;
    }

    /// Writes what waits: one write per connection where the socket takes it all. What a socket does not take
    /// waits until it is writable.
    pub fn flush(&mut self, now: Time) {
        self.now = now;
        self.unflushed = false;
        let mut flushing = std::mem::take(&mut self.flushing);
        std::mem::swap(&mut flushing, &mut self.dirty);
        for key in flushing.drain(..) {
            if let Some(socket) = self.sockets.get_mut(key) {
                socket.dirty = false;
                self.flush_socket(key);
            }
        }
        self.flushing = flushing;
        self.forget_settled();
    }

    fn flush_socket(&mut self, key: Key) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        let mut written = 0usize;
        while socket.writable && !socket.connecting {
            if !socket.session.pending() && !fill(socket, &mut self.peers, &mut self.clients) {
                break;
            }
            if written >= FLUSH_BYTES {
                self.unflushed = true;
                self.mark_dirty(key);
                return;
            }
            self.ledger.writes = self.ledger.writes.saturating_add(1);
            match socket.session.write(&mut socket.stream) {
                Ok(count) => {
                    written = written.saturating_add(count);
                    self.ledger.bytes_out = self.ledger.bytes_out.saturating_add(config::wide(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone(key);
                    return;
                }
            }
        }
        if let Role::Leaving = socket.role
            && !socket.session.pending()
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

    /// When [`Reactor::tick`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let listeners = std::iter::once(&self.peer_listener).chain(&self.client_listener);
        let fronts = [&self.guests, &self.newcomers, &self.lingering];
        let peers = self.peers.iter().flatten().filter_map(Peer::deadline);
        peers
            .chain(fronts.into_iter().filter_map(|queue| queue.front().map(|(due, _)| *due)))
            .chain(listeners.into_iter().filter_map(Listener::deadline))
            .min()
    }

    /// Does what is due: acknowledgements, dialling again, handshakes that took too long. What that causes to
    /// be written leaves with the next flush.
    pub fn tick(&mut self, now: Time) {
        self.now = now;
        self.peer_listener.tick(now);
        self.client_listener.iter_mut().for_each(|listener| listener.tick(now));
        self.tick_peers(now);
        while let Some(key) = pop_due(&mut self.guests, now) {
            if self.is_unsettled(key) {
                self.refuse(key, Refusal::TooSlow);
            }
        }
        while let Some(key) = pop_due(&mut self.newcomers, now) {
            if self.is_unsettled(key) {
                self.refuse(key, Refusal::TooSlow);
            }
        }
        while let Some(key) = pop_due(&mut self.lingering, now) {
            self.sockets.remove(key);
        }
    }

    /// Whether a connection still owes its handshake or first frame.
    fn is_unsettled(&self, key: Key) -> bool {
        match self.sockets.get(key).map(|socket| &socket.role) {
            Some(Role::Guest(_)) => true,
            Some(Role::Client(client)) => !client.has_spoken(),
            _ => false,
        }
    }

    /// Deadlines of connections that have kept them would only wake us up.
    fn forget_settled(&mut self) {
        while self.guests.front().is_some_and(|(_, key)| !self.is_unsettled(*key)) {
            self.guests.pop_front();
        }
        while self.newcomers.front().is_some_and(|(_, key)| !self.is_unsettled(*key)) {
            self.newcomers.pop_front();
        }
        let sockets = &self.sockets;
        while self.lingering.front().is_some_and(|(_, key)| sockets.get(*key).is_none()) {
            self.lingering.pop_front();
        }
    }

    /// The connection has ended from the other side.
    fn gone(&mut self, key: Key) {
        if let Some(socket) = self.sockets.remove(key) {
            self.forget(key, socket.role);
        }
    }

    /// What the loss of a connection means to whom it belonged.
    fn forget(&mut self, key: Key, role: Role) {
        match role {
            Role::Peer(id) => self.peer_gone(id),
            Role::Client(client) => self.client_gone(key, &client),
            Role::Guest(_) | Role::Leaving => {}
        }
    }

    /// Closes a connection for what it did, and says so on both sides.
    fn refuse(&mut self, key: Key, refusal: Refusal) {
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
            self.notes.push_back(Note::Refused(who, refusal));
            self.leave(key, refusal.reason());
        }
    }

    /// Says why, stops listening, and closes when the other side had a chance to read it.
    fn leave(&mut self, key: Key, reason: &str) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        let role = std::mem::replace(&mut socket.role, Role::Leaving);
        socket.say_goodbye(&role, reason);
        self.forget(key, role);
        self.mark_dirty(key);
        self.lingering.push_back((self.now.plus(LINGER_NS), key));
        if self.lingering.len() > LINGERING_MAX
            && let Some((_, oldest)) = self.lingering.pop_front()
        {
            self.sockets.remove(oldest);
        }
    }

    /// Wakes [`Reactor::wait`] from another thread.
    #[must_use]
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// What it has cost so far: wake-ups, reads, writes, bytes in and out.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// Hands what waits for this connection to its session; false when nothing does.
fn fill(socket: &mut Socket, peers: &mut [Option<Peer>], totals: &mut clients::Totals) -> bool {
    let session = &mut socket.session;
    match &mut socket.role {
        Role::Peer(id) => match peers.get_mut(id.index()) {
            Some(Some(peer)) => peer.fill(session),
            _ => false,
        },
        Role::Client(client) => client.fill(session, totals),
        Role::Guest(_) | Role::Leaving => false,
    }
}

fn pop_due(queue: &mut VecDeque<(Time, Key)>, now: Time) -> Option<Key> {
    match queue.front() {
        Some((due, key)) if *due <= now => {
            let key = *key;
            queue.pop_front();
            Some(key)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
