//! Messages that wait for their check, in a line for each replica.
//!
//! What a line costs is known without walking it: thousands of messages of one replica may wait for many runs, and each
//! run asks what waits.

use super::shares::{Shares, Wants};
use crate::CheckedMessage;
use quorate_types::{Digest, ReplicaId, Signature};
use std::collections::{BTreeMap, VecDeque};

pub(super) struct WaitingMessage {
    pub(super) from: ReplicaId,
    /// See [`super::shares::cost`].
    pub(super) cost: usize,
    pub(super) message: CheckedMessage,
    pub(super) signature: Option<Signature>,
    /// What has to hold: signer, preimage, signature.
    pub(super) checks: Vec<(ReplicaId, [u8; 32], Signature)>,
    /// Certificates that are known to hold once all checks do.
    pub(super) certificates: Vec<Digest>,
}

/// A message with its number among those of all replicas, in order of arrival.
pub(super) type Numbered = (u64, WaitingMessage);

#[derive(Default)]
struct Line {
    messages: VecDeque<Numbered>,
    /// What they cost.
    cost: usize,
    /// How many of them waited when the last gap was noted, where one was since the last run.
    before_gap: usize,
}

impl Line {
    fn pop(&mut self) -> Option<Numbered> {
        let next = self.messages.pop_front()?;
        self.cost = self.cost.saturating_sub(next.1.cost);
        Some(next)
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Lines {
    lines: BTreeMap<ReplicaId, Line>,
    /// Messages that have arrived.
    arrived: u64,
}

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.values().all(|line| line.messages.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.lines.values().map(|line| line.messages.len()).sum()
    }

    pub(super) fn push(&mut self, waiting: WaitingMessage) {
        let line = self.lines.entry(waiting.from).or_default();
        line.cost = line.cost.saturating_add(waiting.cost);
        line.messages.push_back((self.arrived, waiting));
        self.arrived = self.arrived.wrapping_add(1);
    }

    /// What waits of a replica goes in the next run: a liar may make a gap of each frame.
    pub(super) fn note_gap(&mut self, of: ReplicaId) {
        if let Some(line) = self.lines.get_mut(&of) {
            line.before_gap = line.messages.len();
        }
    }

    /// Takes the messages from before the gaps that were noted.
    pub(super) fn take_before_gaps(&mut self) -> Vec<WaitingMessage> {
        let mut taken = Vec::new();
        for line in self.lines.values_mut() {
            for _ in 0..std::mem::take(&mut line.before_gap) {
                taken.extend(line.pop().map(|(_, waiting)| waiting));
            }
        }
        taken
    }

    /// The first message of a replica.
    pub(super) fn first(&mut self, of: ReplicaId) -> Option<&mut WaitingMessage> {
        self.lines.get_mut(&of)?.messages.front_mut().map(|(_, first)| first)
    }

    /// The first message of a replica costs so much less from now on.
    pub(super) fn lessen(&mut self, of: ReplicaId, cost: usize) {
        let Some(line) = self.lines.get_mut(&of) else { return };
        let Some((_, first)) = line.messages.front_mut() else { return };
        let cost = cost.min(first.cost);
        (first.cost, line.cost) = (first.cost.saturating_sub(cost), line.cost.saturating_sub(cost));
    }

    /// Takes the first message of a replica.
    pub(super) fn pop(&mut self, of: ReplicaId) -> Option<WaitingMessage> {
        self.lines.get_mut(&of)?.pop().map(|(_, waiting)| waiting)
    }

    /// What waits of each replica.
    pub(super) fn wants(&self) -> impl Iterator<Item = (ReplicaId, Wants)> + Clone {
        self.lines.iter().filter_map(|(from, line)| {
            line.messages.front().map(|(_, first)| (*from, Wants { first: first.cost, all: line.cost }))
        })
    }

    /// Takes all messages, or of each replica what its share allows, in order of arrival.
    pub(super) fn take(&mut self, shares: Option<&mut Shares>, taken: &mut Vec<Numbered>) {
        match shares {
            None => self.lines.values_mut().for_each(|line| {
                taken.extend(line.messages.drain(..));
                line.cost = 0;
            }),
            Some(shares) => {
                for (from, line) in &mut self.lines {
                    while line.messages.front().is_some_and(|(_, next)| shares.takes(*from, next.cost)) {
                        taken.extend(line.pop());
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
        }
    }

    fn wants(lines: &Lines) -> Vec<(u16, usize, usize)> {
        lines.wants().map(|(from, wants)| (from.0, wants.first, wants.all)).collect()
    }

    #[test]
    fn what_a_line_costs_is_known_whatever_leaves_it() {
        let mut lines = Lines::default();
        for (from, cost) in [(3, 5), (1, 7), (3, 2), (3, 1)] {
            lines.push(message(from, cost));
        }
        assert_eq!((wants(&lines), lines.len()), (vec![(1, 7, 7), (3, 5, 8)], 4));
        lines.note_gap(ReplicaId(3));
        lines.push(message(3, 9));
        let before = lines.take_before_gaps();
        assert_eq!(
            before.iter().map(|waiting| waiting.cost).collect::<Vec<_>>(),
            [5, 2, 1],
            "and nothing that came after it"
        );
        assert_eq!((wants(&lines), lines.len()), (vec![(1, 7, 7), (3, 9, 9)], 2));
        assert_eq!(lines.pop(ReplicaId(1)).map(|waiting| waiting.cost), Some(7));
        assert!(lines.first(ReplicaId(1)).is_none() && lines.pop(ReplicaId(1)).is_none());
        lines.lessen(ReplicaId(3), 6);
        assert_eq!(wants(&lines), [(3, 3, 3)]);
        let mut taken = Vec::new();
        lines.push(message(1, 4));
        lines.take(None, &mut taken);
        let order: Vec<_> = taken.iter().map(|(_, waiting)| (waiting.from.0, waiting.cost)).collect();
        assert_eq!(order, [(3, 3), (1, 4)], "in order of arrival, whoever sent it");
        assert!(lines.is_empty() && wants(&lines).is_empty());
    }
}
