//! # Sync HotStuff with rotating leaders
//!
//! Decides one chain of blocks with n ≥ 2f + 1 replicas, as long as every message between honest replicas is handled within Δ.
//! Each view has one block, and the next leader proposes as soon as the last block is certified. A replica commits a block 2 Δ
//! after its own vote, in whatever view it is by then.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | synchrony | n ≥ 2f + 1 | `quorum::weak` | δ + 2 Δ, a block every 2 δ | Abraham, Malkhi, Nayak, Ren, Yin: Sync HotStuff, IEEE S&P 2020, ePrint 2019/270; rotation as in `docs/specification/sync-hotstuff.md` §11 |
//!
//! ## Flow
//! ```text
//! leader of v    PROPOSE b(v) ─┐ C(v-1) in it     ┌─ f + 1 votes: C(v) ─▶ CERTIFIED to all, view v + 1 at once;
//! all                          └▶ ready ─ VOTE ───┤                        its leader: PROPOSE b(v+1) …
//!                                        own copy ┴─ 2 Δ, in whatever view ─▶ commit b(v), if C(v) is known, the parent's
//!                                                    certificate is C(v-1), and v has no equivocation and no f + 1 blames
//!
//! 5 Δ + τ without C(v): BLAME to all ─▶ f + 1 of them: EVIDENCE to all ─ Δ ─▶ view v + 1, STATUS {lock} to its leader
//! ─ 2 Δ ─▶ PROPOSE on the highest certificate; such a block commits with the next one
//! ```
//! Golden script: `scripts/05-rotating.txt` of `sync_hotstuff`. Costs: `figures.rs`, `docs/figures.md`.
//! **Serial syncs: 2 for the leader's block** (PROPOSE, then its VOTE), 1 for the others; one more before a reply, unless
//! something was synced since.
//!
//! A § is one of `docs/specification/sync-hotstuff.md`. Terms are those of `sync_hotstuff`.
//!
//! ## Rules
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | R1 | §2 | a certificate is f + 1 equal votes of distinct replicas in one view | `normal::count` | `r1_*` |
//! | R2 | §11, 1 | certificates rank by their view alone | `view_facts::ViewCertificates::add` | `r2_*` |
//! | R3 | §11, 1 | any certificate of the view or a later one ends it at once; each is shown to all once, also that of a skipped view | `normal::take_certificate` | `r3_*` |
//! | R4 | §11, 1 | the lock is the highest certificate on entering, and stays | `views::enter_view` | `r4_*` |
//! | R5 | §11, 2 | a leader proposes once, at once on a certificate of the view before, else after 2 Δ on the highest | `normal::try_propose` | `r5_*` |
//! | R6 | §11, 3 | one vote in a view, not after it, for the first header of its leader, with no parent below the lock | `normal::next_to_vote` | `r6_*` |
//! | R7 | §3, §11, 3 | the vote is durable before it leaves, hands the header on, and all receive its parent's certificate before it | `normal::try_vote` | `r7_*` |
//! | R8 | §11, 3 | 5 Δ + τ after entering without a certificate of the view a replica blames its leader, once its way into the view is durable | `views::on_progress_timer` | `r8_*` |
//! | R9 | §11, 4 | the 2 Δ are waited only if the parent's certificate is of the view before | `commit::wait_for_silence` | `r9_*` |
//! | R10 | §11, 5, 6 | the 2 Δ begin at the own copy in a running replica, and a certificate that ends the view does not end them | `commit::wait_for_silence` | `r10_*` |
//! | | §8, §24 | or when a header is shown to all whose certificate had arrived before it | `commit::wait_without_vote` | `r10_*` |
//! | R11 | §11, 5 | two statements of a view's leader, two certificates of it or f + 1 blames end its wait | `commit::stop_waiting` | `r11_*` |
//! | R12 | §8, §19 | a timer commits, with its ancestors, only a certified block whose certificate all have had for Δ, and while the guard is sound | `commit::commit_sound_waits`, `waits::is_sound` | `r12_*` |
//! | R13 | §11, 1, §19 | f + 1 blames end a view; the next one begins Δ later, and not in doubt | `leaving_view::try_enter` | `r13_*` |
//! | R14 | §18 | a recovering replica is silent until enough peers have answered | `recovery`, `parts::recovery` | `r14_*` |
//! | R15 | §20 | an idle leader proposes an empty block after τ; empty ones are committed together | `commit::worth_committing` | `r15_*` |
//! | R16 | | the intake reads the messages of the view's leader first | `replica::find_leader` | `r16_*` |
//!
//! ## Invariants
//! I1: if a timer commits a block of view v at one honest replica, no conflicting block is certified in v. All replicas hold
//! its certificate when they enter a later view by blames (§11, why safe). Its header and its certificate were on their way to
//! all Δ before (§24, Lemma 1 without (a)): R3, R6 to R13.
//! I2: no two committed blocks conflict: I1, R2, R4, R6; watched by the agreement oracle.
//!
//! ## What survives a crash
//! [`RotatingRecord`]: the view with its certificate or blames, and the lock · before VOTE, STATUS, PROPOSE and BLAME · else
//! the replica could vote in a view that it has left, or with a lower lock. Last vote and proposal · before each · else it
//! could not repeat them (the guard prevents others). The highest certificate · with the next sync, before a reply · else
//! nobody could prove acknowledged blocks after a cold start: it is that of the acknowledged block or of one that extends it.
//! Commit timers do not survive: statements that break the silence of their views may have been missed (§3).
//!
//! ## Deviations from the paper
//! - Responsive rotation is that of §11, not the paper's: there is no wait of Δ between certified views.
//! - A replica that enters with a certificate of the view before sends no STATUS: it has just shown that certificate to all.
//! - Before a vote the certificate of its parent is shown to all, if it was not: so nobody has to ask for it.
//! - The guard (§19) and the rule for recovery (§18) are not in the paper.
//! - Empty blocks are committed with later ones, or some together: idle replicas stop at the same height.
//!
//! ## Not here
//! Payload transfer, checkpoints, catching up by `Decided`, probes of the guard, client replies: see `quorate-replica`.

mod attacks;
mod commit;
mod evidence;
mod fetching;
mod form;
mod header;
mod message;
mod normal;
mod record;
mod state;
#[cfg(test)]
mod tests;
mod view_facts;
mod views;

pub use evidence::ViewEvidence;
pub use header::{Header, status, vote};
pub use message::{Answer, RotatingMessage};
pub use record::RotatingRecord;
pub use state::Rotating;
