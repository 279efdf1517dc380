//! Bounds: a replica's memory stays in proportion to its window, however long it runs.

use super::finding::{Judged, Oracle};
use quorate_replica::{OutboxSize, ReplicaStatus};
use quorate_types::limits::{POOL_BUNDLES_MAX, POOL_BYTES_MAX};

/// Largest number of guard entries, records and blocks for each height of the window. A protocol has a few kinds of
/// statements, and a few views may be alive at once.
const PER_HEIGHT_MAX: u64 = 16;
/// Largest number of entries that any window allows.
const BASE_MAX: u64 = 64;

/// Checks one replica with this window. It may hold `served` blocks more, while it follows its peers' chain from far
/// below.
pub(crate) fn check_bounds(window: u64, served: u64, status: &ReplicaStatus) -> Judged {
    let limit = window.saturating_mul(PER_HEIGHT_MAX).saturating_add(BASE_MAX);
    let OutboxSize { guard_entries: guard, records, held } = status.outbox;
    let counts =
        [("guard", guard, 0), ("records", records, 0), ("held", held, 0), ("blocks", status.blocks, served)];
    for (name, count, more) in counts {
        let most = limit.saturating_add(more);
        if u64::try_from(count).is_ok_and(|count| count > most) {
            let what = format!("replica {} holds {count} {name}; its window allows {most}", status.id);
            return Err((Oracle::Bounds, what));
        }
    }
    // A protocol may have to accept twice what clients may send.
    let pool = status.pool;
    let bundles = pool.bundles.saturating_add(pool.idle_bundles);
    let bytes = pool.bytes.saturating_add(pool.idle_bytes);
    if bundles > POOL_BUNDLES_MAX.saturating_mul(2) || bytes > POOL_BYTES_MAX.saturating_mul(2) {
        let what = format!("replica {} has {bundles} bundles of {bytes} bytes in its pool", status.id);
        return Err((Oracle::Bounds, what));
    }
    if status.alarms.contradictions > 0 {
        let what = format!(
            "the protocol of replica {} tried to equivocate {} times",
            status.id, status.alarms.contradictions
        );
        return Err((Oracle::SameSlot, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_replica::{AlarmStatus, PoolSize, ReplicaState};
    use quorate_types::{Height, Incarnation, ReplicaId, View};

    fn status(outbox: (usize, usize, usize), blocks: usize, contradictions: u64) -> ReplicaStatus {
        ReplicaStatus {
            id: ReplicaId(0),
            incarnation: Incarnation::ZERO,
            state: ReplicaState::Current,
            view: View::ZERO,
            leader: ReplicaId(0),
            normal: true,
            last_view_change: "",
            view_changes: 0,
            decided: Height::ZERO,
            executed: Height::ZERO,
            stable: Height::ZERO,
            kept: Height::ZERO,
            pool: PoolSize::default(),
            outbox: OutboxSize { guard_entries: outbox.0, records: outbox.1, held: outbox.2 },
            blocks,
            timers: Vec::new(),
            alarms: AlarmStatus { contradictions, ..AlarmStatus::default() },
            guard: None,
            amnesia: None,
        }
    }

    #[test]
    fn overflowing_pool_is_found() {
        for (pool, found) in [
            ((POOL_BUNDLES_MAX * 2, POOL_BYTES_MAX * 2), None),
            ((POOL_BUNDLES_MAX * 2 + 1, 0), Some(Oracle::Bounds)),
            ((0, POOL_BYTES_MAX * 2 + 1), Some(Oracle::Bounds)),
        ] {
            let (bundles, bytes) = pool;
            let pool = PoolSize {
                bundles: bundles / 2,
                bytes: bytes / 2,
                idle_bundles: bundles - bundles / 2,
                idle_bytes: bytes - bytes / 2,
            };
            let verdict = check_bounds(8, 0, &ReplicaStatus { pool, ..status((0, 0, 0), 0, 0) });
            assert_eq!(verdict.err().map(|(oracle, _)| oracle), found, "{pool:?}");
        }
    }

    #[test]
    fn growth_beyond_the_window_is_found() {
        let most = 8 * 16 + 64;
        let more = most + 1;
        for (outbox, blocks, contradictions, found) in [
            ((most, most, most), most, 0, None),
            ((more, 0, 0), 0, 0, Some(Oracle::Bounds)),
            ((0, more, 0), 0, 0, Some(Oracle::Bounds)),
            ((0, 0, more), 0, 0, Some(Oracle::Bounds)),
            ((0, 0, 0), more, 0, Some(Oracle::Bounds)),
            ((0, 0, 0), 0, 1, Some(Oracle::SameSlot)),
        ] {
            let verdict = check_bounds(8, 0, &status(outbox, blocks, contradictions));
            assert_eq!(verdict.err().map(|(oracle, _)| oracle), found, "{outbox:?} {blocks}");
        }
    }
}
