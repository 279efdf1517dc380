//! Limits on the memory and the messages that a peer may cause.

use super::super::form::VIEWS_WORTH_CHECKING;
use super::*;
use crate::sync_hotstuff::replica::WINDOWS_AHEAD;

/// Heights above the committed one that are handled: the window of the bench is 16.
const HEIGHTS_AHEAD: u64 = WINDOWS_AHEAD * 16;

/// A leader signs headers of any view that it leads, and no window applies to an ANSWER.
#[test]
fn headers_and_votes_of_near_views_are_kept() {
    let mut bench = Bench::new();
    let ahead = u64::from(N);
    let shown = |view: u64, number: u64| {
        let header = header(view, GENESIS, number);
        let mut answer = stands(RecoveryStage::Running);
        answer.header = Some(signed(&header));
        answer.voted = Some(Signed { body: signed(&header), by: r(3), signature: SIGNATURE });
        RotatingMessage::Answer(Box::new(answer))
    };
    let before = bench.size();
    for number in 0..200 {
        bench.take(3, shown(2 + ahead + number, number));
        let _ = bench.deliver(
            3,
            RotatingMessage::Evidence(conflict(
                &header(2 + 2 * ahead + number, GENESIS, 1),
                &header(2 + 2 * ahead + number, GENESIS, 2),
            )),
        );
    }
    assert_eq!((bench.replica.block_count(), bench.size()), (0, before));
    // One header of each view and one vote of each replica are kept.
    for number in 0..50 {
        bench.take(3, shown(1 + ahead, number));
    }
    assert_eq!(bench.replica.block_count(), 1);
    let full = bench.size();
    for number in 50..100 {
        bench.take(3, shown(1 + ahead, number));
    }
    assert_eq!(bench.size(), full);
}

#[test]
fn headers_that_are_too_high_are_refused() {
    let mut bench = Bench::new();
    let at = |height: u64| header(1, Tip { view: View(0), height: Height(height - 1), id: GENESIS.id }, 1);
    let too_high = at(HEIGHTS_AHEAD + 1);
    assert!(bench.replica.window().admits(&voted(&too_high).place()));
    assert_eq!(bench.deliver(0, proposal(&too_high)), Err(Reject::Early));
    assert_eq!(bench.replica.block_count(), 0);
    // Others may have voted for it: no conflicting header is voted for, and all learn of the conflict.
    let first = header(1, GENESIS, 1);
    assert_eq!(bench.deliver(0, proposal(&first)), Err(Reject::Equivocation));
    assert_eq!(bench.votes(), []);
    let mut bench = Bench::new();
    bench.propose(&first);
    bench.vote(bench.few(), &first);
    bench.pass(delta(2));
    let low = header(3, GENESIS, 1);
    assert_eq!(bench.deliver(2, voted(&low)), Err(Reject::Stale), "it is settled at that height");
}

/// Views follow each other, with commits, checkpoints and votes of all.
#[test]
fn settled_state_is_forgotten() {
    let mut bench = Bench::new();
    let (mut on, mut sizes) = (GENESIS, Vec::new());
    for part in 0..6 {
        for view in 1 + part * 50..=50 + part * 50 {
            if leads(view) == r(ME) {
                bench.next_view();
                continue;
            }
            let block = header(view, on, view);
            bench.grow(std::slice::from_ref(&block));
            bench.vote([0, 1, 2, 3], &block);
            on = tip(&block);
        }
        bench.pass(delta(2));
        let head = bench.replica.protocol().chain.committed();
        // The view before this replica's commits with a descendant.
        assert!(on.height.since(head.height) <= 1, "{on:?}");
        bench.replica.log_decided(head.height, head.id);
        bench.replica.checkpoint(head.height);
        sizes.push((bench.size(), bench.replica.records().len()));
    }
    let (second, last) = (sizes[1], sizes[sizes.len() - 1]);
    // Commits by timers are remembered for 256 views.
    let remembered = 250 * format!("{:?}", (View(100), GENESIS.id)).len();
    assert!(last.0 < second.0 + remembered && last.1 == second.1, "{sizes:?}");
    assert!(bench.replica.protocol().state.views.len() <= usize::from(N) + 3);
}

#[test]
fn views_without_a_certificate_are_forgotten() {
    let mut bench = Bench::new();
    let mut sizes = Vec::new();
    for _ in 0..60 {
        let view = bench.view();
        for (number, voter) in (0..).zip([0, 1, 2, 3]) {
            let _ = bench.deliver(voter, voted(&header(view, GENESIS, number)));
        }
        bench.next_view();
        sizes.push(bench.size());
    }
    let (early, late) = (sizes[9], sizes[59]);
    assert!(late < early + early / 5, "{sizes:?}");
}

#[test]
fn window_is_that_of_the_view_and_the_committed_block() {
    let mut bench = Bench::new();
    let window = bench.replica.window();
    assert_eq!(window.views, View(1)..View(VIEWS_WORTH_CHECKING + 2));
    assert_eq!(window.heights, Height(0)..Height::MAX, "headers that are too high must be noticed");
    // Messages of views whose waits run must be verified, in whatever view this replica is.
    let blocks = chain(1, GENESIS, 4);
    bench.grow(&blocks);
    assert_eq!(bench.replica.window().views.start, View(1));
    bench.pass(delta(2));
    for _ in 0..70 {
        bench.next_view();
    }
    let floors = bench.replica.floors();
    assert!(floors.views.len() == 3 && floors.views.iter().all(|(_, view)| *view == View(64)), "{floors:?}");
    // The same holds for views whose certificate may have arrived before the header.
    let mut bench = Bench::new();
    for _ in 0..70 {
        bench.next_view();
    }
    assert_eq!(bench.replica.window().views.start, View(71 - u64::from(N)));
}
