//! Schedules of chained protocols (`hotstuff` §14, `jolteon` §14): messages are lost or held, and replicas crash, at chosen
//! moments.

use crate::chained_support::{
    HotStuff, HotStuff2, Jolteon, Listener, PROPOSE, Rules, VOTE, entry, for_each_rule_set, listen,
};
use crate::support::{
    DELAY_NS, SURVIVES, ask, begin, constant_of, cut, go, incr, latency, level, put, r, settle, view,
    wait_for, world_of,
};
use quorate_sim::{Frame, KvResult, Survives, Verdict, Workload, World, ms, secs};
use quorate_types::{Height, ReplicaId, View};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

for_each_rule_set! {
    s06_no_other_vote_after_a_crash
    s08_certificates_with_a_gap_commit_no_block
    s14_replica_far_behind_catches_up_without_a_checkpoint
    j02_no_commit_without_a_quorum
    j03_crashed_collector_costs_no_block
    j04_commit_of_one_replica_alone_is_kept
    j07_no_vote_after_a_timeout
    j09_replica_far_behind_enters_by_a_timeout
}

fn pass(_: &Frame, _: &Listener) -> Verdict {
    Verdict::Pass
}

fn busy(world: &mut World) {
    let load =
        Workload { operations: 100_000, pause_ns: ms(2), together_max: 2, outstanding_max: 4, keys: 3 };
    world.load_all(load);
}

/// S6, and test 7 of Jolteon: power is cut at each step that may write or send. A replica sends its earlier statements again
/// or not at all, as the oracle of slots checks.
fn s06_no_other_vote_after_a_crash<R: Rules>() {
    for (seed, survives) in SURVIVES.into_iter().enumerate() {
        for step in 1..=12 {
            let mut world = constant_of(entry::<R>(), 600 + seed as u64);
            begin(&mut world);
            let victim = r(u16::try_from(step % 4).unwrap());
            let ids = world.submit(0, &[incr("n"), incr("n")]);
            world.crash_at_step(victim, step, survives);
            go(world.run_for(ms(50)), &world);
            world.disarm();
            if !world.is_running(victim) {
                world.start(victim).unwrap();
            }
            wait_for(&mut world, &ids, secs(10));
            // A commit that one replica alone had, and lost, is repeated with the next one.
            ask(&mut world, 1, put("k", 1));
            settle(&mut world);
        }
    }
}

/// S8: certificates of the views v, v + 1, v + 3 (for two links: v, v + 2) commit no block. At no time has a replica committed
/// more than certificates of consecutive views allow.
fn s08_certificates_with_a_gap_commit_no_block<R: Rules>() {
    for seed in 0..4u64 {
        let mut world = constant_of(entry::<R>(), 800 + seed);
        let (links, gap) = (R::LINKS as u64, Rc::new(Cell::new(u64::MAX)));
        let shared = Rc::clone(&gap);
        // The proposals of each second or third view are lost, so that no chain is long enough.
        let listener = listen::<R>(&mut world, move |frame, _| {
            let at = frame.content.view.0;
            let is_lost = frame.content.kind == PROPOSE && at % links == 0 && at >= shared.get();
            if is_lost { Verdict::Drop } else { Verdict::Pass }
        });
        begin(&mut world);
        let start = world.height();
        busy(&mut world);
        go(world.run_for(ms(20)), &world);
        gap.set(view(&world, r(0)).0 + seed);
        let before = world.height();
        assert!(before > start);
        for _ in 0..3_000 {
            go(world.run_for(DELAY_NS), &world);
            let allowed = listener.borrow().committed(R::LINKS);
            let most = world.replicas().map(|id| world.status(id).unwrap().decided).max().unwrap();
            // The replica that has just built a certificate has not sent it yet.
            assert!(most <= allowed.next(), "{most} is committed, and certificates say {allowed}");
        }
        assert!(world.height().since(before) <= 2 * links, "{before} to {}", world.height());
        gap.set(u64::MAX);
        let goal = before.plus(100);
        go(world.run_while("commits continue", secs(30), |world| world.height() < goal), &world);
    }
}

/// S14: a replica that is hundreds of blocks behind catches up by blocks alone, without a checkpoint.
fn s14_replica_far_behind_catches_up_without_a_checkpoint<R: Rules>() {
    let mut world = world_of(entry::<R>(), 14, |settings| {
        (settings.checkpoint_every, settings.window) = (1_024, 2_048);
        settings.set("leader_policy", "stable");
        (settings.storage.keep_bytes, settings.storage.disk_bytes_max) = (8 << 20, 64 << 20);
    });
    begin(&mut world);
    let away = 3;
    let network_fault = cut(&mut world, away);
    busy(&mut world);
    let behind = world.executed(r(3));
    go(
        world.run_while("the replica is far behind", secs(120), |world| world.height().since(behind) < 400),
        &world,
    );
    world.end_fault(network_fault);
    let target = world.height();
    go(world.run_while("the replica has caught up", secs(20), |world| world.executed(r(3)) < target), &world);
}

/// Test 2 of Jolteon: without a quorum no block is committed, and no oracle fails. With a quorum commits continue.
fn j02_no_commit_without_a_quorum<R: Rules>() {
    let mut world = world_of(entry::<R>(), 1402, |_| {});
    begin(&mut world);
    level(&mut world);
    for id in [1, 2] {
        world.crash(r(id), Survives::Everything);
    }
    let before = world.height();
    let ids = world.submit(0, &[incr("n"), incr("n")]);
    go(world.run_for(secs(20)), &world);
    assert_eq!(world.height(), before);
    for id in [1, 2] {
        world.start(r(id)).unwrap();
    }
    wait_for(&mut world, &ids, secs(20));
    settle(&mut world);
}

/// Test 3 of Jolteon: the collector of the votes for a block has crashed. Timeouts carry the votes, so the block is certified
/// and committed, and not proposed again a round of leaders later.
fn j03_crashed_collector_costs_no_block<R: Rules>() {
    let mut world = constant_of(entry::<R>(), 1403);
    let listener = listen::<R>(&mut world, pass);
    begin(&mut world);
    level(&mut world);
    go(world.run_for(secs(1)), &world);
    let at = view(&world, r(0));
    let dead = r(u16::try_from((at.0 + 1) % 4).unwrap());
    world.crash(dead, Survives::Everything);
    let client = world.submit(0, &[incr("n")]);
    wait_for(&mut world, &client, secs(10));
    let listener = listener.borrow();
    let qc = listener.certificate(at).unwrap();
    let block = &listener.blocks[&qc.block()];
    assert!(world.height() >= block.height);
    assert!(listener.committed(R::LINKS) >= block.height);
}

/// Test 4 of Jolteon: one replica alone has the certificate that commits a block, and becomes silent. All later blocks of the
/// others extend that block, as the oracle of agreement checks after the replica's recovery.
fn j04_commit_of_one_replica_alone_is_kept<R: Rules>() {
    for (seed, survives) in SURVIVES.into_iter().enumerate() {
        let mut world = constant_of(entry::<R>(), 1440 + seed as u64);
        let lonely = Rc::new(Cell::new(None::<ReplicaId>));
        let shared = Rc::clone(&lonely);
        let listener: Rc<RefCell<Listener>> = listen::<R>(&mut world, move |frame, _| {
            if shared.get() == Some(frame.from) { Verdict::Drop } else { Verdict::Pass }
        });
        begin(&mut world);
        level(&mut world);
        go(world.run_for(secs(1)), &world);
        let (at, before) = (view(&world, r(0)), world.height());
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        // The collector of the votes that commit the first of these blocks becomes silent.
        let collector = r(u16::try_from((at.0 + R::LINKS as u64) % 4).unwrap());
        let last = View(at.0 + R::LINKS as u64 - 1);
        let reached = |world: &World| view(world, collector) > last;
        let proposed = |listener: &Rc<RefCell<Listener>>| {
            listener.borrow().blocks.values().any(|block| block.view == last)
        };
        go(
            world.run_while("the last block of the chain is proposed", secs(10), |_| !proposed(&listener)),
            &world,
        );
        lonely.set(Some(collector));
        go(world.run_while("it has the certificate", secs(1), |world| !reached(world)), &world);
        let committed = world.status(collector).unwrap().decided;
        let others: Vec<ReplicaId> = world.replicas().filter(|id| *id != collector).collect();
        assert!(committed > before, "{committed}");
        assert!(others.iter().all(|id| world.status(*id).unwrap().decided < committed), "alone");
        wait_for(&mut world, &ids, secs(20));
        let more = world.submit(0, &[incr("n")]);
        wait_for(&mut world, &more, secs(20));
        world.crash(collector, survives);
        lonely.set(None);
        world.start(collector).unwrap();
        settle(&mut world);
    }
}

/// Test 7 of Jolteon, and C5: a proposal that arrives after a replica's timeout gets no vote of that replica.
fn j07_no_vote_after_a_timeout<R: Rules>() {
    for crashes in [None, Some(Survives::Nothing), Some(Survives::Everything)] {
        let mut world = constant_of(entry::<R>(), 1407);
        let (late, has_timed_out) =
            (Rc::new(Cell::new(None::<(ReplicaId, View)>)), Rc::new(Cell::new(false)));
        let (shared, seen) = (Rc::clone(&late), Rc::clone(&has_timed_out));
        let listener = listen::<R>(&mut world, move |frame, _| {
            let Some((victim, at)) = shared.get() else { return Verdict::Pass };
            let (kind, of) = (frame.content.kind, frame.content.view);
            if kind == R::TIMEOUT && frame.from == victim && of == at {
                seen.set(true);
            }
            // The proposal is held and the votes for it are lost, so that the view fails. No proof of a later view arrives.
            match () {
                () if kind == PROPOSE && of == at && frame.to == victim => Verdict::Hold,
                () if kind == VOTE && of == at => Verdict::Drop,
                () if (kind == R::TIMEOUT || kind == R::ADVANCE) && frame.to == victim => Verdict::Hold,
                () => Verdict::Pass,
            }
        });
        begin(&mut world);
        level(&mut world);
        go(world.run_for(secs(1)), &world);
        let at = view(&world, r(0));
        let victim = r(u16::try_from((at.0 + 2) % 4).unwrap());
        late.set(Some((victim, at)));
        let ids = world.submit(0, &[incr("n")]);
        go(world.run_while("the replica times out", secs(10), |_| !has_timed_out.get()), &world);
        if let Some(survives) = crashes {
            world.crash(victim, survives);
            world.start(victim).unwrap();
            go(world.run_for(ms(20)), &world);
        }
        assert_eq!(view(&world, victim), at, "it has no proof of a later view");
        // The proposal comes first, then the proof of the next view.
        world.release();
        late.set(None);
        go(world.run_for(ms(5)), &world);
        wait_for(&mut world, &ids, secs(20));
        settle(&mut world);
        let votes = listener
            .borrow()
            .votes
            .iter()
            .filter(|(_, vote)| vote.by == victim && vote.body.view == at)
            .count();
        assert_eq!(votes, 0, "{crashes:?}: a vote of {victim} in view {at}");
    }
}

/// Test 9 of Jolteon: a replica that was away for a long time receives timeouts of a view far ahead alone. It enters that view
/// by the proof in a timeout, fetches the blocks, and votes.
fn j09_replica_far_behind_enters_by_a_timeout<R: Rules>() {
    let mut world = constant_of(entry::<R>(), 1409);
    let late = r(3);
    let only = Rc::new(Cell::new(true));
    let shared = Rc::clone(&only);
    let listener = listen::<R>(&mut world, move |frame, _| {
        let is_host = frame.frame_type == quorate_types::wire::frame::HOST;
        let is_other = frame.content.kind != R::TIMEOUT && !is_host;
        let is_lost = shared.get() && frame.to == late && is_other;
        if is_lost { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    let network_fault = cut(&mut world, 3);
    busy(&mut world);
    go(world.run_while("views have passed", secs(60), |world| view(world, r(0)) < View(60)), &world);
    assert!(view(&world, late) < View(20));
    world.end_fault(network_fault);
    // Every fourth view is its own and fails, so that others time out.
    go(world.run_while("it has entered", secs(20), |world| view(world, late) < View(60)), &world);
    only.set(false);
    let since = view(&world, late);
    go(
        world.run_while("it votes", secs(20), |_| {
            !listener.borrow().votes.iter().any(|(_, vote)| vote.by == late && vote.body.view > since)
        }),
        &world,
    );
    go(world.run_while("it has all blocks", secs(20), |world| world.executed(late) < Height(60)), &world);
}

/// The latency of a request without failures, and the results of all requests of a schedule with failures.
fn latency_and_results<R: Rules>() -> (u64, Vec<Option<KvResult>>) {
    let mut world = constant_of(entry::<R>(), 1412);
    begin(&mut world);
    level(&mut world);
    go(world.run_for(secs(1)), &world);
    let took = ask(&mut world, 0, put("k", 1));
    let good = latency(&world, took);
    let network_fault = cut(&mut world, 2);
    let ids: Vec<_> = (0..20).map(|number| ask(&mut world, 0, incr(&format!("k{}", number % 3)))).collect();
    world.end_fault(network_fault);
    world.crash(r(1), Survives::Nothing);
    let more: Vec<_> = (0..20).map(|number| ask(&mut world, 0, incr(&format!("k{}", number % 3)))).collect();
    world.start(r(1)).unwrap();
    settle(&mut world);
    let result = |id| world.history().get(id).unwrap().result.clone();
    let results: Vec<_> = ids.into_iter().chain(more).map(result).collect();
    (good, results)
}

/// Test 12 of Jolteon: the same schedule has the same results with each rule set, and the commit by two certificates is faster
/// than that by three by two delays.
#[test]
fn j12_rule_sets_have_the_same_results() {
    let (three, results) = latency_and_results::<HotStuff>();
    for (two, others) in [latency_and_results::<Jolteon>(), latency_and_results::<HotStuff2>()] {
        assert_eq!(others, results);
        assert_eq!(three - two, 2 * DELAY_NS);
    }
}
