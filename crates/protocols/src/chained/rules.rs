//! The differences between chained protocols.

use super::ChainedParams;
use super::params::LEADER_POLICY;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::{self, Chain, Tip};
use quorate_consensus::parts::pacemaker::{Complaints, FailedTurns};
use quorate_consensus::{Choice, Figures, MessageRole, Model, Spec};
use quorate_types::codec::Wire;
use quorate_types::{Committee, Height, Kind, ProtocolId, View, quorum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A rule set. Its value is the state that the rules keep; the engine records it with each vote and timeout.
pub trait Rules: Wire + Copy + Default + PartialEq + Debug + Send + 'static {
    /// Name and properties.
    const SPEC: Spec;
    /// Costs when no replica fails.
    const FIGURES: Figures;
    /// Statement of a TIMEOUT; timeout certificates consist of these.
    const TIMEOUT: Kind = super::TIMEOUT;
    /// Kind of an ADVANCE, which states nothing.
    const ADVANCE: Kind = super::ADVANCE;
    /// Texts of the trace and of `status`.
    const NOTES: Notes;
    /// Number of certified blocks of consecutive views that commit the first of them.
    const LINKS: usize;
    /// Whether the signature of a TIMEOUT covers the view of the sender's highest certificate.
    const TIMEOUTS_LIST_CERTIFICATES: bool = true;
    /// Whether a leader that enters by timeouts waits for the certificates of the others, which they report to it.
    const LEADER_WAITS: bool = false;
    /// Parameters that change how the protocol works, with the values that the exam draws from.
    const CHOICES: &'static [Choice] = &[LEADER_POLICY];
    /// Parameters of these rules alone.
    type OwnParams: Clone + Debug + Default + Serialize + DeserializeOwned + Send;

    /// Whether a proposal of the current view may get this replica's vote.
    fn allows_vote(&self, proposal: &Proposal<'_>) -> bool;

    /// Whether the replica has given up its vote in a view.
    fn bars(&self, _view: View) -> bool {
        false
    }

    /// Learns that a block has a certificate and a certified child.
    fn note_two_chain(&mut self, _head: Tip) {}

    /// Learns that this replica votes for a block on top of `parent`.
    fn note_vote(&mut self, _parent: Tip) {}

    /// Learns that this replica times out; its timeout may let others skip the views up to `last_skipped`.
    fn note_timeout(&mut self, _last_skipped: View) {}

    /// Learns of a block that was decided without this replica's own rules.
    fn note_decided(&mut self, _tip: Tip) {}

    /// Locks a replica that has lost its disk on the highest certified block that the others have shown.
    fn adopt_lock(&mut self, _tip: Tip) {}

    /// Returns the height of the lock, 0 where there is none.
    fn locked(&self) -> Height {
        Height::ZERO
    }

    /// Returns the receivers of a timeout.
    fn complaints(_own: &Self::OwnParams) -> Complaints {
        Complaints::Broadcast
    }

    /// Returns the costs of faulty leaders after the network has healed, at most.
    fn failed_turns(params: &ChainedParams<Self::OwnParams>, committee: &Committee) -> FailedTurns {
        let patience = params.leader_policy.patience(committee.f);
        FailedTurns { expiries: 1, timers: 1, patience, leader_wait_ns: 0 }
    }
}

/// Texts in which rule sets differ.
#[derive(Clone, Copy, Debug)]
pub struct Notes {
    /// This replica has timed out.
    pub timed_out: &'static str,
    /// The rules refuse a vote.
    pub unsafe_proposal: &'static str,
    /// A quorum has timed out, so that this replica left its view.
    pub view_change: &'static str,
}

/// A proposal of the current view whose block is ready and valid.
#[derive(Debug)]
pub struct Proposal<'a> {
    /// The chain.
    pub chain: &'a Chain,
    /// The headers that this replica has.
    pub blocks: &'a BlockTree,
    /// The proposed block.
    pub block: Tip,
    /// Its parent, the block of the certificate that it carries.
    pub parent: Tip,
    /// The timeouts that the proposal carries.
    pub shown: Option<ShownTimeouts>,
}

/// The timeouts in a proposal.
#[derive(Clone, Copy, Debug)]
pub struct ShownTimeouts {
    /// The view that they let into.
    pub into: View,
    /// The highest view of a certificate that they list.
    pub high: View,
}

/// Properties of a chained protocol.
pub(super) const fn spec(name: ProtocolId, summary: &'static str) -> Spec {
    Spec {
        name,
        summary,
        model: Model::PartialSynchrony,
        faults: quorum::byzantine_faults,
        checkpoint_quorum: quorum::byzantine,
        replies: |_, f| quorum::weak(f),
        votes_are_durable: true,
        votes_are_signed: true,
        local_validity: false,
        replaces_leader: true,
        rotates_leaders: true,
        first_view: chain::FIRST_VIEW,
        shared_params: super::params::SHARED,
        repeatable: &[super::TIMEOUT, super::hotstuff::COMPLAIN],
        // An idle leader sends an ADVANCE too, so it has no role.
        roles: &[
            (super::PROPOSE, MessageRole::Proposal),
            (super::VOTE, MessageRole::Vote),
            (super::TIMEOUT, MessageRole::ViewChange),
            (super::hotstuff::COMPLAIN, MessageRole::ViewChange),
        ],
    }
}
