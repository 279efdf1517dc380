//! The network as a turn sees it, and the sealing of its frames.

use crate::steps::StepKind;
use quorate_consensus::{Note, To};
use quorate_crypto::{SigningKey, statement_preimage};
use quorate_replica::{ConnId, FrameSource, RestoredLog, Sink, Unsealed};
use quorate_types::codec::Wire;
use quorate_types::wire::{Lane, NoOrder, Refusal, frame};
use quorate_types::{
    BlockId, BundleDigest, ClientId, Domain, FrameBody, Height, Kind, OrderProof, ReplicaId, ReplyBundle,
    Signature, Statement, Time,
};

/// The network as a turn sees it. No method waits; frames leave with [`Outgoing::flush`].
pub trait Outgoing {
    /// Returns the current time. It advances within a turn, above all during the sync: later events of the turn happen
    /// later, and their timers run from then on.
    fn now(&mut self) -> Time;
    /// Queues a frame for replicas. Its body is shared, not copied.
    fn peer(&mut self, to: To, lane: Lane, frame_type: u8, body: FrameBody);
    /// Queues a reply for the connections that speak for this client.
    fn reply(&mut self, client: &ClientId, reply: &ReplyBundle);
    /// Queues a reply for a connection that repeated an executed request.
    fn reply_to(&mut self, conn: ConnId, client: &ClientId, reply: &ReplyBundle);
    /// Notes that a connection speaks for this client: it handed over a bundle whose authenticator holds.
    fn proven(&mut self, conn: ConnId, client: &ClientId);
    /// Queues the refusal of a bundle.
    fn refuse(&mut self, conn: ConnId, client: &ClientId, bundle: BundleDigest, why: Refusal);
    /// Queues the answer to a question for the order of a bundle: the proof, or the reason why there is none.
    fn order(
        &mut self,
        conn: ConnId,
        client: &ClientId,
        bundle: BundleDigest,
        answer: Result<Box<OrderProof>, NoOrder>,
    );
    /// Sends all queued frames: one write per connection.
    fn flush(&mut self);
    /// Counts a refused frame of this kind by source and reason. No honest sender commits a breach.
    fn rejected(&mut self, source: FrameSource, kind: Kind, reason: &'static str, is_breach: bool);
    /// Notes a transition of the protocol, for traces.
    fn trace(&mut self, note: Note);
    /// Counts a message of a peer that passed all checks of the intake.
    fn passed(&mut self, from: ReplicaId) {
        let _ = from;
    }
    /// Sets the peer whose frames are read first from now on.
    fn urgent(&mut self, peer: Option<ReplicaId>) {
        let _ = peer;
    }
    /// Notes a decided block, for observers of a replica. The block is in the log. The executor receives it at once or
    /// when it is durable.
    fn decided(&mut self, height: Height, id: BlockId) {
        let _ = (height, id);
    }
    /// Returns the reading of a stopwatch for [`Outgoing::step`], in nanoseconds. Simulated time does not pass inside a step,
    /// so a simulator has none.
    fn stopwatch_ns(&mut self) -> u64 {
        0
    }
    /// Returns the CPU time of this thread in nanoseconds; 0 where nobody measures.
    fn cpu_ns(&mut self) -> u64 {
        0
    }
    /// Notes a step of this kind, and the nanoseconds that it took by the stopwatch.
    fn step(&mut self, kind: StepKind, ns: u64) {
        let _ = (kind, ns);
    }
    /// Returns the sink that records the steps of a replica ([`quorate_replica::Replica::record`]), which is about to be
    /// opened on this log. Without a sink the run cannot be replayed.
    fn recorder(&mut self, log: &RestoredLog) -> Option<Sink> {
        let _ = log;
        None
    }
}

/// A frame that is ready for the queue.
pub(crate) struct Sealed {
    pub(crate) frame_type: u8,
    pub(crate) body: FrameBody,
    /// The signature of this replica, where the message is signed.
    pub(crate) signature: Option<Signature>,
}

/// Seals a frame: appends the signature where the message is signed. No other function uses the replica's key.
pub(crate) fn seal(key: &SigningKey, domain: &Domain, frame: Unsealed) -> Sealed {
    let signed = |frame_type, mut body: Vec<u8>, statement: Option<Statement>| {
        let signature = statement.map(|statement| key.sign(&statement_preimage(domain, &statement)));
        if let Some(signature) = signature {
            signature.encode(&mut body);
        }
        Sealed { frame_type, body: body.into(), signature }
    };
    match frame {
        Unsealed::Protocol { body, sign, .. } => signed(frame::PROTOCOL, body, sign),
        Unsealed::Host { message, sign, .. } => signed(frame::HOST, message.to_bytes(), sign),
        Unsealed::Payload(payload) => signed(frame::PAYLOAD, payload.to_bytes(), None),
        Unsealed::Bundle(bundle) => {
            Sealed { frame_type: frame::BUNDLE, body: bundle.into(), signature: None }
        }
    }
}
