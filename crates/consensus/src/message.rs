//! What a message must tell its host, and what the host has checked of it.
//!
//! All answers are pure functions of the message (and the committee). That is what lets the host verify in
//! batches, guard slots and inject faults without knowing the protocol.

use crate::parts::certificate::{Certificate, CheckpointProof};
use quorate_types::codec::{Reader, Wire};
use quorate_types::limits::CLAIMS_PER_REPLICA_MAX;
use quorate_types::{Committee, DecodeError, Height, Kind, PayloadId, ReplicaId, Signature, Statement, View};
use std::any::Any;
use std::fmt::Debug;

/// A protocol's message.
pub trait Message: Any + Debug + Send {
    /// "vote", "proposal": for metrics, traces and fault rules.
    fn kind(&self) -> Kind;
    /// View, height, and whether it carries a certificate: judged against the window before any crypto.
    fn place(&self) -> Place;
    /// What of this message is the sender's own statement.
    fn auth(&self) -> Auth;
    /// Whether its slot may be filled only once. Asked of messages with a statement of their own. False for
    /// what may be said again with another subject: complaints, timeouts, suspicions, blames.
    fn once(&self) -> bool {
        true
    }
    /// Foreign signatures, certificates and checkpoint proofs to check before the protocol sees it.
    fn claims(&self, claims: &mut Claims<'_>) {
        let _ = claims;
    }
    /// Bodies that travel beside it, so that the receiver does not ask for them at once.
    fn bodies(&self, out: &mut Vec<PayloadId>) {
        let _ = out;
    }
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads a message that fills `bytes`.
    ///
    /// # Errors
    /// When the bytes are not the canonical encoding of a message.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>
    where
        Self: Sized;
}

/// Where a message belongs.
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
    /// Inside every window: for messages that bind to no view and no height, such as "this is where I stand".
    /// They must reach a handler from whoever is behind, or nobody would help.
    pub const ANYWHERE: Self = Self { view: View::MAX, height: Height::ZERO, certified: true };
}

/// What of a message is the sender's own word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Auth {
    /// The host signs exactly this; the intake demands that the signer is the peer of the link.
    Signed(Statement),
    /// The link vouches; the statement still feeds the guard.
    Linked(Option<Statement>),
    /// Nothing of the sender's own: everything inside is claimed.
    Relay,
}

impl Auth {
    /// The sender's own statement.
    #[must_use]
    pub fn statement(&self) -> Option<Statement> {
        match self {
            Self::Signed(statement) => Some(*statement),
            Self::Linked(statement) => *statement,
            Self::Relay => None,
        }
    }

    /// Whether the message travels with a signature of its sender.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        matches!(self, Self::Signed(_))
    }
}

/// Foreign words that travel inside a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signed<T> {
    /// What is said.
    pub body: T,
    /// Who says it.
    pub by: ReplicaId,
    /// Signature under the statement that `body` makes.
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

/// One thing to check before a protocol sees the message that claims it.
#[derive(Clone, PartialEq, Debug)]
pub enum Claim {
    /// One signature of one replica.
    Signature {
        /// Who signed.
        by: ReplicaId,
        /// What.
        statement: Statement,
        /// The signature.
        signature: Signature,
    },
    /// A certificate whose form was checked already: members, distinct, enough.
    Certificate(Certificate),
}

/// Collects what a message claims. Whatever is malformed in itself refuses the message at once.
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
    /// Starts collecting. `checkpoint_quorum` is what the protocol's `Spec` asks of checkpoint proofs.
    #[must_use]
    pub fn new(committee: &'a Committee, checkpoint_quorum: usize) -> Self {
        // A NEW-VIEW carries up to n view changes with a proof of up to n signatures each.
        let n = committee.n();
        let room = n.saturating_mul(n.saturating_add(CLAIMS_PER_REPLICA_MAX));
        Self { committee, checkpoint_quorum, claims: Vec::new(), refused: None, weight: 0, room }
    }

    /// The committee that the claims are about.
    #[must_use]
    pub fn committee(&self) -> &'a Committee {
        self.committee
    }

    /// Claims that `by` has signed `statement`. Lists with different subjects are counted by the protocol.
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

    /// Makes room for so many more signatures than messages usually carry. The protocol bounds what it asks for: a
    /// faulty replica can make everybody check as many.
    pub fn make_room(&mut self, signatures: usize) {
        self.room = self.room.saturating_add(signatures);
    }

    /// Refuses the message: something in it is wrong that needs no cryptography to see.
    pub fn refuse(&mut self, why: &'static str) {
        self.refused.get_or_insert(why);
    }

    fn weigh(&mut self, signatures: usize) {
        self.weight = self.weight.saturating_add(signatures);
        if self.weight > self.room {
            self.refuse("too many claims");
        }
    }

    /// What was claimed.
    ///
    /// # Errors
    /// Why the message is refused without a look at any signature.
    pub fn finish(self) -> Result<Vec<Claim>, &'static str> {
        match self.refused {
            Some(why) => Err(why),
            None => Ok(self.claims),
        }
    }
}

/// Whose word a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// The author.
    pub by: ReplicaId,
    /// The author's signature, where the message is [`Auth::Signed`].
    pub signature: Option<Signature>,
}

/// A message whose form, window and signatures hold. Only the host's intake leads to one: the constructor is
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

    /// Who handed it over. Tallies and relays use the seal, never the link.
    #[must_use]
    pub fn link(&self) -> ReplicaId {
        self.link
    }

    /// The message, and whose word it is.
    #[must_use]
    pub fn into_parts(self) -> (M, Seal) {
        (self.message, self.seal)
    }
}
