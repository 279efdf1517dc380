//! Connections between replicas, and channels between clients and replicas.

use crate::link_conditions::Map;
use bytes::Bytes;
use quorate_types::rng::Rng;
use quorate_types::{ReplicaId, Time};

/// Pauses between two attempts to connect.
pub(super) const DIAL_NS: u64 = 20_000_000;

/// A frame that may arrive again: from whom, to whom, its type and its body.
pub(super) type OldFrame = (ReplicaId, ReplicaId, (u8, Bytes));

/// Two replicas and the connection between them.
#[derive(Debug)]
pub(super) struct ReplicaPair {
    pub(super) low: ReplicaId,
    pub(super) high: ReplicaId,
    pub(super) conn: Option<u64>,
    /// When the last piece in each direction arrives: a connection keeps its order.
    pub(super) last: [Time; 2],
    /// What waits in each direction because nothing passes.
    pub(super) stalled: [Vec<Bytes>; 2],
    /// Counts attempts to connect, so that older ones do not count.
    pub(super) attempt: u64,
    pub(super) pause_ns: u64,
}

impl ReplicaPair {
    pub(super) fn all(n: usize) -> Vec<Self> {
        let ids = || (0..u16::try_from(n).unwrap_or(u16::MAX)).map(ReplicaId);
        let mut pairs = Vec::new();
        for high in ids() {
            for low in ids().filter(|low| *low < high) {
                pairs.push(Self {
                    low,
                    high,
                    conn: None,
                    last: [Time::ZERO; 2],
                    stalled: [Vec::new(), Vec::new()],
                    attempt: 0,
                    pause_ns: DIAL_NS,
                });
            }
        }
        pairs
    }

    /// Where the pair of two replicas stands among all.
    pub(super) fn index(a: ReplicaId, b: ReplicaId) -> usize {
        let (low, high) = (a.min(b).index(), a.max(b).index());
        (high.saturating_mul(high.saturating_sub(1)) / 2).saturating_add(low)
    }

    pub(super) fn direction(&mut self, from: ReplicaId) -> (&mut Time, &mut Vec<Bytes>) {
        let ([up, down], [stalled_up, stalled_down]) = (&mut self.last, &mut self.stalled);
        if from == self.low { (up, stalled_up) } else { (down, stalled_down) }
    }

    pub(super) fn other(&self, id: ReplicaId) -> ReplicaId {
        if id == self.low { self.high } else { self.low }
    }
}

/// Messages between clients and replicas: each connection keeps its order, and what is lost is lost.
#[derive(Debug)]
pub(super) struct ClientChannels {
    places: usize,
    pub(super) last: Vec<Time>,
}

impl ClientChannels {
    pub(super) fn new(places: usize) -> Self {
        Self { places, last: vec![Time::ZERO; places.saturating_mul(places)] }
    }

    /// When a message that leaves at `at` arrives, if it does.
    pub(super) fn post(
        &mut self,
        rng: &mut Rng,
        map: &Map,
        at: Time,
        from: usize,
        to: usize,
    ) -> Option<Time> {
        let conditions = map.get(from, to);
        if conditions.loses(rng) {
            return None;
        }
        let last = self.last.get_mut(from.saturating_mul(self.places).saturating_add(to))?;
        let arrival = conditions.arrival(rng, at).max(*last);
        *last = arrival;
        Some(arrival)
    }
}
