//! # Chained protocols
//!
//! One engine decides a chain of blocks with one proposal and one round of votes in each view: O(n) messages for a block.
//! Its rule sets are [`hotstuff`], [`jolteon`] and [`hotstuff2`], each with an entry in the registry.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | partial synchrony | n ≥ 3f + 1 | `quorum::byzantine` | 5 δ or 7 δ, by rule set | see the rule sets |
//!
//! ## Flow
//! ```text
//! leader(v)    PROPOSE b(v) ─┐                    ┌─ QC(b(v)): enters v + 1, PROPOSE b(v+1) ─┐
//! all                        └▶ ready ─ VOTE ─────┘ to leader(v + 1)                         └▶ …
//!
//! timer        TIMEOUT {high QC, last vote} to all ─▶ f + 1: others join ─▶ q: all enter the next view,
//!              ADVANCE {timeouts, high QC} to all, and the PROPOSE of the next leader carries both
//! idle         no request waits, no block above the committed one carries requests: no message, no timer
//! ```
//! Golden scripts: `scripts/`, named after the rule sets. Costs: `docs/figures.md`. **Serial syncs: 1 for each view**,
//! before VOTE; the next leader records with its vote that it may propose. A certificate needs only the fastest q disks.
//!
//! A § without a file is one of `docs/specification/hotstuff.md`. `hotstuff` calls a TIMEOUT `complain` and an ADVANCE
//! `next-view`. The rule sets state the lock and the commits of a certificate, and the proposals that get a vote.
//!
//! ## Differences between the rule sets
//! | | `hotstuff` | `jolteon` | `hotstuff2` |
//! |---|---|---|---|
//! | commit | three certificates of consecutive views | two | two |
//! | vote | extends the lock, or newer than the lock | follows the view before, or is as high as all listed certificates | certificate not older than the lock |
//! | lock | head of a certified two-chain | none | highest certificate under an own vote |
//! | no vote after a timeout | for liveness | for **safety**, recorded | for liveness |
//! | a TIMEOUT's signature lists the certificate | yes, for liveness | yes, for **safety** | no |
//! | receivers of a TIMEOUT | all, or the next leaders | all | all |
//! | a leader after a failed view | proposes at once | proposes at once | waits 2 Δ, or for all replicas |
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | C1 | §5 | every valid certificate counts first, whatever message carries it | `blocks::take_certificate` | `c1_*` |
//! | C2 | §5 | the leader of a view proposes a block that fits its certificate, with the proof that lets into the view | `blocks::on_propose` | `c2_*` |
//! | C3 | §5 | a committed block extends the blocks committed before, by hashes | `blocks::commit` | `c3_*` |
//! | C4 | §2 | one proposal in a view, recorded before it leaves | `blocks::try_propose` | `c4_*` |
//! | C5 | §5 | one vote in a view, none after a timeout, none for a block that is not ready and valid | `blocks::consider` | `c5_*` |
//! | C6 | §2 | vote, view and the state of the rules are durable before VOTE | `blocks::consider` | `c6_*` |
//! | C7 | §1 | own votes and timeouts count from their own copies | `blocks::on_vote` | `c7_*` |
//! | C8 | §1 | a certificate has q votes of distinct replicas for one block in one view | `blocks::on_vote` | `c8_*` |
//! | C9 | §2 | after a restart a replica sends its last vote again, and nothing else in that view | `resume` | `c9_*` |
//! | N1 | §7a | a certificate alone changes the view | `views::enter` | `n1_*` |
//! | N2 | §7b | a TIMEOUT carries the highest certificate, which is recorded first | `views::time_out` | `n2_*` |
//! | N3 | §5, §7 | a PROPOSE or TIMEOUT carries the proof that lets into its view; timeouts never list more than the certificate with them | `ViewProof::claim`, `on_propose`, `on_timeout` | `n3_*` |
//! | N4 | §7c | a TIMEOUT carries the last vote; all receivers build the certificate from these | `views::on_timeout` | `n4_*` |
//! | N5 | §7 | a replica that is behind receives the proof of this replica's view, at a limited rate | `views::on_timeout` | `n5_*` |
//! | N6 | §7 | f + 1 timeouts make a replica join | `views::count_timeouts` | `n6_*` |
//! | N7 | §15 | timers and proposals only while work waits | `views::update_activity` | `n7_*` |
//! | N8 | §15 | an idle leader announces its certificate once | `views::lead` | `n8_*` |
//! | N9 | §7e | timers double with each failed view and are short again after a commit | `Pacemaker` | `n9_*` |
//! | N10 | | a replica whose own execution is slow but goes on does not time out | `views::on_view_timer` | `n10_*` |
//! | N11 | | the intake reads the messages of the current view's leader first | `views::find_leader` | `n11_*` |
//!
//! ## Invariants
//! I1: at most one block of a view has a certificate. Kept by C5, C6 and the host's guard: two quorums share an honest
//! replica.
//! I2: no two committed blocks conflict. Kept by I1 and the rule sets, each of which has the argument; asserted in
//! `blocks::commit`, watched by the agreement oracle.
//! I3: `high_qc` is at least as high as each certificate under a block that this replica has voted for. Kept by C1.
//!
//! ## What survives a crash
//! [`ChainedRecord::State`], one record that replaces itself:
//! - the last vote · before VOTE · without it the replica could vote twice in a view.
//! - the state of the rules · before VOTE and TIMEOUT · see each rule set.
//! - the view with its proof, and the highest certificate · before VOTE and TIMEOUT · without them the next leader could
//!   miss the highest certificate; `jolteon` needs it for safety.
//! - the last view in which it proposed, or may propose · before PROPOSE · without it the replica could propose twice in a
//!   view.
//!
//! [`ChainedRecord::History`], with some leader policies: the facts about leaders in the chain, at checkpoints.
//! The committed block follows from the log. Votes and timeouts of others are lost.
//!
//! ## Deviations from the paper
//! - There are no dummy blocks: the parent of a block is the block of its certificate, and views are compared (§4).
//! - A leader whose own execution lags too far, or whose window of decided heights is full, does not propose.
//! - TIMEOUTs carry the last vote, which spares one honest leader (§7c).
//! - Timeouts travel with a block's certificate that is at least as high as all listed ones, in one `ViewProof`.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, client replies: see `quorate-replica`.

mod blocks;
mod byzantine;
mod figures;
pub mod hotstuff;
pub mod hotstuff2;
pub mod jolteon;
mod message;
mod params;
mod record;
mod rules;
#[cfg(test)]
mod tests;
mod views;

pub use hotstuff::HotStuff;
pub use hotstuff2::HotStuff2;
pub use jolteon::Jolteon;
pub use message::{ADVANCE, ChainedMessage, Content, PROPOSE, TIMEOUT, VOTE};
pub use params::{ChainedParams, NoOwnParams};
pub use record::ChainedRecord;
pub use rules::{Notes, Proposal, Rules, ShownTimeouts};

use quorate_consensus::parts::chain::{self, Chain, Tip};
use quorate_consensus::parts::leaders::Leaders;
use quorate_consensus::parts::pacemaker::{self, Complaints, Pacemaker, Timing};
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::urgent_peer::UrgentPeer;
use quorate_consensus::parts::votes::{BlockVote, Votes};
use quorate_consensus::{
    Abstention, AttackEntry, Certificate, CheckpointProof, Choice, Cx, Examined, Figures, Healed, LinkEvent,
    Note, OpenError, Pace, Past, Protocol, Ready, Reject, Signed, Spec, Status, To, Verified, Window,
};
use quorate_types::{BlockId, Committee, Floors, Height, ReplicaId, ReplicaSet, Time, View, quorum};

/// Views above the current one whose votes are verified (§1).
const VIEWS_AHEAD: u64 = 8;
/// Views from one floor of the guard to the next: each new floor is an entry of the log.
const FLOOR_STEP: u64 = 32;

/// Notes in the trace that all rule sets share.
mod noted {
    pub(super) const PROPOSED: &str = "proposed";
    pub(super) const VOTED: &str = "voted";
    pub(super) const COMMITTED: &str = "committed";
    pub(super) const INVALID: &str = "invalid proposal";
    pub(super) const VIEW_CHANGE: &str = "view change";
}

/// Timers of chained protocols.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// The current view has failed.
    View,
    /// The leader's wait for the certificates of others is over (`hotstuff2`).
    LeaderWait,
}

/// A proposal of the current view that waits for its bodies.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    block: BlockId,
    shown: Option<ShownTimeouts>,
}

/// The wait of a leader that entered by timeouts (`hotstuff2`).
#[derive(Clone, Copy, Debug)]
struct LeaderWait {
    until: Time,
    /// Replicas that have sent the proof of this view, and with it their highest certificate.
    heard: ReplicaSet,
}

/// State of the current view. A change of the view replaces it.
#[derive(Clone, Copy, Debug, Default)]
struct InView {
    /// The leader, as far as this replica can tell.
    leader: Option<ReplicaId>,
    waiting: Option<Waiting>,
    /// Whether the leader proposes even if no work waits.
    must_propose: bool,
    /// Whether the leader has announced that it has nothing to propose.
    has_announced: bool,
    /// Whether the leader needs no report of this replica's highest certificate (any more).
    has_reported: bool,
    leader_wait: Option<LeaderWait>,
}

/// The engine with the rules `R`. See the module.
#[derive(Debug)]
pub struct Chained<R: Rules> {
    complaints: Complaints,
    /// L.
    window: u64,
    /// K.
    checkpoint_every: u64,
    /// h: the height of the last stable checkpoint.
    stable: Height,
    pacemaker: Pacemaker,
    leaders: Leaders,
    chain: Chain,
    high_qc: Certificate,
    /// The state of the rules; recorded.
    rules: R,
    /// The last vote; recorded.
    voted: Option<BlockVote>,
    /// The last vote with its signature, once its own copy has arrived.
    own_vote: Option<Signed<BlockVote>>,
    /// The last view in which this replica has proposed; recorded.
    proposed: View,
    /// The view in which this replica may propose at once, because its last vote's record says so.
    reserved: View,
    votes: Votes,
    /// The first proposal of each replica in its newest views.
    proposals: Votes,
    in_view: InView,
    urgent: UrgentPeer,
    /// Whether work waits (§15).
    busy: bool,
    /// Whether a block was executed since the timer was set.
    has_executed: bool,
    last_view_change: &'static str,
}

impl<R: Rules> Protocol for Chained<R> {
    const SPEC: Spec = R::SPEC;
    type Message = ChainedMessage<R>;
    type Timer = Timer;
    type Record = ChainedRecord<R>;
    type Params = ChainedParams<R::OwnParams>;

    fn open(
        cx: &mut Cx<'_, Self>,
        params: ChainedParams<R::OwnParams>,
        past: Past<ChainedRecord<R>>,
    ) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::byzantine_faults(n) {
            let name = R::SPEC.name;
            return Err(OpenError::Committee(format!("{name} needs n >= 3f + 1, not n = {n} and f = {f}")));
        }
        let (timing, complaints) = (params.timing(), R::complaints(&params.own));
        timing.check()?;
        let (policy, term, set) = (params.leader_policy, params.views_per_leader, params.leaders);
        let leaders = Leaders::new(policy, term, R::LINKS, set, cx.committee())?
            .remembering(params.failures_count_for)?;
        let stable = past.checkpoint.checkpoint;
        let stable = Tip { view: stable.view, height: stable.height, id: stable.block };
        let mut chained = Self {
            complaints,
            window: past.window,
            checkpoint_every: past.checkpoint_every,
            stable: stable.height,
            pacemaker: Pacemaker::new(timing, chain::FIRST_VIEW, None),
            leaders,
            chain: Chain::new(stable),
            high_qc: Certificate::genesis(VOTE),
            rules: R::default(),
            voted: None,
            own_vote: None,
            proposed: View::ZERO,
            reserved: View::ZERO,
            votes: Votes::default(),
            proposals: Votes::default(),
            in_view: InView { has_announced: true, has_reported: true, ..InView::default() },
            urgent: UrgentPeer::default(),
            busy: false,
            has_executed: false,
            last_view_change: "",
        };
        for record in past.records {
            chained.restore(cx, record, timing);
        }
        chained.rules.note_decided(stable);
        for (height, id) in past.decided {
            chained.chain.note_decided(height, id);
        }
        chained.leaders.begin(cx.committee(), cx.blocks(), stable);
        chained.adopt(cx);
        chained.resume(cx);
        Ok(chained)
    }

    fn on_message(
        &mut self,
        cx: &mut Cx<'_, Self>,
        message: Verified<ChainedMessage<R>>,
    ) -> Result<(), Reject> {
        let (message, seal) = message.into_parts();
        let link = seal.by;
        let result = match message.into() {
            Content::Propose(block, proof) => self.on_propose(cx, seal, block, &proof),
            Content::Vote(body) => match seal.signature {
                Some(signature) => self.on_vote(cx, Signed { body, by: seal.by, signature }),
                None => Err(Reject::Invalid("unsigned")),
            },
            Content::Timeout(view, proof, last_vote) => self.on_timeout(cx, seal, view, &proof, last_vote),
            Content::Advance(proof) => {
                self.on_advance(cx, link, &proof);
                Ok(())
            }
        };
        self.report(cx, link);
        self.update_activity(cx);
        result
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Timer) {
        match timer {
            Timer::View => self.on_view_timer(cx),
            Timer::LeaderWait => self.update_activity(cx),
        }
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, how: Ready) {
        self.adopt(cx);
        self.consider(cx, block, how);
        self.update_activity(cx);
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        self.update_activity(cx);
    }

    fn show(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        cx.send_unheld(To::One(peer), Content::Advance(self.proof()).into());
    }

    /// §17 of `hotstuff`, §16 of `jolteon-hotstuff2`: silent in all views up to A, the view after the highest one that n - f
    /// others have shown, and until n - f others have shown later ones.
    fn abstain(&self, _: &mut Cx<'_, Self>) -> Abstention {
        let last = self.leaders.after(self.pacemaker.view());
        Abstention { view: last, ..Abstention::up_to(&[PROPOSE, VOTE, R::TIMEOUT], last, Height::ZERO) }
    }

    /// §17 of `hotstuff`: the highest certificate is adopted as the lock too, with its own block.
    fn remember(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let qc = self.high_qc.clone();
        if !qc.is_genesis() {
            let Some(tip) = self.chain.tip(cx.blocks(), qc.block()) else {
                let me = cx.me();
                qc.signers.iter().filter(|by| *by != me).for_each(|by| cx.want(qc.block(), by));
                return false;
            };
            self.rules.adopt_lock(tip);
        }
        self.record(cx);
        true
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, _height: Height, _fresh: u32) {
        self.has_executed = true;
        self.update_activity(cx);
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        self.chain.note_decided(height, block);
        self.adopt(cx);
        self.update_activity(cx);
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, proof: &CheckpointProof) {
        let stable = &proof.checkpoint;
        if stable.height <= self.stable {
            return;
        }
        self.stable = stable.height;
        let tip = Tip { view: stable.view, height: stable.height, id: stable.block };
        let (committee, committed) = (cx.committee(), self.chain.committed());
        if let Some(history) = self.leaders.settle(committee, cx.blocks(), tip, committed) {
            let record = ChainedRecord::History(history.clone());
            cx.record(&record);
        }
        if tip.height > self.chain.committed().height {
            self.settle_at(tip);
        }
        self.update_activity(cx);
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        if what != LinkEvent::Gap {
            return;
        }
        // The link lost messages for good: perhaps the proof of this view, perhaps the vote that the peer collects.
        cx.send_unheld(To::One(peer), Content::Advance(self.proof()).into());
        if let Some(vote) = self.open_vote()
            && self.collector(cx, vote) == Some(peer)
        {
            cx.send(To::One(peer), Content::Vote(vote).into());
        }
    }

    fn window(&self) -> Window {
        let view = self.pacemaker.view();
        // A vote for a certified view is not worth the cryptography.
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
            leader: self.in_view.leader.unwrap_or_default(),
            normal: true,
            locked: self.rules.locked(),
            committed: self.chain.committed().height,
            last_view_change: self.last_view_change,
            view_changes: self.pacemaker.failed_views(),
            patience_ns: 0,
        }
    }
}

impl<R: Rules> Examined for Chained<R> {
    const FIGURES: Option<Figures> = Some(R::FIGURES);
    const ATTACKS: &'static [AttackEntry] = byzantine::attacks::<R>();
    const CHOICES: &'static [Choice] = R::CHOICES;
    const EXAM_ONLY: &'static [&'static str] = params::EXAM_ONLY;

    fn recovery(params: &Self::Params, committee: &Committee, healed: &Healed) -> Time {
        pacemaker::recovery(&params.timing(), committee, healed, &R::failed_turns(params, committee))
    }

    fn pace(params: &Self::Params) -> Option<Pace> {
        let term = params.leader_policy.term(params.views_per_leader);
        Some(Pace { voted: noted::VOTED, gave_up: R::NOTES.timed_out, term })
    }

    fn exam_params(delta_ns: u64, _guarded: bool) -> Self::Params {
        ChainedParams::for_exam(delta_ns)
    }
}

impl<R: Rules> Chained<R> {
    /// Restores the state of a record.
    fn restore(&mut self, cx: &Cx<'_, Self>, record: ChainedRecord<R>, timing: Timing) {
        match record {
            ChainedRecord::State { view, proof, voted, rules, proposed } => {
                let ViewProof { qc, timeouts } = proof;
                self.pacemaker = Pacemaker::new(timing, view, timeouts);
                self.high_qc = qc;
                self.voted = voted;
                self.rules = rules;
                self.proposed = proposed;
            }
            ChainedRecord::History(history) => self.leaders.restore(history, cx.committee()),
        }
    }

    /// Resumes after opening. C9: the replica sends its last vote again, unchanged, and nothing else in its view.
    fn resume(&mut self, cx: &mut Cx<'_, Self>) {
        let (me, qc) = (cx.me(), self.high_qc.clone());
        self.chain.wait(&qc);
        self.finish_certificates(cx);
        if qc.view() > self.chain.committed().view && cx.ready(qc.block()).is_none() {
            qc.signers.iter().filter(|by| *by != me).for_each(|by| cx.want(qc.block(), by));
        }
        self.find_leader(cx);
        if self.pacemaker.timeouts().is_some() {
            self.begin_leader_wait(cx);
        }
        if let Some(vote) = self.open_vote() {
            self.send_vote(cx, vote);
        }
        self.update_activity(cx);
    }

    /// The last vote, as long as it may complete a certificate of use.
    fn open_vote(&self) -> Option<BlockVote> {
        let (certified, view) = (self.high_qc.view(), self.pacemaker.view());
        self.voted.filter(|vote| vote.view > certified && vote.view.next() >= view)
    }

    /// Whether as many heights are decided above the stable checkpoint as the window has.
    fn is_full(&self) -> bool {
        self.chain.committed().height.since(self.stable) >= self.window
    }

    fn note(&self, cx: &mut Cx<'_, Self>, what: &'static str, height: Height) {
        cx.note(Note { what, view: self.pacemaker.view(), height });
    }
}
