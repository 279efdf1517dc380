//! R1 to R3, R6 and R7: votes and certificates.

use super::*;
use crate::sync_hotstuff::WINDOWS_VOTED;
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
        "its own vote and that of replica 0 are two"
    );
    bench.take(2, voted(&first));
    assert_eq!(bench.view(), 2);
    // Its own vote counts when its own copy is here, and once.
    let mut bench = Bench::new();
    bench.take(0, voted(&first));
    bench.take(2, voted(&first));
    assert_eq!(bench.view(), 1, "its own vote is not durable");
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
    // Of a replica that votes for both the first one counts, and it is accused.
    assert_eq!(bench.deliver(0, voted(&other)), Err(Reject::Equivocation));
    let _ = bench.deliver(3, voted(&other));
    assert_eq!(bench.view(), 1);
    assert!(bench.replica.lines().iter().any(|line| line.starts_with("accuse")));
    bench.take(3, RotatingMessage::Blame(View(1)));
    // Votes count although no body is here.
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
    // Of a view that has not begun here: what they certify lets into the view after.
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
    // Of the view before: a leader goes on from there at once.
    let mut bench = Bench::running(1, N);
    bench.next_view();
    bench.replica.offer([payload(7)]);
    bench.clear();
    for voter in [0, 2, 3] {
        bench.take(voter, voted(&blocks[0]));
    }
    assert_eq!(proposed_in(&bench.said()), [(View(2), id(&blocks[0]))]);
}

/// §8, Lemma 1 a: who has not committed yet what others have hears what they vote for next.
#[test]
fn r6_height_that_others_may_not_handle_is_not_voted_for() {
    let most = usize::try_from(WINDOWS_VOTED * 16).unwrap();
    let blocks = chain(1, GENESIS, WINDOWS_VOTED * 16 + 1);
    let mut bench = Bench::new();
    bench.grow(&blocks[..most]);
    bench.propose(&blocks[most]);
    assert_eq!(bench.votes(), blocks[..most].iter().map(id).collect::<Vec<_>>());
    bench.pass(delta(2));
    assert_eq!(bench.votes(), [id(&blocks[most])], "all below it is committed");
}

/// §19: as in the stable form, votes go on where those in doubt were in vain, one at a time, once they may commit something.
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
    assert_eq!(bench.votes(), [], "there is one to wait for");
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits().last(), Some(&id(first)));
    assert_eq!(bench.votes(), [id(second)]);
    bench.grow(std::slice::from_ref(second));
    bench.propose(third);
    assert_eq!(bench.votes(), [id(third)], "as always");
}

/// Where the one wait that was worth waiting for has ended, without a commit, the next vote waits for nothing more.
#[test]
fn r6_voting_continues_when_the_last_wait_has_ended() {
    let below = chain(1, GENESIS, WINDOWS_VOTED * 16);
    let top = tip(below.last().unwrap());
    let view = top.view.0 + 1;
    let first = header(view, top, 1);
    // Its vote for the first is with all.
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
    // It has no certificate when its time is over.
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

/// What lets into a view may come after what was said there: votes wait for the disk, certificates do not.
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
    // And whatever comes later of a lower view, above the lock.
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
        // It is shown to all, once, and whatever the disk does.
        assert_eq!(certified_in(&bench.sent()), [id(&blocks[0])], "{carrier:?}");
        let _ = bench.deliver(2, carrier.clone());
        let _ = bench.deliver(3, shows(&blocks[0]));
        assert_eq!(certified_in(&bench.said()), []);
    }
    // Of a later view it leads past all before.
    let mut bench = Bench::new();
    bench.take(1, shows(&blocks[2]));
    assert_eq!(bench.view(), 4);
    bench.take(1, shows(&blocks[1]));
    assert_eq!(bench.view(), 4);
    assert_eq!(certified_in(&bench.sent()), [id(&blocks[2]), id(&blocks[1])], "each is shown");
    // Also where f + 1 have blamed the view, in the wait of Δ.
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
    // Both before the first one is ready: whoever has heard of both votes for none, whoever has said so before it did.
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
    // After its vote.
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
    // Nor where it was blamed.
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    bench.propose(&blocks[0]);
    assert_eq!(bench.votes(), []);
    // Nor before it.
    let mut bench = Bench::new();
    bench.take(1, voted(&blocks[1]));
    assert_eq!(bench.votes(), []);
    bench.propose(&blocks[0]);
    bench.replica.settle();
    bench.vote(bench.few(), &blocks[0]);
    assert_eq!(bench.votes(), [id(&blocks[0]), id(&blocks[1])], "it was noted for its view");
}

#[test]
fn r6_parent_of_a_voted_block_is_no_lower_than_the_lock() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.clear();
    // View 4 goes on from view 1; this replica is locked on view 2.
    let low = header(4, tip(&blocks[0]), 7);
    bench.propose(&low);
    assert_eq!(bench.votes(), []);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.clear();
    let high = header(4, tip(&blocks[1]), 7);
    bench.propose(&high);
    assert_eq!(bench.votes(), [id(&high)], "of the same view is enough");
    // Of two certified blocks of the lock's view either will do: no timer has committed any of them.
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
    // Nor is it voted for beside what is committed.
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
    assert_eq!(votes_in(&bench.sent()), [], "nothing leaves before the disk has it");
    assert_eq!(bench.votes(), [id(&first)]);
    // After a crash it stands by it, and votes for nothing else that is shown.
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
    // It is said once.
    let third = header(3, tip(&blocks[0]), 3);
    bench.next_view();
    bench.clear();
    bench.propose(&third);
    assert_eq!(certified_in(&bench.said()), []);
}

/// §7 and §13, 11: the leader has a quarter of Δ; then everybody who shows the header is asked.
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
    assert_eq!(bench.replica.wanted(), of(&[0, 3]), "whoever comes later is asked at once");
    // Who has shown a header whose bodies it lacked is asked again when it votes; the host knows who has refused.
    let _ = bench.deliver(1, voted(&first));
    assert_eq!(bench.replica.wanted(), of(&[0, 1]));
    // What has come meanwhile is asked of nobody.
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&first));
    bench.replica.ready(id(&first), Ready::Valid);
    bench.pass(quarter());
    assert_eq!(bench.replica.wanted(), []);
    // What is certified, and not known at all, is asked for at once, of those who have voted for it.
    let mut bench = Bench::new();
    bench.take(3, shows(&first));
    assert_eq!(bench.replica.wanted(), of(&[0, 1, 2]));
}

/// Bodies are asked for once; and when they are due, whatever comes first: liars could show a header in each turn that is late.
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

/// Whoever has signed a certificate has the block: where its header came without its bodies, they are among those who are
/// asked, when it is time.
#[test]
fn bodies_of_a_certified_block_are_asked_for_of_its_voters() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(3, RotatingMessage::Show(signed(&first)));
    bench.take(3, shows(&first));
    bench.pass(quarter() - 1);
    assert_eq!(bench.replica.wanted(), [], "they may be on their way");
    bench.pass(1);
    let asked: Vec<_> = [0, 1, 2, 3].map(|peer| (id(&first), r(peer))).to_vec();
    assert_eq!(bench.replica.wanted(), asked);
}

/// What rests on nothing that is certified may be made up: nobody looks for it, or for what lies below it. When that is certified
/// it is asked for at once.
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
    // Of what is certified itself nobody asks what it rests on.
    let mut bench = Bench::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, shows(&blocks[1]));
    bench.take(3, RotatingMessage::Show(signed(&blocks[1])));
    let wanted = bench.replica.wanted();
    assert!(asked(&blocks[1], &wanted).contains(&3), "{wanted:?}");
}

/// A disk that stalls keeps the vote here until what contradicts it has come: then it does not leave any more.
#[test]
fn r7_vote_that_waits_for_the_disk_is_withdrawn() {
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 9));
    let mut bench = Bench::new();
    bench.propose(&first);
    assert_eq!(bench.deliver(2, voted(&other)), Err(CONFLICT));
    assert!(!bench.said().iter().any(|it| matches!(it, RotatingMessage::Vote(_))));
}
