//! `tidy.toml`: what the rules are measured against, and their exceptions.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Folders of all workspace members. A new one wants an ADR.
    pub(super) members: Vec<String>,
    /// Crates without I/O, clock, threads and randomness: each carries the same `clippy.toml`.
    pub(super) pure: Vec<String>,
    /// Which of our crates each crate may depend on.
    pub(super) edges: BTreeMap<String, Vec<String>>,
    /// Further edges, for tests only.
    #[serde(default)]
    pub(super) test_edges: BTreeMap<String, Vec<String>>,
    /// Crates that may contain `unsafe`, with the reason.
    #[serde(default, rename = "unsafe")]
    pub(super) unsafe_crates: BTreeMap<String, String>,
    /// Drivers in half-pure crates that may pause, with the reason; their tests may not.
    #[serde(default)]
    pub(super) sleeps: BTreeMap<String, String>,
    /// Files and (ending with `/`) folders of pure crates that may name files, sockets, threads and the like, with
    /// the reason.
    #[serde(default)]
    pub(super) drivers: BTreeMap<String, String>,
    /// Examples, and the crates of ours that their packages must not depend on, tests included, however far.
    #[serde(default)]
    pub(super) lean_examples: BTreeMap<String, Vec<String>>,
    /// External crates that are no direct dependency of ours, with the reason.
    #[serde(default)]
    pub(super) banned: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) long_functions: Vec<LongFunction>,
    #[serde(default)]
    pub(super) long_files: Vec<LongFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LongFunction {
    pub(super) file: String,
    pub(super) function: String,
    /// It may not grow beyond this.
    pub(super) lines: usize,
    pub(super) reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LongFile {
    pub(super) file: String,
    /// It may not grow beyond this.
    pub(super) lines: usize,
    pub(super) reason: String,
}
