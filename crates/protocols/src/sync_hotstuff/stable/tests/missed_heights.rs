//! S2, where something of a view was missed: too high, too early, or left out.

use super::*;
use crate::sync_hotstuff::WINDOWS_AHEAD;
use quorate_consensus::LinkEvent;

both! {
    s2_missed_height_is_not_voted_for;
    s2_early_messages_lost_by_a_liar_prevent_no_vote;
    s2_height_left_out_of_an_answer_is_not_voted_for;
    s2_incomplete_answer_delays_no_running_replica;
}

/// §8, Lemma 1 b: a header that is too high to be kept may be what others commit. Whoever has lost it votes for nothing at its
/// height, until it is known what has become of it; and is kept from nothing else.
fn s2_missed_height_is_not_voted_for<V: Variant>() {
    let most = usize::try_from(WINDOWS_AHEAD * 16).unwrap();
    let at = |height: u64| header(N, 1, GENESIS.1, (Height(height), BlockId::null(Height(9))), 1);
    let mut bench = Bench::<V>::new();
    assert!(bench.replica.window().admits(&voted(&at(999)).place()), "or nobody would know");
    bench.sent();
    // The first word of a view is kept wherever it stands.
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

/// What there is no room for of one replica is a liar's, and keeps nobody from anything. What is too high names its base.
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

/// Nor is anything voted for where an ANSWER has had no room for what is certified, before it is known where that lies. A
/// vote without a certificate below it proves nothing: liars could keep whoever opens from voting for as long as they lead.
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
    assert_eq!(bench.votes(), [], "what is certified above may lie beside it");
    blocks[33..35].iter().for_each(|block| bench.replica.fetched(block.block.clone()));
    assert_eq!(bench.votes(), ids(32, 33));
    // What it has left out and is here is no matter.
    let mut bench = Bench::<V>::opened(ME, N);
    blocks[..36].iter().for_each(|block| bench.take(2, voted(block)));
    bench.take(4, cut_short(&blocks));
    blocks[..36].iter().for_each(|block| bench.replica.fetched(block.block.clone()));
    bench.run();
    assert_eq!(bench.votes(), ids(0, 36));
    // Nor is what somebody says that it has voted for.
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

/// What an ANSWER says that has no room for all.
fn cut_short(blocks: &[Header]) -> SyncMessage {
    let mut answer = stands(RecoveryStage::Running);
    answer.headers = blocks[..32].iter().map(signed).collect();
    answer.certificates = vec![certified(N, &blocks[35])];
    SyncMessage::Answer(Box::new(answer))
}

/// Who hears all the same votes on, whatever it is told in answers that it has not asked for; but those close no gap.
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
    assert_eq!(asks(&mut bench), 1, "what was lost may still be missing");
    bench.take(4, SyncMessage::Answer(Box::new(stands(RecoveryStage::Running))));
    assert_eq!(asks(&mut bench), 0);
    // What it has left out and is here is no matter, however much is in flight.
    let mut bench = Bench::<V>::new();
    blocks[..36].iter().for_each(|block| bench.take(2, voted(block)));
    bench.replica.link(r(4), LinkEvent::Gap);
    bench.take(4, cut_short(&blocks));
    assert_eq!(asks(&mut bench), 0);
}
