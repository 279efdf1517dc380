//! S2 with missed headers: too high, too early, or left out of an answer.

use super::*;
use crate::sync_hotstuff::replica::WINDOWS_AHEAD;
use quorate_consensus::LinkEvent;

both! {
    s2_missed_height_is_not_voted_for;
    s2_early_messages_lost_by_a_liar_prevent_no_vote;
    s2_height_left_out_of_an_answer_is_not_voted_for;
    s2_incomplete_answer_delays_no_running_replica;
}

/// §8, Lemma 1 b: others may commit a header that is too high to be kept. A replica that has lost it votes for nothing at its
/// height until the fate of that header is known. All other votes are permitted.
fn s2_missed_height_is_not_voted_for<V: Variant>() {
    let most = usize::try_from(WINDOWS_AHEAD * 16).unwrap();
    let at = |height: u64| header(N, 1, GENESIS.1, (Height(height), BlockId::null(Height(9))), 1);
    let mut bench = Bench::<V>::new();
    assert!(bench.replica.window().admits(&voted(&at(999)).place()), "the intake must admit it");
    bench.sent();
    // The first header of a view is kept at every height.
    for height in [999, WINDOWS_AHEAD * 16] {
        assert_eq!(bench.deliver(2, voted(&at(height))), Err(Reject::Early));
    }
    assert_eq!(bench.sent(), []);
    let blocks = chain(N, 1, GENESIS, &(1..=WINDOWS_AHEAD * 16 + 1).collect::<Vec<u64>>());
    let (low, high) = blocks[..most].split_at(most / 2);
    for half in [low, high] {
        bench.grow(half);
        bench.pass(delta(2));
        assert_eq!(bench.votes(), half.iter().map(id).collect::<Vec<_>>());
    }
    bench.propose(&blocks[most]);
    bench.pass(delta(2) - 1);
    assert_eq!(bench.votes(), [], "less than 6 delta later");
    bench.pass(delta(6) + 1);
    assert_eq!(bench.votes(), [id(&blocks[most])]);
}

/// Messages beyond the quota of one replica are a liar's, and prevent no vote. A header that is too high names its base.
fn s2_early_messages_lost_by_a_liar_prevent_no_vote<V: Variant>() {
    let base = chain(N, 1, GENESIS, &[1]);
    let on = chain(N, 2, end(&base[0]), &[1]);
    let early = |message: SyncMessage| {
        let mut bench = Bench::<V>::new();
        bench.grow(&base);
        for _ in 0..5_000 {
            assert_eq!(bench.deliver(4, first_vote(2, end(&base[0]))), Err(Reject::Early));
        }
        assert_eq!(bench.deliver(4, message), Err(Reject::Early));
        bench.next_view();
        bench.clear();
        bench
    };
    let mut bench = early(voted(&on[0]));
    bench.take(1, new_view(2, &lock(certified(N, &base[0]))));
    assert_eq!(bench.first_votes(), [id(&base[0])]);
    bench.take(1, SyncMessage::Certified(certificate(2, end(&base[0]), weak(N))));
    bench.propose(&on[0]);
    assert_eq!(bench.votes(), [id(&on[0])]);
    let mut bench = early(voted(&header(N, 2, BlockId::null(Height(5)), (Height(999), BlockId::ZERO), 1)));
    assert_eq!(bench.deliver(1, new_view(2, &lock(certified(N, &base[0])))), Err(Reject::Equivocation));
    assert_eq!((bench.is_quiet(), bench.first_votes()), (true, vec![]));
}

/// A height that an ANSWER has left out is not voted for before the ancestry of the certified block is known. A vote without a
/// certificate below it proves nothing: otherwise liars could keep an opening replica from voting while they lead.
fn s2_height_left_out_of_an_answer_is_not_voted_for<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &(1..=40).collect::<Vec<u64>>());
    let ids = |from: usize, to: usize| blocks[from..to].iter().map(id).collect::<Vec<BlockId>>();
    let mut bench = Bench::<V>::opened(ME, N);
    bench.take(4, cut_short(&blocks));
    bench.replica.fetched(blocks[35].block.clone());
    bench.run();
    bench.propose(&blocks[32]);
    assert_eq!(bench.votes(), ids(0, 32));
    bench.pass(delta(12));
    assert_eq!(bench.votes(), [], "the certified block above may conflict with it");
    blocks[33..35].iter().for_each(|block| bench.replica.fetched(block.block.clone()));
    assert_eq!(bench.votes(), ids(32, 33));
    // Headers that it has left out and that are known do not matter.
    let mut bench = Bench::<V>::opened(ME, N);
    blocks[..36].iter().for_each(|block| bench.take(2, voted(block)));
    bench.take(4, cut_short(&blocks));
    blocks[..36].iter().for_each(|block| bench.replica.fetched(block.block.clone()));
    bench.run();
    assert_eq!(bench.votes(), ids(0, 36));
    // The alleged vote of a peer does not matter either.
    let mut bench = Bench::<V>::opened(ME, N);
    let far = header(N, 1, GENESIS.1, (Height(200), BlockId::ZERO), 1);
    let vote = Signed { body: signed(&far), by: r(4), signature: SIGNATURE };
    let headers = blocks[..32].iter().map(signed).collect();
    let answer = Answer { headers, voted: Some(vote), ..stands(RecoveryStage::Running) };
    bench.take(4, SyncMessage::Answer(Box::new(answer)));
    bench.run();
    bench.grow(&blocks[..36]);
    assert_eq!(bench.votes(), ids(0, 36));
}

/// Returns an ANSWER without room for all headers.
fn cut_short(blocks: &[Header]) -> SyncMessage {
    let mut answer = stands(RecoveryStage::Running);
    answer.headers = blocks[..32].iter().map(signed).collect();
    answer.certificates = vec![certified(N, &blocks[35])];
    SyncMessage::Answer(Box::new(answer))
}

/// A running replica votes on, whatever unasked answers contain; but such answers close no gap.
fn s2_incomplete_answer_delays_no_running_replica<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &(1..=40).collect::<Vec<u64>>());
    let mut bench = Bench::<V>::new();
    bench.replica.link(r(4), LinkEvent::Gap);
    bench.take(4, cut_short(&blocks));
    bench.propose(&blocks[0]);
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    let asks = |bench: &mut Bench<V>| {
        bench.clear();
        bench.pass(delta(1));
        bench.sent().iter().filter(|it| matches!(it, SyncMessage::Ask { .. })).count()
    };
    assert_eq!(asks(&mut bench), 1, "the lost message may still be missing");
    bench.take(4, SyncMessage::Answer(Box::new(stands(RecoveryStage::Running))));
    assert_eq!(asks(&mut bench), 0);
    // Headers that it has left out and that are known do not matter, however many are in flight.
    let mut bench = Bench::<V>::new();
    blocks[..36].iter().for_each(|block| bench.take(2, voted(block)));
    bench.replica.link(r(4), LinkEvent::Gap);
    bench.take(4, cut_short(&blocks));
    assert_eq!(asks(&mut bench), 0);
}
