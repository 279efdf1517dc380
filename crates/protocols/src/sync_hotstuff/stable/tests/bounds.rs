//! Limits on the memory and the messages that a peer may cause.

use super::*;
use crate::sync_hotstuff::replica::{Form, WINDOWS_AHEAD};

both! {
    headers_are_kept_within_the_window;
    votes_are_kept_within_the_window;
    early_messages_of_one_take_no_room_of_others;
    settled_state_is_forgotten;
    finished_views_are_forgotten;
    window_is_that_of_the_committed_block;
}

/// Heights above the committed one that are handled: the window of the bench is 16.
const HEIGHTS_AHEAD: u64 = WINDOWS_AHEAD * 16;

/// A leader signs headers of any height, and no window applies to an ANSWER.
fn headers_are_kept_within_the_window<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let header_at = |height: u64| {
        let parent = (Height(height - 1), BlockId::null(Height(height)));
        header(N, 1, GENESIS.1, parent, height)
    };
    // Every other height: adjacent headers would conflict.
    let shown = |start: u64| {
        let mut answer = stands(RecoveryStage::Running);
        answer.headers = (0..32).map(|number| signed(&header_at(start + 2 * number))).collect();
        SyncMessage::Answer(Box::new(answer))
    };
    bench.take(4, shown(HEIGHTS_AHEAD - 6));
    assert_eq!(bench.replica.block_count(), 4, "up to the highest handled height");
    bench.take(4, shown(HEIGHTS_AHEAD + 100_000));
    let before = bench.size();
    for number in 0..100 {
        bench.take(4, shown(HEIGHTS_AHEAD + 1_000 + number * 64));
    }
    assert_eq!((bench.replica.block_count(), bench.size()), (4, before));
    let height = HEIGHTS_AHEAD + 101;
    let parent = certificate(1, (Height(height - 1), BlockId::null(Height(height))), weak(N));
    let high = SyncMessage::Propose { header: header_at(height), parent };
    assert_eq!(bench.deliver(0, high), Err(Reject::Early));
    assert_eq!(bench.replica.block_count(), 4);
}

fn votes_are_kept_within_the_window<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let vote_in = |view: u64, height: u64| {
        let header = header(N, view, GENESIS.1, (Height(height - 1), GENESIS.1), 0);
        let mut answer = stands(RecoveryStage::Running);
        answer.voted = Some(Signed { body: signed(&header), by: r(4), signature: SIGNATURE });
        SyncMessage::Answer(Box::new(answer))
    };
    let before = bench.size();
    for number in 0..200 {
        bench.take(4, vote_in(4 + number, 1));
        bench.take(4, vote_in(2, HEIGHTS_AHEAD + 1 + number));
    }
    assert_eq!(bench.size(), before);
    // A vote at its place counts.
    bench.take(4, vote_in(2, 1));
    assert!(bench.size() > before);
}

/// Scenario 11: a flooding replica loses its own messages.
fn early_messages_of_one_take_no_room_of_others<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    let base = end(&blocks[0]);
    bench.grow(&blocks);
    let flood = |bench: &mut Bench<V>| {
        for _ in 0..5_000 {
            assert_eq!(bench.deliver(0, first_vote(2, (Height(1), GENESIS.1))), Err(Reject::Early));
        }
        bench.size()
    };
    let full = flood(&mut bench);
    assert_eq!(flood(&mut bench), full);
    // Messages of views far ahead are kept of nobody.
    assert_eq!(bench.deliver(1, first_vote(4, base)), Err(Reject::Early));
    assert_eq!(bench.size(), full);
    assert_eq!(bench.deliver(1, new_view(2, &lock(certified(N, &blocks[0])))), Err(Reject::Early));
    bench.clear();
    bench.next_view();
    assert_eq!(bench.first_votes(), [base.1]);
}

/// Blocks follow each other, with commits, checkpoints and votes of all.
fn settled_state_is_forgotten<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let numbers: Vec<u64> = (1..=300).collect();
    let blocks = chain(N, 1, GENESIS, &numbers);
    let mut sizes = Vec::new();
    for part in blocks.chunks(50) {
        for header in part {
            bench.grow(std::slice::from_ref(header));
            let (height, block) = end(header);
            bench.take(4, SyncMessage::Lack { view: View(1), height, block });
            // A certificate of a block that is never shown.
            let elsewhere = certificate(2, (height, BlockId::null(height)), weak(N));
            bench.take(2, SyncMessage::Certified(elsewhere));
            let _ = bench.deliver(2, voted(header));
            let _ = bench.deliver(4, voted(header));
        }
        bench.pass(delta(2));
        let head = bench.replica.protocol().chain.committed();
        assert_eq!(head.id, id(part.last().unwrap()));
        bench.replica.log_decided(head.height, head.id);
        bench.replica.checkpoint(head.height);
        sizes.push((bench.size(), bench.replica.records().len()));
    }
    let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
    assert!(last.0 < first.0 + first.0 / 10 && last.1 <= first.1, "{sizes:?}");
    assert_eq!(bench.replica.floors().height, Height(300));
}

fn finished_views_are_forgotten<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let mut sizes = Vec::new();
    for _ in 0..40 {
        let view = bench.view();
        let blocks = chain(N, view, GENESIS, &[1, 2, 3]);
        for header in &blocks {
            for voter in bench.few() {
                let _ = bench.deliver(voter, voted(header));
            }
        }
        bench.next_view();
        sizes.push(bench.size());
    }
    let (early, late) = (sizes[9], sizes[39]);
    assert!(late < early + early / 5, "{sizes:?}");
}

fn window_is_that_of_the_committed_block<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let window = bench.replica.window();
    assert_eq!((window.views, window.heights), (View(0)..View(4), Height(0)..Height::MAX));
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.grow(&blocks);
    bench.pass(delta(2));
    bench.next_view();
    bench.next_view();
    let window = bench.replica.window();
    assert_eq!((window.views, window.heights), (View(2)..View(6), Height(0)..Height::MAX));
    let floors = bench.replica.floors();
    assert!(floors.height == Height(0) && floors.views.iter().all(|(_, view)| *view == View(2)));
    assert_eq!(floors.views.len(), 4);
}

/// §21, among six, f = 2: the view that runs at the heal, and those of two more leaders.
#[test]
fn f_plus_1_views_may_be_bad_after_a_heal() {
    let committee = Setup::of::<SyncHotStuff<Plain>>(6).committee::<SyncHotStuff<Plain>>();
    assert_eq!(<Plain as Form>::bad_views(&committee), 3);
}
