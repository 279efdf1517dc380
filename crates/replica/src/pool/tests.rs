use super::*;
use quorate_types::bundle::BundleBuilder;
use quorate_types::{Authenticator, BundleKind, Height, PublicKey};

fn bundle(client: u8, number: u64, op: &[u8]) -> Bundle {
    bundle_of(client, number, &[op])
}

fn bundle_of(client: u8, number: u64, ops: &[&[u8]]) -> Bundle {
    let session = SessionId { height: Height(u64::from(client)), index: 0 };
    let mut builder =
        BundleBuilder::new(BundleKind::Requests, PublicKey([client; 32]), session, BundleNo(number));
    for op in ops {
        builder.push(op);
    }
    Bundle::parse(&builder.finish(), Authenticator::None, &BodyLimits::default()).unwrap()
}

fn names(bundles: &[Bundle]) -> Vec<(u8, u64)> {
    bundles.iter().map(|b| (b.client().0[0], b.number().0)).collect()
}

#[test]
fn oldest_bundles_are_taken_first_and_fair_over_clients() {
    let mut pool = Pool::default();
    for (client, number) in [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2)] {
        assert_eq!(pool.add_from_client(Time(1), &bundle(client, number, b"x")), PoolVerdict::New);
    }
    let limits = BodyLimits { block_bundles_max: 4, ..BodyLimits::default() };
    assert_eq!(names(&pool.take(&limits)), [(1, 1), (2, 1), (3, 1), (1, 2)]);
    assert_eq!(names(&pool.take(&limits)), [(3, 2), (1, 3)]);
    assert!(pool.take(&limits).is_empty());
    assert_eq!(pool.summary(false).bundles, 6, "bundles stay until they are executed");
    pool.untake();
    assert_eq!(pool.take(&BodyLimits::default()).len(), 6);
}

#[test]
fn payload_respects_the_byte_limit_but_takes_one_bundle() {
    let mut pool = Pool::default();
    for number in 1..=3 {
        pool.add_from_client(Time(1), &bundle(1, number, &[7; 100]));
    }
    let limits = BodyLimits { block_bytes_max: 10, ..BodyLimits::default() };
    assert_eq!(pool.take(&limits).len(), 1);
    let limits = BodyLimits { block_bytes_max: 330, ..BodyLimits::default() };
    assert_eq!(pool.take(&limits).len(), 2);
}

#[test]
fn payload_respects_the_request_limit_but_takes_one_bundle() {
    for (limit, counts) in [(1, [1, 1, 1]), (2, [1, 1, 1]), (3, [1, 2, 0]), (4, [2, 1, 0]), (6, [3, 0, 0])] {
        let mut pool = Pool::default();
        for (client, requests) in [(1, 3), (2, 1), (3, 2)] {
            let ops = vec![b"x".as_slice(); requests];
            pool.add_from_client(Time(1), &bundle_of(client, 1, &ops));
        }
        let limits = BodyLimits { block_requests_max: limit, ..BodyLimits::default() };
        assert_eq!(counts.map(|_| pool.take(&limits).len()), counts, "{limit}");
    }
}

#[test]
fn number_is_used_once_and_freed_by_execution() {
    let mut pool = Pool::default();
    let (first, second) = (bundle(1, 1, b"a"), bundle(1, 1, b"b"));
    assert_eq!(pool.add_from_client(Time(1), &first), PoolVerdict::New);
    assert_eq!(pool.add_from_client(Time(1), &first), PoolVerdict::Known);
    assert_eq!(pool.add_from_client(Time(1), &second), PoolVerdict::NumberReused);
    assert_eq!(pool.add_from_peer(Time(1), &second, true, None), PoolVerdict::New, "a block may name either");
    pool.remove(&second.digest());
    pool.supersede(first.client(), first.session(), first.number());
    assert_eq!(pool.summary(false), Pending::default());
    assert_eq!(pool.size(), PoolSize::default());
}

#[test]
fn idle_body_counts_as_pending_once_its_client_waits() {
    for from_client in [true, false] {
        let mut pool = Pool::default();
        let (old, new) = (bundle(1, 1, b"from the log"), bundle(2, 1, b"new"));
        assert_eq!(pool.add_from_peer(Time(0), &old, false, None), PoolVerdict::New);
        assert_eq!(pool.add_from_peer(Time(3), &old, false, None), PoolVerdict::Known);
        assert_eq!((pool.has_untaken(), pool.waits(&old.digest())), (false, false));
        pool.add_from_client(Time(5), &new);
        let added = match from_client {
            true => pool.add_from_client(Time(9), &old),
            false => pool.add_from_peer(Time(9), &old, true, None),
        };
        assert_eq!(added, PoolVerdict::Promoted);
        assert_eq!(pool.add_from_client(Time(10), &old), PoolVerdict::Known);
        assert_eq!(pool.add_from_client(Time(10), &bundle(1, 1, b"x")), PoolVerdict::NumberReused);
        let summary = pool.summary(false);
        assert_eq!((summary.bundles, summary.oldest), (2, Some(Time(5))));
        assert_eq!(
            names(&pool.to_forward()),
            [(2, 1), (1, 1)],
            "each once, in the order in which they began to wait"
        );
        assert_eq!(pool.take(&BodyLimits::default()).len(), 2);
        pool.untake();
        assert_eq!(pool.take(&BodyLimits::default()).len(), 2);
        pool.remove(&new.digest());
        assert_eq!(pool.summary(false).oldest, Some(Time(9)));
        pool.remove(&old.digest());
        assert_eq!((pool.summary(false), pool.size()), (Pending::default(), PoolSize::default()));
    }
}

#[test]
fn bundle_that_stays_keeps_no_entries_of_others() {
    let mut pool = Pool::default();
    pool.add_from_client(Time(1), &bundle(9, 1, b"stays"));
    for number in 1..10_000 {
        let passing = bundle(1, number, b"x");
        pool.add_from_client(Time(number), &passing);
        pool.remove(&passing.digest());
    }
    assert!(pool.arrivals.len() <= ARRIVALS_SLACK + 4, "{}", pool.arrivals.len());
    assert_eq!(pool.summary(false).oldest, Some(Time(1)));
}

/// A backup never takes bundles for a payload. Bundles that it has executed must leave no trace all the same.
#[test]
fn pool_of_a_backup_does_not_grow() {
    let mut pool = Pool::default();
    pool.add_from_client(Time(1), &bundle(9, 1, b"stays"));
    let mut before = None;
    for number in 1..20_000 {
        // One client always has a bundle in flight, and another one comes and goes.
        let (steady, fleeting) = (bundle(1, number, b"x"), bundle(2, number, b"x"));
        pool.add_from_client(Time(number), &steady);
        pool.add_from_peer(Time(number), &fleeting, true, None);
        pool.remove(&fleeting.digest());
        if let Some(before) = before.replace(steady) {
            pool.remove(&before.digest());
        }
    }
    let waiting: usize = pool.clients.values().map(|queue| queue.waiting.len()).sum();
    assert!(pool.turns.len() <= 3 * 2 + QUEUE_SLACK + 1, "{} turns", pool.turns.len());
    assert!(waiting <= 3 * (2 + QUEUE_SLACK + 1), "{waiting} entries in queues");
    assert_eq!(pool.summary(false).bundles, 2);
    assert_eq!(pool.take(&BodyLimits::default()).len(), 2, "pending bundles are still found");
}

/// A faulty replica can send bundles with valid signatures of unknown keys.
#[test]
fn idle_bodies_take_the_room_of_their_sender_alone() {
    let (mut pool, liar) = (Pool::default(), Some(ReplicaId(3)));
    let junk = |number| bundle(66, number, &vec![0; 100_000]);
    let mut taken = Vec::new();
    for number in 1..2_000 {
        match pool.add_from_peer(Time(1), &junk(number), false, liar) {
            PoolVerdict::New => taken.push(number),
            other => assert_eq!(other, PoolVerdict::Busy),
        }
    }
    assert!(taken.len() <= POOL_PEER_IDLE_BYTES_MAX / 100_000, "{} were taken", taken.len());
    assert!(pool.fits(&bundle(9, 1, b"x"), true));
    let others = pool.add_from_peer(Time(1), &bundle(5, 1, b"x"), false, Some(ReplicaId(2)));
    assert_eq!(
        (others, pool.add_from_client(Time(1), &bundle(1, 1, b"x"))),
        (PoolVerdict::New, PoolVerdict::New)
    );
    // A block or a client needs it after all: it is no longer at its sender's charge.
    assert_eq!(pool.add_from_peer(Time(1), &junk(5_000), false, None), PoolVerdict::New);
    assert_eq!(pool.add_from_peer(Time(1), &junk(taken[0]), true, liar), PoolVerdict::Promoted);
    assert_eq!(
        pool.add_from_peer(Time(1), &junk(6_000), false, liar),
        PoolVerdict::New,
        "there is room again"
    );
    for number in taken.into_iter().chain([5_000, 6_000]) {
        pool.remove(&junk(number).digest());
    }
    assert_eq!(pool.charges.get(&ReplicaId(3)), Some(&0));
}

#[test]
fn forwarding_is_bounded_and_begins_with_direct_bundles() {
    let mut pool = Pool::default();
    pool.add_from_peer(Time(1), &bundle(1, 1, b"from a peer"), true, None);
    pool.add_from_peer(Time(1), &bundle(4, 1, b"idle"), false, None);
    pool.add_from_client(Time(2), &bundle(2, 1, b"from a client"));
    pool.add_from_client(Time(3), &bundle(2, 2, b"from a client"));
    assert_eq!(names(&pool.to_forward()), [(2, 1), (2, 2), (1, 1)]);
    for number in 3..2_000 {
        pool.add_from_client(Time(4), &bundle(2, number, b"x"));
    }
    assert_eq!(pool.to_forward().len(), FORWARD_BUNDLES_MAX);
    let mut pool = Pool::default();
    for number in 1..100 {
        pool.add_from_client(Time(4), &bundle(2, number, &vec![0; 100_000]));
    }
    assert!(pool.to_forward().len() <= FORWARD_BYTES_MAX / 100_000);
    assert!(pool.to_forward().len() > 30);
}

#[test]
fn bundle_of_another_block_is_not_taken_in_this_view() {
    let mut pool = Pool::default();
    for number in 1..=3 {
        pool.add_from_client(Time(1), &bundle(1, number, b"x"));
    }
    pool.mark_taken(&bundle(1, 2, b"x").digest());
    pool.mark_taken(&bundle(7, 7, b"unknown").digest());
    assert_eq!(names(&pool.take(&BodyLimits::default())), [(1, 1), (1, 3)]);
    assert!(!pool.has_untaken());
    pool.untake();
    assert_eq!(pool.take(&BodyLimits::default()).len(), 3);
}

#[test]
fn bundle_of_a_peer_is_not_spread_again() {
    let mut pool = Pool::default();
    pool.add_from_peer(Time(0), &bundle(1, 1, b"x"), true, None);
    for number in 1..1_000 {
        pool.add_from_client(Time(0), &bundle(2, number, b"y"));
    }
    let spread = pool.overdue(Time(2_000_000_000), false);
    assert_eq!(spread.len(), SPREAD_ROUND_MAX, "an overloaded replica makes little more load");
    assert!(spread.iter().all(|b| b.client() == PublicKey([2; 32])));
}

/// If no stable leader receives the bundle, a liar may have sent it to this replica alone.
#[test]
fn bundle_of_a_peer_is_spread_where_leaders_rotate() {
    let mut pool = Pool::default();
    pool.add_from_peer(Time(0), &bundle(1, 1, b"x"), true, None);
    pool.add_from_peer(Time(0), &bundle(1, 2, b"y"), false, None);
    assert!(pool.overdue(Time(900_000_000), true).is_empty());
    assert_eq!(names(&pool.overdue(Time(2_000_000_000), true)), [(1, 1)], "an idle body is not spread");
}

#[test]
fn one_client_cannot_fill_the_pool() {
    let mut pool = Pool::default();
    let large = vec![0; 200 << 10];
    let mut added = 0;
    for number in 1..200 {
        match pool.add_from_client(Time(1), &bundle(1, number, &large)) {
            PoolVerdict::New => added += 1,
            other => assert_eq!(other, PoolVerdict::Busy),
        }
    }
    assert!(added * large.len() <= POOL_CLIENT_BYTES_MAX && added > 50);
    assert_eq!(pool.add_from_client(Time(1), &bundle(2, 1, b"x")), PoolVerdict::New);
}

/// A client with lying replicas sends them bundles beyond its own room. These take the room of the replicas, apart
/// from bundles that a block names.
#[test]
fn one_client_cannot_fill_the_pool_through_peers() {
    let mut pool = Pool::default();
    let large = |number| bundle(1, number, &vec![0; 200 << 10]);
    for number in 1..1_000 {
        let from = Some(ReplicaId(number as u16 % 3));
        pool.add_from_peer(Time(1), &large(number), true, from);
    }
    let waiting = pool.bytes - pool.idle_bytes;
    assert!(waiting <= 2 * POOL_CLIENT_BYTES_MAX && waiting > POOL_CLIENT_BYTES_MAX, "{waiting}");
    assert!(pool.idle_bytes <= 3 * POOL_PEER_IDLE_BYTES_MAX);
    assert!(pool.fits(&bundle(9, 1, b"x"), true));
    assert_eq!(pool.add_from_client(Time(1), &bundle(2, 1, b"x")), PoolVerdict::New);
    assert_eq!(pool.add_from_peer(Time(1), &bundle(3, 1, b"x"), true, Some(ReplicaId(1))), PoolVerdict::New);
    assert!(pool.waits(&bundle(3, 1, b"x").digest()), "others find room");
    assert_eq!(pool.add_from_peer(Time(1), &large(5_000), true, None), PoolVerdict::New, "a block needs it");
    assert!(!pool.waits(&large(5_000).digest()));

    let mut pool = Pool::default();
    for number in 1..40_000 {
        pool.add_from_peer(Time(1), &bundle(1, number, b"x"), true, Some(ReplicaId(1)));
    }
    assert_eq!(pool.pending, 2 * POOL_CLIENT_BUNDLES_MAX);
}

/// Clients that lying peers help, and that no `Busy` stops, keep out no client without pending bundles. Those clients
/// do not wait forever either: as many are let in as there is time for.
#[test]
fn one_client_cannot_keep_others_out_through_peers() {
    const MS: u64 = 1_000_000;
    let mut pool = Pool::default();
    let mut next = 1u64;
    for ms in 0..2_000u64 {
        let now = Time(ms * MS);
        for client in [7, 8, 9] {
            pool.add_from_peer(now, &bundle(client, next, b"x"), true, Some(ReplicaId(1)));
            next += 1;
        }
        if let Some(digest) = pool.arrivals.front().map(|(_, digest)| *digest) {
            pool.executed(now, &digest);
            pool.remove(&digest);
        }
        if ms >= 1_000 && ms % 100 == 0 {
            let light = bundle(2, ms, b"y");
            assert_eq!(pool.add_from_client(now, &light), PoolVerdict::New, "after {ms} ms");
            pool.remove(&light.digest());
        }
    }
    let many: Vec<Bundle> = (10..=250).map(|client| bundle(client, 1, b"z")).collect();
    let let_in =
        many.iter().filter(|it| pool.add_from_client(Time(2_000 * MS), it) == PoolVerdict::New).count();
    assert!((90..=110).contains(&let_in), "half of what is executed in a fifth of a second: {let_in}");
    many.iter().for_each(|it| pool.remove(&it.digest()));
    assert_eq!(pool.firsts, 0);
}

/// The same holds where all room is theirs.
#[test]
fn clients_with_many_bundles_leave_room_for_others() {
    let mut pool = Pool::default();
    for number in 1..2_000 {
        for client in 1..=8 {
            let large = bundle(client, number, &vec![0; 200 << 10]);
            pool.add_from_peer(Time(1), &large, true, Some(ReplicaId(1)));
        }
    }
    let waiting = pool.bytes - pool.idle_bytes;
    assert!((POOL_BYTES_MAX..=POOL_BYTES_MAX / 2 * 3).contains(&waiting), "{waiting}");
    assert_eq!(pool.add_from_client(Time(1), &bundle(1, 5_000, b"x")), PoolVerdict::Busy);
    assert_eq!(pool.add_from_client(Time(1), &bundle(9, 1, b"x")), PoolVerdict::New);
    assert_eq!(pool.add_from_client(Time(1), &bundle(9, 2, b"x")), PoolVerdict::Busy);
}

/// A full pool accepts a bundle that a block names, or this replica could never execute the block.
#[test]
fn full_pool_accepts_bundles_that_a_block_needs() {
    let mut pool = Pool::default();
    for number in 1..4_000 {
        let from = Some(ReplicaId(1));
        pool.add_from_peer(
            Time(1),
            &bundle(1 + (number % 16) as u8, number, &vec![0; 200 << 10]),
            true,
            from,
        );
    }
    let waiting = pool.bytes - pool.idle_bytes;
    let most = POOL_BYTES_MAX / 2 * 3;
    assert!(waiting > most - (300 << 10) && waiting <= most, "{waiting}");
    for client in [1, 77] {
        let needed = bundle(client, 9_999, &vec![0; 200 << 10]);
        assert_eq!(pool.add_from_peer(Time(1), &needed, true, None), PoolVerdict::New);
        assert_eq!(pool.get(&needed.digest()), Some(&needed));
    }
}

#[test]
fn old_bundle_is_spread_with_doubling_pauses() {
    let mut pool = Pool::default();
    pool.add_from_client(Time(0), &bundle(1, 1, b"x"));
    let mut at = Vec::new();
    for ms in (0..30_000u64).step_by(100) {
        if !pool.overdue(Time(ms * 1_000_000), false).is_empty() {
            at.push(ms / 1_000);
        }
    }
    assert_eq!(at, [1, 3, 7, 15, 25]);
    pool.add_from_peer(Time(0), &bundle(1, 2, b"y"), false, None);
    assert!(pool.overdue(Time(29_999_000_000), false).is_empty());
    pool.overdue(Time(31_000_000_000), false);
    let size = pool.size();
    assert_eq!((size.bundles, size.idle_bundles), (1, 0), "an idle body is dropped");
}

/// One client floods a replica that executes one bundle in each millisecond. It receives `Busy` when more waits than
/// is executed in a fifth of a second. Another client with few bundles does not.
#[test]
fn only_the_flooding_client_receives_busy() {
    const MS: u64 = 1_000_000;
    let mut pool = Pool::default();
    let (mut next, mut refused, mut waiting) = (1u64, 0u64, VecDeque::new());
    for ms in 0..2_000u64 {
        let now = Time(ms * MS);
        for _ in 0..3 {
            let bundle = bundle(1, next, b"x");
            match pool.add_from_client(now, &bundle) {
                PoolVerdict::New => waiting.push_back(bundle.digest()),
                PoolVerdict::Busy => refused += 1,
                other => panic!("{other:?}"),
            }
            next += 1;
        }
        if let Some(digest) = waiting.pop_front() {
            pool.executed(now, &digest);
        }
        if ms >= 1_000 {
            assert!((190..=210).contains(&pool.pending), "{} wait after {ms} ms", pool.pending);
        }
        if ms >= 1_000 && ms % 100 == 0 {
            let light = bundle(2, ms, b"y");
            assert!(!pool.is_busy(now, &light, 0), "after {ms} ms");
            assert_eq!(pool.add_from_client(now, &light), PoolVerdict::New);
            pool.remove(&light.digest());
        }
    }
    assert!((3_500..=4_100).contains(&refused), "two of three are refused: {refused} of 6,000");
}

/// A hundred clients saturate a replica with small bundles. A client without pending bundles that offers a large one
/// from time to time has its turn: no client waits forever.
#[test]
fn large_bundle_finds_room_among_small_ones() {
    const MS: u64 = 1_000_000;
    let large = vec![0; 12_800];
    let mut pool = Pool::default();
    let (mut let_in, mut number, mut waiting) = (0, 1u64, VecDeque::new());
    for ms in 0..4_000u64 {
        let now = Time(ms * MS);
        for client in 2..102u8 {
            number += 1;
            let bundle = bundle(client, number, b"x");
            if (ms + u64::from(client)).is_multiple_of(20)
                && pool.add_from_client(now, &bundle) == PoolVerdict::New
            {
                waiting.push_back(bundle.digest());
            }
        }
        if ms >= 1_000 && ms.is_multiple_of(20) {
            let bundle = bundle(1, number + 1, &large);
            if pool.add_from_client(now, &bundle) == PoolVerdict::New {
                let_in += 1;
                waiting.push_back(bundle.digest());
            }
        }
        if let Some(digest) = waiting.pop_front() {
            pool.executed(now, &digest);
            pool.remove(&digest);
        }
    }
    assert!(let_in > 10, "{let_in} of 150");
}

/// The queue of a failed leader says nothing about the next one.
#[test]
fn idle_replica_accepts_a_burst() {
    let mut pool = Pool::default();
    for number in 1..=10_000 {
        assert_eq!(pool.add_from_client(Time(number), &bundle(1, number, b"x")), PoolVerdict::New);
    }
}

#[test]
fn executed_bundle_is_added_again_as_an_idle_one() {
    let mut pool = Pool::default();
    let executed = bundle(1, 1, b"x");
    pool.add_from_client(Time(1), &executed);
    pool.executed(Time(2), &executed.digest());
    assert_eq!(pool.add_from_peer(Time(3), &executed, false, Some(ReplicaId(2))), PoolVerdict::New);
    let size = pool.size();
    assert_eq!((pool.waiting(), size.bundles, size.bytes), (0, 0, 0));
    assert_eq!((size.idle_bundles, size.idle_bytes), (1, executed.size()));
}
