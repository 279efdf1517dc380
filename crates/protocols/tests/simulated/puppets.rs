//! Replicas that say what a test writes for them: each lie in its worst moment. Safety holds, nobody honest is taken
//! for a liar (the oracles see to both), and the others go on within the bound of the specification.

use crate::support::{
    VIEW_CHANGE_NS, begin, drop_frames, go, incr, level, put, r, refused, settle_honest, spread_bundle,
    wait_for, world,
};
use quorate_consensus::{CheckpointProof, Signed, To};
use quorate_protocols::pbft::{
    BlockClaim, COMMIT, EntryProof, PRE_PREPARE, PREPARE, PbftMessage, ViewChange, Vote,
};
use quorate_sim::{Bytes, ControlledInput, Settings, World, ms, secs};
use quorate_types::wire::frame;
use quorate_types::{Block, BlockId, Digest, Height, Kind, Payload, ReplicaId, ReplicaSet, View, Wire as _};

/// A world at rest with one controlled replica in it. No checkpoint comes while a test runs.
fn with_controlled(seed: u64, controlled: ReplicaId, change: impl FnOnce(&mut Settings)) -> World {
    let mut world = world(seed, |settings| {
        settings.checkpoint_every = 64;
        settings.window = 128;
        change(settings);
    });
    begin(&mut world);
    level(&mut world);
    world.take_control(controlled);
    world
}

fn some(ids: &[u16]) -> To {
    To::Some(ids.iter().map(|id| r(*id)).collect::<ReplicaSet>())
}

fn view(world: &World, id: u16) -> View {
    world.status(r(id)).unwrap().view
}

fn block(height: Height, view: View, proposer: ReplicaId, payload: &Payload, time_ns: u64) -> Block {
    Block {
        parent: BlockId::ZERO,
        height,
        view,
        proposer,
        time_ns,
        payload: payload.id(),
        extra: Digest::ZERO,
    }
}

fn pre_prepare(block: &Block) -> PbftMessage {
    PbftMessage::PrePrepare { view: block.view, block: block.clone() }
}

/// Scenario 4: the leader proposes two blocks for one height, and stands by both of them with COMMITs of its own.
#[test]
fn s04_an_equivocating_leader_with_two_faces() {
    for (seed, one, other) in
        [(300, [1].as_slice(), [2, 3].as_slice()), (301, &[1, 2], &[2, 3]), (302, &[3], &[1])]
    {
        let mut world = with_controlled(seed, r(0), |_| {});
        let height = world.height().next();
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        let payload = spread_bundle(&mut world, r(0));
        for (group, time_ns) in [(one, 1), (other, 2)] {
            let block = block(height, View(0), r(0), &payload, time_ns);
            let commit = PbftMessage::Commit(Vote { view: View(0), height, block: block.id() });
            world.send_as(r(0), some(group), &pre_prepare(&block));
            world.send_as(r(0), some(group), &commit);
        }
        wait_for(&mut world, &ids, 2 * VIEW_CHANGE_NS);
        settle_honest(&mut world);
    }
}

/// What a replica says that has prepared nothing.
fn empty_change(view: View) -> ViewChange {
    ViewChange {
        view,
        proof: CheckpointProof::genesis(),
        prepared: Vec::new(),
        pre_prepared: Vec::new(),
        certified: Vec::new(),
    }
}

fn own_view_change(world: &World, by: ReplicaId, change: ViewChange) -> Signed<ViewChange> {
    let signature = world.sign(by, &change.statement());
    Signed { body: change, by, signature }
}

/// Scenario 6: a VIEW-CHANGE that claims to have prepared, in the highest view, a block that nobody has seen. The new
/// leader hears it first, waits for one more honest one, and the block is never chosen.
#[test]
fn s06_an_invented_entry_chooses_nothing() {
    for (seed, with_q, heights) in [(310, true, 9..=9), (311, false, 1..=30), (312, true, 1..=128)] {
        let mut world = with_controlled(seed, r(0), |_| {});
        let entries: Vec<BlockClaim> = heights
            .map(|height| BlockClaim {
                height: Height(height),
                block: BlockId(Digest([u8::try_from(height).unwrap(); 32])),
                view: View(0),
            })
            .collect();
        let claims_of_q = if with_q { entries.clone() } else { Vec::new() };
        let change = ViewChange { prepared: entries, pre_prepared: claims_of_q, ..empty_change(View(1)) };
        world.send_as(r(0), To::All, &PbftMessage::ViewChange(Box::new(change)));
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        wait_for(&mut world, &ids, 2 * VIEW_CHANGE_NS);
        assert_eq!(view(&world, 2), View(1), "the first view change was enough");
        settle_honest(&mut world);
    }
}

/// A leader that leaves heights out: what it proposed above them keeps its block, and the next view fills the holes
/// with nothing. What lies outside of the window is refused.
#[test]
fn a_leader_that_skips_heights_is_replaced() {
    for (seed, skip) in [(330, 1), (331, 5), (332, 40), (333, 1_000)] {
        let mut world = with_controlled(seed, r(0), |_| {});
        let height = world.height().plus(1 + skip);
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        let payload = spread_bundle(&mut world, r(0));
        let block = block(height, View(0), r(0), &payload, 1);
        world.send_as(r(0), To::All, &pre_prepare(&block));
        wait_for(&mut world, &ids, 2 * VIEW_CHANGE_NS);
        if skip < 128 {
            assert!(world.height() >= height, "{}: the block stays where it was prepared", world.height());
        } else {
            assert!(refused(&world, "height above the window") >= 3, "{:?}", world.rejected());
        }
        settle_honest(&mut world);
    }
}

/// Words of others count for nothing in another's mouth, and own words count once.
/// Replica 1 hears these kinds of messages from replica 3 alone.
fn hears_from_replica_3_alone(world: &mut World, kinds: Vec<Kind>) {
    drop_frames(world, move |frame| {
        frame.to == r(1) && frame.from != r(3) && kinds.contains(&frame.content.kind)
    });
}

#[test]
fn votes_in_the_name_of_others_count_for_nothing() {
    for (seed, kind) in [(340, PREPARE), (341, COMMIT)] {
        let mut world = with_controlled(seed, r(3), |_| {});
        let before = world.height();
        hears_from_replica_3_alone(&mut world, vec![PREPARE, COMMIT, Kind::new("host.decided")]);
        let ids = world.submit(0, &[incr("n")]);
        let mut said = 0;
        for _ in 0..600 {
            go(world.run_for(ms(1)), &world);
            for heard in world.received(r(3)) {
                let ControlledInput::Frame { body, content, frame_type: frame::PROTOCOL, .. } = heard else {
                    continue;
                };
                // What the others say, again and again, as if it were the controlled replica's.
                if content.kind == PREPARE || content.kind == kind {
                    said += 1;
                    for _ in 0..5 {
                        world.send_frame_as(r(3), To::All, frame::PROTOCOL, body.clone());
                    }
                }
            }
        }
        assert!(said >= 2, "{said}");
        assert_eq!(world.executed(r(1)), before, "its own COMMIT and one more: no quorum");
        wait_for(&mut world, &ids, secs(1));
        world.unhook();
        settle_honest(&mut world);
    }
}

/// A backup that votes for two blocks, again and again, and to the same replica: its first vote counts, and no other.
#[test]
fn of_two_votes_the_first_one_counts() {
    let mut world = with_controlled(343, r(3), |_| {});
    let before = world.height();
    hears_from_replica_3_alone(&mut world, vec![COMMIT, Kind::new("host.decided")]);
    let ids = world.submit(0, &[incr("n")]);
    let mut said = 0;
    for _ in 0..600 {
        go(world.run_for(ms(1)), &world);
        for heard in world.received(r(3)) {
            let ControlledInput::Frame { body, frame_type: frame::PROTOCOL, .. } = heard else { continue };
            let Ok(PbftMessage::Commit(vote)) = PbftMessage::from_bytes(&body) else { continue };
            let other = Vote { block: BlockId(Digest([9; 32])), ..vote };
            for lie in [other, vote, other, vote, vote] {
                said += 1;
                world.send_as(r(3), To::All, &PbftMessage::Commit(lie));
            }
        }
    }
    assert!(said >= 10 && refused(&world, "equivocation") >= 3, "{said}: {:?}", world.rejected());
    assert_eq!(
        world.executed(r(1)),
        before,
        "its own COMMIT, and none of a liar that stands by another block"
    );
    wait_for(&mut world, &ids, secs(1));
    world.unhook();
    settle_honest(&mut world);
}

/// Signed words of others cannot be made up: neither directly nor inside of evidence.
#[test]
fn view_changes_in_the_name_of_others_are_refused() {
    let mut world = with_controlled(345, r(3), |_| {});
    let change = empty_change(View(1));
    let forged = |by: u16| Signed { by: r(by), ..own_view_change(&world, r(3), change.clone()) };
    let proof = EntryProof::ViewChanges(vec![forged(0), forged(1), forged(2)]);
    let lies = [
        world.seal(r(3), &PbftMessage::Entry { view: View(1), proof }),
        // Replica 2's own signature, on the controlled replica's link.
        world.seal(r(2), &PbftMessage::ViewChange(Box::new(change))),
    ];
    for lie in lies {
        let before = refused(&world, "bad signature");
        world.send_frame_as(r(3), To::All, frame::PROTOCOL, lie);
        go(world.run_for(ms(50)), &world);
        assert_eq!(refused(&world, "bad signature"), before + 3);
    }
    let ids = world.submit(0, &[incr("n")]);
    wait_for(&mut world, &ids, ms(200));
    assert!((0..3).all(|id| view(&world, id) == View(0)));
    settle_honest(&mut world);
}

/// One replica that suspects, takes it back and suspects again, of every view, thousands of times: nothing comes of it.
#[test]
fn suspicions_of_one_replica_replace_nobody() {
    let mut world = with_controlled(350, r(3), |_| {});
    for round in 0..300u64 {
        for on in [true, false, true] {
            world.send_as(r(3), To::All, &PbftMessage::Suspect { view: View(0), on });
            world.send_as(r(3), To::All, &PbftMessage::Suspect { view: View(round % 20), on });
        }
        go(world.run_for(ms(10)), &world);
        if round % 10 == 0 {
            let id = world.submit(usize::try_from(round % 4).unwrap(), &[put("k", round)])[0];
            wait_for(&mut world, &[id], ms(200));
        }
    }
    assert!((0..3).all(|id| view(&world, id) == View(0)));
    settle_honest(&mut world);
}

/// One replica that leaves for ever higher views: nobody follows, and nothing is kept of it but two messages.
#[test]
fn view_changes_of_one_replica_move_nobody() {
    let mut world = with_controlled(355, r(2), |_| {});
    for round in 1..400u64 {
        let change = empty_change(if round % 2 == 0 { View(round) } else { View(u64::MAX - round) });
        world.send_as(r(2), To::All, &PbftMessage::ViewChange(Box::new(change)));
        go(world.run_for(ms(5)), &world);
    }
    let ids = world.submit(0, &[incr("n")]);
    wait_for(&mut world, &ids, ms(200));
    assert!([0, 1, 3].iter().all(|id| view(&world, *id) == View(0)));
    settle_honest(&mut world);
}

/// Whatever bytes a replica sends: they are refused and counted, and the others go on.
#[test]
fn garbage_of_one_replica_is_refused() {
    let mut world = with_controlled(360, r(1), |_| {});
    let mut rng = quorate_types::rng::Rng::new(360);
    for round in 0..400u64 {
        let length = rng.index(300);
        let mut body: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
        if let Some(first) = body.first_mut().filter(|_| round % 2 == 0) {
            *first %= 9; // The tag of a message that there is.
        }
        let types = [frame::PROTOCOL, frame::HOST, frame::BUNDLE, frame::PAYLOAD];
        let frame_type = *rng.pick(&types).unwrap();
        world.send_frame_as(r(1), To::All, frame_type, Bytes::from(body));
        go(world.run_for(ms(1)), &world);
    }
    assert!(refused(&world, "malformed message") > 50, "{:?}", world.rejected());
    let ids = world.submit(0, &[incr("n")]);
    wait_for(&mut world, &ids, ms(200));
    settle_honest(&mut world);
}

/// What a controlled replica hears is what its seat would have heard: proposals, votes, clients.
#[test]
fn a_puppet_hears_everything_and_says_nothing() {
    let mut world = with_controlled(365, r(3), |_| {});
    let ids = world.submit(0, &[incr("n")]);
    wait_for(&mut world, &ids, secs(1));
    let heard = world.received(r(3));
    let has = |kind: Kind| {
        heard
            .iter()
            .any(|heard| matches!(heard, ControlledInput::Frame { content, .. } if content.kind == kind))
    };
    assert!(has(PRE_PREPARE) && has(PREPARE) && has(COMMIT));
    assert_eq!(world.executed(r(3)).next(), world.height(), "its replica heard nothing of it");
    assert!(world.received(r(3)).is_empty(), "each is heard once");
    settle_honest(&mut world);
}
