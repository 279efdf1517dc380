//! Messages of the rotating form under the attacks of the family.

use super::*;

/// Blocks of views 1 to 6: replica 0 leads views 1 and 6.
fn blocks() -> Vec<Header> {
    chain(1, GENESIS, 6)
}

#[test]
fn equivocate_sends_two_blocks_in_some_views() {
    let mut attacker = Attacker::<Rotating>::new("equivocate");
    let fourth = header(4, GENESIS, 5);
    let second =
        Header { block: Block { time_ns: 6, ..fourth.block.clone() }, parent_view: fourth.parent_view };
    for (to, told) in [(2, &fourth), (3, &second)] {
        assert_eq!(attacker.tells(to, &proposal(&fourth)), [proposal(told)]);
        assert_eq!(claims_hold(&proposal(told)), Ok(()));
    }
    // It does not equivocate at the sixth, and the fourth is the block of another replica.
    let sixth = &blocks()[5];
    assert_eq!(attacker.tells(3, &voted(sixth)), [voted(sixth)]);
    assert_eq!(attacker.tells(3, &voted(&fourth)), [voted(&fourth)]);
}

/// Everything but the extended block is consistent.
#[test]
fn low_locks_are_old_certificates() {
    let mut attacker = Attacker::<Rotating>::new("low locks");
    let blocks = blocks();
    // Its own proposals show the heights of certificates.
    let second = proposal(&blocks[1]);
    attacker.tells(2, &second);
    let low = header(6, tip(&blocks[0]), 6);
    for to in 1..N {
        assert_eq!(attacker.tells(to, &proposal(&blocks[5])), [proposal(&low)]);
        assert_eq!(attacker.tells(to, &voted(&blocks[5])), [voted(&low)]);
        let told = attacker.tells(to, &status(6, certified(&blocks[4])));
        assert_eq!(told, [status(6, certified(&blocks[0]))]);
    }
    assert_eq!(claims_hold(&proposal(&low)), Ok(()));
}

#[test]
fn forgetting_answers_with_an_empty_state() {
    let mut attacker = Attacker::<Rotating>::new("forgetting");
    let answer = Answer {
        incarnation: Incarnation(7),
        blames: Some(blames(3)),
        certificates: vec![certified(&blocks()[0])],
        header: Some(signed(&blocks()[1])),
        ..stands(RecoveryStage::Voting)
    };
    let told = attacker.tells(1, &RotatingMessage::Answer(Box::new(answer)));
    let empty = Answer { incarnation: Incarnation(7), ..stands(RecoveryStage::Running) };
    assert_eq!(told, [RotatingMessage::Answer(Box::new(empty))]);
}
