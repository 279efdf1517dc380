//! The scenarios of `sync-hotstuff` §14 with leaders that follow each other (§11), by their numbers, as far as they are about
//! more than one stable leader. More of them are in `rotating.rs`.

use crate::rotating::{decoded, registered};
use crate::support::{begin, go, incr, level, put, r, settle, settle_honest, wait_for};
use crate::sync_stage::{DELTA_NS, NEAR_NS, exact};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::returning::Standing;
use quorate_protocols::sync_hotstuff::rotating::RotatingMessage;
use quorate_sim::{
    Audience, Byzantine, DiskTrouble, Frame, LinkConditions, Plan, Survives, Verdict, World, ms, secs,
};
use quorate_types::{Height, Kind, ReplicaId, Time, View};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What was said, by whom and when.
type Said = Rc<RefCell<Vec<(Time, ReplicaId, RotatingMessage)>>>;

fn listen(world: &mut World, mut judge: impl FnMut(&Frame) -> Verdict + 'static) -> Said {
    let said = Said::default();
    let shared = Rc::clone(&said);
    world.hook(move |now, frame| {
        if let Some(message) = decoded(frame) {
            shared.borrow_mut().push((now, frame.from, message));
        }
        judge(frame)
    });
    said
}

/// When the first block after that was proposed that carries something, and in which view.
fn proposed(said: &Said, since: Time) -> Option<(Time, View, Height)> {
    said.borrow().iter().find_map(|(at, _, message)| match message {
        RotatingMessage::Propose { header, .. }
            if *at >= since && header.block.payload != empty_payload() =>
        {
            Some((*at, header.block.view, header.block.height))
        }
        _ => None,
    })
}

/// When a replica has voted, in which view, and at which height; a vote goes to each of the others.
fn votes_of(said: &Said, by: ReplicaId) -> Vec<(Time, View, Height)> {
    let said = said.borrow();
    let votes = said.iter().filter(|(_, from, _)| *from == by).filter_map(|(at, _, message)| match message {
        RotatingMessage::Vote(header) => Some((*at, header.body.block.view, header.body.block.height)),
        _ => None,
    });
    votes.collect()
}

fn leader(world: &World, view: View) -> ReplicaId {
    let n = u64::try_from(world.settings().n).unwrap();
    r(u16::try_from((view.0 - 1) % n).unwrap())
}

fn count(world: &World, kind: &'static str) -> u64 {
    world.sent().get(&Kind::new(kind)).copied().unwrap_or_default()
}

/// S3: one replica alone hears what the leader of a view proposes; its vote hands the header on, and all agree.
#[test]
fn s03_a_leader_that_crashes_after_telling_one() {
    for n in [3, 5] {
        let mut world = exact(registered(), n, 3, |settings| settings.client.audience = Audience::All);
        let hidden: Rc<Cell<Option<View>>> = Rc::default();
        let only = Rc::clone(&hidden);
        let told = |world: &World, view: View| leader(world, view.next().next());
        let whom: Rc<Cell<ReplicaId>> = Rc::default();
        let told_one = Rc::clone(&whom);
        let said = listen(&mut world, move |frame| {
            let Some(RotatingMessage::Propose { header, .. }) = decoded(frame) else { return Verdict::Pass };
            let hides = only.get() == Some(header.block.view) && frame.to != told_one.get();
            if hides { Verdict::Drop } else { Verdict::Pass }
        });
        begin(&mut world);
        level(&mut world);
        let view = world.replicas().map(|id| world.status(id).unwrap().view).max().unwrap().plus(2);
        hidden.set(Some(view));
        whom.set(told(&world, view));
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        let height = || {
            said.borrow().iter().find_map(|(_, _, message)| match message {
                RotatingMessage::Propose { header, .. } if header.block.view == view => {
                    Some(header.block.height)
                }
                _ => None,
            })
        };
        go(world.run_while("it proposes", secs(5), |_| height().is_none()), &world);
        go(world.run_for(NEAR_NS + 1), &world);
        world.crash(leader(&world, view), Survives::Everything);
        wait_for(&mut world, &ids, secs(20));
        let crashed = leader(&world, view);
        let voters: Vec<ReplicaId> = {
            let said = said.borrow();
            let of = |message: &RotatingMessage| matches!(message, RotatingMessage::Vote(header) if header.body.block.view == view);
            said.iter()
                .filter(|(_, by, message)| *by != crashed && of(message))
                .map(|(_, by, _)| *by)
                .collect()
        };
        assert_eq!(voters[0], whom.get(), "n = {n}: who was told");
        assert!(voters.iter().any(|by| *by != whom.get()), "n = {n}: others have it from there");
        world.unhook();
        world.start(crashed).unwrap();
        settle(&mut world);
    }
}

/// S6: of seven three never vote, and blocks are committed as soon as when all do.
#[test]
fn s06_replicas_that_never_vote() {
    let mut world = exact(registered(), 7, 6, |settings| settings.client.audience = Audience::All);
    let said = listen(&mut world, |frame| {
        let is_silent = frame.from >= r(4) && frame.content.kind.as_str() == "vote";
        if is_silent { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    for number in 0..8 {
        level(&mut world);
        let since = world.now();
        let id = world.submit(0, &[put("k", number)])[0];
        wait_for(&mut world, &[id], secs(3));
        let took = world.now().since(proposed(&said, since).unwrap().0);
        // The reply comes δ after the commit.
        assert!(took <= 2 * DELTA_NS + 2 * NEAR_NS + ms(1), "{took}");
    }
    assert_eq!(count(&world, "blame"), 0);
}

/// S8: everything takes exactly Δ: blocks are committed, and nobody is blamed.
#[test]
fn s08_everything_takes_exactly_delta() {
    for n in [3, 5] {
        let mut world = exact(registered(), n, 8, |settings| {
            settings.conditions = LinkConditions::constant(DELTA_NS);
            settings.client.audience = Audience::All;
            settings.client.retry_ns = secs(3);
        });
        begin(&mut world);
        for number in 0..10 {
            let id = world.submit(0, &[put("k", number)])[0];
            wait_for(&mut world, &[id], secs(4));
        }
        assert_eq!(count(&world, "blame"), 0, "{n}");
        settle(&mut world);
    }
}

/// S12: a restart within 2Δ of the own vote. The wait from before commits nothing after it, nothing else is voted for in that
/// view, and it catches up.
#[test]
fn s12_a_restart_within_the_wait() {
    let mut world = exact(registered(), 3, 12, |settings| settings.client.audience = Audience::All);
    let said = listen(&mut world, |_| Verdict::Pass);
    begin(&mut world);
    for step in 0..8 {
        level(&mut world);
        let before = votes_of(&said, r(2)).len();
        let id = world.submit(0, &[incr("n")])[0];
        let vote = || votes_of(&said, r(2)).into_iter().nth(before);
        go(world.run_while("it has voted", secs(1), |_| vote().is_none()), &world);
        let (voted, _, height) = vote().unwrap();
        go(world.run_for(NEAR_NS + 1 + step * DELTA_NS * 9 / 40), &world);
        assert!(world.decided(r(2)) < height, "{step}");
        world.crash(r(2), Survives::Nothing);
        go(world.run_for(ms(5)), &world);
        world.start(r(2)).unwrap();
        go(world.run_until(voted.plus(2 * DELTA_NS + 1)), &world);
        assert!(world.decided(r(2)) < height, "{step}: its wait from before is over, and forgotten");
        wait_for(&mut world, &[id], secs(10));
        level(&mut world);
        assert!(world.decided(r(2)) >= height, "{step}: it has caught up");
        go(world.run_for(8 * DELTA_NS), &world);
    }
    let mut heights = BTreeMap::new();
    for (_, view, height) in votes_of(&said, r(2)) {
        assert_eq!(*heights.entry(view).or_insert(height), height, "one vote in view {view}");
    }
    settle(&mut world);
}

/// S15: all lose power right after a client has its answer and come back in any order. No timer commits before its replica
/// runs again. From then on one lies: what was acknowledged stays.
#[test]
fn s15_all_are_cut_after_an_acknowledgement() {
    let orders: [[u16; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (seed, order) in (0..).zip(orders) {
        let mut world = exact(registered(), 3, 150 + seed, |_| {});
        let said = listen(&mut world, |_| Verdict::Pass);
        begin(&mut world);
        level(&mut world);
        for round in 0..3 {
            let id = world.submit(0, &[incr("n")])[0];
            wait_for(&mut world, &[id], secs(5));
            let (known, before) = (world.highest(), said.borrow().len());
            for replica in world.replicas() {
                world.crash(replica, Survives::Nothing);
            }
            for replica in order {
                go(world.run_for(ms(10 + 40 * round)), &world);
                world.start(r(replica)).unwrap();
            }
            let runs = |id: ReplicaId| {
                said.borrow()[before..].iter().any(|(_, by, message)| {
                    *by == id
                        && matches!(message, RotatingMessage::Answer(answer) if answer.standing == Standing::Running)
                })
            };
            while !world.replicas().all(runs) {
                go(world.run_for(ms(1)), &world);
                let early = world.replicas().find(|id| world.decided(*id) > known && !runs(*id));
                assert_eq!(early, None, "{order:?}: nothing new before it runs");
            }
        }
        let liar = r(order[0]);
        match seed % 2 {
            0 => world.take_control(liar),
            _ => world.corrupt_now(liar, Byzantine::Own),
        }
        let id = world.submit(1, &[incr("n")])[0];
        wait_for(&mut world, &[id], secs(30));
        let result = world.history().get(id).unwrap().result.clone();
        assert_eq!(result, Some(quorate_sim::KvResult::Number(4)), "{order:?}");
        settle_honest(&mut world);
    }
}

/// S17: with the guard on and messages that take up to Δ/2 nobody is ever in doubt or blamed, and a commit takes δ + 2Δ, up to
/// a probe period and one round trip.
#[test]
fn s17_within_half_of_delta_there_is_no_doubt() {
    for (n, delay_ns) in [(3, NEAR_NS), (3, DELTA_NS / 2 - 1_000), (5, DELTA_NS / 4)] {
        let mut world = exact(registered(), n, 17, |settings| {
            settings.conditions = LinkConditions::constant(delay_ns);
            (settings.client.retry_ns, settings.client.audience) = (secs(3), Audience::All);
            settings.set("guarded", true);
        });
        let said = listen(&mut world, |_| Verdict::Pass);
        begin(&mut world);
        go(world.run_for(30 * DELTA_NS), &world);
        let doubts = |world: &World| -> Vec<u64> {
            world.replicas().map(|id| world.status(id).unwrap().guard.unwrap().doubts).collect()
        };
        let before = (doubts(&world), count(&world, "blame"));
        for number in 0..10 {
            let since = world.now();
            let id = world.submit(0, &[put("k", number)])[0];
            wait_for(&mut world, &[id], secs(3));
            let (at, ..) = proposed(&said, since).unwrap();
            let (took, expected) = (world.now().since(at), delay_ns + 2 * DELTA_NS);
            // And the reply.
            let most = expected + DELTA_NS / 4 + 3 * delay_ns;
            assert!(
                (2 * DELTA_NS..=most).contains(&took),
                "n = {n} {delay_ns}: {took}, not {expected} to {most}"
            );
        }
        assert_eq!((doubts(&world), count(&world, "blame")), before, "n = {n} {delay_ns}");
    }
}

/// S18: a disk stalls for 5 Δ: the votes of its replica are late by that, the others wait for nobody, and it commits by time 2Δ
/// after its vote has left at the earliest.
#[test]
fn s18_a_disk_that_stalls() {
    let (sync_ns, slow) = (5 * DELTA_NS / 100, r(2));
    let mut world = exact(registered(), 3, 18, |settings| {
        settings.costs.sync_ns = sync_ns;
        settings.client.audience = Audience::All;
    });
    let said = listen(&mut world, move |frame| {
        // It is not told what others have decided.
        let tells = ["host.decided", "host.heights"].contains(&frame.content.kind.as_str());
        if frame.to == slow && tells { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    // The next but one leader is the slow one: two views go on without it.
    let is_before = |world: &World| leader(world, world.status(r(0)).unwrap().view) != r(0);
    go(world.run_while("the first one leads", secs(5), is_before), &world);
    world.plan(world.now(), Plan::Disk(slow, DiskTrouble::Slow));
    let since = world.now();
    let id = world.submit(0, &[put("k", 1)])[0];
    wait_for(&mut world, &[id], secs(2));
    let (at, view, height) = proposed(&said, since).unwrap();
    assert!(
        world.now().since(at) <= 2 * DELTA_NS + 6 * NEAR_NS + 3 * sync_ns,
        "the others wait for nobody: {}",
        world.now().since(at)
    );
    world.plan(world.now(), Plan::Disk(slow, DiskTrouble::None));
    let is_behind = |world: &World| world.decided(slow) < height;
    go(world.run_while("it has committed", secs(5), is_behind), &world);
    let voted = votes_of(&said, slow).into_iter().find(|(_, of, _)| *of >= view).unwrap().0;
    assert!(voted.since(at) >= 5 * DELTA_NS, "its vote is late: {}", voted.since(at));
    assert!(world.now().since(voted) >= 2 * DELTA_NS, "it has waited since its vote left");
    world.unhook();
    settle(&mut world);
}
