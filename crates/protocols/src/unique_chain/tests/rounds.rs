//! U5, U6, U8, U9, U10, U13 and U16: rounds, waits, blames and help.

use super::*;

#[test]
fn u5_leader_of_a_round_receives_a_relay_however_the_round_was_reached() {
    let blocks = chain(1, GENESIS, 2);
    // By an accepted entry.
    let mut bench = Bench::new();
    bench.grow(&blocks[..1]);
    assert_eq!(bench.said(), [(To::One(r(1)), flagged(2, Some(&blocks[0])))]);
    // By a proof of another replica.
    bench.take(0, relay(3, Some(&blocks[0])));
    assert_eq!(bench.relays(), [(To::One(r(2)), 3)]);
    // By f + 1 blames: then all receive it.
    for peer in [0, 1, 2] {
        bench.take(peer, blamed(3, Some(&blocks[0])));
    }
    assert_eq!(bench.relays(), [(To::One(r(3)), 4), (To::All, 4)]);
}

#[test]
fn u5_replica_whose_entry_leads_into_the_round_sends_no_relay() {
    let mut bench = Bench::running(0);
    bench.replica.offer([payload(7)]);
    bench.replica.settle();
    assert_eq!(bench.round(), 2);
    let said = bench.said();
    assert_eq!((proposals_in(&said).len(), relays_in(&said)), (1, vec![]));
    // The leader itself needs none.
    let mut bench = Bench::running(1);
    bench.grow(&[entry(1, GENESIS, 1)]);
    assert_eq!(bench.relays(), []);
}

#[test]
fn u5_relay_leaves_without_the_disk() {
    let mut bench = Bench::new();
    bench.propose(&entry(1, GENESIS, 1));
    assert_eq!(relays_in(&bench.replica.sent()), [(To::One(r(1)), 2)]);
}

#[test]
fn u6_leader_is_blamed_after_4_delta_and_a_heartbeat() {
    let mut bench = Bench::new();
    bench.grow(&[entry(1, GENESIS, 1)]);
    bench.clear();
    bench.pass(wait() - 1);
    assert_eq!(bench.blames(), [0; 0]);
    bench.pass(1);
    let said = bench.said();
    let [(To::All, UniqueMessage::Blame(shown))] = &said[..] else { panic!("{said:?}") };
    assert_eq!((shown.round, shown.tip_place()), (View(2), place(&entry(1, GENESIS, 1))), "with its proof");
}

/// Pitfall 11.
#[test]
fn u6_no_message_prolongs_the_wait() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.grow(std::slice::from_ref(&first));
    bench.pass(wait() - delta(1));
    let late = entry(5, GENESIS, 9);
    for message in [relay(2, Some(&first)), blamed(2, Some(&first)), proposal(&first), relay(6, Some(&late))]
    {
        bench.lack_bodies();
        let _ = bench.deliver(0, message);
    }
    assert_eq!((bench.round(), bench.wait_ends()), (2, Some(delta(1))));
}

#[test]
fn u6_each_round_has_its_whole_wait() {
    let mut bench = Bench::new();
    bench.grow(&[entry(1, GENESIS, 1)]);
    bench.pass(delta(3));
    bench.grow(&[entry(2, tip(&entry(1, GENESIS, 1)), 2)]);
    assert_eq!(bench.wait_ends(), Some(wait()));
    bench.skip(Some(&entry(2, tip(&entry(1, GENESIS, 1)), 2)));
    assert_eq!(bench.wait_ends(), Some(wait()));
}

#[test]
fn u8_blame_needs_a_sound_guard_and_a_fresh_probe() {
    let mut bench = Bench::new();
    let entered = bench.replica.now();
    bench.grow(&[entry(1, GENESIS, 1)]);
    bench.clear();
    let due = entered.plus(wait());
    bench.replica.answer_sound(None, due.minus(1));
    bench.pass(wait());
    assert_eq!((bench.blames(), bench.replica.asked_fresh()), (vec![], vec![due]), "one more probe");
    bench.replica.sound(None, due);
    assert_eq!(bench.blames(), [2]);
}

#[test]
fn u8_after_a_doubt_the_replica_asks_all_and_waits_anew() {
    let mut bench = Bench::new();
    bench.grow(&[entry(1, GENESIS, 1)]);
    let doubt = bench.replica.now();
    bench.replica.answer_sound(Some(doubt), quorate_types::Time::MAX);
    bench.clear();
    bench.pass(wait());
    // 10 Δ without doubt are over by then.
    let said = bench.said();
    assert_eq!(blames_in(&said), [0; 0], "there was doubt since the round began");
    assert!(matches!(&said[..], [(To::All, UniqueMessage::Ask { proof, .. })] if proof.resync), "{said:?}");
    bench.pass(delta(2));
    assert_eq!((bench.blames(), bench.wait_ends()), (vec![], Some(wait())));
    bench.pass(wait());
    assert_eq!(bench.blames(), [2]);
}

#[test]
fn u8_lasting_doubt_prevents_blames() {
    let mut bench = Bench::new();
    bench.replica.answer_sound(Some(quorate_types::Time::MAX), quorate_types::Time::MAX);
    bench.pass(3 * wait());
    assert_eq!(bench.blames(), [0; 0]);
    // In doubt a replica still accepts, relays and commits (§18).
    let blocks = chain(1, GENESIS, 3);
    bench.grow(&blocks);
    assert_eq!(bench.committed(), [id(&blocks[0])]);
    assert_eq!(bench.relays(), [(To::One(r(1)), 2), (To::One(r(2)), 3), (To::One(r(3)), 4)]);
}

#[test]
fn u8_entry_of_a_blamed_leader_is_accepted() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.pass(wait());
    assert_eq!(bench.blames(), [1]);
    bench.grow(&[first]);
    assert_eq!(bench.round(), 2);
}

#[test]
fn u9_f_plus_1_blames_skip_a_round_and_fewer_do_not() {
    let mut bench = Bench::new();
    for peer in [0, 1, 1] {
        bench.take(peer, blamed(1, None));
        assert_eq!(bench.round(), 1);
    }
    bench.take(2, blamed(1, None));
    assert_eq!(bench.round(), 2);
    let UniqueMessage::Proof(shown) = bench.said().pop().unwrap().1 else { panic!() };
    assert_eq!((shown.round, shown.skips.len(), shown.skips[0].signers.len()), (View(2), 1, 3));
    // The own blame counts by its own copy.
    let mut bench = Bench::new();
    bench.take(0, blamed(1, None));
    bench.take(1, blamed(1, None));
    bench.pass(wait());
    bench.replica.settle();
    assert_eq!(bench.round(), 2);
}

#[test]
fn u9_blames_that_arrive_before_their_round_count_in_it() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.lack_bodies();
    for peer in [0, 1, 2] {
        bench.take(peer, blamed(2, Some(&first)));
    }
    assert_eq!(bench.round(), 1, "the tip is missing");
    bench.replica.ready(id(&first), quorate_consensus::Ready::Valid);
    assert_eq!(bench.round(), 3);
    assert_eq!(bench.tip(), id(&first));
}

#[test]
fn u10_proof_lets_in_once_its_tip_is_accepted() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.take(3, relay(5, Some(&blocks[1])));
    assert_eq!(bench.round(), 1);
    bench.take(3, UniqueMessage::Entries { entries: vec![frame(&blocks[0])] });
    bench.replica.ready(id(&blocks[0]), quorate_consensus::Ready::Valid);
    assert_eq!(bench.round(), 2);
    bench.replica.ready(id(&blocks[1]), quorate_consensus::Ready::Valid);
    assert_eq!((bench.tip(), bench.round()), (id(&blocks[1]), 5));
    // The leader shows the skip certificates of the proof.
    bench.replica.offer([payload(7)]);
    let said = bench.said();
    let shown = said
        .iter()
        .find_map(|(_, it)| if let UniqueMessage::Entry { skips, .. } = it { Some(skips) } else { None });
    assert_eq!(shown, Some(&skips(2, 5)));
}

#[test]
fn u10_lower_tip_of_a_proof_is_not_needed() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    let unknown = entry(1, GENESIS, 77);
    bench.take(3, relay(5, Some(&unknown)));
    assert_eq!((bench.tip(), bench.round()), (id(&blocks[1]), 5));
    assert!(!bench.replica.protocol().entries.contains(id(&unknown).0));
    let own = bench.replica.protocol().proof().unwrap();
    assert_eq!((own.tip_place(), own.skips), (place(&blocks[1]), skips(2, 5)));
}

#[test]
fn u10_late_entry_of_a_skipped_round_may_become_the_tip() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.grow(&blocks[..1]);
    bench.skip(Some(&blocks[0]));
    bench.skip(Some(&blocks[0]));
    bench.grow(&blocks[1..]);
    let own = bench.replica.protocol().proof().unwrap();
    assert_eq!((own.round, own.tip_place(), own.skips), (View(4), place(&blocks[1]), skips(2, 4)));
}

#[test]
fn u13_messages_of_the_leader_of_the_round_are_read_first() {
    let mut bench = Bench::new();
    bench.grow(&[entry(1, GENESIS, 1)]);
    assert!(bench.replica.lines().contains(&"urgent Some(1)".to_owned()));
    let blocks = chain(2, tip(&entry(1, GENESIS, 1)), 3);
    bench.grow(&blocks);
    assert!(bench.replica.lines().contains(&"urgent None".to_owned()), "it leads the fifth round");
}

#[test]
fn u16_replica_that_blames_an_earlier_round_is_helped() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.clear();
    let late = blamed(2, Some(&blocks[0]));
    for _ in 0..6 {
        assert_eq!(bench.deliver(0, late.clone()), Err(Reject::Stale));
    }
    assert_eq!(bench.relays(), [(To::One(r(0)), 4); 4], "at a limited rate");
    bench.pass(delta(1));
    let _ = bench.deliver(0, late);
    assert_eq!(bench.relays(), [(To::One(r(0)), 4)]);
}

/// §7: unflagged relays are not answered, or every relay of the good case would be.
#[test]
fn u16_flagged_relay_of_an_earlier_round_is_answered() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.clear();
    let _ = bench.deliver(0, relay(2, Some(&blocks[0])));
    assert_eq!(bench.relays(), []);
    let _ = bench.deliver(0, flagged(2, Some(&blocks[0])));
    assert_eq!(bench.relays(), [(To::One(r(0)), 4)]);
}

/// The committed entry alone proves the round if peers have nothing above it. A replica that has learned its block from their
/// reports takes the entry from a proof.
#[test]
fn u10_entry_of_a_block_that_others_have_decided_proves_the_round() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.replica.fetched(first.block.clone());
    bench.replica.decide(Height(1), id(&first));
    assert_eq!((bench.round(), bench.wait_ends()), (2, None));
    bench.clear();
    assert_eq!(bench.deliver(0, blamed(2, Some(&first))), Ok(()));
    assert_eq!(bench.wait_ends(), Some(wait()));
    bench.pass(wait());
    assert_eq!(bench.blames(), [2]);
    bench.take(2, blamed(2, Some(&first)));
    assert_eq!(bench.relays(), [(To::One(r(2)), 3), (To::All, 3)]);
}
