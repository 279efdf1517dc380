//! A second replica behind a replica: it is handed everything that the first goes through, as bytes, and has to do
//! the same.
//!
//! It takes the steps of the first the moment they are taken, so nothing is kept, and what a clock, ambient
//! randomness or an encoding that loses something has changed is found where it happens.

use quorate_consensus::Entry;
use quorate_replica::{Past, Replay, Setup, Sink};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

enum State {
    /// The first replica is not open yet.
    Waits(Box<(Entry, Setup)>),
    Follows(Box<Replay>),
    /// It does something else; what, for people.
    Diverged(String),
}

/// See the module.
#[derive(Clone)]
pub(crate) struct ReplayCheck(Arc<Mutex<State>>);

impl ReplayCheck {
    /// The shadow of a replica that is going to be opened with this.
    pub(crate) fn of(entry: &Entry, setup: Setup) -> Self {
        Self(Arc::new(Mutex::new(State::Waits(Box::new((*entry, setup))))))
    }

    /// The replica is about to be opened on this past. Returns where its steps go.
    pub(crate) fn open(&self, past: &Past) -> Sink {
        let mut state = self.state();
        if let State::Waits(waits) = &*state {
            let (entry, setup) = &**waits;
            *state = match Replay::open(entry, setup.clone(), past.clone()) {
                Ok(replay) => State::Follows(Box::new(replay)),
                Err(why) => State::Diverged(format!("a second time it does not open: {why}")),
            };
        }
        let replay_check = self.clone();
        Box::new(move |step| replay_check.follow(step))
    }

    fn follow(&self, step: &[u8]) {
        let mut state = self.state();
        if let State::Follows(replay) = &mut *state
            && let Err(unlike) = replay.step(step)
        {
            *state = State::Diverged(unlike.to_string());
        }
    }

    /// What it has done that the first replica has not.
    pub(crate) fn divergence(&self) -> Option<String> {
        match &*self.state() {
            State::Diverged(what) => Some(what.clone()),
            State::Waits(_) | State::Follows(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
