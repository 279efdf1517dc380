//! # Sync HotStuff with rotating leaders
//!
//! Decide one chain of blocks with n ≥ 2f + 1 replicas, as long as every message between honest ones is handled within Δ:
//! one block in each view, the next leader proposes as soon as the last block is certified, and a block is committed 2 Δ
//! after the own vote for it, in whatever view the replica is by then.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | synchrony | n ≥ 2f + 1 | `quorum::weak` | δ + 2 Δ, a block every 2 δ | Abraham, Malkhi, Nayak, Ren, Yin: Sync HotStuff, IEEE S&P 2020, ePrint 2019/270; rotation as in `docs/specification/sync-hotstuff.md` §11 |
//!
//! ## Flow
//! ```text
//! leader of v    PROPOSE b(v) ─┐ C(v-1) in it     ┌─ f + 1 votes: C(v) ─▶ CERTIFIED to all, view v + 1 at once;
//! all                          └▶ ready ─ VOTE ───┤                        its leader: PROPOSE b(v+1) …
//!                                        own copy ┴─ 2 Δ, in whatever view ─▶ commit b(v), if C(v) is here, b(v) rests on
//!                                                    C(v-1), and no two words of v's leader or blames of v were heard
//!
//! 5 Δ + τ without C(v): BLAME to all ─▶ f + 1 of them: EVIDENCE to all ─ Δ ─▶ view v + 1, STATUS {lock} to its leader
//! ─ 2 Δ ─▶ PROPOSE on the highest certificate; such a block commits with the next one
//! ```
//! Golden script: `scripts/05-rotating.txt` of `sync_hotstuff`. What it costs: `figures.rs`, `docs/figures.md`.
//! **Serial syncs: 2 for the leader's block** (PROPOSE, then its VOTE), 1 for the others; one more before a reply, unless
//! something was synced since.
//!
//! A § is one of `docs/specification/sync-hotstuff.md`. Words as in `sync_hotstuff`, with which it shares what both need:
//! kinds of messages, blames, the wait between views (`leaving.rs`), the limit on answers.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | R1 | §2 | a certificate: f + 1 equal votes of distinct replicas in one view | `normal::count` | `r1_*` |
//! | R2 | §11, 1 | certificates rank by their view alone | `heard::Certificates::add` | `r2_*` |
//! | R3 | §11, 1 | any certificate of the view or a later one ends it at once; each is shown to all once, also where its view was jumped over | `normal::take_certificate` | `r3_*` |
//! | R4 | §11, 1 | the lock is the highest certificate on entering, and stays | `views::enter` | `r4_*` |
//! | R5 | §11, 2 | a leader proposes once, at once on a certificate of the view before, else after 2 Δ on the highest | `normal::try_propose` | `r5_*` |
//! | R6 | §11, 3 | one vote in a view, not past it, for the first header of its leader, resting on nothing below the lock | `normal::next_to_vote` | `r6_*` |
//! | R7 | §3, §11, 3 | the vote is written down before it leaves, hands the header on, and what it rests on is with all before it | `normal::try_vote` | `r7_*` |
//! | R8 | §11, 3 | 5 Δ + τ after entering without a certificate of the view its leader is blamed, by who has on disk what let it in | `views::on_view_timer` | `r8_*` |
//! | R9 | §11, 4 | 2 Δ are waited only where the view of the parent's certificate is the one before | `commit::wait_for_silence` | `r9_*` |
//! | R10 | §11, 5, 6 | the 2 Δ begin at the own copy, where the replica runs, and survive that a certificate ends the view | `commit::wait_for_silence` | `r10_*` |
//! | | §8, §24 | or where the header is shown to all, whose certificate had come before it | `commit::wait_without_vote` | `r10_*` |
//! | R11 | §11, 5 | two words of a view's leader, two certificates of it or f + 1 blames end its wait | `commit::stop_waiting` | `r11_*` |
//! | R12 | §8, §19 | a timer commits, with its ancestors, only what is certified, which all have had shown for Δ, and while the guard is sound | `commit::commit_waits`, `waits::is_sound` | `r12_*` |
//! | R13 | §11, 1, §19 | f + 1 blames end a view; the next one begins Δ later, and not in doubt | `views::try_enter` | `r13_*` |
//! | R14 | §18 | who comes back is silent until enough have answered | `coming_back`, `parts::returning` | `r14_*` |
//! | R15 | §20 | an idle leader proposes an empty block after τ; empty ones are committed together | `commit::worth_committing` | `r15_*` |
//!
//! ## Invariants
//! I1: where a timer commits something at one honest replica in view v, nothing beside it is certified in v, and all hold its
//! certificate when they enter a later view by blames (§11, why safe; §24, Lemma 1 without (a): its header and its
//! certificate were on their way to all Δ before): R3, R6 to R13.
//! I2: no two committed blocks contradict each other: I1, R2, R4, R6; watched by the agreement oracle.
//!
//! ## What survives a crash
//! [`RotatingRecord`]: the view with what let into it and the lock · before VOTE, STATUS, PROPOSE and BLAME · else it could vote in a
//! view that it has left, or with a lower lock. Last vote and proposal · before each · else it could not say the same again
//! (that it says nothing else the guard sees to). The highest certificate · with the next sync, before a reply · else nobody
//! could show what was acknowledged after a cold start: it is that of the acknowledged block or of one that extends it.
//! Commit timers do not survive: what breaks the silence of their views may have been missed (§3).
//!
//! ## Deviations from the paper
//! - Responsive rotation is that of §11, not the paper's: no wait of Δ between views that are certified.
//! - Who enters with a certificate of the view before sends no STATUS: it has just shown that certificate to all.
//! - Before a vote the certificate it rests on is shown to all, if it was not: so nobody has to ask for one.
//! - The guard (§19) and the rule for coming back (§18) are not in the paper.
//! - Empty blocks are committed with what follows them, or some together: idle replicas stop at the same height.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, probes of the guard, client replies: see `quorate-replica`.

mod coming_back;
mod commit;
mod deceit;
mod figures;
mod heard;
mod message;
mod missing;
mod normal;
mod record;
#[cfg(test)]
mod tests;
mod views;
mod words;

pub use message::{Answer, RotatingMessage};
pub use record::RotatingRecord;
pub use words::{Evidence, Header, status, vote};

use super::answered::Answered;
use super::attacks;
use super::blames::Blames;
use super::leaving::Leaving;
use super::message::{PROPOSE, STATUS, VOTE};
use super::variant;
use super::waits::Waits;
use super::words::leader;
use super::{FIRST_VIEW, WINDOWS_AHEAD};
use heard::{Certificates, Heard};
use missing::Missing;
use quorate_consensus::parts::chain::{Chain, Tip, empty_payload};
use quorate_consensus::parts::returning::Returning;
use quorate_consensus::parts::synchrony::{Delta, SynchronyParams};
use quorate_consensus::parts::votes::Votes;
use quorate_consensus::{
    AttackEntry, Certificate, CheckpointProof, Cx, Examined, Figures, Healed, LinkEvent, Note, OpenError,
    Past, Protocol, Ready, Reject, Seal, Signed, Spec, Status, Synchrony, Verified, Window,
};
use quorate_types::{
    BlockId, Committee, Floors, Height, Incarnation, PayloadId, ReplicaId, Signature, Time, View, quorum,
};
use std::collections::BTreeMap;

/// Views above the current one whose messages are worth checking: many views may pass before what has arrived with them is
/// handled, and a vote that is not seen is a header that is not seen.
const VIEWS_WORTH_CHECKING: u64 = 4_096;
/// Views whose waits run at the same time at most; of more the first do not commit by their timers.
const VIEWS_KEPT_MAX: usize = 4_096;
/// Windows of heights that are voted in where all earlier votes were in vain: of what was voted for in doubt no timer commits
/// anything, and a commit wants a new vote (§19). One at a time, so that there is room for very many attempts.
const WINDOWS_IN_NEED: u64 = WINDOWS_AHEAD - 1;
/// Views in which a timer has committed, as far as they are remembered to notice late contradictions.
const COMMITTED_MAX: usize = 256;
/// Empty blocks are committed at heights that are multiples of it, where nothing else is.
const IDLE_TOGETHER: u64 = 8;
/// The guard's floors move in steps of so many views: each step is an entry of the log.
const FLOOR_STEP: u64 = 32;

/// Notes in the trace.
mod noted {
    pub(super) const PROPOSED: &str = "proposed";
    pub(super) const VOTED: &str = "voted";
    pub(super) const COMMITTED: &str = "committed";
    pub(super) const BLAMED: &str = "blamed";
    pub(super) const QUIT: &str = "left the view";
    pub(super) const ENTERED: &str = "view change";
    pub(super) const VOTING: &str = "may vote again";
    pub(super) const RUNNING: &str = "runs again";
    pub(super) const SILENT: &str = "fell silent";
}

/// Why a view was left: for status.
mod reason {
    pub(super) const BLAMED: &str = "f + 1 have blamed its leader";
}

/// Whether a leader that has nothing to propose proposes an empty block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IfIdle {
    /// Not yet: somebody may want something within a heartbeat.
    Wait,
    /// Yes: the others would take its silence for a crash.
    Propose,
}

/// Its timers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// The 2 Δ of the oldest vote are over.
    Commit,
    /// The view was not certified in time.
    View,
    /// As leader: nobody wants anything.
    Propose,
    /// The wait after f + 1 blames is over.
    Enter,
    /// As leader: whoever is honest has sent its lock.
    Collect,
    /// A body that has not come is asked for.
    Fetch,
    /// Somebody is to be asked again, or has been waited for long enough.
    Return,
}

/// See the module.
#[derive(Debug)]
pub struct RotatingSyncHotStuff {
    delta: Delta,
    heartbeat_ns: u64,
    incarnation: Incarnation,
    /// L.
    window: u64,
    /// The payload of a block that carries nothing.
    empty: PayloadId,
    /// The last stable checkpoint.
    stable: Height,
    chain: Chain,
    view: View,
    /// Who leads it.
    leader: ReplicaId,
    /// Set where f + 1 have blamed the view and the next one has not begun.
    leaving: Option<Leaving>,
    /// By what this view or the one before was left, where it was by blames and nothing above is certified; recorded.
    blames_held: Option<Certificate>,
    /// The highest certificate when the view was entered; recorded.
    lock: Certificate,
    /// Its block's height, where that was known.
    locked: Height,
    certificates: Certificates,
    /// R6. Views above the current one of which headers and votes are noted, and below it headers: n. What lets others into a
    /// view may come after what they say there (unheld after held), and until this replica enters the next view that it
    /// leads itself nobody goes beyond that one. A header that is not noted is not asked for, and this replica would vote
    /// for another one when its voter has stopped waiting (§8, Lemma 1 a). Certificates may come long before headers.
    near: u64,
    /// What was heard of views: of those near the current one, and of those whose waits run.
    views: BTreeMap<View, Heard>,
    votes: Votes,
    /// As leader: 2 Δ have passed since the view was entered.
    collected: bool,
    /// The last vote; recorded.
    voted: Option<Signed<Header>>,
    /// For which block, with the signature, once its own copy was here.
    own_vote: Option<(BlockId, Signature)>,
    /// The last proposal and what it rests on; recorded.
    proposed: Option<(Header, Certificate)>,
    /// The view of the last vote that was cast before this replica was opened or fell silent.
    resaid: View,
    /// The view in which silence was over.
    began: View,
    /// Own votes that are with all and were not committed.
    waits: Waits<View>,
    /// What timers have committed last.
    relied_on: BTreeMap<View, BlockId>,
    blames: Blames,
    /// Blocks that are not ready. Bounded by what is remembered of views.
    missing: BTreeMap<BlockId, Missing>,
    returning: Returning,
    /// Whether this replica has begun to sign since it was opened or fell silent.
    has_begun: bool,
    answered: Answered,
    view_changes: u64,
    last_view_change: &'static str,
}

impl Protocol for RotatingSyncHotStuff {
    const SPEC: Spec = Spec {
        name: variant::ROTATING,
        summary: "Sync HotStuff whose leaders follow each other: one block a view, as fast as the network, commit 2 delta after the own vote",
        rotates_leaders: true,
        ..variant::SPEC
    };
    type Message = RotatingMessage;
    type Timer = Timer;
    type Record = RotatingRecord;
    type Params = SynchronyParams;

    fn open(
        cx: &mut Cx<'_, Self>,
        params: SynchronyParams,
        past: Past<RotatingRecord>,
    ) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::synchronous_faults(n) {
            let name = Self::SPEC.name;
            return Err(OpenError::Committee(format!("{name} needs n >= 2f + 1, not n = {n} and f = {f}")));
        }
        params.check()?;
        let stable = past.checkpoint.checkpoint;
        let stable = Tip { view: stable.view, height: stable.height, id: stable.block };
        let mut replica = Self::new(&params, &past, stable, cx);
        for record in past.records {
            replica.restore(record);
        }
        for (height, id) in past.decided {
            replica.chain.note_decided(height, id);
        }
        replica.leader = leader(cx.committee(), replica.view);
        replica.adopt(cx);
        replica.go_on_returning(cx);
        Ok(replica)
    }

    fn on_message(
        &mut self,
        cx: &mut Cx<'_, Self>,
        message: Verified<RotatingMessage>,
    ) -> Result<(), Reject> {
        let link = message.link();
        let (message, seal) = message.into_parts();
        let heard = self.hear(cx, message, seal, link);
        self.wait_without_vote(cx);
        heard
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Timer) {
        match timer {
            Timer::Commit => self.on_commit_timer(cx),
            Timer::View => self.on_view_timer(cx),
            Timer::Propose => self.try_propose(cx, IfIdle::Propose),
            Timer::Enter => self.try_enter(cx),
            Timer::Collect => self.on_collect_timer(cx),
            Timer::Fetch => self.on_fetch_timer(cx),
            Timer::Return => self.go_on_returning(cx),
        }
        self.wait_without_vote(cx);
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, _how: Ready) {
        self.note_here(cx, block);
        self.adopt(cx);
        if self.returning.is_silent() {
            self.advance(cx);
        }
        self.commit_waits(cx);
        self.try_vote(cx);
        self.wait_without_vote(cx);
        self.try_propose(cx, IfIdle::Wait);
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        self.try_propose(cx, IfIdle::Wait);
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, _height: Height, _fresh: u32) {
        self.try_propose(cx, IfIdle::Wait);
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        self.chain.note_decided(height, block);
        self.adopt(cx);
        self.try_vote(cx);
        self.try_propose(cx, IfIdle::Wait);
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, proof: &CheckpointProof) {
        let stable = &proof.checkpoint;
        if stable.height <= self.stable {
            return;
        }
        self.stable = stable.height;
        self.adopt_tip(cx, Tip { view: stable.view, height: stable.height, id: stable.block });
        self.try_vote(cx);
        self.try_propose(cx, IfIdle::Wait);
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        match what {
            LinkEvent::Gap => self.on_gap(cx, peer),
            LinkEvent::Back => self.on_back(cx, peer),
        }
    }

    fn on_sound(&mut self, cx: &mut Cx<'_, Self>) {
        self.try_enter(cx);
        self.commit_waits(cx);
    }

    fn synchrony(params: &SynchronyParams) -> Option<Synchrony> {
        Some(params.synchrony())
    }

    fn window(&self) -> Window {
        let committed = self.chain.committed().height;
        let kept = [self.views.keys().next(), self.relied_on.keys().next()].into_iter().flatten();
        let lowest = kept.fold(self.view.minus(self.near).max(FIRST_VIEW), |lowest, view| lowest.min(*view));
        Window {
            views: lowest..self.view.plus(VIEWS_WORTH_CHECKING).next(),
            // §8, Lemma 1 b: also of what is too high to be kept this replica has to know that it was said.
            heights: self.stable.min(committed)..Height::MAX,
        }
    }

    fn floors(&self) -> Floors {
        let view = self.view.minus(1);
        let floor = View(view.0.saturating_sub(view.0 % FLOOR_STEP));
        Floors { height: self.stable, views: [PROPOSE, VOTE, STATUS].map(|kind| (kind, floor)).to_vec() }
    }

    fn status(&self) -> Status {
        Status {
            view: self.view,
            leader: self.leader,
            normal: !self.is_quit() && !self.returning.is_silent(),
            locked: self.locked,
            committed: self.chain.committed().height,
            last_view_change: self.last_view_change,
            view_changes: self.view_changes,
            patience_ns: 0,
        }
    }
}

impl Examined for RotatingSyncHotStuff {
    const FIGURES: Option<Figures> = Some(figures::FIGURES);
    const ATTACKS: &'static [AttackEntry] = attacks::attacks::<RotatingMessage>();

    fn recovery(params: &SynchronyParams, committee: &Committee, healed: &Healed) -> Time {
        // §21: a view with a faulty leader takes 10 Δ + 2 τ, and among n + 1 views there are two good ones in a row.
        params.recovery(committee, healed, 10, committee.n().saturating_add(1))
    }

    fn exam_params(delta_ns: u64, guarded: bool) -> SynchronyParams {
        SynchronyParams::exam(delta_ns, guarded)
    }
}

impl RotatingSyncHotStuff {
    fn new(params: &SynchronyParams, past: &Past<RotatingRecord>, stable: Tip, cx: &Cx<'_, Self>) -> Self {
        Self {
            delta: params.delta(),
            heartbeat_ns: params.heartbeat_ns(),
            incarnation: past.incarnation,
            window: past.window,
            empty: empty_payload(),
            stable: stable.height,
            chain: Chain::new(stable),
            view: FIRST_VIEW,
            leader: ReplicaId(0),
            leaving: None,
            blames_held: None,
            lock: Certificate::genesis(VOTE),
            locked: Height::ZERO,
            certificates: Certificates::new(),
            near: u64::try_from(cx.committee().n()).unwrap_or(u64::MAX),
            views: BTreeMap::new(),
            votes: Votes::default(),
            collected: false,
            voted: None,
            own_vote: None,
            proposed: None,
            resaid: View::ZERO,
            began: View::ZERO,
            waits: Waits::new(params.delta()),
            relied_on: BTreeMap::new(),
            blames: Blames::default(),
            missing: BTreeMap::new(),
            returning: Returning::open(params, cx.now()),
            has_begun: false,
            answered: Answered::default(),
            view_changes: 0,
            last_view_change: "",
        }
    }

    /// Takes up what was written down.
    fn restore(&mut self, record: RotatingRecord) {
        match record {
            RotatingRecord::Entered { view, quit, blames, lock } => {
                self.view = view;
                // The wait begins when this replica is no longer silent.
                self.leaving = quit.then_some(Leaving::Doubt);
                self.blames_held = blames;
                self.certificates.add(&lock);
                self.lock = lock;
            }
            RotatingRecord::Said { voted, proposed } => {
                if let Some(header) = &voted {
                    let (view, id) = (header.body.block.view, header.body.block.id());
                    if let Some(heard) = self.heard_in(view, 0) {
                        heard.first = Some((id, header.clone()));
                        heard.is_out = true;
                    }
                }
                (self.voted, self.proposed) = (voted, proposed);
            }
            RotatingRecord::Highest(certificate) => {
                self.certificates.add(&certificate);
            }
        }
    }

    fn hear(
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
            RotatingMessage::Ask { incarnation } => self.on_ask(cx, link, incarnation),
            RotatingMessage::Answer(answer) => self.on_answer(cx, link, *answer),
        }
    }

    /// The highest height that is looked at.
    fn highest(&self) -> Height {
        self.chain.committed().height.plus(self.window.saturating_mul(WINDOWS_AHEAD))
    }

    /// Whether the view was left.
    fn is_quit(&self) -> bool {
        self.leaving.is_some()
    }

    fn note(&self, cx: &mut Cx<'_, Self>, what: &'static str, height: Height) {
        cx.note(Note { what, view: self.view, height });
    }
}
