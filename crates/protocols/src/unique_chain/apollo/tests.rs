//! Tests of the rules of Apollo, named after the table of its module.

mod attacks;

use super::super::tests::*;
use super::super::{Apollo, Form as _, UniqueChain, UniqueMessage};
use quorate_consensus::harness::{Setup, payload};
use quorate_consensus::parts::chain::{Tip, empty_payload};
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Examined as _, Healed};
use quorate_types::{Height, View};

/// Leader of round 2.
const NEXT: u16 = 1;

#[test]
fn a1_leader_proposes_at_once_on_its_tip() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::running(NEXT);
    bench.grow(std::slice::from_ref(&first));
    // Its chain has requests that are not committed: the next blocks commit them.
    assert_eq!(bench.proposals(), [(2, id(&first))]);
    bench.replica.offer([payload(8)]);
    bench.pass(wait() / 2);
    assert_eq!(bench.proposals(), [], "once in a round");
    // A replica that does not lead the round proposes nothing.
    let mut bench = Bench::new();
    bench.replica.offer([payload(8)]);
    bench.grow(std::slice::from_ref(&first));
    assert_eq!(bench.proposals(), []);
}

#[test]
fn a1_proposal_shows_the_skipped_rounds_since_its_parent() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::running(3);
    bench.grow(std::slice::from_ref(&first));
    bench.clear();
    bench.take(0, relay(4, Some(&first)));
    let said = bench.said();
    let shown = said.iter().find_map(|(_, it)| match it {
        UniqueMessage::Entry { entry, skips } => {
            Some((entry.parent_round, entry.block.parent, skips.clone()))
        }
        _ => None,
    });
    assert_eq!(shown, Some((View(1), id(&first), skips(1, 4))));
    assert!(said.iter().all(|(_, it)| claims::claims_of(it).is_ok()));
}

#[test]
fn a1_two_full_windows_hold_payloads_back() {
    let mut bench = Bench::running(0);
    let mut on = GENESIS;
    for round in (2..=40).filter(|round| leads(*round) != r(0)) {
        let block = entry(round, on, round);
        on = tip(&block);
        bench.replica.offer([payload(100 + round)]);
        bench.grow(std::slice::from_ref(&block));
    }
    let window = bench.replica.protocol().genesis.window;
    let own = &bench.replica.protocol().own.as_ref().unwrap().entry.block;
    assert_eq!((own.view, own.height), (View(41), Height(2 * window + 1)));
    assert_eq!(own.payload, empty_payload(), "requests wait for a checkpoint");
}

#[test]
fn a2_idle_leader_proposes_an_empty_block_after_a_heartbeat() {
    let first = empty(1, GENESIS);
    let mut bench = Bench::running(NEXT);
    bench.grow(std::slice::from_ref(&first));
    bench.pass(heartbeat() - 1);
    assert_eq!(bench.proposals(), []);
    bench.pass(1);
    let said = bench.said();
    let is_empty = |it: &Message| matches!(it, UniqueMessage::Entry { entry, .. } if entry.block.payload == empty_payload());
    assert!(said.iter().any(|(_, it)| is_empty(it)), "{said:?}");
    // A request does not wait.
    let mut bench = Bench::running(NEXT);
    bench.grow(std::slice::from_ref(&first));
    bench.replica.offer([payload(7)]);
    assert_eq!(bench.proposals(), [(2, id(&first))]);
}

#[test]
fn a3_block_of_another_height_is_never_accepted() {
    let first = entry(1, GENESIS, 1);
    for height in [1, 3] {
        let mut wrong = entry(2, tip(&first), 2);
        wrong.block.height = Height(height);
        let mut bench = Bench::new();
        bench.grow(std::slice::from_ref(&first));
        let _ = bench.deliver(1, proposal(&wrong));
        assert_eq!((bench.tip(), bench.round()), (id(&first), 2), "{height}");
    }
}

/// Known blocks are forgotten by height, so a Byzantine leader could make each replica keep one more block in each of its rounds.
#[test]
fn a3_block_that_is_higher_than_its_rounds_allow_is_not_known() {
    let first = entry(1, GENESIS, 1);
    for parent in [id(&first), id(&entry(1, GENESIS, 9))] {
        let on = Tip { view: View(1), height: Height(1), id: parent };
        let mut wrong = entry(2, on, 2);
        for (height, is_known) in [(u64::MAX, false), (3, false), (2, true)] {
            let mut bench = Bench::new();
            bench.grow(std::slice::from_ref(&first));
            bench.lack_bodies();
            wrong.block.height = Height(height);
            let before = bench.replica.block_count();
            let _ = bench.deliver(0, relay(3, Some(&wrong)));
            assert_eq!(bench.replica.block_count() - before, usize::from(is_known), "{height}");
            assert_eq!(!bench.replica.wanted().is_empty(), is_known, "{height}");
        }
    }
}

#[test]
fn a4_wait_is_four_delta_and_a_heartbeat() {
    let bench = Bench::running(ME);
    let params = SynchronyParams::default();
    assert_eq!(Apollo::round_ns(bench.replica.protocol()), params.delta().times(4) + params.heartbeat_ns());
}

/// §21.
#[test]
fn a5_recovery_is_bounded_by_bad_rounds_and_n_good_ones() {
    type Protocol = UniqueChain<Apollo>;
    let params = Protocol::exam_params(100_000_000, false);
    let of = |n: usize| {
        let committee = Setup::of::<Protocol>(n).committee::<Protocol>();
        let healed = Healed { delta_ns: 0, outage_ns: 0, client_retry_ns: 0, fetch_ns: 0, restarted: 0 };
        Protocol::recovery(&params, &committee, &healed).0
    };
    let (delta, heartbeat) = (params.delta(), params.heartbeat_ns());
    // Two replicas more: a bad round more, two good ones, and two more peers to fetch from.
    let more = delta.times(18) + 2 * heartbeat + 2 * (delta.times(6) + heartbeat) + delta.times(2);
    assert_eq!(of(5) - of(3), more);
}
