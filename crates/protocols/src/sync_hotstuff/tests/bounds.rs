//! Limits on the memory and the messages that a peer may cause.

use super::*;
use crate::sync_hotstuff::attacks::AttackMessage as _;
use quorate_consensus::{Examined as _, Healed};

every_form! {
    each_replica_has_room_for_one_blame / each_replica_has_room_for_one_blame: one_blame;
    frequent_questions_are_answered_now_and_then / frequent_questions_are_answered_now_and_then: questions;
    more_restarts_take_longer / more_restarts_take_longer: restarts;
}

fn one_blame<F: TestForm>() {
    let blame = |view| F::Message::blame(View(view));
    let mut bench = Bench::<F>::new();
    bench.take(0, blame(1));
    let before = bench.size();
    for view in 1..=3 {
        bench.take(0, blame(view));
    }
    assert_eq!(bench.size(), before);
    assert_eq!(bench.deliver(0, blame(2)), Err(Reject::Stale));
    // The newest one counts.
    bench.take(1, blame(3));
    bench.take(2, blame(3));
    assert_eq!((bench.view(), bench.is_quiet()), (3, true));
}

/// The incarnation in the question does not matter.
fn questions<F: TestForm>() {
    let mut bench = Bench::<F>::new();
    let answers = |bench: &mut Bench<F>, from, count: u64| {
        for number in 0..count {
            let _ = bench.deliver(from, F::question(Incarnation(number)));
        }
        bench.sent().iter().filter(|it| F::stage_in(it).is_some()).count()
    };
    let [_, .., other, last] = bench.peers()[..] else { panic!() };
    bench.clear();
    assert_eq!(answers(&mut bench, last, 50), 4);
    assert_eq!(answers(&mut bench, other, 1), 1, "others have their own quota");
    bench.pass(delta(1) - 1);
    assert_eq!(answers(&mut bench, last, 50), 0);
    bench.pass(1);
    assert_eq!(answers(&mut bench, last, 50), 4);
}

/// §21, R: nothing without a restart, 3 Δ for up to f of them, and a wait of all for each other after more.
fn restarts<F: TestForm>() {
    const MS: u64 = 1_000_000;
    let params =
        SynchronyParams { delta_ms: 100, boot_wait_ms: 2_000, drift_ppm: 0, ..SynchronyParams::default() };
    // f = 2: f + 1 = 3, n - f = 4.
    let committee = Setup::of::<SyncHotStuff<F>>(6).committee::<SyncHotStuff<F>>();
    let after = |restarted| {
        let healed = Healed { delta_ns: 0, outage_ns: 0, client_retry_ns: 0, fetch_ns: 0, restarted };
        SyncHotStuff::<F>::recovery(&params, &committee, &healed).0
    };
    let more = [1, 2, 3, 6].map(|restarted| after(restarted) - after(0));
    assert_eq!(more, [300 * MS, 300 * MS, 4_300 * MS, 4_300 * MS]);
}
