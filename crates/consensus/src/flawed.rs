//! A protocol with a flaw: what it hears, what it wants done, and what it finds when it is opened pass through somebody
//! who gets something wrong. For the museum of published failures: the protocol itself stays as it is.

use crate::attack::AttackEntry;
use crate::context::{Cx, Ready};
use crate::effect::Effect;
use crate::message::{Seal, Verified};
use crate::parts::certificate::CheckpointProof;
use crate::protocol::{
    Choice, Healed, LinkEvent, OpenError, Past, Protocol, Spec, Status, Synchrony, Window,
};
use crate::reject::Reject;
use quorate_types::{BlockId, Committee, Floors, Height, ReplicaId, Time};

/// What is wrong with a protocol. Each method leaves everything as it is unless it says otherwise.
pub trait Flaw<P: Protocol>: Default + Send + 'static {
    /// What the protocol is opened with.
    fn opens(&mut self, past: &mut Past<P::Record>) {
        let _ = past;
    }

    /// What the protocol hears in the place of a message, all of it as the word of the same sender.
    fn hears(&mut self, protocol: &P, message: P::Message, seal: &Seal) -> Vec<P::Message> {
        let _ = (protocol, seal);
        vec![message]
    }

    /// What a handler wants done, before it is.
    fn wants(&mut self, protocol: &P, effects: &mut Vec<Effect>) {
        let _ = (protocol, effects);
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
        let Self { protocol, flaw } = self;
        let before = std::mem::take(cx.effects());
        let result = cx.lend(|cx| with(protocol, cx));
        let mut wanted = std::mem::replace(cx.effects(), before);
        flaw.wants(protocol, &mut wanted);
        cx.effects().append(&mut wanted);
        result
    }
}

impl<P: Protocol, F: Flaw<P>> Protocol for Flawed<P, F> {
    const SPEC: Spec = P::SPEC;
    const ATTACKS: &'static [AttackEntry] = P::ATTACKS;
    const CHOICES: &'static [Choice] = P::CHOICES;
    type Message = P::Message;
    type Timer = P::Timer;
    type Record = P::Record;
    type Params = P::Params;

    fn open(cx: &mut Cx<'_, Self>, params: P::Params, mut past: Past<P::Record>) -> Result<Self, OpenError> {
        let mut flaw = F::default();
        flaw.opens(&mut past);
        let protocol = cx.lend(|cx| P::open(cx, params, past))?;
        Ok(Self { protocol, flaw })
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<P::Message>) -> Result<(), Reject> {
        let link = message.link();
        let (message, seal) = message.into_parts();
        for message in self.flaw.hears(&self.protocol, message, &seal) {
            let verified = Verified::new(message, link, seal);
            self.lend(cx, |protocol, cx| protocol.on_message(cx, verified))?;
        }
        Ok(())
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: P::Timer) {
        self.lend(cx, |protocol, cx| protocol.on_timer(cx, timer));
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
