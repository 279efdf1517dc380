//! Proofs by votes (`artemis` §10): true ones are accepted, forged ones are not.

use super::fixture::{Signers, any_bundle, any_digest};
use super::*;
use quorate_types::codec::Wire;
use quorate_types::mutate::mutate;
use quorate_types::rng::Rng;
use quorate_types::{ClusterId, Payload, PayloadId};
use std::collections::BTreeSet;

/// Forged proofs of one run.
const FORGERIES: usize = 100_000;
const VOTE: Kind = Kind::new("vote");

fn signers(n: u8, f: usize) -> Signers {
    let mut signers = Signers::new(ClusterId(Digest([3; 32])), n, f);
    signers.committee.protocol = ProtocolId::new("artemis");
    signers
}

fn verifier(signers: &Signers) -> OrderVerifier {
    OrderVerifier::new(Scheme::Ed25519, signers.committee.clone()).unwrap()
}

fn seal(signers: &Signers, mut vote: SignedVote) -> SignedVote {
    let statement = Statement::new(VOTE, vote.round, Height::ZERO, vote.id());
    vote.signature = signers.sign(vote.voter, &signers.domain(), &statement);
    vote
}

/// Returns a true proof for a bundle: some headers, and votes with skipped rounds between.
fn true_proof(signers: &Signers, rng: &mut Rng, bundle: BundleDigest) -> OrderProof {
    let mut bundles: Vec<BundleDigest> = (0..rng.between(0, 3)).map(|_| any_bundle(rng)).collect();
    bundles.insert(rng.index(bundles.len() + 1), bundle);
    let payload = Payload { bundles };
    let mut blocks: Vec<Block> = Vec::new();
    for at in 0..=rng.between(0, 3) {
        let before = blocks.last().map(|block| (block.id(), block.height));
        let (parent, height) = before.unwrap_or((BlockId(any_digest(rng)), Height(rng.between(0, 99))));
        let payload = if at == 0 { payload.id() } else { PayloadId(any_digest(rng)) };
        let (view, proposer, extra) = (View(1), ReplicaId(0), Digest::ZERO);
        blocks.push(Block { parent, height: height.next(), view, proposer, time_ns: at, payload, extra });
    }
    let (mut votes, mut voters) = (Vec::<SignedVote>::new(), BTreeSet::new());
    while voters.len() <= signers.committee.f {
        let before = votes.last().map(|vote| (vote.round, vote.id()));
        let (parent_round, parent) = before.unwrap_or((View(rng.between(1, 99)), any_digest(rng)));
        let round = parent_round.plus(rng.between(1, signers.keys.len() as u64 + 1));
        let block = if votes.is_empty() { blocks.last().unwrap().id() } else { BlockId(any_digest(rng)) };
        let (voter, skips, view) = (signers.leader(round), any_digest(rng), View(1));
        let (content, signature) = (vec![0; rng.index(3)], Signature([0; 64]));
        let vote = SignedVote { round, voter, parent_round, parent, skips, view, block, content, signature };
        voters.insert(voter);
        votes.push(seal(signers, vote));
    }
    OrderProof { payload, chain: OrderChain::Votes { blocks, votes } }
}

fn parts(proof: &mut OrderProof) -> (&mut Vec<Block>, &mut Vec<SignedVote>) {
    match &mut proof.chain {
        OrderChain::Votes { blocks, votes } => (blocks, votes),
        OrderChain::Blocks(_) => panic!("a proof by headers"),
    }
}

#[test]
fn true_votes_show_the_place_of_the_bundle() {
    let mut rng = Rng::new(1);
    for (n, f) in [(3, 1), (5, 2), (7, 3)] {
        let signers = signers(n, f);
        for _ in 0..50 {
            let bundle = any_bundle(&mut rng);
            let proof = true_proof(&signers, &mut rng, bundle);
            let position = verifier(&signers).verify(bundle, &proof).unwrap();
            assert_eq!(proof.payload.bundles[position.index as usize], bundle);
            let block = proof.chain.block().unwrap();
            assert_eq!((position.height, position.block), (block.height, block.id()));
        }
    }
}

#[test]
fn proof_of_another_protocol_is_refused() {
    let (mut rng, signers) = (Rng::new(2), signers(3, 1));
    let bundle = any_bundle(&mut rng);
    let headers = Signers::new(ClusterId(Digest([3; 32])), 3, 1).proof(&mut rng, bundle);
    assert_eq!(verifier(&signers).verify(bundle, &headers), Err(OrderError::Form));
    let mut other = signers.committee.clone();
    other.protocol = ProtocolId::new("apollo");
    let apollo = OrderVerifier::new(Scheme::Ed25519, other).unwrap();
    let votes = true_proof(&signers, &mut rng, bundle);
    assert_eq!(apollo.verify(bundle, &votes), Err(OrderError::Form));
}

/// Changes a proof in one random way. The first f replicas lie and sign anything.
fn forge(signers: &Signers, rng: &mut Rng, proof: &mut OrderProof, other: &OrderProof) -> Option<()> {
    let mut other = other.clone();
    let (other_blocks, other_votes) = parts(&mut other);
    let (blocks, votes) = parts(proof);
    let (a, b) = (rng.index(votes.len()), rng.index(votes.len()));
    match rng.below(9) {
        0 => drop(votes.remove(a)),
        1 => votes.insert(a, votes[b].clone()),
        2 => votes.swap(a, b),
        3 => votes[a] = other_votes[rng.index(other_votes.len())].clone(),
        4 => drop(blocks.remove(rng.index(blocks.len()))),
        5 => blocks.push(other_blocks[0].clone()),
        6 => {
            let at = rng.index(blocks.len());
            blocks[at].height = blocks[at].height.next();
        }
        7 => {
            let vote = &mut votes[a];
            match rng.below(7) {
                0 => vote.round = vote.round.next(),
                1 => vote.voter = signers.committee.rotate(rng.below(9)),
                2 => vote.parent_round = vote.parent_round.next(),
                3 => vote.parent = any_digest(rng),
                4 => vote.block = BlockId(any_digest(rng)),
                5 => vote.content.push(1),
                _ => vote.view = vote.view.next(),
            }
            // A vote of an honest replica keeps its signature, which does not fit any more.
            if vote.voter.index() < signers.committee.f && a > 0 {
                votes[a] = seal(signers, votes[a].clone());
                // A lying last voter may say anything on the same parent.
                let last = a + 1 == votes.len();
                let vote = &votes[a];
                let fits = vote.voter == signers.committee.rotate(vote.round.minus(1).0)
                    && (vote.parent_round, vote.parent) == (votes[a - 1].round, votes[a - 1].id());
                return (!(last && fits)).then_some(());
            }
        }
        _ => {
            let mut bytes = proof.to_bytes();
            mutate(rng, &mut bytes, &other.to_bytes());
            *proof = OrderProof::from_bytes(&bytes).ok()?;
        }
    }
    Some(())
}

#[test]
fn forged_votes_are_refused() {
    let mut errors = BTreeSet::new();
    let mut tried = 0;
    for (seed, (n, f)) in (0..).zip([(3, 1), (5, 2), (7, 3)]) {
        let (signers, mut rng) = (signers(n, f), Rng::new(seed));
        let verifier = verifier(&signers);
        let pool: Vec<(BundleDigest, OrderProof)> = (0..200)
            .map(|_| {
                let bundle = any_bundle(&mut rng);
                (bundle, true_proof(&signers, &mut rng, bundle))
            })
            .collect();
        let end = tried + FORGERIES / 3 + 1;
        while tried < end {
            let (bundle, good) = &pool[rng.index(pool.len())];
            let (others, other) = &pool[rng.index(pool.len())];
            let mut proof = good.clone();
            let is_forged = others != bundle && forge(&signers, &mut rng, &mut proof, other).is_some();
            if !is_forged || proof == *good {
                continue;
            }
            tried += 1;
            match verifier.verify(*bundle, &proof) {
                Ok(position) => panic!("seed {seed}, forgery {tried}: {position:?} by {proof:?} of {good:?}"),
                Err(why) => {
                    let why = format!("{why:?}");
                    errors.insert(why.split(['(', ' ']).next().unwrap().to_owned());
                }
            }
        }
    }
    assert!(tried >= FORGERIES);
    for needed in [
        "Bundle",
        "Height",
        "NoLinks",
        "Parent",
        "Payload",
        "Proposer",
        "Proposers",
        "Signature",
        "Superfluous",
        "Voted",
    ] {
        assert!(errors.contains(needed), "{needed} is not among {errors:?}");
    }
}
