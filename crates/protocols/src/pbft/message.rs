//! What replicas say to each other, and what of it binds them (`pbft` variant H, §2).

use super::view_message::{Evidence, NewView, ViewChange};
use quorate_consensus::{Auth, Claims, Message, Place};
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::limits::STATUS_HEIGHTS_MAX;
use quorate_types::{Block, BlockId, Digest, Height, Kind, PayloadId, ReplicaSet, Statement, View};

/// Statement of a PRE-PREPARE.
pub const PRE_PREPARE: Kind = Kind::new("pre-prepare");
/// Statement of a PREPARE.
pub const PREPARE: Kind = Kind::new("prepare");
/// Statement of a COMMIT.
pub const COMMIT: Kind = Kind::new("commit");
/// Statement of a VIEW-CHANGE.
pub const VIEW_CHANGE: Kind = Kind::new("view-change");
/// Statement of a NEW-VIEW.
pub const NEW_VIEW: Kind = Kind::new("new-view");
/// Statement of a SUSPECT, which may be taken back.
pub const SUSPECT: Kind = Kind::new("suspect");
/// An ENTRY states nothing: everything in it is said by others.
pub const ENTRY: Kind = Kind::new("entry");
/// A STATUS states nothing.
pub const STATUS: Kind = Kind::new("status");

/// A message of this protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum PbftMessage {
    /// The leader of a view: decide this block at its height.
    PrePrepare {
        /// In which view; the block names the view in which it was proposed first.
        view: View,
        /// The block.
        block: Block,
    },
    /// I hold this block, it is valid, and in this view I accept no other at its height.
    Prepare(Vote),
    /// A quorum of this view stands behind this block, and I have written that down.
    Commit(Vote),
    /// Where I stand and what I lack.
    Status(Standing),
    /// I leave this view's predecessors.
    ViewChange(Box<ViewChange>),
    /// The leader of a view: it begins.
    NewView(Box<NewView>),
    /// I think that the leader of this view is faulty, or no longer so. Binds to nothing.
    Suspect {
        /// The view.
        view: View,
        /// Whether I still think so.
        on: bool,
    },
    /// Variant S: the leader of a view pre-prepares again, by its id, what its NEW-VIEW has taken over.
    Again(Vote),
    /// Why I am in this view: for who is behind.
    Entry {
        /// The view.
        view: View,
        /// What let me in.
        evidence: Evidence,
    },
}

/// What a PREPARE and a COMMIT name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// In which view.
    pub view: View,
    /// At which height.
    pub height: Height,
    /// For which block.
    pub block: BlockId,
}

/// A STATUS: promises nothing, so it is neither held nor bound to a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The current view of the sender.
    pub view: View,
    /// Whether it takes part in that view.
    pub normal: bool,
    /// Its stable checkpoint.
    pub stable: Height,
    /// The last height that it executed.
    pub executed: Height,
    /// What it lacks, lowest heights first, at most [`STATUS_HEIGHTS_MAX`].
    pub missing: Vec<Missing>,
}

/// What a replica lacks to decide one height.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The height.
    pub height: Height,
    /// Whether it lacks the PRE-PREPARE of its current view.
    pub proposal: bool,
    /// Whose PREPARE of its current view it lacks; empty when it has enough of them.
    pub prepares: ReplicaSet,
    /// Whose COMMIT it lacks.
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
            // Whoever is behind in view or height is the one who needs to be heard.
            Self::Status(_) => Place::ANYWHERE,
            // §2: of any view, so that a replica hears of views far above its own.
            Self::ViewChange(change) => Place { view: change.view, height: Height::ZERO, certified: true },
            Self::NewView(new) => Place { view: new.view, height: Height::ZERO, certified: true },
            Self::Entry { view, .. } => Place { view: *view, height: Height::ZERO, certified: true },
            Self::Suspect { view, .. } => Place { view: *view, height: Height::ZERO, certified: false },
        }
    }

    // §2, variant H: the link vouches, and only what changes the view can be shown to a third party.
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
            Self::NewView(new) => new.claims(claims),
            Self::Entry { evidence, .. } => evidence.claims(claims),
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
    fn encode(&self, buf: &mut Vec<u8>) {
        match self {
            Self::PrePrepare { view, block } => {
                buf.push(0);
                view.encode(buf);
                block.encode(buf);
            }
            Self::Prepare(vote) => {
                buf.push(1);
                vote.encode(buf);
            }
            Self::Commit(vote) => {
                buf.push(2);
                vote.encode(buf);
            }
            Self::Status(standing) => {
                buf.push(3);
                standing.encode(buf);
            }
            Self::ViewChange(change) => {
                buf.push(4);
                change.encode(buf);
            }
            Self::NewView(new) => {
                buf.push(5);
                new.encode(buf);
            }
            Self::Suspect { view, on } => {
                buf.push(6);
                view.encode(buf);
                on.encode(buf);
            }
            Self::Entry { view, evidence } => {
                buf.push(7);
                view.encode(buf);
                evidence.encode(buf);
            }
            Self::Again(vote) => {
                buf.push(8);
                vote.encode(buf);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match Self::decode_all(reader)? {
            Self::Again(_) => Err(DecodeError::Tag("pbft message")),
            message => Ok(message),
        }
    }
}

impl PbftMessage {
    /// Reads a message of either variant.
    pub(super) fn decode_all(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::PrePrepare { view: View::decode(reader)?, block: Block::decode(reader)? },
            1 => Self::Prepare(Vote::decode(reader)?),
            2 => Self::Commit(Vote::decode(reader)?),
            3 => Self::Status(Standing::decode(reader)?),
            4 => Self::ViewChange(Box::new(ViewChange::decode(reader)?)),
            5 => Self::NewView(Box::new(NewView::decode(reader)?)),
            6 => Self::Suspect { view: View::decode(reader)?, on: reader.bool()? },
            7 => Self::Entry { view: View::decode(reader)?, evidence: Evidence::decode(reader)? },
            8 => Self::Again(Vote::decode(reader)?),
            _ => return Err(DecodeError::Tag("pbft message")),
        })
    }
}

impl Vote {
    pub(super) fn statement(&self, kind: Kind) -> Statement {
        Statement::new(kind, self.view, self.height, self.block.0)
    }
}

impl Wire for Vote {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        self.height.encode(out);
        self.block.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            view: View::decode(reader)?,
            height: Height::decode(reader)?,
            block: BlockId::decode(reader)?,
        })
    }
}

impl Wire for Missing {
    fn encode(&self, out: &mut Vec<u8>) {
        self.height.encode(out);
        self.proposal.encode(out);
        self.prepares.encode(out);
        self.commits.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            height: Height::decode(reader)?,
            proposal: reader.bool()?,
            prepares: ReplicaSet::decode(reader)?,
            commits: ReplicaSet::decode(reader)?,
        })
    }
}

/// Bytes of the shortest [`Missing`]: height, flag and two empty sets.
const MISSING_BYTES_MIN: usize = 8 + 1 + 1 + 1;

impl Wire for Standing {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        self.normal.encode(out);
        self.stable.encode(out);
        self.executed.encode(out);
        put_list(out, &self.missing);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            view: View::decode(reader)?,
            normal: reader.bool()?,
            stable: Height::decode(reader)?,
            executed: Height::decode(reader)?,
            missing: reader.list(
                "missing heights",
                STATUS_HEIGHTS_MAX,
                MISSING_BYTES_MIN,
                Missing::decode,
            )?,
        })
    }
}
