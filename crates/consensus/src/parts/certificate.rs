//! Certificates and checkpoint proofs.

use quorate_crypto::AggregateSignature;
use quorate_types::codec::Wire;
use quorate_types::digest::context;
use quorate_types::{
    BlockId, Committee, Digest, Height, Kind, ReplicaId, ReplicaSet, Signature, Statement, View,
};

/// Enough equal votes, aggregated.
#[derive(Clone, PartialEq, Debug)]
pub struct Certificate {
    /// Statement that all signers signed.
    pub statement: Statement,
    /// The signers.
    pub signers: ReplicaSet,
    /// Their signatures, in the order of their ids.
    pub proof: AggregateSignature,
}

impl Certificate {
    /// Returns the certificate of the genesis block: valid without any signature.
    #[must_use]
    pub fn genesis(kind: Kind) -> Self {
        let statement = Statement::new(kind, View::ZERO, Height::ZERO, Digest::ZERO);
        Self { statement, signers: ReplicaSet::EMPTY, proof: AggregateSignature::List(Vec::new()) }
    }

    /// Makes a certificate of votes of distinct replicas for one statement, in any order.
    #[must_use]
    pub fn of(statement: Statement, votes: &[(ReplicaId, Signature)]) -> Self {
        let signers = votes.iter().map(|(by, _)| *by).collect();
        Self { statement, signers, proof: AggregateSignature::of(votes) }
    }

    /// Returns whether this is the certificate of the genesis block.
    #[must_use]
    pub fn is_genesis(&self) -> bool {
        *self == Self::genesis(self.statement.kind)
    }

    /// Returns the view of the votes.
    #[must_use]
    pub fn view(&self) -> View {
        self.statement.view
    }

    /// Returns the block of the votes; zero for genesis. Only for votes whose subject is a block.
    #[must_use]
    pub fn block(&self) -> BlockId {
        BlockId(self.statement.subject)
    }

    /// Checks all that needs no cryptography: signers are members and enough, with one signature each. They are distinct
    /// because they are a set.
    ///
    /// # Errors
    /// The first fault.
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

    /// Returns the key in the cache of checked certificates. It binds signers and proof, not only the statement.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&context::CERTIFICATE, &self.to_bytes())
    }
}

quorate_types::wire_struct!(Certificate { statement, signers, proof });

/// Kind of the statement that replicas sign about their state.
pub const CHECKPOINT_KIND: Kind = Kind::new("host.checkpoint");

/// The state after a height. `block` and `view` give a chained protocol the root of its block tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The height.
    pub height: Height,
    /// The block decided at the height.
    pub block: BlockId,
    /// View in the header of that block, which is the view of its first proposal; 0 for the null block. It is not the view
    /// of the decision: replicas may differ in that, and their checkpoints would never match.
    pub view: View,
    /// H(application, sessions).
    pub state: Digest,
}

impl Checkpoint {
    /// The state before the first block.
    pub const GENESIS: Self =
        Self { height: Height::ZERO, block: BlockId::ZERO, view: View::ZERO, state: Digest::ZERO };

    /// Returns the statement that a replica signs about the checkpoint.
    #[must_use]
    pub fn statement(&self) -> Statement {
        let subject = Digest::of(&context::CHECKPOINT, &self.to_bytes());
        Statement::new(CHECKPOINT_KIND, View::ZERO, self.height, subject)
    }
}

quorate_types::wire_struct!(Checkpoint { height, block, view, state });

/// A stable checkpoint with the signatures that make it stable.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckpointProof {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Signatures of a quorum under its statement.
    pub certificate: Certificate,
}

impl CheckpointProof {
    /// Returns the proof of the genesis state, which is stable by definition.
    #[must_use]
    pub fn genesis() -> Self {
        Self { checkpoint: Checkpoint::GENESIS, certificate: Certificate::genesis(CHECKPOINT_KIND) }
    }

    /// Returns whether this is the genesis state.
    #[must_use]
    pub fn is_genesis(&self) -> bool {
        *self == Self::genesis()
    }

    /// Returns the digest of checkpoint and signatures.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&context::CERTIFICATE, &self.to_bytes())
    }
}

quorate_types::wire_struct!(CheckpointProof { checkpoint, certificate });
