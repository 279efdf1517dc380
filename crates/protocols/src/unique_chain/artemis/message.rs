//! The coordinator's blocks, and the messages that Artemis has beside those of the unique chain (§2, §15).

use super::super::message::OwnMessage;
use super::super::statements::author;
use super::base_points::{BasePoint, POINTS_MAX};
use super::vote::Vote;
use crate::encoding::variants;
use quorate_consensus::{Auth, Claims, Message, Place, Signed};
use quorate_types::block::BLOCK_BYTES;
use quorate_types::codec::Wire;
use quorate_types::digest::context;
use quorate_types::{Block, BlockId, Digest, Height, Kind, PayloadId, Statement, View};

/// Statement of a CBLOCK.
pub const CBLOCK: Kind = Kind::new("cblock");
pub(super) const WANT_BLOCKS: Kind = Kind::new("want-blocks");
pub(super) const BLOCKS: Kind = Kind::new("blocks");
pub(super) const BASE_POINTS: Kind = Kind::new("base-points");

/// Blocks in one answer at most.
pub(super) const BLOCKS_MAX: usize = 256;

/// A block of a coordinator, in the instance that the anchor opened: the vote that opened its view on this chain, or zero in
/// the first view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CBlock {
    /// The block. Its view is the coordinator's.
    pub block: Block,
    /// The vote that opened the view; zero for genesis.
    pub anchor: Digest,
}

quorate_types::wire_struct!(CBlock { block, anchor });

impl CBlock {
    /// Bytes of the encoding with a signature and an author.
    pub(super) const SIGNED_BYTES: usize = 2 + BLOCK_BYTES + 32 + 64;

    /// Returns the `extra` of a block, which binds its instance.
    #[must_use]
    pub fn bind(anchor: Digest) -> Digest {
        let mut bytes = b"artemis: instance".to_vec();
        anchor.encode(&mut bytes);
        Digest::of(&context::PROTOCOL, &bytes)
    }

    /// Returns the statement of the coordinator. An honest coordinator may serve one view on two branches, so the anchor is the
    /// scope: two blocks of equal height under different anchors have two slots.
    #[must_use]
    pub fn statement(&self) -> Statement {
        let Block { view, height, .. } = self.block;
        Statement { scope: self.anchor, ..Statement::new(CBLOCK, view, height, self.block.id().0) }
    }

    fn check(&self, claims: &Claims<'_>) -> Result<(), &'static str> {
        let Block { view, height, proposer, extra, .. } = self.block;
        if view == View::ZERO || height == Height::ZERO {
            return Err("block of no view");
        }
        // The coordinator of a view is the author of the round of the same number.
        if proposer != author(claims.committee(), view) {
            return Err("block of a replica that does not coordinate its view");
        }
        if extra != Self::bind(self.anchor) {
            return Err("block that does not bind its instance");
        }
        Ok(())
    }

    /// Claims that the coordinator of its view has signed it.
    pub(super) fn claim(signed: &Signed<Self>, claims: &mut Claims<'_>) {
        if let Err(why) = signed.body.check(claims) {
            return claims.refuse(why);
        }
        if signed.by != signed.body.block.proposer {
            return claims.refuse("block of a replica that does not coordinate its view");
        }
        claims.signature(signed.by, signed.body.statement(), &signed.signature);
    }
}

/// Signed blocks that follow each other, oldest first.
pub type SignedBlocks = Vec<Signed<CBlock>>;

/// A message of Artemis alone.
#[derive(Clone, PartialEq, Debug)]
pub enum ArtemisMessage {
    /// The coordinator signs its next block.
    CBlock(CBlock),
    /// Question for the signed blocks on the path to one, above a height.
    WantBlocks {
        /// The last block of the path.
        id: BlockId,
        /// Blocks of this height and below are not needed.
        above: Height,
    },
    /// Answer to [`ArtemisMessage::WantBlocks`].
    Blocks {
        /// Blocks that follow each other, oldest first.
        blocks: SignedBlocks,
    },
    /// Answer to a question for votes that are no longer served.
    BasePoints {
        /// The newest base points, oldest first, and the committed vote.
        points: Vec<BasePoint>,
    },
}

variants!(ArtemisMessage, "artemis message":
    0 = CBlock(block),
    1 = WantBlocks { id, above },
    2 = Blocks { blocks[BLOCKS_MAX, CBlock::SIGNED_BYTES] },
    3 = BasePoints { points[POINTS_MAX, BasePoint::BYTES_MIN] },
);

impl Message for ArtemisMessage {
    fn kind(&self) -> Kind {
        match self {
            Self::CBlock(_) => CBLOCK,
            Self::WantBlocks { .. } => WANT_BLOCKS,
            Self::Blocks { .. } => BLOCKS,
            Self::BasePoints { .. } => BASE_POINTS,
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::CBlock(CBlock { block, .. }) => {
                Place { view: block.view, height: block.height, certified: false }
            }
            Self::WantBlocks { .. } | Self::Blocks { .. } | Self::BasePoints { .. } => Place::ANYWHERE,
        }
    }

    fn auth(&self) -> Auth {
        match self {
            Self::CBlock(block) => Auth::Signed(block.statement()),
            Self::WantBlocks { .. } | Self::BasePoints { .. } => Auth::Linked(None),
            Self::Blocks { .. } => Auth::Relay,
        }
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::CBlock(block) => {
                if let Err(why) = block.check(claims) {
                    claims.refuse(why);
                }
            }
            Self::WantBlocks { .. } | Self::BasePoints { .. } => {}
            Self::Blocks { blocks } => {
                claims.make_room(blocks.len());
                blocks.iter().for_each(|block| CBlock::claim(block, claims));
            }
        }
    }

    fn bodies(&self, out: &mut Vec<PayloadId>) {
        if let Self::CBlock(CBlock { block, .. }) = self {
            out.push(block.payload);
        }
    }
}

impl OwnMessage<Vote> for ArtemisMessage {
    /// Bodies travel beside the coordinator's blocks.
    fn entry_bodies(_: &Vote, _: &mut Vec<PayloadId>) {}
}
