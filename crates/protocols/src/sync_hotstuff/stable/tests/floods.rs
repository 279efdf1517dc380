//! Few messages of a liar must not be expensive, for this replica or for others.

use super::*;
use crate::sync_hotstuff::replica::WINDOWS_AHEAD;

both! {
    headers_without_a_possible_vote_are_checked_once;
    headers_that_are_too_high_cost_nothing;
    certificate_of_an_unknown_block_starts_no_search;
}

/// A leader shows all headers that are kept, except the first one. If every event caused a walk down from each of them, all
/// replicas would stand still together for hours.
fn headers_without_a_possible_vote_are_checked_once<V: Variant>() {
    let setup = Setup { window: 128, ..Setup::of::<SyncHotStuff<V>>(usize::from(N)) };
    let replica = Harness::open(r(ME), setup, &SynchronyParams::default()).unwrap();
    let mut bench = Bench::<V> { replica, n: N };
    bench.run();
    bench.clear();
    let blocks = chain(N, 1, GENESIS, &(1..WINDOWS_AHEAD * 128).collect::<Vec<u64>>());
    for header in &blocks[1..] {
        bench.take(4, voted(header));
    }
    for header in blocks[1..].iter().rev() {
        bench.replica.fetched(header.block.clone());
    }
    assert_eq!(bench.votes(), []);
    bench.propose(&blocks[0]);
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    let certificate = certified(N, &blocks[99]);
    bench.take(4, SyncMessage::Certified(certificate));
    assert_eq!(bench.votes().len(), 100, "the rest of those, and one above");
}

/// They cause no messages, and no other header waits for them.
fn headers_that_are_too_high_cost_nothing<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let first = WINDOWS_AHEAD * 16;
    let at = |height: u64| header(N, 1, GENESIS.1, (Height(height), BlockId::null(Height(height))), 1);
    for number in 0..2_000 {
        assert_eq!(bench.deliver(4, voted(&at(first + 2 * number))), Err(Reject::Early));
    }
    assert_eq!(bench.sent(), []);
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    bench.grow(&blocks);
    assert_eq!(bench.votes(), blocks.iter().map(id).collect::<Vec<_>>());
}

/// LACK has no signature and may name any block.
fn certificate_of_an_unknown_block_starts_no_search<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    bench.grow(&blocks);
    let lack =
        |height: u64, block: BlockId| SyncMessage::Lack { view: View(1), height: Height(height), block };
    let refused = Err(Reject::NotNow("this replica votes for no block above that one"));
    for (height, block) in [(1, BlockId::null(Height(9))), (2, id(&blocks[0])), (0, id(&blocks[0]))] {
        assert_eq!(bench.deliver(4, lack(height, block)), refused);
    }
    bench.take(4, lack(1, id(&blocks[0])));
}
