//! Lines for the log, and a limit on lines about events that happen often.

use quorate_types::Time;

/// The least time between two lines about one kind of event.
pub(super) const LINE_EVERY_NS: u64 = 10_000_000_000;

/// A line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LogLine {
    /// A fault that the cluster may not survive.
    Error(String),
    /// A fault.
    Warn(String),
    /// An expected event, or the end of a fault.
    Info(String),
}

impl LogLine {
    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Error(text) | Self::Warn(text) | Self::Info(text) => text,
        }
    }

    pub(super) fn log(self) {
        match self {
            Self::Error(text) => tracing::error!("{text}"),
            Self::Warn(text) => tracing::warn!("{text}"),
            Self::Info(text) => tracing::info!("{text}"),
        }
    }
}

/// The limit on lines about one kind of event. The first event has a line at once. A later line gives the number of
/// events since the line before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineLimiter {
    unreported: u64,
    /// No line is due before this time.
    silent_until: Time,
}

impl LineLimiter {
    /// Counts an event that alone needs no line.
    pub(super) fn count(&mut self) {
        self.unreported = self.unreported.saturating_add(1);
    }

    /// Returns the end of the line that is due, which gives the number of events. `None` while the last line is young, or
    /// without an event since.
    pub(super) fn due(&mut self, now: Time) -> Option<String> {
        if self.unreported == 0 || now < self.silent_until {
            return None;
        }
        self.silent_until = now.plus(LINE_EVERY_NS);
        Some(match std::mem::take(&mut self.unreported) {
            1 => String::new(),
            count => format!(" ({count} times since the last such line)"),
        })
    }

    /// Counts an event, and returns as [`LineLimiter::due`].
    pub(super) fn count_due(&mut self, now: Time) -> Option<String> {
        self.count();
        self.due(now)
    }
}
