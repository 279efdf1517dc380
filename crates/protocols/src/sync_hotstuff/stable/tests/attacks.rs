//! Messages of the stable form under the attacks of the family: well-formed, and as the table of `attacks.rs` says.

use super::*;

fn blocks_in(said: &[SyncMessage]) -> Vec<BlockId> {
    let block = |said: &SyncMessage| match said {
        SyncMessage::Propose { header, .. } => id(header),
        SyncMessage::Vote(header) => id(&header.body),
        other => panic!("{other:?}"),
    };
    assert!(said.iter().all(|said| claims_hold::<Plain>(said).is_ok()));
    said.iter().map(block).collect()
}

/// Returns four blocks of the first view. View and height of the fourth add up to five.
fn view() -> (Vec<Header>, BlockId) {
    let blocks = chain(N, 1, GENESIS, &[10, 20, 30, 40]);
    let last = &blocks[3];
    let second = Header { block: Block { time_ns: 41, ..last.block.clone() }, base: last.base };
    (blocks, id(&second))
}

#[test]
fn equivocate_sends_two_blocks_at_some_places() {
    let ((blocks, second), mut attacker) = (view(), Attacker::<Plain>::new("equivocate"));
    for block in &blocks[..3] {
        for to in 1..N {
            assert_eq!(attacker.tells(to, &proposal(N, block)), [proposal(N, block)]);
        }
    }
    let first = id(&blocks[3]);
    let proposed = proposal(N, &blocks[3]);
    assert_eq!(blocks_in(&attacker.tells(2, &proposed)), [first]);
    assert_eq!(blocks_in(&attacker.tells(3, &proposed)), [second]);
    assert_eq!(blocks_in(&attacker.tells(2, &voted(&blocks[3]))), [first, second]);
    assert_eq!(blocks_in(&attacker.tells(3, &voted(&blocks[3]))), [second, first]);
    // It does not sign for others.
    let header = header(N, 2, id(&blocks[2]), end(&blocks[2]), 9);
    assert_eq!(attacker.tells(3, &voted(&header)), [voted(&header)]);
}

#[test]
fn late_contradictions_follow_a_later_message() {
    let ((blocks, second), mut attacker) = (view(), Attacker::<Plain>::new("late contradictions"));
    assert_eq!(blocks_in(&attacker.tells(2, &proposal(N, &blocks[3]))), [id(&blocks[3])]);
    let mut told = Vec::new();
    for _ in 0..200 {
        told.extend(attacker.tells(2, &SyncMessage::Blame(View(9))));
    }
    told.retain(|said| *said != SyncMessage::Blame(View(9)));
    assert_eq!(blocks_in(&told), [second], "once");
}

#[test]
fn told_to_one_sends_to_one_replica_alone() {
    let mut attacker = Attacker::<Plain>::new("told to one");
    let (blocks, _) = view();
    for said in [proposal(N, &blocks[0]), voted(&blocks[0]), new_view(2, &lock(certified(N, &blocks[0])))] {
        let told: Vec<u16> = (0..N).filter(|to| !attacker.tells(*to, &said).is_empty()).collect();
        assert_eq!(told, [0], "views 0 to 2 belong to replica 0");
    }
    assert_eq!(attacker.tells(4, &SyncMessage::Blame(View(1))), [SyncMessage::Blame(View(1))]);
}

#[test]
fn low_locks_are_the_lowest_that_can_be_shown() {
    let mut attacker = Attacker::<Plain>::new("low locks");
    let (blocks, _) = view();
    let of = |place: usize| certified(N, &blocks[place]);
    for place in [3, 1, 2] {
        attacker.tells(1, &SyncMessage::Certified(of(place)));
    }
    let status = |place: usize| SyncMessage::Status { view: View(2), lock: lock(of(place)) };
    for (said, low) in [(status(3), status(1)), (new_view(2, &lock(of(3))), new_view(2, &lock(of(1))))] {
        for to in 1..N {
            assert_eq!(attacker.tells(to, &said), std::slice::from_ref(&low), "for all in view 2");
        }
    }
    // In odd views every second replica receives the honest lock.
    let honest = new_view(3, &lock(of(3)));
    assert_eq!(attacker.tells(2, &honest), std::slice::from_ref(&honest));
    assert_eq!(attacker.tells(1, &honest), [new_view(3, &lock(of(1)))]);
}

#[test]
fn blames_name_every_view() {
    let mut attacker = Attacker::<Plain>::new("blames");
    let (blocks, _) = view();
    let said = voted(&blocks[0]);
    let blames = [1, 2].map(|view| SyncMessage::Blame(View(view)));
    assert_eq!(attacker.tells(3, &said), [&[said.clone()][..], &blames[..]].concat());
    let ask = SyncMessage::Ask { incarnation: Incarnation(1), above: Height(1) };
    assert_eq!(attacker.tells(3, &ask), [ask], "of no view");
}

#[test]
fn forgetting_answers_with_an_empty_state() {
    let mut attacker = Attacker::<Plain>::new("forgetting");
    let (blocks, _) = view();
    let answer = Answer {
        incarnation: Incarnation(7),
        evidence: vec![blames(N, 1)],
        certificates: vec![certified(N, &blocks[0])],
        headers: vec![signed(&blocks[1])],
        ..stands(RecoveryStage::Voting)
    };
    let told = attacker.tells(1, &SyncMessage::Answer(Box::new(answer)));
    let empty = Answer { incarnation: Incarnation(7), ..stands(RecoveryStage::Running) };
    assert_eq!(told, [SyncMessage::Answer(Box::new(empty))]);
}
