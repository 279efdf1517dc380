//! S1 to S4: votes, certificates, and conflicting statements of a leader.

use super::*;
use crate::sync_hotstuff::replica::{WINDOWS_AHEAD, WINDOWS_VOTED};
use quorate_consensus::Ready;

both! {
    s1_certificate_needs_f_plus_1_distinct_voters;
    s1_votes_count_for_one_block_and_one_view;
    s1_votes_count_before_the_body_arrives;
    s2_votes_follow_certificates_of_this_view;
    s2_one_vote_for_each_height_in_order;
    s2_no_vote_before_a_block_is_ready_and_valid;
    s2_vote_ignores_the_lock;
    s2_replica_that_missed_a_header_votes_for_the_next;
    s2_votes_of_a_view_are_on_one_chain;
    s2_block_that_conflicts_with_a_certified_one_is_not_voted_for;
    s2_height_that_others_may_not_handle_is_not_voted_for;
    s2_voting_continues_after_votes_in_vain;
    s2_kept_messages_are_handled_before_the_first_vote;
    s2_bodies_are_asked_for_of_every_holder;
    s2_bodies_are_asked_for_once_and_in_time;
    s2_block_above_nothing_certified_is_not_fetched;
    s2_missing_certificate_is_asked_for;
    s2_lacking_peer_receives_a_certificate_once;
    s3_vote_is_durable_before_it_leaves;
    s3_vote_that_waits_for_the_disk_is_withdrawn;
    s3_vote_hands_the_header_on;
    s4_conflicting_statements_end_the_view;
    s4_conflicts_come_before_bodies_and_certificates;
    s4_statements_without_a_conflict_end_nothing;
}

fn s1_certificate_needs_f_plus_1_distinct_voters<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.propose(&blocks[0]);
    // The next header has no certificate yet: the replica waits for one.
    bench.take(1, voted(&blocks[1]));
    bench.take(0, voted(&blocks[0]));
    assert_eq!(bench.deliver(0, voted(&blocks[0])), Err(Reject::Duplicate));
    assert_eq!(bench.votes(), [id(&blocks[0])], "the own vote and that of replica 0 are two");
    bench.take(2, voted(&blocks[0]));
    assert_eq!(bench.votes(), [id(&blocks[1])]);
    // The own vote counts when its own copy has arrived, and once.
    let mut bench = Bench::<V>::new();
    bench.propose(&blocks[0]);
    bench.take(1, voted(&blocks[1]));
    bench.take(0, voted(&blocks[0]));
    bench.take(2, voted(&blocks[0]));
    let next = format!("hold All: vote v1 h2 {:?}", id(&blocks[1]));
    assert!(!bench.replica.lines().contains(&next), "the own vote is not durable");
    bench.replica.settle();
    assert!(bench.replica.lines().contains(&next));
}

fn s1_votes_count_for_one_block_and_one_view<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    bench.propose(&blocks[0]);
    bench.take(1, voted(&blocks[1]));
    bench.replica.settle();
    // A vote for another block at that height counts for that block, whatever other votes its voter sends.
    bench.take(2, first_vote(1, end(&other)));
    bench.take(0, voted(&blocks[0]));
    assert_eq!(bench.deliver(2, voted(&blocks[0])), Err(Reject::Equivocation));
    assert!(bench.replica.lines().iter().any(|line| line == "accuse 2"));
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    // Two votes of the view before and one of this view are no certificate.
    bench.next_view();
    bench.take(1, new_view(2, &lock(certified(N, &blocks[0]))));
    let third = header(N, 2, id(&blocks[0]), end(&blocks[0]), 3);
    bench.take(1, voted(&third));
    bench.clear();
    bench.take(1, first_vote(2, end(&blocks[0])));
    assert_eq!(bench.votes(), []);
    bench.take(4, first_vote(2, end(&blocks[0])));
    assert_eq!(bench.votes(), [id(&third)]);
}

/// §13, 4.
fn s1_votes_count_before_the_body_arrives<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.replica.answer_otherwise(None);
    bench.vote([0, 1, 2], &blocks[0]);
    bench.take(0, voted(&blocks[1]));
    assert_eq!(bench.votes(), []);
    bench.replica.ready(id(&blocks[0]), Ready::Valid);
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    bench.replica.ready(id(&blocks[1]), Ready::Valid);
    assert_eq!(bench.votes(), [id(&blocks[1])]);
}

fn s2_votes_follow_certificates_of_this_view<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    bench.vote([0], &blocks[1]);
    bench.vote([0], &blocks[2]);
    assert_eq!(bench.votes(), []);
    bench.propose(&blocks[0]);
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    // Each proposal brings the certificate of its parent.
    bench.propose(&blocks[1]);
    assert_eq!(bench.votes(), [id(&blocks[1])]);
    bench.vote([1], &blocks[1]);
    assert_eq!(bench.votes(), [id(&blocks[2])]);
    // A certificate of an earlier view certifies nothing in this one.
    bench.next_view();
    let base = end(&blocks[2]);
    bench.take(1, new_view(2, &lock(certified(N, &blocks[2]))));
    bench.clear();
    let next = header(N, 2, base.1, base, 4);
    let parent = certified(N, &blocks[2]);
    let early = SyncMessage::Propose { header: next.clone(), parent };
    assert_eq!(claims_hold::<V>(&early), Err("certificate of another place"));
    bench.take(4, voted(&next));
    assert_eq!(bench.votes(), []);
    bench.propose(&next);
    assert_eq!(bench.votes(), [id(&next)]);
}

fn s2_one_vote_for_each_height_in_order<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    for header in &blocks[..2] {
        bench.propose(header);
    }
    assert_eq!(bench.votes(), [id(&blocks[0]), id(&blocks[1])]);
    for header in &blocks[..2] {
        bench.propose(header);
        bench.take(4, voted(header));
        bench.replica.ready(id(header), Ready::Valid);
    }
    assert_eq!(bench.votes(), []);
    // Only the leader may propose, and only with the certificate of the parent.
    let next = &blocks[2];
    assert_eq!(bench.deliver(1, proposal(N, next)), Err(Reject::WrongSender));
    let foreign = Header { block: Block { proposer: r(1), ..next.block.clone() }, base: next.base };
    assert_eq!(bench.deliver(0, proposal(N, &foreign)), Err(Reject::WrongSender));
    let parent = certified(N, &blocks[0]);
    let beside = SyncMessage::Propose { header: next.clone(), parent };
    assert_eq!(claims_hold::<V>(&beside), Err("proposal does not extend its certificate"));
    let genesis = header(N, 1, GENESIS.1, (Height(6), GENESIS.1), 7);
    let parent = Certificate::genesis(VOTE);
    let high = SyncMessage::Propose { header: genesis, parent };
    assert_eq!(claims_hold::<V>(&high), Err("certificate of another place"));
    assert_eq!(bench.votes(), []);
}

fn s2_no_vote_before_a_block_is_ready_and_valid<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.replica.answer_otherwise(None);
    bench.propose(&blocks[0]);
    assert_eq!(bench.votes(), []);
    bench.replica.ready(id(&blocks[0]), Ready::Valid);
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    let mut bench = Bench::<V>::new();
    bench.replica.answer_otherwise(Some(Ready::Invalid));
    bench.propose(&blocks[0]);
    bench.replica.ready(id(&blocks[0]), Ready::Invalid);
    assert_eq!(bench.votes(), []);
}

/// Scenario 10: a certificate that was shown to this replica alone must not keep it from voting.
fn s2_vote_ignores_the_lock<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.grow(&blocks);
    bench.next_view();
    assert_eq!(bench.replica.status().locked, Height(2));
    let base = end(&blocks[0]);
    bench.take(1, new_view(2, &lock(certified(N, &blocks[0]))));
    assert_eq!(bench.first_votes(), [], "the lock is higher");
    let next = header(N, 2, base.1, base, 7);
    bench.propose(&next);
    assert_eq!(bench.votes(), [id(&next)]);
}

fn s2_replica_that_missed_a_header_votes_for_the_next<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    bench.propose(&blocks[0]);
    bench.clear();
    bench.propose(&blocks[2]);
    assert_eq!(bench.votes(), [], "its parent is unknown");
    bench.replica.fetched(blocks[1].block.clone());
    assert_eq!(bench.votes(), [id(&blocks[2])]);
    // In a view whose NEW-VIEW it has not seen as well.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.next_view();
    let later = chain(N, 2, end(&blocks[0]), &[4, 5]);
    bench.replica.fetched(later[0].block.clone());
    bench.clear();
    bench.propose(&later[1]);
    assert_eq!(bench.votes(), [id(&later[1])]);
}

/// The blocks between the last vote and the next header decide, although no two statements conflict.
fn s2_votes_of_a_view_are_on_one_chain<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let beside = chain_on(N, 1, GENESIS.1, end(&blocks[0]), &[7, 8, 9]);
    bench.grow(&blocks);
    for missed in &beside[..2] {
        bench.replica.fetched(missed.block.clone());
    }
    bench.clear();
    assert_eq!(bench.deliver(0, proposal(N, &beside[2])), Err(Reject::Equivocation));
    assert_eq!((bench.votes(), bench.is_quiet()), (vec![], true));
}

/// A replica that was away may be shown a branch that the others no longer see.
fn s2_block_that_conflicts_with_a_certified_one_is_not_voted_for<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    let other = header(N, 1, GENESIS.1, end(&blocks[0]), 9);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.take(4, SyncMessage::Certified(certified(N, &other)));
    bench.replica.fetched(other.block.clone());
    bench.clear();
    bench.propose(&blocks[1]);
    assert_eq!(bench.votes(), []);
    // An unknown certified block may be on the same chain: a liar that shows it too early prevents no vote.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.take(4, SyncMessage::Certified(certified(N, &blocks[2])));
    bench.clear();
    bench.propose(&blocks[1]);
    assert_eq!(bench.votes(), [id(&blocks[1])]);
    // But its voters show it within 3 delta.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.take(4, SyncMessage::Certified(certified(N, &blocks[2])));
    bench.pass(delta(3));
    bench.clear();
    bench.propose(&blocks[1]);
    assert_eq!(bench.votes(), []);
    bench.replica.fetched(blocks[2].block.clone());
    assert_eq!(bench.votes(), [id(&blocks[1])]);
}

/// §8, Lemma 1 a: a replica that commits later than others still handles their next votes.
fn s2_height_that_others_may_not_handle_is_not_voted_for<V: Variant>() {
    let most = usize::try_from(WINDOWS_VOTED * 16).unwrap();
    let numbers: Vec<u64> = (1..=WINDOWS_AHEAD * 16).collect();
    let blocks = chain(N, 1, GENESIS, &numbers);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..most]);
    bench.propose(&blocks[most]);
    assert_eq!(bench.votes(), blocks[..most].iter().map(id).collect::<Vec<_>>());
    bench.pass(delta(2));
    assert_eq!(bench.votes(), [id(&blocks[most])], "all its ancestors are committed");
    // A replica that has committed nothing handles all these votes.
    let mut bench = Bench::<V>::new();
    bench.take(2, voted(&blocks[2 * most - 1]));
}

/// §19: no timer commits votes that were cast in doubt, and finally all permitted votes were cast in doubt. Then the
/// certificate of the last one is broadcast, and its wait begins anew.
fn s2_voting_continues_after_votes_in_vain<V: Variant>() {
    let most = WINDOWS_VOTED * 16;
    let blocks = chain(N, 1, GENESIS, &(1..=most + 1).collect::<Vec<u64>>());
    let [last, next] = blocks.last_chunk().unwrap();
    let mut bench = Bench::<V>::new();
    bench.replica.answer_sound(Some(Time::MAX), Time::MAX);
    bench.grow(&blocks[..blocks.len() - 1]);
    bench.pass(delta(2));
    bench.propose(next);
    bench.clear();
    let since = bench.replica.now();
    bench.replica.sound(Some(since), Time::MAX);
    bench.pass(delta(16));
    assert_eq!((shown(&bench.said()), bench.committed()), (vec![], vec![]), "no timer would commit it");
    bench.pass(quarter());
    assert_eq!(shown(&bench.said()), [id(last)]);
    bench.pass(delta(2) - quarter());
    assert_eq!((bench.votes(), bench.committed()), (vec![], vec![]), "it checks each quarter of delta");
    bench.pass(quarter());
    assert_eq!(bench.committed().last().map(|commit| commit.0), Some(id(last)));
    assert_eq!(bench.votes(), [id(next)], "as always");
    // The same holds for the base of a view that has begun meanwhile, before its leader has proposed anything.
    let mut bench = Bench::<V>::new();
    bench.replica.answer_sound(Some(Time::MAX), Time::MAX);
    bench.grow(&blocks[..blocks.len() - 1]);
    bench.pass(delta(16));
    bench.replica.answer_sound(Some(Time::ZERO), Time::MAX);
    bench.next_view();
    bench.take(1, new_view(2, &lock(certified(N, last))));
    assert_eq!(bench.first_votes(), [id(last)]);
    bench.take(1, SyncMessage::Certified(certificate(2, end(last), weak(N))));
    bench.pass(quarter());
    assert_eq!(shown(&bench.said()), [id(last)]);
    bench.pass(delta(2));
    assert_eq!(bench.committed().last().map(|commit| commit.0), Some(id(last)));
}

/// §8, Lemma 1 b: all kept messages of a view have arrived before its first vote.
fn s2_kept_messages_are_handled_before_the_first_vote<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let base = end(&blocks[0]);
    let (one, other) = (header(N, 2, base.1, base, 5), header(N, 2, base.1, base, 6));
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.replica.fetched(one.block.clone());
    let early = [
        (0, new_view_of(&blocks[0])),
        (0, SyncMessage::Certified(certificate(2, base, weak(N)))),
        (0, voted(&one)),
        (4, voted(&other)),
    ];
    for (from, message) in early {
        let _ = bench.deliver(from, message);
    }
    bench.clear();
    bench.next_view();
    assert!(bench.is_quiet());
    assert_eq!((bench.first_votes(), bench.votes()), (vec![], vec![]));
}

fn new_view_of(block: &Header) -> SyncMessage {
    forward(N, 2, &lock(certified(N, block)))
}

/// Returns the blocks whose certificates are shown.
fn shown(said: &[SyncMessage]) -> Vec<BlockId> {
    let certified = said.iter();
    certified
        .filter_map(|it| if let SyncMessage::Certified(it) = it { Some(it.block()) } else { None })
        .collect()
}

/// §7 and §13, 11: the leader has a quarter of Δ; then every replica that shows the header is asked.
fn s2_bodies_are_asked_for_of_every_holder<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&blocks[0]));
    bench.pass(quarter() - 1);
    bench.take(1, voted(&blocks[0]));
    assert_eq!(bench.replica.wanted(), []);
    bench.pass(1);
    let of = |peers: &[u16]| peers.iter().map(|peer| (id(&blocks[0]), r(*peer))).collect::<Vec<_>>();
    assert_eq!(bench.replica.wanted(), of(&[0, 1, 2]));
    bench.take(4, voted(&blocks[0]));
    // The votes form a certificate, and its voters are asked as well.
    assert_eq!(bench.replica.wanted(), of(&[4, 1, 2, 4]), "a later holder is asked at once");
    // A holder that lacked the body is asked again when it votes; the host knows which peers have refused.
    let _ = bench.deliver(2, voted(&blocks[0]));
    assert_eq!(bench.replica.wanted(), of(&[2]));
    // A block that has arrived meanwhile is asked for of nobody.
    let mut bench = Bench::<V>::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&blocks[0]));
    bench.replica.ready(id(&blocks[0]), Ready::Valid);
    bench.pass(quarter());
    assert_eq!(bench.replica.wanted(), []);
}

/// Bodies are asked for once, and when they are due, whatever event comes first: liars could show a header in each late turn.
fn s2_bodies_are_asked_for_once_and_in_time<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&blocks[0]));
    bench.replica.stand_still(quarter());
    bench.take(2, voted(&blocks[1]));
    assert_eq!(bench.replica.wanted(), []);
    bench.pass(1);
    let of = |peers: &[u16]| peers.iter().map(|peer| (id(&blocks[0]), r(*peer))).collect::<Vec<_>>();
    assert_eq!(bench.replica.wanted(), of(&[0, 2]));
    bench.pass(delta(1));
    assert_eq!(bench.replica.wanted(), [], "once");
}

/// A block above nothing certified may be made up: nobody searches for it or its ancestors. It is asked for as soon as its
/// parent is certified.
fn s2_block_above_nothing_certified_is_not_fetched<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&blocks[1]));
    bench.pass(delta(1));
    assert_eq!(bench.replica.wanted(), []);
    assert_eq!(lacks(bench.replica.sent()), [(0, id(&blocks[0])), (2, id(&blocks[0]))]);
    bench.take(4, SyncMessage::Certified(certified(N, &blocks[0])));
    let wanted = bench.replica.wanted();
    let asked = |block: &Header| -> Vec<u16> {
        wanted.iter().filter(|(wanted, _)| *wanted == id(block)).map(|(_, peer)| peer.0).collect()
    };
    assert_eq!((asked(&blocks[1]), asked(&blocks[0])), (vec![0, 2], vec![0, 1, 2]));
}

fn lacks(sent: Vec<(To, SyncMessage)>) -> Vec<(u16, BlockId)> {
    let to_one = to_one(sent).into_iter();
    to_one
        .filter_map(
            |(to, it)| if let SyncMessage::Lack { block, .. } = it { Some((to, block)) } else { None },
        )
        .collect()
}

/// §4, `want`: a leader shows a proposal to one honest replica only, which votes. Replicas that receive the header with its
/// vote must be able to vote for it within Δ as well.
fn s2_missing_certificate_is_asked_for<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    bench.take(2, voted(&blocks[0]));
    bench.take(2, voted(&blocks[1]));
    bench.clear();
    bench.pass(quarter() - 1);
    assert_eq!(lacks(bench.replica.sent()), []);
    bench.pass(1);
    let parent = id(&blocks[0]);
    assert_eq!(lacks(bench.replica.sent()), [(0, parent), (2, parent)]);
    bench.take(4, voted(&blocks[1]));
    bench.pass(delta(1));
    assert_eq!(lacks(bench.replica.sent()), [(4, parent)]);
    bench.take(2, voted(&blocks[2]));
    bench.pass(quarter());
    let above = id(&blocks[1]);
    assert_eq!(lacks(bench.replica.sent()), [(0, above), (2, above)], "each is asked once for each block");
    bench.take(2, SyncMessage::Certified(certified(N, &blocks[0])));
    assert_eq!(bench.votes(), [id(&blocks[1]), id(&blocks[2])], "the own vote certifies the next one");
    // A holder that could not vote for the header itself is asked again when it votes.
    let mut bench = Bench::<V>::new();
    bench.take(2, voted(&blocks[0]));
    let shows = Answer {
        headers: vec![signed(&blocks[1])],
        ..Answer::bare(Incarnation::ZERO, RecoveryStage::Running)
    };
    bench.take(4, SyncMessage::Answer(Box::new(shows.clone())));
    bench.pass(quarter());
    assert_eq!(lacks(bench.replica.sent()), [(0, parent), (4, parent)]);
    bench.take(4, SyncMessage::Answer(Box::new(shows)));
    assert_eq!(lacks(bench.replica.sent()), []);
    bench.take(4, voted(&blocks[1]));
    assert_eq!(lacks(bench.replica.sent()), [(4, parent)]);
    // Nobody is asked if the proposal arrives in time.
    let mut bench = Bench::<V>::new();
    bench.take(2, voted(&blocks[0]));
    bench.take(2, voted(&blocks[1]));
    bench.propose(&blocks[1]);
    bench.clear();
    bench.pass(quarter());
    assert_eq!(lacks(bench.replica.sent()), []);
}

fn s2_lacking_peer_receives_a_certificate_once<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let (height, block) = end(&blocks[0]);
    let lack = |view| SyncMessage::Lack { view: View(view), height, block };
    bench.propose(&blocks[0]);
    bench.clear();
    assert_eq!(
        bench.deliver(2, lack(1)),
        Err(Reject::NotNow("this replica has no certificate of that block either"))
    );
    bench.propose(&blocks[1]);
    bench.replica.settle();
    bench.vote(bench.few(), &blocks[1]);
    bench.clear();
    bench.take(2, lack(1));
    bench.take(4, lack(1));
    let shown = to_one(bench.replica.sent());
    let is_answer = |(to, it): &(u16, SyncMessage)| {
        let SyncMessage::Certified(certificate) = it else { return false };
        [2, 4].contains(to) && certificate.statement == certified(N, &blocks[0]).statement
    };
    assert!(shown.len() == 2 && shown.iter().all(is_answer), "{shown:?}");
    assert_eq!(bench.deliver(2, lack(1)), Err(Reject::Duplicate));
    assert_eq!(bench.deliver(2, lack(2)), Err(Reject::Stale));
    assert!(bench.replica.sent().is_empty());
}

fn s3_vote_is_durable_before_it_leaves<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.propose(&blocks[0]);
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 2") < line(&lines, "hold All: vote v1 h1"), "{lines:#?}");
    assert_eq!(votes_in(&bench.sent()), [], "nothing leaves before it is durable");
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    // After a crash it votes for no other block, whatever it is shown.
    bench.replica.crash().unwrap();
    bench.run();
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    bench.replica.crash().unwrap();
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    assert_eq!(bench.deliver(0, proposal(N, &other)), Err(Reject::Equivocation));
    bench.run();
    assert_eq!((bench.votes(), bench.is_quiet()), (vec![], true));
}

/// A stalled disk delays a vote until a conflicting statement arrives: then the vote never leaves, not even after a crash. The
/// same holds for the first vote of a view.
fn s3_vote_that_waits_for_the_disk_is_withdrawn<V: Variant>() {
    let (blocks, other) = (chain(N, 1, GENESIS, &[1]), header(N, 1, GENESIS.1, GENESIS, 9));
    let mut bench = Bench::<V>::new();
    bench.propose(&blocks[0]);
    assert_eq!(bench.deliver(2, voted(&other)), Err(CONFLICT));
    assert_eq!(evidence_in(&bench.sent()).len(), 1);
    assert_eq!(bench.votes(), []);
    bench.replica.crash().unwrap();
    bench.run();
    assert_eq!(bench.votes(), []);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.clear();
    bench.take(1, new_view(2, &lock(certified(N, &blocks[0]))));
    bench.take(2, SyncMessage::Evidence(blames(N, 2)));
    assert_eq!(bench.first_votes(), []);
}

fn s3_vote_hands_the_header_on<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.take(4, voted(&blocks[0]));
    bench.replica.settle();
    let votes: Vec<_> =
        bench.replica.sent().into_iter().filter(|(_, it)| matches!(it, SyncMessage::Vote(_))).collect();
    assert_eq!(votes, [(To::All, voted(&blocks[0]))], "with the leader's signature");
}

/// Returns the statement of a leader in a message.
fn statement(message: &SyncMessage) -> Signed<LeaderStatement> {
    let (body, by) = match message {
        SyncMessage::Propose { header, .. } => {
            (LeaderStatement::Header(header.clone()), header.block.proposer)
        }
        SyncMessage::Vote(header) => (LeaderStatement::Header(header.body.clone()), header.by),
        SyncMessage::NewView { view, lock } => {
            (LeaderStatement::NewView(*view, lock.name()), leads(N, view.0))
        }
        SyncMessage::Forward { new_view } => (new_view.body.statement(), new_view.by),
        other => panic!("no statement of a leader: {other:?}"),
    };
    Signed { body, by, signature: SIGNATURE }
}

/// Statements in a view 2 that extends the first or the second block of view 1.
struct Two {
    low: End,
    high: End,
    blocks: Vec<Header>,
}

impl Two {
    fn new() -> Self {
        let blocks = chain(N, 1, GENESIS, &[1, 2]);
        Self { low: end(&blocks[0]), high: end(&blocks[1]), blocks }
    }
    fn new_view(&self, base: End) -> SyncMessage {
        new_view(2, &lock(certificate(1, base, weak(N))))
    }
    fn forward(&self, base: End) -> SyncMessage {
        forward(N, 2, &lock(certificate(1, base, weak(N))))
    }
    fn header(&self, base: End, parent: End, number: u64) -> SyncMessage {
        voted(&header(N, 2, base.1, parent, number))
    }
    /// Returns the four kinds of §2: pairs that no honest leader signs.
    fn conflicts(&self) -> Vec<(&'static str, SyncMessage, SyncMessage)> {
        let (low, high) = (self.low, self.high);
        let on = |number| end(&header(N, 2, low.1, low, number));
        vec![
            ("two new views", self.new_view(low), self.forward(high)),
            ("new view, header of another base", self.new_view(low), self.header(high, high, 3)),
            ("header, new view of another base", self.header(high, high, 3), self.forward(low)),
            ("headers of two bases", self.header(low, low, 3), self.header(high, high, 3)),
            (
                "headers of two bases, far apart",
                self.header(low, low, 3),
                self.header(high, (Height(9), high.1), 3),
            ),
            ("two headers of a height", self.header(low, low, 3), self.header(low, low, 4)),
            (
                "a header that conflicts with a lower one",
                self.header(low, low, 3),
                self.header(low, on(4), 5),
            ),
            (
                "a header that conflicts with a higher one",
                self.header(low, on(4), 5),
                self.header(low, low, 3),
            ),
        ]
    }
    /// Returns a replica that has entered view 2.
    fn bench<V: Variant>(&self) -> Bench<V> {
        let mut bench = Bench::new();
        bench.grow(&self.blocks);
        bench.next_view();
        bench.clear();
        bench
    }
}

fn s4_conflicting_statements_end_the_view<V: Variant>() {
    let two = Two::new();
    let conflicts = two.conflicts();
    // Also if the leader has signed an earlier statement that fits both.
    let after = conflicts[5..].iter().map(|conflict| (Some(two.new_view(two.low)), conflict));
    for (before, (what, first, second)) in conflicts.iter().map(|conflict| (None, conflict)).chain(after) {
        let mut bench = two.bench::<V>();
        let evidence = conflict(statement(first), statement(second));
        if let Some(before) = before {
            bench.take(1, before);
        }
        bench.take(1, first.clone());
        bench.sent();
        assert_eq!(bench.deliver(4, second.clone()), Err(CONFLICT), "{what}");
        assert!(bench.is_quiet() && bench.view() == 2, "{what}");
        // The evidence leaves at once, whatever the disk does.
        assert_eq!(evidence_in(&bench.sent()), std::slice::from_ref(&evidence), "{what}");
        assert_eq!(claims_hold::<V>(&SyncMessage::Evidence(evidence.clone())), Ok(()), "{what}");
        // A replica that receives it leaves the view as well.
        let mut other = two.bench::<V>();
        other.take(0, SyncMessage::Evidence(evidence));
        assert!(other.is_quiet(), "{what}");
        other.replica.advance(delta(V::WAIT));
        assert_eq!(other.view(), 3, "{what}");
    }
}

fn s4_conflicts_come_before_bodies_and_certificates<V: Variant>() {
    // Its body is missing, and its parent is not certified.
    let (one, other) = (header(N, 1, GENESIS.1, GENESIS, 1), header(N, 1, GENESIS.1, GENESIS, 2));
    let far = header(N, 1, GENESIS.1, (Height(7), id(&one)), 3);
    let far_other = header(N, 1, GENESIS.1, (Height(7), id(&other)), 3);
    let mut answer = stands(RecoveryStage::Running);
    answer.headers = vec![signed(&far_other)];
    for carrier in [voted(&far_other), SyncMessage::Answer(Box::new(answer))] {
        let mut bench = Bench::<V>::new();
        bench.replica.answer_otherwise(None);
        bench.take(1, voted(&far));
        let _ = bench.deliver(2, carrier);
        assert!(bench.is_quiet());
        assert_eq!(evidence_in(&bench.sent()).len(), 1);
        // There are no votes any more.
        bench.replica.ready(id(&one), Ready::Valid);
        bench.deliver(0, proposal(N, &one)).unwrap_err();
        assert_eq!(bench.votes(), []);
    }
}

fn s4_statements_without_a_conflict_end_nothing<V: Variant>() {
    let two = Two::new();
    let low = two.low;
    let blocks = chain(N, 2, low, &[3, 4, 5]);
    let mut bench = two.bench::<V>();
    let said = [two.new_view(low), two.forward(low), voted(&blocks[2]), voted(&blocks[0]), voted(&blocks[1])];
    for message in said.iter().chain(&said) {
        let _ = bench.deliver(1, message.clone());
        assert!(!bench.is_quiet(), "{message:?}");
    }
    // Statements of two views, of two heights that are not adjacent, and the same statement twice.
    let claimed = |first: &SyncMessage, second: &SyncMessage| {
        claims_hold::<V>(&SyncMessage::Evidence(conflict(statement(first), statement(second))))
    };
    let apart = two.header(low, (Height(8), low.1), 3);
    for (first, second) in
        [(&said[2], &said[2]), (&said[3], &said[2]), (&said[3], &said[4]), (&said[2], &apart)]
    {
        assert_eq!(claimed(first, second), Err("no conflict"));
    }
    let earlier = voted(&two.blocks[0]);
    assert_eq!(claimed(&earlier, &said[3]), Err("no conflict"));
}
