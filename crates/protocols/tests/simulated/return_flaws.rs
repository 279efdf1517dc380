//! Flaws of replicas that come back or catch up, for the museum: they believe one peer, or forget what they have counted.

use crate::chained_support::{Chained, ChainedMessage, HotStuff};
use quorate_consensus::flawed::Flaw;
use quorate_consensus::{
    Abstention, Attack, AttackEntry, CheckpointProof, Claims, Message, Protocol, Scene, Seal, Signed, Timers,
};
use quorate_protocols::chained::Timer;
use quorate_protocols::pbft::{EntryProof, Linked, NewView, Pbft, PbftMessage, ViewChange};
use quorate_sim::ms;
use quorate_types::{Height, ReplicaId, Time, View, Wire as _};

/// M12: a proof of the view in which a replica is already makes its timers short again.
#[derive(Default)]
pub(crate) struct ResetBySameView {
    is_reset: bool,
}

/// The first timer of the view, as [`crate::return_museum`] sets it.
pub(crate) const FIRST_TIMER_MS: u64 = 10;

impl Flaw<Chained<HotStuff>> for ResetBySameView {
    fn hears(
        &mut self,
        protocol: &Chained<HotStuff>,
        message: ChainedMessage<HotStuff>,
        _: &Seal,
    ) -> Vec<ChainedMessage<HotStuff>> {
        self.is_reset |= message.place().view <= protocol.status().view;
        vec![message]
    }

    fn sets_timers(&mut self, _: &Chained<HotStuff>, now: Time, timers: &mut Timers<Timer>) {
        let first = now.plus(ms(FIRST_TIMER_MS));
        if std::mem::take(&mut self.is_reset) && timers.get(Timer::View).is_some_and(|at| at > first) {
            timers.set(Timer::View, first);
        }
    }
}

/// M14: the proof of a view in an ENTRY is believed, whoever sends it.
#[derive(Default)]
pub(crate) struct BelievesEntries;

impl Flaw<Pbft<Linked>> for BelievesEntries {
    const ATTACKS: &'static [AttackEntry] = &[AttackEntry {
        name: "invented entries",
        about: "Shows some replicas a view that has not begun, without the blocks of the present one.",
        make: || Box::new(InventsViews),
    }];

    fn claims(message: &PbftMessage, claims: &mut Claims<'_>) {
        if !matches!(message, PbftMessage::Entry { .. }) {
            message.claims(claims);
        }
    }
}

/// Sends an invented NEW-VIEW with each STATUS.
struct InventsViews;

impl Attack for InventsViews {
    fn says(
        &mut self,
        scene: &mut Scene<'_>,
        to: ReplicaId,
        message: Box<dyn Message>,
    ) -> Vec<Box<dyn Message>> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let invented = match PbftMessage::from_bytes(&bytes) {
            Ok(PbftMessage::Status(report)) if !to.0.is_multiple_of(2) => {
                Some(invent(scene, report.view.next(), report.stable))
            }
            _ => None,
        };
        let invented = invented.map(|message| -> Box<dyn Message> { Box::new(message) });
        invented.into_iter().chain([message]).collect()
    }
}

/// Returns the NEW-VIEW of a view with view changes that name no block. All signatures are the liar's own.
fn invent(scene: &Scene<'_>, view: View, stable: Height) -> PbftMessage {
    let mut proof = CheckpointProof::genesis();
    proof.checkpoint.height = stable;
    let change =
        ViewChange { view, proof, prepared: Vec::new(), pre_prepared: Vec::new(), certified: Vec::new() };
    let signature = (scene.sign)(&change.statement());
    let all = (0..).map(ReplicaId).take(scene.committee.n());
    let changes = all.map(|by| Signed { body: change.clone(), by, signature }).collect();
    let body = NewView { view, changes, picks: Vec::new() };
    let new_view = Signed { body, by: scene.committee.rotate(view.0), signature };
    PbftMessage::Entry { view, proof: EntryProof::NewView(Box::new(new_view)) }
}

/// M19: a replica that has lost its disk takes all its promises for known.
#[derive(Default)]
pub(crate) struct NothingForgotten;

impl<P: Protocol> Flaw<P> for NothingForgotten {
    fn abstains(&self, _: Abstention) -> Abstention {
        Abstention::up_to(&[], View::ZERO, Height::ZERO)
    }
}
