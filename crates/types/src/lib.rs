//! # quorate-types
//!
//! The types that all other crates share: ids, digests, blocks, bundles, replies, the committee, quorum sizes, the
//! canonical codec and the limits. They are plain data without I/O, clock or randomness. The crate depends on no other
//! crate of Quorate, so tools and foreign clients can use it alone.
//!
//! * [`codec`] has the encoding: little-endian, fixed width, no trailing bytes, canonical.
//! * [`limits`] has a named bound for everything that a peer can make grow.
//! * [`quorum`] has all quorum sizes, as functions. No other module computes one.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

pub mod block;
pub mod bundle;
pub mod chunk;
pub mod codec;
pub mod committee;
pub mod digest;
pub mod entry;
pub mod executed;
pub mod frame_body;
pub mod genesis;
pub mod ids;
pub mod ledger;
pub mod limits;
pub mod mutate;
pub mod order_proof;
pub mod quorum;
pub mod reply;
pub mod rng;
pub mod statement;
pub mod wire;

pub use block::{Block, FullBlock, Payload};
pub use bundle::{Authenticator, Bundle, BundleKind};
pub use chunk::ChunkId;
pub use codec::{DecodeError, Reader, Wire};
pub use committee::{Committee, Member, ReplicaSet};
pub use digest::{Digest, DigestWriter};
pub use entry::{Floors, LogEntry, Mark};
pub use executed::{Executed, ExecutedBundle};
pub use frame_body::FrameBody;
pub use genesis::{BodyLimits, ClientAuth, Genesis};
pub use ids::{
    BlockId, BundleDigest, BundleNo, ClientId, ClusterId, Epoch, Height, Incarnation, Kind, PayloadId,
    ProtocolId, PublicKey, ReplicaId, SessionId, Signature, Time, View,
};
pub use ledger::Ledger;
pub use order_proof::{OrderChain, OrderProof, SignedBlock, SignedVote};
pub use reply::{Outcome, ReplyBundle, Results};
pub use statement::{Domain, Slot, Statement};
