//! The clock of a peer, compared with the own one.

use quorate_types::Time;
use quorate_types::limits::CLOCK_SAMPLES_MAX;
use std::collections::VecDeque;

/// The shortest time over which clocks are compared.
pub(super) const CLOCK_SPAN_NS: u64 = 10_000_000_000;

/// The times of both clocks at one moment, up to half of the round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSample {
    own: Time,
    theirs: Time,
    round_trip_ns: u64,
}

/// Samples of a peer's clock: the one with the shortest round trip in each [`CLOCK_SPAN_NS`].
#[derive(Debug, Default)]
pub(super) struct PeerClock {
    pub(super) samples: VecDeque<ClockSample>,
}

impl PeerClock {
    /// Notes that the peer's clock was at `theirs` when the own one was at `own`, up to half of the round trip.
    pub(super) fn note(&mut self, own: Time, theirs: Time, round_trip_ns: u64) {
        let sample = ClockSample { own, theirs, round_trip_ns };
        let span = |at: Time| at.0 / CLOCK_SPAN_NS;
        match self.samples.back_mut() {
            // The peer has restarted, or lies.
            Some(last) if theirs < last.theirs => self.samples.clear(),
            Some(last) if span(own) == span(last.own) => {
                if round_trip_ns < last.round_trip_ns {
                    *last = sample;
                }
                return;
            }
            _ => {}
        }
        if self.samples.len() >= CLOCK_SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Returns the parts in a million by which the peer's clock is faster than the own one; `None` while the samples are
    /// too few.
    pub(super) fn drift_ppm(&self) -> Option<i64> {
        let first = self.samples.front()?;
        // A better sample than the newest may still arrive in its span.
        let last = self.samples.iter().rev().nth(1)?;
        let own_ns = last.own.since(first.own);
        if own_ns < CLOCK_SPAN_NS {
            return None;
        }
        let more = i128::from(last.theirs.since(first.theirs)).saturating_sub(i128::from(own_ns));
        let ppm = more.saturating_mul(1_000_000).checked_div(i128::from(own_ns))?;
        Some(i64::try_from(ppm).unwrap_or(if ppm < 0 { i64::MIN } else { i64::MAX }))
    }
}
