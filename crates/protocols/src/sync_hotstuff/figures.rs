//! What the protocols cost when nothing goes wrong (§9; `optsync` §8).

use super::message::{NOTIFY, PROPOSE, VOTE};
use quorate_consensus::{Count, Figures, formula};

const BLOCK: [Count; 2] = [
    Count { kind: PROPOSE, messages: formula!(|n| n - 1) },
    Count { kind: VOTE, messages: formula!(|n| n * (n - 1)) },
];

pub(super) const PLAIN: Figures = Figures {
    block: &BLOCK,
    commit_delays: 1,
    reply_delays: 3,
    serial_syncs: 3,
    leader_change: None,
    not_counted: &[],
    remarks: &[],
};

pub(super) const OPTIMISTIC: Figures = Figures {
    block: &[BLOCK[0], BLOCK[1], Count { kind: NOTIFY, messages: formula!(|n| n * (n - 1)) }],
    commit_delays: 2,
    ..PLAIN
};
