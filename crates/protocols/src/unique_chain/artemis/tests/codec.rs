//! Encodings and properties of messages and records.

use super::super::message::BLOCKS_MAX;
use super::super::{ArtemisFact, BasePoint};
use super::*;
use quorate_consensus::{Auth, Message as _, Place, Record as _};
use quorate_types::codec::Wire;
use quorate_types::{ReplicaSet, Statement};
use std::fmt::Debug;

fn check<T: Wire + PartialEq + Debug>(value: &T) {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    assert_eq!(T::from_bytes(&bytes).as_ref().ok(), Some(value));
    for cut in 0..bytes.len() {
        assert!(T::from_bytes(&bytes[..cut]).is_err(), "{cut} bytes of {value:?}");
    }
    bytes.push(0);
    assert!(T::from_bytes(&bytes).is_err(), "one byte more than {value:?}");
}

fn votes() -> Vec<Vote> {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let kinds = [VoteKind::Data, VoteKind::Endorse, VoteKind::NoProgress, evidence(&one, &other)];
    kinds.map(|kind| vote(3, EntryRef { round: View(1), id: Digest([2; 32]) }, id(&one), kind)).into()
}

#[test]
fn messages_read_back() {
    let blocks = stream(FIRST, ROOT, 2);
    for vote in votes() {
        check(&vote);
        check(&casts(&vote));
        check(&relay(5, Some(&vote)));
    }
    check(&sends(&blocks[0]));
    check(&hands_on(&blocks));
    check(&UniqueMessage::<Vote, _>::Own(ArtemisMessage::WantBlocks {
        id: id(&blocks[0]),
        above: Height(7),
    }));
}

#[test]
fn records_read_back() {
    let block = cblock(FIRST, ROOT, 1);
    let vote = votes()[0].place();
    let flags: ReplicaSet = [r(1), r(3)].into_iter().collect();
    let state = ChainState { view: View(2), anchor: vote, flags, head: id(&block), height: Height(9) };
    let facts = [
        ArtemisFact::Emitted { until: Height(9), block: block.clone() },
        ArtemisFact::Voted { until: Height(9), block: signed(&block) },
        ArtemisFact::Committed { vote, state },
        ArtemisFact::Point(BasePoint { vote, state }),
    ];
    facts.iter().for_each(check);
    let mut keys: Vec<_> = facts.iter().map(ArtemisFact::key).collect();
    keys.dedup();
    assert_eq!(keys.len(), 4, "no record replaces one of another kind");
}

/// An id binds every field, and so does the place of the vote's statement.
#[test]
fn id_of_a_vote_binds_its_fields() {
    let first = votes()[0].clone();
    let changes: [fn(&mut Vote); 7] = [
        |it| it.round = View(8),
        |it| it.voter = r(1),
        |it| it.parent.id = Digest([9; 32]),
        |it| it.skips = Digest([9; 32]),
        |it| it.view = View(8),
        |it| it.block = BlockId(Digest([9; 32])),
        |it| it.kind = VoteKind::Endorse,
    ];
    for change in changes {
        let mut other = first.clone();
        change(&mut other);
        assert_ne!(other.id(), first.id(), "{other:?}");
    }
    // Script `unchained-vote`: the signature is under the id, which binds the parent.
    let statement = first.statement();
    assert_eq!((statement.view, statement.height, statement.subject), (View(3), Height::ZERO, first.id()));
}

/// §15.
#[test]
fn messages_state_what_the_specification_lists() {
    let block = cblock(FIRST, ROOT, 1);
    let Statement { view, height, scope, subject, .. } = block.statement();
    assert_eq!((view, height, scope, subject), (View(1), Height(1), Digest::ZERO, id(&block).0));
    assert_eq!(sends(&block).auth(), Auth::Signed(block.statement()));
    assert_eq!(sends(&block).place(), Place { view: View(1), height: Height(1), certified: false });
    let mut bodies = Vec::new();
    sends(&block).bodies(&mut bodies);
    assert_eq!(bodies, [block.block.payload]);
    let others = [
        (hands_on(std::slice::from_ref(&block)), Auth::Relay),
        (
            UniqueMessage::Own(ArtemisMessage::WantBlocks { id: id(&block), above: Height(0) }),
            Auth::Linked(None),
        ),
    ];
    for (message, auth) in others {
        assert_eq!((message.auth(), message.place()), (auth, Place::ANYWHERE));
    }
    let cast = casts(&votes()[0]);
    assert_eq!(cast.place(), Place { view: View(3), height: Height::ZERO, certified: true });
}

#[test]
fn answer_with_too_many_blocks_is_refused() {
    let blocks = stream(FIRST, ROOT, u64::try_from(BLOCKS_MAX).unwrap() + 1);
    for (count, reads) in [(BLOCKS_MAX, true), (BLOCKS_MAX + 1, false)] {
        let mut bytes = Vec::new();
        hands_on(&blocks[..count]).encode(&mut bytes);
        assert_eq!(Message::from_bytes(&bytes).is_ok(), reads);
    }
}
