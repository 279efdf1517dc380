//! S16, R14: recovery.

use super::*;
use quorate_consensus::LinkEvent;

every_form! {
    s16_all_vote_once_all_have_answered / r14_all_vote_once_all_have_answered: all_answer;
    s16_f_plus_1_running_peers_are_followed / r14_f_plus_1_running_peers_are_followed: followed;
    s16_missing_peer_is_waited_for / r14_missing_peer_is_waited_for: missing;
    s16_status_is_repeated_after_a_crash / r14_status_is_repeated_after_a_crash: status;
    s16_gaps_with_more_than_f_peers_silence / r14_gaps_with_more_than_f_peers_silence: gaps;
    s16_answers_to_another_incarnation_are_stale / r14_answers_to_another_incarnation_are_stale: stale;
}

fn announced<M: Message>(
    sent: Vec<(To, M)>,
    stage: impl Fn(&M) -> Option<RecoveryStage>,
) -> Vec<RecoveryStage> {
    let to_all = sent.iter().filter(|(to, _)| *to == To::All);
    to_all.filter_map(|(_, message)| stage(message)).collect()
}

fn all_answer<F: TestForm>() {
    let mut bench = Bench::<F>::opened(F::ME, N);
    let peers = bench.peers();
    let (last, first) = peers.split_last().unwrap();
    for peer in first {
        bench.report(*peer, RecoveryStage::Silent);
        assert_eq!(bench.stage(), RecoveryStage::Silent);
    }
    bench.report(first[2], RecoveryStage::Silent);
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    bench.report(*last, RecoveryStage::Silent);
    bench.replica.advance(delta(2) - 1);
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    bench.replica.sent();
    bench.replica.advance(1);
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    assert_eq!(announced(bench.replica.sent(), F::stage_in), [RecoveryStage::Voting], "all receive it");
    for peer in first {
        bench.report(*peer, RecoveryStage::Voting);
        assert_eq!(bench.stage(), RecoveryStage::Voting);
    }
    bench.report(*last, RecoveryStage::Running);
    assert_eq!(bench.stage(), RecoveryStage::Running);
    assert_eq!(announced(bench.replica.sent(), F::stage_in), [RecoveryStage::Running]);
}

fn followed<F: TestForm>() {
    let mut bench = Bench::<F>::opened(F::ME, N);
    for peer in [0, 1] {
        bench.report(peer, RecoveryStage::Running);
    }
    bench.pass(delta(2));
    assert_eq!(bench.stage(), RecoveryStage::Silent, "f may lie");
    bench.replica.link(r(2), LinkEvent::Back);
    bench.report(2, RecoveryStage::Running);
    bench.pass(delta(2) - 1);
    assert_eq!(bench.stage(), RecoveryStage::Silent, "2 delta since the last one was asked");
    bench.pass(1);
    assert_eq!(bench.stage(), RecoveryStage::Running);
}

/// A cold start without two replicas.
fn missing<F: TestForm>() {
    let wait = SynchronyParams::default().boot_wait_ns();
    let mut bench = Bench::<F>::opened(F::ME, N);
    for peer in [0, 1] {
        bench.report(peer, RecoveryStage::Silent);
    }
    bench.pass(wait + delta(2) - 1);
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    bench.pass(1);
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    bench.pass(wait - 1);
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    bench.pass(1);
    assert_eq!(bench.stage(), RecoveryStage::Running);
    // Fewer answers are never enough.
    let mut bench = Bench::<F>::opened(F::ME, N);
    bench.report(0, RecoveryStage::Silent);
    bench.pass(3 * wait);
    assert_eq!(bench.stage(), RecoveryStage::Silent);
}

fn status<F: TestForm>() {
    let mut bench = Bench::<F>::new();
    bench.next_view();
    let statuses = |bench: &mut Bench<F>| bench.said().into_iter().filter(F::is_status).collect::<Vec<_>>();
    let first = statuses(&mut bench);
    assert_eq!(first.len(), 1);
    bench.replica.crash().unwrap();
    assert_eq!(bench.view(), 2);
    bench.run();
    let texts = |messages: Vec<F::Message>| messages.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>();
    assert_eq!(texts(statuses(&mut bench)), texts(first));
}

fn gaps<F: TestForm>() {
    let block = F::blocks(1).remove(0);
    let mut bench = Bench::<F>::new();
    bench.clear();
    for peer in [0, 1] {
        bench.replica.link(r(peer), LinkEvent::Gap);
        assert!(bench.sent().iter().any(F::is_question), "a peer with a gap is asked");
    }
    bench.report(0, RecoveryStage::Running);
    bench.replica.link(r(2), LinkEvent::Gap);
    assert_eq!(bench.stage(), RecoveryStage::Running, "f liars must silence nobody");
    bench.replica.link(r(*bench.peers().last().unwrap()), LinkEvent::Gap);
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    bench.clear();
    bench.take(block.block.proposer.0, block.proposal);
    bench.pass(delta(6) + heartbeat());
    assert_eq!(bench.own_statements().len(), 0);
    bench.answers(&F::answer_with(Incarnation::ZERO, RecoveryStage::Running));
    assert_eq!(bench.stage(), RecoveryStage::Running);
    let votes = bench.own_statements().into_iter().filter(|it| it.kind() == super::super::VOTE);
    assert_eq!(votes.count(), 1, "it votes for the block that has arrived meanwhile");
}

fn stale<F: TestForm>() {
    let mut bench = Bench::<F>::new();
    bench.replica.crash().unwrap();
    let answer =
        |incarnation| F::answer_message(F::answer_with(Incarnation(incarnation), RecoveryStage::Running));
    for peer in bench.peers() {
        assert_eq!(bench.deliver(peer, answer(1)), Err(Reject::Stale));
    }
    bench.pass(delta(3));
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    for peer in bench.peers() {
        bench.take(peer, answer(2));
    }
    assert_eq!(bench.stage(), RecoveryStage::Running);
}
