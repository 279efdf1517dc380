//! Lines in the log that come now and then, however often what they tell of happens.

use quorate_types::Time;

/// Lines about one thing are at least so far apart.
pub(super) const LINE_EVERY_NS: u64 = 10_000_000_000;

/// One thing that may happen often: the log hears of the first time at once, and later how often it was since.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rare {
    untold: u64,
    /// No line before this time.
    silent_until: Time,
}

impl Rare {
    /// It has happened, and nobody is to be told for that alone.
    pub(super) fn note(&mut self) {
        self.untold = self.untold.saturating_add(1);
    }

    /// Of how many times a line should tell now; none while the last line is young, or nothing has happened.
    pub(super) fn tell(&mut self, now: Time) -> Option<u64> {
        if self.untold == 0 || now < self.silent_until {
            return None;
        }
        self.silent_until = now.plus(LINE_EVERY_NS);
        Some(std::mem::take(&mut self.untold))
    }

    /// It has happened: [`Rare::note`] and [`Rare::tell`].
    pub(super) fn happened(&mut self, now: Time) -> Option<u64> {
        self.note();
        self.tell(now)
    }
}

/// The end of a line about something that has happened this often since the last line.
pub(super) fn of_how_many(count: u64) -> String {
    if count > 1 { format!(" ({count} times since the last such line)") } else { String::new() }
}
