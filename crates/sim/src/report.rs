//! The report about a run.

use crate::byzantine_kind::Byzantine;
use crate::fault::Fault;
use crate::oracles::Failure;
use crate::world::World;
use quorate_consensus::Synchrony;
use quorate_history::History;
use quorate_types::{Digest, ReplicaId};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The report about a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The finding of an oracle.
    pub failure: Option<Failure>,
    /// Number of operations that clients called.
    pub requests: u64,
    /// Number of operations without an answer for good, because their session was lost.
    pub failed_requests: u64,
    /// Virtual time of the run.
    pub virtual_ns: u64,
    /// Number of decided heights.
    pub heights: u64,
    /// Number of planned faults, by name.
    pub faults: BTreeMap<Fault, u32>,
    /// Number of effects of each fault.
    pub felt: BTreeMap<Fault, u64>,
    /// Refused messages by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Byzantine replicas with their hosts.
    pub byzantine: BTreeMap<ReplicaId, Byzantine>,
    /// Number of tolerated faults.
    pub f: usize,
    /// Replicas that have equivocated, with both statements. Signed statements convince third parties.
    pub equivocators: BTreeMap<ReplicaId, String>,
    /// Bound on delays that the protocol assumes.
    pub bound: Option<Synchrony>,
    /// Time from the heal to the first answer to an operation that was called after it.
    pub recovered_ns: u64,
    /// Number of states that replicas have received from their peers.
    pub transfers: u64,
    /// Replicas that have lost their disk and are not back at the end.
    pub amnesiacs: u64,
    /// Number of promises that were looked up on disks.
    pub promises: u64,
    /// Number of transitions.
    pub transitions: u64,
    /// Hash of all transitions.
    pub trace_hash: Digest,
    /// Operations as the clients saw them.
    pub history: History,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(failure) => write!(f, "seed {}: {failure}", self.seed),
            None => write!(
                f,
                "seed {}: {} requests, {} heights, {} transitions, trace {}",
                self.seed,
                self.requests,
                self.heights,
                self.transitions,
                self.trace_hash.short()
            ),
        }
    }
}

impl Report {
    /// Runs a world to its end and reports about it. `run` also sets the time that recovery took.
    pub(crate) fn of(
        mut world: World,
        faults: BTreeMap<Fault, u32>,
        run: impl FnOnce(&mut World, &mut u64) -> Result<(), Failure>,
    ) -> Self {
        let mut recovered_ns = 0;
        // The first failure stays in the world. Only the report reads a world after a panic.
        let ran = catch_unwind(AssertUnwindSafe(|| run(&mut world, &mut recovered_ns)));
        if let Err(payload) = ran {
            world.note_panic(&*payload);
        }
        Self::about(&mut world, faults, recovered_ns)
    }

    fn about(world: &mut World, faults: BTreeMap<Fault, u32>, recovered_ns: u64) -> Self {
        let transitions = world.trace().count();
        Self {
            seed: world.settings().seed,
            failure: world.failure().cloned(),
            requests: u64::try_from(world.history().records().len()).unwrap_or(u64::MAX),
            failed_requests: world.failed_ops(),
            virtual_ns: world.now().0,
            heights: world.height().0,
            felt: world.felt(),
            rejected: world.rejected().clone(),
            faults,
            f: world.settings().f,
            bound: world.bound(),
            equivocators: world.equivocators().clone(),
            byzantine: world.byzantine_replicas().clone(),
            recovered_ns,
            transfers: world.transfers(),
            amnesiacs: world.amnesiacs(),
            promises: world.promises(),
            transitions,
            trace_hash: world.trace_hash(),
            history: world.history().clone(),
        }
    }

    /// Returns the run's conditions for people: Byzantine hosts, and faults by class.
    #[must_use]
    pub fn facts(&self) -> String {
        let hosts: Vec<String> = self.byzantine.iter().map(|(id, kind)| format!("r{id} {kind}")).collect();
        let mut named = if hosts.is_empty() { "nobody".to_owned() } else { hosts.join(", ") };
        if hosts.len() > self.f {
            let tolerated = self.f;
            named = format!("{named}, more than the {tolerated} that are tolerated: nothing is promised");
        }
        let equivocators: Vec<String> =
            self.equivocators.iter().map(|(id, what)| format!("\nr{id} {what}")).collect();
        let faults: Vec<String> =
            self.faults.iter().map(|(fault, count)| format!("{count} {fault}")).collect();
        let bound = self.bound.map_or(String::new(), |bound| format!("{bound}; "));
        format!(
            "{bound}Byzantine: {named}; faults: {}; {} states received; {} amnesiacs; {} virtual s; recovered {} ms after the heal{}",
            faults.join(", "),
            self.transfers,
            self.amnesiacs,
            self.virtual_ns / 1_000_000_000,
            self.recovered_ns / 1_000_000,
            equivocators.concat()
        )
    }
}
