//! A1 to A4: validity of votes.

use super::*;
use quorate_consensus::{Claims, Message as _, Ready};

/// Whether a replica with these blocks accepts the last vote. It must accept all votes before.
fn accepts(blocks: &[CBlock], votes: &[Vote]) -> bool {
    let mut bench = Bench::new();
    blocks.iter().for_each(|block| {
        let _ = bench.deliver(block.block.proposer.0, sends(block));
    });
    let [before @ .., last] = votes else { panic!("no vote") };
    bench.grow(before);
    bench.cast(last);
    assert_eq!(bench.is_kept(last), bench.is_accepted(last), "nothing is missing");
    bench.is_accepted(last)
}

#[test]
fn a1_data_vote_names_a_strict_descendant_of_the_head() {
    let blocks = stream(FIRST, ROOT, 3);
    let first = data(1, genesis(), &blocks[1]);
    for (named, is_valid) in [(0, false), (1, false), (2, true)] {
        let second = data(2, first.place(), &blocks[named]);
        assert_eq!(accepts(&blocks, &[first.clone(), second]), is_valid, "block {named}");
    }
    assert!(!accepts(&blocks, &[vote(1, genesis(), BlockId::ZERO, VoteKind::Data)]), "nor genesis");
}

/// Two blocks for one slot: the second branch has a higher block than the head, and passes the head by.
#[test]
fn a1_data_vote_for_another_branch_is_invalid() {
    let blocks = stream(FIRST, ROOT, 2);
    let beside = cblock(FIRST, head(&blocks[0]), 77);
    let above = cblock(FIRST, head(&beside), 78);
    let first = data(1, genesis(), &blocks[1]);
    let mut bench = Bench::new();
    blocks.iter().for_each(|block| bench.emit(block));
    bench.grow(std::slice::from_ref(&first));
    let second = data(2, first.place(), &above);
    bench.cast(&second);
    assert!(bench.is_kept(&second), "its blocks may arrive");
    bench.pass(quarter());
    bench.take(1, hands_on(&[beside.clone(), above.clone()]));
    assert!(!bench.is_kept(&second));
    // On the other branch the same block is valid.
    let mut bench = Bench::new();
    blocks.iter().for_each(|block| bench.emit(block));
    let second = data(2, genesis(), &above);
    bench.skip_to(2, None);
    bench.cast(&second);
    bench.pass(quarter());
    bench.take(1, hands_on(&[beside, above]));
    assert!(bench.is_accepted(&second));
}

/// The votes of replicas 0, 1 and 2 open view 2.
fn second_view() -> (Vec<Vote>, In) {
    let votes = again(1, genesis(), BlockId::ZERO, &VoteKind::NoProgress, 3);
    let anchor = votes[2].id();
    (votes, In { view: 2, anchor })
}

#[test]
fn a1_data_vote_for_a_block_of_another_instance_is_invalid() {
    let (votes, second) = second_view();
    let on = votes[2].place();
    let of_first = cblock(FIRST, ROOT, 1);
    let of_second = cblock(second, ROOT, 1);
    let of_another = cblock(In { anchor: votes[1].id(), ..second }, ROOT, 1);
    for (block, view, is_valid) in
        [(&of_first, 2, false), (&of_first, 1, false), (&of_second, 1, false), (&of_second, 2, true)]
    {
        let last = vote_in(view, 4, on, id(block), VoteKind::Data);
        let mut bench = Bench::new();
        bench.emit(&of_first);
        bench.grow(&votes);
        bench.emit(&of_second);
        bench.cast(&last);
        assert_eq!((bench.is_accepted(&last), bench.is_kept(&last)), (is_valid, is_valid), "{last:?}");
    }
    // Equal view, and another vote that has opened it.
    let mut bench = Bench::new();
    bench.grow(&votes);
    assert_eq!(bench.deliver(1, sends(&of_another)), Err(Reject::Early));
    let last = vote_in(2, 4, on, id(&of_another), VoteKind::Data);
    bench.cast(&last);
    assert!(!bench.is_accepted(&last));
}

/// A path may not mix instances either.
#[test]
fn a1_path_from_the_head_has_blocks_of_one_instance() {
    let (votes, second) = second_view();
    let below = cblock(FIRST, ROOT, 1);
    let above = cblock(second, head(&below), 2);
    let mut bench = Bench::new();
    bench.emit(&below);
    bench.grow(&votes);
    bench.emit(&above);
    let last = vote_in(2, 4, votes[2].place(), id(&above), VoteKind::Data);
    bench.cast(&last);
    assert!(!bench.is_kept(&last));
}

/// Heights take the place of the sequence numbers.
#[test]
fn a1_gap_in_the_heights_is_invalid() {
    let first = cblock(FIRST, ROOT, 1);
    let gap = cblock(FIRST, (2, id(&first)), 2);
    let above = cblock(FIRST, head(&gap), 3);
    let blocks = [first.clone(), gap.clone(), above.clone()];
    for named in [&gap, &above] {
        assert!(!accepts(&blocks, &[data(1, genesis(), named)]));
    }
    assert!(accepts(&blocks, &[data(1, genesis(), &first)]));
    // Nor does this replica vote for such a block.
    let mut bench = Bench::voter(&[], &blocks);
    bench.skip_to(5, None);
    assert_eq!(bench.votes().iter().map(|vote| vote.block).collect::<Vec<_>>(), [id(&first)]);
    // A block may not have the height of its parent either.
    let level = cblock(FIRST, (0, id(&first)), 4);
    let mut bench = Bench::new();
    bench.emit(&first);
    let second = data(1, genesis(), &level);
    bench.cast(&second);
    bench.pass(quarter());
    bench.take(0, hands_on(&[level]));
    assert!(!bench.is_kept(&second));
}

#[test]
fn a1_vote_without_its_bodies_is_not_accepted() {
    let blocks = stream(FIRST, ROOT, 2);
    let first = data(1, genesis(), &blocks[1]);
    let mut bench = Bench::new();
    bench.lack_bodies();
    blocks.iter().for_each(|block| bench.emit(block));
    bench.cast(&first);
    assert_eq!((bench.is_kept(&first), bench.is_accepted(&first), bench.round()), (true, false, 1));
    bench.replica.ready(id(&blocks[1]), Ready::Valid);
    assert_eq!((bench.is_accepted(&first), bench.round()), (true, 2));
    // A body that no honest replica accepts makes the vote invalid.
    let mut bench = Bench::new();
    bench.lack_bodies();
    blocks.iter().for_each(|block| bench.emit(block));
    bench.cast(&first);
    bench.replica.ready(id(&blocks[1]), Ready::Invalid);
    assert!(!bench.is_kept(&first));
}

#[test]
fn a2_vote_adds_sixteen_blocks_at_most() {
    let blocks = stream(FIRST, ROOT, 33);
    for (named, is_valid) in [(15, true), (16, false)] {
        assert_eq!(accepts(&blocks, &[data(1, genesis(), &blocks[named])]), is_valid, "{named}");
    }
    // Counted from the head of the parent.
    let first = data(1, genesis(), &blocks[15]);
    for (named, is_valid) in [(31, true), (32, false)] {
        let second = data(2, first.place(), &blocks[named]);
        assert_eq!(accepts(&blocks, &[first.clone(), second]), is_valid, "{named}");
    }
    let mut bench = Bench::voter(&[], &blocks);
    bench.skip_to(5, None);
    let said = bench.votes();
    assert_eq!(said.iter().map(|vote| vote.block).collect::<Vec<_>>(), [id(&blocks[15])]);
}

#[test]
fn a2_vote_adds_a_mebibyte_of_bodies_at_most_unless_it_adds_one_block() {
    const HALF: usize = 1 << 19;
    let blocks = stream(FIRST, ROOT, 3);
    // Bytes of the bodies, and the blocks that one vote may add.
    for (bytes, most) in
        [([HALF, HALF, 1], 2), ([HALF, HALF + 1, 0], 1), ([4 * HALF, 1, 0], 1), ([1, 1, 1], 3)]
    {
        let mut bench = Bench::new();
        for (block, bytes) in blocks.iter().zip(bytes) {
            bench.replica.body_bytes(id(block), bytes);
            bench.emit(block);
        }
        bench.skip_to(5, None);
        let own: Vec<BlockId> = bench.votes().iter().map(|vote| vote.block).collect();
        assert_eq!(own, [id(&blocks[most - 1])], "{bytes:?}");
        for (count, named) in (1..).zip(&blocks) {
            let mut bench = Bench::new();
            for (block, bytes) in blocks.iter().zip(bytes) {
                bench.replica.body_bytes(id(block), bytes);
                bench.emit(block);
            }
            let first = data(1, genesis(), named);
            bench.cast(&first);
            assert_eq!(bench.is_accepted(&first), count <= most, "{bytes:?} {count}");
        }
    }
}

#[test]
fn a3_other_votes_name_the_head() {
    let blocks = stream(FIRST, ROOT, 3);
    let first = data(1, genesis(), &blocks[1]);
    for kind in [VoteKind::Endorse, VoteKind::NoProgress] {
        for (named, is_valid) in [(0, false), (1, true), (2, false)] {
            let second = vote(2, first.place(), id(&blocks[named]), kind.clone());
            assert_eq!(accepts(&blocks, &[first.clone(), second]), is_valid, "{kind:?} {named}");
        }
        assert!(accepts(&[], &[vote(1, genesis(), BlockId::ZERO, kind)]), "genesis is a head");
    }
}

#[test]
fn a4_evidence_is_of_the_instance_and_the_vote_names_the_head() {
    let (votes, second) = second_view();
    let on = votes[2].place();
    let two = |of: In| (cblock(of, ROOT, 1), cblock(of, ROOT, 2));
    let (one, other) = two(second);
    let (old, older) = two(FIRST);
    let (elsewhere, too) = two(In { anchor: votes[1].id(), ..second });
    let kinds = [
        (evidence(&one, &other), BlockId::ZERO, true),
        (evidence(&one, &other), id(&one), false),
        (evidence(&old, &older), BlockId::ZERO, false),
        (evidence(&elsewhere, &too), BlockId::ZERO, false),
    ];
    for (kind, named, is_valid) in kinds {
        let last = vote_in(2, 4, on, named, kind);
        let mut all = votes.clone();
        all.push(last.clone());
        assert_eq!(accepts(std::slice::from_ref(&one), &all), is_valid, "{last:?}");
    }
}

fn claims_hold(message: &Message) -> Result<usize, &'static str> {
    let committee = Setup::of::<UniqueChain<Artemis>>(usize::from(N)).committee::<UniqueChain<Artemis>>();
    let mut claims = Claims::new(&committee, 3);
    message.claims(&mut claims);
    claims.finish().map(|claims| claims.len())
}

#[test]
fn a4_evidence_is_two_signed_blocks_for_one_slot() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let says = |kind| casts(&vote(1, genesis(), BlockId::ZERO, kind));
    assert_eq!(claims_hold(&says(evidence(&one, &other))), Ok(2));
    let above = cblock(FIRST, head(&one), 3);
    let elsewhere = cblock(In { anchor: Digest([7; 32]), ..FIRST }, ROOT, 2);
    for second in [&one, &above, &elsewhere] {
        assert!(claims_hold(&says(evidence(&one, second))).is_err(), "{second:?}");
    }
    let mut forged = evidence(&one, &other);
    if let VoteKind::Equivocation(evidence) = &mut forged {
        evidence.second.by = r(1);
    }
    assert!(claims_hold(&says(forged)).is_err(), "of its coordinator");
}

#[test]
fn a4_blocks_are_those_of_their_coordinator_and_instance() {
    let good = cblock(FIRST, ROOT, 1);
    assert_eq!(claims_hold(&sends(&good)), Ok(0), "the sender's own signature is no claim");
    assert_eq!(claims_hold(&hands_on(std::slice::from_ref(&good))), Ok(1));
    let wrong: [fn(&mut CBlock); 5] = [
        |it| it.block.view = View(0),
        |it| it.block.view = View(2),
        |it| it.block.height = Height(0),
        |it| it.block.proposer = r(1),
        |it| it.anchor = Digest([1; 32]),
    ];
    for change in wrong {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(claims_hold(&sends(&bad)).is_err(), "{bad:?}");
        let blocks = vec![Signed { by: r(0), ..signed(&bad) }];
        let handed = UniqueMessage::Own(ArtemisMessage::Blocks { blocks });
        assert!(claims_hold(&handed).is_err(), "{bad:?}");
    }
    let blocks = vec![Signed { by: r(1), ..signed(&good) }];
    assert!(claims_hold(&UniqueMessage::Own(ArtemisMessage::Blocks { blocks })).is_err());
}
