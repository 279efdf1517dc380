//! Runs pieces of an enumeration on all cores.

use indicatif::{ProgressBar, ProgressStyle};
use quorate_consensus::Entry;
use quorate_sim::BadSettings;
use quorate_sim::twins::{Enumeration, Scenario, Verdict};
use std::io::{IsTerminal as _, stderr};
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two lines about progress, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

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

/// What to run, and how.
pub(super) struct How<'a> {
    pub(super) entry: &'static Entry,
    pub(super) work: &'a Work,
    /// Whether to run also what is the same but for names.
    pub(super) same: bool,
    pub(super) keep_going: bool,
    pub(super) quiet: bool,
    /// When it began, and how many minutes it may last.
    pub(super) until: Option<(Instant, u64)>,
}

impl How<'_> {
    fn is_late(&self) -> bool {
        self.until.is_some_and(|(begun, minutes)| begun.elapsed().as_secs() >= minutes.saturating_mul(60))
    }

    fn piece(&self, range: &Range<u64>, stop: &AtomicBool) -> Result<Option<Verdict>, BadSettings> {
        let mut verdict = Verdict::default();
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
    how: &How<'_>,
    pieces: &[Range<u64>],
    mut done: impl FnMut(&Range<u64>, &Verdict),
) -> Result<(Verdict, bool), BadSettings> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let length = |piece: &Range<u64>| piece.end.saturating_sub(piece.start);
    let mut progress = Progress::new(pieces.iter().map(length).sum(), how.quiet);
    let (mut total, mut is_late, mut bad) = (Verdict::default(), false, None);
    thread::scope(|scope| {
        let (verdicts, finished) = mpsc::channel();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..cores {
            let (verdicts, next, stop) = (verdicts.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    let verdict = how.piece(piece, stop);
                    if verdicts.send((piece, verdict)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(verdicts);
        for (piece, verdict) in finished {
            match verdict {
                Ok(Some(verdict)) => {
                    progress.bar.suspend(|| done(piece, &verdict));
                    total.merge(verdict);
                    progress.step(length(piece), total.failures.len());
                }
                // It was left in the middle: it counts as not run.
                Ok(None) => {}
                Err(why) => {
                    bad.get_or_insert(why);
                }
            }
            is_late |= how.is_late();
            let is_over = is_late || bad.is_some() || (!how.keep_going && !total.failures.is_empty());
            if is_over {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    progress.bar.finish_and_clear();
    total.failures.sort_by_key(|(number, _)| *number);
    bad.map_or(Ok((total, is_late)), Err)
}

/// How far it is: a bar at a terminal, a line now and then elsewhere, nothing for programs.
struct Progress {
    bar: ProgressBar,
    /// When the last line was printed, where lines are.
    said: Option<Instant>,
}

impl Progress {
    fn new(scenarios: u64, quiet: bool) -> Self {
        if quiet {
            return Self { bar: ProgressBar::hidden(), said: None };
        }
        let bar = ProgressBar::new(scenarios);
        let style =
            ProgressStyle::with_template("{bar:40} {pos}/{len} scenarios, {per_sec}, {eta} left, {msg}");
        // A style that does not parse would be a mistake in the line above; the plain bar does as well.
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { bar, said: (!stderr().is_terminal()).then(Instant::now) }
    }

    fn step(&mut self, scenarios: u64, failures: usize) {
        self.bar.set_message(format!("{failures} failures"));
        self.bar.inc(scenarios);
        if self.said.is_some_and(|at| at.elapsed() >= LINE_EVERY) {
            self.said = Some(Instant::now());
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            eprintln!("{done}/{all} scenarios, {failures} failures");
        }
    }
}
