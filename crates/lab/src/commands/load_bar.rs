//! The progress of a load, for people.

use crate::load::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use quorate_node::out;
use std::time::Duration;

/// A progress bar at a terminal, nothing without one.
pub(super) struct LoadBar {
    bar: ProgressBar,
}

impl LoadBar {
    /// Creates a bar at its beginning.
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} {bar:40} {msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows the progress of a run, with a remark.
    pub(super) fn show(&self, progress: &Progress, remark: &str) {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.bar.set_length(millis(progress.planned));
        self.bar.set_position(millis(progress.elapsed).min(millis(progress.planned)));
        let (sent, done) = (progress.sent, progress.acknowledged);
        self.bar.set_message(format!("{sent} sent, {done} acknowledged {remark}"));
    }

    /// Prints a line above the bar.
    pub(super) fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            let _ = out::line(text);
        } else {
            self.bar.println(text);
        }
    }

    /// Whether there is no terminal for the bar.
    pub(super) fn is_hidden(&self) -> bool {
        self.bar.is_hidden()
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
