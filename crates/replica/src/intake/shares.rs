//! Whose messages are checked in one run, where more wait than a run has time for.
//!
//! A run comes before everything else in a turn, so what it takes is by how much later others are heard: a liar that
//! says much must not hold up what the honest say, least of all where safety rests on a bound on delays. Each peer
//! has an equal share, and what one does not need is the others'. What is left waits, in order, for the next turn.

use quorate_types::{ReplicaId, ReplicaSet};
use std::collections::BTreeMap;

/// What a signature to check counts for; a message without one, or some bytes of one, counts for 1.
const CHECK_COST: usize = 8;
/// Bytes of a message that count for 1.
const BYTES_OF_COST: usize = 256;
/// What a run may cost: 128 signatures, a few milliseconds. An equation of so many is nearly as cheap for each as the
/// largest one.
const RUN_COST_MAX: usize = 128 * CHECK_COST;
/// What a peer is worth in a run that has sent a signature that does not hold, which no honest one does: its messages are
/// checked, for it may be the disk that lies, but few at a time.
const SUSPECT_COST_MAX: usize = 8 * CHECK_COST;
/// What a message costs.
pub(super) fn cost(bytes: usize, checks: usize) -> usize {
    let size = bytes / BYTES_OF_COST;
    checks.saturating_mul(CHECK_COST).saturating_add(size).saturating_add(1)
}

fn by_peer(waiting: impl Iterator<Item = (ReplicaId, usize)>) -> BTreeMap<ReplicaId, usize> {
    let mut costs: BTreeMap<ReplicaId, usize> = BTreeMap::new();
    for (from, cost) in waiting {
        let sum = costs.entry(from).or_default();
        *sum = sum.saturating_add(cost);
    }
    costs
}

/// What is left of each peer's share.
pub(super) struct Shares {
    left: BTreeMap<ReplicaId, usize>,
    /// Who has had a message, however dear.
    begun: ReplicaSet,
}

impl Shares {
    /// The shares in a run before which these costs wait; `None` where there is time for all.
    pub(super) fn of(
        waiting: impl Iterator<Item = (ReplicaId, usize)> + Clone,
        suspects: ReplicaSet,
    ) -> Option<Self> {
        let all = waiting.clone().fold(0usize, |sum, (_, cost)| sum.saturating_add(cost));
        if all <= RUN_COST_MAX && suspects.is_empty() {
            return None;
        }
        let costs = by_peer(waiting);
        let most = |from: ReplicaId| if suspects.contains(from) { SUSPECT_COST_MAX } else { RUN_COST_MAX };
        if all <= RUN_COST_MAX && costs.iter().all(|(from, cost)| *cost <= most(*from)) {
            return None;
        }
        // Those that want least first: what they leave is shared by the others.
        let mut peers: Vec<(usize, ReplicaId)> =
            costs.into_iter().map(|(from, cost)| (cost.min(most(from)), from)).collect();
        peers.sort_unstable();
        let (mut rest, mut count) = (RUN_COST_MAX, peers.len());
        let mut left = BTreeMap::new();
        for (wants, from) in peers {
            let share = wants.min(rest.checked_div(count).unwrap_or(rest));
            (rest, count) = (rest.saturating_sub(share), count.saturating_sub(1));
            left.insert(from, share);
        }
        Some(Self { left, begun: ReplicaSet::EMPTY })
    }

    /// Whether a peer's next message is checked in this run. Its first one always is; none after one that is not.
    pub(super) fn takes(&mut self, from: ReplicaId, cost: usize) -> bool {
        let left = self.left.entry(from).or_default();
        let takes = *left >= cost || !self.begun.contains(from);
        *left = if takes { left.saturating_sub(cost) } else { 0 };
        self.begun.insert(from);
        takes
    }
}

/// Of whom more is left than a run is worth: it is not read on.
pub(super) fn held(left: impl Iterator<Item = (ReplicaId, usize)>) -> ReplicaSet {
    by_peer(left).into_iter().filter(|(_, cost)| *cost > RUN_COST_MAX).map(|(from, _)| from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of each peer's messages pass, of so many that cost so much.
    fn passed(waiting: &[(u16, usize, usize)], suspects: &[u16]) -> Option<Vec<usize>> {
        let all = || waiting.iter().flat_map(|(from, count, cost)| vec![(ReplicaId(*from), *cost); *count]);
        let mut shares = Shares::of(all(), suspects.iter().copied().map(ReplicaId).collect())?;
        let of = |peer: u16, shares: &mut Shares| {
            let own = all().filter(|(from, _)| *from == ReplicaId(peer));
            own.filter(|(from, cost)| shares.takes(*from, *cost)).count()
        };
        Some(waiting.iter().map(|(from, ..)| of(*from, &mut shares)).collect())
    }

    #[test]
    fn where_there_is_time_for_all_nothing_waits() {
        assert_eq!(passed(&[], &[]), None);
        assert_eq!(passed(&[(0, RUN_COST_MAX - 9, 1), (1, 1, 9)], &[]), None);
        assert_eq!(passed(&[(0, RUN_COST_MAX - 9, 1), (1, 1, 10)], &[]), Some(vec![RUN_COST_MAX - 10, 1]));
    }

    #[test]
    fn who_says_little_is_heard_whole() {
        let flood = passed(&[(0, 5_000, 9), (1, 3, 40), (2, 900, 1), (3, 5_000, 9)], &[]).unwrap();
        let share = (RUN_COST_MAX - 120) / 3;
        assert_eq!(flood, [share / 9, 3, share, share / 9]);
        // Its first one passes, whatever it costs.
        assert_eq!(passed(&[(0, 2, 5_000), (1, 2, 5_000)], &[]), Some(vec![1, 1]));
        assert_eq!(passed(&[(0, 50, 9), (1, 1, 9)], &[0]), Some(vec![SUSPECT_COST_MAX / 9, 1]));
    }

    #[test]
    fn order_is_kept() {
        let waiting = [(ReplicaId(0), 9), (ReplicaId(0), 2 * RUN_COST_MAX), (ReplicaId(0), 1)];
        let mut shares = Shares::of(waiting.into_iter(), ReplicaSet::EMPTY).unwrap();
        assert_eq!(waiting.map(|(from, cost)| shares.takes(from, cost)), [true, false, false]);
    }

    #[test]
    fn who_has_much_left_is_held() {
        let left = |count| held(vec![(ReplicaId(3), 1); count].into_iter()).iter().count();
        assert_eq!((left(0), left(RUN_COST_MAX), left(RUN_COST_MAX + 1)), (0, 0, 1));
    }
}
