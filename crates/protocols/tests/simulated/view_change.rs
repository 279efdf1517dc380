//! The leader dies, lies or is slow.

use crate::support::{
    TRANSPORTS, VIEW_CHANGE_NS, ask, begin, both, drop_frames, go, incr, latency, put, r, settle, view,
    wait_for, world, world_of,
};
use quorate_consensus::{Entry, Message as _};
use quorate_protocols::pbft::{COMMIT, NEW_VIEW, PRE_PREPARE, PREPARE, PbftMessage};
use quorate_sim::{
    BUNDLE, Bytes, Change, Front, KvResult, Oracle, Places, Survives, Transport, Verdict, Workload, World,
    ms, secs,
};
use quorate_types::{Height, View};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

both! {
    s03_the_leader_crashes
    the_leader_is_killed_again_and_again
    s05_decided_at_one_replica_alone
    s09_two_faulty_leaders_in_a_row
    s16_a_slow_leader_is_replaced
    s10_a_leader_cut_off_for_a_minute
    one_replica_alone_replaces_nobody
    what_waits_is_forwarded_once_when_the_view_begins
    what_a_view_takes_over_is_not_proposed_again
}

/// From when on the leader of view 0 says nothing more.
#[derive(Clone, Copy, Debug)]
enum Silent {
    BeforePrePrepare,
    AfterPrePrepareToOne,
    AfterPrepares,
    AfterOneCommit,
}

/// Scenario 3: the leader crashes at every point that matters. The others replace it in time, what was committed
/// anywhere keeps its block (the oracles see to it), and nothing is executed twice.
fn s03_the_leader_crashes(entry: &Entry) {
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
            wait_for(&mut world, &ids, VIEW_CHANGE_NS);
            assert_eq!(world.history().get(ids[1]).unwrap().result, Some(KvResult::Number(2)), "{point:?}");
            // A quorum of COMMITs without the leader's own leaves nothing to wait for.
            let expected = u64::from(!matches!(point, Silent::AfterPrepares));
            assert_eq!(view(&world, r(2)), View(expected), "{point:?}");
            world.unhook();
            // The old leader comes back, and is needed.
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
            // Where only one COMMIT gets through, it is one of these.
            return matches!(point, Silent::AfterOneCommit) && kind == COMMIT && commits.get() > 3;
        }
        match point {
            Silent::BeforePrePrepare => kind == PRE_PREPARE,
            Silent::AfterPrePrepareToOne => kind == PRE_PREPARE && frame.to != r(1),
            Silent::AfterPrepares | Silent::AfterOneCommit => kind == COMMIT,
        }
    });
}

/// Real crashes of whoever leads, again and again, under load: every acknowledged operation survives.
fn the_leader_is_killed_again_and_again(entry: &Entry) {
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

/// A proposal that names another time, and with it another block.
fn other_block(body: &Bytes, add: u64) -> Bytes {
    let Ok(PbftMessage::PrePrepare { view, mut block }) = PbftMessage::decode(body) else {
        panic!("not a PRE-PREPARE")
    };
    block.time_ns += add;
    let mut bytes = Vec::new();
    PbftMessage::PrePrepare { view, block }.encode(&mut bytes);
    bytes.into()
}

/// Scenario 4: the leader proposes different blocks to different replicas. Never two decisions for a height (the
/// oracles see to it), and a view change resolves it.
#[test]
fn s04_the_leader_equivocates() {
    for (seed, groups) in [[0u64, 1, 2], [0, 1, 1], [1, 0, 2]].into_iter().enumerate() {
        let mut world = world(220 + seed as u64, |_| {});
        begin(&mut world);
        settle(&mut world);
        // Its own frames say two things: that is what is tested.
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

/// Scenario 5: a block is decided at one replica alone, and the view change happens without it. The new view picks the
/// same block, and whoever had decided it executes nothing twice.
fn s05_decided_at_one_replica_alone(entry: &Entry) {
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
        let one = Places::one(3);
        let front = world.front(Front { from: one, to: one.others(), both_ways: true, change: Change::Cut });
        assert!((0..3).all(|id| world.executed(r(id)) == before), "nobody else has");
        wait_for(&mut world, &ids, 2 * VIEW_CHANGE_NS);
        assert!(view(&world, r(1)) > View(0));
        assert_eq!(view(&world, r(3)), View(0));
        assert_eq!(world.history().get(ids[1]).unwrap().result, Some(KvResult::Number(2)));
        world.unhook();
        world.pass(front);
        settle(&mut world);
        // It hears of the view when it says where it stands.
        let is_behind = |world: &World| view(world, r(3)) == View(0);
        go(world.run_while("it follows into the view", secs(4), is_behind), &world);
    }
}

/// Scenario 9: two faulty leaders in a row, of seven. The third view works, after T0 and then 2 T0.
fn s09_two_faulty_leaders_in_a_row(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 240, |settings| {
            *settings = settings.clone().with_n(7);
            settings.transport = transport;
        });
        begin(&mut world);
        settle(&mut world);
        drop_frames(&mut world, |frame| frame.from <= r(1));
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        wait_for(&mut world, &ids, VIEW_CHANGE_NS + 3 * ms(160));
        assert_eq!(view(&world, r(3)), View(2), "{}", world.status(r(3)).unwrap());
        // What follows is fast again.
        let id = ask(&mut world, 0, incr("n"));
        assert!(latency(&world, id) < ms(200), "{}", latency(&world, id));
        world.unhook();
        settle(&mut world);
    }
}

/// Scenario 16: a leader that delays each of its proposals is replaced, because each bundle has its own deadline.
fn s16_a_slow_leader_is_replaced(entry: &Entry) {
    let mut world = world_of(entry, 250, |_| {});
    begin(&mut world);
    settle(&mut world);
    world.hook(|_, frame| {
        if frame.from == r(0) && frame.content.kind == PRE_PREPARE {
            Verdict::Delay(ms(170))
        } else {
            Verdict::Pass
        }
    });
    for value in 0..10 {
        ask(&mut world, value % 4, put("k", value));
    }
    assert!(view(&world, r(2)) > View(0));
    world.unhook();
    settle(&mut world);
}

/// Scenario 10: a leader that is cut off is replaced; when it is back it votes again in the new view.
fn s10_a_leader_cut_off_for_a_minute(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 260, |settings| settings.transport = transport);
        begin(&mut world);
        let one = Places::one(0);
        let front = world.front(Front { from: one, to: one.others(), both_ways: true, change: Change::Cut });
        for value in 0..60 {
            ask(&mut world, value % 4, put("k", value));
            go(world.run_for(secs(1)), &world);
        }
        assert_eq!(view(&world, r(2)), View(1), "one view change is enough");
        world.pass(front);
        settle(&mut world);
        assert_eq!(view(&world, r(0)), View(1));
        world.crash(r(3), Survives::Everything);
        ask(&mut world, 0, put("k", "with its vote"));
    }
}

/// A replica that suspects without reason changes nothing: f + 1 are needed.
fn one_replica_alone_replaces_nobody(entry: &Entry) {
    let mut world = world_of(entry, 270, |settings| settings.transport = Transport::Links);
    begin(&mut world);
    // Replica 3 hears nothing of the others' votes and proposals for a while.
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

/// What clients have handed to backups reaches the leader of a new view: once from each, when the view has begun.
fn what_waits_is_forwarded_once_when_the_view_begins(entry: &Entry) {
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
    // The clients ask all after their first timeout, and what is a second old is spread: the view must be there before.
    wait_for(&mut world, &ids, secs(3));
    assert_eq!(view(&world, r(2)), View(1));
    for from in [r(2), r(3)] {
        let of = forwarded.borrow().iter().filter(|(by, _)| *by == from).copied().collect::<Vec<_>>();
        assert_eq!(of, vec![(from, true); 4], "once each, in the new view");
    }
}

/// What the new view takes over is decided with its own block: the new leader, which has the same bundles in its pool,
/// does not propose them once more.
fn what_a_view_takes_over_is_not_proposed_again(entry: &Entry) {
    let mut world = world_of(entry, 290, |settings| settings.transport = Transport::Links);
    begin(&mut world);
    settle(&mut world);
    // All prepare, nobody decides; by the time of the view change all have the bundles from their clients.
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
    assert_eq!(world.height(), last.get(), "no bundle stands in two blocks");
}
