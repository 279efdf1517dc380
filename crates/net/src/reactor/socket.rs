//! One connection of the reactor, and the table of all of them.

use super::client::Client;
use super::delay::DelayLine;
use super::event::ConnId;
use crate::frame::{client_header, put_close};
use crate::link::Greeter;
use crate::session::Session;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use quorate_types::wire::FromReplica;
use quorate_types::{ReplicaId, Time, Wire};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

/// The name of a connection; it is never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(super) struct SocketKey {
    slot: u32,
    generation: u32,
}

impl ConnId {
    pub(super) fn of(key: SocketKey) -> Self {
        Self(u64::from(key.generation) << 32 | u64::from(key.slot))
    }

    pub(super) fn key(self) -> Option<SocketKey> {
        Some(SocketKey {
            slot: u32::try_from(self.0 & u64::from(u32::MAX)).ok()?,
            generation: u32::try_from(self.0 >> 32).ok()?,
        })
    }
}

/// The use of a connection.
#[derive(Debug)]
pub(super) enum Role {
    /// The connection of a link.
    Peer(ReplicaId),
    /// A connection through the peers' listener that has not finished its hello.
    Guest(Greeter),
    /// A connection through the clients' listener.
    Client(Client),
    /// A connection that is being closed: queued bytes are written, received bytes are dropped.
    Leaving,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    pub(super) session: Session,
    /// The line through which the session's bytes reach the socket; `None` if they reach it at once.
    pub(super) line: Option<Box<DelayLine>>,
    pub(super) role: Role,
    pub(super) address: SocketAddr,
    /// Whether the connection was dialled and the other side has not answered yet.
    pub(super) connecting: bool,
    /// Whether the connection is in a list of the [`ReadQueue`](super::queues::ReadQueue).
    pub(super) listed: bool,
    /// Whether the poll reported the end of the other side: a short read then does not mean that all was read.
    pub(super) ended: bool,
    /// Whether the socket takes bytes, as far as known. False from "would block" to the next writable event.
    pub(super) writable: bool,
    /// Whether the connection is in the list of the [`FlushQueue`](super::queues::FlushQueue).
    pub(super) dirty: bool,
    /// Whether this side has ended its direction of the connection.
    pub(super) finished: bool,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, session: Session, role: Role, address: SocketAddr) -> Self {
        Self {
            stream,
            session,
            line: None,
            role,
            address,
            connecting: false,
            listed: false,
            ended: false,
            writable: true,
            dirty: false,
            finished: false,
        }
    }

    /// Sets the delay in nanoseconds of all bytes that are not written yet.
    pub(super) fn delay_by(&mut self, delay_ns: u64) {
        self.line = DelayLine::new(delay_ns).map(Box::new);
    }

    /// Returns the time at which the next bytes leave the delay line; `None` if they wait for the socket, or there are none.
    pub(super) fn line_due(&self) -> Option<Time> {
        self.line.as_ref().filter(|_| self.writable)?.due()
    }

    /// Whether written bytes wait for the socket, in the session or in the delay line.
    pub(super) fn has_unwritten(&self) -> bool {
        self.session.pending() || self.line.as_ref().is_some_and(|line| !line.is_empty())
    }

    /// Writes to the socket once; returns the number of bytes that it took.
    ///
    /// # Errors
    /// The error of the socket.
    pub(super) fn write(&mut self, now: Time) -> io::Result<usize> {
        match &mut self.line {
            None => self.session.write(&mut self.stream),
            Some(line) => line.release(now, &mut self.stream),
        }
    }

    /// Queues the message that gives the other side the reason why its connection is being closed.
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

/// Sets the options of every connection, on both ends.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    // Without it a request of several small writes waits for delayed acknowledgements: 44 ms instead of 1.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // The other machine may vanish silently. The kernel notices this, without a timer of the reactor.
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(20)))?;
    Ok(())
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    socket: Option<Socket>,
}

/// All connections by key.
#[derive(Debug, Default)]
pub(super) struct SocketTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// The first token of a connection. Smaller tokens belong to the waker, the listeners and the alarm.
const FIRST_TOKEN: usize = 4;

impl SocketTable {
    /// Returns the key that [`SocketTable::insert`] will give to the next connection.
    fn next(&self) -> SocketKey {
        let slot = self
            .free
            .last()
            .copied()
            .unwrap_or_else(|| u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        let entry = usize::try_from(slot).ok().and_then(|slot| self.entries.get(slot));
        SocketKey { slot, generation: entry.map_or(0, |entry| entry.generation) }
    }

    /// Sets the options of a connection, registers it with the poll and stores it.
    pub(super) fn insert(&mut self, registry: &Registry, mut socket: Socket) -> io::Result<SocketKey> {
        set_options(&socket.stream)?;
        let key = self.next();
        let token = Token(usize::try_from(key.slot).unwrap_or(usize::MAX).saturating_add(FIRST_TOKEN));
        registry.register(&mut socket.stream, token, Interest::READABLE | Interest::WRITABLE)?;
        if self.free.pop().is_none() {
            self.entries.push(Entry { generation: 0, socket: None });
        }
        if let Some(entry) = self.entry(key.slot) {
            entry.socket = Some(socket);
        }
        Ok(key)
    }

    fn entry(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(slot).ok()?)
    }

    pub(super) fn get(&self, key: SocketKey) -> Option<&Socket> {
        let entry = self.entries.get(usize::try_from(key.slot).ok()?)?;
        entry.socket.as_ref().filter(|_| entry.generation == key.generation)
    }

    pub(super) fn get_mut(&mut self, key: SocketKey) -> Option<&mut Socket> {
        let entry = self.entry(key.slot)?;
        let alive = entry.generation == key.generation;
        entry.socket.as_mut().filter(|_| alive)
    }

    /// Returns the connection that a token of the poll stands for now.
    pub(super) fn by_token(&mut self, token: Token) -> Option<(SocketKey, &mut Socket)> {
        let slot = u32::try_from(token.0.checked_sub(FIRST_TOKEN)?).ok()?;
        let entry = self.entry(slot)?;
        let generation = entry.generation;
        entry.socket.as_mut().map(|socket| (SocketKey { slot, generation }, socket))
    }

    /// Closes a connection.
    pub(super) fn remove(&mut self, key: SocketKey) -> Option<Socket> {
        let entry = self.entry(key.slot)?;
        if entry.generation != key.generation {
            return None;
        }
        let socket = entry.socket.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(socket)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SocketKey, &Socket)> {
        self.entries.iter().zip(0u32..).filter_map(|(entry, slot)| {
            let generation = entry.generation;
            entry.socket.as_ref().map(|socket| (SocketKey { slot, generation }, socket))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_closed_connection_names_no_later_connection() {
        let poll = mio::Poll::new().unwrap();
        let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = bound.local_addr().unwrap();
        let mut table = SocketTable::default();
        let insert = |table: &mut SocketTable| {
            let stream = TcpStream::connect(address).unwrap();
            let socket = Socket::new(stream, Session::plain(), Role::Leaving, address);
            table.insert(poll.registry(), socket).unwrap()
        };
        let first = insert(&mut table);
        let other = insert(&mut table);
        assert!(table.remove(first).is_some() && table.remove(first).is_none());
        let second = insert(&mut table);
        assert_eq!(first.slot, second.slot);
        assert!(table.get(first).is_none() && table.get_mut(first).is_none());
        assert_eq!(table.iter().map(|(key, _)| key).collect::<Vec<_>>(), [second, other]);
    }
}
