//! Runs pieces of an enumeration on all cores.

use crate::commands::ledger::LedgerArgs;
use crate::commands::workers::{WorkProgress, share};
use quorate_consensus::Entry;
use quorate_sim::BadSettings;
use quorate_sim::twins::{Enumeration, RangeResult, Scenario};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A source of numbered scenarios.
#[derive(Debug)]
pub(super) enum ScenarioSource {
    /// Scenarios of an enumeration.
    Enumerated(Enumeration),
    /// Scenarios of a file.
    Listed(Vec<Scenario>),
}

impl ScenarioSource {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Enumerated(all) => all.len(),
            Self::Listed(list) => u64::try_from(list.len()).unwrap_or(u64::MAX),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Enumerated(all) => all.name(),
            Self::Listed(_) => "listed".to_owned(),
        }
    }

    /// Returns the scenario of a number below the length.
    pub(super) fn scenario(&self, number: u64) -> Scenario {
        match self {
            Self::Enumerated(all) => all.scenario(number),
            Self::Listed(list) => {
                let listed = usize::try_from(number).ok().and_then(|number| list.get(number)).cloned();
                listed.unwrap_or(Scenario { n: 0, twins: Vec::new(), rounds: Vec::new() })
            }
        }
    }

    /// Whether the scenario is the first of those that differ in names only. All drawn and listed scenarios count as such.
    pub(super) fn is_first(&self, number: u64) -> bool {
        match self {
            Self::Enumerated(all) => all.is_drawn() || all.is_first(&all.scenario(number)),
            Self::Listed(_) => true,
        }
    }
}

/// The scenarios to run, and the options of the run.
pub(super) struct TwinRuns<'a> {
    pub(super) entry: &'static Entry,
    pub(super) source: &'a ScenarioSource,
    /// Whether to run also scenarios that differ from others in names only.
    pub(super) same: bool,
    pub(super) keep_going: bool,
    pub(super) quiet: bool,
    /// The beginning of the command.
    pub(super) begun: Instant,
    pub(super) ledger: &'a LedgerArgs,
}

impl TwinRuns<'_> {
    fn is_late(&self) -> bool {
        self.ledger.is_over(self.begun)
    }

    fn piece(&self, range: &Range<u64>, stop: &AtomicBool) -> Result<Option<RangeResult>, BadSettings> {
        let mut verdict = RangeResult::default();
        for number in range.clone() {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if self.same || self.source.is_first(number) {
                verdict.run(self.entry, number, &self.source.scenario(number))?;
            } else {
                verdict.skipped = verdict.skipped.saturating_add(1);
            }
        }
        Ok(Some(verdict))
    }
}

/// Runs all pieces, and calls `done` for each. Returns the total, and whether the time was over before the end. No further
/// piece begins after a failure, unless the options say otherwise.
///
/// # Errors
/// Fails when the protocol does not suit the scenarios.
pub(super) fn run(
    runs: &TwinRuns<'_>,
    pieces: &[Range<u64>],
    mut done: impl FnMut(&WorkProgress, &Range<u64>, &RangeResult),
) -> Result<(RangeResult, bool), BadSettings> {
    let stop = AtomicBool::new(false);
    let length = |piece: &Range<u64>| piece.end.saturating_sub(piece.start);
    let mut progress = WorkProgress::new(pieces.iter().map(length).sum(), "scenarios", runs.quiet);
    let (mut total, mut is_late, mut bad) = (RangeResult::default(), false, None);
    let piece_of = |place: u64| usize::try_from(place).ok().and_then(|place| pieces.get(place));
    let run = |place| piece_of(place).map_or(Ok(None), |piece| runs.piece(piece, &stop));
    share(u64::try_from(pieces.len()).unwrap_or(u64::MAX), &stop, &run, |place, verdict| {
        match (piece_of(place), verdict) {
            (Some(piece), Ok(Some(verdict))) => {
                done(&progress, piece, &verdict);
                total.merge(verdict);
                let failures = u64::try_from(total.failures.len()).unwrap_or(u64::MAX);
                progress.step(length(piece), failures);
            }
            // A piece that was left in the middle counts as not run.
            (_, Ok(_)) => {}
            (_, Err(why)) => {
                bad.get_or_insert(why);
            }
        }
        is_late |= runs.is_late();
        let is_over = is_late || bad.is_some() || (!runs.keep_going && !total.failures.is_empty());
        if is_over {
            stop.store(true, Ordering::Relaxed);
        }
    });
    total.failures.sort_by_key(|(number, _)| *number);
    bad.map_or(Ok((total, is_late)), Err)
}
