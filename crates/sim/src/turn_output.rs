//! The output of a replica's turn, in the order and with the times of departure.

use crate::client_connections::ClientConnections;
use crate::clock::Clock;
use crate::disk::SharedDisk;
use crate::replay_check::ReplayCheck;
use bytes::Bytes;
use quorate_consensus::{Note, To};
use quorate_host::Outgoing;
use quorate_replica::{ConnId, FrameSource, RestoredLog, Sink};
use quorate_types::codec::Wire as _;
use quorate_types::wire::{FromReplica, Lane, NoOrder, Refusal};
use quorate_types::{
    BlockId, BundleDigest, ClientId, FrameBody, Height, Kind, OrderProof, ReplicaId, ReplyBundle, Time,
};

/// A message that leaves.
#[derive(Debug)]
pub(crate) enum Outbound {
    /// A frame to replicas.
    Peers { to: To, lane: Lane, frame_type: u8, body: Bytes },
    /// A message to the client with this index.
    Client { index: usize, body: Bytes },
}

/// A flush, at which all queued messages leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    /// Number of messages that have left after the flush.
    pub(crate) upto: usize,
    /// Time of the flush within the turn.
    pub(crate) after_ns: u64,
    /// Number of bytes of this turn that the disk had synced at the flush.
    pub(crate) synced: usize,
}

/// The output of a turn. It is reused from turn to turn.
#[derive(Default, Debug)]
pub(crate) struct TurnOutput {
    pub(crate) outbound: Vec<Outbound>,
    pub(crate) flushes: Vec<Flush>,
    pub(crate) decided: Vec<(Height, BlockId)>,
    pub(crate) rejected: Vec<(FrameSource, Kind, &'static str)>,
    /// Peers that broke rules, with the breach.
    pub(crate) blamed: Vec<(ReplicaId, &'static str)>,
    pub(crate) notes: Vec<Note>,
    /// Connections whose clients have authenticated themselves.
    pub(crate) proven: Vec<(usize, ClientId)>,
    /// Senders of the messages that have passed the intake.
    pub(crate) passed: Vec<ReplicaId>,
}

impl TurnOutput {
    /// Empties the output for the next turn.
    pub(crate) fn clear(&mut self) {
        self.outbound.clear();
        self.flushes.clear();
        self.decided.clear();
        self.rejected.clear();
        self.blamed.clear();
        self.notes.clear();
        self.proven.clear();
        self.passed.clear();
    }
}

/// The network as a turn sees it.
pub(crate) struct TurnSink<'a> {
    pub(crate) output: &'a mut TurnOutput,
    pub(crate) disk: &'a SharedDisk,
    pub(crate) client_connections: &'a ClientConnections,
    /// The second copy of a replica that is being opened.
    pub(crate) replay_check: Option<&'a ReplayCheck>,
    /// The replica's clock and the beginning of its turn; `None` while the replica is being opened.
    pub(crate) clock: Option<(Clock, Time)>,
}

impl TurnSink<'_> {
    fn client(&mut self, conn: ConnId, message: Bytes) {
        if let Ok(index) = usize::try_from(conn.0) {
            self.output.outbound.push(Outbound::Client { index, body: message });
        }
    }
}

impl Outgoing for TurnSink<'_> {
    fn now(&mut self) -> Time {
        let spent = self.disk.watch(|watch| watch.spent_ns);
        self.clock.map_or(Time::ZERO, |(clock, began)| clock.local(began.plus(spent)))
    }
    fn peer(&mut self, to: To, lane: Lane, frame_type: u8, body: FrameBody) {
        let body = body.to_bytes();
        self.output.outbound.push(Outbound::Peers { to, lane, frame_type, body });
    }

    fn reply(&mut self, client: &ClientId, reply: &ReplyBundle) {
        let conns = self.client_connections.of(client);
        if conns.is_empty() {
            return;
        }
        let message = Bytes::from(FromReplica::Reply(*client, reply.clone()).to_bytes());
        for index in conns {
            let outbound = Outbound::Client { index: *index, body: message.clone() };
            self.output.outbound.push(outbound);
        }
    }

    fn reply_to(&mut self, conn: ConnId, client: &ClientId, reply: &ReplyBundle) {
        let message = FromReplica::Reply(*client, reply.clone()).to_bytes();
        self.client(conn, Bytes::from(message));
    }

    fn proven(&mut self, conn: ConnId, client: &ClientId) {
        if let Ok(index) = usize::try_from(conn.0) {
            self.output.proven.push((index, *client));
        }
    }

    fn refuse(&mut self, conn: ConnId, client: &ClientId, bundle: BundleDigest, why: Refusal) {
        let message = FromReplica::Refused { client: *client, bundle, why };
        self.client(conn, Bytes::from(message.to_bytes()));
    }

    fn order(
        &mut self,
        conn: ConnId,
        client: &ClientId,
        bundle: BundleDigest,
        answer: Result<Box<OrderProof>, NoOrder>,
    ) {
        let client = *client;
        let message = match answer {
            Ok(proof) => FromReplica::Order { client, bundle, proof },
            Err(why) => FromReplica::NoOrder { client, bundle, why },
        };
        self.client(conn, Bytes::from(message.to_bytes()));
    }

    fn flush(&mut self) {
        let before = self.output.flushes.last().map_or(0, |flush| flush.upto);
        let upto = self.output.outbound.len();
        if upto == before {
            return;
        }
        // If the power fails at this step, neither these messages nor later ones leave.
        if !self.disk.step() {
            self.output.outbound.truncate(before);
            return;
        }
        let (after_ns, synced) = self.disk.watch(|watch| (watch.spent_ns, watch.synced.len()));
        self.output.flushes.push(Flush { upto, after_ns, synced });
    }

    fn rejected(&mut self, source: FrameSource, kind: Kind, reason: &'static str, is_breach: bool) {
        if let FrameSource::Peer(peer) = source
            && is_breach
        {
            self.output.blamed.push((peer, reason));
        }
        self.output.rejected.push((source, kind, reason));
    }

    fn passed(&mut self, from: ReplicaId) {
        self.output.passed.push(from);
    }

    fn decided(&mut self, height: Height, id: BlockId) {
        self.output.decided.push((height, id));
    }

    fn trace(&mut self, note: Note) {
        self.output.notes.push(note);
    }

    fn recorder(&mut self, past: &RestoredLog) -> Option<Sink> {
        self.replay_check.map(|replay_check| replay_check.open(past))
    }
}
