//! How much memory a piece of work takes at the same time.

#![allow(unsafe_code, reason = "an allocator cannot be wrapped otherwise; it only counts and passes on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, and the most that it has held since somebody asked. What another thread frees
    /// stays counted here, so only differences within one piece of work mean anything.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

/// The result of `work`, and the most bytes that it held at the same time beyond what was held before.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}

/// The system's allocator, with a look at sizes.
#[derive(Debug)]
pub(crate) struct Measuring;

fn note(more: usize, less: usize) {
    // A thread that is being torn down has no counters any more.
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
fn what_is_held_is_measured() {
    let (kept, most) = most_held(|| {
        drop(vec![1u8; 1 << 20]);
        vec![1u8; 1 << 10]
    });
    assert_eq!((kept.len(), most), (1 << 10, 1 << 20));
}
