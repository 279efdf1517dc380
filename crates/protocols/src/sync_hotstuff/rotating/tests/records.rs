//! State after a crash.

use super::super::RotatingRecord;
use super::*;
use quorate_consensus::Record;

/// §18: they need no sync of their own; acknowledged blocks can be proved after a cold start.
#[test]
fn certificates_are_durable_with_the_next_sync() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.propose(&first);
    bench.replica.settle();
    bench.replica.lines();
    bench.vote(bench.few(), &first);
    let lines = bench.replica.lines();
    let holds = lines.iter().any(|line| line.starts_with("hold"));
    assert!(!holds && bench.replica.unsynced() == 1, "{lines:#?}");
    let highest = |bench: &Bench| bench.replica.protocol().state.certificates.highest().block();
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!((highest(&bench), bench.view()), (id(&first), 2));
    // Also a certificate that was only received, and that is no lock.
    let mut bench = Bench::new();
    bench.next_view();
    bench.take(3, shows(&first));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(highest(&bench), id(&first));
    assert_eq!(bench.replica.protocol().state.lock.block(), GENESIS.id, "it is no lock after a crash either");
}

/// A power cut at any place makes no replica equivocate: the harness checks the slots.
#[test]
fn no_end_of_the_log_makes_a_replica_equivocate() {
    type Step = fn(&mut Bench);
    let first = || header(1, GENESIS, 1);
    let steps: [Step; 5] = [
        |bench| bench.propose(&header(1, GENESIS, 1)),
        |bench| bench.vote([0, 2, 3], &header(1, GENESIS, 1)),
        |bench| bench.replica.offer([payload(7)]),
        |bench| bench.take(0, blamed(2)),
        |bench| bench.pass(delta(1)),
    ];
    let mut cases = 0;
    for me in [1, ME] {
        for last in 0..steps.len() {
            for synced in [false, true] {
                let mut kept = 0;
                loop {
                    let mut bench = Bench::running(me, N);
                    for step in &steps[..last] {
                        step(&mut bench);
                        bench.replica.settle();
                    }
                    steps[last](&mut bench);
                    if synced {
                        bench.replica.settle();
                    }
                    if kept > bench.replica.unsynced() {
                        break;
                    }
                    bench.replica.crash_after(kept).unwrap();
                    let other = header(1, GENESIS, 9);
                    bench.replica.fetched(first().block);
                    bench.replica.fetched(other.block.clone());
                    bench.run();
                    bench.replica.offer([payload(8)]);
                    let above = header(2, tip(&other), 5);
                    for message in [proposal(&other), shows(&other), blamed(1), proposal(&above)] {
                        let _ = bench.deliver(0, message.clone());
                        let _ = bench.deliver(3, message);
                        bench.pass(delta(1));
                    }
                    (kept, cases) = (kept + 1, cases + 1);
                }
            }
        }
    }
    assert!(cases > 20, "{cases}");
}

#[test]
fn left_view_has_no_votes_after_a_crash() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    bench.run();
    bench.propose(&first);
    assert_eq!(bench.votes(), []);
    bench.pass(delta(1));
    assert_eq!(bench.view(), 2);
}

/// A cluster that has been idle since its last checkpoint finds the end of its chain.
#[test]
fn end_of_the_chain_survives_a_checkpoint() {
    let blocks = chain(1, GENESIS, 4);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.pass(delta(2));
    let head = bench.replica.protocol().chain.committed();
    assert_eq!(head.height, Height(4));
    bench.replica.log_decided(head.height, head.id);
    bench.replica.checkpoint(head.height);
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!((bench.replica.status().committed, bench.view()), (Height(4), 5));
    bench.run();
    bench.replica.offer([payload(7)]);
    assert_eq!(proposed_in(&bench.said()), [(View(5), head.id)]);
}

#[test]
fn records_replace_each_other() {
    let first = header(1, GENESIS, 1);
    let entered = |view, lock| RotatingRecord::Entered { view: View(view), quit: false, blames: None, lock };
    let said = |voted| RotatingRecord::Said { voted, proposed: None };
    let pairs = [
        (entered(1, certified(&first)), entered(2, certificate(2, GENESIS.id, 3))),
        (said(None), said(Some(signed(&first)))),
        (RotatingRecord::Highest(certified(&first)), RotatingRecord::Highest(certificate(2, GENESIS.id, 3))),
    ];
    let keys: std::collections::BTreeSet<_> = pairs.iter().map(|(one, _)| one.key()).collect();
    assert_eq!(keys.len(), pairs.len());
    for (one, other) in pairs {
        assert_eq!(one.key(), other.key());
        assert_eq!(one.key().height, Height(0), "no checkpoint drops it");
    }
}
