//! Where a turn's frames go, and how they are sealed.

use quorate_consensus::{Note, To};
use quorate_crypto::{SigningKey, statement_preimage};
use quorate_replica::{ConnId, Past, Sink, Source, Unsealed};
use quorate_types::codec::Wire;
use quorate_types::wire::{Lane, Refusal, frame};
use quorate_types::{
    BlockId, BundleDigest, ClientId, Domain, FrameBody, Height, Kind, ReplicaId, ReplyBundle, Signature,
    Statement, Time,
};

/// The network as a turn sees it. Nothing here waits; frames leave with [`Outgoing::flush`].
pub trait Outgoing {
    /// What time it is. A turn takes time, its sync above all: what comes after it happens then, and waits from then on.
    fn now(&mut self) -> Time;
    /// Queues a frame for replicas. Its body is shared, not copied.
    fn peer(&mut self, to: To, lane: Lane, frame_type: u8, body: FrameBody);
    /// Queues a reply for whoever speaks for this client.
    fn reply(&mut self, client: &ClientId, reply: &ReplyBundle);
    /// Queues a reply for a connection that has asked again for what was executed before.
    fn reply_to(&mut self, conn: ConnId, client: &ClientId, reply: &ReplyBundle);
    /// A connection has handed over a bundle whose authenticator holds: it speaks for this client.
    fn proven(&mut self, conn: ConnId, client: &ClientId);
    /// Queues the answer that a bundle was not taken.
    fn refuse(&mut self, conn: ConnId, client: &ClientId, bundle: BundleDigest, why: Refusal);
    /// Lets everything that is queued leave: one write per connection.
    fn flush(&mut self);
    /// Something of this kind was refused: to be counted by source and reason. A breach is what nobody honest sends.
    fn rejected(&mut self, source: Source, kind: Kind, reason: &'static str, is_breach: bool);
    /// A transition of the protocol: for traces.
    fn trace(&mut self, note: Note);
    /// A message of a peer holds in all that the intake looks at and goes to its handler: for who counts.
    fn passed(&mut self, from: ReplicaId) {
        let _ = from;
    }
    /// Whose frames are to be read first from now on.
    fn urgent(&mut self, peer: Option<ReplicaId>) {
        let _ = peer;
    }
    /// A block was decided: it is in the log, and goes to the executor, at once or when the disk has it. For who watches a
    /// replica from outside.
    fn decided(&mut self, height: Height, id: BlockId) {
        let _ = (height, id);
    }
    /// A replica is about to be opened on this past: where everything that it goes through is written down
    /// ([`quorate_replica::Replica::record`]); nowhere, unless somebody wants to replay it.
    fn recorder(&mut self, past: &Past) -> Option<Sink> {
        let _ = past;
        None
    }
}

/// A frame ready to be queued.
pub(crate) struct Sealed {
    pub(crate) frame_type: u8,
    pub(crate) body: FrameBody,
    /// The signature that was made.
    pub(crate) signature: Option<Signature>,
}

/// Signs a statement: the one place where the replica's key is used.
fn sign(key: &SigningKey, domain: &Domain, statement: &Statement) -> Signature {
    key.sign(&statement_preimage(domain, statement))
}

/// Seals a frame: appends the signature where the message is signed.
pub(crate) fn seal(key: &SigningKey, domain: &Domain, frame: Unsealed) -> Sealed {
    let signed = |frame_type, mut body: Vec<u8>, statement: Option<Statement>| {
        let signature = statement.map(|statement| sign(key, domain, &statement));
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
