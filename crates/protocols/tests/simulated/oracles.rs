//! An oracle that nobody has seen fire proves nothing: each is shown what it is there for.

use crate::support::{ask, begin, go, incr, put, r, short_window, world};
use quorate_protocols::pbft::{PREPARE, PbftMessage, SUSPECT, Vote};
use quorate_sim::{Bytes, Failure, KvOp, KvResult, OpId, Oracle, Survives, Verdict, World, ms, secs};
use quorate_types::codec::Wire as _;
use quorate_types::{BlockId, Digest, ReplicaId};

fn found(result: Result<(), Failure>) -> Option<Oracle> {
    result.err().map(|failure| failure.oracle)
}

/// Stops a replica, lets `change` happen to it, and starts it again.
fn restart(world: &mut World, id: ReplicaId, change: impl FnOnce(&mut World)) {
    world.crash(id, Survives::Everything);
    go(world.run_for(ms(100)), world);
    change(world);
    world.start(id).unwrap();
    go(world.run_for(secs(1)), world);
}

/// The number that the next operation has in the history.
fn next(world: &World) -> OpId {
    OpId(world.history().records().len() as u64)
}

#[test]
fn agreement_notices_a_replica_that_skips_an_operation() {
    let mut world = world(60, |_| {});
    begin(&mut world);
    let op = next(&world);
    restart(&mut world, r(2), |world| world.skip_operation(r(2), op));
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::Agreement));
}

#[test]
fn exactly_once_notices_what_is_applied_twice() {
    let mut world = world(61, |_| {});
    begin(&mut world);
    let op = next(&world);
    // All of them: the first to execute is believed to show the order.
    for id in world.replicas() {
        restart(&mut world, id, |world| world.apply_twice(id, op));
    }
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::ExactlyOnce));
}

#[test]
fn results_notice_f_plus_one_equal_lies() {
    let mut world = world(62, |_| {});
    begin(&mut world);
    let op = next(&world);
    for id in [r(1), r(2), r(3)] {
        restart(&mut world, id, |world| world.falsify_answer(id, op));
    }
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::Results));
}

#[test]
fn durability_notices_an_answer_that_nobody_executed() {
    let mut world = world(63, |_| {});
    begin(&mut world);
    world.hook(|_, _| Verdict::Drop);
    // f + 1 replicas make up the same answer to what was never ordered.
    world.submit(0, &[incr("n")]);
    let reply = made_up(&world);
    for id in [r(1), r(2)] {
        world.forge_reply(0, id, reply.clone());
    }
    assert_eq!(found(world.run_for(secs(1))), Some(Oracle::Durability));
}

fn made_up(world: &World) -> Bytes {
    use quorate_types::bundle::{BundleBuilder, bundle_digest};
    use quorate_types::wire::FromReplica;
    use quorate_types::{BundleKind, BundleNo, Outcome, ReplyBundle, View};
    let client = world.client_id(0).unwrap();
    let session = world.session(0).unwrap();
    let mut builder = BundleBuilder::new(BundleKind::Requests, client, session, BundleNo(1));
    let op = KvOp::Increment { key: b"n", by: 1 }.to_bytes();
    builder.push(&[&0u64.to_le_bytes(), &op[..]].concat());
    let outcome: std::sync::Arc<[u8]> = Outcome::Done(vec![KvResult::Number(1).to_bytes()]).to_bytes().into();
    let reply = ReplyBundle {
        session,
        number: BundleNo(1),
        bundle: bundle_digest(&builder.finish()),
        result: ReplyBundle::result_digest(&outcome),
        outcome,
        view: View(0),
        leader: r(0),
    };
    Bytes::from(FromReplica::Reply(client, reply).to_bytes())
}

#[test]
fn same_slot_notices_a_second_statement() {
    let mut world = world(64, |_| {});
    begin(&mut world);
    world.hook(|_, frame| {
        if frame.content.kind != PREPARE || frame.from != r(1) || frame.to != r(3) {
            return Verdict::Pass;
        }
        // To one peer it says something else.
        let block = BlockId(Digest([9; 32]));
        let vote = Vote { view: frame.content.view, height: frame.content.height, block };
        let mut body = Vec::new();
        PbftMessage::Prepare(vote).encode(&mut body);
        Verdict::Replace(Bytes::from(body))
    });
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(1))), Some(Oracle::SameSlot));
}

#[test]
fn same_slot_notices_what_a_rolled_back_disk_forgot() {
    let mut world = world(65, |_| {});
    begin(&mut world);
    world.tolerate(Oracle::Links);
    ask(&mut world, 0, put("k", 1));
    go(world.run_for(secs(1)), &world);
    let old = world.image(r(0)).unwrap();
    // The leader proposes, everybody hears it, nothing comes of it, and nobody hears complaints.
    world.hook(|_, frame| {
        let lost = [PREPARE, SUSPECT].contains(&frame.content.kind);
        if lost { Verdict::Drop } else { Verdict::Pass }
    });
    world.submit(0, &[put("k", 2)]);
    go(world.run_for(ms(100)), &world);
    world.crash(r(0), Survives::Everything);
    go(world.run_for(ms(50)), &world);
    // It forgets that, and proposes something else at the same height.
    world.roll_back_disk(r(0), old);
    world.start(r(0)).unwrap();
    world.submit(1, &[put("k", 3)]);
    assert_eq!(found(world.run_for(secs(20))), Some(Oracle::SameSlot));
}

#[test]
fn links_notice_an_opening_that_counts_as_an_earlier_one() {
    let mut world = world(70, |_| {});
    begin(&mut world);
    restart(&mut world, r(1), |_| {});
    let old = world.image(r(1)).unwrap();
    restart(&mut world, r(1), |_| {});
    for value in 0..5 {
        ask(&mut world, 0, put("k", value));
    }
    world.crash(r(1), Survives::Everything);
    go(world.run_for(ms(100)), &world);
    // Its disk has forgotten the last opening, so this one has the same number.
    world.roll_back_disk(r(1), old);
    world.start(r(1)).unwrap();
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::Links));
}

#[test]
fn held_notices_a_disk_that_only_says_it_synced() {
    let mut world = world(66, |_| {});
    begin(&mut world);
    restart(&mut world, r(1), |world| world.break_syncs(r(1)));
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::Held));
}

#[test]
fn held_notices_a_promise_that_was_never_written() {
    let mut world = world(67, |_| {});
    begin(&mut world);
    world.hook(|_, frame| {
        if frame.content.kind != PREPARE || frame.from != r(1) {
            return Verdict::Pass;
        }
        // A promise about a height that nobody has proposed yet: its guard is not on the disk.
        let height = frame.content.height.plus(5);
        let vote = Vote { view: frame.content.view, height, block: BlockId(Digest([9; 32])) };
        let mut body = Vec::new();
        PbftMessage::Prepare(vote).encode(&mut body);
        Verdict::Replace(Bytes::from(body))
    });
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(1))), Some(Oracle::Held));
}

#[test]
fn liveness_notices_more_silent_replicas_than_a_protocol_tolerates() {
    let mut world = world(68, |_| {});
    begin(&mut world);
    let height = world.height();
    world.hook(|_, frame| if frame.from <= r(1) { Verdict::Drop } else { Verdict::Pass });
    world.submit(1, &[incr("n")]);
    let result = world.run_while("something is executed", secs(30), |world| world.height() == height);
    assert_eq!(found(result), Some(Oracle::Liveness));
}

#[test]
fn stopped_notices_a_replica_whose_state_went_astray() {
    let mut world = world(69, short_window);
    begin(&mut world);
    let op = next(&world);
    restart(&mut world, r(2), |world| world.skip_operation(r(2), op));
    world.tolerate(Oracle::Agreement);
    for value in 0..12 {
        world.submit(0, &[incr("n"), put("k", value)]);
        if let Err(failure) = world.run_for(ms(200)) {
            assert_eq!(failure.oracle, Oracle::Stopped, "{failure}");
            return;
        }
    }
    panic!("its checkpoint differs from the stable one, and it goes on");
}
