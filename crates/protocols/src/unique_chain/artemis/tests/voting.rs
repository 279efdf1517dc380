//! A6, A7, A9 and A13: choice and time of the own vote.

use super::*;
use quorate_consensus::Message as _;
use quorate_types::Time;

/// Returns the kinds of the own votes.
fn kinds(bench: &mut Bench) -> Vec<VoteKind> {
    bench.votes().into_iter().map(|vote| vote.kind).collect()
}

#[test]
fn a6_silence_is_flagged_and_endorsed_in_doubt() {
    for (doubt, kind) in [(None, VoteKind::NoProgress), (Some(Time::MAX), VoteKind::Endorse)] {
        let mut bench = Bench::voter(&[], &[]);
        bench.replica.answer_sound(doubt, Time::MAX);
        bench.skip_to(5, None);
        bench.pass(bench.patience(FIRST) - 1);
        assert_eq!(kinds(&mut bench), []);
        bench.pass(1);
        assert_eq!(kinds(&mut bench), [kind], "at the same moment: others would blame a later vote");
    }
}

/// The doubt counts that began since the coordinator was heard.
#[test]
fn a6_older_doubt_does_not_count() {
    let bench = Bench::voter(&[], &[]);
    let heard = bench.replica.now().plus(bench.patience(FIRST)).minus(silence());
    for (doubt, kind) in [(heard.minus(1), VoteKind::NoProgress), (heard, VoteKind::Endorse)] {
        let mut bench = Bench::voter(&[], &[]);
        bench.replica.answer_sound(Some(doubt), Time::MAX);
        bench.skip_to(5, None);
        bench.pass(bench.patience(FIRST));
        assert_eq!(kinds(&mut bench), [kind]);
    }
}

/// Without further votes the last f blocks before a pause would never be committed.
#[test]
fn a7_requests_that_are_not_final_are_endorsed_at_once() {
    let block = cblock(FIRST, ROOT, 1);
    let first = data(1, genesis(), &block);
    let mut votes = vec![first.clone()];
    votes.extend(again(2, first.place(), id(&block), &VoteKind::Endorse, 3));
    for (count, is_endorsed) in [(1, true), (2, true), (3, false), (4, false)] {
        let mut bench = Bench::voter(&votes[..count], std::slice::from_ref(&block));
        bench.skip_to(5, Some(&votes[count - 1]));
        let expected = if is_endorsed { vec![VoteKind::Endorse] } else { vec![] };
        assert_eq!(kinds(&mut bench), expected, "{count} voters");
        // The own vote is the third.
        let is_final = count >= 2;
        assert_eq!(bench.replica.protocol().chain.committed().height, Height(u64::from(is_final)));
    }
}

#[test]
fn a7_blocks_without_requests_are_not_endorsed() {
    let block = empty(FIRST, ROOT, 1);
    let first = data(1, genesis(), &block);
    let mut bench = Bench::voter(std::slice::from_ref(&first), &[block]);
    bench.skip_to(5, Some(&first));
    assert_eq!(kinds(&mut bench), []);
}

/// A block, evidence, silence: the first that is there decides.
#[test]
fn a9_new_blocks_come_before_evidence_and_evidence_before_flags() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let equivocates = |bench: &mut Bench| {
        bench.emit(&one);
        assert_eq!(bench.deliver(0, sends(&other)), Err(Reject::Equivocation));
    };
    let mut bench = Bench::new();
    equivocates(&mut bench);
    bench.pass(2 * silence());
    bench.skip_to(5, None);
    assert_eq!(kinds(&mut bench), [VoteKind::Data]);
    let mut bench = Bench::new();
    equivocates(&mut bench);
    let first = data(1, genesis(), &one);
    bench.grow(std::slice::from_ref(&first));
    bench.pass(2 * silence());
    bench.skip_to(5, Some(&first));
    let said = bench.votes();
    assert_eq!(said.len(), 1);
    assert_eq!((said[0].block, &said[0].kind), (id(&one), &evidence(&one, &other)));
    assert_eq!(bench.state(&said[0]).view, View(2), "the own vote opens the view");
}

#[test]
fn a9_one_vote_in_a_round_for_the_highest_block() {
    let blocks = stream(FIRST, ROOT, 3);
    let mut bench = Bench::voter(&[], &blocks[..2]);
    bench.skip_to(5, None);
    bench.emit(&blocks[2]);
    bench.pass(2 * silence());
    let said = bench.votes();
    assert_eq!(
        said.iter().map(|vote| (vote.round, vote.block)).collect::<Vec<_>>(),
        [(View(5), id(&blocks[1]))]
    );
    assert_eq!((said[0].parent, said[0].skips), (genesis(), skips_digest(&skips(0, 5))));
    // A new block leads to a vote when the round has begun before.
    let mut bench = Bench::voter(&[], &[]);
    bench.skip_to(5, None);
    assert_eq!(bench.votes(), []);
    bench.emit(&blocks[0]);
    assert_eq!(kinds(&mut bench), [VoteKind::Data]);
}

#[test]
fn a9_only_the_voter_of_the_round_votes() {
    let blocks = stream(FIRST, ROOT, 2);
    let mut bench = Bench::voter(&[], &blocks);
    for round in 2..5 {
        bench.skip_to(round, None);
        bench.pass(silence());
        assert_eq!(bench.votes(), [], "round {round}");
    }
}

#[test]
fn a9_vote_is_durable_before_it_leaves() {
    let blocks = stream(FIRST, ROOT, 1);
    let mut bench = Bench::voter(&[], &blocks);
    bench.skip_to(5, None);
    assert_eq!(votes_in(&bench.replica.sent()), []);
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 1") < line(&lines, "hold"), "{lines:#?}");
    assert_eq!(bench.round(), 5, "nor does it count");
    assert_eq!(bench.votes().len(), 1);
    assert_eq!(bench.round(), 6);
}

/// Pitfall 4, script `timer-without-S`: an honest voter waits S for a block, and only then flags.
#[test]
fn a13_round_lasts_long_enough_for_the_voters_wait() {
    let mut bench = Bench::new();
    bench.skip_to(3, None);
    let wait = bench.replica.timer(Timer::Round).unwrap().since(bench.replica.now());
    assert_eq!(wait, delta(4) + silence());
    let blames =
        |bench: &mut Bench| bench.said().iter().filter(|(_, it)| it.kind().as_str() == "blame").count();
    bench.pass(wait - 1);
    assert_eq!(blames(&mut bench), 0);
    bench.pass(1);
    assert_eq!(blames(&mut bench), 1);
}

/// §7: others blame a voter whose vote comes later than S. The coordinator may be Byzantine, and send its own copies of blocks that
/// votes have named, one after the other.
#[test]
fn a9_voter_waits_for_s_at_most() {
    let first = empty(FIRST, ROOT, 1);
    let second = empty(FIRST, head(&first), 2);
    let mut bench = Bench::new();
    bench.take(2, hands_on(&[first.clone(), second.clone()]));
    bench.grow(&[data(4, genesis(), &second)]);
    bench.pass(silence() / 2);
    bench.emit(&first);
    assert_eq!(bench.patience(FIRST), silence());
    bench.pass(silence() - silence() / 2 - 1);
    bench.emit(&second);
    assert_eq!(kinds(&mut bench), []);
    bench.pass(1);
    assert_eq!(kinds(&mut bench), [VoteKind::Endorse]);
}
