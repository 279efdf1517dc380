use super::*;
use quorate_types::{Digest, Payload, ReplicaId, View};

fn id(number: u64) -> BlockId {
    BlockId::null(Height(number))
}

#[test]
fn each_height_is_executed_once_and_in_order() {
    let mut sequencer = Sequencer::default();
    assert_eq!(sequencer.decide(Height(2), id(2)), Ok(true));
    assert_eq!(sequencer.next(), None, "height 1 is not decided");
    assert_eq!(sequencer.decide(Height(1), id(1)), Ok(true));
    assert_eq!(sequencer.decide(Height(1), id(1)), Ok(false));
    assert_eq!(sequencer.contiguous(), Height(2));
    let mut order = Vec::new();
    while let Some((height, _)) = sequencer.next() {
        sequencer.issue(height);
        order.push(height);
    }
    assert_eq!(order, [Height(1), Height(2)]);
    sequencer.executed_one(Height(1));
    assert_eq!(sequencer.decide(Height(1), id(1)), Ok(false), "executed before");
    assert_eq!(sequencer.next(), None);
}

#[test]
fn two_decisions_for_one_height_raise_the_alarm() {
    let mut sequencer = Sequencer::default();
    sequencer.decide(Height(1), id(1)).unwrap();
    let alarm = Alarm::SafetyBroken { height: Height(1), first: id(1), second: id(9) };
    assert_eq!(sequencer.decide(Height(1), id(9)), Err(alarm));
    sequencer.issue(Height(1));
    sequencer.executed_one(Height(1));
    assert_eq!(sequencer.decide(Height(1), id(9)), Err(alarm), "also after it was executed");
    sequencer.prune(Height(1));
    assert_eq!(sequencer.decide(Height(1), id(9)), Ok(false), "settled by the checkpoint");
}

#[test]
fn sequencer_continues_after_a_restart() {
    let sequencer =
        Sequencer::restore(Height(4), [(Height(4), id(4)), (Height(5), id(5)), (Height(7), id(7))]);
    assert_eq!((sequencer.executed(), sequencer.contiguous()), (Height(4), Height(5)));
    assert_eq!(sequencer.next(), Some((Height(5), id(5))));
}

/// Returns a block on top of another one.
fn block(parent: BlockId, height: u64) -> Block {
    Block {
        parent,
        height: Height(height),
        view: View(1),
        proposer: ReplicaId(0),
        time_ns: 0,
        payload: Payload::default().id(),
        extra: Digest::ZERO,
    }
}

#[test]
fn decided_block_decides_its_ancestors_once_their_headers_are_available() {
    let (mut sequencer, mut blocks) = (Sequencer::default(), BlockTree::default());
    let one = block(BlockId::ZERO, 1);
    let two = block(one.id(), 2);
    let three = block(two.id(), 3);
    blocks.insert(three.clone());
    blocks.insert(one.clone());
    assert_eq!(sequencer.undecided_path(&blocks, three.id()), None);
    assert_eq!(sequencer.unrooted(), Some(three.id()));
    blocks.insert(two.clone());
    sequencer.decide(Height(1), one.id()).unwrap();
    let path = vec![(Height(2), two.id()), (Height(3), three.id())];
    assert_eq!(sequencer.undecided_path(&blocks, three.id()), Some(path), "lowest first");
    assert_eq!(sequencer.unrooted(), None);
    sequencer.decide(Height(2), two.id()).unwrap();
    sequencer.decide(Height(3), three.id()).unwrap();
    assert_eq!(sequencer.undecided_path(&blocks, three.id()), Some(Vec::new()));
}

#[test]
fn parent_of_a_decided_block_above_a_gap_is_known_by_its_header() {
    let (mut sequencer, mut blocks) = (Sequencer::default(), BlockTree::default());
    let two = block(id(1), 2);
    sequencer.decide(Height(2), two.id()).unwrap();
    assert_eq!(sequencer.parent_above_gap(&blocks), None, "the header is missing");
    blocks.insert(two);
    assert_eq!(sequencer.parent_above_gap(&blocks), Some((Height(1), id(1))));
    sequencer.decide(Height(1), id(1)).unwrap();
    assert_eq!(sequencer.parent_above_gap(&blocks), None, "the gap is closed");
}

#[test]
fn block_must_extend_the_block_decided_below_it() {
    let mut sequencer = Sequencer::default();
    let stable = Checkpoint { height: Height(1), block: id(1), ..Checkpoint::GENESIS };
    let conflict = |sequencer: &Sequencer, parent, height| {
        sequencer.conflict_below(&block(parent, height), &stable).is_some()
    };
    assert!(!conflict(&sequencer, id(1), 2) && conflict(&sequencer, id(9), 2), "above the stable checkpoint");
    assert!(!conflict(&sequencer, id(9), 3), "nothing is decided below it");
    sequencer.decide(Height(2), id(2)).unwrap();
    assert!(!conflict(&sequencer, id(2), 3) && conflict(&sequencer, id(9), 3));
    assert!(!conflict(&sequencer, BlockId::ZERO, 3), "a block without a parent");
}

#[test]
fn held_blocks_leave_in_order_when_their_marks_are_durable() {
    let (mut sequencer, mut outbox) = (Sequencer::default(), Outbox::default());
    for height in [1, 2] {
        sequencer.hold(Mark(height), FullBlock::null(Height(height)));
    }
    let mut take = |outbox: &Outbox| sequencer.take_durable(outbox).map(|block| block.height.0);
    assert_eq!(take(&outbox), None);
    outbox.durable(Mark(1), &mut VecDeque::new());
    assert_eq!((take(&outbox), take(&outbox)), (Some(1), None));
    outbox.durable(Mark(2), &mut VecDeque::new());
    assert_eq!((take(&outbox), take(&outbox)), (Some(2), None));
}
