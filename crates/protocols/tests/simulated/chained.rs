//! Scenarios of chained protocols (`hotstuff` §14), for each rule set.

use crate::chained_support::{PROPOSE, Rules, VOTE, entry, for_each_rule_set};
use crate::support::{
    DELAY_NS, ask, begin, constant_of, cut, drop_frames, go, incr, latency, put, r, wait_for, world_of,
};
use quorate_sim::{Costs, LinkConditions, Survives, World, ms, secs};
use quorate_types::{Height, Kind, ReplicaId, View};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const POLICIES: [&str; 4] = ["round-robin", "terms", "stable", "avoiding"];

for_each_rule_set! {
    s1_fault_free_blocks_take_two_delays
    s2_s3_commits_continue_with_silent_replicas_and_every_policy
    s10_proposal_carries_the_proof_of_its_view
    s11_commits_resume_after_a_partition
    s13_request_of_a_failed_branch_is_executed_once
    s16_commits_resume_after_delays_beyond_the_timer
    s17_idle_cluster_is_quiet_and_wakes
    s18_replica_without_the_last_certificate_catches_up
    s19_silent_term_costs_one_timer
}

/// Clients send requests all the time, at these intervals.
fn keep_busy(world: &mut World, operations: u32, pause_ns: u64) {
    world.load_all(quorate_sim::Workload {
        operations,
        pause_ns,
        together_max: 2,
        outstanding_max: 4,
        keys: 3,
    });
}

/// S1: a thousand blocks without failures, two delays for each, and equal chains. `conformance` counts messages and delays
/// exactly, at three sizes.
fn s1_fault_free_blocks_take_two_delays<R: Rules>() {
    let mut world = constant_of(entry::<R>(), 1);
    begin(&mut world);
    keep_busy(&mut world, 100_000, DELAY_NS);
    go(world.run_while("a thousand blocks", secs(60), |world| world.height() < Height(1_000)), &world);
    let views: Vec<u64> = world.replicas().map(|id| world.status(id).unwrap().view_changes).collect();
    assert_eq!(views, [0; 4]);
    let blocks = world.height().0;
    assert!(world.now().0 < (blocks + 50) * 2 * DELAY_NS + secs(2), "{}", world.now());
}

/// S2, S3: commits continue with f silent replicas, with each leader policy. With `avoiding` hardly a view fails in the long
/// run.
fn s2_s3_commits_continue_with_silent_replicas_and_every_policy<R: Rules>() {
    for (n, silent) in
        [(4, &[0][..]), (4, &[2]), (7, &[0, 3]), (7, &[1, 2]), (10, &[0, 3, 6]), (10, &[4, 5, 6])]
    {
        for policy in POLICIES {
            let mut world = world_of(entry::<R>(), 3, |settings| {
                *settings = settings.clone().with_n(n);
                (settings.conditions, settings.costs) = (LinkConditions::constant(ms(5)), Costs::NONE);
                settings.set("leader_policy", policy);
            });
            begin(&mut world);
            for id in silent {
                world.crash(r(*id), Survives::Everything);
            }
            let awake = world.replicas().find(|id| !silent.contains(&id.0)).unwrap();
            keep_busy(&mut world, 100_000, ms(100));
            let what = format!("{} n = {n} without {silent:?}, {policy}", R::SPEC.name);
            // `avoiding` gives each silent replica a term before it leaves the replica out.
            go(world.run_for(if policy == "avoiding" { secs(16) } else { secs(2) }), &world);
            // Each span of time has a commit.
            for _ in 0..4 {
                let height = world.height();
                go(world.run_for(secs(3)), &world);
                assert!(world.height() > height, "{what}: nothing after {height}");
            }
            if policy == "avoiding" && n == 7 {
                let before = world.status(awake).unwrap();
                go(
                    world.run_while("a hundred views more", secs(60), |world| {
                        world.status(awake).unwrap().view < View(before.view.0 + 400)
                    }),
                    &world,
                );
                let after = world.status(awake).unwrap();
                let (views, failed) =
                    (after.view.0 - before.view.0, after.view_changes - before.view_changes);
                assert!(failed * 20 < views, "{what}: {failed} of {views} views failed");
            }
        }
    }
}

/// S10: the timeouts of a view do not reach one replica. The next proposal carries them.
fn s10_proposal_carries_the_proof_of_its_view<R: Rules>() {
    let mut world = constant_of(entry::<R>(), 10);
    begin(&mut world);
    let leader = world.status(r(0)).unwrap().leader;
    let deaf = r((leader.0 + 2) % 4);
    world.crash(leader, Survives::Everything);
    // The messages about this view's end alone are lost, or there would be two faulty replicas.
    let next = world.status(deaf).unwrap().view.next();
    drop_frames(&mut world, move |frame| {
        let is_about_views = [R::TIMEOUT, R::ADVANCE].contains(&frame.content.kind);
        frame.to == deaf && is_about_views && frame.content.view <= next
    });
    ask(&mut world, 0, put("k", 1));
    let others: Vec<View> =
        world.replicas().filter(|id| *id != leader).map(|id| world.status(id).unwrap().view).collect();
    let views = others.iter().max().unwrap().since(*others.iter().min().unwrap());
    assert!(views <= 1, "{others:?}");
}

/// S11: a partition of two and two lasts half a minute, without a commit. Then comes one within the bound, and timers are short
/// again.
fn s11_commits_resume_after_a_partition<R: Rules>() {
    let mut world = world_of(entry::<R>(), 11, |_| {});
    begin(&mut world);
    let height = world.height();
    let sides = quorate_sim::Places::of([0, 1]);
    let network_fault = world.begin_fault(quorate_sim::NetworkFault {
        from: sides,
        to: quorate_sim::Places::of([2, 3]),
        both_ways: true,
        change: quorate_sim::Change::Cut,
        fault: None,
    });
    let id = world.submit(0, &[put("k", 1)])[0];
    go(world.run_for(secs(30)), &world);
    let reached = world.height();
    assert!(reached.since(height) <= 4, "only blocks on their way are committed: {height} to {reached}");
    world.end_fault(network_fault);
    wait_for(&mut world, &[id], secs(15));
    // A leader crashes now. That costs one short timer, not one of ten seconds.
    begin(&mut world);
    let leader = world.status(r(0)).unwrap().leader;
    world.crash(leader, Survives::Everything);
    let id = ask(&mut world, 1, put("k", 2));
    assert!(latency(&world, id) < secs(4), "{}", latency(&world, id));
}

/// S13: a request in a block of a failed branch is proposed again, and executed once.
fn s13_request_of_a_failed_branch_is_executed_once<R: Rules>() {
    let mut world = constant_of(entry::<R>(), 13);
    begin(&mut world);
    let first = world.status(r(0)).unwrap().view;
    // The votes for the first block with the request are lost.
    drop_frames(&mut world, move |frame| {
        frame.content.kind.as_str() == "vote" && frame.content.view == first
    });
    let id = world.submit(0, &[incr("k")])[0];
    let mut lost = false;
    let view = |world: &World| world.status(r(0)).unwrap().view;
    go(world.run_while("the view fails", secs(10), |world| view(world) <= first), &world);
    lost |= view(&world) > first;
    wait_for(&mut world, &[id], secs(10));
    assert!(lost);
    let again = ask(&mut world, 1, incr("k"));
    let answer = world.history().get(again).unwrap().result.clone();
    assert_eq!(answer, Some(quorate_sim::KvResult::Number(2)));
}

/// S16: messages take three times the first timer for a minute. No commit is promised meanwhile; afterwards commits continue.
fn s16_commits_resume_after_delays_beyond_the_timer<R: Rules>() {
    let mut world = world_of(entry::<R>(), 16, |_| {});
    begin(&mut world);
    let all = quorate_sim::Places::of([0, 1, 2, 3]);
    let slow = quorate_sim::Change::Slow { delay_ns: ms(480), jitter_ns: 0 };
    let network_fault = world.begin_fault(quorate_sim::NetworkFault {
        from: all,
        to: all,
        both_ways: true,
        change: slow,
        fault: None,
    });
    let id = world.submit(0, &[put("k", 1)])[0];
    go(world.run_for(secs(60)), &world);
    assert!(world.history().get(id).unwrap().answered.is_some(), "the timer has grown beyond the delay");
    world.end_fault(network_fault);
    let id = ask(&mut world, 1, put("k", 2));
    assert!(latency(&world, id) < secs(5), "{}", latency(&world, id));
}

/// Counts the messages of the protocol that leave, by kind.
fn count<R: Rules>(world: &mut World) -> Rc<RefCell<BTreeMap<Kind, u64>>> {
    let counts = Rc::new(RefCell::new(BTreeMap::new()));
    let seen = Rc::clone(&counts);
    world.hook(move |_, frame| {
        let kind = frame.content.kind;
        if [PROPOSE, VOTE, R::TIMEOUT, R::ADVANCE].contains(&kind) {
            *seen.borrow_mut().entry(kind).or_insert(0) += 1;
        }
        quorate_sim::Verdict::Pass
    });
    counts
}

/// S17: after the last request all proposed blocks are committed everywhere; then there is no message and no timer for a minute.
/// One request to one replica is executed everywhere, and the cluster is idle again. A crashed leader changes nothing.
fn s17_idle_cluster_is_quiet_and_wakes<R: Rules>() {
    for dead in [false, true] {
        let mut world = world_of(entry::<R>(), 17, |settings| {
            settings.client.audience = quorate_sim::Audience::One(r(3));
        });
        begin(&mut world);
        for number in 0..20 {
            ask(&mut world, 0, put("k", number));
        }
        let quiet = |world: &mut World| {
            go(world.run_for(secs(3)), world);
            let counts = count::<R>(world);
            go(world.run_for(secs(60)), world);
            assert!(counts.borrow().is_empty(), "{:?}", counts.borrow());
            for id in world.replicas().filter(|id| world.is_running(*id)).collect::<Vec<_>>() {
                assert_eq!(world.status(id).unwrap().timers, [], "{id}");
            }
        };
        quiet(&mut world);
        if dead {
            let leader = world.status(r(0)).unwrap().leader;
            // The replica that the client asks stays up.
            let leader = if leader == r(3) { r(0) } else { leader };
            world.crash(leader, Survives::Everything);
        }
        ask(&mut world, 0, put("k", 99));
        let level = |world: &World| {
            let heights: Vec<Height> =
                world.replicas().filter(|id| world.is_running(*id)).map(|id| world.executed(id)).collect();
            heights.iter().all(|height| *height == heights[0])
        };
        go(world.run_while("all have executed it", secs(10), |world| !level(world)), &world);
        quiet(&mut world);
    }
}

/// S18: a replica without the last certificates of an idle cluster reaches the same height without a new request.
fn s18_replica_without_the_last_certificate_catches_up<R: Rules>() {
    let mut world = world_of(entry::<R>(), 18, |_| {});
    begin(&mut world);
    let away = 2usize;
    let id = world.submit(0, &[put("k", 1)])[0];
    go(world.run_for(ms(4)), &world);
    let network_fault = cut(&mut world, away);
    wait_for(&mut world, &[id], secs(20));
    go(world.run_for(secs(5)), &world);
    world.end_fault(network_fault);
    go(world.run_while("all are at one height", secs(30), |world| !world.is_level()), &world);
}

/// S19: the silent leader of a term of eight views costs one timer.
fn s19_silent_term_costs_one_timer<R: Rules>() {
    let mut world = world_of(entry::<R>(), 19, |settings| {
        settings.set("leader_policy", "terms");
        settings.set("views_per_leader", 8);
    });
    begin(&mut world);
    let silent: ReplicaId = r(1);
    world.crash(silent, Survives::Everything);
    keep_busy(&mut world, 100_000, ms(2));
    go(
        world.run_while("four rounds of leaders", secs(60), |world| {
            world.status(r(0)).unwrap().view < View(4 * 4 * 8)
        }),
        &world,
    );
    let status = world.status(r(0)).unwrap();
    let terms = status.view.0 / (4 * 8);
    assert!(status.view_changes <= terms + 2, "{} failed views in {terms} rounds", status.view_changes);
}
