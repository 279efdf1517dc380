//! Tests of the rules of HotStuff-2.

use super::kit::{Bench, MS, after, follows, on, qc, r, round_robin};
use super::shared;
use crate::chained::TIMEOUT;
use crate::chained::{ChainedMessage, Content, HotStuff2, Timer, VOTE};
use quorate_consensus::parts::timeouts::timeout_statement;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Auth, Certificate, Message, To};
use quorate_types::{Height, View};

#[test]
fn t1_commits_need_consecutive_views() {
    shared::commits_need_consecutive_views::<HotStuff2>();
}

/// A replica that has voted for the block of view 3, and so is locked in view 2.
fn locked() -> Bench<HotStuff2> {
    let mut bench = Bench::<HotStuff2>::new();
    for view in [1, 2, 3] {
        bench.block_in(view);
    }
    bench.sent();
    bench
}

/// Delivers the proposal of view 5 on the certificate of a block of the chain. Returns whether it gets a vote.
fn gets_vote(bench: &mut Bench<HotStuff2>, parent: usize) -> bool {
    let parent = qc(&bench.blocks[parent]);
    let block = on(&parent, parent.view().0 + 1, 5);
    let proof = after(&parent, 4, [0; 3]);
    bench.deliver(r(1), Content::Propose(block.clone(), proof)).unwrap();
    let votes = bench.votes();
    assert!(votes.is_empty() || votes == [BlockVote { view: View(5), block: block.id() }]);
    !votes.is_empty()
}

#[test]
fn t2_vote_needs_a_certificate_not_older_than_the_lock() {
    assert!(!gets_vote(&mut locked(), 0));
    assert!(gets_vote(&mut locked(), 1), "as old as the lock");
    // The record of the vote has the lock.
    let mut bench = locked();
    bench.replica.crash().unwrap();
    bench.sent();
    assert!(!gets_vote(&mut bench, 0));
}

/// A certificate that the replica learns without a vote does not raise its lock.
#[test]
fn t3_vote_alone_raises_the_lock() {
    let mut bench = Bench::<HotStuff2>::new();
    bench.block_in(1);
    let block = bench.next(2);
    bench.replica.fetched(block.clone());
    bench.certify(&block);
    bench.deliver(r(0), Content::Advance(follows(&bench.qc.clone()))).unwrap();
    bench.sent();
    assert_eq!(bench.view(), View(3));
    assert!(gets_vote(&mut bench, 0), "the lock is that of genesis");
}

/// The leader of view 2 after a failed view 1, with requests.
fn leader() -> Bench<HotStuff2> {
    let mut bench = Bench::<HotStuff2>::of(2);
    bench.busy();
    report(&mut bench, 0);
    assert_eq!(bench.view(), View(2));
    bench
}

/// A replica sends the proof of view 2 with the certificate of genesis.
fn report(bench: &mut Bench<HotStuff2>, from: u16) {
    bench.deliver(r(from), Content::Advance(after(&Certificate::genesis(VOTE), 1, [0; 3]))).unwrap();
}

fn has_proposed(bench: &mut Bench<HotStuff2>) -> bool {
    bench.sent().iter().any(|content| matches!(content, Content::Propose(..)))
}

#[test]
fn t4_leader_waits_for_a_third_of_the_timer() {
    let mut bench = leader();
    assert!(!has_proposed(&mut bench));
    let wait = bench.replica.timer(Timer::LeaderWait).unwrap().since(bench.replica.now());
    assert_eq!(wait, 400 * MS / 3);
    bench.replica.advance(wait);
    assert!(has_proposed(&mut bench));
}

#[test]
fn t4_leader_proposes_once_all_have_reported() {
    let mut bench = leader();
    report(&mut bench, 0);
    report(&mut bench, 1);
    assert!(!has_proposed(&mut bench), "replica 3 is missing");
    report(&mut bench, 3);
    assert!(has_proposed(&mut bench));
}

#[test]
fn t4_leader_does_not_wait_with_the_certificate_of_the_view_before() {
    let mut bench = leader();
    let block = bench.next(1);
    bench.replica.fetched(block.clone());
    bench.deliver(r(0), Content::Advance(follows(&qc(&block)))).unwrap();
    assert!(has_proposed(&mut bench));
}

/// A restarted leader does not know whether its certificate is high enough.
#[test]
fn t4_leader_waits_after_a_restart() {
    let mut bench = leader();
    for from in [0, 1] {
        let proof = after(&Certificate::genesis(VOTE), 1, [0; 3]);
        bench.deliver(r(from), Content::Timeout(View(2), proof, None)).unwrap();
    }
    // Its own timeout has recorded view 2.
    bench.replica.sync();
    bench.replica.crash().unwrap();
    bench.busy();
    assert_eq!((bench.view(), has_proposed(&mut bench)), (View(2), false));
    assert!(bench.replica.timer(Timer::LeaderWait).is_some());
}

#[test]
fn t5_replica_reports_to_the_leader_once() {
    let mut bench = Bench::<HotStuff2>::new();
    report(&mut bench, 0);
    let sent = bench.replica.sent();
    let is_report = |to: To, content: Content| to == To::One(r(2)) && matches!(content, Content::Advance(_));
    assert_eq!(sent.len(), 1);
    assert!(sent.into_iter().all(|(to, message)| is_report(to, message.into())));
    report(&mut bench, 1);
    assert_eq!(bench.sent(), []);
}

#[test]
fn t5_replica_does_not_report_after_the_leaders_proposal() {
    let mut bench = Bench::<HotStuff2>::new();
    let genesis = Certificate::genesis(VOTE);
    let block = on(&genesis, 1, 2);
    bench.deliver(r(2), Content::Propose(block.clone(), after(&genesis, 1, [0; 3]))).unwrap();
    let vote = BlockVote { view: View(2), block: block.id() };
    assert_eq!(bench.sent(), [Content::Vote(vote)]);
    assert_eq!(block.height, Height(1));
}

#[test]
fn t6_signature_of_a_timeout_covers_the_view_alone() {
    let first = on(&Certificate::genesis(VOTE), 1, 3);
    let timeout = Content::Timeout(View(4), follows(&qc(&first)), None);
    let message = ChainedMessage::<HotStuff2>::from(timeout);
    assert_eq!(message.auth(), Auth::Signed(timeout_statement(TIMEOUT, View(4), View::ZERO)));
}

/// Timeouts of a quorum list no certificate, whatever certificates they carry.
#[test]
fn t6_timeouts_list_no_certificates() {
    let mut bench = Bench::<HotStuff2>::with(3, &round_robin::<HotStuff2>());
    bench.busy();
    bench.block_in(1);
    bench.deliver(r(0), Content::Advance(follows(&bench.qc.clone()))).unwrap();
    bench.expire();
    bench.sent();
    for from in [0, 1] {
        bench.deliver(r(from), Content::Timeout(View(2), bench.proof(2), None)).unwrap();
    }
    let sent = bench.sent();
    let timeouts = sent.iter().find_map(|content| match content {
        Content::Advance(proof) => proof.timeouts.clone(),
        _ => None,
    });
    assert_eq!(timeouts.unwrap().high(), View::ZERO);
}
