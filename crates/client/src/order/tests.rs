use super::fixture::{PROPOSE, Signers, any_bundle, any_digest, links};
use super::*;
use quorate_types::codec::Wire;
use quorate_types::mutate::mutate;
use quorate_types::rng::Rng;
use quorate_types::{ClusterId, Epoch, PayloadId, SignedBlock};
use std::collections::BTreeSet;

/// Forged proofs of one run.
const FORGERIES: usize = 100_000;

fn signers(n: u8, f: usize) -> Signers {
    Signers::new(ClusterId(Digest([3; 32])), n, f)
}

fn verifier(signers: &Signers) -> OrderVerifier {
    OrderVerifier::new(Scheme::Ed25519, signers.committee.clone()).unwrap()
}

#[test]
fn true_proof_shows_the_place_of_the_bundle() {
    let mut rng = Rng::new(1);
    for (n, f) in [(1, 0), (3, 1), (5, 2), (7, 3), (9, 2)] {
        let signers = signers(n, f);
        let verifier = verifier(&signers);
        for _ in 0..50 {
            let bundle = any_bundle(&mut rng);
            let proof = signers.proof(&mut rng, bundle);
            let block = proof.chain.block().unwrap();
            let position = verifier.verify(bundle, &proof).unwrap();
            assert_eq!(proof.payload.bundles[position.index as usize], bundle);
            assert_eq!((position.height, position.block), (block.height, block.id()));
            let decoded = OrderProof::from_bytes(&proof.to_bytes()).unwrap();
            assert_eq!(verifier.verify(bundle, &decoded), Ok(position));
        }
    }
}

#[test]
fn verifier_needs_a_protocol_with_proofs_and_valid_keys() {
    let new = |committee: Committee| OrderVerifier::new(Scheme::Ed25519, committee).map(|_| ()).unwrap_err();
    let mut committee = signers(3, 1).committee;
    committee.protocol = ProtocolId::new("pbft");
    assert_eq!(new(committee.clone()), OrderError::NoProofs);
    assert_eq!(OrderError::NoProofs.to_string(), "this protocol has no proofs of order");
    committee.protocol = ProtocolId::new("apollo");
    committee.members[2].sign = quorate_types::PublicKey([0xff; 32]);
    assert_eq!(new(committee), OrderError::Key(ReplicaId(2)));
}

/// Each fault has its own error.
#[test]
fn error_names_the_fault() {
    let signers = signers(5, 2);
    let verifier = verifier(&signers);
    let bundle = BundleDigest(Digest([9; 32]));
    let payload = quorate_types::Payload { bundles: vec![bundle] };
    let root = signers.proof(&mut Rng::new(2), bundle).chain.block().unwrap().clone();
    let other = PayloadId(Digest([5; 32]));
    // Leaders of the views 1001 to 1004 are 0 to 3.
    let one = signers.on(&root, View(1_001), payload.id());
    let two = signers.on(&one.block, View(1_002), other);
    let three = signers.on(&two.block, View(1_003), other);
    let good = [one.clone(), two.clone(), three.clone()];
    let on_other = signers.on(&one.block, View(1_003), other);
    let check = |links: &[SignedBlock], bundle: BundleDigest| {
        let chain = OrderChain::Blocks(links.to_vec());
        verifier.verify(bundle, &OrderProof { payload: payload.clone(), chain }).map(|place| place.height)
    };
    assert_eq!(check(&good, bundle), Ok(one.block.height));
    assert_eq!(check(&[], bundle), Err(OrderError::NoLinks));
    assert_eq!(check(&good[1..], bundle), Err(OrderError::Payload));
    assert_eq!(check(&good, BundleDigest::ZERO), Err(OrderError::Bundle));
    assert_eq!(check(&good[..2], bundle), Err(OrderError::Proposers { found: 2, needed: 3 }));
    let four = signers.on(&three.block, View(1_004), other);
    let longer = [&good[..], &[four]].concat();
    assert_eq!(check(&longer, bundle), Err(OrderError::Superfluous(3)));
    assert_eq!(check(&[one.clone(), two.clone(), on_other], bundle), Err(OrderError::Parent(2)));
    let seal = |change: &dyn Fn(&mut Block)| {
        let mut block = two.block.clone();
        change(&mut block);
        signers.seal(block)
    };
    let with_second = |second: SignedBlock| {
        let third = signers.on(&second.block, View(1_003), other);
        check(&[one.clone(), second, third], bundle)
    };
    let below = seal(&|block| block.view = View(997));
    assert_eq!(with_second(below), Err(OrderError::View(1)));
    assert_eq!(with_second(seal(&|block| block.height = Height(7))), Err(OrderError::Height(1)));
    assert_eq!(with_second(seal(&|block| block.proposer = ReplicaId(4))), Err(OrderError::Proposer(1)));
    assert_eq!(with_second(seal(&|block| block.view = View::ZERO)), Err(OrderError::Proposer(1)));
    let mut forged = good.clone();
    forged[1].signature = three.signature;
    assert_eq!(check(&forged, bundle), Err(OrderError::Signature(1)));
}

/// A forger: it has true proofs, and the keys of f replicas.
struct Forger {
    rng: Rng,
    signers: Signers,
    /// Keys that are not in the committee.
    strangers: Signers,
}

impl Forger {
    fn new(seed: u64, n: u8, f: usize) -> Self {
        let mut strangers = signers(n, f);
        strangers.keys.rotate_left(1);
        Self { rng: Rng::new(seed), signers: signers(n, f), strangers }
    }

    /// Changes a proof of one bundle into another proof for the same bundle, or into no proof (`None`). `other` is a true
    /// proof of another bundle.
    fn forge(&mut self, proof: &mut OrderProof, bundle: BundleDigest, other: &OrderProof) -> Option<()> {
        match self.rng.below(12) {
            0 => self.rearrange(proof, other),
            1 => self.change_field(proof),
            2 | 3 => self.sign_wrongly(proof),
            4 => self.change_payload(proof, bundle),
            5 => self.collude(proof, bundle),
            6 => self.lengthen(proof),
            7 => {
                // The list of one block with the links of another one.
                proof.chain = other.chain.clone();
            }
            8 => {
                let at = self.rng.index(links(proof).len());
                let bit = self.rng.below(8);
                let byte = self.rng.index(64);
                links(proof)[at].signature.0[byte] ^= 1 << bit;
            }
            _ => {
                let mut bytes = proof.to_bytes();
                mutate(&mut self.rng, &mut bytes, &other.to_bytes());
                *proof = OrderProof::from_bytes(&bytes).ok()?;
            }
        }
        Some(())
    }

    /// Drops, repeats, swaps or replaces links, or cuts the proof off.
    fn rearrange(&mut self, proof: &mut OrderProof, other: &OrderProof) {
        let mut other = other.clone();
        let others = links(&mut other);
        let (a, b) = (self.rng.index(links(proof).len()), self.rng.index(links(proof).len()));
        let links = links(proof);
        match self.rng.below(5) {
            0 => drop(links.remove(a)),
            1 => links.insert(a, links[b].clone()),
            2 => links.swap(a, b),
            3 => links[a] = others[self.rng.index(others.len())].clone(),
            _ => links.truncate(a),
        }
    }

    /// Changes a field of a header. Its signature stays, or is made anew by its proposer, and the following links stay.
    fn change_field(&mut self, proof: &mut OrderProof) {
        let (rng, n) = (&mut self.rng, self.signers.keys.len() as u64);
        let at = rng.index(links(proof).len());
        let is_last = at + 1 == links(proof).len();
        let link = &mut links(proof)[at];
        let by = rng.between(1, 9);
        match rng.below(7) {
            0 => link.block.parent = BlockId(any_digest(rng)),
            1 => link.block.height = Height(link.block.height.0.wrapping_add(by)),
            2 if by < 5 => link.block.view = View(link.block.view.0.wrapping_add(by)),
            // The same leader has an earlier view.
            2 => link.block.view = link.block.view.minus(n * (by - 4)),
            3 => link.block.proposer = ReplicaId(link.block.proposer.0.wrapping_add(by as u16)),
            4 => link.block.time_ns ^= by,
            5 => link.block.payload = PayloadId(any_digest(rng)),
            _ => link.block.extra = any_digest(rng),
        }
        // The last header, signed anew, would be another true proof: its proposer has signed another block.
        let is_member = link.block.proposer.index() < self.signers.keys.len();
        if !is_last && is_member && rng.chance(500_000) {
            *link = self.signers.seal(link.block.clone());
        }
    }

    /// Signs one link with another key, in another domain, or another statement about it.
    fn sign_wrongly(&mut self, proof: &mut OrderProof) {
        let at = self.rng.index(links(proof).len());
        let link = &mut links(proof)[at];
        let Block { view, height, proposer, .. } = link.block;
        let subject = link.block.id().0;
        let mut domain = self.signers.domain();
        let mut statement = Statement::new(PROPOSE, view, Height::ZERO, subject);
        let mut by = &self.signers;
        match self.rng.below(9) {
            0 => by = &self.strangers,
            1 => domain.cluster = ClusterId(any_digest(&mut self.rng)),
            2 => domain.epoch = Epoch(1),
            3 => domain.protocol = ProtocolId::new("artemis"),
            4 => statement.kind = Kind::new("blame"),
            5 => statement.view = view.next(),
            6 => statement.height = height.next(),
            7 => statement.scope = any_digest(&mut self.rng),
            _ => statement.subject = any_digest(&mut self.rng),
        }
        link.signature = by.sign(proposer, &domain, &statement);
    }

    /// Changes the list of bundles, whose digest the block has.
    fn change_payload(&mut self, proof: &mut OrderProof, bundle: BundleDigest) {
        let bundles = &mut proof.payload.bundles;
        let at = self.rng.index(bundles.len());
        match self.rng.below(4) {
            0 => bundles.insert(at, any_bundle(&mut self.rng)),
            1 => drop(bundles.remove(at)),
            2 => bundles[at] = any_bundle(&mut self.rng),
            _ => bundles.push(bundle),
        }
    }

    /// Replaces the block by one of another place, as if its proposer and those after it lied. Only f of them do: the
    /// other signatures are old ones, or none.
    fn collude(&mut self, proof: &mut OrderProof, bundle: BundleDigest) {
        proof.payload.bundles = vec![any_bundle(&mut self.rng), bundle];
        let mut liars = ReplicaSet::EMPTY;
        while liars.len() < self.signers.committee.f {
            liars.insert(ReplicaId(self.rng.index(self.signers.keys.len()) as u16));
        }
        let payload = proof.payload.id();
        let mut parent = None;
        for link in links(proof) {
            let mut block = link.block.clone();
            block.parent = parent.unwrap_or(block.parent);
            block.payload = if parent.is_none() { payload } else { block.payload };
            parent = Some(block.id());
            *link = match liars.contains(block.proposer) {
                true => self.signers.seal(block),
                false => SignedBlock { block, signature: link.signature },
            };
        }
    }

    /// Adds true links above the last one.
    fn lengthen(&mut self, proof: &mut OrderProof) {
        for _ in 0..self.rng.between(1, 3) {
            let last = links(proof).last().unwrap().block.clone();
            let view = last.view.plus(self.rng.between(1, 6));
            let link = self.signers.on(&last, view, PayloadId(any_digest(&mut self.rng)));
            links(proof).push(link);
        }
    }
}

/// Forged, cut off, rearranged and wrongly signed proofs: each of them differs from the true one, and none is accepted.
#[test]
fn forged_proofs_are_refused() {
    let mut errors = BTreeSet::new();
    let mut tried = 0;
    for (seed, (n, f)) in (0..).zip([(3, 1), (5, 2), (7, 3)]) {
        let mut forger = Forger::new(seed, n, f);
        let verifier = verifier(&forger.signers);
        let pool: Vec<(BundleDigest, OrderProof)> = (0..200)
            .map(|_| {
                let bundle = any_bundle(&mut forger.rng);
                (bundle, forger.signers.proof(&mut forger.rng, bundle))
            })
            .collect();
        let end = tried + FORGERIES / 3 + 1;
        while tried < end {
            let (bundle, good) = &pool[forger.rng.index(pool.len())];
            let (others, other) = &pool[forger.rng.index(pool.len())];
            let mut proof = good.clone();
            let is_proof = others != bundle && forger.forge(&mut proof, *bundle, other).is_some();
            if !is_proof || proof == *good {
                continue;
            }
            tried += 1;
            match verifier.verify(*bundle, &proof) {
                Ok(position) => panic!("seed {seed}, forgery {tried}: {position:?} by {proof:?}"),
                Err(why) => {
                    let why = format!("{why:?}");
                    errors.insert(why.split(['(', ' ']).next().unwrap().to_owned());
                }
            }
        }
    }
    assert!(tried >= FORGERIES);
    let expected = [
        "Bundle",
        "Height",
        "NoLinks",
        "Parent",
        "Payload",
        "Proposer",
        "Proposers",
        "Signature",
        "Superfluous",
        "View",
    ];
    assert_eq!(errors.iter().map(String::as_str).collect::<Vec<_>>(), expected, "every check is needed");
}

/// A signature of zeros, as an unsigned link would have.
#[test]
fn unsigned_link_is_refused() {
    let signers = signers(3, 1);
    let bundle = BundleDigest(Digest([9; 32]));
    let mut proof = signers.proof(&mut Rng::new(5), bundle);
    links(&mut proof)[0].signature = Signature([0; 64]);
    assert_eq!(verifier(&signers).verify(bundle, &proof), Err(OrderError::Signature(0)));
}
