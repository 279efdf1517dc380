//! Bundles that wait for their check, in one queue for each replica and each client's connection.
//!
//! The queues take turns, replicas and clients alternately. So a flood from one sender delays no other: neither the
//! bodies of a leader, without which its blocks are not ready, nor the other clients.

use super::outcome::FrameSource;
use quorate_types::limits::{
    BUNDLE_OVERHEAD_BYTES, INTAKE_CLIENT_BYTES_MAX, INTAKE_CONNECTION_BYTES_MAX, INTAKE_PEER_BYTES_MAX,
};
use quorate_types::{Bundle, ReplicaId};
use std::collections::{BTreeMap, VecDeque};

/// The maximum of bundles from one queue in one turn. A smaller one would lead to single checks when bundles of
/// suspected clients come between.
const TURN_MAX: usize = 16;
/// Empty queues whose memory is kept for others.
const SPARE_MAX: usize = 64;

pub(super) struct WaitingBundle {
    pub(super) source: FrameSource,
    pub(super) bundle: Bundle,
}

#[derive(Default)]
struct BundleQueue {
    bundles: VecDeque<Bundle>,
    cost: usize,
}

/// The queues of replicas, or of clients, that are not empty, in the order of their turns.
#[derive(Default)]
struct QueueGroup {
    turns: VecDeque<FrameSource>,
    /// The cost of all bundles in these queues.
    cost: usize,
}

/// See the module.
#[derive(Default)]
pub(super) struct BundleQueues {
    queues: BTreeMap<FrameSource, BundleQueue>,
    peers: QueueGroup,
    clients: QueueGroup,
    /// Whether the clients have the next turn, if one of them has a bundle.
    clients_are_next: bool,
    /// Bundles that the present queue has had of its turn.
    taken: usize,
    len: usize,
    spare: Vec<VecDeque<Bundle>>,
}

/// Returns the cost of a waiting bundle with this number of bytes: a small bundle takes more memory than its bytes.
fn cost(bytes: usize) -> usize {
    bytes.saturating_add(BUNDLE_OVERHEAD_BYTES)
}

impl BundleQueues {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the replicas with waiting bundles.
    pub(super) fn peers(&self) -> impl Iterator<Item = ReplicaId> {
        self.peers.turns.iter().filter_map(|source| match source {
            FrameSource::Peer(id) => Some(*id),
            FrameSource::Client(_) => None,
        })
    }

    /// Whether a sender has room for one more bundle with this number of bytes. A client's connection without waiting
    /// bundles has room although others have filled the common room.
    pub(super) fn has_room(&self, source: FrameSource, bytes: usize) -> bool {
        let own = self.cost_of(source);
        let (with, all) = (own.saturating_add(cost(bytes)), self.clients.cost.saturating_add(cost(bytes)));
        match source {
            FrameSource::Peer(_) => with <= INTAKE_PEER_BYTES_MAX,
            FrameSource::Client(_) if own == 0 => {
                with <= INTAKE_CONNECTION_BYTES_MAX && all <= INTAKE_CLIENT_BYTES_MAX.saturating_mul(2)
            }
            FrameSource::Client(_) => with <= INTAKE_CONNECTION_BYTES_MAX && all <= INTAKE_CLIENT_BYTES_MAX,
        }
    }

    fn cost_of(&self, source: FrameSource) -> usize {
        self.queues.get(&source).map_or(0, |queue| queue.cost)
    }

    pub(super) fn push(&mut self, source: FrameSource, bundle: Bundle) {
        let cost = cost(bundle.size());
        let group = match source {
            FrameSource::Peer(_) => &mut self.peers,
            FrameSource::Client(_) => &mut self.clients,
        };
        group.cost = group.cost.saturating_add(cost);
        let queue = self.queues.entry(source).or_insert_with(|| {
            group.turns.push_back(source);
            BundleQueue { bundles: self.spare.pop().unwrap_or_default(), cost: 0 }
        });
        queue.bundles.push_back(bundle);
        queue.cost = queue.cost.saturating_add(cost);
        self.len = self.len.saturating_add(1);
    }

    /// Returns the sender whose queue is next.
    fn next(&self) -> Option<FrameSource> {
        let (first, second) =
            if self.clients_are_next { (&self.clients, &self.peers) } else { (&self.peers, &self.clients) };
        first.turns.front().or(second.turns.front()).copied()
    }

    /// Returns the bundle that [`BundleQueues::pop`] takes.
    pub(super) fn front(&self) -> Option<&Bundle> {
        self.queues.get(&self.next()?)?.bundles.front()
    }

    pub(super) fn pop(&mut self) -> Option<WaitingBundle> {
        let source = self.next()?;
        let queue = self.queues.get_mut(&source)?;
        let bundle = queue.bundles.pop_front()?;
        let cost = cost(bundle.size());
        queue.cost = queue.cost.saturating_sub(cost);
        self.len = self.len.saturating_sub(1);
        self.taken = self.taken.saturating_add(1);
        let is_client = matches!(source, FrameSource::Client(_));
        let group = if is_client { &mut self.clients } else { &mut self.peers };
        group.cost = group.cost.saturating_sub(cost);
        let is_empty = queue.bundles.is_empty();
        if is_empty || self.taken >= TURN_MAX {
            group.turns.pop_front();
            self.taken = 0;
            self.clients_are_next = !is_client;
            if !is_empty {
                group.turns.push_back(source);
            } else if let Some(queue) = self.queues.remove(&source)
                && self.spare.len() < SPARE_MAX
            {
                self.spare.push(queue.bundles);
            }
        }
        Some(WaitingBundle { source, bundle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConnId;
    use quorate_types::bundle::BundleBuilder;
    use quorate_types::{Authenticator, BodyLimits, BundleKind, BundleNo, Height, PublicKey, SessionId};

    fn bundle(number: u64, bytes: usize) -> Bundle {
        let session = SessionId { height: Height(1), index: 0 };
        let mut builder =
            BundleBuilder::new(BundleKind::Requests, PublicKey([1; 32]), session, BundleNo(number));
        builder.push(&vec![0; bytes]);
        Bundle::parse(&builder.finish(), Authenticator::None, &BodyLimits::default()).unwrap()
    }

    fn client(number: u64) -> FrameSource {
        FrameSource::Client(ConnId(number))
    }

    fn peer(id: u16) -> FrameSource {
        FrameSource::Peer(ReplicaId(id))
    }

    fn order(waiting: &mut BundleQueues) -> Vec<(FrameSource, u64)> {
        std::iter::from_fn(|| {
            let number = waiting.front().map(Bundle::number);
            let popped = waiting.pop();
            assert_eq!(number, popped.as_ref().map(|popped| popped.bundle.number()));
            popped.map(|popped| (popped.source, popped.bundle.number().0))
        })
        .collect()
    }

    #[test]
    fn flood_of_one_sender_delays_no_other() {
        let mut waiting = BundleQueues::default();
        for number in 1..=5_000 {
            waiting.push(client(7), bundle(number, 8));
            waiting.push(peer(3), bundle(number, 8));
        }
        waiting.push(peer(0), bundle(1, 8));
        waiting.push(peer(0), bundle(2, 8));
        waiting.push(client(8), bundle(9, 8));
        assert_eq!(waiting.peers().collect::<Vec<_>>(), [ReplicaId(3), ReplicaId(0)]);
        let order = order(&mut waiting);
        let place = |source, number| order.iter().position(|next| *next == (source, number)).unwrap();
        assert!(place(peer(0), 2) < 4 * TURN_MAX, "{}", place(peer(0), 2));
        assert!(place(client(8), 9) < 4 * TURN_MAX, "{}", place(client(8), 9));
        // Each queue keeps its order.
        let of = |source| -> Vec<u64> {
            order.iter().filter(|(from, _)| *from == source).map(|(_, number)| *number).collect()
        };
        assert_eq!(of(client(7)), (1..=5_000).collect::<Vec<u64>>());
        assert_eq!(of(peer(3)), (1..=5_000).collect::<Vec<u64>>());
        assert!(waiting.peers().next().is_none());
        assert!(waiting.is_empty() && waiting.queues.is_empty() && waiting.clients.cost == 0);
    }

    #[test]
    fn each_connection_has_its_own_room() {
        let mut waiting = BundleQueues::default();
        let fill = |waiting: &mut BundleQueues, source: FrameSource, bytes: usize| {
            let mut count = 0usize;
            while waiting.has_room(source, bytes) {
                waiting.push(source, bundle(1, bytes));
                count += 1;
            }
            count
        };
        let small = fill(&mut waiting, client(0), 8);
        let most = INTAKE_CONNECTION_BYTES_MAX / BUNDLE_OVERHEAD_BYTES;
        assert!(small < most && small > most / 2, "{small} small ones");
        for number in 1..4 {
            assert!(fill(&mut waiting, client(number), 10_000) > 500);
        }
        fill(&mut waiting, client(5), 10_000);
        assert!(!waiting.has_room(client(4), 10_000) || waiting.cost_of(client(4)) == 0);
        assert!(waiting.has_room(client(6), 10_000), "this connection has no bundle");
        let all: usize =
            (10..10_000).map(|number| usize::from(fill(&mut waiting, client(number), 200_000) > 0)).sum();
        assert!(waiting.clients.cost <= 2 * INTAKE_CLIENT_BYTES_MAX && all < 1_000, "{all}");
        assert!(waiting.has_room(peer(1), 100_000), "replicas have room of their own");
        while waiting.has_room(peer(1), 100_000) {
            waiting.push(peer(1), bundle(1, 100_000));
        }
        assert!(waiting.has_room(peer(2), 100_000), "each replica");
        order(&mut waiting);
        assert!(waiting.has_room(client(4), 8) && waiting.has_room(peer(1), 8));
    }
}
