//! Base points: committed votes at fixed distances, with the states after them. They bring a replica back that was away for
//! longer than its peers serve votes (§22).
//!
//! Decided blocks arrive from f + 1 peers, but a block names no vote. A base point is the committed vote that crosses a multiple
//! of 128 rounds, so all replicas have the same ones. Replicas of an idle cluster have the same committed vote as well. A
//! replica adopts a point that f + 1 peers report equally, because one of them is honest. The replica then follows the votes
//! above that point.

use super::super::entry::{Entry, EntryRef};
use super::super::message::UniqueMessage;
use super::super::record::UniqueRecord;
use super::super::replica::{Context, Form, UniqueChain};
use super::super::store::SERVED_ROUNDS;
use super::chain_state::ChainState;
use super::form::Artemis;
use super::message::ArtemisMessage;
use super::record::ArtemisFact;
use quorate_consensus::{Reject, To};
use quorate_types::{Height, ReplicaId, View};
use std::collections::BTreeMap;

/// Rounds from one base point to the next. After a cold start a replica keeps only the votes of K heights, and a replica that is
/// behind by more waits for so many rounds at most.
pub(super) const ROUNDS_APART: u64 = 128;
/// Base points that are kept: those of the rounds that are served. Each has a record of its own.
pub(super) const POINTS_KEPT: u64 = SERVED_ROUNDS / ROUNDS_APART;
/// Base points in one message at most, and the committed vote.
pub(super) const POINTS_MAX: usize = 9;

/// A committed vote with the state after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BasePoint {
    /// The vote.
    pub vote: EntryRef,
    /// The state after it.
    pub state: ChainState,
}

quorate_types::wire_struct!(BasePoint { vote, state });

impl BasePoint {
    /// Bytes of the shortest encoding, without flags.
    pub(super) const BYTES_MIN: usize = 40 + 8 + 40 + 32 + 8;

    /// Returns its number: points of one number are equal at all replicas.
    pub(super) fn number(&self) -> u64 {
        self.vote.round.0 / ROUNDS_APART
    }
}

/// The own base points, and those that peers report.
#[derive(Debug, Default)]
pub(super) struct BasePoints {
    /// The newest own ones, by number.
    pub(super) own: BTreeMap<u64, BasePoint>,
    /// Round of the committed vote up to which all own ones are known.
    until: View,
    /// The last report of each peer.
    reported: BTreeMap<ReplicaId, Vec<BasePoint>>,
}

impl BasePoints {
    /// Returns base points of the log, up to the committed vote.
    pub(super) fn restored(points: impl Iterator<Item = BasePoint>, until: View) -> Self {
        let mut all = Self { until, ..Self::default() };
        points.for_each(|point| all.keep(point));
        all
    }

    fn keep(&mut self, point: BasePoint) {
        self.own.insert(point.number(), point);
        while u64::try_from(self.own.len()).is_ok_and(|count| count > POINTS_KEPT) {
            self.own.pop_first();
        }
    }

    /// Returns the highest point above a round, up to a height, that so many peers report equally.
    fn confirmed(&self, above: View, height: Height, weak: usize) -> Option<BasePoint> {
        let all = self.reported.values().flatten();
        let usable = all.filter(|point| point.vote.round > above && point.state.height <= height);
        let reports = |point: &BasePoint| self.reported.values().filter(|all| all.contains(point)).count();
        usable.filter(|point| reports(point) >= weak).max_by_key(|point| point.vote).copied()
    }
}

impl UniqueChain<Artemis> {
    /// A19. Notes the base points on the path to the committed vote.
    pub(super) fn note_points(&mut self, cx: &mut Context<'_, Artemis>, base: EntryRef) {
        let until = std::mem::replace(&mut self.state.points.until, base.round);
        let mut at = base;
        while at.round > until
            && let Some(frame) = self.entries.get(at.id)
        {
            let parent = frame.entry.parent();
            if at.round.0 / ROUNDS_APART > parent.round.0 / ROUNDS_APART
                && let Some(state) = self.state_after(at)
            {
                let point = BasePoint { vote: at, state };
                self.state.points.keep(point);
                // With the next sync: without them a replica that is away could not return after a cold start.
                cx.record(&UniqueRecord::Form(ArtemisFact::Point(point)));
            }
            at = parent;
        }
    }

    /// Reports the base points to a peer whose question for votes cannot be answered, at a limited rate.
    pub(super) fn show_points(&mut self, cx: &mut Context<'_, Artemis>, link: ReplicaId, above: View) {
        let vote = self.entries.base();
        let Some(state) = self.state_after(vote) else { return };
        let own = self.state.points.own.values().copied();
        let points: Vec<BasePoint> = own.chain([BasePoint { vote, state }]).collect();
        let is_useful = vote.round > above;
        let (now, delta_ns) = (cx.now(), self.delta.times(1));
        if is_useful && self.served.proofs.admits(link, now, delta_ns, 1) {
            let message = UniqueMessage::Own(ArtemisMessage::BasePoints { points });
            cx.send_unheld(To::One(link), message);
        }
    }

    /// A19. Handles the report of a peer.
    pub(super) fn on_base_points(
        &mut self,
        cx: &mut Context<'_, Artemis>,
        mut points: Vec<BasePoint>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let base = self.entries.base().round;
        points.retain(|point| point.vote.round > base);
        if points.is_empty() {
            return Err(Reject::Stale);
        }
        self.state.points.reported.insert(link, points);
        self.adopt_point(cx);
        Ok(())
    }

    /// A19. Adopts the highest base point that f + 1 peers report equally, once its block is committed here.
    pub(super) fn adopt_point(&mut self, cx: &mut Context<'_, Artemis>) {
        let (base, height) = (self.entries.base().round, self.chain.committed().height);
        let weak = cx.committee().weak();
        let Some(point) = self.state.points.confirmed(base, height, weak) else { return };
        let BasePoint { vote, state } = point;
        self.state.points.reported.clear();
        self.state.points.until = vote.round;
        self.state.note(vote, state);
        self.committed_by = None;
        self.open_instance(cx, &state);
        Artemis::on_committed(self, cx, vote);
        self.adopt_base(cx, vote);
    }
}
