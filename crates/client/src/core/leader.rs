//! The leader, as far as a client can know: that of the highest view that f + 1 replicas claim to have reached.

use quorate_types::{ReplicaId, View};

/// The claims of the replicas about their views, and the guess that follows.
#[derive(Clone, Debug)]
pub(crate) struct LeaderGuess {
    /// Latest view and leader named by each replica.
    claims: Vec<Option<(View, ReplicaId)>>,
    /// The number of replicas that must have reached a view.
    needed: usize,
    guess: ReplicaId,
}

impl LeaderGuess {
    pub(crate) fn new(n: usize, needed: usize, first: ReplicaId) -> Self {
        Self { claims: vec![None; n], needed, guess: first }
    }

    pub(crate) fn get(&self) -> ReplicaId {
        self.guess
    }

    /// Notes a replica's claim about its view and leader.
    pub(crate) fn note(&mut self, from: ReplicaId, view: View, leader: ReplicaId) {
        let n = self.claims.len();
        let Some(claim) = self.claims.get_mut(from.index()) else {
            return;
        };
        if *claim == Some((view, leader)) || leader.index() >= n {
            return;
        }
        *claim = Some((view, leader));
        let mut reached: Vec<(View, ReplicaId)> = self.claims.iter().flatten().copied().collect();
        reached.sort_unstable_by(|a, b| b.cmp(a));
        let Some((view, _)) = self.needed.checked_sub(1).and_then(|last| reached.get(last)) else {
            return;
        };
        // Up to f replicas in this view may name a wrong leader, so the guess is the leader named most often. A
        // wrong guess costs one retry, never a result.
        let (mut most, before) = (0, self.guess);
        for named in reached.chunk_by(|a, b| a == b) {
            if let Some((_, leader)) = named.first().filter(|(of, _)| of == view)
                && (named.len() > most || named.len() == most && *leader == before)
            {
                (most, self.guess) = (named.len(), *leader);
            }
        }
    }
}
