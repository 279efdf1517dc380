//! The peer that a replica reads first, under every protocol.

use crate::{CLIENT, Cluster};
use quorate_consensus::Entry;
use quorate_protocols::REGISTRY;
use quorate_types::{BundleKind, BundleNo, ReplicaId, SessionId};
use std::collections::BTreeSet;

/// The time between two turns.
const STEP_NS: u64 = 10_000_000;
/// Steps within which a request is executed, whatever its protocol waits for.
const STEPS_MAX: usize = 3_000;

impl Cluster {
    /// Returns the client's first session, once a replica has opened it.
    fn opened(&self, id: usize) -> Option<SessionId> {
        self.hosts[id].executor().execution().opened(&CLIENT, BundleNo(1))
    }

    fn leader(&self, id: usize) -> ReplicaId {
        self.hosts[id].replica().status().leader
    }

    /// Checks that each running replica reads the leader of its view first. A leader reads nobody first. Replicas of Artemis wait
    /// for the voter of their round, whose turn the status does not show.
    fn expect_leaders_are_read_first(&self, entry: &Entry, still: Option<usize>) {
        for (id, left) in self.left.iter().enumerate().filter(|(id, _)| Some(*id) != still) {
            let leader = self.leader(id);
            let expected = Some(leader).filter(|leader| leader.index() != id);
            let view = self.hosts[id].replica().status().view;
            let urgent = left.urgent.last().copied().flatten();
            if entry.spec.name.as_str() == "artemis" {
                assert!(urgent.is_none_or(|peer| peer.index() != id), "replica {id} in view {view}");
                continue;
            }
            assert_eq!(urgent, expected, "{}: replica {id} in view {view}", entry.spec.name);
        }
    }

    /// Lets time pass until `is_done` holds, and checks after each turn which peers are read first.
    fn run_until(&mut self, entry: &Entry, still: Option<usize>, is_done: impl Fn(&Self) -> bool) {
        let mut steps = 0;
        loop {
            self.now = self.now.plus(STEP_NS);
            self.settle_without(still);
            self.expect_leaders_are_read_first(entry, still);
            if is_done(self) {
                return;
            }
            steps += 1;
            assert!(steps < STEPS_MAX, "{}: nothing is executed any more", entry.spec.name);
        }
    }
}

/// All replicas wait for the messages of the leader: at the opening, and in every view that follows.
#[test]
fn replica_reads_the_leader_of_its_view_first_under_every_protocol() {
    let changes_leader = |entry: &&Entry| entry.spec.replaces_leader || entry.spec.rotates_leaders;
    for entry in REGISTRY.iter().filter(changes_leader) {
        let name = entry.spec.name.as_str();
        let mut cluster = Cluster::of(name, 4);
        cluster.expect_leaders_are_read_first(entry, None);
        cluster.connect();
        cluster.bundle(BundleKind::Open, SessionId::default());
        cluster.run_until(entry, None, |cluster| (0..4).all(|id| cluster.opened(id).is_some()));
        let session = cluster.opened(0).unwrap();
        // The present leader stands still, until the others have executed requests without it.
        let still = cluster.leader(1).index();
        let running: Vec<usize> = (0..4).filter(|id| *id != still).collect();
        for left in &mut cluster.left {
            left.urgent.drain(..left.urgent.len().saturating_sub(1));
        }
        for _ in 0..3 {
            let before: Vec<u64> = running.iter().map(|id| cluster.executed(*id)).collect();
            cluster.bundle_at(running[0], BundleKind::Requests, session);
            cluster.run_until(entry, Some(still), |cluster| {
                running.iter().zip(&before).all(|(id, before)| cluster.executed(*id) > *before)
            });
        }
        for id in running {
            let urgent: BTreeSet<_> = cluster.left[id].urgent.iter().collect();
            assert!(urgent.len() > 1, "{name}: replica {id} has had no other leader");
        }
    }
}
