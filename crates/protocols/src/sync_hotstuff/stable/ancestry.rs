//! Relations between the blocks of a view: base, certified ends, ancestry, and splits (§2, §4).

use super::super::replica::{End, SyncHotStuff};
use super::super::statements::{FIRST_VIEW, VOTE};
use super::evidence::QuitEvidence;
use super::paths::{Paths, Relations};
use super::split::Split;
use super::statements::{Header, end_of};
use super::variant::Variant;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Certificate, Cx, Signed};
use quorate_types::{Block, BlockId, Height, Time, View};

/// Δ after its certificate in which a block must become known. Afterwards nothing that may conflict with it is voted for.
pub(super) const UNKNOWN: u64 = 3;

impl<V: Variant> SyncHotStuff<V> {
    /// Returns the base of the current view; `None` before its leader has named it, or while that block is unknown.
    pub(super) fn base(&self, blocks: &BlockTree) -> Option<End> {
        if self.view == FIRST_VIEW {
            return Some((Height::ZERO, BlockId::ZERO));
        }
        if self.in_view.first_voted.is_some() {
            return self.in_view.first_voted;
        }
        if let Some(new_view) = &self.in_view.new_view {
            return Some(end_of(&new_view.body.lock.tip));
        }
        let tip = self.chain.tip(blocks, self.in_view.statements.base()?)?;
        Some(tip.end())
    }

    /// Whether the end of a chain has a certificate of this view, its own or that of a block above it. Voters for the block
    /// above have seen a certificate of that end.
    pub(super) fn is_certified(&self, blocks: &BlockTree, end: End) -> bool {
        if self.view == FIRST_VIEW && end.1 == BlockId::ZERO {
            return true;
        }
        self.certificate_from(blocks, self.view, end).is_some()
    }

    /// Returns the lowest certificate of a view for the end of a chain, or for a block above it.
    pub(super) fn certificate_from(&self, blocks: &BlockTree, view: View, end: End) -> Option<&Certificate> {
        let mut down = Paths::default();
        let mut from = self.state.certificates.from(view, end.0);
        from.find(|above| down.lead(&self.chain, blocks, end_of(above), end))
    }

    /// Returns the certificate of this view for the end of a chain.
    pub(super) fn certificate_of(&self, (height, id): End) -> Option<Certificate> {
        if self.view == FIRST_VIEW && id == BlockId::ZERO {
            return Some(Certificate::genesis(VOTE));
        }
        self.state.certificates.at(self.view, height).filter(|certificate| certificate.block() == id).cloned()
    }

    /// Whether a block is another one or extends it; `None` where a header is missing, which excludes nothing. Every block
    /// extends all settled ones.
    pub(super) fn extends(&self, blocks: &BlockTree, end: End, below: End) -> Option<bool> {
        self.extends_knowing(blocks, end, below, &Relations::default())
    }

    /// Answers the same question, with the help of earlier answers.
    pub(super) fn extends_knowing(
        &self,
        blocks: &BlockTree,
        (height, id): End,
        (low, below): End,
        known: &Relations,
    ) -> Option<bool> {
        if id == below || height <= low {
            return Some(id == below && height == low);
        }
        let committed = self.chain.committed();
        let tip = self.chain.tip(blocks, id)?;
        if tip.height != height {
            return Some(false);
        }
        if low < committed.height {
            // One chain is committed, and no replica keeps the blocks below its end.
            let above = height >= committed.height;
            return if above { known.ask(&self.chain, blocks, tip, committed.end()) } else { None };
        }
        known.ask(&self.chain, blocks, tip, (low, below))
    }

    /// Whether a block is known to be another one or to extend it.
    pub(super) fn is_on(&self, blocks: &BlockTree, end: End, below: End) -> bool {
        self.extends(blocks, end, below) == Some(true)
    }

    /// Whether a block is on one chain with the highest known certified block of this view. A replica that was away may be
    /// shown a branch that the others no longer see (§18: `seen` is whole again).
    ///
    /// Certificates may arrive before headers. A certificate of an unknown block prevents no vote for 3 Δ, in which its voters
    /// show the header. Otherwise liars with fast links could keep this replica from voting.
    pub(super) fn agrees(&self, blocks: &BlockTree, end: End, now: Time) -> bool {
        let known = Relations::default();
        let with = |certified: End| {
            let (high, low) = if certified.0 >= end.0 { (certified, end) } else { (end, certified) };
            self.extends_knowing(blocks, high, low, &known)
        };
        let wait = self.delta.times(UNKNOWN);
        let mut of_view = self.state.certificates.of_view(self.view).peekable();
        while let Some(certificate) = of_view.next_if(|it| end_of(it).0 >= end.0) {
            match with(end_of(certificate)) {
                Some(is_on) => return is_on,
                None if now >= self.state.certificates.arrival(certificate).plus(wait) => return false,
                None => {}
            }
        }
        of_view
            .filter(|it| self.chain.tip(blocks, it.block()).is_some())
            .find_map(|it| with(end_of(it)))
            .unwrap_or(true)
    }

    /// Returns the block that the next vote must extend: the last vote, the committed block, or the known base of the view.
    pub(super) fn voted_end(&self, blocks: &BlockTree) -> End {
        let committed = self.chain.committed().end();
        let voted = self.in_view.voted.as_ref().map(|header| &header.body.block);
        let voted = voted.map(|block| (block.height, block.id()));
        // Of equal heights the last one counts.
        let ends = [self.base(blocks), Some(committed), voted].into_iter().flatten();
        ends.max_by_key(|(height, _)| *height).unwrap_or(committed)
    }

    /// S4. §2, §4: leaves the view if headers around this height are not on one chain. The caller has received a header or a
    /// block at this height. So all known headers are on one chain, as far as the blocks between them are known.
    pub(super) fn check_split(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        if self.is_quit() {
            return;
        }
        if let Some(evidence) = self.split_at(cx.blocks(), height) {
            self.quit_view(cx, evidence);
        }
    }

    fn split_at(&self, blocks: &BlockTree, height: Height) -> Option<QuitEvidence> {
        let mut above = self.in_view.statements.above(height.minus(1)).map(|(_, header)| header);
        let first = above.next()?;
        let second = above.next().filter(|_| first.body.block.height == height);
        [Some(first), second].into_iter().flatten().find_map(|high| self.split_below(blocks, high))
    }

    /// Returns the proof that a header does not extend the next lower one.
    fn split_below(&self, blocks: &BlockTree, high: &Signed<Header>) -> Option<QuitEvidence> {
        let (low_id, low) = self.in_view.statements.below(high.body.block.height)?;
        let mut between = Vec::new();
        let mut id = high.body.block.parent;
        let count = high.body.block.height.since(low.body.block.height).saturating_sub(1);
        if count > self.state.voted_ahead_max {
            // This replica votes for no header that is so high.
            return None;
        }
        for _ in 0..count {
            let block = blocks.get(id)?;
            between.push(Block::clone(block));
            id = block.parent;
        }
        if id == *low_id {
            return None;
        }
        let split = Split { low: low.clone(), high: high.clone(), between };
        // A header may claim any height. A replica that left the view with an invalid proof would do so alone.
        split.holds().then(|| QuitEvidence::Split(Box::new(split)))
    }
}
