use super::*;
use crate::Input;
use crate::host_tests::{bounded, from_peer, open, outputs};
use quorate_consensus::Ready;
use quorate_types::digest::Digest;
use quorate_types::{Executed, LogEntry, PayloadId, View};

fn hear(replica: &mut Replica, from: u16, message: HostMessage) {
    replica.handle(Time(1), from_peer(from, CheckedMessage::Host(message)));
}

/// Returns the messages to hosts with their receivers.
fn said(outputs: &[Output]) -> Vec<(To, HostMessage)> {
    let message = |output: &Output| match output {
        Output::Send { to, frame: Unsealed::Host { message, .. }, .. } => Some((*to, message.clone())),
        _ => None,
    };
    outputs.iter().filter_map(message).collect()
}

/// Executes the next height, without results.
fn execute(replica: &mut Replica, height: u64) {
    let executed = Executed { height: Height(height), bundles: Vec::new(), evicted: Vec::new(), state: None };
    replica.handle(Time(1), Input::Executed(executed));
}

/// A question costs its sender a few bytes, and its answer costs a replica thousands of frames.
#[test]
fn questions_beyond_the_share_of_a_turn_are_refused() {
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
    replica.services.bodies.want(Time(0), &replica.blocks, id, Height(1), (ReplicaId(1), Haste::InTurn));
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
    // Each answer is a block and its payload.
    let most = FETCH_FRAMES_MAX / 2;
    assert_eq!(ask(1, 1, most + 10), (10, 10), "with an answer");
    assert_eq!(ask(1, 3, most), (0, 0), "others are answered");
    assert_eq!(ask(2, 1, most), (0, 0), "and in the next turn the first one too");
}

/// Decided ids are in memory until a checkpoint above them is stable: no other id leads to a read.
#[test]
fn undecided_id_leads_to_no_read() {
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

/// A block that conflicts with a decided one is never executed, and its bodies are dropped.
#[test]
fn header_is_sent_without_dropped_bodies() {
    let mut replica = open();
    let on = |parent, height, payload| Block {
        parent,
        height: Height(height),
        view: View(1),
        proposer: ReplicaId(0),
        time_ns: 0,
        payload,
        extra: Digest::ZERO,
    };
    let ask = |replica: &mut Replica, id| {
        hear(replica, 1, HostMessage::AskBlock { id, height: Height(1), above: Height::ZERO });
        let out = outputs(replica);
        said(&out).into_iter().map(|(_, message)| message).collect::<Vec<_>>()
    };
    let beside = on(BlockId::ZERO, 1, PayloadId(Digest([7; 32])));
    let id = beside.id();
    replica.blocks.insert(beside.clone());
    assert_eq!(ask(&mut replica, id), [HostMessage::NoBlock(id)], "the header alone is of no use");
    for from in [1, 3] {
        hear(&mut replica, from, HostMessage::Decided(Height(1), vec![BlockId::null(Height(1))]));
    }
    execute(&mut replica, 1);
    outputs(&mut replica);
    let header = HostMessage::Block(beside);
    assert_eq!(
        ask(&mut replica, id),
        [header.clone(), HostMessage::NoBlock(id)],
        "another block was executed"
    );
    // A block above it will never be complete either.
    let above = on(BlockId(Digest([8; 32])), 3, Payload::default().id());
    let id = above.id();
    replica.blocks.insert(above.clone());
    replica.services.bodies.want(Time(0), &replica.blocks, id, Height(3), (ReplicaId(3), Haste::InTurn));
    replica.handle(Time(1), Input::Payload(ReplicaId(3), Arc::new(Payload::default())));
    outputs(&mut replica);
    assert_eq!(ask(&mut replica, id), [HostMessage::Block(above), HostMessage::NoBlock(id)]);
    // A replica that requested it knows its parent.
    let mut other = open();
    let HostMessage::Block(block) = &header else { return };
    let id = block.id();
    other.services.bodies.want(Time(0), &other.blocks, id, Height(1), (ReplicaId(1), Haste::InTurn));
    hear(&mut other, 1, header.clone());
    assert!(other.blocks.get(id).is_some());
}

/// The child arrived first, from a peer that withholds the parent's bodies. A bare header must not keep the parent
/// from being taken with its bodies from another peer.
#[test]
fn bare_parent_is_taken_with_its_bodies_from_another_peer() {
    let mut replica = open();
    let empty = Arc::new(Payload::default());
    let block = |parent, height| Block {
        parent,
        height: Height(height),
        view: View(1),
        proposer: ReplicaId(0),
        time_ns: 0,
        payload: empty.id(),
        extra: Digest::ZERO,
    };
    let parent = block(BlockId::ZERO, 1);
    let child = block(parent.id(), 2);
    let give = |replica: &mut Replica, from, block: &Block| {
        hear(replica, from, HostMessage::Block(block.clone()));
        replica.handle(Time(1), Input::Payload(ReplicaId(from), Arc::clone(&empty)));
        outputs(replica);
    };
    let want = (ReplicaId(1), Haste::InTurn);
    replica.services.bodies.want(Time(0), &replica.blocks, child.id(), child.height, want);
    give(&mut replica, 1, &child);
    replica.blocks.hear(parent.clone());
    assert!(replica.services.bodies.is_wanted(parent.id()));
    give(&mut replica, 3, &parent);
    let is_ready =
        |block: &Block| replica.services.bodies.ready(&replica.services.pool, &replica.blocks, block.id());
    assert_eq!([&parent, &child].map(is_ready), [Some(Ready::Valid); 2]);
}

/// A search for missing blocks is expensive, and reports cost peers nothing: one search follows at the end of a turn.
#[test]
fn missing_blocks_are_searched_at_the_end_of_a_turn() {
    let (mut replica, id) = (open(), BlockId(Digest([5; 32])));
    for from in [1, 3] {
        let heights = Heights { executed: Height(1), kept: Height(1), stable: Height::ZERO };
        hear(&mut replica, from, HostMessage::Heights(heights));
        hear(&mut replica, from, HostMessage::Decided(Height(1), vec![id]));
    }
    assert!(!replica.services.bodies.is_wanted(id));
    replica.tick(Time(1));
    assert!(replica.services.bodies.is_wanted(id));
}

/// After a short interruption of a link, missing messages are on their way. Only a replica that opens asks at once.
#[test]
fn replica_behind_waits_before_it_asks() {
    let tell = |replica: &mut Replica, at, executed| {
        for from in [1, 3] {
            let heights = Heights { executed: Height(executed), kept: Height(1), stable: Height::ZERO };
            replica.handle(Time(at), from_peer(from, CheckedMessage::Host(HostMessage::Heights(heights))));
            replica.tick(Time(at));
        }
        let asks = |(_, message): &(To, HostMessage)| matches!(message, HostMessage::AskDecided(_));
        said(&outputs(replica)).iter().any(asks)
    };
    let mut replica = open();
    assert!(tell(&mut replica, 1, 4), "it opens, and one peer alone proves nothing");
    let mut replica = open();
    assert!(!tell(&mut replica, 1, 0));
    assert!(!tell(&mut replica, 2, 4));
    replica.tick(Time(299_000_000));
    assert!(!tell(&mut replica, 299_000_000, 4));
    assert!(tell(&mut replica, 301_000_000, 4));
    // The same holds the next time.
    let decided =
        HostMessage::Decided(Height(1), (1..=4).map(|height| BlockId::null(Height(height))).collect());
    for from in [1, 3] {
        replica.handle(Time(302_000_000), from_peer(from, CheckedMessage::Host(decided.clone())));
    }
    replica.tick(Time(302_000_000));
    assert!(!tell(&mut replica, 303_000_000, 5));
    assert!(tell(&mut replica, 603_000_001, 5));
}

/// Answers to questions before a restart may arrive before any peer has reported its heights.
#[test]
fn decided_block_is_fetched_once_holders_become_known() {
    let mut replica = open();
    let id = BlockId(Digest([5; 32]));
    for from in [1, 3] {
        let decided = HostMessage::Decided(Height(1), vec![id]);
        replica.handle(Time(1), from_peer(from, CheckedMessage::Host(decided)));
    }
    assert_eq!(replica.status().decided, Height(1));
    outputs(&mut replica);
    let heights = Heights { executed: Height(1), kept: Height(1), stable: Height::ZERO };
    replica.handle(Time(2), from_peer(3, CheckedMessage::Host(HostMessage::Heights(heights))));
    let is_ask = |output: &Output| {
        matches!(output, Output::Send { to: To::One(ReplicaId(3)), frame: Unsealed::Host { message, .. }, .. }
            if *message == HostMessage::AskBlock { id, height: Height(1), above: Height::ZERO })
    };
    replica.tick(Time(2));
    assert!(outputs(&mut replica).iter().any(is_ask));
}

/// A question for ids is as short, and its answer has hundreds of them.
#[test]
fn questions_for_ids_beyond_the_share_of_a_turn_are_refused() {
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
    assert_eq!(ask(3, 1, 1), (1, 0), "and in the next turn the first one too");
}

/// Returns the executed heights in reports to hosts.
fn heights(outputs: &[Output]) -> Vec<u64> {
    let told = said(outputs).into_iter().filter_map(|(_, message)| match message {
        HostMessage::Heights(heights) => Some(heights.executed.0),
        _ => None,
    });
    told.collect()
}

/// A decision that a power cut may erase must not be executed or reported: with it f liars would make f + 1. No client
/// waits for an empty block, so it asks for no sync. It is executed after the next one.
#[test]
fn empty_block_is_executed_and_reported_when_durable() {
    const SECOND: u64 = 1_000_000_000;
    let ids: Vec<BlockId> = (1..=3).map(|height| BlockId::null(Height(height))).collect();
    let run = |replica: &mut Replica| {
        let out = outputs(replica);
        let blocks = out.iter().filter_map(|output| match output {
            Output::Execute(full) => Some(full.height.0),
            _ => None,
        });
        let blocks: Vec<u64> = blocks.collect();
        blocks.iter().for_each(|height| execute(replica, *height));
        (blocks, out)
    };
    let learn = |replica: &mut Replica| {
        for from in [1, 3] {
            hear(replica, from, HostMessage::Decided(Height(1), ids.clone()));
        }
        let (blocks, out) = run(replica);
        assert!(!out.iter().any(|output| matches!(output, Output::Sync(_))), "no sync for it");
        let mark = |output: &Output| match output {
            Output::Persist { mark, entry: LogEntry::Decided { .. } } => Some(*mark),
            _ => None,
        };
        (blocks, out.iter().filter_map(mark).collect::<Vec<_>>())
    };
    // Returns the answers to a peer that is behind, for each of its questions. The log has more than is durable.
    let answers = |replica: &mut Replica, at| {
        let behind = Heights { executed: Height(0), kept: Height(1), stable: Height(0) };
        for message in [HostMessage::Heights(behind), HostMessage::AskDecided(Height(1))] {
            replica.handle(Time(at), from_peer(1, CheckedMessage::Host(message)));
        }
        let now = outputs(replica);
        replica.handle(Time(at), Input::StoredIds(ReplicaId(1), Height(1), ids.clone()));
        let decided = [now.clone(), outputs(replica)].map(|out| {
            said(&out)
                .into_iter()
                .filter_map(|(_, message)| match message {
                    HostMessage::Decided(Height(1), said) => Some(said.len()),
                    _ => None,
                })
                .sum::<usize>()
        });
        (heights(&now), decided)
    };

    let mut replica = open();
    assert_eq!(learn(&mut replica).0, [1, 2, 3], "its voters have durable votes");
    assert_eq!(answers(&mut replica, SECOND), (vec![3], [3, 3]));

    let mut replica = bounded();
    let (blocks, marks) = learn(&mut replica);
    assert_eq!((blocks, replica.status().decided), (vec![], Height(3)));
    assert_eq!(answers(&mut replica, SECOND), (vec![], [0, 0]));
    replica.handle(Time(2 * SECOND), Input::Durable(marks[1]));
    assert_eq!(run(&mut replica).0, [1, 2]);
    assert_eq!(answers(&mut replica, 2 * SECOND), (vec![2], [2, 2]));
    replica.tick(Time(3 * SECOND));
    assert_eq!(heights(&outputs(&mut replica)), [2], "all peers receive it soon");
    replica.handle(Time(4 * SECOND), Input::Durable(marks[2]));
    assert_eq!(run(&mut replica).0, [3]);
    assert_eq!(answers(&mut replica, 4 * SECOND), (vec![3], [3, 3]));
}

/// A thousand reports are checked in one turn, and one search for missing blocks follows.
#[test]
fn repeated_reports_of_heights_cost_one_search() {
    const MS: u64 = 1_000_000;
    let mut replica = open();
    // These blocks are decided and missing, and no peer is known to have them.
    let ids: Vec<BlockId> = (1..=32).map(|height| BlockId(Digest([height; 32]))).collect();
    for from in [1, 3] {
        hear(&mut replica, from, HostMessage::Decided(Height(1), ids.clone()));
    }
    outputs(&mut replica);
    let tell = |replica: &mut Replica, from, executed| {
        let heights = Heights { executed: Height(executed), kept: Height(1), stable: Height(0) };
        replica.handle(Time(MS), from_peer(from, CheckedMessage::Host(HostMessage::Heights(heights))));
    };
    let is_ask = |said: &(To, HostMessage)| matches!(said.1, HostMessage::AskBlock { .. });
    let asked = |replica: &mut Replica| said(&outputs(replica)).into_iter().filter(is_ask).count();
    // The peer reports one more height each time.
    (1..=1_000).for_each(|height| tell(&mut replica, 1, height));
    assert_eq!(asked(&mut replica), 0);
    replica.tick(Time(MS));
    assert_eq!(asked(&mut replica), 32, "at the end of the turn");
}

/// A liar sends one header, then the parent that it names, and so on, as they are requested. The chain must end, or
/// memory does.
#[test]
fn parent_at_or_above_its_child_is_refused() {
    let mut replica = open();
    let on = |parent, height| Block {
        parent,
        height: Height(height),
        view: View(1),
        proposer: ReplicaId(0),
        time_ns: 0,
        payload: PayloadId(Digest([7; 32])),
        extra: Digest::ZERO,
    };
    let refused = |replica: &mut Replica| {
        let why = |output: &Output| match output {
            Output::Rejected { from, why, .. } => Some((from.0, why.name())),
            _ => None,
        };
        outputs(replica).iter().filter_map(why).collect::<Vec<_>>()
    };
    let give = |replica: &mut Replica, from, block: &Block| {
        hear(replica, from, HostMessage::Block(block.clone()));
        replica.blocks.contains(block.id())
    };
    let want = |replica: &mut Replica, from, id| {
        let from = (ReplicaId(from), Haste::InTurn);
        replica.services.bodies.want(Time(1), &replica.blocks, id, Height::ZERO, from);
    };
    // The blocks, from the lowest up: each names the one before.
    let real = on(BlockId(Digest([9; 32])), 8);
    let as_high = on(real.id(), 10);
    let header = on(as_high.id(), 10);
    want(&mut replica, 1, header.id());
    assert!(give(&mut replica, 1, &header), "a block wanted by the protocol may have any height");
    assert!(!give(&mut replica, 1, &as_high), "no parent has its child's height");
    assert_eq!(refused(&mut replica), [(1, "block above the one that names it")]);
    assert!(replica.services.bodies.is_wanted(as_high.id()));

    // A liar's child names a real block, and claims a lower height.
    let child = on(real.id(), 5);
    want(&mut replica, 1, child.id());
    assert!(give(&mut replica, 1, &child) && !give(&mut replica, 3, &real));
    assert_eq!(refused(&mut replica), [(3, "block above the one that names it")]);
    let asked = |replica: &mut Replica, id| {
        let asks = replica.services.bodies.take_due_asks(Time(1), &replica.peers.others).into_iter();
        asks.filter(|ask| ask.block == id).map(|ask| (ask.peer.0, ask.height.0)).collect::<Vec<_>>()
    };
    asked(&mut replica, real.id());
    let honest = on(real.id(), 9);
    want(&mut replica, 3, honest.id());
    assert!(give(&mut replica, 3, &honest));
    assert_eq!(asked(&mut replica, real.id()), [(3, 8)], "it is requested again at once");
    assert!(give(&mut replica, 3, &real), "an honest child names it as well");
    assert_eq!(refused(&mut replica), []);

    // The protocol may want the block as well.
    let wanted = on(BlockId(Digest([8; 32])), 8);
    let child = on(wanted.id(), 5);
    want(&mut replica, 1, child.id());
    assert!(give(&mut replica, 1, &child) && !give(&mut replica, 3, &wanted));
    want(&mut replica, 0, wanted.id());
    assert!(give(&mut replica, 0, &wanted));
}
