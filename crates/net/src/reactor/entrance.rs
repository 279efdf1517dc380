//! A listener of the reactor, with its TLS configuration and the connections that have not proved themselves yet.

use super::socket::SocketKey;
use crate::frame::Refusal;
use crate::session::Session;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use quorate_types::Time;
use rustls::ServerConfig;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The pause of a listener after accepting failed.
const PAUSE_NS: u64 = 500_000_000;

/// One port: a listener that accepts a few connections at a time. Accepted connections stay in `unsettled` until they
/// finish their handshake and first frame.
#[derive(Debug)]
pub(super) struct Entrance {
    listener: TcpListener,
    ready: bool,
    /// The end of a pause: accepting failed for lack of a resource, such as descriptors.
    paused: Option<Time>,
    /// The configuration of handshakes; `None` if connections are plain.
    tls: Option<Arc<ServerConfig>>,
    /// Connections that owe a handshake or a first frame, each with its deadline, the oldest first.
    pub(super) unsettled: VecDeque<(Time, SocketKey)>,
}

impl Entrance {
    pub(super) fn new(
        listener: std::net::TcpListener,
        tls: Option<Arc<ServerConfig>>,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        registry.register(&mut listener, token, Interest::READABLE)?;
        Ok(Self { listener, ready: true, paused: None, tls, unsettled: VecDeque::new() })
    }

    /// Whether connections are plain, without TLS.
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Returns a new session of the accepting side.
    pub(super) fn session(&self) -> Result<Session, Refusal> {
        match &self.tls {
            None => Ok(Session::plain()),
            Some(config) => Session::accept(config),
        }
    }

    /// Notes an event of the poll.
    pub(super) fn wake(&mut self) {
        self.ready = true;
    }

    /// Whether a connection may be waiting that [`Entrance::accept`] would accept now.
    pub(super) fn is_ready(&self) -> bool {
        self.ready && self.paused.is_none()
    }

    /// Returns the end of a pause.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.paused.filter(|_| self.ready)
    }

    /// Ends a pause that is over.
    pub(super) fn tick(&mut self, now: Time) {
        if self.paused.is_some_and(|until| now >= until) {
            self.paused = None;
        }
    }

    /// Returns the next connection; `None` if none waits, or during a pause.
    pub(super) fn accept(&mut self, now: Time) -> Option<(TcpStream, SocketAddr)> {
        while self.is_ready() {
            match self.listener.accept() {
                Ok(accepted) => return Some(accepted),
                Err(error) => self.failed(&error, now),
            }
        }
        None
    }

    /// Handles an error of `accept` so that the loop never spins. Either no connection waits, or one caller is gone, or a
    /// resource is missing that only time brings back.
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
    fn listener_without_descriptors_pauses_and_then_accepts_again() {
        let poll = mio::Poll::new().unwrap();
        let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut entrance = Entrance::new(bound, None, poll.registry(), Token(1)).unwrap();
        entrance.failed(&io::Error::from_raw_os_error(24), Time(7));
        assert!(!entrance.is_ready());
        assert!(entrance.accept(Time(7)).is_none());
        let until = entrance.deadline().unwrap();
        entrance.tick(Time(until.0 - 1));
        assert!(!entrance.is_ready());
        entrance.tick(until);
        assert!(entrance.is_ready(), "connections that arrive during the pause are accepted after it");
        assert!(entrance.accept(until).is_none());
        assert_eq!(entrance.deadline(), None);
    }
}
