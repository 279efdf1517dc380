//! Bounds: what a replica holds stays in proportion to its window, however long it runs.

use super::{Oracle, Verdict};
use quorate_replica::ReplicaStatus;
use quorate_types::Genesis;

/// Entries of the guard, records, and blocks for each height of the window at most: a protocol has a few kinds of
/// statements, and a few views may be alive at once.
const PER_HEIGHT_MAX: u64 = 16;
/// What may be there however small the window is.
const BASE_MAX: u64 = 64;

/// Looks at one replica.
pub(crate) fn check_bounds(genesis: &Genesis, status: &ReplicaStatus) -> Verdict {
    let most = genesis.window.saturating_mul(PER_HEIGHT_MAX).saturating_add(BASE_MAX);
    let (guard, records, held) = status.outbox;
    let counts = [("guard", guard), ("records", records), ("held", held), ("blocks", status.blocks)];
    for (name, count) in counts {
        if u64::try_from(count).is_ok_and(|count| count > most) {
            let what = format!("replica {} holds {count} {name}, at most {most} make sense", status.id);
            return Err((Oracle::Bounds, what));
        }
    }
    if status.contradictions > 0 {
        let what = format!(
            "the protocol of replica {} wanted to contradict itself {} times",
            status.id, status.contradictions
        );
        return Err((Oracle::SameSlot, what));
    }
    Ok(())
}
