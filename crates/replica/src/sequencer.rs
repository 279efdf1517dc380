//! Where order is decided: turns "decided" into "execute height h exactly once, in order". No other file does.

use quorate_consensus::Alarm;
use quorate_types::{BlockId, Height};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    /// Last height that was executed.
    executed: Height,
    /// Last height that was handed to the executor.
    issued: Height,
    /// Decided heights above the stable checkpoint.
    decided: BTreeMap<Height, BlockId>,
    /// Up to here every height is decided.
    contiguous: Height,
}

impl Sequencer {
    /// Starts after what was executed and decided before.
    pub(crate) fn restore(executed: Height, decided: impl IntoIterator<Item = (Height, BlockId)>) -> Self {
        let mut sequencer =
            Self { executed, issued: executed, decided: decided.into_iter().collect(), contiguous: executed };
        sequencer.advance();
        sequencer
    }

    /// Something is decided. True when it is news.
    ///
    /// # Errors
    /// [`Alarm::SafetyBroken`] when something else was decided for the height.
    pub(crate) fn decide(&mut self, height: Height, id: BlockId) -> Result<bool, Alarm> {
        match self.decided.get(&height) {
            Some(known) if *known == id => Ok(false),
            Some(known) => Err(Alarm::SafetyBroken { height, first: *known, second: id }),
            // Below the stable checkpoint the checkpoint has settled it; nothing is compared or executed again.
            None if height <= self.executed => Ok(false),
            None => {
                self.decided.insert(height, id);
                self.advance();
                Ok(true)
            }
        }
    }

    fn advance(&mut self) {
        while self.decided.contains_key(&self.contiguous.next()) {
            self.contiguous = self.contiguous.next();
        }
    }

    /// The next height to execute and what was decided there, if it is.
    pub(crate) fn next(&self) -> Option<(Height, BlockId)> {
        let height = self.issued.next();
        self.decided.get(&height).map(|id| (height, *id))
    }

    /// The next height was handed to the executor.
    pub(crate) fn issue(&mut self, height: Height) {
        assert!(height == self.issued.next(), "heights execute in order");
        self.issued = height;
    }

    /// A height was executed.
    pub(crate) fn executed_one(&mut self, height: Height) {
        assert!(height == self.executed.next() && height <= self.issued, "the executor answers in order");
        self.executed = height;
    }

    /// Last height executed.
    pub(crate) fn executed(&self) -> Height {
        self.executed
    }

    /// Up to here every height is decided.
    pub(crate) fn contiguous(&self) -> Height {
        self.contiguous
    }

    /// What was decided for a height, as far as it is remembered.
    pub(crate) fn decided(&self, height: Height) -> Option<BlockId> {
        self.decided.get(&height).copied()
    }

    /// Decided heights that are not executed, lowest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Height, BlockId)> {
        self.decided.range(self.issued.next()..).map(|(height, id)| (*height, *id))
    }

    /// The lowest decided height whose predecessor is not.
    pub(crate) fn above_gap(&self) -> Option<(Height, BlockId)> {
        self.decided.range(self.contiguous.next()..).next().map(|(height, id)| (*height, *id))
    }

    /// The height at which a block was decided that is not executed.
    pub(crate) fn waiting_at(&self, id: BlockId) -> Option<Height> {
        self.waiting().find(|(_, decided)| *decided == id).map(|(height, _)| height)
    }

    /// Blocks decided and not executed.
    pub(crate) fn lag(&self) -> u64 {
        self.contiguous.since(self.executed)
    }

    /// A checkpoint is stable: what lies at or below it and is executed need not be remembered.
    pub(crate) fn prune(&mut self, stable: Height) {
        let floor = stable.min(self.executed);
        self.decided.retain(|height, _| *height > floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> BlockId {
        BlockId::null(Height(number))
    }

    #[test]
    fn executes_each_height_once_and_in_order() {
        let mut sequencer = Sequencer::default();
        assert_eq!(sequencer.decide(Height(2), id(2)), Ok(true));
        assert_eq!(sequencer.next(), None, "height 1 is not decided");
        assert_eq!(sequencer.decide(Height(1), id(1)), Ok(true));
        assert_eq!(sequencer.decide(Height(1), id(1)), Ok(false));
        assert_eq!(sequencer.contiguous(), Height(2));
        let mut order = Vec::new();
        while let Some((height, _)) = sequencer.next() {
            sequencer.issue(height);
            order.push(height);
        }
        assert_eq!(order, [Height(1), Height(2)]);
        sequencer.executed_one(Height(1));
        assert_eq!(sequencer.decide(Height(1), id(1)), Ok(false), "executed before");
        assert_eq!(sequencer.next(), None);
    }

    #[test]
    fn two_decisions_for_one_height_raise_the_alarm() {
        let mut sequencer = Sequencer::default();
        sequencer.decide(Height(1), id(1)).unwrap();
        let alarm = Alarm::SafetyBroken { height: Height(1), first: id(1), second: id(9) };
        assert_eq!(sequencer.decide(Height(1), id(9)), Err(alarm));
        sequencer.issue(Height(1));
        sequencer.executed_one(Height(1));
        assert_eq!(sequencer.decide(Height(1), id(9)), Err(alarm), "also after it was executed");
        sequencer.prune(Height(1));
        assert_eq!(sequencer.decide(Height(1), id(9)), Ok(false), "settled by the checkpoint");
    }

    #[test]
    fn continues_after_a_restart() {
        let sequencer =
            Sequencer::restore(Height(4), [(Height(4), id(4)), (Height(5), id(5)), (Height(7), id(7))]);
        assert_eq!((sequencer.executed(), sequencer.contiguous()), (Height(4), Height(5)));
        assert_eq!(sequencer.next(), Some((Height(5), id(5))));
    }
}
