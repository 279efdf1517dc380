//! Messages under the attacks on Apollo: well-formed, and as the table of `attacks.rs` says.

use super::*;
use crate::unique_chain::apollo::Proposal;
use crate::unique_chain::apollo::attacks::ATTACKS;
use crate::unique_chain::tests::claims::claims_of;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Attack, Message as _, Scene};
use quorate_types::BlockId;
use quorate_types::rng::Rng;
use std::any::Any;
use std::collections::BTreeSet;

/// Replica 0 of five, which attacks.
struct Attacker {
    attack: Box<dyn Attack>,
    rng: Rng,
}

impl Attacker {
    fn new(name: &str) -> Self {
        let entry = ATTACKS.iter().find(|entry| entry.name == name).unwrap();
        Self { attack: (entry.make)(), rng: Rng::new(1) }
    }

    /// Returns the messages that a replica receives in the place of this one. All are well-formed.
    fn tells(&mut self, to: u16, said: &Message) -> Vec<Message> {
        let committee = Setup::of::<UniqueChain<Apollo>>(usize::from(N)).committee::<UniqueChain<Apollo>>();
        let sign = |_: &quorate_types::Statement| SIGNATURE;
        let mut scene = Scene { me: r(0), committee: &committee, rng: &mut self.rng, sign: &sign };
        let said = self.attack.says(&mut scene, r(to), Box::new(said.clone()));
        let own = |said: Box<dyn quorate_consensus::Message>| {
            let any: Box<dyn Any> = said;
            *any.downcast::<Message>().unwrap()
        };
        let told: Vec<Message> = said.into_iter().map(own).collect();
        assert!(told.iter().all(|it| claims_of(it).is_ok()), "{told:?}");
        told
    }

    /// Returns the parents of the blocks that it sends for one, in many tries.
    fn parents(&mut self, said: &Message) -> BTreeSet<(BlockId, BlockId)> {
        let mut parents = BTreeSet::new();
        for to in (1..N).cycle().take(100) {
            for told in self.tells(to, said) {
                let UniqueMessage::Entry { entry, .. } = told else { panic!("{told:?}") };
                parents.insert((id(&entry), entry.block.parent));
            }
        }
        parents
    }
}

/// Returns blocks of rounds 1 and 4, the block of round 6 on the latter, and a relay that shows that round 5 was skipped. The
/// block of round 4 is no parent of it in another proof, which skips rounds 2 to 5.
fn history() -> (Proposal, Proposal, Proposal) {
    let first = entry(1, GENESIS, 1);
    let fourth = entry(4, tip(&first), 4);
    let sixth = entry(6, tip(&fourth), 6);
    (first, fourth, sixth)
}

#[test]
fn equivocate_sends_up_to_three_blocks_on_valid_parents() {
    let (first, fourth, sixth) = history();
    let mut attacker = Attacker::new("equivocate");
    attacker.tells(1, &relay(6, Some(&fourth)));
    // It has proofs that rounds 2 to 5 were skipped.
    attacker.tells(1, &relay(6, Some(&first)));
    let sent = attacker.parents(&proposal(&sixth));
    assert_eq!(sent.len(), 3);
    let parents: BTreeSet<BlockId> = sent.iter().map(|(_, parent)| *parent).collect();
    assert_eq!(parents, BTreeSet::from([id(&first), id(&fourth)]));
    let none = (0..100).filter(|_| attacker.tells(1, &proposal(&sixth)).is_empty()).count();
    assert!((1..99).contains(&none), "some replicas receive nothing: {none}");
}

#[test]
fn late_proposals_follow_a_later_message() {
    let (first, ..) = history();
    let mut attacker = Attacker::new("late proposals");
    let calls: Vec<Vec<Message>> = (0..40).map(|_| attacker.tells(2, &proposal(&first))).collect();
    assert!(calls.iter().any(Vec::is_empty), "some are late");
    let mut told = calls.concat();
    for _ in 0..400 {
        told.extend(attacker.tells(2, &relay(2, Some(&first))));
    }
    told.retain(|it| *it == proposal(&first));
    assert_eq!(told.len(), 40);
}

#[test]
fn told_to_one_sends_to_one_replica_alone() {
    let (first, ..) = history();
    let mut attacker = Attacker::new("told to one");
    for said in [proposal(&first), relay(2, Some(&first))] {
        let told: Vec<u16> = (0..N).filter(|to| !attacker.tells(*to, &said).is_empty()).collect();
        assert_eq!(told, [0], "rounds 0 to 2 belong to replica 0");
    }
    let blame = blamed(2, Some(&first));
    assert_eq!(attacker.tells(4, &blame), [blame]);
}

#[test]
fn false_blames_name_every_round() {
    let (first, ..) = history();
    let mut attacker = Attacker::new("false blames");
    let blames = |told: &[Message]| -> Vec<View> {
        told.iter().filter(|it| matches!(it, UniqueMessage::Blame(_))).map(|it| it.place().view).collect()
    };
    assert_eq!(blames(&attacker.tells(3, &proposal(&first))), [View(2)]);
    assert_eq!(blames(&attacker.tells(3, &relay(5, Some(&first)))), [View(5)]);
}

#[test]
fn questions_for_entries_stay_unanswered() {
    let (first, ..) = history();
    let entries = UniqueMessage::Entries { entries: vec![frame(&first)] };
    for name in ["unanswered", "headers alone"] {
        let mut attacker = Attacker::new(name);
        assert_eq!(attacker.tells(3, &entries), []);
        let blame = blamed(2, Some(&first));
        assert_eq!(attacker.tells(3, &blame), [blame]);
    }
    let mut attacker = Attacker::new("headers alone");
    assert_eq!(attacker.tells(3, &proposal(&first)), [relay(2, Some(&first))]);
}

#[test]
fn old_tips_are_shown_and_extended() {
    let (first, fourth, sixth) = history();
    let mut attacker = Attacker::new("old tips");
    let (old, new) = (relay(2, Some(&first)), relay(6, Some(&fourth)));
    attacker.tells(1, &relay(6, Some(&first)));
    attacker.tells(1, &old);
    let told: Vec<Message> = (0..50).flat_map(|_| attacker.tells(1, &new)).collect();
    assert!(told.contains(&old) && told.contains(&new));
    let sent = attacker.parents(&proposal(&sixth));
    assert_eq!(sent.into_iter().map(|(_, parent)| parent).collect::<Vec<_>>(), [id(&first)], "one block");
}

#[test]
fn forgetting_answers_with_an_empty_state() {
    let (first, ..) = history();
    let mut attacker = Attacker::new("forgetting");
    let answer = crate::unique_chain::Answer {
        incarnation: quorate_types::Incarnation(7),
        proof: proof(2, Some(&first)),
        last: Some(frame(&first)),
        ..stands(RecoveryStage::Voting)
    };
    let told = attacker.tells(1, &UniqueMessage::Answer(Box::new(answer)));
    let empty = crate::unique_chain::Answer {
        incarnation: quorate_types::Incarnation(7),
        ..stands(RecoveryStage::Running)
    };
    assert_eq!(told, [UniqueMessage::Answer(Box::new(empty))]);
}
