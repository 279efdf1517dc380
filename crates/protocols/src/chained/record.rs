//! Durable state: its loss would allow equivocation (§2).

use super::{Chained, Rules};
use crate::encoding::variants;
use quorate_consensus::parts::leaders::LeaderHistory;
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Cx, Record, RecordKey};
use quorate_types::{Digest, Height, View};

/// A record of the protocol with the rules `R`.
#[derive(Clone, PartialEq, Debug)]
pub enum ChainedRecord<R> {
    /// The state of a replica. It is durable before each PROPOSE, VOTE and TIMEOUT.
    State {
        /// The current view.
        view: View,
        /// The proof that let this replica into the view, with the highest certificate that it knows.
        proof: ViewProof,
        /// The last vote.
        voted: Option<BlockVote>,
        /// The state of the rules.
        rules: R,
        /// The last view in which this replica has proposed, or may propose.
        proposed: View,
    },
    /// The facts about leaders in the chain up to a checkpoint, where the leader policy needs them.
    History(LeaderHistory),
}

const STATE: u8 = 1;
const HISTORY: u8 = 2;

impl<R: Rules> Record for ChainedRecord<R> {
    fn key(&self) -> RecordKey {
        // The newest record of each kind counts, and no checkpoint makes it obsolete.
        let kind = match self {
            Self::State { .. } => STATE,
            Self::History(_) => HISTORY,
        };
        RecordKey { kind, height: Height::ZERO, scope: Digest::ZERO }
    }
}

variants!(ChainedRecord<R: Rules>, "chained record":
    STATE = State { view, proof, voted, rules, proposed },
    HISTORY = History(history),
);

impl<R: Rules> Chained<R> {
    /// Records the state of this replica.
    pub(super) fn record(&self, cx: &mut Cx<'_, Self>) {
        cx.record(&ChainedRecord::State {
            view: self.pacemaker.view(),
            proof: self.proof(),
            voted: self.voted,
            rules: self.rules,
            proposed: self.proposed.max(self.reserved),
        });
    }
}
