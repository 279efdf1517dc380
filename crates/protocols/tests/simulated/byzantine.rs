//! Byzantine hosts: with f of them everything holds that was promised, whatever else happens; with more it does not,
//! and the oracles say so.

use crate::side_by_side::{run_all, run_until};
use crate::support::{begin, go, incr, pbft, r, wait_for, world};
use quorate_sim::Report;
use quorate_sim::seed::{self, ByzantineChoice, StandardRun};
use quorate_sim::{Bytes, Byzantine, Failure, Fault, Oracle, Transport, Verdict, World, ms, secs};
use quorate_types::wire::frame;
use quorate_types::{ReplicaId, Time};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

fn with(n: Option<usize>, hosts: ByzantineChoice) -> impl Fn(u64) -> Report + Sync {
    move |seed| StandardRun::with(pbft(), n, hosts, seed).unwrap().run()
}

/// Standard seeds with f of each host: safety, liveness after the heal, and nobody accused.
#[test]
fn seeds_with_f_of_each_host() {
    for (n, seeds) in [(None, 40), (Some(7), 4)] {
        for kind in Byzantine::ALL {
            let hosts = ByzantineChoice::All(kind);
            let reports = run_all(&(0..seeds).collect::<Vec<_>>(), with(n, hosts));
            let failed: Vec<String> = reports
                .iter()
                .filter(|report| report.failure.is_some())
                .map(|report| {
                    format!("{report}\n    again: {}", seed::again_with("pbft", n, hosts, report.seed))
                })
                .collect();
            assert!(failed.is_empty(), "{} of {seeds} failed:\n{}", failed.len(), failed.join("\n"));
            for report in reports {
                assert_eq!(report.byzantine.len(), n.map_or(1, |n| (n - 1) / 3));
                assert!(report.byzantine.values().all(|host| *host == kind));
                assert!(report.requests >= 400 && report.virtual_ns >= secs(60), "{report}");
                assert!(report.facts().contains(kind.name()), "{}", report.facts());
            }
        }
    }
}

/// The same seed is the same run, whoever is in it.
#[test]
fn a_seed_decides_what_byzantine_hosts_do() {
    for (seed, kind) in Byzantine::ALL.into_iter().enumerate() {
        let run = |seed| with(None, ByzantineChoice::All(kind))(seed);
        let seed = 10 + seed as u64;
        assert_eq!(run(seed), run(seed), "{kind}");
        assert_ne!(run(seed).trace_hash, with(None, ByzantineChoice::Nobody)(seed).trace_hash);
    }
}

/// Seeds until one of these oracles fires. More than f liars may answer in the place of the honest before these have
/// executed anything: that is to be expected, and would hide what comes after.
fn seeds_until(hosts: ByzantineChoice, oracles: &[Oracle], seeds: u64) -> Report {
    let fires =
        |report: &Report| report.failure.as_ref().is_some_and(|failure| oracles.contains(&failure.oracle));
    let run = |seed| {
        let mut standard = StandardRun::with(pbft(), None, hosts, seed).unwrap();
        standard.world().tolerate(Oracle::Durability);
        standard.run()
    };
    let reports = run_until(&(0..seeds).collect::<Vec<_>>(), run, fires);
    let all =
        format!("{:?}", reports.iter().filter_map(|report| report.failure.as_ref()).collect::<Vec<_>>());
    reports
        .into_iter()
        .find(fires)
        .unwrap_or_else(|| panic!("{hosts}: none of {oracles:?} in {seeds} seeds: {all}"))
}

/// What honest replicas notice of a fork, and what the oracles do.
const FORK: [Oracle; 2] = [Oracle::Agreement, Oracle::Stopped];

#[test]
fn agreement_notices_f_plus_one_twins_and_names_them() {
    let report = seeds_until(ByzantineChoice::Many(Byzantine::Twin, 2), &FORK, 200);
    let liars: Vec<ReplicaId> = report.byzantine.keys().copied().collect();
    let equivocators: Vec<ReplicaId> = report.equivocators.keys().copied().collect();
    assert_eq!(equivocators, liars, "who has said two things: {report:?}");
    assert!(report.facts().contains("for the same slot"), "{}", report.facts());
}

/// What an attack of the protocol's own says is looked at as it leaves, not as it was meant.
#[test]
fn liars_that_change_what_they_say_are_named() {
    let named: BTreeSet<ReplicaId> = (0..10)
        .flat_map(|seed| {
            let report = with(None, ByzantineChoice::Many(Byzantine::Own, 2))(seed);
            assert!(report.equivocators.keys().all(|id| report.byzantine.contains_key(id)), "{report:?}");
            assert!(report.facts().contains("more than the 1 that are tolerated"), "{}", report.facts());
            report.equivocators.into_keys()
        })
        .collect();
    assert!(named.len() > 1, "{named:?}");
}

#[test]
fn agreement_notices_f_plus_one_rollbacks() {
    seeds_until(ByzantineChoice::Many(Byzantine::Rollback, 2), &FORK, 2_000);
}

/// The hosts that withhold do not for long enough: what they do changes with the mood.
#[test]
fn liveness_notices_f_plus_one_that_withhold() {
    for seed in 0..3 {
        let mut standard = StandardRun::with(pbft(), None, ByzantineChoice::Nobody, seed).unwrap();
        standard.world().hook(|now, frame| {
            let is_mute = now >= Time(secs(40)) && frame.from <= r(1);
            if is_mute { Verdict::Drop } else { Verdict::Pass }
        });
        let failure = standard.run().failure.unwrap();
        assert_eq!(failure.oracle, Oracle::Liveness, "{failure}");
        assert!(failure.what.starts_with("waited in vain for: a new operation is answered"), "{failure}");
    }
}

/// A Byzantine replica that the oracles take for honest.
fn trusted(kind: Byzantine, seed: u64) -> Report {
    let mut standard = StandardRun::with(pbft(), None, ByzantineChoice::All(kind), seed).unwrap();
    let world = standard.world();
    let id = world.replicas().find(|id| !world.is_honest(*id)).unwrap();
    world.trust_liar(id);
    // The disk of its second replica is another one: that is noticed first, and would hide what is said twice.
    world.tolerate(Oracle::Held);
    standard.run()
}

/// What `trusted` came to, in a few seeds.
fn found(kind: Byzantine, oracle: Oracle, seeds: u64) {
    let fires = |report: &Report| report.failure.as_ref().is_some_and(|failure| failure.oracle == oracle);
    let reports = run_until(&(0..seeds).collect::<Vec<_>>(), |seed| trusted(kind, seed), fires);
    let failures: Vec<&Failure> = reports.iter().filter_map(|report| report.failure.as_ref()).collect();
    assert!(reports.iter().any(fires), "{kind} as honest: no {oracle} in {seeds} seeds: {failures:?}");
}

#[test]
fn same_slot_notices_a_rollback_that_is_taken_for_honest() {
    found(Byzantine::Rollback, Oracle::SameSlot, 60);
}

#[test]
fn same_slot_notices_a_twin_that_is_taken_for_honest() {
    found(Byzantine::Twin, Oracle::SameSlot, 20);
}

#[test]
fn accusation_notices_an_honest_replica_that_is_held_for_a_liar() {
    let mut world = world(380, |_| {});
    begin(&mut world);
    world.take_control(r(3));
    world.trust_liar(r(3));
    world.send_frame_as(
        r(3),
        quorate_consensus::To::One(r(1)),
        frame::PROTOCOL,
        Bytes::from_static(b"\xffnonsense"),
    );
    let result = world.run_for(secs(1));
    assert_eq!(result.err().map(|failure| failure.oracle), Some(Oracle::Accusation));
}

/// A world with one Byzantine replica from the beginning.
fn one(seed: u64, id: ReplicaId, kind: Byzantine) -> World {
    let mut world = world(seed, |settings| {
        settings.byzantine.replicas.insert(id, kind);
    });
    begin(&mut world);
    world
}

/// Without any fault of network or power: as leader and as backup, each host lets the others work.
#[test]
fn each_host_in_good_weather() {
    for kind in Byzantine::ALL {
        for id in [r(0), r(2)] {
            let mut world = one(390 + u64::from(id.0), id, kind);
            for _ in 0..40 {
                let ids = world.submit(0, &[incr("n")]);
                wait_for(&mut world, &ids, secs(20));
            }
            go(world.run_while("the honest are level", secs(20), |world| !world.is_level()), &world);
            go(world.check_settled(), &world);
            let honest = world.honest().count();
            assert!(honest == 3 || (kind == Byzantine::Adaptive && honest == 4), "{kind}: {honest}");
        }
    }
}

/// A message that was changed and signed again is judged by a handler, most of the time: intakes alone would be an easy
/// exam. Of what is not changed some is refused as well, as old, so what is shown here is less than what there is.
#[test]
fn half_of_what_is_changed_reaches_a_handler() {
    let (mut said, mut passed, mut lies) = (0, 0, 0);
    for seed in 0..12 {
        let mut world = world(seed, |settings| {
            settings.transport = Transport::Datagrams;
            settings.byzantine.replicas.insert(r(3), Byzantine::Mutate);
        });
        begin(&mut world);
        let (before, count) = (world.passed(r(3)), Rc::new(Cell::new(0u64)));
        let counter = Rc::clone(&count);
        world.hook(move |_, sent| {
            let counts = sent.from == r(3) && matches!(sent.frame_type, frame::PROTOCOL | frame::HOST);
            counter.set(counter.get() + u64::from(counts));
            Verdict::Pass
        });
        for _ in 0..40 {
            let ids = world.submit(0, &[incr("n")]);
            wait_for(&mut world, &ids, secs(20));
            go(world.run_for(ms(200)), &world);
        }
        said += count.get();
        passed += world.passed(r(3)) - before;
        let felt = world.felt();
        lies += [Fault::BadContent, Fault::InvalidSignature]
            .iter()
            .filter_map(|fault| felt.get(fault))
            .sum::<u64>();
    }
    // What was under way when the counting began has passed as well.
    let refused = said.saturating_sub(passed);
    assert!(
        lies > 200 && refused * 2 <= lies,
        "{said} messages, {lies} of them lies, {refused} refused at once"
    );
}
