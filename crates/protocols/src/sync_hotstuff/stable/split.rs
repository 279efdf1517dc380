//! Two headers of a leader that are not on one chain, with the blocks between them (§2). No two statements of the leader
//! conflict then: the blocks between them prove it. After a power cut, two branches of a view may be known only by the last
//! votes of two replicas. A leader may also show one replica a header far below those that all others have.

use super::statements::Header;
use quorate_consensus::{Claims, Signed};
use quorate_types::block::BLOCK_BYTES;
use quorate_types::{Block, View};

/// Maximum height above the committed block that is voted for, whatever the window. So every conflict with an own vote can
/// be proved, and the evidence against as many leaders as may be faulty fits into one ANSWER.
pub(super) const BETWEEN_MAX: usize = 768;

/// Returns the same maximum for n replicas: each sends the proof to all, and it must arrive within Δ.
pub(super) fn voted_ahead_max(n: usize) -> u64 {
    let most = 12_288usize.checked_div(n).unwrap_or(BETWEEN_MAX).clamp(48, BETWEEN_MAX);
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// Two headers that are not on one chain.
#[derive(Clone, PartialEq, Debug)]
pub struct Split {
    /// The lower header, which the other one does not extend.
    pub low: Signed<Header>,
    /// The higher header.
    pub high: Signed<Header>,
    /// Ancestors of the higher one down to the height above the lower one, highest first.
    pub between: Vec<Block>,
}

quorate_types::wire_struct!(Split { low, high, between[BETWEEN_MAX, BLOCK_BYTES] });

impl Split {
    /// Returns the view.
    #[must_use]
    pub fn view(&self) -> View {
        self.high.body.block.view
    }

    /// Whether no honest leader signs both: its blocks of a view extend each other.
    #[must_use]
    pub fn holds(&self) -> bool {
        let (low, high) = (&self.low.body.block, &self.high.body.block);
        if low.view != high.view || low.height >= high.height {
            return false;
        }
        let (mut height, mut id) = (high.height.minus(1), high.parent);
        for block in &self.between {
            if block.height != height || height <= low.height || block.id() != id {
                return false;
            }
            (height, id) = (height.minus(1), block.parent);
        }
        height == low.height && id != low.id()
    }

    /// Claims that it is valid.
    pub(super) fn claim(&self, claims: &mut Claims<'_>) {
        let n = claims.committee().n();
        if u64::try_from(self.between.len()).unwrap_or(u64::MAX) > voted_ahead_max(n) {
            return claims.refuse("split longer than any vote");
        }
        if !self.holds() {
            return claims.refuse("no conflict");
        }
        Header::claim(&self.low, claims);
        Header::claim(&self.high, claims);
    }
}
