//! U18: facts that survive a crash.

use super::*;

#[test]
fn u18_own_entry_is_durable_before_it_leaves() {
    let mut bench = Bench::running(0);
    bench.replica.offer([payload(7)]);
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 1") < line(&lines, "hold All: propose v1"), "{lines:#?}");
    assert_eq!(bench.replica.sent(), [], "it waits for the disk");
    bench.replica.settle();
    assert_eq!(bench.proposals().len(), 1);
}

/// Scenario 11.
#[test]
fn u18_restarted_leader_repeats_the_same_entry() {
    let mut bench = Bench::running(0);
    bench.replica.offer([payload(7)]);
    bench.replica.settle();
    let said = bench.said();
    bench.replica.crash().unwrap();
    bench.replica.offer([payload(8)]);
    assert_eq!(bench.said().iter().filter(|(_, it)| matches!(it, UniqueMessage::Entry { .. })).count(), 0);
    bench.run();
    let again = bench.said();
    let entry = |said: &[(To, Message)]| -> Vec<Message> {
        said.iter().map(|(_, it)| it.clone()).filter(|it| matches!(it, UniqueMessage::Entry { .. })).collect()
    };
    assert_eq!(entry(&again), entry(&said));
}

#[test]
fn u18_accepted_entries_cost_no_sync_and_survive_with_the_next() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks[..2]);
    bench.replica.sync();
    bench.propose(&blocks[2]);
    bench.replica.crash().unwrap();
    assert_eq!((bench.tip(), bench.round()), (id(&blocks[1]), 3), "the last one was not synced");
    // A log may end after any record.
    for (durable, last) in blocks.iter().enumerate().map(|(before, block)| (before + 1, block)) {
        let mut bench = Bench::new();
        bench.grow(&blocks);
        bench.replica.crash_after(durable).unwrap();
        assert_eq!((bench.tip(), bench.round()), (id(last), last.block.view.0 + 1));
    }
}

#[test]
fn u18_leader_syncs_accepted_entries_with_its_own() {
    let blocks = chain(1, GENESIS, 4);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.replica.offer([payload(7)]);
    bench.replica.settle();
    assert_eq!(bench.round(), 6);
    bench.replica.crash().unwrap();
    assert_eq!(bench.tip(), id(&blocks[3]));
    assert_eq!(bench.replica.protocol().own_round(), View(5));
}
