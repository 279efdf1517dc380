//! R5 and R15: proposals of leaders.

use super::*;
use quorate_consensus::Ready;

/// Leader of view 2.
const NEXT: u16 = 1;

#[test]
fn r5_leader_proposes_at_once_on_a_certificate_of_the_view_before() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::running(NEXT, N);
    bench.replica.offer([payload(7), payload(8)]);
    bench.grow(std::slice::from_ref(&first));
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 2") < line(&lines, "hold All: propose v2"), "{lines:#?}");
    assert_eq!(bench.replica.block_count(), 2, "the block is known before its own copy arrives");
    assert_eq!(proposed_in(&bench.said()), [(View(2), id(&first))]);
    // Once in a view.
    bench.replica.offer([payload(9)]);
    bench.pass(delta(3));
    assert_eq!(proposed_in(&bench.said()), []);
    // And in no view of another leader.
    let mut bench = Bench::new();
    bench.replica.offer([payload(7)]);
    bench.grow(std::slice::from_ref(&first));
    bench.pass(heartbeat());
    assert_eq!(proposed_in(&bench.said()), []);
}

#[test]
fn r5_first_leader_extends_genesis() {
    let mut bench = Bench::opened(0, N);
    bench.replica.offer([payload(7)]);
    bench.run();
    assert_eq!(proposed_in(&bench.said()), [(View(1), GENESIS.id)]);
}

#[test]
fn r5_leader_without_a_certificate_waits_2_delta_for_locks() {
    // View 2 was certified and view 3 was not; this leader of view 4 does not know view 2.
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::running(3, N);
    bench.grow(&blocks[..1]);
    bench.next_view();
    bench.next_view();
    bench.replica.offer([payload(7)]);
    bench.clear();
    bench.pass(delta(1));
    bench.replica.fetched(blocks[1].block.clone());
    bench.take(0, status(4, certified(&blocks[0])));
    bench.take(2, status(4, certified(&blocks[1])));
    bench.pass(delta(1) - 1);
    assert_eq!(proposed_in(&bench.said()), [], "others may have a higher lock");
    bench.pass(1);
    assert_eq!(proposed_in(&bench.said()), [(View(4), id(&blocks[1]))]);
}

#[test]
fn r5_certificate_of_the_view_before_ends_that_wait() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::running(2, N);
    bench.grow(&blocks[..1]);
    bench.next_view();
    bench.replica.offer([payload(7)]);
    bench.replica.fetched(blocks[1].block.clone());
    bench.clear();
    bench.take(0, status(3, certified(&blocks[1])));
    assert_eq!(proposed_in(&bench.said()), [(View(3), id(&blocks[1]))]);
}

#[test]
fn r5_leader_waits_for_the_highest_certified_block() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::running(2, N);
    bench.grow(&blocks[..1]);
    bench.replica.offer([payload(7)]);
    bench.replica.answer_otherwise(None);
    bench.replica.ready(id(&blocks[0]), Ready::Valid);
    bench.clear();
    bench.take(0, shows(&blocks[1]));
    assert_eq!((bench.view(), proposed_in(&bench.said())), (3, vec![]), "its body is missing");
    bench.replica.fetched(blocks[1].block.clone());
    bench.replica.ready(id(&blocks[1]), Ready::Valid);
    assert_eq!(proposed_in(&bench.said()), [(View(3), id(&blocks[1]))]);
    // Of two certified blocks of one view, it extends the available one.
    let other = header(2, tip(&blocks[0]), 9);
    for (first, second) in [(&blocks[1], &other), (&other, &blocks[1])] {
        let mut bench = Bench::running(2, N);
        bench.grow(&blocks[..1]);
        bench.replica.offer([payload(7)]);
        bench.replica.answer_otherwise(None);
        bench.take(0, shows(first));
        bench.take(0, shows(second));
        bench.clear();
        bench.replica.fetched(second.block.clone());
        bench.replica.ready(id(second), Ready::Valid);
        assert_eq!(proposed_in(&bench.said()), [(View(3), id(second))]);
    }
}

#[test]
fn r5_replica_without_a_certificate_reports_its_lock() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.grow(std::slice::from_ref(&first));
    assert!(to_one(bench.replica.sent()).is_empty(), "its certificate was shown to all");
    bench.clear();
    bench.take(0, blamed(2));
    bench.pass(delta(1));
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 1") < line(&lines, "hold One(2): status v3"), "{lines:#?}");
    bench.replica.settle();
    let sent = to_one(bench.replica.sent());
    let [(2, RotatingMessage::Status { view: View(3), lock })] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(lock.block(), id(&first));
    assert_eq!(bench.deliver(0, status(3, certified(&first))), Err(Reject::WrongSender), "to others");
}

#[test]
fn r15_an_idle_leader_proposes_after_a_heartbeat() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::running(NEXT, N);
    bench.grow(std::slice::from_ref(&first));
    bench.pass(heartbeat() - 1);
    assert_eq!(proposed_in(&bench.said()), []);
    bench.pass(1);
    let said = bench.said();
    let is_empty = |it: &RotatingMessage| matches!(it, RotatingMessage::Propose { header, .. } if header.block.payload == empty_payload());
    assert!(said.iter().any(is_empty), "{said:?}");
    // A request does not wait.
    let mut bench = Bench::running(NEXT, N);
    bench.grow(std::slice::from_ref(&first));
    bench.clear();
    bench.replica.offer([payload(7)]);
    assert_eq!(proposed_in(&bench.said()).len(), 1);
}

/// A block of a view after an uncertified one is committed with the next block (R9), which does not wait for requests.
#[test]
fn r15_block_without_a_timer_is_followed_at_once() {
    for (carries, hurries) in [(true, true), (false, false)] {
        let mut bench = Bench::running(2, N);
        bench.next_view();
        let block = if carries { header(2, GENESIS, 1) } else { empty(2, GENESIS, 1) };
        bench.grow(std::slice::from_ref(&block));
        assert_eq!(!proposed_in(&bench.said()).is_empty(), hurries);
    }
    // After a certified view its own timer commits it.
    let mut bench = Bench::running(2, N);
    bench.grow(&chain(1, GENESIS, 2));
    assert_eq!(proposed_in(&bench.said()), []);
}

#[test]
fn r15_empty_blocks_are_committed_together() {
    let mut bench = Bench::new();
    let mut on = GENESIS;
    let mut committed = Vec::new();
    for view in 1..=17 {
        if leads(view) == r(ME) {
            bench.next_view();
            continue;
        }
        let block = empty(view, on, 1);
        bench.grow(std::slice::from_ref(&block));
        on = tip(&block);
        bench.pass(delta(2));
        committed.extend(bench.timer_commits().into_iter().map(|_| bench.replica.status().committed.0));
    }
    assert_eq!(committed, [8]);
    // A block with a payload does not wait, and commits the empty ones below it only.
    let mut bench = Bench::new();
    let first = empty(1, GENESIS, 1);
    let second = header(2, tip(&first), 2);
    let third = empty(3, tip(&second), 3);
    bench.grow(&[first, second.clone(), third]);
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&second)]);
}

/// L blocks may be undecided; then only empty ones follow, now and then.
#[test]
fn r15_full_window_holds_payloads_back() {
    let mut bench = Bench::running(0, N);
    let window = bench.replica.protocol().window;
    let parent = Tip { view: View(500), height: Height(window), id: BlockId::null(Height(window)) };
    let block = header(500, Tip { height: Height(window - 1), view: View(499), ..parent }, 1);
    bench.replica.fetched(block.block.clone());
    bench.take(2, shows(&block));
    assert_eq!((bench.view(), leads(501)), (501, r(0)));
    bench.replica.decide(Height(window), id(&block));
    bench.replica.offer([payload(7)]);
    assert_eq!(proposed_in(&bench.said()), []);
    bench.pass(heartbeat());
    assert_eq!(proposed_in(&bench.said()), [(View(501), id(&block))]);
}
