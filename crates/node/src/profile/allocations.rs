//! A sample of this process' allocations, with their stacks.

use super::folding::Stack;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// One of so many allocations of a thread is recorded. A prime number keeps no step with periodic work.
const EVERY: u64 = 61;
/// Frames of a stack at most.
const DEPTH_MAX: usize = 96;

/// The beginnings of the names of the allocator's own functions, which are innermost in each stack.
pub(super) const OWN: [&str; 3] =
    ["__rustc::__rust_", "quorate_node::alloc::count_one", "<quorate_node::alloc::Counting"];

static IS_ON: AtomicBool = AtomicBool::new(false);
/// The stacks so far, innermost place first, and the number of their samples.
static STACKS: Mutex<BTreeMap<Vec<usize>, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Whether this thread records an allocation. Its own allocations do not count.
    static RECORDS: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn start() {
    IS_ON.store(true, Ordering::SeqCst);
}

/// Stops the record and returns it. The weights are those of all allocations.
pub(super) fn finish() -> Vec<Stack> {
    IS_ON.store(false, Ordering::SeqCst);
    let stacks = std::mem::take(&mut *STACKS.lock().unwrap_or_else(PoisonError::into_inner));
    let stack =
        |(places, samples): (Vec<usize>, u64)| Stack { places, weight: samples.saturating_mul(EVERY) };
    stacks.into_iter().map(stack).collect()
}

/// Notes the allocation with this number of its thread.
pub(crate) fn note(number: u64) {
    if !number.is_multiple_of(EVERY) || !IS_ON.load(Ordering::Relaxed) {
        return;
    }
    // A thread that ends has no mark any more.
    let _ = RECORDS.try_with(|records| {
        if !records.replace(true) {
            record();
            records.set(false);
        }
    });
}

fn record() {
    let mut places = Vec::with_capacity(DEPTH_MAX);
    backtrace::trace(|frame| {
        places.push(frame.ip().addr());
        places.len() < DEPTH_MAX
    });
    let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let samples = stacks.entry(places).or_default();
    *samples = samples.saturating_add(1);
}
