//! What a peer may make this replica keep, and send.

use super::*;
use crate::sync_hotstuff::WINDOWS_AHEAD;
use quorate_consensus::{Healed, Protocol as _};

both! {
    headers_are_kept_within_the_window;
    votes_are_kept_within_the_window;
    early_messages_of_one_take_no_room_of_others;
    each_replica_has_room_for_one_blame;
    who_asks_without_end_is_answered_now_and_then;
    settled_state_is_forgotten;
    finished_views_are_forgotten;
    window_is_that_of_the_committed_block;
}

/// Heights above the committed one that are looked at: the window of the bench is 16.
const HEIGHTS_AHEAD: u64 = WINDOWS_AHEAD * 16;

/// How much the protocol remembers, by and large.
fn size(bench: &Bench<impl Variant>) -> usize {
    format!("{:?}", bench.replica.protocol()).len()
}

/// A leader signs headers of any height, and an ANSWER is measured against no window.
fn headers_are_kept_within_the_window<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let header_at = |height: u64| {
        let parent = (Height(height - 1), BlockId::null(Height(height)));
        header(N, 1, GENESIS.1, parent, height)
    };
    // Every other height: neighbours would contradict each other.
    let shown = |start: u64| {
        let mut answer = stands(RecoveryStage::Running);
        answer.headers = (0..32).map(|number| signed(&header_at(start + 2 * number))).collect();
        SyncMessage::Answer(Box::new(answer))
    };
    bench.take(4, shown(HEIGHTS_AHEAD - 6));
    assert_eq!(bench.replica.block_count(), 4, "up to so many above the committed block");
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
    // Where it belongs it counts.
    bench.take(4, vote_in(2, 1));
    assert!(bench.size() > before);
}

/// Scenario 11: whoever floods loses its own messages.
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
    // Views far ahead are kept of nobody.
    assert_eq!(bench.deliver(1, first_vote(4, base)), Err(Reject::Early));
    assert_eq!(bench.size(), full);
    assert_eq!(bench.deliver(1, new_view(2, &lock(certified(N, &blocks[0])))), Err(Reject::Early));
    bench.clear();
    bench.next_view();
    assert_eq!(bench.first_votes(), [base.1]);
}

fn each_replica_has_room_for_one_blame<V: Variant>() {
    let mut bench = Bench::<V>::new();
    bench.take(0, SyncMessage::Blame(View(1)));
    let before = bench.size();
    for view in 1..=3 {
        bench.take(0, SyncMessage::Blame(View(view)));
    }
    assert_eq!(bench.size(), before);
    assert_eq!(bench.deliver(0, SyncMessage::Blame(View(2))), Err(Reject::Stale));
    // The newest one counts.
    bench.take(1, SyncMessage::Blame(View(3)));
    bench.take(2, SyncMessage::Blame(View(3)));
    assert_eq!((bench.view(), bench.is_quiet()), (3, true));
}

/// Whatever number of an opening it names.
fn who_asks_without_end_is_answered_now_and_then<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let answers = |bench: &mut Bench<V>, from, count: u64| {
        for number in 0..count {
            let _ =
                bench.deliver(from, SyncMessage::Ask { incarnation: Incarnation(number), above: Height(0) });
        }
        bench.sent().iter().filter(|it| matches!(it, SyncMessage::Answer(_))).count()
    };
    bench.clear();
    assert_eq!(answers(&mut bench, 4, 50), 4);
    assert_eq!(answers(&mut bench, 2, 1), 1, "others do not suffer for it");
    bench.pass(delta(1) - 1);
    assert_eq!(answers(&mut bench, 4, 50), 0);
    bench.pass(1);
    assert_eq!(answers(&mut bench, 4, 50), 4);
}

/// One block after the other, with commits, checkpoints and votes of all.
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
            // Certified somewhere else, and never shown.
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

/// §21, R: nothing without a restart, 3 Δ for f of them, and what all wait for each other where there were more.
#[test]
fn more_restarts_take_longer() {
    const MS: u64 = 1_000_000;
    let params =
        SynchronyParams { delta_ms: 100, boot_wait_ms: 2_000, drift_ppm: 0, ..SynchronyParams::default() };
    let committee = Setup::of::<SyncHotStuff<Plain>>(5).committee::<SyncHotStuff<Plain>>();
    let after = |restarted| {
        let healed = Healed { delta_ns: 0, outage_ns: 0, client_retry_ns: 0, fetch_ns: 0, restarted };
        SyncHotStuff::<Plain>::recovery(&params, &committee, &healed).0
    };
    let more = [1, 2, 3, 5].map(|restarted| after(restarted) - after(0));
    assert_eq!(more, [300 * MS, 300 * MS, 4_300 * MS, 4_300 * MS]);
}
