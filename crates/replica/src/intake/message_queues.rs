//! Messages that wait for their check, in one queue for each replica.
//!
//! Each queue knows its cost. Thousands of messages of one replica may wait for many runs, and each run needs the
//! costs of all queues.

use super::shares::{QueuedCost, RunShares};
use crate::input::CheckedMessage;
use quorate_types::{Digest, ReplicaId, Signature, Statement};
use std::collections::{BTreeMap, VecDeque};

pub(super) struct WaitingMessage {
    pub(super) from: ReplicaId,
    /// The cost: see [`super::shares::cost`].
    pub(super) cost: usize,
    pub(super) message: CheckedMessage,
    pub(super) signature: Option<Signature>,
    /// The signatures that must hold: signer, preimage, signature.
    pub(super) checks: Vec<(ReplicaId, [u8; 32], Signature)>,
    /// Certificates that hold if all checks do.
    pub(super) certificates: Vec<Digest>,
    /// Statements of this replica that the message shows, if all checks hold.
    pub(super) own: Vec<Statement>,
}

/// A message with its number among those of all replicas, in order of arrival.
pub(super) type ArrivedMessage = (u64, WaitingMessage);

#[derive(Default)]
struct MessageQueue {
    messages: VecDeque<ArrivedMessage>,
    /// The cost of all its messages.
    cost: usize,
    /// The number of messages that waited at the last gap since the last run.
    before_gap: usize,
}

impl MessageQueue {
    fn pop(&mut self) -> Option<ArrivedMessage> {
        let next = self.messages.pop_front()?;
        self.cost = self.cost.saturating_sub(next.1.cost);
        Some(next)
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct MessageQueues {
    queues: BTreeMap<ReplicaId, MessageQueue>,
    /// The number of messages that have arrived.
    arrived: u64,
}

impl MessageQueues {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.values().all(|queue| queue.messages.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.queues.values().map(|queue| queue.messages.len()).sum()
    }

    pub(super) fn push(&mut self, waiting: WaitingMessage) {
        let queue = self.queues.entry(waiting.from).or_default();
        queue.cost = queue.cost.saturating_add(waiting.cost);
        queue.messages.push_back((self.arrived, waiting));
        self.arrived = self.arrived.wrapping_add(1);
    }

    /// Marks the waiting messages of a replica for removal in the next run. The removal waits for the run because a
    /// liar may make a gap of each frame.
    pub(super) fn note_gap(&mut self, of: ReplicaId) {
        if let Some(queue) = self.queues.get_mut(&of) {
            queue.before_gap = queue.messages.len();
        }
    }

    /// Takes the messages that arrived before a noted gap.
    pub(super) fn take_before_gaps(&mut self) -> Vec<WaitingMessage> {
        let mut taken = Vec::new();
        for queue in self.queues.values_mut() {
            for _ in 0..std::mem::take(&mut queue.before_gap) {
                taken.extend(queue.pop().map(|(_, waiting)| waiting));
            }
        }
        taken
    }

    /// Returns the first message of a replica.
    pub(super) fn first(&mut self, of: ReplicaId) -> Option<&mut WaitingMessage> {
        self.queues.get_mut(&of)?.messages.front_mut().map(|(_, first)| first)
    }

    /// Lowers the cost of a replica's first message.
    pub(super) fn lessen(&mut self, of: ReplicaId, cost: usize) {
        let Some(queue) = self.queues.get_mut(&of) else { return };
        let Some((_, first)) = queue.messages.front_mut() else { return };
        let cost = cost.min(first.cost);
        (first.cost, queue.cost) = (first.cost.saturating_sub(cost), queue.cost.saturating_sub(cost));
    }

    /// Takes the first message of a replica.
    pub(super) fn pop(&mut self, of: ReplicaId) -> Option<WaitingMessage> {
        self.queues.get_mut(&of)?.pop().map(|(_, waiting)| waiting)
    }

    /// Returns the cost of each replica's waiting messages.
    pub(super) fn costs(&self) -> impl Iterator<Item = (ReplicaId, QueuedCost)> + Clone {
        self.queues.iter().filter_map(|(from, queue)| {
            queue
                .messages
                .front()
                .map(|(_, first)| (*from, QueuedCost { first: first.cost, all: queue.cost }))
        })
    }

    /// Takes all messages, or as many of each replica as its share allows, in order of arrival.
    pub(super) fn take(&mut self, shares: Option<&mut RunShares>, taken: &mut Vec<ArrivedMessage>) {
        match shares {
            None => self.queues.values_mut().for_each(|queue| {
                taken.extend(queue.messages.drain(..));
                queue.cost = 0;
            }),
            Some(shares) => {
                for (from, queue) in &mut self.queues {
                    while queue.messages.front().is_some_and(|(_, next)| shares.takes(*from, next.cost)) {
                        taken.extend(queue.pop());
                    }
                }
            }
        }
        taken.sort_unstable_by_key(|(number, _)| *number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostMessage;

    fn message(from: u16, cost: usize) -> WaitingMessage {
        WaitingMessage {
            from: ReplicaId(from),
            cost,
            message: CheckedMessage::Host(HostMessage::AskProof),
            signature: None,
            checks: Vec::new(),
            certificates: Vec::new(),
            own: Vec::new(),
        }
    }

    fn costs(queues: &MessageQueues) -> Vec<(u16, usize, usize)> {
        queues.costs().map(|(from, wants)| (from.0, wants.first, wants.all)).collect()
    }

    #[test]
    fn cost_of_a_queue_follows_its_messages() {
        let mut queues = MessageQueues::default();
        for (from, cost) in [(3, 5), (1, 7), (3, 2), (3, 1)] {
            queues.push(message(from, cost));
        }
        assert_eq!((costs(&queues), queues.len()), (vec![(1, 7, 7), (3, 5, 8)], 4));
        queues.note_gap(ReplicaId(3));
        queues.push(message(3, 9));
        let before = queues.take_before_gaps();
        assert_eq!(
            before.iter().map(|waiting| waiting.cost).collect::<Vec<_>>(),
            [5, 2, 1],
            "and no later message"
        );
        assert_eq!((costs(&queues), queues.len()), (vec![(1, 7, 7), (3, 9, 9)], 2));
        assert_eq!(queues.pop(ReplicaId(1)).map(|waiting| waiting.cost), Some(7));
        assert!(queues.first(ReplicaId(1)).is_none() && queues.pop(ReplicaId(1)).is_none());
        queues.lessen(ReplicaId(3), 6);
        assert_eq!(costs(&queues), [(3, 3, 3)]);
        let mut taken = Vec::new();
        queues.push(message(1, 4));
        queues.take(None, &mut taken);
        let order: Vec<_> = taken.iter().map(|(_, waiting)| (waiting.from.0, waiting.cost)).collect();
        assert_eq!(order, [(3, 3), (1, 4)], "in order of arrival over all replicas");
        assert!(queues.is_empty() && costs(&queues).is_empty());
    }
}
