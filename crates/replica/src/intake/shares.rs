//! The share of each peer in a run of message checks, when more messages wait than one run has time for.
//!
//! A run precedes everything else in a turn, so its cost delays all peers. A liar that sends many messages must not
//! delay honest ones, least of all where safety rests on a bound on delays. So each peer has an equal share, and
//! unused parts go to the others (max-min fair share). Peers caught with bad signatures are *suspects*: they share
//! what all others leave. Messages beyond the shares wait, in order, for the next run.
//!
//! **Plain and expensive messages.** A peer's first message always passes where it is plain. An expensive one may
//! carry n² signatures, so the liars together could stop a replica with one each. Messages that exceed every share pass
//! in a round-robin: as many in a run as cost one more run, or a single one.
//!
//! **Suspects.** Peers caught with bad signatures are excluded from this round-robin (max-min fair share). Otherwise a
//! known liar could delay every run. They have a round-robin of their own, with one first message in each run. It
//! passes where it costs no more than a suspect's share. Of a longer message a piece of that size is checked. If the
//! piece does not hold the message is dropped, else the rest waits for the next run. So every suspect is heard in the
//! end, and the cost of its message is spread over many runs. That holds even where no other message waits: one that
//! arrives during a long check would be late.
//!
//! So a run costs at most the sum of these: its limit, a plain message of each peer, the expensive messages, and a
//! suspect's share. The expensive ones are a single message, or as many as cost another limit.

use quorate_types::{ReplicaId, ReplicaSet};
use std::collections::BTreeMap;

/// The cost of one signature check. A message without a signature costs 1.
const CHECK_COST: usize = 8;
/// Bytes of a message that cost 1.
const BYTES_OF_COST: usize = 256;
/// The limit of a run in a small committee: 128 signatures, a few milliseconds. A batch of this size is nearly as
/// cheap for each signature as the largest one.
const RUN_COST_MIN: usize = 128 * CHECK_COST;
/// The limit of a run for each replica at least: four short signed messages. With a lower one, honest peers among many
/// flooding ones would be heard only once in a run.
const RUN_COST_EACH: usize = 4 * (CHECK_COST + 1);
/// The share of a suspect in a run. No honest peer sends a bad signature, but its disk or memory may be corrupt. So
/// its messages are still checked: few at a time, and long ones in pieces.
pub(super) const SUSPECT_COST_MAX: usize = 8 * CHECK_COST;
/// Signatures in such a piece.
pub(super) const SUSPECT_CHECKS_MAX: usize = SUSPECT_COST_MAX / CHECK_COST;
/// Signatures of a plain message beside those of a certificate of all replicas.
const PLAIN_CHECKS: usize = 4;
/// Bytes of a plain message for each of its signatures.
const PLAIN_BYTES_EACH: usize = 128;

/// Returns the cost of a message.
pub(super) fn cost(bytes: usize, checks: usize) -> usize {
    let size = bytes / BYTES_OF_COST;
    checks.saturating_mul(CHECK_COST).saturating_add(size).saturating_add(1)
}

/// The cost limits in a committee.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLimits {
    /// The limit of a run.
    run: usize,
    /// The maximum of a plain message: little more than a certificate of all replicas.
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

    /// Returns the peers whose remaining messages cost more than a run: their sockets are paused.
    pub(super) fn paused(&self, left: impl Iterator<Item = (ReplicaId, QueuedCost)>) -> ReplicaSet {
        left.filter(|(_, wants)| wants.all > self.run).map(|(from, _)| from).collect()
    }
}

/// The cost of a peer's waiting messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueuedCost {
    /// The cost of its first message.
    pub(super) first: usize,
    /// The cost of all its messages.
    pub(super) all: usize,
}

/// The peers that had the last turns of the two round-robins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LastServed {
    let_through: Option<ReplicaId>,
    suspect: Option<ReplicaId>,
}

/// The rest of each peer's share in a run.
pub(super) struct RunShares {
    left: BTreeMap<ReplicaId, usize>,
    /// Peers of which a message was taken.
    begun: ReplicaSet,
    suspects: ReplicaSet,
    plain: usize,
    /// Peers whose first message passes by the round-robin.
    let_through: ReplicaSet,
    /// The suspect whose first message is checked in pieces in this run.
    pub(super) in_pieces: Option<ReplicaId>,
    /// The peers that had the turns of this run.
    pub(super) last_served: LastServed,
}

impl RunShares {
    /// Returns the shares of a run, for these waiting messages; `None` where there is time for all. `last_served` is
    /// that of the run before.
    pub(super) fn of(
        limits: RunLimits,
        peers: impl Iterator<Item = (ReplicaId, QueuedCost)> + Clone,
        suspects: ReplicaSet,
        last_served: LastServed,
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
        let mut shares = Self {
            left,
            begun: ReplicaSet::EMPTY,
            suspects,
            plain: limits.plain,
            let_through: ReplicaSet::EMPTY,
            in_pieces: None,
            last_served,
        };
        let stuck: Vec<(ReplicaId, usize)> = peers
            .filter(|(from, wants)| !shares.passes(*from, wants.first))
            .map(|(from, wants)| (from, wants.first))
            .collect();
        shares.let_some_through(limits.run, &stuck);
        shares.serve_a_suspect(&stuck);
        Some(shares)
    }

    /// Lets first messages that exceed every share pass, without suspects: as many as cost one more run, or a single
    /// one.
    fn let_some_through(&mut self, run: usize, stuck: &[(ReplicaId, usize)]) {
        let mut rest = run;
        let those = stuck.iter().filter(|(from, _)| !self.suspects.contains(*from));
        for (index, (from, first)) in by_turns(those, self.last_served.let_through).into_iter().enumerate() {
            if index > 0 && first > rest {
                break;
            }
            rest = rest.saturating_sub(first);
            self.let_through.insert(from);
            self.last_served.let_through = Some(from);
        }
    }

    /// Gives one suspect a turn whose first message exceeds every share.
    fn serve_a_suspect(&mut self, stuck: &[(ReplicaId, usize)]) {
        let those = stuck.iter().filter(|(from, _)| self.suspects.contains(*from));
        let Some((from, first)) = by_turns(those, self.last_served.suspect).first().copied() else { return };
        self.last_served.suspect = Some(from);
        if first <= SUSPECT_COST_MAX {
            self.let_through.insert(from);
        } else {
            self.in_pieces = Some(from);
            // The piece is its whole share of this run.
            self.left.insert(from, 0);
        }
    }

    /// Whether a peer's next message is checked in this run. After a message that is not, none is.
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

/// Sorts peers by turns: it begins after the one that had the last turn.
fn by_turns<'a>(
    those: impl Iterator<Item = &'a (ReplicaId, usize)>,
    last: Option<ReplicaId>,
) -> Vec<(ReplicaId, usize)> {
    let mut those: Vec<(ReplicaId, usize)> = those.copied().collect();
    those.sort_unstable_by_key(|(from, _)| (last.is_some_and(|last| *from <= last), *from));
    those
}

/// Divides `rest` among these wants. Returns what is left over.
fn share(
    mut rest: usize,
    mut wants: Vec<(usize, ReplicaId)>,
    shares: &mut BTreeMap<ReplicaId, usize>,
) -> usize {
    // The smallest wants come first, and the others share what these leave.
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

    /// Returns these messages: for each entry a peer, the number of its messages, and their cost.
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
        last_served: LastServed,
    ) -> Option<RunShares> {
        RunShares::of(limits, by_peer(waiting).into_iter(), set(suspects), last_served)
    }

    /// Returns the number of each peer's messages that pass.
    fn passed(limits: RunLimits, waiting: &[(u16, usize, usize)], suspects: &[u16]) -> Option<Vec<usize>> {
        let mut shares = shares(limits, &all(waiting), suspects, LastServed::default())?;
        let mut of = |peer: u16| {
            let own = all(waiting).into_iter().filter(|(from, _)| *from == ReplicaId(peer));
            own.filter(|(from, cost)| shares.takes(*from, *cost)).count()
        };
        Some(waiting.iter().map(|(from, ..)| of(*from)).collect())
    }

    #[test]
    fn all_messages_pass_below_the_limit_of_a_run() {
        let max = FOUR.run;
        assert_eq!(passed(FOUR, &[], &[]), None);
        assert_eq!(passed(FOUR, &[(0, max - 9, 1), (1, 1, 9)], &[]), None);
        assert_eq!(passed(FOUR, &[(0, max - 9, 1), (1, 1, 10)], &[]), Some(vec![max - 10, 1]));
        assert_eq!(passed(FOUR, &[(0, 1, SUSPECT_COST_MAX), (1, 1, 10)], &[0]), None);
    }

    #[test]
    fn peer_below_its_share_is_heard_completely() {
        let flood = passed(FOUR, &[(0, 5_000, 9), (1, 3, 40), (2, 900, 1), (3, 5_000, 9)], &[]).unwrap();
        let share = (FOUR.run - 120) / 3;
        assert_eq!(flood, [share / 9, 3, share, share / 9]);
        assert_eq!(passed(FOUR, &[(0, 50, 9), (1, 1, 9)], &[0]), Some(vec![SUSPECT_COST_MAX / 9, 1]));
    }

    #[test]
    fn plain_first_message_of_each_peer_passes() {
        let small = RunLimits { run: 12, plain: 10 };
        assert_eq!(passed(small, &[(0, 2, 10), (1, 2, 10), (2, 2, 10)], &[]), Some(vec![1, 1, 1]));
        // A suspect's does not: no suspect has a share here, and they take turns.
        assert_eq!(passed(small, &[(0, 2, 10), (1, 2, 10), (2, 2, 10)], &[1, 2]), Some(vec![1, 1, 0]));
    }

    /// A certificate of all replicas with its proposal is plain for every n.
    #[test]
    fn proposal_is_plain() {
        for n in [4, 21, 64, 128] {
            let bytes = 1_024 + n * 66;
            assert!(cost(bytes, n + 1) <= RunLimits::of(n).plain, "{n}");
            assert!(cost(bytes, 2 * n + 9) > RunLimits::of(n).plain, "{n}");
        }
    }

    /// Each of f liars sends messages with hundreds of signatures, again and again.
    #[test]
    fn expensive_messages_pass_one_in_a_run_by_turns() {
        let limits = RunLimits::of(21);
        let expensive = cost(590 * 64, 590);
        assert!(expensive > limits.run && expensive > limits.plain);
        let mut waiting: Vec<_> = (0..10).map(|id| (id, 3, expensive)).collect();
        waiting.extend((10..20).map(|id| (id, 2, limits.plain)));
        // One of them is a suspect, and another one has sent a plain message before.
        let (mut last_served, mut order) = (LastServed::default(), Vec::new());
        waiting[7].2 = limits.plain + limits.run;
        for _ in 0..18 {
            let mut shares = shares(limits, &all(&waiting), &[4], last_served).unwrap();
            let taken: Vec<_> =
                all(&waiting).into_iter().filter(|(from, cost)| shares.takes(*from, *cost)).collect();
            let spent: usize = taken.iter().map(|(_, cost)| cost).sum();
            assert!(spent <= limits.run + 10 * limits.plain + expensive, "{spent}");
            let many: Vec<_> = taken.iter().filter(|(_, cost)| *cost > limits.plain).collect();
            assert_eq!(many.len(), 1);
            assert!((10..20).all(|id| taken.iter().any(|(from, _)| *from == ReplicaId(id))));
            last_served = shares.last_served;
            order.push(many[0].0.0);
            assert_eq!((last_served.let_through, shares.in_pieces), (Some(many[0].0), Some(ReplicaId(4))));
        }
        let once = (0..10).filter(|id| *id != 4);
        assert_eq!(order, once.clone().chain(once).collect::<Vec<u16>>(), "no peer starves");
    }

    /// After a doubt all peers send long answers to a replica, and it hears several in a run.
    #[test]
    fn expensive_messages_pass_as_many_as_cost_one_more_run() {
        let limits = RunLimits::of(21);
        let expensive = limits.run / 3;
        assert!(expensive > limits.plain);
        let waiting: Vec<_> = (0..20).map(|id| (id, 1, expensive)).collect();
        let passed = |last: Option<u16>| {
            let last_served = LastServed { let_through: last.map(ReplicaId), suspect: None };
            let mut shares = shares(limits, &all(&waiting), &[5], last_served).unwrap();
            let taken = all(&waiting).into_iter().filter(|(from, cost)| shares.takes(*from, *cost));
            let taken: Vec<u16> = taken.map(|(from, _)| from.0).collect();
            (taken, shares.last_served.let_through.map(|last| last.0))
        };
        assert_eq!(passed(None), (vec![0, 1, 2], Some(2)));
        assert_eq!(passed(Some(2)), (vec![3, 4, 6], Some(6)), "no suspect takes a turn from others");
        assert_eq!(passed(Some(18)), (vec![0, 1, 19], Some(1)));
    }

    /// A piece of one suspect's message is checked in each run, and never a long message at once. So waiting and
    /// arriving messages are not delayed.
    #[test]
    fn suspects_are_heard_by_turns_and_in_pieces() {
        let (long, short) = (SUSPECT_COST_MAX + 1, SUSPECT_COST_MAX);
        // The suspect of the piece in each run, and the suspects whose messages pass.
        let heard = |others| {
            let waiting = all(&[(0, others, 1), (1, 2, long), (2, 2, 2 * long), (3, 2, short)]);
            let mut last_served = LastServed::default();
            let run = |_| {
                let mut shares = shares(FOUR, &waiting, &[1, 2, 3], last_served).unwrap();
                let taken = waiting.iter().filter(|(from, cost)| shares.takes(*from, *cost) && from.0 > 0);
                let taken: Vec<u16> = taken.map(|(from, _)| from.0).collect();
                last_served = shares.last_served;
                (shares.in_pieces.map(|from| from.0), taken)
            };
            (0..4).map(run).collect::<Vec<_>>()
        };
        let alone = [(Some(1), vec![3]), (Some(2), vec![3]), (Some(1), vec![3]), (Some(2), vec![3])];
        assert_eq!(heard(0), alone, "a short message has its share");
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
        assert_eq!(beside[3..].iter().sum::<usize>(), 1, "one passes by its turn");
        // If the others send little, each suspect has its share.
        let mut little = flood(20);
        little[..3].iter_mut().for_each(|peer| peer.1 = 2);
        let taken = passed(FOUR, &little[..10], &suspects).unwrap();
        assert_eq!(taken[3..], [SUSPECT_COST_MAX; 7]);
    }

    #[test]
    fn honest_peer_is_heard_completely_among_many_flooding_peers() {
        for n in [64u16, 128] {
            let vote = cost(200, 1);
            let mut waiting: Vec<_> = (1..n).map(|id| (id, 1_000, vote)).collect();
            waiting[0].1 = 4;
            let passed = passed(RunLimits::of(usize::from(n)), &waiting, &[]).unwrap();
            assert_eq!(passed[0], 4, "{n}");
        }
    }

    #[test]
    fn messages_of_a_peer_pass_in_order() {
        let (plain, flood) = ((ReplicaId(0), 9), (ReplicaId(0), 2 * FOUR.run));
        let takes = |waiting: [_; 3]| {
            let mut shares = shares(FOUR, &waiting, &[], LastServed::default()).unwrap();
            waiting.map(|(from, cost)| shares.takes(from, cost))
        };
        assert_eq!(takes([plain, flood, plain]), [true, false, false]);
        assert_eq!(takes([flood, plain, plain]), [true, false, false]);
    }

    #[test]
    fn peer_with_more_than_a_run_left_is_paused() {
        let left =
            |all| FOUR.paused([(ReplicaId(3), QueuedCost { first: 1, all })].into_iter()).iter().count();
        assert_eq!((left(1), left(FOUR.run), left(FOUR.run + 1)), (0, 0, 1));
    }
}
