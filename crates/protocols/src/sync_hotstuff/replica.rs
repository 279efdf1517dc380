//! One replica of any form: the state that all forms have, the handlers of the host's events, and the trait of what differs.
//!
//! The handlers that all forms share are in `recovery.rs`, `fetching.rs`, `chain_end.rs` and `leaving_view.rs`.

use super::attacks::{AttackMessage, attacks};
use super::block_fetches::BlockFetches;
use super::statements::{FIRST_VIEW, STATUS, leader};
use quorate_consensus::parts::blames::Blames;
use quorate_consensus::parts::chain::{Chain, Tip, empty_payload};
use quorate_consensus::parts::guarded_wait::GuardedWait;
use quorate_consensus::parts::recovery::{Recovery, RecoveryStage};
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::parts::synchrony::{Delta, SynchronyParams};
use quorate_consensus::parts::urgent_peer::UrgentPeer;
use quorate_consensus::{
    Abstention, AttackEntry, Certificate, CheckpointProof, Cx, Examined, Figures, Healed, LinkEvent, Note,
    OpenError, Past, PayloadRef, Protocol, Ready, Record, Reject, Seal, Spec, Status, Synchrony, To,
    Verified, Window,
};
use quorate_types::{
    Block, BlockId, Committee, Digest, Floors, Height, Incarnation, Kind, ReplicaId, Time, View, quorum,
};
use std::fmt::Debug;
use std::ops::Range;

/// Windows of heights above the committed one for which messages are handled. All blocks in flight fit, and a replica that
/// lags has room as well. A replica that is further behind learns from decided blocks of others.
pub(super) const WINDOWS_AHEAD: u64 = 16;
/// Windows in which a replica votes. One honest replica may commit all its votes before another one and vote on. The other
/// one must still handle these votes: it asks only for headers that a message has named.
pub(super) const WINDOWS_VOTED: u64 = WINDOWS_AHEAD / 2;

/// End of a chain: height and id of its last block.
pub(super) type End = (Height, BlockId);

/// Context of the handlers of a form.
pub(super) type Context<'a, F> = Cx<'a, SyncHotStuff<F>>;

/// Notes in the trace.
pub(super) mod noted {
    pub(in super::super) const PROPOSED: &str = "proposed";
    pub(in super::super) const VOTED: &str = "voted";
    pub(in super::super) const FIRST_VOTED: &str = "first vote";
    pub(in super::super) const REFUSED: &str = "base below the lock";
    /// Committed by a timer.
    pub(in super::super) const COMMITTED: &str = "committed";
    pub(in super::super) const COMMITTED_BY_VOTES: &str = "committed by votes";
    pub(in super::super) const BLAMED: &str = "blamed";
    pub(in super::super) const QUIT: &str = "left the view";
    pub(in super::super) const VIEW_CHANGE: &str = "view change";
    pub(in super::super) const VOTING: &str = "may vote again";
    pub(in super::super) const RUNNING: &str = "runs again";
    pub(in super::super) const SILENT: &str = "fell silent";
}

/// Reasons for which a view was left, for `status`.
pub(super) mod reason {
    pub(in super::super) const BLAMED: &str = "f + 1 have blamed its leader";
    pub(in super::super) const CONFLICT: &str = "its leader has equivocated";
}

/// Whether a leader without requests proposes an empty block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfIdle {
    /// Not yet: a request may arrive within a heartbeat.
    Wait,
    /// Yes: the others would take its silence for a crash.
    Propose,
}

/// Timers of all forms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// The 2 Δ of the oldest vote are over.
    Commit,
    /// The leader has made no progress in time: blame it.
    Progress,
    /// An idle leader proposes an empty block.
    Propose,
    /// The wait after leaving a view is over.
    Enter,
    /// All honest replicas have sent their locks to this leader.
    Collect,
    /// A missing body is due to be asked for.
    Fetch,
    /// Missed heights no longer prevent votes.
    Missed,
    /// A recovering replica asks again, or has waited long enough.
    Recover,
}

/// Rules and state in which the forms differ.
///
/// A form is a marker type: [`Plain`](super::Plain), [`Optimistic`](super::Optimistic) or
/// [`Rotating`](super::rotating::Rotating). Its functions receive the whole replica.
pub trait Form: Debug + Sized + Send + 'static {
    /// Name and properties.
    const SPEC: Spec;
    /// Costs of the good case.
    const FIGURES: Figures;
    /// Δ between leaving a view and entering the next one.
    const WAIT: u64;
    /// Δ that a view with a faulty leader may take, for the bound on recovery (§21).
    const BAD_VIEW: u64;
    /// Kinds of statements with one slot in each view.
    const SLOTS: &'static [Kind];
    /// Kinds of statements that a replica without memory does not make in views up to the one after the highest that the
    /// others have shown (§22). Votes are bounded by their heights.
    const FORGOTTEN: &'static [Kind];
    /// Whether the leader of the view is asked for every missing block.
    const FETCHES_FROM_LEADER: bool;
    /// Views by which the guard's floors move: each step is an entry of the log.
    const FLOOR_STEP: u64;
    /// Messages.
    type Message: AttackMessage;
    /// Durable facts.
    type Record: Record;
    /// State of one view. A fresh value replaces it when the view changes.
    type InView: Debug + Send;
    /// State that outlives views.
    type State: Debug + Send;

    /// Returns how many views with faulty leaders may pass before a good one (§21).
    fn bad_views(committee: &Committee) -> usize;
    /// Returns the state of a replica that knows nothing yet.
    fn open(params: &SynchronyParams, past: &Past<Self::Record>, n: usize, now: Time) -> Self::State;
    /// Returns the state of a view that begins.
    fn in_view(delta: Delta) -> Self::InView;
    /// Restores one durable fact.
    fn restore(replica: &mut SyncHotStuff<Self>, record: Self::Record);
    /// Handles a verified message that arrived over the link of `link`.
    ///
    /// # Errors
    /// The reason for which the message had no (further) effect.
    fn on_message(
        replica: &mut SyncHotStuff<Self>,
        cx: &mut Context<'_, Self>,
        message: Self::Message,
        seal: Seal,
        link: ReplicaId,
    ) -> Result<(), Reject>;
    /// Handles a timer.
    fn on_timer(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, timer: Timer);
    /// Handles a block that is complete.
    fn on_ready(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, block: BlockId);
    /// Votes for all that may be voted for now: for the base of the view if the form has such votes, then for headers.
    fn vote(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>) {
        Self::vote_for_headers(replica, cx);
    }
    /// Votes for headers that may be voted for now.
    fn vote_for_headers(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>);
    /// Proposes, if this replica leads and may.
    fn propose(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, if_idle: IfIdle);
    /// Commits the highest block whose wait is over, if the guard is sound.
    fn commit_waits(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>);
    /// Notes that a timer has committed this block.
    fn note_timer_commit(replica: &mut SyncHotStuff<Self>, tip: Tip);
    /// Forgets state that a new committed block has settled.
    fn settle(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>);
    /// Enters a view.
    fn enter(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, view: View);
    /// Leaves a view that f + 1 replicas blame.
    ///
    /// # Errors
    /// Fails when the view is over already.
    fn leave_blamed(
        replica: &mut SyncHotStuff<Self>,
        cx: &mut Context<'_, Self>,
        blames: Certificate,
    ) -> Result<(), Reject>;
    /// Returns the question of a recovering replica.
    fn ask(replica: &SyncHotStuff<Self>) -> Self::Message;
    /// Returns the answer to a recovering peer that knows all headers up to `above`.
    fn answer(
        replica: &SyncHotStuff<Self>,
        me: ReplicaId,
        incarnation: Incarnation,
        above: Height,
    ) -> Self::Message;
    /// Whether this silent replica has all certified blocks without which it could not vote (§18). Missing ones are fetched.
    fn is_whole(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>) -> bool;
    /// Repeats the last statements unchanged and begins the waits of the view anew: silence is over.
    fn resume(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>);
    /// Ends all waits: this replica has become silent.
    fn fall_silent(replica: &mut SyncHotStuff<Self>);
    /// Returns the blocks that are being fetched.
    fn fetches(replica: &mut SyncHotStuff<Self>) -> &mut BlockFetches;
    /// Whether nothing of a block has to be fetched.
    fn is_complete(replica: &SyncHotStuff<Self>, cx: &mut Context<'_, Self>, id: BlockId) -> bool;
    /// Asks a peer for the missing parts of a block.
    fn ask_for(replica: &mut SyncHotStuff<Self>, cx: &mut Context<'_, Self>, id: BlockId, peer: ReplicaId);
    /// Returns the views whose messages are verified.
    fn views_heard(replica: &SyncHotStuff<Self>) -> Range<View>;
    /// Returns the height of the lock.
    fn locked(replica: &SyncHotStuff<Self>) -> Height;
}

/// A replica of one form.
#[derive(Debug)]
pub struct SyncHotStuff<F: Form> {
    pub(super) delta: Delta,
    pub(super) heartbeat_ns: u64,
    /// L.
    pub(super) window: u64,
    /// Height of the last stable checkpoint.
    pub(super) stable: Height,
    pub(super) chain: Chain,
    pub(super) view: View,
    /// Leader of the view.
    pub(super) leader: ReplicaId,
    urgent: UrgentPeer,
    /// Set while the view is left and the next one has not begun.
    pub(super) leaving: Option<GuardedWait>,
    /// State of the form for this view.
    pub(super) in_view: F::InView,
    /// State of the form for all views.
    pub(super) state: F::State,
    pub(super) blames: Blames,
    pub(super) recovery: Recovery,
    /// The last view of which this replica may have forgotten something, because it has lost its disk.
    pub(super) forgotten: View,
    pub(super) view_changes: u64,
    pub(super) last_view_change: &'static str,
}

impl<F: Form> Protocol for SyncHotStuff<F> {
    const SPEC: Spec = F::SPEC;
    type Message = F::Message;
    type Timer = Timer;
    type Record = F::Record;
    type Params = SynchronyParams;

    fn open(
        cx: &mut Cx<'_, Self>,
        params: SynchronyParams,
        past: Past<F::Record>,
    ) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::synchronous_faults(n) {
            let name = F::SPEC.name;
            return Err(OpenError::Committee(format!("{name} needs n >= 2f + 1, not n = {n} and f = {f}")));
        }
        params.check()?;
        let mut replica = Self::new(&params, &past, n, cx.now());
        for record in past.records {
            F::restore(&mut replica, record);
        }
        for (height, id) in past.decided {
            replica.chain.note_decided(height, id);
        }
        replica.find_leader(cx);
        replica.adopt_decided(cx);
        replica.continue_recovery(cx);
        Ok(replica)
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<F::Message>) -> Result<(), Reject> {
        let link = message.link();
        let (message, seal) = message.into_parts();
        F::on_message(self, cx, message, seal, link)
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Timer) {
        F::on_timer(self, cx, timer);
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, _how: Ready) {
        F::on_ready(self, cx, block);
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        F::propose(self, cx, IfIdle::Wait);
    }

    fn show(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let report = self.report(cx.me(), Incarnation::ZERO, Height::ZERO);
        cx.send_unheld(To::One(peer), report);
    }

    /// §22: no statement of a view in views up to V + 1, and no vote up to the height H + L.
    fn abstain(&self, cx: &mut Cx<'_, Self>) -> Abstention {
        let known = cx.blocks().iter().map(|(_, block)| block.height).max().unwrap_or_default();
        let highest = known.max(self.chain.committed().height).max(self.stable);
        Abstention::up_to(F::FORGOTTEN, self.view.next(), highest.plus(self.window))
    }

    fn remember(&mut self, _: &mut Cx<'_, Self>) -> bool {
        self.forgotten = self.view.next();
        true
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, _height: Height, _fresh: u32) {
        F::propose(self, cx, IfIdle::Wait);
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        self.chain.note_decided(height, block);
        self.adopt_decided(cx);
        F::vote(self, cx);
        F::propose(self, cx, IfIdle::Wait);
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, proof: &CheckpointProof) {
        let stable = &proof.checkpoint;
        if stable.height <= self.stable {
            return;
        }
        self.stable = stable.height;
        self.adopt_tip(cx, Tip { view: stable.view, height: stable.height, id: stable.block });
        F::vote(self, cx);
        F::propose(self, cx, IfIdle::Wait);
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        match what {
            LinkEvent::Gap => self.on_gap(cx, peer),
            LinkEvent::Back => self.on_connected(cx, peer),
        }
    }

    fn on_sound(&mut self, cx: &mut Cx<'_, Self>) {
        self.try_enter(cx);
        F::commit_waits(self, cx);
    }

    fn synchrony(params: &SynchronyParams) -> Option<Synchrony> {
        Some(params.synchrony())
    }

    fn window(&self) -> Window {
        let committed = self.chain.committed().height;
        // §8, Lemma 1 b: this replica must also know of headers that are too high to be kept.
        Window { views: F::views_heard(self), heights: self.stable.min(committed)..Height::MAX }
    }

    fn floors(&self) -> Floors {
        let view = self.view.minus(1);
        let floor = View(view.0.saturating_sub(view.0 % F::FLOOR_STEP));
        // A view may extend the stable block itself.
        Floors { height: self.stable, views: F::SLOTS.iter().map(|kind| (*kind, floor)).collect() }
    }

    fn status(&self) -> Status {
        Status {
            view: self.view,
            leader: self.leader,
            normal: !self.is_quit() && !self.recovery.is_silent(),
            locked: F::locked(self),
            committed: self.chain.committed().height,
            last_view_change: self.last_view_change,
            view_changes: self.view_changes,
            patience_ns: 0,
        }
    }
}

impl<F: Form> Examined for SyncHotStuff<F> {
    const FIGURES: Option<Figures> = Some(F::FIGURES);
    const ATTACKS: &'static [AttackEntry] = attacks::<F::Message>();

    fn recovery(params: &SynchronyParams, committee: &Committee, healed: &Healed) -> Time {
        params.recovery(committee, healed, F::BAD_VIEW, F::bad_views(committee))
    }

    fn exam_params(delta_ns: u64, guarded: bool) -> SynchronyParams {
        SynchronyParams::exam(delta_ns, guarded)
    }
}

impl<F: Form> SyncHotStuff<F> {
    fn new(params: &SynchronyParams, past: &Past<F::Record>, n: usize, now: Time) -> Self {
        let stable = past.checkpoint.checkpoint;
        Self {
            delta: params.delta(),
            heartbeat_ns: params.heartbeat_ns(),
            window: past.window,
            stable: stable.height,
            chain: Chain::new(Tip { view: stable.view, height: stable.height, id: stable.block }),
            view: FIRST_VIEW,
            leader: ReplicaId(0),
            urgent: UrgentPeer::default(),
            leaving: None,
            in_view: F::in_view(params.delta()),
            state: F::open(params, past, n, now),
            blames: Blames::default(),
            recovery: Recovery::open(params, past.incarnation, now),
            forgotten: last_forgotten(&past.forgotten),
            view_changes: 0,
            last_view_change: "",
        }
    }

    /// Replaces the state of the view by that of another view, which is not left.
    pub(super) fn set_view(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        self.view = view;
        self.find_leader(cx);
        self.leaving = None;
        self.in_view = F::in_view(self.delta);
    }

    /// Determines the leader of the view. S17, R16: its messages are read first.
    fn find_leader(&mut self, cx: &mut Cx<'_, Self>) {
        self.leader = leader(cx.committee(), self.view);
        self.urgent.follow(cx, Some(self.leader));
    }

    /// Whether the view was left.
    pub(super) fn is_quit(&self) -> bool {
        self.leaving.is_some()
    }

    /// Whether this replica may commit by timers.
    pub(super) fn is_running(&self) -> bool {
        self.recovery.stage() == RecoveryStage::Running
    }

    /// Returns the highest height for which messages are handled.
    pub(super) fn highest_handled(&self) -> Height {
        self.chain.committed().height.plus(self.window.saturating_mul(WINDOWS_AHEAD))
    }

    /// Returns the state of a block; genesis and the committed block need nothing.
    pub(super) fn ready(&self, cx: &Cx<'_, Self>, id: BlockId) -> Option<Ready> {
        if id == BlockId::ZERO || id == self.chain.committed().id { Some(Ready::Valid) } else { cx.ready(id) }
    }

    /// Sets a timer to some Δ from now.
    pub(super) fn arm(&self, cx: &mut Cx<'_, Self>, timer: Timer, deltas: u64) {
        let at = cx.now().plus(self.delta.times(deltas));
        cx.timers().set(timer, at);
    }

    /// Whether the leader proposes now: with a payload, or without one if `must_propose`. Otherwise its timer is set
    /// for an empty block.
    pub(super) fn proposes_now(
        &self,
        cx: &mut Cx<'_, Self>,
        payload: Option<PayloadRef>,
        must_propose: bool,
    ) -> bool {
        let proposes = payload.is_some() || must_propose;
        if proposes {
            cx.timers().cancel(Timer::Propose);
        } else if cx.timers().get(Timer::Propose).is_none() {
            let at = cx.now().plus(self.heartbeat_ns);
            cx.timers().set(Timer::Propose, at);
        }
        proposes
    }

    /// Returns a new block of this leader, which the block tree keeps.
    pub(super) fn new_block(
        &self,
        cx: &mut Cx<'_, Self>,
        (height, parent): End,
        payload: Option<PayloadRef>,
        extra: Digest,
    ) -> Block {
        let block = Block {
            parent,
            height: height.next(),
            view: self.view,
            proposer: cx.me(),
            time_ns: payload.map_or(0, |payload| payload.time_ns),
            payload: payload.map_or_else(empty_payload, |payload| payload.id),
            extra,
        };
        self.note(cx, noted::PROPOSED, block.height);
        // A checkpoint may be installed before the own copy arrives, and it forgets payloads that no block names.
        cx.blocks().insert(block.clone());
        block
    }

    pub(super) fn note(&self, cx: &mut Cx<'_, Self>, what: &'static str, height: Height) {
        cx.note(Note { what, view: self.view, height });
    }
}

/// Returns the last view of which a replica that has lost its disk may have forgotten something.
fn last_forgotten(floors: &Floors) -> View {
    if floors.height == Height::MAX {
        return View::MAX;
    }
    let of_status = floors.views.iter().find(|(kind, _)| *kind == STATUS);
    of_status.map_or(View::ZERO, |(_, view)| view.minus(1))
}
