//! Questions of peers: one queue for each peer, served in turns.
//!
//! A question costs its sender a few bytes, and its answer costs this replica a read of its disk. So the questions of a
//! peer wait behind that peer's own questions and delay no other peer.

use quorate_types::ReplicaId;
use std::collections::{BTreeMap, VecDeque};

/// See the module.
#[derive(Debug)]
pub(crate) struct PeerQueues<T> {
    /// The questions of each peer; none of these queues is empty.
    queues: BTreeMap<ReplicaId, VecDeque<T>>,
    /// The peers that have a queue, in the order of their turns.
    turns: VecDeque<ReplicaId>,
}

impl<T> Default for PeerQueues<T> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<T: PartialEq> PeerQueues<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Puts a question into its peer's queue, or returns it where that queue has `most` questions.
    pub(crate) fn push(&mut self, peer: ReplicaId, question: T, most: usize) -> Result<(), T> {
        let queue = self.queue(peer);
        if queue.contains(&question) {
            // A peer may ask again before it has read the answer.
            return Ok(());
        }
        if queue.len() >= most {
            return Err(question);
        }
        queue.push_back(question);
        Ok(())
    }

    /// Puts the rest of a question first into its peer's queue. The queue waits for the turns of the others.
    pub(crate) fn push_rest(&mut self, peer: ReplicaId, rest: T) {
        self.queue(peer).push_front(rest);
    }

    fn queue(&mut self, peer: ReplicaId) -> &mut VecDeque<T> {
        let turns = &mut self.turns;
        self.queues.entry(peer).or_insert_with(|| {
            turns.push_back(peer);
            VecDeque::new()
        })
    }

    /// Takes the first question of the peer that has waited longest for its turn.
    pub(crate) fn pop(&mut self) -> Option<(ReplicaId, T)> {
        let peer = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&peer)?;
        let question = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&peer);
        } else {
            self.turns.push_back(peer);
        }
        question.map(|question| (peer, question))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_a_peer_delay_no_other_peer() {
        let mut queues = PeerQueues::default();
        let (one, two, three) = (ReplicaId(1), ReplicaId(2), ReplicaId(3));
        for question in 0..4 {
            assert_eq!(queues.push(three, question, 4), Ok(()));
        }
        assert_eq!(queues.push(three, 9, 4), Err(9));
        assert_eq!(queues.push(three, 2, 4), Ok(()), "a repeated question waits once");
        assert_eq!(queues.push(one, 10, 4), Ok(()), "other peers have queues of their own");
        assert_eq!(queues.push(two, 20, 4), Ok(()));
        assert_eq!(queues.pop(), Some((three, 0)));
        queues.push_rest(three, 5);
        let order: Vec<(ReplicaId, i32)> = std::iter::from_fn(|| queues.pop()).collect();
        assert_eq!(order, [(one, 10), (two, 20), (three, 5), (three, 1), (three, 2), (three, 3)]);
        assert!(queues.is_empty() && queues.turns.is_empty());
        assert_eq!(queues.push(three, 9, 4), Ok(()), "and there is room again");
    }
}
