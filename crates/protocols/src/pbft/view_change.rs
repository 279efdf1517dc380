//! Leaving a view (§8): VIEW-CHANGE, joining, and the timer of the view to come.

use super::certified::Certified;
use super::state::InView;
use super::variant::Variant;
use super::view_message::{BlockClaim, EntryProof, NewView, Q_PER_HEIGHT_MAX, ViewChange, q_entries_max};
use super::{MS, Pbft, PbftMessage, PbftRecord, Timer, noted, reason};
use quorate_consensus::{Cx, Reject, Signed, To};
use quorate_types::{Height, ReplicaId, View};
use std::collections::BTreeMap;
use std::sync::Arc;

/// View changes, own ones and received ones.
#[derive(Debug, Default)]
pub(super) struct ViewChanges {
    /// The newest own VIEW-CHANGE, to be sent again unchanged.
    pub(super) own: Option<Box<ViewChange>>,
    /// The newest own NEW-VIEW, to be sent again unchanged.
    pub(super) own_new_view: Option<Box<NewView>>,
    /// VIEW-CHANGEs of all replicas.
    pub(super) received: ReceivedChanges,
    /// Reason for the last view change; empty before the first.
    pub(super) last_reason: &'static str,
    /// Number of views left since the replica was opened.
    pub(super) count: u64,
}

/// View changes of each replica: the one for the current view, and the one for its highest view. A replica takes the room of
/// two, whatever it sends.
#[derive(Debug, Default)]
pub(super) struct ReceivedChanges {
    of: BTreeMap<ReplicaId, Kept>,
}

#[derive(Debug)]
struct Kept {
    /// View change for the view that was current at its arrival; of no use when that view is over.
    current: Option<Arc<Signed<ViewChange>>>,
    highest: Arc<Signed<ViewChange>>,
}

/// Result of keeping a view change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrival {
    New,
    Known,
    Useless,
}

impl ReceivedChanges {
    /// Keeps a view change if it is the first one of its sender for the current view, or for the sender's highest view.
    fn keep(&mut self, change: Signed<ViewChange>, current: View) -> Arrival {
        let (by, view) = (change.by, change.body.view);
        let Some(kept) = self.of.get_mut(&by) else {
            let highest = Arc::new(change);
            let current = (view == current).then(|| Arc::clone(&highest));
            self.of.insert(by, Kept { current, highest });
            return Arrival::New;
        };
        let is_current = |kept: &Arc<Signed<ViewChange>>| kept.body.view == view;
        if is_current(&kept.highest) || kept.current.as_ref().is_some_and(is_current) {
            return Arrival::Known;
        }
        if kept.highest.body.view < view {
            kept.highest = Arc::new(change);
            if view == current {
                kept.current = Some(Arc::clone(&kept.highest));
            }
            Arrival::New
        } else if view == current {
            kept.current = Some(Arc::new(change));
            Arrival::New
        } else {
            Arrival::Useless
        }
    }

    /// Makes `view` the current view.
    fn move_to(&mut self, view: View) {
        for kept in self.of.values_mut() {
            if kept.highest.body.view == view {
                kept.current = Some(Arc::clone(&kept.highest));
            } else {
                kept.current = kept.current.take().filter(|change| change.body.view == view);
            }
        }
    }

    /// Returns the view changes for exactly this view, in the order of their senders.
    pub(super) fn of_view(&self, view: View) -> Vec<Arc<Signed<ViewChange>>> {
        let current = self.of.values().filter_map(|kept| kept.current.as_ref());
        current.filter(|change| change.body.view == view).map(Arc::clone).collect()
    }

    /// Counts the distinct senders of a view change for this view or a later one.
    fn count_at_least(&self, view: View) -> usize {
        self.of.values().filter(|kept| kept.highest.body.view >= view).count()
    }

    /// Returns the replicas that have left this view for a later one.
    pub(super) fn beyond(&self, view: View) -> impl Iterator<Item = ReplicaId> {
        self.of
            .values()
            .map(|kept| &kept.highest)
            .filter(move |change| change.body.view > view)
            .map(|change| change.by)
    }

    /// Returns up to `most` view changes for this view or later ones, of distinct senders, in the order of their ids.
    pub(super) fn of_at_least(&self, view: View, most: usize) -> Vec<Signed<ViewChange>> {
        let later = self.of.values().filter(|kept| kept.highest.body.view >= view);
        later.take(most).map(|kept| Signed::clone(&kept.highest)).collect()
    }

    /// Returns the greatest view for which, or for a later one, so many distinct senders have sent a view change.
    fn reached_by(&self, senders: usize) -> Option<View> {
        let mut views: Vec<View> = self.of.values().map(|kept| kept.highest.body.view).collect();
        views.sort_unstable_by(|a, b| b.cmp(a));
        views.get(senders.checked_sub(1)?).copied()
    }
}

impl<V: Variant> Pbft<V> {
    /// Leaves the current view for `view`, for good: the replica never votes in an older view again.
    pub(super) fn start_view_change(
        &mut self,
        cx: &mut Cx<'_, Self>,
        view: View,
        why: &'static str,
        proof: EntryProof,
    ) {
        assert!(view > self.current.view, "views only grow");
        self.leave_view(cx, view);
        self.move_to(cx, view, false, why, proof);
        self.send_view_change(cx);
        self.note(cx, noted::VIEW_CHANGE, self.progress.stable);
        self.arm_resend(cx);
        // V5: the own view change counts from its own copy. Those of others may suffice for the timer already.
        self.arm_when_quorum_left(cx);
    }

    fn send_view_change(&mut self, cx: &mut Cx<'_, Self>) {
        let change = ViewChange {
            view: self.current.view,
            proof: self.proof.clone(),
            prepared: self.claims_of_p(),
            pre_prepared: if V::SIGNED { Vec::new() } else { self.claims_of_q() },
            certified: self.certificates(),
        };
        // V1. §4: view, proof and the own VIEW-CHANGE are durable before it leaves. It is held behind the records of all
        // blocks that it names as well.
        cx.record(&PbftRecord::ViewChange(Box::new(change.clone())));
        self.changes.own = Some(Box::new(change.clone()));
        cx.send(To::All, PbftMessage::ViewChange(Box::new(change)).into());
    }

    /// Makes `view` the current view and records it with the proof that lets this replica in.
    pub(super) fn move_to(
        &mut self,
        cx: &mut Cx<'_, Self>,
        view: View,
        normal: bool,
        why: &'static str,
        proof: EntryProof,
    ) {
        self.current = InView::new(view, self.leader_of(cx, view), normal, proof, cx.now());
        self.read_leader_first(cx);
        if normal {
            self.begun = view;
        }
        if why != reason::BEGUN {
            self.changes.last_reason = why;
            self.changes.count = self.changes.count.saturating_add(1);
        }
        self.low_view = self.lowest_view();
        self.changes.received.move_to(view);
        self.early.retain(|(early, ..)| *early >= view);
        let proof = self.current.proof.clone();
        cx.record(&PbftRecord::Entered { view, normal, proof });
    }

    /// Makes the intake read the leader's messages first: all wait for its proposals. The leader itself waits for the votes of
    /// a quorum.
    pub(super) fn read_leader_first(&self, cx: &mut Cx<'_, Self>) {
        cx.urgent((self.current.leader != cx.me()).then_some(self.current.leader));
    }

    /// Returns P above h.
    fn claims_of_p(&self) -> Vec<BlockClaim> {
        let entries = self.instances.iter().filter_map(|(height, instance)| {
            let (block, view) = instance.prepared?;
            Some(BlockClaim { height: *height, block, view })
        });
        entries.collect()
    }

    /// Returns the certificates of P, in variant S.
    fn certificates(&self) -> Vec<Certified> {
        let certified = self.instances.values().filter_map(|instance| instance.certified.as_deref());
        certified.cloned().collect()
    }

    /// Returns Q above h, by height and block: the entries of the newest views if there are too many.
    fn claims_of_q(&self) -> Vec<BlockClaim> {
        let mut claims = Vec::new();
        for (height, instance) in &self.instances {
            claims.extend(claims_at(*height, instance));
        }
        let most = q_entries_max(self.window);
        if claims.len() > most {
            claims.sort_by_key(|entry| std::cmp::Reverse(entry.view));
            claims.truncate(most);
            claims.sort_unstable_by_key(|entry| (entry.height, entry.block));
        }
        claims
    }

    fn arm_resend(&self, cx: &mut Cx<'_, Self>) {
        let at = cx.now().plus(self.params.status_ms.saturating_mul(MS));
        cx.timers().set(Timer::Resend, at);
    }

    /// V1. §8: sends the same bytes again, every `status_ms`, until the view begins.
    pub(super) fn on_resend_timer(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.current.normal {
            self.resend_view_change(cx);
            self.arm_resend(cx);
        }
    }

    pub(super) fn resend_view_change(&self, cx: &mut Cx<'_, Self>) {
        if let Some(change) = self.changes.own.clone().filter(|change| change.view == self.current.view) {
            cx.send(To::All, PbftMessage::ViewChange(change).into());
        }
        if let Some(new) = self.changes.own_new_view.clone().filter(|new| new.view == self.current.view) {
            cx.send(To::All, PbftMessage::NewView(new).into());
        }
    }

    /// Resumes after a restart in the middle of a view change (§15). The log may end between two records of one step. A message
    /// held behind all of them has never left, so missing ones are made now.
    pub(super) fn resume_view_change(&mut self, cx: &mut Cx<'_, Self>) {
        if self.changes.own.as_ref().is_none_or(|change| change.view != self.current.view) {
            self.send_view_change(cx);
            return self.arm_resend(cx);
        }
        if let Some(new) = self.changes.own_new_view.clone().filter(|new| new.view == self.current.view) {
            self.pre_prepare_all(cx, &new.picks);
        }
        self.resend_view_change(cx);
        self.arm_resend(cx);
    }

    pub(super) fn on_view_change(
        &mut self,
        cx: &mut Cx<'_, Self>,
        change: Signed<ViewChange>,
    ) -> Result<(), Reject> {
        // V2. The form; the intake has checked the signature and the proof of h.
        change.body.check(self.window).map_err(Reject::Invalid)?;
        V::check_shown(&change.body, cx.committee(), &self.params).map_err(Reject::Invalid)?;
        let is_own = change.by == cx.me();
        if change.body.view < self.current.view
            || (change.body.view == self.current.view && self.current.normal)
        {
            return Err(Reject::Stale);
        }
        // V2. The first valid one of a sender and view counts.
        match self.changes.received.keep(change, self.current.view) {
            Arrival::New => {}
            Arrival::Known if is_own => {}
            Arrival::Known => return Err(Reject::Duplicate),
            Arrival::Useless => return Err(Reject::Stale),
        }
        self.check_join(cx);
        self.check_suspects(cx);
        self.arm_when_quorum_left(cx);
        self.try_new_view(cx);
        Ok(())
    }

    /// V3. Joins f + 1 replicas that have left for later views: one of them is honest and has a reason.
    fn check_join(&mut self, cx: &mut Cx<'_, Self>) {
        let weak = cx.committee().weak();
        let Some(view) = self.changes.received.reached_by(weak).filter(|view| *view > self.current.view)
        else {
            return;
        };
        let proof = EntryProof::ViewChanges(self.changes.received.of_at_least(view, weak));
        self.start_view_change(cx, view, reason::JOINED, proof);
    }

    /// V4. Starts the timer of the view only when a quorum has left all views below it: no replica runs ahead alone, and a
    /// cut-off minority does not back off. §8: view changes for later views count as well, or honest replicas two views apart
    /// would never meet.
    fn arm_when_quorum_left(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.current.normal
            && self.changes.received.count_at_least(self.current.view) >= cx.committee().quorum()
        {
            self.arm_view_timer(cx);
        }
    }
}

/// Returns the entries of Q at one height: those of the newest views if there are too many.
fn claims_at(height: Height, instance: &super::Instance) -> Vec<BlockClaim> {
    let entries = instance.pre_prepared.iter();
    let mut claims: Vec<BlockClaim> =
        entries.map(|(block, view)| BlockClaim { height, block: *block, view: *view }).collect();
    claims.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.view));
    claims.truncate(Q_PER_HEIGHT_MAX);
    claims.sort_unstable_by_key(|entry| entry.block);
    claims
}
