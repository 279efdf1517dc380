//! A11 and A12: silence of the coordinator.

use super::*;
use quorate_consensus::Ready;

#[test]
fn a11_direct_block_ends_the_silence() {
    let blocks = stream(FIRST, ROOT, 2);
    let mut bench = Bench::new();
    for block in &blocks {
        bench.pass(delta(3));
        assert!(bench.patience(FIRST) < silence());
        bench.emit(block);
        assert_eq!(bench.patience(FIRST), heartbeat() + delta(1));
    }
    // A copy of the same block is no new one.
    bench.pass(delta(3));
    let _ = bench.deliver(0, sends(&blocks[1]));
    assert_eq!(bench.patience(FIRST), silence() - delta(3));
}

/// Pitfall 6, script `fetched-then-direct`.
#[test]
fn a11_fetched_block_does_not_and_its_direct_copy_does() {
    let block = cblock(FIRST, ROOT, 1);
    let mut bench = Bench::new();
    bench.pass(delta(3));
    let before = bench.patience(FIRST);
    bench.take(2, hands_on(std::slice::from_ref(&block)));
    assert_eq!(bench.patience(FIRST), before);
    bench.emit(&block);
    assert_eq!(bench.patience(FIRST), silence());
}

/// The link from the coordinator may be the slowest one within Δ: then votes commit each block before its direct copy arrives.
#[test]
fn a11_direct_copy_of_a_committed_block_ends_the_silence() {
    let block = cblock(FIRST, ROOT, 1);
    let first = data(1, genesis(), &block);
    let mut votes = vec![first.clone()];
    votes.extend(again(2, first.place(), id(&block), &VoteKind::Endorse, 2));
    let mut bench = Bench::new();
    bench.take(2, hands_on(std::slice::from_ref(&block)));
    bench.grow(&votes);
    assert_eq!(bench.committed(), [id(&block)]);
    bench.pass(delta(1));
    let _ = bench.deliver(0, sends(&block));
    assert_eq!(bench.patience(FIRST), silence());
    // A coordinator that is not heard at all is flagged.
    bench.skip_to(5, Some(&votes[2]));
    bench.pass(silence());
    assert_eq!(bench.votes().iter().map(|vote| &vote.kind).collect::<Vec<_>>(), [&VoteKind::NoProgress]);
}

#[test]
fn a11_block_without_its_body_ends_no_silence_before_the_body_arrives() {
    let block = cblock(FIRST, ROOT, 1);
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.pass(delta(3));
    let before = bench.patience(FIRST);
    bench.emit(&block);
    assert_eq!(bench.patience(FIRST), before);
    bench.replica.ready(id(&block), Ready::Valid);
    assert_eq!(bench.patience(FIRST), silence());
}

/// Nor does a block of another branch: no vote of this replica could name it.
#[test]
fn a11_block_beside_the_own_branch_ends_no_silence() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let above = cblock(FIRST, head(&other), 3);
    let mut bench = Bench::new();
    bench.emit(&one);
    bench.pass(delta(3));
    let before = bench.patience(FIRST);
    let _ = bench.deliver(0, sends(&other));
    let _ = bench.deliver(0, sends(&above));
    assert_eq!(bench.patience(FIRST), before);
}

#[test]
fn a12_new_coordinator_has_4_delta_for_its_first_block() {
    let votes = again(1, genesis(), BlockId::ZERO, &VoteKind::NoProgress, 3);
    let mut bench = Bench::new();
    bench.grow(&votes);
    let second = In { view: 2, anchor: votes[2].id() };
    assert_eq!(bench.patience(second), delta(4));
    bench.skip_to(5, Some(&votes[2]));
    bench.pass(delta(4) - 1);
    assert_eq!(bench.votes(), []);
    bench.pass(1);
    let said = bench.votes();
    assert_eq!(
        said.iter().map(|vote| (vote.view, &vote.kind)).collect::<Vec<_>>(),
        [(View(2), &VoteKind::NoProgress)]
    );
}

#[test]
fn a12_coordinators_have_their_time_after_a_recovery() {
    let mut bench = Bench::new();
    bench.skip_to(5, None);
    bench.pass(silence() - 1);
    bench.replica.crash().unwrap();
    bench.replica.advance(delta(10));
    assert_eq!(bench.votes(), [], "a silent replica has no suspicion");
    bench.run();
    let left = bench.patience(FIRST);
    assert!(left > silence() - delta(3), "{left}");
    bench.clear();
    bench.skip_to(5, None);
    bench.pass(left - 1);
    assert_eq!(bench.votes(), []);
    bench.pass(1);
    assert_eq!(bench.votes().len(), 1);
}
