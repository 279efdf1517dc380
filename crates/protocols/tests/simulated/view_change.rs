//! Leaders that crash, lie or are slow.

use crate::support::{
    DELAY_NS, T0_NS, TRANSPORTS, TREQ_NS, VIEW_CHANGE_NS, ask, begin, both, cut, drop_frames, go, incr,
    latency, no_view_change, put, r, settle, view, wait_for, world, world_of,
};
use quorate_consensus::Entry;
use quorate_protocols::pbft::{COMMIT, NEW_VIEW, PRE_PREPARE, PREPARE, PbftMessage, VIEW_CHANGE};
use quorate_sim::{
    BUNDLE, Bytes, Costs, KvResult, LinkConditions, Oracle, Survives, Transport, Verdict, Workload, World,
    ms, secs,
};
use quorate_types::{Height, ReplicaId, Time, View, Wire as _};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

both! {
    s03_crashed_leader_is_replaced_in_time
    acknowledged_operations_survive_repeated_crashes_of_the_leader
    s05_block_decided_at_one_replica_alone_is_kept
    s09_waits_double_with_each_faulty_leader
    s16_slow_leader_is_replaced
    s16_leader_within_all_deadlines_stays
    s10_leader_cut_off_for_a_minute_is_replaced_and_votes_again
    suspicion_of_one_replica_replaces_no_leader
    waiting_bundles_are_forwarded_once_when_the_view_begins
    bundles_of_a_block_taken_over_are_not_proposed_again
}

/// The moment from which the leader of view 0 sends no messages.
#[derive(Clone, Copy, Debug)]
enum Silent {
    BeforePrePrepare,
    AfterPrePrepareToOne,
    AfterPrepares,
    AfterOneCommit,
}

/// Scenario 3: the leader crashes at every relevant moment. The others replace it in time. A block that was committed
/// anywhere keeps its place, as the oracles check, and no operation is executed twice.
fn s03_crashed_leader_is_replaced_in_time(entry: &Entry) {
    let points = [
        Silent::BeforePrePrepare,
        Silent::AfterPrePrepareToOne,
        Silent::AfterPrepares,
        Silent::AfterOneCommit,
    ];
    for transport in TRANSPORTS {
        for (seed, point) in points.into_iter().enumerate() {
            let mut world = world_of(entry, 200 + seed as u64, |settings| settings.transport = transport);
            begin(&mut world);
            settle(&mut world);
            silence(&mut world, point);
            let ids = world.submit(0, &[incr("n"), incr("n")]);
            go(world.run_for(ms(20)), &world);
            world.crash(r(0), Survives::Everything);
            // All have the bundle at once. The wait is Treq, and the few delays of SUSPECT, VIEW-CHANGE, NEW-VIEW, two
            // rounds of votes and the reply. The next leader is good, so no replica waits for T0 as well.
            wait_for(&mut world, &ids, TREQ_NS + ms(20));
            assert_eq!(world.history().get(ids[1]).unwrap().result, Some(KvResult::Number(2)), "{point:?}");
            // A quorum of COMMITs without the leader's own leaves nothing to wait for.
            let expected = u64::from(!matches!(point, Silent::AfterPrepares));
            assert_eq!(view(&world, r(2)), View(expected), "{point:?}");
            world.unhook();
            // The old leader recovers, and is needed.
            world.start(r(0)).unwrap();
            settle(&mut world);
            world.crash(r(3), Survives::Everything);
            ask(&mut world, 1, incr("n"));
        }
    }
}

fn silence(world: &mut World, point: Silent) {
    let commits = Cell::new(0);
    drop_frames(world, move |frame| {
        let kind = frame.content.kind;
        if frame.content.view > View(0) {
            return false;
        }
        commits.set(commits.get() + u32::from(kind == COMMIT));
        if frame.from != r(0) {
            // If only one COMMIT gets through, it is one of these.
            return matches!(point, Silent::AfterOneCommit) && kind == COMMIT && commits.get() > 3;
        }
        match point {
            Silent::BeforePrePrepare => kind == PRE_PREPARE,
            Silent::AfterPrePrepareToOne => kind == PRE_PREPARE && frame.to != r(1),
            Silent::AfterPrepares | Silent::AfterOneCommit => kind == COMMIT,
        }
    });
}

/// The present leader crashes again and again under load, and every acknowledged operation survives.
fn acknowledged_operations_survive_repeated_crashes_of_the_leader(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 210, |settings| settings.transport = transport);
        begin(&mut world);
        world.load_all(Workload {
            operations: 120,
            pause_ns: ms(500),
            together_max: 2,
            outstanding_max: 4,
            keys: 3,
        });
        for round in 0..8u64 {
            go(world.run_for(ms(700) + round * 1_300_001), &world);
            let newest = world.replicas().filter_map(|id| world.status(id)).max_by_key(|status| status.view);
            let leader = newest.unwrap().leader;
            world.crash(leader, Survives::Some);
            go(world.run_for(ms(900)), &world);
            world.start(leader).unwrap();
        }
        go(world.run_while("all clients have their answers", secs(60), |world| !world.all_done()), &world);
        settle(&mut world);
        assert!(view(&world, r(0)) >= View(4), "{:?}", view(&world, r(0)));
        assert_eq!(world.failed_ops(), 0);
    }
}

/// Returns the proposal with another time, and so with another block.
fn other_block(body: &Bytes, add: u64) -> Bytes {
    let Ok(PbftMessage::PrePrepare { view, mut block }) = PbftMessage::from_bytes(body) else {
        panic!("not a PRE-PREPARE")
    };
    block.time_ns += add;
    let mut bytes = Vec::new();
    PbftMessage::PrePrepare { view, block }.encode(&mut bytes);
    bytes.into()
}

/// Scenario 4: the leader proposes different blocks to different replicas. No height has two decisions, as the oracles
/// check, and a view change resolves the conflict.
#[test]
fn s04_equivocating_leader_is_replaced() {
    for (seed, groups) in [[0u64, 1, 2], [0, 1, 1], [1, 0, 2]].into_iter().enumerate() {
        let mut world = world(220 + seed as u64, |_| {});
        begin(&mut world);
        settle(&mut world);
        // The frames of the leader equivocate: that is under test.
        world.tolerate(Oracle::SameSlot);
        world.tolerate(Oracle::Held);
        world.hook(move |_, frame| {
            if frame.from != r(0) || frame.content.kind != PRE_PREPARE {
                return Verdict::Pass;
            }
            match groups[frame.to.index() - 1] {
                0 => Verdict::Pass,
                add => Verdict::Replace(other_block(&frame.body, add)),
            }
        });
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        wait_for(&mut world, &ids, 2 * VIEW_CHANGE_NS);
        world.unhook();
        settle(&mut world);
    }
}

/// Scenario 5: a block is decided at one replica alone, and the view change happens without that replica. The new view
/// picks the same block, and that replica executes nothing twice.
fn s05_block_decided_at_one_replica_alone_is_kept(entry: &Entry) {
    for (seed, transport) in TRANSPORTS.into_iter().enumerate() {
        let mut world = world_of(entry, 225 + seed as u64, |settings| settings.transport = transport);
        begin(&mut world);
        settle(&mut world);
        let before = world.height();
        drop_frames(&mut world, |frame| {
            frame.content.view == View(0) && frame.content.kind == COMMIT && frame.to != r(3)
        });
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        go(world.run_while("one has decided", secs(2), |world| world.executed(r(3)) == before), &world);
        let network_fault = cut(&mut world, 3);
        assert!((0..3).all(|id| world.executed(r(id)) == before), "no other replica has");
        wait_for(&mut world, &ids, 2 * VIEW_CHANGE_NS);
        assert!(view(&world, r(1)) > View(0));
        assert_eq!(view(&world, r(3)), View(0));
        assert_eq!(world.history().get(ids[1]).unwrap().result, Some(KvResult::Number(2)));
        world.unhook();
        world.end_fault(network_fault);
        settle(&mut world);
        // The replica learns of the view when it sends its status.
        let is_behind = |world: &World| view(world, r(3)) == View(0);
        go(world.run_while("the replica follows into the view", secs(4), is_behind), &world);
    }
}

/// The time of each replica's first VIEW-CHANGE, by view.
type Departures = Rc<RefCell<BTreeMap<View, BTreeMap<ReplicaId, Time>>>>;

/// Loses the proposals of the leader of `unlucky`, and silences the two leaders of the views after it.
fn three_bad_leaders(world: &mut World, unlucky: u64, departures: &Departures) {
    let left = Rc::clone(departures);
    world.hook(move |now, frame| {
        let content = &frame.content;
        let is_silent = [unlucky + 1, unlucky + 2].contains(&u64::from(frame.from.0));
        let is_unlucky = content.kind == PRE_PREPARE && content.view == View(unlucky);
        if is_silent || is_unlucky {
            return Verdict::Drop;
        }
        if content.kind == VIEW_CHANGE {
            let mut left = left.borrow_mut();
            left.entry(content.view).or_default().entry(frame.from).or_insert(now);
        }
        Verdict::Pass
    });
}

/// Checks that a quorum left the view before this one, and that all five then waited for this time before they left it
/// as well.
fn waited(departures: &Departures, view: u64, expected_ns: u64) {
    let departures = departures.borrow();
    let (before, after) = (&departures[&View(view - 1)], &departures[&View(view)]);
    assert_eq!((before.len(), after.len()), (5, 5), "all that are left: {departures:?}");
    let armed = *before.values().max().unwrap();
    for (id, at) in after {
        let waited = at.since(armed);
        let is_right = (expected_ns..=expected_ns + 2 * DELAY_NS).contains(&waited);
        assert!(is_right, "replica {id} left for view {view} after {waited} ns, not {expected_ns}");
    }
}

/// Scenario 9 with seven replicas: a leader without luck, and then two faulty ones in a row. The view after them works.
/// The views between were left after T0 and then 2 T0. After an execution the wait is T0 again.
fn s09_waits_double_with_each_faulty_leader(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 240, |settings| {
            *settings = settings.clone().with_n(7);
            settings.conditions = LinkConditions::constant(DELAY_NS);
            settings.costs = Costs::NONE;
            settings.transport = transport;
        });
        begin(&mut world);
        settle(&mut world);
        let departures = Departures::default();
        // The first view had worked, and is left for an overdue bundle. The next view has twice as long for that
        // bundle.
        for (first, treq_ns) in [(0, TREQ_NS), (3, 2 * TREQ_NS)] {
            three_bad_leaders(&mut world, first, &departures);
            let ids = world.submit(0, &[incr("n"), incr("n")]);
            // The delays of the messages between come on top.
            let bound = treq_ns + 3 * T0_NS + 30 * DELAY_NS;
            wait_for(&mut world, &ids, bound);
            let now = View(first + 3);
            assert_eq!(view(&world, r(6)), now, "{}", world.status(r(6)).unwrap());
            waited(&departures, first + 2, T0_NS);
            waited(&departures, first + 3, 2 * T0_NS);
            // Later requests are fast again.
            let id = ask(&mut world, 0, incr("n"));
            assert!(latency(&world, id) <= 6 * DELAY_NS, "{}", latency(&world, id));
            world.unhook();
            settle(&mut world);
            let all = |world: &World| world.replicas().all(|id| view(world, id) == now);
            go(world.run_while("all are in the view that works", secs(5), |world| !all(world)), &world);
        }
    }
}

/// Scenario 16: a leader makes each of its proposals wait for 0.9 Treq after the one before. Something is executed all
/// the time, so a timer that every execution resets would never expire. But each bundle has its own deadline, and the
/// waiting bundles are overdue.
fn s16_slow_leader_is_replaced(entry: &Entry) {
    let mut world = world_of(entry, 250, |_| {});
    begin(&mut world);
    settle(&mut world);
    let mut leaves: BTreeMap<Height, Time> = BTreeMap::new();
    world.hook(move |now, frame| {
        if frame.content.kind != PRE_PREPARE || frame.content.view > View(0) {
            return Verdict::Pass;
        }
        let last = leaves.values().last().copied().unwrap_or_default();
        let at = *leaves.entry(frame.content.height).or_insert(last.max(now).plus(TREQ_NS * 9 / 10));
        Verdict::Delay(at.since(now))
    });
    let (mut ids, mut last, mut longest) = (Vec::new(), world.now(), 0);
    let mut height = world.height();
    for round in 0..2_000 {
        // Five bundles, each in a block of its own.
        if round % 10 == 0 && ids.len() < 5 {
            ids.extend(world.submit(ids.len() % 4, &[put("k", round)]));
        }
        go(world.run_for(ms(1)), &world);
        longest = longest.max(world.now().since(last));
        if view(&world, r(2)) > View(0) {
            break;
        }
        if world.height() > height {
            (height, last) = (world.height(), world.now());
        }
    }
    assert_eq!(view(&world, r(2)), View(1), "the leader is replaced");
    assert!(world.history().answered() > 0 && longest < TREQ_NS, "something was executed every {longest} ns");
    wait_for(&mut world, &ids, secs(1));
    world.unhook();
    settle(&mut world);
}

/// Scenario 16, the other side: a leader delays each proposal by 0.9 Treq and lets none wait for another. It stays
/// below every deadline and is not replaced. (A floor on the throughput would replace it, and is not built.)
fn s16_leader_within_all_deadlines_stays(entry: &Entry) {
    let mut world = world_of(entry, 251, |_| {});
    begin(&mut world);
    settle(&mut world);
    world.hook(|_, frame| {
        let is_proposal = frame.content.kind == PRE_PREPARE;
        if is_proposal { Verdict::Delay(TREQ_NS * 9 / 10) } else { Verdict::Pass }
    });
    for value in 0..20 {
        let id = ask(&mut world, value % 4, put("k", value));
        assert!(latency(&world, id) > TREQ_NS * 9 / 10);
    }
    no_view_change(&world);
    world.unhook();
    settle(&mut world);
}

/// Scenario 10: a leader that is cut off is replaced. After the heal it votes in the new view.
fn s10_leader_cut_off_for_a_minute_is_replaced_and_votes_again(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 260, |settings| settings.transport = transport);
        begin(&mut world);
        let network_fault = cut(&mut world, 0);
        for value in 0..60 {
            ask(&mut world, value % 4, put("k", value));
            go(world.run_for(secs(1)), &world);
        }
        assert_eq!(view(&world, r(2)), View(1), "one view change is enough");
        world.end_fault(network_fault);
        settle(&mut world);
        assert_eq!(view(&world, r(0)), View(1));
        world.crash(r(3), Survives::Everything);
        ask(&mut world, 0, put("k", "with its vote"));
    }
}

/// A replica that suspects without reason changes nothing: f + 1 are needed.
fn suspicion_of_one_replica_replaces_no_leader(entry: &Entry) {
    let mut world = world_of(entry, 270, |settings| settings.transport = Transport::Links);
    begin(&mut world);
    // Replica 3 receives no votes and proposals of the others for a while.
    let lost = Rc::new(Cell::new(0));
    let count = Rc::clone(&lost);
    drop_frames(&mut world, move |frame| {
        let drops = frame.to == r(3) && [PRE_PREPARE, PREPARE, COMMIT].contains(&frame.content.kind);
        count.set(count.get() + u32::from(drops));
        drops
    });
    for value in 0..30 {
        ask(&mut world, value % 4, put("k", value));
        go(world.run_for(ms(100)), &world);
    }
    assert!(lost.get() > 100);
    assert!(world.replicas().all(|id| view(&world, id) == View(0)));
    world.unhook();
    settle(&mut world);
}

/// The host forwards bundles of clients from the backups to the leader of a new view: once from each backup, when the
/// view has begun.
fn waiting_bundles_are_forwarded_once_when_the_view_begins(entry: &Entry) {
    let mut world = world_of(entry, 280, |settings| settings.transport = Transport::Links);
    begin(&mut world);
    settle(&mut world);
    world.crash(r(0), Survives::Everything);
    let forwarded = Rc::new(RefCell::new(Vec::new()));
    let (seen, begun) = (Rc::clone(&forwarded), Cell::new(false));
    world.hook(move |_, frame| {
        begun.set(begun.get() || frame.content.kind == NEW_VIEW);
        if frame.to == r(1) && frame.content.kind == BUNDLE {
            seen.borrow_mut().push((frame.from, begun.get()));
        }
        Verdict::Pass
    });
    let ids: Vec<_> = (0..4).flat_map(|client| world.submit(client, &[put("k", client)])).collect();
    // The clients ask all replicas after their first timeout, and a bundle that is a second old is spread. The view
    // must have begun before.
    wait_for(&mut world, &ids, secs(3));
    assert_eq!(view(&world, r(2)), View(1));
    for from in [r(2), r(3)] {
        let of = forwarded.borrow().iter().filter(|(by, _)| *by == from).copied().collect::<Vec<_>>();
        assert_eq!(of, vec![(from, true); 4], "once each, in the new view");
    }
}

/// The new view decides a block that it takes over. The new leader has the same bundles in its pool, and does not
/// propose them once more.
fn bundles_of_a_block_taken_over_are_not_proposed_again(entry: &Entry) {
    let mut world = world_of(entry, 290, |settings| settings.transport = Transport::Links);
    begin(&mut world);
    settle(&mut world);
    // All prepare, and none decides. By the time of the view change all have the bundles from their clients.
    let last = Rc::new(Cell::new(Height::ZERO));
    let proposed = Rc::clone(&last);
    drop_frames(&mut world, move |frame| {
        let content = &frame.content;
        if content.view == View(0) && content.kind == PRE_PREPARE {
            proposed.set(proposed.get().max(content.height));
        }
        content.view == View(0) && content.kind == COMMIT
    });
    let ids: Vec<_> = (0..4).flat_map(|client| world.submit(client, &[put("k", client)])).collect();
    wait_for(&mut world, &ids, secs(4));
    assert_eq!(view(&world, r(2)), View(1));
    go(world.run_for(secs(2)), &world);
    assert_eq!(world.height(), last.get(), "no bundle is in two blocks");
}
