//! What the protocol costs when nothing goes wrong (§11).

use super::message::{ADVANCE, PROPOSE, TIMEOUT, VOTE};
use quorate_consensus::{Count, Figures, LeaderChange, formula};

pub(super) const FIGURES: Figures = Figures {
    block: &[
        Count { kind: PROPOSE, messages: formula!(|n| n - 1) },
        Count { kind: VOTE, messages: formula!(|n| n - 1) },
    ],
    commit_delays: 5,
    commit_deltas: 0,
    reply_delays: 7,
    serial_syncs: 2,
    leader_change: Some(LeaderChange {
        messages: &[
            Count { kind: TIMEOUT, messages: formula!(|n| n * (n - 1)) },
            Count { kind: ADVANCE, messages: formula!(|n| (n + 1) * (n - 1)) },
        ],
        commit_delays: 5,
        commit_deltas: 0,
    }),
    idle: None,
    not_counted: &[ADVANCE],
    remarks: &[
        "Counted while requests come all the time: a block is carried on by the next ones, and most carry requests themselves.",
        "A cluster that becomes idle says ADVANCE once, to n - 1 replicas.",
        "The votes of a view are its successor's: n - 1 of them, because the next leader's own travels nowhere.",
        "Syncs are those of a request that comes alone: who has the last certificate executes and says ADVANCE at once. Where more requests follow, that certificate travels in the next proposal, and the replica that hears it syncs its next vote first: one more.",
        "Clients send to all here: a request that reaches another replica first takes one delay more.",
        "A view that is given up costs TIMEOUT and ADVANCE to all, then a leader that shows both in its proposal, and once more ADVANCE when all is quiet; the rest is the good case.",
    ],
};
