//! Every protocol costs what its specification says, and what it costs stands in the documentation.

use expect_test::expect_file;
use quorate_protocols::REGISTRY;
use quorate_sim::conformance::{FiguresReport, markdown, measure, sizes};
use std::fmt::Write as _;

const HEAD: &str = "\
# What the protocols cost

Messages, message delays and syncs, measured in a world without faults in which every message takes equally long, and
checked against what each protocol states. Written by `UPDATE_EXPECT=1 cargo test -p quorate-protocols --test simulated
conformance`; `quorate sim --protocol pbft --figures` measures one.

Messages are counted once for each receiver, from replica to replica. Not counted: own copies, which travel nowhere,
and what the host sends for every protocol alike (bodies, what is decided, questions), save `host.checkpoint`. A delay
is the time of one message, while disks and work take none; syncs are counted while only they take time. A leader is
replaced here because its proposals reach nobody: it lives, and takes part in its replacement.

Where leaders rotate, they take turns as in the papers: `leader_policy=round-robin`. New clusters have `avoiding`, because with
round-robin one replica that is away costs a timer in each of its turns, and most requests wait for it.
";

/// Each protocol of the registry, at its own sizes.
fn reports() -> Vec<Vec<FiguresReport>> {
    let of = |entry| {
        sizes(entry).map(|n| measure(entry, n).unwrap_or_else(|why| panic!("n = {n}: {why}"))).to_vec()
    };
    REGISTRY.iter().map(of).collect()
}

#[test]
fn every_protocol_costs_what_its_specification_says() {
    let reports = reports();
    let mut page = HEAD.to_owned();
    for of_one in &reports {
        let _ = write!(page, "\n## {}\n\n{}", of_one[0].protocol, markdown(of_one));
    }
    for report in reports.iter().flatten() {
        let wrong: Vec<_> = report.lines.iter().filter(|line| !line.agrees()).collect();
        assert!(wrong.is_empty(), "{} n = {}: {wrong:#?}", report.protocol, report.n);
    }
    expect_file!["../../../../docs/figures.md"].assert_eq(&page);
}

/// What the specification of PBFT says (§16), in its own numbers.
#[test]
fn pbft_costs_what_its_paper_says() {
    for entry in REGISTRY.iter().filter(|entry| entry.spec.name.as_str().starts_with("pbft")) {
        assert_eq!(sizes(entry), [4, 7, 10]);
        for (n, messages, checkpoints) in [(4, 24, 12), (7, 84, 42), (10, 180, 90)] {
            let report = measure(entry, n).unwrap();
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
