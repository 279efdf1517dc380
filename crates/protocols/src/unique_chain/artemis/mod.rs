//! # Artemis
//!
//! Decides one chain of blocks with n ≥ 2f + 1 replicas, as long as every message between honest replicas is handled within Δ.
//! A stable coordinator streams blocks. Each round has another voter, who signs one small vote for the newest block. The votes
//! are the unique chain: a block is committed once votes of f + 1 distinct voters are on it.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | synchrony | n ≥ 2f + 1 | none; `quorum::weak` for skip certificates | (f + 2) δ to (f + 3) δ | Bhat, Bandarupalli, Bagchi, Kate, Reiter: The Unique Chain Rule and its Applications, FC 2023, ePrint 2021/180 |
//!
//! Rounds, relays, blames, skip certificates and the commit rule are those of [`unique_chain`](super), with a vote for an entry
//! and a voter for an author. This folder has the votes, the blocks of the coordinator, and the change of the coordinator,
//! which is a function of the vote chain alone.
//!
//! The specification numbers the blocks of an instance. Here their heights do that.

mod blocks;
mod chain_state;
mod coordinator;
mod form;
mod message;
mod record;
mod vote;
mod voter;

pub use chain_state::ChainState;
pub use form::Artemis;
pub use message::{ArtemisMessage, CBLOCK, CBlock, SignedBlocks};
pub use record::ArtemisFact;
pub use vote::{Evidence, Vote, VoteKind};
