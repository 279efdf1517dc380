//! A protocol with a flaw. Its messages, its effects and its state from the log pass through a [`Flaw`] that gets
//! something wrong. The museum of published failures is made of these: the protocol itself stays as it is.

use crate::amnesia::Abstention;
use crate::attack::AttackEntry;
use crate::effect::{Effect, To};
use crate::examined::{Choice, Examined, Healed};
use crate::host_view::Ready;
use crate::message::{Auth, Claims, Message, Place, Seal, Verified};
use crate::pace::Pace;
use crate::parts::certificate::CheckpointProof;
use crate::past::{OpenError, Past};
use crate::protocol::{Cx, LinkEvent, Protocol};
use crate::reject::Reject;
use crate::spec::{Spec, Synchrony};
use crate::status::{Status, Window};
use crate::timers::Timers;
use quorate_types::{
    BlockId, Committee, DecodeError, Floors, Height, Kind, OrderChain, PayloadId, Reader, ReplicaId, Time,
    View, Wire,
};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

/// A flaw of a protocol. Each method changes nothing by default.
pub trait Flaw<P: Protocol>: Default + Send + 'static {
    /// Attacks that use the flaw. They receive [`FlawedMessage`]s and may answer with messages of the protocol.
    const ATTACKS: &'static [AttackEntry] = &[];

    /// Changes the state from the log with which replica `me` opens the protocol.
    fn opens(&mut self, me: ReplicaId, past: &mut Past<P::Record>) {
        let _ = (me, past);
    }

    /// Claims the signatures and certificates of a message that are checked before the protocol handles it.
    fn claims(message: &P::Message, claims: &mut Claims<'_>) {
        message.claims(claims);
    }

    /// Returns the authentication of a message.
    fn auth(message: &P::Message) -> Auth {
        message.auth()
    }

    /// Returns the messages that the protocol receives in place of a message, all of them from the same sender.
    fn hears(&mut self, protocol: &P, message: P::Message, seal: &Seal) -> Vec<P::Message> {
        let _ = (protocol, seal);
        vec![message]
    }

    /// Returns whether the protocol handles a timer that is due.
    fn hears_timer(&mut self, protocol: &P, timer: P::Timer) -> bool {
        let _ = (protocol, timer);
        true
    }

    /// Changes a message that the protocol sends, and its receivers. Returns whether it leaves at all.
    fn says(&mut self, protocol: &P, to: &mut To, message: &mut P::Message) -> bool {
        let _ = (protocol, to, message);
        true
    }

    /// Changes the effects of a handler, before [`Flaw::says`] sees the messages among them.
    fn wants(&mut self, protocol: &P, effects: &mut Vec<Effect>) {
        let _ = (protocol, effects);
    }

    /// Returns the time that the protocol reads when one of its timers is due.
    fn clock(&mut self, protocol: &P, timer: P::Timer, now: Time) -> Time {
        let _ = (protocol, timer);
        now
    }

    /// Changes the protocol's timers after a handler has run.
    fn sets_timers(&mut self, protocol: &P, now: Time, timers: &mut Timers<P::Timer>) {
        let _ = (protocol, now, timers);
    }

    /// Returns the time from which on an answered probe is fresh enough for the protocol.
    fn fresh(fresh: Time) -> Time {
        fresh
    }

    /// Adds effects at a time of the flaw's choice: at the first call of the protocol from that time on.
    fn acts(&mut self, protocol: &P, now: Time, effects: &mut Vec<Effect>) {
        let _ = (protocol, now, effects);
    }

    /// Returns the bounds of forgotten promises that the host uses in place of `bounds`.
    fn abstains(&self, bounds: Abstention) -> Abstention {
        bounds
    }

    /// Returns the window that the host uses in place of `window`.
    fn window(&self, window: Window) -> Window {
        window
    }
}

/// A protocol behind a flaw.
pub struct Flawed<P, F> {
    protocol: P,
    flaw: F,
}

impl<P: Protocol, F: Flaw<P>> Flawed<P, F> {
    /// Runs a handler of the protocol and passes its effects through the flaw.
    fn lend<R>(&mut self, cx: &mut Cx<'_, Self>, with: impl FnOnce(&mut P, &mut Cx<'_, P>) -> R) -> R {
        let now = cx.now();
        self.lend_at(cx, now, with)
    }

    /// Runs a handler that reads `at` as the present time, and passes its effects through the flaw.
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

/// Passes an effect through the flaw. Messages become those that travel between flawed replicas.
fn flawed_effect<P: Protocol, F: Flaw<P>>(protocol: &P, flaw: &mut F, effect: Effect) -> Option<Effect> {
    let Effect::Send { mut to, hold, message } = effect else { return Some(effect) };
    let any: Box<dyn Any> = message;
    let mut message = *any.downcast::<P::Message>().ok()?;
    let leaves = flaw.says(protocol, &mut to, &mut message);
    leaves.then(|| Effect::Send { to, hold, message: Box::new(FlawedMessage::<P, F>::of(message)) })
}

/// A message between flawed replicas: a message of the protocol, whose checks the flaw may change.
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
}

impl<P: Protocol, F: Flaw<P>> Wire for FlawedMessage<P, F> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.message.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        P::Message::decode(reader).map(Self::of)
    }
}

impl<P: Protocol, F: Flaw<P>> Protocol for Flawed<P, F> {
    const SPEC: Spec = P::SPEC;
    const PROVES_ORDER: bool = P::PROVES_ORDER;
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

    fn show(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        self.lend(cx, |protocol, cx| protocol.show(cx, peer));
    }

    fn proven_view(&self) -> View {
        self.protocol.proven_view()
    }

    fn shown_floors(&self) -> Vec<(Kind, View)> {
        self.protocol.shown_floors()
    }

    fn leave_view(&mut self, cx: &mut Cx<'_, Self>) {
        self.lend(cx, P::leave_view);
    }

    fn abstain(&self, cx: &mut Cx<'_, Self>) -> Abstention {
        let now = cx.now();
        let bounds = cx.lend(now, F::fresh, |cx| self.protocol.abstain(cx));
        self.flaw.abstains(bounds)
    }

    fn remember(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        self.lend(cx, P::remember)
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

    fn order_chain(&self, committee: &Committee, block: BlockId) -> Option<OrderChain> {
        self.protocol.order_chain(committee, block)
    }
}

impl<P: Examined, F: Flaw<P>> Examined for Flawed<P, F> {
    const ATTACKS: &'static [AttackEntry] = F::ATTACKS;
    const EXAM_ONLY: &'static [&'static str] = P::EXAM_ONLY;
    const CHOICES: &'static [Choice] = P::CHOICES;

    fn recovery(params: &P::Params, committee: &Committee, healed: &Healed) -> Time {
        P::recovery(params, committee, healed)
    }

    fn exam_params(delta_ns: u64, guarded: bool) -> P::Params {
        P::exam_params(delta_ns, guarded)
    }

    fn pace(params: &P::Params) -> Option<Pace> {
        P::pace(params)
    }
}
