//! Properties that all forms have in common.

use super::statements::FIRST_VIEW;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Model, Spec};
use quorate_types::{ProtocolId, quorum};

/// Properties of Sync HotStuff; the other forms change name and summary.
pub(super) const SPEC: Spec = Spec {
    name: ProtocolId::new("sync-hotstuff"),
    summary: "Sync HotStuff: n = 2f + 1, commit 2 delta after the own vote, as long as messages keep the bound delta",
    model: Model::Synchrony,
    faults: quorum::synchronous_faults,
    checkpoint_quorum: |_, f| quorum::weak(f),
    replies: |_, f| quorum::weak(f),
    votes_are_durable: false,
    votes_are_signed: true,
    local_validity: false,
    replaces_leader: true,
    rotates_leaders: false,
    first_view: FIRST_VIEW,
    shared_params: SynchronyParams::SHARED,
};
