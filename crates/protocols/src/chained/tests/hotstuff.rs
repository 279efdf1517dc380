//! Tests of the rules of chained HotStuff.

use super::kit::{Bench, after, follows, on, qc, r, round_robin};
use super::shared;
use crate::chained::hotstuff::HotStuffParams;
use crate::chained::{Chained, ChainedParams, Content, HotStuff, Rules as _, VOTE};
use quorate_consensus::harness::Setup;
use quorate_consensus::parts::pacemaker::Complaints;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Certificate, To};
use quorate_types::{Height, View};

#[test]
fn h2_commits_need_consecutive_views() {
    shared::commits_need_consecutive_views::<HotStuff>();
}

/// The lock is the head of a certified two-chain of any views, and never falls.
#[test]
fn h1_lock_rises_with_two_chains() {
    let mut bench = Bench::<HotStuff>::new();
    let mut locks = Vec::new();
    for view in [1, 2, 5, 6, 7] {
        bench.block_in(view);
        locks.push(bench.replica.status().locked.0);
    }
    // A block carries its parent's certificate, which locks the parent's parent.
    assert_eq!(locks, [0, 0, 1, 2, 3]);
    // An older certificate has no effect.
    let old = follows(&qc(&bench.blocks[2]));
    let _ = bench.deliver(r(0), Content::Advance(old));
    assert_eq!(bench.replica.status().locked, Height(3));
}

/// A replica with a lock on the block of view 2. Views 4 and 5 fail; then comes a proposal that conflicts with the lock.
fn locked() -> Bench<HotStuff> {
    let mut bench = Bench::<HotStuff>::new();
    for view in [1, 2, 3, 4] {
        bench.block_in(view);
    }
    assert_eq!(bench.replica.status().locked, Height(2));
    bench.sent();
    bench
}

#[test]
fn h4_no_vote_for_a_block_that_conflicts_with_the_lock() {
    let mut bench = locked();
    // Its certificate is that of view 1, which is older than the lock.
    let first = qc(&bench.blocks[0]);
    let conflicting = on(&first, 2, 6);
    let proof = after(&first, 5, [1, 1, 1]);
    bench.deliver(r(2), Content::Propose(conflicting, proof)).unwrap();
    assert_eq!(bench.votes(), []);
    // With a certificate newer than the lock it gets a vote: no block above the lock can have been committed.
    let mut bench = locked();
    let first = qc(&bench.blocks[0]);
    let other = on(&first, 2, 6);
    bench.replica.fetched(other.clone());
    let certified = qc(&other);
    let conflicting = on(&certified, 3, 8);
    let proof = after(&certified, 7, [6, 6, 6]);
    bench.deliver(r(0), Content::Propose(conflicting.clone(), proof)).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(8), block: conflicting.id() }]);
    // A block that extends the lock gets a vote, even with an old certificate.
    let mut bench = locked();
    let third = qc(&bench.blocks[2]);
    let extends = on(&third, 4, 6);
    let proof = after(&third, 5, [3, 3, 3]);
    bench.deliver(r(2), Content::Propose(extends.clone(), proof)).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(6), block: extends.id() }]);
}

/// The certificate in a proposal locks as soon as the headers below are known, and before the vote.
#[test]
fn h3_lock_precedes_the_vote() {
    let mut bench = Bench::<HotStuff>::new();
    let genesis = Certificate::genesis(VOTE);
    let one = on(&genesis, 1, 1);
    let two = on(&qc(&one), 2, 2);
    let three = on(&qc(&two), 3, 4);
    let proof = after(&qc(&two), 3, [2, 2, 2]);
    bench.replica.answer(three.id(), None);
    bench.deliver(r(0), Content::Propose(three.clone(), proof)).unwrap();
    assert_eq!((bench.votes(), bench.replica.status().locked), (vec![], Height(0)), "headers are missing");
    bench.replica.fetched(one.clone());
    bench.replica.fetched(two);
    bench.replica.ready(three.id(), quorate_consensus::Ready::Valid);
    assert_eq!(bench.votes(), [BlockVote { view: View(4), block: three.id() }]);
    // The record of the vote has the lock.
    bench.replica.lose_blocks();
    bench.replica.crash().unwrap();
    assert_eq!(bench.replica.status().locked, one.height);
}

/// Each further expiry adds one receiver to the next leader.
#[test]
fn h5_complaints_go_to_one_more_replica_with_each_expiry() {
    let own = HotStuffParams { complaints: Complaints::Linear };
    let params = ChainedParams { own, ..round_robin::<HotStuff>() };
    let mut bench = Bench::<HotStuff>::with(3, &params);
    bench.busy();
    // The next leader is replica 2. The second receiver is the sender itself, and its own copy needs none.
    for receivers in [&[2][..], &[2], &[0, 2]] {
        bench.expire();
        bench.replica.settle();
        let to: Vec<To> = bench.replica.sent().into_iter().map(|(to, _)| to).collect();
        assert_eq!(to, [To::Some(receivers.iter().map(|id| r(*id)).collect())]);
    }
}

/// §16, among six, f = 1: with linear complaints the second expiry reaches an honest collector.
#[test]
fn linear_complaints_reach_an_honest_collector_at_their_f_plus_1st_expiry() {
    let committee = Setup::of::<Chained<HotStuff>>(6).committee::<Chained<HotStuff>>();
    let expiries = [Complaints::Broadcast, Complaints::Linear].map(|complaints| {
        let params = ChainedParams { own: HotStuffParams { complaints }, ..ChainedParams::default() };
        HotStuff::failed_turns(&params, &committee).expiries
    });
    assert_eq!(expiries, [1, 2]);
}
