//! Transfers of state, for every protocol: a replica that is too far behind, or whose own state is lost, receives one.

use crate::side_by_side::run_all;
use crate::support::{
    ask, begin, drop_frames, go, latency, many, put, r, refused, settle, short_window, wait_for, world_of,
};
use quorate_consensus::{CheckpointProof, Entry};
use quorate_protocols::{REGISTRY, find};
use quorate_sim::{
    Fault, Frame, Heights, HostMessage, PieceAt, Plan, ReplicaState, StateOffer, Survives, TransferMessage,
    Verdict, World, ms, secs,
};
use quorate_types::codec::Wire as _;
use quorate_types::wire::frame;
use quorate_types::{Height, Incarnation, ReplicaId};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// One protocol of each family.
const FAMILIES: [&str; 5] = ["pbft", "hotstuff", "sync-hotstuff", "apollo", "artemis"];

/// Returns the last replica of a world.
fn last(world: &World) -> ReplicaId {
    world.replicas().last().unwrap()
}

/// Returns a world in which the last replica was off until no other keeps its next height.
fn off_for_long(entry: &Entry, seed: u64) -> World {
    let mut world = world_of(entry, seed, |settings| {
        short_window(settings);
        settings.storage.segment_bytes = 32 << 10;
        settings.storage.keep_bytes = 32 << 10;
        settings.storage.snapshot_every_bytes = 24 << 10;
    });
    begin(&mut world);
    let absent = last(&world);
    world.crash(absent, Survives::Some);
    many(&mut world, 150);
    for id in world.replicas().filter(|id| *id != absent) {
        let kept = world.status(id).unwrap().kept;
        assert!(kept > world.executed(absent).next(), "{}: {id} keeps {kept}", entry.spec.name);
    }
    world
}

/// Starts the last replica, and checks that it comes back and is as good as the others.
fn comes_back(world: &mut World) {
    let absent = last(world);
    world.start(absent).unwrap();
    comes_back_by_itself(world);
}

fn comes_back_by_itself(world: &mut World) {
    let absent = last(world);
    settle(world);
    let status = world.status(absent).unwrap();
    assert_eq!(status.state, ReplicaState::Current, "{status}");
    assert!(status.incarnation > Incarnation(2), "the replica was opened on the state: {status}");
    if world.settings().entry.spec.replaces_leader {
        // The replica is needed again.
        world.crash(r(1), Survives::Some);
        ask(world, 0, put("k", "last"));
    }
}

/// Runs a scenario with each of these protocols, on all cores.
fn with_each(names: &[&str], scenario: impl Fn(&'static Entry) + Sync) {
    let places: Vec<u64> = (0..names.len() as u64).collect();
    run_all(&places, |place| scenario(find(names[place as usize]).unwrap()));
}

/// Reads the transfer message in a frame.
fn transfer_in(frame: &Frame) -> Option<TransferMessage> {
    match (frame.frame_type == frame::HOST).then(|| HostMessage::from_bytes(&frame.body)) {
        Some(Ok(HostMessage::Transfer(message))) => Some(message),
        _ => None,
    }
}

/// Returns a test for messages of the liar: the peer whose message is asked about first.
fn liar() -> impl FnMut(&Frame) -> bool {
    let mut liar = None;
    move |frame| *liar.get_or_insert(frame.from) == frame.from
}

fn replaced(message: TransferMessage) -> Verdict {
    Verdict::Replace(HostMessage::Transfer(message).to_bytes().into())
}

#[test]
fn replica_whose_heights_are_gone_comes_back_under_every_protocol() {
    let names: Vec<&str> = REGISTRY.iter().map(|entry| entry.spec.name.as_str()).collect();
    with_each(&names, |entry| comes_back(&mut off_for_long(entry, 1)));
}

/// A receiver that hears of no proof but that of its state: the checkpoint is stable at the opening.
#[test]
fn received_state_is_a_stable_checkpoint() {
    with_each(&FAMILIES, |entry| {
        let mut world = off_for_long(entry, 20);
        let absent = last(&world);
        let before = world.executed(absent).0;
        let hears = Rc::new(Cell::new(false));
        let hears_proofs = Rc::clone(&hears);
        drop_frames(&mut world, move |frame| {
            let told = (frame.frame_type == frame::HOST).then(|| HostMessage::from_bytes(&frame.body));
            let is_proof = matches!(told, Some(Ok(HostMessage::Proof(_) | HostMessage::ShownProof(_))));
            let is_checkpoint = frame.content.kind.as_str() == "checkpoint";
            frame.to == absent && (is_proof || is_checkpoint) && !hears_proofs.get()
        });
        world.start(absent).unwrap();
        let is_behind = |world: &World| world.executed(absent).0 < before + 20;
        go(world.run_while("a state is received", secs(30), is_behind), &world);
        let status = world.status(absent).unwrap();
        assert!(status.stable.0 >= before + 20, "{status}");
        // A backup of the stopped node has that state as well.
        world.crash(absent, Survives::Everything);
        go(world.run_for(ms(50)), &world);
        let backed_up = world.backed_up(absent);
        assert!(backed_up.as_ref().is_ok_and(|height| height.0 >= before + 20), "{backed_up:?}");
        world.start(absent).unwrap();
        hears.set(true);
        settle(&mut world);
    });
}

/// A liar changes a byte in each chunk that it sends. The receiver names it, and asks others.
#[test]
fn false_chunk_is_noticed_and_another_peer_is_asked() {
    with_each(&FAMILIES, |entry| {
        let mut world = off_for_long(entry, 2);
        let mut is_liar = liar();
        world.hook(move |_, frame| match transfer_in(frame) {
            Some(TransferMessage::Piece(at, mut bytes)) if is_liar(frame) => {
                bytes[0] ^= 1;
                replaced(TransferMessage::Piece(at, bytes))
            }
            _ => Verdict::Pass,
        });
        comes_back(&mut world);
        assert_eq!(refused(&world, "chunk differs from its digest"), 1, "the liar is asked once");
    });
}

/// M23: a liar sends the chunk of another index, which is right in itself.
#[test]
fn chunk_of_another_index_is_noticed() {
    let mut world = off_for_long(find("pbft").unwrap(), 3);
    let chunks: Rc<Cell<BTreeMap<u32, Vec<u8>>>> = Rc::default();
    let mut is_liar = liar();
    world.hook(move |_, frame| match transfer_in(frame) {
        Some(TransferMessage::Piece(at, bytes)) if is_liar(frame) => {
            let mut known = chunks.take();
            let other = known.values().find(|known| known.len() == bytes.len() && **known != bytes).cloned();
            known.insert(at.index, bytes);
            chunks.set(known);
            other.map_or(Verdict::Pass, |other| replaced(TransferMessage::Piece(at, other)))
        }
        _ => Verdict::Pass,
    });
    comes_back(&mut world);
    assert_eq!(refused(&world, "chunk differs from its digest"), 1);
}

/// Changes the offers of the first peer that makes one.
fn with_offers(world: &mut World, change: impl Fn(&mut StateOffer) + 'static) {
    let mut is_liar = liar();
    world.hook(move |_, frame| match transfer_in(frame) {
        Some(TransferMessage::State(mut offer)) if is_liar(frame) => {
            change(&mut offer);
            replaced(TransferMessage::State(offer))
        }
        _ => Verdict::Pass,
    });
}

/// Each part of an offer follows from the signed state: no liar can change one of them.
#[test]
fn offer_that_is_not_the_signed_state_is_noticed() {
    let changes: [fn(&mut StateOffer); 6] = [
        |offer| offer.chunks[7].length += 1,
        |offer| offer.chunks[7].digest.0[0] ^= 1,
        |offer| {
            let other = offer.chunks.iter().position(|id| *id != offer.chunks[0]).unwrap();
            offer.chunks.swap(0, other);
        },
        |offer| offer.chunks.truncate(300),
        |offer| offer.header[2] ^= 1,
        |offer| *offer.header.last_mut().unwrap() ^= 1,
    ];
    for change in changes {
        let mut world = off_for_long(find("pbft").unwrap(), 4);
        with_offers(&mut world, change);
        comes_back(&mut world);
        assert_eq!(refused(&world, "state is not the signed one"), 1);
    }
}

/// The signatures of an offer are checked before anything else.
#[test]
fn offer_without_the_signatures_of_a_quorum_is_refused() {
    type Change = fn(&mut CheckpointProof);
    let changes: [(&str, Change); 4] = [
        ("proof of another checkpoint", |proof| proof.checkpoint.height = proof.checkpoint.height.next()),
        ("proof of another checkpoint", |proof| proof.checkpoint.state.0[0] ^= 1),
        ("too few signers", |proof| {
            let signers: Vec<ReplicaId> = proof.certificate.signers.iter().skip(1).collect();
            proof.certificate.signers = signers.into_iter().collect();
        }),
        ("bad signature", |proof| {
            let mut bytes = proof.to_bytes();
            *bytes.last_mut().unwrap() ^= 1;
            *proof = CheckpointProof::from_bytes(&bytes).unwrap();
        }),
    ];
    for (why, change) in changes {
        let mut world = off_for_long(find("pbft").unwrap(), 5);
        with_offers(&mut world, move |offer| change(&mut offer.proof));
        comes_back(&mut world);
        assert!(refused(&world, why) > 0, "{why}: {:?}", world.rejected());
    }
}

/// Peers that answer nothing, or with parts that nobody asked for, delay the transfer by their share and no more.
#[test]
fn silent_peer_is_replaced() {
    with_each(&FAMILIES, |entry| {
        for sends_noise in [false, true] {
            let mut world = off_for_long(entry, 6);
            let mut is_liar = liar();
            world.hook(move |_, frame| match transfer_in(frame) {
                Some(TransferMessage::Piece(at, bytes)) if is_liar(frame) => {
                    let at = PieceAt { offset: at.offset + 1, ..at };
                    if sends_noise { replaced(TransferMessage::Piece(at, bytes)) } else { Verdict::Drop }
                }
                _ => Verdict::Pass,
            });
            let began = world.now();
            comes_back(&mut world);
            assert!(world.now().since(began) < secs(20), "{}", entry.spec.name);
        }
    });
}

/// M22: a liar reports a height that nobody has reached, and claims to keep everything. The replica does not wait for it.
#[test]
fn liar_about_its_heights_keeps_nobody_out() {
    with_each(&FAMILIES, |entry| {
        let mut world = off_for_long(entry, 7);
        world.hook(move |_, frame| {
            match (frame.from == r(0)).then(|| HostMessage::from_bytes(&frame.body)) {
                Some(Ok(HostMessage::Heights(heights))) if frame.frame_type == frame::HOST => {
                    let heights = Heights { executed: Height(1 << 60), kept: Height(1), ..heights };
                    Verdict::Replace(HostMessage::Heights(heights).to_bytes().into())
                }
                _ => Verdict::Pass,
            }
        });
        comes_back(&mut world);
    });
}

/// The peers write newer snapshots while a slow transfer goes on, and drop the one that is being received.
#[test]
fn state_that_is_gone_before_its_end_is_replaced_by_a_newer_one() {
    with_each(&FAMILIES, |entry| {
        let mut world = off_for_long(entry, 8);
        let (gone, held) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0_i64)));
        let (counted, holding) = (Rc::clone(&gone), Rc::clone(&held));
        world.hook(move |_, frame| match transfer_in(frame) {
            Some(TransferMessage::NoPiece(_)) => {
                counted.set(counted.get() + 1);
                Verdict::Pass
            }
            Some(TransferMessage::AskPiece(_)) if holding.get() >= 0 => {
                holding.set(holding.get() + 1);
                Verdict::Hold
            }
            _ => Verdict::Pass,
        });
        world.start(last(&world)).unwrap();
        go(world.run_while("parts are requested", secs(20), |_| held.get() == 0), &world);
        many(&mut world, 300);
        held.set(-1);
        world.release();
        comes_back_by_itself(&mut world);
        assert!(gone.get() > 0, "{}: the peers have kept the snapshot", entry.spec.name);
    });
}

fn is_behind(world: &World, id: ReplicaId) -> bool {
    world.status(id).is_none_or(|status| {
        // A replica that was just opened has heard of nobody yet.
        status.state != ReplicaState::Current || status.executed < world.height().minus(8)
    })
}

/// The power is cut at each change of the disk and each flush from the start to the end of a transfer.
#[test]
fn power_cut_at_every_step_of_a_transfer_loses_nothing() {
    with_each(&FAMILIES, |entry| {
        let steps = {
            let mut world = off_for_long(entry, 9);
            let absent = last(&world);
            let before = world.steps(absent);
            world.start(absent).unwrap();
            go(world.run_while("the replica is back", secs(30), |world| is_behind(world, absent)), &world);
            world.steps(absent) - before
        };
        assert!(steps > 25, "{}: {steps} steps", entry.spec.name);
        // Every step of one protocol, and some of the others, whose code below is the same.
        let stride = if entry.spec.name.as_str() == "pbft" { 1 } else { (steps / 20).max(1) as usize };
        let survives = [Survives::Nothing, Survives::Some, Survives::Everything];
        for (step, survives) in (1..=steps).step_by(stride).zip(survives.iter().cycle()) {
            let mut world = off_for_long(entry, 9);
            let absent = last(&world);
            world.crash_at_step(absent, step, *survives);
            // The power may go while the replica is opened.
            let _ = world.start(absent);
            let runs = |world: &World| world.is_running(absent) && is_behind(world, absent);
            go(world.run_while("the power goes", secs(30), runs), &world);
            world.disarm();
            go(world.run_for(ms(50)), &world);
            world.start(absent).unwrap_or_else(|why| panic!("{} step {step}: {why}", entry.spec.name));
            comes_back_by_itself(&mut world);
        }
    });
}

/// A replica whose snapshots are damaged has its promises, and receives a state.
#[test]
fn replica_with_damaged_snapshots_comes_back() {
    with_each(&FAMILIES, |entry| {
        let mut world = off_for_long(entry, 10);
        comes_back(&mut world);
        let absent = last(&world);
        world.start(r(1)).unwrap();
        settle(&mut world);
        world.plan(world.now(), Plan::Damage(absent, Fault::RotInSnapshot));
        go(world.run_for(ms(1)), &world);
        world.crash(absent, Survives::Everything);
        go(world.run_for(ms(200)), &world);
        comes_back(&mut world);
    });
}

/// M20: the others answer clients as fast as before while a replica receives a state and catches up.
#[test]
fn transfer_delays_no_client() {
    let names: Vec<&str> = REGISTRY.iter().map(|entry| entry.spec.name.as_str()).collect();
    with_each(&names, |entry| {
        let mut world = off_for_long(entry, 12);
        let absent = last(&world);
        let measure = |world: &mut World, value: usize| {
            let id = ask(world, value % 4, put("k", value));
            latency(world, id)
        };
        let before = (0..20).map(|value| measure(&mut world, value)).max().unwrap();
        let transfers = world.transfers();
        world.start(absent).unwrap();
        let during = (0..40).map(|value| measure(&mut world, value)).max().unwrap();
        assert!(during < 2 * before + ms(5), "{}: {during} ns, before {before} ns", entry.spec.name);
        comes_back_by_itself(&mut world);
        assert!(world.transfers() > transfers, "{}: no state was sent", entry.spec.name);
    });
}

/// Returns a world in which the last replica was off for 150 requests, whose blocks all others keep. It has received no answer
/// about them for 10 s after its start.
fn far_behind(entry: &Entry, seed: u64, value_bytes: usize) -> World {
    let mut world = world_of(entry, seed, |settings| {
        short_window(settings);
        settings.storage.far_heights = 20;
        settings.storage.segment_bytes = 1 << 20;
        settings.bodies.bundle_bytes_max = 256 << 10;
        settings.bodies.block_bytes_max = 512 << 10;
        settings.bodies.request_bytes_max = 64 << 10;
        settings.storage.snapshot_every_bytes = 24 << 10;
        settings.storage.disk_bytes_max = 64 << 20;
        settings.storage.keep_bytes = 32 << 20;
    });
    begin(&mut world);
    let absent = last(&world);
    world.crash(absent, Survives::Some);
    for bundle in 0..20 {
        let puts = [0, 1, 2, 3].map(|part| put(&format!("large{bundle}-{part}"), "v".repeat(value_bytes)));
        let ids = world.submit(0, &puts);
        wait_for(&mut world, &ids, secs(60));
    }
    many(&mut world, 130);
    world.hook(|_, frame| match HostMessage::from_bytes(&frame.body) {
        Ok(HostMessage::Decided(..)) if frame.frame_type == frame::HOST => Verdict::Drop,
        _ => Verdict::Pass,
    });
    world.start(absent).unwrap();
    go(world.run_for(secs(10)), &world);
    world
}

/// The state is smaller than the missing blocks, so a replica that is far behind takes it although its peers keep the blocks.
#[test]
fn replica_that_is_far_behind_takes_a_small_state() {
    let mut world = far_behind(find("pbft").unwrap(), 13, 10);
    let absent = last(&world);
    assert!(world.status(absent).unwrap().kept > Height(100), "no state came");
    world.unhook();
    comes_back_by_itself(&mut world);
}

/// A state that costs more than the missing blocks is not requested: the blocks come.
#[test]
fn replica_that_is_far_behind_takes_no_large_state() {
    let mut world = far_behind(find("pbft").unwrap(), 14, 50_000);
    let absent = last(&world);
    world.unhook();
    go(world.run_while("the replica has all blocks", secs(30), |world| !world.is_level()), &world);
    let status = world.status(absent).unwrap();
    assert_eq!((status.state, status.incarnation), (ReplicaState::Current, Incarnation(2)), "{status}");
}

/// A replica that receives no state for long keeps taking part in the protocol, and does not keep more and more blocks.
#[test]
fn replica_that_waits_for_a_state_keeps_few_blocks() {
    with_each(&FAMILIES, |entry| {
        let mut world = off_for_long(entry, 11);
        let hold = Rc::new(Cell::new(true));
        let holds = Rc::clone(&hold);
        world.hook(move |_, frame| match transfer_in(frame) {
            Some(TransferMessage::State(_)) if holds.get() => Verdict::Drop,
            _ => Verdict::Pass,
        });
        let absent = last(&world);
        world.start(absent).unwrap();
        let mut most = 0;
        for _ in 0..20 {
            many(&mut world, 20);
            most = world.status(absent).unwrap().blocks.max(most);
        }
        assert!(most < 120, "{}: {most} blocks", entry.spec.name);
        hold.set(false);
        comes_back_by_itself(&mut world);
    });
}
