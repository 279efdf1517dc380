//! Scenarios of chained protocols (`hotstuff` §14, `jolteon` §14) that are schedules: what is lost, held or forgotten when.

use crate::support::{
    DELAY_NS, SURVIVES, ask, begin, constant_of, cut, go, incr, latency, level, put, r, settle, view,
    wait_for, world_of,
};
use crate::words::{Ear, Words, both_chained, listen};
use quorate_consensus::Entry;
use quorate_sim::{Frame, Survives, Verdict, Workload, World, ms, secs};
use quorate_types::{Height, ReplicaId, View};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

both_chained! {
    s06_a_vote_is_never_another_after_a_crash
    s08_views_that_were_left_out_commit_nothing
    s14_far_behind_without_a_checkpoint
    j02_two_silent_replicas_stop_everything_and_nothing_is_wrong
    j03_a_dead_collector_costs_no_block
    j04_who_alone_has_committed_is_followed
    j07_nobody_votes_after_giving_up
    j09_who_comes_late_enters_by_a_complaint
}

fn entry<W: Words>() -> &'static Entry {
    quorate_protocols::find(W::NAME).unwrap()
}

fn pass(_: &Frame, _: &Ear) -> Verdict {
    Verdict::Pass
}

fn busy(world: &mut World) {
    let load =
        Workload { operations: 100_000, pause_ns: ms(2), together_max: 2, outstanding_max: 4, keys: 3 };
    world.load_all(load);
}

/// S6, and test 7 of Jolteon: power is cut at each step in which something may be written or sent. What was said before is
/// said again or not at all: the oracle of slots looks at it.
fn s06_a_vote_is_never_another_after_a_crash<W: Words>() {
    for (seed, survives) in SURVIVES.into_iter().enumerate() {
        for step in 1..=12 {
            let mut world = constant_of(entry::<W>(), 600 + seed as u64);
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
            // What one replica alone had committed, and lost, is committed again with what comes next.
            ask(&mut world, 1, put("k", 1));
            settle(&mut world);
        }
    }
}

/// S8: with certificates of the views v, v + 1, v + 3 (for two links: v, v + 2) nothing is committed that those after them
/// do not commit. All the time nobody has committed more than certificates of views in a row say.
fn s08_views_that_were_left_out_commit_nothing<W: Words>() {
    for seed in 0..4u64 {
        let mut world = constant_of(entry::<W>(), 800 + seed);
        let (links, gap) = (W::LINKS as u64, Rc::new(Cell::new(u64::MAX)));
        let shared = Rc::clone(&gap);
        // Proposals of every so many views are lost: no chain is long enough by itself, until it stops.
        let ear = listen::<W>(&mut world, move |frame, _| {
            let at = frame.content.view.0;
            let is_lost = frame.content.kind == W::PROPOSE && at % links == 0 && at >= shared.get();
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
            let allowed = ear.borrow().committed(W::LINKS);
            let most = world.replicas().map(|id| world.status(id).unwrap().decided).max().unwrap();
            // Who has just made a certificate has not shown it to anybody.
            assert!(most <= allowed.next(), "{most} is committed, and certificates say {allowed}");
        }
        assert!(world.height().since(before) <= 2 * links, "{before} to {}", world.height());
        gap.set(u64::MAX);
        let goal = before.plus(100);
        go(world.run_while("it goes on", secs(30), |world| world.height() < goal), &world);
    }
}

/// S14, as far as blocks alone bring a replica on: some hundred blocks behind, none of them below a checkpoint.
fn s14_far_behind_without_a_checkpoint<W: Words>() {
    let mut world = world_of(entry::<W>(), 14, |settings| {
        (settings.checkpoint_every, settings.window) = (1_024, 2_048);
        settings.set("leader_policy", "stable");
        (settings.storage.keep_bytes, settings.storage.disk_bytes_max) = (8 << 20, 64 << 20);
    });
    begin(&mut world);
    let away = 3;
    let network_fault = cut(&mut world, away);
    busy(&mut world);
    let behind = world.executed(r(3));
    go(world.run_while("it is far behind", secs(120), |world| world.height().since(behind) < 400), &world);
    world.end_fault(network_fault);
    let target = world.height();
    go(world.run_while("it is back", secs(20), |world| world.executed(r(3)) < target), &world);
}

/// Test 2 of Jolteon: without a quorum nothing is committed, and nothing is wrong; with it all goes on.
fn j02_two_silent_replicas_stop_everything_and_nothing_is_wrong<W: Words>() {
    let mut world = world_of(entry::<W>(), 1402, |_| {});
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

/// Test 3 of Jolteon: who collects the votes for a block is dead. The block is certified from what the complaints carry,
/// and committed where it stands, not proposed again a round of leaders later.
fn j03_a_dead_collector_costs_no_block<W: Words>() {
    let mut world = constant_of(entry::<W>(), 1403);
    let ear = listen::<W>(&mut world, pass);
    begin(&mut world);
    level(&mut world);
    go(world.run_for(secs(1)), &world);
    let at = view(&world, r(0));
    let dead = r(u16::try_from((at.0 + 1) % 4).unwrap());
    world.crash(dead, Survives::Everything);
    let client = world.submit(0, &[incr("n")]);
    wait_for(&mut world, &client, secs(10));
    let ear = ear.borrow();
    let qc = ear.certificate(at).unwrap();
    let block = &ear.blocks[&qc.block()];
    assert!(world.height() >= block.height);
    assert!(ear.committed(W::LINKS) >= block.height);
}

/// Test 4 of Jolteon: one replica alone holds the certificate that commits a block, and goes silent. Whatever the others
/// do then extends that block; the oracle of agreement compares them when it is back.
fn j04_who_alone_has_committed_is_followed<W: Words>() {
    for (seed, survives) in SURVIVES.into_iter().enumerate() {
        let mut world = constant_of(entry::<W>(), 1440 + seed as u64);
        let lonely = Rc::new(Cell::new(None::<ReplicaId>));
        let shared = Rc::clone(&lonely);
        let ear: Rc<RefCell<Ear>> = listen::<W>(&mut world, move |frame, _| {
            if shared.get() == Some(frame.from) { Verdict::Drop } else { Verdict::Pass }
        });
        begin(&mut world);
        level(&mut world);
        go(world.run_for(secs(1)), &world);
        let (at, before) = (view(&world, r(0)), world.height());
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        // Who collects the votes that commit the first block of these says nothing more.
        let collector = r(u16::try_from((at.0 + W::LINKS as u64) % 4).unwrap());
        let last = View(at.0 + W::LINKS as u64 - 1);
        let reached = |world: &World| view(world, collector) > last;
        let proposed = |ear: &Rc<RefCell<Ear>>| ear.borrow().blocks.values().any(|block| block.view == last);
        go(world.run_while("the last block of the chain is proposed", secs(10), |_| !proposed(&ear)), &world);
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

/// Test 7 of Jolteon, and H8: a proposal that arrives after the view was given up gets no vote; one that got a vote may be
/// given up.
fn j07_nobody_votes_after_giving_up<W: Words>() {
    for crashes in [None, Some(Survives::Nothing), Some(Survives::Everything)] {
        let mut world = constant_of(entry::<W>(), 1407);
        let (late, has_given_up) = (Rc::new(Cell::new(None::<(ReplicaId, View)>)), Rc::new(Cell::new(false)));
        let (shared, seen) = (Rc::clone(&late), Rc::clone(&has_given_up));
        let ear = listen::<W>(&mut world, move |frame, _| {
            let Some((victim, at)) = shared.get() else { return Verdict::Pass };
            let (kind, of) = (frame.content.kind, frame.content.view);
            if kind == W::GIVE_UP && frame.from == victim && of == at {
                seen.set(true);
            }
            // The proposal waits; the votes for it are lost, so that the view leads to nothing; and nobody is let on.
            match () {
                () if kind == W::PROPOSE && of == at && frame.to == victim => Verdict::Hold,
                () if kind == W::VOTE && of == at => Verdict::Drop,
                () if (kind == W::GIVE_UP || kind == W::SHOW) && frame.to == victim => Verdict::Hold,
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
        go(world.run_while("it gives up", secs(10), |_| !has_given_up.get()), &world);
        if let Some(survives) = crashes {
            world.crash(victim, survives);
            world.start(victim).unwrap();
            go(world.run_for(ms(20)), &world);
        }
        assert_eq!(view(&world, victim), at, "nobody has let it on");
        // The proposal comes first, then what lets it on.
        world.release();
        late.set(None);
        go(world.run_for(ms(5)), &world);
        wait_for(&mut world, &ids, secs(20));
        settle(&mut world);
        let votes =
            ear.borrow().votes.iter().filter(|(_, vote)| vote.by == victim && vote.body.view == at).count();
        assert_eq!(votes, 0, "{crashes:?}: a vote of {victim} in view {at}");
    }
}

/// Test 9 of Jolteon: a replica that was away for a long time hears nothing but a complaint of a view far ahead. It enters
/// that view by what the complaint shows, fetches the blocks, and votes.
fn j09_who_comes_late_enters_by_a_complaint<W: Words>() {
    let mut world = constant_of(entry::<W>(), 1409);
    let late = r(3);
    let only = Rc::new(Cell::new(true));
    let shared = Rc::clone(&only);
    let ear = listen::<W>(&mut world, move |frame, _| {
        let is_host = frame.frame_type == quorate_types::wire::frame::HOST;
        let is_other = frame.content.kind != W::GIVE_UP && !is_host;
        let is_lost = shared.get() && frame.to == late && is_other;
        if is_lost { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    let network_fault = cut(&mut world, 3);
    busy(&mut world);
    go(world.run_while("views have passed", secs(60), |world| view(world, r(0)) < View(60)), &world);
    assert!(view(&world, late) < View(20));
    world.end_fault(network_fault);
    // Every fourth view is its own and leads to nothing, so that there are complaints.
    go(world.run_while("it has entered", secs(20), |world| view(world, late) < View(60)), &world);
    only.set(false);
    let since = view(&world, late);
    go(
        world.run_while("it votes", secs(20), |_| {
            !ear.borrow().votes.iter().any(|(_, vote)| vote.by == late && vote.body.view > since)
        }),
        &world,
    );
    go(world.run_while("it has all blocks", secs(20), |world| world.executed(late) < Height(60)), &world);
}

/// Test 12 of Jolteon: the same schedule for both: what comes of it is the same, and two links are faster than three by
/// two delays.
#[test]
fn j12_the_same_schedule_for_both() {
    let run = |name: &str| {
        let entry = quorate_protocols::find(name).unwrap();
        let mut world = constant_of(entry, 1412);
        begin(&mut world);
        level(&mut world);
        go(world.run_for(secs(1)), &world);
        let took = ask(&mut world, 0, put("k", 1));
        let good = latency(&world, took);
        let network_fault = cut(&mut world, 2);
        let ids: Vec<_> =
            (0..20).map(|number| ask(&mut world, 0, incr(&format!("k{}", number % 3)))).collect();
        world.end_fault(network_fault);
        world.crash(r(1), Survives::Nothing);
        let more: Vec<_> =
            (0..20).map(|number| ask(&mut world, 0, incr(&format!("k{}", number % 3)))).collect();
        world.start(r(1)).unwrap();
        settle(&mut world);
        let result = |id| world.history().get(id).unwrap().result.clone();
        let results: Vec<_> = ids.into_iter().chain(more).map(result).collect();
        (good, results)
    };
    let ((three, first), (two, second)) = (run("hotstuff"), run("jolteon"));
    assert_eq!(first, second);
    assert_eq!(three - two, 2 * DELAY_NS);
}
