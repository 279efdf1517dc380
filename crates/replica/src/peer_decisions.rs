//! Learning what was decided from f + 1 peers.
//!
//! A replica that has missed messages for good (it was down, cut off, or a link lost something) believes
//! (height, block) when f + 1 distinct peers say so over their own links: one of them is honest. The block is
//! accepted because its hash is right. Peers tell how far they are when a link comes up, after they have executed
//! something, to whoever tells that it is behind, and every few seconds anyway; a replica that sees f + 1 of them
//! ahead asks.

use crate::host_message::Heights;
use quorate_consensus::parts::tally::Tally;
use quorate_types::limits::DECIDED_PER_ANSWER_MAX;
use quorate_types::{BlockId, Height, ReplicaId, Time};
use std::collections::BTreeMap;

/// How long the ordinary way (the protocol's own messages) has to close a gap before peers are asked.
const GRACE_NS: u64 = 300_000_000;
/// How long peers have to answer before they are asked again.
const AGAIN_NS: u64 = 500_000_000;
/// A peer that says that it is behind is answered this often at most.
const TELL_NS: u64 = 500_000_000;
/// Heights above the contiguous ones about which answers are counted.
const AHEAD_MAX: u64 = 1_024;

/// See the module.
#[derive(Debug)]
pub(crate) struct PeerDecisions {
    weak: usize,
    peers: BTreeMap<ReplicaId, Heights>,
    /// When a peer that is behind was told how far this replica is.
    told: BTreeMap<ReplicaId, Time>,
    votes: BTreeMap<Height, Tally<BlockId>>,
    ask_at: Option<Time>,
    /// End of what was asked for and has not come yet.
    asked_to: Option<Height>,
    /// Nothing was learned yet since this replica was opened: ask without grace.
    opening: bool,
    /// Peers have told something since it was looked at. To look for what is lacking for each of a thousand messages that a liar
    /// sends in a turn would take seconds: it is done once, at its end.
    has_news: bool,
}

impl PeerDecisions {
    pub(crate) fn new(weak: usize) -> Self {
        Self {
            weak,
            peers: BTreeMap::new(),
            told: BTreeMap::new(),
            votes: BTreeMap::new(),
            ask_at: None,
            asked_to: None,
            opening: true,
            has_news: false,
        }
    }

    /// The height that f + 1 peers have executed at least.
    pub(crate) fn vouched(&self) -> Height {
        let mut heights: Vec<Height> = self.peers.values().map(|heights| heights.executed).collect();
        heights.sort_unstable_by(|a, b| b.cmp(a));
        heights.get(self.weak.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// A peer says how far it is.
    pub(crate) fn on_heights(&mut self, now: Time, from: ReplicaId, heights: Heights, contiguous: Height) {
        self.peers.insert(from, heights);
        self.has_news = true;
        if self.vouched() > contiguous && self.ask_at.is_none() {
            self.ask_at = Some(if self.opening { now } else { now.plus(GRACE_NS) });
            self.asked_to = None;
        }
    }

    /// Whether peers have told something since the last call. Asked at the end of a turn.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether a peer that says that it is behind may hear how far this replica is.
    pub(crate) fn may_tell(&mut self, now: Time, peer: ReplicaId) -> bool {
        let may = self.told.get(&peer).is_none_or(|told| now.since(*told) >= TELL_NS);
        if may {
            self.told.insert(peer, now);
        }
        may
    }

    /// Peers say what was decided from a height on. Returns what f + 1 of them have said by now.
    pub(crate) fn on_answer(
        &mut self,
        from: ReplicaId,
        start: Height,
        ids: &[BlockId],
        contiguous: Height,
    ) -> Vec<(Height, BlockId)> {
        self.has_news = true;
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
        // Only what was executed is answered: whoever has told of heights holds them.
        let told = start.plus(u64::try_from(ids.len()).unwrap_or(u64::MAX)).minus(1);
        if let Some(heights) = self.peers.get_mut(&from) {
            heights.executed = heights.executed.max(told);
        }
        learned
    }

    /// Who should have the block of a decided height, as far as they have told.
    pub(crate) fn holders(&self, height: Height) -> Vec<ReplicaId> {
        let holds = |heights: &Heights| heights.executed >= height && heights.kept <= height;
        self.peers.iter().filter(|(_, heights)| holds(heights)).map(|(peer, _)| *peer).collect()
    }

    /// Everything up to `contiguous` is decided now.
    pub(crate) fn advance(&mut self, now: Time, contiguous: Height) {
        self.votes.retain(|height, _| *height > contiguous);
        if self.vouched() <= contiguous {
            self.ask_at = None;
            // Of fewer nothing can be learned.
            self.opening &= self.peers.len() < self.weak;
        } else if self.asked_to.take_if(|to| contiguous >= *to).is_some() {
            // The whole answer was of use: go on at once.
            self.ask_at = self.ask_at.map(|_| now);
        }
    }

    /// Whom to ask, from which height on, if it is time.
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

    /// When [`PeerDecisions::ask`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.ask_at
    }

    /// Whether f + 1 peers are past `next` and none of those ahead keeps it any more: without a transfer of
    /// state this replica cannot go on.
    pub(crate) fn is_out(&self, next: Height) -> bool {
        if self.vouched() < next {
            return false;
        }
        let mut ahead = self.peers.values().filter(|heights| heights.executed >= next);
        ahead.all(|heights| heights.kept > next)
    }
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
    fn believes_f_plus_one_distinct_peers() {
        let mut decided = PeerDecisions::new(2);
        let learn = |decided: &mut Decided, by: u16, name: u64| {
            decided.on_answer(ReplicaId(by), Height(1), &[id(name)], Height(0))
        };
        assert_eq!(learn(&mut decided, 1, 9), []);
        assert_eq!(learn(&mut decided, 1, 9), [], "the same peer counts once");
        assert_eq!(learn(&mut decided, 2, 7), [], "another block");
        assert_eq!(learn(&mut decided, 3, 7), [(Height(1), id(7))]);
    }

    #[test]
    fn one_liar_makes_nobody_ask() {
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
    fn who_is_behind_is_told_at_a_bounded_rate() {
        let mut decided = PeerDecisions::new(2);
        assert!(decided.may_tell(Time(0), ReplicaId(1)));
        assert!(!decided.may_tell(Time(1), ReplicaId(1)), "however often it says so");
        assert!(decided.may_tell(Time(1), ReplicaId(2)), "each peer has its own rate");
        assert!(decided.may_tell(Time(TELL_NS), ReplicaId(1)));
    }

    #[test]
    fn says_so_when_nobody_keeps_the_next_height() {
        let mut decided = PeerDecisions::new(2);
        decided.on_heights(Time(0), ReplicaId(1), at(100, 50), Height(5));
        assert!(!decided.is_out(Height(6)), "one peer may lie");
        decided.on_heights(Time(0), ReplicaId(2), at(100, 50), Height(5));
        assert!(decided.is_out(Height(6)));
        decided.on_heights(Time(0), ReplicaId(3), at(100, 6), Height(5));
        assert!(!decided.is_out(Height(6)), "someone still keeps it");
    }

    #[test]
    fn who_tells_of_heights_holds_them() {
        let mut decided = PeerDecisions::new(2);
        decided.on_heights(Time(0), ReplicaId(1), at(7, 1), Height(5));
        assert_eq!(decided.holders(Height(8)), []);
        decided.on_answer(ReplicaId(1), Height(6), &[id(6), id(7), id(8)], Height(5));
        assert_eq!(decided.holders(Height(8)), [ReplicaId(1)]);
    }

    #[test]
    fn answers_far_above_are_not_kept() {
        let mut decided = PeerDecisions::new(2);
        for start in 0..100u64 {
            decided.on_answer(ReplicaId(1), Height(start * 256), &vec![id(1); 256], Height(0));
        }
        assert!(decided.votes.len() <= 1_024);
    }
}
