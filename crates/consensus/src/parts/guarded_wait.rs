//! A wait of a synchronous protocol, after which it acts because nothing has arrived (`sync-hotstuff` §19).
//!
//! The wait proves something only while the bound on delays holds. After a doubt the replica lets the doubt pass and asks
//! all peers what it has missed. Then it acts, or waits anew, as its protocol demands.

use super::synchrony::Delta;
use quorate_types::Time;

/// Δ without doubt before a replica asks its peers, if there was doubt during its wait (§19).
const DOUBTLESS: u64 = 10;

/// State of the wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardedWait {
    /// The time of the wait runs.
    Wait {
        /// Its beginning.
        since: Time,
        /// Its end.
        over: Time,
    },
    /// There was doubt. It has to be absent for a while.
    Doubt,
    /// All peers have been asked after a doubt.
    Asked {
        /// Time of the question.
        at: Time,
    },
}

/// Next step of the replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitStep {
    /// Nothing yet: a timer or a report of the guard leads to the next call.
    Stay,
    /// The time is over, without doubt: act.
    Act,
    /// There was doubt, and all peers have had time to answer since: act, or wait anew.
    Answered,
    /// Check again after Δ, because there was doubt.
    CheckAgain,
    /// Ask all peers now, and check again after 2 Δ.
    Ask,
}

impl GuardedWait {
    /// Begins a wait of `ns`.
    #[must_use]
    pub fn begin(now: Time, ns: u64) -> Self {
        Self::Wait { since: now, over: now.plus(ns) }
    }

    /// Returns the next step, as far as the guard permits: `sound(since, fresh)` is [`Cx::sound`](crate::Cx::sound).
    pub fn step(&mut self, now: Time, delta: Delta, mut sound: impl FnMut(Time, Time) -> bool) -> WaitStep {
        if let Self::Wait { since, over } = *self {
            if now < over {
                return WaitStep::Stay;
            }
            if sound(since, over) {
                return WaitStep::Act;
            }
            if sound(since, Time::ZERO) {
                return WaitStep::Stay; // Only a fresh answer is missing.
            }
            *self = Self::Doubt;
        }
        match *self {
            Self::Doubt if sound(now.minus(delta.times(DOUBTLESS)), Time::ZERO) => {
                *self = Self::Asked { at: now };
                WaitStep::Ask
            }
            Self::Asked { at } if now < at.plus(delta.times(2)) => WaitStep::Stay,
            Self::Asked { at } if sound(at, Time::ZERO) => WaitStep::Answered,
            Self::Wait { .. } | Self::Doubt | Self::Asked { .. } => {
                *self = Self::Doubt;
                WaitStep::CheckAgain
            }
        }
    }
}
