//! Whose messages are checked in one run, where more wait than a run has time for.
//!
//! A run comes before everything else in a turn, so what it takes is by how much later others are heard: a liar that
//! says much must not hold up what the honest say, least of all where safety rests on a bound on delays. Each peer
//! has an equal share, and what one does not need is the others'. Suspects share what is left over by all of them. What is
//! not taken waits, in order, for the next turn.
//!
//! A peer's first message always passes where it is plain. One that is dear may carry n times n signatures, so that
//! all liars together could stop a replica with one each: of those that no share is enough for as many pass in a run as
//! one more run is worth, or a single one, and the peers take turns at that.
//!
//! Suspects have no such turns, or a liar that is known for one would hold up every run. The first message of one suspect in
//! each run, by turns, passes where it costs no more than a suspect is worth. Of a dearer one a piece of that size is
//! checked: if it does not hold the message goes, else the rest waits for the next turn. So all are heard in the end, and
//! what a suspect's message costs is spread over as many runs, also where nobody else waits: who comes while it is checked
//! would be late.
//!
//! So a run costs at most what it is worth, a plain message of each peer, one dear message or as much of them as a run is
//! worth, and what a suspect is worth.

use quorate_types::{ReplicaId, ReplicaSet};
use std::collections::BTreeMap;

/// What a signature to check counts for; a message without one, or some bytes of one, counts for 1.
const CHECK_COST: usize = 8;
/// Bytes of a message that count for 1.
const BYTES_OF_COST: usize = 256;
/// What a run may cost in a small committee: 128 signatures, a few milliseconds. An equation of so many is nearly as cheap
/// for each as the largest one.
const RUN_COST_MIN: usize = 128 * CHECK_COST;
/// What a run may cost for each replica at least: four short signed messages. Or among many who flood those who do not
/// would be heard no more than once in a run.
const RUN_COST_EACH: usize = 4 * (CHECK_COST + 1);
/// What a peer is worth in a run that has sent a signature that does not hold, which no honest one does: its messages are
/// checked, for it may be the disk that lies, but few at a time, and long ones in pieces.
pub(super) const SUSPECT_COST_MAX: usize = 8 * CHECK_COST;
/// Signatures in such a piece.
pub(super) const SUSPECT_CHECKS_MAX: usize = SUSPECT_COST_MAX / CHECK_COST;
/// Signatures of a plain message beside those of a certificate of all.
const PLAIN_CHECKS: usize = 4;
/// Bytes of a plain message for each of its signatures.
const PLAIN_BYTES_EACH: usize = 128;

/// What a message costs.
pub(super) fn cost(bytes: usize, checks: usize) -> usize {
    let size = bytes / BYTES_OF_COST;
    checks.saturating_mul(CHECK_COST).saturating_add(size).saturating_add(1)
}

/// What there is time for in a committee.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLimits {
    /// What a run may cost.
    run: usize,
    /// What a plain message costs at most: little more than a certificate of all.
    plain: usize,
}

impl RunLimits {
    pub(super) fn of(n: usize) -> Self {
        let checks = n.saturating_add(PLAIN_CHECKS);
        Self {
            run: n.saturating_mul(RUN_COST_EACH).max(RUN_COST_MIN),
            plain: cost(checks.saturating_mul(PLAIN_BYTES_EACH), checks),
        }
    }

    /// Of whom more is left than a run is worth: it is not read on.
    pub(super) fn paused(&self, left: impl Iterator<Item = (ReplicaId, QueuedCost)>) -> ReplicaSet {
        left.filter(|(_, wants)| wants.all > self.run).map(|(from, _)| from).collect()
    }
}

/// What waits of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueuedCost {
    /// What its first message costs.
    pub(super) first: usize,
    /// What all its messages cost.
    pub(super) all: usize,
}

/// Who had a message last that no share was enough for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LastServed {
    let_through: Option<ReplicaId>,
    suspect: Option<ReplicaId>,
}

/// What is left of each peer's share.
pub(super) struct RunShares {
    left: BTreeMap<ReplicaId, usize>,
    /// Who has had a message.
    begun: ReplicaSet,
    suspects: ReplicaSet,
    plain: usize,
    /// Whose first message passes although no rule lets it.
    let_through: ReplicaSet,
    /// Of whose first message a piece is checked.
    in_pieces: Option<ReplicaId>,
    turns: LastServed,
}

impl RunShares {
    /// The shares in a run before which so much waits of each peer; `None` where there is time for all. `turns` are those of
    /// the run before.
    pub(super) fn of(
        limits: RunLimits,
        peers: impl Iterator<Item = (ReplicaId, QueuedCost)> + Clone,
        suspects: ReplicaSet,
        turns: LastServed,
    ) -> Option<Self> {
        let all = peers.clone().fold(0usize, |sum, (_, wants)| sum.saturating_add(wants.all));
        let is_modest = |(from, wants): (ReplicaId, QueuedCost)| {
            !suspects.contains(from) || wants.all <= SUSPECT_COST_MAX
        };
        if all <= limits.run && peers.clone().all(is_modest) {
            return None;
        }
        let of = |are_suspects: bool, most: usize| -> Vec<(usize, ReplicaId)> {
            let those = peers.clone().filter(|(from, _)| suspects.contains(*from) == are_suspects);
            those.map(|(from, wants)| (wants.all.min(most), from)).collect()
        };
        let mut left = BTreeMap::new();
        let rest = share(limits.run, of(false, limits.run), &mut left);
        share(rest, of(true, SUSPECT_COST_MAX), &mut left);
        let let_through = ReplicaSet::EMPTY;
        let mut shares = Self {
            left,
            begun: ReplicaSet::EMPTY,
            suspects,
            plain: limits.plain,
            let_through,
            in_pieces: None,
            turns,
        };
        let stuck: Vec<(ReplicaId, usize)> = peers
            .filter(|(from, wants)| !shares.passes(*from, wants.first))
            .map(|(from, wants)| (from, wants.first))
            .collect();
        shares.let_some_through(limits.run, &stuck);
        shares.hear_a_suspect(&stuck);
        Some(shares)
    }

    /// Of those whose first message no share is enough for, and who are no suspects, as many as one more run is worth, or a
    /// single one.
    fn let_some_through(&mut self, run: usize, stuck: &[(ReplicaId, usize)]) {
        let mut rest = run;
        let those = stuck.iter().filter(|(from, _)| !self.suspects.contains(*from));
        for (index, (from, first)) in by_turns(those, self.turns.let_through).into_iter().enumerate() {
            if index > 0 && first > rest {
                break;
            }
            rest = rest.saturating_sub(first);
            self.let_through.insert(from);
            self.turns.let_through = Some(from);
        }
    }

    /// Of one suspect whose first message no share is enough for something is checked all the same.
    fn hear_a_suspect(&mut self, stuck: &[(ReplicaId, usize)]) {
        let those = stuck.iter().filter(|(from, _)| self.suspects.contains(*from));
        let Some((from, first)) = by_turns(those, self.turns.suspect).first().copied() else { return };
        self.turns.suspect = Some(from);
        if first <= SUSPECT_COST_MAX {
            self.let_through.insert(from);
        } else {
            self.in_pieces = Some(from);
            // A piece is what it is worth in this run.
            self.left.insert(from, 0);
        }
    }

    /// Who had the turns of this run.
    pub(super) fn last_served(&self) -> LastServed {
        self.turns
    }

    /// Of whose first message a piece is checked in this run.
    pub(super) fn in_pieces(&self) -> Option<ReplicaId> {
        self.in_pieces
    }

    /// Whether a peer's next message is checked in this run; none is after one that is not.
    pub(super) fn takes(&mut self, from: ReplicaId, cost: usize) -> bool {
        let takes = self.passes(from, cost);
        let left = self.left.entry(from).or_default();
        *left = if takes { left.saturating_sub(cost) } else { 0 };
        self.begun.insert(from);
        takes
    }

    fn passes(&self, from: ReplicaId, cost: usize) -> bool {
        let is_first = !self.begun.contains(from);
        let is_plain = cost <= self.plain && !self.suspects.contains(from);
        self.left.get(&from).is_some_and(|left| *left >= cost)
            || (is_first && (is_plain || self.let_through.contains(from)))
    }
}

/// Those, beginning behind who was the last of them in the run before.
fn by_turns<'a>(
    those: impl Iterator<Item = &'a (ReplicaId, usize)>,
    last: Option<ReplicaId>,
) -> Vec<(ReplicaId, usize)> {
    let mut those: Vec<(ReplicaId, usize)> = those.copied().collect();
    those.sort_unstable_by_key(|(from, _)| (last.is_some_and(|last| *from <= last), *from));
    those
}

/// RunShares `rest` among those who want so much. Returns what is left over.
fn share(
    mut rest: usize,
    mut wants: Vec<(usize, ReplicaId)>,
    shares: &mut BTreeMap<ReplicaId, usize>,
) -> usize {
    // Those that want least first: what they leave is shared by the others.
    wants.sort_unstable();
    let mut count = wants.len();
    for (wants, from) in wants {
        let share = wants.min(rest.checked_div(count).unwrap_or(rest));
        (rest, count) = (rest.saturating_sub(share), count.saturating_sub(1));
        shares.insert(from, share);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: RunLimits = RunLimits { run: RUN_COST_MIN, plain: 100 };

    fn set(ids: &[u16]) -> ReplicaSet {
        ids.iter().copied().map(ReplicaId).collect()
    }

    /// Of so many messages of each peer that cost so much.
    fn all(waiting: &[(u16, usize, usize)]) -> Vec<(ReplicaId, usize)> {
        waiting.iter().flat_map(|(from, count, cost)| vec![(ReplicaId(*from), *cost); *count]).collect()
    }

    fn by_peer(waiting: &[(ReplicaId, usize)]) -> Vec<(ReplicaId, QueuedCost)> {
        let mut peers: BTreeMap<ReplicaId, QueuedCost> = BTreeMap::new();
        for (from, cost) in waiting {
            peers.entry(*from).or_insert(QueuedCost { first: *cost, all: 0 }).all += cost;
        }
        peers.into_iter().collect()
    }

    fn shares(
        limits: RunLimits,
        waiting: &[(ReplicaId, usize)],
        suspects: &[u16],
        turns: LastServed,
    ) -> Option<RunShares> {
        RunShares::of(limits, by_peer(waiting).into_iter(), set(suspects), turns)
    }

    /// How many of each peer's messages pass.
    fn passed(limits: RunLimits, waiting: &[(u16, usize, usize)], suspects: &[u16]) -> Option<Vec<usize>> {
        let mut shares = shares(limits, &all(waiting), suspects, LastServed::default())?;
        let mut of = |peer: u16| {
            let own = all(waiting).into_iter().filter(|(from, _)| *from == ReplicaId(peer));
            own.filter(|(from, cost)| shares.takes(*from, *cost)).count()
        };
        Some(waiting.iter().map(|(from, ..)| of(*from)).collect())
    }

    #[test]
    fn where_there_is_time_for_all_nothing_waits() {
        let max = FOUR.run;
        assert_eq!(passed(FOUR, &[], &[]), None);
        assert_eq!(passed(FOUR, &[(0, max - 9, 1), (1, 1, 9)], &[]), None);
        assert_eq!(passed(FOUR, &[(0, max - 9, 1), (1, 1, 10)], &[]), Some(vec![max - 10, 1]));
        assert_eq!(passed(FOUR, &[(0, 1, SUSPECT_COST_MAX), (1, 1, 10)], &[0]), None);
    }

    #[test]
    fn who_says_little_is_heard_whole() {
        let flood = passed(FOUR, &[(0, 5_000, 9), (1, 3, 40), (2, 900, 1), (3, 5_000, 9)], &[]).unwrap();
        let share = (FOUR.run - 120) / 3;
        assert_eq!(flood, [share / 9, 3, share, share / 9]);
        assert_eq!(passed(FOUR, &[(0, 50, 9), (1, 1, 9)], &[0]), Some(vec![SUSPECT_COST_MAX / 9, 1]));
    }

    #[test]
    fn a_plain_first_message_passes() {
        let small = RunLimits { run: 12, plain: 10 };
        assert_eq!(passed(small, &[(0, 2, 10), (1, 2, 10), (2, 2, 10)], &[]), Some(vec![1, 1, 1]));
        // A suspect's does not: none has a share here, and they take turns.
        assert_eq!(passed(small, &[(0, 2, 10), (1, 2, 10), (2, 2, 10)], &[1, 2]), Some(vec![1, 1, 0]));
    }

    /// A certificate of all and what comes with it is plain, whatever n is.
    #[test]
    fn a_proposal_is_plain() {
        for n in [4, 21, 64, 128] {
            let bytes = 1_024 + n * 66;
            assert!(cost(bytes, n + 1) <= RunLimits::of(n).plain, "{n}");
            assert!(cost(bytes, 2 * n + 9) > RunLimits::of(n).plain, "{n}");
        }
    }

    /// Each of f liars sends what carries hundreds of signatures, again and again.
    #[test]
    fn of_what_is_dear_one_passes_in_a_run_by_turns() {
        let limits = RunLimits::of(21);
        let dear = cost(590 * 64, 590);
        assert!(dear > limits.run && dear > limits.plain);
        let mut waiting: Vec<_> = (0..10).map(|id| (id, 3, dear)).collect();
        waiting.extend((10..20).map(|id| (id, 2, limits.plain)));
        // One of them has sent a signature that does not hold, another one something plain before.
        let (mut turns, mut order) = (LastServed::default(), Vec::new());
        waiting[7].2 = limits.plain + limits.run;
        for _ in 0..18 {
            let mut shares = shares(limits, &all(&waiting), &[4], turns).unwrap();
            let taken: Vec<_> =
                all(&waiting).into_iter().filter(|(from, cost)| shares.takes(*from, *cost)).collect();
            let spent: usize = taken.iter().map(|(_, cost)| cost).sum();
            assert!(spent <= limits.run + 10 * limits.plain + dear, "{spent}");
            let many: Vec<_> = taken.iter().filter(|(_, cost)| *cost > limits.plain).collect();
            assert_eq!(many.len(), 1);
            assert!((10..20).all(|id| taken.iter().any(|(from, _)| *from == ReplicaId(id))));
            turns = shares.last_served();
            order.push(many[0].0.0);
            assert_eq!((turns.let_through, shares.in_pieces()), (Some(many[0].0), Some(ReplicaId(4))));
        }
        let once = (0..10).filter(|id| *id != 4);
        assert_eq!(order, once.clone().chain(once).collect::<Vec<u16>>(), "nobody starves");
    }

    /// After a doubt all answer a replica, each at length: it hears several in a run.
    #[test]
    fn of_what_is_dear_as_many_pass_as_there_is_time_for() {
        let limits = RunLimits::of(21);
        let dear = limits.run / 3;
        assert!(dear > limits.plain);
        let waiting: Vec<_> = (0..20).map(|id| (id, 1, dear)).collect();
        let passed = |last: Option<u16>| {
            let turns = LastServed { let_through: last.map(ReplicaId), suspect: None };
            let mut shares = shares(limits, &all(&waiting), &[5], turns).unwrap();
            let taken = all(&waiting).into_iter().filter(|(from, cost)| shares.takes(*from, *cost));
            let taken: Vec<u16> = taken.map(|(from, _)| from.0).collect();
            (taken, shares.last_served().let_through.map(|last| last.0))
        };
        assert_eq!(passed(None), (vec![0, 1, 2], Some(2)));
        assert_eq!(passed(Some(2)), (vec![3, 4, 6], Some(6)), "no suspect takes a turn from others");
        assert_eq!(passed(Some(18)), (vec![0, 1, 19], Some(1)));
    }

    /// Of one suspect in a run something is checked, no more than it is worth, and never a long message at once: whoever waits
    /// or comes meanwhile is not held up.
    #[test]
    fn suspects_are_heard_by_turns_and_in_pieces() {
        let (long, short) = (SUSPECT_COST_MAX + 1, SUSPECT_COST_MAX);
        // In each run of whom a piece is checked, and which suspects' messages pass.
        let heard = |others| {
            let waiting = all(&[(0, others, 1), (1, 2, long), (2, 2, 2 * long), (3, 2, short)]);
            let mut turns = LastServed::default();
            let run = |_| {
                let mut shares = shares(FOUR, &waiting, &[1, 2, 3], turns).unwrap();
                let taken = waiting.iter().filter(|(from, cost)| shares.takes(*from, *cost) && from.0 > 0);
                let taken: Vec<u16> = taken.map(|(from, _)| from.0).collect();
                turns = shares.last_served();
                (shares.in_pieces().map(|from| from.0), taken)
            };
            (0..4).map(run).collect::<Vec<_>>()
        };
        let alone = [(Some(1), vec![3]), (Some(2), vec![3]), (Some(1), vec![3]), (Some(2), vec![3])];
        assert_eq!(heard(0), alone, "what is short has its share");
        let beside = [(Some(1), vec![]), (Some(2), vec![]), (None, vec![3]), (Some(1), vec![])];
        assert_eq!(heard(5_000), beside);
    }

    #[test]
    fn suspects_share_what_the_others_leave() {
        let flood = |count| -> Vec<_> { (0..count).map(|id| (id, 5_000, 1)).collect() };
        let alone = passed(FOUR, &flood(3), &[]).unwrap();
        let suspects: Vec<u16> = (3..20).collect();
        let beside = passed(FOUR, &flood(20), &suspects).unwrap();
        assert_eq!(beside[..3], alone, "nothing is taken from others");
        assert_eq!(beside[3..].iter().sum::<usize>(), 1, "one is let through");
        // Where others say little, each has what it is worth.
        let mut little = flood(20);
        little[..3].iter_mut().for_each(|peer| peer.1 = 2);
        let taken = passed(FOUR, &little[..10], &suspects).unwrap();
        assert_eq!(taken[3..], [SUSPECT_COST_MAX; 7]);
    }

    #[test]
    fn among_many_who_flood_nobody_is_heard_once_only() {
        for n in [64u16, 128] {
            let vote = cost(200, 1);
            let mut waiting: Vec<_> = (1..n).map(|id| (id, 1_000, vote)).collect();
            waiting[0].1 = 4;
            let passed = passed(RunLimits::of(usize::from(n)), &waiting, &[]).unwrap();
            assert_eq!(passed[0], 4, "{n}");
        }
    }

    #[test]
    fn order_is_kept() {
        let (plain, flood) = ((ReplicaId(0), 9), (ReplicaId(0), 2 * FOUR.run));
        let takes = |waiting: [_; 3]| {
            let mut shares = shares(FOUR, &waiting, &[], LastServed::default()).unwrap();
            waiting.map(|(from, cost)| shares.takes(from, cost))
        };
        assert_eq!(takes([plain, flood, plain]), [true, false, false]);
        assert_eq!(takes([flood, plain, plain]), [true, false, false]);
    }

    #[test]
    fn who_has_much_left_is_held() {
        let left =
            |all| FOUR.paused([(ReplicaId(3), QueuedCost { first: 1, all })].into_iter()).iter().count();
        assert_eq!((left(1), left(FOUR.run), left(FOUR.run + 1)), (0, 0, 1));
    }
}
