//! The reactor's side of clients: frames of `u32` length and message, many replies in one write, and limits
//! for each client and for all of them together.

use super::config::{ConnId, Event, SendError};
use super::socket::{Key, Role, Socket, set_options};
use super::{ACCEPTS_PER_PASS, Note, Reactor, WRITE_BYTES, Who};
use crate::frame::{Assembler, CLIENT_HEADER_BYTES, Refusal, client_frame_bytes, client_header, put_close};
use crate::session::Session;
use quorate_types::limits::{
    CLIENT_OUTGOING_BYTES_MAX, CLIENTS_OUTGOING_BYTES_MAX, CLIENTS_UNFINISHED_BYTES_MAX, HANDSHAKE_NS_MAX,
};
use quorate_types::wire::FromReplica;
use quorate_types::{Time, Wire};
use std::io::IoSlice;

/// Memory that an idle client's connection keeps for putting frames together.
const ASSEMBLER_KEEP_BYTES: usize = 64 << 10;

/// Memory that an idle client's connection keeps for replies.
const QUEUE_KEEP_BYTES: usize = 64 << 10;

/// What all clients hold together.
#[derive(Debug)]
pub(super) struct Totals {
    connections_max: usize,
    connections: usize,
    unfinished: usize,
    outgoing: usize,
}

impl Totals {
    pub(super) fn new(connections_max: usize) -> Self {
        Self { connections_max, connections: 0, unfinished: 0, outgoing: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    assembler: Assembler<CLIENT_HEADER_BYTES>,
    /// Frames that wait, one behind the other, and how many of their bytes the session has taken.
    queue: Vec<u8>,
    taken: usize,
    up: bool,
    spoken: bool,
    vouched: bool,
    since: Time,
}

impl Client {
    fn new(now: Time) -> Self {
        Self {
            assembler: Assembler::new(client_frame_bytes, ASSEMBLER_KEEP_BYTES),
            queue: Vec::new(),
            taken: 0,
            up: false,
            spoken: false,
            vouched: false,
            since: now,
        }
    }

    pub(super) fn has_spoken(&self) -> bool {
        self.spoken
    }

    /// Queues one frame behind the others; returns the bytes that it takes.
    fn queue(&mut self, write: &dyn Fn(&mut Vec<u8>)) -> Result<usize, SendError> {
        let start = self.queue.len();
        self.queue.extend_from_slice(&[0; CLIENT_HEADER_BYTES]);
        let body_at = self.queue.len();
        write(&mut self.queue);
        let Some(header) = client_header(self.queue.len().saturating_sub(body_at)) else {
            self.queue.truncate(start);
            return Err(SendError::Oversize);
        };
        if let Some(place) = self.queue.get_mut(start..body_at) {
            place.copy_from_slice(&header);
        }
        Ok(self.queue.len().saturating_sub(start))
    }

    /// Hands replies to the session; false when none wait.
    pub(super) fn fill(&mut self, session: &mut Session, totals: &mut Totals) -> bool {
        let waiting = self.queue.get(self.taken..).unwrap_or_default();
        let piece = waiting.get(..WRITE_BYTES).unwrap_or(waiting);
        let count = piece.len();
        if count > 0 {
            session.send(&[IoSlice::new(piece)]);
        }
        self.taken = self.taken.saturating_add(count);
        // What is taken goes away before it is more than what waits, also where the queue never runs empty.
        if self.taken >= self.queued() {
            self.queue.drain(..self.taken);
            self.taken = 0;
            if self.queue.is_empty() {
                self.queue.shrink_to(QUEUE_KEEP_BYTES);
            }
        }
        totals.outgoing = totals.outgoing.saturating_sub(count);
        session.pending()
    }

    /// Bytes that wait.
    fn queued(&self) -> usize {
        self.queue.len().saturating_sub(self.taken)
    }
}

impl Socket {
    /// Queues the words that tell the other side why its connection is being closed.
    pub(super) fn say_goodbye(&mut self, role: &Role, reason: &str) {
        let mut goodbye = Vec::new();
        match role {
            Role::Client(_) => {
                let close = FromReplica::Close(reason.to_owned()).to_bytes();
                goodbye.extend(client_header(close.len()).unwrap_or_default());
                goodbye.extend_from_slice(&close);
            }
            Role::Peer(_) | Role::Guest(_) => put_close(&mut goodbye, reason),
            Role::Leaving => {}
        }
        self.session.send(&[IoSlice::new(&goodbye)]);
        self.session.finish();
    }
}

impl ConnId {
    fn of(key: Key) -> Self {
        Self(u64::from(key.generation) << 32 | u64::from(key.slot))
    }

    fn key(self) -> Option<Key> {
        Some(Key {
            slot: u32::try_from(self.0 & u64::from(u32::MAX)).ok()?,
            generation: u32::try_from(self.0 >> 32).ok()?,
        })
    }
}

impl Reactor {
    pub(super) fn accept_clients(&mut self, now: Time, sink: &mut dyn FnMut(Event<'_>)) {
        for _ in 0..ACCEPTS_PER_PASS {
            let accepted = self.client_listener.as_mut().and_then(|listener| listener.accept(now));
            let Some((stream, address)) = accepted else {
                return;
            };
            if !self.make_room(now) {
                // Dropping the stream closes it. Saying why would cost a handshake, which is what a flood wants.
                sink(Event::Refused { who: Who::Client(address), why: Refusal::TooMany });
                continue;
            }
            let session = match &self.client_tls {
                None => Ok(Session::plain()),
                Some(config) => Session::accept(config),
            };
            let Ok(session) = session else {
                continue;
            };
            let plain = self.client_tls.is_none();
            let mut client = Client::new(now);
            client.up = plain;
            let socket = Socket::new(stream, session, Role::Client(client), address);
            let inserted =
                set_options(&socket.stream).and_then(|()| self.sockets.insert(self.poll.registry(), socket));
            if let Ok(key) = inserted {
                self.clients.connections = self.clients.connections.saturating_add(1);
                self.newcomers.push_back((now.plus(HANDSHAKE_NS_MAX), key));
                if plain {
                    sink(Event::ClientUp { conn: ConnId::of(key), address });
                }
            }
        }
    }

    /// Whether one more client may come in. When all places are taken, the oldest that has not said anything
    /// yet makes room, or else the oldest that has had time to prove itself and that nobody has vouched for.
    fn make_room(&mut self, now: Time) -> bool {
        while self.clients.connections >= self.clients.connections_max {
            let Some((_, key)) = self.newcomers.pop_front() else {
                let Some(key) = self.longest_unproved(now) else {
                    return false;
                };
                self.refuse(key, Refusal::TooMany);
                continue;
            };
            if self.is_unsettled(key) {
                self.refuse(key, Refusal::TooMany);
            }
        }
        true
    }

    fn longest_unproved(&self, now: Time) -> Option<Key> {
        let clients = self.sockets.iter().filter_map(|(key, socket)| match &socket.role {
            Role::Client(client) if !client.vouched => Some((client.since, key)),
            _ => None,
        });
        let (since, key) = clients.min()?;
        (now.since(since) >= HANDSHAKE_NS_MAX).then_some(key)
    }

    pub(super) fn take_from_client(
        &mut self,
        key: Key,
        bytes: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Refusal> {
        let Some(socket) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        let Role::Client(client) = &mut socket.role else {
            return Ok(());
        };
        let (conn, address) = (ConnId::of(key), socket.address);
        let before = client.assembler.unfinished();
        let (assembler, up, spoken) = (&mut client.assembler, &mut client.up, &mut client.spoken);
        let read = socket.session.read(bytes, &mut |plain| {
            if !std::mem::replace(up, true) {
                sink(Event::ClientUp { conn, address });
            }
            assembler.feed(plain, &mut |_, body| {
                *spoken = true;
                sink(Event::Client { conn, body });
                Ok(())
            })
        });
        if !client.up && !socket.session.is_handshaking() {
            client.up = true;
            sink(Event::ClientUp { conn, address });
        }
        let after = client.assembler.unfinished();
        self.clients.unfinished = self.clients.unfinished.saturating_sub(before).saturating_add(after);
        read?;
        if self.clients.unfinished > CLIENTS_UNFINISHED_BYTES_MAX {
            self.cut_largest(|client| client.assembler.unfinished(), Refusal::Unfinished);
        }
        Ok(())
    }

    /// Cuts the client that holds most: who grows is not always who has grown.
    fn cut_largest(&mut self, size: fn(&Client) -> usize, refusal: Refusal) {
        let clients = self.sockets.iter().filter_map(|(key, socket)| match &socket.role {
            Role::Client(client) => Some((size(client), key)),
            _ => None,
        });
        if let Some((_, key)) = clients.max() {
            self.cut(key, refusal);
        }
    }

    /// Closes without a word the connection of a client that would not read it.
    fn cut(&mut self, key: Key, refusal: Refusal) {
        if let Some(socket) = self.sockets.get(key) {
            let who = Who::Client(socket.address);
            self.notes.push_back(Note::Refused(who, refusal));
            self.gone(key);
        }
    }

    pub(super) fn client_gone(&mut self, key: Key, client: &Client) {
        self.clients.connections = self.clients.connections.saturating_sub(1);
        self.clients.outgoing = self.clients.outgoing.saturating_sub(client.queued());
        let unfinished = client.assembler.unfinished();
        self.clients.unfinished = self.clients.unfinished.saturating_sub(unfinished);
        if client.up {
            self.notes.push_back(Note::ClientDown(ConnId::of(key)));
        }
    }

    /// Queues a message for a client: `write` appends its bytes. It leaves with the next flush. A client that
    /// lets too much pile up is cut off.
    ///
    /// # Errors
    /// When it cannot be sent; nothing is kept then.
    pub fn send_client(&mut self, conn: ConnId, write: &dyn Fn(&mut Vec<u8>)) -> Result<(), SendError> {
        let key = conn.key().ok_or(SendError::Gone)?;
        let socket = self.sockets.get_mut(key).ok_or(SendError::Gone)?;
        let Role::Client(client) = &mut socket.role else {
            return Err(SendError::Gone);
        };
        let cost = client.queue(write)?;
        self.clients.outgoing = self.clients.outgoing.saturating_add(cost);
        if client.queued() > CLIENT_OUTGOING_BYTES_MAX {
            self.cut(key, Refusal::DoesNotRead);
            return Err(SendError::Full);
        }
        self.mark_dirty(key);
        if self.clients.outgoing > CLIENTS_OUTGOING_BYTES_MAX {
            self.cut_largest(Client::queued, Refusal::DoesNotRead);
        }
        Ok(())
    }

    /// Closes the connection of a client and tells it the reason, after what was queued for it.
    pub fn close_client(&mut self, conn: ConnId, reason: &str) {
        let Some(key) = conn.key() else {
            return;
        };
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        if let Role::Client(client) = &mut socket.role {
            while client.queued() > 0 {
                client.fill(&mut socket.session, &mut self.clients);
            }
            self.leave(key, reason);
        }
    }

    /// The client has proved to be one that we serve: it is not among those that make room for newcomers.
    pub fn vouch(&mut self, conn: ConnId) {
        let socket = conn.key().and_then(|key| self.sockets.get_mut(key));
        if let Some(Role::Client(client)) = socket.map(|socket| &mut socket.role) {
            client.vouched = true;
        }
    }

    /// Connections of clients now.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.connections
    }
}
