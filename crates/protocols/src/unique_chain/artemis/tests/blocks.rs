//! A8 and A16: arrival of blocks, and questions for them.

use super::super::blocks::HEIGHTS_AHEAD;
use super::*;
use quorate_consensus::Ready;

#[test]
fn a8_two_blocks_for_a_slot_are_evidence_before_bodies() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    for is_handed_on in [false, true] {
        let mut bench = Bench::new();
        bench.lack_bodies();
        bench.skip_to(5, None);
        bench.emit(&one);
        assert_eq!(bench.votes(), []);
        if is_handed_on {
            bench.take(2, hands_on(std::slice::from_ref(&other)));
        } else {
            assert_eq!(bench.deliver(0, sends(&other)), Err(Reject::Equivocation));
        }
        let said = bench.votes();
        assert_eq!(said.iter().map(|vote| &vote.kind).collect::<Vec<_>>(), [&evidence(&one, &other)]);
        assert!(!said.is_empty() && said[0].block == BlockId::ZERO);
    }
}

/// A message carries the signature of the replica that sends it. Another replica's signature makes no block.
#[test]
fn a8_block_is_signed_by_the_coordinator_of_its_view() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.skip_to(5, None);
    for peer in bench.peers().into_iter().filter(|peer| *peer != one.block.proposer.0) {
        assert_eq!(bench.deliver(peer, sends(&one)), Err(Reject::WrongSender));
    }
    bench.emit(&other);
    assert_eq!(bench.votes(), [], "the coordinator has not equivocated");
}

/// A Byzantine coordinator signs blocks on parents that nobody has. It takes no room of other peers.
#[test]
fn a8_second_block_counts_while_a_peer_names_blocks_without_end() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let mut bench = Bench::new();
    bench.emit(&one);
    assert_eq!(bench.deliver(0, sends(&other)), Err(Reject::Equivocation));
    for height in 2..=HEIGHTS_AHEAD + 1 {
        let parent = id(&cblock(FIRST, ROOT, height + 2));
        bench.emit(&cblock(FIRST, (height - 1, parent), 1));
    }
    let vote = data(1, genesis(), &other);
    bench.take(1, relay(2, Some(&vote)));
    bench.take(1, hands_on(std::slice::from_ref(&other)));
    assert!(bench.is_accepted(&vote));
}

#[test]
fn a8_equal_blocks_are_no_evidence() {
    let one = cblock(FIRST, ROOT, 1);
    let mut bench = Bench::voter(&[], &[]);
    bench.lack_bodies();
    bench.skip_to(5, None);
    bench.emit(&one);
    bench.take(2, hands_on(std::slice::from_ref(&one)));
    let _ = bench.deliver(0, sends(&one));
    assert_eq!(bench.votes(), []);
}

/// Pitfall 8: the vote chain decides which branch of an equivocating coordinator is followed.
#[test]
fn a8_second_block_counts_where_a_vote_names_it() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let first = data(1, genesis(), &other);
    let mut bench = Bench::new();
    bench.emit(&one);
    assert_eq!(bench.deliver(0, sends(&other)), Err(Reject::Equivocation));
    bench.cast(&first);
    bench.pass(quarter());
    assert!(!bench.is_accepted(&first), "the second block is not kept");
    assert_eq!(wants_in(&bench.said()), [(To::One(r(0)), id(&other))]);
    bench.take(1, hands_on(std::slice::from_ref(&other)));
    assert!(bench.is_accepted(&first));
}

/// §2, Fetch: votes, blocks and bodies are asked for at once.
#[test]
fn a16_missing_votes_blocks_and_bodies_are_asked_for_together() {
    let blocks = stream(FIRST, ROOT, 3);
    let first = data(1, genesis(), &blocks[0]);
    let second = data(2, first.place(), &blocks[2]);
    let mut bench = Bench::new();
    bench.take(3, relay(3, Some(&second)));
    let said = bench.said();
    let is_want = |(to, it): &(To, Message)| {
        *to == To::One(r(3)) && matches!(it, UniqueMessage::Want { id, .. } if *id == first.id())
    };
    assert!(said.iter().any(is_want), "{said:?}");
    assert_eq!(wants_in(&said), [(To::One(r(3)), id(&blocks[2]))]);
    assert_eq!(bench.replica.wanted(), [(id(&blocks[2]), r(3))]);
    bench.take(3, hands_on(&blocks));
    bench.take(3, UniqueMessage::Entries { entries: vec![frame(&first)] });
    assert!(bench.is_accepted(&second));
    assert_eq!(bench.round(), 3);
}

/// All blocks of lower votes are on the path to the block of the last one.
#[test]
fn a16_votes_of_one_answer_lead_to_one_question_for_blocks() {
    let blocks = stream(FIRST, ROOT, 4);
    let mut votes = vec![data(1, genesis(), &blocks[0])];
    for (round, block) in (2..).zip(&blocks[1..]) {
        votes.push(data(round, votes[votes.len() - 1].place(), block));
    }
    let mut bench = Bench::new();
    bench.take(3, relay(5, Some(&votes[3])));
    bench.clear();
    bench.take(3, UniqueMessage::Entries { entries: votes[..3].iter().map(frame).collect() });
    assert_eq!(wants_in(&bench.said()), [(To::One(r(3)), id(&blocks[2]))]);
    let bodies: Vec<BlockId> = bench.replica.wanted().into_iter().map(|(block, _)| block).collect();
    assert_eq!(bodies, blocks[..3].iter().map(id).collect::<Vec<_>>());
    bench.take(3, hands_on(&blocks));
    assert!(bench.is_accepted(&votes[3]));
}

/// An answer has 256 blocks at most. The next question follows once these are here.
#[test]
fn a16_blocks_above_a_full_answer_are_asked_for() {
    let blocks = stream(FIRST, ROOT, 272);
    let mut votes = vec![data(1, genesis(), &blocks[15])];
    for round in 2..=17 {
        let place = votes[votes.len() - 1].place();
        votes.push(data(round, place, &blocks[usize::try_from(round).unwrap() * 16 - 1]));
    }
    let last = id(&blocks[271]);
    let mut bench = Bench::new();
    bench.take(3, UniqueMessage::Entries { entries: votes.iter().map(frame).collect() });
    assert_eq!(wants_in(&bench.said()), [(To::One(r(3)), last)]);
    bench.take(3, hands_on(&blocks[..256]));
    assert!(bench.is_accepted(&votes[15]) && !bench.is_accepted(&votes[16]));
    assert_eq!(wants_in(&bench.said()), [(To::One(r(3)), last)]);
    bench.take(3, hands_on(&blocks[256..]));
    assert!(bench.is_accepted(&votes[16]));
    assert_eq!(wants_in(&bench.said()), []);
}

/// The voter's own copy may overtake the coordinator's block.
#[test]
fn a16_blocks_that_may_be_on_their_way_are_asked_for_later() {
    let block = cblock(FIRST, ROOT, 1);
    let first = data(1, genesis(), &block);
    for arrives in [false, true] {
        let mut bench = Bench::new();
        bench.cast(&first);
        bench.pass(quarter() - 1);
        assert_eq!(wants_in(&bench.said()), []);
        if arrives {
            bench.emit(&block);
            assert!(bench.is_accepted(&first));
        }
        bench.pass(1);
        let asked = if arrives { vec![] } else { vec![(To::One(r(0)), id(&block))] };
        assert_eq!(wants_in(&bench.said()), asked);
    }
}

#[test]
fn a16_block_with_an_unknown_parent_is_asked_for_below() {
    let blocks = stream(FIRST, ROOT, 3);
    let mut bench = Bench::new();
    bench.emit(&blocks[2]);
    assert_eq!(wants_in(&bench.said()), [(To::One(r(0)), id(&blocks[1]))]);
    bench.take(0, hands_on(&blocks[..2]));
    let first = data(1, genesis(), &blocks[2]);
    bench.cast(&first);
    assert!(bench.is_accepted(&first));
}

#[test]
fn a16_answers_are_the_path_above_a_height() {
    let blocks = stream(FIRST, ROOT, 300);
    let mut bench = Bench::new();
    blocks.iter().for_each(|block| bench.emit(block));
    bench.clear();
    let asks =
        |id: BlockId, above: u64| UniqueMessage::Own(ArtemisMessage::WantBlocks { id, above: Height(above) });
    for (last, above, answered) in [(2, 1, 1..3), (299, 290, 290..300), (299, 0, 0..256)] {
        bench.take(2, asks(id(&blocks[last]), above));
        let said = bench.said();
        assert_eq!(said, [(To::One(r(2)), hands_on(&blocks[answered]))]);
    }
    assert!(bench.deliver(2, asks(BlockId(Digest([1; 32])), 0)).is_err());
    assert!(bench.deliver(2, asks(id(&blocks[2]), 3)).is_err());
    assert_eq!(bench.said(), []);
}

#[test]
fn a16_blocks_in_an_answer_follow_each_other() {
    let blocks = stream(FIRST, ROOT, 3);
    let gap = cblock(FIRST, (5, id(&blocks[0])), 9);
    let beside = cblock(FIRST, (1, BlockId(Digest([8; 32]))), 9);
    let mut bench = Bench::new();
    for wrong in
        [[&blocks[0], &blocks[2]], [&blocks[1], &blocks[0]], [&blocks[0], &gap], [&blocks[0], &beside]]
    {
        let wrong: Vec<CBlock> = wrong.map(CBlock::clone).into();
        assert!(matches!(bench.deliver(2, hands_on(&wrong)), Err(Reject::Invalid(_))), "{wrong:?}");
    }
}

/// The body of a block arrives after its vote.
#[test]
fn a16_vote_is_accepted_once_its_bodies_are_complete() {
    let blocks = stream(FIRST, ROOT, 2);
    let first = data(1, genesis(), &blocks[1]);
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.cast(&first);
    bench.take(1, hands_on(&blocks));
    assert_eq!(bench.replica.wanted(), [(id(&blocks[0]), r(1)), (id(&blocks[1]), r(1))]);
    assert!(!bench.is_accepted(&first));
    bench.replica.ready(id(&blocks[0]), Ready::Valid);
    bench.replica.ready(id(&blocks[1]), Ready::Valid);
    assert!(bench.is_accepted(&first));
}
