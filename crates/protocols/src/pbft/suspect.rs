//! Suspicion of leaders (§11): a deadline for each waiting bundle, the pre-vote, and the view timer.
//!
//! A replica that has sent a VIEW-CHANGE never votes in older views again, so no replica leaves a working view because of
//! its own clock alone. SUSPECT binds to nothing, and f + 1 of them mean that one honest replica waits in vain. From the
//! entry into a view to its first execution only the view timer runs, because short deadlines would undercut the doubled
//! timer.

use super::variant::Variant;
use super::{EntryProof, MS, Pbft, PbftMessage, Timer, reason};
use quorate_consensus::{Cx, Reject, To};
use quorate_types::{Height, ReplicaId, ReplicaSet, Time, View};
use std::collections::BTreeMap;

/// Time without an own SUSPECT after which deadlines are short again.
const CALM_NS: u64 = 30_000_000_000;
/// Timeouts without progress after which a replica that is behind the others suspects the leader.
const BEHIND_FACTOR: u64 = 4;

/// Timeouts that an overloaded leader gets as long as heights are decided or executed.
const QUEUE_FACTOR: u64 = 4;
/// A leader counts as overloaded when the backlog takes at least this part of a timeout: the part that backups admit (§11).
const QUEUE_PART: u64 = 4;

/// Suspicions that last longer than a view: those of other replicas, and the growth of own timeouts.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// The highest view whose leader each replica suspects.
    others: BTreeMap<ReplicaId, View>,
    /// Time of the last decision or execution.
    last_progress: Time,
    /// j: number of views that had worked and were left because of an overdue deadline.
    strikes: u32,
    /// k + 1: number of view changes since the last execution of a fresh request.
    changes: u32,
    /// Time of the last own SUSPECT.
    last_time: Time,
    /// Executed height at the last own SUSPECT.
    last_height: Height,
}

/// Returns `base * 2^doublings`, at most `cap`, in nanoseconds.
fn backed_off(base_ms: u64, doublings: u32, cap_ms: u64) -> u64 {
    let doubled = base_ms.saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX));
    doubled.min(cap_ms).saturating_mul(MS)
}

impl Suspicion {
    /// Starts without suspicions, at the first start and after a restart.
    pub(super) fn new(now: Time) -> Self {
        Self { last_progress: now, last_time: now, ..Self::default() }
    }

    fn of(&self, view: View) -> ReplicaSet {
        self.others.iter().filter(|(_, suspected)| **suspected == view).map(|(by, _)| *by).collect()
    }
}

impl<V: Variant> Pbft<V> {
    /// Returns `Treq(j)`.
    fn request_timeout(&self) -> u64 {
        backed_off(self.params.treq_ms, self.suspicion.strikes, self.params.cap_ms)
    }

    /// Returns `Tv(k)`.
    fn view_timeout(&self) -> u64 {
        backed_off(self.params.t0_ms, self.suspicion.changes.saturating_sub(1), self.params.cap_ms)
    }

    /// T7. Returns whether this replica lags behind the others. A waiting bundle then says little about the leader, because
    /// others may have executed it. f + 1 peers have reported a higher height, or a stable checkpoint or the NEW-VIEW has
    /// shown it.
    fn is_behind(&self, cx: &Cx<'_, Self>) -> bool {
        let mut heights: Vec<Height> = self.peers.executed.values().copied().collect();
        heights.sort_unstable_by(|a, b| b.cmp(a));
        let vouched = heights.get(cx.committee().weak().saturating_sub(1)).copied().unwrap_or_default();
        let shown = self.current.taken_over.as_ref().map_or(Height::ZERO, |taken| taken.min);
        vouched.max(shown).max(self.progress.stable) > self.progress.executed
    }

    /// T1. Sets deadlines and the view timer by the waiting bundles.
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

    /// Starts the view timer if it does not run yet.
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

    /// T2. Sends SUSPECT while a bundle is overdue, again every `status_ms`, and withdraws it when none is.
    fn judge_leader(&mut self, cx: &mut Cx<'_, Self>, from: Time, again: bool) {
        if self.current.leader == cx.me() {
            return;
        }
        let pending = cx.pending();
        let timeout = self.request_timeout();
        let deadline = pending.oldest.map(|oldest| {
            let (deadline, cap) = (oldest.max(from).plus(timeout), self.params.cap_ms.saturating_mul(MS));
            // T3. Overload does not count as a dead leader: as long as heights are decided or executed, the age of a bundle
            // only shows a long queue. Without any progress it does count against the leader.
            // T7. Nor does it count while this replica catches up with the others.
            // Neither excuse lasts for ever: a leader may starve some bundles, or be slow on purpose, and blocks that others
            // have executed may be unavailable.
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

    /// P4. Suspects the leader at once: it has proposed a block that no honest leader proposes.
    pub(super) fn suspect_at_once(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.current.watch.proved {
            self.current.watch.proved = true;
            let now = cx.now();
            self.judge_leader(cx, now, true);
        }
    }

    /// T4. Handles a SUSPECT, the own one from its own copy. Among f + 1 suspecting replicas one is honest.
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

    /// Leaves the view when f + 1 replicas suspect its leader. Only a view that has begun here: its NEW-VIEW is the proof that
    /// lets this replica, and replicas that are behind, into the next one.
    pub(super) fn check_suspects(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.current.normal {
            return;
        }
        // T4. A replica that has left the view suspects its leader for good. Its SUSPECT may have been lost, and it will
        // never send it again. Without this rule f replicas that have left and one that waits would never be f + 1.
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

    /// Notes the execution of a height with `fresh` requests that were applied for the first time.
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

    /// Notes the decision of a height.
    pub(super) fn note_decision(&mut self, now: Time) {
        self.suspicion.last_progress = now;
    }

    /// Leaves the current view. A view that had worked and is left for an overdue deadline makes deadlines longer.
    pub(super) fn leave_view(&mut self, cx: &mut Cx<'_, Self>, next: View) {
        if self.current.normal && self.current.watch.stands && self.current.watch.worked {
            self.suspicion.strikes = self.suspicion.strikes.saturating_add(1);
        }
        self.suspicion.changes = self.suspicion.changes.saturating_add(1);
        self.suspicion.others.retain(|_, suspected| *suspected >= next);
        cx.timers().cancel(Timer::Request);
        cx.timers().cancel(Timer::View);
    }

    /// T6. Leaves a view without a NEW-VIEW in time, or without an execution in time.
    pub(super) fn on_view_timer(&mut self, cx: &mut Cx<'_, Self>) {
        let why = if self.current.normal { reason::IDLE } else { reason::NO_NEW_VIEW };
        let proof = if self.current.normal {
            if cx.pending().oldest.is_none() {
                return; // No client waits any more.
            }
            let patience = self.current.watch.entered.plus(self.params.cap_ms.saturating_mul(MS));
            if self.is_behind(cx) && cx.now() < patience {
                return cx.timers().set(Timer::View, patience); // T7
            }
            self.current.proof.clone()
        } else {
            // The timer runs because a quorum has left all views below this one, which is the proof for the next one.
            let quorum = cx.committee().quorum();
            EntryProof::ViewChanges(self.changes.received.of_at_least(self.current.view, quorum))
        };
        self.start_view_change(cx, self.current.view.next(), why, proof);
    }
}
