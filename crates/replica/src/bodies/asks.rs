//! The choice of the peer that is asked for a missing block, and the time of the next question.
//!
//! A question is repeated at another peer when the asked one sends nothing. A peer that goes on sending useful bodies
//! has more time: its answers queue behind each other, and a second peer would send the same bodies once more. A peer
//! that let its time pass comes last for a while.

use super::wants::Want;
use super::{ASK_AGAIN_NS, Ask, BlockBodies, MissingParts};
use quorate_types::{ReplicaId, ReplicaSet, Time};
use std::collections::BTreeMap;

/// The maximum of doublings of [`ASK_AGAIN_NS`] after all peers were asked.
const ASK_DOUBLINGS_MAX: usize = 3;
/// The time that a peer has for one answer while it sends useful bodies.
const ANSWER_NS_MAX: u64 = 2_000_000_000;
/// The time for which a peer comes last that did not answer in its time.
const LAST_NS: u64 = 20_000_000_000;
/// The time after a want for which its block is not requested while bodies of its source wait for their check here. The
/// source is the peer that announced them or was asked last. The missing bodies may be among those.
const UNCHECKED_NS_MAX: u64 = 500_000_000;
/// The pause between two checks of that condition.
const UNCHECKED_PAUSE_NS: u64 = 20_000_000;

#[derive(Debug, Default)]
struct Source {
    /// The time of the last useful body; `None` before the first.
    heard_at: Option<Time>,
    /// The peer comes last until then.
    last_until: Time,
}

/// The conduct of each peer.
#[derive(Debug, Default)]
pub(super) struct Sources {
    by_peer: BTreeMap<ReplicaId, Source>,
}

impl Sources {
    fn comes_last(&self, now: Time, peer: ReplicaId) -> bool {
        self.by_peer.get(&peer).is_some_and(|source| now < source.last_until)
    }

    /// Returns the time until which a question is not repeated, because the asked peer goes on sending useful bodies;
    /// `None` if it is to be repeated now.
    fn pause(&self, now: Time, want: &Want) -> Option<Time> {
        let (peer, asked_at) = want.asked.filter(|(peer, _)| !want.refused.contains(*peer))?;
        let heard_at = self.by_peer.get(&peer)?.heard_at?;
        let until = heard_at.plus(ASK_AGAIN_NS).min(asked_at.plus(ANSWER_NS_MAX));
        (until > now).then_some(until)
    }

    /// Chooses the peer whose turn it is: the first one of `order` that has not been tried and does not come last.
    fn choose(&self, now: Time, order: &[ReplicaId], tried: &mut ReplicaSet) -> Option<ReplicaId> {
        if order.iter().all(|peer| tried.contains(*peer)) {
            *tried = ReplicaSet::EMPTY;
        }
        let mut open = order.iter().filter(|peer| !tried.contains(**peer));
        let first = open.clone().next();
        let peer = *open.find(|peer| !self.comes_last(now, **peer)).or(first)?;
        tried.insert(peer);
        Some(peer)
    }
}

impl BlockBodies {
    /// Notes that a peer has sent a part of a block that was missing.
    pub(crate) fn hear(&mut self, now: Time, from: ReplicaId) {
        self.sources.by_peer.entry(from).or_default().heard_at = Some(now);
    }

    /// Takes the due requests. Each goes to the next peer that may have the block, then to all others in turn;
    /// `others` are all replicas but this one. A block whose bodies may wait for their check here is postponed.
    pub(crate) fn take_due_asks(&mut self, now: Time, others: &[ReplicaId]) -> Vec<Ask> {
        let mut asks = std::mem::take(&mut self.at_once);
        for (id, want) in self.wants.by_id.iter_mut().filter(|(_, want)| want.ask_at <= now) {
            if self.missing.get(id).is_some_and(MissingParts::is_ancestors_alone) {
                // It has arrived. Its ancestors are requested by their own names.
                (want.asked, want.ask_at) = (None, now.plus(ASK_AGAIN_NS));
                continue;
            }
            let asked = want.asked.map(|(peer, _)| peer);
            let source = asked.or(want.announced.then(|| want.peers.first().copied()).flatten());
            let may_be_here = source.is_some_and(|peer| self.unchecked.contains(peer));
            if may_be_here && now.since(want.since) < UNCHECKED_NS_MAX {
                want.ask_at = now.plus(UNCHECKED_PAUSE_NS);
                continue;
            }
            if let Some(until) = self.sources.pause(now, want) {
                want.ask_at = until;
                continue;
            }
            if let Some(late) = asked.filter(|peer| !want.refused.contains(*peer)) {
                self.sources.by_peer.entry(late).or_default().last_until = now.plus(LAST_NS);
            }
            let rest = others.iter().filter(|peer| !want.named.contains(**peer));
            let order: Vec<ReplicaId> = want.peers.iter().chain(rest).copied().collect();
            let Some(peer) = self.sources.choose(now, &order, &mut want.tried) else { continue };
            want.asked = Some((peer, now));
            asks.push(Ask { block: *id, height: want.height, peer });
            // A block that no peer had so far is requested ever more seldom.
            want.ask_at = now.plus(ASK_AGAIN_NS << want.rounds.min(ASK_DOUBLINGS_MAX));
            if order.iter().all(|peer| want.tried.contains(*peer)) {
                want.rounds = want.rounds.saturating_add(1);
            }
        }
        asks
    }
}
