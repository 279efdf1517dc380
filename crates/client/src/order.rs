//! Verification of proofs of order.
//!
//! One replica suffices as a witness: the proof has the signatures of f + 1 distinct proposers, so one of them is honest. It has
//! checked everything below its own block. A proof shows that a block with the bundle is committed, and its place. The proof
//! shows nothing about results, and not that no earlier block has the same bundle.
//!
//! The rules here are those of the protocols (`apollo` §10). A client knows a protocol by its name alone; a protocol without a
//! rule has no proofs.

use quorate_crypto::{CommitteeKeys, Scheme, statement_preimage};
use quorate_types::{
    Block, BlockId, BundleDigest, Committee, Domain, Height, Kind, Ledger, OrderChain, OrderProof,
    ProtocolId, ReplicaId, ReplicaSet, SignedBlock, Statement, View, quorum,
};

/// The protocols whose committed blocks have signed headers of f + 1 distinct proposers on their chain, each with the kind of its
/// proposals. Replica `(view - 1) mod n` proposes in a view.
const RULES: [(ProtocolId, Kind); 1] = [(ProtocolId::new("apollo"), Kind::new("propose"))];

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
    /// The kind of a signed proposal.
    kind: Kind,
}

impl OrderVerifier {
    /// Prepares the keys of a committee.
    ///
    /// # Errors
    /// [`OrderError::NoProofs`] if the protocol has no proofs, [`OrderError::Key`] if a key is none.
    pub fn new(scheme: Scheme, committee: Committee) -> Result<Self, OrderError> {
        let rule = RULES.iter().find(|(protocol, _)| *protocol == committee.protocol);
        let (_, kind) = *rule.ok_or(OrderError::NoProofs)?;
        let keys = CommitteeKeys::new(scheme, &committee).map_err(|bad| OrderError::Key(bad.replica))?;
        Ok(Self { committee, keys, kind })
    }

    /// Checks that a proof shows a committed block with this bundle, and returns the bundle's place.
    ///
    /// # Errors
    /// The first fault of the proof.
    pub fn verify(&self, bundle: BundleDigest, proof: &OrderProof) -> Result<Position, OrderError> {
        let OrderChain::Blocks(links) = &proof.chain;
        let Some(SignedBlock { block, .. }) = links.first() else { return Err(OrderError::NoLinks) };
        if proof.payload.id() != block.payload {
            return Err(OrderError::Payload);
        }
        let index = proof.payload.bundles.iter().position(|other| *other == bundle);
        let index = index.and_then(|index| u32::try_from(index).ok()).ok_or(OrderError::Bundle)?;
        self.check_proposers(links)?;
        let ids = check_links(links)?;
        self.check_signatures(links, &ids)?;
        let position = Position { height: block.height, index, block: block.id() };
        Ok(position)
    }

    /// Checks that each link is one of its view's leader, and that the last one completes f + 1 distinct proposers.
    fn check_proposers(&self, links: &[SignedBlock]) -> Result<(), OrderError> {
        let needed = quorum::weak(self.committee.f);
        let mut proposers = ReplicaSet::EMPTY;
        for (at, link) in links.iter().enumerate() {
            // A proof has one form, so that nobody can make a client check more than it needs.
            if proposers.len() >= needed {
                return Err(OrderError::Superfluous(at));
            }
            let Block { view, proposer, .. } = link.block;
            if view == View::ZERO || proposer != self.committee.rotate(view.minus(1).0) {
                return Err(OrderError::Proposer(at));
            }
            proposers.insert(proposer);
        }
        let found = proposers.len();
        if found < needed { Err(OrderError::Proposers { found, needed }) } else { Ok(()) }
    }

    fn check_signatures(&self, links: &[SignedBlock], ids: &[BlockId]) -> Result<(), OrderError> {
        let Committee { cluster, protocol, epoch, .. } = self.committee;
        let domain = Domain { cluster, protocol, epoch };
        let preimages: Vec<[u8; 32]> = links
            .iter()
            .zip(ids)
            .map(|(link, id)| {
                // One slot in a view, whatever the height.
                let statement = Statement::new(self.kind, link.block.view, Height::ZERO, id.0);
                statement_preimage(&domain, &statement)
            })
            .collect();
        let claims = links.iter().zip(&preimages);
        let claims = claims.map(|(link, preimage)| (link.block.proposer, preimage, &link.signature));
        let holds = self.keys.check(claims, &mut Ledger::default());
        match holds.iter().position(|holds| !holds) {
            Some(at) => Err(OrderError::Signature(at)),
            None if holds.len() == links.len() => Ok(()),
            None => Err(OrderError::Signature(holds.len())),
        }
    }
}

/// Checks that each link extends the one before it, and returns their ids.
fn check_links(links: &[SignedBlock]) -> Result<Vec<BlockId>, OrderError> {
    let ids: Vec<BlockId> = links.iter().map(|link| link.block.id()).collect();
    for (at, (pair, parent)) in (1..).zip(links.windows(2).zip(&ids)) {
        let [SignedBlock { block: before, .. }, SignedBlock { block, .. }] = pair else { continue };
        if block.parent != *parent {
            return Err(OrderError::Parent(at));
        }
        if block.view <= before.view {
            return Err(OrderError::View(at));
        }
        if block.height != before.height.next() {
            return Err(OrderError::Height(at));
        }
    }
    Ok(ids)
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
