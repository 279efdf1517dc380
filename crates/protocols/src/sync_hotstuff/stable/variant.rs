//! Differences between Sync HotStuff ([`Plain`]) and Opt Sync ([`Optimistic`]): whether q_R votes decide at once, and the wait
//! after leaving a view. Without certificates of q_R votes, the lock and its comparison are those of Sync HotStuff. They are
//! two protocols: no statement of one is valid in the other.

use super::super::figures;
use super::super::statements::SPEC;
use quorate_consensus::{Figures, Spec};
use quorate_types::{ProtocolId, quorum};
use std::fmt::Debug;

/// Sync HotStuff or Opt Sync.
pub trait Variant: Debug + Send + 'static {
    /// Name and properties.
    const SPEC: Spec;
    /// Costs of the good case.
    const FIGURES: Figures;
    /// Δ between leaving a view and entering the next one.
    const WAIT: u64;
    /// Δ that a view with a faulty leader may take, for the bound on recovery (§21; `optsync` §18).
    const BAD_VIEW: u64;
    /// Returns how many votes decide at once; `None` if none do.
    fn responsive_quorum(n: usize) -> Option<usize>;
    /// Whether silence counts later after a skipped header. For that, more than one honest replica must exist besides those
    /// whose votes decide at once (`optsync` §8).
    fn may_wait_longer(n: usize) -> bool {
        n > 8 && Self::responsive_quorum(n).is_some()
    }
}

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
    // `optsync` §5: a replica may learn of the end of the view just after it has decided by q_R votes. Its NOTIFY takes Δ.
    const WAIT: u64 = 2;
    const BAD_VIEW: u64 = 15;

    fn responsive_quorum(n: usize) -> Option<usize> {
        Some(quorum::responsive(n))
    }
}
