//! A second replica behind a replica: it is handed everything that the first goes through, as bytes, and has to do
//! the same.
//!
//! It takes the steps of the first the moment they are taken, so nothing is kept, and what a clock, ambient
//! randomness or an encoding that loses something has changed is found where it happens.

use quorate_consensus::Entry;
use quorate_replica::{Replay, ReplicaSetup, RestoredLog, Sink};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

enum State {
    /// The first replica is not open yet.
    Waits(Box<(Entry, ReplicaSetup)>),
    Follows(Box<Replay>),
    /// It does something else; what, for people.
    Strayed(String),
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Shadow(Arc<Mutex<State>>);

impl Shadow {
    /// The shadow of a replica that is going to be opened with this.
    pub(crate) fn of(entry: &Entry, setup: ReplicaSetup) -> Self {
        Self(Arc::new(Mutex::new(State::Waits(Box::new((*entry, setup))))))
    }

    /// The replica is about to be opened on this log. Returns where its steps go.
    pub(crate) fn open(&self, log: &RestoredLog) -> Sink {
        let mut state = self.state();
        if let State::Waits(waits) = &*state {
            let (entry, setup) = &**waits;
            *state = match Replay::open(entry, setup.clone(), log.clone()) {
                Ok(replay) => State::Follows(Box::new(replay)),
                Err(why) => State::Strayed(format!("a second time it does not open: {why}")),
            };
        }
        let shadow = self.clone();
        Box::new(move |step| shadow.follow(step))
    }

    fn follow(&self, step: &[u8]) {
        let mut state = self.state();
        if let State::Follows(replay) = &mut *state
            && let Err(unlike) = replay.step(step)
        {
            *state = State::Strayed(unlike.to_string());
        }
    }

    /// What it has done that the first replica has not.
    pub(crate) fn strayed(&self) -> Option<String> {
        match &*self.state() {
            State::Strayed(what) => Some(what.clone()),
            State::Waits(_) | State::Follows(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
