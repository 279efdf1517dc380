//! Attacks that need knowledge of one protocol. The simulator plays them; no node does.

use crate::message::Message;
use quorate_types::rng::Rng;
use quorate_types::{Committee, ReplicaId, Signature, Statement};
use std::any::Any;
use std::marker::PhantomData;

/// A rewriting of the messages that a Byzantine replica sends.
pub trait Attack: Send {
    /// Returns the messages that go to `to` in place of `message`, in order; `message` itself may be among them. Called
    /// once for each receiver. The caller signs messages with a statement of the sender afterwards.
    fn says(
        &mut self,
        scene: &mut Scene<'_>,
        to: ReplicaId,
        message: Box<dyn Message>,
    ) -> Vec<Box<dyn Message>>;

    /// Whether the attack needs the messages that others send to its replica.
    fn listens(&self) -> bool {
        false
    }

    /// Handles a message that another replica sends to the attacker, if the attack listens.
    fn hears(&mut self, message: Box<dyn Message>) {
        let _ = message;
    }
}

/// Knowledge and means of an attacker.
pub struct Scene<'a> {
    /// Id of the attacker.
    pub me: ReplicaId,
    /// The committee.
    pub committee: &'a Committee,
    /// Source of its choices.
    pub rng: &'a mut Rng,
    /// Its signature under any statement, for statements that travel inside messages.
    pub sign: &'a dyn Fn(&Statement) -> Signature,
}

/// An attack that answers each message from a memory of type `K`. `M` is the protocol's message type, and `T` the type in
/// which the attack is written.
pub struct Retelling<M, T, K> {
    known: K,
    answer: Answer<T, K>,
    hear: Option<Hear<T, K>>,
    messages: PhantomData<fn() -> M>,
}

/// Function that remembers a message to the attacker.
pub type Hear<T, K> = fn(&mut K, T);

/// Function from a message and its receiver to the messages sent in its place.
pub type Answer<T, K> = fn(&mut K, &mut Scene<'_>, ReplicaId, T) -> Vec<T>;

impl<M, T, K: Default> Retelling<M, T, K> {
    /// Begins the attack with an empty memory.
    #[must_use]
    pub fn new(answer: Answer<T, K>) -> Self {
        Self { known: K::default(), answer, hear: None, messages: PhantomData }
    }

    /// Begins the same attack, which also remembers messages to the attacker.
    #[must_use]
    pub fn listening(answer: Answer<T, K>, hear: Hear<T, K>) -> Self {
        Self { hear: Some(hear), ..Self::new(answer) }
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

    fn listens(&self) -> bool {
        self.hear.is_some()
    }

    fn hears(&mut self, message: Box<dyn Message>) {
        let any: Box<dyn Any> = message;
        if let (Some(hear), Ok(message)) = (self.hear, any.downcast::<M>()) {
            hear(&mut self.known, (*message).into());
        }
    }
}

/// An attack with its name.
#[derive(Clone, Copy, Debug)]
pub struct AttackEntry {
    /// Name on the command line and in traces.
    pub name: &'static str,
    /// One sentence about the attack.
    pub about: &'static str,
    /// Constructor.
    pub make: fn() -> Box<dyn Attack>,
}
