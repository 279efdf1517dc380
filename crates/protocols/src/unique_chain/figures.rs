//! Costs of the good case (`apollo` §9).

use super::artemis::CBLOCK;
use super::statements::{PROPOSE, RELAY, VOTE};
use quorate_consensus::{Count, Figures, Idle, formula};

const IDLE: &str = "An idle cluster decides a block in each heartbeat (1 s). The synchrony guard probes each quarter of delta for 3 delta of it, and each 2 delta otherwise: some 20 probes and as many answers per second for each replica and peer at delta = 50 ms.";
const LEADERS: &str =
    "The replacement of a leader is no figure here: scenarios 2 and 3 of the specification measure a crash.";

pub(super) const APOLLO: Figures = Figures {
    block: &[
        Count { kind: PROPOSE, messages: formula!(|n| n - 1) },
        Count { kind: RELAY, messages: formula!(|n| n - 2) },
    ],
    commit_delays: formula!(|n| n.div_ceil(2)),
    commit_deltas: 0,
    spread: 0,
    reply_delays: formula!(|n| n.div_ceil(2) + 2),
    serial_syncs: formula!(|n| n.div_ceil(2) + 1),
    leader_change: None,
    idle: Some(Idle { syncs: formula!(8), blocks: 8, messages: None }),
    not_counted: &[],
    remarks: &[
        "The leader of the committing round executes a delay before the others.",
        "Syncs: the proposals of f + 1 leaders, one after the other, and the decided block before it is executed.",
        IDLE,
        LEADERS,
    ],
};

pub(super) const ARTEMIS: Figures = Figures {
    block: &[
        Count { kind: CBLOCK, messages: formula!(|n| n - 1) },
        Count { kind: VOTE, messages: formula!(|n| n.div_ceil(2) * (n - 1)) },
        Count { kind: RELAY, messages: formula!(|n| n.div_ceil(2) * (n - 2)) },
    ],
    commit_delays: formula!(|n| n.div_ceil(2) + 1),
    commit_deltas: 0,
    spread: 1,
    reply_delays: formula!(|n| n.div_ceil(2) + 3),
    serial_syncs: formula!(|n| n.div_ceil(2) + 2),
    leader_change: None,
    idle: Some(Idle {
        syncs: formula!(16),
        blocks: 8,
        messages: Some(&[
            Count { kind: CBLOCK, messages: formula!(|n| n - 1) },
            Count { kind: VOTE, messages: formula!(|n| n - 1) },
            Count { kind: RELAY, messages: formula!(|n| n - 2) },
        ]),
    }),
    not_counted: &[],
    remarks: &[
        "A block that arrives alone takes f + 1 rounds of n - 1 votes and n - 2 relays: one vote for it, and f that commit it. Under load each round has new blocks, and a vote may add up to 16.",
        "The fastest block is one whose first voter is the coordinator itself.",
        "Syncs: the coordinator's block, the votes of f + 1 voters, one after the other, and the decided block before it is executed.",
        IDLE,
        LEADERS,
    ],
};
