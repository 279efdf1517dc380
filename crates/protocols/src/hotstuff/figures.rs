//! What the protocol costs when nothing goes wrong (§12).

use super::message::{COMPLAIN, NEXT_VIEW, PROPOSE, VOTE};
use quorate_consensus::{Count, Figures, LeaderChange, formula};

pub(super) const FIGURES: Figures = Figures {
    block: &[
        Count { kind: PROPOSE, messages: formula!(|n| n - 1) },
        Count { kind: VOTE, messages: formula!(|n| n - 1) },
    ],
    commit_delays: 7,
    commit_deltas: 0,
    reply_delays: 9,
    serial_syncs: 3,
    leader_change: Some(LeaderChange {
        messages: &[
            Count { kind: COMPLAIN, messages: formula!(|n| n * (n - 1)) },
            Count { kind: NEXT_VIEW, messages: formula!(|n| (n + 1) * (n - 1)) },
        ],
        commit_delays: 7,
        commit_deltas: 0,
    }),
    idle: None,
    not_counted: &[NEXT_VIEW],
    remarks: &[
        "Counted while requests come all the time: a block is carried on by the next ones, and most carry requests themselves.",
        "A cluster that becomes idle says NEXT-VIEW once, to n - 1 replicas.",
        "The votes of a view are its successor's: n - 1 of them, because the next leader's own travels nowhere.",
        "Syncs are those of a request that comes alone: who has the last certificate executes and says NEXT-VIEW at once. Where more requests follow, that certificate travels in the next proposal, and the replica that hears it syncs its next vote first: one more.",
        "Clients send to all here: a request that reaches another replica first takes one delay more.",
        "A view that is given up costs COMPLAIN and NEXT-VIEW to all, then a leader that shows both in its proposal, and once more NEXT-VIEW when all is quiet; the rest is the good case.",
    ],
};
