//! One probed peer: its unanswered probes, and whether it is late.

use super::clock::PeerClock;
use quorate_types::Time;
use quorate_types::limits::PROBES_UNANSWERED_MAX;
use std::collections::VecDeque;

/// The pause between probes to a peer that left the remembered maximum unanswered: such a peer is gone. More probes would
/// only fill the resend buffer of its link.
const PROBE_GONE_NS: u64 = 1_000_000_000;

/// A probe without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnansweredProbe {
    number: u64,
    pub(super) sent: Time,
    /// Whether its peer had answered a probe before. Otherwise the answer only measures how long the peer was away.
    pub(super) measures: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ProbedPeer {
    /// Probes without an answer, in order.
    pub(super) unanswered: VecDeque<UnansweredProbe>,
    /// Whether the peer has answered a probe since the last gap on its link.
    pub(super) has_answered: bool,
    /// Whether its last answer took more than Δ.
    pub(super) is_slow: bool,
    /// Whether its first unanswered probe is unanswered for Δ.
    pub(super) is_overdue: bool,
    /// Whether frames of its link were lost, and no probe that was sent since was answered.
    pub(super) has_gap: bool,
    /// The time since which the peer is slow, overdue or behind a gap.
    pub(super) late_since: Option<Time>,
    /// The time at which the last probe was sent that it has answered in time.
    pub(super) fresh: Option<Time>,
    /// The time of the last probe.
    probed: Time,
    pub(super) clock: PeerClock,
}

impl ProbedPeer {
    /// Returns the time at which its first unanswered probe becomes overdue; `None` where no probe is unanswered, or one
    /// is overdue already.
    pub(super) fn due(&self, delta_ns: u64) -> Option<Time> {
        self.unanswered.front().filter(|_| !self.is_overdue).map(|probe| probe.sent.plus(delta_ns))
    }

    /// Notes the probe with this number, unless the peer is not probed now. Returns whether it is.
    pub(super) fn probe(&mut self, number: u64, now: Time) -> bool {
        if self.unanswered.len() >= PROBES_UNANSWERED_MAX {
            // A probe that is not overdue yet must not be forgotten: it becomes overdue, or is answered, within Δ.
            if !self.is_overdue || now.since(self.probed) < PROBE_GONE_NS {
                return false;
            }
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(UnansweredProbe { number, sent: now, measures: self.has_answered });
        self.probed = now;
        true
    }

    /// Takes an answered probe, and drops all before it: links keep their order.
    pub(super) fn take_answered(&mut self, number: u64) -> Option<UnansweredProbe> {
        let place = self.unanswered.iter().position(|probe| probe.number == number)?;
        self.unanswered.drain(..=place).next_back()
    }

    /// Updates the time since which the peer is late.
    pub(super) fn update_lateness(&mut self, now: Time) {
        let is_late = self.is_slow || self.is_overdue || self.has_gap;
        self.late_since = is_late.then(|| self.late_since.unwrap_or(now));
    }
}
