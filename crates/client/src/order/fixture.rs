//! A committee whose keys a test has, and true proofs of it.

use quorate_crypto::{Scheme, SigningKey, statement_preimage};
use quorate_types::rng::Rng;
use quorate_types::{
    Block, BlockId, BundleDigest, ClusterId, Committee, Digest, Domain, Epoch, Height, Kind, Member,
    OrderChain, OrderProof, Payload, PayloadId, ProtocolId, ReplicaId, ReplicaSet, Signature, SignedBlock,
    Statement, View,
};

pub(crate) const PROPOSE: Kind = Kind::new("propose");

/// A committee with its keys.
pub(crate) struct Signers {
    pub(crate) committee: Committee,
    pub(crate) keys: Vec<SigningKey>,
}

impl Signers {
    pub(crate) fn new(cluster: ClusterId, n: u8, f: usize) -> Self {
        let key = |id| SigningKey::from_seed(Scheme::Ed25519, [id + 1; 32]);
        let keys: Vec<SigningKey> = (0..n).map(key).collect();
        let members = keys.iter().map(|key| Member { sign: key.public(), link: key.public() }).collect();
        let protocol = ProtocolId::new("apollo");
        Self { committee: Committee { cluster, protocol, epoch: Epoch(0), f, members }, keys }
    }

    pub(crate) fn domain(&self) -> Domain {
        let Committee { cluster, protocol, epoch, .. } = self.committee;
        Domain { cluster, protocol, epoch }
    }

    pub(crate) fn leader(&self, view: View) -> ReplicaId {
        self.committee.rotate(view.0 - 1)
    }

    /// Signs a statement in a domain.
    pub(crate) fn sign(&self, by: ReplicaId, domain: &Domain, statement: &Statement) -> Signature {
        self.keys[by.index()].sign(&statement_preimage(domain, statement))
    }

    /// Signs a block as its proposer.
    pub(crate) fn seal(&self, block: Block) -> SignedBlock {
        let statement = Statement::new(PROPOSE, block.view, Height::ZERO, block.id().0);
        let signature = self.sign(block.proposer, &self.domain(), &statement);
        SignedBlock { block, signature }
    }

    /// Returns a block of a view that extends another one.
    pub(crate) fn on(&self, before: &Block, view: View, payload: PayloadId) -> SignedBlock {
        self.seal(Block {
            parent: before.id(),
            height: before.height.next(),
            view,
            proposer: self.leader(view),
            time_ns: view.0,
            payload,
            extra: Digest([view.0 as u8; 32]),
        })
    }

    /// Returns a true proof for a bundle among others, on a chain with skipped views.
    pub(crate) fn proof(&self, rng: &mut Rng, bundle: BundleDigest) -> OrderProof {
        let mut bundles: Vec<BundleDigest> = (0..rng.between(0, 4)).map(|_| any_bundle(rng)).collect();
        bundles.insert(rng.index(bundles.len() + 1), bundle);
        let payload = Payload { bundles };
        let below = Block {
            parent: BlockId(any_digest(rng)),
            height: Height(rng.between(0, 1_000)),
            view: View(rng.between(1, 1_000)),
            proposer: ReplicaId(0),
            time_ns: 7,
            payload: PayloadId::ZERO,
            extra: Digest::ZERO,
        };
        let (mut links, mut proposers) = (Vec::<SignedBlock>::new(), ReplicaSet::EMPTY);
        while proposers.len() <= self.committee.f {
            let before = links.last().map_or(&below, |link| &link.block);
            let view = before.view.plus(rng.between(1, self.keys.len() as u64 + 1));
            let content = if links.is_empty() { payload.id() } else { PayloadId(any_digest(rng)) };
            let link = self.on(before, view, content);
            proposers.insert(link.block.proposer);
            links.push(link);
        }
        OrderProof { payload, chain: OrderChain::Blocks(links) }
    }
}

pub(crate) fn any_digest(rng: &mut Rng) -> Digest {
    Digest(std::array::from_fn(|_| rng.next_u64() as u8))
}

pub(crate) fn any_bundle(rng: &mut Rng) -> BundleDigest {
    BundleDigest(any_digest(rng))
}

/// Returns the links of a proof.
pub(crate) fn links(proof: &mut OrderProof) -> &mut Vec<SignedBlock> {
    match &mut proof.chain {
        OrderChain::Blocks(links) => links,
        OrderChain::Votes { .. } => panic!("a proof by votes"),
    }
}
