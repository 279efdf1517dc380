//! U7: the wait lasts long enough for a fetch from the leader.

use super::*;

/// Returns the grace: 2 Δ, and a quarter for a body that may be on its way.
fn grace() -> u64 {
    delta(2) + quarter()
}

/// Returns a running replica just before the end of its wait in the third round, and the entries of rounds 2 and 3, unknown to
/// it.
fn late() -> (Bench, [Proposal; 2]) {
    let first = entry(1, GENESIS, 1);
    let second = entry(2, tip(&first), 2);
    let third = entry(3, tip(&second), 3);
    let mut bench = Bench::new();
    bench.grow(std::slice::from_ref(&first));
    bench.skip(Some(&first));
    bench.pass(wait() - 1);
    bench.clear();
    bench.lack_bodies();
    (bench, [second, third])
}

#[test]
fn u7_own_copy_of_the_leader_prolongs_the_wait_for_a_fetch() {
    let (mut bench, [second, third]) = late();
    bench.propose(&third);
    assert_eq!(bench.wait_ends(), Some(grace()));
    bench.pass(grace() - 1);
    assert_eq!(bench.blames(), [0; 0]);
    bench.take(2, UniqueMessage::Entries { entries: vec![frame(&second)] });
    bench.replica.ready(id(&second), quorate_consensus::Ready::Valid);
    bench.replica.ready(id(&third), quorate_consensus::Ready::Valid);
    assert_eq!((bench.tip(), bench.round()), (id(&third), 4));
}

#[test]
fn u7_wait_is_prolonged_once_in_a_round() {
    let (mut bench, [_, third]) = late();
    bench.propose(&third);
    bench.pass(grace() - 1);
    bench.propose(&third);
    assert_eq!(bench.wait_ends(), Some(1));
    bench.pass(1);
    assert_eq!(bench.blames(), [3]);
}

/// Pitfall 9: a forwarder that arrives early and never answers would use the grace up.
#[test]
fn u7_forwarded_entry_prolongs_nothing() {
    let (mut bench, [_, third]) = late();
    bench.take(0, relay(4, Some(&third)));
    assert_eq!(bench.wait_ends(), Some(1));
    // The leader is asked although the forwarder was, and its own copy still prolongs the wait.
    bench.propose(&third);
    assert_eq!(bench.wait_ends(), Some(grace()));
    let wants: Vec<To> = wants_in(&bench.said()).into_iter().map(|(to, _)| to).collect();
    assert_eq!(wants, [To::One(r(0)), To::One(r(2))]);
}

#[test]
fn u7_longer_wait_is_not_shortened() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.propose(&first);
    assert_eq!(bench.wait_ends(), Some(wait()));
}

#[test]
fn u7_body_that_may_be_on_its_way_is_asked_for_a_quarter_of_delta_later() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.propose(&first);
    bench.pass(quarter() - 1);
    assert_eq!(bench.replica.wanted(), []);
    bench.pass(1);
    assert_eq!(bench.replica.wanted(), [(id(&first), r(0))]);
    // A body that has come is not asked for.
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.propose(&first);
    bench.replica.ready(id(&first), quorate_consensus::Ready::Valid);
    bench.pass(quarter());
    assert_eq!(bench.replica.wanted(), []);
}
