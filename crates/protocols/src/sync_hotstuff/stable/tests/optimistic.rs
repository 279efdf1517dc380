//! O1 to O4: commits at the speed of the network.

use super::*;
use quorate_types::quorum;

type Optsync = Bench<Optimistic>;

fn at_once(header: &Header) -> (BlockId, CommitRule) {
    (id(header), CommitRule::Votes)
}

/// Returns a certificate of q_R votes for a block.
fn responsive(n: u16, header: &Header) -> Certificate {
    let quorum = u16::try_from(quorum::responsive(usize::from(n))).unwrap();
    certificate(header.block.view.0, end(header), quorum)
}

fn notify(n: u16, header: &Header) -> SyncMessage {
    SyncMessage::Notify(responsive(n, header))
}

/// §10, 1: with one vote less, two quorums share only liars.
#[test]
fn o1_q_r_is_more_than_three_quarters() {
    let sizes = [3, 4, 5, 7, 9, 10].map(quorum::responsive);
    assert_eq!(sizes, [3, 4, 4, 6, 7, 8]);
    for n in 3..=100usize {
        let (f, quorum) = ((n - 1) / 2, quorum::responsive(n));
        assert!(2 * quorum - n > f, "two of them share an honest replica: n = {n}");
        assert!(quorum > f && quorum <= n);
    }
}

#[test]
fn o1_q_r_votes_commit_at_once() {
    for (n, me) in [(3, 2), (5, 3), (7, 3), (8, 3)] {
        let quorum = quorum::responsive(usize::from(n));
        let mut bench = Optsync::running(me, n);
        let blocks = chain(n, 1, GENESIS, &[1]);
        bench.propose(&blocks[0]);
        bench.replica.settle();
        let voters = bench.peers()[..quorum - 1].to_vec();
        let (last, others) = voters.split_last().unwrap();
        bench.vote(others.iter().copied(), &blocks[0]);
        assert_eq!(bench.committed(), [], "n = {n}");
        // §10, 6: the own vote counts once.
        bench.replica.settle();
        let _ = bench.deliver(others[0], voted(&blocks[0]));
        assert_eq!(bench.committed(), [], "n = {n}");
        bench.take(*last, voted(&blocks[0]));
        assert_eq!(bench.committed(), [at_once(&blocks[0])], "n = {n}");
        // A block is committed once: the 2 Δ are cancelled (scenario 10).
        bench.pass(delta(5));
        assert_eq!((bench.committed(), bench.alarms()), (vec![], vec![]));
    }
}

/// Among eight, q_R = 7 is neither n - f = 5 nor a quorum of 6.
#[test]
fn o1_certificate_in_an_answer_decides_with_q_r_signers_only() {
    for (signers, is_responsive) in [(6, false), (7, true)] {
        let block = chain(8, 1, GENESIS, &[1]).remove(0);
        let mut bench = Optsync::opened(3, 8);
        let mut answer = stands(RecoveryStage::Running);
        answer.certificates = vec![certificate(1, end(&block), signers)];
        bench.take(0, SyncMessage::Answer(Box::new(answer)));
        let certificates = &bench.replica.protocol().state.certificates;
        assert!(certificates.at(View(1), Height(1)).is_some());
        assert_eq!(certificates.is_responsive(View(1), Height(1)), is_responsive, "{signers} signers");
    }
}

/// §10, 9: also after a NOTIFY.
#[test]
fn o1_ancestors_are_committed_at_once() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Optsync::new();
    bench.grow(&blocks);
    bench.take(4, notify(N, &blocks[1]));
    assert_eq!(bench.committed(), [at_once(&blocks[1])]);
    assert_eq!(bench.replica.status().committed, Height(2));
    bench.pass(delta(5));
    assert_eq!(bench.committed(), []);
    assert_eq!(bench.deliver(2, notify(N, &blocks[1])), Err(Reject::Duplicate));
}

/// §10, 7: both ways stay open (scenario 2).
#[test]
fn o1_with_fewer_votes_the_timer_commits() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Optsync::new();
    bench.grow(&blocks);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [(id(&blocks[0]), CommitRule::Timer)]);
    // Also if doubt holds the timer back: q_R votes rely on no bound.
    let mut bench = Optsync::new();
    bench.grow(&blocks);
    bench.replica.answer_sound(Some(Time::MAX), Time::ZERO);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), []);
    bench.take(2, voted(&blocks[0]));
    assert_eq!(bench.committed(), [at_once(&blocks[0])]);
}

/// A decided block that only others were shown is asked for of its holders.
#[test]
fn o1_missing_decided_block_is_fetched_and_committed() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    let mut bench = Optsync::new();
    bench.take(4, notify(N, &blocks[1]));
    assert_eq!(bench.committed(), []);
    assert_eq!(bench.sent(), [notify(N, &blocks[1])], "all are notified at once nevertheless");
    // Of the leader, of the sender, and of the voters: 0, 1, 2, and this one.
    let mut wanted: Vec<u16> = bench.replica.wanted().iter().map(|(_, peer)| peer.0).collect();
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(wanted, [0, 1, 2, 4]);
    // The available ancestors are committed at once, and the rest is not forgotten.
    bench.propose(&blocks[0]);
    bench.take(4, notify(N, &blocks[0]));
    assert_eq!(bench.committed(), [at_once(&blocks[0])]);
    bench.replica.fetched(blocks[1].block.clone());
    assert_eq!(bench.committed(), [at_once(&blocks[1])]);
}

/// Also if the certificate arrives before the body is asked for: decided blocks have to be executed.
#[test]
fn o1_body_of_a_decided_block_is_asked_for() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Optsync::new();
    bench.replica.answer_otherwise(None);
    bench.take(2, voted(&blocks[0]));
    bench.take(4, notify(N, &blocks[0]));
    assert_eq!((bench.committed(), bench.replica.wanted()), (vec![at_once(&blocks[0])], vec![]));
    bench.pass(quarter());
    let wanted = bench.replica.wanted();
    assert!([0, 2].iter().all(|peer| wanted.contains(&(id(&blocks[0]), r(*peer)))), "{wanted:?}");
    bench.pass(delta(1));
    assert_eq!(bench.replica.wanted(), []);
}

/// Sync HotStuff has no such votes.
#[test]
fn o1_other_variant_waits() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Bench::<Plain>::new();
    bench.grow(&blocks);
    bench.vote([2, 4], &blocks[0]);
    bench.pass(delta(2) - 1);
    assert_eq!(bench.committed(), []);
    let nobody = Reject::Invalid("this protocol has no certificates of q_R votes");
    assert_eq!(bench.deliver(4, notify(N, &blocks[0])), Err(nobody));
    bench.next_view();
    let both = Lock { responsive: Some(responsive(N, &blocks[0])), tip: certified(N, &blocks[0]) };
    assert_eq!(bench.deliver(1, new_view(2, &both)), Err(nobody));
    assert_eq!(bench.deliver(4, forward(N, 2, &both)), Err(nobody));
    let status = SyncMessage::Status { view: View(2), lock: both };
    assert_eq!(bench.deliver(4, status), Err(nobody));
    assert_eq!(bench.committed(), []);
}

/// §10, 4: also if the view was left while a body was missing.
#[test]
fn o2_nothing_is_decided_in_a_view_that_was_left() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Optsync::new();
    bench.grow(&blocks);
    bench.blame();
    bench.clear();
    let _ = bench.deliver(2, voted(&blocks[0]));
    let _ = bench.deliver(4, notify(N, &blocks[0]));
    bench.pass(delta(6));
    assert_eq!(bench.committed(), []);
    let is_notify = |it: &SyncMessage| matches!(it, SyncMessage::Notify(_));
    let said = bench.said();
    assert!(!said.iter().any(is_notify), "{said:?}");
    // The certificate counts for the lock.
    let lock =
        said.iter().find_map(|it| if let SyncMessage::Status { lock, .. } = it { Some(lock) } else { None });
    let lock = lock.unwrap();
    assert_eq!(lock.responsive.as_ref().map(Certificate::block), Some(id(&blocks[0])));
    let mut bench = Optsync::new();
    bench.take(4, notify(N, &blocks[0]));
    bench.blame();
    bench.replica.fetched(blocks[0].block.clone());
    assert_eq!(bench.committed(), []);
    // A certificate of another view decides nothing either.
    let mut bench = Optsync::new();
    bench.grow(&blocks);
    bench.next_view();
    bench.clear();
    bench.take(4, notify(N, &blocks[0]));
    assert!((bench.committed(), bench.sent()) == (vec![], vec![]));
}

/// §15: evidence may have been missed.
#[test]
fn o2_silent_replica_decides_nothing() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Optsync::opened(ME, N);
    let _ = bench.deliver(0, proposal(N, &blocks[0]));
    bench.sent();
    bench.take(4, notify(N, &blocks[0]));
    assert!((bench.committed(), bench.sent()) == (vec![], vec![]));
    // A voting replica decides by votes, not by timers.
    let mut bench = Optsync::opened(ME, N);
    bench.answers(&stands(RecoveryStage::Silent));
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    bench.grow(&blocks);
    bench.take(2, voted(&blocks[0]));
    assert_eq!(bench.committed(), [at_once(&blocks[0])]);
}

/// §10, 2: before the commit, whatever the disk does.
#[test]
fn o3_notify_leaves_before_the_commit() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    for by_notify in [false, true] {
        let mut bench = Optsync::new();
        bench.grow(&blocks);
        bench.replica.lines();
        bench.sent();
        if by_notify {
            bench.take(4, notify(N, &blocks[0]));
        } else {
            bench.take(2, voted(&blocks[0]));
        }
        let lines = bench.replica.lines();
        assert!(line(&lines, "send All: Notify") < line(&lines, "commit chain"), "{lines:#?}");
        let sent = bench.sent();
        let [SyncMessage::Notify(certificate)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(certificate.statement, responsive(N, &blocks[0]).statement);
        assert_eq!(claims_hold::<Optimistic>(&sent[0]), Ok(()));
        // Once for each block.
        for peer in [1, 2] {
            let _ = bench.deliver(peer, notify(N, &blocks[0]));
        }
        assert_eq!(bench.said(), []);
    }
}

/// Lemma 2c for a replica that has not entered the view when it is over: §5 of `sync-hotstuff`, and without room for the
/// message.
#[test]
fn o3_early_notify_counts_for_the_lock() {
    let next = header(N, 2, GENESIS.1, GENESIS, 5);
    for floods in [false, true] {
        let mut bench = Optsync::new();
        for number in 0..if floods { 5_000 } else { 0 } {
            let _ = bench.deliver(0, first_vote(2, (Height(number % 200), GENESIS.1)));
        }
        assert_eq!(bench.deliver(0, notify(N, &next)), Err(Reject::Early));
        bench.take(0, SyncMessage::Evidence(blames(N, 2)));
        bench.pass(delta(2));
        assert_eq!(bench.view(), 3);
        let lock = &bench.replica.protocol().state.lock;
        assert_eq!(lock.responsive.as_ref().map(Certificate::block), Some(id(&next)), "floods: {floods}");
    }
    // A replica that enters the view decides then.
    let mut bench = Optsync::new();
    bench.replica.fetched(next.block.clone());
    assert_eq!(bench.deliver(0, notify(N, &next)), Err(Reject::Early));
    assert_eq!(bench.committed(), []);
    bench.next_view();
    assert_eq!(bench.committed(), [at_once(&next)]);
}

#[test]
fn o4_wait_is_2_delta() {
    let mut bench = Optsync::new();
    bench.blame();
    bench.pass(delta(2) - 1);
    assert_eq!(bench.view(), 1);
    bench.pass(1);
    assert_eq!(bench.view(), 2);
    let mut plain = Bench::<Plain>::new();
    plain.blame();
    plain.pass(delta(1));
    assert_eq!(plain.view(), 2);
}

/// A certificate of q_R votes survives higher certificates and a crash.
#[test]
fn o5_lock_names_the_highest_responsive_certificate() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    let mut bench = Optsync::new();
    bench.grow(&blocks[..1]);
    bench.take(2, voted(&blocks[0]));
    bench.grow(&blocks[1..]);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [at_once(&blocks[0]), (id(&blocks[2]), CommitRule::Timer)]);
    bench.next_view();
    let named = |bench: &Optsync| {
        let lock = &bench.replica.protocol().state.lock;
        (lock.responsive.as_ref().map(Certificate::block), lock.tip.block())
    };
    assert_eq!(named(&bench), (Some(id(&blocks[0])), id(&blocks[2])));
    bench.replica.crash().unwrap();
    assert_eq!(named(&bench), (Some(id(&blocks[0])), id(&blocks[2])));
    // Also if only the certificates are left.
    let mut bench = Optsync::new();
    bench.grow(&blocks[..1]);
    bench.take(2, voted(&blocks[0]));
    bench.grow(&blocks[1..2]);
    bench.replica.sync();
    bench.replica.crash().unwrap();
    bench.run();
    bench.next_view();
    assert_eq!(named(&bench), (Some(id(&blocks[0])), id(&blocks[1])));
}

/// Optsync §6, the counterexample against comparing (view, height of the responsive block, height of the tip). A liar keeps its
/// votes for an ancestor of a block that a timer has committed. With the honest votes it forms a certificate of q_R votes. Then
/// it shows a lock with the highest responsive block of all.
#[test]
fn o5_hidden_responsive_certificate_of_an_ancestor_changes_nothing() {
    for (n, me) in [(3, 2), (7, 2)] {
        let blocks = chain(n, 1, GENESIS, &[1, 2, 3]);
        let locked = || {
            let mut bench = Optsync::running(me, n);
            bench.grow(&blocks[..2]);
            bench.pass(delta(2));
            assert_eq!(bench.committed(), [(id(&blocks[1]), CommitRule::Timer)]);
            bench.next_view();
            let lock = &bench.replica.protocol().state.lock;
            assert_eq!((&lock.responsive, lock.tip.block()), (&None, id(&blocks[1])));
            bench.clear();
            bench
        };
        let hidden = responsive(n, &blocks[0]);
        let low = Lock { responsive: Some(hidden.clone()), tip: certified(n, &blocks[0]) };
        let high = Lock { responsive: Some(hidden), tip: certified(n, &blocks[1]) };
        let mut bench = locked();
        bench.take(1, new_view(2, &low));
        assert_eq!(bench.first_votes(), [], "n = {n}: it is no lower than the tip of the lock");
        let mut bench = locked();
        bench.take(1, new_view(2, &high));
        assert_eq!(bench.first_votes(), [id(&blocks[1])], "n = {n}");
        // Before it has committed, only the lock decides.
        let mut bench = Optsync::running(me, n);
        bench.grow(&blocks[..2]);
        bench.next_view();
        bench.clear();
        assert_eq!(bench.replica.status().committed, Height(0));
        bench.take(1, new_view(2, &low));
        assert_eq!(bench.first_votes(), [], "n = {n}");
    }
}

/// Scenario 9: locks on conflicting branches. Only the branch with more than 3n/4 votes can have been decided.
#[test]
fn o5_responsive_certificate_wins_over_a_higher_conflicting_tip() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let named = Lock { responsive: Some(responsive(N, &other)), tip: certified(N, &other) };
    let mut bench = Optsync::new();
    bench.grow(&blocks);
    bench.replica.fetched(other.block.clone());
    bench.next_view();
    bench.clear();
    bench.take(1, new_view(2, &named));
    assert_eq!(bench.first_votes(), [id(&other)]);
    // A tip that does not extend it is no base.
    let wrong = Lock { responsive: named.responsive.clone(), tip: certified(N, &blocks[1]) };
    let mut bench = Optsync::new();
    bench.grow(&blocks);
    bench.replica.fetched(other.block.clone());
    bench.next_view();
    bench.clear();
    bench.take(1, new_view(2, &wrong));
    assert_eq!(bench.first_votes(), []);
    // An honest leader picks it, and so does this replica, whose own lock conflicts with it.
    let mut leader = Optsync::running(1, N);
    leader.grow(&blocks);
    leader.replica.fetched(other.block.clone());
    leader.next_view();
    leader.take(0, SyncMessage::Status { view: View(2), lock: named });
    leader.pass(delta(2));
    let said = leader.said();
    let shown = said.iter().find_map(|it| {
        if let SyncMessage::NewView { lock, .. } = it { Some(lock.tip.block()) } else { None }
    });
    assert_eq!(shown, Some(id(&other)));
}

/// The same for a leader that has left the view before it was shown that block. Another block is certified at its height, and
/// it is asked for nevertheless. Otherwise the leader would not know that its own tip conflicts with it, and nobody would
/// follow.
#[test]
fn o5_block_that_conflicts_with_a_certified_one_is_fetched() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let named = Lock { responsive: Some(responsive(N, &other)), tip: certified(N, &other) };
    let mut leader = Optsync::running(1, N);
    leader.grow(&blocks);
    leader.next_view();
    leader.clear();
    leader.take(0, SyncMessage::Status { view: View(2), lock: named });
    let wanted = leader.replica.wanted();
    assert!(wanted.iter().any(|(block, peer)| (*block, peer.0) == (id(&other), 0)), "{wanted:?}");
    leader.replica.fetched(other.block.clone());
    leader.pass(delta(2));
    let said = leader.said();
    let shown = said.iter().find_map(|it| {
        if let SyncMessage::NewView { lock, .. } = it { Some(lock.tip.block()) } else { None }
    });
    assert_eq!(shown, Some(id(&other)));
}

/// Returns two branches of view 1, as liars propose them: q_R votes on the first one and a higher tip on the other.
fn fork() -> (Vec<Header>, Vec<Header>) {
    (chain(N, 1, GENESIS, &[1]), chain(N, 1, GENESIS, &[8, 9]))
}

/// Delivers votes for blocks that nobody can vote for any more: they only count.
fn late(bench: &mut Optsync, voters: impl IntoIterator<Item = u16>, header: &Header) {
    voters.into_iter().for_each(|by| _ = bench.deliver(by, voted(header)).unwrap_err());
}

/// Nobody keeps or fetches a block that conflicts with a committed one. A certificate of such a block must not make it a
/// candidate for the lock: nobody else would extend it, and this replica would extend nothing else.
#[test]
fn o5_lock_never_conflicts_with_the_committed_block() {
    let (blocks, other) = fork();
    let mut bench = Optsync::running(2, N);
    bench.propose(&blocks[0]);
    bench.replica.settle();
    bench.vote([0, 1, 4], &blocks[0]);
    assert_eq!(bench.committed(), [(id(&blocks[0]), CommitRule::Votes)]);
    late(&mut bench, [3], &other[0]);
    assert!(bench.is_quiet(), "the view is over");
    late(&mut bench, [0, 3, 4], &other[1]);
    assert!(bench.replica.protocol().state.certificates.at(View(1), Height(2)).is_some());
    let named = |bench: &Optsync| {
        let lock = &bench.replica.protocol().state.lock;
        (lock.responsive.as_ref().map(Certificate::block), lock.tip.block())
    };
    bench.pass(delta(2));
    bench.replica.settle();
    let decided = (Some(id(&blocks[0])), id(&blocks[0]));
    assert_eq!((bench.view(), named(&bench)), (2, decided));
    // A replica that opens with that certificate on its disk does not wait for the block either.
    bench.replica.log_decided(Height(1), id(&blocks[0]));
    bench.replica.execute(Height(1));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    bench.replica.answer(id(&other[1]), None);
    late(&mut bench, [3], &other[1]);
    bench.run();
    assert_eq!(bench.stage(), RecoveryStage::Running);
    bench.clear();
    let shown = Lock { responsive: Some(responsive(N, &blocks[0])), tip: certified(N, &blocks[0]) };
    bench.take(1, new_view(2, &shown));
    assert_eq!(bench.first_votes(), [id(&blocks[0])]);
}

/// The same holds for a replica that has not committed the block of q_R votes: perhaps nobody has the conflicting block
/// whole. The header of the higher one is enough to detect the conflict.
#[test]
fn o5_opening_replica_gives_up_a_goal_that_conflicts_with_q_r_votes() {
    let (blocks, other) = fork();
    let mut bench = Optsync::opened(3, N);
    bench.replica.answer_otherwise(None);
    bench.replica.fetched(blocks[0].block.clone());
    let mut answer = stands(RecoveryStage::Running);
    answer.certificates = vec![certified(N, &other[1]), responsive(N, &blocks[0])];
    bench.answers(&answer);
    bench.pass(delta(5));
    assert_eq!(bench.stage(), RecoveryStage::Silent, "its ancestry is unknown");
    bench.take(2, voted(&other[1]));
    bench.answers(&answer);
    assert_eq!(bench.stage(), RecoveryStage::Running);
    bench.next_view();
    let lock = &bench.replica.protocol().state.lock;
    assert_eq!(lock.tip.block(), id(&blocks[0]), "it is not locked there either");
}

/// A leader that has left the view before it learned of the decision knows the conflicts of each block that was voted for. This
/// holds also if q_R others have decided its height. The leader extends the block that may have been committed.
#[test]
fn o5_leader_knows_the_blocks_of_votes_in_a_view_that_was_left() {
    let (blocks, other) = fork();
    let mut leader = Optsync::running(1, N);
    leader.blame();
    leader.take(4, notify(N, &blocks[0]));
    other.iter().for_each(|header| late(&mut leader, [3], header));
    leader.pass(delta(2));
    leader.replica.settle();
    leader.clear();
    leader.wait(delta(2) - 1);
    let tip = Lock { responsive: None, tip: certified(N, &other[1]) };
    leader.take(0, SyncMessage::Status { view: View(2), lock: tip });
    leader.pass(1);
    let said = leader.said();
    let shown =
        said.iter().find_map(|it| if let SyncMessage::NewView { lock, .. } = it { Some(lock) } else { None });
    assert_eq!(shown.map(|lock| lock.tip.block()), Some(id(&blocks[0])));
}

/// Slow links may bring decisions before their blocks. Such a replica votes for nothing, and blames nobody for that.
#[test]
fn o6_decided_block_is_progress() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let is_blame = |message: &SyncMessage| matches!(message, SyncMessage::Blame(_));
    let mut bench = Optsync::new();
    let patience = delta(3) + heartbeat();
    bench.pass(patience - 1);
    bench.take(4, notify(N, &blocks[0]));
    bench.pass(patience - 1);
    assert!(!bench.sent().iter().any(is_blame));
    bench.pass(1);
    assert!(bench.sent().iter().any(is_blame), "but once decisions end");
}

/// A certificate of f + 1 votes arrives before one of q_R votes for another block at its place. All extend the decided block,
/// also after a crash. A lock without either would be that of genesis, and nobody would extend anything.
#[test]
fn o5_certificate_of_q_r_votes_replaces_one_of_fewer() {
    let (one, other) = (header(N, 1, GENESIS.1, GENESIS, 1), header(N, 1, GENESIS.1, GENESIS, 9));
    let locked = |bench: &Optsync| {
        let lock = &bench.replica.protocol().state.lock;
        (lock.responsive.as_ref().map(Certificate::block), lock.tip.block())
    };
    let mut bench = Optsync::running(2, N);
    bench.take(4, SyncMessage::Certified(certified(N, &other)));
    bench.propose(&one);
    assert_eq!(bench.votes(), [], "there can be no other decision");
    bench.vote([0, 1, 3, 4], &one);
    assert_eq!(bench.committed(), [at_once(&one)]);
    bench.next_view();
    assert_eq!(locked(&bench), (Some(id(&one)), id(&one)));
    bench.replica.log_decided(Height(1), id(&one));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    bench.run();
    bench.next_view();
    assert_eq!(locked(&bench), (Some(id(&one)), id(&one)));
}

/// f = 2 liars and an honest replica certify two blocks that nobody else sees, while the others decide two others. The replica
/// learns of the second decision after it has left the view. It is locked on that block, not on a conflicting or lower one.
#[test]
fn o5_decided_block_wins_over_another_certified_one_at_its_place() {
    let (decided, own) = (chain(N, 1, GENESIS, &[1, 2]), chain(N, 1, GENESIS, &[8, 9]));
    let mut bench = Optsync::running(2, N);
    bench.grow(&own);
    // It has the first decided block from a peer and not from the leader, so no statements conflict.
    bench.take(4, notify(N, &decided[0]));
    bench.replica.fetched(decided[0].block.clone());
    assert_eq!(bench.committed(), [at_once(&decided[0])]);
    late(&mut bench, [3], &decided[1]);
    assert!(bench.is_quiet(), "its header conflicts with those");
    bench.take(3, notify(N, &decided[1]));
    bench.pass(delta(2));
    bench.replica.settle();
    let lock = bench.replica.protocol().state.lock.clone();
    let named = lock.responsive.as_ref().map(Certificate::block);
    assert_eq!((bench.view(), named, lock.tip.block()), (2, Some(id(&decided[1])), id(&decided[1])));
    bench.clear();
    let low = Lock { responsive: None, tip: certified(N, &decided[0]) };
    bench.take(1, new_view(2, &low));
    assert_eq!(bench.first_votes(), [], "a lying leader shows a lower block");
}

/// Records of settled heights are dropped. The decision at a checkpoint's height may be all that keeps recovering replicas from
/// a conflicting block that liars have certified.
#[test]
fn o5_decided_block_survives_its_checkpoint() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let mut bench = Optsync::running(2, N);
    for block in &blocks {
        bench.propose(block);
        bench.replica.settle();
        bench.vote([0, 1, 4], block);
    }
    assert_eq!(bench.replica.status().committed, Height(8));
    bench.replica.log_decided(Height(8), id(&blocks[7]));
    bench.replica.checkpoint(Height(8));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    let highest =
        bench.replica.protocol().state.certificates.highest_responsive(View(1)).map(Certificate::block);
    assert_eq!(highest, Some(id(&blocks[7])));
}

/// The certificate would decide a block that another rule has not.
#[test]
fn o1_q_r_votes_that_conflict_with_the_committed_block_raise_the_alarm() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let mut bench = Optsync::new();
    bench.replica.fetched(blocks[0].block.clone());
    bench.replica.decide(Height(1), id(&blocks[0]));
    bench.take(4, notify(N, &blocks[0]));
    assert_eq!(bench.alarms(), Vec::<String>::new());
    let mut bench = Optsync::new();
    bench.replica.fetched(blocks[0].block.clone());
    bench.replica.decide(Height(1), id(&blocks[0]));
    bench.take(4, notify(N, &other));
    assert!(
        bench.alarms().iter().any(|it| it.contains("conflict with the committed block")),
        "{:?}",
        bench.alarms()
    );
}
