use super::*;
use crate::Input;
use crate::host_tests::open;
use quorate_consensus::Seal;
use quorate_types::digest::Digest;
use quorate_types::{Block, View};

/// A question costs its sender some bytes, and its answer a replica thousands of frames.
#[test]
fn who_asks_for_too_much_at_once_is_not_answered() {
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
    let mut ask = |now, link, times| {
        for _ in 0..times {
            let message = HostMessage::AskBlock { id, height: Height(1), above: Height::ZERO };
            let seal = Seal { by: link, signature: None };
            let message = CheckedMessage::Host(message);
            replica.handle(Time(now), Input::Peer(Checked { link, seal, message }));
        }
        let is_refused = |output: &Output| matches!(output, Output::Rejected { .. });
        std::iter::from_fn(|| replica.poll()).filter(is_refused).count()
    };
    // A block and its payload each time.
    let most = FETCH_FRAMES_MAX / 2;
    assert_eq!(ask(1, ReplicaId(1), most + 10), 10);
    assert_eq!(ask(1, ReplicaId(3), most), 0, "others are answered");
    assert_eq!(ask(2, ReplicaId(1), most), 0, "and in the next turn it is as well");
}
