//! Connections between replicas, and channels between clients and replicas.

use crate::link_conditions::Map;
use bytes::Bytes;
use quorate_types::rng::Rng;
use quorate_types::{ReplicaId, Time};

/// First pause between two attempts to connect.
pub(super) const DIAL_NS: u64 = 20_000_000;

/// A frame that may arrive again: sender, receiver, and its type and body.
pub(super) type OldFrame = (ReplicaId, ReplicaId, (u8, Bytes));

/// Two replicas and their connection.
#[derive(Debug)]
pub(super) struct ReplicaPair {
    pub(super) low: ReplicaId,
    pub(super) high: ReplicaId,
    pub(super) conn: Option<u64>,
    /// Arrival of the last piece in each direction. A connection keeps its order.
    pub(super) last: [Time; 2],
    /// Bytes that wait in each direction while the link is cut.
    pub(super) stalled: [Vec<Bytes>; 2],
    /// Number of attempts to connect. Events of earlier attempts are void.
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

    /// Returns the index of a pair of replicas.
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

/// Channels between clients and replicas. Each keeps its order, and lost messages are not resent.
#[derive(Debug)]
pub(super) struct ClientChannels {
    places: usize,
    pub(super) last: Vec<Time>,
}

impl ClientChannels {
    pub(super) fn new(places: usize) -> Self {
        Self { places, last: vec![Time::ZERO; places.saturating_mul(places)] }
    }

    /// Returns the arrival of a message that leaves at `at`, if it is not lost.
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
