//! What must survive a crash (§2).

use super::HotStuff;
use quorate_consensus::parts::chain::Tip;
use quorate_consensus::parts::leaders::LeaderHistory;
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Cx, Record, RecordKey};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Digest, Height, View};

/// A fact that is written down before a message that rests on it leaves.
#[derive(Clone, PartialEq, Debug)]
pub enum HotStuffRecord {
    /// Where this replica stands. Before PROPOSE, VOTE and COMPLAIN.
    State {
        /// The current view.
        view: View,
        /// What let this replica in, with the highest certificate that it knows.
        proof: ViewProof,
        /// The last vote.
        voted: Option<BlockVote>,
        /// The lock.
        locked: Tip,
        /// The last view in which this replica has proposed, or may propose.
        proposed: View,
    },
    /// What the chain up to a checkpoint's height says about leaders, where the policy asks for it.
    Standing(LeaderHistory),
}

const STATE: u8 = 1;
const STANDING: u8 = 2;

impl Record for HotStuffRecord {
    fn key(&self) -> RecordKey {
        // The newest one of each counts, and no checkpoint makes it obsolete.
        let kind = match self {
            Self::State { .. } => STATE,
            Self::Standing(_) => STANDING,
        };
        RecordKey { kind, height: Height::ZERO, scope: Digest::ZERO }
    }
}

impl Wire for HotStuffRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.key().kind);
        match self {
            Self::State { view, proof, voted, locked, proposed } => {
                view.encode(out);
                proof.encode(out);
                voted.encode(out);
                locked.encode(out);
                proposed.encode(out);
            }
            Self::Standing(standing) => standing.encode(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            STATE => Self::State {
                view: View::decode(reader)?,
                proof: ViewProof::decode(reader)?,
                voted: Option::decode(reader)?,
                locked: Tip::decode(reader)?,
                proposed: View::decode(reader)?,
            },
            STANDING => Self::Standing(LeaderHistory::decode(reader)?),
            _ => return Err(DecodeError::Tag("hotstuff record")),
        })
    }
}

impl HotStuff {
    /// Writes down where this replica stands.
    pub(super) fn record(&self, cx: &mut Cx<'_, Self>) {
        cx.record(&HotStuffRecord::State {
            view: self.pacemaker.view(),
            proof: self.proof(),
            voted: self.voted,
            locked: self.locked,
            proposed: self.proposed.max(self.reserved),
        });
    }
}
