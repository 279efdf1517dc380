//! Costs of the good case (§9, §11; `optsync` §8).

use super::statements::{CERTIFIED, NOTIFY, PROPOSE, VOTE};
use quorate_consensus::{Count, Figures, Idle, formula};

const PROPOSALS: Count = Count { kind: PROPOSE, messages: formula!(|n| n - 1) };
const VOTES: Count = Count { kind: VOTE, messages: formula!(|n| n * (n - 1)) };
const NOTIFICATIONS: Count = Count { kind: NOTIFY, messages: formula!(|n| n * (n - 1)) };
const CERTIFICATES: Count = Count { kind: CERTIFIED, messages: formula!(|n| n * (n - 1)) };

const IDLE: &str = "An idle cluster decides a block in each heartbeat (1 s). The synchrony guard probes each quarter of delta for 3 delta of it, and each 2 delta otherwise: some 20 probes and as many answers per second for each replica and peer at delta = 50 ms.";
const SYNCS: &str = "Syncs: the leader's PROPOSE, its VOTE (at the same time as those of the others), and the decided block before it is executed. Delta includes disks: a slow disk delays the wait of 2 delta and does not shorten it.";
const SILENT: &str = "A replica broadcasts the certificate of its vote if not all n have voted half of delta after it. That CERTIFIED is no figure here: n - 1 more messages from each replica with the certificate, one for all blocks below it.";
const LEADERS: &str = "The replacement of a leader is no figure here: a leader whose proposals reach nobody is not replaced, because its votes hand the headers on. Scenario 2 of the specification measures a crash.";

pub(super) const PLAIN: Figures = Figures {
    block: &[PROPOSALS, VOTES],
    commit_delays: formula!(1),
    commit_deltas: 2,
    spread: 0,
    reply_delays: formula!(3),
    serial_syncs: formula!(3),
    leader_change: None,
    // §20: the leader's PROPOSE, and everybody's VOTE.
    idle: Some(Idle { syncs: formula!(|n| n + 1), blocks: 1, messages: None }),
    not_counted: &[],
    remarks: &[
        "The leader has its own proposal at once and executes a delay before the others.",
        SILENT,
        SYNCS,
        IDLE,
        LEADERS,
    ],
};

pub(super) const OPTIMISTIC: Figures = Figures {
    block: &[PROPOSALS, VOTES, NOTIFICATIONS],
    commit_delays: formula!(2),
    commit_deltas: 0,
    spread: 0,
    reply_delays: formula!(4),
    remarks: &[
        "With fewer than q_R votes nothing is decided at once, and the costs are those of Sync HotStuff.",
        SILENT,
        SYNCS,
        IDLE,
        LEADERS,
    ],
    ..PLAIN
};

pub(super) const ROTATING: Figures = Figures {
    block: &[PROPOSALS, VOTES, CERTIFICATES],
    // Blocks are committed by eights: PROPOSE and each VOTE.
    idle: Some(Idle { syncs: formula!(|n| 8 * n + 8), blocks: 8, messages: None }),
    remarks: &[
        "The next leader proposes as soon as it has f + 1 votes: 2 delays after the proposal before, for n = 3 after 1. So the waits of 2 delta of many blocks run at the same time.",
        SYNCS,
        "Each replica broadcasts the certificate with which it leaves a view: as many messages as there are votes. These make it safe to leave at once.",
    ],
    ..PLAIN
};
