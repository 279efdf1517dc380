//! # Jolteon (DiemBFT v4)
//!
//! Decides one chain of blocks under partial synchrony, like `hotstuff`, and commits a block when one more follows it in
//! the next view: two delays less. What replaces the third certificate is what timeouts list: a proposal after a view that
//! was given up shows that nobody could have committed anything above what it extends.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | partial synchrony | n ≥ 3f + 1 | `quorum::byzantine` | 5 δ | Gelashvili, Kokoris-Kogias, Sonnino, Spiegelman, Xiang: Jolteon and Ditto, FC 2022, arXiv 2106.10362, §3; the Diem team: DiemBFT v4, 2021 |
//!
//! ## Flow
//! ```text
//! leader(v)    PROPOSE b(v) ─┐                    ┌─ QC(b(v)): enters v + 1, PROPOSE b(v+1) ─┐
//! all                        └▶ ready ─ VOTE ─────┘ to leader(v + 1)                         └▶ …
//! QC(b') over b ◀ b': b is committed if the views are k, k + 1
//!
//! timer    TIMEOUT {high QC, last vote} to all ─▶ f + 1: others join in ─▶ q: everybody enters the next view,
//!          ADVANCE {timeouts, high QC} to all, and its leader's PROPOSE shows them: a vote demands it
//! idle     nothing waits, nothing above the committed block carries requests: no message, no timer
//! ```
//! Golden scripts: `scripts/`; the first is the paper's figure. What it costs: `figures.rs`, `docs/figures.md`.
//! **Serial syncs: 1 for each view** (before VOTE; who leads next writes down with it that it may propose), two from a
//! request to its reply; a certificate needs only the fastest q disks.
//!
//! The paper's words in this one's: round = view, `highest_vote_round` = `voted` and `barred`, `qc_high` = `high_qc`,
//! `highest_qc_round` = its view, TC = timeouts.
//!
//! A § without a paper's name is one of the specification, `docs/specification/jolteon-hotstuff2.md`.
//!
//! ## What sets it apart from `hotstuff`
//! | | `hotstuff` | here |
//! |---|---|---|
//! | commit | three certificates of consecutive views (H4) | two (J3) |
//! | vote | extends the lock, or newer than the lock (H9) | rests on the view before, or on the highest that the shown timeouts list (J6) |
//! | lock | head of a two-chain, recorded (H3) | none; the highest certificate is what a TIMEOUT lists, recorded (N3) |
//! | after giving a view up | no vote, for liveness (H8) | no vote, for **safety** (J5, N2) |
//! | who hears that a view is given up | all, or the next leaders | all |
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | J1 | §5 | every valid certificate counts first, from whatever message | `blocks::take_certificate` | `j1_*` |
//! | J2 | §5 | only the leader of a view proposes, a block that fits its certificate, with what lets into the view | `blocks::on_propose` | `j2_*` |
//! | J3 | FC §3, §1 | a certified block with a certified child of the next view is committed; what is committed extends what was, by hashes | `blocks::follow`, `commit` | `j3_*` |
//! | J4 | §4 | one proposal in a view, written down before it leaves | `blocks::try_propose` | `j4_*` |
//! | J5 | FC §3, §5 | one vote in a view, none in one that was timed out, none for what is not ready and valid | `blocks::consider` | `j5_*` |
//! | J6 | FC §3, §2 | a vote is for a block on the certificate of the view before, or on one at least as high as all that the shown timeouts list | `blocks::consider` | `j6_*` |
//! | J7 | §4 | vote and highest certificate are written down before VOTE | `blocks::consider` | `j7_*` |
//! | J8 | §1 | own words count from their own copies | `blocks::on_vote` | `j8_*` |
//! | J9 | §1 | a certificate: q votes of distinct replicas for one block in one view | `blocks::on_vote` | `j9_*` |
//! | J10 | §4 | after a restart the same vote again, and nothing else in its view | `open` | `j10_*` |
//! | N1 | §5 | views change by certificate only | `views::enter` | `n1_*` |
//! | N2 | FC §3, §5 | after timing a view out no vote in it, nor in one that is skipped by it | `views::time_out` | `n2_*` |
//! | N3 | §4 | a TIMEOUT lists the highest certificate, which is written down first | `views::time_out` | `n3_*` |
//! | N4 | §5 | a TIMEOUT carries the last vote, from which anybody makes the certificate | `views::on_timeout` | `n4_*` |
//! | N5 | §5 | whoever is behind is shown why this replica is further, now and then | `views::on_timeout` | `n5_*` |
//! | N6 | §5 | f + 1 timeouts make others join in | `views::count_timeouts` | `n6_*` |
//! | N7 | `hotstuff` §15 | timers and proposals only while somebody waits | `views::look_around` | `n7_*` |
//! | N8 | `hotstuff` §15 | an idle leader announces its certificate once | `views::lead` | `n8_*` |
//! | N9 | `hotstuff` §7e | timers double with each failed view and are short again after a commit | `Pacemaker` | `n9_*` |
//! | N10 | | a replica's own slow execution is no reason to time out, as long as it goes on | `views::on_view_timer` | `n10_*` |
//!
//! ## Invariants
//! I1: at most one block of a view has a certificate: one vote in a view (J5, J9, the host's guard), and two quorums share an
//! honest replica.
//! I2: no two committed blocks contradict each other (§6): by I1, J3, J6, N2 and N3; asserted in `blocks::commit`, watched by
//! the agreement oracle.
//! I3: what a TIMEOUT lists is at least as high as everything its author has voted on top of: J1, N3.
//!
//! ## What survives a crash
//! [`JolteonRecord::State`], one record that replaces itself:
//! - the last vote, and up to which view no vote is given · before VOTE and TIMEOUT · else it could vote twice in a view, or
//!   after timing it out.
//! - the highest certificate · before VOTE and TIMEOUT · else a TIMEOUT could list one that is too low, and a committed block
//!   be voted against.
//! - the view, with what let into it · before VOTE and TIMEOUT · for the others' sake (§16).
//! - the last view in which it proposed, or may propose · before PROPOSE · else it could propose twice in a view.
//!
//! [`JolteonRecord::Standing`], with some leader policies: what the chain says about leaders, at checkpoints.
//! The committed block follows from the log. Votes and timeouts of others are forgotten.
//!
//! ## Deviations from the paper
//! - Timeouts carry the last vote (as in early LibraBFT), which spares one honest leader.
//! - A timeout certificate travels beside a certificate for a block that is at least as high as all that it lists, in one
//!   `ViewProof`, and not with one of its own inside.
//! - With terms of several views a timeout bars the views that it may skip (§7).
//! - A leader whose own execution lags too far, or whose window of decided heights is full, does not propose.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, client replies: see `quorate-replica`.

mod blocks;
mod figures;
mod message;
mod params;
mod record;
#[cfg(test)]
mod tests;
mod views;

pub use message::{ADVANCE, JolteonMessage, PROPOSE, TIMEOUT, VOTE};
pub use params::JolteonParams;
pub use record::JolteonRecord;

use quorate_consensus::parts::chain::{self, Chain, Tip};
use quorate_consensus::parts::chained_attacks;
use quorate_consensus::parts::leaders::{LeaderPolicy, Leaders};
use quorate_consensus::parts::pacemaker::{self, Pacemaker, Timing};
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::{BlockVote, Votes};
use quorate_consensus::{
    AttackEntry, Certificate, CheckpointProof, Choice, Cx, Examined, Figures, Healed, LinkEvent, Model, Note,
    OpenError, Pace, Past, Protocol, Ready, Reject, Signed, Spec, Status, To, Verified, Window,
};
use quorate_types::{BlockId, Committee, Floors, Height, ProtocolId, ReplicaId, Time, View, quorum};

/// Certified blocks in a row of views that commit the first of them.
const LINKS: usize = 2;
/// Views above the current one whose votes are looked at (§1).
const VIEWS_AHEAD: u64 = 8;
/// The guard's floors move in steps of so many views: each step is an entry of the log.
const FLOOR_STEP: u64 = 32;

/// Notes in the trace.
mod noted {
    pub(super) const PROPOSED: &str = "proposed";
    pub(super) const VOTED: &str = "voted";
    pub(super) const COMMITTED: &str = "committed";
    pub(super) const INVALID: &str = "invalid proposal";
    pub(super) const UNSAFE: &str = "proposal below what timeouts list";
    pub(super) const TIMED_OUT: &str = "timed out";
    pub(super) const VIEW_CHANGE: &str = "view change";
}

/// Why a view was left: for status.
mod reason {
    pub(super) const GIVEN_UP: &str = "a quorum timed out";
}

/// Its timers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// The view led to nothing.
    View,
}

/// A proposal of the current view, as it came.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    block: BlockId,
    /// The timeouts that it shows: the view that they let into, and the highest certificate that they list.
    shown: Option<(View, View)>,
}

/// See the module.
#[derive(Debug)]
pub struct Jolteon {
    /// L.
    window: u64,
    /// K.
    checkpoint_every: u64,
    /// h: the last stable checkpoint.
    stable: Height,
    pacemaker: Pacemaker,
    leaders: Leaders,
    /// Who leads the current view, as far as this replica can tell.
    leader: Option<ReplicaId>,
    chain: Chain,
    high_qc: Certificate,
    /// The last vote; recorded.
    voted: Option<BlockVote>,
    /// The same with its signature, once its own copy was here.
    own_vote: Option<Signed<BlockVote>>,
    /// No vote up to this view any more; recorded.
    barred: View,
    /// The last view in which this replica has proposed; recorded.
    proposed: View,
    /// The view in which it may propose at once, because that was written down with its last vote.
    reserved: View,
    votes: Votes,
    /// The first proposal of each replica in its newest views.
    proposals: Votes,
    /// The proposal of the current view that waits for its bodies.
    waiting: Option<Waiting>,
    /// Whether somebody waits for something (`hotstuff` §15).
    busy: bool,
    /// Whether the leader of this view proposes even if nobody waits.
    must_propose: bool,
    /// Whether the leader of this view has said that it has nothing to propose.
    has_announced: bool,
    /// Whether anything was executed since the timer was set.
    has_executed: bool,
    last_view_change: &'static str,
}

impl Protocol for Jolteon {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("jolteon"),
        summary: "Jolteon (DiemBFT v4): chained, a leader in each view, linear messages, commit by two certificates in a row",
        model: Model::PartialSynchrony,
        faults: quorum::byzantine_faults,
        checkpoint_quorum: quorum::byzantine,
        replies: |_, f| quorum::weak(f),
        votes_are_durable: true,
        votes_are_signed: true,
        local_validity: false,
        replaces_leader: true,
        rotates_leaders: true,
        first_view: chain::FIRST_VIEW,
        shared_params: params::SHARED,
    };
    type Message = JolteonMessage;
    type Timer = Timer;
    type Record = JolteonRecord;
    type Params = JolteonParams;

    fn open(
        cx: &mut Cx<'_, Self>,
        params: JolteonParams,
        past: Past<JolteonRecord>,
    ) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::byzantine_faults(n) {
            return Err(OpenError::Committee(format!("jolteon needs n >= 3f + 1, not n = {n} and f = {f}")));
        }
        let timing = timing(&params);
        timing.check()?;
        let (policy, term, set) = (params.leader_policy, params.views_per_leader, params.leaders);
        let leaders =
            Leaders::new(policy, term, LINKS, set, cx.committee())?.remembering(params.failures_count_for)?;
        let stable = past.checkpoint.checkpoint;
        let stable = Tip { view: stable.view, height: stable.height, id: stable.block };
        let mut jolteon = Self {
            window: past.window,
            checkpoint_every: past.checkpoint_every,
            stable: stable.height,
            pacemaker: Pacemaker::new(timing, chain::FIRST_VIEW, None),
            leaders,
            leader: None,
            chain: Chain::new(stable),
            high_qc: Certificate::genesis(VOTE),
            voted: None,
            own_vote: None,
            barred: View::ZERO,
            proposed: View::ZERO,
            reserved: View::ZERO,
            votes: Votes::default(),
            proposals: Votes::default(),
            waiting: None,
            busy: false,
            must_propose: false,
            has_announced: true,
            has_executed: false,
            last_view_change: "",
        };
        for record in past.records {
            jolteon.restore(cx, record, timing);
        }
        for (height, id) in past.decided {
            jolteon.chain.hear(height, id);
        }
        jolteon.leaders.begin(cx.committee(), cx.blocks(), stable);
        jolteon.adopt(cx);
        jolteon.resume(cx);
        Ok(jolteon)
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<JolteonMessage>) -> Result<(), Reject> {
        let (message, seal) = message.into_parts();
        let link = seal.by;
        let result = match message {
            JolteonMessage::Propose { block, proof } => self.on_propose(cx, seal, block, &proof),
            JolteonMessage::Vote(body) => match seal.signature {
                Some(signature) => self.on_vote(cx, Signed { body, by: seal.by, signature }),
                None => Err(Reject::Invalid("unsigned")),
            },
            JolteonMessage::Timeout { view, proof, last_vote } => {
                self.on_timeout(cx, seal, view, &proof, last_vote)
            }
            JolteonMessage::Advance(proof) => {
                self.take_certificate(cx, &proof.qc, link);
                self.take_timeouts(cx, &proof);
                Ok(())
            }
        };
        self.look_around(cx);
        result
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Timer) {
        match timer {
            Timer::View => self.on_view_timer(cx),
        }
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, how: Ready) {
        self.adopt(cx);
        self.consider(cx, block, how);
        self.look_around(cx);
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        self.look_around(cx);
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, _height: Height, _fresh: u32) {
        self.has_executed = true;
        self.look_around(cx);
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        self.chain.hear(height, block);
        self.adopt(cx);
        self.look_around(cx);
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, proof: &CheckpointProof) {
        let stable = &proof.checkpoint;
        if stable.height <= self.stable {
            return;
        }
        self.stable = stable.height;
        let tip = Tip { view: stable.view, height: stable.height, id: stable.block };
        let (committee, committed) = (cx.committee(), self.chain.committed());
        if let Some(standing) = self.leaders.settle(committee, cx.blocks(), tip, committed) {
            let record = JolteonRecord::Standing(standing.clone());
            cx.record(&record);
        }
        if tip.height > self.chain.committed().height {
            self.settle_at(tip);
        }
        self.look_around(cx);
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        if what != LinkEvent::Gap {
            return;
        }
        // Something was lost for good: maybe what let this replica into its view, maybe the vote that the peer collects.
        cx.send_unheld(To::One(peer), JolteonMessage::Advance(self.proof()));
        if let Some(vote) = self.open_vote()
            && self.collector(cx, vote) == Some(peer)
        {
            cx.send(To::One(peer), JolteonMessage::Vote(vote));
        }
    }

    fn window(&self) -> Window {
        let view = self.pacemaker.view();
        // A vote that is one too many is not worth the cryptography.
        let oldest = view.minus(1).max(self.high_qc.view().next());
        Window {
            views: oldest..view.plus(VIEWS_AHEAD).next(),
            heights: self.stable.next()..self.stable.plus(self.window).next(),
        }
    }

    fn floors(&self) -> Floors {
        let view = self.pacemaker.view().minus(1);
        let floor = View(view.0.saturating_sub(view.0 % FLOOR_STEP));
        Floors { height: self.stable.next(), views: [PROPOSE, VOTE].map(|kind| (kind, floor)).to_vec() }
    }

    fn status(&self) -> Status {
        Status {
            view: self.pacemaker.view(),
            leader: self.leader.unwrap_or_default(),
            normal: true,
            // Its highest certificate is the nearest to a lock that it has.
            locked: Height::ZERO,
            committed: self.chain.committed().height,
            last_view_change: self.last_view_change,
            view_changes: self.pacemaker.failed_views(),
            patience_ns: 0,
        }
    }
}

impl Examined for Jolteon {
    const FIGURES: Option<Figures> = Some(figures::FIGURES);
    const ATTACKS: &'static [AttackEntry] = chained_attacks::attacks::<JolteonMessage>();
    const CHOICES: &'static [Choice] = params::CHOICES;
    const EXAM_ONLY: &'static [&'static str] = params::EXAM_ONLY;

    fn recovery(params: &JolteonParams, committee: &Committee, healed: &Healed) -> Time {
        // §15. In a term, a view that was given up and is certified after all bars the rest: a second timer.
        let timers = match params.leader_policy {
            LeaderPolicy::RoundRobin | LeaderPolicy::Stable => 1,
            LeaderPolicy::Terms | LeaderPolicy::Avoiding => 2,
        };
        let patience = params.leader_policy.patience(committee.f);
        pacemaker::recovery(&timing(params), committee, healed, 1, timers, patience)
    }

    fn pace(params: &JolteonParams) -> Option<Pace> {
        let term = params.leader_policy.term(params.views_per_leader);
        Some(Pace { voted: noted::VOTED, gave_up: noted::TIMED_OUT, term })
    }

    fn exam_params(delta_ns: u64, _guarded: bool) -> JolteonParams {
        // §7e: D0 >= 6 Δ, and two for what has to be fetched.
        let d0_ms = (delta_ns / 125_000).clamp(50, 10_000);
        let cap_ms = d0_ms.saturating_mul(4).max(2_000);
        // Leaders as in the paper, where nothing else is drawn; runs of the exam have some hundred blocks.
        let leader_policy = LeaderPolicy::RoundRobin;
        JolteonParams { d0_ms, cap_ms, leader_policy, failures_count_for: 128, ..JolteonParams::default() }
    }
}

fn timing(params: &JolteonParams) -> Timing {
    Timing { d0_ms: params.d0_ms, cap_ms: params.cap_ms }
}

impl Jolteon {
    /// Takes up what was written down.
    fn restore(&mut self, cx: &Cx<'_, Self>, record: JolteonRecord, timing: Timing) {
        match record {
            JolteonRecord::State { view, proof, voted, barred, proposed } => {
                let ViewProof { qc, timeouts } = proof;
                self.pacemaker = Pacemaker::new(timing, view, timeouts);
                self.high_qc = qc;
                self.voted = voted;
                self.barred = barred;
                self.proposed = proposed;
            }
            JolteonRecord::Standing(standing) => self.leaders.restore(standing, cx.committee()),
        }
    }

    /// Goes on where the last opening ended. J10: the last vote is said again, word for word, and nothing else of its view.
    fn resume(&mut self, cx: &mut Cx<'_, Self>) {
        let (me, qc) = (cx.me(), self.high_qc.clone());
        self.chain.wait(&qc);
        self.finish_certificates(cx);
        if qc.view() > self.chain.committed().view && cx.ready(qc.block()).is_none() {
            qc.signers.iter().filter(|by| *by != me).for_each(|by| cx.want(qc.block(), by));
        }
        self.find_leader(cx);
        if let Some(vote) = self.open_vote() {
            self.send_vote(cx, vote);
        }
        self.look_around(cx);
    }

    /// The last vote, while it may still make a certificate that lets on.
    fn open_vote(&self) -> Option<BlockVote> {
        let (certified, view) = (self.high_qc.view(), self.pacemaker.view());
        self.voted.filter(|vote| vote.view > certified && vote.view.next() >= view)
    }

    /// Whether so much is decided above the stable checkpoint that nothing should be added.
    fn is_full(&self) -> bool {
        self.chain.committed().height.since(self.stable) >= self.window
    }

    fn note(&self, cx: &mut Cx<'_, Self>, what: &'static str, height: Height) {
        cx.note(Note { what, view: self.pacemaker.view(), height });
    }
}
