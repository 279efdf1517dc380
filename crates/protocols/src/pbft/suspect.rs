//! When a leader is suspected (§11): a deadline for each waiting bundle, the pre-vote, and the view timer.
//!
//! A replica that has sent a VIEW-CHANGE never votes in older views again, so nobody leaves a view that works
//! because of its own clock alone: SUSPECT binds to nothing, and f + 1 of them mean that one honest replica waits
//! in vain. Between the entry into a view and its first execution only the view timer runs, because short
//! deadlines would undercut the doubled timer.

use super::variant::Variant;
use super::{EntryProof, MS, Pbft, PbftMessage, Timer, reason};
use quorate_consensus::{Cx, Reject, To};
use quorate_types::{Height, ReplicaId, ReplicaSet, Time, View};
use std::collections::BTreeMap;

/// Time without an own SUSPECT after which deadlines are short again.
const CALM_NS: u64 = 30_000_000_000;
/// A replica that is behind the others suspects the leader when it has not come nearer for so many timeouts.
const BEHIND_FACTOR: u64 = 4;

/// A leader that has more to do than can be done in time is given so many timeouts, as long as things move.
const QUEUE_FACTOR: u64 = 4;
/// And that is when what waits takes this part of a timeout at least: the part that backups let in, see §11.
const QUEUE_PART: u64 = 4;

/// What this replica thinks of the leader, and what it has heard of others.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// The highest view that each replica suspects the leader of.
    others: BTreeMap<ReplicaId, View>,
    /// When something was decided or executed last.
    last_progress: Time,
    /// j: views that had worked and were left for an overdue deadline.
    strikes: u32,
    /// k + 1: view changes since something fresh was executed.
    changes: u32,
    /// When, and at which height, this replica suspected a leader last.
    last_time: Time,
    last_height: Height,
}

/// `base * 2^doublings`, at most `cap`, in nanoseconds.
fn backed_off(base_ms: u64, doublings: u32, cap_ms: u64) -> u64 {
    let doubled = base_ms.saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX));
    doubled.min(cap_ms).saturating_mul(MS)
}

impl Suspicion {
    /// At the start and after a restart deadlines run from now on.
    pub(super) fn new(now: Time) -> Self {
        Self { last_progress: now, last_time: now, ..Self::default() }
    }

    fn of(&self, view: View) -> ReplicaSet {
        self.others.iter().filter(|(_, suspected)| **suspected == view).map(|(by, _)| *by).collect()
    }
}

impl<V: Variant> Pbft<V> {
    /// `Treq(j)`.
    fn request_timeout(&self) -> u64 {
        backed_off(self.params.treq_ms, self.suspicion.strikes, self.params.cap_ms)
    }

    /// `Tv(k)`.
    fn view_timeout(&self) -> u64 {
        backed_off(self.params.t0_ms, self.suspicion.changes.saturating_sub(1), self.params.cap_ms)
    }

    /// T7. Whether this replica lags behind the others: then that a bundle waits says little about the leader, because
    /// it may have been executed elsewhere. f + 1 have said that they are further, or a stable checkpoint or
    /// the NEW-VIEW has shown it.
    fn is_behind(&self, cx: &Cx<'_, Self>) -> bool {
        let mut heights: Vec<Height> = self.peers.executed.values().copied().collect();
        heights.sort_unstable_by(|a, b| b.cmp(a));
        let vouched = heights.get(cx.committee().f).copied().unwrap_or_default();
        let shown = self.current.taken_over.as_ref().map_or(Height::ZERO, |taken| taken.min);
        vouched.max(shown).max(self.progress.stable) > self.progress.executed
    }

    /// T1. Clients wait, or no longer: deadlines and the view timer follow.
    pub(super) fn watch_leader(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.current.normal {
            return;
        }
        match self.current.watch.deadlines_from {
            Some(from) => self.judge_leader(cx, from, false),
            // After NEW-VIEW the view timer runs only while a bundle waits.
            None if cx.pending().oldest.is_none() => cx.timers().cancel(Timer::View),
            None => self.arm_view_timer(cx),
        }
    }

    /// Runs the view timer if it does not run yet.
    pub(super) fn arm_view_timer(&mut self, cx: &mut Cx<'_, Self>) {
        if cx.timers().get(Timer::View).is_none() {
            let at = cx.now().plus(self.view_timeout());
            cx.timers().set(Timer::View, at);
        }
    }

    pub(super) fn on_request_timer(&mut self, cx: &mut Cx<'_, Self>) {
        let proved = self.current.watch.proved.then_some(cx.now());
        if let Some(from) = self.current.watch.deadlines_from.or(proved).filter(|_| self.current.normal) {
            self.judge_leader(cx, from, true);
        }
    }

    /// T2. Is a bundle overdue? Then SUSPECT, again every `status_ms`; taken back when none is any more.
    fn judge_leader(&mut self, cx: &mut Cx<'_, Self>, from: Time, again: bool) {
        if self.current.leader == cx.me() {
            return;
        }
        let pending = cx.pending();
        let timeout = self.request_timeout();
        let deadline = pending.oldest.map(|oldest| {
            let (deadline, cap) = (oldest.max(from).plus(timeout), self.params.cap_ms.saturating_mul(MS));
            // T3. Overload is not a dead leader: as long as heights are decided or executed, the age of a bundle
            // only says that there is too much to do. When nothing moves at all it does speak against the leader.
            // T7. Nor does it while this replica catches up with the others.
            // None of them for ever: a leader may starve some, or be slow on purpose, and what others have executed
            // may be out of reach.
            let crowded = pending.backlog_ns >= self.params.treq_ms.saturating_mul(MS) / QUEUE_PART;
            let (pause, longest) = if self.is_behind(cx) {
                (timeout.saturating_mul(BEHIND_FACTOR), cap)
            } else if pending.overloaded {
                (timeout, cap)
            } else if crowded {
                (timeout, timeout.saturating_mul(QUEUE_FACTOR).min(cap))
            } else {
                (0, 0)
            };
            let last = oldest.max(from).plus(longest);
            deadline.max(self.suspicion.last_progress.plus(pause)).min(last.max(deadline))
        });
        let now = cx.now();
        let overdue = self.current.watch.proved || deadline.is_some_and(|deadline| deadline <= now);
        if overdue {
            if !self.current.watch.stands || again {
                self.current.watch.stands = true;
                self.suspicion.last_time = now;
                self.suspicion.last_height = self.progress.executed;
                cx.send_unheld(To::All, PbftMessage::Suspect { view: self.current.view, on: true }.into());
            }
            if again || cx.timers().get(Timer::Request).is_none_or(|at| at <= now) {
                let later = now.plus(self.params.status_ms.saturating_mul(MS));
                cx.timers().set(Timer::Request, later);
            }
            return;
        }
        if std::mem::take(&mut self.current.watch.stands) {
            cx.send_unheld(To::All, PbftMessage::Suspect { view: self.current.view, on: false }.into());
        }
        match deadline {
            Some(deadline) => cx.timers().set(Timer::Request, deadline),
            None => cx.timers().cancel(Timer::Request),
        }
    }

    /// P4. The leader has proposed what no honest leader proposes.
    pub(super) fn suspect_at_once(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.current.watch.proved {
            self.current.watch.proved = true;
            let now = cx.now();
            self.judge_leader(cx, now, true);
        }
    }

    /// T4. f + 1 replicas, own included from its own copy, suspect the leader: one honest replica does.
    pub(super) fn on_suspect(
        &mut self,
        cx: &mut Cx<'_, Self>,
        by: ReplicaId,
        view: View,
        on: bool,
    ) -> Result<(), Reject> {
        if view < self.current.view {
            return Err(Reject::Stale);
        }
        let others = &mut self.suspicion.others;
        let known = others.get(&by).copied();
        if on {
            if known.is_none_or(|known| known < view) {
                others.insert(by, view);
            }
        } else if known == Some(view) {
            others.remove(&by);
        }
        self.check_suspects(cx);
        Ok(())
    }

    /// Only out of a view that has begun here: its NEW-VIEW is what lets this replica, and whoever is behind, go on.
    pub(super) fn check_suspects(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.current.normal {
            return;
        }
        // T4. Whoever has left the view suspects its leader for good. Its SUSPECT may have been lost, and it will never
        // say it again: without this, f who have left and one who waits could be f + 1 who never meet.
        let suspects = self
            .suspicion
            .of(self.current.view)
            .iter()
            .chain(self.changes.received.beyond(self.current.view));
        let suspects: ReplicaSet = suspects.collect();
        if suspects.len() >= cx.committee().weak() {
            let proof = self.current.proof.clone();
            let why = match (self.current.watch.proved, self.current.watch.stands) {
                (true, _) => reason::PROVED,
                (false, true) => reason::OVERDUE,
                (false, false) => reason::SUSPECTED,
            };
            self.start_view_change(cx, self.current.view.next(), why, proof);
        }
    }

    /// A height was executed, `fresh` requests for the first time.
    pub(super) fn note_execution(&mut self, cx: &mut Cx<'_, Self>, fresh: u32) {
        let now = cx.now();
        self.suspicion.last_progress = now;
        let calm_heights = self.progress.executed.since(self.suspicion.last_height) >= self.checkpoint_every;
        if calm_heights || now.since(self.suspicion.last_time) >= CALM_NS {
            self.suspicion.strikes = 0;
        }
        if self.current.normal && fresh > 0 {
            // T5. The view works: k = 0, the view timer stops, and deadlines start afresh.
            self.suspicion.changes = 0;
            self.current.watch.worked = true;
            cx.timers().cancel(Timer::View);
            self.current.watch.deadlines_from.get_or_insert(now);
        }
        self.watch_leader(cx);
    }

    /// A height was decided.
    pub(super) fn note_decision(&mut self, now: Time) {
        self.suspicion.last_progress = now;
    }

    /// The view is left. A view that had worked and is left for an overdue deadline makes deadlines longer.
    pub(super) fn leave_view(&mut self, cx: &mut Cx<'_, Self>, next: View) {
        if self.current.normal && self.current.watch.stands && self.current.watch.worked {
            self.suspicion.strikes = self.suspicion.strikes.saturating_add(1);
        }
        self.suspicion.changes = self.suspicion.changes.saturating_add(1);
        self.suspicion.others.retain(|_, suspected| *suspected >= next);
        cx.timers().cancel(Timer::Request);
        cx.timers().cancel(Timer::View);
    }

    /// T6. No NEW-VIEW in time, or nothing executed in the new view: the next one.
    pub(super) fn on_view_timer(&mut self, cx: &mut Cx<'_, Self>) {
        let why = if self.current.normal { reason::IDLE } else { reason::NO_NEW_VIEW };
        let proof = if self.current.normal {
            if cx.pending().oldest.is_none() {
                return; // Nobody waits any more.
            }
            let patience = self.current.watch.entered.plus(self.params.cap_ms.saturating_mul(MS));
            if self.is_behind(cx) && cx.now() < patience {
                return cx.timers().set(Timer::View, patience); // T7
            }
            self.current.proof.clone()
        } else {
            // The timer runs because a quorum has left all views below this one: that is why the next one may come.
            let quorum = cx.committee().quorum();
            EntryProof::ViewChanges(self.changes.received.of_at_least(self.current.view, quorum))
        };
        self.start_view_change(cx, self.current.view.next(), why, proof);
    }
}
