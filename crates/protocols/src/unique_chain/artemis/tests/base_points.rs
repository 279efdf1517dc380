//! A19: base points bring back a replica that was away for longer than votes are served.

use super::super::BasePoint;
use super::super::base_points::{POINTS_MAX, ROUNDS_APART};
use super::*;
use quorate_types::ReplicaSet;

/// Returns a point in this round whose block has this height.
pub(super) fn point(round: u64, height: u64) -> BasePoint {
    let id = Digest([u8::try_from(round % 251).unwrap(); 32]);
    let anchor = EntryRef { round: View(round - 1), id: Digest([3; 32]) };
    let state = ChainState {
        view: View(3),
        anchor,
        flags: ReplicaSet::EMPTY,
        head: BlockId(Digest([4; 32])),
        height: Height(height),
    };
    BasePoint { vote: EntryRef { round: View(round), id }, state }
}

pub(super) fn reports(points: &[BasePoint]) -> Message {
    UniqueMessage::Own(ArtemisMessage::BasePoints { points: points.to_vec() })
}

fn reported(said: &[(To, Message)]) -> Vec<(To, Vec<BasePoint>)> {
    let points = |(to, it): &(To, Message)| match it {
        UniqueMessage::Own(ArtemisMessage::BasePoints { points }) => Some((*to, points.clone())),
        _ => None,
    };
    said.iter().filter_map(points).collect()
}

/// Returns a replica that has committed a block by the reports of f + 1 peers alone, and knows no vote of it.
fn away(height: u64) -> Bench {
    decided(Bench::new(), height)
}

/// Commits blocks at a replica by the reports of f + 1 peers alone.
pub(super) fn decided(mut bench: Bench, height: u64) -> Bench {
    let mut on = ROOT;
    for number in 1..=height {
        let block = cblock(FIRST, on, number);
        bench.replica.fetched(block.block.clone());
        bench.replica.decide(block.block.height, id(&block));
        on = head(&block);
    }
    assert_eq!(bench.replica.protocol().chain.committed().height, Height(height));
    bench
}

pub(super) fn base(bench: &Bench) -> EntryRef {
    bench.replica.protocol().entries.base()
}

#[test]
fn a19_point_needs_f_plus_1_equal_reports() {
    let (good, other) = (point(1_030, 2), point(1_031, 2));
    let mut bench = away(3);
    bench.take(0, reports(&[good]));
    bench.take(1, reports(&[good]));
    bench.take(1, reports(&[good]));
    let mut twisted = good;
    twisted.state.view = View(4);
    bench.take(2, reports(&[twisted, other]));
    assert_eq!(base(&bench), genesis());
    bench.take(3, reports(&[good]));
    assert_eq!((base(&bench), bench.round()), (good.vote, 1_031));
    assert_eq!(bench.replica.protocol().state_after(good.vote), Some(good.state));
    assert_eq!(bench.deliver(2, reports(&[good])), Err(Reject::Stale));
}

#[test]
fn a19_highest_point_is_adopted_once_its_block_is_committed() {
    let (low, high) = (point(1_030, 2), point(2_050, 4));
    let mut bench = away(1);
    for peer in [0, 1, 2] {
        bench.take(peer, reports(&[low, high]));
    }
    assert_eq!(base(&bench), genesis());
    let blocks = stream(FIRST, ROOT, 4);
    for (block, expected) in blocks.iter().zip([genesis(), low.vote, low.vote]) {
        bench.replica.fetched(block.block.clone());
        bench.replica.decide(block.block.height, id(block));
        assert_eq!(base(&bench), expected);
    }
    let mut bench = away(4);
    for peer in [0, 1, 2] {
        bench.take(peer, reports(&[low, high]));
    }
    assert_eq!(base(&bench), high.vote);
}

/// The votes above the point are accepted, and this replica votes again.
#[test]
fn a19_votes_above_the_point_are_followed() {
    let point = point(1_030, 2);
    let mut bench = away(2);
    let block = cblock(In { view: 3, anchor: point.state.anchor.id }, (2, point.state.head), 9);
    for peer in [0, 1, 2] {
        bench.take(peer, reports(&[point]));
    }
    bench.emit(&block);
    let first = vote_in(3, 1_031, point.vote, id(&block), VoteKind::Data);
    bench.cast(&first);
    assert!(bench.is_accepted(&first));
    bench.skip_to(1_035, Some(&first));
    let said = bench.votes();
    assert_eq!(
        said.iter().map(|vote| (vote.parent, &vote.kind)).collect::<Vec<_>>(),
        [(first.place(), &VoteKind::Endorse)]
    );
    // The point survives a crash.
    bench.replica.crash().unwrap();
    assert_eq!(base(&bench), point.vote);
    assert_eq!(bench.replica.protocol().state_after(point.vote), Some(point.state));
}

/// A good coordinator stays for months, so the point may be of the instance that the replica has followed before.
#[test]
fn a19_coordinator_of_a_known_instance_is_followed_above_the_point() {
    let mut point = point(1_030, 1_200);
    (point.state.view, point.state.anchor) = (View(1), genesis());
    let mut bench = away(1_200);
    for peer in [0, 1, 2] {
        bench.take(peer, reports(&[point]));
    }
    let block = cblock(FIRST, (1_200, point.state.head), 9);
    bench.emit(&block);
    let first = vote(1_031, point.vote, id(&block), VoteKind::Data);
    bench.cast(&first);
    assert!(bench.is_accepted(&first));
}

/// A replica keeps the points of the served rounds, and reports them where votes are no longer served.
#[test]
fn a19_committed_votes_that_cross_a_multiple_are_points() {
    let mut bench = Bench::new();
    let (votes, tip) = grow_to(&mut bench, 5_199);
    bench.clear();
    let crossing: Vec<EntryRef> =
        votes.into_iter().filter(|vote| vote.round.0.is_multiple_of(ROUNDS_APART)).collect();
    let asks = |above: u64| UniqueMessage::Want { id: tip.id, above: View(above) };
    let _ = bench.deliver(2, asks(5_000));
    assert_eq!(reported(&bench.said()), [], "the path is served");
    let _ = bench.deliver(2, asks(1_000));
    let said = reported(&bench.said());
    let places: Vec<EntryRef> = said[0].1.iter().map(|point| point.vote).collect();
    assert_eq!((said.len(), said[0].0), (1, To::One(r(2))));
    assert_eq!(places[..POINTS_MAX - 1], crossing[crossing.len() - (POINTS_MAX - 1)..]);
    assert_eq!(places[POINTS_MAX - 1], base(&bench));
    // The points survive a crash.
    bench.replica.sync();
    bench.replica.crash().unwrap();
    let after: Vec<BasePoint> = bench.replica.protocol().state.points.own.values().copied().collect();
    assert_eq!(after, said[0].1[..POINTS_MAX - 1]);
}

#[test]
fn a19_reports_are_bounded() {
    let mut bench = Bench::new();
    let size = |bench: &Bench| format!("{:?}", bench.replica.protocol()).len();
    bench.take(2, reports(&[point(1_030, 9); 4]));
    let once = size(&bench);
    for round in 1..1_000 {
        bench.take(2, reports(&[point(1_030 + round, 9); 4]));
    }
    assert!(size(&bench) < once + 100);
}

/// A replica that is behind by less than K heights needs no point: peers serve the votes that they have committed, and the blocks
/// that these votes have added, also after their next commit.
#[test]
fn a19_committed_votes_and_blocks_are_served_after_a_cold_start() {
    let mut bench = Bench::new();
    let (votes, mut tip) = grow_to(&mut bench, 61);
    bench.clear();
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(bench.replica.protocol().entries.tip(), tip);
    let before = base(&bench);
    bench.run();
    let state = bench.replica.protocol().state_after(tip).unwrap();
    for (at, block) in (0..).zip(stream(FIRST, (state.height.0, state.head), 3)) {
        bench.emit(&block);
        let next = data(62 + at, tip, &block);
        bench.cast(&next);
        tip = next.place();
    }
    bench.clear();
    assert!(before.round > View(50) && base(&bench) > before, "{:?}", base(&bench));
    bench.take(2, UniqueMessage::Want { id: tip.id, above: View(20) });
    let head = bench.replica.protocol().state_after(tip).unwrap().head;
    let above = Height(20);
    bench.take(2, UniqueMessage::Own(ArtemisMessage::WantBlocks { id: head, above }));
    let (mut path, mut heights) = (Vec::new(), Vec::new());
    for (_, it) in bench.said() {
        match it {
            UniqueMessage::Entries { entries } => path.extend(entries.iter().map(|vote| vote.entry.place())),
            UniqueMessage::Own(ArtemisMessage::Blocks { blocks }) => {
                heights.extend(blocks.iter().map(|block| block.body.block.height.0));
            }
            _ => {}
        }
    }
    assert_eq!(path[..41], votes[20..]);
    assert_eq!(heights, (21..=64).collect::<Vec<_>>());
}
