//! A17: peers can make the state grow by a bounded amount only.

use super::super::blocks::HEIGHTS_AHEAD;
use super::super::form::State;
use super::*;

fn size(bench: &Bench) -> usize {
    format!("{:?}", bench.replica.protocol()).len()
}

/// Pitfall 10.
#[test]
fn a17_blocks_of_unknown_instances_are_bounded() {
    let mut bench = Bench::new();
    let unknown = |number: u64| {
        let anchor = Digest(std::array::from_fn(|at| if at < 8 { number.to_le_bytes()[at] } else { 9 }));
        cblock(In { view: 1, anchor }, ROOT, number)
    };
    let fill = |bench: &mut Bench, numbers: std::ops::Range<u64>| {
        for number in numbers {
            assert_eq!(bench.deliver(0, sends(&unknown(number))), Err(Reject::Early));
        }
        size(bench)
    };
    let full = fill(&mut bench, 0..64);
    let later = fill(&mut bench, 1_000..4_000);
    assert!(later < full + full / 10, "{full} {later}");
    assert_eq!(bench.replica.wanted(), []);
}

/// The newest ones are kept, and count when their instance opens.
#[test]
fn a17_blocks_of_an_instance_that_opens_later_count() {
    let votes = again(1, genesis(), BlockId::ZERO, &VoteKind::NoProgress, 3);
    let second = In { view: 2, anchor: votes[2].id() };
    let blocks = stream(second, ROOT, 2);
    let mut bench = Bench::new();
    for block in &blocks {
        assert_eq!(bench.deliver(1, sends(block)), Err(Reject::Early));
    }
    bench.grow(&votes);
    bench.skip_to(5, Some(&votes[2]));
    let said = bench.votes();
    assert_eq!(
        said.iter().map(|vote| (vote.view, vote.block)).collect::<Vec<_>>(),
        [(View(2), id(&blocks[1]))]
    );
    assert_eq!(bench.patience(second), silence(), "a direct block ends the silence");
}

#[test]
fn a17_blocks_far_ahead_are_refused() {
    let mut bench = Bench::new();
    let at = |height: u64| cblock(FIRST, (height - 1, BlockId(Digest([5; 32]))), 1);
    assert_eq!(bench.deliver(0, sends(&at(HEIGHTS_AHEAD + 1))), Err(Reject::Early));
    assert_eq!(bench.deliver(0, sends(&at(HEIGHTS_AHEAD))), Ok(()));
    // One block for each height, however many its coordinator signs.
    for number in 2..100 {
        let mut other = at(HEIGHTS_AHEAD);
        other.block.time_ns = number;
        assert_eq!(bench.deliver(0, sends(&other)), Err(Reject::Equivocation));
    }
    assert_eq!(bench.replica.protocol().state.blocks.kept.len(), 1);
}

#[test]
fn a17_blocks_of_a_wrong_view_are_refused() {
    let mut bench = Bench::new();
    let wrong = cblock(In { view: 6, ..FIRST }, ROOT, 1);
    assert!(matches!(bench.deliver(0, sends(&wrong)), Err(Reject::Invalid(_))));
}

/// Blocks and states far below the committed vote are forgotten.
#[test]
fn a17_settled_blocks_and_states_are_forgotten() {
    let mut bench = Bench::new();
    grow_to(&mut bench, 5_000);
    let (_, tip) = grow_to(&mut Bench::new(), 4);
    assert_eq!(tip.round, View(4));
    let State { blocks, states, .. } = &bench.replica.protocol().state;
    assert!(blocks.kept.len() <= 1_100 && states.len() <= 1_100, "{} {}", blocks.kept.len(), states.len());
}
