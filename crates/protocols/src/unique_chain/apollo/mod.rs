//! # Apollo
//!
//! Decides one chain of blocks with n ≥ 2f + 1 replicas, as long as every message between honest replicas is handled within Δ.
//! Each round has another leader, who sends one block. A block is committed once blocks of f + 1 distinct leaders are on its
//! chain, itself included: the hash of the parent is the vote.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | synchrony | n ≥ 2f + 1 | none; `quorum::weak` for skip certificates | (f + 1) δ, a block every δ | Bhat, Bandarupalli, Bagchi, Kate, Reiter: The Unique Chain Rule and its Applications, FC 2023, ePrint 2021/180 |
//!
//! The flow, the rules and the fault path are those of [`unique_chain`](super), with a block for an entry and a leader for an
//! author. This folder has the block as an entry, and the proposal.
//!
//! A leader proposes as soon as requests wait, at once while its chain has requests that are not committed, and after τ in any
//! case (§5).

mod form;
mod proposal;
#[cfg(test)]
mod tests;

pub use form::Apollo;
pub use proposal::{NoFact, NoMessage, Proposal};
