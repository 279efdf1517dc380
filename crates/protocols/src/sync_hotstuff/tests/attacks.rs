//! A replica that attacks, for the tests of each form.

use super::*;
use crate::sync_hotstuff::attacks::attacks;
use quorate_consensus::{Attack, Scene};
use quorate_types::rng::Rng;
use std::any::Any;

/// Replica 0 of five, which attacks.
pub(in super::super) struct Attacker<F: Form> {
    attack: Box<dyn Attack>,
    rng: Rng,
    form: std::marker::PhantomData<F>,
}

impl<F: Form> Attacker<F> {
    pub(in super::super) fn new(name: &str) -> Self {
        let entry = attacks::<F::Message>().iter().find(|entry| entry.name == name).unwrap();
        Self { attack: (entry.make)(), rng: Rng::new(1), form: std::marker::PhantomData }
    }

    /// Returns the messages that a replica receives in the place of this one.
    pub(in super::super) fn tells(&mut self, to: u16, said: &F::Message) -> Vec<F::Message> {
        let committee = Setup::of::<SyncHotStuff<F>>(usize::from(N)).committee::<SyncHotStuff<F>>();
        let sign = |_: &quorate_types::Statement| SIGNATURE;
        let mut scene = Scene { me: r(0), committee: &committee, rng: &mut self.rng, sign: &sign };
        let said = self.attack.says(&mut scene, r(to), Box::new(said.clone()));
        let own = |said: Box<dyn Message>| {
            let any: Box<dyn Any> = said;
            *any.downcast::<F::Message>().unwrap()
        };
        said.into_iter().map(own).collect()
    }
}
