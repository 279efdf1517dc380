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
//! ## Flow
//! ```text
//! coordinator      CBLOCK 1, CBLOCK 2, … to all, without waiting for votes; an empty one τ after the last
//! voter of r       VOTE r {VOTE r-1, newest block} ─┬─▶ all: parent accepted, blocks complete ─▶ accept it, enter r + 1
//! others                                            └─▶ RELAY {VOTE r} to the voter of r + 1 ─▶ VOTE r+1 …
//! accept VOTE r    f + 1 distinct voters on VOTE r-f … VOTE r ─▶ commit the block of VOTE r-f and its ancestors
//!
//! no new block     requests below f + 1 voters ─▶ VOTE {endorse}
//! silence for S    VOTE {no progress}: flags of f + 1 voters on the chain ─▶ the next view; the last of these votes is its anchor
//! two blocks       VOTE {equivocation} ─▶ the next view at once
//! a view opens     RELAY {anchor} to its coordinator ─▶ CBLOCK {anchor} on the head at the anchor
//! ```
//! Golden scripts: `scripts/artemis-*.txt` of `unique_chain`. Costs: `figures.rs`, `docs/figures.md`.
//! **Serial syncs: f + 2 for a block**, the coordinator's and those of f + 1 voters; one more before a reply, unless something
//! was synced since.
//!
//! A § is one of `docs/specification/artemis.md`. The specification numbers the blocks of an instance. Here their heights do
//! that. *Head* is the newest block that a vote chain names. *Instance* is a view on the chain of the vote that opened it.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | A1 | §3 | a Data vote names a strict descendant of its parent's head, and all blocks on that path are of the instance, without a gap in their heights | `voter::judge_path` | `a1_*` |
//! | A2 | §3 | a vote adds at most 16 blocks, and a mebibyte of bodies unless it adds one block | `voter::judge_path`, `voter::newest_block` | `a2_*` |
//! | A3 | §3 | Endorse and NoProgress votes name the head | `voter::judge_vote` | `a3_*` |
//! | A4 | §3 | an Equivocation vote names the head, and shows two signed blocks of the instance for one slot | `voter::judge_vote`, `vote::Evidence::claim` | `a4_*` |
//! | A5 | §2 | the view changes with the flags of f + 1 distinct voters on one chain, or with evidence; each branch has its own instance | `ChainState::after` | `a5_*` |
//! | A6 | §5, §17 | in doubt a voter endorses at the moment at which it would flag | `voter::choose_vote` | `a6_*` |
//! | A7 | §6 | without a new block, a voter endorses while a block with requests up to the head is not final | `voter::is_open` | `a7_*` |
//! | A8 | §5 | two blocks for one slot are evidence before bodies; the second one counts where a vote names it | `coordinator::on_cblock` | `a8_*` |
//! | A9 | §6, §7 | one vote in a round, durable before it leaves: the newest block, else evidence, else silence; S after the round has begun at the latest | `voter::try_vote` | `a9_*` |
//! | A10 | §5, §16 | a coordinator signs one block at a height, durable before it leaves, also after a restart; at once for requests, τ after the last one otherwise | `coordinator::emit` | `a10_*` |
//! | A11 | §5 | a complete block ends the silence for τ + Δ if the coordinator itself has sent it, also where it was fetched or committed before | `coordinator::hear_coordinator` | `a11_*` |
//! | A12 | §5, §16 | a coordinator has 4 Δ for the first block of an instance, and S after the recovery of a replica | `coordinator::open_instance` | `a12_*` |
//! | A13 | §6, §7 | the wait of a round covers the voter's own wait: 4 Δ + S | `form::round_ns` | `a13_*` |
//! | A14 | §5, §15 | the anchor is a part of the slot of a block, and a coordinator serves the view on each branch | `CBlock::statement` | `a14_*` |
//! | A15 | §3 | the coordinator of a view receives the vote that opened it, and stays while it is heard | `voter::show_anchor` | `a15_*` |
//! | A16 | §2, §6 | missing votes, blocks and bodies are asked for together; what may be on its way Δ/4 later | `coordinator::fetch_blocks` | `a16_*` |
//! | A17 | §5, §11 | blocks of unknown instances, blocks far ahead and settled blocks take bounded memory | `CBlocks` | `a17_*` |
//! | A18 | §4, §16 | accepted votes, their blocks and the state after the committed vote are durable with the next own vote | `voter::record_blocks` | `a18_*` |
//! | A19 | §22 | a replica adopts the base point that f + 1 peers report equally, once its block is committed here | `base_points::adopt_point` | `a19_*` |
//!
//! ## Invariants
//! I1: the votes that honest replicas accept above a committed vote extend it: U1 to U14 of the engine.
//! I2: along a vote chain the head moves to descendants only, so committed blocks form one chain: I1, A1, A3, A4; watched by the
//! agreement oracle. The coordinator has no part in it.
//! I3: an honest coordinator is never replaced within the bound: A5, A10 to A15; watched by the scenarios of §12.
//!
//! ## What survives a crash
//! [`ArtemisFact`]: own blocks · before each leaves · else the coordinator could sign two for one slot. Blocks of accepted
//! votes with their coordinator's signatures · with the next own vote, and before a reply · else no replica could show the
//! blocks of an acknowledged vote chain after a cold start (§16). The committed vote with the state after it · with the next
//! sync · else view and head would be unknown, because older votes are dropped. Base points · with the next sync · else a
//! replica that was away for long could not follow the votes again after a cold start. Silence does not survive: blocks may have been
//! missed, so coordinators have S after a recovery.
//!
//! ## Deviations from the paper
//! - The paper's section on Artemis was not readable: all rules beyond its abstract and the good case are our own (§22).
//! - Heights take the place of the sequence numbers of an instance.
//! - A coordinator waits with further requests while four of its blocks with requests have no vote.
//! - Blocks without requests are committed with later ones, or some together: idle replicas stop at the same height.
//! - Client proofs by the unique chain rule (§10) are not built: f + 1 equal replies answer a request.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, probes of the guard, client replies: see `quorate-replica`.

mod attacks;
mod base_points;
mod blocks;
mod chain_state;
mod coordinator;
mod form;
mod message;
mod record;
#[cfg(test)]
mod tests;
mod vote;
mod voter;

pub use base_points::BasePoint;
pub use chain_state::ChainState;
pub use form::Artemis;
pub use message::{ArtemisMessage, CBLOCK, CBlock, SignedBlocks};
pub use record::ArtemisFact;
pub use vote::{Evidence, Vote, VoteKind};
