//! # Chained HotStuff
//!
//! Decides one chain of blocks under partial synchrony, with one proposal and one round of votes in each view, whatever
//! the number of replicas: O(n) messages. A block is committed when two more follow it in the next two views. The
//! pacemaker is the corrected one of the specification, not the one of the dissertation from which it comes.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | partial synchrony | n ≥ 3f + 1 | `quorum::byzantine` | 7 δ | Yin, Malkhi, Reiter, Golan Gueta, Abraham: HotStuff, PODC 2019, arXiv 1803.05069, §4 to §6; pacemaker: specification §7 |
//!
//! ## Flow
//! ```text
//! leader(v)    PROPOSE b(v) ─┐                    ┌─ QC(b(v)): enters v + 1, PROPOSE b(v+1) ─┐
//! all                        └▶ ready ─ VOTE ─────┘ to leader(v + 1)                         └▶ …
//! QC(b2) over b0 ◀ b1 ◀ b2: b1 is the lock; b0 is committed if the views are k, k + 1, k + 2
//!
//! timer    COMPLAIN {high QC, last vote} to all ─▶ f + 1: others join in ─▶ q: everybody enters the next view,
//!          NEXTVIEW {complaints, high QC} to all, and its leader's PROPOSE shows them too
//! idle     nothing waits, nothing above the committed block carries requests: no message, no timer
//! ```
//! Golden scripts: `scripts/`; the first is the paper's figure. What it costs: `figures.rs`, `docs/figures.md`.
//! **Serial syncs: 1 for each view** (before VOTE; who leads next writes down with it that it may propose), three from a
//! request to its reply; a certificate needs only the fastest q disks.
//!
//! The paper's words in this one's: node = block, command = payload, `vheight` = `voted`, `b_lock` = `locked`,
//! `b_exec` = `chain.committed`, `qc_high` = `high_qc`, NEW-VIEW = COMPLAIN; the specification's NVC = timeouts, NEXTVIEW's
//! certificate = `ViewProof`.
//!
//! A § without a paper's name is one of the specification, `docs/specification/hotstuff.md`.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | H1 | §5 | every valid certificate counts first, from whatever message | `blocks::take_certificate` | `h1_*` |
//! | H2 | §5 | only the leader of a view proposes, a block that fits its certificate, with what lets into the view | `blocks::on_propose` | `h2_*` |
//! | H3 | PODC §5, §4 | the lock is the head of a certified two-chain, and only rises | `blocks::follow` | `h3_*` |
//! | H4 | PODC §5, §4 | a certified three-chain of consecutive views commits its first block | `blocks::follow` | `h4_*` |
//! | H5 | §5 | what is committed extends what was committed, by hashes | `blocks::commit` | `h5_*` |
//! | H6 | §2 | one proposal in a view, written down before it leaves | `blocks::try_propose` | `h6_*` |
//! | H7 | §5 | the lock from a block's certificate stands before the vote for it | `blocks::consider` | `h7_*` |
//! | H8 | PODC §5, §5 | one vote in a view, none after giving it up, none for what is not ready and valid | `blocks::consider` | `h8_*` |
//! | H9 | PODC §4 | a vote extends the lock, or is for a newer certificate than the lock | `blocks::consider` | `h9_*` |
//! | H10 | §2 | vote, lock and view are written down before VOTE | `blocks::consider` | `h10_*` |
//! | H11 | §1 | own words count from their own copies | `blocks::on_vote` | `h11_*` |
//! | H12 | §1 | a certificate: q votes of distinct replicas for one block in one view | `blocks::on_vote` | `h12_*` |
//! | H13 | §2 | after a restart the same vote again, and nothing else in its view | `open` | `h13_*` |
//! | N1 | §7a | views change by certificate only | `views::enter` | `n1_*` |
//! | N2 | §7b | a complaint shows the highest certificate, which is written down first | `views::complain` | `n2_*` |
//! | N3 | §5, §7 | a proposal or complaint of a view shows what lets into it; timeouts never list more than the certificate beside them | `ViewProof::claim`, `on_propose`, `on_complain` | `n3_*` |
//! | N4 | §7c | a complaint carries the last vote, from which anybody makes the certificate | `views::on_complain` | `n4_*` |
//! | N5 | §7 | whoever is behind is shown why this replica is further, now and then | `views::on_complain` | `n5_*` |
//! | N6 | §7 | f + 1 complaints make others join in | `views::count_complaints` | `n6_*` |
//! | N7 | §15 | timers and proposals only while somebody waits | `views::look_around` | `n7_*` |
//! | N8 | §15 | an idle leader announces its certificate once | `views::lead` | `n8_*` |
//! | N9 | §7e | timers double with each failed view and are short again after a commit | `Pacemaker` | `n9_*` |
//! | N10 | | a replica's own slow execution is no reason to complain, as long as it goes on | `views::on_view_timer` | `n10_*` |
//!
//! ## Invariants
//! I1: at most one block of a view has a certificate: one vote in a view (H8, H10, the host's guard), and two quorums
//! share an honest replica.
//! I2: no two committed blocks contradict each other (§11): by I1, H3, H4, H7 and H9; asserted in `blocks::commit`, watched
//! by the agreement oracle.
//! I3: q complaints list a certificate as high as every honest lock: N2 and H3, so the next leader's proposal is voted for.
//!
//! ## What survives a crash
//! [`HotStuffRecord::State`], one record that replaces itself:
//! - the last vote · before VOTE · else it could vote twice in a view.
//! - the lock · before VOTE · else it could vote beside a block that is committed elsewhere.
//! - the view, with what let into it · before VOTE and COMPLAIN · for the others' sake (§17).
//! - the highest certificate · before COMPLAIN · else the next leader could fail to find it.
//! - the last view in which it proposed, or may propose · before PROPOSE · else it could propose twice in a view.
//!
//! [`HotStuffRecord::Standing`], with some leader policies: what the chain says about leaders, at checkpoints.
//! The committed block follows from the log. Votes and complaints of others are forgotten.
//!
//! ## Deviations from the paper
//! - No dummy blocks: a block's parent is the block of its certificate, and the views are compared (§4).
//! - A replica leaves its view by certificate only; there is no NEW-VIEW (§7b).
//! - It does not vote in a view that it has given up: liveness alone needs that (§5).
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

pub use message::{COMPLAIN, HotStuffMessage, NEXT_VIEW, PROPOSE, VOTE};
pub use params::HotStuffParams;
pub use record::HotStuffRecord;

use quorate_consensus::parts::chain::{self, Chain, Tip};
use quorate_consensus::parts::chained_attacks;
use quorate_consensus::parts::leaders::{LeaderPolicy, Leaders};
use quorate_consensus::parts::pacemaker::{self, Complaints, Pacemaker, Timing};
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::{BlockVote, Votes};
use quorate_consensus::{
    AttackEntry, Certificate, CheckpointProof, Choice, Cx, Examined, Figures, Healed, LinkEvent, Model, Note,
    OpenError, Pace, Past, Protocol, Ready, Reject, Signed, Spec, Status, To, Verified, Window,
};
use quorate_types::{BlockId, Committee, Floors, Height, ProtocolId, ReplicaId, Time, View, quorum};

/// Certified blocks in a row of views that commit the first of them.
const LINKS: usize = 3;
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
    pub(super) const UNSAFE: &str = "proposal beside the lock";
    pub(super) const COMPLAINED: &str = "complained";
    pub(super) const VIEW_CHANGE: &str = "view change";
}

/// Why a view was left: for status.
mod reason {
    pub(super) const GIVEN_UP: &str = "a quorum complained";
}

/// Its timers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// The view led to nothing.
    View,
}

/// See the module.
#[derive(Debug)]
pub struct HotStuff {
    params: HotStuffParams,
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
    locked: Tip,
    /// The last vote; recorded.
    voted: Option<BlockVote>,
    /// The same with its signature, once its own copy was here.
    own_vote: Option<Signed<BlockVote>>,
    /// The last view in which this replica has proposed; recorded.
    proposed: View,
    /// The view in which it may propose at once, because that was written down with its last vote.
    reserved: View,
    votes: Votes,
    /// The first proposal of each replica in its newest views.
    proposals: Votes,
    /// The proposal of the current view that waits for its bodies.
    waiting: Option<BlockId>,
    /// Whether somebody waits for something (§15).
    busy: bool,
    /// Whether the leader of this view proposes even if nobody waits.
    must_propose: bool,
    /// Whether the leader of this view has said that it has nothing to propose.
    has_announced: bool,
    /// Whether anything was executed since the timer was set.
    has_executed: bool,
    last_view_change: &'static str,
}

impl Protocol for HotStuff {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("hotstuff"),
        summary: "chained HotStuff: a leader in each view, linear messages, commit by three certificates in a row",
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
    type Message = HotStuffMessage;
    type Timer = Timer;
    type Record = HotStuffRecord;
    type Params = HotStuffParams;

    fn open(
        cx: &mut Cx<'_, Self>,
        params: HotStuffParams,
        past: Past<HotStuffRecord>,
    ) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::byzantine_faults(n) {
            return Err(OpenError::Committee(format!("hotstuff needs n >= 3f + 1, not n = {n} and f = {f}")));
        }
        let timing = timing(&params);
        timing.check()?;
        let (policy, term, set) = (params.leader_policy, params.views_per_leader, params.leaders.clone());
        let leaders =
            Leaders::new(policy, term, LINKS, set, cx.committee())?.remembering(params.failures_count_for)?;
        let stable = past.checkpoint.checkpoint;
        let stable = Tip { view: stable.view, height: stable.height, id: stable.block };
        let mut hotstuff = Self {
            params,
            window: past.window,
            checkpoint_every: past.checkpoint_every,
            stable: stable.height,
            pacemaker: Pacemaker::new(timing, chain::FIRST_VIEW, None),
            leaders,
            leader: None,
            chain: Chain::new(stable),
            high_qc: Certificate::genesis(VOTE),
            locked: stable,
            voted: None,
            own_vote: None,
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
            hotstuff.restore(cx, record, timing);
        }
        for (height, id) in past.decided {
            hotstuff.chain.hear(height, id);
        }
        hotstuff.leaders.begin(cx.committee(), cx.blocks(), stable);
        hotstuff.adopt(cx);
        hotstuff.resume(cx);
        Ok(hotstuff)
    }

    fn on_message(
        &mut self,
        cx: &mut Cx<'_, Self>,
        message: Verified<HotStuffMessage>,
    ) -> Result<(), Reject> {
        let (message, seal) = message.into_parts();
        let link = seal.by;
        let result = match message {
            HotStuffMessage::Propose { block, proof } => self.on_propose(cx, seal, block, &proof),
            HotStuffMessage::Vote(body) => match seal.signature {
                Some(signature) => self.on_vote(cx, Signed { body, by: seal.by, signature }),
                None => Err(Reject::Invalid("unsigned")),
            },
            HotStuffMessage::Complain { view, proof, last_vote } => {
                self.on_complain(cx, seal, view, &proof, last_vote)
            }
            HotStuffMessage::NextView(proof) => {
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
            let record = HotStuffRecord::Standing(standing.clone());
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
        cx.send_unheld(To::One(peer), HotStuffMessage::NextView(self.proof()));
        if let Some(vote) = self.open_vote()
            && self.collector(cx, vote) == Some(peer)
        {
            cx.send(To::One(peer), HotStuffMessage::Vote(vote));
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
            locked: self.locked.height,
            committed: self.chain.committed().height,
            last_view_change: self.last_view_change,
            view_changes: self.pacemaker.failed_views(),
            patience_ns: 0,
        }
    }
}

impl Examined for HotStuff {
    const FIGURES: Option<Figures> = Some(figures::FIGURES);
    const ATTACKS: &'static [AttackEntry] = chained_attacks::attacks::<HotStuffMessage>();
    const CHOICES: &'static [Choice] = params::CHOICES;
    const EXAM_ONLY: &'static [&'static str] = params::EXAM_ONLY;

    fn recovery(params: &HotStuffParams, committee: &Committee, healed: &Healed) -> Time {
        // §16. A complaint reaches an honest collector at the latest at its (f + 1)st expiry.
        let attempts = match params.complaints {
            Complaints::Broadcast => 1,
            Complaints::Linear => committee.weak(),
        };
        let patience = params.leader_policy.patience(committee.f);
        pacemaker::recovery(&timing(params), committee, healed, attempts, 1, patience)
    }

    fn pace(params: &HotStuffParams) -> Option<Pace> {
        let term = params.leader_policy.term(params.views_per_leader);
        Some(Pace { voted: noted::VOTED, gave_up: noted::COMPLAINED, term })
    }

    fn exam_params(delta_ns: u64, _guarded: bool) -> HotStuffParams {
        // §7e: D0 >= 6 Δ, and two for what has to be fetched.
        let d0_ms = (delta_ns / 125_000).clamp(50, 10_000);
        let cap_ms = d0_ms.saturating_mul(4).max(2_000);
        // Leaders as in the paper, where nothing else is drawn; runs of the exam have some hundred blocks.
        let leader_policy = LeaderPolicy::RoundRobin;
        HotStuffParams { d0_ms, cap_ms, leader_policy, failures_count_for: 128, ..HotStuffParams::default() }
    }
}

fn timing(params: &HotStuffParams) -> Timing {
    Timing { d0_ms: params.d0_ms, cap_ms: params.cap_ms }
}

impl HotStuff {
    /// Takes up what was written down.
    fn restore(&mut self, cx: &Cx<'_, Self>, record: HotStuffRecord, timing: Timing) {
        match record {
            HotStuffRecord::State { view, proof, voted, locked, proposed } => {
                let ViewProof { qc, timeouts } = proof;
                self.pacemaker = Pacemaker::new(timing, view, timeouts);
                self.high_qc = qc;
                self.voted = voted;
                self.locked = self.locked.max(locked);
                self.proposed = proposed;
            }
            HotStuffRecord::Standing(standing) => self.leaders.restore(standing, cx.committee()),
        }
    }

    /// Goes on where the last opening ended. H13: the last vote is said again, word for word, and nothing else of its view.
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
