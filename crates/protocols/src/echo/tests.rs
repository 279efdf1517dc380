//! One test for each rule of the module's table, named after it.

use super::{Echo, EchoMessage, EchoParams, LEADER, StoodBy};
use crate::encoding::tests::check_one_encoding;
use proptest::prelude::*;
use quorate_consensus::harness::{Cluster, Harness, Setup, payload};
use quorate_consensus::{Commit, OpenError, Ready, Reject, To};
use quorate_types::rng::Rng;
use quorate_types::{Block, BlockId, Digest, Height, PayloadId, ReplicaId, View, Wire};

const MS: u64 = 1_000_000;

fn open(id: u16) -> Harness<Echo> {
    Harness::open(ReplicaId(id), Setup::of::<Echo>(4), &EchoParams::default()).unwrap()
}

fn cluster() -> Cluster<Echo> {
    Cluster::open(Setup::of::<Echo>(4), &EchoParams { ask_ms: 100 }).unwrap()
}

/// Returns the leader's block at a height; `number` names the payload.
fn block(height: u64, number: u64) -> Block {
    Block {
        parent: BlockId::ZERO,
        height: Height(height),
        view: View::ZERO,
        proposer: LEADER,
        time_ns: number,
        payload: payload(number).id,
        extra: Digest::ZERO,
    }
}

fn propose(height: u64, number: u64) -> EchoMessage {
    EchoMessage::Propose(block(height, number))
}

fn vote(height: u64, number: u64) -> EchoMessage {
    EchoMessage::Vote { height: Height(height), block: block(height, number).id() }
}

fn take(replica: &mut Harness<Echo>, from: u16, message: EchoMessage) {
    assert_eq!(replica.deliver(ReplicaId(from), message), Ok(()));
}

fn refuse(replica: &mut Harness<Echo>, from: u16, message: EchoMessage, why: Reject) {
    replica.lines();
    assert_eq!(replica.deliver(ReplicaId(from), message), Err(why));
    assert_eq!(replica.lines(), Vec::<String>::new());
}

fn all_of(messages: impl IntoIterator<Item = EchoMessage>) -> Vec<(To, EchoMessage)> {
    messages.into_iter().map(|message| (To::All, message)).collect()
}

#[test]
fn leader_decides_many_blocks_in_sequence() {
    let mut cluster = cluster();
    // The blocks span several checkpoints.
    cluster.at(LEADER).offer((1..=50).map(payload));
    cluster.run();
    for id in 0..4 {
        assert_eq!(cluster.executed(ReplicaId(id)), Height(50));
        assert_eq!(cluster.at(ReplicaId(id)).status().committed, Height(50));
    }
}

#[test]
fn e1_only_the_leader_proposes() {
    let mut backup = open(1);
    refuse(&mut backup, 2, propose(1, 7), Reject::WrongSender);
    for bad in [
        Block { parent: block(1, 1).id(), ..block(1, 7) },
        Block { view: View(1), ..block(1, 7) },
        Block { proposer: ReplicaId(2), ..block(1, 7) },
        Block { extra: Digest([1; 32]), ..block(1, 7) },
    ] {
        refuse(&mut backup, 0, EchoMessage::Propose(bad), Reject::Invalid("block"));
    }
    backup.offer([payload(7)]);
    backup.settle();
    assert_eq!(backup.sent(), []);
}

#[test]
fn e2_the_first_proposal_of_a_height_counts() {
    let mut backup = open(1);
    backup.answer_otherwise(None);
    take(&mut backup, 0, propose(1, 7));
    refuse(&mut backup, 0, propose(1, 8), Reject::Equivocation);
    refuse(&mut backup, 0, propose(1, 7), Reject::Duplicate);
    backup.ready(block(1, 8).id(), Ready::Valid);
    backup.ready(block(1, 7).id(), Ready::Valid);
    backup.settle();
    assert_eq!(backup.sent(), all_of([vote(1, 7)]));
}

#[test]
fn e3_votes_when_ready_and_valid() {
    let mut backup = open(1);
    backup.answer_otherwise(None);
    take(&mut backup, 0, propose(1, 7));
    assert_eq!(backup.wanted(), [(block(1, 7).id(), LEADER)]);
    backup.settle();
    assert_eq!(backup.sent(), []);
    backup.ready(block(1, 7).id(), Ready::Invalid);
    backup.settle();
    assert_eq!(backup.sent(), []);
    backup.answer_otherwise(Some(Ready::Valid));
    take(&mut backup, 0, propose(2, 7));
    backup.settle();
    assert_eq!(backup.sent(), all_of([vote(2, 7)]));
    // The host may report the block again; the vote is not repeated.
    backup.ready(block(2, 7).id(), Ready::Valid);
    backup.settle();
    assert_eq!(backup.sent(), []);
}

#[test]
fn e4_record_precedes_the_vote() {
    for (id, expected) in [(0, vec![propose(1, 7), vote(1, 7)]), (1, vec![vote(1, 7)])] {
        let mut replica = open(id);
        replica.lines();
        if id == 0 {
            replica.offer([payload(7)]);
        } else {
            take(&mut replica, 0, propose(1, 7));
        }
        let lines = replica.lines();
        assert_eq!(lines[0], "record 1 h1", "{lines:?}");
        assert_eq!(replica.sent(), [], "nothing leaves before the record is durable");
        replica.sync();
        assert_eq!(replica.sent(), all_of(expected));
    }
}

#[test]
fn e5_a_quorum_of_equal_votes_decides() {
    let mut backup = open(1);
    take(&mut backup, 0, vote(1, 7));
    take(&mut backup, 2, vote(1, 7));
    refuse(&mut backup, 2, vote(1, 7), Reject::Duplicate);
    refuse(&mut backup, 2, vote(1, 8), Reject::Equivocation);
    take(&mut backup, 3, vote(1, 8));
    assert_eq!(backup.committed(), []);
    // The own vote is the third, once its own copy arrives.
    take(&mut backup, 0, propose(1, 7));
    assert_eq!(backup.committed(), []);
    backup.sync();
    assert_eq!(backup.committed(), [Commit::At(Height(1), block(1, 7).id())]);
    // A decided block that is missing is fetched.
    for from in [0, 2, 3] {
        take(&mut backup, from, vote(2, 7));
    }
    assert_eq!(backup.committed().len(), 1);
    assert_eq!(backup.wanted(), [(block(2, 7).id(), ReplicaId(3))]);
}

#[test]
fn e6_restart_repeats_the_same_statements() {
    let mut backup = open(1);
    take(&mut backup, 0, propose(1, 7));
    backup.crash().unwrap();
    backup.settle();
    assert_eq!(backup.sent(), [], "messages that were not durable have never left");
    take(&mut backup, 0, propose(1, 8));
    backup.settle();
    assert_eq!(backup.sent(), all_of([vote(1, 8)]));
    backup.crash().unwrap();
    backup.settle();
    assert_eq!(backup.sent(), all_of([vote(1, 8)]));
    refuse(&mut backup, 0, propose(1, 7), Reject::Equivocation);
    // Its own vote counts again.
    take(&mut backup, 0, vote(1, 8));
    take(&mut backup, 2, vote(1, 8));
    assert_eq!(backup.committed().len(), 1);

    let mut leader = open(0);
    leader.offer([payload(7)]);
    leader.settle();
    leader.crash().unwrap();
    leader.sent();
    leader.offer([payload(8)]);
    leader.settle();
    assert_eq!(leader.sent(), all_of([propose(1, 7), vote(1, 7)]), "the same messages and no others");
}

#[test]
fn e7_survives_the_loss_of_any_message() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut cluster = cluster();
        let blocks = 20;
        cluster.at(LEADER).offer((1..=blocks).map(payload));
        let loss = [100_000, 500_000, 900_000][rng.index(3)];
        for _ in 0..rng.below(20) {
            cluster.run_where(|_, _, _| !rng.chance(loss));
            if rng.chance(200_000) {
                // Not the leader: its requests would be lost, and no client is here to send them again.
                cluster.restart(ReplicaId(u16::try_from(rng.between(1, 3)).unwrap())).unwrap();
            }
            for id in 0..4 {
                cluster.at(ReplicaId(id)).advance(50 * MS);
            }
        }
        let mut ticks = 0;
        cluster.run();
        while (0..4).any(|id| cluster.executed(ReplicaId(id)) < Height(blocks)) {
            ticks += 1;
            // Each height may need two ASKs.
            assert!(ticks < 200 * blocks, "seed {seed}: {:#?}", cluster.trace());
            cluster.tick(20 * MS);
            cluster.serve_laggards();
        }
    }
}

#[test]
fn e8_messages_outside_the_window_are_refused() {
    let mut backup = open(1);
    backup.decide(Height(8), block(8, 8).id());
    backup.checkpoint(Height(8));
    assert_eq!(backup.window().heights, Height(9)..Height(25));
    assert_eq!(backup.floors().height, Height(9));
    for (height, why) in [(8, Reject::Stale), (25, Reject::Early), (u64::MAX, Reject::Early)] {
        refuse(&mut backup, 0, propose(height, 7), why);
        refuse(&mut backup, 2, vote(height, 7), why);
        take(&mut backup, 2, EchoMessage::Ask { height: Height(height) });
        backup.settle();
        assert_eq!(backup.sent(), [], "no message about the height");
    }
    take(&mut backup, 0, propose(24, 7));
}

#[test]
fn open_refuses_unsuitable_committee_and_parameters() {
    let open = |n, f, ask_ms| {
        let setup = Setup { f, ..Setup::of::<Echo>(n) };
        Harness::<Echo>::open(LEADER, setup, &EchoParams { ask_ms }).err()
    };
    assert!(matches!(open(3, 1, 1_000), Some(OpenError::Committee(_))));
    assert!(matches!(open(4, 1, 9), Some(OpenError::Params { .. })));
    assert_eq!(open(4, 1, 10), None);
}

fn messages() -> impl Strategy<Value = EchoMessage> {
    let digest = || any::<[u8; 32]>().prop_map(Digest);
    let numbers = (any::<u64>(), any::<u64>(), any::<u16>(), any::<u64>());
    let block =
        (digest(), numbers, digest()).prop_map(|(one, (height, view, proposer, time_ns), two)| Block {
            parent: BlockId(one),
            height: Height(height),
            view: View(view),
            proposer: ReplicaId(proposer),
            time_ns,
            payload: PayloadId(two),
            extra: one,
        });
    prop_oneof![
        block.prop_map(EchoMessage::Propose),
        (any::<u64>(), digest())
            .prop_map(|(height, block)| EchoMessage::Vote { height: Height(height), block: BlockId(block) }),
        any::<u64>().prop_map(|height| EchoMessage::Ask { height: Height(height) }),
    ]
}

proptest! {
    #[test]
    fn message_has_one_encoding(message in messages()) {
        check_one_encoding(&message);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = EchoMessage::from_bytes(&bytes) {
            prop_assert_eq!(message.to_bytes(), bytes.clone());
        }
        if let Ok(record) = StoodBy::from_bytes(&bytes) {
            prop_assert_eq!(record.to_bytes(), bytes);
        }
    }
}
