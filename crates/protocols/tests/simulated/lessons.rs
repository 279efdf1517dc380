//! Lessons about persistence that others have published, each under every protocol to which it applies. The museum has the
//! broken variants (rows P).

use crate::lesson_flaws::{
    AssertsUnique, ConvictsOfTimeouts, OwnTimeoutUncounted, TimeoutPruned, leaves_view, under_every_protocol,
};
use crate::side_by_side::run_all;
use crate::support::{begin, go, incr, many, recovery, settle, short_window, world_of};
use quorate_consensus::Entry;
use quorate_consensus::flawed::Flawed;
use quorate_protocols::REGISTRY;
use quorate_protocols::chained::{Chained, Jolteon};
use quorate_protocols::pbft::{AllSigned, Linked, Pbft};
use quorate_sim::museum::EXHIBITS;
use quorate_sim::seed::{ByzantineChoice, StandardRun};
use quorate_sim::{
    Byzantine, Failure, OpId, Oracle, Survives, Transport, Verdict, Workload, World, ms, secs,
};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{ReplicaId, Statement, View};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Runs a check of each place of a list, on all cores.
fn each<T: Sync>(all: &[T], check: impl Fn(&T) + Sync) {
    let places: Vec<u64> = (0..all.len() as u64).collect();
    run_all(&places, |place| check(&all[place as usize]));
}

/// All protocols whose leader can be replaced.
fn protocols() -> Vec<&'static Entry> {
    REGISTRY.iter().filter(|entry| entry.spec.replaces_leader).collect()
}

fn standard(entry: &Entry, hosts: ByzantineChoice, seed: u64) -> Option<Failure> {
    StandardRun::with(entry, None, hosts, seed).unwrap().run().failure
}

pub(crate) fn nobody(entry: &Entry, seed: u64) -> Option<Failure> {
    standard(entry, ByzantineChoice::Nobody, seed)
}

pub(crate) fn twin(entry: &Entry, seed: u64) -> Option<Failure> {
    standard(entry, ByzantineChoice::All(Byzantine::Twin), seed)
}

fn is_open(world: &World, ids: &[OpId]) -> bool {
    ids.iter().any(|id| world.history().get(*id).unwrap().answered.is_none())
}

/// The leader is down. All others time out, and all lose power when their timeouts are on disk and have reached no replica.
/// Progress then needs the timeout of each of them.
pub(crate) fn timeouts_before_a_power_cut(entry: &Entry, seed: u64) -> Option<Failure> {
    let mut world = world_of(entry, seed, short_window);
    begin(&mut world);
    many(&mut world, 6);
    let leader = world.leader().unwrap();
    world.crash(leader, Survives::Everything);
    let timed_out: Rc<RefCell<BTreeSet<ReplicaId>>> = Rc::default();
    let seen = Rc::clone(&timed_out);
    world.hook(move |_, frame| {
        if !leaves_view(frame.content.kind, frame.content.statement, frame.content.is_once) {
            return Verdict::Pass;
        }
        seen.borrow_mut().insert(frame.from);
        Verdict::Drop
    });
    let ids: Vec<OpId> = (0..4).flat_map(|client| world.submit(client, &[incr("n")])).collect();
    let others: Vec<ReplicaId> = world.replicas().filter(|id| *id != leader).collect();
    let all = others.len();
    go(world.run_while("all time out", secs(20), |_| timed_out.borrow().len() < all), &world);
    others.iter().for_each(|id| world.crash(*id, Survives::Everything));
    world.unhook();
    go(world.run_for(ms(50)), &world);
    others.iter().for_each(|id| world.start(*id).unwrap());
    let bound = recovery(&world, secs(1));
    if let Err(failure) = world.run_while("operations are answered", bound, |world| is_open(world, &ids)) {
        return Some(failure);
    }
    world.start(leader).unwrap();
    settle(&mut world);
    None
}

/// P1: an own timeout or blame that was on disk counts after a restart of all. One that does not leaves the cluster one short
/// for ever.
#[test]
fn own_timeouts_count_after_a_restart_of_all() {
    each(&under_every_protocol!(OwnTimeoutUncounted), |(sound, broken)| {
        for seed in 0..4 {
            assert_eq!(timeouts_before_a_power_cut(sound, seed), None, "{} seed {seed}", sound.spec.name);
        }
        let caught = timeouts_before_a_power_cut(broken, 0).map(|failure| failure.oracle);
        assert_eq!(caught, Some(Oracle::Liveness), "{}", sound.spec.name);
    });
}

/// Returns the highest view in which each replica has made a statement, as long as the world runs.
fn watch_statements(world: &mut World) -> Rc<RefCell<BTreeMap<ReplicaId, View>>> {
    let stated: Rc<RefCell<BTreeMap<ReplicaId, View>>> = Rc::default();
    let highest = Rc::clone(&stated);
    world.hook(move |_, frame| {
        let statement = frame.content.statement.filter(|_| frame.frame_type == PROTOCOL);
        if let Some(statement) = statement {
            let mut highest = highest.borrow_mut();
            let known = highest.entry(frame.from).or_default();
            *known = statement.view.max(*known);
        }
        Verdict::Pass
    });
    stated
}

/// P2: a restarted replica continues at its highest record, and not at its last one. Leaders crash, messages get lost, and
/// each replica restarts with all that it has written.
#[test]
fn restart_continues_at_the_highest_record() {
    each(&protocols(), |entry| {
        // Artemis shows the coordinator's view and makes statements about rounds, which `artemis::s13_*` checks.
        let states_rounds = entry.spec.name.as_str() == "artemis";
        for seed in 0..3 {
            let mut world = world_of(entry, 20 + seed, |settings| {
                short_window(settings);
                if entry.spec.votes_are_durable {
                    settings.conditions.loss_ppm = 20_000;
                }
            });
            begin(&mut world);
            let stated = watch_statements(&mut world);
            for round in 0..4 {
                many(&mut world, 3);
                let leader = world.leader().unwrap();
                world.crash(leader, Survives::Everything);
                many(&mut world, 3);
                world.start(leader).unwrap();
                let id = ReplicaId(u16::try_from((seed + round) % world.settings().n as u64).unwrap());
                let ids = world.submit(0, &[incr("n")]);
                go(world.run_for(ms(1 + 2 * round)), &world);
                let before = world.status(id).unwrap();
                world.crash(id, Survives::Everything);
                go(world.run_for(ms(20)), &world);
                world.start(id).unwrap();
                let after = world.status(id).unwrap();
                let case = format!("{} seed {seed} round {round}: {before}, then {after}", entry.spec.name);
                let last = stated.borrow().get(&id).copied().unwrap_or_default();
                assert!(after.stable >= before.stable, "{case}");
                assert!(after.view >= last || states_rounds, "{last}, {case}");
                go(world.run_while("it is answered", secs(60), |world| is_open(world, &ids)), &world);
            }
            settle(&mut world);
        }
    });
}

/// The network holds proposals back, and no timeout reaches another replica. After a stable checkpoint all but the leader time
/// out and restart. Then the proposals arrive. Returns the first votes in views that their senders had left.
fn votes_after_a_timeout(entry: &Entry, seed: u64) -> Vec<Statement> {
    let mut world = world_of(entry, seed, |settings| {
        short_window(settings);
        settings.transport = Transport::Datagrams;
    });
    begin(&mut world);
    many(&mut world, 10);
    let leader = world.leader().unwrap();
    assert!(world.replicas().all(|id| world.status(id).unwrap().stable.0 > 0));
    let left: Rc<RefCell<BTreeMap<ReplicaId, View>>> = Rc::default();
    let late: Rc<RefCell<Vec<Statement>>> = Rc::default();
    let (leaves, votes) = (Rc::clone(&left), Rc::clone(&late));
    let mut known = BTreeSet::new();
    world.hook(move |_, frame| {
        let content = frame.content;
        let Some(statement) = content.statement else { return Verdict::Pass };
        match content.kind.as_str() {
            "propose" | "pre-prepare" => return Verdict::Hold,
            "vote" | "prepare" | "commit" => {
                let has_left = leaves.borrow().get(&frame.from).is_some_and(|left| statement.view < *left);
                if known.insert((frame.from, statement)) && has_left {
                    votes.borrow_mut().push(statement);
                }
            }
            _ if leaves_view(content.kind, Some(statement), content.is_once) => {
                // A VIEW-CHANGE names the next view, and a TIMEOUT the one that its sender leaves.
                let view = if content.is_once { statement.view } else { statement.view.next() };
                leaves.borrow_mut().insert(frame.from, view);
                return Verdict::Drop;
            }
            _ => {}
        }
        Verdict::Pass
    });
    let ids = world.submit(0, &[incr("n")]);
    let others: Vec<ReplicaId> = world.replicas().filter(|id| *id != leader).collect();
    let waits = |_: &World| others.iter().any(|id| !left.borrow().contains_key(id));
    go(world.run_while("the others time out", secs(3), waits), &world);
    others.iter().for_each(|id| world.crash(*id, Survives::Everything));
    go(world.run_for(ms(20)), &world);
    others.iter().for_each(|id| world.start(*id).unwrap());
    go(world.run_for(ms(5)), &world);
    world.release();
    go(world.run_for(secs(1)), &world);
    world.unhook();
    if late.borrow().is_empty() {
        go(
            world.run_while("it is answered", recovery(&world, secs(5)), |world| is_open(world, &ids)),
            &world,
        );
        settle(&mut world);
    }
    late.take()
}

/// P3: a replica votes in no view that it has left, also after a restart and after the checkpoint that prunes its records.
/// The other protocols have no such rule: their votes and timeouts exclude each other nowhere, or their leaving of a view is
/// proved to all before.
#[test]
fn no_vote_follows_a_timeout_that_a_checkpoint_might_erase() {
    let all = [
        (Entry::of::<Pbft<Linked>>(), Entry::of::<Flawed<Pbft<Linked>, TimeoutPruned>>()),
        (Entry::of::<Pbft<AllSigned>>(), Entry::of::<Flawed<Pbft<AllSigned>, TimeoutPruned>>()),
        (Entry::of::<Chained<Jolteon>>(), Entry::of::<Flawed<Chained<Jolteon>, TimeoutPruned>>()),
    ];
    each(&all, |(sound, broken)| {
        for seed in 0..4 {
            assert_eq!(votes_after_a_timeout(sound, seed), [], "{} seed {seed}", sound.spec.name);
        }
        assert_ne!(votes_after_a_timeout(broken, 0), [], "{}", sound.spec.name);
    });
}

/// P4: the power cut reaches each replica at another moment, so that each has another highest certificate, and f replicas
/// stay down. The others still agree on a proposal within the bound.
#[test]
fn differing_certificates_stop_no_cluster() {
    each(&protocols(), |entry| {
        for seed in 0..8 {
            let mut world = world_of(entry, 40 + seed, short_window);
            begin(&mut world);
            world.load_all(Workload {
                operations: 30,
                pause_ns: ms(2),
                together_max: 3,
                outstanding_max: 6,
                keys: 3,
            });
            go(world.run_for(ms(60) + seed * 1_700_001), &world);
            let n = world.settings().n;
            let mut order: Vec<ReplicaId> = world.replicas().collect();
            order.rotate_left(seed as usize % n);
            for id in &order {
                world.crash(*id, Survives::Everything);
                go(world.run_for(ms(1) + seed * 100_000), &world);
            }
            // In turn the first and the last one stay down: those with the lowest and with the highest certificate.
            let absent = if seed.is_multiple_of(2) { order.remove(0) } else { order.pop().unwrap() };
            order.iter().for_each(|id| world.start(*id).unwrap());
            let ids = world.submit(0, &[incr("n")]);
            let bound = recovery(&world, secs(1));
            let result = world.run_while("it is answered", bound, |world| is_open(world, &ids));
            assert_eq!(result, Ok(()), "{} seed {seed}", entry.spec.name);
            world.start(absent).unwrap();
            settle(&mut world);
        }
    });
}

/// P5: a timeout that is signed again convicts no honest replica. Where a timeout lists no certificate, the repeated
/// statement is the same one, and even a receiver that compares all of them finds nothing.
#[test]
fn repeated_timeout_convicts_no_replica() {
    each(&under_every_protocol!(ConvictsOfTimeouts), |(sound, broken)| {
        let lists_certificates = ["hotstuff", "jolteon"].contains(&sound.spec.name.as_str());
        for seed in 1..3 {
            let run = if lists_certificates { sound } else { broken };
            assert_eq!(nobody(run, seed), None, "{} seed {seed}", sound.spec.name);
        }
    });
}

/// P6: a liar that fills one slot twice trips no assertion of an honest replica.
#[test]
fn liar_that_equivocates_trips_no_assertion() {
    each(&under_every_protocol!(AssertsUnique), |(sound, broken)| {
        let trips = |seed: &u64| twin(broken, *seed).is_some_and(|failure| failure.oracle == Oracle::Panic);
        let first = (0..8).find(trips);
        assert!(first.is_some(), "{}: no liar equivocates", sound.spec.name);
        for seed in 0..=first.unwrap() {
            assert_eq!(twin(sound, seed), None, "{} seed {seed}", sound.spec.name);
        }
    });
}

/// P7: a disk that reports a write before it has it lets promises leave early, and the oracle notices it.
#[test]
fn write_that_returns_before_the_disk_has_it_is_noticed_under_every_protocol() {
    let row = EXHIBITS.iter().find(|row| row.id == "M15").unwrap();
    let all: Vec<&Entry> = REGISTRY.iter().collect();
    each(&all, |entry| {
        let caught = row.catch(entry).unwrap().map(|caught| caught.failure.oracle);
        assert_eq!(caught, Some(Oracle::Held), "{}", entry.spec.name);
    });
}
