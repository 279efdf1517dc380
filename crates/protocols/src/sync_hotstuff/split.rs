//! Two headers of a leader that do not lie on one chain, with others between them (§2). No two of its words contradict each
//! other then: the blocks between them prove it. After a power cut two branches of a view may be known by the last votes of
//! two replicas alone; and a leader may show to one replica what lies far below what all others have.

use super::words::{Evidence, Header};
use super::{SyncHotStuff, Variant};
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Claims, Cx, Signed};
use quorate_types::block::BLOCK_BYTES;
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::{Block, Height, View};

/// No higher above the committed block anything is voted for, whatever the window: so what lies beside an own vote can be
/// proved, and what as many leaders as may lie leave behind fits into one ANSWER.
pub(super) const BETWEEN_MAX: usize = 768;

/// The same, for so many replicas: each sends the proof to all, and it has to be there within Δ.
pub(super) fn voted_ahead_max(n: usize) -> u64 {
    let most = 12_288usize.checked_div(n).unwrap_or(BETWEEN_MAX).clamp(48, BETWEEN_MAX);
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Split {
    /// The lower one, which the other one does not extend.
    pub low: Signed<Header>,
    /// The higher one.
    pub high: Signed<Header>,
    /// The ancestors of the higher one down to the height above the lower one, highest first.
    pub between: Vec<Block>,
}

impl Split {
    /// The view.
    #[must_use]
    pub fn view(&self) -> View {
        self.high.body.block.view
    }

    /// Whether no honest leader says both: its blocks of a view lie one above the other.
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

    /// Claims that it proves what it says.
    pub(super) fn claim(&self, claims: &mut Claims<'_>) {
        let n = claims.committee().n();
        if u64::try_from(self.between.len()).unwrap_or(u64::MAX) > voted_ahead_max(n) {
            return claims.refuse("proof of what nobody votes for");
        }
        if !self.holds() {
            return claims.refuse("no contradiction");
        }
        Header::claim(&self.low, claims);
        Header::claim(&self.high, claims);
    }
}

impl Wire for Split {
    fn encode(&self, out: &mut Vec<u8>) {
        self.low.encode(out);
        self.high.encode(out);
        put_list(out, &self.between);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            low: Signed::decode(reader)?,
            high: Signed::decode(reader)?,
            between: reader.list("blocks between two", BETWEEN_MAX, BLOCK_BYTES, Block::decode)?,
        })
    }
}

impl<V: Variant> SyncHotStuff<V> {
    /// S4. §2, §4: a header at this height was heard, or a block there has come. The view is left where what was heard next to it
    /// does not lie on one chain. So all that was heard does, as far as it is known what lies between.
    pub(super) fn check_split(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        if self.is_quit() {
            return;
        }
        if let Some(evidence) = self.split_at(cx.blocks(), height) {
            self.quit_view(cx, evidence);
        }
    }

    fn split_at(&self, blocks: &BlockTree, height: Height) -> Option<Evidence> {
        let mut above = self.heard.above(height.minus(1)).map(|(_, header)| header);
        let first = above.next()?;
        let second = above.next().filter(|_| first.body.block.height == height);
        [Some(first), second].into_iter().flatten().find_map(|high| self.split_below(blocks, high))
    }

    /// The proof that a header does not extend the next lower one that was heard.
    fn split_below(&self, blocks: &BlockTree, high: &Signed<Header>) -> Option<Evidence> {
        let (low_id, low) = self.heard.below(high.body.block.height)?;
        let mut between = Vec::new();
        let mut id = high.body.block.parent;
        let count = high.body.block.height.since(low.body.block.height).saturating_sub(1);
        if count > self.voted_ahead_max {
            // This replica votes for nothing that lies so high.
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
        // A header may claim any height. Whoever left the view with a proof that nobody believes would do so alone.
        split.holds().then(|| Evidence::Split(Box::new(split)))
    }
}
