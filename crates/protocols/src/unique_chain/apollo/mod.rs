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
//! ## Flow
//! ```text
//! leader of r    PROPOSE b(r) on b(r-1) ─┬─▶ all: accept b(r), commit b(r-f)
//! others                                 └─▶ RELAY to the leader of r + 1 ─▶ PROPOSE b(r+1) …   (2n - 3 messages a block)
//! ```
//! A block is an entry of [`unique_chain`](super), and a leader is its author. Golden scripts: `scripts/` of `unique_chain`.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | A1 | §5 | a leader proposes once, on its tip, with the skip certificates since; at once if requests wait or its chain has uncommitted ones | `form::speak` | `a1_*` |
//! | A2 | §5, §20 | an idle leader proposes an empty block after τ | `form::speak` | `a2_*` |
//! | A3 | §4 | a block extends its parent by one height, so it is known only if its height is within its rounds | `form::judge`, `form::learn` | `a3_*` |
//! | A4 | §6 | the wait is 4 Δ + τ | `form::round_ns` | `a4_*` |
//! | A5 | §21 | the time to recover is bounded | `form::recovery` | `a5_*` |
//!
//! ## Invariants
//! Those of [`unique_chain`](super).
//!
//! ## What survives a crash
//! The records of [`unique_chain`](super): the last own proposal · before it leaves; accepted blocks · with it.
//!
//! ## Deviations from the paper
//! - Those of [`unique_chain`](super).
//! - A leader with a full window proposes empty blocks, which commit the earlier ones.
//!
//! ## Not here
//! See [`unique_chain`](super).

mod attacks;
mod form;
mod proposal;
#[cfg(test)]
mod tests;

pub use form::Apollo;
pub use proposal::{NoFact, NoMessage, Proposal};
