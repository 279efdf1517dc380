//! Cost of the good case (§16). The same in both variants: signatures are no messages.

use super::kinds::{COMMIT, NEW_VIEW, PRE_PREPARE, PREPARE, STATUS, SUSPECT, VIEW_CHANGE};
use quorate_consensus::{Count, Figures, LeaderChange, formula};

pub(super) const FIGURES: Figures = Figures {
    block: &[
        Count { kind: PRE_PREPARE, messages: formula!(|n| n - 1) },
        Count { kind: PREPARE, messages: formula!(|n| (n - 1) * (n - 1)) },
        Count { kind: COMMIT, messages: formula!(|n| n * (n - 1)) },
    ],
    commit_delays: formula!(3),
    commit_deltas: 0,
    spread: 0,
    reply_delays: formula!(5),
    serial_syncs: formula!(3),
    leader_change: Some(LeaderChange {
        messages: &[
            Count { kind: VIEW_CHANGE, messages: formula!(|n| n * (n - 1)) },
            Count { kind: NEW_VIEW, messages: formula!(|n| n - 1) },
        ],
        commit_delays: 4,
        commit_deltas: 0,
    }),
    idle: None,
    not_counted: &[SUSPECT, STATUS],
    remarks: &[
        "The paper's replies after four delays are tentative, and its read-only requests of two are not ordered: neither is built.",
        "The leader's PRE-PREPARE is its PREPARE: it sends none, so PREPAREs are (n - 1)² and not n(n - 1).",
        "SUSPECT, which comes before a VIEW-CHANGE, and STATUS, which replicas send now and then, belong to no block.",
        "A new view decides the blocks that it takes over by PREPARE and COMMIT again: four delays are VIEW-CHANGE, NEW-VIEW, PREPARE, COMMIT.",
    ],
};
