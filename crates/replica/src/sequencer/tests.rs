use super::*;

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
