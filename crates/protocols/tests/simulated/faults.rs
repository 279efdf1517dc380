//! The list of faults in the documentation: this test makes `docs/faults.md` (`UPDATE_EXPECT=1` writes it).

use expect_test::expect_file;
use quorate_sim::fault::{Fault, FaultClass, FaultSource};
use std::fmt::Write as _;

fn source(fault: Fault) -> String {
    match fault.source() {
        FaultSource::Drawn => "standard runs".to_owned(),
        FaultSource::Hosts(hosts) => {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            format!("Byzantine hosts: {}", hosts.join(", "))
        }
        FaultSource::Asked(how) => format!("asked for: `{how}`"),
        FaultSource::Processes(tests) => {
            let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
            format!("real processes: {}", tests.join(", "))
        }
        FaultSource::Later(why) => format!("nothing yet: {why}"),
    }
}

#[test]
fn faults_are_documented() {
    let mut text = String::from(
        "# Faults\n\n\
         All faults that this project knows by name, with their origin. Standard runs of the simulator draw a fault, or a Byzantine\n\
         host causes it, or an option of the command line asks for it. Tests with real processes (below `crates/lab/tests/it`)\n\
         cover others. `quorate sim --faults` prints the same list. A test generates this page from `crates/sim/src/fault.rs`.\n",
    );
    for class in FaultClass::ALL.iter().copied() {
        write!(text, "\n## {}\n\n| fault | description | origin |\n|---|---|---|\n", class.name()).unwrap();
        for fault in Fault::ALL.iter().filter(|fault| fault.class() == class) {
            writeln!(text, "| {fault} | {} | {} |", fault.about(), source(*fault)).unwrap();
        }
    }
    expect_file!["../../../../docs/faults.md"].assert_eq(&text);
}
