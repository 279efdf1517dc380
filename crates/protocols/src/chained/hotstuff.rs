//! # Chained HotStuff
//!
//! Decides one chain of blocks under partial synchrony with O(n) messages in each view, and commits a block when two more
//! follow it in the next two views. The pacemaker is the corrected one of the specification.
//!
//! | model | replicas | quorum | good-case latency | paper |
//! |---|---|---|---|---|
//! | partial synchrony | n ≥ 3f + 1 | `quorum::byzantine` | 7 δ | Yin, Malkhi, Reiter, Golan Gueta, Abraham: HotStuff, PODC 2019, arXiv 1803.05069, §4 to §6; pacemaker: specification §7 |
//!
//! ## Flow
//! ```text
//! as in the engine (`chained`); script: scripts/hotstuff-01-good-case.txt
//! QC(b2) over b0 ◀ b1 ◀ b2: b1 is the lock; b0 is committed if the views are k, k + 1, k + 2
//! TIMEOUT is called COMPLAIN, and ADVANCE is called NEXT-VIEW
//! ```
//! **Serial syncs: 1 for each view**, three from a request to its reply.
//!
//! The paper's terms: node = block, command = payload, `vheight` = `voted`, `b_lock` = `locked`, `b_exec` =
//! `chain.committed`, `qc_high` = `high_qc`, NEW-VIEW = COMPLAIN. The specification's terms: NVC = timeouts, the
//! certificate in NEXTVIEW = `ViewProof`. A § without a paper is one of `docs/specification/hotstuff.md`.
//!
//! ## Rules
//! These come on top of the engine's rules, C1 to C9 and N1 to N10.
//!
//! | id | paper | says | handler | test |
//! |---|---|---|---|---|
//! | H1 | PODC §5, §4 | the lock is the head of a certified two-chain, and only rises | `note_two_chain` | `h1_*` |
//! | H2 | PODC §5, §4 | a certified three-chain of consecutive views commits its first block | `LINKS`, `blocks::follow` | `h2_*` |
//! | H3 | §5 | the lock of a block's own certificate stands before the vote for the block | `blocks::consider` | `h3_*` |
//! | H4 | PODC §4 | a vote is for a block that extends the lock, or that carries a newer certificate than the lock | `allows_vote` | `h4_*` |
//! | H5 | §7 | a COMPLAIN goes to all, or to the next leader and one more replica with each expiry | `complaints` | `h5_*` |
//!
//! ## Invariants
//! I1 and I3 of the engine.
//! I2: no two committed blocks conflict (§11). Kept by I1 and H1 to H4; asserted in `blocks::commit`, watched by the
//! agreement oracle.
//! I4: q complaints list a certificate as high as every honest lock. Kept by N2 and H1: the next proposal gets votes.
//!
//! ## What survives a crash
//! The lock · before VOTE · without it the replica could vote for a block that conflicts with a committed one.
//! The rest is in the engine's record.
//!
//! ## Deviations from the paper
//! - A certificate alone changes the view; there is no NEW-VIEW (§7b).
//! - A replica does not vote in a view in which it has timed out. Liveness alone needs this (§5).
//! - Those of the engine.
//!
//! ## Not here
//! The basic form with three phases in a view (§3), and the dual mode (§7c).

use super::figures::figures;
use super::params::LEADER_POLICY;
use super::rules::spec;
use super::{ChainedParams, Notes, Proposal, Rules};
use quorate_consensus::parts::chain::Tip;
use quorate_consensus::parts::pacemaker::{Complaints, FailedTurns};
use quorate_consensus::{Choice, Figures, Spec};
use quorate_types::{Committee, Height, Kind, ProtocolId};
use serde::{Deserialize, Serialize};

/// Statement of a COMPLAIN.
pub const COMPLAIN: Kind = Kind::new("complain");
/// Kind of a NEXT-VIEW.
pub const NEXT_VIEW: Kind = Kind::new("next-view");

/// Parameters of these rules alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HotStuffParams {
    /// Receivers of a complaint: all (`broadcast`), or the next leaders one by one (`linear`).
    pub complaints: Complaints,
}

impl Default for HotStuffParams {
    fn default() -> Self {
        Self { complaints: Complaints::Broadcast }
    }
}

/// The rules of chained HotStuff.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HotStuff {
    locked: Tip,
}

quorate_types::wire_struct!(HotStuff { locked });

impl Rules for HotStuff {
    const SPEC: Spec = spec(
        ProtocolId::new("hotstuff"),
        "chained HotStuff: a leader in each view, linear messages, commit by three certificates in a row",
    );
    const FIGURES: Figures = figures!(
        commit_delays: 7, serial_syncs: 3, after_failed_view: 7,
        COMPLAIN = "COMPLAIN", NEXT_VIEW = "NEXT-VIEW"
    );
    const TIMEOUT: Kind = COMPLAIN;
    const ADVANCE: Kind = NEXT_VIEW;
    const NOTES: Notes = Notes {
        timed_out: "complained",
        unsafe_proposal: "proposal beside the lock",
        view_change: "a quorum complained",
    };
    const LINKS: usize = 3;
    const CHOICES: &'static [Choice] =
        &[LEADER_POLICY, Choice { name: "complaints", values: &["broadcast", "linear"] }];
    type OwnParams = HotStuffParams;

    fn allows_vote(&self, proposal: &Proposal<'_>) -> bool {
        // H4. §3, §5 `safe`.
        let Proposal { chain, blocks, block, parent, .. } = *proposal;
        chain.extends(blocks, block, self.locked.end()) == Some(true) || parent.view > self.locked.view
    }

    fn note_two_chain(&mut self, head: Tip) {
        // H1, H3. §4: the views of the two-chain need not be consecutive.
        self.locked = self.locked.max(head);
    }

    fn adopt_lock(&mut self, tip: Tip) {
        self.locked = self.locked.max(tip);
    }

    fn note_decided(&mut self, tip: Tip) {
        self.locked = self.locked.max(tip);
    }

    fn locked(&self) -> Height {
        self.locked.height
    }

    fn complaints(own: &HotStuffParams) -> Complaints {
        own.complaints
    }

    fn failed_turns(params: &ChainedParams<HotStuffParams>, committee: &Committee) -> FailedTurns {
        // §16: a complaint reaches an honest collector at its (f + 1)st expiry at the latest.
        let expiries = match params.own.complaints {
            Complaints::Broadcast => 1,
            Complaints::Linear => committee.weak(),
        };
        let patience = params.leader_policy.patience(committee.f);
        FailedTurns { expiries, timers: 1, patience, leader_wait_ns: 0 }
    }
}
