//! A10, A14 and A15: the coordinator's blocks.

use super::*;
use quorate_types::Time;

/// Returns the heights of own blocks, and whether each has requests.
fn emitted(bench: &mut Bench) -> Vec<(u64, bool)> {
    let place = |block: CBlock| (block.block.height.0, block.block.payload != empty_payload());
    bench.emitted().into_iter().map(place).collect()
}

/// Returns the coordinator of view 1 in the second round, and its first block. It has voted for that block in round 1.
fn coordinator() -> (Bench, CBlock) {
    let mut bench = Bench::running(0);
    let first = bench.emitted();
    assert_eq!((first.len(), bench.round()), (1, 2));
    bench.clear();
    (bench, first[0].clone())
}

#[test]
fn a10_first_block_leaves_at_once_and_an_empty_one_in_each_heartbeat() {
    let (mut bench, first) = coordinator();
    assert_eq!((first.block.height, first.block.payload), (Height(1), empty_payload()));
    for height in 2..12 {
        let due = bench.until_heartbeat();
        assert!(due <= heartbeat());
        bench.pass(due - 1);
        assert_eq!(emitted(&mut bench), []);
        bench.pass(1);
        assert_eq!(emitted(&mut bench), [(height, false)], "heartbeats have no limit");
    }
    assert_eq!(bench.until_heartbeat(), heartbeat());
}

#[test]
fn a10_requests_leave_at_once() {
    let (mut bench, first) = coordinator();
    bench.replica.offer([payload(7)]);
    let said = bench.emitted();
    assert_eq!(said.len(), 1);
    assert_eq!((said[0].block.payload, said[0].block.parent), (payload(7).id, id(&first)));
    assert_eq!((said[0].block.view, said[0].anchor), (View(1), Digest::ZERO));
    // The next heartbeat is τ after this block.
    bench.pass(heartbeat() - 1);
    assert_eq!(emitted(&mut bench), []);
    bench.pass(1);
    assert_eq!(emitted(&mut bench), [(3, false)]);
}

#[test]
fn a10_four_blocks_with_requests_wait_for_a_vote_at_most() {
    let (mut bench, _) = coordinator();
    bench.replica.offer((1..9).map(payload));
    assert_eq!(emitted(&mut bench), [(2, true), (3, true), (4, true), (5, true)]);
    bench.pass(heartbeat());
    assert_eq!(emitted(&mut bench), [(6, false)]);
    let named = bench.replica.protocol().state.blocks.instances[&Digest::ZERO].emitted.unwrap().1;
    let own = bench.replica.protocol().entries.tip();
    bench.cast(&vote(2, own, named, VoteKind::Data));
    assert_eq!(emitted(&mut bench), [(7, true), (8, true), (9, true), (10, true)]);
}

/// Heartbeats have no limit, and many leave before each vote while rounds are slow.
#[test]
fn a10_empty_blocks_without_a_vote_keep_no_requests_out() {
    let (mut bench, _) = coordinator();
    for _ in 0..6 {
        bench.pass(heartbeat());
    }
    bench.clear();
    bench.replica.offer((1..9).map(payload));
    assert_eq!(emitted(&mut bench), [(8, true), (9, true), (10, true), (11, true)]);
}

#[test]
fn a10_two_full_windows_stop_requests() {
    let (mut bench, _) = coordinator();
    for _ in 0..31 {
        bench.pass(heartbeat());
    }
    bench.clear();
    let replica = bench.replica.protocol();
    let (tip, best) = (replica.entries.tip(), replica.state.blocks.instances[&Digest::ZERO].best);
    assert_eq!(best.0, Height(32));
    bench.cast(&vote(2, tip, best.1, VoteKind::Data));
    bench.replica.offer([payload(7)]);
    assert_eq!(emitted(&mut bench), [], "L is 16, and no checkpoint is stable");
    bench.pass(heartbeat());
    assert_eq!(emitted(&mut bench), [(33, false)]);
}

#[test]
fn a10_block_is_durable_before_it_leaves() {
    let (mut bench, _) = coordinator();
    bench.replica.offer([payload(7)]);
    assert_eq!(blocks_in(&bench.replica.sent()), []);
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 4") < line(&lines, "hold"), "{lines:#?}");
    assert_eq!(emitted(&mut bench), [(2, true)]);
}

#[test]
fn a10_silent_replica_and_others_emit_nothing() {
    let mut bench = Bench::opened(0);
    bench.replica.offer([payload(7)]);
    bench.pass(3 * heartbeat());
    assert_eq!(bench.emitted(), []);
    let mut bench = Bench::new();
    bench.replica.offer([payload(7)]);
    bench.pass(heartbeat());
    assert_eq!(bench.emitted(), []);
}

/// Pitfall 7: two blocks of one slot would prove an equivocation. The harness stops at a slot that is filled twice.
#[test]
fn a10_height_is_never_used_again_after_a_restart() {
    for kept in 0..=2 {
        let (mut bench, first) = coordinator();
        bench.replica.offer([payload(7)]);
        let mut before = vec![first];
        before.extend(bench.emitted());
        bench.pass(heartbeat());
        before.extend(bench.emitted());
        assert_eq!(before.len(), 3);
        // One more block is recorded, and may be lost.
        bench.replica.offer([payload(8)]);
        bench.replica.crash_after(kept).unwrap();
        bench.replica.offer([payload(9)]);
        bench.replica.advance(2 * silence());
        bench.run();
        let after = bench.emitted();
        let again: Vec<CBlock> = after.iter().take(3).cloned().collect();
        assert_eq!(again, before, "§16: its own blocks above the committed one are sent again");
        let heights: Vec<u64> = after.iter().map(|block| block.block.height.0).collect();
        let count = u64::try_from(heights.len()).unwrap();
        assert_eq!(heights, (1..=count).collect::<Vec<u64>>(), "kept {kept}");
        assert!(after.iter().any(|block| block.block.payload == payload(9).id));
        for pair in after.windows(2) {
            assert_eq!(pair[1].block.parent, id(&pair[0]));
        }
    }
}

/// Two branches that open view 2, both by a vote of round 1. Script `no-scope`.
fn two_branches() -> (Bench, [In; 2], Vote) {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let opens = vote(1, genesis(), BlockId::ZERO, evidence(&one, &other));
    let opens_too = vote(1, genesis(), BlockId::ZERO, evidence(&other, &one));
    let mut bench = Bench::running(1);
    bench.clear();
    bench.cast(&opens);
    let anchors = [opens.id(), opens_too.id()].map(|anchor| In { view: 2, anchor });
    (bench, anchors, opens_too)
}

/// The coordinator serves each branch that it knows. Without the anchor in the slot the second block would be refused.
#[test]
fn a14_coordinator_serves_the_view_on_each_branch() {
    let (mut bench, [first, second], opens_too) = two_branches();
    let blocks = bench.emitted();
    assert_eq!(
        blocks.iter().map(|it| (it.block.height, it.anchor)).collect::<Vec<_>>(),
        [(Height(1), first.anchor)]
    );
    // The alternate vote counts where a later one extends it.
    let next = vote_in(2, 3, opens_too.place(), BlockId::ZERO, VoteKind::Endorse);
    bench.cast(&next);
    bench.take(2, UniqueMessage::Entries { entries: vec![frame(&opens_too)] });
    let blocks = bench.emitted();
    assert_eq!(
        blocks.iter().map(|it| (it.block.height, it.anchor)).collect::<Vec<_>>(),
        [(Height(1), second.anchor)]
    );
}

#[test]
fn a14_anchor_is_a_part_of_the_slot() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(In { anchor: Digest([3; 32]), ..FIRST }, ROOT, 1));
    assert_ne!(one.statement().slot(), other.statement().slot());
    assert_eq!(one.statement().slot(), cblock(FIRST, ROOT, 2).statement().slot());
    assert_ne!(id(&one), id(&other));
}

/// §3, accept: the new coordinator receives the vote that has opened its view, also from replicas with another tip.
#[test]
fn a15_vote_that_opens_a_view_is_shown_to_its_coordinator() {
    let votes = again(1, genesis(), BlockId::ZERO, &VoteKind::NoProgress, 3);
    let mut bench = Bench::new();
    bench.grow(&votes[..2]);
    bench.clear();
    bench.grow(&votes[2..]);
    let shows = |(to, it): &(To, Message)| match it {
        UniqueMessage::Proof(proof) if proof.tip_place() == votes[2].place() => Some(*to),
        _ => None,
    };
    let shown: Vec<To> = bench.said().iter().filter_map(shows).collect();
    assert_eq!(shown, [To::One(r(1)), To::One(r(3))], "the coordinator of view 2, and the next voter");
    assert_eq!(bench.replica.status().leader, r(1));
}

/// A slow coordinator is not replaced while it sends a block in each heartbeat.
#[test]
fn a15_coordinator_stays_while_it_is_heard() {
    let mut bench = Bench::new();
    let mut on = ROOT;
    for number in 0..20 {
        let block = empty(FIRST, on, number);
        bench.emit(&block);
        bench.pass(heartbeat());
        on = head(&block);
    }
    assert_eq!((bench.replica.status().view, bench.replica.status().leader), (View(1), r(0)));
    assert!(bench.patience(FIRST) > 0 && bench.replica.now() > Time::ZERO);
}
