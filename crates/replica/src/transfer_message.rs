//! Messages that bring a state to a replica that is far behind, or has none.
//!
//! The replica asks for a snapshot whose state a quorum has signed, and then for its chunks. The signatures are claims, so
//! the intake checks them. The list of chunks follows from the signed state, and each chunk from the list. No answer
//! therefore needs trust.

use quorate_consensus::CheckpointProof;
use quorate_types::chunk::CHUNK_ID_BYTES;
use quorate_types::codec::{DecodeError, Reader, Wire, put_bytes, put_list, put_tagged};
use quorate_types::limits::{CHUNK_PIECE_BYTES_MAX, SNAPSHOT_CHUNKS_MAX, SNAPSHOT_HEADER_BYTES_MAX};
use quorate_types::{ChunkId, Height, Kind};

/// A snapshot that a peer can send.
#[derive(Clone, PartialEq, Debug)]
pub struct StateOffer {
    /// The checkpoint of the state, with the signatures of a quorum.
    pub proof: CheckpointProof,
    /// The header of the snapshot.
    pub header: Vec<u8>,
    /// The ids of its chunks, in order.
    pub chunks: Vec<ChunkId>,
}

/// A part of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PieceAt {
    /// The height of the state.
    pub height: Height,
    /// The index of the chunk.
    pub index: u32,
    /// The first byte.
    pub offset: u32,
    /// The number of bytes.
    pub length: u32,
}

quorate_types::wire_struct!(PieceAt { height, index, offset, length });

/// A message of a transfer of state.
#[derive(Clone, PartialEq, Debug)]
pub enum TransferMessage {
    /// Asks for the newest snapshot above this height whose state a quorum has signed.
    AskState(Height),
    /// Offers that snapshot.
    State(Box<StateOffer>),
    /// The sender has no such snapshot.
    NoState,
    /// Asks for a part of a chunk.
    AskPiece(PieceAt),
    /// The part of the chunk.
    Piece(PieceAt, Vec<u8>),
    /// The sender does not keep the snapshot of this height any more.
    NoPiece(Height),
}

impl TransferMessage {
    /// Returns the kind, for metrics and traces.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::AskState(_) => Kind::new("host.ask-state"),
            Self::State(_) => Kind::new("host.state"),
            Self::NoState => Kind::new("host.no-state"),
            Self::AskPiece(_) => Kind::new("host.ask-piece"),
            Self::Piece(..) => Kind::new("host.piece"),
            Self::NoPiece(_) => Kind::new("host.no-piece"),
        }
    }
}

impl Wire for StateOffer {
    fn encode(&self, out: &mut Vec<u8>) {
        self.proof.encode(out);
        put_bytes(out, &self.header);
        put_list(out, &self.chunks);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // The host's own header comes before that of the service.
        let header_max = SNAPSHOT_HEADER_BYTES_MAX.saturating_mul(2);
        Ok(Self {
            proof: CheckpointProof::decode(reader)?,
            header: reader.bytes("header", header_max)?.to_vec(),
            chunks: reader.list("chunks", SNAPSHOT_CHUNKS_MAX, CHUNK_ID_BYTES, ChunkId::decode)?,
        })
    }
}

impl Wire for TransferMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::AskState(above) => put_tagged(out, 0, &[above]),
            Self::State(offer) => put_tagged(out, 1, &[offer]),
            Self::NoState => out.push(2),
            Self::AskPiece(at) => put_tagged(out, 3, &[at]),
            Self::Piece(at, bytes) => {
                put_tagged(out, 4, &[at]);
                put_bytes(out, bytes);
            }
            Self::NoPiece(height) => put_tagged(out, 5, &[height]),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::AskState(Height::decode(reader)?),
            1 => Self::State(Box::new(StateOffer::decode(reader)?)),
            2 => Self::NoState,
            3 => Self::AskPiece(PieceAt::decode(reader)?),
            4 => {
                let at = PieceAt::decode(reader)?;
                let bytes = reader.bytes("piece", CHUNK_PIECE_BYTES_MAX)?;
                if u32::try_from(bytes.len()) != Ok(at.length) {
                    return Err(DecodeError::Value("piece"));
                }
                Self::Piece(at, bytes.to_vec())
            }
            5 => Self::NoPiece(Height::decode(reader)?),
            _ => return Err(DecodeError::Tag("transfer message")),
        })
    }
}
