//! S16: opening and recovery.

use super::*;
use quorate_consensus::LinkEvent;
use quorate_consensus::harness::payload;

both! {
    s16_silent_replica_signs_nothing;
    s16_silent_replica_enters_no_view;
    s16_silent_replica_answers_and_relays;
    s16_answers_count_before_anything_is_signed;
    s16_replica_without_the_certified_block_stays_silent;
    s16_repeated_status_has_the_recorded_lock;
    s16_last_vote_is_repeated_after_a_silence;
    s16_headers_of_answers_reveal_conflicts;
    s16_later_certificates_are_not_waited_for;
    s16_replica_asks_all_on_entering_a_later_view;
    s16_answer_shows_the_state_of_the_view;
}

fn asked(bench: &mut Bench<impl Variant>) -> usize {
    bench.sent().iter().filter(|it| matches!(it, SyncMessage::Ask { .. })).count()
}

/// It sets no timer of the protocol either.
fn s16_silent_replica_signs_nothing<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    for me in [0, 1, ME] {
        let mut bench = Bench::<V>::opened(me, N);
        let asks = bench.replica.sent();
        let [(To::Some(peers), SyncMessage::Ask { .. })] = &asks[..] else { panic!("{asks:?}") };
        assert_eq!(peers.len(), 4);
        bench.replica.offer([payload(1)]);
        bench.deliver(0, proposal(N, &blocks[0])).unwrap();
        for voter in bench.peers() {
            let _ = bench.deliver(voter, voted(&blocks[0]));
        }
        bench.pass(delta(4) + heartbeat());
        let said = bench.said();
        let asks = said.iter().filter(|it| matches!(it, SyncMessage::Ask { .. })).count();
        assert!(asks > 20, "it asks again each delta");
        assert!(!said.iter().any(is_own_statement), "{said:?}");
        assert_eq!(bench.committed(), []);
        assert!(bench.is_quiet());
    }
}

/// §18: the full wait after leaving begins when silence is over, whatever the guard reports meanwhile.
fn s16_silent_replica_enters_no_view<V: Variant>() {
    let mut bench = Bench::<V>::opened(ME, N);
    bench.take(0, SyncMessage::Evidence(blames(N, 1)));
    for _ in 0..20 {
        bench.pass(delta(1));
        bench.replica.sound(None, Time::MAX);
    }
    assert_eq!((bench.view(), bench.own_statements()), (1, vec![]));
    bench.run();
    bench.pass(delta(V::WAIT) - 1);
    assert_eq!((bench.view(), bench.own_statements()), (1, vec![]));
    bench.pass(1);
    assert_eq!(bench.view(), 2);
    // Also for a replica that was opened after it had left its view.
    let mut bench = Bench::<V>::new();
    bench.blame();
    bench.replica.sync();
    bench.replica.crash().unwrap();
    for _ in 0..20 {
        bench.pass(delta(1));
        bench.replica.sound(None, Time::MAX);
    }
    assert_eq!((bench.view(), bench.own_statements()), (1, vec![]));
}

fn s16_silent_replica_answers_and_relays<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let base = lock(certified(N, &blocks[0]));
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.replica.crash().unwrap();
    bench.sent();
    let ask = SyncMessage::Ask { incarnation: Incarnation(7), above: Height(0) };
    bench.take(4, ask);
    let sent = to_one(bench.replica.sent());
    let [(4, SyncMessage::Answer(answer))] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((answer.incarnation, answer.stage), (Incarnation(7), RecoveryStage::Silent));
    bench.take(1, new_view(2, &base));
    assert_eq!(bench.sent(), [forward(N, 2, &base)]);
    let evidence = SyncMessage::Evidence(blames(N, 2));
    bench.take(0, evidence.clone());
    assert_eq!(bench.sent(), [evidence]);
    assert_eq!(bench.own_statements(), []);
}

fn s16_answers_count_before_anything_is_signed<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Bench::<V>::opened(ME, N);
    bench.replica.fetched(blocks[0].block.clone());
    for peer in [0, 1, 2] {
        bench.take(peer, SyncMessage::Answer(Box::new(stands(RecoveryStage::Silent))));
    }
    bench.sent();
    let mut last = stands(RecoveryStage::Silent);
    last.evidence = vec![blames(N, 1)];
    last.certificates = vec![certified(N, &blocks[0])];
    bench.take(4, SyncMessage::Answer(Box::new(last)));
    bench.replica.advance(delta(2));
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    assert_eq!(bench.own_statements(), [], "it has left the view");
    bench.pass(delta(V::WAIT));
    let status = SyncMessage::Status { view: View(2), lock: lock(certified(N, &blocks[0])) };
    assert_eq!(bench.own_statements(), [status]);
}

fn s16_replica_without_the_certified_block_stays_silent<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut answer = stands(RecoveryStage::Running);
    answer.certificates = vec![certified(N, &blocks[0])];
    let mut bench = Bench::<V>::opened(ME, N);
    bench.answers(&answer);
    bench.pass(delta(5));
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    let mut wanted = bench.replica.wanted();
    wanted.sort_unstable();
    wanted.dedup();
    let of_voters = [0, 1, 2].map(|peer| (id(&blocks[0]), r(peer)));
    assert!(of_voters.iter().all(|want| wanted.contains(want)), "{wanted:?}");
    bench.replica.fetched(blocks[0].block.clone());
    assert_eq!(bench.stage(), RecoveryStage::Running);
}

fn s16_repeated_status_has_the_recorded_lock<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.next_view();
    let said = bench.own_statements();
    let status: Vec<_> = said.iter().filter(|it| matches!(it, SyncMessage::Status { .. })).collect();
    // It receives higher certificates and repeats the same lock.
    bench.replica.crash().unwrap();
    bench.replica.fetched(blocks[1].block.clone());
    let mut answer = stands(RecoveryStage::Running);
    answer.certificates = vec![certified(N, &blocks[1])];
    bench.answers(&answer);
    let again = bench.own_statements();
    assert_eq!(again.iter().collect::<Vec<_>>(), status);
}

fn s16_last_vote_is_repeated_after_a_silence<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.clear();
    for peer in [0, 1] {
        bench.replica.link(r(peer), LinkEvent::Gap);
        assert!(asked(&mut bench) > 0, "a peer with a gap is asked");
    }
    bench.take(0, SyncMessage::Answer(Box::new(stands(RecoveryStage::Running))));
    bench.replica.link(r(2), LinkEvent::Gap);
    assert_eq!(bench.stage(), RecoveryStage::Running, "f liars must not silence anybody");
    bench.replica.link(r(4), LinkEvent::Gap);
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    bench.clear();
    bench.propose(&blocks[1]);
    bench.pass(delta(4) + heartbeat());
    assert_eq!(bench.own_statements(), []);
    bench.answers(&stands(RecoveryStage::Running));
    assert_eq!(bench.stage(), RecoveryStage::Running);
    assert_eq!(
        bench.votes(),
        [id(&blocks[0]), id(&blocks[1])],
        "the last vote again, then the block that has arrived"
    );
}

/// A leader that certifies a block every few milliseconds and sends bodies late must silence nobody.
fn s16_later_certificates_are_not_waited_for<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3, 4]);
    let mut bench = Bench::<V>::opened(ME, N);
    bench.replica.answer_otherwise(None);
    let mut answer = stands(RecoveryStage::Running);
    answer.certificates = vec![certified(N, &blocks[0])];
    bench.answers(&answer);
    for (block, next) in blocks.iter().zip(&blocks[1..]) {
        assert_eq!(bench.stage(), RecoveryStage::Silent, "its parent is missing");
        bench.take(2, voted(block));
        bench.take(2, SyncMessage::Certified(certified(N, next)));
    }
    bench.replica.fetched(blocks[0].block.clone());
    assert_eq!(bench.stage(), RecoveryStage::Running);
}

/// §18: so every conflicting statement is noticed.
fn s16_headers_of_answers_reveal_conflicts<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.replica.sync();
    bench.replica.crash().unwrap();
    let mut answer = stands(RecoveryStage::Running);
    answer.headers = blocks.iter().map(signed).collect();
    bench.answers(&answer);
    assert_eq!(bench.stage(), RecoveryStage::Running);
    assert_eq!(bench.deliver(4, voted(&other)), Err(CONFLICT));
    assert!(bench.is_quiet());
    // The vote in an answer shows its header as well.
    let mut bench = Bench::<V>::opened(ME, N);
    let mut answer = stands(RecoveryStage::Running);
    answer.voted = Some(Signed { body: signed(&blocks[0]), by: r(4), signature: SIGNATURE });
    bench.take(4, SyncMessage::Answer(Box::new(answer.clone())));
    assert_eq!(bench.deliver(0, voted(&other)), Err(Reject::Equivocation));
    let foreign = SyncMessage::Answer(Box::new(answer));
    assert_eq!(bench.deliver(2, foreign), Err(Reject::Invalid("vote of another replica")));
}

/// Statements that arrived before it had entered could not be kept.
fn s16_replica_asks_all_on_entering_a_later_view<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let base = end(&blocks[0]);
    let next = header(N, 2, base.1, base, 5);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    let SyncMessage::Forward { new_view } = forward(N, 2, &lock(certified(N, &blocks[0]))) else { panic!() };
    let mut answer = stands(RecoveryStage::Running);
    answer.evidence = vec![blames(N, 1)];
    answer.certificates = vec![certificate(2, base, weak(N))];
    answer.new_view = Some(new_view);
    answer.headers = vec![signed(&next)];
    let answer = SyncMessage::Answer(Box::new(answer));
    bench.take(4, answer.clone());
    assert_eq!((bench.view(), bench.is_quiet()), (1, true));
    bench.pass(delta(V::WAIT) - 1);
    asked(&mut bench);
    bench.pass(1);
    assert_eq!((bench.view(), asked(&mut bench)), (2, 1));
    bench.take(4, answer);
    let said = bench.said();
    assert!(said.contains(&first_vote(2, base)), "{said:?}");
    assert_eq!(votes_in(&said), [id(&next)]);
}

fn s16_answer_shows_the_state_of_the_view<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::new();
    let answered = |bench: &mut Bench<V>, above| {
        bench.clear();
        bench.take(4, SyncMessage::Ask { incarnation: Incarnation(3), above: Height(above) });
        let sent = to_one(bench.replica.sent());
        let [(4, answer)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(claims_hold::<V>(answer), Ok(()));
        let SyncMessage::Answer(answer) = answer.clone() else { panic!("{answer:?}") };
        *answer
    };
    assert_eq!(
        answered(&mut bench, 0),
        Answer { incarnation: Incarnation(3), ..stands(RecoveryStage::Running) }
    );
    bench.grow(&blocks);
    let answer = answered(&mut bench, 0);
    assert_eq!(answer.headers, blocks.iter().map(signed).collect::<Vec<_>>());
    assert_eq!(answer.voted, Some(Signed { body: signed(&blocks[1]), by: r(ME), signature: SIGNATURE }));
    let shown: Vec<_> = answer.certificates.iter().map(|it| (it.view().0, it.block())).collect();
    assert_eq!(shown, [(1, id(&blocks[1]))]);
    assert_eq!(answered(&mut bench, 1).headers, [signed(&blocks[1])]);
    bench.pass(delta(1));
    bench.next_view();
    bench.take(1, new_view(2, &lock(certified(N, &blocks[1]))));
    let answer = answered(&mut bench, 0);
    assert_eq!((answer.evidence, answer.voted, answer.headers), (vec![blames(N, 1)], None, vec![]));
    assert_eq!(answer.new_view.map(|new_view| new_view.body.view), Some(View(2)));
    // Evidence of a view that was left is shown as well.
    bench.pass(delta(1));
    bench.blame();
    assert_eq!(answered(&mut bench, 0).evidence.last(), Some(&blames(N, 2)));
}
