//! One client's connection in the reactor: unfinished frames, queued replies, and its progress towards being trusted.

use super::event::SendError;
use crate::frame::{Assembler, CLIENT_HEADER_BYTES, Refusal, client_frame_bytes, client_header};
use crate::session::Session;
use quorate_types::Time;
use std::io::IoSlice;

/// Memory that an idle client's connection keeps for assembling frames.
const ASSEMBLER_KEEP_BYTES: usize = 64 << 10;

/// Memory that an idle client's connection keeps for replies.
const QUEUE_KEEP_BYTES: usize = 64 << 10;

/// Resources of all clients together.
#[derive(Debug)]
pub(super) struct ClientTotals {
    pub(super) connections_max: usize,
    pub(super) connections: usize,
    /// Bytes of unfinished frames.
    pub(super) unfinished: usize,
    /// Bytes of queued replies.
    pub(super) outgoing: usize,
}

impl ClientTotals {
    pub(super) fn new(connections_max: usize) -> Self {
        Self { connections_max, connections: 0, unfinished: 0, outgoing: 0 }
    }
}

/// The state of one client's connection.
#[derive(Debug)]
pub(super) struct Client {
    assembler: Assembler<CLIENT_HEADER_BYTES>,
    /// Queued frames, one behind the other.
    queue: Vec<u8>,
    /// Bytes of `queue` that the session has taken.
    taken: usize,
    /// Whether the caller has received `ClientUp`.
    pub(super) up: bool,
    /// Whether a whole frame has arrived.
    pub(super) spoken: bool,
    /// Whether the caller has vouched for this client.
    pub(super) vouched: bool,
    /// The time at which the connection was accepted.
    pub(super) since: Time,
}

impl Client {
    pub(super) fn new(now: Time, up: bool) -> Self {
        Self {
            assembler: Assembler::new(client_frame_bytes, ASSEMBLER_KEEP_BYTES),
            queue: Vec::new(),
            taken: 0,
            up,
            spoken: false,
            vouched: false,
            since: now,
        }
    }

    /// Bytes of the unfinished frame.
    pub(super) fn unfinished(&self) -> usize {
        self.assembler.unfinished()
    }

    /// Takes plain text of the client and passes the body of each finished frame to `each`.
    pub(super) fn read(&mut self, plain: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<(), Refusal> {
        let spoken = &mut self.spoken;
        self.assembler.feed(plain, &mut |_, body| {
            *spoken = true;
            each(body);
            Ok(())
        })
    }

    /// Queues one frame behind the others; returns its bytes.
    pub(super) fn queue(&mut self, write: &dyn Fn(&mut Vec<u8>)) -> Result<usize, SendError> {
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

    /// Hands replies to the session, at most `limit` bytes; false if none wait.
    pub(super) fn fill(&mut self, session: &mut Session, limit: usize, totals: &mut ClientTotals) -> bool {
        let waiting = self.queue.get(self.taken..).unwrap_or_default();
        let piece = waiting.get(..limit).unwrap_or(waiting);
        let count = piece.len();
        if count > 0 {
            session.send(&[IoSlice::new(piece)]);
        }
        self.taken = self.taken.saturating_add(count);
        // Taken bytes are dropped before they outnumber the waiting ones, even if the queue never becomes empty.
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

    /// Bytes that wait for the session.
    pub(super) fn queued(&self) -> usize {
        self.queue.len().saturating_sub(self.taken)
    }
}
