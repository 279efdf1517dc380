//! # quorate-protocols
//!
//! One folder per protocol, and the registry of them. [`REGISTRY`] enrols a protocol in the command line, the simulator's
//! exam and the benchmarks.
//!
//! No protocol imports another; code that two of them need moves to `quorate_consensus::parts`. Two files here are macros
//! for all folders: `encoding.rs` derives encodings from lists of fields, and `attack_table.rs` makes tables of attacks. To write one, read
//! `docs/adding-a-protocol.md` and copy [`echo`].
//!
//! Deliberately not here: bodies, the log, the order of execution, checkpoints, clients. The host does all of that.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod attack_table;
pub mod chained;
pub mod echo;
mod encoding;
pub mod pbft;
pub mod sync_hotstuff;
pub mod unique_chain;

use quorate_consensus::Entry;

/// All protocols. A static, because each crate that names a constant would compile all protocols again.
pub static REGISTRY: &[Entry] = &[
    Entry::of::<pbft::Pbft>(),
    Entry::of::<pbft::PbftSigned>(),
    Entry::of::<chained::Chained<chained::HotStuff>>(),
    Entry::of::<chained::Chained<chained::Jolteon>>(),
    Entry::of::<chained::Chained<chained::HotStuff2>>(),
    Entry::of::<sync_hotstuff::SyncHotStuff<sync_hotstuff::Plain>>(),
    Entry::of::<sync_hotstuff::SyncHotStuff<sync_hotstuff::Optimistic>>(),
    Entry::of::<sync_hotstuff::SyncHotStuff<sync_hotstuff::rotating::Rotating>>(),
    Entry::of::<unique_chain::UniqueChain<unique_chain::Apollo>>(),
    Entry::of::<unique_chain::UniqueChain<unique_chain::Artemis>>(),
    Entry::of::<echo::Echo>(),
];

/// Long names that people may use as well, each with the name of the protocol in signatures.
pub const LONG_NAMES: [(&str, &str); 1] = [("sync-hotstuff-rotating", "sync-hotstuff-rr")];

/// Returns the protocol with this name, `None` when there is none.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    let long = LONG_NAMES.iter().find(|(long, _)| *long == name);
    let name = long.map_or(name, |(_, name)| name);
    REGISTRY.iter().find(|entry| entry.spec.name.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_consensus::Model;

    /// Numbers in figures, at sizes where they differ: f, signatures of a stable checkpoint, equal replies, serving replicas.
    #[test]
    fn sizes_of_each_protocol_are_those_of_its_model() {
        for entry in REGISTRY {
            let expected = match entry.spec.model {
                Model::Synchrony => {
                    [(3, [1, 2, 2, 2]), (4, [1, 2, 2, 3]), (6, [2, 3, 3, 4]), (8, [3, 4, 4, 5])]
                }
                Model::PartialSynchrony | Model::Teaching => {
                    [(3, [0, 2, 1, 2]), (4, [1, 3, 2, 3]), (6, [1, 4, 2, 4]), (9, [2, 6, 3, 6])]
                }
            };
            for (n, sizes) in expected {
                let spec = &entry.spec;
                let f = (spec.faults)(n);
                let found = [f, (spec.checkpoint_quorum)(n, f), (spec.replies)(n, f), spec.serving(n, f)];
                assert_eq!(found, sizes, "{} n = {n}", spec.name);
            }
        }
    }

    #[test]
    fn long_names_name_protocols() {
        for (long, name) in LONG_NAMES {
            assert_eq!(find(long).unwrap().spec.name.as_str(), name);
        }
    }

    #[test]
    fn every_protocol_is_found_by_its_own_name_only() {
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
