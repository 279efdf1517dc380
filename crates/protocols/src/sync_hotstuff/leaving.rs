//! Between two views (§5, §19): a view was left because f + 1 have blamed its leader or it has contradicted itself, and the
//! next one is entered after a wait, in which whatever was said in the old view reaches everybody. In doubt the wait
//! proves nothing: then this replica lets the doubt pass, asks all what it has missed, and goes on.

use quorate_consensus::parts::synchrony::Delta;
use quorate_types::Time;

/// So many Δ without a doubt, before a view is entered in whose wait there was one (§19).
const DOUBTLESS: u64 = 10;

/// A view that was left, and what the next one waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    /// That the evidence has reached all.
    Wait {
        /// When it left.
        since: Time,
    },
    /// That there is no doubt for a while.
    Doubt,
    /// That all have answered, after a doubt.
    Asked {
        /// When they were asked.
        at: Time,
    },
}

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing yet: a timer or the guard's news come back here.
    Stay,
    /// The next view begins.
    Enter,
    /// There was doubt. To be looked at again after so many Δ.
    Look(u64),
    /// All are asked now, and waited for 2 Δ.
    Ask,
}

impl Leaving {
    /// Goes on, after `wait` Δ and as far as the guard lets it: `sound(since, fresh)` is `Cx::sound`.
    pub(super) fn go_on(
        &mut self,
        now: Time,
        delta: Delta,
        wait: u64,
        mut sound: impl FnMut(Time, Time) -> bool,
    ) -> Next {
        if let Self::Wait { since } = *self {
            let over = since.plus(delta.times(wait));
            if now < over {
                return Next::Stay;
            }
            if sound(since, over) {
                return Next::Enter;
            }
            if sound(since, Time::ZERO) {
                return Next::Stay; // It is a fresh answer that is missing.
            }
            *self = Self::Doubt;
        }
        match *self {
            Self::Doubt if sound(now.minus(delta.times(DOUBTLESS)), Time::ZERO) => {
                *self = Self::Asked { at: now };
                Next::Ask
            }
            Self::Asked { at } if now < at.plus(delta.times(2)) => Next::Stay,
            Self::Asked { at } if sound(at, Time::ZERO) => Next::Enter,
            Self::Wait { .. } | Self::Doubt | Self::Asked { .. } => {
                *self = Self::Doubt;
                Next::Look(1)
            }
        }
    }
}
