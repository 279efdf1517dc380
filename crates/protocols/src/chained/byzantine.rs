//! Attacks on chained protocols, for the exam's host `own`.
//!
//! | attack | target |
//! |---|---|
//! | equivocate | one proposal and one vote in a view: every second replica receives another block, and votes for both |
//! | old certificates | the vote rule: proposals on an older certificate than the attacker has, after failed views |
//! | low lists | the certificates that the next leader relies on: timeouts carry the lowest certificate that fits |
//! | two last votes | certificates from last votes: timeouts carry another last vote for each receiver |
//! | told to one | the lock that one replica alone has: one replica alone receives proposals and proofs |
//! | far views | entering by certificate alone: timeouts of views that no replica is in, with invented timeouts of others |

use super::message::{ChainedMessage, Content, VOTE, listed};
use super::rules::Rules;
use crate::attack_table::{attack_table, other};
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof, timeout_statement};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{AttackEntry, Retelling, Scene};
use quorate_consensus::{Certificate, Signed};
use quorate_types::{Block, BlockId, Height, ReplicaId, View};
use std::collections::BTreeMap;

/// The number of own blocks and of certificates that an attacker remembers.
const REMEMBERED: usize = 64;

/// Returns the attacks on the protocol with the rules `R`.
pub(super) const fn attacks<R: Rules>() -> &'static [AttackEntry] {
    attack_table! { Own<R>:
        "equivocate" = equivocate, "Proposes two blocks in each of its views and votes for both.";
        "old certificates" = propose_on_old_certificate, "Proposes on an old certificate after each failed view.";
        "low lists" = time_out_low, "Times out with the lowest certificate that fits.";
        "two last votes" = send_other_last_vote, "Sends each replica another last vote when it times out.";
        "told to one" = send_to_one, "Proposes to one replica in each of its views, and sends proofs to that one alone.";
        "far views" = time_out_far_ahead::<R>, "Times out in views far ahead, and invents the timeouts of others.";
    }
}

type Own<R> = Retelling<ChainedMessage<R>, Content, OwnProposals>;

/// An attacker's own proposals, and the certificates in them.
#[derive(Default)]
struct OwnProposals {
    blocks: BTreeMap<BlockId, Block>,
    /// Certificates with the height of their blocks.
    certificates: BTreeMap<View, (Certificate, Height)>,
}

impl OwnProposals {
    fn note(&mut self, block: &Block, proof: &ViewProof) {
        let below = Height(block.height.0.saturating_sub(1));
        self.certificates.insert(proof.qc.view(), (proof.qc.clone(), below));
        self.blocks.insert(block.id(), block.clone());
        while self.blocks.len() > REMEMBERED {
            self.blocks.pop_first();
        }
        while self.certificates.len() > REMEMBERED {
            self.certificates.pop_first();
        }
    }

    /// Returns the lowest certificate from this view on, with the height of its block.
    fn lowest_from(&self, view: View) -> Option<&(Certificate, Height)> {
        self.certificates.range(view..).next().map(|(_, lowest)| lowest)
    }
}

fn equivocate(own: &mut OwnProposals, _: &mut Scene<'_>, to: ReplicaId, content: Content) -> Vec<Content> {
    let is_odd = !to.0.is_multiple_of(2);
    match content {
        Content::Propose(block, proof) => {
            own.note(&block, &proof);
            vec![Content::Propose(if is_odd { other(&block) } else { block }, proof)]
        }
        Content::Vote(vote) => {
            let second = own.blocks.get(&vote.block).map(|block| other(block).id());
            let second = second.map(|block| Content::Vote(BlockVote { block, ..vote }));
            let mut votes = vec![Content::Vote(vote)];
            votes.extend(second);
            if is_odd {
                votes.reverse();
            }
            votes
        }
        content => vec![content],
    }
}

fn propose_on_old_certificate(
    own: &mut OwnProposals,
    _: &mut Scene<'_>,
    _: ReplicaId,
    content: Content,
) -> Vec<Content> {
    let Content::Propose(block, proof) = content else { return vec![content] };
    own.note(&block, &proof);
    // The intake refuses a certificate that is older than the timeouts list.
    let listed = proof.timeouts.as_ref().map(TimeoutCertificate::high);
    let old = listed.and_then(|listed| {
        // Every second proposal may be one that the intake refuses.
        let from = if block.view.0.is_multiple_of(2) { listed } else { View::ZERO };
        own.lowest_from(from)
    });
    let Some((qc, below)) = old else { return vec![Content::Propose(block, proof)] };
    let block = Block {
        parent: qc.block(),
        height: below.next(),
        extra: bind_certificate(qc.view(), qc.block()),
        ..block
    };
    vec![Content::Propose(block, ViewProof { qc: qc.clone(), timeouts: proof.timeouts })]
}

fn time_out_low(own: &mut OwnProposals, _: &mut Scene<'_>, _: ReplicaId, content: Content) -> Vec<Content> {
    match content {
        Content::Propose(block, proof) => {
            own.note(&block, &proof);
            vec![Content::Propose(block, proof)]
        }
        Content::Timeout(view, mut proof, last_vote) => {
            // The proof must still let into the view.
            let listed = proof.timeouts.as_ref().map(TimeoutCertificate::high);
            if let Some((qc, _)) = listed.and_then(|listed| own.lowest_from(listed)) {
                proof.qc = qc.clone();
            }
            vec![Content::Timeout(view, proof, last_vote)]
        }
        content => vec![content],
    }
}

fn send_other_last_vote(
    own: &mut OwnProposals,
    scene: &mut Scene<'_>,
    to: ReplicaId,
    content: Content,
) -> Vec<Content> {
    match content {
        Content::Propose(block, proof) => {
            own.note(&block, &proof);
            // Two blocks are needed for two votes.
            let is_odd = !to.0.is_multiple_of(2);
            vec![Content::Propose(if is_odd { other(&block) } else { block }, proof)]
        }
        Content::Timeout(view, proof, Some(vote)) if !to.0.is_multiple_of(2) => {
            let second = own.blocks.get(&vote.body.block).map(|block| other(block).id());
            let vote = second.map_or(vote, |block| {
                let body = BlockVote { block, ..vote.body };
                Signed { body, by: scene.me, signature: (scene.sign)(&body.statement(VOTE)) }
            });
            vec![Content::Timeout(view, proof, Some(vote))]
        }
        content => vec![content],
    }
}

fn send_to_one(_: &mut OwnProposals, scene: &mut Scene<'_>, to: ReplicaId, content: Content) -> Vec<Content> {
    let view = match &content {
        Content::Propose(block, _) => block.view,
        Content::Advance(proof) => proof.qc.view().next(),
        Content::Vote(_) | Content::Timeout(..) => return vec![content],
    };
    if scene.committee.rotate(view.0 / 7) == to { vec![content] } else { Vec::new() }
}

fn time_out_far_ahead<R: Rules>(
    _: &mut OwnProposals,
    scene: &mut Scene<'_>,
    _: ReplicaId,
    content: Content,
) -> Vec<Content> {
    let Content::Timeout(view, proof, last_vote) = content else { return vec![content] };
    let far = View(view.0.saturating_add(1 << scene.rng.between(1, 60)));
    let high = listed::<R>(proof.qc.view());
    let signature = (scene.sign)(&timeout_statement(R::TIMEOUT, far, high));
    // The attacker's own id in each entry, or the ids of all replicas.
    let all: Vec<ReplicaId> = scene.committee.ids().collect();
    let mine = scene.rng.chance(500_000);
    let listed = all.iter().map(|by| Signed { body: high, by: if mine { scene.me } else { *by }, signature });
    let timeouts = Some(TimeoutCertificate { view: far, listed: listed.collect() });
    let invented = ViewProof { qc: proof.qc.clone(), timeouts };
    vec![
        Content::Advance(invented.clone()),
        Content::Timeout(far.next(), invented, last_vote),
        Content::Timeout(far, proof.clone(), last_vote),
        Content::Timeout(view, proof, last_vote),
    ]
}
