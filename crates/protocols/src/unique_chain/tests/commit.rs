//! U11, U12 and U17: commits, conflicts and alarms.

use super::*;

#[test]
fn u11_entry_of_f_plus_1_distinct_leaders_commits_its_ancestor() {
    let blocks = chain(1, GENESIS, 4);
    let mut bench = Bench::new();
    bench.grow(&blocks[..2]);
    assert_eq!(bench.committed(), []);
    bench.grow(&blocks[2..3]);
    assert_eq!(bench.committed(), [id(&blocks[0])], "three leaders of five");
    bench.propose(&blocks[3]);
    assert_eq!(bench.committed(), [id(&blocks[1])]);
}

/// Pitfall 3: leaders are counted, not rounds.
#[test]
fn u11_leader_that_comes_again_counts_once() {
    // Only leaders 0 and 1 have entries: rounds 1, 2, 6, 7, 11.
    let mut on = GENESIS;
    let mut bench = Bench::new();
    let mut blocks = Vec::new();
    for round in [1, 2, 6, 7, 11] {
        let block = entry(round, on, round);
        on = tip(&block);
        blocks.push(block);
    }
    for block in &blocks {
        bench.take(block.block.proposer.0, proposal(block));
    }
    assert_eq!((bench.tip(), bench.committed()), (id(&blocks[4]), vec![]));
    let third = entry(13, on, 13);
    bench.take(2, proposal(&third));
    assert_eq!(bench.committed(), [id(&blocks[3])], "the last one below leaders 0, 1 and 2");
}

#[test]
fn u11_ancestors_are_committed_with_an_entry() {
    let blocks = chain(1, GENESIS, 4);
    let mut bench = Bench::new();
    bench.lack_bodies();
    for block in &blocks {
        let _ = bench.deliver(0, relay(block.block.view.0 + 1, Some(block)));
    }
    let all: Vec<_> = blocks[..3].iter().map(frame).collect();
    let _ = bench.deliver(0, UniqueMessage::Entries { entries: all });
    for block in blocks.iter().rev() {
        bench.replica.ready(id(block), quorate_consensus::Ready::Valid);
    }
    assert_eq!(bench.tip(), id(&blocks[3]));
    assert_eq!(bench.committed().last(), Some(&id(&blocks[1])));
    assert_eq!(bench.replica.status().committed, Height(2));
}

#[test]
fn u11_empty_blocks_are_committed_together() {
    let mut bench = Bench::running(0);
    let (mut on, mut committed) = (GENESIS, Vec::new());
    for round in 1..=12 {
        if leads(round) == r(0) {
            bench.skip(bench_tip(&bench).as_ref());
            continue;
        }
        let block = empty(round, on);
        on = tip(&block);
        bench.grow(std::slice::from_ref(&block));
        committed.extend(bench.committed().into_iter().map(|_| bench.replica.status().committed.0));
    }
    assert_eq!(committed, Vec::<u64>::new());
    for round in 13..=15 {
        let block = empty(round, on);
        on = tip(&block);
        bench.grow(std::slice::from_ref(&block));
    }
    assert_eq!(bench.replica.status().committed, Height(8));
}

fn bench_tip(bench: &Bench) -> Option<Proposal> {
    let entries = &bench.replica.protocol().entries;
    entries.get(entries.tip().id).map(|frame| frame.entry.clone())
}

/// §12: near misses predict that an honest round will be skipped. A later entry may show that one was.
#[test]
fn u17_entry_soon_after_the_own_blame_is_a_near_miss_and_a_later_one_is_a_doubt() {
    const LATE: &str = "the entry of a blamed author arrived more than 2 delta after the blame";
    for (after, alarm) in [(delta(2), "near miss"), (delta(2) + 1, LATE)] {
        let mut bench = Bench::new();
        bench.pass(wait());
        assert_eq!(bench.blames(), [1]);
        bench.pass(after);
        bench.grow(&[entry(1, GENESIS, 1)]);
        assert_eq!(bench.alarms(), (0, vec![alarm]), "{after}");
    }
    // An entry of another round is none.
    let mut bench = Bench::new();
    bench.pass(wait());
    bench.skip(None);
    bench.grow(&[entry(2, GENESIS, 1)]);
    assert_eq!(bench.alarms(), (0, vec![]));
}

/// §12: a valid chain with a higher tip that misses the committed entry. Its header proves it.
#[test]
fn u12_chain_that_skips_the_committing_rounds_stops_the_replica() {
    let (first, other) = (entry(1, GENESIS, 1), entry(1, GENESIS, 2));
    let mut bench = Bench::new();
    bench.grow(&[vec![first.clone()], chain(2, tip(&first), 2)].concat());
    assert_eq!(bench.committed(), [id(&first)]);
    bench.clear();
    bench.propose(&entry(4, tip(&other), 9));
    assert_eq!(bench.alarms().0, 0, "the id of its parent may be invented");
    assert_eq!(wants_in(&bench.said()), [(To::One(r(3)), id(&other).0)]);
    bench.take(3, UniqueMessage::Entries { entries: vec![frame(&other)] });
    assert_eq!(bench.alarms().0, 1);
    // Its parent may be known from a proof: its holder may have stopped, and then answers no question.
    let mut bench = Bench::new();
    bench.grow(&[vec![first.clone()], chain(2, tip(&first), 2)].concat());
    assert_eq!(bench.deliver(3, relay(2, Some(&other))), Err(Reject::Stale));
    let shown = UniqueMessage::Entries { entries: vec![frame(&first)] };
    assert_eq!(
        (bench.alarms().0, bench.said().pop()),
        (0, Some((To::One(r(3)), shown))),
        "and to its holder"
    );
    bench.propose(&entry(4, tip(&other), 9));
    assert_eq!(bench.alarms().0, 1);
    // A parent of an earlier round needs no proof: the committed entry's round is skipped.
    let blocks = chain(1, GENESIS, 4);
    for (round, parent) in [(7, GENESIS), (8, tip(&blocks[0]))] {
        let mut bench = Bench::running(0);
        for block in &blocks {
            let _ = bench.deliver(1, relay(block.block.view.0 + 1, Some(block)));
        }
        assert_eq!((bench.replica.status().committed, bench.alarms().0), (Height(2), 0));
        bench.propose(&entry(round, parent, 9));
        assert_eq!(bench.alarms().0, 1, "{round} {parent:?}");
    }
}

/// §10: f + 1 leaders have signed above a rival of the committed entry, before the round of the committing one.
#[test]
fn u12_rival_that_is_committed_as_well_stops_the_replica() {
    let (mut on, mut blocks) = (GENESIS, Vec::new());
    for round in [1, 2, 6, 7, 11, 13] {
        blocks.push(entry(round, on, round));
        on = tip(&blocks[blocks.len() - 1]);
    }
    let mut bench = Bench::new();
    bench.grow(&blocks);
    assert_eq!(bench.committed(), [id(&blocks[3])]);
    let rival = entry(7, tip(&blocks[2]), 99);
    let above = chain(8, tip(&rival), 2);
    for block in &above {
        let _ = bench.deliver(block.block.proposer.0, proposal(block));
        assert_eq!(bench.alarms().0, 0);
    }
    bench.take(2, UniqueMessage::Entries { entries: vec![frame(&rival)] });
    assert_eq!(bench.alarms().0, 1, "leaders 1, 2 and 3");
    // Entries that are not asked for are not kept.
    let unknown = entry(7, tip(&blocks[2]), 98);
    bench.take(2, UniqueMessage::Entries { entries: vec![frame(&unknown)] });
    assert!(!bench.replica.protocol().entries.contains(id(&unknown).0));
}

/// §12: the leader has accepted its own entry, so the certificate is of a round below its tip.
#[test]
fn u17_skip_certificate_of_the_own_round_is_a_doubt() {
    let proposed = || {
        let mut bench = Bench::running(0);
        bench.replica.offer([payload(7)]);
        bench.replica.settle();
        assert_eq!((bench.round(), bench.alarms().1.len()), (2, 0));
        bench
    };
    for (from, shown) in
        [(1, relay(2, None)), (1, relay(4, None)), (1, blamed(3, None)), (1, proposal(&entry(2, GENESIS, 1)))]
    {
        let mut bench = proposed();
        for _ in 0..2 {
            let _ = bench.deliver(from, shown.clone());
        }
        assert_eq!(bench.alarms().1.len(), 1, "once: {shown:?}");
    }
    // Other rounds are none, and neither is one in which this replica was down.
    let mut bench = proposed();
    let own = bench.replica.protocol().own.as_ref().unwrap().entry.clone();
    bench.take(1, relay(4, Some(&own)));
    bench.replica.settle();
    bench.replica.crash().unwrap();
    bench.run();
    bench.replica.settle();
    let _ = bench.deliver(1, relay(2, None));
    assert_eq!(bench.alarms(), (0, vec![]));
}
