//! Messages between replicas, and the statements that bind their senders (`pbft` variant H, §2).

use super::kinds::{COMMIT, ENTRY, NEW_VIEW, PRE_PREPARE, PREPARE, STATUS, SUSPECT, VIEW_CHANGE};
use super::view_message::{EntryProof, NewView, ViewChange, claim_all};
use crate::encoding::variant_functions;
use quorate_consensus::{Auth, Claims, Message, Place};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::limits::STATUS_HEIGHTS_MAX;
use quorate_types::{Block, BlockId, Digest, Height, Kind, PayloadId, ReplicaSet, Statement, View};

/// A message of this protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum PbftMessage {
    /// The leader of a view proposes this block at its height.
    PrePrepare {
        /// The view; the block names the view of its first proposal.
        view: View,
        /// The block.
        block: Block,
    },
    /// The sender has this block, which is valid, and accepts no other at its height in this view.
    Prepare(Vote),
    /// A quorum of this view has accepted this block, and the sender has recorded that.
    Commit(Vote),
    /// State of the sender, and the messages that it lacks.
    Status(StatusReport),
    /// The sender leaves all earlier views.
    ViewChange(Box<ViewChange>),
    /// The leader of a view begins it.
    NewView(Box<NewView>),
    /// The sender suspects the leader of this view, or withdraws its suspicion. Binds to nothing.
    Suspect {
        /// The view.
        view: View,
        /// Whether the suspicion stands.
        on: bool,
    },
    /// Variant S: the leader of a view pre-prepares again, by its id, a block that its NEW-VIEW has taken over.
    Again(Vote),
    /// Proof that let the sender into this view, for a replica that is behind.
    Entry {
        /// The view.
        view: View,
        /// The proof.
        proof: EntryProof,
    },
}

/// Content of a PREPARE or a COMMIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// View of the vote.
    pub view: View,
    /// Height of the block.
    pub height: Height,
    /// The block.
    pub block: BlockId,
}

/// Content of a STATUS. It promises nothing, so it is neither held nor bound to a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusReport {
    /// The current view of the sender.
    pub view: View,
    /// Whether the sender takes part in that view.
    pub normal: bool,
    /// Stable checkpoint of the sender.
    pub stable: Height,
    /// The last height that the sender has executed.
    pub executed: Height,
    /// Heights with missing messages, lowest first, at most [`STATUS_HEIGHTS_MAX`].
    pub missing: Vec<MissingAtHeight>,
}

/// Messages that a replica lacks to decide one height.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissingAtHeight {
    /// The height.
    pub height: Height,
    /// Whether the PRE-PREPARE of the current view is missing.
    pub proposal: bool,
    /// Replicas whose PREPARE of the current view is missing; empty when enough have arrived.
    pub prepares: ReplicaSet,
    /// Replicas whose COMMIT is missing.
    pub commits: ReplicaSet,
}

impl Message for PbftMessage {
    fn kind(&self) -> Kind {
        match self {
            Self::PrePrepare { .. } | Self::Again(_) => PRE_PREPARE,
            Self::Prepare(_) => PREPARE,
            Self::Commit(_) => COMMIT,
            Self::Status(_) => STATUS,
            Self::ViewChange(_) => VIEW_CHANGE,
            Self::NewView(_) => NEW_VIEW,
            Self::Suspect { .. } => SUSPECT,
            Self::Entry { .. } => ENTRY,
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::PrePrepare { view, block } => Place { view: *view, height: block.height, certified: false },
            Self::Prepare(vote) | Self::Commit(vote) | Self::Again(vote) => {
                Place { view: vote.view, height: vote.height, certified: false }
            }
            // A replica that is behind in view or height must reach its peers.
            Self::Status(_) => Place::ANYWHERE,
            // §2: of any view, so that a replica learns of views far above its own.
            Self::ViewChange(change) => Place { view: change.view, height: Height::ZERO, certified: true },
            Self::NewView(new) => Place { view: new.view, height: Height::ZERO, certified: true },
            Self::Entry { view, .. } => Place { view: *view, height: Height::ZERO, certified: true },
            Self::Suspect { view, .. } => Place { view: *view, height: Height::ZERO, certified: false },
        }
    }

    // §2, variant H: the link authenticates, and only messages of view changes can be shown to a third party.
    fn auth(&self) -> Auth {
        match self {
            Self::PrePrepare { view, block } => {
                let statement = Statement::new(PRE_PREPARE, *view, block.height, block.id().0);
                Auth::Linked(Some(statement))
            }
            Self::Prepare(vote) => Auth::Linked(Some(vote.statement(PREPARE))),
            Self::Commit(vote) => Auth::Linked(Some(vote.statement(COMMIT))),
            Self::Again(vote) => Auth::Linked(Some(vote.statement(PRE_PREPARE))),
            Self::Status(_) => Auth::Linked(None),
            Self::ViewChange(change) => Auth::Signed(change.statement()),
            Self::NewView(new) => Auth::Signed(new.statement()),
            Self::Suspect { view, on } => {
                let subject = Digest([u8::from(*on); 32]);
                Auth::Linked(Some(Statement::new(SUSPECT, *view, Height::ZERO, subject)))
            }
            Self::Entry { .. } => Auth::Relay,
        }
    }

    fn once(&self) -> bool {
        !matches!(self, Self::Suspect { .. })
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::ViewChange(change) => claims.checkpoint(&change.proof),
            Self::NewView(new) => claim_all(&new.changes, claims),
            Self::Entry { proof, .. } => proof.claims(claims),
            _ => {}
        }
    }

    fn bodies(&self, out: &mut Vec<PayloadId>) {
        if let Self::PrePrepare { block, .. } = self {
            out.push(block.payload);
        }
    }
}

impl Wire for PbftMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_any(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match Self::decode_any(reader)? {
            Self::Again(_) => Err(DecodeError::Tag("pbft message")),
            message => Ok(message),
        }
    }
}

/// The encoding of either variant.
impl PbftMessage {
    variant_functions!(pub(super) encode_any, decode_any, "pbft message":
        0 = PrePrepare { view, block },
        1 = Prepare(vote),
        2 = Commit(vote),
        3 = Status(report),
        4 = ViewChange(change),
        5 = NewView(new),
        6 = Suspect { view, on },
        7 = Entry { view, proof },
        8 = Again(vote),
    );
}

impl Vote {
    pub(super) fn statement(&self, kind: Kind) -> Statement {
        Statement::new(kind, self.view, self.height, self.block.0)
    }
}

quorate_types::wire_struct!(Vote { view, height, block });

quorate_types::wire_struct!(MissingAtHeight { height, proposal, prepares, commits });

/// Bytes of the shortest [`MissingAtHeight`]: height, flag and two empty sets.
const MISSING_BYTES_MIN: usize = 8 + 1 + 1 + 1;

quorate_types::wire_struct!(StatusReport { view, normal, stable, executed, missing[STATUS_HEIGHTS_MAX, MISSING_BYTES_MIN] });
