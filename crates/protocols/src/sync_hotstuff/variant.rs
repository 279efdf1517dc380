//! What sets Sync HotStuff ([`Plain`]) and Opt Sync ([`Optimistic`]) apart: whether q_R votes decide at once, and how
//! long a replica waits after it has left a view. All the rest follows: without certificates of q_R votes the lock and
//! the rule by which it is compared are those of Sync HotStuff. They are two protocols: nothing signed in one is valid
//! in the other.

use super::words::responsive_quorum;
use super::{FIRST_VIEW, figures};
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Figures, Model, Spec};
use quorate_types::{ProtocolId, quorum};
use std::fmt::Debug;

/// See the module.
pub trait Variant: Debug + Send + 'static {
    /// Name and properties.
    const SPEC: Spec;
    /// What it costs.
    const FIGURES: Figures;
    /// Δ between leaving a view and entering the next one.
    const WAIT: u64;
    /// Δ that a view with a faulty leader may take, for the bound on recovery (§21; `optsync` §18).
    const BAD_VIEW: u64;
    /// How many votes decide at once; `None` where none do.
    fn responsive_quorum(n: usize) -> Option<usize>;
    /// Whether silence counts later where a header was skipped. Besides those whose votes decide at once there has to be more than
    /// one honest replica for that (`optsync` §8).
    fn may_wait_longer(n: usize) -> bool {
        n > 8 && Self::responsive_quorum(n).is_some()
    }
}

/// The name of the form whose leaders follow each other (`rotating`): round robin. Names have 16 bytes at most.
pub(super) const ROTATING: ProtocolId = ProtocolId::new("sync-hotstuff-rr");

/// What all forms have in common.
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

/// Sync HotStuff.
#[derive(Debug)]
pub struct Plain;

impl Variant for Plain {
    const SPEC: Spec = SPEC;
    const FIGURES: Figures = figures::PLAIN;
    const WAIT: u64 = 1;
    const BAD_VIEW: u64 = 14;

    fn responsive_quorum(_: usize) -> Option<usize> {
        None
    }
}

/// Opt Sync.
#[derive(Debug)]
pub struct Optimistic;

impl Variant for Optimistic {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("optsync"),
        summary: "Opt Sync: Sync HotStuff that commits at the speed of the network where more than 3n/4 vote",
        ..SPEC
    };
    const FIGURES: Figures = figures::OPTIMISTIC;
    // `optsync` §5: who has decided by q_R votes may hear of the end of the view just after, and its NOTIFY takes Δ.
    const WAIT: u64 = 2;
    const BAD_VIEW: u64 = 15;

    fn responsive_quorum(n: usize) -> Option<usize> {
        Some(responsive_quorum(n))
    }
}
