//! The reactor's side of links: dialling, hellos, acknowledgements, dialling again.

use super::config::{self, Event, NetConfig, NetFault, PeerStatus, Security, wide};
use super::socket::{Key, Role, Socket, set_options};
use super::{ACCEPTS_PER_PASS, Note, Reactor, WRITE_BYTES, Who};
use crate::frame::Refusal;
use crate::link::{Greeter, Link, LinkEvent};
use crate::session::Session;
use crate::tls;
use mio::net::TcpStream;
use quorate_types::limits::{HANDSHAKE_NS_MAX, REPLICAS_MAX};
use quorate_types::rng::Rng;
use quorate_types::{PublicKey, ReplicaId, Time};
use rustls::ClientConfig;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

/// The first pause before dialling again; it doubles.
const BACKOFF_NS: u64 = 20_000_000;
/// The longest pause before dialling again …
const BACKOFF_NS_MAX: u64 = 2_000_000_000;
/// … and in the first minute without a link. Replicas that have lost their power together wait for each other, but not for
/// ever (`sync-hotstuff` §18): whoever comes up has to be reached soon.
const BACKOFF_NS_MAX_SOON: u64 = 250_000_000;
/// How long a machine has to take a connection. One without power is silent, and the system asks it again after 1, 3 and 7
/// seconds: to begin anew is sooner …
const CONNECT_NS_MAX: u64 = 3_000_000_000;
/// … above all in the first minute.
const CONNECT_NS_MAX_SOON: u64 = 1_000_000_000;
/// How long that is: with half of 256 replicas gone some hundred attempts in a second.
const SOON_NS: u64 = 60_000_000_000;
/// Half-open connections through the peers' listener, beside one for each replica.
pub(super) const GUESTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    pub(super) socket: Option<Key>,
    key: PublicKey,
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    /// When to dial; `None` while there is a connection, and always where the other side dials.
    redial: Option<Time>,
    /// When a connection that we dialled must be there, and then when it must be up.
    due: Option<Time>,
    attempts: u32,
    status: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    since: Time,
    connections: u64,
    frames_in: u64,
    bytes_in: u64,
    bytes_out: u64,
    last_refusal: String,
    dial_error: String,
}

impl Peer {
    pub(super) fn deadline(&self) -> Option<Time> {
        [self.redial, self.due, self.link.deadline()].into_iter().flatten().min()
    }

    /// Whether the link was up, or this end began, a moment ago.
    fn is_missed(&self, now: Time) -> bool {
        now.since(self.status.since) < SOON_NS
    }

    /// Hands frames to the session; false when none wait.
    pub(super) fn fill(&mut self, session: &mut Session) -> bool {
        if !self.link.wants_write() {
            return false;
        }
        let count = self.link.transmit(WRITE_BYTES, &mut |slices| session.send(slices));
        self.status.bytes_out = self.status.bytes_out.saturating_add(wide(count));
        session.pending()
    }
}

/// A link to everybody but ourselves.
pub(super) fn table(config: &NetConfig, rng: &mut Rng) -> Result<Vec<Option<Peer>>, NetFault> {
    let me = config.identity.me;
    if config.peers.len() > REPLICAS_MAX {
        return Err(NetFault::Configuration("more replicas than any committee has"));
    }
    let Some(own) = config.peers.get(me.index()) else {
        return Err(NetFault::Configuration("the own id is not among the replicas"));
    };
    if let Security::Tls(key) = &config.security
        && key.public() != own.key
    {
        return Err(NetFault::Configuration("the link key is not the one that the committee lists"));
    }
    let ids = (0..u16::MAX).map(ReplicaId);
    let peer = |(id, peer): (ReplicaId, &config::PeerConfig)| {
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
            tls,
            // Spread a little, so that a cluster that starts at once does not dial at once.
            redial: dials.then(|| Time(rng.below(BACKOFF_NS / 4))),
            due: None,
            attempts: 0,
            status: Counts::default(),
        }))
    };
    ids.zip(&config.peers).map(peer).collect()
}

impl Reactor {
    pub(super) fn peer(&self, id: ReplicaId) -> Option<&Peer> {
        self.peers.get(id.index())?.as_ref()
    }

    pub(super) fn peer_mut(&mut self, id: ReplicaId) -> Option<&mut Peer> {
        self.peers.get_mut(id.index())?.as_mut()
    }

    /// How each link is doing.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        let status = |peer: &Peer| {
            let (kept, queued) = peer.link.backlog();
            PeerStatus {
                id: peer.link.peer(),
                connected: peer.link.is_up(),
                urgent: self.urgent == Some(peer.link.peer()),
                since: peer.status.since,
                incarnation: peer.link.heard(),
                connections: peer.status.connections,
                frames_in: peer.status.frames_in,
                bytes_in: peer.status.bytes_in,
                bytes_out: peer.status.bytes_out,
                queued_bytes: queued,
                resend_bytes: kept.saturating_sub(queued),
                last_refusal: peer.status.last_refusal.clone(),
                address: peer.address,
                dials: Link::dials(self.me, peer.link.peer()),
                dial_error: peer.status.dial_error.clone(),
            }
        };
        self.peers.iter().flatten().map(status).collect()
    }

    /// Whether frames flow to and from this replica.
    #[must_use]
    pub fn is_up(&self, peer: ReplicaId) -> bool {
        self.peer(peer).is_some_and(|peer| peer.link.is_up())
    }

    /// Links that are up.
    #[must_use]
    pub fn links_up(&self) -> usize {
        self.peers.iter().flatten().filter(|peer| peer.link.is_up()).count()
    }

    /// Ends every link for good: no peer is dialled or let in any more. Clients are served as before.
    pub fn cut_off(&mut self) {
        self.is_cut_off = true;
        for id in (0..u16::try_from(self.peers.len()).unwrap_or(u16::MAX)).map(ReplicaId) {
            self.disconnect(id);
            if let Some(peer) = self.peer_mut(id) {
                peer.redial = None;
            }
        }
    }

    /// Closes the connection to a replica, if there is one; it comes back as after any other loss.
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

    /// A connection that we dialled, or its hello, did not come.
    fn too_late(&mut self, key: Key, id: ReplicaId) {
        if self.sockets.get(key).is_some_and(|socket| socket.connecting) {
            // Nobody is there who could be told.
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
        let connected = TcpStream::connect(peer.address).and_then(|stream| {
            set_options(&stream)?;
            let mut socket = Socket::new(stream, Session::plain(), Role::Peer(id), peer.address);
            socket.connecting = true;
            socket.writable = false;
            self.sockets.insert(self.poll.registry(), socket)
        });
        match connected {
            Ok(key) => {
                let most = if peer.is_missed(now) { CONNECT_NS_MAX_SOON } else { CONNECT_NS_MAX };
                peer.redial = None;
                peer.due = Some(now.plus(most));
                peer.socket = Some(key);
            }
            Err(error) => {
                self.note_dial_error(id, &error);
                self.redial_later(id);
            }
        }
    }

    fn note_dial_error(&mut self, id: ReplicaId, error: &dyn std::fmt::Display) {
        if let Some(peer) = self.peer_mut(id) {
            peer.status.dial_error = error.to_string();
        }
    }

    /// Dials again after a pause that doubles and is never the same for two.
    fn redial_later(&mut self, id: ReplicaId) {
        if self.is_cut_off {
            return;
        }
        let (now, me) = (self.now, self.me);
        let Some(Some(peer)) = self.peers.get_mut(id.index()) else {
            return;
        };
        if Link::dials(me, id) {
            let most = if peer.is_missed(now) { BACKOFF_NS_MAX_SOON } else { BACKOFF_NS_MAX };
            let pause = BACKOFF_NS.saturating_mul(1 << peer.attempts.min(16)).min(most);
            peer.attempts = peer.attempts.saturating_add(1);
            peer.redial = Some(now.plus(self.rng.between(pause / 2, pause)));
        }
    }

    /// A connection that we dialled has news; true when it is there.
    pub(super) fn finish_connecting(&mut self, now: Time, key: Key) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else {
            return false;
        };
        let role = match socket.role {
            Role::Peer(id) => Some(id),
            _ => None,
        };
        if let Ok(Some(error)) | Err(error) = socket.stream.take_error() {
            if let Some(id) = role {
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
            peer.due = Some(now.plus(HANDSHAKE_NS_MAX));
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
        key: Key,
        id: ReplicaId,
        bytes: &[u8],
        sink: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Refusal> {
        let (Some(socket), Some(Some(peer))) = (self.sockets.get_mut(key), self.peers.get_mut(id.index()))
        else {
            return Ok(());
        };
        let was_handshaking = socket.session.is_handshaking();
        let (link, status) = (&mut peer.link, &mut peer.status);
        let was_up = link.is_up();
        socket
            .session
            .read(bytes, &mut |plain| link.read(now, plain, &mut |event| forward(id, event, status, sink)))?;
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
            let Some((stream, address)) = self.peer_listener.accept(now) else {
                return;
            };
            if self.is_cut_off {
                continue;
            }
            let session = match &self.peer_tls {
                None => Ok(Session::plain()),
                Some(config) => Session::accept(config),
            };
            let Ok(session) = session else {
                continue;
            };
            let socket = Socket::new(stream, session, Role::Guest(Greeter::default()), address);
            let inserted =
                set_options(&socket.stream).and_then(|()| self.sockets.insert(self.poll.registry(), socket));
            if let Ok(key) = inserted {
                self.guests.push_back((now.plus(HANDSHAKE_NS_MAX), key));
            }
            self.limit_guests();
        }
    }

    /// Who came through the peers' port: its key has told, if the handshake got so far.
    pub(super) fn guest(&self, socket: &Socket) -> Who {
        let key = socket.session.peer_key().filter(|_| !socket.session.is_handshaking());
        let known = self.peers.iter().flatten().find(|peer| Some(peer.key) == key);
        known.map_or(Who::Stranger(socket.address), |peer| Who::Replica(peer.link.peer()))
    }

    /// When too many are half open the oldest goes: an honest handshake takes milliseconds.
    fn limit_guests(&mut self) {
        if self.guests.len() <= GUESTS_MAX.saturating_add(self.peers.len()) {
            return;
        }
        let guests = std::mem::take(&mut self.guests);
        self.guests = guests.into_iter().filter(|(_, key)| self.is_unsettled(*key)).collect();
        if self.guests.len() > GUESTS_MAX.saturating_add(self.peers.len())
            && let Some((_, oldest)) = self.guests.pop_front()
        {
            self.refuse(oldest, Refusal::TooMany);
        }
    }

    pub(super) fn take_from_guest(
        &mut self,
        key: Key,
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
        let proved = self.peer_tls.is_none() || socket.session.peer_key() == Some(peer.key);
        if !proved || !Link::dials(id, self.me) {
            return Err(Refusal::OtherReplica);
        }
        let mut was_up = peer.link.is_up();
        let status = &mut peer.status;
        peer.link.accept_hello(hello, &mut |event| {
            // The first event says that the older connection, if there was one, has been replaced.
            if std::mem::take(&mut was_up) {
                sink(Event::PeerDown(id));
            }
            forward(id, event, status, sink);
        })?;
        peer.came_up(self.now);
        socket.role = Role::Peer(id);
        if let Some(older) = peer.socket.replace(key) {
            self.sockets.remove(older);
        }
        Ok(())
    }

    /// The connection of a link is gone.
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
            peer.status.since = now;
            self.notes.push_back(Note::PeerDown(id));
        }
        self.note_losses(id);
        self.redial_later(id);
    }

    /// Losses are noticed while frames are handed to the session, where no sink is at hand.
    pub(super) fn note_losses(&mut self, id: ReplicaId) {
        if let Some(Some(peer)) = self.peers.get_mut(id.index())
            && peer.link.has_losses()
        {
            let notes = &mut self.notes;
            peer.link.losses(&mut |event| {
                if let LinkEvent::Lost(loss) = event {
                    notes.push_back(Note::Lost(id, loss));
                }
            });
        }
    }

    /// Remembers for the status why a connection of a link was closed.
    pub(super) fn remember_refusal(&mut self, who: Who, refusal: Refusal) {
        if let Who::Replica(id) = who
            && let Some(peer) = self.peer_mut(id)
        {
            refusal.reason().clone_into(&mut peer.status.last_refusal);
        }
    }
}

impl Peer {
    fn came_up(&mut self, now: Time) {
        self.redial = None;
        self.due = None;
        self.attempts = 0;
        self.status.dial_error.clear();
        self.status.since = now;
        self.status.connections = self.status.connections.saturating_add(1);
    }
}

fn forward(id: ReplicaId, event: LinkEvent<'_>, status: &mut Counts, sink: &mut dyn FnMut(Event<'_>)) {
    match event {
        LinkEvent::Up => sink(Event::PeerUp(id)),
        LinkEvent::Frame { lane, frame_type, body } => {
            status.frames_in = status.frames_in.saturating_add(1);
            status.bytes_in = status.bytes_in.saturating_add(wide(body.len()));
            sink(Event::Peer { from: id, lane, frame_type, body });
        }
        LinkEvent::Lost(loss) => sink(config::lost(id, loss)),
        LinkEvent::Closed { reason } => {
            status.last_refusal = printable(reason);
            sink(Event::Closed { by: id, reason: &status.last_refusal });
        }
    }
}

/// What a peer says may be anything: a log or a terminal gets only printable characters of it.
fn printable(reason: &[u8]) -> String {
    let text = String::from_utf8_lossy(reason);
    // Not only control characters turn a line into another one: some turn its direction.
    let printable = |c: char| if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() { c } else { '?' };
    text.chars().map(printable).collect()
}
