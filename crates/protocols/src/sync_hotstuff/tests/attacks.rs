//! What the attacks make of what is said: well formed, and what the table of `attacks.rs` says.

use super::super::attacks::{Words, attacks};
use super::*;
use quorate_consensus::{Attack, Protocol, Scene};
use quorate_types::rng::Rng;
use std::any::Any;

/// One who attacks, as replica 0 of five.
pub(in super::super) struct Attacker {
    attack: Box<dyn Attack>,
    rng: Rng,
}

impl Attacker {
    pub(in super::super) fn new<P: Protocol>(name: &str) -> Self
    where
        P::Message: Words,
    {
        let entry = attacks::<P::Message>().iter().find(|entry| entry.name == name).unwrap();
        Self { attack: (entry.make)(), rng: Rng::new(1) }
    }

    /// What it tells a replica in the place of a message.
    pub(in super::super) fn tells<P: Protocol>(&mut self, to: u16, said: &P::Message) -> Vec<P::Message>
    where
        P::Message: Words,
    {
        let committee = Setup::of::<P>(usize::from(N)).committee::<P>();
        let sign = |_: &quorate_types::Statement| SIGNATURE;
        let mut scene = Scene { me: r(0), committee: &committee, rng: &mut self.rng, sign: &sign };
        let said = self.attack.says(&mut scene, r(to), Box::new(said.clone()));
        let own = |said: Box<dyn Message>| {
            let any: Box<dyn Any> = said;
            *any.downcast::<P::Message>().unwrap()
        };
        said.into_iter().map(own).collect()
    }
}

type P = SyncHotStuff<Plain>;

fn blocks_in(said: &[SyncMessage]) -> Vec<BlockId> {
    let block = |said: &SyncMessage| match said {
        SyncMessage::Propose { header, .. } => id(header),
        SyncMessage::Vote(header) => id(&header.body),
        other => panic!("{other:?}"),
    };
    assert!(said.iter().all(|said| claims_hold::<Plain>(said).is_ok()));
    said.iter().map(block).collect()
}

/// Four blocks of the first view; with the fourth, view and height add up to five.
fn view() -> (Vec<Header>, BlockId) {
    let blocks = chain(N, 1, GENESIS, &[10, 20, 30, 40]);
    let last = &blocks[3];
    let second = Header { block: Block { time_ns: 41, ..last.block.clone() }, base: last.base };
    (blocks, id(&second))
}

#[test]
fn equivocate_tells_two_stories_at_some_places() {
    let ((blocks, second), mut attacker) = (view(), Attacker::new::<P>("equivocate"));
    for block in &blocks[..3] {
        for to in 1..N {
            assert_eq!(attacker.tells::<P>(to, &proposal(N, block)), [proposal(N, block)]);
        }
    }
    let first = id(&blocks[3]);
    let proposed = proposal(N, &blocks[3]);
    assert_eq!(blocks_in(&attacker.tells::<P>(2, &proposed)), [first]);
    assert_eq!(blocks_in(&attacker.tells::<P>(3, &proposed)), [second]);
    assert_eq!(blocks_in(&attacker.tells::<P>(2, &voted(&blocks[3]))), [first, second]);
    assert_eq!(blocks_in(&attacker.tells::<P>(3, &voted(&blocks[3]))), [second, first]);
    // It does not sign for others.
    let header = header(N, 2, id(&blocks[2]), end(&blocks[2]), 9);
    assert_eq!(attacker.tells::<P>(3, &voted(&header)), [voted(&header)]);
}

#[test]
fn late_contradictions_come_with_something_later() {
    let ((blocks, second), mut attacker) = (view(), Attacker::new::<P>("late contradictions"));
    assert_eq!(blocks_in(&attacker.tells::<P>(2, &proposal(N, &blocks[3]))), [id(&blocks[3])]);
    let mut told = Vec::new();
    for _ in 0..200 {
        told.extend(attacker.tells::<P>(2, &SyncMessage::Blame(View(9))));
    }
    told.retain(|said| *said != SyncMessage::Blame(View(9)));
    assert_eq!(blocks_in(&told), [second], "once");
}

#[test]
fn told_to_one_leaves_out_all_others() {
    let mut attacker = Attacker::new::<P>("told to one");
    let (blocks, _) = view();
    for said in [proposal(N, &blocks[0]), voted(&blocks[0]), new_view(2, &lock(certified(N, &blocks[0])))] {
        let told: Vec<u16> = (0..N).filter(|to| !attacker.tells::<P>(*to, &said).is_empty()).collect();
        assert_eq!(told, [0], "views 0 to 2 belong to replica 0");
    }
    assert_eq!(attacker.tells::<P>(4, &SyncMessage::Blame(View(1))), [SyncMessage::Blame(View(1))]);
}

#[test]
fn low_locks_are_the_lowest_that_can_be_shown() {
    let mut attacker = Attacker::new::<P>("low locks");
    let (blocks, _) = view();
    let of = |place: usize| certified(N, &blocks[place]);
    for place in [3, 1, 2] {
        attacker.tells::<P>(1, &SyncMessage::Certified(of(place)));
    }
    let status = |place: usize| SyncMessage::Status { view: View(2), lock: lock(of(place)) };
    for (said, low) in [(status(3), status(1)), (new_view(2, &lock(of(3))), new_view(2, &lock(of(1))))] {
        for to in 1..N {
            assert_eq!(attacker.tells::<P>(to, &said), std::slice::from_ref(&low), "for all in view 2");
        }
    }
    // In odd views every second replica hears what is so.
    let honest = new_view(3, &lock(of(3)));
    assert_eq!(attacker.tells::<P>(2, &honest), std::slice::from_ref(&honest));
    assert_eq!(attacker.tells::<P>(1, &honest), [new_view(3, &lock(of(1)))]);
}

#[test]
fn blames_name_every_view() {
    let mut attacker = Attacker::new::<P>("blames");
    let (blocks, _) = view();
    let said = voted(&blocks[0]);
    let blames = [1, 2].map(|view| SyncMessage::Blame(View(view)));
    assert_eq!(attacker.tells::<P>(3, &said), [&[said.clone()][..], &blames[..]].concat());
    let ask = SyncMessage::Ask { incarnation: Incarnation(1), above: Height(1) };
    assert_eq!(attacker.tells::<P>(3, &ask), [ask], "of no view");
}

#[test]
fn who_forgets_answers_all_the_same() {
    let mut attacker = Attacker::new::<P>("forgetting");
    let (blocks, _) = view();
    let answer = Answer {
        incarnation: Incarnation(7),
        evidence: vec![blames(N, 1)],
        certificates: vec![certified(N, &blocks[0])],
        headers: vec![signed(&blocks[1])],
        ..stands(Standing::Voting)
    };
    let told = attacker.tells::<P>(1, &SyncMessage::Answer(Box::new(answer)));
    let empty = Answer { incarnation: Incarnation(7), ..stands(Standing::Running) };
    assert_eq!(told, [SyncMessage::Answer(Box::new(empty))]);
}
