//! Entry points of the stable form.

use super::super::block_fetches::BlockFetches;
use super::super::recovery::signed_vote;
use super::super::replica::{Context, Form, IfIdle, SyncHotStuff, Timer, WINDOWS_AHEAD, WINDOWS_VOTED};
use super::super::statements::{FIRST_VIEW, NEW_VIEW, PROPOSE, STATUS, VOTE};
use super::super::waits::Waits;
use super::certificates::RankedCertificates;
use super::early_messages::EarlyMessages;
use super::evidence::QuitEvidence;
use super::message::{Answer, HEADERS_MAX, SyncMessage};
use super::record::SyncRecord;
use super::split;
use super::state::{InView, State, VIEWS_AHEAD};
use super::statements::{Header, Lock, SyncNewView, end_of};
use super::variant::Variant;
use quorate_consensus::parts::chain::Tip;
use quorate_consensus::parts::guarded_wait::GuardedWait;
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::parts::synchrony::{Delta, SynchronyParams};
use quorate_consensus::{Certificate, Cx, Figures, Message as _, Past, Reject, Seal, Signed, Spec, To};
use quorate_types::{BlockId, Committee, Height, Incarnation, Kind, ReplicaId, Time, View};
use std::ops::Range;

impl<V: Variant> Form for V {
    const SPEC: Spec = V::SPEC;
    const FIGURES: Figures = V::FIGURES;
    const WAIT: u64 = V::WAIT;
    const BAD_VIEW: u64 = V::BAD_VIEW;
    const SLOTS: &'static [Kind] = &[PROPOSE, VOTE, NEW_VIEW, STATUS];
    const FORGOTTEN: &'static [Kind] = &[PROPOSE, NEW_VIEW, STATUS];
    const FETCHES_FROM_LEADER: bool = true;
    const FLOOR_STEP: u64 = 1;
    type Message = SyncMessage;
    type Record = SyncRecord;
    type InView = InView;
    type State = State;

    /// §21: the view that runs at the heal, and at most f more.
    fn bad_views(committee: &Committee) -> usize {
        committee.weak()
    }

    fn open(_: &SynchronyParams, past: &Past<SyncRecord>, n: usize, _: Time) -> State {
        State {
            checkpoint_every: past.checkpoint_every,
            evidence: Vec::new(),
            entered: FIRST_VIEW,
            lock: Lock::genesis(),
            certificates: RankedCertificates::default(),
            voted_ahead_max: split::voted_ahead_max(n),
            // A replica that commits later than others still handles their votes.
            windows_voted: if V::may_wait_longer(n) { WINDOWS_VOTED / 2 } else { WINDOWS_VOTED },
            is_recalling: false,
            asked_ahead: View::ZERO,
            timer_committed: View::ZERO,
            early: EarlyMessages::default(),
            goal: None,
            is_behind: false,
        }
    }

    fn in_view(delta: Delta) -> InView {
        InView { waits: Waits::new(delta), ..InView::default() }
    }

    fn restore(replica: &mut SyncHotStuff<V>, record: SyncRecord) {
        let (state, in_view) = (&mut replica.state, &mut replica.in_view);
        match record {
            SyncRecord::Entered { view, quit, evidence, lock, first_voted } => {
                (replica.view, state.entered) = (view, view);
                // The wait begins when this replica is no longer silent.
                replica.leaving = quit.then_some(GuardedWait::Doubt);
                (state.evidence, state.lock) = (evidence, lock);
                if let Some(new_view) = &first_voted {
                    in_view.statements.add_new_view(&SyncNewView::signed_statement(new_view));
                    in_view.first_voted = Some(end_of(&new_view.body.lock.tip));
                }
                in_view.new_view = first_voted;
            }
            SyncRecord::Said { view, voted, proposed, new_view } if view == replica.view => {
                if let Some(header) = &voted {
                    in_view.statements.add_header(header.body.block.id(), header);
                }
                (in_view.voted, in_view.proposed, in_view.own_new_view) = (voted, proposed, new_view);
            }
            SyncRecord::Said { .. } => {}
            SyncRecord::Certified(certificate) | SyncRecord::Settled(certificate) => {
                state.certificates.add(&certificate, Time::ZERO);
            }
            SyncRecord::Responsive(certificate) | SyncRecord::SettledResponsive(certificate) => {
                state.certificates.add_responsive(&certificate);
                state.certificates.add(&certificate, Time::ZERO);
            }
        }
    }

    fn on_message(
        replica: &mut SyncHotStuff<V>,
        cx: &mut Context<'_, V>,
        message: SyncMessage,
        seal: Seal,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let view = message.place().view;
        match message {
            SyncMessage::Ask { incarnation, above } => replica.on_ask(cx, link, incarnation, above),
            SyncMessage::Answer(answer) => replica.on_answer(cx, link, *answer),
            SyncMessage::Lack { .. }
            | SyncMessage::Certified(_)
            | SyncMessage::Evidence(_)
            | SyncMessage::Blame(_) => replica.handle(cx, message, seal),
            _ if view > replica.view => replica.keep_early(cx, view, message, seal, link),
            _ => replica.handle(cx, message, seal),
        }
    }

    fn on_timer(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>, timer: Timer) {
        match timer {
            Timer::Commit => replica.on_commit_timer(cx),
            Timer::Progress => replica.on_progress_timer(cx),
            Timer::Propose => replica.try_propose(cx, IfIdle::Propose),
            Timer::Enter => replica.try_enter(cx),
            Timer::Collect => replica.on_collect_timer(cx),
            Timer::Fetch => replica.on_fetch_timer(cx),
            Timer::Missed => replica.try_vote(cx),
            Timer::Recover => replica.continue_recovery(cx),
        }
    }

    fn on_ready(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>, block: BlockId) {
        replica.end_fetch(cx, block);
        if let Some(height) = cx.blocks().get(block).map(|block| block.height) {
            replica.check_split(cx, height);
        }
        replica.adopt_decided(cx);
        if replica.recovery.is_silent() {
            replica.advance_recovery(cx);
        }
        replica.commit_responsive(cx);
        Self::commit_waits(replica, cx);
        Self::vote(replica, cx);
    }

    fn vote(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>) {
        replica.try_first_vote(cx);
        replica.try_vote(cx);
    }

    fn vote_for_headers(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>) {
        replica.try_vote(cx);
    }

    fn propose(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>, if_idle: IfIdle) {
        replica.try_propose(cx, if_idle);
    }

    fn commit_waits(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>) {
        replica.commit_sound_waits(cx);
    }

    fn note_timer_commit(replica: &mut SyncHotStuff<V>, _: Tip) {
        replica.state.timer_committed = replica.view;
    }

    fn settle(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>) {
        replica.settle_committed(cx);
    }

    fn enter(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>, view: View) {
        replica.enter_view(cx, view);
    }

    fn leave_blamed(
        replica: &mut SyncHotStuff<V>,
        cx: &mut Context<'_, V>,
        blames: Certificate,
    ) -> Result<(), Reject> {
        replica.quit_view(cx, QuitEvidence::Blames(blames));
        Ok(())
    }

    fn ask(replica: &SyncHotStuff<V>) -> SyncMessage {
        let above = replica.chain.committed().height;
        SyncMessage::Ask { incarnation: replica.recovery.incarnation(), above }
    }

    fn answer(
        replica: &SyncHotStuff<V>,
        me: ReplicaId,
        incarnation: Incarnation,
        above: Height,
    ) -> SyncMessage {
        let (state, in_view) = (&replica.state, &replica.in_view);
        let headers = in_view.statements.above(above).take(HEADERS_MAX);
        SyncMessage::Answer(Box::new(Answer {
            incarnation,
            stage: replica.recovery.stage(),
            evidence: state.evidence.clone(),
            certificates: state.certificates.newest(),
            new_view: in_view.new_view.clone(),
            headers: headers.map(|(_, header)| header.clone()).collect(),
            voted: signed_vote(me, in_view.voted.as_ref(), in_view.own_copy, |it| it.body.block.id()),
        }))
    }

    fn is_whole(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>) -> bool {
        // Certificates are checked only when it matters: there may be many, and an opening replica receives each.
        replica.recovery.next_stage(cx.committee(), cx.now()).is_some() && replica.has_goal(cx)
    }

    fn resume(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>) {
        if let Some(header) = replica.in_view.voted.clone() {
            replica.in_view.repeated = header.body.block.height;
            // S2. In a view that was left, the vote may never have left this replica: it is not repeated (`quit_view`).
            if !replica.is_quit() {
                cx.send(To::All, SyncMessage::Vote(header));
            }
        }
        if replica.is_quit() {
            return replica.begin_leaving(cx);
        }
        replica.join_view(cx);
        // A view that was idle has its next block no sooner.
        let until = cx.now().plus(replica.delta.times(4)).plus(replica.heartbeat_ns);
        cx.timers().set(Timer::Progress, until);
        let view = replica.view;
        if let Some(lock) = replica.in_view.own_new_view.clone() {
            cx.timers().cancel(Timer::Collect);
            cx.send(To::All, SyncMessage::NewView { view, lock });
        }
        if let Some(new_view) = replica.in_view.new_view.clone().filter(|new_view| new_view.by != cx.me()) {
            // §6: replicas that have received another NEW-VIEW must receive this one as well.
            cx.send_unheld(To::All, SyncMessage::Forward { new_view });
        }
        if let Some((height, base)) = replica.in_view.first_voted {
            cx.send(To::All, SyncMessage::FirstVote { view, height, base });
        }
        if let Some(header) = replica.in_view.proposed.clone()
            && let Some(parent) = replica.certificate_of((header.block.height.minus(1), header.block.parent))
        {
            cx.send(To::All, SyncMessage::Propose { header, parent });
        }
        Self::vote(replica, cx);
        // There may be no request yet, and the others wait for the first block.
        replica.try_propose(cx, IfIdle::Wait);
    }

    fn fall_silent(replica: &mut SyncHotStuff<V>) {
        replica.state.goal = None;
        let waits = replica.in_view.waits.clear();
        replica.in_view.unshown.extend(waits);
        replica.in_view.responsive = None;
    }

    fn fetches(replica: &mut SyncHotStuff<V>) -> &mut BlockFetches {
        &mut replica.in_view.fetches
    }

    fn is_complete(replica: &SyncHotStuff<V>, cx: &mut Context<'_, V>, id: BlockId) -> bool {
        !SyncHotStuff::<V>::lacks_body(cx, id) && replica.uncertified_parent(cx.blocks(), id).is_none()
    }

    fn ask_for(replica: &mut SyncHotStuff<V>, cx: &mut Context<'_, V>, id: BlockId, peer: ReplicaId) {
        replica.ask_for_parts(cx, id, peer);
    }

    fn views_heard(replica: &SyncHotStuff<V>) -> Range<View> {
        replica.state.entered.minus(1)..replica.view.plus(VIEWS_AHEAD).next()
    }

    fn locked(replica: &SyncHotStuff<V>) -> Height {
        replica.state.lock.tip.statement.height
    }
}

impl<V: Variant> SyncHotStuff<V> {
    /// Keeps a message of a view that has not begun at this replica. Its certificates count at once.
    fn keep_early(
        &mut self,
        cx: &mut Cx<'_, Self>,
        view: View,
        message: SyncMessage,
        seal: Seal,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        match &message {
            SyncMessage::Propose { parent, .. } => self.take_certificate(cx, parent),
            // It counts for locks, and decides when its view begins unless that view is too far ahead.
            SyncMessage::Notify(certificate) => {
                self.on_notify(cx, certificate, link)?;
                return Err(Reject::Early);
            }
            SyncMessage::NewView { lock, .. } | SyncMessage::Status { lock, .. } => {
                self.take_lock(cx, lock)?;
            }
            SyncMessage::Forward { new_view } => self.take_lock(cx, &new_view.body.lock)?,
            _ => {}
        }
        if view > self.view.plus(VIEWS_AHEAD) {
            self.state.is_behind = true;
            return Err(Reject::Early);
        }
        let header = message.header(&seal);
        if let Some(header) = &header
            && !Header::is_of_leader(header, cx.committee())
        {
            return Err(Reject::WrongSender);
        }
        let height = header.as_ref().map(|header| header.body.block.height);
        let is_kept = match &header {
            Some(header) if header.body.block.height > self.highest_handled() => {
                self.state.early.note_too_high(header);
                false
            }
            _ => {
                // Votes and proposals of each view.
                let most = self.window.saturating_mul(WINDOWS_AHEAD).saturating_mul(2 * VIEWS_AHEAD);
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                self.state.early.keep((view, height), message, seal, link, most)
            }
        };
        self.state.is_behind |= !is_kept;
        Err(Reject::Early)
    }

    /// Handles a message of the current view or an earlier one.
    pub(super) fn handle(
        &mut self,
        cx: &mut Cx<'_, Self>,
        message: SyncMessage,
        seal: Seal,
    ) -> Result<(), Reject> {
        match message {
            SyncMessage::Propose { header, parent } => self.on_propose(cx, seal, header, &parent),
            SyncMessage::Vote(header) => self.on_vote(cx, seal, &header),
            SyncMessage::FirstVote { view, height, base } => {
                let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
                self.count(cx, (view, height), base, seal.by, signature)
            }
            SyncMessage::NewView { view, lock } => {
                let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
                let new_view = Signed { body: SyncNewView { view, lock }, by: seal.by, signature };
                self.on_new_view(cx, new_view, seal.by)
            }
            SyncMessage::Status { view, lock } => self.on_status(cx, seal, view, &lock),
            SyncMessage::Blame(view) => self.on_blame(cx, seal, view),
            SyncMessage::Evidence(evidence) => self.on_evidence(cx, &evidence),
            SyncMessage::Forward { new_view } => self.on_new_view(cx, new_view, seal.by),
            SyncMessage::Notify(certificate) => self.on_notify(cx, &certificate, seal.by),
            SyncMessage::Lack { view, height, block } => self.on_lack(cx, seal.by, view, (height, block)),
            SyncMessage::Certified(certificate) => {
                self.take_certificate(cx, &certificate);
                Ok(())
            }
            SyncMessage::Ask { .. } | SyncMessage::Answer(_) => Err(Reject::Stale),
        }
    }
}
