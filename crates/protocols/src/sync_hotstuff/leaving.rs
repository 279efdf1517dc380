//! Wait between two views (§5, §19). A view was left because f + 1 replicas have blamed its leader or the leader has
//! equivocated. The next view is entered after a wait in which all messages of the old view arrive everywhere. In doubt
//! the wait proves nothing: the replica lets the doubt pass, asks all peers what it has missed, and then enters.

use quorate_consensus::parts::synchrony::Delta;
use quorate_types::Time;

/// Δ without doubt before a view is entered if there was doubt during its wait (§19).
const DOUBTLESS: u64 = 10;

/// Condition for entering the next view after this one was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    /// The evidence has reached all replicas.
    Wait {
        /// Time of leaving.
        since: Time,
    },
    /// There is no doubt for a while.
    Doubt,
    /// All peers have answered after a doubt.
    Asked {
        /// Time of the question.
        at: Time,
    },
}

/// Next step of a replica that has left its view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeavingStep {
    /// Nothing yet: a timer or a report of the guard leads to the next call.
    Stay,
    /// Enter the next view.
    Enter,
    /// Check again after so many Δ, because there was doubt.
    CheckAfter(u64),
    /// Ask all peers now, and check again after 2 Δ.
    Ask,
}

impl Leaving {
    /// Returns the next step, after a wait of `wait` Δ and as far as the guard permits: `sound(since, fresh)` is
    /// `Cx::sound`.
    pub(super) fn step(
        &mut self,
        now: Time,
        delta: Delta,
        wait: u64,
        mut sound: impl FnMut(Time, Time) -> bool,
    ) -> LeavingStep {
        if let Self::Wait { since } = *self {
            let over = since.plus(delta.times(wait));
            if now < over {
                return LeavingStep::Stay;
            }
            if sound(since, over) {
                return LeavingStep::Enter;
            }
            if sound(since, Time::ZERO) {
                return LeavingStep::Stay; // Only a fresh answer is missing.
            }
            *self = Self::Doubt;
        }
        match *self {
            Self::Doubt if sound(now.minus(delta.times(DOUBTLESS)), Time::ZERO) => {
                *self = Self::Asked { at: now };
                LeavingStep::Ask
            }
            Self::Asked { at } if now < at.plus(delta.times(2)) => LeavingStep::Stay,
            Self::Asked { at } if sound(at, Time::ZERO) => LeavingStep::Enter,
            Self::Wait { .. } | Self::Doubt | Self::Asked { .. } => {
                *self = Self::Doubt;
                LeavingStep::CheckAfter(1)
            }
        }
    }
}
