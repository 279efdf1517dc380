//! # Jolteon (DiemBFT v4)
//!
//! Decides one chain of blocks under partial synchrony, and commits a block when one more follows it in the next view: two
//! delays less than `hotstuff`. The lists in timeouts replace the third certificate: a proposal after a failed view shows
//! that no block above its parent can have been committed.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | partial synchrony | n ≥ 3f + 1 | `quorum::byzantine` | 5 δ | Gelashvili, Kokoris-Kogias, Sonnino, Spiegelman, Xiang: Jolteon and Ditto, FC 2022, arXiv 2106.10362, §3; the Diem team: DiemBFT v4, 2021 |
//!
//! ## Flow
//! ```text
//! as in the engine (`chained`); script: scripts/jolteon-01-good-case.txt
//! QC(b') over b ◀ b': b is committed if the views are k, k + 1
//! after a failed view a vote demands the timeouts in the PROPOSE
//! ```
//! **Serial syncs: 1 for each view**, two from a request to its reply.
//!
//! The paper's terms: round = view, `highest_vote_round` = `voted` and `barred`, `qc_high` = `high_qc`,
//! `highest_qc_round` = the view of `high_qc`, TC = timeouts. A § without a paper is one of
//! `docs/specification/jolteon-hotstuff2.md`.
//!
//! ## Rules
//! These come on top of the engine's rules, C1 to C9 and N1 to N10.
//!
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | J1 | FC §3, §1 | a certified block with a certified child of the next view is committed | `LINKS`, `blocks::follow` | `j1_*` |
//! | J2 | FC §3, §2 | a vote is for a block on the certificate of the view before, or on one at least as high as all that the proposal's timeouts list | `allows_vote` | `j2_*` |
//! | J3 | FC §3, §5, §7 | after a timeout no vote in the view, nor in a view that the timeout may skip; recorded | `note_timeout`, `bars` | `j3_*` |
//! | J4 | §4 | a TIMEOUT signs the view of the highest certificate, which is recorded first | `views::time_out` | `j4_*` |
//!
//! ## Invariants
//! I1 and I3 of the engine.
//! I2: no two committed blocks conflict (§6). Kept by I1, I3 and J1 to J4; asserted in `blocks::commit`, watched by the
//! agreement oracle.
//!
//! ## What survives a crash
//! - the last barred view · before TIMEOUT · without it the replica could vote in a view after timing out in it.
//! - the highest certificate · before VOTE and TIMEOUT · without it a TIMEOUT could list one that is too low, and others
//!   would vote for a block that conflicts with a committed one. It is in the engine's record, as is the rest.
//!
//! ## Deviations from the paper
//! - A timeout certificate has no certificate for a block inside: `ViewProof` carries one with it.
//! - With terms of several views a timeout bars the views that it may skip (§7).
//! - Those of the engine.
//!
//! ## Not here
//! Order votes (§10).

use super::figures::figures;
use super::rules::spec;
use super::{ADVANCE, ChainedParams, NoOwnParams, Notes, Proposal, Rules, TIMEOUT};
use quorate_consensus::parts::leaders::LeaderPolicy;
use quorate_consensus::parts::pacemaker::FailedTurns;
use quorate_consensus::{Figures, Spec};
use quorate_types::{Committee, ProtocolId, View};

/// The rules of Jolteon.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Jolteon {
    /// The last view in which this replica votes no more because it has timed out.
    barred: View,
}

quorate_types::wire_struct!(Jolteon { barred });

impl Rules for Jolteon {
    const SPEC: Spec = spec(
        ProtocolId::new("jolteon"),
        "Jolteon (DiemBFT v4): chained, a leader in each view, linear messages, commit by two certificates in a row",
    );
    const FIGURES: Figures = figures!(
        commit_delays: 5, serial_syncs: 2, after_failed_view: 5,
        TIMEOUT = "TIMEOUT", ADVANCE = "ADVANCE"
    );
    const NOTES: Notes = Notes {
        timed_out: "timed out",
        unsafe_proposal: "proposal below what timeouts list",
        view_change: "a quorum timed out",
    };
    const LINKS: usize = 2;
    type OwnParams = NoOwnParams;

    fn allows_vote(&self, proposal: &Proposal<'_>) -> bool {
        // J2. §2, §5.
        let Proposal { block, parent, shown, .. } = *proposal;
        let follows = parent.view.next() == block.view;
        follows || shown.is_some_and(|shown| shown.into == block.view && parent.view >= shown.high)
    }

    fn bars(&self, view: View) -> bool {
        view <= self.barred
    }

    fn note_timeout(&mut self, last_skipped: View) {
        // J3. §5, §7: the listed certificate is at least as high as those under all votes before.
        self.barred = self.barred.max(last_skipped);
    }

    fn failed_turns(params: &ChainedParams<NoOwnParams>, committee: &Committee) -> FailedTurns {
        // §15: a term whose failed view is certified after all is barred for the rest of it, which costs a second timer.
        let timers = match params.leader_policy {
            LeaderPolicy::RoundRobin | LeaderPolicy::Stable => 1,
            LeaderPolicy::Terms | LeaderPolicy::Avoiding => 2,
        };
        let patience = params.leader_policy.patience(committee.f);
        FailedTurns { expiries: 1, timers, patience, leader_wait_ns: 0 }
    }
}
