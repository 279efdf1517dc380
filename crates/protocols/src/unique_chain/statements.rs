//! Message kinds, authors of rounds, and properties of both protocols.

use quorate_consensus::parts::blames::BLAME;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{MessageRole, Model, Spec};
use quorate_types::{Committee, Kind, ProtocolId, ReplicaId, View, quorum};

/// Statement of a PROPOSE of Apollo.
pub const PROPOSE: Kind = Kind::new("propose");
/// Statement of a VOTE of Artemis.
pub const VOTE: Kind = Kind::new("vote");
/// Kind of a RELAY, a round proof that states nothing of its sender.
pub const RELAY: Kind = Kind::new("relay");
pub(super) const WANT: Kind = Kind::new("want");
pub(super) const ENTRIES: Kind = Kind::new("entries");
pub(super) const ASK: Kind = Kind::new("ask");
pub(super) const ANSWER: Kind = Kind::new("answer");

/// The first round.
pub const FIRST_ROUND: View = View(1);
/// Minimum bytes of a certificate: its statement.
pub(super) const CERTIFICATE_BYTES: usize = 16 + 8 + 8 + 32 + 32;
/// Skip certificates of one entry or proof at most: with n = 65 they fill half of a frame. Under the bound on delays a run has
/// at most f.
pub(super) const SKIPS_MAX: usize = 4_096;

/// Properties of Apollo; Artemis changes name and summary.
pub(super) const SPEC: Spec = Spec {
    name: ProtocolId::new("apollo"),
    summary: "Apollo: n = 2f + 1, a leader for each block, commit f + 1 blocks deep, as long as messages keep the bound delta",
    model: Model::Synchrony,
    faults: quorum::synchronous_faults,
    checkpoint_quorum: |_, f| quorum::weak(f),
    replies: |_, f| quorum::weak(f),
    votes_are_durable: false,
    votes_are_signed: true,
    local_validity: false,
    replaces_leader: true,
    rotates_leaders: true,
    first_view: FIRST_ROUND,
    shared_params: SynchronyParams::SHARED,
    repeatable: &[BLAME],
    // A replica that relays the entry of a round has accepted it.
    roles: &[
        (PROPOSE, MessageRole::Proposal),
        (VOTE, MessageRole::Vote),
        (BLAME, MessageRole::ViewChange),
        (RELAY, MessageRole::Vote),
    ],
};

/// Returns the author of a round: `L(r) = (r - 1) mod n`.
pub(super) fn author(committee: &Committee, round: View) -> ReplicaId {
    committee.rotate(round.0.saturating_sub(1))
}
