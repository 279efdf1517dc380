//! Flaws of Sync HotStuff and Opt Sync (`sync-hotstuff` §23, `optsync` §20) for the museum.

use crate::sync_exact_world::DELTA_NS;
use crate::sync_short_waits::NoWait;
use quorate_consensus::flawed::Flaw;
use quorate_consensus::{
    Certificate, Claims, Commit, Effect, Figures, Hold, Past, Protocol as _, Seal, Spec, Timers, To,
};
use quorate_protocols::sync_hotstuff::{
    Lock, NOTIFY, Optimistic, SyncHotStuff, SyncMessage, SyncRecord, Timer, Variant,
};
use quorate_types::{Block, BlockId, Height, Kind, ReplicaId, Time, View};
use std::collections::{BTreeMap, BTreeSet};

/// Opt Sync that enters the next view as soon as one is left (`optsync` §12).
#[derive(Debug)]
pub(crate) struct NoDelta;

impl Variant for NoDelta {
    const SPEC: Spec = Optimistic::SPEC;
    const FIGURES: Figures = Optimistic::FIGURES;
    const WAIT: u64 = NoWait::WAIT;
    const BAD_VIEW: u64 = Optimistic::BAD_VIEW;

    fn responsive_quorum(n: usize) -> Option<usize> {
        Optimistic::responsive_quorum(n)
    }
}

/// quorum-off-by-one: 3n/4 votes decide at once, and not one more.
#[derive(Debug)]
pub(crate) struct ThreeQuarters;

impl Variant for ThreeQuarters {
    const SPEC: Spec = Optimistic::SPEC;
    const FIGURES: Figures = Optimistic::FIGURES;
    const WAIT: u64 = Optimistic::WAIT;
    const BAD_VIEW: u64 = Optimistic::BAD_VIEW;

    fn responsive_quorum(n: usize) -> Option<usize> {
        Some(n * 3 / 4)
    }
}

/// Certificates of that many votes are accepted from others as well.
#[derive(Default)]
pub(crate) struct Believed;

impl Flaw<SyncHotStuff<ThreeQuarters>> for Believed {
    fn claims(message: &SyncMessage, claims: &mut Claims<'_>) {
        match message {
            SyncMessage::Notify(certificate) => {
                let enough = claims.committee().n() * 3 / 4;
                claims.certificate(certificate, enough);
            }
            other => quorate_consensus::Message::claims(other, claims),
        }
    }
}

/// Messages that leave at once wait for the disk.
fn hold_back(effects: &mut [Effect], kind: Kind) {
    for effect in effects {
        if let Effect::Send { hold, message, .. } = effect
            && message.kind() == kind
        {
            *hold = Hold::UntilDurable;
        }
    }
}

/// evidence-held: evidence is sent when the record of leaving the view is durable.
#[derive(Default)]
pub(crate) struct HeldEvidence;

impl<V: Variant> Flaw<SyncHotStuff<V>> for HeldEvidence {
    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        hold_back(effects, Kind::new("evidence"));
    }
}

/// notify-held: the same for NOTIFY.
#[derive(Default)]
pub(crate) struct HeldNotify;

impl<V: Variant> Flaw<SyncHotStuff<V>> for HeldNotify {
    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        hold_back(effects, NOTIFY);
    }
}

/// late-vote: a vote leaves, whatever has arrived while the disk stalled.
#[derive(Default)]
pub(crate) struct LateVote;

impl<V: Variant> Flaw<SyncHotStuff<V>> for LateVote {
    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        effects.retain(|effect| !matches!(effect, Effect::Withdraw(..)));
    }
}

/// no-notify: q_R votes are sent to no replica.
#[derive(Default)]
pub(crate) struct NoNotify;

impl<V: Variant> Flaw<SyncHotStuff<V>> for NoNotify {
    fn says(&mut self, _: &SyncHotStuff<V>, _: &mut To, message: &mut SyncMessage) -> bool {
        !matches!(message, SyncMessage::Notify(_))
    }
}

/// The commit timer is due at another time than it was set for, and the protocol takes that for its time.
#[derive(Default)]
pub(crate) struct Moved {
    meant: Option<Time>,
    set: Option<Time>,
}

impl Moved {
    pub(crate) fn follow<T: Copy + Ord>(
        &mut self,
        timers: &mut Timers<T>,
        commit: T,
        moves: impl FnOnce(Time) -> Time,
    ) {
        match timers.get(commit) {
            Some(at) if Some(at) != self.set => {
                let moved = moves(at);
                (self.meant, self.set) = (Some(at), Some(moved));
                timers.set(commit, moved);
            }
            Some(_) => {}
            None => *self = Self::default(),
        }
    }

    /// Returns the time that the protocol sees when the commit timer is due.
    pub(crate) fn clock(&self, is_commit: bool, now: Time) -> Time {
        let meant = self.meant.filter(|_| is_commit);
        meant.map_or(now, |meant| now.max(meant))
    }
}

/// §14, scenario 14: 1.2 Δ after the own vote instead of 2 Δ.
#[derive(Default)]
pub(crate) struct ShortTimer(Moved);

impl<V: Variant> Flaw<SyncHotStuff<V>> for ShortTimer {
    fn clock(&mut self, _: &SyncHotStuff<V>, timer: Timer, now: Time) -> Time {
        self.0.clock(timer == Timer::Commit, now)
    }

    fn sets_timers(&mut self, _: &SyncHotStuff<V>, _: Time, timers: &mut Timers<Timer>) {
        self.0.follow(timers, Timer::Commit, |at| at.minus(DELTA_NS * 4 / 5));
    }
}

/// tick-first: timers come before messages that arrive at the same moment. One nanosecond earlier nothing else arrives.
#[derive(Default)]
pub(crate) struct TickFirst(Moved);

impl<V: Variant> Flaw<SyncHotStuff<V>> for TickFirst {
    fn clock(&mut self, _: &SyncHotStuff<V>, timer: Timer, now: Time) -> Time {
        self.0.clock(timer == Timer::Commit, now)
    }

    fn sets_timers(&mut self, _: &SyncHotStuff<V>, _: Time, timers: &mut Timers<Timer>) {
        self.0.follow(timers, Timer::Commit, |at| at.minus(1));
    }
}

/// timer-at-handler: the 2 Δ begin when the vote is decided instead of when it has left.
#[derive(Default)]
pub(crate) struct TimerAtHandler {
    me: ReplicaId,
    /// Votes sent, and own copies received, since the last check of the clock.
    fresh: (Vec<Height>, Vec<Height>),
    decided: BTreeMap<Height, Time>,
    /// Wrong and right end of the 2 Δ.
    ends: BTreeMap<Time, Time>,
    moved: Moved,
}

fn vote_height(message: &SyncMessage) -> Option<Height> {
    let SyncMessage::Vote(header) = message else { return None };
    Some(header.body.block.height)
}

impl<V: Variant> Flaw<SyncHotStuff<V>> for TimerAtHandler {
    fn opens(&mut self, me: ReplicaId, _: &mut Past<SyncRecord>) {
        self.me = me;
    }

    fn hears(&mut self, _: &SyncHotStuff<V>, message: SyncMessage, seal: &Seal) -> Vec<SyncMessage> {
        self.fresh.1.extend(vote_height(&message).filter(|_| seal.by == self.me));
        vec![message]
    }

    fn says(&mut self, _: &SyncHotStuff<V>, _: &mut To, message: &mut SyncMessage) -> bool {
        self.fresh.0.extend(vote_height(message));
        true
    }

    fn clock(&mut self, _: &SyncHotStuff<V>, timer: Timer, now: Time) -> Time {
        self.moved.clock(timer == Timer::Commit, now)
    }

    fn sets_timers(&mut self, _: &SyncHotStuff<V>, now: Time, timers: &mut Timers<Timer>) {
        let (said, back) = std::mem::take(&mut self.fresh);
        self.decided.extend(said.into_iter().map(|height| (height, now)));
        for decided in back.iter().filter_map(|height| self.decided.get(height)) {
            self.ends.insert(now.plus(2 * DELTA_NS), decided.plus(2 * DELTA_NS));
        }
        // A check before an end is earlier by as much.
        let earlier = |at: Time| self.ends.range(at..).next().map_or(0, |(end, meant)| end.since(*meant));
        self.moved.follow(timers, Timer::Commit, |at| at.minus(earlier(at)));
    }
}

/// first-vote-timer: the base of a view is committed 2 Δ after the own first vote.
#[derive(Default)]
pub(crate) struct FirstVoteTimer {
    me: ReplicaId,
    voters: BTreeMap<(View, BlockId), BTreeSet<ReplicaId>>,
    /// Base of the first vote, and the end of 2 Δ after it.
    fresh: Option<(View, BlockId)>,
    wait: Option<(Time, View, BlockId)>,
    commits: Vec<BlockId>,
}

/// f + 1 of seven.
const ENOUGH_OF_SEVEN: usize = 4;

impl<V: Variant> Flaw<SyncHotStuff<V>> for FirstVoteTimer {
    fn opens(&mut self, me: ReplicaId, _: &mut Past<SyncRecord>) {
        self.me = me;
    }

    fn hears(&mut self, _: &SyncHotStuff<V>, message: SyncMessage, seal: &Seal) -> Vec<SyncMessage> {
        if let SyncMessage::FirstVote { view, base, .. } = message {
            self.voters.entry((view, base)).or_default().insert(seal.by);
            self.fresh = if seal.by == self.me { Some((view, base)) } else { self.fresh };
        }
        vec![message]
    }

    fn clock(&mut self, protocol: &SyncHotStuff<V>, timer: Timer, now: Time) -> Time {
        if timer == Timer::Commit
            && let Some((_, view, base)) = self.wait.take_if(|(at, ..)| *at <= now)
            && (protocol.status().view, protocol.status().normal) == (view, true)
            && self.voters.get(&(view, base)).is_some_and(|voters| voters.len() >= ENOUGH_OF_SEVEN)
        {
            self.commits.push(base);
        }
        now
    }

    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        effects.extend(self.commits.drain(..).map(|id| Effect::Commit(Commit::Chain(id))));
    }

    fn sets_timers(&mut self, _: &SyncHotStuff<V>, now: Time, timers: &mut Timers<Timer>) {
        if let Some((view, base)) = self.fresh.take() {
            self.wait = Some((now.plus(2 * DELTA_NS), view, base));
        }
        if let Some((at, ..)) = self.wait
            && timers.get(Timer::Commit).is_none_or(|set| set > at)
        {
            timers.set(Timer::Commit, at);
        }
    }
}

/// lock-rises, M4: a certificate of an earlier view that arrives during a view is a lock at once. No vote conflicts with the
/// lock.
#[derive(Default)]
pub(crate) struct LockRises {
    blocks: BTreeMap<BlockId, Block>,
    locked: Option<(View, Height, BlockId)>,
}

impl LockRises {
    fn learn(&mut self, view: View, message: &SyncMessage) {
        match message {
            SyncMessage::Vote(header) => {
                self.blocks.insert(header.body.block.id(), header.body.block.clone());
            }
            SyncMessage::Propose { header, .. } => {
                self.blocks.insert(header.block.id(), header.block.clone());
            }
            SyncMessage::Certified(certificate) if certificate.view() < view => {
                let shown = (certificate.view(), certificate.statement.height, certificate.block());
                self.locked = self.locked.max(Some(shown));
            }
            _ => {}
        }
    }

    /// Whether a block is known to extend the locked one.
    fn extends(&self, block: &Block) -> bool {
        let Some((_, height, locked)) = self.locked else { return true };
        let mut at = Some(block);
        while let Some(above) = at.filter(|block| block.height > height) {
            at = self.blocks.get(&above.parent);
        }
        at.is_none_or(|block| block.height < height || block.id() == locked)
    }
}

impl<V: Variant> Flaw<SyncHotStuff<V>> for LockRises {
    fn hears(&mut self, protocol: &SyncHotStuff<V>, message: SyncMessage, _: &Seal) -> Vec<SyncMessage> {
        self.learn(protocol.status().view, &message);
        vec![message]
    }

    fn says(&mut self, _: &SyncHotStuff<V>, _: &mut To, message: &mut SyncMessage) -> bool {
        match message {
            SyncMessage::Vote(header) => self.extends(&header.body.block),
            _ => true,
        }
    }
}

/// Kinds of certificate records.
const CERTIFIED: u8 = 3;
const RESPONSIVE: u8 = 4;
const SETTLED: u8 = 5;

/// cold-no-record, cold-no-R: certificates are not recorded.
#[derive(Default)]
pub(crate) struct NoRecord;

impl<V: Variant> Flaw<SyncHotStuff<V>> for NoRecord {
    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        let is_certificate = |kind: u8| [CERTIFIED, RESPONSIVE, SETTLED].contains(&kind);
        effects.retain(|effect| !matches!(effect, Effect::Record { key, .. } if is_certificate(key.kind)));
    }
}

/// late-slowdown: an answer to a probe at any time counts as fresh.
#[derive(Default)]
pub(crate) struct NeverStale;

impl<V: Variant> Flaw<SyncHotStuff<V>> for NeverStale {
    fn fresh(_: Time) -> Time {
        Time::ZERO
    }
}

/// asked-once: a peer without a body is not asked for it again.
#[derive(Default)]
pub(crate) struct AskedOnce(BTreeSet<(BlockId, ReplicaId)>);

impl<V: Variant> Flaw<SyncHotStuff<V>> for AskedOnce {
    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        effects.retain(|effect| match effect {
            Effect::Want(block, peer) => self.0.insert((*block, *peer)),
            _ => true,
        });
    }
}

/// commit-after-quit: q_R votes decide in a view that was left.
#[derive(Default)]
pub(crate) struct CommitAfterQuit {
    votes: BTreeMap<BlockId, BTreeMap<ReplicaId, quorate_types::Signature>>,
    decides: Vec<Certificate>,
}

/// q_R of five.
const DECIDE_OF_FIVE: usize = 4;

impl<V: Variant> Flaw<SyncHotStuff<V>> for CommitAfterQuit {
    fn hears(&mut self, protocol: &SyncHotStuff<V>, message: SyncMessage, seal: &Seal) -> Vec<SyncMessage> {
        if let (SyncMessage::Vote(header), Some(signature)) = (&message, seal.signature) {
            let (id, status) = (header.body.block.id(), protocol.status());
            let votes = self.votes.entry(id).or_default();
            let is_new = votes.insert(seal.by, signature).is_none();
            let has_left = status.view == header.body.block.view && !status.normal;
            if is_new && has_left && votes.len() == DECIDE_OF_FIVE {
                let votes: Vec<_> = votes.iter().map(|(by, signature)| (*by, *signature)).collect();
                self.decides.push(Certificate::of(header.body.vote(), &votes));
            }
        }
        vec![message]
    }

    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        for certificate in self.decides.drain(..) {
            let id = certificate.block();
            let message = Box::new(SyncMessage::Notify(certificate));
            effects.push(Effect::Send { to: To::All, hold: Hold::No, message });
            effects.push(Effect::Commit(Commit::Chain(id)));
        }
    }
}

/// §16: the block of an own vote is committed 2 Δ after the vote left, whatever arrives meanwhile.
#[derive(Default)]
pub(crate) struct StillArmed {
    me: ReplicaId,
    voters: BTreeMap<BlockId, BTreeSet<ReplicaId>>,
    /// Own votes whose copies have arrived, with their times.
    waits: BTreeMap<BlockId, Option<Time>>,
}

/// f + 1 of five.
const ENOUGH_OF_FIVE: usize = 3;

impl<V: Variant> Flaw<SyncHotStuff<V>> for StillArmed {
    fn opens(&mut self, me: ReplicaId, _: &mut Past<SyncRecord>) {
        self.me = me;
    }

    fn hears(&mut self, _: &SyncHotStuff<V>, message: SyncMessage, seal: &Seal) -> Vec<SyncMessage> {
        if let SyncMessage::Vote(header) = &message {
            let id = header.body.block.id();
            self.voters.entry(id).or_default().insert(seal.by);
            if seal.by == self.me {
                self.waits.entry(id).or_insert(None);
            }
        }
        vec![message]
    }

    fn acts(&mut self, _: &SyncHotStuff<V>, now: Time, effects: &mut Vec<Effect>) {
        let voters = &self.voters;
        self.waits.retain(|id, since| {
            let is_over = now >= since.get_or_insert(now).plus(2 * DELTA_NS);
            if is_over && voters.get(id).is_some_and(|voters| voters.len() >= ENOUGH_OF_FIVE) {
                effects.push(Effect::Commit(Commit::Chain(*id)));
            }
            !is_over
        });
    }
}

/// `optsync` §10, 4: q_R votes of any view decide.
#[derive(Default)]
pub(crate) struct AnyView(Vec<BlockId>);

impl<V: Variant> Flaw<SyncHotStuff<V>> for AnyView {
    fn hears(&mut self, protocol: &SyncHotStuff<V>, message: SyncMessage, _: &Seal) -> Vec<SyncMessage> {
        if let SyncMessage::Notify(certificate) = &message
            && certificate.view() < protocol.status().view
        {
            self.0.push(certificate.block());
        }
        vec![message]
    }

    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        effects.extend(self.0.drain(..).map(|id| Effect::Commit(Commit::Chain(id))));
    }
}

/// lexicographic-lock: locks are compared by view, then height of the responsive block, then height of the tip.
#[derive(Default)]
pub(crate) struct LexicographicLock {
    own: Option<Lock>,
    goes_on: Option<SyncMessage>,
}

fn plain_rank(lock: &Lock) -> (View, Height, Height) {
    let responsive = lock.responsive.as_ref().map(|high| high.statement.height).unwrap_or_default();
    (lock.view(), responsive, lock.tip.statement.height)
}

impl<V: Variant> Flaw<SyncHotStuff<V>> for LexicographicLock {
    fn hears(&mut self, protocol: &SyncHotStuff<V>, message: SyncMessage, _: &Seal) -> Vec<SyncMessage> {
        let shown = match &message {
            SyncMessage::NewView { view, lock } => Some((*view, lock)),
            SyncMessage::Forward { new_view } => Some((new_view.body.view, &new_view.body.lock)),
            _ => None,
        };
        let is_here = |view| protocol.status().view == view && protocol.status().normal;
        if let Some((view, lock)) = shown.filter(|(view, _)| is_here(*view))
            && self.own.take_if(|own| plain_rank(lock) >= plain_rank(own)).is_some()
        {
            let (height, base) = (lock.tip.statement.height, lock.tip.block());
            self.goes_on = Some(SyncMessage::FirstVote { view, height, base });
        }
        vec![message]
    }

    fn wants(&mut self, _: &SyncHotStuff<V>, effects: &mut Vec<Effect>) {
        let Some(message) = self.goes_on.take() else { return };
        let first = |effect: &Effect| matches!(effect, Effect::Send { message, .. } if message.kind().as_str() == "first-vote");
        if !effects.iter().any(first) {
            effects.push(Effect::Send { to: To::All, hold: Hold::UntilDurable, message: Box::new(message) });
        }
    }

    fn says(&mut self, _: &SyncHotStuff<V>, _: &mut To, message: &mut SyncMessage) -> bool {
        if let SyncMessage::Status { lock, .. } = message {
            self.own = Some(lock.clone());
        }
        true
    }
}
