//! §16, script `restart-blames`: a replica that recovers blames no voter whose vote it has forgotten. The rules of recovery are
//! those of the engine (`u14_*`).

use super::*;

fn answer(stage: RecoveryStage, round: u64, tip: Option<&Vote>, last: Option<&Vote>) -> Message {
    UniqueMessage::Answer(Box::new(Answer {
        incarnation: Incarnation::ZERO,
        stage,
        proof: proof(round, tip),
        last: last.map(frame),
    }))
}

/// Returns the rounds that a replica blames.
fn blamed_in(said: &[(To, Message)]) -> Vec<u64> {
    let round = |(_, it): &(To, Message)| {
        if let UniqueMessage::Blame(proof) = it { Some(proof.round.0) } else { None }
    };
    said.iter().filter_map(round).collect()
}

/// Returns the time of a round until its voter is blamed.
fn wait() -> u64 {
    delta(4) + silence()
}

#[test]
fn u14_votes_in_answers_count_before_any_blame() {
    let block = cblock(FIRST, ROOT, 1);
    let mut votes = vec![data(1, genesis(), &block)];
    votes.extend(again(2, votes[0].place(), id(&block), &VoteKind::Endorse, 1));
    votes.push(vote(3, votes[1].place(), id(&block), VoteKind::NoProgress));
    let mut bench = Bench::new();
    bench.emit(&block);
    bench.grow(&votes[..1]);
    bench.replica.sync();
    bench.grow(&votes[1..]);
    // The last two votes are lost with the power.
    bench.replica.crash_after(0).unwrap();
    bench.pass(2 * wait());
    assert_eq!(blamed_in(&bench.said()), [0; 0], "a silent replica blames nobody");
    bench.take(0, answer(RecoveryStage::Running, 2, Some(&votes[0]), None));
    bench.take(1, answer(RecoveryStage::Running, 3, Some(&votes[1]), None));
    bench.take(2, answer(RecoveryStage::Running, 3, Some(&votes[1]), Some(&votes[2])));
    bench.take(3, answer(RecoveryStage::Running, 1, None, None));
    assert!(!bench.replica.protocol().recovery.is_silent() && bench.is_accepted(&votes[2]));
    assert_eq!(bench.round(), 4);
    bench.pass(wait() - 1);
    assert_eq!(blamed_in(&bench.said()), [0; 0], "the whole wait follows silence");
    bench.pass(1);
    assert_eq!(blamed_in(&bench.said()), [4]);
}

/// §4: blames promise nothing, so no record keeps them. The round of a blame before the restart begins with a whole wait.
#[test]
fn u14_replica_that_has_blamed_blames_again_after_a_whole_wait_alone() {
    let mut bench = Bench::new();
    bench.skip_to(4, None);
    bench.pass(wait());
    assert_eq!(blamed_in(&bench.said()), [4]);
    bench.replica.crash().unwrap();
    bench.run();
    bench.skip_to(4, None);
    bench.pass(wait() - 1);
    assert_eq!(blamed_in(&bench.said()), [0; 0]);
    bench.pass(1);
    assert_eq!(blamed_in(&bench.said()), [4]);
}
