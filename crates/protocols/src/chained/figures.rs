//! Costs of chained protocols when no replica fails (§12).

/// Returns the figures of a rule set: its delays and syncs, its kinds of TIMEOUT and ADVANCE with their names in remarks, and
/// further remarks of its own.
macro_rules! figures {
    (
        commit_delays: $commit:literal, serial_syncs: $syncs:literal, after_failed_view: $failed:literal,
        $timeout:ident = $timeout_name:literal, $advance:ident = $advance_name:literal $(, $more:literal)*
    ) => {{
        use quorate_consensus::{Count, Figures, LeaderChange, formula};
        Figures {
            block: &[
                Count { kind: $crate::chained::PROPOSE, messages: formula!(|n| n - 1) },
                Count { kind: $crate::chained::VOTE, messages: formula!(|n| n - 1) },
            ],
            commit_delays: formula!($commit),
            commit_deltas: 0,
            spread: 0,
            reply_delays: formula!($commit + 2),
            serial_syncs: formula!($syncs),
            leader_change: Some(LeaderChange {
                messages: &[
                    Count { kind: $timeout, messages: formula!(|n| n * (n - 1)) },
                    Count { kind: $advance, messages: formula!(|n| (n + 1) * (n - 1)) },
                ],
                commit_delays: $failed,
                commit_deltas: 0,
            }),
            idle: None,
            not_counted: &[$advance],
            remarks: &[
                "Counted while requests arrive all the time: later blocks carry a block on, and most of these carry requests themselves.",
                concat!("A cluster that becomes idle sends ", $advance_name, " once, to n - 1 replicas."),
                "The votes for a block are counted in the next view: n - 1 of them, because the next leader's own vote needs none.",
                concat!(
                    "Syncs are those of a request that arrives alone: the replica with the last certificate executes and sends ",
                    $advance_name,
                    " at once. If more requests follow, that certificate travels in the next proposal, and its receivers sync their next vote first: one more."
                ),
                "Clients send to all replicas here. A request that reaches another replica than the leader first takes one delay more.",
                concat!(
                    "A failed view costs ", $timeout_name, " and ", $advance_name, " to all. The next leader's proposal carries both, and ",
                    $advance_name,
                    " is sent once more when the cluster becomes idle. The rest is the good case."
                ),
                $($more,)*
            ],
        }
    }};
}
pub(super) use figures;
