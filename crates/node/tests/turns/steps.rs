//! Steps are counted by what they send, and their times are those of the stopwatch.

use super::{Cluster, Left};
use quorate_consensus::Model;
use quorate_host::StepKind;
use quorate_protocols::REGISTRY;
use quorate_types::SessionId;
use quorate_types::bundle::BundleKind;

/// Advance of the stopwatch with each reading: the time of every step but a turn.
const READING_NS: u64 = 10;

impl Left {
    /// Returns the number of steps of a kind since the last [`Cluster::forget_steps`].
    fn count_steps(&self, kind: StepKind) -> usize {
        self.steps.iter().filter(|(step, _)| *step == kind).count()
    }
}

impl Cluster {
    fn forget_steps(&mut self) {
        for left in &mut self.left {
            left.steps.clear();
            left.readings = 0;
        }
    }

    /// Returns the steps of a kind of each replica.
    fn steps(&self, kind: StepKind) -> Vec<usize> {
        self.left.iter().map(|left| left.count_steps(kind)).collect()
    }
}

#[test]
fn steps_of_pbft_are_counted_by_what_they_send() {
    let mut cluster = Cluster::new(4);
    let session = cluster.session();
    cluster.forget_steps();
    for _ in 0..3 {
        cluster.bundle(BundleKind::Requests, session);
        cluster.settle();
    }
    assert_eq!(cluster.steps(StepKind::Propose), [3, 0, 0, 0], "each bundle is a block");
    assert_eq!(cluster.steps(StepKind::Request), [3, 0, 0, 0]);
    let votes = cluster.steps(StepKind::Vote);
    // The leader sends no PREPARE. A step that completes one height may vote twice, for PREPARE and COMMIT.
    assert!(votes[0] == 3 && votes[1..].iter().all(|votes| (3..=6).contains(votes)), "{votes:?}");
    let bodies = cluster.steps(StepKind::Body);
    assert!(bodies[1..].iter().all(|bodies| *bodies >= 3), "bundle and payload of each block: {bodies:?}");
    assert_eq!(cluster.steps(StepKind::ViewChange), [0; 4]);
    assert!(cluster.steps(StepKind::Message).iter().all(|messages| *messages > 0));
    assert!(cluster.steps(StepKind::Turn).iter().all(|turns| *turns > 0));
}

#[test]
fn steps_that_leave_a_view_are_view_changes() {
    let mut cluster = Cluster::new(4);
    let session = cluster.session();
    cluster.forget_steps();
    cluster.bundle_at(1, BundleKind::Requests, session);
    cluster.settle_without(Some(0));
    assert_eq!(cluster.steps(StepKind::ViewChange), [0; 4]);
    // The timer fires in a step of its own, and the leader of the next view proposes.
    for _ in 0..3 {
        cluster.now = cluster.now.plus(60_000_000_000);
        cluster.settle_without(Some(0));
    }
    let changes = cluster.steps(StepKind::ViewChange);
    assert!(changes[0] == 0 && changes[1..].iter().all(|changes| *changes > 0), "{changes:?}");
}

#[test]
fn step_costs_at_most_two_readings_of_the_stopwatch() {
    let mut cluster = Cluster::new(4);
    let session = cluster.session();
    cluster.forget_steps();
    cluster.bundle(BundleKind::Requests, session);
    cluster.settle();
    for left in &cluster.left {
        let turns = left.steps.iter().filter(|(kind, _)| *kind == StepKind::Turn);
        let (inner, whole): (u64, u64) = (
            left.steps.iter().filter(|(kind, _)| *kind != StepKind::Turn).map(|(_, ns)| ns).sum(),
            turns.map(|(_, ns)| ns).sum(),
        );
        assert!(left.readings <= 2 * left.steps.len() as u64, "{} readings", left.readings);
        assert!(inner > 0 && inner < whole, "{inner} ns of {whole} ns are steps");
        let times = left.steps.iter().filter(|(kind, _)| *kind != StepKind::Turn).map(|(_, ns)| *ns);
        assert!(times.clone().all(|ns| ns == READING_NS), "{:?}", times.collect::<Vec<_>>());
    }
}

/// Each protocol names the roles of its messages.
#[test]
fn proposals_and_votes_of_each_protocol_are_counted() {
    for entry in REGISTRY {
        let name = entry.spec.name;
        let n = if entry.spec.model == Model::Synchrony { 3 } else { 4 };
        let mut cluster = Cluster::of(name.as_str(), n);
        cluster.settle();
        cluster.forget_steps();
        cluster.bundle(BundleKind::Open, SessionId::default());
        // Timers fire in small steps of time: a leader must not look silent.
        for _ in 0..200 {
            cluster.settle();
            cluster.now = cluster.now.plus(1_000_000);
        }
        let sum = |kind| cluster.steps(kind).iter().sum::<usize>();
        assert!(sum(StepKind::Propose) > 0, "{name} proposes");
        assert!(sum(StepKind::Vote) >= n - 1, "{name} votes: {:?}", cluster.steps(StepKind::Vote));
        assert_eq!(sum(StepKind::ViewChange), 0, "{name} changes no view");
    }
}
