//! # Sync HotStuff and Opt Sync
//!
//! Decide one chain of blocks with n ≥ 2f + 1 replicas, as long as every message between honest ones is handled within Δ:
//! a block is committed 2 Δ after the own vote for it, if nothing that contradicts it was heard by then. Opt Sync commits
//! at once besides, when more than 3n/4 have voted. A stable leader, blamed and replaced when it does nothing or
//! contradicts itself.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | synchrony | n ≥ 2f + 1 | `quorum::weak` | δ + 2 Δ | Abraham, Malkhi, Nayak, Ren, Yin: Sync HotStuff, IEEE S&P 2020, ePrint 2019/270 |
//! | synchrony | n ≥ 2f + 1 | `words::responsive_quorum` | 2 δ, else δ + 2 Δ | Shrestha, Abraham, Ren, Nayak: On the Optimality of Optimistic Responsiveness, CCS 2020, ePrint 2020/458 |
//!
//! ## Flow
//! ```text
//! leader   PROPOSE b(k) ─┐ C(b(k-1)) in it        ┌─ f + 1 votes: C(b(k)), PROPOSE b(k+1) …
//! all                    └▶ ready ─ VOTE to all ──┤   (one message: vote and header)
//!                                  own copy ──────┴─ 2 Δ ─▶ commit b(k), if nothing contradicts it
//! Opt Sync                          q_R votes ─ NOTIFY to all ─▶ commit b(k) at once
//!
//! 3 Δ + τ without a vote: BLAME to all ─▶ f + 1 of them, or two words of a leader that contradict: EVIDENCE to all, the
//! view is left, no timer of it commits ─ Δ (Opt Sync 2 Δ) ─▶ STATUS {lock} to the next leader ─ 2 Δ ─▶ NEW-VIEW {highest
//! lock} ─▶ handed on, FIRST-VOTE ─▶ C(base) ─▶ PROPOSE …
//! ```
//! Golden scripts: `scripts/`. What it costs: `figures.rs`, `docs/figures.md`.
//! **Serial syncs: 2 for the leader's block** (PROPOSE, then its VOTE), 1 for the others; one more before a reply, unless
//! something was synced since.
//!
//! The paper's words in this one's: party = replica, status message = STATUS, quit view = leave, `lock` = `lock.tip`,
//! responsive certificate = certificate of q_R votes.
//!
//! A § without a name is one of `docs/specification/sync-hotstuff.md`; those of `docs/specification/optsync.md` say so.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | S1 | §2 | a certificate: f + 1 equal votes of distinct replicas in one view | `normal::gather` | `s1_*` |
//! | S2 | §4 | a vote for each height in order, on a certificate of this view, whatever the lock says | `normal::next_to_vote` | `s2_*` |
//! | | §4, §7 | what it lacks for that it asks for, of all who have shown the header | `missing::mention` | `s2_*` |
//! | S3 | §3 | the vote is written down before it leaves; vote and header are one message | `normal::try_vote` | `s3_*` |
//! | S4 | §2, §5 | two words of a leader that contradict each other end the view, before anything else is looked at | `normal::on_header` | `s4_*` |
//! | S5 | §4 | the leader proposes when its last block is certified in this view | `normal::try_propose` | `s5_*` |
//! | S6 | §4 | the 2 Δ begin at the own copy, and only where replica and view run | `commit::wait_for_silence` | `s6_*` |
//! | S7 | §8 | a timer commits only what has a certificate of the view, and that all have had for Δ: shown, or made of all votes | `commit::show_certified`, `Wait::end` | `s7_*` |
//! | S8 | §8 | a block is committed with its ancestors, on the committed chain | `commit::commit` | `s8_*` |
//! | S9 | §19 | a timer commits only while the guard is sound | `waits::is_sound` | `s9_*` |
//! | S10 | §5 | f + 1 blames end a view, fewer do not | `view_change::on_blame` | `s10_*` |
//! | S11 | §5 | evidence leaves at once, then no timer of the view commits | `view_change::quit_view` | `s11_*` |
//! | S12 | §5, §19 | the next view is entered after a wait, and not in doubt | `view_change::try_enter` | `s12_*` |
//! | S13 | §6 | the lock is what is certified on entering, and stays | `view_change::enter_view` | `s13_*` |
//! | S14 | §6 | a leader goes on from the highest lock reported within 2 Δ | `view_change::on_collect_timer` | `s14_*` |
//! | S15 | §6 | one first vote, for a base that ranks no lower than the lock; no commit timer | `view_change::try_first_vote` | `s15_*` |
//! | S16 | §18 | who comes back is silent until enough have answered | `coming_back`, `parts::returning` | `s16_*` |
//! | O1 | optsync §4 | q_R votes decide at once | `commit::take_responsive` | `o1_*` |
//! | O2 | optsync §7 | not in a view that was left | `commit::take_responsive` | `o2_*` |
//! | O3 | optsync §4 | all hear of them first, unheld | `commit::take_responsive` | `o3_*` |
//! | O4 | optsync §5 | the wait after leaving a view is 2 Δ | `Variant::WAIT` | `o4_*` |
//! | O5 | optsync §6 | locks are compared in two parts | `certificates::accepts` | `o5_*` |
//!
//! ## Invariants
//! I1: where a timer commits something at one honest replica, nothing beside it is certified in that view at its height or
//! above, and all hold its certificate when they enter a later one (§8, Lemma 1; §24, without its part (a)): S2, S4, S6, S7,
//! S11, S12.
//! I2: what q_R votes decide all hold when they enter a later view (`optsync` §7, Lemma 2): O2, O3, O4.
//! I3: no two committed blocks contradict each other: I1, I2, S13, S15, O5; watched by the agreement oracle.
//!
//! ## What survives a crash
//! [`SyncRecord`]: the view with what let into it, lock and first vote · before STATUS and FIRST-VOTE · else it could enter
//! a view with a lower lock. Last vote, proposal and NEW-VIEW · before each · else it could say something else. Every
//! certificate · with the next sync, before a reply · else nobody could show what was acknowledged after a cold start.
//! Commit timers do not survive: an end of the view may have been missed (§3).
//!
//! ## Deviations from the paper
//! - The lock is fixed on entering a view, and a vote in the steady state does not ask it (§4: force-locking).
//! - Vote and forwarded header are one message (§4); the header names the base of its view (§2).
//! - The guard (§19) and the rule for coming back (§18) are not in the paper.
//! - That every honest replica votes within Δ is not relied on: where not all have, the certificate is shown (§24).
//! - Fetching brings blocks and bodies and no proposals: the certificate of a parent is asked for with LACK (§4, `want`).
//! - One state machine serves both: without certificates of q_R votes Opt Sync's lock is Sync HotStuff's.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, probes of the guard, client replies: see `quorate-replica`.

mod answered;
mod attacks;
mod blames;
mod certificates;
mod coming_back;
mod commit;
mod early;
mod figures;
mod leaving;
mod message;
mod missed;
mod missing;
mod normal;
mod paths;
mod record;
pub mod rotating;
mod split;
#[cfg(test)]
mod tests;
mod variant;
mod view_change;
mod waits;
mod words;

pub use message::{Answer, BLAME, NEW_VIEW, NOTIFY, NewViewWord, PROPOSE, STATUS, SyncMessage, VOTE};
pub use record::SyncRecord;
pub use split::Split;
pub use variant::{Optimistic, Plain, Variant};
pub use words::{Evidence, Header, Lock, LockName, Word, bind_base, blame, vote};

use answered::Answered;
use blames::Blames;
use certificates::Certificates;
use early::Early;
use leaving::Leaving;
use missed::Missed;
use missing::Missing;
use normal::{End, IfIdle, end_of};
use quorate_consensus::parts::chain::{Chain, Tip};
use quorate_consensus::parts::returning::Returning;
use quorate_consensus::parts::synchrony::{Delta, SynchronyParams};
use quorate_consensus::{
    AttackEntry, Certificate, CheckpointProof, Cx, Examined, Figures, Healed, LinkEvent, Note, OpenError,
    Past, Protocol, Ready, Reject, Seal, Signed, Spec, Status, Synchrony, Verified, Window,
};
use quorate_types::{
    BlockId, Committee, Floors, Height, Incarnation, ReplicaId, ReplicaSet, Signature, Time, View, quorum,
};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use waits::Waits;
use words::Heard;

/// The first view.
pub const FIRST_VIEW: View = View(1);
/// Views above the current one whose messages are kept.
const VIEWS_AHEAD: u64 = 2;
/// Heights above the committed one that are looked at, in windows: as many as may be in flight, and some for who lags
/// behind. Whoever is further behind learns from what others have decided.
const WINDOWS_AHEAD: u64 = 16;
/// So many of these windows are voted in. One honest replica commits before another all that it has voted for, and votes on:
/// its next votes too have to be heard, since a header that is not is not asked for.
const WINDOWS_VOTED: u64 = WINDOWS_AHEAD / 2;

/// Notes in the trace.
mod noted {
    pub(super) const PROPOSED: &str = "proposed";
    pub(super) const VOTED: &str = "voted";
    pub(super) const FIRST_VOTED: &str = "first vote";
    pub(super) const REFUSED: &str = "base below the lock";
    pub(super) const COMMITTED: &str = "committed";
    pub(super) const COMMITTED_BY_VOTES: &str = "committed by votes";
    pub(super) const BLAMED: &str = "blamed";
    pub(super) const QUIT: &str = "left the view";
    pub(super) const VIEW_CHANGE: &str = "view change";
    pub(super) const VOTING: &str = "may vote again";
    pub(super) const RUNNING: &str = "runs again";
    pub(super) const SILENT: &str = "fell silent";
}

/// Why a view was left: for status.
mod reason {
    pub(super) const BLAMED: &str = "f + 1 have blamed its leader";
    pub(super) const CONFLICT: &str = "its leader has contradicted itself";
}

/// Its timers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// The 2 Δ of the oldest vote are over.
    Commit,
    /// Nothing to vote for came in time.
    Progress,
    /// As leader: nobody wants anything.
    Propose,
    /// The wait after leaving a view is over.
    Enter,
    /// As leader: whoever is honest has sent its lock.
    Collect,
    /// A body that has not come is asked for.
    Fetch,
    /// What was missed keeps this replica from voting no longer.
    Missed,
    /// Somebody is to be asked again, or has been waited for long enough.
    Return,
}

/// See the module.
#[derive(Debug)]
pub struct SyncHotStuff<V: Variant> {
    delta: Delta,
    heartbeat_ns: u64,
    incarnation: Incarnation,
    /// L.
    window: u64,
    /// K.
    checkpoint_every: u64,
    /// The last stable checkpoint.
    stable: Height,
    chain: Chain,
    view: View,
    /// Who leads it.
    leader: ReplicaId,
    /// Set where the view was left and the next one has not begun.
    leaving: Option<Leaving>,
    /// Why the view before was left, or this one, from the last blames on; recorded.
    evidence: Vec<Evidence>,
    /// The last view that was entered; views that were only left do not count.
    entered: View,
    /// What was certified when the view was entered; recorded.
    lock: Lock,
    certificates: Certificates,
    /// What the leader of the view has said.
    heard: Heard,
    /// Its NEW-VIEW, with the certificates.
    shown: Option<Signed<NewViewWord>>,
    /// What this replica has said as its leader; recorded.
    said_new_view: Option<Lock>,
    /// Locks that were reported to this replica as the view's leader.
    statuses: BTreeMap<ReplicaId, Lock>,
    /// The last vote of the view; recorded.
    voted: Option<Signed<Header>>,
    /// For which block, with the signature, once its own copy was here.
    own_vote: Option<(BlockId, Signature)>,
    /// The first vote of the view: from where it goes on; recorded.
    first_voted: Option<End>,
    /// The last proposal of the view; recorded.
    proposed: Option<Header>,
    /// The last vote of the view that was cast before this replica was opened or fell silent.
    resaid: Height,
    /// Own votes that are with all and were not committed.
    waits: Waits<Height>,
    /// The highest vote of the view whose 2 Δ are over.
    expired: Height,
    /// Where the leader may have said in this view what was not kept here.
    missed: Missed,
    /// Own votes of the view that no wait is for any more, or ever was, and whose certificates all have to be shown.
    unshown: BTreeSet<Height>,
    /// No wait begins before.
    waits_from: Time,
    /// So high above the committed block is voted at most, whatever the window.
    voted_ahead_max: u64,
    /// Windows above it in which is voted.
    windows_voted: u64,
    /// Whether what was kept for this view is being looked at.
    is_recalling: bool,
    /// The last view in which all were asked because of a contradiction further ahead.
    asked_ahead: View,
    /// What q_R votes have decided in this view.
    responsive: Option<End>,
    /// The last view in which a timer has committed something.
    timer_committed: View,
    blames: Blames,
    /// Blocks that are not ready, or lack a certificate of their parent. Bounded by the window of heights.
    missing: BTreeMap<BlockId, Missing>,
    /// At which heights of this view who was shown a certificate for lack of one.
    lent: BTreeMap<Height, ReplicaSet>,
    early: Early,
    returning: Returning,
    /// What a silent replica has to have whole before it signs anything.
    goal: Option<Certificate>,
    /// Whether this replica has begun to sign since it was opened or fell silent.
    has_begun: bool,
    /// When all were asked last.
    asked_at: Time,
    /// Whether others have been seen in a later view: on entering it they are asked what was said there.
    is_behind: bool,
    answered: Answered,
    view_changes: u64,
    last_view_change: &'static str,
    variant: PhantomData<V>,
}

impl<V: Variant> Protocol for SyncHotStuff<V> {
    const SPEC: Spec = V::SPEC;
    type Message = SyncMessage;
    type Timer = Timer;
    type Record = SyncRecord;
    type Params = SynchronyParams;

    fn open(
        cx: &mut Cx<'_, Self>,
        params: SynchronyParams,
        past: Past<SyncRecord>,
    ) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::synchronous_faults(n) {
            let name = V::SPEC.name;
            return Err(OpenError::Committee(format!("{name} needs n >= 2f + 1, not n = {n} and f = {f}")));
        }
        params.check()?;
        let stable = past.checkpoint.checkpoint;
        let stable = Tip { view: stable.view, height: stable.height, id: stable.block };
        let mut replica = Self::new(&params, &past, stable, cx.now());
        for record in past.records {
            replica.restore(record);
        }
        for (height, id) in past.decided {
            replica.chain.note_decided(height, id);
        }
        replica.leader = words::leader(cx.committee(), replica.view);
        replica.voted_ahead_max = split::voted_ahead_max(n);
        // Who commits later than others still hears what they vote for.
        replica.windows_voted = if V::may_wait_longer(n) { WINDOWS_VOTED / 2 } else { WINDOWS_VOTED };
        replica.adopt(cx);
        replica.go_on_returning(cx);
        Ok(replica)
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<SyncMessage>) -> Result<(), Reject> {
        let link = message.link();
        let (message, seal) = message.into_parts();
        let view = quorate_consensus::Message::place(&message).view;
        let is_about_a_view = !matches!(
            message,
            SyncMessage::Ask { .. }
                | SyncMessage::Answer(_)
                | SyncMessage::Lack { .. }
                | SyncMessage::Certified(_)
                | SyncMessage::Evidence(_)
                | SyncMessage::Blame(_)
        );
        if is_about_a_view && view > self.view {
            return self.hear_early(cx, view, message, seal, link);
        }
        match message {
            SyncMessage::Ask { incarnation, above } => self.on_ask(cx, link, incarnation, above),
            SyncMessage::Answer(answer) => self.on_answer(cx, link, *answer),
            message => self.hear(cx, message, seal),
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Timer) {
        match timer {
            Timer::Commit => self.on_commit_timer(cx),
            Timer::Progress => self.on_progress_timer(cx),
            Timer::Propose => self.try_propose(cx, IfIdle::Propose),
            Timer::Enter => self.try_enter(cx),
            Timer::Collect => self.on_collect_timer(cx),
            Timer::Fetch => self.on_fetch_timer(cx),
            Timer::Missed => self.try_vote(cx),
            Timer::Return => self.go_on_returning(cx),
        }
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, _how: Ready) {
        self.note_here(cx, block);
        if let Some(height) = cx.blocks().get(block).map(|block| block.height) {
            self.check_split(cx, height);
        }
        self.adopt(cx);
        if self.returning.is_silent() {
            self.advance(cx);
        }
        self.commit_responsive(cx);
        self.commit_waits(cx);
        self.try_first_vote(cx);
        self.try_vote(cx);
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
        self.try_first_vote(cx);
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
        self.try_first_vote(cx);
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
        Window {
            views: self.entered.minus(1)..self.view.plus(VIEWS_AHEAD).next(),
            // §8, Lemma 1 b: also of what is too high to be kept this replica has to know that it was said.
            heights: self.stable.min(committed)..Height::MAX,
        }
    }

    fn floors(&self) -> Floors {
        let view = self.view.minus(1);
        // A view may go on from the stable block itself.
        Floors {
            height: self.stable,
            views: [PROPOSE, VOTE, NEW_VIEW, STATUS].map(|kind| (kind, view)).to_vec(),
        }
    }

    fn status(&self) -> Status {
        Status {
            view: self.view,
            leader: self.leader,
            normal: !self.is_quit() && !self.returning.is_silent(),
            locked: self.lock.tip.statement.height,
            committed: self.chain.committed().height,
            last_view_change: self.last_view_change,
            view_changes: self.view_changes,
            patience_ns: 0,
        }
    }
}

impl<V: Variant> Examined for SyncHotStuff<V> {
    const FIGURES: Option<Figures> = Some(V::FIGURES);
    const ATTACKS: &'static [AttackEntry] = attacks::attacks::<SyncMessage>();

    fn recovery(params: &SynchronyParams, committee: &Committee, healed: &Healed) -> Time {
        // §21: the view that runs at the heal, and at most f more.
        params.recovery(committee, healed, V::BAD_VIEW, committee.weak())
    }

    fn exam_params(delta_ns: u64, guarded: bool) -> SynchronyParams {
        SynchronyParams::exam(delta_ns, guarded)
    }
}

impl<V: Variant> SyncHotStuff<V> {
    fn new(params: &SynchronyParams, past: &Past<SyncRecord>, stable: Tip, now: Time) -> Self {
        Self {
            delta: params.delta(),
            heartbeat_ns: params.heartbeat_ns(),
            incarnation: past.incarnation,
            window: past.window,
            checkpoint_every: past.checkpoint_every,
            stable: stable.height,
            chain: Chain::new(stable),
            view: FIRST_VIEW,
            leader: ReplicaId(0),
            leaving: None,
            evidence: Vec::new(),
            entered: FIRST_VIEW,
            lock: Lock::genesis(),
            certificates: Certificates::default(),
            heard: Heard::default(),
            shown: None,
            said_new_view: None,
            statuses: BTreeMap::new(),
            voted: None,
            own_vote: None,
            first_voted: None,
            proposed: None,
            resaid: Height::ZERO,
            waits: Waits::new(params.delta()),
            expired: Height::ZERO,
            missed: Missed::default(),
            unshown: BTreeSet::new(),
            waits_from: Time::ZERO,
            voted_ahead_max: 0,
            windows_voted: 0,
            is_recalling: false,
            asked_ahead: View::ZERO,
            responsive: None,
            timer_committed: View::ZERO,
            blames: Blames::default(),
            missing: BTreeMap::new(),
            lent: BTreeMap::new(),
            early: Early::default(),
            returning: Returning::open(params, now),
            goal: None,
            has_begun: false,
            asked_at: now,
            is_behind: false,
            answered: Answered::default(),
            view_changes: 0,
            last_view_change: "",
            variant: PhantomData,
        }
    }

    /// Takes up what was written down.
    fn restore(&mut self, record: SyncRecord) {
        match record {
            SyncRecord::Entered { view, quit, evidence, lock, first_voted } => {
                (self.view, self.entered) = (view, view);
                // The wait begins when this replica is no longer silent.
                self.leaving = quit.then_some(Leaving::Doubt);
                self.evidence = evidence;
                self.lock = lock;
                if let Some(word) = &first_voted {
                    self.heard.add_new_view(&NewViewWord::signed_word(word));
                    self.first_voted = Some(end_of(&word.body.lock.tip));
                }
                self.shown = first_voted;
            }
            SyncRecord::Said { view, voted, proposed, shown } if view == self.view => {
                if let Some(header) = &voted {
                    self.heard.add_header(header.body.block.id(), header);
                }
                self.voted = voted;
                self.proposed = proposed;
                self.said_new_view = shown;
            }
            SyncRecord::Said { .. } => {}
            SyncRecord::Certified(certificate) | SyncRecord::Settled(certificate) => {
                self.certificates.add(&certificate, Time::ZERO);
            }
            SyncRecord::Responsive(certificate) | SyncRecord::SettledResponsive(certificate) => {
                self.certificates.add_responsive(&certificate);
                self.certificates.add(&certificate, Time::ZERO);
            }
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

    /// Of a view that has not begun here: its certificates count, the rest waits for it.
    fn hear_early(
        &mut self,
        cx: &mut Cx<'_, Self>,
        view: View,
        message: SyncMessage,
        seal: Seal,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        match &message {
            SyncMessage::Propose { parent, .. } => self.take_certificate(cx, parent),
            // It decides when its view begins, if that is not too far away, and counts for locks.
            SyncMessage::Notify(certificate) => {
                self.on_notify(cx, certificate, link)?;
                return Err(Reject::Early);
            }
            SyncMessage::NewView { lock, .. } | SyncMessage::Status { lock, .. } => {
                self.take_lock(cx, lock)?;
            }
            SyncMessage::Forward { word } => self.take_lock(cx, &word.body.lock)?,
            _ => {}
        }
        if view > self.view.plus(VIEWS_AHEAD) {
            self.is_behind = true;
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
            Some(header) if header.body.block.height > self.highest() => {
                self.early.note_too_high(header);
                false
            }
            _ => {
                // Votes and proposals of each view.
                let most = self.window.saturating_mul(WINDOWS_AHEAD).saturating_mul(2 * VIEWS_AHEAD);
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                self.early.keep((view, height), message, seal, link, most)
            }
        };
        self.is_behind |= !is_kept;
        Err(Reject::Early)
    }

    /// Of the current view or an earlier one.
    fn hear(&mut self, cx: &mut Cx<'_, Self>, message: SyncMessage, seal: Seal) -> Result<(), Reject> {
        match message {
            SyncMessage::Propose { header, parent } => self.on_propose(cx, seal, header, &parent),
            SyncMessage::Vote(header) => self.on_vote(cx, seal, &header),
            SyncMessage::FirstVote { view, height, base } => {
                let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
                self.count(cx, (view, height), base, seal.by, signature)
            }
            SyncMessage::NewView { view, lock } => {
                let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
                let word = Signed { body: NewViewWord { view, lock }, by: seal.by, signature };
                self.on_new_view(cx, word, seal.by)
            }
            SyncMessage::Status { view, lock } => self.on_status(cx, seal, view, &lock),
            SyncMessage::Blame(view) => self.on_blame(cx, seal, view),
            SyncMessage::Evidence(evidence) => self.on_evidence(cx, &evidence),
            SyncMessage::Forward { word } => self.on_new_view(cx, word, seal.by),
            SyncMessage::Notify(certificate) => self.on_notify(cx, &certificate, seal.by),
            SyncMessage::Lack { view, height, block } => self.on_lack(cx, seal.by, view, (height, block)),
            SyncMessage::Certified(certificate) => {
                self.take_certificate(cx, &certificate);
                Ok(())
            }
            SyncMessage::Ask { .. } | SyncMessage::Answer(_) => Err(Reject::Stale),
        }
    }

    fn note(&self, cx: &mut Cx<'_, Self>, what: &'static str, height: Height) {
        cx.note(Note { what, view: self.view, height });
    }
}
