//! Counts of f + 1 among six replicas, f = 2: f + 1 is neither n - f, nor a quorum, nor n.

use super::*;
use quorate_consensus::Protocol as _;
use quorate_types::OrderChain;

const SIX: u16 = 6;

/// Returns an entry of the leader among six.
fn entry_of_six(round: u64, on: Tip, number: u64) -> Proposal {
    let mut entry = entry(round, on, number);
    entry.block.proposer = r(u16::try_from((round - 1) % u64::from(SIX)).unwrap());
    entry
}

#[test]
fn u9_early_blames_of_f_plus_1_skip_their_round() {
    let first = entry(1, GENESIS, 1);
    for (blamers, round) in [(2, 2), (3, 3)] {
        let mut bench = Bench::running_among(ME, SIX);
        bench.lack_bodies();
        for peer in 0..blamers {
            bench.take(peer, blamed(2, Some(&first)));
        }
        assert_eq!(bench.round(), 1, "the tip is missing");
        bench.replica.ready(id(&first), quorate_consensus::Ready::Valid);
        assert_eq!(bench.round(), round, "{blamers} blames");
    }
}

/// The rival's branch ends before the round that has committed, and f + 1 leaders have signed it.
#[test]
fn u12_rival_with_f_plus_1_leaders_stops_the_replica() {
    let (mut on, mut blocks) = (GENESIS, Vec::new());
    // Leaders 0 and 1 alone, until leader 2 commits.
    for round in [1, 2, 7, 8, 13, 15] {
        blocks.push(entry_of_six(round, on, round));
        on = tip(&blocks[blocks.len() - 1]);
    }
    let mut bench = Bench::running_among(ME, SIX);
    bench.grow(&blocks);
    assert_eq!(bench.committed(), [id(&blocks[3])]);
    let rival = entry_of_six(8, tip(&blocks[2]), 99);
    let next = entry_of_six(9, tip(&rival), 9);
    for block in [&next, &entry_of_six(10, tip(&next), 10)] {
        let _ = bench.deliver(block.block.proposer.0, proposal(block));
        assert_eq!(bench.alarms().0, 0);
    }
    bench.take(2, UniqueMessage::Entries { entries: vec![frame(&rival)] });
    assert_eq!(bench.alarms().0, 1, "leaders 1, 2 and 3");
}

/// `apollo` §10.
#[test]
fn proof_of_order_has_f_plus_1_leaders() {
    let committee = Setup::of::<UniqueChain<Apollo>>(usize::from(SIX)).committee::<UniqueChain<Apollo>>();
    let blocks = chain(1, GENESIS, 4);
    let mut bench = Bench::running_among(ME, SIX);
    let links = |bench: &Bench| match bench.replica.protocol().order_chain(&committee, id(&blocks[0])) {
        Some(OrderChain::Blocks(links)) => links.len(),
        _ => 0,
    };
    let shown: Vec<usize> = (0..4)
        .map(|at| {
            bench.grow(&blocks[at..=at]);
            links(&bench)
        })
        .collect();
    assert_eq!(shown, [0, 0, 3, 3]);
}
