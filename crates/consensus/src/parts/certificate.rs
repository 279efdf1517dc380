//! Certificates and checkpoint proofs.

use quorate_crypto::AggregateSignature;
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::digest::context;
use quorate_types::{
    BlockId, Committee, Digest, Height, Kind, ReplicaId, ReplicaSet, Signature, Statement, View,
};

/// Enough equal votes, aggregated.
#[derive(Clone, PartialEq, Debug)]
pub struct Certificate {
    /// What all of them signed.
    pub statement: Statement,
    /// Who signed.
    pub signers: ReplicaSet,
    /// Their signatures, in the order of their ids.
    pub proof: AggregateSignature,
}

impl Certificate {
    /// The certificate of the genesis block: nobody signed it and everybody believes it.
    #[must_use]
    pub fn genesis(kind: Kind) -> Self {
        let statement = Statement::new(kind, View::ZERO, Height::ZERO, Digest::ZERO);
        Self { statement, signers: ReplicaSet::EMPTY, proof: AggregateSignature::List(Vec::new()) }
    }

    /// Puts together votes of distinct replicas for one statement, in whatever order they came.
    #[must_use]
    pub fn of(statement: Statement, votes: &[(ReplicaId, Signature)]) -> Self {
        let signers = votes.iter().map(|(by, _)| *by).collect();
        Self { statement, signers, proof: AggregateSignature::of(votes) }
    }

    /// Whether this is the certificate of the genesis block.
    #[must_use]
    pub fn is_genesis(&self) -> bool {
        *self == Self::genesis(self.statement.kind)
    }

    /// The view of the votes.
    #[must_use]
    pub fn view(&self) -> View {
        self.statement.view
    }

    /// The block that was voted for; zero for genesis. For votes whose subject is a block.
    #[must_use]
    pub fn block(&self) -> BlockId {
        BlockId(self.statement.subject)
    }

    /// Checks all that needs no cryptography: members, distinct (a set is), enough, one signature each.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_form(&self, committee: &Committee, at_least: usize) -> Result<(), &'static str> {
        if self.signers.iter().any(|id| !committee.contains(id)) {
            return Err("signer is not a member");
        }
        if self.signers.len() < at_least {
            return Err("too few signers");
        }
        let AggregateSignature::List(signatures) = &self.proof;
        if signatures.len() == self.signers.len() { Ok(()) } else { Err("signatures and signers differ") }
    }

    /// Key in the cache of checked certificates: binds signers and proof, not only the statement.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&context::CERTIFICATE, &self.to_bytes())
    }
}

impl Wire for Certificate {
    fn encode(&self, out: &mut Vec<u8>) {
        self.statement.encode(out);
        self.signers.encode(out);
        self.proof.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            statement: Statement::decode(reader)?,
            signers: ReplicaSet::decode(reader)?,
            proof: AggregateSignature::decode(reader)?,
        })
    }
}

/// Kind of the statement that replicas sign about their state.
pub const CHECKPOINT_KIND: Kind = Kind::new("host.checkpoint");

/// The state after a height. `block` and `view` are in it so that a chained protocol has a root to attach to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The height.
    pub height: Height,
    /// What was decided there.
    pub block: BlockId,
    /// That block's own view field (of its first proposal), 0 for the null block. Not the view in which it was
    /// decided: replicas may differ in that and their checkpoints would never come together.
    pub view: View,
    /// H(application, sessions).
    pub state: Digest,
}

impl Checkpoint {
    /// The state before the first block.
    pub const GENESIS: Self =
        Self { height: Height::ZERO, block: BlockId::ZERO, view: View::ZERO, state: Digest::ZERO };

    /// What a replica signs about it.
    #[must_use]
    pub fn statement(&self) -> Statement {
        let subject = Digest::of(&context::CHECKPOINT, &self.to_bytes());
        Statement::new(CHECKPOINT_KIND, View::ZERO, self.height, subject)
    }
}

impl Wire for Checkpoint {
    fn encode(&self, out: &mut Vec<u8>) {
        self.height.encode(out);
        self.block.encode(out);
        self.view.encode(out);
        self.state.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            height: Height::decode(reader)?,
            block: BlockId::decode(reader)?,
            view: View::decode(reader)?,
            state: Digest::decode(reader)?,
        })
    }
}

/// A checkpoint that is stable, with the signatures that make it so.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckpointProof {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// A quorum's signatures under its statement.
    pub certificate: Certificate,
}

impl CheckpointProof {
    /// The genesis state, stable by definition.
    #[must_use]
    pub fn genesis() -> Self {
        Self { checkpoint: Checkpoint::GENESIS, certificate: Certificate::genesis(CHECKPOINT_KIND) }
    }

    /// Whether this is the genesis state.
    #[must_use]
    pub fn is_genesis(&self) -> bool {
        *self == Self::genesis()
    }

    /// Digest of checkpoint and signatures.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&context::CERTIFICATE, &self.to_bytes())
    }
}

impl Wire for CheckpointProof {
    fn encode(&self, out: &mut Vec<u8>) {
        self.checkpoint.encode(out);
        self.certificate.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { checkpoint: Checkpoint::decode(reader)?, certificate: Certificate::decode(reader)? })
    }
}
