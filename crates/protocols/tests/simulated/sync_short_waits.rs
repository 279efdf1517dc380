//! Sync HotStuff and Opt Sync with too short a wait between two views: for the museum, and for the hunt (`tests/hunt`).

use quorate_consensus::{Figures, Spec};
use quorate_protocols::sync_hotstuff::{Optimistic, Plain, Variant};

/// no-wait: the next view is entered as soon as one is left.
#[derive(Debug)]
pub(crate) struct NoWait;

impl Variant for NoWait {
    const SPEC: Spec = Plain::SPEC;
    const FIGURES: Figures = Plain::FIGURES;
    const WAIT: u64 = 0;
    const BAD_VIEW: u64 = Plain::BAD_VIEW;

    fn responsive_quorum(n: usize) -> Option<usize> {
        Plain::responsive_quorum(n)
    }
}

/// wait-one-delta: Opt Sync with the wait of Sync HotStuff.
#[derive(Debug)]
pub(crate) struct OneDelta;

impl Variant for OneDelta {
    const SPEC: Spec = Optimistic::SPEC;
    const FIGURES: Figures = Optimistic::FIGURES;
    const WAIT: u64 = Plain::WAIT;
    const BAD_VIEW: u64 = Optimistic::BAD_VIEW;

    fn responsive_quorum(n: usize) -> Option<usize> {
        Optimistic::responsive_quorum(n)
    }
}
