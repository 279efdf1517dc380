//! Clients that lie, and replicas that send false replies to clients.

use crate::support::{ask, begin, go, incr, no_view_change, put, r, refused, settle, wait_for, world};
use quorate_sim::{Bytes, KvOp, KvResult, World, ms, secs};
use quorate_types::bundle::BundleBuilder;
use quorate_types::codec::Wire;
use quorate_types::wire::{FromClient, FromReplica};
use quorate_types::{
    Authenticator, BundleKind, BundleNo, Outcome, ReplicaId, ReplyBundle, SessionId, Signature,
};
use std::cell::Cell;
use std::rc::Rc;

/// Returns the content of a bundle of a client in its present session. Its operation has no number in the history, so
/// the oracles would notice its execution.
fn content(world: &World, client: usize, session: SessionId, number: u64) -> Vec<u8> {
    let key = world.client_id(client).unwrap();
    let mut builder = BundleBuilder::new(BundleKind::Requests, key, session, BundleNo(number));
    let op = KvOp::Put { key: b"k", value: b"forged" }.to_bytes();
    builder.push(&[&u64::MAX.to_le_bytes(), &op[..]].concat());
    builder.finish()
}

fn send_to_all(world: &mut World, client: usize, message: &Bytes) {
    for id in world.replicas() {
        world.forge_client_message(client, id, message.clone());
    }
    go(world.run_for(secs(3)), world);
}

/// Scenario 14: bad signatures, sessions of other clients, numbers far ahead, and garbage. Nothing of these bundles is
/// executed, no other client is affected, and each bundle is counted.
#[test]
fn s14_lying_clients_execute_nothing() {
    let mut world = world(40, |_| {});
    begin(&mut world);
    ask(&mut world, 0, put("k", "honest"));
    settle(&mut world);
    let (height, session) = (world.height(), world.session(1).unwrap());
    let good = content(&world, 1, session, 1);

    let unsigned = FromClient::Bundle { authenticator: Authenticator::None, content: good.clone() };
    let bad = FromClient::Bundle {
        authenticator: Authenticator::Signature(Signature([7; 64])),
        content: good.clone(),
    };
    let foreign_session = content(&world, 1, world.session(0).unwrap(), 1);
    let far_ahead = content(&world, 1, session, 1_000_000);
    let cut_off = good[..good.len() - 1].to_vec();
    for (what, message, reason) in [
        ("no signature", Bytes::from(unsigned.to_bytes()), "bad signature"),
        ("a bad signature", Bytes::from(bad.to_bytes()), "bad signature"),
        ("another client's signature", world.bundle_signed_by(2, good.clone()), "bad signature"),
        ("another client's session", world.bundle_signed_by(1, foreign_session), "no session"),
        ("a number far ahead", world.bundle_signed_by(1, far_ahead), "out of window"),
        ("content that is cut off", world.bundle_signed_by(1, cut_off), "malformed bundle"),
    ] {
        let before = refused(&world, reason);
        send_to_all(&mut world, 1, &message);
        assert_eq!(refused(&world, reason), before + 4, "{what}: every replica counts it");
        assert_eq!(world.height(), height, "{what}: nothing is ordered");
    }
    let id = ask(&mut world, 0, quorate_sim::Op::Get { key: "k".to_owned() });
    assert_eq!(world.history().get(id).unwrap().result, Some(KvResult::Value(b"honest".to_vec())));
    settle(&mut world);
    no_view_change(&world);
}

/// Scenario 14: anybody may send an executed bundle again. It is answered from the kept reply and changes nothing.
#[test]
fn s14_replayed_bundles_change_nothing() {
    let mut world = world(41, |_| {});
    begin(&mut world);
    let session = world.session(0).unwrap();
    ask(&mut world, 0, incr("n"));
    settle(&mut world);
    let before = world.height();
    let mut builder =
        BundleBuilder::new(BundleKind::Requests, world.client_id(0).unwrap(), session, BundleNo(1));
    let op = KvOp::Increment { key: b"n", by: 1 }.to_bytes();
    let number_in_history = 0u64;
    builder.push(&[&number_in_history.to_le_bytes(), &op[..]].concat());
    let replay = world.bundle_signed_by(0, builder.finish());
    for _ in 0..3 {
        send_to_all(&mut world, 0, &replay);
    }
    assert_eq!(world.height(), before, "it is not ordered again");
    let id = ask(&mut world, 0, incr("n"));
    assert_eq!(world.history().get(id).unwrap().result, Some(KvResult::Number(2)));
    no_view_change(&world);
}

/// Scenario 14: a request for an open session is answered, and not ordered again. Otherwise a few kept requests could
/// keep all replicas busy.
#[test]
fn s14_replayed_openings_are_not_ordered_again() {
    let mut world = world(45, |_| {});
    begin(&mut world);
    settle(&mut world);
    let (before, session) = (world.height(), world.session(0));
    let key = world.client_id(0).unwrap();
    let opening = BundleBuilder::new(BundleKind::Open, key, SessionId::default(), BundleNo(1)).finish();
    let heard = Rc::new(Cell::new(0));
    let count = Rc::clone(&heard);
    world.hook_replies(move |_, _, message| {
        let reply = match FromReplica::from_bytes(&message) {
            Ok(FromReplica::Reply(_, reply)) => Outcome::from_bytes(&reply.outcome).ok(),
            _ => None,
        };
        let names_it = matches!((reply, session), (Some(Outcome::Opened(now)), Some(then)) if now == then);
        count.set(count.get() + u32::from(names_it));
        Some(message)
    });
    let replay = world.bundle_signed_by(0, opening);
    send_to_all(&mut world, 0, &replay);
    assert_eq!((world.height(), heard.get()), (before, 4));
    ask(&mut world, 0, incr("n"));
    no_view_change(&world);
}

/// Scenario 14: a client uses one number for two contents, and sends one to each half of the replicas. All replicas
/// execute the same one, or none.
#[test]
fn s14_at_most_one_of_two_contents_under_one_number_is_executed() {
    let mut world = world(42, |_| {});
    begin(&mut world);
    let session = world.session(1).unwrap();
    let key = world.client_id(1).unwrap();
    let bundle = |world: &World, value: &[u8]| {
        let mut builder = BundleBuilder::new(BundleKind::Requests, key, session, BundleNo(1));
        builder.push(value);
        world.bundle_signed_by(1, builder.finish())
    };
    let both = [bundle(&world, b"one"), bundle(&world, b"other")];
    for id in world.replicas() {
        world.forge_client_message(1, id, both[usize::from(id.0 % 2)].clone());
    }
    go(world.run_for(secs(5)), &world);
    ask(&mut world, 0, put("k", "others go on"));
    settle(&mut world);
    no_view_change(&world);
}

/// Scenario 15: f replicas send false replies, before the right replies or after them. The client believes f + 1 equal
/// replies and nothing else.
#[test]
fn s15_wrong_replies_are_not_believed() {
    for liar in 0..4 {
        for first in [true, false] {
            let mut world = world(43, |_| {});
            begin(&mut world);
            let liar = ReplicaId(liar);
            world.hook_replies(move |from, _, message| match FromReplica::from_bytes(&message) {
                Ok(FromReplica::Reply(client, reply)) if from == liar => {
                    Some(Bytes::from(FromReplica::Reply(client, lie(reply)).to_bytes()))
                }
                // The replies of the others come late or not at all: f + 1 of them are enough.
                _ => (first || from != r((liar.0 + 1) % 4)).then_some(message),
            });
            let ids: Vec<_> = (0..20).map(|_| ask(&mut world, 0, incr("n"))).collect();
            let last = world.history().get(ids[19]).unwrap();
            assert_eq!(last.result, Some(KvResult::Number(20)), "replica {liar} lies");
        }
    }
}

/// Returns a reply that a client would believe if one reply were enough: it is consistent in itself.
fn lie(reply: ReplyBundle) -> ReplyBundle {
    let outcome: std::sync::Arc<[u8]> =
        Outcome::Done(vec![KvResult::Number(666).to_bytes()]).to_bytes().into();
    ReplyBundle { result: ReplyBundle::result_digest(&outcome), outcome, ..reply }
}

/// Scenario 15: replies to operations that no client has sent, and inconsistent replies.
#[test]
fn s15_replies_without_a_request_are_ignored() {
    let mut world = world(44, |_| {});
    begin(&mut world);
    world.hook_replies(|from, _, message| match FromReplica::from_bytes(&message) {
        Ok(FromReplica::Reply(client, reply)) if from == r(1) => {
            let other = ReplyBundle { number: reply.number.next(), ..reply };
            Some(Bytes::from(FromReplica::Reply(client, other).to_bytes()))
        }
        Ok(FromReplica::Reply(client, reply)) if from == r(2) => {
            let other = ReplyBundle { outcome: lie(reply.clone()).outcome, ..reply };
            Some(Bytes::from(FromReplica::Reply(client, other).to_bytes()))
        }
        _ => Some(message),
    });
    let ids: Vec<_> = (0..10).map(|_| world.submit(0, &[incr("n")])[0]).collect();
    wait_for(&mut world, &ids, secs(10));
    go(world.run_for(ms(100)), &world);
    assert!(world.client_counters(0).lies > 0, "they are counted");
}
