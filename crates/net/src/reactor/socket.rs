//! One connection of the reactor, the table of all of them, and the two listeners.

use super::clients::Client;
use crate::link::Greeter;
use crate::session::Session;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use quorate_types::{ReplicaId, Time};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Names a connection for as long as it lives; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(super) struct Key {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// Whose connection it is.
#[derive(Debug)]
pub(super) enum Role {
    /// The connection of a link.
    Peer(ReplicaId),
    /// Came through the peers' listener and has not finished its hello.
    Guest(Greeter),
    /// Came through the clients' listener.
    Client(Client),
    /// Is being closed: what waits is written, what comes is thrown away.
    Leaving,
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    pub(super) session: Session,
    pub(super) role: Role,
    pub(super) address: SocketAddr,
    /// Dialled, and the other side has not answered yet.
    pub(super) connecting: bool,
    /// Stands in a list of those to be read.
    pub(super) listed: bool,
    /// The poll said that the other side has ended: a short read does not mean that all was read.
    pub(super) ended: bool,
    /// Takes bytes, as far as we know. False from "would block" to the next writable event.
    pub(super) writable: bool,
    /// Stands in the list of those to be flushed.
    pub(super) dirty: bool,
    /// We have said that nothing more will be sent.
    pub(super) finished: bool,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, session: Session, role: Role, address: SocketAddr) -> Self {
        Self {
            stream,
            session,
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
}

/// Sets what every connection has, on both ends.
pub(super) fn set_options(stream: &TcpStream) -> io::Result<()> {
    // Without it a request of several small writes waits for delayed acknowledgements: 44 ms instead of 1.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // The other machine may vanish without a word. The kernel notices, and no timer of ours wakes up for it.
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
pub(super) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// Tokens below belong to the waker and the listeners.
const FIRST_TOKEN: usize = 3;

impl Table {
    /// The key that [`Table::insert`] will give to the next connection.
    pub(super) fn next(&self) -> Key {
        let slot = self
            .free
            .last()
            .copied()
            .unwrap_or_else(|| u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        let entry = usize::try_from(slot).ok().and_then(|slot| self.entries.get(slot));
        Key { slot, generation: entry.map_or(0, |entry| entry.generation) }
    }

    /// Registers a connection with the poll and keeps it.
    pub(super) fn insert(&mut self, registry: &Registry, mut socket: Socket) -> io::Result<Key> {
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

    pub(super) fn get(&self, key: Key) -> Option<&Socket> {
        let entry = self.entries.get(usize::try_from(key.slot).ok()?)?;
        entry.socket.as_ref().filter(|_| entry.generation == key.generation)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Socket> {
        let entry = self.entry(key.slot)?;
        let alive = entry.generation == key.generation;
        entry.socket.as_mut().filter(|_| alive)
    }

    /// The connection that a token of the poll means now.
    pub(super) fn by_token(&mut self, token: Token) -> Option<(Key, &mut Socket)> {
        let slot = u32::try_from(token.0.checked_sub(FIRST_TOKEN)?).ok()?;
        let entry = self.entry(slot)?;
        let generation = entry.generation;
        entry.socket.as_mut().map(|socket| (Key { slot, generation }, socket))
    }

    /// Closes a connection.
    pub(super) fn remove(&mut self, key: Key) -> Option<Socket> {
        let entry = self.entry(key.slot)?;
        if entry.generation != key.generation {
            return None;
        }
        let socket = entry.socket.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(socket)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Socket)> {
        self.entries.iter().zip(0u32..).filter_map(|(entry, slot)| {
            let generation = entry.generation;
            entry.socket.as_ref().map(|socket| (Key { slot, generation }, socket))
        })
    }
}

/// A listener that is emptied a few connections at a time.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
    ready: bool,
    /// Accepting failed for want of something, such as descriptors: not before this time again.
    paused: Option<Time>,
}

/// How long a listener rests after accepting failed.
const PAUSE_NS: u64 = 500_000_000;

impl Listener {
    pub(super) fn new(
        listener: std::net::TcpListener,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        registry.register(&mut listener, token, Interest::READABLE)?;
        Ok(Self { listener, ready: true, paused: None })
    }

    /// The poll has news.
    pub(super) fn wake(&mut self) {
        self.ready = true;
    }

    /// Whether somebody may be waiting whom [`Listener::accept`] would let in now.
    pub(super) fn is_ready(&self) -> bool {
        self.ready && self.paused.is_none()
    }

    /// When a rest ends.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.paused.filter(|_| self.ready)
    }

    pub(super) fn tick(&mut self, now: Time) {
        if self.paused.is_some_and(|until| now >= until) {
            self.paused = None;
        }
    }

    /// The next connection; `None` when nobody waits or the listener rests.
    pub(super) fn accept(&mut self, now: Time) -> Option<(TcpStream, SocketAddr)> {
        while self.is_ready() {
            match self.listener.accept() {
                Ok(accepted) => return Some(accepted),
                Err(error) => self.failed(&error, now),
            }
        }
        None
    }

    /// Nothing an error of `accept` says may make the loop spin: either nobody waits, or this one caller is
    /// gone, or something is wanting that only time brings back.
    fn failed(&mut self, error: &io::Error, now: Time) {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.ready = false,
            io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset => {}
            _ => {
                tracing::warn!(%error, "cannot accept connections; trying again in half a second");
                self.paused = Some(now.plus(PAUSE_NS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_without_descriptors_rests() {
        let poll = mio::Poll::new().unwrap();
        let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut listener = Listener::new(bound, poll.registry(), Token(1)).unwrap();
        listener.failed(&io::Error::from_raw_os_error(24), Time(7));
        assert!(!listener.is_ready());
        assert!(listener.accept(Time(7)).is_none());
        let until = listener.deadline().unwrap();
        listener.tick(Time(until.0 - 1));
        assert!(!listener.is_ready());
        listener.tick(until);
        assert!(listener.is_ready(), "who waits meanwhile is not forgotten");
        assert!(listener.accept(until).is_none());
        assert_eq!(listener.deadline(), None);
    }

    #[test]
    fn keys_are_not_used_again() {
        let poll = mio::Poll::new().unwrap();
        let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = bound.local_addr().unwrap();
        let mut table = Table::default();
        let insert = |table: &mut Table| {
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
