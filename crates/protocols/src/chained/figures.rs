//! Costs that chained protocols share when no replica fails (§12).

use super::message::{PROPOSE, VOTE};
use quorate_consensus::{Count, Figures, Formula, formula};

/// TIMEOUTs of a failed view.
pub(super) const TIMEOUTS: Formula = formula!(|n| n * (n - 1));
/// ADVANCEs of a failed view.
pub(super) const ADVANCES: Formula = formula!(|n| (n + 1) * (n - 1));

/// Figures in which rule sets do not differ; each fills in the others.
pub(super) const SHARED: Figures = Figures {
    block: &[
        Count { kind: PROPOSE, messages: formula!(|n| n - 1) },
        Count { kind: VOTE, messages: formula!(|n| n - 1) },
    ],
    commit_delays: 0,
    commit_deltas: 0,
    reply_delays: 0,
    serial_syncs: 0,
    leader_change: None,
    idle: None,
    not_counted: &[],
    remarks: &[],
};

/// Remarks of a rule set with these names for its TIMEOUT and ADVANCE, and further ones of its own.
macro_rules! remarks {
    ($timeout:literal, $advance:literal $(, $more:literal)*) => {
        &[
            "Counted while requests arrive all the time: later blocks carry a block on, and most of these carry requests themselves.",
            concat!("A cluster that becomes idle sends ", $advance, " once, to n - 1 replicas."),
            "The votes for a block are counted in the next view: n - 1 of them, because the next leader's own vote needs none.",
            concat!(
                "Syncs are those of a request that arrives alone: the replica with the last certificate executes and sends ",
                $advance,
                " at once. If more requests follow, that certificate travels in the next proposal, and its receivers sync their next vote first: one more."
            ),
            "Clients send to all replicas here. A request that reaches another replica than the leader first takes one delay more.",
            concat!(
                "A failed view costs ", $timeout, " and ", $advance, " to all. The next leader's proposal carries both, and ",
                $advance,
                " is sent once more when the cluster becomes idle. The rest is the good case."
            ),
            $($more,)*
        ]
    };
}
pub(super) use remarks;
