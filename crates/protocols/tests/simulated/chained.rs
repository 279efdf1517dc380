//! The scenarios of chained protocols (`hotstuff` §14, `jolteon` §14), for each of them; the numbers are those of the
//! first.

use crate::support::{
    DELAY_NS, ask, begin, constant_of, cut, drop_frames, go, incr, latency, put, r, wait_for, world_of,
};
use quorate_consensus::Entry;
use quorate_sim::{Costs, LinkConditions, Survives, World, ms, secs};
use quorate_types::{Height, ReplicaId, View};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const POLICIES: [&str; 4] = ["round-robin", "terms", "stable", "avoiding"];

fn hotstuff() -> &'static Entry {
    quorate_protocols::find("hotstuff").unwrap()
}

fn jolteon() -> &'static Entry {
    quorate_protocols::find("jolteon").unwrap()
}

/// Makes tests of scenarios: each for both.
macro_rules! both {
    ($($scenario:ident)*) => {
        mod hotstuff {
            $(#[test] fn $scenario() { super::$scenario(super::hotstuff()); })*
        }
        mod jolteon {
            $(#[test] fn $scenario() { super::$scenario(super::jolteon()); })*
        }
    };
}

both! {
    s1_fault_free
    s2_s3_silent_replicas_with_every_policy
    s10_a_proposal_shows_what_lets_into_its_view
    s11_a_partition_heals
    s13_a_request_of_a_dead_branch_is_executed_once
    s16_delays_beyond_the_timer
    s17_idle_is_quiet_and_wakes
    s18_who_missed_the_last_certificate_catches_up
    s19_a_silent_term_costs_one_timer
}

/// Every so many nanoseconds somebody wants something, as long as it takes.
fn keep_busy(world: &mut World, operations: u32, pause_ns: u64) {
    world.load_all(quorate_sim::Workload {
        operations,
        pause_ns,
        together_max: 2,
        outstanding_max: 4,
        keys: 3,
    });
}

/// S1: blocks are committed 6 and 7 delays after their proposals (5 with two certificates), 6 messages for each; counted
/// exactly, at three sizes, by `conformance`. Here a thousand blocks, and equal chains.
fn s1_fault_free(entry: &Entry) {
    let mut world = constant_of(entry, 1);
    begin(&mut world);
    keep_busy(&mut world, 100_000, DELAY_NS);
    go(world.run_while("a thousand blocks", secs(60), |world| world.height() < Height(1_000)), &world);
    let views: Vec<u64> = world.replicas().map(|id| world.status(id).unwrap().view_changes).collect();
    assert_eq!(views, [0; 4]);
    // Two delays for each block.
    let blocks = world.height().0;
    assert!(world.now().0 < (blocks + 50) * 2 * DELAY_NS + secs(2), "{}", world.now());
}

/// S2, S3, and the issue of leaders who are left out: commits go on with f silent replicas, whatever the policy. With
/// `avoiding` hardly a view is lost in the long run.
fn s2_s3_silent_replicas_with_every_policy(entry: &Entry) {
    for (n, silent) in
        [(4, &[0][..]), (4, &[2]), (7, &[0, 3]), (7, &[1, 2]), (10, &[0, 3, 6]), (10, &[4, 5, 6])]
    {
        for policy in POLICIES {
            let mut world = world_of(entry, 3, |settings| {
                *settings = settings.clone().with_n(n);
                (settings.conditions, settings.costs) = (LinkConditions::constant(ms(5)), Costs::NONE);
                settings.set("leader_policy", policy);
            });
            begin(&mut world);
            for id in silent {
                world.crash(r(*id), Survives::Everything);
            }
            let awake = world.replicas().find(|id| !silent.contains(&id.0)).unwrap();
            keep_busy(&mut world, 100_000, ms(20));
            let what = format!("{} n = {n} without {silent:?}, {policy}", entry.spec.name);
            // What has to be learnt is learnt: `avoiding` gives each silent one a term before it is left out.
            go(world.run_for(secs(16)), &world);
            // Steadily: in each span something is committed.
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

/// S10: the word that a view was given up is lost to one replica; the proposal tells it.
fn s10_a_proposal_shows_what_lets_into_its_view(entry: &Entry) {
    let mut world = constant_of(entry, 10);
    begin(&mut world);
    let leader = world.status(r(0)).unwrap().leader;
    let deaf = r((leader.0 + 2) % 4);
    world.crash(leader, Survives::Everything);
    // Of this view's end alone, or there would be two faulty ones.
    let next = world.status(deaf).unwrap().view.next();
    drop_frames(&mut world, move |frame| {
        let is_word = ["next-view", "advance", "complain", "timeout"].contains(&frame.content.kind.as_str());
        frame.to == deaf && is_word && frame.content.view <= next
    });
    ask(&mut world, 0, put("k", 1));
    let others: Vec<View> =
        world.replicas().filter(|id| *id != leader).map(|id| world.status(id).unwrap().view).collect();
    let views = others.iter().max().unwrap().since(*others.iter().min().unwrap());
    assert!(views <= 1, "{others:?}");
}

/// S11: two against two for half a minute: no commit, then one within the bound, and timers are short again.
fn s11_a_partition_heals(entry: &Entry) {
    let mut world = world_of(entry, 11, |_| {});
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
    assert!(reached.since(height) <= 4, "what was on its way at most: {height} to {reached}");
    world.end_fault(network_fault);
    wait_for(&mut world, &[id], secs(15));
    // A leader dies now: one short timer, not one of ten seconds.
    begin(&mut world);
    let leader = world.status(r(0)).unwrap().leader;
    world.crash(leader, Survives::Everything);
    let id = ask(&mut world, 1, put("k", 2));
    assert!(latency(&world, id) < secs(4), "{}", latency(&world, id));
}

/// S13: what stood in a block that died is proposed again, and executed once.
fn s13_a_request_of_a_dead_branch_is_executed_once(entry: &Entry) {
    let mut world = constant_of(entry, 13);
    begin(&mut world);
    let first = world.status(r(0)).unwrap().view;
    // The first block with the request gets no votes: they are lost, also those inside of complaints.
    drop_frames(&mut world, move |frame| {
        frame.content.kind.as_str() == "vote" && frame.content.view == first
    });
    let id = world.submit(0, &[incr("k")])[0];
    let mut lost = false;
    let view = |world: &World| world.status(r(0)).unwrap().view;
    go(world.run_while("the view is given up", secs(10), |world| view(world) <= first), &world);
    lost |= view(&world) > first;
    wait_for(&mut world, &[id], secs(10));
    assert!(lost);
    let again = ask(&mut world, 1, incr("k"));
    let answer = world.history().get(again).unwrap().result.clone();
    assert_eq!(answer, Some(quorate_sim::KvResult::Number(2)));
}

/// S16: for a minute messages take three times the timer: no commit is promised meanwhile, and everything goes on by itself.
fn s16_delays_beyond_the_timer(entry: &Entry) {
    let mut world = world_of(entry, 16, |_| {});
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

/// Messages of the protocol that leave, by kind.
fn count(world: &mut World) -> Rc<RefCell<BTreeMap<String, u64>>> {
    let counts = Rc::new(RefCell::new(BTreeMap::new()));
    let seen = Rc::clone(&counts);
    world.hook(move |_, frame| {
        let kind = frame.content.kind.as_str();
        if ["propose", "vote", "complain", "timeout", "next-view", "advance"].contains(&kind) {
            *seen.borrow_mut().entry(kind.to_owned()).or_insert(0) += 1;
        }
        quorate_sim::Verdict::Pass
    });
    counts
}

/// S17: load stops: what was proposed is committed everywhere, then no message and no timer for a minute. One request to one
/// replica is executed everywhere, and all is quiet again; also when the leader is dead.
fn s17_idle_is_quiet_and_wakes(entry: &Entry) {
    for dead in [false, true] {
        let mut world = world_of(entry, 17, |settings| {
            settings.client.audience = quorate_sim::Audience::One(r(3));
        });
        begin(&mut world);
        for number in 0..20 {
            ask(&mut world, 0, put("k", number));
        }
        let quiet = |world: &mut World| {
            go(world.run_for(secs(3)), world);
            let counts = count(world);
            go(world.run_for(secs(60)), world);
            assert!(counts.borrow().is_empty(), "{:?}", counts.borrow());
            for id in world.replicas().filter(|id| world.is_running(*id)).collect::<Vec<_>>() {
                assert_eq!(world.status(id).unwrap().timers, [], "{id}");
            }
        };
        quiet(&mut world);
        if dead {
            let leader = world.status(r(0)).unwrap().leader;
            // Whom the client asks stays.
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

/// S18: a replica that missed the last certificates of an idle cluster comes to the same height without a new request.
fn s18_who_missed_the_last_certificate_catches_up(entry: &Entry) {
    let mut world = world_of(entry, 18, |_| {});
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

/// S19: K = 8 and the leader of a term is silent: one timer for the term.
fn s19_a_silent_term_costs_one_timer(entry: &Entry) {
    let mut world = world_of(entry, 19, |settings| {
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
    assert!(status.view_changes <= terms + 2, "{} views given up in {terms} rounds", status.view_changes);
}
