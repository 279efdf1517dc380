//! Long work on all cores, shared among worker threads, with its progress.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal as _, stderr};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two lines about progress without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Does `count` pieces of work, from 0 on, on all cores. Each result goes to `done`, in the order of completion. No further
/// piece begins once `stop` is set; `work` may read `stop` too.
pub(super) fn share<T: Send>(
    count: u64,
    stop: &AtomicBool,
    work: &(dyn Fn(u64) -> T + Sync),
    mut done: impl FnMut(u64, T),
) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let (results, finished) = mpsc::channel();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..cores {
            let (results, next, work) = (results.clone(), &next, work);
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

/// The progress of the work: a bar at a terminal, a line every ten seconds without one, nothing for programs.
pub(super) struct WorkProgress {
    bar: ProgressBar,
    /// The name of the pieces, in the plural.
    unit: &'static str,
    /// Time of the last line, if lines are printed.
    last_line: Option<Instant>,
}

impl WorkProgress {
    pub(super) fn new(count: u64, unit: &'static str, quiet: bool) -> Self {
        if quiet {
            return Self { bar: ProgressBar::hidden(), unit, last_line: None };
        }
        let bar = ProgressBar::new(count);
        let template = format!("{{bar:40}} {{pos}}/{{len}} {unit}, {{per_sec}}, {{eta}} left, {{msg}}");
        // The style above is valid; the plain bar is the fallback.
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
    pub(super) fn print(&self, text: &str) {
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
    fn pieces_are_done_once_and_none_after_a_stop() {
        let (stop, mut seen) = (AtomicBool::new(false), BTreeSet::new());
        share(100, &stop, &|number| number * 2, |number, result| {
            assert!(seen.insert(number) && result == number * 2);
        });
        assert_eq!(seen.len(), 100);
        share(100, &AtomicBool::new(true), &|_| (), |number, ()| {
            panic!("piece {number} has begun after the stop");
        });
    }
}
