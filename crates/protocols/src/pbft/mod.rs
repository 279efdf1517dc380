//! # PBFT
//!
//! Decides one block per height, many heights at a time, in three message delays under partial synchrony, by two rounds of
//! votes under a leader. In variant H (`pbft`, [`Linked`]) the link authenticates votes. In variant S (`pbft-signed`,
//! [`AllSigned`]) votes are signed, and a VIEW-CHANGE shows certificates.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | partial synchrony | n ≥ 3f + 1 | `quorum::byzantine` | 3 δ | Castro, Liskov: Practical Byzantine Fault Tolerance, OSDI 1999, §4; TOCS 20(4), 2002 |
//!
//! ## Flow
//! ```text
//! leader   PRE-PREPARE ─┬──────────────────┬─ COMMIT ─┬─ decide
//! backup                └▶ ready ─ PREPARE ┼─ COMMIT ─┼─ decide    PREPARE and COMMIT go to all
//! backup                └▶ ready ─ PREPARE ┼─ COMMIT ─┼─ decide
//! backup                └▶ ready ─ PREPARE ┴─ COMMIT ─┴─ decide
//! up to W heights at a time, inside (h, h + L]; executed in order by the host
//! every `status_ms`: STATUS to all; each replica repeats its own messages that the sender lacks
//!
//! view change: a bundle is overdue ─ SUSPECT ─▶ f + 1 of them: the view is left
//! all      VIEW-CHANGE {h, P, Q} ─▶ new leader: NEW-VIEW {V, X = select(V)} ─▶ all check it
//! all      the view begins: X goes through PREPARE and COMMIT again, then proposals above X
//! ```
//! Golden scripts: `scripts/`; the first is the paper's figure. Costs: `figures.rs`, `docs/figures.md`. **Serial syncs: 3**
//! (the leader before PRE-PREPARE, a backup before PREPARE, all before COMMIT). Quorums need only the fastest disks, except
//! at the leader.
//!
//! Terms of the paper: primary = leader, sequence number = height, batch = payload of a block, d = `BlockId`, h = `stable`,
//! L = `window`, W = `blocks_in_flight`, X = `picks`, Tv and Treq = timers `View` and `Request`.
//!
//! A § without a paper's name is a section of the specification, `docs/specification/pbft.md`; the table's second column
//! names those of the paper.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | P1 | OSDI §4.2 | one PRE-PREPARE per view and height: the first | `normal::on_pre_prepare` | `p1_one_pre_prepare_per_view_and_height` |
//! | P2 | §4.2 | only the leader of the view proposes, and its block names this view, height and leader | `normal::on_pre_prepare` | `p2_proposal_with_wrong_fields_is_refused` |
//! | P3 | §4.2, §4.3 | h < height ≤ h + L, in every handler | `check_window` | `p3_messages_outside_the_window_are_refused` |
//! | P4 | §4.2 | a backup sends PREPARE when the block is ready and valid, never for an invalid one | `normal::consider` | `p4_prepare_only_when_ready_and_valid` |
//! | P5 | | a block whose only fault is a MAC is accepted when f + 1 replicas have accepted it | `normal::consider` | `p5_unvouched_needs_f_plus_1` |
//! | P6 | §4.2 | prepared: the PRE-PREPARE and Q - 1 matching PREPAREs of distinct backups | `normal::check_prepared` | `p6_prepared_needs_exactly_q_minus_1` |
//! | P7 | §4.2 | a PREPARE of the leader is refused, and the leader sends none | `normal::on_prepare` | `p7_prepare_of_the_leader_is_refused` |
//! | P8 | §4.2 | decided: Q COMMITs of distinct replicas for one block in one view, in any view | `normal::check_committed` | `p8_decided_needs_q_in_one_view` |
//! | P9 | | own messages count from their own copies | `normal` | `p9_own_messages_count_from_the_own_copy` |
//! | P10 | | executed heights still take part in voting, and are never decided twice | `normal` | `p10_executed_heights_still_take_part` |
//! | P11 | §4.2 | at most W blocks in flight | `normal::try_propose` | `p11_pipeline_is_bounded` |
//! | P12 | §4.3 | a stable checkpoint moves the window and drops all heights up to it | `on_checkpoint` | `p12_checkpoint_moves_the_window` |
//! | P13 | | two votes of each sender and height are kept: the first of a view, for the newest two views | `votes` | `p13_votes_of_a_peer_take_bounded_room` |
//! | Q1 | | Q is recorded before PRE-PREPARE and PREPARE leave | `normal::propose`, `normal::consider` | `q1_q_is_recorded_before_pre_prepare_and_prepare` |
//! | Q2 | | P is recorded before COMMIT leaves | `normal::check_prepared` | `q2_p_is_recorded_before_commit` |
//! | Q3 | | a restarted replica repeats the same messages, and sends no other ones | `open` | `q3_restart_repeats_identical_messages_only` |
//! | R1 | TOCS §5.2 | STATUS: each replica repeats those of its own messages that the sender lacks | `retransmit::on_status` | `r1_status_is_answered_by_the_author` |
//! | R2 | | the loss of any message stops no progress | `retransmit` | `r2_message_loss_never_stalls` |
//! | R3 | | a gap on a link: own messages of undecided heights are sent again to that peer | `retransmit::on_gap` | `r3_gap_is_answered_with_own_messages` |
//! | R4 | | a missing decided block is requested from each of its voters in turn | `retransmit::want_next` | `r4_missing_block_is_requested_from_each_voter_in_turn` |
//! | V1 | §4.4 | view and own VIEW-CHANGE are recorded before it leaves; after it no vote in an older view, nor in one that has not begun; the same bytes are sent again | `view_change::start_view_change`, `normal` | `v1_*` |
//! | V2 | §4.4, TOCS §4.4 | a VIEW-CHANGE names heights in its window and views below its own; the first of a sender and view counts | `ViewChange::check`, `on_view_change` | `v2_a_view_change_must_be_well_formed` |
//! | V3 | §4.5.2 | f + 1 distinct senders in later views make others join, in the greatest view that f + 1 have reached | `view_change::check_join` | `v3_f_plus_1_view_changes_make_others_join` |
//! | V4 | §4.5.2 | the view timer runs when Q senders have left all older views, doubles and is capped | `arm_when_quorum_left`, `suspect` | `v4_*` |
//! | V5 | TOCS §4.4 | `select`: A1 and A2 for a block, highest view first, B for null, else wait | `select` | `v5_*` |
//! | V6 | | the new leader takes more than Q view changes if `select` needs them | `new_view::try_new_view` | `v6_leader_waits_for_as_many_view_changes_as_select_needs` |
//! | V7 | | NEW-VIEW, and Q for all of X, are recorded before it leaves | `new_view::try_new_view`, `adopt` | `v7_*` |
//! | V8 | §4.4 | a NEW-VIEW is from its leader, has Q valid view changes of distinct senders for its view, and its X is what `select` computes from them | `new_view::check_new_view` | `v8_wrong_new_view_is_refused` |
//! | V9 | | a wrong NEW-VIEW ends the view only at replicas that know that Q have left older views | `new_view::on_new_view` | `v9_wrong_new_view_alone_does_not_end_a_view` |
//! | V10 | | the entered view and its NEW-VIEW are recorded before the first PREPARE | `new_view::enter` | `v10_the_view_is_recorded_before_its_first_prepare` |
//! | V11 | §4.4 | X is voted on again, executed or not, and executed once | `new_view::adopt` | `v11_*` |
//! | V12 | | missing blocks of X are fetched from the leader and from replicas that claim to have accepted them | `new_view::want_from_claimants` | `v11_blocks_taken_over_are_voted_on_again` |
//! | V13 | | a replica that is behind receives the proof that let this replica into its view | `entry_proof` | `v13_*` |
//! | V14 | | a few proposals of a view that has not begun wait for it | `normal::keep_early` | `v14_*` |
//! | T1 | §4.5.2 | timers follow the oldest waiting bundle | `suspect::watch_leader` | `t2_*`, `t5_*` |
//! | T2 | | an overdue bundle raises SUSPECT, which is repeated and withdrawn | `suspect::judge_leader` | `t2_*` |
//! | T3 | | overload does not count as a dead leader | `suspect::judge_leader` | `t3_*` |
//! | T4 | | f + 1 SUSPECTs of one view end it | `suspect::on_suspect` | `t4_*` |
//! | T5 | §4.5.2 | from the beginning of a view to its first execution only the view timer runs; then timers are short again | `suspect::note_execution` | `t5_*` |
//! | T7 | | a lagging replica is patient while it catches up, but not for ever | `suspect::judge_leader` | `t7_*` |
//! | T6 | §4.5.2 | a view timer that expires ends the view | `suspect::on_view_timer` | `v4_*`, `t5_*` |
//!
//! | S1 | OSDI §4.2 | variant S: PRE-PREPARE, PREPARE and COMMIT are signed, as the same statements | `variant` | `s1_*` |
//! | S2 | | every signature of every certificate is checked before a handler sees it | `certificates::claim_certified` | `s2_*` |
//! | S3 | §4.4 | a certificate: the PRE-PREPARE of the view's leader and Q - 1 PREPAREs of others, matching P | `certificates::check_certified` | `s3_*` |
//! | S4 | §4.4 | `select`: the certificate of the highest view, else null | `select::pick_by_certificate` | `s4_*` |
//! | S5 | | certificates are recorded with P | `record` | `s5_*` |
//! | S6 | | no block prepares without a complete certificate; the leader signs the blocks that it takes over | `pledge` | `s6_*`, `s7_*`, `s8_*` |
//! | S9 | | two signed statements for one slot are evidence; two proposals also raise a suspicion | `pledge::note_pledge` | `s9_*` |
//!
//! ## Invariants
//! I1: no two blocks are prepared at one height in one view. Two quorums share an honest replica, which accepts one
//! PRE-PREPARE per view and height: kept by P1, P6, Q1 and the host's guard.
//! I2: no two blocks are decided at one height: from I1 inside a view, from I4 across views; asserted in
//! `normal::check_committed` and `on_decided`, which raise the alarm; watched by the agreement oracle.
//! I3: P and Q forget nothing above the stable checkpoint: kept by `on_checkpoint` alone dropping entries.
//! I4: every NEW-VIEW after a decision picks the decided block, or shows a checkpoint above it: kept by V1, V5, V8
//! (in variant S by S3, S4) and I3.
//!
//! ## What survives a crash
//! - Q, [`PbftRecord::PrePrepared`] · before PRE-PREPARE and PREPARE · else a restarted replica could accept another block,
//!   or a leader propose one, at the same height and view.
//! - P, [`PbftRecord::Prepared`], in variant S with its certificate · before COMMIT · else a later view could lose a decided
//!   block.
//! - the current view, whether it has begun, and the proof that let this replica in, [`PbftRecord::Entered`] · before any
//!   message of the view · else the replica could vote in a view that it has left, or forget the blocks that the view took
//!   over.
//! - the own VIEW-CHANGE and NEW-VIEW · before they leave · else a restarted replica could equivocate. Their signatures are
//!   made again: one key signs the same bytes the same way.
//!
//! Votes of others and accepted but not yet pre-prepared proposals are lost in a crash; STATUS restores them.
//!
//! ## Deviations from the paper
//! - PREPARE and COMMIT carry neither a signature nor a MAC of their own: the link (TLS) authenticates them. So no replica
//!   relays them; their authors send them again.
//! - COMMITs of any view in the window count (P8): a replica left behind in an older view can still decide.
//! - No replica executes tentatively, and reads are ordered like writes.
//! - An expired request timer raises a suspicion that binds to nothing; f + 1 suspicions end the view. A replica that has
//!   sent a VIEW-CHANGE never votes in older views again, so a short disturbance of the network must not cost a voter.
//! - P and Q are claims, not certificates, and the new leader waits until `select` has a result (TOCS §4.4 without
//!   acknowledgements of view changes, because these are signed).
//! - The new leader's Q names all of X before its NEW-VIEW leaves, bodies or not, as with a PRE-PREPARE. Its NEW-VIEW counts
//!   as its vote, so the next `select` must find blocks prepared by it in f + 1 honest Qs.
//! - Variant S: the PRE-PREPARE of a block that a view takes over names the block id alone, in a message of its own.
//! - Overload excuses a leader only as long as heights are decided or executed.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, client replies: see `quorate-replica`.

mod byzantine;
mod certificates;
mod certified;
mod entry_proof;
mod figures;
mod kinds;
mod message;
mod new_view;
mod normal;
mod params;
mod pledge;
mod record;
mod retransmit;
mod select;
mod state;
mod suspect;
#[cfg(test)]
mod tests;
mod variant;
mod view_change;
mod view_message;

pub use certified::Certified;
use kinds::STATEMENTS;
pub use kinds::{COMMIT, ENTRY, NEW_VIEW, PRE_PREPARE, PREPARE, STATUS, SUSPECT, VIEW_CHANGE};
pub use message::{MissingAtHeight, PbftMessage, StatusReport, Vote};
pub use params::PbftParams;
pub use record::PbftRecord;
pub use variant::{AllSigned, Linked, SignedMessage, Variant};
pub use view_message::{BlockClaim, EntryProof, NewView, ViewChange};

use pledge::Pledge;
use quorate_consensus::parts::votes::Votes;
use quorate_consensus::{
    Abstention, Alarm, AttackEntry, CheckpointProof, Cx, Examined, Figures, Healed, LinkEvent, Note,
    OpenError, Past, Protocol, Ready, Reject, Seal, Signed, Spec, Status, To, Verified, Window,
};
use quorate_types::{Block, BlockId, Committee, Floors, Height, ReplicaId, Signature, Time, View, quorum};
use state::{InView, PeerReports, Progress};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use suspect::Suspicion;
use view_change::ViewChanges;

/// Views above the current one whose messages are verified (§2).
const VIEWS_AHEAD: u64 = 8;

/// Notes in the trace.
mod noted {
    pub(super) const PROPOSED: &str = "proposed";
    pub(super) const PRE_PREPARED: &str = "pre-prepared";
    pub(super) const PREPARED: &str = "prepared";
    pub(super) const COMMITTED: &str = "committed";
    pub(super) const INVALID: &str = "invalid proposal";
    pub(super) const VIEW_CHANGE: &str = "view change";
    pub(super) const NEW_VIEW: &str = "new view";
}

/// Reasons for view changes, for status.
mod reason {
    /// A bundle of this replica is overdue, and f + 1 replicas suspect the leader.
    pub(super) const OVERDUE: &str = "request overdue";
    /// f + 1 replicas suspect the leader; this replica does not.
    pub(super) const SUSPECTED: &str = "f + 1 suspect the leader";
    /// The leader has proposed an invalid block, or two blocks in one slot.
    pub(super) const PROVED: &str = "the leader is faulty";
    /// The view did not begin in time.
    pub(super) const NO_NEW_VIEW: &str = "no valid NEW-VIEW in time";
    /// The view had begun, and no height was executed in it.
    pub(super) const IDLE: &str = "nothing executed in time";
    /// f + 1 replicas had left for a later view.
    pub(super) const JOINED: &str = "f + 1 joined a later view";
    /// The NEW-VIEW was wrong.
    pub(super) const BAD_NEW_VIEW: &str = "wrong NEW-VIEW";
    /// A later view had begun without this replica.
    pub(super) const SHOWN: &str = "a later view had begun";
    /// The view begins. The reason for the end of the view before stays.
    pub(super) const BEGUN: &str = "begun";
}

const MS: u64 = 1_000_000;

/// Timers of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Send STATUS.
    Status,
    /// A bundle is overdue.
    Request,
    /// The view has not begun in time, or no height was executed in it.
    View,
    /// Send VIEW-CHANGE again.
    Resend,
}

/// State of one height.
#[derive(Debug, Default)]
struct Instance {
    /// The first PRE-PREPARE of the latest view with one; the own one from its own copy.
    proposal: Option<(View, BlockId)>,
    /// Q: blocks with the latest view in which each was pre-prepared at this replica. Recorded.
    pre_prepared: Vec<(BlockId, View)>,
    /// P: the block that prepared at this replica, in the latest view in which one did. Recorded.
    prepared: Option<(BlockId, View)>,
    /// Certificate of P, in variant S. Recorded with it.
    certified: Option<Box<Certified>>,
    /// The leader's signed PRE-PREPARE, in variant S.
    pledge: Option<Pledge>,
    /// PREPAREs of the current view and later ones.
    prepares: Votes,
    /// COMMITs of any view.
    commits: Votes,
    /// The decided block.
    decided: Option<BlockId>,
    /// The replica from which the block was requested last.
    asked: Option<ReplicaId>,
}

/// Variant S: every vote is signed.
pub type PbftSigned = Pbft<AllSigned>;

/// State of one replica.
#[derive(Debug)]
pub struct Pbft<V: Variant = Linked> {
    variant: PhantomData<V>,
    params: PbftParams,
    /// L.
    window: u64,
    /// K.
    checkpoint_every: u64,
    /// The current view.
    current: InView,
    /// The last view that has begun at this replica. Its COMMITs may still decide while the replica waits for a later view.
    begun: View,
    /// The lowest view that P or Q names, as of the last stable checkpoint.
    low_view: View,
    /// View changes, own ones and received ones.
    changes: ViewChanges,
    /// Proposals of the view to come, or of the one after it, with their signatures.
    early: Vec<(View, Block, Option<Signature>)>,
    /// Suspicions of leaders that last longer than a view.
    suspicion: Suspicion,
    /// Proof of the last stable checkpoint.
    proof: CheckpointProof,
    progress: Progress,
    /// Heights above the stable checkpoint, at most L of them.
    instances: BTreeMap<Height, Instance>,
    peers: PeerReports,
}

impl<V: Variant> Protocol for Pbft<V> {
    const SPEC: Spec = V::SPEC;
    type Message = V::Message;
    type Timer = Timer;
    type Record = PbftRecord;
    type Params = PbftParams;

    fn open(cx: &mut Cx<'_, Self>, params: PbftParams, past: Past<PbftRecord>) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::byzantine_faults(n) {
            return Err(OpenError::Committee(format!("pbft needs n >= 3f + 1, not n = {n} and f = {f}")));
        }
        params.check(past.window, cx.committee())?;
        V::check_window(past.window, cx.committee())?;
        let stable = past.checkpoint.checkpoint.height;
        let leader = params.leader(cx.committee(), View::ZERO);
        let mut pbft = Self {
            variant: PhantomData,
            params,
            window: past.window,
            checkpoint_every: past.checkpoint_every,
            current: InView::first(leader, cx.now()),
            begun: View::ZERO,
            low_view: View::ZERO,
            changes: ViewChanges::default(),
            early: Vec::new(),
            suspicion: Suspicion::new(cx.now()),
            proof: past.checkpoint,
            progress: Progress::new(stable, past.executed),
            instances: BTreeMap::new(),
            peers: PeerReports::default(),
        };
        pbft.restore(past.records);
        pbft.current.leader = pbft.leader_of(cx, pbft.current.view);
        pbft.begun = if pbft.current.normal { pbft.current.view } else { pbft.current.view.minus(1) };
        for (height, block) in past.decided.into_iter().filter(|(height, _)| *height > stable) {
            pbft.instance(height).decided = Some(block);
        }
        pbft.advance();
        pbft.progress.committed = pbft.progress.decided;
        pbft.read_leader_first(cx);
        pbft.resume_view(cx);
        pbft.resume(cx)?;
        Ok(pbft)
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<V::Message>) -> Result<(), Reject> {
        let (message, seal) = message.into_parts();
        match message.into() {
            PbftMessage::PrePrepare { view, block } => self.on_pre_prepare(cx, seal, view, block),
            PbftMessage::Prepare(vote) => self.on_prepare(cx, seal, vote),
            PbftMessage::Commit(vote) => self.on_commit(cx, seal, vote),
            PbftMessage::Again(vote) => self.on_again(cx, seal, vote),
            PbftMessage::Status(report) => self.on_status(cx, seal.by, &report),
            PbftMessage::ViewChange(change) => self.on_view_change(cx, signed(*change, seal)?),
            PbftMessage::NewView(new) => self.on_new_view(cx, signed(*new, seal)?),
            PbftMessage::Suspect { view, on } => self.on_suspect(cx, seal.by, view, on),
            PbftMessage::Entry { proof, .. } => self.on_entry(cx, proof),
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Timer) {
        match timer {
            Timer::Status => self.on_status_timer(cx),
            Timer::Request => self.on_request_timer(cx),
            Timer::View => self.on_view_timer(cx),
            Timer::Resend => self.on_resend_timer(cx),
        }
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, how: Ready) {
        let Some(height) = cx.blocks().get(block).map(|block| block.height) else {
            return;
        };
        self.consider(cx, height, block, how);
        // V7: a leader votes for the blocks that it took over before their bodies are available.
        if height <= self.last_taken_over() {
            let is_taken_over = |known: &Instance| known.proposal == Some((self.current.view, block));
            if self.current.leader == cx.me() && self.instances.get(&height).is_some_and(is_taken_over) {
                cx.already_proposed(block);
            }
            self.check_prepared(cx, height);
        }
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        self.try_propose(cx);
        self.watch_leader(cx);
        if cx.pending().oldest.is_some() {
            self.send_status_soon(cx);
        }
    }

    fn show(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        if self.current.proof != EntryProof::Nothing {
            self.send_entry(cx, peer);
        }
    }

    fn leave_view(&mut self, cx: &mut Cx<'_, Self>) {
        if self.current.normal {
            cx.send_unheld(To::All, PbftMessage::Suspect { view: self.current.view, on: true }.into());
        }
    }

    /// §20, 2 and 3: silent in every view up to V + 1, and about every height until a checkpoint of H + 2L is stable.
    fn abstain(&self, _: &mut Cx<'_, Self>) -> Abstention {
        let bounds = Abstention::up_to(&STATEMENTS, self.current.view.next(), Height::ZERO);
        let stable = self.progress.stable.plus(self.window.saturating_mul(2));
        Abstention { stable, ..bounds }
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, height: Height, fresh: u32) {
        self.progress.executed = self.progress.executed.max(height);
        self.advance();
        self.note_execution(cx, fresh);
        // The host gives no payload while execution lags too far.
        self.try_propose(cx);
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        if height <= self.progress.stable {
            return;
        }
        match self.instance(height).decided.replace(block) {
            // I2. The host has accepted the decision already; the protocol raises the alarm.
            Some(first) if first != block => cx.alarm(Alarm::SafetyBroken { height, first, second: block }),
            _ => {
                self.note_decision(cx.now());
                self.note_height(cx, height);
                self.advance();
                self.try_propose(cx);
            }
        }
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, proof: &CheckpointProof) {
        let stable = &proof.checkpoint;
        if stable.height <= self.progress.stable {
            return;
        }
        // P12. §7: the proof is durable, so P, Q and votes up to it may go. No other code drops them (I3).
        self.progress.stable = stable.height;
        self.proof = proof.clone();
        self.instances = self.instances.split_off(&self.progress.stable.next());
        self.low_view = self.lowest_view();
        self.advance();
        // The window may reach more of the blocks that the view took over.
        self.adopt(cx);
        // The leader of the view to come may take over blocks that it could not before.
        self.try_new_view(cx);
        self.try_propose(cx);
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        if what == LinkEvent::Gap {
            self.on_gap(cx, peer);
        }
    }

    fn window(&self) -> Window {
        Window {
            views: self.low_view.min(self.begun)..self.current.view.plus(VIEWS_AHEAD).next(),
            heights: self.progress.stable.next()..self.progress.stable.plus(self.window).next(),
        }
    }

    fn floors(&self) -> Floors {
        // §2. COMMITs of older views may still be sent again as long as P names those views.
        let low = [PRE_PREPARE, PREPARE, COMMIT].map(|kind| (kind, self.low_view));
        let current = [VIEW_CHANGE, NEW_VIEW].map(|kind| (kind, self.current.view));
        Floors { height: self.progress.stable.next(), views: low.into_iter().chain(current).collect() }
    }

    fn status(&self) -> Status {
        let locked = self.instances.iter().rev().find(|(_, instance)| instance.prepared.is_some());
        Status {
            view: self.current.view,
            leader: self.current.leader,
            normal: self.current.normal,
            locked: locked.map(|(height, _)| *height).unwrap_or_default(),
            committed: self.progress.committed,
            last_view_change: self.changes.last_reason,
            view_changes: self.changes.count,
            patience_ns: self.params.treq_ms.saturating_mul(MS),
        }
    }
}

impl<V: Variant> Examined for Pbft<V> {
    const FIGURES: Option<Figures> = Some(figures::FIGURES);
    const ATTACKS: &'static [AttackEntry] = byzantine::attacks::<V>();
    const EXAM_ONLY: &'static [&'static str] = params::EXAM_ONLY;

    fn recovery(params: &PbftParams, committee: &Committee, healed: &Healed) -> Time {
        // §19. The client asks all. STATUS, ENTRY and VIEW-CHANGEs bring all honest replicas to within one view. One
        // timer brings them together, at most f faulty leaders follow, and one view may be half over.
        let ms = |ms: u64| ms.saturating_mul(MS);
        let (cap, status) = (ms(params.cap_ms), ms(params.status_ms));
        let view = cap.saturating_add(status).saturating_add(healed.delta_ns.saturating_mul(4));
        let views = u64::try_from(committee.f).unwrap_or(u64::MAX).saturating_add(3);
        let bound = [
            healed.client_retry_ns,
            status,
            view.saturating_mul(views),
            healed.delta_ns.saturating_mul(12),
            healed.fetch_ns,
        ];
        Time(bound.into_iter().fold(0, u64::saturating_add))
    }

    fn exam_params(delta_ns: u64, _guarded: bool) -> PbftParams {
        let status_ms = (delta_ns / 125_000).clamp(50, 2_000);
        // §11: T0 >= 8 Δ, Treq >= 5 Δ and execution.
        let timeout_ms = (delta_ns / 125_000).clamp(50, 10_000);
        PbftParams {
            status_ms,
            idle_status_ms: 2_000,
            treq_ms: timeout_ms,
            t0_ms: timeout_ms,
            cap_ms: timeout_ms.saturating_mul(4).max(2_000),
            ..PbftParams::default()
        }
    }
}

/// Returns a signed message with its signature, which travels on with it.
fn signed<T>(body: T, seal: Seal) -> Result<Signed<T>, Reject> {
    let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
    Ok(Signed { body, by: seal.by, signature })
}

impl<V: Variant> Pbft<V> {
    fn instance(&mut self, height: Height) -> &mut Instance {
        self.instances.entry(height).or_default()
    }

    /// Returns the leader of a view.
    fn leader_of(&self, cx: &Cx<'_, Self>, view: View) -> ReplicaId {
        self.params.leader(cx.committee(), view)
    }

    /// P3. The intake has checked the place of a message already; a handler does not rely on it.
    fn check_window(&self, height: Height) -> Result<(), Reject> {
        if height <= self.progress.stable {
            Err(Reject::Stale)
        } else if height.since(self.progress.stable) > self.window {
            Err(Reject::Early)
        } else {
            Ok(())
        }
    }

    /// Moves `decided` to the end of the gap-free run of decided heights.
    fn advance(&mut self) {
        self.progress.decided = self.progress.decided.max(self.progress.stable).max(self.progress.executed);
        while self.instances.get(&self.progress.decided.next()).is_some_and(|next| next.decided.is_some()) {
            self.progress.decided = self.progress.decided.next();
        }
        self.progress.known = self.progress.known.max(self.progress.decided);
    }

    fn note(&self, cx: &mut Cx<'_, Self>, what: &'static str, height: Height) {
        cx.note(Note { what, view: self.current.view, height });
    }
}
