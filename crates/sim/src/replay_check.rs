//! A second replica that receives every input of a first one, as bytes, and has to give the same outputs.
//!
//! Each step is replayed as soon as the first replica has made it, so no input is stored. A difference is found where
//! it occurs, such as one from a clock, from ambient randomness, or from a lossy encoding.

use quorate_consensus::Entry;
use quorate_replica::{Replay, ReplicaSetup, RestoredLog, Sink};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

enum State {
    /// The first replica is not open yet.
    Waits(Box<(Entry, ReplicaSetup)>),
    Follows(Box<Replay>),
    /// The second replica did something else: a description for people.
    Diverged(String),
}

/// A replica's second copy.
#[derive(Clone)]
pub(crate) struct ReplayCheck(Arc<Mutex<State>>);

impl ReplayCheck {
    /// Prepares the copy of a replica that is going to be opened with this setup.
    pub(crate) fn of(entry: &Entry, setup: ReplicaSetup) -> Self {
        Self(Arc::new(Mutex::new(State::Waits(Box::new((*entry, setup))))))
    }

    /// Opens the copy on the replica's past. Returns the sink for the replica's steps.
    pub(crate) fn open(&self, past: &RestoredLog) -> Sink {
        let mut state = self.state();
        if let State::Waits(waits) = &*state {
            let (entry, setup) = &**waits;
            *state = match Replay::open(entry, setup.clone(), past.clone()) {
                Ok(replay) => State::Follows(Box::new(replay)),
                Err(why) => State::Diverged(format!("the second copy does not open: {why}")),
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

    /// Returns the first difference between the two replicas.
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
