//! # quorate-protocols
//!
//! One folder per protocol, and the registry of them. Being in [`REGISTRY`] enrols a protocol in the command
//! line, the simulator's exam and the benchmarks.
//!
//! No protocol imports another; what two of them need moves to `quorate_consensus::parts`. To write one, read
//! `docs/adding-a-protocol.md` and copy [`echo`].
//!
//! Deliberately not here: bodies, the log, the order of execution, checkpoints, clients. All of that is the host's.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

#[cfg(test)]
mod chained;
pub mod echo;
pub mod hotstuff;
pub mod jolteon;
pub mod pbft;
pub mod sync_hotstuff;

use quorate_consensus::Entry;

/// Every protocol.
pub const REGISTRY: &[Entry] = &[
    Entry::of::<pbft::Pbft>(),
    Entry::of::<pbft::PbftSigned>(),
    Entry::of::<hotstuff::HotStuff>(),
    Entry::of::<jolteon::Jolteon>(),
    Entry::of::<sync_hotstuff::SyncHotStuff<sync_hotstuff::Plain>>(),
    Entry::of::<sync_hotstuff::SyncHotStuff<sync_hotstuff::Optimistic>>(),
    Entry::of::<sync_hotstuff::SyncHotStuff<sync_hotstuff::rotating::Rotating>>(),
    Entry::of::<echo::Echo>(),
];

/// Names that people may use as well, longer than those that are signed, and what they stand for.
pub const LONG_NAMES: [(&str, &str); 1] = [("sync-hotstuff-rotating", "sync-hotstuff-rr")];

/// The protocol of that name, `None` when there is none.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    let long = LONG_NAMES.iter().find(|(long, _)| *long == name);
    let name = long.map_or(name, |(_, name)| name);
    REGISTRY.iter().find(|entry| entry.spec.name.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stand_for_protocols() {
        for (long, name) in LONG_NAMES {
            assert_eq!(find(long).unwrap().spec.name.as_str(), name);
        }
    }

    #[test]
    fn every_protocol_is_found_by_its_own_name_alone() {
        for (at, entry) in REGISTRY.iter().enumerate() {
            let found = REGISTRY.iter().position(|other| other.spec.name == entry.spec.name);
            assert_eq!(found, Some(at), "{} is registered twice", entry.spec.name);
            assert_eq!(find(entry.spec.name.as_str()).unwrap().spec.name, entry.spec.name);
        }
        assert!(find("no-such-protocol").is_none());
    }

    #[test]
    fn parameters_have_a_text_form() {
        for entry in REGISTRY {
            let table = (entry.params)().unwrap();
            let exam = (entry.exam_params)(10_000_000, false).unwrap();
            assert_eq!(table.keys().collect::<Vec<_>>(), exam.keys().collect::<Vec<_>>());
        }
    }
}
