//! Learning from f + 1 peers what was decided.
//!
//! A replica may miss messages for good: it was down or cut off, or a link lost frames. It believes (height, block)
//! when f + 1 distinct peers report it over their own links: one of them is honest. The block itself is accepted by
//! its hash.
//!
//! Peers report their heights when a link comes up, after an execution, to a peer that reports lower heights, and
//! every few seconds. A replica that sees f + 1 of them ahead asks for the ids.

use crate::host_message::Heights;
use quorate_consensus::parts::tally::Tally;
use quorate_types::limits::DECIDED_PER_ANSWER_MAX;
use quorate_types::{BlockId, Height, ReplicaId, Time};
use std::collections::BTreeMap;

/// The time for the protocol's own messages to close a gap before peers are asked.
const GRACE_NS: u64 = 300_000_000;
/// The time for peers to answer before they are asked again.
const AGAIN_NS: u64 = 500_000_000;
/// The shortest pause between two answers to one peer that reports lower heights.
const ANSWER_NS: u64 = 500_000_000;
/// The distance above the contiguous heights up to which answers are counted.
const AHEAD_MAX: u64 = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PeerDecisions {
    weak: usize,
    peers: BTreeMap<ReplicaId, Heights>,
    /// The time at which this replica last reported its heights to each peer that is behind.
    answered: BTreeMap<ReplicaId, Time>,
    votes: BTreeMap<Height, Tally<BlockId>>,
    ask_at: Option<Time>,
    /// The end of the ids that were asked for and have not arrived.
    asked_to: Option<Height>,
    /// Whether no id was learned since the opening: then the first question needs no grace.
    opening: bool,
    /// Whether peers have reported anything since the last search for missing blocks. A liar may send a thousand
    /// reports in a turn, and a search for each would take seconds. So one search follows at the end of the turn.
    has_reports: bool,
    /// The number of reports so far.
    reports: u64,
}

impl PeerDecisions {
    pub(crate) fn new(weak: usize) -> Self {
        Self { weak, opening: true, ..Self::default() }
    }

    /// Returns the height that f + 1 peers have executed at least.
    pub(crate) fn vouched(&self) -> Height {
        let mut heights: Vec<Height> = self.peers.values().map(|heights| heights.executed).collect();
        heights.sort_unstable_by(|a, b| b.cmp(a));
        heights.get(self.weak.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Takes in the heights that a peer reports.
    pub(crate) fn on_heights(&mut self, now: Time, from: ReplicaId, heights: Heights, contiguous: Height) {
        self.peers.insert(from, heights);
        self.reports = self.reports.wrapping_add(1);
        self.has_reports = true;
        if self.vouched() > contiguous && self.ask_at.is_none() {
            self.ask_at = Some(if self.opening { now } else { now.plus(GRACE_NS) });
            self.asked_to = None;
        }
    }

    /// Whether peers have reported anything since the last call. Asked at the end of a turn.
    pub(crate) fn take_reports(&mut self) -> bool {
        std::mem::take(&mut self.has_reports)
    }

    /// Whether it is time to answer a peer that reports lower heights.
    pub(crate) fn may_answer(&mut self, now: Time, peer: ReplicaId) -> bool {
        let may = self.answered.get(&peer).is_none_or(|told| now.since(*told) >= ANSWER_NS);
        if may {
            self.answered.insert(peer, now);
        }
        may
    }

    /// Takes in a peer's ids of decided blocks from a height on. Returns those that f + 1 peers have reported by now.
    pub(crate) fn on_answer(
        &mut self,
        from: ReplicaId,
        start: Height,
        ids: &[BlockId],
        contiguous: Height,
    ) -> Vec<(Height, BlockId)> {
        self.has_reports = true;
        self.reports = self.reports.wrapping_add(1);
        let mut learned = Vec::new();
        let mut height = start;
        for id in ids.iter().take(DECIDED_PER_ANSWER_MAX) {
            if height > contiguous && height.since(contiguous) <= AHEAD_MAX {
                let votes = self.votes.entry(height).or_default();
                votes.add(*id, from);
                if let Some(id) = votes.reached(self.weak) {
                    learned.push((height, id));
                }
            }
            height = height.next();
        }
        // A peer answers with executed blocks only, so it has all of them.
        let told = start.plus(u64::try_from(ids.len()).unwrap_or(u64::MAX)).minus(1);
        if let Some(heights) = self.peers.get_mut(&from) {
            heights.executed = heights.executed.max(told);
        }
        learned
    }

    /// Returns the peers that have the block of a decided height, as far as they have reported.
    pub(crate) fn holders(&self, height: Height) -> Vec<ReplicaId> {
        let holds = |heights: &Heights| heights.executed >= height && heights.kept <= height;
        self.peers.iter().filter(|(_, heights)| holds(heights)).map(|(peer, _)| *peer).collect()
    }

    /// Notes that every height up to `contiguous` is decided.
    pub(crate) fn advance(&mut self, now: Time, contiguous: Height) {
        self.votes.retain(|height, _| *height > contiguous);
        if self.vouched() <= contiguous {
            self.ask_at = None;
            // Fewer peers than f + 1 teach nothing.
            self.opening &= self.peers.len() < self.weak;
        } else if self.asked_to.take_if(|to| contiguous >= *to).is_some() {
            // The whole answer was useful, so the next question follows at once.
            self.ask_at = self.ask_at.map(|_| now);
        }
    }

    /// Returns the first height to ask for and the peers to ask, if it is time.
    pub(crate) fn ask(&mut self, now: Time, contiguous: Height) -> Option<(Height, Vec<ReplicaId>)> {
        if self.ask_at.is_none_or(|at| at > now) {
            return None;
        }
        if self.vouched() <= contiguous {
            self.ask_at = None;
            return None;
        }
        self.ask_at = Some(now.plus(AGAIN_NS));
        let next = contiguous.next();
        let most = u64::try_from(DECIDED_PER_ANSWER_MAX).unwrap_or(u64::MAX);
        self.asked_to = Some(contiguous.plus(most).min(self.vouched()));
        let ahead = self.peers.iter().filter(|(_, heights)| heights.executed >= next);
        Some((next, ahead.map(|(peer, _)| *peer).collect()))
    }

    /// Returns the time at which [`PeerDecisions::ask`] has a question.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.ask_at
    }

    /// Returns whether peers still keep the block of `next`, the next height that this replica needs. `stable` is the
    /// height of its stable checkpoint, which a quorum has executed.
    pub(crate) fn next_block(&self, next: Height, stable: Height) -> NextBlock {
        let ahead = || self.peers.values().filter(|heights| heights.executed >= next);
        let gone = ahead().filter(|heights| heights.kept > next).count();
        if gone == 0 || self.vouched().max(stable) < next {
            NextBlock::Kept
        } else if gone == ahead().count() {
            NextBlock::Gone
        } else {
            // Those that keep it may be liars, and so may the others.
            NextBlock::Doubtful
        }
    }

    /// Returns the number of reports so far: only a new one changes [`Self::next_block`] for a height.
    pub(crate) fn reports(&self) -> u64 {
        self.reports
    }
}

/// The block of the next height that a replica needs, by the reports of its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextBlock {
    /// The block is not decided yet, or a peer may have it.
    Kept,
    /// Some peers do not have it any more, and others claim to have it. A replica that makes no progress needs a transfer
    /// of state.
    Doubtful,
    /// No peer that is ahead has it any more. The replica needs a transfer of state.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(executed: u64, kept: u64) -> Heights {
        Heights { executed: Height(executed), kept: Height(kept), stable: Height(0) }
    }

    fn id(number: u64) -> BlockId {
        BlockId::null(Height(number))
    }

    #[test]
    fn decision_is_learned_from_f_plus_one_distinct_peers() {
        let mut decided = PeerDecisions::new(2);
        let learn = |decided: &mut PeerDecisions, by: u16, name: u64| {
            decided.on_answer(ReplicaId(by), Height(1), &[id(name)], Height(0))
        };
        assert_eq!(learn(&mut decided, 1, 9), []);
        assert_eq!(learn(&mut decided, 1, 9), [], "the same peer counts once");
        assert_eq!(learn(&mut decided, 2, 7), [], "another block");
        assert_eq!(learn(&mut decided, 3, 7), [(Height(1), id(7))]);
    }

    #[test]
    fn question_needs_f_plus_one_peers_ahead() {
        let mut decided = PeerDecisions::new(2);
        decided.on_heights(Time(0), ReplicaId(1), at(1_000_000, 1), Height(5));
        assert_eq!(decided.ask(Time(u64::MAX), Height(5)), None);
        decided.on_heights(Time(0), ReplicaId(2), at(7, 1), Height(5));
        assert_eq!(decided.vouched(), Height(7));
        let (from, peers) = decided.ask(Time(0), Height(5)).unwrap();
        assert_eq!((from, peers.len()), (Height(6), 2));
        assert_eq!(decided.ask(Time(0), Height(5)), None, "not again at once");
    }

    #[test]
    fn peer_behind_is_answered_at_a_bounded_rate() {
        let mut decided = PeerDecisions::new(2);
        assert!(decided.may_answer(Time(0), ReplicaId(1)));
        assert!(!decided.may_answer(Time(1), ReplicaId(1)), "however often it reports");
        assert!(decided.may_answer(Time(1), ReplicaId(2)), "each peer has its own rate");
        assert!(decided.may_answer(Time(ANSWER_NS), ReplicaId(1)));
    }

    #[test]
    fn replica_is_out_when_no_peer_keeps_the_next_height() {
        let mut decided = PeerDecisions::new(2);
        let next = |decided: &PeerDecisions, stable| decided.next_block(Height(6), Height(stable));
        assert_eq!(next(&decided, 90), NextBlock::Kept, "no peer has reported");
        decided.on_heights(Time(0), ReplicaId(1), at(100, 50), Height(5));
        assert_eq!(next(&decided, 5), NextBlock::Kept, "one peer may lie");
        assert_eq!(next(&decided, 6), NextBlock::Gone, "a quorum has signed a state above");
        decided.on_heights(Time(0), ReplicaId(2), at(100, 50), Height(5));
        assert_eq!(next(&decided, 5), NextBlock::Gone);
        decided.on_heights(Time(0), ReplicaId(3), at(1 << 60, 6), Height(5));
        assert_eq!(next(&decided, 5), NextBlock::Doubtful, "one peer claims to keep it, and may lie");
        decided.on_heights(Time(0), ReplicaId(2), at(100, 6), Height(5));
        assert_eq!(
            next(&decided, 5),
            NextBlock::Doubtful,
            "the only peer that does not keep it may be the liar"
        );
        decided.on_heights(Time(0), ReplicaId(1), at(100, 6), Height(5));
        assert_eq!(next(&decided, 5), NextBlock::Kept);
    }

    #[test]
    fn peer_that_answers_with_ids_holds_their_blocks() {
        let mut decided = PeerDecisions::new(2);
        decided.on_heights(Time(0), ReplicaId(1), at(7, 1), Height(5));
        assert_eq!(decided.holders(Height(8)), []);
        decided.on_answer(ReplicaId(1), Height(6), &[id(6), id(7), id(8)], Height(5));
        assert_eq!(decided.holders(Height(8)), [ReplicaId(1)]);
    }

    #[test]
    fn answers_far_above_are_dropped() {
        let mut decided = PeerDecisions::new(2);
        for start in 0..100u64 {
            decided.on_answer(ReplicaId(1), Height(start * 256), &vec![id(1); 256], Height(0));
        }
        assert!(decided.votes.len() <= 1_024);
    }
}
