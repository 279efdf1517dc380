use super::*;
use crate::Input;
use crate::host_tests::{from_peer, open, outputs};
use quorate_types::digest::Digest;
use quorate_types::{Block, Executed, View};

fn hear(replica: &mut Replica, from: u16, message: HostMessage) {
    replica.handle(Time(1), from_peer(from, CheckedMessage::Host(message)));
}

/// What hosts are told, and whom.
fn said(outputs: &[Output]) -> Vec<(To, HostMessage)> {
    let message = |output: &Output| match output {
        Output::Send { to, frame: Unsealed::Host { message, .. }, .. } => Some((*to, message.clone())),
        _ => None,
    };
    outputs.iter().filter_map(message).collect()
}

/// The next height was executed, and nothing came of it.
fn execute(replica: &mut Replica, height: u64) {
    let executed = Executed { height: Height(height), bundles: Vec::new(), evicted: Vec::new(), state: None };
    replica.handle(Time(1), Input::Executed(executed));
}

/// A question costs its sender some bytes, and its answer a replica thousands of frames.
#[test]
fn who_asks_for_too_much_at_once_is_refused() {
    let mut replica = open();
    let block = Block {
        parent: BlockId::ZERO,
        height: Height(1),
        view: View(1),
        proposer: ReplicaId(0),
        time_ns: 0,
        payload: Payload::default().id(),
        extra: Digest::ZERO,
    };
    let id = block.id();
    replica.blocks.insert(block);
    replica.handle(Time(0), Input::Payload(ReplicaId(1), Arc::new(Payload::default())));
    replica.host.bodies.want(Time(0), &replica.blocks, id, Height(1), (ReplicaId(1), Haste::InTurn));
    let mut ask = |now, from, times| {
        for _ in 0..times {
            let message = HostMessage::AskBlock { id, height: Height(1), above: Height::ZERO };
            replica.handle(Time(now), from_peer(from, CheckedMessage::Host(message)));
        }
        let out = outputs(&mut replica);
        let is_refused = |output: &&Output| matches!(output, Output::Rejected { .. });
        let none = (To::One(ReplicaId(from)), HostMessage::NoBlock(id));
        let none = said(&out).into_iter().filter(|said| *said == none).count();
        (out.iter().filter(is_refused).count(), none)
    };
    // A block and its payload each time.
    let most = FETCH_FRAMES_MAX / 2;
    assert_eq!(ask(1, 1, most + 10), (10, 10), "and hears of it");
    assert_eq!(ask(1, 3, most), (0, 0), "others are answered");
    assert_eq!(ask(2, 1, most), (0, 0), "and in the next turn it is as well");
}

/// What was decided lies in memory until a checkpoint above it is stable: for any other id no disk is read.
#[test]
fn what_was_not_decided_is_not_looked_for() {
    let (mut replica, one, other) = (open(), BlockId::null(Height(1)), BlockId(Digest([5; 32])));
    for from in [1, 3] {
        hear(&mut replica, from, HostMessage::Decided(Height(1), vec![one]));
    }
    execute(&mut replica, 1);
    outputs(&mut replica);
    let mut ask = |id| {
        hear(&mut replica, 1, HostMessage::AskBlock { id, height: Height(1), above: Height(1) });
        outputs(&mut replica)
    };
    assert_eq!(ask(one), [Output::Load { to: ReplicaId(1), height: Height(1), id: one }]);
    assert_eq!(said(&ask(other)), [(To::One(ReplicaId(1)), HostMessage::NoBlock(other))]);
}

/// As short a question is for ids, and its answer hundreds of them.
#[test]
fn who_asks_for_too_many_ids_at_once_is_not_answered() {
    let mut replica = open();
    let ids: Vec<BlockId> =
        (1..=DECIDED_PER_ANSWER_MAX as u64).map(|height| BlockId::null(Height(height))).collect();
    for from in [1, 3] {
        hear(&mut replica, from, HostMessage::Decided(Height(1), ids.clone()));
    }
    (1..=ids.len() as u64).for_each(|height| execute(&mut replica, height));
    outputs(&mut replica);
    let mut ask = |now, from, times| {
        for _ in 0..times {
            let message = CheckedMessage::Host(HostMessage::AskDecided(Height(1)));
            replica.handle(Time(now), from_peer(from, message));
        }
        let out = outputs(&mut replica);
        let answer = (To::One(ReplicaId(from)), HostMessage::Decided(Height(1), ids.clone()));
        let is_refused = |output: &&Output| matches!(output, Output::Rejected { .. });
        (said(&out).into_iter().filter(|said| *said == answer).count(), out.iter().filter(is_refused).count())
    };
    let most = DECIDED_PER_TURN_MAX / DECIDED_PER_ANSWER_MAX;
    assert_eq!(ask(2, 1, most + 1_000), (most, 1_000));
    assert_eq!(ask(2, 3, most), (most, 0), "others are answered");
    assert_eq!(ask(3, 1, 1), (1, 0), "and in the next turn it is as well");
}
