//! The content of `tidy.toml`: the data that the rules compare with, and their exceptions.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Folders of all workspace members. A new member needs an ADR.
    pub(super) members: Vec<String>,
    /// Crates without I/O, clock, threads and randomness: each carries the same `clippy.toml`.
    pub(super) pure: Vec<String>,
    /// For each crate, the workspace crates that it may depend on.
    pub(super) edges: BTreeMap<String, Vec<String>>,
    /// Further edges, for tests only.
    #[serde(default)]
    pub(super) test_edges: BTreeMap<String, Vec<String>>,
    /// Crates that may contain `unsafe`, with the reason.
    #[serde(default, rename = "unsafe")]
    pub(super) unsafe_crates: BTreeMap<String, String>,
    /// Drivers in half-pure crates that may sleep, with the reason. Their tests may not.
    #[serde(default)]
    pub(super) sleeps: BTreeMap<String, String>,
    /// Files and (ending with `/`) folders of pure crates that may name files, sockets, threads and the like, with
    /// the reason.
    #[serde(default)]
    pub(super) drivers: BTreeMap<String, String>,
    /// Examples, and the crates of ours that their packages must not depend on, tests included, however far.
    #[serde(default)]
    pub(super) lean_examples: BTreeMap<String, Vec<String>>,
    /// External crates that no manifest may name as a dependency, with the reason.
    #[serde(default)]
    pub(super) banned: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) long_functions: Vec<Exception>,
    #[serde(default)]
    pub(super) long_files: Vec<Exception>,
    #[serde(default)]
    pub(super) large_structs: Vec<Exception>,
    /// Sentences and test names that begin without a noun, by crate; the documents are one more.
    #[serde(default)]
    pub(super) headless: BTreeMap<String, Headless>,
}

/// An exception from a limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exception {
    pub(super) file: String,
    /// Name of the function or struct; empty for the file itself.
    #[serde(default, alias = "function", alias = "struct")]
    pub(super) item: String,
    /// The largest allowed number, and for fields the exact one.
    #[serde(alias = "lines", alias = "fields")]
    pub(super) most: usize,
    pub(super) reason: String,
}

/// The allowed number of places in one crate. It may only shrink.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Headless {
    #[serde(default)]
    pub(super) docs: usize,
    #[serde(default)]
    pub(super) tests: usize,
}
