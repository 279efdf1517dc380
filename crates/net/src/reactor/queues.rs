//! The connections that a pass of the reactor reads, and those that it writes.

use super::socket::{Role, Socket, SocketKey};
use quorate_types::{ReplicaId, ReplicaSet};
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
