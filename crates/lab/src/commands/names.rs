//! Protocols and scenarios by the names that the command line gives.

use quorate_consensus::Entry;
use quorate_node::config::protocol_names;
use quorate_node::exit::Failure;
use quorate_protocols::find;
use quorate_sim::exam::{EXAM_SCENARIOS, ExamScenario};

/// Returns the protocol of this name.
pub(super) fn protocol(name: &str) -> Result<&'static Entry, Failure> {
    find(name).ok_or_else(|| {
        let known: Vec<&str> = protocol_names().into_iter().map(|(name, _)| name).collect();
        Failure::usage(format!("no protocol is named {name:?}; expected one of {}", known.join(", ")))
    })
}

/// Returns the scenario of this name.
pub(super) fn find_scenario(name: &str) -> Result<&'static ExamScenario, Failure> {
    ExamScenario::find(name).ok_or_else(|| {
        let known: Vec<&str> = EXAM_SCENARIOS.iter().map(|scenario| scenario.name).collect();
        Failure::usage(format!("no scenario is named {name:?}; expected one of {}", known.join(", ")))
    })
}
