//! The clients' part of the reactor: accepting, reading and writing, with limits for each client and for all of them together.
//!
//! A frame is a `u32` length and a message, and many replies leave in one write.

use super::client::Client;
use super::event::{ConnId, Event, SendError, Who};
use super::socket::{Role, Socket, SocketKey};
use super::{ACCEPTS_PER_PASS, Reactor, WRITE_BYTES};
use crate::frame::Refusal;
use quorate_types::Time;
use quorate_types::limits::{
    CLIENT_OUTGOING_BYTES_MAX, CLIENTS_OUTGOING_BYTES_MAX, CLIENTS_UNFINISHED_BYTES_MAX, HANDSHAKE_NS_MAX,
};

impl Reactor {
    pub(super) fn accept_clients(&mut self, now: Time, sink: &mut dyn FnMut(Event<'_>)) {
        for _ in 0..ACCEPTS_PER_PASS {
            let accepted = self.client_entrance.as_mut().and_then(|entrance| entrance.accept(now));
            let Some((stream, address)) = accepted else {
                return;
            };
            if !self.make_room(now) {
                // Dropping the stream closes it. Sending the reason would cost the handshake that a flood aims for.
                sink(Event::Refused { who: Who::Client(address), why: Refusal::TooMany });
                continue;
            }
            let Some(entrance) = &mut self.client_entrance else {
                return;
            };
            let Ok(session) = entrance.session() else {
                continue;
            };
            let plain = entrance.is_plain();
            let socket = Socket::new(stream, session, Role::Client(Client::new(now, plain)), address);
            if let Ok(key) = self.sockets.insert(self.poll.registry(), socket) {
                self.clients.connections = self.clients.connections.saturating_add(1);
                entrance.unsettled.push_back((now.plus(HANDSHAKE_NS_MAX), key));
                if plain {
                    sink(Event::ClientUp { conn: ConnId::of(key), address });
                }
            }
        }
    }

    /// Makes room for one more client; false if there is none.
    ///
    /// If all places are taken, the oldest client that has sent no frame yet makes room. Otherwise the oldest client makes
    /// room that had time to prove itself and that the caller has not vouched for.
    fn make_room(&mut self, now: Time) -> bool {
        while self.clients.connections >= self.clients.connections_max {
            let unsettled = self.client_entrance.as_mut().and_then(|entrance| entrance.unsettled.pop_front());
            let Some((_, key)) = unsettled else {
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

    fn longest_unproved(&self, now: Time) -> Option<SocketKey> {
        let clients = self.sockets.iter().filter_map(|(key, socket)| match &socket.role {
            Role::Client(client) if !client.vouched => Some((client.since, key)),
            _ => None,
        });
        let (since, key) = clients.min()?;
        (now.since(since) >= HANDSHAKE_NS_MAX).then_some(key)
    }

    pub(super) fn take_from_client(
        &mut self,
        key: SocketKey,
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
        let before = client.unfinished();
        let read = socket.session.read(bytes, &mut |plain| {
            if !std::mem::replace(&mut client.up, true) {
                sink(Event::ClientUp { conn, address });
            }
            client.read(plain, &mut |body| sink(Event::Client { conn, body }))
        });
        if !client.up && !socket.session.is_handshaking() {
            client.up = true;
            sink(Event::ClientUp { conn, address });
        }
        let after = client.unfinished();
        self.clients.unfinished = self.clients.unfinished.saturating_sub(before).saturating_add(after);
        read?;
        if self.clients.unfinished > CLIENTS_UNFINISHED_BYTES_MAX {
            self.cut_largest(Client::unfinished, Refusal::Unfinished);
        }
        Ok(())
    }

    /// Closes the connection of the client that holds most. The client that has just grown may be another one.
    fn cut_largest(&mut self, size: fn(&Client) -> usize, refusal: Refusal) {
        let clients = self.sockets.iter().filter_map(|(key, socket)| match &socket.role {
            Role::Client(client) => Some((size(client), key)),
            _ => None,
        });
        if let Some((_, key)) = clients.max() {
            self.cut(key, refusal);
        }
    }

    /// Closes the connection of a client that would not read the reason, without sending it.
    fn cut(&mut self, key: SocketKey, refusal: Refusal) {
        if let Some(socket) = self.sockets.get(key) {
            let who = Who::Client(socket.address);
            self.deferred.push_back(Event::Refused { who, why: refusal });
            self.gone(key);
        }
    }

    pub(super) fn client_gone(&mut self, key: SocketKey, client: &Client) {
        self.clients.connections = self.clients.connections.saturating_sub(1);
        self.clients.outgoing = self.clients.outgoing.saturating_sub(client.queued());
        self.clients.unfinished = self.clients.unfinished.saturating_sub(client.unfinished());
        if client.up {
            self.deferred.push_back(Event::ClientDown(ConnId::of(key)));
        }
    }

    /// Queues a message for a client: `write` appends its bytes. The message leaves with the next flush. A client that
    /// does not read its messages is disconnected.
    ///
    /// # Errors
    /// Fails when the message cannot be sent; nothing is kept then.
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
        self.flushes.add(key, socket);
        if self.clients.outgoing > CLIENTS_OUTGOING_BYTES_MAX {
            self.cut_largest(Client::queued, Refusal::DoesNotRead);
        }
        Ok(())
    }

    /// Closes the connection of a client. The client receives its queued messages first, and then the reason.
    pub fn close_client(&mut self, conn: ConnId, reason: &str) {
        let Some(key) = conn.key() else {
            return;
        };
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        if let Role::Client(client) = &mut socket.role {
            while client.queued() > 0 {
                client.fill(&mut socket.session, WRITE_BYTES, &mut self.clients);
            }
            self.leave(key, reason);
        }
    }

    /// Vouches for a client that has proved to be registered: its connection does not make room for newcomers.
    pub fn vouch(&mut self, conn: ConnId) {
        let socket = conn.key().and_then(|key| self.sockets.get_mut(key));
        if let Some(Role::Client(client)) = socket.map(|socket| &mut socket.role) {
            client.vouched = true;
        }
    }

    /// Returns the number of client connections.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.connections
    }
}
