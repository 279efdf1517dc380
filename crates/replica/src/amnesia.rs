//! A replica that has lost its disk (ADR 0015; section "After amnesia" of each protocol's specification).
//!
//! It counts among the f faulty replicas until it is back. Up to then it makes no statement: it follows the protocol,
//! executes what f + 1 peers report as decided, and receives a state.
//!
//! ```text
//! asking:  n - f others have shown all they know ─▶ the bounds of the forgotten promises
//! waiting: a later checkpoint is stable, later views were shown ─▶ the lock is adopted ─▶ statements above the bounds
//! ```
//!
//! An answer counts when this replica knows as much as its sender claims: the sender's view and checkpoint are proven then,
//! and a liar can raise neither. The answerer keeps its view on disk before it answers, so it votes in no earlier one after
//! a restart.

use crate::host_message::HostMessage;
use crate::output::Output;
use crate::replica::Replica;
use quorate_consensus::{Abstention, To};
use quorate_types::{Floors, Height, Incarnation, ReplicaId, Time, View, Wire};
use std::collections::BTreeMap;

/// The pause between two questions.
const ASK_NS: u64 = 500_000_000;
/// The pause between two answers to one peer.
const ANSWER_NS: u64 = 200_000_000;
/// The time for which a peer that waits for later views makes this replica ask for them once.
const LEAVE_VIEW_NS: u64 = 3_600_000_000_000;
/// The time after the first planned view change in which more may follow, until the peer's view is reached.
const LEAVE_VIEW_FOR_NS: u64 = 60_000_000_000;
/// Empty heights that a peer that waits for a checkpoint can ask for at once.
const WANTED_HEIGHTS_MAX: u64 = 4_096;

/// The claim of a peer that has shown all it knows.
#[derive(Clone, Copy, Debug)]
struct Shown {
    round: u64,
    view: View,
    stable: Height,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Amnesia {
    /// The number of the last question.
    round: u64,
    ask_at: Time,
    /// The time of the first question.
    since: Option<Time>,
    shown: BTreeMap<ReplicaId, Shown>,
    /// The bounds, once n - f others have shown all they know.
    bounds: Option<Abstention>,
    /// The number of the last question before the bounds were known.
    bounds_round: u64,
}

/// Peers that have lost their disk, as this replica helps them.
#[derive(Debug, Default)]
pub(crate) struct HelpedAmnesiacs {
    answered: BTreeMap<ReplicaId, Time>,
    /// The time of the first planned view change for each peer.
    left_for: BTreeMap<ReplicaId, Time>,
}

/// The progress of a replica without memory, for status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AmnesiaStatus {
    /// The others that have shown all they know.
    pub shown: usize,
    /// The number of others that is needed: n - f.
    pub needed: usize,
    /// The height of the stable checkpoint that it waits for; `None` before the bounds are known.
    pub stable: Option<Height>,
    /// The view from which on it may make statements of every kind; `None` before the bounds are known.
    pub view: Option<View>,
}

impl Amnesia {
    pub(crate) fn deadline(&self) -> Time {
        self.ask_at
    }
}

impl Replica {
    /// Whether this replica has lost its disk and is not back yet.
    pub(crate) fn is_amnesiac(&self) -> bool {
        self.amnesia.is_some()
    }

    /// Returns the progress of a replica that has lost its disk; `None` for any other.
    #[must_use]
    pub fn amnesia(&self) -> Option<AmnesiaStatus> {
        let amnesia = self.amnesia.as_ref()?;
        let bounds = amnesia.bounds.as_ref();
        Some(AmnesiaStatus {
            shown: self.shown_by(|_| true),
            needed: self.others_needed(),
            stable: bounds.map(|bounds| bounds.stable),
            view: bounds.map(view_of),
        })
    }

    /// n - f.
    fn others_needed(&self) -> usize {
        self.setup.committee.all_honest()
    }

    /// Returns the number of others whose claims are proven by now, among those that `counts` accepts.
    fn shown_by(&self, counts: impl Fn(&Shown) -> bool) -> usize {
        let (view, stable) = (self.running.protocol.proven_view(), self.checkpoints.height());
        let is_proven = |shown: &&Shown| shown.view <= view && shown.stable <= stable;
        let shown = self.amnesia.iter().flat_map(|amnesia| amnesia.shown.values());
        shown.filter(is_proven).filter(|shown| counts(shown)).count()
    }

    /// Asks the others, and looks whether this replica is back.
    pub(crate) fn tick_amnesia(&mut self) {
        let now = self.now;
        let Some(amnesia) = &mut self.amnesia else { return };
        if amnesia.ask_at <= now {
            amnesia.since.get_or_insert(now);
            amnesia.ask_at = now.plus(ASK_NS);
            amnesia.round = amnesia.round.saturating_add(1);
            let (stable, view) = match &amnesia.bounds {
                Some(bounds) => (bounds.stable, self.running.status.view.next().max(bounds.view.next())),
                None => (Height::ZERO, View::ZERO),
            };
            let floor =
                amnesia.bounds.iter().flat_map(|bounds| &bounds.floors.views).map(|(_, view)| *view).max();
            let view =
                if floor.is_some_and(|floor| floor > self.running.status.view) { view } else { View::ZERO };
            let ask =
                HostMessage::AskShow { incarnation: self.incarnation, round: amnesia.round, stable, view };
            self.send_host(To::All, ask);
        }
        self.look_back();
    }

    /// Learns the bounds when n - f others have shown all they know, and ends the silence when it is over.
    pub(crate) fn look_back(&mut self) {
        let Some(amnesia) = &self.amnesia else { return };
        let needed = self.others_needed();
        let Some(bounds) = amnesia.bounds.clone() else {
            // Evidence that was on its way at the first question has arrived 2 delta later.
            let wait = self.delta_ns().map_or(0, |delta| delta.saturating_mul(2));
            let has_waited = amnesia.since.is_some_and(|since| self.now.since(since) >= wait);
            if has_waited && self.shown_by(|_| true) >= needed {
                let bounds = self.call(|protocol, env| protocol.abstain(env));
                if let Some(amnesia) = &mut self.amnesia {
                    amnesia.bounds_round = amnesia.round;
                    amnesia.bounds = Some(bounds);
                }
            }
            return;
        };
        // Answers to several questions count: each answerer has left the earlier views for good. A slow one answers an earlier
        // question than the last.
        let (round, view) = (amnesia.bounds_round, bounds.view);
        let is_later = |shown: &Shown| shown.round > round && shown.view > view;
        let has_views = view == View::ZERO || self.shown_by(is_later) >= needed;
        if self.checkpoints.height() < bounds.stable || !has_views {
            return;
        }
        if self.call(|protocol, env| protocol.remember(env)) {
            self.end_amnesia(bounds);
        }
    }

    /// The replica is back. Its bounds are durable before any statement leaves: a record has them.
    fn end_amnesia(&mut self, bounds: Abstention) {
        let mut floors = bounds.floors;
        if bounds.stable > Height::ZERO {
            // Heights up to the stable checkpoint are settled; nothing is stated about them.
            floors.height = floors.height.max(self.checkpoints.height().next());
        }
        self.amnesia = None;
        self.outbox.begin_step();
        self.outbox.abstain(floors, &mut self.out);
        self.running.pending_changed = true;
        self.out.push_back(Output::Trace(quorate_consensus::Note {
            what: "remembers",
            view: self.running.status.view,
            height: self.checkpoints.height(),
        }));
    }

    /// Takes in the answer of a peer to the question of this replica.
    pub(crate) fn on_shown(
        &mut self,
        from: ReplicaId,
        incarnation: Incarnation,
        (round, view, stable): (u64, View, Height),
    ) {
        let me = self.incarnation;
        let Some(amnesia) =
            self.amnesia.as_mut().filter(|amnesia| incarnation == me && round <= amnesia.round)
        else {
            return;
        };
        if amnesia.shown.get(&from).is_none_or(|shown| shown.round <= round) {
            amnesia.shown.insert(from, Shown { round, view, stable });
        }
        self.look_back();
    }

    /// Shows a peer that has lost its disk all that this replica knows.
    pub(crate) fn on_ask_show(
        &mut self,
        from: ReplicaId,
        (incarnation, round): (Incarnation, u64),
        (stable, view): (Height, View),
    ) {
        let now = self.now;
        if self.peers.amnesiacs.answered.get(&from).is_some_and(|last| now.since(*last) < ANSWER_NS) {
            return;
        }
        self.peers.amnesiacs.answered.insert(from, now);
        self.help_back(from, stable, view);
        if self.is_amnesiac() {
            // It knows nothing that counts.
            return;
        }
        if self.checkpoints.height() > Height::ZERO {
            let proof = self.checkpoints.stable().clone();
            self.send_host(To::One(from), HostMessage::ShownProof(Box::new(proof)));
        }
        self.call(|protocol, env| protocol.show(env, from));
        self.settle();
        let view = self.running.protocol.proven_view();
        self.outbox.begin_step();
        // After a restart this replica makes no statement in an earlier view than the one that it has shown.
        for (kind, lowest) in self.running.protocol.shown_floors() {
            if lowest > View::ZERO {
                self.outbox.reserve(kind, lowest.minus(1), &mut self.out);
            }
        }
        let shown = HostMessage::Shown { incarnation, round, view, stable: self.checkpoints.height() };
        self.outbox.send_host_held(now, To::One(from), shown, &mut self.out);
    }

    /// Lets heights and views move on for a peer that waits for later ones, in a cluster that would not by itself.
    fn help_back(&mut self, from: ReplicaId, stable: Height, view: View) {
        if stable > self.checkpoints.height() {
            let contiguous = self.sequencer.contiguous();
            let until = stable.min(contiguous.plus(WANTED_HEIGHTS_MAX));
            self.services.wanted.want(until, contiguous);
            self.running.pending_changed = true;
        }
        if view > self.running.protocol.proven_view() {
            let first = *self.peers.amnesiacs.left_for.entry(from).or_insert(self.now);
            let passed = self.now.since(first);
            if passed >= LEAVE_VIEW_NS {
                self.peers.amnesiacs.left_for.insert(from, self.now);
            }
            if !(LEAVE_VIEW_FOR_NS..LEAVE_VIEW_NS).contains(&passed) {
                // With some protocols each height moves the view.
                let contiguous = self.sequencer.contiguous();
                self.services.wanted.want(contiguous.plus(1), contiguous);
                self.running.pending_changed = true;
                self.call(|protocol, env| protocol.leave_view(env));
            }
        }
    }
}

/// Returns the first view in which a replica with these bounds may make statements of every kind.
fn view_of(bounds: &Abstention) -> View {
    let floors = bounds.floors.views.iter().map(|(_, view)| *view).max().unwrap_or_default();
    floors.max(bounds.view.next())
}

/// The record that a replica is back: the floors of its forgotten promises. Protocols number their kinds from below.
pub(crate) const BACK_KIND: u8 = u8::MAX;

/// Reads the floors in the record.
pub(crate) fn read_floors(bytes: &[u8]) -> Option<Floors> {
    Floors::from_bytes(bytes).ok()
}
