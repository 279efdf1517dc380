//! What the family's attacks make of what is said where leaders follow each other.

use super::super::super::tests::attacks::Attacker;
use super::*;

type P = RotatingSyncHotStuff;

/// Blocks of views 1 to 6: replica 0 leads views 1 and 6.
fn blocks() -> Vec<Header> {
    chain(1, GENESIS, 6)
}

#[test]
fn equivocate_tells_two_stories_in_some_views() {
    let mut attacker = Attacker::new::<P>("equivocate");
    let fourth = header(4, GENESIS, 5);
    let second =
        Header { block: Block { time_ns: 6, ..fourth.block.clone() }, parent_view: fourth.parent_view };
    for (to, told) in [(2, &fourth), (3, &second)] {
        assert_eq!(attacker.tells::<P>(to, &proposal(&fourth)), [proposal(told)]);
        assert_eq!(claims_hold(&proposal(told)), Ok(()));
    }
    // The sixth is no place for it, and a vote for the fourth is for somebody else's block.
    let sixth = &blocks()[5];
    assert_eq!(attacker.tells::<P>(3, &voted(sixth)), [voted(sixth)]);
    assert_eq!(attacker.tells::<P>(3, &voted(&fourth)), [voted(&fourth)]);
}

/// Everything is consistent but for where it goes on from.
#[test]
fn low_locks_are_old_certificates() {
    let mut attacker = Attacker::new::<P>("low locks");
    let blocks = blocks();
    // What it has proposed itself shows what the heights of certificates are.
    let second = proposal(&blocks[1]);
    attacker.tells::<P>(2, &second);
    let low = header(6, tip(&blocks[0]), 6);
    for to in 1..N {
        assert_eq!(attacker.tells::<P>(to, &proposal(&blocks[5])), [proposal(&low)]);
        assert_eq!(attacker.tells::<P>(to, &voted(&blocks[5])), [voted(&low)]);
        let told = attacker.tells::<P>(to, &status(6, certified(&blocks[4])));
        assert_eq!(told, [status(6, certified(&blocks[0]))]);
    }
    assert_eq!(claims_hold(&proposal(&low)), Ok(()));
}

#[test]
fn who_forgets_answers_all_the_same() {
    let mut attacker = Attacker::new::<P>("forgetting");
    let answer = Answer {
        incarnation: Incarnation(7),
        blames: Some(blames(3)),
        certificates: vec![certified(&blocks()[0])],
        header: Some(signed(&blocks()[1])),
        ..stands(Standing::Voting)
    };
    let told = attacker.tells::<P>(1, &RotatingMessage::Answer(Box::new(answer)));
    let empty = Answer { incarnation: Incarnation(7), ..stands(Standing::Running) };
    assert_eq!(told, [RotatingMessage::Answer(Box::new(empty))]);
}
