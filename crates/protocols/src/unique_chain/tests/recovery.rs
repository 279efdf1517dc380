//! U14: a recovering replica accepts and relays, and signs nothing.

use super::*;
use quorate_consensus::{LinkEvent, Message as _};

fn answer(stage: RecoveryStage, round: u64, tip: Option<&Proposal>, last: Option<&Proposal>) -> Message {
    UniqueMessage::Answer(Box::new(Answer {
        incarnation: Incarnation::ZERO,
        stage,
        proof: proof(round, tip),
        last: last.map(frame),
    }))
}

#[test]
fn u14_silent_replica_signs_nothing_and_has_no_wait() {
    let blocks = chain(1, GENESIS, 4);
    let mut bench = Bench::opened(ME);
    bench.replica.offer([payload(7)]);
    bench.grow(&blocks);
    assert_eq!((bench.round(), bench.wait_ends()), (5, None));
    bench.pass(2 * wait());
    let said = bench.said();
    assert!(said.iter().all(|(_, it)| it.auth().statement().is_none()), "{said:?}");
    assert_eq!(relays_in(&said).len(), 3, "it accepts, enters rounds and relays");
    bench.run();
    let said = bench.said();
    assert_eq!(proposals_in(&said), [(5, id(&blocks[3]))], "now it proposes");
}

#[test]
fn u14_whole_wait_follows_silence() {
    let mut bench = Bench::opened(ME);
    bench.pass(wait());
    bench.run();
    assert_eq!(bench.wait_ends(), Some(wait()));
    assert_eq!(bench.blames(), [0; 0]);
}

/// §17: what matters is that nobody blames a round whose block it has forgotten.
#[test]
fn u14_answers_bring_entries_before_any_wait_begins() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks[..1]);
    bench.replica.sync();
    bench.grow(&blocks[1..]);
    bench.replica.crash_after(0).unwrap();
    // One peer has the proof of a round, and another one its own entry.
    bench.take(0, answer(RecoveryStage::Running, 2, Some(&blocks[0]), None));
    bench.take(1, answer(RecoveryStage::Running, 3, Some(&blocks[1]), None));
    bench.take(2, answer(RecoveryStage::Running, 3, Some(&blocks[1]), Some(&blocks[2])));
    bench.take(3, answer(RecoveryStage::Running, 1, None, None));
    bench.replica.advance(delta(2));
    assert_eq!(bench.stage(), RecoveryStage::Running);
    assert_eq!((bench.tip(), bench.round()), (id(&blocks[2]), 4));
    bench.pass(wait());
    assert_eq!(bench.blames(), [4]);
}

#[test]
fn u14_questions_and_relays_after_a_restart_are_flagged() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.replica.crash().unwrap();
    let is_flagged = |said: &[(To, Message)]| -> Vec<bool> {
        let flag = |(_, it): &(To, Message)| match it {
            UniqueMessage::Ask { proof, .. } | UniqueMessage::Proof(proof) => Some(proof.resync),
            _ => None,
        };
        said.iter().filter_map(flag).collect()
    };
    assert_eq!(is_flagged(&bench.said()), [true]);
    bench.run();
    bench.clear();
    bench.grow(&blocks);
    assert_eq!(is_flagged(&bench.said()), [true; 3]);
    // For n rounds, and no longer.
    for (round, is_recent) in [(6, true), (7, false)] {
        bench.take(0, relay(round, Some(&blocks[2])));
        assert_eq!(is_flagged(&bench.said()), [is_recent]);
    }
}

#[test]
fn u14_answer_has_the_proof_of_the_round_and_the_last_own_entry() {
    let mut bench = Bench::running(0);
    bench.replica.offer([payload(7)]);
    bench.replica.settle();
    let UniqueMessage::Entry { entry: own, .. } = bench.said().remove(0).1 else { panic!() };
    let question = UniqueMessage::Ask { incarnation: Incarnation(3), proof: Box::new(proof(1, None)) };
    bench.take(2, question);
    let expected = Answer {
        incarnation: Incarnation(3),
        stage: RecoveryStage::Running,
        proof: RoundProof { resync: true, ..proof(2, Some(&own)) },
        last: Some(frame(&own)),
    };
    assert_eq!(bench.said(), [(To::One(r(2)), UniqueMessage::Answer(Box::new(expected)))]);
}

/// §17: only the own entry is durable before it leaves. A client may hold a proof of order with it, so a peer that has forgotten
/// it must have it before any wait begins.
#[test]
fn u14_asker_receives_the_own_entry_whose_acceptance_was_lost() {
    let mut bench = Bench::running(0);
    bench.replica.offer([payload(7)]);
    bench.replica.sync();
    let UniqueMessage::Entry { entry: own, skips } = bench.said().remove(0).1 else { panic!() };
    bench.replica.crash_after(0).unwrap();
    assert!(!bench.is_accepted(&own) && bench.stage() == RecoveryStage::Silent);
    bench.clear();
    let question = UniqueMessage::Ask { incarnation: Incarnation(3), proof: Box::new(proof(1, None)) };
    bench.take(2, question);
    assert!(bench.said().contains(&(To::One(r(2)), UniqueMessage::Entry { entry: own, skips })));
}

#[test]
fn u14_answer_to_an_earlier_incarnation_is_refused() {
    let mut bench = Bench::opened(ME);
    bench.replica.crash().unwrap();
    let old = Answer { incarnation: Incarnation(1), ..stands(RecoveryStage::Running) };
    assert_eq!(bench.deliver(0, UniqueMessage::Answer(Box::new(old))), Err(Reject::Stale));
}

#[test]
fn u14_gaps_with_more_than_f_peers_silence_a_replica() {
    let mut bench = Bench::new();
    for peer in [0, 1] {
        bench.replica.link(r(peer), LinkEvent::Gap);
    }
    assert!(bench.wait_ends().is_some());
    bench.replica.link(r(2), LinkEvent::Gap);
    assert_eq!((bench.stage(), bench.wait_ends()), (RecoveryStage::Silent, None));
    bench.pass(2 * wait());
    assert_eq!(bench.blames(), [0; 0]);
    bench.run();
    assert_eq!(bench.wait_ends(), Some(wait()));
}
