//! Entries of the log, and their order.

use crate::host_tests::{from_peer, open_on, outputs};
use crate::{CheckedMessage, Heights, HostMessage, Input, Output, Replica, RestoredLog};
use quorate_consensus::{Alarm, Checkpoint, CheckpointProof};
use quorate_types::bundle::BundleBuilder;
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, Bundle, BundleKind, BundleNo, Digest, Executed, Height,
    LogEntry, Mark, Payload, PublicKey, ReplicaId, SessionId, Time, View,
};
use std::sync::Arc;

fn bundle(number: u64, bytes: usize) -> Bundle {
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([7; 32]), session, BundleNo(number));
    (0..bytes.div_ceil(60_000)).for_each(|_| _ = builder.push(&vec![0; bytes.min(60_000)]));
    Bundle::parse(&builder.finish(), Authenticator::None, &BodyLimits::default()).unwrap()
}

/// Returns a block without ancestors.
fn block(height: u64, bundles: &[Bundle]) -> (Arc<Block>, Arc<Payload>) {
    let payload = Payload { bundles: bundles.iter().map(Bundle::digest).collect() };
    let block = Block {
        parent: BlockId::ZERO,
        height: Height(height),
        view: View(1),
        proposer: ReplicaId(0),
        time_ns: 0,
        payload: payload.id(),
        extra: Digest::ZERO,
    };
    (Arc::new(block), Arc::new(payload))
}

/// Lets two peers report these decided ids from a height on.
fn decide(replica: &mut Replica, height: u64, ids: &[BlockId]) -> Vec<Output> {
    for from in [1, 3] {
        let heights = Heights { executed: Height(100), kept: Height(1), stable: Height::ZERO };
        replica.handle(Time(1), from_peer(from, CheckedMessage::Host(HostMessage::Heights(heights))));
        let decided = HostMessage::Decided(Height(height), ids.to_vec());
        replica.handle(Time(1), from_peer(from, CheckedMessage::Host(decided)));
    }
    replica.tick(Time(1));
    outputs(replica)
}

fn give(replica: &mut Replica, block: &Block, payload: &Arc<Payload>) -> Vec<Output> {
    replica.handle(Time(2), from_peer(3, CheckedMessage::Host(HostMessage::Block(block.clone()))));
    replica.handle(Time(2), Input::Payload(ReplicaId(3), Arc::clone(payload)));
    outputs(replica)
}

fn log(outputs: Vec<Output>) -> Vec<LogEntry> {
    let entry = |output| match output {
        Output::Persist { entry, .. } => Some(entry),
        _ => None,
    };
    outputs.into_iter().filter_map(entry).collect()
}

/// The log may drop recent bodies that no block names, and blocks far above. So a block is logged with its bodies
/// before any promise about it, and once more before its decision.
#[test]
fn block_is_logged_with_its_bodies_when_ready_and_when_decided() {
    let mut replica = open_on(RestoredLog::default());
    let bundles = [bundle(1, 1), bundle(2, 1)];
    let (block, payload) = block(2, &bundles);
    for bundle in bundles.clone() {
        replica.handle(Time(1), Input::Bundle { from: ReplicaId(1), bundle, pending: true });
    }
    let [one, two] = bundles.map(LogEntry::Body);
    assert_eq!(log(outputs(&mut replica)), [one.clone(), two.clone()], "on arrival");
    // The height below is not decided yet.
    assert_eq!(log(decide(&mut replica, 2, &[block.id()])), []);
    let entry = LogEntry::Block(Arc::clone(&block), Arc::clone(&payload));
    let with_bodies = [entry, one, two];
    assert_eq!(log(give(&mut replica, &block, &payload)), with_bodies, "when it is ready");
    let first = BlockId::null(Height(1));
    let decided = |height, id| LogEntry::Decided { height: Height(height), id };
    let entries = log(decide(&mut replica, 1, &[first]));
    let expected = [&[decided(1, first)], &with_bodies[..], &[decided(2, block.id())]].concat();
    assert_eq!(entries, expected, "before it is decided");
}

/// The log has had the block and its bodies in an earlier incarnation. It has them again before the decision, whatever
/// it still remembers.
#[test]
fn block_of_an_earlier_incarnation_is_logged_again_when_decided() {
    let (mut past, mut ids, mut expected) = (RestoredLog::default(), Vec::new(), Vec::new());
    // This is more than the room for idle bodies of peers.
    for height in 2..=41 {
        let bundles: Vec<Bundle> = (0..4).map(|n| bundle(10 * height + n, 900_000)).collect();
        let (block, payload) = block(height, &bundles);
        ids.push(block.id());
        let entry = LogEntry::Block(Arc::clone(&block), payload);
        past.absorb(entry.clone()).unwrap();
        past.bodies.extend_from_slice(&bundles);
        expected.push(entry);
        expected.extend(bundles.into_iter().map(LogEntry::Body));
        expected.push(LogEntry::Decided { height: Height(height), id: block.id() });
    }
    let mut replica = open_on(past);
    decide(&mut replica, 2, &ids);
    let entries = log(decide(&mut replica, 1, &[BlockId::null(Height(1))]));
    assert!(entries.get(1..) == Some(&expected[..]), "{} entries", entries.len());
}

/// The next decided id of f + 1 peers does not extend the executed block. One of the two is a fork, and nothing is
/// executed across it.
#[test]
fn nothing_is_executed_across_a_fork() {
    let (one, payload) = block(1, &[]);
    let other = BlockId(Digest([5; 32]));
    for parent in [one.id(), other] {
        let two = Block { parent, ..(*block(2, &[]).0).clone() };
        let mut replica = open_on(RestoredLog::default());
        let mut said = decide(&mut replica, 1, &[one.id(), two.id()]);
        for block in [&one, &two] {
            said.extend(give(&mut replica, block, &payload));
        }
        let count = said.iter().filter(|output| matches!(output, Output::Execute(_))).count();
        let stopped = said.iter().find_map(|output| match output {
            Output::Stop(alarm) => Some(*alarm),
            _ => None,
        });
        let alarm = Alarm::SafetyBroken { height: Height(1), first: one.id(), second: other };
        assert_eq!((count, stopped), if parent == other { (1, Some(alarm)) } else { (2, None) });
    }
}

/// A checkpoint names the view of its block. If the log has dropped the block, the checkpoint is not signed again:
/// with another view it would be another state.
#[test]
fn checkpoint_without_its_block_is_not_signed_again() {
    for is_kept in [true, false] {
        let mut past = RestoredLog::default();
        let (block, payload) = block(4, &[]);
        if is_kept {
            past.absorb(LogEntry::Block(Arc::clone(&block), payload)).unwrap();
        }
        for height in 1..=4 {
            let id = if height == 4 { block.id() } else { BlockId::null(Height(height)) };
            past.absorb(LogEntry::Decided { height: Height(height), id }).unwrap();
        }
        (past.executed, past.states) = (Height(4), vec![(Height(4), Digest([3; 32]))]);
        // A repeated signature follows the number of the opening in the log.
        assert_eq!(open_on(past).outbox.appended(), Mark(if is_kept { 2 } else { 1 }));
    }
}

/// A checkpoint may become stable before the result of its block arrives. The tree and the sequencer have lost the block, so
/// its id and view are those of the proof, and only another state is a difference.
#[test]
fn result_that_arrives_after_its_checkpoint_is_stable_is_no_difference() {
    let stopped_by = |height: u64, state: Digest| {
        let (block, view) = (BlockId(Digest([7; 32])), View(5));
        let checkpoint = Checkpoint { height: Height(8), block, view, state: Digest([8; 32]) };
        let stable = CheckpointProof { checkpoint, ..CheckpointProof::genesis() };
        let log = RestoredLog { stable, executed: Height(height - 1), ..RestoredLog::default() };
        let mut replica = open_on(log);
        replica.sequencer.issue(Height(height));
        outputs(&mut replica);
        let executed = Executed { height: Height(height), state: Some(state), ..Executed::default() };
        replica.handle(Time(1), Input::Executed(executed));
        replica.alarms.stopped
    };
    assert_eq!(stopped_by(8, Digest([8; 32])), None);
    assert_eq!(stopped_by(4, Digest([8; 32])), None, "an earlier state is settled");
    let diverged = Some(Alarm::StateDiverged { height: Height(8) });
    assert_eq!(stopped_by(8, Digest([9; 32])), diverged);
}
