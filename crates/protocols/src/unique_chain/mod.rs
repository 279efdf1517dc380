//! # The unique chain: Apollo
//!
//! Decides one chain with n ≥ 2f + 1 replicas, as long as every message between honest replicas is handled within Δ. Each round
//! has one author, who signs at most one entry. An entry names its parent by hash, and that is a vote for the parent and all its
//! ancestors. An entry is committed once entries of f + 1 distinct authors are on its chain, itself included: one of them is
//! honest, its round is never skipped, and it signs one entry, so every later chain contains it.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | synchrony | n ≥ 2f + 1 | none; `quorum::weak` for skip certificates | (f + 1) δ | Bhat, Bandarupalli, Bagchi, Kate, Reiter: The Unique Chain Rule and its Applications, FC 2023, ePrint 2021/180 |
//!
//! ## Forms
//! `replica.rs` has the state and the [`Form`] trait of all differences. In [`apollo`] an entry is a block, and its author is the
//! leader of the round.
//!
//! ## Flow
//! ```text
//! author of r      ENTRY e(r) on e(r-1) ──┬─▶ all: parent accepted, bodies complete ─▶ accept e(r), enter r + 1
//! others                                  └─▶ RELAY {e(r)} to the author of r + 1 ─▶ ENTRY e(r+1) …
//! accept e(r)      f + 1 distinct authors on e(r-f) … e(r) ─▶ commit e(r-f) and its ancestors
//!
//! round wait without e(r):  BLAME {proof of r} to all ─▶ f + 1 of them: skip certificate of r, enter r + 1, RELAY to all
//!                           ─▶ e(r+1) on the accepted entry of the highest round, with a skip certificate for each round since
//! ```
//! Golden scripts: `scripts/`. Costs: `figures.rs`, `docs/figures.md`.
//! **Serial syncs: 1 for an entry**, its author's; one more before a reply, unless something was synced since.
//!
//! Terms of the notes: to accept an entry is to find it complete and valid, the tip is the accepted entry of the highest round,
//! and a round proof is an entry with the skip certificates of all rounds after it. A § without a name is one of the notes
//! about Apollo. Sections of `docs/specification/sync-hotstuff.md` have its name.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | U1 | §2, §4 | an entry is signed by its round's author, and shows a skip certificate for each round since its parent | `entry::claim_entry` | `u1_*` |
//! | U2 | §2 | a round proof shows a signed tip, and a skip certificate for each round after it | `RoundProof::claim` | `u2_*` |
//! | U3 | §4 | an entry is accepted once its parent is accepted and its bodies are complete, whatever the own branch; the first one of the highest round is the tip | `entries::accept_from` | `u3_*` |
//! | U4 | §4, §5 | two entries of a round are evidence, before bodies; the second one counts where a later author extends it | `entries::check_first` | `u4_*` |
//! | U5 | §5 | the author of a round receives a relay always, except after the own entry | `rounds::enter_round` | `u5_*` |
//! | U6 | §6 | the wait for an author begins with the round, and no message prolongs it but its own copy | `rounds::begin_wait` | `u6_*` |
//! | U7 | §5, §6 | the author's own copy gives 2 Δ for a fetch from it, once in a round | `rounds::grant_grace`, `fetching::fetch` | `u7_*` |
//! | U8 | §5, §18 | an author is blamed when the wait is over and the guard is sound; after a doubt all are asked, and the wait begins anew | `rounds::step_wait` | `u8_*` |
//! | U9 | §5 | f + 1 blames skip the round, fewer do not | `rounds::on_blame` | `u9_*` |
//! | U10 | §5 | a round proof lets in once its tip is accepted | `rounds::take_proof` | `u10_*` |
//! | U11 | §8 | f + 1 distinct authors on a path commit its first entry, with all ancestors; authors are counted, not rounds | `entries::try_commit` | `u11_*` |
//! | U12 | §10, §12 | a valid chain that misses the committed entry stops the replica, if f + 1 authors have signed above it or it skips an honest author's round | `conflicts::check_conflict` | `u12_*` |
//! | U13 | §6 | messages of the round's author are read first | `rounds::begin_round` | `u13_*` |
//! | U14 | §7, §17, sync-hotstuff §18 | a recovering replica accepts and relays, blames and signs nothing; whole waits follow | `recovery`, `parts::recovery` | `u14_*` |
//! | U15 | §2, §5 | every peer that shows an entry is asked for what is missing; the answer is the whole path | `fetching::fetch`, `entries::on_want` | `u15_*` |
//! | U16 | §5, §7 | a peer that blames an earlier round, or relays one with the flag of recovery, receives the proof of the own round | `rounds::help` | `u16_*` |
//! | U17 | §12 | a skip certificate of the own round, and the entry of a blamed author, are doubts of the bound | `conflicts::note_skipped`, `entries::note_late` | `u17_*` |
//! | U18 | §3 | the own entry is durable before it leaves; accepted entries are durable with it | `record`, `entries::accept` | `u18_*` |
//!
//! ## Invariants
//! INV: no skip certificate of an honest author's round exists, and exactly one valid entry of that round does (§8): U1, U4,
//! U5 to U9, U14, U18.
//! I1, the chain lemma: a valid chain has, for each round up to its tip's, an entry of that round or a skip certificate for it.
//! With INV, every valid chain whose tip is of an honest author's round or a later one contains that author's entry: U1, U2.
//! I2: a replica in a round holds a proof of the round, made of its tip and its skip certificates, unless it has adopted blocks
//! that peers have decided: U3, U10. Asserted by `rounds::proof`, which shows no other.
//! I3: no two committed entries conflict: I1, U11; watched by the agreement oracle and by U12.
//!
//! ## What survives a crash
//! [`UniqueRecord`]: the own entry · before it leaves · else its author could sign two in one round. Accepted entries · with the
//! next own entry, and before a reply · else all replicas could forget the entries that committed an acknowledged block, and
//! blame their authors after a cold start (§17). Blames promise nothing and are not recorded. Waits do not survive: the entry of
//! the round may have been missed, so the replica is silent first.
//!
//! ## Deviations from the paper
//! - The fault path (blames, skip certificates, round proofs, waits) is that of the notes (§4 to §7), not the paper's.
//! - The guard (§18) and the rule for recovery (§17) are not in the paper.
//! - A body that may be on its way is asked for a quarter of Δ later, and the grace is longer by as much.
//! - The newest blame of each replica is kept, not one for each round.
//! - Entries without requests are committed with later ones, or some together: idle replicas stop at the same height.
//! - Client proofs by the unique chain rule (§10) are not built: f + 1 equal replies answer a request.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, probes of the guard, client replies: see `quorate-replica`.

pub mod apollo;
pub mod artemis;
mod attack_memory;
mod conflicts;
mod entries;
mod entry;
mod fetching;
mod figures;
mod message;
mod record;
mod recovery;
mod replica;
mod rounds;
mod statements;
mod store;
#[cfg(test)]
mod tests;
mod wanted;

pub use apollo::Apollo;
pub use artemis::Artemis;
pub use entry::{Entry, EntryRef, Framed, RoundProof, skips_digest};
pub use message::{Answer, OwnMessage, UniqueMessage};
pub use record::UniqueRecord;
pub use replica::{Form, IfIdle, Timer, UniqueChain, Verdict};
pub use statements::{FIRST_ROUND, PROPOSE, RELAY, VOTE};
