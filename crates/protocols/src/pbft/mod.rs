//! # PBFT
//!
//! Decides one block per height, many heights at a time, in three message delays under partial synchrony, by
//! two rounds of votes under a leader. This is variant H: votes are vouched for by the link, not signed.
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
//! every `status_ms`: STATUS to all; whoever said what the sender lacks says it again
//! ```
//! Golden trace: `scripts/01-good-case.txt`. **Serial syncs: 3** (the leader before PRE-PREPARE, a backup
//! before PREPARE, all before COMMIT); quorums need only the fastest disks, except at the leader.
//!
//! The paper's words in this one's: primary = leader, sequence number = height, batch = payload of a block,
//! d = `BlockId`, h = `stable`, L = `window`, W = `blocks_in_flight`.
//!
//! A § without a paper's name is one of the specification, `docs/specification/pbft.md`; the table's second column
//! names the paper's.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | P1 | OSDI §4.2 | one PRE-PREPARE per view and height: the first | `normal::on_pre_prepare` | `p1_one_pre_prepare_per_view_and_height` |
//! | P2 | §4.2 | only the leader of the view proposes, and a block that names this view, height and leader | `normal::on_pre_prepare` | `p2_the_proposal_must_fit` |
//! | P3 | §4.2, §4.3 | h < height ≤ h + L, in every handler | `check_window` | `p3_outside_the_window_refused` |
//! | P4 | §4.2 | a backup sends PREPARE when the block is ready and valid, never for an invalid one | `normal::consider` | `p4_prepare_only_when_ready_and_valid` |
//! | P5 | | a block that only MACs speak against is accepted when f + 1 replicas have | `normal::consider` | `p5_unvouched_needs_f_plus_1` |
//! | P6 | §4.2 | prepared: the PRE-PREPARE and Q - 1 matching PREPAREs of distinct backups | `normal::check_prepared` | `p6_prepared_needs_exactly_q_minus_1` |
//! | P7 | §4.2 | the leader's PREPARE counts for nothing, and it sends none | `normal::on_prepare` | `p7_the_leader_does_not_prepare` |
//! | P8 | §4.2 | decided: Q COMMITs of distinct replicas for one block in one view, whichever view | `normal::check_committed` | `p8_decided_needs_q_in_one_view` |
//! | P9 | | own messages count from their own copies | `normal` | `p9_own_messages_count_from_the_own_copy` |
//! | P10 | | heights already executed still take part, and are never decided twice | `normal` | `p10_executed_heights_still_take_part` |
//! | P11 | §4.2 | at most W blocks in flight | `normal::try_propose` | `p11_pipeline_is_bounded` |
//! | P12 | §4.3 | a stable checkpoint moves the window and drops what lies below | `on_checkpoint` | `p12_checkpoint_moves_the_window` |
//! | P13 | | of each sender two votes per height are kept: first per view, newest two views | `votes` | `p13_a_peer_takes_bounded_room` |
//! | Q1 | | Q is written down before PRE-PREPARE and PREPARE leave | `normal::propose`, `normal::consider` | `q1_q_is_recorded_before_pre_prepare_and_prepare` |
//! | Q2 | | P is written down before COMMIT leaves | `normal::check_prepared` | `q2_p_is_recorded_before_commit` |
//! | Q3 | | after a restart the same is said again, and nothing else | `open` | `q3_restart_says_identical_things_only` |
//! | R1 | TOCS §5.2 | STATUS: the author says again what the sender lacks, and only its own words | `retransmit::on_status` | `r1_status_is_answered_by_the_author` |
//! | R2 | | the loss of any message stalls nothing | `retransmit` | `r2_message_loss_never_stalls` |
//! | R3 | | a gap on a link: own undecided words again, to that peer | `retransmit::on_gap` | `r3_a_gap_is_answered_with_own_words` |
//! | R4 | | a decided block that is missing is asked of each of its voters in turn | `retransmit::want_next` | `r4_missing_blocks_are_asked_of_each_voter` |
//!
//! ## Invariants
//! I1: no two blocks are prepared at one height in one view. Two quorums share an honest replica, which
//! accepts one PRE-PREPARE per view and height: kept by P1, P6, Q1 and the host's guard.
//! I2: no two blocks are decided at one height: from I1 inside a view; asserted in `normal::check_committed`
//! and `on_decided`, which raise the alarm; watched by the agreement oracle.
//! I3: P and Q forget nothing above the stable checkpoint: kept by `on_checkpoint` alone dropping entries.
//!
//! ## What survives a crash
//! - Q, [`PbftRecord::PrePrepared`] · before PRE-PREPARE and PREPARE · else a restarted replica could accept
//!   another block, or a leader propose one, at the same height and view.
//! - P, [`PbftRecord::Prepared`] · before COMMIT · else a decided block could be lost by a later view.
//!
//! Votes of others and accepted but not yet pre-prepared proposals are forgotten; STATUS brings them back.
//!
//! ## Deviations from the paper
//! - PREPARE and COMMIT are neither signed nor MACs of our own: the link (TLS) vouches. So nobody relays them;
//!   their authors say them again.
//! - COMMITs of any view in the window count (P8): whoever was left behind in an older view can still decide.
//! - Nobody executes tentatively, and reads are ordered like writes.
//! - The leader is not replaced yet: a silent leader stops the cluster ([`Spec::replaces_leader`]).
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, client replies: see `quorate-replica`.

mod message;
mod normal;
mod record;
mod retransmit;
#[cfg(test)]
mod tests;
mod votes;

pub use message::{COMMIT, Missing, PRE_PREPARE, PREPARE, PbftMessage, STATUS, Standing, Vote};
pub use record::PbftRecord;

use quorate_consensus::{
    Alarm, Checkpoint, Cx, Healed, LinkEvent, Model, Note, OpenError, Past, Protocol, Ready, Reject, Spec,
    Status, Verified, Window,
};
use quorate_types::{BlockId, Committee, Floors, Height, ProtocolId, ReplicaId, Time, View, quorum};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use votes::Votes;

/// Views above the current one whose messages are looked at (§2).
const VIEWS_AHEAD: u64 = 8;

/// Notes in the trace.
mod noted {
    pub(super) const PROPOSED: &str = "proposed";
    pub(super) const PRE_PREPARED: &str = "pre-prepared";
    pub(super) const PREPARED: &str = "prepared";
    pub(super) const COMMITTED: &str = "committed";
    pub(super) const INVALID: &str = "invalid proposal";
}

/// What a node may set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PbftParams {
    /// W: blocks that the leader may have proposed and not yet decided; 1 to L.
    pub blocks_in_flight: u64,
    /// Milliseconds between two STATUS while something is undecided; 10 to 60,000.
    pub status_ms: u64,
    /// Milliseconds between two STATUS while nothing is; at least `status_ms`, at most 600,000.
    pub idle_status_ms: u64,
}

impl Default for PbftParams {
    fn default() -> Self {
        Self { blocks_in_flight: 8, status_ms: 1_000, idle_status_ms: 10_000 }
    }
}

impl PbftParams {
    fn check(&self, window: u64) -> Result<(), OpenError> {
        let bad = |name: &str, expected: String| Err(OpenError::Params { name: name.to_owned(), expected });
        if !(1..=window).contains(&self.blocks_in_flight) {
            return bad("blocks_in_flight", format!("1 to {window}"));
        }
        if !(10..=60_000).contains(&self.status_ms) {
            return bad("status_ms", "10 to 60000".to_owned());
        }
        if !(self.status_ms..=600_000).contains(&self.idle_status_ms) {
            return bad("idle_status_ms", format!("{} to 600000", self.status_ms));
        }
        Ok(())
    }
}

/// Its timers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Tell the others where this replica stands.
    Status,
}

/// What this replica knows of one height.
#[derive(Debug, Default)]
struct Instance {
    /// The first PRE-PREPARE of the latest view that had one here; the own one from its own copy.
    proposal: Option<(View, BlockId)>,
    /// Q: blocks with the latest view in which each was pre-prepared here. Recorded.
    pre_prepared: Vec<(BlockId, View)>,
    /// P: what prepared here in the latest view in which anything did. Recorded.
    prepared: Option<(BlockId, View)>,
    /// PREPAREs of the current view and later ones.
    prepares: Votes,
    /// COMMITs of any view.
    commits: Votes,
    /// What was decided.
    decided: Option<BlockId>,
    /// Who was asked for the block last.
    asked: Option<ReplicaId>,
}

/// See the module.
#[derive(Debug)]
pub struct Pbft {
    params: PbftParams,
    /// L.
    window: u64,
    /// The current view and its leader.
    view: View,
    leader: ReplicaId,
    /// h: the last stable checkpoint.
    stable: Height,
    /// The last height that was executed.
    executed: Height,
    /// Up to here every height is decided.
    decided: Height,
    /// The highest height that this replica has decided itself.
    committed: Height,
    /// The highest height that this replica has heard of inside the window.
    known: Height,
    /// Undecided heights up to here have been so for long enough to ask about them.
    stalled: Height,
    /// Where the leader looks for the next free height.
    next: Height,
    /// Heights above `stable`, at most L of them.
    instances: BTreeMap<Height, Instance>,
    /// The lowest view that P or Q names, as of the last stable checkpoint.
    low_view: View,
    /// When a STATUS of each peer was answered last.
    answered: BTreeMap<ReplicaId, Time>,
}

impl Protocol for Pbft {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("pbft"),
        summary: "PBFT with votes vouched for by links and a pipelined window; the leader is fixed for now",
        model: Model::PartialSynchrony,
        faults: quorum::byzantine_faults,
        checkpoint_quorum: quorum::byzantine,
        replies: |_, f| quorum::weak(f),
        votes_are_durable: true,
        local_validity: true,
        replaces_leader: false,
        shared_params: &[],
    };
    type Message = PbftMessage;
    type Timer = Timer;
    type Record = PbftRecord;
    type Params = PbftParams;

    fn open(cx: &mut Cx<'_, Self>, params: PbftParams, past: Past<PbftRecord>) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::byzantine_faults(n) {
            return Err(OpenError::Committee(format!("pbft needs n >= 3f + 1, not n = {n} and f = {f}")));
        }
        params.check(past.window)?;
        let stable = past.checkpoint.checkpoint.height;
        let mut pbft = Self {
            params,
            window: past.window,
            view: View::ZERO,
            leader: cx.committee().rotate(View::ZERO.0),
            stable,
            executed: past.executed,
            decided: stable.max(past.executed),
            committed: Height::ZERO,
            known: stable.max(past.executed),
            stalled: Height::ZERO,
            next: stable.next(),
            instances: BTreeMap::new(),
            low_view: View::ZERO,
            answered: BTreeMap::new(),
        };
        pbft.restore(past.records);
        for (height, block) in past.decided.into_iter().filter(|(height, _)| *height > stable) {
            pbft.instance(height).decided = Some(block);
        }
        pbft.advance();
        pbft.committed = pbft.decided;
        // Everybody waits for the leader's proposals, and the leader for the votes of a quorum.
        cx.urgent((pbft.leader != cx.me()).then_some(pbft.leader));
        pbft.resume(cx)?;
        Ok(pbft)
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<PbftMessage>) -> Result<(), Reject> {
        let (message, seal) = message.into_parts();
        match message {
            PbftMessage::PrePrepare { view, block } => self.on_pre_prepare(cx, seal.by, view, block),
            PbftMessage::Prepare(vote) => self.on_prepare(cx, seal.by, vote),
            PbftMessage::Commit(vote) => self.on_commit(cx, seal.by, vote),
            PbftMessage::Status(standing) => self.on_status(cx, seal.by, &standing),
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, Timer::Status: Timer) {
        self.on_status_timer(cx);
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, how: Ready) {
        let Some(height) = cx.blocks().get(block).map(|block| block.height) else {
            return;
        };
        self.consider(cx, height, block, how);
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        self.try_propose(cx);
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, height: Height, _fresh: u32) {
        self.executed = self.executed.max(height);
        self.advance();
        // The host gives no payload while execution lags too far.
        self.try_propose(cx);
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        if height <= self.stable {
            return;
        }
        match self.instance(height).decided.replace(block) {
            // I2. The host has decided on this already; what is left is to say what it means.
            Some(first) if first != block => cx.alarm(Alarm::SafetyBroken { height, first, second: block }),
            _ => {
                self.heard_of(cx, height);
                self.advance();
                self.try_propose(cx);
            }
        }
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, stable: &Checkpoint) {
        if stable.height <= self.stable {
            return;
        }
        // P12. §7: the proof is durable, so P, Q and votes up to it may go, and nothing else ever drops them (I3).
        self.stable = stable.height;
        self.instances = self.instances.split_off(&self.stable.next());
        self.low_view = self.lowest_view();
        self.advance();
        self.try_propose(cx);
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        if what == LinkEvent::Gap {
            self.on_gap(cx, peer);
        }
    }

    fn recovery(params: &PbftParams, _committee: &Committee, healed: &Healed) -> Time {
        // §19 without leader replacement. The client asks again; then, in the worst case, somebody's STATUS
        // tells others of the height, theirs brings the proposal, a third the PREPAREs and a fourth the COMMITs,
        // each answered one period late at most.
        let statuses = params.status_ms.saturating_mul(1_000_000).saturating_mul(8);
        let trips = healed.delta_ns.saturating_mul(12);
        Time(
            healed
                .client_retry_ns
                .saturating_add(statuses)
                .saturating_add(trips)
                .saturating_add(healed.fetch_ns),
        )
    }

    fn exam_params(delta_ns: u64, _guarded: bool) -> PbftParams {
        let status_ms = (delta_ns / 125_000).clamp(50, 2_000);
        PbftParams { status_ms, idle_status_ms: 2_000, ..PbftParams::default() }
    }

    fn window(&self) -> Window {
        Window {
            views: self.low_view..self.view.plus(VIEWS_AHEAD).next(),
            heights: self.stable.next()..self.stable.plus(self.window).next(),
        }
    }

    fn floors(&self) -> Floors {
        let views = [PRE_PREPARE, PREPARE, COMMIT].map(|kind| (kind, self.low_view));
        Floors { height: self.stable.next(), views: views.to_vec() }
    }

    fn status(&self) -> Status {
        let locked = self.instances.iter().rev().find(|(_, instance)| instance.prepared.is_some());
        Status {
            view: self.view,
            leader: self.leader,
            normal: true,
            locked: locked.map(|(height, _)| *height).unwrap_or_default(),
            committed: self.committed,
            last_view_change: "",
        }
    }
}

impl Pbft {
    fn instance(&mut self, height: Height) -> &mut Instance {
        self.instances.entry(height).or_default()
    }

    /// P3. The intake has compared the place of a message already; a handler does not rely on it.
    fn check_window(&self, height: Height) -> Result<(), Reject> {
        if height <= self.stable {
            Err(Reject::Stale)
        } else if height.since(self.stable) > self.window {
            Err(Reject::Early)
        } else {
            Ok(())
        }
    }

    /// Moves `decided` to the end of the gap-free run.
    fn advance(&mut self) {
        self.decided = self.decided.max(self.stable).max(self.executed);
        while self.instances.get(&self.decided.next()).is_some_and(|next| next.decided.is_some()) {
            self.decided = self.decided.next();
        }
        self.known = self.known.max(self.decided);
    }

    fn note(&self, cx: &mut Cx<'_, Self>, what: &'static str, height: Height) {
        cx.note(Note { what, view: self.view, height });
    }
}
