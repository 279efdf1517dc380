//! What must survive a crash (§4).

use super::Jolteon;
use quorate_consensus::parts::leaders::LeaderHistory;
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Cx, Record, RecordKey};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Digest, Height, View};

/// A fact that is written down before a message that rests on it leaves.
#[derive(Clone, PartialEq, Debug)]
pub enum JolteonRecord {
    /// Where this replica stands. Before PROPOSE, VOTE and TIMEOUT.
    State {
        /// The current view.
        view: View,
        /// What let this replica in, with the highest certificate that it knows: what it lists in a TIMEOUT.
        proof: ViewProof,
        /// The last vote.
        voted: Option<BlockVote>,
        /// No vote up to this view any more: it was timed out.
        barred: View,
        /// The last view in which this replica has proposed, or may propose.
        proposed: View,
    },
    /// What the chain up to a checkpoint's height says about leaders, where the policy asks for it.
    Standing(LeaderHistory),
}

const STATE: u8 = 1;
const STANDING: u8 = 2;

impl Record for JolteonRecord {
    fn key(&self) -> RecordKey {
        // The newest one of each counts, and no checkpoint makes it obsolete.
        let kind = match self {
            Self::State { .. } => STATE,
            Self::Standing(_) => STANDING,
        };
        RecordKey { kind, height: Height::ZERO, scope: Digest::ZERO }
    }
}

impl Wire for JolteonRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.key().kind);
        match self {
            Self::State { view, proof, voted, barred, proposed } => {
                view.encode(out);
                proof.encode(out);
                voted.encode(out);
                barred.encode(out);
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
                barred: View::decode(reader)?,
                proposed: View::decode(reader)?,
            },
            STANDING => Self::Standing(LeaderHistory::decode(reader)?),
            _ => return Err(DecodeError::Tag("jolteon record")),
        })
    }
}

impl Jolteon {
    /// Writes down where this replica stands.
    pub(super) fn record(&self, cx: &mut Cx<'_, Self>) {
        cx.record(&JolteonRecord::State {
            view: self.pacemaker.view(),
            proof: self.proof(),
            voted: self.voted,
            barred: self.barred,
            proposed: self.proposed.max(self.reserved),
        });
    }
}
