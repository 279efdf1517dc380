//! What it costs when nothing goes wrong (§9, §11).

use super::super::message::{CERTIFIED, PROPOSE, VOTE};
use quorate_consensus::{Count, Figures, Idle, formula};

const PROPOSALS: Count = Count { kind: PROPOSE, messages: formula!(|n| n - 1) };
const VOTES: Count = Count { kind: VOTE, messages: formula!(|n| n * (n - 1)) };
const CERTIFICATES: Count = Count { kind: CERTIFIED, messages: formula!(|n| n * (n - 1)) };

pub(super) const FIGURES: Figures = Figures {
    block: &[PROPOSALS, VOTES, CERTIFICATES],
    commit_delays: 1,
    commit_deltas: 2,
    reply_delays: 3,
    serial_syncs: 3,
    leader_change: None,
    // Blocks are committed by eights: PROPOSE and each VOTE.
    idle: Some(Idle { syncs: formula!(|n| 8 * n + 8), blocks: 8 }),
    not_counted: &[],
    remarks: &[
        "The next leader proposes as soon as it knows of f + 1 votes: 2 delays after the proposal before, for n = 3 after 1. So the waits of 2 delta of many blocks run at the same time.",
        "Syncs: the leader's PROPOSE, its VOTE (the others' come at the same time), and what was decided, before it is executed. Disks lie inside of delta: they make the wait of 2 delta begin later and no shorter.",
        "Everybody shows everybody the certificate with which it leaves a view: as many messages as there are votes, and what makes it safe to leave at once.",
    ],
};
