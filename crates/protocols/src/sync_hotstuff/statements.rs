//! Message kinds, properties, and leaders of all forms.

pub(super) use quorate_consensus::parts::blames::{BLAME, blame, claim_blames};
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{MessageRole, Model, Spec};
use quorate_types::{Committee, Kind, ProtocolId, ReplicaId, View, quorum};

/// Statement of a PROPOSE.
pub const PROPOSE: Kind = Kind::new("propose");
/// Statement of a VOTE and of a FIRST-VOTE; certificates are made of these.
pub const VOTE: Kind = Kind::new("vote");
/// Statement of a NEW-VIEW.
pub const NEW_VIEW: Kind = Kind::new("new-view");
/// Statement of a STATUS.
pub const STATUS: Kind = Kind::new("status");
/// Kind of a NOTIFY, which states nothing of its own.
pub const NOTIFY: Kind = Kind::new("notify");
pub(super) const FIRST_VOTE: Kind = Kind::new("first-vote");
pub(super) const EVIDENCE: Kind = Kind::new("evidence");
pub(super) const FORWARD: Kind = Kind::new("forward");
pub(super) const SHOW: Kind = Kind::new("show");
pub(super) const LACK: Kind = Kind::new("lack");
pub(super) const CERTIFIED: Kind = Kind::new("certified");
pub(super) const ASK: Kind = Kind::new("ask");
pub(super) const ANSWER: Kind = Kind::new("answer");

/// The first view.
pub const FIRST_VIEW: View = View(1);
/// Minimum bytes of a certificate: its statement.
pub(super) const CERTIFICATE_BYTES: usize = 16 + 8 + 8 + 32 + 32;

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
    repeatable: &[BLAME],
    roles: &[
        (PROPOSE, MessageRole::Proposal),
        (VOTE, MessageRole::Vote),
        (FIRST_VOTE, MessageRole::Vote),
        (BLAME, MessageRole::ViewChange),
        (EVIDENCE, MessageRole::ViewChange),
        (STATUS, MessageRole::ViewChange),
        (NEW_VIEW, MessageRole::ViewChange),
    ],
};

/// Returns the leader of a view.
pub(super) fn leader(committee: &Committee, view: View) -> ReplicaId {
    committee.rotate(view.0.saturating_sub(1))
}
