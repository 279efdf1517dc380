use super::*;

fn bundle(number: u64) -> Bundle {
    let session = quorate_types::SessionId { height: Height(1), index: 0 };
    let client = quorate_types::PublicKey([7; 32]);
    let number = quorate_types::BundleNo(number);
    let kind = quorate_types::BundleKind::Requests;
    let mut builder = quorate_types::bundle::BundleBuilder::new(kind, client, session, number);
    builder.push(b"x");
    let none = quorate_types::Authenticator::None;
    Bundle::parse(&builder.finish(), none, &BodyLimits::default()).unwrap()
}

fn block_of(payload: &Payload) -> Block {
    Block {
        parent: BlockId::ZERO,
        height: Height(1),
        view: quorate_types::View(0),
        proposer: ReplicaId(0),
        time_ns: 1,
        payload: payload.id(),
        extra: quorate_types::Digest::ZERO,
    }
}

/// A block beyond its limits is invalid, unless one bundle alone exceeds them.
#[test]
fn block_beyond_its_limits_is_invalid() {
    let ready = |limits: BodyLimits, bundles: &[u64]| {
        let (mut pool, mut blocks) = (Pool::default(), BlockTree::default());
        let mut bodies = BlockBodies::new(limits, 256);
        for number in bundles {
            pool.add_from_client(Time(0), &bundle(*number));
        }
        let digests = bundles.iter().map(|number| bundle(*number).digest()).collect();
        let payload = Arc::new(Payload { bundles: digests });
        let block = block_of(&payload);
        let id = block.id();
        blocks.insert(block);
        bodies.store_payload(&pool, &blocks, payload);
        bodies.watch(&pool, &blocks, id);
        bodies.ready(&pool, &blocks, id)
    };
    let size = u32::try_from(bundle(1).size()).unwrap();
    let limits = BodyLimits {
        block_bundles_max: 3,
        block_requests_max: 3,
        block_bytes_max: 3 * size,
        ..BodyLimits::default()
    };
    assert_eq!(ready(limits, &[1, 2, 3]), Some(Ready::Valid));
    let fewer = [
        BodyLimits { block_bundles_max: 2, ..limits },
        BodyLimits { block_requests_max: 2, ..limits },
        BodyLimits { block_bytes_max: 3 * size - 1, ..limits },
    ];
    for limits in fewer {
        assert_eq!(ready(limits, &[1, 2, 3]), Some(Ready::Invalid), "{limits:?}");
    }
    let tiny = BodyLimits { block_requests_max: 0, block_bytes_max: 1, ..limits };
    assert_eq!(ready(tiny, &[1]), Some(Ready::Valid), "a single bundle always fits");
    assert_eq!(ready(limits, &[1, 1]), Some(Ready::Invalid), "twice the same");
}

/// A leader may propose the bundles of its predecessor again, and makes the payload that the other block lacks.
#[test]
fn own_payload_completes_the_block_of_another_leader() {
    let (mut pool, mut blocks) = (Pool::default(), BlockTree::default());
    let mut bodies = BlockBodies::new(BodyLimits::default(), 256);
    pool.add_from_client(Time(0), &bundle(1));
    let payload = Arc::new(Payload { bundles: vec![bundle(1).digest()] });
    let block = block_of(&payload);
    let id = block.id();
    blocks.insert(block);
    assert!(!bodies.watch(&pool, &blocks, id), "the payload is missing");
    bodies.store_payload(&pool, &blocks, payload);
    assert_eq!(bodies.next_ready(), Some((id, Ready::Valid)));
}

/// Two blocks may share a bundle. One is executed, and the bundle leaves the pool, before the rest of the other block
/// arrives. A block without the bundle would lead to another state than at other replicas.
#[test]
fn block_keeps_bundles_that_leave_the_pool() {
    let (shared, late) = (bundle(1), bundle(2));
    let payload = Arc::new(Payload { bundles: vec![shared.digest(), late.digest()] });
    let block = block_of(&payload);
    let (id, mut blocks) = (block.id(), BlockTree::default());
    blocks.insert(block.clone());
    for arrives_before in [true, false] {
        let (mut pool, mut bodies) = (Pool::default(), BlockBodies::new(BodyLimits::default(), 256));
        if arrives_before {
            pool.add_from_peer(Time(0), &shared, true, None);
        }
        bodies.add_payload(&pool, &blocks, (Time(0), ReplicaId(0)), Arc::clone(&payload));
        assert!(!bodies.watch(&pool, &blocks, id));
        if !arrives_before {
            pool.add_from_peer(Time(0), &shared, true, None);
            bodies.add_bundle(&blocks, &shared);
        }
        pool.remove(&shared.digest());
        assert!(bodies.awaits(&late.digest()) && !bodies.awaits(&shared.digest()));
        bodies.add_bundle(&blocks, &late);
        assert_eq!(bodies.next_ready(), Some((id, Ready::Valid)));
        let full = bodies.assemble(&block, id).unwrap();
        assert_eq!(full.bundles, [shared.clone(), late.clone()]);
    }
}

/// A block is often wanted before its decided height is known, and peers find it on disk by its height alone.
#[test]
fn want_takes_a_height_that_becomes_known_later() {
    let mut bodies = BlockBodies::new(BodyLimits::default(), 256);
    let (blocks, id, others) = (BlockTree::default(), BlockId::null(Height(1)), [ReplicaId(1)]);
    bodies.want(Time(0), &blocks, id, Height::ZERO, (ReplicaId(1), Haste::InTurn));
    bodies.want(Time(0), &blocks, id, Height(7), (ReplicaId(1), Haste::InTurn));
    let asks = bodies.take_due_asks(Time(0), &others);
    assert_eq!(asks, [Ask { block: id, height: Height(7), peer: ReplicaId(1) }]);
}

/// A replica with many unchecked bodies must not request the same once more, and does not wait for long.
#[test]
fn block_is_not_requested_while_its_bodies_may_wait_for_their_check() {
    const MS: u64 = 1_000_000;
    let (mut bodies, mut blocks) = (BlockBodies::new(BodyLimits::default(), 256), BlockTree::default());
    let [leader, other, third] = [ReplicaId(0), ReplicaId(1), ReplicaId(2)];
    let others = [leader, other, third];
    let announced = block_of(&Payload { bundles: vec![bundle(1).digest()] });
    let (one, two) = (announced.id(), BlockId::null(Height(2)));
    bodies.announce(Time(0), announced.payload);
    blocks.insert(announced);
    bodies.unchecked = ReplicaSet::from_iter([leader, other]);
    bodies.want(Time(0), &blocks, one, Height(1), (leader, Haste::InTurn));
    bodies.want(Time(0), &blocks, two, Height(2), (other, Haste::InTurn));
    let mut asked = Vec::new();
    for ms in 0..1_100 {
        asked
            .extend(bodies.take_due_asks(Time(ms * MS), &others).iter().map(|ask| (ms, ask.block, ask.peer)));
        assert!(bodies.deadline().unwrap() > Time(ms * MS));
    }
    let of = |id| asked.iter().filter(|ask| ask.1 == id).map(|ask| (ask.0, ask.2)).collect::<Vec<_>>();
    let soon = |(at, peer): (u64, ReplicaId), expected: u64| (at.abs_diff(expected) <= 20).then_some(peer);
    let first = of(one);
    assert_eq!([soon(first[0], 500), soon(first[1], 750)], [Some(leader), Some(third)], "{first:?}");
    // The other peer has left its own question without an answer, and comes last.
    let second = of(two);
    assert_eq!(second[0], (0, other), "no peer has announced it");
    assert_eq!([soon(second[1], 500), soon(second[2], 750)], [Some(leader), Some(third)], "{second:?}");
}

/// The bodies of many blocks queue at the peer that sends them. A second peer would send all of them once more.
#[test]
fn question_is_repeated_when_the_asked_peer_stops_sending() {
    const MS: u64 = 1_000_000;
    let [one, two, three] = [ReplicaId(1), ReplicaId(2), ReplicaId(3)];
    let asked = |sends: &dyn Fn(u64) -> bool| {
        let (mut bodies, blocks) = (BlockBodies::new(BodyLimits::default(), 256), BlockTree::default());
        let id = BlockId::null(Height(1));
        bodies.want(Time(0), &blocks, id, Height(1), (one, Haste::InTurn));
        let mut asked = Vec::new();
        for ms in 0..2_400 {
            if sends(ms) {
                bodies.hear(Time(ms * MS), one);
            }
            let asks = bodies.take_due_asks(Time(ms * MS), &[one, two, three]);
            asked.extend(asks.iter().map(|ask| (ms, ask.peer)));
        }
        asked.truncate(3);
        asked
    };
    assert_eq!(asked(&|_| false), [(0, one), (250, two), (500, three)]);
    assert_eq!(asked(&|ms| ms % 200 == 0 && ms <= 600), [(0, one), (850, two), (1_100, three)]);
    assert_eq!(asked(&|ms| ms % 200 == 0), [(0, one), (2_000, two), (2_250, three)], "its time is bounded");
}

/// A block that has arrived waits for its ancestors. It is not sent again, and the peer that sent it is as good as before.
#[test]
fn block_that_lacks_ancestors_alone_is_not_requested() {
    const MS: u64 = 1_000_000;
    let mut bodies = BlockBodies::new(BodyLimits::default(), 256);
    let (mut blocks, others) = (BlockTree::default(), [1, 2, 3].map(ReplicaId));
    let block = Block { parent: BlockId(quorate_types::Digest([9; 32])), ..block_of(&Payload::default()) };
    let block = Block { height: Height(3), ..block };
    let id = block.id();
    bodies.want(Time(0), &blocks, id, Height(3), (others[0], Haste::InTurn));
    assert_eq!(bodies.take_due_asks(Time(0), &others).len(), 1);
    blocks.insert(block);
    bodies.watch(&Pool::default(), &blocks, id);
    for ms in 0..2_000 {
        assert!(bodies.take_due_asks(Time(ms * MS), &others).iter().all(|ask| ask.block != id));
    }
    let other = BlockId::null(Height(4));
    bodies.want(Time(2_000 * MS), &blocks, other, Height(4), (others[0], Haste::InTurn));
    assert_eq!(bodies.take_due_asks(Time(2_000 * MS), &others)[0].peer, others[0]);
}

/// A liar that sends false bodies, or none, must not cost each block a pause.
#[test]
fn peer_that_let_its_time_pass_comes_last() {
    const MS: u64 = 1_000_000;
    let (mut bodies, blocks) = (BlockBodies::new(BodyLimits::default(), 256), BlockTree::default());
    let others = [1, 2, 3].map(ReplicaId);
    let asked = |ms: u64, height: u64, bodies: &mut BlockBodies| -> Vec<u16> {
        let id = BlockId::null(Height(height));
        for peer in others {
            bodies.want(Time(ms * MS), &blocks, id, Height(height), (peer, Haste::InTurn));
        }
        let asks = bodies.take_due_asks(Time(ms * MS), &others);
        let peers = asks.iter().filter(|ask| ask.block == id).map(|ask| ask.peer.0).collect();
        bodies.wants.remove(id);
        peers
    };
    let id = BlockId::null(Height(1));
    bodies.want(Time(0), &blocks, id, Height(1), (others[0], Haste::InTurn));
    assert_eq!(bodies.take_due_asks(Time(0), &others).len(), 1);
    assert_eq!(asked(240, 2, &mut bodies), [1], "it still has time");
    bodies.take_due_asks(Time(260 * MS), &others);
    assert_eq!(asked(270, 3, &mut bodies), [2]);
    bodies.wants.remove(id);
    assert_eq!(asked(20_200, 4, &mut bodies), [2]);
    assert_eq!(asked(20_300, 5, &mut bodies), [1], "it has another chance");

    // A refusal is an answer.
    bodies.want(Time(30_000 * MS), &blocks, id, Height(1), (others[1], Haste::InTurn));
    assert_eq!(bodies.take_due_asks(Time(30_000 * MS), &others).len(), 1);
    bodies.on_refusal(Time(30_001 * MS), id, others[1]);
    assert_eq!(bodies.take_due_asks(Time(30_100 * MS), &others).len(), 1);
    bodies.wants.remove(id);
    let want = |bodies: &mut BlockBodies, id| {
        bodies.want(Time(30_200 * MS), &blocks, id, Height(6), (others[1], Haste::InTurn));
        bodies.take_due_asks(Time(30_200 * MS), &others)[0].peer
    };
    assert_eq!(want(&mut bodies, BlockId::null(Height(6))), others[1]);
}

/// Dead proposals of a liar use up all room. Later wants are requested nevertheless, and each dead one ever more
/// seldom.
#[test]
fn dead_wants_keep_no_later_want_out() {
    let mut bodies = BlockBodies::new(BodyLimits::default(), 8);
    let (blocks, others) = (BlockTree::default(), [ReplicaId(1), ReplicaId(2)]);
    let most = u64::try_from(WANTED_MAX).unwrap();
    for height in 1..=most + 10 {
        bodies.want(
            Time(height),
            &blocks,
            BlockId::null(Height(height)),
            Height(height),
            (ReplicaId(1), Haste::InTurn),
        );
    }
    assert_eq!(bodies.wants.by_id.len(), WANTED_MAX);
    assert!(
        bodies.is_wanted(BlockId::null(Height(most + 10))) && !bodies.is_wanted(BlockId::null(Height(10)))
    );
    let id = BlockId::null(Height(most));
    let mut times = Vec::new();
    for ms in 0..20_000u64 {
        for ask in bodies.take_due_asks(Time(ms * 1_000_000 + most * 2), &others) {
            if ask.block == id {
                times.push(ms);
                bodies.on_refusal(Time(ms * 1_000_000 + most * 2), id, ask.peer);
            }
        }
    }
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.is_sorted() && pauses.last() == Some(&2_000), "{pauses:?}");
}

/// In haste each named peer is asked at once, also when bodies are on their way.
#[test]
fn each_named_peer_is_asked_at_once_in_haste() {
    let (mut bodies, mut blocks) = (BlockBodies::new(BodyLimits::default(), 256), BlockTree::default());
    let block = block_of(&Payload { bundles: vec![bundle(1).digest()] });
    let id = block.id();
    assert!(bodies.announce(Time(0), block.payload));
    blocks.insert(block);
    let others: Vec<ReplicaId> = [1, 2, 3].map(ReplicaId).to_vec();
    let asked = |bodies: &mut BlockBodies, at: u64| -> Vec<u16> {
        bodies.take_due_asks(Time(at), &others).iter().map(|ask| ask.peer.0).collect()
    };
    for (peer, at) in [(1, 5), (2, 5), (1, 6)] {
        bodies.want(Time(at), &blocks, id, Height(1), (ReplicaId(peer), Haste::AtOnce));
    }
    assert_eq!(asked(&mut bodies, 6), [1, 2], "each of them once");
    assert_eq!(asked(&mut bodies, ASK_AGAIN_NS), [0u16; 0]);
    assert_eq!(asked(&mut bodies, 5 + ASK_AGAIN_NS), [3], "then the peer that was not named");
}

#[test]
fn peer_that_refused_is_asked_again_at_once() {
    let (mut bodies, mut blocks) = (BlockBodies::new(BodyLimits::default(), 256), BlockTree::default());
    let block = block_of(&Payload { bundles: vec![bundle(1).digest()] });
    let id = block.id();
    blocks.insert(block);
    let others: Vec<ReplicaId> = [1, 2, 3].map(ReplicaId).to_vec();
    let asked = |bodies: &mut BlockBodies| -> Vec<u16> {
        bodies.take_due_asks(Time(9), &others).iter().map(|ask| ask.peer.0).collect()
    };
    let want = |bodies: &mut BlockBodies| {
        bodies.want(Time(5), &blocks, id, Height(1), (ReplicaId(1), Haste::AtOnce));
    };
    want(&mut bodies);
    assert_eq!(asked(&mut bodies), [1]);
    bodies.on_refusal(Time(6), id, ReplicaId(1));
    assert_eq!(asked(&mut bodies), [0u16; 0], "it does not have it");
    want(&mut bodies);
    assert_eq!(asked(&mut bodies), [1], "the peer may have received it since");
    // The peer votes before it receives the question, and its answer to an earlier one arrives after the vote.
    want(&mut bodies);
    assert_eq!(asked(&mut bodies), [0u16; 0], "the answer is on its way");
    bodies.on_refusal(Time(7), id, ReplicaId(1));
    assert_eq!(asked(&mut bodies), [1]);
    bodies.on_refusal(Time(8), id, ReplicaId(1));
    bodies.on_refusal(Time(8), id, ReplicaId(1));
    assert_eq!(asked(&mut bodies), [0u16; 0], "a refusal alone asks for nothing");
    // In turn, no peer is asked twice for that.
    bodies.want(Time(9), &blocks, id, Height(1), (ReplicaId(1), Haste::InTurn));
    assert_eq!(asked(&mut bodies), [0u16; 0]);
}

/// A lying leader sends a chain of headers, and withholds the blocks that they name. For each of them everything below
/// would be wanted again, and the first wants be forgotten.
#[test]
fn ancestors_are_wanted_once_for_a_chain_of_headers() {
    let (mut bodies, mut blocks) = (BlockBodies::new(BodyLimits::default(), 256), BlockTree::default());
    let (mut parent, mut ids) = (BlockId(quorate_types::Digest([9; 32])), Vec::new());
    for height in 1..=4_000 {
        let payload = Payload { bundles: vec![bundle(height).digest()] };
        let block = Block { parent, height: Height(height), ..block_of(&payload) };
        parent = block.id();
        ids.push(parent);
        blocks.insert(block);
    }
    let want = |bodies: &mut BlockBodies, id, haste| {
        let before = bodies.wants.begun;
        bodies.want(Time(5), &blocks, id, Height(1), (ReplicaId(1), haste));
        bodies.wants.begun - before
    };
    let all: u64 = ids.iter().map(|id| want(&mut bodies, *id, Haste::AtOnce)).sum();
    assert!(all <= 2 * 4_000, "{all} wants");
    let mut bodies = BlockBodies::new(BodyLimits::default(), 256);
    assert_eq!(want(&mut bodies, ids[3_999], Haste::InTurn), 513, "the nearest ones");
    assert_eq!(want(&mut bodies, ids[3_998], Haste::InTurn), 0);
}

/// Returns a chain of empty blocks. The lowest one extends a block at height 2 that is missing.
fn above_a_hole(count: u64) -> (BlockTree, Vec<BlockId>, BlockId) {
    let hole = BlockId(quorate_types::Digest([9; 32]));
    let (mut blocks, mut parent, mut ids) = (BlockTree::default(), hole, Vec::new());
    for height in 3..3 + count {
        let block = Block { parent, height: Height(height), ..block_of(&Payload::default()) };
        parent = block.id();
        ids.push(parent);
        blocks.insert(block);
    }
    (blocks, ids, hole)
}

/// Returns the nearest block that lacks more than ancestors, as far as it is noted for each of these.
fn known_below(bodies: &BlockBodies, ids: &[BlockId]) -> BTreeSet<Option<(BlockId, Height)>> {
    ids.iter().map(|id| bodies.missing.get(id).and_then(|missing| missing.below)).collect()
}

/// A replica with thousands of headers above a missing one requests that one, and does not search through all of them
/// for each.
#[test]
fn search_skips_blocks_that_lack_ancestors_alone() {
    let (blocks, ids, hole) = above_a_hole(4_000);
    let (pool, end) = (Pool::default(), BTreeSet::from([Some((hole, Height(2)))]));
    let mut bodies = BlockBodies::new(BodyLimits::default(), 256);
    for (at, id) in ids.iter().enumerate() {
        bodies.watch(&pool, &blocks, *id);
        bodies.want(Time(5), &blocks, *id, Height::ZERO, (ReplicaId(1), Haste::InTurn));
        assert_eq!(known_below(&bodies, &ids[at..=at]), end, "the next one gets there in two steps");
    }
    assert_eq!((bodies.wants.by_id.len(), bodies.is_wanted(hole)), (1, true));
    // The same holds where no block between was wanted: in one search.
    let mut bodies = BlockBodies::new(BodyLimits::default(), 256);
    ids.iter().for_each(|id| assert!(!bodies.watch(&pool, &blocks, *id)));
    bodies.want(Time(5), &blocks, *ids.last().unwrap(), Height::ZERO, (ReplicaId(1), Haste::InTurn));
    assert_eq!((bodies.wants.by_id.len(), bodies.is_wanted(hole)), (1, true));
    assert_eq!(known_below(&bodies, &ids), end, "from each block of the chain");
    let ask = Ask { block: hole, height: Height(2), peer: ReplicaId(1) };
    assert_eq!(bodies.take_due_asks(Time(5), &[ReplicaId(1)]), [ask]);
}

/// The branch may be below the executed height: then nothing of it is requested, and the search takes as few steps.
#[test]
fn search_skips_blocks_below_the_executed_height() {
    let (blocks, ids, hole) = above_a_hole(1_000);
    let (pool, mut bodies) = (Pool::default(), BlockBodies::new(BodyLimits::default(), 256));
    bodies.executed(&blocks, Height(2));
    for id in &ids {
        bodies.watch(&pool, &blocks, *id);
        bodies.want(Time(5), &blocks, *id, Height::ZERO, (ReplicaId(1), Haste::InTurn));
    }
    assert_eq!(known_below(&bodies, &ids[1..]), BTreeSet::from([Some((ids[0], Height(3)))]));
    assert!(!bodies.is_wanted(hole));
    bodies.attach(&blocks, ids[0]);
    assert_eq!(std::iter::from_fn(|| bodies.next_ready()).count(), ids.len());
}

/// The block at the end of a search may arrive and lack ancestors alone as well: then the search skips it too.
#[test]
fn search_continues_when_its_end_has_arrived() {
    let (pool, mut blocks) = (Pool::default(), BlockTree::default());
    let mut bodies = BlockBodies::new(BodyLimits::default(), 256);
    let hole = BlockId(quorate_types::Digest([9; 32]));
    let on = |parent, height| Block { parent, height: Height(height), ..block_of(&Payload::default()) };
    let middle = on(hole, 3);
    let below = on(middle.id(), 4);
    let top = on(below.id(), 5);
    let mut shown = |block: &Block| {
        blocks.insert(block.clone());
        bodies.watch(&pool, &blocks, block.id());
        bodies.want(Time(5), &blocks, top.id(), Height::ZERO, (ReplicaId(1), Haste::InTurn));
        [middle.id(), hole].map(|id| bodies.is_wanted(id))
    };
    shown(&top);
    assert_eq!(shown(&below), [true, false]);
    assert_eq!(shown(&middle), [true, true], "its bodies are stored, and its parent is missing");
}

/// With any number of wants, the oldest one goes for a new one.
#[test]
fn oldest_want_is_dropped_first() {
    let mut wants = Wants::default();
    let id = |number| BlockId::null(Height(number));
    let new = || Want::new(Height(1), Time(0), Time(0));
    for number in 0..10 {
        wants.begin(id(number), 4, new);
    }
    assert_eq!((wants.by_id.len(), wants.begun), (4, 10));
    wants.begin(id(6), 4, new);
    assert_eq!((wants.by_id.len(), wants.begun), (4, 10), "it is wanted already");
    wants.remove(id(7));
    wants.begin(id(10), 4, new);
    assert!([6, 8, 9, 10].iter().all(|number| wants.by_id.contains_key(&id(*number))), "there was room");
    wants.begin(id(11), 4, new);
    assert!(!wants.by_id.contains_key(&id(6)) && wants.by_id.contains_key(&id(8)));
    wants.by_id.get_mut(&id(8)).unwrap().height = Height(0);
    wants.retain(|want| want.height > Height(0));
    wants.begin(id(12), 4, new);
    assert!([9, 10, 11, 12].iter().all(|number| wants.by_id.contains_key(&id(*number))), "there was room");
    (13..17).for_each(|number| {
        wants.begin(id(number), 4, new);
        assert_eq!(wants.by_id.len(), 4);
    });
    assert!((13..17).all(|number| wants.by_id.contains_key(&id(number))));
}
