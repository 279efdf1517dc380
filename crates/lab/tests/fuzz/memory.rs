//! The peak memory of a piece of work.

#![allow(unsafe_code, reason = "an allocator cannot be wrapped otherwise; it only counts and passes on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, and their maximum since the last reset. Bytes that another thread frees stay counted
    /// here, so only differences within one piece of work have a meaning.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

/// Returns the result of `work`, and the largest number of bytes that it held in addition to those held before.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}

/// The system's allocator, with a count of bytes.
#[derive(Debug)]
pub(crate) struct Measuring;

fn note(more: usize, less: usize) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        let now = held.get() + more as i64 - less as i64;
        held.set(now);
        let _ = MOST.try_with(|most| most.set(most.get().max(now)));
    });
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[test]
fn peak_memory_is_measured() {
    let (kept, most) = most_held(|| {
        drop(vec![1u8; 1 << 20]);
        vec![1u8; 1 << 10]
    });
    assert_eq!((kept.len(), most), (1 << 10, 1 << 20));
}
