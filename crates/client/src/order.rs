//! Verification of proofs of order.
//!
//! One replica suffices as a witness: the proof has the signatures of f + 1 distinct proposers, so one of them is honest. It has
//! checked everything below its own block. A proof shows that a block with the bundle is committed, and its place. The proof
//! shows nothing about results, and not that no earlier block has the same bundle.
//!
//! The rules here are those of the protocols (`apollo` §10, `artemis` §10). A client knows a protocol by its name alone; a protocol without a
//! rule has no proofs.

use quorate_crypto::{CommitteeKeys, Scheme, statement_preimage};
use quorate_types::{
    Block, BlockId, BundleDigest, Committee, Digest, Domain, Height, Kind, Ledger, OrderChain, OrderProof,
    ProtocolId, ReplicaId, ReplicaSet, Signature, SignedVote, Statement, View, quorum,
};

/// The rule by which a protocol commits blocks. Replica `(view - 1) mod n` signs in a view or round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// Signed headers of f + 1 distinct proposers are on the chain of a committed block.
    Blocks,
    /// Signed votes of f + 1 distinct voters are above a committed block.
    Votes,
}

/// The protocols with proofs, each with the kind of its signed statements.
const RULES: [(ProtocolId, Rule, Kind); 2] = [
    (ProtocolId::new("apollo"), Rule::Blocks, Kind::new("propose")),
    (ProtocolId::new("artemis"), Rule::Votes, Kind::new("vote")),
];

/// The place of a bundle in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The height of the block.
    pub height: Height,
    /// The place of the bundle in the block; 0 is the first.
    pub index: u32,
    /// The block.
    pub block: BlockId,
}

/// The reason why there is no proof of order, or why a proof is refused. A link is named by its place; 0 is the block itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderError {
    /// The protocol of the cluster has no proofs of order.
    #[error("this protocol has no proofs of order")]
    NoProofs,
    /// A key of the committee is no public key.
    #[error("the key of replica {0} is no public key; correct `sign` in cluster.toml")]
    Key(ReplicaId),
    /// The proof has the form of another protocol.
    #[error("the proof has the form of another protocol")]
    Form,
    /// The first vote is not for the last block.
    #[error("the first vote is not for the last block")]
    Voted,
    /// The proof has no header.
    #[error("the proof has no header; expected the block with the bundle")]
    NoLinks,
    /// The list of bundles has another digest than the block's payload.
    #[error("the list of bundles is not that of the block")]
    Payload,
    /// The block does not have the bundle.
    #[error("the block does not have the bundle")]
    Bundle,
    /// The view of a link is not above that of the link before it.
    #[error("the view of link {0} is not above that of the link before it")]
    View(usize),
    /// A link does not follow the link before it.
    #[error("link {0} does not extend the link before it")]
    Parent(usize),
    /// The height of a link is not one above that of the link before it.
    #[error("the height of link {0} is not one above that of the link before it")]
    Height(usize),
    /// The proposer of a link does not lead its view.
    #[error("the proposer of link {0} does not lead its view")]
    Proposer(usize),
    /// The links have too few distinct proposers.
    #[error("the links have {found} distinct proposers; expected {needed}")]
    Proposers {
        /// The number of distinct proposers.
        found: usize,
        /// f + 1.
        needed: usize,
    },
    /// Links follow the one that completes the proof.
    #[error("link {0} follows the one that completes the proof")]
    Superfluous(usize),
    /// A signature does not hold.
    #[error("the signature of link {0} does not hold")]
    Signature(usize),
}

/// The knowledge with which a client checks proofs: the committee, and the rule of its protocol.
#[derive(Debug)]
pub struct OrderVerifier {
    committee: Committee,
    keys: CommitteeKeys,
    rule: Rule,
    /// The kind of a signed proposal or vote.
    kind: Kind,
}

/// A signed statement of a proof.
struct OrderLink<'a> {
    view: View,
    by: ReplicaId,
    id: Digest,
    signature: &'a Signature,
}

impl OrderVerifier {
    /// Prepares the keys of a committee.
    ///
    /// # Errors
    /// [`OrderError::NoProofs`] if the protocol has no proofs, [`OrderError::Key`] if a key is none.
    pub fn new(scheme: Scheme, committee: Committee) -> Result<Self, OrderError> {
        let rule = RULES.iter().find(|(protocol, ..)| *protocol == committee.protocol);
        let (_, rule, kind) = *rule.ok_or(OrderError::NoProofs)?;
        let keys = CommitteeKeys::new(scheme, &committee).map_err(|bad| OrderError::Key(bad.replica))?;
        Ok(Self { committee, keys, rule, kind })
    }

    /// Checks that a proof shows a committed block with this bundle, and returns the bundle's place.
    ///
    /// # Errors
    /// The first fault of the proof.
    pub fn verify(&self, bundle: BundleDigest, proof: &OrderProof) -> Result<Position, OrderError> {
        let block = proof.chain.block().ok_or(OrderError::NoLinks)?;
        if proof.payload.id() != block.payload {
            return Err(OrderError::Payload);
        }
        let index = proof.payload.bundles.iter().position(|other| *other == bundle);
        let index = index.and_then(|index| u32::try_from(index).ok()).ok_or(OrderError::Bundle)?;
        match (&proof.chain, self.rule) {
            (OrderChain::Blocks(links), Rule::Blocks) => {
                let signers = links.iter().map(|link| (link.block.view, link.block.proposer));
                self.check_signers(signers)?;
                let ids = check_blocks(links.iter().map(|link| &link.block), true)?;
                let links = links.iter().zip(&ids).map(|(link, id)| OrderLink {
                    view: link.block.view,
                    by: link.block.proposer,
                    id: id.0,
                    signature: &link.signature,
                });
                self.check_signatures(&links.collect::<Vec<_>>())?;
            }
            (OrderChain::Votes { blocks, votes }, Rule::Votes) => {
                self.check_signers(votes.iter().map(|vote| (vote.round, vote.voter)))?;
                let blocks = check_blocks(blocks.iter(), false)?;
                if votes.first().map(|vote| vote.block) != blocks.last().copied() {
                    return Err(OrderError::Voted);
                }
                let ids = check_votes(votes)?;
                let links = votes.iter().zip(&ids).map(|(vote, id)| OrderLink {
                    view: vote.round,
                    by: vote.voter,
                    id: *id,
                    signature: &vote.signature,
                });
                self.check_signatures(&links.collect::<Vec<_>>())?;
            }
            _ => return Err(OrderError::Form),
        }
        Ok(Position { height: block.height, index, block: block.id() })
    }

    /// Checks that each link is one of its view's leader, and that the last one completes f + 1 distinct signers.
    fn check_signers(&self, links: impl Iterator<Item = (View, ReplicaId)>) -> Result<(), OrderError> {
        let needed = quorum::weak(self.committee.f);
        let mut proposers = ReplicaSet::EMPTY;
        for (at, (view, proposer)) in links.enumerate() {
            // A proof has one form, so that nobody can make a client check more than it needs.
            if proposers.len() >= needed {
                return Err(OrderError::Superfluous(at));
            }
            if view == View::ZERO || proposer != self.committee.rotate(view.minus(1).0) {
                return Err(OrderError::Proposer(at));
            }
            proposers.insert(proposer);
        }
        let found = proposers.len();
        if found < needed { Err(OrderError::Proposers { found, needed }) } else { Ok(()) }
    }

    fn check_signatures(&self, links: &[OrderLink<'_>]) -> Result<(), OrderError> {
        let Committee { cluster, protocol, epoch, .. } = self.committee;
        let domain = Domain { cluster, protocol, epoch };
        let preimages: Vec<[u8; 32]> = links
            .iter()
            .map(|link| {
                // One slot in a view, whatever the height.
                let statement = Statement::new(self.kind, link.view, Height::ZERO, link.id);
                statement_preimage(&domain, &statement)
            })
            .collect();
        let claims = links.iter().zip(&preimages);
        let claims = claims.map(|(link, preimage)| (link.by, preimage, link.signature));
        let holds = self.keys.check(claims, &mut Ledger::default());
        match holds.iter().position(|holds| !holds) {
            Some(at) => Err(OrderError::Signature(at)),
            None if holds.len() == links.len() => Ok(()),
            None => Err(OrderError::Signature(holds.len())),
        }
    }
}

/// Checks that each header extends the one before it, in a later view if views `rise`. Returns their ids.
fn check_blocks<'a>(blocks: impl Iterator<Item = &'a Block>, rise: bool) -> Result<Vec<BlockId>, OrderError> {
    let mut ids: Vec<BlockId> = Vec::new();
    let mut before: Option<&Block> = None;
    for (at, block) in blocks.enumerate() {
        if let (Some(below), Some(parent)) = (before, ids.last()) {
            if block.parent != *parent {
                return Err(OrderError::Parent(at));
            }
            if rise && block.view <= below.view {
                return Err(OrderError::View(at));
            }
            if block.height != below.height.next() {
                return Err(OrderError::Height(at));
            }
        }
        ids.push(block.id());
        before = Some(block);
    }
    Ok(ids)
}

/// Checks that each vote extends the one before it, in a later round. Returns their ids.
fn check_votes(votes: &[SignedVote]) -> Result<Vec<Digest>, OrderError> {
    let mut ids: Vec<Digest> = Vec::new();
    let mut before = View::ZERO;
    for (at, vote) in votes.iter().enumerate() {
        if let Some(parent) = ids.last() {
            if (vote.parent_round, vote.parent) != (before, *parent) {
                return Err(OrderError::Parent(at));
            }
            if vote.round <= before {
                return Err(OrderError::View(at));
            }
        }
        ids.push(vote.id());
        before = vote.round;
    }
    Ok(ids)
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod votes_tests;
