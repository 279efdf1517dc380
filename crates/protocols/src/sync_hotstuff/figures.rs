//! Costs of the good case (§9, §11; `optsync` §8).

use super::statements::{CERTIFIED, NOTIFY, PROPOSE, VOTE};
use quorate_consensus::{Count, Figures, Idle, formula};

const PROPOSALS: Count = Count { kind: PROPOSE, messages: formula!(|n| n - 1) };
const VOTES: Count = Count { kind: VOTE, messages: formula!(|n| n * (n - 1)) };
const NOTIFICATIONS: Count = Count { kind: NOTIFY, messages: formula!(|n| n * (n - 1)) };
const CERTIFICATES: Count = Count { kind: CERTIFIED, messages: formula!(|n| n * (n - 1)) };

const IDLE: &str = "While nobody wants anything there is a block in each heartbeat (1 s), and the synchrony guard probes for 3 delta of it each quarter of delta, and else each 2 delta: for each replica and peer some 20 probes and as many answers in a second at delta = 50 ms.";
const SYNCS: &str = "Syncs: the leader's PROPOSE, its VOTE (the others' come at the same time), and what was decided, before it is executed. Disks lie inside of delta: they make the wait of 2 delta begin later and no shorter.";
const SILENT: &str = "Where not all n have voted half of delta after an own vote, its certificate is shown to all (CERTIFIED, n - 1 messages more from each who has it, one for all blocks below it): no figure here.";
const LEADERS: &str = "How a leader is replaced is no figure here: a leader whose proposals reach nobody is not replaced, because its votes hand the headers on. Scenario 2 of the specification measures a crash.";

pub(super) const PLAIN: Figures = Figures {
    block: &[PROPOSALS, VOTES],
    commit_delays: 1,
    commit_deltas: 2,
    reply_delays: 3,
    serial_syncs: 3,
    leader_change: None,
    // §20: the leader's PROPOSE, and everybody's VOTE.
    idle: Some(Idle { syncs: formula!(|n| n + 1), blocks: 1 }),
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
    commit_delays: 2,
    commit_deltas: 0,
    reply_delays: 4,
    remarks: &[
        "With fewer than q_R votes nothing is decided at once, and it costs what Sync HotStuff does then.",
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
    idle: Some(Idle { syncs: formula!(|n| 8 * n + 8), blocks: 8 }),
    remarks: &[
        "The next leader proposes as soon as it knows of f + 1 votes: 2 delays after the proposal before, for n = 3 after 1. So the waits of 2 delta of many blocks run at the same time.",
        SYNCS,
        "Everybody shows everybody the certificate with which it leaves a view: as many messages as there are votes, and what makes it safe to leave at once.",
    ],
    ..PLAIN
};
