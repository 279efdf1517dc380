//! Counts of heap allocations for the cost ledger: the system's allocator, and a counter for each thread.

#![allow(unsafe_code, reason = "an allocator cannot be wrapped otherwise; it only counts and forwards")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static APPLICATION: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of allocations of this thread so far.
#[must_use]
pub fn count() -> u64 {
    COUNT.get()
}

/// Returns the number of them inside [`in_application`].
#[must_use]
pub fn application_count() -> u64 {
    APPLICATION.get()
}

/// Runs a part of the application, and counts its allocations.
pub fn in_application<T>(work: impl FnOnce() -> T) -> T {
    let before = count();
    let result = work();
    APPLICATION.set(APPLICATION.get().wrapping_add(count().wrapping_sub(before)));
    result
}

/// The system's allocator with a counter.
#[derive(Debug)]
pub struct Counting;

fn count_one() {
    // A thread that ends has no counter any more.
    let _ = COUNT.try_with(|count| {
        count.set(count.get().wrapping_add(1));
        #[cfg(feature = "profile")]
        crate::profile::note(count.get());
    });
}

// SAFETY: every call is forwarded unchanged to the system's allocator. Counting allocates nothing, and a profiler's
// own allocations come back here without being noted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_one();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
