//! The protocol's window, shared between replica and intake.

use quorate_consensus::{Place, Window};
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. One thread writes. A reader that sees a mixture of two windows accepts or refuses a message one
/// moment early or late, and the protocol checks again.
#[derive(Debug, Default)]
pub(crate) struct WindowCell {
    view_low: AtomicU64,
    view_high: AtomicU64,
    height_low: AtomicU64,
    height_high: AtomicU64,
}

impl WindowCell {
    pub(crate) fn set(&self, window: &Window) {
        self.view_low.store(window.views.start.0, Ordering::Relaxed);
        self.view_high.store(window.views.end.0, Ordering::Relaxed);
        self.height_low.store(window.heights.start.0, Ordering::Relaxed);
        self.height_high.store(window.heights.end.0, Ordering::Relaxed);
    }

    /// Checks whether a message is worth the check of its signatures.
    pub(crate) fn check(&self, place: &Place) -> Result<(), &'static str> {
        if place.certified {
            return Ok(()); // It may be above the window. Below it, the protocol detects it cheaply.
        }
        if place.view.0 < self.view_low.load(Ordering::Relaxed) {
            return Err("stale view");
        }
        if place.view.0 >= self.view_high.load(Ordering::Relaxed) {
            return Err("view above the window");
        }
        let height = place.height.0;
        if height == 0 {
            return Ok(());
        }
        if height < self.height_low.load(Ordering::Relaxed) {
            return Err("stale height");
        }
        if height >= self.height_high.load(Ordering::Relaxed) {
            return Err("height above the window");
        }
        Ok(())
    }
}
