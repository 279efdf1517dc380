//! Parts of a replica's state: the current view, the heights, and the reports of peers.

use super::select::Selected;
use super::view_message::EntryProof;
use quorate_types::{Height, ReplicaId, Time, View};
use std::collections::BTreeMap;

/// State of the current view. A change of views replaces all of it.
#[derive(Debug)]
pub(super) struct InView {
    /// The current view.
    pub(super) view: View,
    /// Leader of the view.
    pub(super) leader: ReplicaId,
    /// Whether the view has begun at this replica. Before that the replica does not vote in it.
    pub(super) normal: bool,
    /// Proof that let this replica into the view.
    pub(super) proof: EntryProof,
    /// Blocks that the NEW-VIEW leaves to be decided.
    pub(super) taken_over: Option<Selected>,
    /// The own judgement of the leader.
    pub(super) watch: LeaderWatch,
}

/// The own judgement of the leader of the current view.
#[derive(Debug, Default)]
pub(super) struct LeaderWatch {
    /// Whether the own SUSPECT of the view stands.
    pub(super) stands: bool,
    /// Whether the leader has proposed a block that is invalid everywhere. This suspicion is never withdrawn.
    pub(super) proved: bool,
    /// Time from which deadlines count in the view; `None` from its entry to its first execution.
    pub(super) deadlines_from: Option<Time>,
    /// Time at which this replica entered the view.
    pub(super) entered: Time,
    /// Whether a fresh request was executed in the view.
    pub(super) worked: bool,
}

impl InView {
    /// Enters a view. Deadlines wait for its first execution.
    pub(super) fn new(view: View, leader: ReplicaId, normal: bool, proof: EntryProof, now: Time) -> Self {
        let watch = LeaderWatch { entered: now, ..LeaderWatch::default() };
        Self { view, leader, normal, proof, taken_over: None, watch }
    }

    /// Starts a replica in the first view. Deadlines run from `now` on, also after a restart.
    pub(super) fn first(leader: ReplicaId, now: Time) -> Self {
        let watch = LeaderWatch { deadlines_from: Some(now), ..LeaderWatch::default() };
        Self { watch, ..Self::new(View::ZERO, leader, true, EntryProof::Nothing, now) }
    }
}

/// Heights that mark this replica's progress.
#[derive(Debug)]
pub(super) struct Progress {
    /// h: the last stable checkpoint.
    pub(super) stable: Height,
    /// The last executed height.
    pub(super) executed: Height,
    /// The last height of the gap-free run of decided heights.
    pub(super) decided: Height,
    /// The highest height that this replica has decided itself.
    pub(super) committed: Height,
    /// The highest known height inside the window.
    pub(super) known: Height,
    /// Undecided heights up to this one have been so for long enough to request messages of them.
    pub(super) stalled: Height,
    /// The next height that the leader considers for a proposal.
    pub(super) next: Height,
}

impl Progress {
    /// The progress of a replica that has executed everything up to `executed`.
    pub(super) fn new(stable: Height, executed: Height) -> Self {
        let decided = stable.max(executed);
        Self {
            stable,
            executed,
            decided,
            committed: Height::ZERO,
            known: decided,
            stalled: Height::ZERO,
            next: stable.next(),
        }
    }
}

/// Reports of peers, and answers to them.
#[derive(Debug, Default)]
pub(super) struct PeerReports {
    /// The last executed height in the STATUS of each peer.
    pub(super) executed: BTreeMap<ReplicaId, Height>,
    /// Time of the last answer to a STATUS of each peer.
    pub(super) answered: BTreeMap<ReplicaId, Time>,
}
