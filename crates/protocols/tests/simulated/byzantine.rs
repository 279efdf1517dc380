//! Byzantine hosts. With f of them every promise holds, whatever faults occur. With more of them promises break, and
//! the oracles report it.

use crate::side_by_side::{run_all, run_until};
use crate::support::{begin, go, incr, pbft, r, wait_for, world};
use quorate_sim::Report;
use quorate_sim::seed::{self, ByzantineChoice, StandardRun};
use quorate_sim::{Bytes, Byzantine, Failure, Fault, Oracle, Transport, Verdict, World, ms, secs};
use quorate_types::wire::frame;
use quorate_types::{ReplicaId, Time};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

fn with(n: Option<usize>, hosts: ByzantineChoice) -> impl Fn(u64) -> Report + Sync {
    move |seed| StandardRun::with(pbft(), n, hosts, seed).unwrap().run()
}

/// Standard seeds with f of each host: safety holds, progress resumes after the heal, and no honest replica is accused.
#[test]
fn seeds_with_f_of_each_host_pass() {
    for (n, seeds) in [(None, 8), (Some(7), 1)] {
        for kind in Byzantine::ALL.iter().copied() {
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

/// The same seed gives the same run with every kind of host.
#[test]
fn seed_determines_runs_with_byzantine_hosts() {
    const SEED: u64 = 10;
    let honest = with(None, ByzantineChoice::Nobody)(SEED);
    let mut hashes = BTreeSet::from([honest.trace_hash]);
    for kind in Byzantine::ALL.iter().copied() {
        let run = with(None, ByzantineChoice::All(kind));
        let report = run(SEED);
        assert_eq!(run(SEED), report, "{kind}");
        assert!(hashes.insert(report.trace_hash), "{kind} changes the run");
    }
}

/// Runs seeds until one of these oracles fires. More than f Byzantine replicas may answer clients before honest ones
/// have executed anything. The durability oracle tolerates that, because it would fire first and hide later failures.
fn seeds_until(hosts: ByzantineChoice, oracles: &[Oracle], seeds: Range<u64>) -> Report {
    let fires =
        |report: &Report| report.failure.as_ref().is_some_and(|failure| oracles.contains(&failure.oracle));
    let run = |seed| {
        let mut standard = StandardRun::with(pbft(), None, hosts, seed).unwrap();
        standard.world().tolerate(Oracle::Durability);
        standard.run()
    };
    let reports = run_until(&seeds.clone().collect::<Vec<_>>(), run, fires);
    let all =
        format!("{:?}", reports.iter().filter_map(|report| report.failure.as_ref()).collect::<Vec<_>>());
    let report = reports.into_iter().find(fires);
    let report = report.unwrap_or_else(|| panic!("{hosts}: none of {oracles:?} in seeds {seeds:?}: {all}"));
    eprintln!("{hosts}: seed {}", report.seed);
    report
}

/// Oracles that fire after a fork: an honest replica that notices the fork stops.
const FORK: [Oracle; 2] = [Oracle::Agreement, Oracle::Stopped];

#[test]
fn agreement_oracle_notices_f_plus_one_twins_and_names_them() {
    // No seed below 20 forks, and each of them takes long.
    let report = seeds_until(ByzantineChoice::Many(Byzantine::Twin, 2), &FORK, 20..200);
    let liars: Vec<ReplicaId> = report.byzantine.keys().copied().collect();
    let equivocators: Vec<ReplicaId> = report.equivocators.keys().copied().collect();
    assert_eq!(equivocators, liars, "the equivocators are the Byzantine replicas: {report:?}");
    assert!(report.facts().contains("for the same slot"), "{}", report.facts());
}

/// A message of an attack of the protocol's own is judged as it leaves, not as the attack intended it.
#[test]
fn replicas_that_equivocate_by_changed_messages_are_named() {
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
fn agreement_oracle_notices_f_plus_one_rollbacks() {
    seeds_until(ByzantineChoice::Many(Byzantine::Rollback, 2), &FORK, 0..2_000);
}

/// The hosts that withhold messages change their behaviour too often to stop progress. So this test drops the messages
/// of two replicas itself.
#[test]
fn liveness_oracle_notices_f_plus_one_silent_replicas() {
    let mut standard = StandardRun::with(pbft(), None, ByzantineChoice::Nobody, 0).unwrap();
    standard.world().hook(|now, frame| {
        let is_mute = now >= Time(secs(40)) && frame.from <= r(1);
        if is_mute { Verdict::Drop } else { Verdict::Pass }
    });
    let failure = standard.run().failure.unwrap();
    assert_eq!(failure.oracle, Oracle::Liveness, "{failure}");
    assert!(failure.what.starts_with("waited in vain for: a new operation is answered"), "{failure}");
}

/// Runs a seed with a twin that the oracles judge as honest.
fn trusted_twin(seed: u64) -> Report {
    let hosts = ByzantineChoice::All(Byzantine::Twin);
    let mut standard = StandardRun::with(pbft(), None, hosts, seed).unwrap();
    let world = standard.world();
    let id = world.replicas().find(|id| !world.is_honest(*id)).unwrap();
    world.trust_liar(id);
    // The second replica of a twin has a disk of its own. The oracle for early departure would notice that first, and
    // hide the equivocation.
    world.tolerate(Oracle::Held);
    standard.run()
}

/// The museum has the same mutation with a replica that recovers with an older disk.
#[test]
fn same_slot_oracle_notices_a_twin_judged_as_honest() {
    let fires =
        |report: &Report| report.failure.as_ref().is_some_and(|failure| failure.oracle == Oracle::SameSlot);
    let reports = run_until(&(0..20).collect::<Vec<_>>(), trusted_twin, fires);
    let failures: Vec<&Failure> = reports.iter().filter_map(|report| report.failure.as_ref()).collect();
    assert!(reports.iter().any(fires), "no equivocation in 20 seeds: {failures:?}");
}

#[test]
fn accusation_oracle_notices_an_accused_replica_judged_as_honest() {
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

/// Returns a world with one Byzantine replica from the beginning.
fn one(seed: u64, id: ReplicaId, kind: Byzantine) -> World {
    let mut world = world(seed, |settings| {
        settings.byzantine.replicas.insert(id, kind);
    });
    begin(&mut world);
    world
}

/// Without faults of network or power each host lets the others work, as leader and as backup.
#[test]
fn each_host_lets_others_work_without_other_faults() {
    for kind in Byzantine::ALL.iter().copied() {
        for id in [r(0), r(2)] {
            let mut world = one(390 + u64::from(id.0), id, kind);
            for _ in 0..40 {
                let ids = world.submit(0, &[incr("n")]);
                wait_for(&mut world, &ids, secs(20));
            }
            go(
                world.run_while("the honest replicas are at one height", secs(20), |world| !world.is_level()),
                &world,
            );
            go(world.check_settled(), &world);
            let honest = world.honest().count();
            assert!(honest == 3 || (kind == Byzantine::Adaptive && honest == 4), "{kind}: {honest}");
        }
    }
}

/// A handler judges most messages that were changed and signed again. The exam would be too easy if the intake refused
/// them all. The intake also refuses some unchanged messages as old, so the measured share is a lower bound.
#[test]
fn half_of_the_changed_messages_reach_a_handler() {
    let (mut sent, mut passed, mut changed) = (0, 0, 0);
    for seed in 0..12 {
        let mut world = world(seed, |settings| {
            settings.transport = Transport::Datagrams;
            settings.byzantine.replicas.insert(r(3), Byzantine::Mutate);
        });
        begin(&mut world);
        let (before, count) = (world.passed(r(3)), Rc::new(Cell::new(0u64)));
        let counter = Rc::clone(&count);
        world.hook(move |_, frame_sent| {
            let counts =
                frame_sent.from == r(3) && matches!(frame_sent.frame_type, frame::PROTOCOL | frame::HOST);
            counter.set(counter.get() + u64::from(counts));
            Verdict::Pass
        });
        for _ in 0..40 {
            let ids = world.submit(0, &[incr("n")]);
            wait_for(&mut world, &ids, secs(20));
            go(world.run_for(ms(200)), &world);
        }
        sent += count.get();
        passed += world.passed(r(3)) - before;
        let felt = world.felt();
        changed += [Fault::BadContent, Fault::InvalidSignature]
            .iter()
            .filter_map(|fault| felt.get(fault))
            .sum::<u64>();
    }
    // Messages on their way when the counting began have passed as well.
    let refused = sent.saturating_sub(passed);
    assert!(
        changed > 200 && refused * 2 <= changed,
        "{sent} messages, {changed} of them changed, {refused} refused by the intake"
    );
}
