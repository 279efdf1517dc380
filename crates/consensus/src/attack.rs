//! Attacks of a protocol's own, for simulators: the seam for what no protocol-free liar would think of.
//!
//! Nothing that runs outside of a simulator asks for one.

use crate::message::Message;
use quorate_types::rng::Rng;
use quorate_types::{Committee, ReplicaId, Signature, Statement};
use std::any::Any;
use std::marker::PhantomData;

/// What a Byzantine replica says in the place of what the protocol made it say.
pub trait Attack: Send {
    /// What goes to `to` in the place of `message`, in this order; `message` itself may be among it. Asked once for each
    /// receiver. Messages with a statement of the sender's are signed afterwards.
    fn says(
        &mut self,
        scene: &mut Scene<'_>,
        to: ReplicaId,
        message: Box<dyn Message>,
    ) -> Vec<Box<dyn Message>>;
}

/// What an attacker knows.
pub struct Scene<'a> {
    /// Who it is.
    pub me: ReplicaId,
    /// The committee.
    pub committee: &'a Committee,
    /// Where its choices come from.
    pub rng: &'a mut Rng,
    /// Its signature under any statement: for words that travel inside of messages.
    pub sign: &'a dyn Fn(&Statement) -> Signature,
}

/// An attack that answers each message by what it remembers: `M` are the protocol's messages, `T` what it is written in.
pub struct Retelling<M, T, K> {
    known: K,
    answer: Answer<T, K>,
    messages: PhantomData<fn() -> M>,
}

/// What goes to a replica in the place of a message.
pub type Answer<T, K> = fn(&mut K, &mut Scene<'_>, ReplicaId, T) -> Vec<T>;

impl<M, T, K: Default> Retelling<M, T, K> {
    /// Begins it, knowing nothing.
    #[must_use]
    pub fn new(answer: Answer<T, K>) -> Self {
        Self { known: K::default(), answer, messages: PhantomData }
    }
}

impl<M: Message + From<T> + Into<T>, T, K: Send> Attack for Retelling<M, T, K> {
    fn says(
        &mut self,
        scene: &mut Scene<'_>,
        to: ReplicaId,
        message: Box<dyn Message>,
    ) -> Vec<Box<dyn Message>> {
        let any: Box<dyn Any> = message;
        let Ok(message) = any.downcast::<M>() else { return Vec::new() };
        let said = (self.answer)(&mut self.known, scene, to, (*message).into());
        let boxed = |said| -> Box<dyn Message> { Box::new(M::from(said)) };
        said.into_iter().map(boxed).collect()
    }
}

/// An attack, by name.
#[derive(Clone, Copy, Debug)]
pub struct AttackEntry {
    /// As command line and traces call it.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// Begins it.
    pub make: fn() -> Box<dyn Attack>,
}
