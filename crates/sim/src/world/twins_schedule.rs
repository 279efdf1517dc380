//! The schedule of a twins scenario.

use crate::arrival::TwinHalf;
use crate::twins::{ACT_NS, Scenario};
use quorate_types::{ReplicaId, Time, View};

/// A view of the scenario that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct BegunView {
    at: Time,
    leader: ReplicaId,
}

/// The schedule of a scenario.
#[derive(Debug)]
pub(super) struct TwinsSchedule {
    pub(super) scenario: Scenario,
    /// First view of the protocol, and so of the scenario.
    pub(super) first: View,
    /// The views of the scenario that have begun.
    pub(super) begun: Vec<Option<BegunView>>,
    /// The view of each node.
    pub(super) views: Vec<View>,
    /// The highest view of any node.
    pub(super) reached: View,
    /// Whether all frames pass.
    pub(super) is_over: bool,
}

/// The fate of a frame to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameRule {
    /// The partition of this view decides.
    Apart(usize),
    /// The frame passes, unless this replica has sent it.
    Without(ReplicaId),
    /// The frame passes.
    Over,
}

impl TwinsSchedule {
    pub(super) fn new(first: View, scenario: Scenario) -> Self {
        Self {
            first,
            begun: vec![None; scenario.rounds.len()],
            views: vec![first; scenario.nodes()],
            reached: first,
            is_over: scenario.rounds.is_empty(),
            scenario,
        }
    }

    /// Returns the index of a view in the scenario.
    pub(super) fn round(&self, view: View) -> usize {
        usize::try_from(view.since(self.first)).unwrap_or(usize::MAX)
    }

    pub(super) fn node(&self, id: ReplicaId, half: TwinHalf) -> Option<usize> {
        match half {
            TwinHalf::First => Some(id.index()),
            TwinHalf::Second => {
                let place = self.scenario.twins.iter().position(|twin| *twin == id)?;
                Some(self.scenario.n.saturating_add(place))
            }
        }
    }

    /// Records that a node is in a view with this leader. Returns whether it is the first one there.
    pub(super) fn note(&mut self, at: Time, node: usize, (view, leader): (View, ReplicaId)) -> bool {
        if let Some(known) = self.views.get_mut(node) {
            *known = view;
        }
        self.reached = self.reached.max(view);
        let round = self.round(view);
        let begun = self.begun.get_mut(round);
        match begun {
            Some(begun @ None) => {
                *begun = Some(BegunView { at, leader });
                true
            }
            _ => false,
        }
    }

    /// Returns the rule for frames of a view.
    pub(super) fn act(&self, at: Time, view: View) -> FrameRule {
        let index = self.round(view);
        match self.begun.get(index) {
            None => FrameRule::Over,
            Some(_) if self.is_over => FrameRule::Over,
            Some(Some(begun)) if at >= begun.at.plus(ACT_NS) => FrameRule::Without(begun.leader),
            Some(_) => FrameRule::Apart(index),
        }
    }

    /// Returns which halves at a place receive a node's message now.
    pub(super) fn receivers(&self, act: FrameRule, from: (ReplicaId, usize), to: ReplicaId) -> (bool, bool) {
        let hears = |node: Option<usize>| {
            node.is_some_and(|node| match act {
                FrameRule::Over => true,
                FrameRule::Without(leader) => leader != from.0,
                FrameRule::Apart(view) => {
                    self.scenario.rounds.get(view).is_none_or(|round| round.partition.joins(from.1, node))
                }
            })
        };
        (hears(self.node(to, TwinHalf::First)), hears(self.node(to, TwinHalf::Second)))
    }
}
