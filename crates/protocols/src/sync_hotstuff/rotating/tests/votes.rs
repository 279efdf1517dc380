//! R1 to R3, R6 and R7: votes and certificates.

use super::*;
use crate::sync_hotstuff::replica::WINDOWS_VOTED;
use quorate_consensus::Ready;
use quorate_types::Digest;

#[test]
fn r1_certificate_needs_f_plus_1_distinct_voters() {
    let mut bench = Bench::new();
    let first = header(1, GENESIS, 1);
    bench.take(0, voted(&first));
    assert_eq!(bench.deliver(0, voted(&first)), Err(Reject::Duplicate));
    assert_eq!(bench.deliver(0, voted(&first)), Err(Reject::Duplicate));
    assert_eq!(
        (bench.votes(), bench.view()),
        (vec![id(&first)], 1),
        "the own vote and that of replica 0 are two"
    );
    bench.take(2, voted(&first));
    assert_eq!(bench.view(), 2);
    // The own vote counts when its own copy has arrived, and once.
    let mut bench = Bench::new();
    bench.take(0, voted(&first));
    bench.take(2, voted(&first));
    assert_eq!(bench.view(), 1, "the own vote is not durable");
    bench.replica.settle();
    assert_eq!(bench.view(), 2);
}

#[test]
fn r1_votes_count_for_one_block_and_one_view() {
    let mut bench = Bench::new();
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 2));
    bench.replica.answer_otherwise(None);
    bench.take(0, voted(&first));
    bench.take(1, voted(&first));
    assert_eq!(bench.deliver(2, voted(&other)), Err(CONFLICT));
    assert_eq!(bench.view(), 1);
    // If a replica votes for both, its first vote counts, and it is accused.
    assert_eq!(bench.deliver(0, voted(&other)), Err(Reject::Equivocation));
    let _ = bench.deliver(3, voted(&other));
    assert_eq!(bench.view(), 1);
    assert!(bench.replica.lines().iter().any(|line| line.starts_with("accuse")));
    bench.take(3, RotatingMessage::Blame(View(1)));
    // Votes count without bodies.
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    for voter in [0, 1, 2] {
        bench.take(voter, voted(&first));
    }
    assert_eq!(bench.view(), 2);
}

#[test]
fn r1_votes_of_near_views_count() {
    let blocks = chain(1, GENESIS, 3);
    // Votes of a view that has not begun: their certificate leads to the view after it.
    for view in [2, 3] {
        let mut bench = Bench::new();
        for voter in [0, 1, 2] {
            bench.take(voter, voted(&blocks[view - 1]));
        }
        assert_eq!(bench.view(), u64::try_from(view).unwrap() + 1);
    }
    let far = header(2 + u64::from(N), tip(&blocks[2]), 4);
    let mut bench = Bench::new();
    assert_eq!(bench.deliver(0, voted(&far)), Err(Reject::Early));
    // Votes of the view before: a leader extends their block at once.
    let mut bench = Bench::running(1, N);
    bench.next_view();
    bench.replica.offer([payload(7)]);
    bench.clear();
    for voter in [0, 2, 3] {
        bench.take(voter, voted(&blocks[0]));
    }
    assert_eq!(proposed_in(&bench.said()), [(View(2), id(&blocks[0]))]);
}

/// §8, Lemma 1 a: a replica that commits later than others still handles their next votes.
#[test]
fn r6_height_that_others_may_not_handle_is_not_voted_for() {
    let most = usize::try_from(WINDOWS_VOTED * 16).unwrap();
    let blocks = chain(1, GENESIS, WINDOWS_VOTED * 16 + 1);
    let mut bench = Bench::new();
    bench.grow(&blocks[..most]);
    bench.propose(&blocks[most]);
    assert_eq!(bench.votes(), blocks[..most].iter().map(id).collect::<Vec<_>>());
    bench.pass(delta(2));
    assert_eq!(bench.votes(), [id(&blocks[most])], "all its ancestors are committed");
}

/// §19: as in the stable form, votes continue after those in doubt were in vain: one at a time, once a vote may commit.
#[test]
fn r6_voting_continues_after_votes_in_vain() {
    let most = WINDOWS_VOTED * 16;
    let blocks = chain(1, GENESIS, most + 3);
    let [first, second, third] = blocks.last_chunk().unwrap();
    let mut bench = Bench::new();
    bench.replica.answer_sound(Some(Time::MAX), Time::MAX);
    bench.grow(&blocks[..blocks.len() - 3]);
    bench.pass(delta(2));
    bench.clear();
    bench.propose(first);
    bench.replica.sound(Some(bench.replica.now()), Time::MAX);
    bench.pass(delta(16));
    bench.take(1, voted(first));
    assert_eq!((bench.votes(), bench.timer_commits()), (vec![], vec![]), "no timer would commit it");
    bench.pass(1);
    bench.take(2, voted(first));
    assert_eq!(bench.votes(), [id(first)]);
    bench.grow(std::slice::from_ref(first));
    bench.propose(second);
    assert_eq!(bench.votes(), [], "one wait is running");
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits().last(), Some(&id(first)));
    assert_eq!(bench.votes(), [id(second)]);
    bench.grow(std::slice::from_ref(second));
    bench.propose(third);
    assert_eq!(bench.votes(), [id(third)], "as always");
}

/// After the only wait that was not in vain has ended without a commit, the next vote follows at once.
#[test]
fn r6_voting_continues_when_the_last_wait_has_ended() {
    let below = chain(1, GENESIS, WINDOWS_VOTED * 16);
    let top = tip(below.last().unwrap());
    let view = top.view.0 + 1;
    let first = header(view, top, 1);
    // All have the vote for the first block.
    let waits = || {
        let mut bench = Bench::new();
        bench.replica.answer_sound(Some(Time::MAX), Time::MAX);
        bench.grow(&below);
        bench.pass(delta(2));
        bench.replica.sound(Some(bench.replica.now()), Time::MAX);
        bench.pass(delta(16) + 1);
        bench.clear();
        bench.propose(&first);
        assert_eq!(bench.votes(), [id(&first)]);
        bench
    };
    // Silence is broken.
    let contradicted = RotatingMessage::Evidence(conflict(&first, &header(view, top, 9)));
    for what in [contradicted, blamed(view)] {
        let mut bench = waits();
        bench.grow(std::slice::from_ref(&first));
        let second = header(view + 1, tip(&first), 2);
        bench.propose(&second);
        assert_eq!(bench.votes(), []);
        let _ = bench.deliver(3, what.clone());
        assert_eq!(bench.votes(), [id(&second)], "{what:?}");
    }
    // There is no certificate when the wait is over.
    let mut bench = waits();
    let beside = header(view + 1, top, 2);
    bench.replica.fetched(beside.block.clone());
    bench.take(1, shows(&beside));
    let third = header(view + 2, tip(&beside), 3);
    bench.propose(&third);
    assert_eq!(bench.votes(), []);
    bench.pass(delta(2));
    assert_eq!((bench.votes(), bench.timer_commits()), (vec![id(&third)], vec![]));
}

/// A certificate may arrive after statements of the view that it opens: votes wait for the disk, certificates do not.
#[test]
fn r6_header_that_arrived_before_its_view_is_voted_for() {
    let blocks = chain(1, GENESIS, u64::from(N) + 1);
    let mut bench = Bench::new();
    for block in &blocks {
        bench.take(3, voted(block));
    }
    assert_eq!((bench.view(), bench.votes()), (1, vec![id(&blocks[0])]));
    bench.take(3, shows(&blocks[usize::from(N) - 1]));
    assert_eq!((bench.view(), bench.votes()), (1 + u64::from(N), vec![id(&blocks[usize::from(N)])]));
}

#[test]
fn r2_certificates_rank_by_their_view_alone() {
    // The lower view has the longer chain.
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    let short = header(4, GENESIS, 9);
    bench.take(1, shows(&short));
    assert_eq!(bench.replica.protocol().state.lock.block(), id(&short));
    // The same for a later certificate of a lower view, above the lock.
    let mut bench = Bench::new();
    bench.grow(&blocks[..1]);
    bench.next_view();
    bench.next_view();
    bench.take(1, shows(&blocks[2]));
    bench.take(1, shows(&blocks[1]));
    bench.next_view();
    assert_eq!(bench.replica.protocol().state.lock.block(), id(&blocks[2]));
}

#[test]
fn r3_any_certificate_ends_the_view_at_once() {
    let blocks = chain(1, GENESIS, 3);
    let mut answer = stands(RecoveryStage::Running);
    answer.certificates = vec![certified(&blocks[0])];
    let carriers = [
        shows(&blocks[0]),
        proposal(&blocks[1]),
        status(2, certified(&blocks[0])),
        RotatingMessage::Answer(Box::new(answer)),
    ];
    for carrier in carriers {
        let mut bench = Bench::new();
        let _ = bench.deliver(1, carrier.clone());
        assert_eq!(bench.view(), 2, "{carrier:?}");
        // It is broadcast once, whatever the disk does.
        assert_eq!(certified_in(&bench.sent()), [id(&blocks[0])], "{carrier:?}");
        let _ = bench.deliver(2, carrier.clone());
        let _ = bench.deliver(3, shows(&blocks[0]));
        assert_eq!(certified_in(&bench.said()), []);
    }
    // A certificate of a later view skips all views before.
    let mut bench = Bench::new();
    bench.take(1, shows(&blocks[2]));
    assert_eq!(bench.view(), 4);
    bench.take(1, shows(&blocks[1]));
    assert_eq!(bench.view(), 4);
    assert_eq!(certified_in(&bench.sent()), [id(&blocks[2]), id(&blocks[1])], "each is shown");
    // Also in the wait of Δ after f + 1 blames.
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    assert!(bench.is_quiet());
    bench.take(1, shows(&blocks[0]));
    assert_eq!((bench.view(), bench.is_quiet()), (2, false));
    bench.pass(delta(2));
    assert_eq!(bench.view(), 2, "the wait is over as well");
}

#[test]
fn r6_one_vote_for_the_first_header_of_the_view() {
    let (one, other) = (header(1, GENESIS, 1), header(1, GENESIS, 2));
    // Both arrive before the first one is ready: the replica votes for neither, whichever arrived first.
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.propose(&one);
    let _ = bench.deliver(0, proposal(&other));
    bench.replica.ready(id(&other), Ready::Valid);
    assert_eq!(bench.votes(), []);
    bench.replica.ready(id(&one), Ready::Valid);
    assert_eq!(bench.votes(), []);
    let mut bench = Bench::new();
    bench.take(2, RotatingMessage::Evidence(conflict(&one, &other)));
    bench.propose(&one);
    assert_eq!(bench.votes(), []);
    // After the vote.
    let mut bench = Bench::new();
    bench.propose(&one);
    bench.replica.settle();
    assert_eq!(bench.deliver(0, proposal(&other)), Err(Reject::Equivocation));
    assert_eq!(bench.votes(), [id(&one)]);
}

#[test]
fn r6_no_vote_after_the_view() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.take(1, shows(&blocks[0]));
    let _ = bench.deliver(0, proposal(&blocks[0]));
    assert_eq!(bench.votes(), []);
    // After blames of the view there is no vote either.
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    bench.propose(&blocks[0]);
    assert_eq!(bench.votes(), []);
    // Before the view there is no vote either.
    let mut bench = Bench::new();
    bench.take(1, voted(&blocks[1]));
    assert_eq!(bench.votes(), []);
    bench.propose(&blocks[0]);
    bench.replica.settle();
    bench.vote(bench.few(), &blocks[0]);
    assert_eq!(bench.votes(), [id(&blocks[0]), id(&blocks[1])], "its header was kept for its view");
}

#[test]
fn r6_parent_of_a_voted_block_is_no_lower_than_the_lock() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.clear();
    // View 4 extends the block of view 1; this replica is locked on view 2.
    let low = header(4, tip(&blocks[0]), 7);
    bench.propose(&low);
    assert_eq!(bench.votes(), []);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.clear();
    let high = header(4, tip(&blocks[1]), 7);
    bench.propose(&high);
    assert_eq!(bench.votes(), [id(&high)], "a certificate of the same view is enough");
    // Either of two certified blocks of the lock's view may be extended: no timer has committed one of them.
    let other = header(2, tip(&blocks[0]), 9);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.replica.fetched(other.block.clone());
    bench.clear();
    let beside = header(4, tip(&other), 7);
    bench.propose(&beside);
    assert_eq!(bench.votes(), [id(&beside)]);
}

#[test]
fn r6_vote_needs_the_certificate_of_the_parent() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.replica.fetched(blocks[0].block.clone());
    bench.next_view();
    bench.clear();
    bench.take(3, voted(&blocks[1]));
    assert_eq!(bench.votes(), []);
    bench.take(3, shows(&blocks[0]));
    assert_eq!(bench.votes(), [id(&blocks[1])]);
}

#[test]
fn r6_header_fits_its_parent() {
    let first = header(1, GENESIS, 1);
    type Change = fn(&mut Header);
    let wrong: [(&str, Change); 3] = [
        ("a height too high", |it| it.block.height = Height(3)),
        ("a height too low", |it| it.block.height = Height(1)),
        ("another view bound", |it| it.block.extra = Digest([1; 32])),
    ];
    for (what, change) in wrong {
        let mut bench = Bench::new();
        bench.grow(std::slice::from_ref(&first));
        bench.clear();
        let mut next = header(2, tip(&first), 2);
        change(&mut next);
        let _ = bench.deliver(1, proposal(&next));
        assert_eq!(bench.votes(), [], "{what}");
    }
    // A block that conflicts with the committed one is not voted for either.
    let mut bench = Bench::new();
    let other = header(1, GENESIS, 9);
    bench.grow(std::slice::from_ref(&first));
    bench.replica.fetched(other.block.clone());
    bench.replica.decide(Height(1), id(&other));
    bench.clear();
    bench.propose(&header(2, tip(&first), 2));
    assert_eq!(bench.votes(), []);
}

#[test]
fn r6_no_vote_before_a_block_is_ready_and_valid() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.propose(&first);
    assert_eq!(bench.votes(), []);
    bench.replica.ready(id(&first), Ready::Valid);
    assert_eq!(bench.votes(), [id(&first)]);
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(Some(Ready::Invalid));
    bench.propose(&first);
    bench.replica.ready(id(&first), Ready::Invalid);
    assert_eq!(bench.votes(), []);
}

#[test]
fn r7_vote_is_durable_before_it_leaves() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.propose(&first);
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 2") < line(&lines, "hold All: vote v1"), "{lines:#?}");
    assert_eq!(votes_in(&bench.sent()), [], "nothing leaves before it is durable");
    assert_eq!(bench.votes(), [id(&first)]);
    // After a crash it votes for no other block that it is shown.
    bench.replica.crash().unwrap();
    bench.run();
    assert_eq!(bench.votes(), [id(&first)]);
    bench.replica.crash().unwrap();
    let other = header(1, GENESIS, 9);
    assert_eq!(bench.deliver(0, proposal(&other)), Err(Reject::Equivocation));
    bench.run();
    assert_eq!(bench.votes(), []);
}

#[test]
fn r7_vote_hands_on_the_header_and_its_parents_certificate() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.take(3, voted(&blocks[0]));
    bench.replica.settle();
    let votes: Vec<_> =
        bench.replica.sent().into_iter().filter(|(_, it)| matches!(it, RotatingMessage::Vote(_))).collect();
    assert_eq!(votes, [(To::All, voted(&blocks[0]))], "with the leader's signature");
    // The leader has shown the certificate to this replica alone, after view 1 was left by blames.
    let mut bench = Bench::new();
    bench.replica.fetched(blocks[0].block.clone());
    bench.next_view();
    bench.clear();
    bench.propose(&blocks[1]);
    let lines = bench.replica.lines();
    assert!(line(&lines, "send All: Certified(") < line(&lines, "hold All: vote v2"), "{lines:#?}");
    // The certificate is sent once.
    let third = header(3, tip(&blocks[0]), 3);
    bench.next_view();
    bench.clear();
    bench.propose(&third);
    assert_eq!(certified_in(&bench.said()), []);
}

/// §7 and §13, 11: the leader has a quarter of Δ; then every replica that shows the header is asked.
#[test]
fn bodies_are_asked_for_of_every_holder() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&first));
    bench.pass(quarter() - 1);
    bench.take(1, voted(&first));
    assert_eq!(bench.replica.wanted(), []);
    bench.pass(1);
    let of = |peers: &[u16]| peers.iter().map(|peer| (id(&first), r(*peer))).collect::<Vec<_>>();
    assert_eq!(bench.replica.wanted(), of(&[0, 1, 2]));
    let _ = bench.deliver(3, voted(&first));
    assert_eq!(bench.replica.wanted(), of(&[0, 3]), "a later holder is asked at once");
    // A holder that lacked the bodies is asked again when it votes; the host knows which peers have refused.
    let _ = bench.deliver(1, voted(&first));
    assert_eq!(bench.replica.wanted(), of(&[0, 1]));
    // A block that has arrived meanwhile is asked for of nobody.
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&first));
    bench.replica.ready(id(&first), Ready::Valid);
    bench.pass(quarter());
    assert_eq!(bench.replica.wanted(), []);
    // An unknown certified block is asked for of its voters at once.
    let mut bench = Bench::new();
    bench.take(3, shows(&first));
    assert_eq!(bench.replica.wanted(), of(&[0, 1, 2]));
}

/// Bodies are asked for once, and when they are due, whatever event comes first: liars could show a header in each late turn.
#[test]
fn bodies_are_asked_for_once_and_in_time() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&blocks[0]));
    bench.replica.stand_still(quarter());
    bench.take(2, RotatingMessage::Show(signed(&blocks[2])));
    assert_eq!(bench.replica.wanted(), []);
    bench.pass(1);
    let of = |peers: &[u16]| peers.iter().map(|peer| (id(&blocks[0]), r(*peer))).collect::<Vec<_>>();
    assert_eq!(bench.replica.wanted(), of(&[0, 2]));
    bench.pass(delta(1));
    assert_eq!(bench.replica.wanted(), [], "once");
}

/// The signers of a certificate have the block. If its header arrived without bodies, they are among the peers that are asked
/// when it is due.
#[test]
fn bodies_of_a_certified_block_are_asked_for_of_its_voters() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(3, RotatingMessage::Show(signed(&first)));
    bench.take(3, shows(&first));
    bench.pass(quarter() - 1);
    assert_eq!(bench.replica.wanted(), [], "the bodies may be on their way");
    bench.pass(1);
    let asked: Vec<_> = [0, 1, 2, 3].map(|peer| (id(&first), r(peer))).to_vec();
    assert_eq!(bench.replica.wanted(), asked);
}

/// A block above nothing certified may be made up: nobody searches for it or its ancestors. It is asked for as soon as its
/// parent is certified.
#[test]
fn block_above_nothing_certified_is_not_fetched() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(3, RotatingMessage::Show(signed(&blocks[1])));
    bench.pass(delta(1));
    assert_eq!(bench.replica.wanted(), []);
    bench.take(2, shows(&blocks[0]));
    let asked = |block: &Header, wanted: &[(BlockId, ReplicaId)]| -> Vec<u16> {
        wanted.iter().filter(|(wanted, _)| *wanted == id(block)).map(|(_, peer)| peer.0).collect()
    };
    let wanted = bench.replica.wanted();
    assert_eq!((asked(&blocks[1], &wanted), asked(&blocks[0], &wanted)), (vec![1, 3], vec![0, 1, 2]));
    // A certified block is fetched whatever its parent.
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, shows(&blocks[1]));
    bench.take(3, RotatingMessage::Show(signed(&blocks[1])));
    let wanted = bench.replica.wanted();
    assert!(asked(&blocks[1], &wanted).contains(&3), "{wanted:?}");
}

/// A stalled disk delays a vote until a conflicting statement arrives: then the vote never leaves.
#[test]
fn r7_vote_that_waits_for_the_disk_is_withdrawn() {
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 9));
    let mut bench = Bench::new();
    bench.propose(&first);
    assert_eq!(bench.deliver(2, voted(&other)), Err(CONFLICT));
    assert!(!bench.said().iter().any(|it| matches!(it, RotatingMessage::Vote(_))));
}
