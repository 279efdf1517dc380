//! An oracle that never fires proves nothing: each oracle is shown a failure that it must report.

use crate::support::{ask, begin, go, incr, put, r, restart, short_window, world};
use quorate_protocols::pbft::{PREPARE, PbftMessage, SUSPECT, Vote};
use quorate_sim::{Bytes, Failure, KvOp, KvResult, OpId, Oracle, Survives, Verdict, World, ms, secs};
use quorate_types::codec::Wire as _;
use quorate_types::{BlockId, Digest};

fn found(result: Result<(), Failure>) -> Option<Oracle> {
    result.err().map(|failure| failure.oracle)
}

/// Returns the number of the next operation in the history.
fn next(world: &World) -> OpId {
    OpId(world.history().records().len() as u64)
}

#[test]
fn agreement_oracle_notices_a_replica_that_skips_an_operation() {
    let mut world = world(60, |_| {});
    begin(&mut world);
    let op = next(&world);
    restart(&mut world, r(2), |world| world.skip_operation(r(2), op));
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::Agreement));
}

#[test]
fn exactly_once_oracle_notices_an_operation_that_is_applied_twice() {
    let mut world = world(61, |_| {});
    begin(&mut world);
    let op = next(&world);
    // All replicas do so, because the first one to execute defines the order for the oracle.
    for id in world.replicas() {
        restart(&mut world, id, |world| world.apply_twice(id, op));
    }
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::ExactlyOnce));
}

#[test]
fn results_oracle_notices_f_plus_one_equal_false_replies() {
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
fn durability_oracle_notices_a_reply_without_an_execution() {
    let mut world = world(63, |_| {});
    begin(&mut world);
    world.hook(|_, _| Verdict::Drop);
    // f + 1 replicas invent the same reply to an operation that was never ordered.
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
fn same_slot_oracle_notices_a_second_statement() {
    let mut world = world(64, |_| {});
    begin(&mut world);
    world.hook(|_, frame| {
        if frame.content.kind != PREPARE || frame.from != r(1) || frame.to != r(3) {
            return Verdict::Pass;
        }
        // The replica sends another statement to one peer.
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
fn same_slot_oracle_notices_a_rolled_back_disk() {
    let mut world = world(65, |_| {});
    begin(&mut world);
    world.tolerate(Oracle::Links);
    ask(&mut world, 0, put("k", 1));
    go(world.run_for(secs(1)), &world);
    let old = world.image(r(0)).unwrap();
    // The leader proposes, and all receive the proposal. No votes and no complaints arrive.
    world.hook(|_, frame| {
        let lost = [PREPARE, SUSPECT].contains(&frame.content.kind);
        if lost { Verdict::Drop } else { Verdict::Pass }
    });
    world.submit(0, &[put("k", 2)]);
    go(world.run_for(ms(100)), &world);
    world.crash(r(0), Survives::Everything);
    go(world.run_for(ms(50)), &world);
    // The leader forgets the proposal, and proposes another block at the same height.
    world.roll_back_disk(r(0), old);
    world.start(r(0)).unwrap();
    world.submit(1, &[put("k", 3)]);
    assert_eq!(found(world.run_for(secs(20))), Some(Oracle::SameSlot));
}

#[test]
fn links_oracle_notices_a_repeated_incarnation() {
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
    // The disk has forgotten the last opening, so this one has the same number.
    world.roll_back_disk(r(1), old);
    world.start(r(1)).unwrap();
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::Links));
}

#[test]
fn held_oracle_notices_a_disk_that_reports_a_sync_without_doing_it() {
    let mut world = world(66, |_| {});
    begin(&mut world);
    restart(&mut world, r(1), |world| world.break_syncs(r(1)));
    world.submit(0, &[incr("n")]);
    assert_eq!(found(world.run_for(secs(5))), Some(Oracle::Held));
}

#[test]
fn held_oracle_notices_a_promise_that_was_never_recorded() {
    let mut world = world(67, |_| {});
    begin(&mut world);
    world.hook(|_, frame| {
        if frame.content.kind != PREPARE || frame.from != r(1) {
            return Verdict::Pass;
        }
        // The promise concerns a height without a proposal, so its guard entry is not on the disk.
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
fn stopped_oracle_notices_a_replica_with_a_different_state() {
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
    panic!("the replica's checkpoint differs from the stable one, and the replica continues");
}
