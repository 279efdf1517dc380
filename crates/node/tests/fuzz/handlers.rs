//! Arbitrary messages of members, validly signed, for every registered protocol: being registered is all that it takes.

use crate::runner::{seed, setting};
use quorate_consensus::Entry;
use quorate_protocols::REGISTRY;
use quorate_sim::fuzz;
use std::collections::BTreeMap;
use std::time::Instant;

/// Messages for each protocol.
const MESSAGES: u64 = 6_000;
/// Messages in one world.
const EACH: u64 = 1_500;
/// Every so-manyth world has room for two liars.
const LARGE_EVERY: u64 = 4;

#[test]
fn every_handler_bears_nonsense() {
    for entry in REGISTRY {
        bears_nonsense(entry, setting("QUORATE_FUZZ_MESSAGES").unwrap_or(MESSAGES));
    }
}

fn bears_nonsense(entry: &Entry, messages: u64) {
    let (name, first, start) = (entry.spec.name, seed(), Instant::now());
    let (mut said, mut passed, mut worlds) = (0, 0, 0);
    let (mut kinds, mut refused) = (BTreeMap::new(), BTreeMap::new());
    while said < messages {
        let (seed, each) = (first.wrapping_add(worlds), EACH.min(messages));
        let n = worlds.is_multiple_of(LARGE_EVERY).then_some(7);
        let report = fuzz::run(entry, n, seed, each).unwrap();
        assert!(report.failure.is_none(), "{name}, n {n:?}, {each} messages: {report}");
        assert!(report.heights > 0, "{name}: {report}");
        said += report.said;
        passed += report.passed;
        worlds += 1;
        report.kinds.into_iter().for_each(|(kind, count)| *kinds.entry(kind).or_insert(0) += count);
        report.refused.into_iter().for_each(|(why, count)| *refused.entry(why).or_insert(0) += count);
        if worlds.is_multiple_of(20) {
            eprintln!("{name}: {said} of {messages} messages, {passed} reached a handler, {worlds} worlds");
        }
    }
    println!(
        "{name}: {said} messages in {worlds} worlds, {passed} reached a handler ({} %), {} ms",
        passed * 100 / said,
        start.elapsed().as_millis()
    );
    println!("{name}: {kinds:?}\n{name}: refused {refused:?}");
    assert!(passed * 2 >= said, "{name}: {passed} of {said} messages reach a handler: at least half have to");
}

/// A seed decides what is said and what comes of it.
#[test]
fn a_seed_decides_the_nonsense() {
    let run = || fuzz::run(&REGISTRY[0], None, 5, 200).unwrap();
    let (first, second) = (run(), run());
    assert!(first.said >= 200, "{first}");
    assert_eq!(first, second);
}
