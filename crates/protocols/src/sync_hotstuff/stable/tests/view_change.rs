//! S10 to S15: end of a view, and beginning of the next one.

use super::*;
use quorate_consensus::Ready;
use quorate_consensus::harness::payload;

both! {
    s10_f_plus_1_blames_end_a_view;
    s10_blames_of_a_later_view_end_that_view;
    s10_silent_leader_is_blamed;
    s10_only_own_votes_postpone_the_blame;
    s11_evidence_leaves_at_once_and_once;
    s11_timers_of_a_left_view_commit_nothing;
    s11_left_view_has_no_votes;
    s11_equivocation_in_a_later_view_ends_nothing;
    s12_next_view_waits;
    s12_next_view_needs_fresh_answers;
    s12_no_view_is_entered_in_doubt;
    s12_early_messages_are_handled_on_entering;
    s12_votes_of_a_skipped_view_count;
    s13_lock_is_the_highest_certificate_on_entering;
    s13_lock_does_not_change_in_a_view;
    s13_lock_survives_certificates_of_later_views;
    s14_leader_extends_the_highest_lock;
    s14_leader_waits_2_delta_and_shows_one_lock;
    s14_leader_knows_the_blocks_of_all_locks;
    s15_first_vote_is_for_no_lower_base;
    s15_first_vote_is_cast_once_and_durable;
    s15_first_vote_survives_a_restart;
    s15_first_vote_begins_no_wait;
    s15_base_is_asked_for_of_every_holder;
    s15_new_view_is_always_handed_on;
}

fn blamed(view: u64) -> SyncMessage {
    SyncMessage::Blame(View(view))
}

/// Scenario 7: f false blames do nothing, and one replica that blames often does nothing.
fn s10_f_plus_1_blames_end_a_view<V: Variant>() {
    let mut bench = Bench::<V>::new();
    for peer in [0, 1, 1, 0] {
        bench.take(peer, blamed(1));
        assert!(!bench.is_quiet());
    }
    bench.take(4, blamed(2));
    assert!(!bench.is_quiet(), "of another view");
    bench.clear();
    bench.take(2, blamed(1));
    assert!(bench.is_quiet());
    let sent = bench.sent();
    let [SyncMessage::Evidence(evidence)] = &sent[..] else { panic!("{sent:?}") };
    let QuitEvidence::Blames(certificate) = evidence else { panic!("{evidence:?}") };
    assert_eq!(certificate.signers.iter().collect::<Vec<_>>(), [0, 1, 2].map(r));
    assert_eq!(claims_hold::<V>(&sent[0]), Ok(()));
    // The own blame counts as well, by its own copy.
    let mut bench = Bench::<V>::new();
    bench.take(0, blamed(1));
    bench.take(1, blamed(1));
    bench.pass(delta(4) + heartbeat());
    assert!(!bench.is_quiet());
    bench.replica.settle();
    assert!(bench.is_quiet());
}

fn s10_blames_of_a_later_view_end_that_view<V: Variant>() {
    let mut bench = Bench::<V>::new();
    for peer in [0, 1, 2] {
        bench.take(peer, blamed(3));
    }
    assert_eq!((bench.view(), bench.is_quiet()), (3, true));
    // Blames of earlier views are stale.
    assert_eq!(bench.deliver(4, blamed(2)), Err(Reject::Stale));
    assert_eq!(bench.deliver(4, blamed(3)), Err(Reject::Stale));
    bench.pass(delta(V::WAIT));
    assert_eq!((bench.view(), bench.is_quiet()), (4, false));
}

/// Scenario 2. Voting continues after the blame.
fn s10_silent_leader_is_blamed<V: Variant>() {
    let blames = |bench: &mut Bench<V>| bench.sent().iter().filter(|it| **it == blamed(bench.view())).count();
    let mut bench = Bench::<V>::new();
    bench.replica.advance(delta(4) + heartbeat() - 1);
    assert_eq!(blames(&mut bench), 0);
    bench.replica.advance(1);
    assert_eq!(blames(&mut bench), 1, "at once, whatever the disk does");
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.propose(&blocks[0]);
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    // The blame is repeated while nothing arrives: it may have been lost with its link.
    bench.pass(delta(3) + heartbeat() - 1);
    assert_eq!(blames(&mut bench), 0);
    bench.pass(1);
    assert_eq!(blames(&mut bench), 1);
    bench.pass(delta(3) + heartbeat());
    assert_eq!(blames(&mut bench), 1);
    assert!(!bench.is_quiet(), "one replica that blames often is one");
    // Another view has its own blames.
    bench.next_view();
    bench.clear();
    bench.pass(delta(4) - 1);
    assert_eq!(blames(&mut bench), 0);
    bench.pass(1);
    assert_eq!(
        blames(&mut bench),
        1,
        "there is no wait for a heartbeat: the new leader must send its NEW-VIEW"
    );
}

/// §13, 5.
fn s10_only_own_votes_postpone_the_blame<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.pass(delta(3));
    bench.propose(&blocks[0]);
    bench.clear();
    bench.pass(delta(2));
    // None of these is an own vote.
    bench.propose(&blocks[0]);
    bench.vote([0, 1], &blocks[0]);
    bench.replica.answer(id(&blocks[1]), None);
    bench.propose(&blocks[1]);
    bench.take(4, SyncMessage::Answer(Box::new(stands(RecoveryStage::Running))));
    bench.take(4, blamed(1));
    bench.pass(delta(1) + heartbeat() - 1);
    assert!(!bench.sent().contains(&blamed(1)));
    bench.pass(1);
    assert!(bench.sent().contains(&blamed(1)), "3 delta and a heartbeat after its vote");
}

fn s11_evidence_leaves_at_once_and_once<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let evidence = SyncMessage::Evidence(blames(N, 1));
    bench.take(0, evidence.clone());
    assert_eq!(bench.replica.sent(), [(To::All, evidence.clone())], "whatever the disk does");
    assert_eq!(bench.deliver(1, evidence.clone()), Err(Reject::Duplicate));
    bench.pass(delta(V::WAIT));
    assert_eq!(bench.deliver(1, evidence), Err(Reject::Stale));
    assert!(!bench.said().iter().any(|it| matches!(it, SyncMessage::Evidence(_))));
}

/// §13, 2.
fn s11_timers_of_a_left_view_commit_nothing<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.pass(delta(2) - 1);
    bench.blame();
    assert_eq!(bench.replica.deadline(), Some(bench.now().plus(delta(V::WAIT))), "no other timer is left");
    bench.pass(delta(4));
    assert_eq!(bench.committed(), []);
    // The same holds for a wait that is over and that the guard has held back.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.replica.answer_sound(None, Time::ZERO);
    bench.pass(delta(2));
    bench.blame();
    bench.replica.sound(None, Time::MAX);
    assert_eq!(bench.committed(), []);
    // A replica that reaches a later view by its evidence.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.take(0, SyncMessage::Evidence(blames(N, 2)));
    bench.pass(delta(4));
    assert_eq!(bench.committed(), []);
}

/// Also after a restart, once the evidence is durable.
fn s11_left_view_has_no_votes<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    for restarts in [false, true] {
        let mut bench = Bench::<V>::new();
        bench.blame();
        if restarts {
            bench.replica.sync();
            bench.replica.crash().unwrap();
            bench.run();
        }
        assert!(bench.is_quiet());
        assert_eq!(bench.deliver(0, proposal(N, &blocks[0])), Err(Reject::Stale));
        assert_eq!(bench.votes(), []);
        // The whole wait begins when silence is over.
        bench.pass(delta(V::WAIT) - 1);
        assert_eq!(bench.view(), 1);
        bench.pass(1);
        assert_eq!(bench.view(), 2);
    }
}

/// A leader can equivocate in a view before any replica enters it. Among f + 1 blames is an honest one.
fn s11_equivocation_in_a_later_view_ends_nothing<V: Variant>() {
    let contradiction = |view: u64| {
        let statement = |number| {
            let header = header(N, view, GENESIS.1, GENESIS, number);
            Signed { body: LeaderStatement::Header(header), by: leads(N, view), signature: SIGNATURE }
        };
        SyncMessage::Evidence(conflict(statement(1), statement(2)))
    };
    let mut bench = Bench::<V>::new();
    bench.pass(delta(1));
    for view in [2, 3, 900] {
        assert_eq!(bench.deliver(4, contradiction(view)), Err(Reject::Early));
        assert_eq!((bench.view(), bench.is_quiet()), (1, false));
    }
    let asks = |bench: &mut Bench<V>| {
        bench.sent().into_iter().filter(|it| matches!(it, SyncMessage::Ask { .. })).count()
    };
    assert_eq!(asks(&mut bench), 1, "a peer may know more");
    bench.pass(delta(2));
    assert_eq!(bench.deliver(4, contradiction(3)), Err(Reject::Early));
    assert_eq!(asks(&mut bench), 0, "once in a view");
    // All may have been asked just before, for another reason.
    let mut other = Bench::<V>::new();
    other.pass(delta(1));
    other.take(4, SyncMessage::Certified(certificate(2, (Height(1), BlockId::ZERO), N)));
    let asked = [0, delta(1)].map(|ns| {
        other.pass(ns);
        let before = asks(&mut other);
        assert_eq!(other.deliver(4, contradiction(3)), Err(Reject::Early));
        (before, asks(&mut other))
    });
    assert_eq!(asked, [(1, 0), (0, 1)]);
    // A replica on its way to that view takes it.
    bench.blame();
    assert_eq!(bench.deliver(4, contradiction(3)), Err(Reject::Early));
    bench.take(4, contradiction(2));
    assert_eq!((bench.view(), bench.is_quiet()), (2, true));
    bench.pass(delta(V::WAIT));
    assert_eq!(bench.view(), 3);
}

fn s12_next_view_waits<V: Variant>() {
    let mut bench = Bench::<V>::new();
    bench.blame();
    bench.clear();
    bench.pass(delta(V::WAIT) - 1);
    assert_eq!((bench.view(), bench.said()), (1, vec![]));
    bench.pass(1);
    assert_eq!(bench.view(), 2);
    let status = SyncMessage::Status { view: View(2), lock: Lock::genesis() };
    bench.replica.settle();
    assert_eq!(to_one(bench.replica.sent()), [(1, status)]);
}

/// §19: a slowdown at the last moment would stay unnoticed.
fn s12_next_view_needs_fresh_answers<V: Variant>() {
    let mut bench = Bench::<V>::new();
    bench.pass(delta(3));
    bench.blame();
    let fresh = bench.now().plus(delta(V::WAIT));
    bench.replica.answer_sound(None, fresh.minus(1));
    bench.pass(delta(V::WAIT) + quarter());
    assert_eq!(bench.view(), 1);
    assert!(bench.replica.asked_fresh().contains(&fresh));
    bench.replica.sound(None, fresh.minus(1));
    assert_eq!(bench.view(), 1);
    bench.replica.sound(None, fresh);
    assert_eq!(bench.view(), 2);
}

/// §19: 10 Δ without doubt, then all are asked, then 2 Δ.
fn s12_no_view_is_entered_in_doubt<V: Variant>() {
    let mut bench = Bench::<V>::new();
    bench.pass(delta(3));
    bench.blame();
    let doubted = bench.now().plus(1);
    bench.replica.answer_sound(Some(doubted), Time::MAX);
    bench.clear();
    let asks =
        |bench: &mut Bench<V>| bench.sent().iter().filter(|it| matches!(it, SyncMessage::Ask { .. })).count();
    bench.pass(delta(10));
    assert_eq!((bench.view(), asks(&mut bench)), (1, 0));
    bench.pass(delta(1));
    assert_eq!((bench.view(), asks(&mut bench)), (1, 1));
    // Their answers count before anything is signed.
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut answer = stands(RecoveryStage::Running);
    answer.certificates = vec![certified(N, &blocks[0])];
    bench.take(0, SyncMessage::Answer(Box::new(answer)));
    bench.pass(delta(2) - 1);
    assert_eq!(bench.view(), 1);
    bench.pass(1);
    assert_eq!((bench.view(), bench.replica.status().locked), (2, Height(1)));
    // Doubt during the wait for answers restarts everything.
    let mut bench = Bench::<V>::new();
    bench.blame();
    bench.replica.answer_sound(Some(bench.now()), Time::MAX);
    bench.pass(delta(12));
    assert_eq!(asks(&mut bench), 1);
    bench.replica.answer_sound(Some(bench.now()), Time::MAX);
    bench.pass(delta(11));
    assert_eq!(bench.view(), 1);
    bench.pass(delta(4));
    assert_eq!(bench.view(), 2);
}

fn s12_early_messages_are_handled_on_entering<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    let base = end(&blocks[0]);
    let next = header(N, 2, base.1, base, 5);
    bench.grow(&blocks);
    let early = [
        (1, new_view(2, &lock(certified(N, &blocks[0])))),
        (4, voted(&next)),
        (4, first_vote(2, base)),
        (0, first_vote(2, base)),
    ];
    for (from, message) in early {
        assert_eq!(bench.deliver(from, message), Err(Reject::Early));
    }
    bench.clear();
    bench.next_view();
    let mut kinds: Vec<String> = bench.sent().iter().map(|it| it.kind().as_str().to_owned()).collect();
    kinds.sort();
    assert_eq!(kinds, ["evidence", "first-vote", "forward", "status", "vote"]);
}

/// §5: votes and certificates of the view are collected meanwhile. Otherwise a replica that learns of a view when it is over
/// would lack blocks that were committed there (Lemma 1c, Lemma 2c of `optsync`).
fn s12_votes_of_a_skipped_view_count<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let next = header(N, 2, GENESIS.1, GENESIS, 5);
    for peer in [0, 1, 2] {
        assert_eq!(bench.deliver(peer, voted(&next)), Err(Reject::Early));
    }
    bench.take(0, SyncMessage::Evidence(blames(N, 2)));
    bench.pass(delta(V::WAIT));
    assert_eq!((bench.view(), bench.replica.status().locked), (3, Height(1)));
}

fn s13_lock_is_the_highest_certificate_on_entering<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.grow(&blocks[..1]);
    bench.blame();
    // Certificates that arrive during the wait count.
    for voter in [0, 1, 2] {
        assert_eq!(bench.deliver(voter, voted(&blocks[1])), Err(Reject::Stale));
    }
    bench.clear();
    bench.pass(delta(V::WAIT));
    bench.replica.settle();
    let sent = to_one(bench.replica.sent());
    let [(1, SyncMessage::Status { view: View(2), lock })] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((lock.tip.block(), lock.view()), (id(&blocks[1]), View(1)));
    assert_eq!(claims_hold::<V>(&sent[0].1), Ok(()));
    // A certificate of a later view is higher, whatever its height.
    let low = header(N, 2, GENESIS.1, GENESIS, 9);
    bench.take(4, SyncMessage::Certified(certificate(2, end(&low), weak(N))));
    bench.next_view();
    assert_eq!(bench.replica.protocol().state.lock.tip.block(), id(&low));
}

/// §13, 3 and 9: and it is durable before the status reports it.
fn s13_lock_does_not_change_in_a_view<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.grow(&blocks[..1]);
    bench.blame();
    bench.pass(delta(V::WAIT));
    let lines = bench.replica.lines();
    let entered = lines.iter().rposition(|line| line == "record 1 h0").unwrap();
    assert!(entered < line(&lines, "hold One(1): status v2"), "{lines:#?}");
    bench.replica.fetched(blocks[1].block.clone());
    bench.take(4, SyncMessage::Certified(certified(N, &blocks[1])));
    assert_eq!(bench.replica.status().locked, Height(1));
    bench.replica.settle();
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(bench.replica.status().locked, Height(1));
    bench.run();
    assert_eq!(bench.replica.status().locked, Height(1));
    bench.take(1, new_view(2, &lock(certified(N, &blocks[0]))));
    assert_eq!(bench.first_votes(), [id(&blocks[0])]);
}

/// A certificate of the next view may arrive before it is entered. The highest one below still makes the lock.
fn s13_lock_survives_certificates_of_later_views<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.next_view();
    bench.take(4, SyncMessage::Certified(certificate(4, end(&blocks[0]), weak(N))));
    bench.replica.decide(Height(1), id(&blocks[0]));
    bench.next_view();
    let lock = &bench.replica.protocol().state.lock;
    assert_eq!((lock.view(), lock.tip.block()), (View(1), id(&blocks[0])));
}

fn status(view: u64, tip: Certificate) -> SyncMessage {
    SyncMessage::Status { view: View(view), lock: lock(tip) }
}

fn new_views(said: &[SyncMessage]) -> Vec<(View, BlockId)> {
    let tip = |it: &SyncMessage| {
        if let SyncMessage::NewView { view, lock } = it { Some((*view, lock.tip.block())) } else { None }
    };
    said.iter().filter_map(tip).collect()
}

fn s14_leader_extends_the_highest_lock<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    let leader = || {
        let mut bench = Bench::<V>::running(1, N);
        bench.grow(&blocks[..2]);
        bench.next_view();
        bench.clear();
        bench
    };
    let shows = |bench: &mut Bench<V>| {
        bench.pass(delta(2));
        new_views(&bench.said())
    };
    // The own lock is the highest.
    let mut bench = leader();
    bench.take(0, status(2, certified(N, &blocks[0])));
    bench.replica.fetched(blocks[2].block.clone());
    assert_eq!(shows(&mut bench), [(View(2), id(&blocks[1]))]);
    // The lock of another replica is the highest.
    let mut bench = leader();
    bench.replica.fetched(blocks[2].block.clone());
    bench.take(0, status(2, certified(N, &blocks[2])));
    bench.take(4, status(2, certified(N, &blocks[0])));
    assert_eq!(shows(&mut bench), [(View(2), id(&blocks[2]))]);
    // A status of another view does not count.
    let mut bench = leader();
    let later = certificate(2, end(&blocks[0]), weak(N));
    assert_eq!(bench.deliver(0, status(2, later)), Err(Reject::Invalid("lock of no earlier view")));
    let mut other = Bench::<V>::running(2, N);
    other.next_view();
    assert_eq!(other.deliver(0, status(2, certified(N, &blocks[0]))), Err(Reject::WrongSender));
    assert_eq!(other.deliver(0, status(1, Certificate::genesis(VOTE))), Err(Reject::Stale));
}

fn s14_leader_waits_2_delta_and_shows_one_lock<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::running(1, N);
    bench.grow(&blocks[..1]);
    bench.next_view();
    bench.clear();
    bench.replica.lines();
    bench.replica.fetched(blocks[1].block.clone());
    bench.pass(delta(2) - 1);
    assert_eq!(new_views(&bench.said()), []);
    bench.replica.advance(1);
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 2") < line(&lines, "hold All: new-view v2"), "{lines:#?}");
    assert_eq!(bench.sent(), []);
    // Later locks are too late; the same NEW-VIEW is sent after a restart.
    bench.take(0, status(2, certified(N, &blocks[1])));
    assert_eq!(new_views(&bench.said()), [(View(2), id(&blocks[0]))]);
    bench.replica.crash().unwrap();
    bench.run();
    bench.take(0, status(2, certified(N, &blocks[1])));
    bench.pass(delta(6));
    assert_eq!(new_views(&bench.said()), [(View(2), id(&blocks[0]))]);
}

/// §7: bodies of locks are asked for of the replicas that report them. Blocks of the last votes of an honest replica before
/// it left a view are known in the next one, on whatever branch: a leader picks from locks, and liars hold certificates back.
fn s14_leader_knows_the_blocks_of_all_locks<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::running(1, N);
    bench.grow(&blocks[..1]);
    bench.blame();
    let known = bench.replica.block_count();
    assert_eq!(bench.deliver(2, voted(&blocks[1])), Err(Reject::Stale));
    assert_eq!(bench.replica.block_count(), known + 1);
    // One block for each vote that counts, and no more.
    for number in 10..20 {
        let other = header(N, 1, GENESIS.1, end(&blocks[0]), number);
        let _ = bench.deliver(2, voted(&other));
    }
    assert_eq!(bench.replica.block_count(), known + 1);
    bench.pass(delta(V::WAIT));
    bench.replica.answer_otherwise(None);
    bench.clear();
    bench.take(4, status(2, certified(N, &blocks[1])));
    // Its sender and the voters are asked at once.
    assert_eq!(bench.replica.wanted(), [0, 2, 4].map(|peer| (id(&blocks[1]), r(peer))));
}

fn s15_first_vote_is_for_no_lower_base<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    let first_votes = |base: &Lock| {
        let mut bench = Bench::<V>::new();
        bench.grow(&blocks[..2]);
        bench.next_view();
        bench.replica.fetched(blocks[2].block.clone());
        bench.clear();
        bench.take(1, new_view(2, base));
        bench.first_votes()
    };
    assert_eq!(first_votes(&Lock::genesis()), []);
    assert_eq!(first_votes(&lock(certified(N, &blocks[0]))), []);
    assert_eq!(first_votes(&lock(certified(N, &blocks[1]))), [id(&blocks[1])]);
    assert_eq!(first_votes(&lock(certified(N, &blocks[2]))), [id(&blocks[2])]);
    // The first vote is for no base that conflicts with a decided block, whatever the lock.
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let mut bench = Bench::<V>::new();
    bench.replica.fetched(other.block.clone());
    bench.replica.fetched(blocks[0].block.clone());
    bench.replica.decide(Height(1), id(&blocks[0]));
    bench.next_view();
    bench.take(1, new_view(2, &lock(certified(N, &other))));
    assert_eq!(bench.first_votes(), []);
    // The higher view counts: view 2 extends genesis, view 3 a certified block of view 1 or view 2.
    let in_view_3 = |base: &Lock| {
        let mut bench = Bench::<V>::new();
        bench.next_view();
        let low = header(N, 2, GENESIS.1, GENESIS, 9);
        bench.replica.fetched(low.block.clone());
        bench.replica.fetched(blocks[0].block.clone());
        bench.replica.fetched(blocks[1].block.clone());
        bench.take(4, SyncMessage::Certified(certified(N, &low)));
        bench.next_view();
        bench.clear();
        bench.take(2, new_view(3, base));
        (bench.first_votes(), id(&low))
    };
    let low = header(N, 2, GENESIS.1, GENESIS, 9);
    assert_eq!(in_view_3(&lock(certified(N, &blocks[1]))).0, []);
    let (votes, expected) = in_view_3(&lock(certified(N, &low)));
    assert_eq!(votes, [expected]);
}

fn s15_first_vote_is_cast_once_and_durable<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let base = lock(certified(N, &blocks[0]));
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.clear();
    // Only the leader names the base of its view.
    assert_eq!(bench.deliver(4, new_view(2, &base)), Err(Reject::WrongSender));
    assert_eq!(bench.deliver(4, forward(N, 1, &base)), Err(Reject::Stale));
    bench.take(1, new_view(2, &base));
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 1") < line(&lines, "hold All: vote v2 h1"), "{lines:#?}");
    assert_eq!(bench.first_votes(), [id(&blocks[0])]);
    assert_eq!(bench.deliver(1, new_view(2, &base)), Err(Reject::Duplicate));
    assert_eq!(bench.deliver(4, forward(N, 2, &base)), Err(Reject::Duplicate));
    bench.replica.ready(id(&blocks[0]), Ready::Valid);
    assert_eq!(bench.first_votes(), []);
}

/// A leader shows another base to a replica that may have forgotten the first one.
fn s15_first_vote_survives_a_restart<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    for shown in [None, Some(&blocks[0]), Some(&blocks[1]), Some(&other)] {
        let mut bench = Bench::<V>::new();
        bench.grow(&blocks[..1]);
        bench.next_view();
        bench.replica.fetched(blocks[1].block.clone());
        bench.replica.fetched(other.block.clone());
        bench.take(1, new_view(2, &lock(certified(N, &blocks[0]))));
        bench.clear();
        bench.replica.crash().unwrap();
        let mut answer = stands(RecoveryStage::Running);
        answer.new_view = shown.map(|base| Signed {
            body: SyncNewView { view: View(2), lock: lock(certified(N, base)) },
            by: r(1),
            signature: SIGNATURE,
        });
        bench.answers(&answer);
        // The second NEW-VIEW conflicts with the first one, which is not forgotten.
        let is_same = shown.is_none_or(|base| *base == blocks[0]);
        let said = bench.said();
        let first = said.iter().filter(|it| matches!(it, SyncMessage::FirstVote { .. })).count();
        let handed_on = said.contains(&forward(N, 2, &lock(certified(N, &blocks[0]))));
        assert_eq!((first, handed_on), (usize::from(is_same), is_same), "{shown:?}");
        assert_eq!(
            (bench.is_quiet(), evidence_in(&said).len()),
            (!is_same, usize::from(!is_same)),
            "{shown:?}"
        );
        // It does not vote for a block above the other base either.
        let beside = header(N, 2, id(&other), end(&other), 7);
        let _ = bench.deliver(1, proposal(N, &beside));
        assert_eq!(bench.votes(), [], "{shown:?}");
    }
}

/// §13, 3: others with a higher lock may refuse.
fn s15_first_vote_begins_no_wait<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.take(1, new_view(2, &lock(certified(N, &blocks[0]))));
    bench.replica.settle();
    for voter in [0, 1] {
        bench.take(voter, first_vote(2, end(&blocks[0])));
    }
    bench.pass(delta(10));
    assert_eq!(bench.committed(), []);
    // A block above the base commits it.
    let next = header(N, 2, id(&blocks[0]), end(&blocks[0]), 5);
    bench.grow(std::slice::from_ref(&next));
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [(id(&next), CommitRule::Timer)]);
}

fn s15_base_is_asked_for_of_every_holder<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let base = lock(certified(N, &blocks[0]));
    let mut bench = Bench::<V>::new();
    bench.next_view();
    bench.clear();
    let mut signed_by_three = base.clone();
    signed_by_three.tip = Certificate::of(base.tip.statement, &[0, 1, ME].map(|id| (r(id), SIGNATURE)));
    bench.take(4, forward(N, 2, &signed_by_three));
    let of = |peers: &[u16]| peers.iter().map(|peer| (id(&blocks[0]), r(*peer))).collect::<Vec<_>>();
    assert_eq!(
        bench.replica.wanted(),
        of(&[0, 1, 1, 4]),
        "of its voters, of the leader, of replicas that show it"
    );
    assert_eq!(bench.deliver(2, forward(N, 2, &signed_by_three)), Err(Reject::Duplicate));
    assert_eq!(
        bench.replica.wanted(),
        of(&[0, 1, 1, 2]),
        "and the others again: the host knows which peers have refused"
    );
    assert_eq!(bench.first_votes(), []);
    bench.replica.fetched(blocks[0].block.clone());
    assert_eq!(bench.first_votes(), [id(&blocks[0])]);
    // A header alone is not enough, and an invalid block is no base.
    for ready in [None, Some(Ready::Invalid)] {
        let mut bench = Bench::<V>::new();
        bench.replica.answer(id(&blocks[0]), ready);
        bench.take(4, voted(&blocks[0]));
        bench.next_view();
        bench.take(1, new_view(2, &base));
        assert!(bench.replica.block(id(&blocks[0])).is_some());
        assert_eq!(bench.first_votes(), []);
    }
}

/// §6: also if it is refused, so that replicas with another NEW-VIEW notice.
fn s15_new_view_is_always_handed_on<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let low = lock(certified(N, &blocks[0]));
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.clear();
    bench.take(1, new_view(2, &low));
    assert_eq!(bench.replica.sent(), [(To::All, forward(N, 2, &low))], "at once");
    let _ = bench.deliver(4, forward(N, 2, &low));
    assert_eq!(bench.said(), [], "once, and no first vote");
    // The leader itself has sent it to all.
    let mut bench = Bench::<V>::running(1, N);
    bench.next_view();
    bench.replica.offer([payload(1)]);
    bench.pass(delta(2));
    let said = bench.said();
    assert!(!said.iter().any(|it| matches!(it, SyncMessage::Forward { .. })), "{said:?}");
}
