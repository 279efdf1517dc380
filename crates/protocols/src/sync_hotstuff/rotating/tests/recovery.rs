//! R14: opening and recovery.

use super::*;
use quorate_consensus::{LinkEvent, Ready};

/// It sets no timer of the protocol either. The replica leads view 1, or 2, or neither.
#[test]
fn r14_silent_replica_signs_nothing() {
    let blocks = chain(1, GENESIS, 2);
    for me in [0, 1, ME] {
        let mut bench = Bench::opened(me, N);
        let asks = bench.replica.sent();
        let [(To::Some(peers), RotatingMessage::Ask { .. })] = &asks[..] else { panic!("{asks:?}") };
        assert_eq!(peers.len(), 4);
        bench.replica.offer([payload(1)]);
        if me != 0 {
            bench.propose(&blocks[0]);
        }
        for voter in bench.peers() {
            let _ = bench.deliver(voter, voted(&blocks[0]));
        }
        assert_eq!(bench.view(), 2, "certificates count");
        bench.pass(delta(6) + heartbeat());
        let _ = bench.deliver(2, blamed(2));
        bench.pass(delta(8) + heartbeat());
        bench.replica.sound(None, Time::MAX);
        let said = bench.said();
        let asks = said.iter().filter(|it| matches!(it, RotatingMessage::Ask { .. })).count();
        assert!(asks > 20, "it asks again each delta");
        assert!(!said.iter().any(is_own_statement), "{said:?}");
        assert_eq!(
            (bench.view(), bench.timer_commits()),
            (2, vec![]),
            "nor does it enter a view that was blamed"
        );
        assert!(bench.is_quiet());
        // It hands on messages that others must receive.
        assert_eq!((certified_in(&said).len(), evidence_in(&said).len()), (1, 1));
    }
}

#[test]
fn r14_answers_count_before_anything_is_signed() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::opened(ME, N);
    blocks.iter().for_each(|header| bench.replica.fetched(header.block.clone()));
    bench.clear();
    let mut answer = stands(RecoveryStage::Silent);
    answer.certificates = vec![certified(&blocks[1])];
    answer.header = Some(signed(&blocks[2]));
    answer.voted = Some(Signed { body: signed(&blocks[2]), by: r(0), signature: SIGNATURE });
    bench.take(0, RotatingMessage::Answer(Box::new(answer)));
    for peer in [1, 2] {
        bench.take(peer, RotatingMessage::Answer(Box::new(stands(RecoveryStage::Silent))));
    }
    assert_eq!(bench.own_statements(), []);
    bench.take(3, RotatingMessage::Answer(Box::new(stands(RecoveryStage::Silent))));
    bench.replica.advance(delta(2));
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    assert_eq!(bench.votes(), [id(&blocks[2])]);
    bench.vote([1], &blocks[2]);
    assert_eq!(bench.view(), 4, "the vote that an answer shows counts");
    // After blames in an answer the full wait begins when silence is over.
    let mut bench = Bench::opened(ME, N);
    let mut answer = stands(RecoveryStage::Silent);
    answer.blames = Some(blames(3));
    bench.answers(&answer);
    assert_eq!((bench.view(), bench.stage()), (3, RecoveryStage::Voting));
    bench.pass(delta(1) - 1);
    assert_eq!((bench.view(), bench.own_statements()), (3, vec![]));
    bench.pass(1);
    assert_eq!(bench.view(), 4);
    // The vote of another replica makes an answer invalid.
    let mut answer = stands(RecoveryStage::Silent);
    answer.voted = Some(Signed { body: signed(&blocks[2]), by: r(0), signature: SIGNATURE });
    let wrong = bench.deliver(1, RotatingMessage::Answer(Box::new(answer)));
    assert_eq!(wrong, Err(Reject::Invalid("vote of another replica")));
}

#[test]
fn r14_replica_without_the_certified_block_stays_silent() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::opened(ME, N);
    bench.replica.answer_otherwise(None);
    let mut answer = stands(RecoveryStage::Silent);
    answer.certificates = vec![certified(&first)];
    bench.answers(&answer);
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    assert!(!bench.replica.wanted().is_empty());
    bench.replica.fetched(first.block.clone());
    bench.replica.ready(id(&first), Ready::Valid);
    assert_eq!(bench.stage(), RecoveryStage::Voting);
}

/// The last proposal is repeated unchanged.
#[test]
fn r14_recovered_leader_repeats_its_proposal() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::running(1, N);
    bench.replica.offer([payload(7), payload(8)]);
    bench.grow(std::slice::from_ref(&first));
    let said = bench.said();
    let is_proposal = |it: &&RotatingMessage| matches!(it, RotatingMessage::Propose { .. });
    let proposal = said.iter().find(is_proposal).unwrap().clone();
    bench.replica.crash().unwrap();
    bench.replica.offer([payload(9)]);
    bench.run();
    let said = bench.said();
    assert_eq!(said.iter().filter(is_proposal).collect::<Vec<_>>(), [&proposal]);
    assert_eq!(votes_in(&said).len(), 1);
    // Also if the first incarnation has proposed nothing: the second one does.
    let mut bench = Bench::running(1, N);
    bench.grow(std::slice::from_ref(&first));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(bench.view(), 2, "the way into the view is recorded");
    bench.replica.offer([payload(9)]);
    bench.run();
    assert_eq!(proposed_in(&bench.said()), [(View(2), id(&first))]);
}

#[test]
fn r14_answer_shows_the_state_of_the_view() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks[..2]);
    bench.next_view();
    let fourth = header(4, tip(&blocks[1]), 4);
    bench.propose(&fourth);
    bench.clear();
    bench.replica.fetched(blocks[2].block.clone());
    bench.take(2, RotatingMessage::Ask { incarnation: Incarnation(7) });
    let sent = to_one(bench.replica.sent());
    let [(2, RotatingMessage::Answer(answer))] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((answer.incarnation, answer.stage), (Incarnation(7), RecoveryStage::Running));
    assert_eq!(answer.blames, Some(blames(3)));
    assert_eq!(answer.header, Some(signed(&fourth)));
    assert_eq!(answer.certificates.iter().map(Certificate::block).collect::<Vec<_>>(), [id(&blocks[1])]);
    let voted = answer.voted.as_ref().unwrap();
    assert_eq!((&voted.body, voted.by), (&signed(&fourth), r(ME)));
    assert_eq!(claims_hold(&sent[0].1), Ok(()));
    // The certificate of the header's parent is shown as well if a higher one is known.
    bench.take(2, shows(&blocks[2]));
    bench.sent();
    bench.take(3, RotatingMessage::Ask { incarnation: Incarnation(7) });
    let sent = to_one(bench.replica.sent());
    let [(3, RotatingMessage::Answer(answer))] = &sent[..] else { panic!("{sent:?}") };
    let shown: Vec<_> = answer.certificates.iter().map(Certificate::block).collect();
    assert_eq!(shown, [id(&blocks[2]), id(&blocks[1])]);
}

/// A withdrawn vote must not leave after all, and a vote of a finished view counts nowhere.
#[test]
fn r14_vote_is_repeated_only_in_its_view() {
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 9));
    let contradicted = RotatingMessage::Evidence(conflict(&first, &other));
    let after =
        [(None, true), (Some(contradicted), false), (Some(blamed(1)), false), (Some(shows(&first)), false)];
    for (what, again) in after {
        let mut bench = Bench::new();
        bench.propose(&first);
        what.iter().for_each(|what| bench.take(2, what.clone()));
        bench.clear();
        for peer in [0, 1, 2] {
            bench.replica.link(r(peer), LinkEvent::Gap);
        }
        bench.answers(&stands(RecoveryStage::Running));
        assert_ne!(bench.stage(), RecoveryStage::Silent);
        assert_eq!(bench.votes().contains(&id(&first)), again, "{what:?}");
    }
    // After a crash the replica knows that the view was left, but not the reason.
    let mut bench = Bench::new();
    bench.propose(&first);
    bench.take(2, blamed(1));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert!(bench.is_quiet());
    bench.run();
    assert_eq!(bench.votes(), []);
}
