//! Entry points of the rotating form.

use super::super::block_fetches::BlockFetches;
use super::super::figures;
use super::super::recovery::signed_vote;
use super::super::replica::{Context, Form, IfIdle, SyncHotStuff, Timer};
use super::super::statements::{FIRST_VIEW, PROPOSE, SPEC, STATUS, VOTE};
use super::super::waits::Waits;
use super::message::{Answer, RotatingMessage};
use super::record::RotatingRecord;
use super::state::{InView, Rotating, State};
use super::view_facts::ViewCertificates;
use quorate_consensus::parts::chain::{Tip, empty_payload};
use quorate_consensus::parts::guarded_wait::GuardedWait;
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::parts::synchrony::{Delta, SynchronyParams};
use quorate_consensus::parts::votes::Votes;
use quorate_consensus::{Certificate, Cx, Figures, Past, Reject, Seal, Signed, Spec, To};
use quorate_types::{BlockId, Committee, Height, Incarnation, Kind, ProtocolId, ReplicaId, Time, View};
use std::collections::BTreeMap;
use std::ops::Range;

/// Views above the current one whose messages are verified. Many views may pass before messages that arrive with them are
/// handled, and a replica that misses a vote misses its header.
pub(super) const VIEWS_WORTH_CHECKING: u64 = 4_096;
/// Maximum number of views for which a commit by a timer is remembered to notice late conflicts.
const COMMITTED_MAX: usize = 256;

impl Form for Rotating {
    const SPEC: Spec = Spec {
        // Round robin. Names have 16 bytes at most.
        name: ProtocolId::new("sync-hotstuff-rr"),
        summary: "Sync HotStuff whose leaders follow each other: one block a view, as fast as the network, commit 2 delta after the own vote",
        rotates_leaders: true,
        ..SPEC
    };
    const FIGURES: Figures = figures::ROTATING;
    /// A certificate with which another replica has left the view arrives by then.
    const WAIT: u64 = 1;
    /// §21: a view with a faulty leader takes 10 Δ + 2 τ.
    const BAD_VIEW: u64 = 10;
    const SLOTS: &'static [Kind] = &[PROPOSE, VOTE, STATUS];
    const FORGOTTEN: &'static [Kind] = Self::SLOTS;
    const FETCHES_FROM_LEADER: bool = false;
    const FLOOR_STEP: u64 = 32;
    type Message = RotatingMessage;
    type Record = RotatingRecord;
    type InView = InView;
    type State = State;

    /// §21: among n + 1 views there are two good ones in a row.
    fn bad_views(committee: &Committee) -> usize {
        committee.n().saturating_add(1)
    }

    fn open(params: &SynchronyParams, _: &Past<RotatingRecord>, n: usize, _: Time) -> State {
        State {
            empty: empty_payload(),
            blames_held: None,
            lock: Certificate::genesis(VOTE),
            locked: Height::ZERO,
            certificates: ViewCertificates::new(),
            near: u64::try_from(n).unwrap_or(u64::MAX),
            views: BTreeMap::new(),
            votes: Votes::default(),
            voted: None,
            own_copy: None,
            proposed: None,
            repeated: View::ZERO,
            began: View::ZERO,
            waits: Waits::new(params.delta()),
            relied_on: BTreeMap::new(),
            fetches: BlockFetches::default(),
        }
    }

    fn in_view(_: Delta) -> InView {
        InView::default()
    }

    fn restore(replica: &mut SyncHotStuff<Self>, record: RotatingRecord) {
        match record {
            RotatingRecord::Entered { view, quit, blames, lock } => {
                replica.view = view;
                // The wait begins when this replica is no longer silent.
                replica.leaving = quit.then_some(GuardedWait::Doubt);
                replica.state.blames_held = blames;
                replica.state.certificates.add(&lock);
                replica.state.lock = lock;
            }
            RotatingRecord::Said { voted, proposed } => {
                if let Some(header) = &voted {
                    let (view, id) = (header.body.block.view, header.body.block.id());
                    if let Some(facts) = replica.facts_of(view, 0) {
                        facts.first = Some((id, header.clone()));
                        facts.is_out = true;
                    }
                }
                (replica.state.voted, replica.state.proposed) = (voted, proposed);
            }
            RotatingRecord::Highest(certificate) => {
                replica.state.certificates.add(&certificate);
            }
        }
    }

    fn on_message(
        replica: &mut SyncHotStuff<Self>,
        cx: &mut Context<'_, Self>,
        message: RotatingMessage,
        seal: Seal,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let handled = replica.handle(cx, message, seal, link);
        replica.wait_without_vote(cx);
        handled
    }

    fn on_timer(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, timer: Timer) {
        match timer {
            Timer::Commit => replica.on_commit_timer(cx),
            Timer::Progress => replica.on_progress_timer(cx),
            Timer::Propose => replica.try_propose(cx, IfIdle::Propose),
            Timer::Enter => replica.try_enter(cx),
            Timer::Collect => replica.on_collect_timer(cx),
            Timer::Fetch => replica.on_fetch_timer(cx),
            Timer::Recover => replica.continue_recovery(cx),
            Timer::Missed => {} // Only the stable form sets it.
        }
        replica.wait_without_vote(cx);
    }

    fn on_ready(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, block: BlockId) {
        replica.end_fetch(cx, block);
        replica.adopt_decided(cx);
        if replica.recovery.is_silent() {
            replica.advance_recovery(cx);
        }
        replica.commit_sound_waits(cx);
        replica.try_vote(cx);
        replica.wait_without_vote(cx);
        replica.try_propose(cx, IfIdle::Wait);
    }

    fn vote_for_headers(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>) {
        replica.try_vote(cx);
    }

    fn propose(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, if_idle: IfIdle) {
        replica.try_propose(cx, if_idle);
    }

    fn commit_waits(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>) {
        replica.commit_sound_waits(cx);
    }

    fn note_timer_commit(replica: &mut SyncHotStuff<Self>, tip: Tip) {
        let relied_on = &mut replica.state.relied_on;
        relied_on.insert(tip.view, tip.id);
        while relied_on.len() > COMMITTED_MAX {
            relied_on.pop_first();
        }
    }

    fn settle(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>) {
        replica.settle_committed(cx);
    }

    fn enter(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, view: View) {
        replica.enter_view(cx, view);
    }

    fn leave_blamed(
        replica: &mut SyncHotStuff<Self>,
        cx: &mut Context<'_, Self>,
        blames: Certificate,
    ) -> Result<(), Reject> {
        replica.on_blames(cx, &blames)
    }

    fn ask(replica: &SyncHotStuff<Self>) -> RotatingMessage {
        RotatingMessage::Ask { incarnation: replica.recovery.incarnation() }
    }

    fn answer(
        replica: &SyncHotStuff<Self>,
        me: ReplicaId,
        incarnation: Incarnation,
        _: Height,
    ) -> RotatingMessage {
        let state = &replica.state;
        let header = replica.first_header(replica.view).map(|(_, header)| header.clone());
        let mut certificates: Vec<Certificate> = vec![state.certificates.highest().clone()];
        let parent = header
            .iter()
            .find_map(|header| state.certificates.get(header.body.parent_view, header.body.block.parent));
        certificates.extend(parent.filter(|parent| !certificates.contains(parent)).cloned());
        RotatingMessage::Answer(Box::new(Answer {
            incarnation,
            stage: replica.recovery.stage(),
            blames: state.blames_held.clone(),
            certificates,
            header,
            voted: signed_vote(me, state.voted.as_ref(), state.own_copy, |it| it.body.block.id()),
        }))
    }

    /// A replica that cannot vote on top of the highest certified block counts among the f, and blames nobody.
    fn is_whole(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>) -> bool {
        let highest = replica.state.certificates.highest().clone();
        let is_settled = highest.view() <= replica.chain.committed().view;
        let is_whole = is_settled || replica.ready(cx, highest.block()).is_some();
        if !is_whole {
            replica.want_certified(cx, &highest);
        }
        is_whole
    }

    fn resume(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>) {
        let view = replica.view;
        replica.state.began = view;
        if let Some(header) = replica.state.voted.clone() {
            let voted_in = header.body.block.view;
            replica.state.repeated = voted_in;
            // R6. In a view that was left, or whose leader has equivocated, the vote may have been withdrawn: it must not
            // leave.
            let is_broken = replica.state.views.get(&view).is_some_and(|facts| facts.is_broken);
            if voted_in == view && !replica.is_quit() && !is_broken {
                cx.send(To::All, RotatingMessage::Vote(header));
            }
        }
        if replica.is_quit() {
            return replica.begin_leaving(cx);
        }
        if let Some((header, parent)) = replica.state.proposed.clone()
            && header.block.view == view
        {
            cx.send(To::All, RotatingMessage::Propose { header, parent });
        }
        replica.join_view(cx);
    }

    fn fall_silent(replica: &mut SyncHotStuff<Self>) {
        replica.state.waits.clear().into_iter().for_each(|view| replica.forget_wait(view));
    }

    fn fetches(replica: &mut SyncHotStuff<Self>) -> &mut BlockFetches {
        &mut replica.state.fetches
    }

    fn is_complete(replica: &SyncHotStuff<Self>, cx: &mut Context<'_, Self>, id: BlockId) -> bool {
        replica.ready(cx, id).is_some()
    }

    fn ask_for(_: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, id: BlockId, peer: ReplicaId) {
        // A block with nothing certified below it is not fetched.
        if !cx.blocks().is_bare(id) {
            cx.want(id, peer);
        }
    }

    fn views_heard(replica: &SyncHotStuff<Self>) -> Range<View> {
        let state = &replica.state;
        let kept = [state.views.keys().next(), state.relied_on.keys().next()].into_iter().flatten();
        let nearest = replica.view.minus(state.near).max(FIRST_VIEW);
        let lowest = kept.fold(nearest, |lowest, view| lowest.min(*view));
        lowest..replica.view.plus(VIEWS_WORTH_CHECKING).next()
    }

    fn locked(replica: &SyncHotStuff<Self>) -> Height {
        replica.state.locked
    }
}

impl SyncHotStuff<Rotating> {
    fn handle(
        &mut self,
        cx: &mut Cx<'_, Self>,
        message: RotatingMessage,
        seal: Seal,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        match message {
            RotatingMessage::Propose { header, parent } => self.on_propose(cx, seal, header, &parent),
            RotatingMessage::Vote(header) => self.on_vote(cx, seal, &header),
            RotatingMessage::Certified(certificate) => {
                self.take_certificate(cx, &certificate);
                Ok(())
            }
            RotatingMessage::Status { view, lock } => self.on_status(cx, view, &lock),
            RotatingMessage::Blame(view) => self.on_blame(cx, seal, view),
            RotatingMessage::Show(header) => self.on_header(cx, &header, link),
            RotatingMessage::Evidence(evidence) => self.on_evidence(cx, &evidence),
            RotatingMessage::Ask { incarnation } => self.on_ask(cx, link, incarnation, Height::ZERO),
            RotatingMessage::Answer(answer) => self.on_answer(cx, link, *answer),
        }
    }

    fn on_answer(&mut self, cx: &mut Cx<'_, Self>, link: ReplicaId, answer: Answer) -> Result<(), Reject> {
        let Answer { incarnation, stage, blames, certificates, header, voted } = answer;
        if !self.recovery.is_answered(incarnation) {
            return Err(Reject::Stale);
        }
        // §18: certificates and blames first, so that they count before this replica signs anything. Old ones are no fault.
        for certificate in &certificates {
            self.take_certificate(cx, certificate);
        }
        if let Some(blames) = &blames {
            let _: Result<(), Reject> = self.on_blames(cx, blames);
        }
        if let Some(header) = &header {
            let _: Result<(), Reject> = self.on_header(cx, header, link);
        }
        if let Some(Signed { body: header, by, signature }) = voted {
            if by != link {
                return Err(Reject::Invalid("vote of another replica"));
            }
            let _: Result<(), Reject> = self.on_header(cx, &header, link);
            let block = &header.body.block;
            let _: Result<(), Reject> = self.count(cx, (block.view, block.id()), by, signature);
        }
        self.recovery.note_answer(link, stage);
        self.advance_recovery(cx);
        Ok(())
    }
}
