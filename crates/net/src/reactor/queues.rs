//! The connections that a pass of the reactor reads, and those that it writes.

use super::socket::{Role, Socket, SocketKey, SocketTable};
use quorate_types::{ReplicaId, ReplicaSet, Time};
use std::collections::VecDeque;

/// Connections that have something to read, replicas before clients.
#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    pub(super) peers: VecDeque<SocketKey>,
    pub(super) clients: VecDeque<SocketKey>,
    /// The replica whose frames are read first.
    pub(super) urgent: Option<ReplicaId>,
    /// Replicas whose sockets are paused (back-pressure).
    pub(super) held: ReplicaSet,
}

impl ReadQueue {
    /// Lists a connection, once.
    pub(super) fn add(&mut self, key: SocketKey, socket: &mut Socket) {
        if std::mem::replace(&mut socket.listed, true) {
            return;
        }
        match socket.role {
            Role::Client(_) => self.clients.push_back(key),
            _ => self.peers.push_back(key),
        }
    }

    /// Moves the connection of the urgent replica to the front.
    pub(super) fn move_to_front(&mut self, urgent: SocketKey) {
        let position = self.peers.iter().position(|key| *key == urgent);
        if let Some(key) = position.and_then(|position| self.peers.remove(position)) {
            self.peers.push_front(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.clients.is_empty()
    }
}

/// Connections that have something to write.
#[derive(Debug, Default)]
pub(super) struct FlushQueue {
    dirty: Vec<SocketKey>,
    /// The buffer that takes turns with `dirty`, so that no flush allocates one.
    spare: Vec<SocketKey>,
    /// Connections whose delay lines may hold bytes; empty if no link has a delay.
    delayed: Vec<SocketKey>,
    /// Whether a flush left bytes that the sockets would still take.
    pub(super) unfinished: bool,
}

impl FlushQueue {
    /// Lists a connection, once.
    pub(super) fn add(&mut self, key: SocketKey, socket: &mut Socket) {
        if !std::mem::replace(&mut socket.dirty, true) {
            self.dirty.push(key);
        }
    }

    /// Notes that the delay line of a connection may hold bytes, once.
    pub(super) fn add_delayed(&mut self, key: SocketKey, socket: &mut Socket) {
        let Some(line) = &mut socket.line else { return };
        if !line.is_empty() && !std::mem::replace(&mut line.listed, true) {
            self.delayed.push(key);
        }
    }

    /// Lists the connections whose delay lines have due bytes, and forgets those whose lines are empty.
    pub(super) fn add_due(&mut self, now: Time, sockets: &mut SocketTable) {
        let mut delayed = std::mem::take(&mut self.delayed);
        delayed.retain(|key| {
            let Some(socket) = sockets.get_mut(*key) else { return false };
            if socket.line_due().is_some_and(|due| due <= now) {
                self.add(*key, socket);
            }
            let Some(line) = &mut socket.line else { return false };
            line.listed = !line.is_empty();
            line.listed
        });
        self.delayed = delayed;
    }

    /// Returns the time at which bytes of a delay line become due.
    pub(super) fn deadline(&self, sockets: &SocketTable) -> Option<Time> {
        self.delayed.iter().filter_map(|key| sockets.get(*key)?.line_due()).min()
    }

    /// Begins a flush: returns the listed connections. Connections listed from now on belong to the next flush.
    pub(super) fn begin(&mut self) -> Vec<SocketKey> {
        self.unfinished = false;
        let spare = std::mem::take(&mut self.spare);
        std::mem::replace(&mut self.dirty, spare)
    }

    /// Ends a flush: takes the emptied buffer back.
    pub(super) fn end(&mut self, flushed: Vec<SocketKey>) {
        self.spare = flushed;
    }
}
