//! Runs of many worlds at once, each on one thread.

#![allow(clippy::disallowed_methods, reason = "worlds run side by side, each on one thread")]

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs seeds on all cores, in any order, until one of them makes `stop` true.
pub(crate) fn run_until<T: Send>(
    seeds: &[u64],
    run: impl Fn(u64) -> T + Sync,
    stop: impl Fn(&T) -> bool + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let work = || {
        let mut results = Vec::new();
        loop {
            let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return results;
            };
            let result = run(*seed);
            if stop(&result) {
                next.store(seeds.len(), Ordering::Relaxed);
            }
            results.push(result);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Runs all seeds.
pub(crate) fn run_all<T: Send>(seeds: &[u64], run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    run_until(seeds, run, |_| false)
}
