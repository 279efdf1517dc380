//! Attacks on progress: by a Byzantine replica, by a client that helps it, or by bad timing.

use crate::support::{begin, both, go, incr, put, r, settle, wait_for, world, world_of};
use quorate_consensus::{CheckpointProof, Entry, To};
use quorate_protocols::pbft::{BlockClaim, PbftMessage, SUSPECT, ViewChange};
use quorate_sim::{Survives, World, ms, secs};
use quorate_types::bundle::BundleBuilder;
use quorate_types::wire::frame;
use quorate_types::{Block, BlockId, BundleKind, BundleNo, Digest, Height, PayloadId, View};
use std::collections::BTreeSet;

fn view(world: &World, id: u16) -> View {
    world.status(r(id)).unwrap().view
}

/// A replica loses power while it records that it leaves a view, and only a part of the record is on disk. The two
/// other replicas need its VIEW-CHANGE, and receive it after its recovery.
fn view_change_completes_after_a_power_cut_of_a_leaving_replica(entry: &Entry) {
    let mut torn = 0;
    for seed in 0..12 {
        for step in 1..=2 {
            let mut world = world_of(entry, 9_000 + seed, |_| {});
            begin(&mut world);
            for number in 0..10 {
                let ids = world.submit(number % 4, &[put("k", number)]);
                wait_for(&mut world, &ids, secs(5));
            }
            settle(&mut world);
            world.crash(r(0), Survives::Everything);
            let ids = world.submit(1, &[incr("n")]);
            let suspects = |world: &World| world.sent().get(&SUSPECT).copied().unwrap_or(0);
            go(world.run_while("the first suspicion", secs(5), |world| suspects(world) == 0), &world);
            world.crash_at_step(r(3), step, Survives::Some);
            let _ = world.run_while("the power goes", secs(3), |world| world.is_running(r(3)));
            if world.is_running(r(3)) {
                world.disarm();
                continue;
            }
            go(world.run_for(ms(100)), &world);
            world.start(r(3)).unwrap();
            torn += u32::from(view(&world, 3) > View(0));
            wait_for(&mut world, &ids, secs(20));
        }
    }
    assert!(torn > 0, "no run tears the record of a view that is left");
}

both! { view_change_completes_after_a_power_cut_of_a_leaving_replica }

/// A client sends a bundle to one backup alone, and a Byzantine replica is the second one that suspects the leader.
#[test]
fn bundle_that_one_backup_alone_receives_replaces_no_leader() {
    let mut world = world(9_100, |_| {});
    begin(&mut world);
    settle(&mut world);
    world.take_control(r(3));
    let (session, key) = (world.session(3).unwrap(), world.client_id(3).unwrap());
    let mut seen = BTreeSet::new();
    for round in 0..100u64 {
        let ids = world.submit(0, &[incr("n")]);
        wait_for(&mut world, &ids, secs(10));
        let highest = (0..3).map(|id| view(&world, id)).max().unwrap();
        world.send_as(r(3), To::All, &PbftMessage::Suspect { view: highest, on: true });
        if round.is_multiple_of(10) {
            let mut builder =
                BundleBuilder::new(BundleKind::Requests, key, session, BundleNo(100 + round / 10));
            builder.push(b"x");
            let sealed = world.bundle_signed_by(3, builder.finish());
            let leader = highest.0 % 4;
            let victim = (0..3).find(|id| u64::from(*id) != leader).unwrap();
            world.send_frame_as(r(3), To::One(r(victim)), frame::BUNDLE, sealed.slice(1..));
        }
        seen.insert(highest);
        go(world.run_for(ms(100)), &world);
    }
    assert_eq!(seen, BTreeSet::from([View(0)]), "the leader receives each bundle in time");
}

/// A Byzantine VIEW-CHANGE names as many blocks as it can. It is refused, because the next leader could not record its
/// NEW-VIEW otherwise.
#[test]
fn oversized_view_change_is_refused() {
    for (blocks, heights) in [(64u8, 24u64), (4, 96), (64, 1)] {
        let mut world = world(9_200, |settings| {
            settings.checkpoint_every = 24;
            settings.window = 96;
        });
        begin(&mut world);
        settle(&mut world);
        world.take_control(r(0));
        let entries = (1..=heights).flat_map(|height| {
            (0..blocks).map(move |number| BlockClaim {
                height: Height(height),
                block: BlockId(Digest([number; 32])),
                view: View(0),
            })
        });
        let change = ViewChange {
            view: View(1),
            proof: CheckpointProof::genesis(),
            prepared: Vec::new(),
            pre_prepared: entries.collect(),
            certified: Vec::new(),
        };
        world.send_as(r(0), To::All, &PbftMessage::ViewChange(Box::new(change)));
        let ids = world.submit(1, &[incr("n")]);
        wait_for(&mut world, &ids, secs(10));
        assert_eq!(view(&world, 2), View(1), "{blocks} blocks at {heights} heights");
    }
}

/// Proposals without available bodies cost little at any time, and decided blocks are fetched all the same.
#[test]
fn proposals_without_bodies_cost_few_frames() {
    let mut world = world(9_300, |settings| {
        settings.checkpoint_every = 64;
        settings.window = 256;
    });
    begin(&mut world);
    settle(&mut world);
    world.take_control(r(0));
    let next = world.height().next();
    for number in 1..=200u64 {
        let block = Block {
            parent: BlockId::ZERO,
            height: next.plus(number),
            view: View(0),
            proposer: r(0),
            time_ns: 1,
            payload: PayloadId(Digest([u8::try_from(number).unwrap(); 32])),
            extra: Digest::ZERO,
        };
        world.send_as(r(0), To::All, &PbftMessage::PrePrepare { view: View(0), block });
    }
    let ids = world.submit(1, &[incr("n")]);
    wait_for(&mut world, &ids, secs(10));
    go(world.run_for(secs(20)), &world);
    let sent = |world: &World| world.sent().values().sum::<u64>();
    let before = sent(&world);
    go(world.run_for(secs(60)), &world);
    let frames = sent(&world) - before;
    // Three replicas request 200 blocks every two seconds, and their peers answer that they do not have them.
    assert!(frames < 3 * 2 * 200 * 30 + 2_000, "{frames} frames in an idle minute");
}
