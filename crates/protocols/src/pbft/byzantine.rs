//! Attacks that need knowledge of PBFT, for the exam's host `own`.
//!
//! | attack | against |
//! |---|---|
//! | equivocate | one PRE-PREPARE for a view and height (§2, P1): two blocks, and votes for both |
//! | early commits | COMMIT only after a quorum has prepared (P6, P8): a COMMIT with every PREPARE |
//! | invented entries | `select` (§7, V5): a VIEW-CHANGE claims a block that never prepared, in a high view |
//! | wrong new views | the check of NEW-VIEW (V8): other picks, a sender twice, one view change too few |
//! | suspicions | the pre-vote (§8): SUSPECT for some, withdrawn for others, all the time |

use super::message::{PbftMessage, Vote};
use super::variant::Variant;
use super::view_message::{BlockClaim, NewView, ViewChange};
use crate::attack_table::{attack_table, other};
use quorate_consensus::{AttackEntry, Retelling, Scene};
use quorate_types::{Block, BlockId, Digest, Height, ReplicaId, View};
use std::collections::BTreeMap;

/// Proposals that an equivocating leader remembers.
const REMEMBERED: usize = 64;

/// Returns the attacks of a variant.
pub(super) const fn attacks<V: Variant>() -> &'static [AttackEntry] {
    attack_table! { Own<V>:
        "equivocate" = equivocate, "Proposes two blocks for each height and votes for both.";
        "early commits" = commit_early, "Sends COMMIT as soon as it sends PREPARE.";
        "invented entries" = invent, "Claims in its VIEW-CHANGE a block that never prepared.";
        "wrong new views" = begin_wrongly, "Begins its views with other blocks than the view changes select.";
        "suspicions" = suspect, "Suspects every leader towards some replicas and withdraws that towards others.";
    }
}

type Own<V> = Retelling<<V as Variant>::Message, PbftMessage, OwnProposals>;

/// Memory of an attacker.
#[derive(Default)]
struct OwnProposals {
    /// The attacker's proposals, by their ids.
    proposed: BTreeMap<BlockId, Block>,
}

fn equivocate(
    known: &mut OwnProposals,
    _: &mut Scene<'_>,
    to: ReplicaId,
    message: PbftMessage,
) -> Vec<PbftMessage> {
    if let PbftMessage::PrePrepare { block, .. } = &message {
        while known.proposed.len() >= REMEMBERED {
            known.proposed.pop_first();
        }
        known.proposed.insert(block.id(), block.clone());
    }
    // Every second replica gets the other block, and consistent votes for it.
    if to.0.is_multiple_of(2) {
        return vec![message];
    }
    let retold = |vote: Vote| match known.proposed.get(&vote.block) {
        Some(block) => Vote { block: other(block).id(), ..vote },
        None => vote,
    };
    vec![match message {
        PbftMessage::PrePrepare { view, block } => PbftMessage::PrePrepare { view, block: other(&block) },
        PbftMessage::Prepare(vote) => PbftMessage::Prepare(retold(vote)),
        PbftMessage::Commit(vote) => PbftMessage::Commit(retold(vote)),
        message => message,
    }]
}

fn commit_early(
    _: &mut OwnProposals,
    _: &mut Scene<'_>,
    _: ReplicaId,
    message: PbftMessage,
) -> Vec<PbftMessage> {
    match message {
        PbftMessage::Prepare(vote) => vec![PbftMessage::Commit(vote), PbftMessage::Prepare(vote)],
        PbftMessage::PrePrepare { view, ref block } => {
            let vote = Vote { view, height: block.height, block: block.id() };
            vec![message, PbftMessage::Commit(vote)]
        }
        message => vec![message],
    }
}

fn invent(
    _: &mut OwnProposals,
    scene: &mut Scene<'_>,
    _: ReplicaId,
    message: PbftMessage,
) -> Vec<PbftMessage> {
    let PbftMessage::ViewChange(change) = message else { return vec![message] };
    let mut change: ViewChange = *change;
    let stable = change.proof.checkpoint.height;
    let entry = BlockClaim {
        height: stable.plus(scene.rng.between(1, 12)),
        block: BlockId(Digest([u8::try_from(scene.rng.below(256)).unwrap_or(0); 32])),
        view: View(change.view.0.saturating_sub(scene.rng.between(1, 2))),
    };
    for list in [&mut change.prepared, &mut change.pre_prepared] {
        let place = list.partition_point(|known| known.height < entry.height);
        if list.get(place).is_some_and(|known| known.height == entry.height) {
            list.remove(place);
        }
        list.insert(place, entry);
    }
    vec![PbftMessage::ViewChange(Box::new(change))]
}

fn begin_wrongly(
    _: &mut OwnProposals,
    scene: &mut Scene<'_>,
    _: ReplicaId,
    message: PbftMessage,
) -> Vec<PbftMessage> {
    let PbftMessage::NewView(new_view) = message else { return vec![message] };
    let mut new_view: NewView = *new_view;
    match scene.rng.below(4) {
        0 => {
            if let Some((height, block)) = new_view.picks.first_mut() {
                *block = BlockId::null(*height);
            }
        }
        1 => {
            let next = new_view.picks.last().map_or(Height(1), |(height, _)| height.next());
            new_view.picks.push((next, BlockId::null(next)));
        }
        2 => {
            if let (Some(first), Some(last)) =
                (new_view.changes.first().cloned(), new_view.changes.last_mut())
            {
                *last = first;
            }
        }
        _ => {
            new_view.changes.pop();
        }
    }
    vec![PbftMessage::NewView(Box::new(new_view))]
}

fn suspect(
    _: &mut OwnProposals,
    scene: &mut Scene<'_>,
    to: ReplicaId,
    message: PbftMessage,
) -> Vec<PbftMessage> {
    let view = match &message {
        PbftMessage::Prepare(vote) | PbftMessage::Commit(vote) => vote.view,
        PbftMessage::PrePrepare { view, .. } => *view,
        PbftMessage::Status(report) => report.view,
        _ => return vec![message],
    };
    let on = to.0.is_multiple_of(2) == scene.rng.chance(700_000);
    vec![message, PbftMessage::Suspect { view, on }]
}
