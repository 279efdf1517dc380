//! The museum: published failures, each as a small broken variant that the exam has to catch.
//!
//! The exhibits here need no particular protocol: a disk, a restart, a service or a client is broken. Variants of
//! protocols are tests of the protocols, made with `quorate_consensus::flawed::Flawed`. Both are [`Exhibit`]s.

mod exhibit;
mod oracle_mutations;
mod runs;

pub use exhibit::{Caught, Exhibit};
pub use oracle_mutations::ORACLE_MUTATIONS;

use crate::oracles::Oracle;

/// Exhibits that need no particular protocol.
pub const EXHIBITS: &[Exhibit] = &[
    Exhibit {
        id: "M15",
        failure: "a vote leaves before it is on disk; after a restart the replica votes differently",
        variant: "disks report syncs without doing them; machines lose power",
        caught_by: &[Oracle::Held],
        within: 20,
        run: runs::votes_leave_early,
    },
    Exhibit {
        id: "M15b",
        failure: "the same, caught by its consequence",
        variant: "as above, without the oracle for early departure: two votes for one slot",
        caught_by: &[Oracle::SameSlot],
        within: 200,
        run: runs::votes_are_forgotten,
    },
    Exhibit {
        id: "M16",
        failure: "the service is ahead of the log when it is opened again",
        variant: "the first operation after a restart is applied twice",
        caught_by: &[Oracle::ExactlyOnce],
        within: 50,
        run: runs::service_is_ahead,
    },
    Exhibit {
        id: "M17",
        failure: "a torn tail is taken for damage, and a replica never recovers from a power cut",
        variant: "a log that ends in the middle of a write is refused",
        caught_by: &[Oracle::Stopped],
        within: 100,
        run: runs::tail_is_damage,
    },
    Exhibit {
        id: "M17b",
        failure: "damage in the middle is taken for the end of the log",
        variant: "a damaged log is silently cut at the damage",
        caught_by: &[Oracle::SameSlot, Oracle::Agreement, Oracle::Links, Oracle::Held],
        within: 200,
        run: runs::damage_is_tail,
    },
    Exhibit {
        id: "M18",
        failure: "a decided block is applied twice during a transfer of state",
        variant: "the first operation after a received state is applied twice",
        caught_by: &[Oracle::ExactlyOnce],
        within: 20,
        run: runs::block_again_after_transfer,
    },
    Exhibit {
        id: "M26",
        failure: "the guard against equivocation lacks its newest entry",
        variant: "the guard's newest entries, and everything synced with them, are lost at a restart",
        caught_by: &[Oracle::SameSlot, Oracle::Agreement, Oracle::Durability],
        within: 500,
        run: runs::guard_is_one_short,
    },
    Exhibit {
        id: "M29",
        failure: "two replies of one replica count as two",
        variant: "clients count each reply twice; one replica sends false replies",
        caught_by: &[Oracle::Results, Oracle::Linearizable, Oracle::Durability],
        within: 50,
        run: runs::replies_count_twice,
    },
];
