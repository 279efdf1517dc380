//! Attacks that only somebody who knows chained protocols would think of: what the exam's `own` host does with them.
//!
//! | attack | against |
//! |---|---|
//! | equivocate | one proposal and one vote in a view: two blocks, told to every second replica, and votes for both |
//! | old certificates | the vote rule: proposes on an older certificate than it has, wherever the view was given up |
//! | low lists | what the next leader counts on: gives views up with the lowest certificate that fits |
//! | two last votes | certificates from votes inside of what gives a view up: another vote for each receiver |
//! | told to one | the lock that one replica alone has: proposals, and what lets into views, for one replica |
//! | far views | entering by certificate only: gives up views that nobody can be in, and makes up who agrees |

use super::certificate::Certificate;
use super::chain::bind_certificate;
use super::timeouts::{TimeoutCertificate, ViewProof, timeout_statement};
use super::votes::BlockVote;
use super::words::{Said, Words};
use crate::attack::{AttackEntry, Retelling, Scene};
use crate::message::Signed;
use quorate_types::{Block, BlockId, Height, ReplicaId, View};
use std::collections::BTreeMap;

/// Own blocks and certificates that an attacker remembers.
const REMEMBERED: usize = 64;

/// The attacks on a chained protocol with these messages.
#[must_use]
pub const fn attacks<M: Words>() -> &'static [AttackEntry] {
    &[
        AttackEntry {
            name: "equivocate",
            about: "Proposes two blocks in each of its views and votes for both.",
            make: || Box::new(Own::<M>::new(equivocate)),
        },
        AttackEntry {
            name: "old certificates",
            about: "Proposes on an old certificate after each view that was given up.",
            make: || Box::new(Own::<M>::new(dig_up)),
        },
        AttackEntry {
            name: "low lists",
            about: "Gives views up as if it knew hardly any certificate.",
            make: || Box::new(Own::<M>::new(list_low)),
        },
        AttackEntry {
            name: "two last votes",
            about: "Shows each replica another last vote when it gives a view up.",
            make: || Box::new(Own::<M>::new(vote_again)),
        },
        AttackEntry {
            name: "told to one",
            about: "Proposes to one replica in each of its views, and shows certificates to that one alone.",
            make: || Box::new(Own::<M>::new(tell_one)),
        },
        AttackEntry {
            name: "far views",
            about: "Gives up views far ahead, and invents who has done so too.",
            make: || Box::new(Own::<M>::new(leap::<M>)),
        },
    ]
}

type Own<M> = Retelling<M, Said, Known>;

/// What an attacker remembers.
#[derive(Default)]
struct Known {
    /// Its own proposals, by their ids.
    proposed: BTreeMap<BlockId, Block>,
    /// Certificates on which it has proposed, with the height of their blocks.
    certificates: BTreeMap<View, (Certificate, Height)>,
}

impl Known {
    fn note(&mut self, block: &Block, proof: &ViewProof) {
        let below = Height(block.height.0.saturating_sub(1));
        self.certificates.insert(proof.qc.view(), (proof.qc.clone(), below));
        self.proposed.insert(block.id(), block.clone());
        while self.proposed.len() > REMEMBERED {
            self.proposed.pop_first();
        }
        while self.certificates.len() > REMEMBERED {
            self.certificates.pop_first();
        }
    }

    /// The lowest certificate from this view on, with the height of its block.
    fn lowest_from(&self, view: View) -> Option<&(Certificate, Height)> {
        self.certificates.range(view..).next().map(|(_, known)| known)
    }
}

/// The same payload a nanosecond later: another block, and a valid one.
fn other(block: &Block) -> Block {
    Block { time_ns: block.time_ns.saturating_add(1), ..block.clone() }
}

fn equivocate(known: &mut Known, _: &mut Scene<'_>, to: ReplicaId, said: Said) -> Vec<Said> {
    let is_odd = !to.0.is_multiple_of(2);
    match said {
        Said::Propose(block, proof) => {
            known.note(&block, &proof);
            vec![Said::Propose(if is_odd { other(&block) } else { block }, proof)]
        }
        Said::Vote(vote) => {
            let second = known.proposed.get(&vote.block).map(|block| other(block).id());
            let second = second.map(|block| Said::Vote(BlockVote { block, ..vote }));
            let mut votes = vec![Said::Vote(vote)];
            votes.extend(second);
            if is_odd {
                votes.reverse();
            }
            votes
        }
        said => vec![said],
    }
}

fn dig_up(known: &mut Known, _: &mut Scene<'_>, _: ReplicaId, said: Said) -> Vec<Said> {
    let Said::Propose(block, proof) = said else { return vec![said] };
    known.note(&block, &proof);
    // What is older than the lists of those who gave the view up is refused at the door.
    let listed = proof.timeouts.as_ref().map(TimeoutCertificate::high);
    let old = listed.and_then(|listed| {
        // Every second time also what is refused.
        let from = if block.view.0.is_multiple_of(2) { listed } else { View::ZERO };
        known.lowest_from(from)
    });
    let Some((qc, below)) = old else { return vec![Said::Propose(block, proof)] };
    let block = Block {
        parent: qc.block(),
        height: below.next(),
        extra: bind_certificate(qc.view(), qc.block()),
        ..block
    };
    vec![Said::Propose(block, ViewProof { qc: qc.clone(), timeouts: proof.timeouts })]
}

fn list_low(known: &mut Known, _: &mut Scene<'_>, _: ReplicaId, said: Said) -> Vec<Said> {
    match said {
        Said::Propose(block, proof) => {
            known.note(&block, &proof);
            vec![Said::Propose(block, proof)]
        }
        Said::GiveUp(view, mut proof, last_vote) => {
            // With a lower one it must still show what let it into its view.
            let listed = proof.timeouts.as_ref().map(TimeoutCertificate::high);
            if let Some((qc, _)) = listed.and_then(|listed| known.lowest_from(listed)) {
                proof.qc = qc.clone();
            }
            vec![Said::GiveUp(view, proof, last_vote)]
        }
        said => vec![said],
    }
}

fn vote_again(known: &mut Known, scene: &mut Scene<'_>, to: ReplicaId, said: Said) -> Vec<Said> {
    match said {
        Said::Propose(block, proof) => {
            known.note(&block, &proof);
            // Two blocks here as well, or there would be nothing to vote for.
            let is_odd = !to.0.is_multiple_of(2);
            vec![Said::Propose(if is_odd { other(&block) } else { block }, proof)]
        }
        Said::GiveUp(view, proof, Some(vote)) if !to.0.is_multiple_of(2) => {
            let second = known.proposed.get(&vote.body.block).map(|block| other(block).id());
            let vote = second.map_or(vote, |block| {
                let body = BlockVote { block, ..vote.body };
                Signed { body, by: scene.me, signature: (scene.sign)(&body.statement(vote_kind(&proof))) }
            });
            vec![Said::GiveUp(view, proof, Some(vote))]
        }
        said => vec![said],
    }
}

/// Certificates are made of votes.
fn vote_kind(proof: &ViewProof) -> quorate_types::Kind {
    proof.qc.statement.kind
}

fn tell_one(_: &mut Known, scene: &mut Scene<'_>, to: ReplicaId, said: Said) -> Vec<Said> {
    let view = match &said {
        Said::Propose(block, _) => block.view,
        Said::Show(proof) => proof.qc.view().next(),
        Said::Vote(_) | Said::GiveUp(..) => return vec![said],
    };
    if scene.committee.rotate(view.0 / 7) == to { vec![said] } else { Vec::new() }
}

fn leap<M: Words>(_: &mut Known, scene: &mut Scene<'_>, _: ReplicaId, said: Said) -> Vec<Said> {
    let Said::GiveUp(view, proof, last_vote) = said else { return vec![said] };
    let far = View(view.0.saturating_add(1 << scene.rng.between(1, 60)));
    let high = proof.qc.view();
    let signature = (scene.sign)(&timeout_statement(M::GIVE_UP, far, high));
    // Its own name, as often as it takes; and, the next time, everybody's.
    let all: Vec<ReplicaId> = scene.committee.ids().collect();
    let mine = scene.rng.chance(500_000);
    let listed = all.iter().map(|by| Signed { body: high, by: if mine { scene.me } else { *by }, signature });
    let timeouts = Some(TimeoutCertificate { view: far, listed: listed.collect() });
    let invented = ViewProof { qc: proof.qc.clone(), timeouts };
    vec![
        Said::Show(invented.clone()),
        Said::GiveUp(far.next(), invented, last_vote),
        Said::GiveUp(far, proof.clone(), last_vote),
        Said::GiveUp(view, proof, last_vote),
    ]
}
