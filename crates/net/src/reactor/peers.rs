//! The links' part of the reactor: dialling, hellos, frames, lost connections.

use super::config::GUESTS_MAX;
use super::event::{Event, Who};
use super::peer::{LinkCounters, Peer, PeerStatus};
use super::socket::{Role, Socket, SocketKey};
use super::{ACCEPTS_PER_PASS, Reactor};
use crate::frame::Refusal;
use crate::link::{Greeter, Link, LinkEvent};
use crate::session::Session;
use mio::net::TcpStream;
use quorate_types::limits::HANDSHAKE_NS_MAX;
use quorate_types::{ReplicaId, Time};
use std::io::ErrorKind;

impl Reactor {
    pub(super) fn peer(&self, id: ReplicaId) -> Option<&Peer> {
        self.peers.get(id.index())?.as_ref()
    }

    pub(super) fn peer_mut(&mut self, id: ReplicaId) -> Option<&mut Peer> {
        self.peers.get_mut(id.index())?.as_mut()
    }

    /// Returns the state of each link.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        let status = |peer: &Peer| peer.status(self.me, self.reads.urgent == Some(peer.link.peer()));
        self.peers.iter().flatten().map(status).collect()
    }

    /// Whether frames flow to and from this replica.
    #[must_use]
    pub fn is_up(&self, peer: ReplicaId) -> bool {
        self.peer(peer).is_some_and(|peer| peer.link.is_up())
    }

    /// Returns the number of links that are up.
    #[must_use]
    pub fn links_up(&self) -> usize {
        self.peers.iter().flatten().filter(|peer| peer.link.is_up()).count()
    }

    /// Ends every link for good: the reactor dials and accepts no peer any more. Clients are served as before.
    pub fn cut_off(&mut self) {
        self.is_cut_off = true;
        for id in (0..u16::try_from(self.peers.len()).unwrap_or(u16::MAX)).map(ReplicaId) {
            self.disconnect(id);
            if let Some(peer) = self.peer_mut(id) {
                peer.redial = None;
            }
        }
    }

    /// Closes the connection to a replica, if there is one. The link reconnects as after any other loss.
    pub fn disconnect(&mut self, peer: ReplicaId) {
        if let Some(key) = self.peer(peer).and_then(|peer| peer.socket) {
            self.gone(key);
        }
    }

    pub(super) fn tick_peers(&mut self, now: Time) {
        for index in 0..self.peers.len() {
            let Some(Some(peer)) = self.peers.get_mut(index) else {
                continue;
            };
            let id = peer.link.peer();
            let late = peer.due.is_some_and(|due| now >= due) || peer.link.tick(now).is_err();
            match peer.socket {
                Some(key) if late => self.too_late(key, id),
                Some(key) if peer.link.wants_write() => self.mark_dirty(key),
                None if peer.redial.is_some_and(|due| now >= due) => self.dial(now, id),
                _ => {}
            }
        }
    }

    /// Closes a dialled connection that did not come up in time, or whose hello did not arrive in time.
    fn too_late(&mut self, key: SocketKey, id: ReplicaId) {
        if self.sockets.get(key).is_some_and(|socket| socket.connecting) {
            // No machine answered, so none can receive the reason.
            self.remember_refusal(Who::Replica(id), Refusal::TooSlow);
            self.note_dial_error(id, &"no answer");
            self.gone(key);
        } else {
            self.refuse(key, Refusal::TooSlow);
        }
    }

    fn dial(&mut self, now: Time, id: ReplicaId) {
        let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
            return;
        };
        let dialled = TcpStream::connect(peer.address).and_then(|stream| {
            let mut socket = Socket::new(stream, Session::plain(), Role::Peer(id), peer.address);
            socket.connecting = true;
            socket.writable = false;
            socket.delay_by(peer.delay_ns);
            self.sockets.insert(self.poll.registry(), socket)
        });
        match dialled {
            Ok(key) => peer.dialled(now, key),
            Err(error) => {
                self.note_dial_error(id, &error);
                self.redial_later(id);
            }
        }
    }

    fn note_dial_error(&mut self, id: ReplicaId, error: &dyn std::fmt::Display) {
        if let Some(peer) = self.peer_mut(id) {
            peer.counters.dial_error = error.to_string();
        }
    }

    /// Schedules the next attempt to dial, unless the other end dials or all links have ended for good.
    fn redial_later(&mut self, id: ReplicaId) {
        if self.is_cut_off || !Link::dials(self.me, id) {
            return;
        }
        if let Some(Some(peer)) = self.peers.get_mut(id.index()) {
            peer.redial_later(self.now, &mut self.rng);
        }
    }

    /// Handles an event of a connection that is being dialled; true if the connection exists now.
    pub(super) fn finish_connecting(&mut self, now: Time, key: SocketKey) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else {
            return false;
        };
        if let Ok(Some(error)) | Err(error) = socket.stream.take_error() {
            if let Role::Peer(id) = socket.role {
                self.note_dial_error(id, &error);
            }
            self.gone(key);
            return false;
        }
        match socket.stream.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected && !socket.ended => return false,
            Err(_) => {
                self.gone(key);
                return false;
            }
        }
        socket.connecting = false;
        socket.writable = true;
        if let Role::Peer(id) = socket.role
            && let Some(Some(peer)) = self.peers.get_mut(id.index())
        {
            peer.connected(now);
            match &peer.tls {
                None => peer.link.connect(now),
                Some(config) => match Session::dial(config) {
                    Ok(session) => socket.session = session,
                    Err(refusal) => {
                        self.refuse(key, refusal);
                        return false;
                    }
                },
            }
        }
        self.mark_dirty(key);
        true
    }

    pub(super) fn take_from_peer(
        &mut self,
        now: Time,
        key: SocketKey,
        id: ReplicaId,
        bytes: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Refusal> {
        let (Some(socket), Some(Some(peer))) = (self.sockets.get_mut(key), self.peers.get_mut(id.index()))
        else {
            return Ok(());
        };
        let was_handshaking = socket.session.is_handshaking();
        let (link, counters) = (&mut peer.link, &mut peer.counters);
        let was_up = link.is_up();
        socket.session.read(bytes, &mut |plain| {
            link.read(now, plain, &mut |event| forward(id, event, counters, sink))
        })?;
        if was_handshaking && !socket.session.is_handshaking() {
            link.connect(now);
        }
        if !was_up && link.is_up() {
            peer.came_up(now);
        }
        Ok(())
    }

    pub(super) fn accept_guests(&mut self, now: Time) {
        for _ in 0..ACCEPTS_PER_PASS {
            let Some((stream, address)) = self.peer_entrance.accept(now) else {
                return;
            };
            if self.is_cut_off {
                continue;
            }
            let Ok(session) = self.peer_entrance.session() else {
                continue;
            };
            let socket = Socket::new(stream, session, Role::Guest(Greeter::default()), address);
            if let Ok(key) = self.sockets.insert(self.poll.registry(), socket) {
                self.peer_entrance.unsettled.push_back((now.plus(HANDSHAKE_NS_MAX), key));
            }
            self.limit_guests();
        }
    }

    /// Returns the other side of a guest's connection: the replica of its key, if the handshake got that far.
    pub(super) fn guest(&self, socket: &Socket) -> Who {
        let key = socket.session.peer_key().filter(|_| !socket.session.is_handshaking());
        let known = self.peers.iter().flatten().find(|peer| Some(peer.key) == key);
        known.map_or(Who::Stranger(socket.address), |peer| Who::Replica(peer.link.peer()))
    }

    /// Closes the oldest half-open connection if there are too many. An honest handshake takes milliseconds.
    fn limit_guests(&mut self) {
        let most = GUESTS_MAX.saturating_add(self.peers.len());
        if self.peer_entrance.unsettled.len() <= most {
            return;
        }
        let guests = std::mem::take(&mut self.peer_entrance.unsettled);
        self.peer_entrance.unsettled =
            guests.into_iter().filter(|(_, key)| self.is_unsettled(*key)).collect();
        if self.peer_entrance.unsettled.len() > most
            && let Some((_, oldest)) = self.peer_entrance.unsettled.pop_front()
        {
            self.refuse(oldest, Refusal::TooMany);
        }
    }

    pub(super) fn take_from_guest(
        &mut self,
        key: SocketKey,
        bytes: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Refusal> {
        let Some(socket) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        let Role::Guest(greeter) = &mut socket.role else {
            return Ok(());
        };
        socket.session.read(bytes, &mut |plain| greeter.read(plain))?;
        let Some(hello) = greeter.hello() else {
            return Ok(());
        };
        let id = hello.id;
        let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
            return Err(Refusal::OtherReplica);
        };
        let proved = self.peer_entrance.is_plain() || socket.session.peer_key() == Some(peer.key);
        if !proved || !Link::dials(id, self.me) {
            return Err(Refusal::OtherReplica);
        }
        let mut was_up = peer.link.is_up();
        let counters = &mut peer.counters;
        peer.link.accept_hello(hello, &mut |event| {
            // The first event means that the new connection has replaced the older one, if there was one.
            if std::mem::take(&mut was_up) {
                sink(Event::PeerDown(id));
            }
            forward(id, event, counters, sink);
        })?;
        peer.came_up(self.now);
        socket.role = Role::Peer(id);
        // Only now is the other side known. Its handshake was answered without the delay.
        socket.delay_by(peer.delay_ns);
        if let Some(older) = peer.socket.replace(key) {
            self.sockets.remove(older);
        }
        Ok(())
    }

    /// Handles the end of a link's connection.
    pub(super) fn peer_gone(&mut self, id: ReplicaId) {
        let now = self.now;
        let Some(peer) = self.peer_mut(id) else {
            return;
        };
        let was_up = peer.link.is_up();
        peer.link.disconnect();
        peer.socket = None;
        peer.due = None;
        if was_up {
            peer.counters.since = now;
            self.deferred.push_back(Event::PeerDown(id));
        }
        self.note_losses(id);
        self.redial_later(id);
    }

    /// Defers the report of losses: the link notices them while it hands frames to the session, without a sink.
    pub(super) fn note_losses(&mut self, id: ReplicaId) {
        if let Some(Some(peer)) = self.peers.get_mut(id.index())
            && peer.link.has_losses()
        {
            let deferred = &mut self.deferred;
            peer.link.losses(&mut |event| {
                if let LinkEvent::Lost(loss) = event {
                    deferred.push_back(Event::Lost { peer: id, loss });
                }
            });
        }
    }

    /// Stores the reason why a connection of a link was closed, for the status.
    pub(super) fn remember_refusal(&mut self, who: Who, refusal: Refusal) {
        if let Who::Replica(id) = who
            && let Some(peer) = self.peer_mut(id)
        {
            refusal.reason().clone_into(&mut peer.counters.last_refusal);
        }
    }
}

fn forward(
    id: ReplicaId,
    event: LinkEvent<'_>,
    counters: &mut LinkCounters,
    sink: &mut dyn FnMut(Event<'_>),
) {
    match event {
        LinkEvent::Up => sink(Event::PeerUp(id)),
        LinkEvent::Frame { lane, frame_type, body } => {
            let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
            counters.frames_in = counters.frames_in.saturating_add(1);
            counters.bytes_in = counters.bytes_in.saturating_add(bytes);
            sink(Event::Peer { from: id, lane, frame_type, body });
        }
        LinkEvent::Lost(loss) => sink(Event::Lost { peer: id, loss }),
        LinkEvent::Closed { reason } => {
            counters.last_refusal = printable(reason);
            sink(Event::Closed { by: id, reason: &counters.last_refusal });
        }
    }
}

/// Replaces unprintable characters of a peer's text, which can be anything, for a log or a terminal.
fn printable(reason: &[u8]) -> String {
    let text = String::from_utf8_lossy(reason);
    // Control characters are not the only ones that falsify a line: some change its direction.
    let printable = |c: char| if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() { c } else { '?' };
    text.chars().map(printable).collect()
}
