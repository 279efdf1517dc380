//! Answers of a message to its host, and the proof that the host has checked it.
//!
//! All answers are pure functions of the message and the committee. So the host verifies in batches, guards slots and
//! injects faults without knowledge of the protocol.

use crate::parts::certificate::{Certificate, CheckpointProof};
use quorate_types::codec::{Reader, Wire};
use quorate_types::limits::CLAIMS_PER_REPLICA_MAX;
use quorate_types::{Committee, DecodeError, Height, Kind, PayloadId, ReplicaId, Signature, Statement, View};
use std::any::Any;
use std::fmt::Debug;

/// A message of a protocol.
pub trait Message: Wire + Any + Debug + Send {
    /// Returns the kind, such as "vote" or "proposal": for metrics, traces and fault rules.
    fn kind(&self) -> Kind;
    /// Returns view, height, and whether the message carries a certificate. The host compares them with the window
    /// before any cryptography.
    fn place(&self) -> Place;
    /// Returns the sender's own statement and the way in which it is authenticated.
    fn auth(&self) -> Auth;
    /// Returns whether the slot of its statement may be filled only once. False for messages that may be sent again with
    /// another subject: complaints, timeouts, suspicions, blames. Not asked of messages without a statement.
    fn once(&self) -> bool {
        true
    }
    /// Claims foreign signatures, certificates and checkpoint proofs, to be checked before the protocol sees the message.
    fn claims(&self, claims: &mut Claims<'_>) {
        let _ = claims;
    }
    /// Appends the bodies that travel beside the message, so that the receiver does not request them at once.
    fn bodies(&self, out: &mut Vec<PayloadId>) {
        let _ = out;
    }
}

/// View and height to which a message belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its view.
    pub view: View,
    /// Its height; 0 for messages about a view only.
    pub height: Height,
    /// Whether it carries a certificate: then the upper edge of the window does not apply.
    pub certified: bool,
}

impl Place {
    /// Inside every window: for messages that bind to no view and no height, such as a STATUS. They must reach a handler
    /// from replicas that are behind, or nobody would help these.
    pub const ANYWHERE: Self = Self { view: View::MAX, height: Height::ZERO, certified: true };
}

/// Authentication of the sender's own statement in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Auth {
    /// The host signs exactly this statement. The intake demands that the signer is the peer of the link.
    Signed(Statement),
    /// The link authenticates the sender; the statement still feeds the guard.
    Linked(Option<Statement>),
    /// The message has no statement of the sender: everything inside is claimed.
    Relay,
}

impl Auth {
    /// Returns the sender's own statement.
    #[must_use]
    pub fn statement(&self) -> Option<Statement> {
        match self {
            Self::Signed(statement) => Some(*statement),
            Self::Linked(statement) => *statement,
            Self::Relay => None,
        }
    }

    /// Returns whether the message travels with a signature of its sender.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        matches!(self, Self::Signed(_))
    }
}

/// A signed statement of another replica that travels inside a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signed<T> {
    /// Content of the statement.
    pub body: T,
    /// Author.
    pub by: ReplicaId,
    /// The author's signature under the statement that `body` makes.
    pub signature: Signature,
}

impl<T: Wire> Wire for Signed<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.by.encode(out);
        self.body.encode(out);
        self.signature.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            by: ReplicaId::decode(reader)?,
            body: T::decode(reader)?,
            signature: Signature::decode(reader)?,
        })
    }
}

/// One signature or certificate to check before a protocol sees the message that claims it.
#[derive(Clone, PartialEq, Debug)]
pub enum Claim {
    /// One signature of one replica.
    Signature {
        /// The signer.
        by: ReplicaId,
        /// The signed statement.
        statement: Statement,
        /// The signature.
        signature: Signature,
    },
    /// A certificate whose form was checked already: members, distinct, enough.
    Certificate(Certificate),
}

/// Collector of a message's claims. A claim that is malformed in itself refuses the message at once.
#[derive(Debug)]
pub struct Claims<'a> {
    committee: &'a Committee,
    checkpoint_quorum: usize,
    claims: Vec<Claim>,
    refused: Option<&'static str>,
    weight: usize,
    room: usize,
}

impl<'a> Claims<'a> {
    /// Starts collecting. `checkpoint_quorum` is the number of signatures that the protocol's `Spec` demands of a
    /// checkpoint proof.
    #[must_use]
    pub fn new(committee: &'a Committee, checkpoint_quorum: usize) -> Self {
        // A NEW-VIEW carries up to n view changes with a proof of up to n signatures each.
        let n = committee.n();
        let room = n.saturating_mul(n.saturating_add(CLAIMS_PER_REPLICA_MAX));
        Self { committee, checkpoint_quorum, claims: Vec::new(), refused: None, weight: 0, room }
    }

    /// Returns the committee that the claims are about.
    #[must_use]
    pub fn committee(&self) -> &'a Committee {
        self.committee
    }

    /// Claims that `by` has signed `statement`. Protocols themselves count lists with different subjects.
    pub fn signature(&mut self, by: ReplicaId, statement: Statement, signature: &Signature) {
        if !self.committee.contains(by) {
            return self.refuse("signer is not a member");
        }
        self.weigh(1);
        self.claims.push(Claim::Signature { by, statement, signature: *signature });
    }

    /// Claims that at least `at_least` distinct members have signed the certificate's statement. The genesis
    /// certificate is accepted.
    pub fn certificate(&mut self, certificate: &Certificate, at_least: usize) {
        if certificate.is_genesis() {
            return;
        }
        if let Err(why) = certificate.check_form(self.committee, at_least) {
            return self.refuse(why);
        }
        self.weigh(certificate.signers.len());
        self.claims.push(Claim::Certificate(certificate.clone()));
    }

    /// Claims that a checkpoint is stable. The genesis state is stable by definition.
    pub fn checkpoint(&mut self, proof: &CheckpointProof) {
        if proof.is_genesis() {
            return;
        }
        if proof.certificate.statement != proof.checkpoint.statement() {
            return self.refuse("proof of another checkpoint");
        }
        self.certificate(&proof.certificate, self.checkpoint_quorum);
    }

    /// Allows so many signatures more than messages usually carry. The protocol bounds the number: a faulty replica can
    /// make everybody check as many.
    pub fn make_room(&mut self, signatures: usize) {
        self.room = self.room.saturating_add(signatures);
    }

    /// Refuses the message for a fault that shows without cryptography.
    pub fn refuse(&mut self, why: &'static str) {
        self.refused.get_or_insert(why);
    }

    fn weigh(&mut self, signatures: usize) {
        self.weight = self.weight.saturating_add(signatures);
        if self.weight > self.room {
            self.refuse("too many claims");
        }
    }

    /// Returns the claims.
    ///
    /// # Errors
    /// The reason for which the message is refused before any signature is checked.
    pub fn finish(self) -> Result<Vec<Claim>, &'static str> {
        match self.refused {
            Some(why) => Err(why),
            None => Ok(self.claims),
        }
    }
}

/// Author of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// The author.
    pub by: ReplicaId,
    /// The author's signature, where the message is [`Auth::Signed`].
    pub signature: Option<Signature>,
}

/// A message whose form, window and signatures hold. Only messages from the host's intake become one: the constructor is
/// private to this crate, and the erased protocol is its only caller.
#[derive(Debug)]
pub struct Verified<M> {
    message: M,
    link: ReplicaId,
    seal: Seal,
}

impl<M> Verified<M> {
    pub(crate) fn new(message: M, link: ReplicaId, seal: Seal) -> Self {
        Self { message, link, seal }
    }

    /// Returns the peer whose link delivered the message. Tallies and relays use the seal, never the link.
    #[must_use]
    pub fn link(&self) -> ReplicaId {
        self.link
    }

    /// Returns the message and its author.
    #[must_use]
    pub fn into_parts(self) -> (M, Seal) {
        (self.message, self.seal)
    }
}
