//! Runs of scenarios, and of ranges of them.

use super::enumeration::Enumeration;
use super::scenario::Scenario;
use super::{ACT_NS, VIEW_NS_MAX};
use crate::byzantine_kind::Byzantine;
use crate::disk::Costs;
use crate::link_conditions::LinkConditions;
use crate::oracles::Failure;
use crate::settings::{BadSettings, Settings, Transport, sets_leaders};
use crate::world::World;
use crate::{ms, secs};
use quorate_consensus::Entry;
use quorate_history::Op;
use quorate_types::Time;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Delay of every message.
const DELAY_NS: u64 = ms(1);
/// Bound on delays that the protocol is given. It is small, so that timers are short.
const DELTA_NS: u64 = ms(6);
/// Time until a client asks all replicas, and the longest pause between retries.
const RETRY_NS: u64 = ms(5);
const RETRY_NS_MAX: u64 = ms(200);
/// Longest time until all replicas are at one height once the client has its answer.
const SETTLE_NS: u64 = secs(20);

/// The result of a scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The finding of an oracle.
    pub failure: Option<Failure>,
    /// Number of decided heights.
    pub heights: u64,
    /// Number of the scenario's views that some node has entered.
    pub visited: usize,
    /// Virtual time of the run.
    pub virtual_ns: u64,
    /// Time from the end of the partitions to the next answer.
    pub recovered_ns: u64,
    /// Number of transitions.
    pub transitions: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(failure) => write!(f, "{failure}"),
            None => write!(
                f,
                "{} heights, {} views visited, {} virtual ms, {} transitions",
                self.heights,
                self.visited,
                self.virtual_ns / 1_000_000,
                self.transitions
            ),
        }
    }
}

/// A run of a scenario before its first event.
pub struct ScenarioRun {
    world: World,
    rounds: usize,
    ops: u32,
}

impl ScenarioRun {
    /// Prepares the run of a scenario. Its leaders are ignored where the protocol allows only its own.
    ///
    /// # Errors
    /// Returns an error when the scenario is invalid, or the protocol does not support this number of replicas.
    pub fn new(entry: &Entry, scenario: &Scenario) -> Result<Self, BadSettings> {
        scenario.check().map_err(|bad| BadSettings::Scenario(bad.to_string()))?;
        let mut settings = Settings::new(entry, 0).with_n(scenario.n);
        settings.transport = Transport::Datagrams;
        settings.clients = 1;
        settings.conditions = LinkConditions::constant(DELAY_NS);
        settings.costs = Costs::NONE;
        settings.parameters.delta_ns = DELTA_NS;
        settings.client.retry_ns = RETRY_NS;
        settings.client.retry_ns_max = RETRY_NS_MAX;
        settings.byzantine.replicas = scenario.twins.iter().map(|id| (*id, Byzantine::Twin)).collect();
        if sets_leaders(entry) {
            settings.parameters.leaders = scenario.leaders();
        }
        let world = World::for_twins(settings, scenario.clone())?;
        Ok(Self { world, rounds: scenario.rounds.len(), ops: 0 })
    }

    /// Returns the world, for a test that wants to observe it.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Runs the scenario, once.
    pub fn run(&mut self) -> Outcome {
        let mut recovered_ns = 0;
        // As in `report`, only the report reads a world after a panic.
        let ran = catch_unwind(AssertUnwindSafe(|| self.run_phases(&mut recovered_ns)));
        let world = &mut self.world;
        if let Err(payload) = ran {
            world.note_panic(&*payload);
        }
        Outcome {
            failure: world.failure().cloned(),
            heights: world.height().0,
            visited: world.visited(),
            virtual_ns: world.now().0,
            recovered_ns,
            transitions: world.trace().count(),
        }
    }

    fn run_phases(&mut self, recovered_ns: &mut u64) -> Result<(), Failure> {
        self.play_rounds()?;
        let outage_ns = self.world.now().0;
        self.world.end_twins_schedule();
        self.world.watch_for_livelock();
        let healed = self.world.now();
        // A waiting operation serves as well as a new one, because nothing was decided at this moment.
        if self.world.is_done(0) {
            self.submit();
        }
        let open = self.world.history().records().iter().position(|record| record.answered.is_none());
        let bound = self.world.recovery(outage_ns, secs(1));
        let is_open = |world: &World| {
            open.and_then(|at| world.history().records().get(at))
                .is_some_and(|record| record.answered.is_none())
        };
        let world = &mut self.world;
        world.run_while("an operation is answered", bound.0, is_open)?;
        *recovered_ns = world.now().since(healed);
        world.run_while("the client has all its answers", SETTLE_NS, |world| !world.all_done())?;
        world.check_none_failed()?;
        world.run_while("all honest replicas are at one height", SETTLE_NS, |world| !world.is_level())?;
        world.check_settled()
    }

    /// Runs until a node has left the last view, or its time is over. An operation waits whenever a view's leader
    /// falls silent, or no replica would miss the leader.
    fn play_rounds(&mut self) -> Result<(), Failure> {
        self.submit();
        let rounds = u64::try_from(self.rounds).unwrap_or(u64::MAX);
        let limit = Time(VIEW_NS_MAX.saturating_mul(rounds));
        let (mut view, mut silent_from) = (self.world.reached(), Time(ACT_NS));
        while view < rounds && self.world.now() < limit {
            let is_silent = self.world.now() >= silent_from;
            if is_silent && self.world.is_done(0) {
                self.submit();
            }
            let end = if is_silent { limit } else { silent_from };
            self.world.run_until_or_while(end, |world| {
                world.reached() == view && !(is_silent && world.is_done(0))
            })?;
            if self.world.reached() != view {
                view = self.world.reached();
                silent_from = self.world.now().plus(ACT_NS);
            }
        }
        Ok(())
    }

    fn submit(&mut self) {
        self.ops = self.ops.saturating_add(1);
        let value = self.ops.to_string();
        self.world.submit(0, &[Op::Put { key: "k".to_owned(), value }]);
    }
}

/// The result of a range of scenarios.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct RangeResult {
    /// Number of scenarios that were run.
    pub runs: u64,
    /// Number of scenarios that were skipped, because they equal others but for names.
    pub skipped: u64,
    /// Number of decided heights.
    pub heights: u64,
    /// Number of scenarios in which every view was entered.
    pub complete: u64,
    /// Virtual time of the runs.
    pub virtual_ns: u64,
    /// Longest time from the end of the partitions to an answer.
    pub recovered_ns_max: u64,
    /// Number of transitions.
    pub transitions: u64,
    /// Failures, by number of the scenario.
    pub failures: Vec<(u64, Failure)>,
}

impl RangeResult {
    /// Runs one more scenario.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support this number of replicas.
    pub fn run(&mut self, entry: &Entry, number: u64, scenario: &Scenario) -> Result<(), BadSettings> {
        let outcome = ScenarioRun::new(entry, scenario)?.run();
        self.add(number, scenario, &outcome);
        Ok(())
    }

    /// Adds the result of one more scenario.
    pub fn add(&mut self, number: u64, scenario: &Scenario, outcome: &Outcome) {
        self.runs = self.runs.saturating_add(1);
        self.heights = self.heights.saturating_add(outcome.heights);
        self.complete = self.complete.saturating_add(u64::from(outcome.visited == scenario.rounds.len()));
        self.virtual_ns = self.virtual_ns.saturating_add(outcome.virtual_ns);
        self.recovered_ns_max = self.recovered_ns_max.max(outcome.recovered_ns);
        self.transitions = self.transitions.saturating_add(outcome.transitions);
        if let Some(failure) = &outcome.failure {
            self.failures.push((number, failure.clone()));
        }
    }

    /// Adds the result of another range.
    pub fn merge(&mut self, other: Self) {
        self.runs = self.runs.saturating_add(other.runs);
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.heights = self.heights.saturating_add(other.heights);
        self.complete = self.complete.saturating_add(other.complete);
        self.virtual_ns = self.virtual_ns.saturating_add(other.virtual_ns);
        self.recovered_ns_max = self.recovered_ns_max.max(other.recovered_ns_max);
        self.transitions = self.transitions.saturating_add(other.transitions);
        self.failures.extend(other.failures);
    }
}

/// Runs the scenarios of a range of numbers. Scenarios that are equal but for names run once.
///
/// # Errors
/// Returns an error when the protocol does not support this number of replicas.
pub fn run_range(entry: &Entry, all: &Enumeration, range: Range<u64>) -> Result<RangeResult, BadSettings> {
    let mut verdict = RangeResult::default();
    for number in range.start..range.end.min(all.len()) {
        let scenario = all.scenario(number);
        if all.is_drawn() || all.is_first(&scenario) {
            verdict.run(entry, number, &scenario)?;
        } else {
            verdict.skipped = verdict.skipped.saturating_add(1);
        }
    }
    Ok(verdict)
}
