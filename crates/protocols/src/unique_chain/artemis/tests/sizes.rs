//! Counts of f + 1 among six replicas, f = 2: f + 1 is neither n - f, nor a quorum, nor n.

use super::base_points::{base, decided, point, reports};
use super::*;
use crate::unique_chain::artemis::message::CBLOCK;
use crate::unique_chain::replica::Form as _;
use quorate_consensus::Protocol as _;
use quorate_types::OrderChain;

const SIX: u16 = 6;

#[test]
fn a19_f_plus_1_equal_reports_are_a_point() {
    let good = point(1_030, 2);
    let mut bench = decided(Bench::running_among(ME, SIX), 3);
    for peer in [0, 1] {
        bench.take(peer, reports(&[good]));
    }
    assert_eq!(base(&bench), genesis());
    bench.take(3, reports(&[good]));
    assert_eq!(base(&bench), good.vote);
}

/// §10.
#[test]
fn proof_of_order_has_f_plus_1_voters() {
    let committee = Setup::of::<UniqueChain<Artemis>>(usize::from(SIX)).committee::<UniqueChain<Artemis>>();
    let block = cblock(FIRST, ROOT, 1);
    let mut votes = vec![data(1, genesis(), &block)];
    votes.extend(again(2, votes[0].place(), id(&block), &VoteKind::Endorse, 3));
    let mut bench = Bench::running_among(ME, SIX);
    bench.emit(&block);
    let voters = |bench: &Bench| match bench.replica.protocol().order_chain(&committee, id(&block)) {
        Some(OrderChain::Votes { votes, .. }) => votes.len(),
        _ => 0,
    };
    let shown: Vec<usize> = votes
        .iter()
        .map(|vote| {
            bench.grow(std::slice::from_ref(vote));
            voters(&bench)
        })
        .collect();
    assert_eq!(shown, [0, 0, 3, 3]);
}

/// §20: liars open at most f views that no honest peer knows, and one honest replica the next.
#[test]
fn f_plus_1_views_above_the_known_one_may_be_forgotten() {
    let committee = Setup::of::<UniqueChain<Artemis>>(usize::from(SIX)).committee::<UniqueChain<Artemis>>();
    let bench = Bench::running_among(ME, SIX);
    let forgotten = Artemis::forgotten(bench.replica.protocol(), &committee);
    let view = bench.replica.protocol().state_after(genesis()).unwrap().view;
    assert!(forgotten.contains(&(CBLOCK, view.plus(3))), "{forgotten:?}");
}
