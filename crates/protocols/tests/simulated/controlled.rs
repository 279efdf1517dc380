//! Controlled replicas, whose messages a test writes: each lie comes at the worst moment. Safety holds and no honest
//! replica is accused, as the oracles check. The others continue within the bound of the specification.

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

/// Returns an idle world with one controlled replica. No checkpoint is due while a test runs.
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

/// Scenario 4: the leader proposes two blocks for one height, and sends its own COMMIT for each of them.
#[test]
fn s04_leader_that_sends_commits_for_two_blocks_is_replaced() {
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

/// Returns the view change of a replica that has prepared nothing.
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

/// Scenario 6: a VIEW-CHANGE claims that an unknown block has prepared in the highest view. The new leader receives it
/// first and waits for one more honest view change, and the block is never chosen.
#[test]
fn s06_invented_entry_is_never_chosen() {
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

/// A leader leaves out heights. A block that it has proposed above them stays at its height, and the next view fills
/// the gaps with empty blocks. Proposals outside the window are refused.
#[test]
fn leader_that_skips_heights_is_replaced() {
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

/// Drops messages of these kinds to replica 1 from all replicas but replica 3.
fn let_replica_3_alone_reach_replica_1(world: &mut World, kinds: Vec<Kind>) {
    drop_frames(world, move |frame| {
        frame.to == r(1) && frame.from != r(3) && kinds.contains(&frame.content.kind)
    });
}

#[test]
fn votes_in_the_name_of_others_do_not_count() {
    for (seed, kind) in [(340, PREPARE), (341, COMMIT)] {
        let mut world = with_controlled(seed, r(3), |_| {});
        let before = world.height();
        let_replica_3_alone_reach_replica_1(&mut world, vec![PREPARE, COMMIT, Kind::new("host.decided")]);
        let ids = world.submit(0, &[incr("n")]);
        let mut said = 0;
        for _ in 0..600 {
            go(world.run_for(ms(1)), &world);
            for heard in world.received(r(3)) {
                let ControlledInput::Frame { body, content, frame_type: frame::PROTOCOL, .. } = heard else {
                    continue;
                };
                // The messages of the others are sent again and again as if they were the controlled replica's.
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

/// A backup votes for two blocks, again and again, and to the same replica. Its first vote counts, and no other.
#[test]
fn first_of_two_votes_counts() {
    let mut world = with_controlled(343, r(3), |_| {});
    let before = world.height();
    let_replica_3_alone_reach_replica_1(&mut world, vec![COMMIT, Kind::new("host.decided")]);
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
        "its own COMMIT, and none of a replica that has voted for another block"
    );
    wait_for(&mut world, &ids, secs(1));
    world.unhook();
    settle_honest(&mut world);
}

/// No replica can invent signed messages of others, neither directly nor inside evidence.
#[test]
fn view_changes_in_the_name_of_others_are_refused() {
    let mut world = with_controlled(345, r(3), |_| {});
    let change = empty_change(View(1));
    let forged = |by: u16| Signed { by: r(by), ..own_view_change(&world, r(3), change.clone()) };
    let proof = EntryProof::ViewChanges(vec![forged(0), forged(1), forged(2)]);
    let lies = [
        world.seal(r(3), &PbftMessage::Entry { view: View(1), proof }),
        // It has replica 2's own signature, and arrives on the controlled replica's link.
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

/// One replica suspects, withdraws and suspects again, in every view, thousands of times. No leader is replaced.
#[test]
fn suspicions_of_one_replica_replace_no_leader() {
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

/// One replica leaves for ever higher views. No replica follows, and only two of its messages are kept.
#[test]
fn view_changes_of_one_replica_move_no_other() {
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

/// Garbage of any kind from one replica is refused and counted, and the others continue.
#[test]
fn garbage_of_one_replica_is_refused() {
    let mut world = with_controlled(360, r(1), |_| {});
    let mut rng = quorate_types::rng::Rng::new(360);
    for round in 0..400u64 {
        let length = rng.index(300);
        let mut body: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
        if let Some(first) = body.first_mut().filter(|_| round % 2 == 0) {
            *first %= 9; // The tag of an existing message.
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

/// A controlled replica receives what the replica in its slot would receive: proposals, votes, and messages of clients.
#[test]
fn controlled_replica_receives_all_messages_and_sends_none() {
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
    assert_eq!(world.executed(r(3)).next(), world.height(), "the replica itself received none of them");
    assert!(world.received(r(3)).is_empty(), "each message is returned once");
    settle_honest(&mut world);
}
