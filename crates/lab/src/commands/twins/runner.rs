//! Runs pieces of an enumeration on all cores.

use crate::commands::ledger;
use crate::commands::workers::{WorkProgress, share};
use quorate_consensus::Entry;
use quorate_sim::BadSettings;
use quorate_sim::twins::{Enumeration, RangeResult, Scenario};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Scenarios with numbers.
#[derive(Debug)]
pub(super) enum Work {
    /// Of an enumeration.
    Enumerated(Enumeration),
    /// Of a file.
    Listed(Vec<Scenario>),
}

impl Work {
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

    /// The scenario of a number below the length.
    pub(super) fn scenario(&self, number: u64) -> Scenario {
        match self {
            Self::Enumerated(all) => all.scenario(number),
            Self::Listed(list) => {
                let listed = usize::try_from(number).ok().and_then(|number| list.get(number)).cloned();
                listed.unwrap_or(Scenario { n: 0, twins: Vec::new(), rounds: Vec::new() })
            }
        }
    }

    /// Whether it is not the same as another one but for names; nobody looks at that where scenarios are drawn or listed.
    pub(super) fn is_wanted(&self, number: u64) -> bool {
        match self {
            Self::Enumerated(all) => all.is_drawn() || all.is_first(&all.scenario(number)),
            Self::Listed(_) => true,
        }
    }
}

/// The scenarios to run, and the options of the run.
pub(super) struct TwinRuns<'a> {
    pub(super) entry: &'static Entry,
    pub(super) work: &'a Work,
    /// Whether to run also what is the same but for names.
    pub(super) same: bool,
    pub(super) keep_going: bool,
    pub(super) quiet: bool,
    /// When it began, and how long it may last.
    pub(super) begun: Instant,
    pub(super) keeping: &'a ledger::Keeping,
}

impl TwinRuns<'_> {
    fn is_late(&self) -> bool {
        self.keeping.is_over(self.begun)
    }

    fn piece(&self, range: &Range<u64>, stop: &AtomicBool) -> Result<Option<RangeResult>, BadSettings> {
        let mut verdict = RangeResult::default();
        for number in range.clone() {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if self.same || self.work.is_wanted(number) {
                verdict.run(self.entry, number, &self.work.scenario(number))?;
            } else {
                verdict.skipped = verdict.skipped.saturating_add(1);
            }
        }
        Ok(Some(verdict))
    }
}

/// Runs all pieces, and tells of each when it is done. What all came to, and whether time was over before the end.
/// After a failure no further piece is begun, unless the caller wants it.
///
/// # Errors
/// When the protocol does not suit the scenarios.
pub(super) fn run(
    how: &TwinRuns<'_>,
    pieces: &[Range<u64>],
    mut done: impl FnMut(&WorkProgress, &Range<u64>, &RangeResult),
) -> Result<(RangeResult, bool), BadSettings> {
    let stop = AtomicBool::new(false);
    let length = |piece: &Range<u64>| piece.end.saturating_sub(piece.start);
    let mut progress = WorkProgress::new(pieces.iter().map(length).sum(), "scenarios", how.quiet);
    let (mut total, mut is_late, mut bad) = (RangeResult::default(), false, None);
    let piece_of = |place: u64| usize::try_from(place).ok().and_then(|place| pieces.get(place));
    let run = |place| piece_of(place).map_or(Ok(None), |piece| how.piece(piece, &stop));
    share(u64::try_from(pieces.len()).unwrap_or(u64::MAX), &stop, run, |place, verdict| {
        match (piece_of(place), verdict) {
            (Some(piece), Ok(Some(verdict))) => {
                done(&progress, piece, &verdict);
                total.merge(verdict);
                let failures = u64::try_from(total.failures.len()).unwrap_or(u64::MAX);
                progress.step(length(piece), failures);
            }
            // It was left in the middle: it counts as not run.
            (_, Ok(_)) => {}
            (_, Err(why)) => {
                bad.get_or_insert(why);
            }
        }
        is_late |= how.is_late();
        let is_over = is_late || bad.is_some() || (!how.keep_going && !total.failures.is_empty());
        if is_over {
            stop.store(true, Ordering::Relaxed);
        }
    });
    total.failures.sort_by_key(|(number, _)| *number);
    bad.map_or(Ok((total, is_late)), Err)
}
