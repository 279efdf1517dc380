//! Scenarios of `sync-hotstuff` §14 for the rotating form (§11), by their numbers, unless they need a stable leader. More of
//! them are in `rotating.rs`.

use crate::rotating::{decoded, registered};
use crate::support::{begin, go, incr, level, put, r, settle, wait_for};
use crate::sync_exact_world::{DELTA_NS, NEAR_NS, acknowledged_request_survives_a_power_cut_of_all, exact};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_protocols::sync_hotstuff::rotating::RotatingMessage;
use quorate_sim::{Audience, DiskTrouble, Frame, LinkConditions, Plan, Survives, Verdict, World, ms, secs};
use quorate_types::{Height, Kind, ReplicaId, Time, View};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Messages with their senders and times.
type SentMessages = Rc<RefCell<Vec<(Time, ReplicaId, RotatingMessage)>>>;

fn listen(world: &mut World, mut judge: impl FnMut(&Frame) -> Verdict + 'static) -> SentMessages {
    let sent = SentMessages::default();
    let shared = Rc::clone(&sent);
    world.hook(move |now, frame| {
        if let Some(message) = decoded(frame) {
            shared.borrow_mut().push((now, frame.from, message));
        }
        judge(frame)
    });
    sent
}

/// Returns time and view of the first later proposal with a payload.
fn proposed(sent: &SentMessages, since: Time) -> Option<(Time, View, Height)> {
    sent.borrow().iter().find_map(|(at, _, message)| match message {
        RotatingMessage::Propose { header, .. }
            if *at >= since && header.block.payload != empty_payload() =>
        {
            Some((*at, header.block.view, header.block.height))
        }
        _ => None,
    })
}

/// Returns time, view and height of each vote of a replica; a vote goes to each of the others.
fn votes_of(sent: &SentMessages, by: ReplicaId) -> Vec<(Time, View, Height)> {
    let sent = sent.borrow();
    let votes = sent.iter().filter(|(_, from, _)| *from == by).filter_map(|(at, _, message)| match message {
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

/// S3: one replica alone receives the proposal of a view; its vote hands the header on, and all agree.
#[test]
fn s03_leader_that_crashes_after_one_proposal_leaves_agreement() {
    for n in [3, 5] {
        let mut world = exact(registered(), n, 3, |settings| settings.client.audience = Audience::All);
        let hidden: Rc<Cell<Option<View>>> = Rc::default();
        let only = Rc::clone(&hidden);
        let told = |world: &World, view: View| leader(world, view.next().next());
        let whom: Rc<Cell<ReplicaId>> = Rc::default();
        let told_one = Rc::clone(&whom);
        let sent = listen(&mut world, move |frame| {
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
            sent.borrow().iter().find_map(|(_, _, message)| match message {
                RotatingMessage::Propose { header, .. } if header.block.view == view => {
                    Some(header.block.height)
                }
                _ => None,
            })
        };
        go(world.run_while("the leader proposes", secs(5), |_| height().is_none()), &world);
        go(world.run_for(NEAR_NS + 1), &world);
        world.crash(leader(&world, view), Survives::Everything);
        wait_for(&mut world, &ids, secs(20));
        let crashed = leader(&world, view);
        let voters: Vec<ReplicaId> = {
            let sent = sent.borrow();
            let of = |message: &RotatingMessage| matches!(message, RotatingMessage::Vote(header) if header.body.block.view == view);
            sent.iter()
                .filter(|(_, by, message)| *by != crashed && of(message))
                .map(|(_, by, _)| *by)
                .collect()
        };
        assert_eq!(voters[0], whom.get(), "n = {n}: the voter has received the proposal");
        assert!(
            voters.iter().any(|by| *by != whom.get()),
            "n = {n}: others receive the header from its vote"
        );
        world.unhook();
        world.start(crashed).unwrap();
        settle(&mut world);
    }
}

/// S6: three of seven never vote, and blocks are committed as early as with all votes.
#[test]
fn s06_f_replicas_without_votes_delay_no_commit() {
    let mut world = exact(registered(), 7, 6, |settings| settings.client.audience = Audience::All);
    let sent = listen(&mut world, |frame| {
        let is_silent = frame.from >= r(4) && frame.content.kind.as_str() == "vote";
        if is_silent { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    for number in 0..8 {
        level(&mut world);
        let since = world.now();
        let id = world.submit(0, &[put("k", number)])[0];
        wait_for(&mut world, &[id], secs(3));
        let took = world.now().since(proposed(&sent, since).unwrap().0);
        // The reply arrives δ after the commit.
        assert!(took <= 2 * DELTA_NS + 2 * NEAR_NS + ms(1), "{took}");
    }
    assert_eq!(count(&world, "blame"), 0);
}

/// S8: all messages take exactly Δ: blocks are committed, and no replica is blamed.
#[test]
fn s08_delays_of_exactly_delta_are_tolerated() {
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

/// S12: a restart within 2Δ of the own vote. The earlier wait commits nothing afterwards, no other block is voted for in that
/// view, and the replica catches up.
#[test]
fn s12_restart_within_the_wait_ends_it() {
    let mut world = exact(registered(), 3, 12, |settings| settings.client.audience = Audience::All);
    let sent = listen(&mut world, |_| Verdict::Pass);
    begin(&mut world);
    for step in 0..8 {
        level(&mut world);
        let before = votes_of(&sent, r(2)).len();
        let id = world.submit(0, &[incr("n")])[0];
        let vote = || votes_of(&sent, r(2)).into_iter().nth(before);
        go(world.run_while("the replica has voted", secs(1), |_| vote().is_none()), &world);
        let (voted, _, height) = vote().unwrap();
        go(world.run_for(NEAR_NS + 1 + step * DELTA_NS * 9 / 40), &world);
        assert!(world.decided(r(2)) < height, "{step}");
        world.crash(r(2), Survives::Nothing);
        go(world.run_for(ms(5)), &world);
        world.start(r(2)).unwrap();
        go(world.run_until(voted.plus(2 * DELTA_NS + 1)), &world);
        assert!(world.decided(r(2)) < height, "{step}: the wait from before the restart commits nothing");
        wait_for(&mut world, &[id], secs(10));
        level(&mut world);
        assert!(world.decided(r(2)) >= height, "{step}: the replica has caught up");
        go(world.run_for(8 * DELTA_NS), &world);
    }
    let mut heights = BTreeMap::new();
    for (_, view, height) in votes_of(&sent, r(2)) {
        assert_eq!(*heights.entry(view).or_insert(height), height, "one vote in view {view}");
    }
    settle(&mut world);
}

/// S15, with the messages of the rotating form.
#[test]
fn s15_acknowledged_request_survives_a_power_cut_of_all() {
    acknowledged_request_survives_a_power_cut_of_all(registered(), |world| {
        let sent = listen(world, |_| Verdict::Pass);
        let is = |message: &RotatingMessage| matches!(message, RotatingMessage::Answer(answer) if answer.stage == RecoveryStage::Running);
        move || sent.take().into_iter().filter(|(_, _, message)| is(message)).map(|(_, by, _)| by).collect()
    });
}

/// S17: with the guard on and message delays up to Δ/2 no replica is ever in doubt or blamed. A commit takes δ + 2Δ, up to a
/// probe period and one round trip.
#[test]
fn s17_delays_within_half_of_delta_cause_no_doubt() {
    for (n, delay_ns) in [(3, NEAR_NS), (3, DELTA_NS / 2 - 1_000), (5, DELTA_NS / 4)] {
        let mut world = exact(registered(), n, 17, |settings| {
            settings.conditions = LinkConditions::constant(delay_ns);
            (settings.client.retry_ns, settings.client.audience) = (secs(3), Audience::All);
            settings.set("guarded", true);
        });
        let sent = listen(&mut world, |_| Verdict::Pass);
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
            let (at, ..) = proposed(&sent, since).unwrap();
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

/// S18: a disk stalls for 5 Δ. The votes of its replica are late by that, and the others do not wait. The replica commits by
/// a timer no earlier than 2Δ after its vote has left.
#[test]
fn s18_stalled_disk_delays_only_votes() {
    let (sync_ns, slow) = (5 * DELTA_NS / 100, r(2));
    let mut world = exact(registered(), 3, 18, |settings| {
        settings.costs.sync_ns = sync_ns;
        settings.client.audience = Audience::All;
    });
    let sent = listen(&mut world, move |frame| {
        // It does not receive decisions of others.
        let tells = ["host.decided", "host.heights"].contains(&frame.content.kind.as_str());
        if frame.to == slow && tells { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    // The leader after the next one is slow: two views continue without it.
    let is_before = |world: &World| leader(world, world.status(r(0)).unwrap().view) != r(0);
    go(world.run_while("the first one leads", secs(5), is_before), &world);
    world.plan(world.now(), Plan::Disk(slow, DiskTrouble::Slow));
    let since = world.now();
    let id = world.submit(0, &[put("k", 1)])[0];
    wait_for(&mut world, &[id], secs(2));
    let (at, view, height) = proposed(&sent, since).unwrap();
    assert!(
        world.now().since(at) <= 2 * DELTA_NS + 6 * NEAR_NS + 3 * sync_ns,
        "the others do not wait: {}",
        world.now().since(at)
    );
    world.plan(world.now(), Plan::Disk(slow, DiskTrouble::None));
    let is_behind = |world: &World| world.decided(slow) < height;
    go(world.run_while("it has committed", secs(5), is_behind), &world);
    let voted = votes_of(&sent, slow).into_iter().find(|(_, of, _)| *of >= view).unwrap().0;
    assert!(voted.since(at) >= 5 * DELTA_NS, "its vote is late: {}", voted.since(at));
    assert!(world.now().since(voted) >= 2 * DELTA_NS, "it has waited since its vote left");
    world.unhook();
    settle(&mut world);
}
