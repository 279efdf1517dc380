//! Random runs, as many as fit into a test.

use crate::side_by_side::run_all;
use crate::support::{pbft, pbft_signed};
use expect_test::expect;
use quorate_consensus::{Entry, Model};
use quorate_protocols::REGISTRY;
use quorate_sim::fault::{Fault, FaultClass, FaultSource};
use quorate_sim::seed::{self, StandardRun};
use quorate_sim::{Oracle, Report, Verdict, ms};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

fn run_first(entry: &Entry, seeds: u64, n: Option<usize>) -> Vec<Report> {
    run_list(entry, &(0..seeds).collect::<Vec<_>>(), n)
}

fn run_list(entry: &Entry, seeds: &[u64], n: Option<usize>) -> Vec<Report> {
    run_all(seeds, |seed| seed::run(entry, n, seed).unwrap())
}

fn must_pass(entry: &Entry, reports: &[Report], n: Option<usize>) {
    let failed: Vec<String> = reports
        .iter()
        .filter(|report| report.failure.is_some())
        .map(|report| {
            format!("{report}\n    again: {}", seed::again(entry.spec.name.as_str(), n, report.seed))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} seeds failed:\n{}", failed.len(), reports.len(), failed.join("\n"));
}

/// One of four seeds of a synchronous protocol has the default heartbeat beside its Δ. Only then is a cluster ever
/// idle, and its guard probes less often.
#[test]
fn one_of_four_seeds_has_the_default_heartbeat() {
    for entry in REGISTRY.iter().filter(|entry| entry.spec.model == Model::Synchrony) {
        let mut long = 0;
        for seed in 0..100 {
            let mut run = StandardRun::new(entry, None, seed).unwrap();
            let settings = run.world().settings();
            if let Some(heartbeat) = settings.parameters.changed.get("heartbeat_ms") {
                let deltas =
                    ms(heartbeat.as_integer().unwrap().unsigned_abs()) / settings.parameters.delta_ns;
                assert_eq!(deltas, 20, "{} seed {seed}", entry.spec.name);
                long += 1;
            }
        }
        assert!((15..35).contains(&long), "{}: {long}", entry.spec.name);
    }
}

/// Faults whose effect the world cannot count, or counts as another fault. Only the protocol knows that a message is a
/// proposal, or names a wrong view. The others are crashes and the like.
const UNCOUNTED: [Fault; 6] = [
    Fault::EquivocateProposal,
    Fault::Fork,
    Fault::StaleCertificate,
    Fault::WrongView,
    Fault::RestartLoop,
    Fault::PowerCutOfAll,
];

/// Standard seeds pass, and each has the properties of a standard seed.
#[test]
fn standard_seeds_pass_and_bring_about_every_fault() {
    let reports = run_first(pbft(), 150, None);
    must_pass(pbft(), &reports, None);
    let mut planned: BTreeMap<Fault, u32> = BTreeMap::new();
    let mut felt: BTreeMap<Fault, u64> = BTreeMap::new();
    for report in &reports {
        assert!(report.requests >= 400, "{report}");
        assert!(report.virtual_ns >= quorate_sim::secs(60), "{report}");
        let classes: BTreeSet<FaultClass> = report.faults.keys().map(|fault| fault.class()).collect();
        assert!(report.faults.len() >= 4 && classes.len() == 4, "{report}: {:?}", report.faults);
        assert!(report.faults.keys().any(|fault| fault.is_crash()), "{report}: {:?}", report.faults);
        assert!(report.promises > 100, "{report}: {} promises", report.promises);
        report.faults.iter().for_each(|(fault, count)| *planned.entry(*fault).or_default() += count);
        report.felt.iter().for_each(|(fault, count)| *felt.entry(*fault).or_default() += count);
    }
    for fault in Fault::ALL {
        let is_drawn = fault.source() == FaultSource::Drawn && *fault != Fault::Coalition;
        assert!(!is_drawn || planned.contains_key(fault), "{fault} is never drawn: {planned:?}");
        let comes = matches!(fault.source(), FaultSource::Drawn | FaultSource::Hosts(_));
        let counts = comes && !UNCOUNTED.contains(fault) && *fault != Fault::Coalition;
        assert!(!counts || felt.contains_key(fault), "{fault} occurs and has no effect: {felt:?}");
    }
    let unanswered: u64 = reports.iter().map(|report| report.failed_requests).sum();
    assert_eq!(unanswered, 0, "every request has its reply");
}

/// Seven replicas tolerate two faults: their random runs pass too.
#[test]
fn seeds_of_seven_replicas_pass() {
    for entry in [pbft(), pbft_signed()] {
        must_pass(entry, &run_first(entry, 6, Some(7)), Some(7));
    }
}

/// The same seed gives the same run, byte for byte.
#[test]
fn seed_determines_a_run() {
    for number in [0, 1, 2, 77] {
        let (first, second) =
            (seed::run(pbft(), None, number).unwrap(), seed::run(pbft(), None, number).unwrap());
        assert_eq!(first, second);
    }
    let other = |seed| seed::run(pbft(), None, seed).unwrap().trace_hash;
    assert_ne!(other(0), other(1));
}

/// The same seed gives the same run on every machine, whether optimised or not: debug and release builds both run this.
/// A change in the behaviour of a replica or of the world changes these hashes, and `UPDATE_EXPECT=1` writes them anew.
#[test]
fn seed_determines_a_run_in_every_build() {
    let mut hashes = String::new();
    for entry in REGISTRY {
        let hash = seed::run(entry, None, 10).unwrap().trace_hash;
        writeln!(hashes, "{} {hash}", entry.spec.name).unwrap();
    }
    expect![[r#"
        pbft 38c3ec50b22dc5c52690671a9668a16ae88ac085ab0206bb71a262de8349b086
        pbft-signed edb1b51359f5f0fea029b611aa270d2af1c43c9c6e727f8a3424a0b487082a41
        hotstuff e70200e1f91f755b219b37a9251932d4022270056e47d49d937ba285f79976e5
        jolteon 233916e394076a45b971bc94f28d7c9821d154f66f82e2f755ba385100ef1950
        hotstuff2 ffe43bc8ac93485ccda04bac8502a0c78fbfdbe4bd3255de9c12ab63c1798d44
        sync-hotstuff cfd7995c2f8b36482e9cc60dd5fc0e7df8a2e8bcb15520e06e78aae7d2314c3e
        optsync 0986758f4cbbb0db3e3872abc4a6e0a8e252ef00ccda6e0f763f6671e3d8fc7c
        sync-hotstuff-rr 63105e92dbb4cf6d455fa31fd6d76b7e79055c25825f52ae1917f045ffc7e1ca
        apollo 95c25b1cf6fca9684671ff0e093a377de7174260c35ebd5b8fe007648316b5b0
        artemis 6c7f3c8ec1a0f0cfc11c4a31b0d9f2852f4071ae43e620f9fec29b8235e32034
        echo 5d31102139bde013ac4df6c167095620565abcddf917b20480e9b91a1f0f133a
    "#]]
    .assert_eq(&hashes);
}

/// A failed assertion is a failure like any other: it has a seed, and all other runs continue.
#[test]
fn panic_is_a_failure_with_a_seed() {
    let mut standard = StandardRun::with(pbft(), None, seed::ByzantineChoice::Nobody, 5).unwrap();
    let mut frames = 0;
    standard.world().hook(move |_, _| {
        frames += 1;
        assert!(frames < 1_000, "on purpose");
        Verdict::Pass
    });
    let report = standard.run();
    let failure = report.failure.unwrap();
    assert_eq!((failure.oracle, failure.what.as_str()), (Oracle::Panic, "on purpose"));
    assert_eq!(report.seed, 5);
}
