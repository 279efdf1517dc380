//! # Sync HotStuff and Opt Sync
//!
//! Both decide one chain of blocks with n ≥ 2f + 1 replicas, as long as every message between honest replicas is handled within
//! Δ. A replica commits a block 2 Δ after its own vote if nothing has conflicted with it by then. Opt Sync also commits at once
//! when more than 3n/4 replicas have voted. A stable leader is blamed and replaced when it makes no progress or equivocates.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | synchrony | n ≥ 2f + 1 | `quorum::weak` | δ + 2 Δ | Abraham, Malkhi, Nayak, Ren, Yin: Sync HotStuff, IEEE S&P 2020, ePrint 2019/270 |
//! | synchrony | n ≥ 2f + 1 | `quorum::responsive` | 2 δ, else δ + 2 Δ | Shrestha, Abraham, Ren, Nayak: On the Optimality of Optimistic Responsiveness, CCS 2020, ePrint 2020/458 |
//!
//! ## Forms
//! The family has two forms. The stable form ([`Plain`] and [`Optimistic`], this page) keeps its leader, the rotating form
//! ([`rotating`]) changes it with each block. `replica.rs` has the common state and the [`Form`] trait of all differences.
//! `recovery.rs`, `fetching.rs`, `chain_end.rs` and `leaving_view.rs` have the common handlers.
//!
//! ## Flow
//! ```text
//! leader   PROPOSE b(k) ─┐ C(b(k-1)) in it        ┌─ f + 1 votes: C(b(k)), PROPOSE b(k+1) …
//! all                    └▶ ready ─ VOTE to all ──┤   (one message: vote and header)
//!                                  own copy ──────┴─ 2 Δ ─▶ commit b(k), if nothing conflicts with it
//! Opt Sync                          q_R votes ─ NOTIFY to all ─▶ commit b(k) at once
//!
//! 3 Δ + τ without a vote: BLAME to all ─▶ f + 1 of them, or two conflicting statements of a leader: EVIDENCE to all, the
//! view is left, no timer of it commits ─ Δ (Opt Sync 2 Δ) ─▶ STATUS {lock} to the next leader ─ 2 Δ ─▶ NEW-VIEW {highest
//! lock} ─▶ handed on, FIRST-VOTE ─▶ C(base) ─▶ PROPOSE …
//! ```
//! Golden scripts: `scripts/`. Costs: `figures.rs`, `docs/figures.md`.
//! **Serial syncs: 2 for the leader's block** (PROPOSE, then its VOTE), 1 for the others; one more before a reply, unless
//! something was synced since.
//!
//! Terms of the papers: a party is a replica, a status message is STATUS, to quit a view is to leave it, and `lock` is
//! `lock.tip`. A responsive certificate is a certificate of q_R votes.
//!
//! A § without a name is one of `docs/specification/sync-hotstuff.md`. Sections of `docs/specification/optsync.md` have its
//! name.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | S1 | §2 | a certificate is f + 1 equal votes of distinct replicas in one view | `normal::gather` | `s1_*` |
//! | S2 | §4 | a vote for each height in order, on a certificate of this view, whatever the lock | `normal::next_to_vote` | `s2_*` |
//! | | §4, §7 | missing parts of a block are asked for of all that have shown its header | `fetching::fetch_soon` | `s2_*` |
//! | S3 | §3 | the vote is durable before it leaves; vote and header are one message | `normal::try_vote` | `s3_*` |
//! | S4 | §2, §5 | two conflicting statements of a leader end the view, before any other check | `normal::on_header` | `s4_*` |
//! | S5 | §4 | the leader proposes when its last block is certified in this view | `normal::try_propose` | `s5_*` |
//! | S6 | §4 | the 2 Δ begin at the own copy, and only in a running replica and view | `commit::wait_for_silence` | `s6_*` |
//! | S7 | §8 | a timer commits only a block with a certificate of the view that all have had for Δ: shown, or formed by all votes | `commit::show_certified`, `Wait::end` | `s7_*` |
//! | S8 | §8 | a block is committed with its ancestors, on the committed chain | `chain_end::commit` | `s8_*` |
//! | S9 | §19 | a timer commits only while the guard is sound | `waits::is_sound` | `s9_*` |
//! | S10 | §5 | f + 1 blames end a view, fewer do not | `leaving_view::on_blame` | `s10_*` |
//! | S11 | §5 | evidence leaves at once, then no timer of the view commits | `view_change::quit_view` | `s11_*` |
//! | S12 | §5, §19 | the next view is entered after a wait, and not in doubt | `leaving_view::try_enter` | `s12_*` |
//! | S13 | §6 | the lock is the highest certificate on entering, and stays | `view_change::enter_view` | `s13_*` |
//! | S14 | §6 | a leader extends the highest lock reported within 2 Δ | `view_change::on_collect_timer` | `s14_*` |
//! | S15 | §6 | one first vote, for a base that ranks no lower than the lock; no commit timer | `view_change::try_first_vote` | `s15_*` |
//! | S16 | §18 | a recovering replica is silent until enough peers have answered | `recovery`, `parts::recovery` | `s16_*` |
//! | S17 | | the intake reads the messages of the view's leader first | `replica::find_leader` | `s17_*` |
//! | O1 | optsync §4 | q_R votes decide at once | `commit::take_responsive` | `o1_*` |
//! | O2 | optsync §7 | not in a view that was left | `commit::decide` | `o2_*` |
//! | O3 | optsync §4 | all receive them first, unheld | `commit::decide` | `o3_*` |
//! | O4 | optsync §5 | the wait after leaving a view is 2 Δ | `Variant::WAIT` | `o4_*` |
//! | O5 | optsync §6 | locks are compared in two parts | `certificates::accepts` | `o5_*` |
//!
//! ## Invariants
//! I1: if a timer commits a block at one honest replica, no conflicting block is certified in that view at its height or
//! above. All replicas hold its certificate when they enter a later view (§8, Lemma 1; §24, without its part (a)): S2, S4,
//! S6, S7, S11, S12. I2: all replicas hold the certificates of q_R votes that have decided when they enter a later view
//! (`optsync` §7, Lemma 2): O2, O3, O4. I3: no two committed blocks conflict: I1, I2, S13, S15, O5; watched by the agreement
//! oracle.
//!
//! ## What survives a crash
//! [`SyncRecord`]: the view with the evidence that let into it, lock and first vote · before STATUS and FIRST-VOTE · else the
//! replica could enter a view with a lower lock. Last vote, proposal and NEW-VIEW · before each · else it could equivocate.
//! Every certificate · with the next sync, before a reply · else nobody could prove acknowledged blocks after a cold start.
//! Commit timers do not survive: the replica may have missed the end of the view (§3).
//!
//! ## Deviations from the paper
//! - The lock is fixed on entering a view, and a vote in the steady state does not check it (§4: force-locking).
//! - Vote and forwarded header are one message (§4); the header names the base of its view (§2).
//! - The guard (§19) and the rule for recovery (§18) are not in the paper.
//! - Nothing relies on a vote of every honest replica within Δ: without all votes, the certificate is shown (§24).
//! - Fetching brings blocks and bodies, and no proposals: LACK asks for the certificate of a parent (§4, `want`).
//! - One state machine serves both: without certificates of q_R votes Opt Sync's lock is Sync HotStuff's.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, probes of the guard, client replies: see `quorate-replica`.

mod attacks;
mod block_fetches;
mod chain_end;
mod fetching;
mod figures;
mod leaving_view;
mod recovery;
mod replica;
pub mod rotating;
mod stable;
mod statements;
#[cfg(test)]
mod tests;
mod waits;

pub use replica::{Form, SyncHotStuff, Timer};
pub use stable::{
    Answer, Header, LeaderStatement, Lock, LockName, Optimistic, Plain, QuitEvidence, Split, SyncMessage,
    SyncNewView, SyncRecord, Variant, bind_base, vote,
};
pub use statements::{FIRST_VIEW, NEW_VIEW, NOTIFY, PROPOSE, STATUS, VOTE};
