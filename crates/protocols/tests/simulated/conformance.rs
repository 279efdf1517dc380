//! The measured cost of every protocol equals its specification, and the documentation lists it.

use crate::side_by_side::run_all;
use expect_test::expect_file;
use quorate_protocols::REGISTRY;
use quorate_sim::conformance::{FiguresReport, markdown, measure, sizes};
use std::fmt::Write as _;

const HEAD: &str = "\
# Costs of the protocols

Messages, message delays and syncs of each protocol, measured in a world without faults in which every message takes equally
long. A test compares them with the formulas that each protocol states. `UPDATE_EXPECT=1 cargo test -p quorate-protocols --test
simulated conformance` writes this page; `quorate sim --protocol pbft --figures` measures one protocol.

Messages are counted once for each receiver, from replica to replica. Own copies do not count, because they travel nowhere. The
host's messages, equal for all protocols (bodies, decided blocks, questions), do not count either, except `host.checkpoint`. A
delay is the time of one message, while disks and work take no time. Syncs are counted in a run in which only they take time.
A leader is replaced because its proposals reach no replica: it runs, and takes part in its replacement.

Rotating leaders take turns as in the papers: `leader_policy=round-robin`. New clusters have `avoiding`, because with
round-robin an absent replica costs a timer in each of its turns, and most requests wait for it.
";

/// Returns the measured costs of each protocol of the registry, at its own sizes.
fn measure_all() -> Vec<Vec<FiguresReport>> {
    let runs: Vec<_> = REGISTRY.iter().flat_map(|entry| sizes(entry).map(|n| (entry, n))).collect();
    let places: Vec<u64> = (0..runs.len() as u64).collect();
    let measure_one = |place: u64| {
        let (entry, n) = runs[place as usize];
        (place, measure(entry, n).unwrap_or_else(|why| panic!("n = {n}: {why}")))
    };
    let mut measured = run_all(&places, measure_one);
    measured.sort_by_key(|(place, _)| *place);
    let reports: Vec<_> = measured.into_iter().map(|(_, report)| report).collect();
    reports.chunks(3).map(<[_]>::to_vec).collect()
}

#[test]
fn measured_costs_equal_the_formulas_of_every_protocol() {
    let reports = measure_all();
    let mut page = HEAD.to_owned();
    for of_one in &reports {
        let _ = write!(page, "\n## {}\n\n{}", of_one[0].protocol, markdown(of_one));
    }
    for report in reports.iter().flatten() {
        let wrong: Vec<_> = report.lines.iter().filter(|line| !line.agrees()).collect();
        assert!(wrong.is_empty(), "{} n = {}: {wrong:#?}", report.protocol, report.n);
    }
    expect_file!["../../../../docs/figures.md"].assert_eq(&page);
    pbft_costs_equal_its_specification(&reports);
}

/// The costs of PBFT in the numbers of its specification (§16).
fn pbft_costs_equal_its_specification(reports: &[Vec<FiguresReport>]) {
    for of_one in reports.iter().filter(|of_one| of_one[0].protocol.as_str().starts_with("pbft")) {
        let measured: Vec<usize> = of_one.iter().map(|report| report.n).collect();
        let expected = [(4, 24, 12), (7, 84, 42), (10, 180, 90)];
        assert_eq!(measured, expected.map(|(n, _, _)| n));
        for (report, (n, messages, checkpoints)) in of_one.iter().zip(expected) {
            let is = |what: &str, value: u64| {
                let line = report.lines.iter().find(|line| line.what == what).unwrap();
                assert!(line.measured.is(value), "{} n = {n}: {line:?}", report.protocol);
            };
            is("messages for a block", messages);
            is("`host.checkpoint` for a checkpoint", checkpoints);
            is("delays from proposal to execution", 3);
            is("delays from request to reply", 5);
            is("syncs in a row from request to reply", 3);
            is("messages for a change of leader", (n as u64 + 1) * (n as u64 - 1));
            is("delays from `view-change` to execution", 4);
        }
    }
}
