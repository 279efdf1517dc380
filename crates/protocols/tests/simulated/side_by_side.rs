//! Many worlds at once, each on one thread.

#![allow(clippy::disallowed_methods, reason = "worlds run side by side, each on one thread")]

use quorate_sim::Report;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs seeds on all cores, in any order, until one of them makes `stop` true.
pub(crate) fn run_until(
    seeds: &[u64],
    run: impl Fn(u64) -> Report + Sync,
    stop: impl Fn(&Report) -> bool + Sync,
) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let work = || {
        let mut reports = Vec::new();
        loop {
            let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return reports;
            };
            let report = run(*seed);
            if stop(&report) {
                next.store(seeds.len(), Ordering::Relaxed);
            }
            reports.push(report);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Runs all of them.
pub(crate) fn run_all(seeds: &[u64], run: impl Fn(u64) -> Report + Sync) -> Vec<Report> {
    run_until(seeds, run, |_| false)
}
