//! A protocol with a flaw: what it hears, what it wants done, and what it finds when it is opened pass through somebody
//! who gets something wrong. For the museum of published failures: the protocol itself stays as it is.

use crate::attack::AttackEntry;
use crate::context::{Cx, Ready};
use crate::effect::{Effect, To};
use crate::message::{Auth, Claims, Message, Place, Seal, Verified};
use crate::pace::Pace;
use crate::parts::certificate::CheckpointProof;
use crate::protocol::{
    Choice, Healed, LinkEvent, OpenError, Past, Protocol, Spec, Status, Synchrony, Window,
};
use crate::reject::Reject;
use crate::timers::Timers;
use quorate_types::{BlockId, Committee, DecodeError, Floors, Height, Kind, PayloadId, ReplicaId, Time};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

/// What is wrong with a protocol. Each method leaves everything as it is unless it says otherwise.
pub trait Flaw<P: Protocol>: Default + Send + 'static {
    /// What liars make of it. Messages that they are handed are [`FlawedMessage`]s; they may answer with the protocol's own.
    const ATTACKS: &'static [AttackEntry] = &[];

    /// What the protocol is opened with, and by whom.
    fn opens(&mut self, me: ReplicaId, past: &mut Past<P::Record>) {
        let _ = (me, past);
    }

    /// What is checked of a message before the protocol hears it.
    fn claims(message: &P::Message, claims: &mut Claims<'_>) {
        message.claims(claims);
    }

    /// What of a message its sender signs.
    fn auth(message: &P::Message) -> Auth {
        message.auth()
    }

    /// What the protocol hears in the place of a message, all of it as the word of the same sender.
    fn hears(&mut self, protocol: &P, message: P::Message, seal: &Seal) -> Vec<P::Message> {
        let _ = (protocol, seal);
        vec![message]
    }

    /// Whether the protocol hears that a timer is due.
    fn hears_timer(&mut self, protocol: &P, timer: P::Timer) -> bool {
        let _ = (protocol, timer);
        true
    }

    /// What the protocol says in the place of a message, and to whom; whether it says anything.
    fn says(&mut self, protocol: &P, to: &mut To, message: &mut P::Message) -> bool {
        let _ = (protocol, to, message);
        true
    }

    /// What a handler wants done, before it is, and before [`Flaw::says`] is asked.
    fn wants(&mut self, protocol: &P, effects: &mut Vec<Effect>) {
        let _ = (protocol, effects);
    }

    /// What time the protocol takes it for when one of its timers is due.
    fn clock(&mut self, protocol: &P, timer: P::Timer, now: Time) -> Time {
        let _ = (protocol, timer);
        now
    }

    /// When the protocol's timers go off, after it has done something.
    fn sets_timers(&mut self, protocol: &P, now: Time, timers: &mut Timers<P::Timer>) {
        let _ = (protocol, now, timers);
    }

    /// From when on a probe that was answered in time is fresh enough for the protocol.
    fn fresh(fresh: Time) -> Time {
        fresh
    }

    /// The same, for what it does at some time: at the first moment from then on at which the protocol is called.
    fn acts(&mut self, protocol: &P, now: Time, effects: &mut Vec<Effect>) {
        let _ = (protocol, now, effects);
    }

    /// What is worth verifying.
    fn window(&self, window: Window) -> Window {
        window
    }
}

/// See the module.
pub struct Flawed<P, F> {
    protocol: P,
    flaw: F,
}

impl<P: Protocol, F: Flaw<P>> Flawed<P, F> {
    /// Lets the protocol do something, and the flaw see what it wants done.
    fn lend<R>(&mut self, cx: &mut Cx<'_, Self>, with: impl FnOnce(&mut P, &mut Cx<'_, P>) -> R) -> R {
        let now = cx.now();
        self.lend_at(cx, now, with)
    }

    /// The same, and the protocol takes it for another time.
    fn lend_at<R>(
        &mut self,
        cx: &mut Cx<'_, Self>,
        at: Time,
        with: impl FnOnce(&mut P, &mut Cx<'_, P>) -> R,
    ) -> R {
        let Self { protocol, flaw } = self;
        let (now, before) = (cx.now(), std::mem::take(cx.effects()));
        let result = cx.lend(at, F::fresh, |cx| with(protocol, cx));
        let mut wanted = std::mem::replace(cx.effects(), before);
        flaw.wants(protocol, &mut wanted);
        flaw.acts(protocol, cx.now(), &mut wanted);
        let wanted = wanted.into_iter().filter_map(|effect| flawed_effect(protocol, flaw, effect));
        cx.effects().extend(wanted);
        flaw.sets_timers(protocol, now, cx.timers());
        result
    }
}

/// What is wanted, with messages as they are on their way between flawed replicas.
fn flawed_effect<P: Protocol, F: Flaw<P>>(protocol: &P, flaw: &mut F, effect: Effect) -> Option<Effect> {
    let Effect::Send { mut to, hold, message } = effect else { return Some(effect) };
    let any: Box<dyn Any> = message;
    let mut message = *any.downcast::<P::Message>().ok()?;
    let leaves = flaw.says(protocol, &mut to, &mut message);
    leaves.then(|| Effect::Send { to, hold, message: Box::new(FlawedMessage::<P, F>::of(message)) })
}

/// A message between flawed replicas: the protocol's own, of which something else may be checked.
pub struct FlawedMessage<P: Protocol, F> {
    message: P::Message,
    flaw: PhantomData<fn() -> F>,
}

impl<P: Protocol, F> FlawedMessage<P, F> {
    fn of(message: P::Message) -> Self {
        Self { message, flaw: PhantomData }
    }
}

impl<P: Protocol, F> fmt::Debug for FlawedMessage<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}

impl<P: Protocol, F: Flaw<P>> Message for FlawedMessage<P, F> {
    fn kind(&self) -> Kind {
        self.message.kind()
    }

    fn place(&self) -> Place {
        self.message.place()
    }

    fn auth(&self) -> Auth {
        F::auth(&self.message)
    }

    fn once(&self) -> bool {
        self.message.once()
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        F::claims(&self.message, claims);
    }

    fn bodies(&self, out: &mut Vec<PayloadId>) {
        self.message.bodies(out);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.message.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        P::Message::decode(bytes).map(Self::of)
    }
}

impl<P: Protocol, F: Flaw<P>> Protocol for Flawed<P, F> {
    const SPEC: Spec = P::SPEC;
    const ATTACKS: &'static [AttackEntry] = F::ATTACKS;
    const EXAM_ONLY: &'static [&'static str] = P::EXAM_ONLY;
    const CHOICES: &'static [Choice] = P::CHOICES;
    type Message = FlawedMessage<P, F>;
    type Timer = P::Timer;
    type Record = P::Record;
    type Params = P::Params;

    fn open(cx: &mut Cx<'_, Self>, params: P::Params, mut past: Past<P::Record>) -> Result<Self, OpenError> {
        let mut flaw = F::default();
        flaw.opens(cx.me(), &mut past);
        let before = std::mem::take(cx.effects());
        let now = cx.now();
        let protocol = cx.lend(now, F::fresh, |cx| P::open(cx, params, past))?;
        let wanted = std::mem::replace(cx.effects(), before);
        let wanted = wanted.into_iter().filter_map(|effect| flawed_effect(&protocol, &mut flaw, effect));
        cx.effects().extend(wanted);
        Ok(Self { protocol, flaw })
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<Self::Message>) -> Result<(), Reject> {
        let link = message.link();
        let (FlawedMessage { message, .. }, seal) = message.into_parts();
        for message in self.flaw.hears(&self.protocol, message, &seal) {
            let verified = Verified::new(message, link, seal);
            self.lend(cx, |protocol, cx| protocol.on_message(cx, verified))?;
        }
        Ok(())
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: P::Timer) {
        if self.flaw.hears_timer(&self.protocol, timer) {
            let at = self.flaw.clock(&self.protocol, timer, cx.now());
            self.lend_at(cx, at, |protocol, cx| protocol.on_timer(cx, timer));
        }
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, how: Ready) {
        self.lend(cx, |protocol, cx| protocol.on_ready(cx, block, how));
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        self.lend(cx, P::on_pending);
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, height: Height, fresh: u32) {
        self.lend(cx, |protocol, cx| protocol.on_executed(cx, height, fresh));
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        self.lend(cx, |protocol, cx| protocol.on_decided(cx, height, block));
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, stable: &CheckpointProof) {
        self.lend(cx, |protocol, cx| protocol.on_checkpoint(cx, stable));
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        self.lend(cx, |protocol, cx| protocol.on_link(cx, peer, what));
    }

    fn on_sound(&mut self, cx: &mut Cx<'_, Self>) {
        self.lend(cx, P::on_sound);
    }

    fn recovery(params: &P::Params, committee: &Committee, healed: &Healed) -> Time {
        P::recovery(params, committee, healed)
    }

    fn exam_params(delta_ns: u64, guarded: bool) -> P::Params {
        P::exam_params(delta_ns, guarded)
    }

    fn pace(params: &P::Params) -> Option<Pace> {
        P::pace(params)
    }

    fn synchrony(params: &P::Params) -> Option<Synchrony> {
        P::synchrony(params)
    }

    fn window(&self) -> Window {
        self.flaw.window(self.protocol.window())
    }

    fn floors(&self) -> Floors {
        self.protocol.floors()
    }

    fn status(&self) -> Status {
        self.protocol.status()
    }
}
