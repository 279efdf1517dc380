//! U3, U4 and U15: acceptance of entries, equivocation, and fetches.

use super::*;
use quorate_consensus::Ready;

#[test]
fn u3_entry_is_accepted_on_its_parent_with_its_body() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.propose(&blocks[0]);
    assert_eq!((bench.tip(), bench.round()), (BlockId::ZERO, 1), "its body is missing");
    bench.replica.ready(id(&blocks[0]), Ready::Valid);
    assert_eq!((bench.tip(), bench.round()), (id(&blocks[0]), 2));
    // The third one waits for the second.
    bench.propose(&blocks[2]);
    bench.replica.ready(id(&blocks[2]), Ready::Valid);
    assert_eq!(bench.tip(), id(&blocks[0]), "its parent is missing");
    bench.propose(&blocks[1]);
    bench.replica.ready(id(&blocks[1]), Ready::Valid);
    assert_eq!((bench.tip(), bench.round()), (id(&blocks[2]), 4));
}

#[test]
fn u3_invalid_entry_is_never_accepted() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.replica.answer(id(&first), Some(Ready::Invalid));
    let _ = bench.deliver(0, proposal(&first));
    assert_eq!((bench.tip(), bench.round()), (BlockId::ZERO, 1));
    let mut high = first.clone();
    high.block.height = Height(2);
    let mut bench = Bench::new();
    let _ = bench.deliver(0, proposal(&high));
    assert_eq!((bench.tip(), bench.round()), (BlockId::ZERO, 1), "its height is not the next one");
}

/// A message carries the signature of the replica that sends it. Another replica's signature makes no entry.
#[test]
fn u3_entry_is_signed_by_the_author_of_its_round() {
    let first = entry(1, GENESIS, 1);
    let mut bench = Bench::new();
    let author = first.block.proposer.0;
    for peer in bench.peers().into_iter().filter(|peer| *peer != author) {
        assert_eq!(bench.deliver(peer, proposal(&first)), Err(Reject::WrongSender));
    }
    assert_eq!((bench.tip(), bench.round()), (BlockId::ZERO, 1));
    let other = entry(1, GENESIS, 2);
    bench.propose(&other);
    assert_eq!((bench.tip(), bench.alarms().0), (id(&other), 0), "the author has not equivocated");
}

/// §4: acceptance does not depend on the branch that the replica has followed.
#[test]
fn u3_entry_on_another_branch_is_accepted() {
    let (first, other) = (entry(1, GENESIS, 1), entry(1, GENESIS, 2));
    let third = entry(3, tip(&other), 3);
    let mut bench = Bench::new();
    bench.grow(&[first, entry(2, GENESIS, 9)]);
    bench.propose(&third);
    assert_eq!(wants_in(&bench.said()), [(To::One(r(2)), id(&other).0)]);
    let entries = vec![frame(&other)];
    bench.take(2, UniqueMessage::Entries { entries });
    assert_eq!((bench.tip(), bench.round()), (id(&third), 4));
}

#[test]
fn u3_first_accepted_entry_of_the_highest_round_is_the_tip() {
    let blocks = chain(1, GENESIS, 2);
    let other = entry(2, GENESIS, 7);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    let _ = bench.deliver(0, relay(3, Some(&other)));
    assert!(!bench.is_accepted(&other), "the tip of a proof is not needed if its round is not higher");
    let late = entry(4, tip(&other), 8);
    bench.take(3, proposal(&late));
    bench.take(3, UniqueMessage::Entries { entries: vec![frame(&other)] });
    assert!(bench.is_accepted(&other));
    assert_eq!((bench.tip(), bench.round()), (id(&late), 5));
    // The leader of this round extends its tip.
    bench.replica.offer([payload(50)]);
    assert_eq!(bench.proposals(), [(5, id(&late))]);
}

#[test]
fn u3_of_rounds_far_ahead_only_the_newest_entry_of_a_peer_is_kept() {
    let mut bench = Bench::new();
    let far: Vec<Proposal> =
        [7, 8, 9].map(|round| entry(round, tip(&entry(round - 1, GENESIS, 1)), round)).into();
    for block in &far {
        assert_eq!(bench.deliver(block.block.proposer.0, proposal(block)), Err(Reject::Early));
    }
    let relayed = relay(10, Some(&far[2]));
    bench.take(1, relayed);
    let of_1: Vec<View> =
        bench.replica.protocol().inbox.far.values().map(|far| far.entry.block.view).collect();
    assert_eq!(of_1, [View(9), View(8), View(9)], "one of each peer");
    assert_eq!(bench.replica.protocol().entries.pending(), Vec::<Digest>::new());
    assert_eq!(wants_in(&bench.said()).len(), 4, "and the path to each is asked for");
}

#[test]
fn u3_entries_far_ahead_are_taken_once_they_are_near() {
    let mut blocks = chain(1, GENESIS, 4);
    for round in 6..9 {
        blocks.push(entry(round, tip(blocks.last().unwrap()), round));
    }
    let mut bench = Bench::new();
    assert_eq!(bench.deliver(2, proposal(&blocks[6])), Err(Reject::Early));
    bench.grow(&blocks[..2]);
    bench.take(2, UniqueMessage::Entries { entries: blocks[2..6].iter().map(frame).collect() });
    assert_eq!((bench.tip(), bench.round()), (id(&blocks[6]), 9));
}

#[test]
fn u4_second_entry_of_a_round_is_evidence_and_not_accepted() {
    let (first, second) = (entry(1, GENESIS, 1), entry(1, GENESIS, 2));
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.propose(&first);
    assert_eq!(bench.deliver(0, proposal(&second)), Err(Reject::Equivocation));
    assert!(bench.replica.lines().contains(&"accuse 0".to_owned()), "before bodies");
    bench.replica.fetched(second.block.clone());
    assert!(!bench.is_accepted(&second));
    // The same entry again is no equivocation.
    assert_eq!(bench.deliver(0, proposal(&first)), Ok(()));
}

/// Pitfall 5: rejecting the second branch would stop a replica when a later leader extends it.
#[test]
fn u4_second_entry_counts_where_a_later_leader_extends_it() {
    let (first, second) = (entry(1, GENESIS, 1), entry(1, GENESIS, 2));
    let next = entry(2, tip(&second), 3);
    let mut bench = Bench::new();
    bench.grow(std::slice::from_ref(&first));
    assert_eq!(bench.deliver(0, proposal(&second)), Err(Reject::Equivocation));
    bench.propose(&next);
    assert_eq!(wants_in(&bench.said()), [(To::One(r(1)), id(&second).0)]);
    bench.take(1, UniqueMessage::Entries { entries: vec![frame(&second)] });
    assert_eq!((bench.tip(), bench.round()), (id(&next), 3));
}

/// A Byzantine leader signs entries of ever later rounds, each on a parent that nobody has. It takes no room of other peers.
#[test]
fn u4_second_entry_counts_while_a_peer_names_entries_without_end() {
    let (first, second) = (entry(1, GENESIS, 1), entry(1, GENESIS, 2));
    let next = entry(2, tip(&second), 3);
    let mut bench = Bench::new();
    bench.grow(std::slice::from_ref(&first));
    for round in (0..5_000).map(|turn| 11 + turn * u64::from(N)) {
        let unknown = Tip { view: View(round - 1), height: Height(round), id: id(&entry(1, GENESIS, round)) };
        assert_eq!(bench.deliver(0, proposal(&entry(round, unknown, 1))), Err(Reject::Early));
    }
    bench.propose(&next);
    bench.take(1, UniqueMessage::Entries { entries: vec![frame(&second)] });
    assert_eq!((bench.tip(), bench.round()), (id(&next), 3));
}

#[test]
fn u4_each_peer_may_show_one_second_entry_as_its_tip() {
    let entries: Vec<Proposal> = (1..=4).map(|number| entry(2, GENESIS, number)).collect();
    let mut bench = Bench::new();
    bench.lack_bodies();
    for shown in &entries {
        let _ = bench.deliver(0, relay(3, Some(shown)));
    }
    let is_kept = |bench: &Bench, of: &Proposal| bench.replica.protocol().entries.contains(id(of).0);
    let kept: Vec<bool> = entries.iter().map(|shown| is_kept(&bench, shown)).collect();
    assert_eq!(kept, [true, true, false, false], "the first one of all, and one second one");
    let _ = bench.deliver(3, relay(3, Some(&entries[3])));
    assert!(is_kept(&bench, &entries[3]), "another peer has its own");
}

#[test]
fn u15_every_peer_that_shows_an_entry_is_asked_for_the_rest() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.lack_bodies();
    bench.take(0, relay(3, Some(&blocks[1])));
    bench.take(3, relay(3, Some(&blocks[1])));
    bench.propose(&blocks[1]);
    let path = id(&blocks[0]).0;
    assert_eq!(wants_in(&bench.said()), [0, 3, 1].map(|peer| (To::One(r(peer)), path)));
    let wanted = bench.replica.wanted();
    assert_eq!(wanted, [0, 3, 1].map(|peer| (id(&blocks[1]), r(peer))), "at once");
    // The same peer is asked again a Δ later.
    bench.take(0, relay(3, Some(&blocks[1])));
    assert_eq!(wants_in(&bench.said()), []);
    bench.pass(delta(1));
    bench.take(0, relay(3, Some(&blocks[1])));
    assert_eq!(wants_in(&bench.said()), [(To::One(r(0)), path)]);
}

#[test]
fn u15_path_is_served_oldest_first_in_one_answer() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    bench.clear();
    let want = |of: &Proposal, above| UniqueMessage::Want { id: id(of).0, above: View(above) };
    bench.take(1, want(&blocks[2], 1));
    let entries = blocks[1..].iter().map(frame).collect();
    assert_eq!(bench.said(), [(To::One(r(1)), UniqueMessage::Entries { entries })]);
    assert!(bench.deliver(1, want(&entry(9, GENESIS, 1), 0)).is_err());
    let entries = vec![frame(&blocks[2]), frame(&blocks[0])];
    let gap = UniqueMessage::Entries { entries };
    assert_eq!(bench.deliver(1, gap), Err(Reject::Invalid("entries that do not follow each other")));
}
