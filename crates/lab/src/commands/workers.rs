//! Long work on all cores, shared among worker threads, with its progress.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal as _, stderr};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two lines about progress, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Does the pieces of work 0 up to `count` on all cores, and hands each result to `done` in the order of completion. No
/// further piece is begun once `stop` is set; `work` may read it too.
pub(super) fn share<T: Send>(
    count: u64,
    stop: &AtomicBool,
    work: impl Fn(u64) -> T + Sync,
    mut done: impl FnMut(u64, T),
) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let (results, finished) = mpsc::channel();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..cores {
            let (results, next, work) = (results.clone(), &next, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || results.send((number, work(number))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        for (number, result) in finished {
            done(number, result);
        }
    });
}

/// The progress of the work: a bar at a terminal, a line every ten seconds elsewhere, nothing for programs.
pub(super) struct WorkProgress {
    bar: ProgressBar,
    /// The name of the pieces.
    unit: &'static str,
    /// Time of the last line, where lines are printed.
    last_line: Option<Instant>,
}

impl WorkProgress {
    pub(super) fn new(count: u64, unit: &'static str, quiet: bool) -> Self {
        if quiet {
            return Self { bar: ProgressBar::hidden(), unit, last_line: None };
        }
        let bar = ProgressBar::new(count);
        let template = format!("{{bar:40}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left, {{msg}}");
        // A style that does not parse would be a mistake in the line above; the plain bar does as well.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self { bar, unit, last_line: (!stderr().is_terminal()).then(Instant::now) }
    }

    /// Counts more pieces as done.
    pub(super) fn step(&mut self, more: u64, failures: u64) {
        self.bar.set_message(format!("{failures} failures"));
        self.bar.inc(more);
        if self.last_line.is_some_and(|at| at.elapsed() >= LINE_EVERY) {
            self.last_line = Some(Instant::now());
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            eprintln!("{done}/{all} {}, {failures} failures", self.unit);
        }
    }

    /// Prints a text for people at once.
    pub(super) fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}

impl Drop for WorkProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_piece_is_done_once_and_none_after_a_stop() {
        let (stop, mut seen) = (AtomicBool::new(false), BTreeSet::new());
        share(
            100,
            &stop,
            |number| number * 2,
            |number, result| assert!(seen.insert(number) && result == number * 2),
        );
        assert_eq!(seen.len(), 100);
        share(100, &AtomicBool::new(true), |_| (), |number, ()| panic!("{number} was not to be begun"));
    }
}
