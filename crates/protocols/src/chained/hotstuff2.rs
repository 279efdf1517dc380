//! # HotStuff-2
//!
//! Decides one chain of blocks under partial synchrony, and commits a block when one more follows it in the next view, like
//! `jolteon`. Timeouts list no certificates: a lock protects committed blocks, and a leader after a failed view waits 2 Δ
//! for the certificates of the others instead.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | partial synchrony | n ≥ 3f + 1 | `quorum::byzantine` | 5 δ | Malkhi, Nayak: HotStuff-2, ePrint 2023/397; chained form: specification §9 |
//!
//! ## Flow
//! ```text
//! as in the engine (`chained`); script: scripts/hotstuff2-01-good-case.txt
//! QC(b') over b ◀ b': b is committed if the views are k, k + 1
//!
//! failed view  each replica enters the next view, ADVANCE {timeouts, high QC} to its leader
//!              leader: all n have sent theirs, or 2 Δ have passed ─▶ PROPOSE on the highest certificate
//! ```
//! **Serial syncs: 1 for each view**, two from a request to its reply.
//!
//! The paper's terms: STATUS = ADVANCE, `lock_view` = `locked`, `last_voted` = `voted`, TC = timeouts. A § without a paper
//! is one of `docs/specification/jolteon-hotstuff2.md`.
//!
//! ## Rules
//! These come on top of the engine's rules, C1 to C9 and N1 to N10.
//!
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | T1 | §9, §1 | a certified block with a certified child of the next view is committed | `LINKS`, `blocks::follow` | `t1_*` |
//! | T2 | §9 | a vote is for a block whose certificate is not older than the lock | `allows_vote` | `t2_*` |
//! | T3 | §9 | the lock is the highest certificate under an own vote; a vote alone raises it | `note_vote` | `t3_*` |
//! | T4 | §9 | a leader that enters by timeouts proposes after 2 Δ, or when all replicas have reported their certificates | `views::waits_for_certificates` | `t4_*` |
//! | T5 | §9 | a replica that enters a view otherwise than by its leader's proposal reports its certificate to that leader | `views::report` | `t5_*` |
//! | T6 | §9 | the signature of a TIMEOUT covers the view alone | `listed` | `t6_*` |
//!
//! ## Invariants
//! I1 and I3 of the engine.
//! I2: no two committed blocks conflict (§9). Let b of view v be committed. f + 1 honest replicas have voted for its child,
//! so their locks are at least v, and each later certificate needs one of their votes. By T2 the lowest certificate of a
//! conflicting block has a parent of view v or higher, which extends b by minimality. Kept by I1 and T1 to T3; asserted in
//! `blocks::commit`, watched by the agreement oracle.
//! I4: an honest leader's certificate after its wait is as high as every honest lock, if delays are at most Δ. Kept by I3,
//! T3, T4 and T5: no lock rises between a replica's report and the proposal.
//!
//! ## What survives a crash
//! The lock · before VOTE · without it the replica could vote for a block that conflicts with a committed one. The rest is in
//! the engine's record.
//!
//! ## Deviations from the paper
//! - Δ is no parameter: the wait is a third of the view's timer, which is at least 6 Δ. Failed views double it (§15).
//! - A STATUS is an ADVANCE: the proof of a view has the highest certificate.
//! - A replica does not vote in a view in which it has timed out, as in `hotstuff`. Liveness alone needs this.
//! - Those of the engine.
//!
//! ## Not here
//! The form that decides one block in a view (§8).

use super::figures::figures;
use super::rules::spec;
use super::{ADVANCE, ChainedParams, NoOwnParams, Notes, Proposal, Rules, TIMEOUT};
use quorate_consensus::parts::chain::Tip;
use quorate_consensus::parts::pacemaker::FailedTurns;
use quorate_consensus::{Figures, Spec};
use quorate_types::{Committee, ProtocolId, View};

/// The rules of HotStuff-2.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HotStuff2 {
    /// The lock: the highest view of a certificate under an own vote.
    locked: View,
}

quorate_types::wire_struct!(HotStuff2 { locked });

impl Rules for HotStuff2 {
    const SPEC: Spec = spec(
        ProtocolId::new("hotstuff2"),
        "HotStuff-2: chained, commit by two certificates in a row, a lock, and a leader that waits after a failed view",
    );
    const FIGURES: Figures = figures!(
        commit_delays: 5, serial_syncs: 2, after_failed_view: 6,
        TIMEOUT = "TIMEOUT", ADVANCE = "ADVANCE",
        "All replicas are up here, so the ADVANCEs that all send after a failed view end its leader's wait after one delay. With a silent replica the wait is 2 delta."
    );
    const NOTES: Notes = Notes {
        timed_out: "timed out",
        unsafe_proposal: "proposal below the lock",
        view_change: "a quorum timed out",
    };
    const LINKS: usize = 2;
    const TIMEOUTS_LIST_CERTIFICATES: bool = false;
    const LEADER_WAITS: bool = true;
    type OwnParams = NoOwnParams;

    fn allows_vote(&self, proposal: &Proposal<'_>) -> bool {
        // T2. §9.
        proposal.parent.view >= self.locked
    }

    fn note_vote(&mut self, parent: Tip) {
        // T3. §9: a certificate that this replica learns otherwise does not raise the lock.
        self.locked = self.locked.max(parent.view);
    }

    fn adopt_lock(&mut self, tip: Tip) {
        self.locked = self.locked.max(tip.view);
    }

    fn failed_turns(params: &ChainedParams<NoOwnParams>, committee: &Committee) -> FailedTurns {
        // §15: the wait grows with the timer.
        let patience = params.leader_policy.patience(committee.f);
        FailedTurns { expiries: 1, timers: 1, patience, leader_wait_ns: params.timing().cap_ns() / 3 }
    }
}
