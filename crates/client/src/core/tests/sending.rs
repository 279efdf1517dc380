use super::*;
use quorate_types::bundle::BUNDLE_HEADER_BYTES;

#[test]
fn waiting_operations_share_a_bundle() {
    let mut world = World::open(settings());
    // A single operation leaves at once; operations submitted between two polls share a bundle.
    let (_, first) = world.send_one(b"a");
    assert_eq!(first.request_count(), 1);
    let tickets: Vec<Ticket> = (0..5u8).map(|i| world.submit(&[i])).collect();
    assert!(tickets.iter().enumerate().all(|(i, t)| t.bundle == tickets[0].bundle && t.index == i as u32));
    world.drain();
    let sent = world.take_sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(world.parse(&sent[0].1).request_count(), 5);
    // With four bundles in flight the other operations are collected, in order, and leave as one bundle when there is room.
    for i in 0..2u8 {
        world.send_one(&[i]);
    }
    for i in 10..20u8 {
        world.submit(&[i]);
        world.drain();
    }
    assert_eq!(world.take_sent(), []);
    world.reply(0, &first, &done(&[b""]));
    world.reply(1, &first, &done(&[b""]));
    let sent = world.take_sent();
    assert_eq!(sent.len(), 1);
    let ops: Vec<u8> = world.parse(&sent[0].1).requests().map(|op| op[0]).collect();
    assert_eq!(ops, (10..20).collect::<Vec<u8>>());
}

fn too_large(what: Size, most: u32) -> SubmitError {
    SubmitError::TooLarge { what, most }
}

#[test]
fn bundles_stay_within_the_limits_of_the_cluster() {
    let mut tight = settings();
    tight.limits.request_bytes_max = 100;
    tight.limits.bundle_requests_max = 3;
    tight.limits.bundle_bytes_max = 300;
    tight.waiting_bytes_max = 2_000;
    let mut world = World::open(tight);
    assert_eq!(world.core.submit(world.now, &[0; 101]), Err(too_large(Size::OperationBytes(101), 100)));
    let op: &[u8] = &[0; 90];
    assert_eq!(
        world.core.submit_bundle(world.now, [op; 3]),
        Err(too_large(Size::BundleBytes(BUNDLE_HEADER_BYTES as u32 + 3 * 94), 300))
    );
    assert_eq!(world.core.submit_bundle(world.now, [&op[..1]; 4]), Err(too_large(Size::Operations(4), 3)));
    let refused = world.core.submit(world.now, &[0; 101]).unwrap_err();
    let text = "an operation of 101 bytes exceeds request_bytes_max of the cluster, which is 100";
    assert_eq!(refused.to_string(), text);
    assert_eq!(world.core.submit_bundle(world.now, []), Err(SubmitError::Empty));
    // The limits on bytes and on operations both close a bundle.
    for length in [90, 90, 90, 1, 1, 1] {
        world.submit(&vec![0; length]);
    }
    world.drain();
    let counts: Vec<u32> =
        world.take_sent().iter().map(|(_, frame)| world.parse(frame).request_count()).collect();
    assert_eq!(counts, [2, 3, 1]);
    let mut taken = 0;
    while world.core.submit(world.now, op).is_ok() {
        taken += 1;
        assert!(taken < 100, "what waits is bounded");
    }
    assert_eq!(world.core.submit(world.now, op), Err(SubmitError::Full));
}

#[test]
fn retries_go_to_all_with_the_same_bytes_and_doubling_pauses() {
    let mut world = World::open(settings());
    let start = world.now;
    world.submit(b"op");
    world.drain();
    let first = world.take_sent();
    assert_eq!(first.len(), 1);
    let mut at = Vec::new();
    for _ in 0..60_000 {
        world.pass(MS);
        let sent = world.take_sent();
        if !sent.is_empty() {
            at.push(world.now.since(start) / MS);
            let to: Vec<u16> = sent.iter().map(|(to, _)| to.0).collect();
            assert_eq!(to, [0, 1, 2, 3]);
            assert!(sent.iter().all(|(_, frame)| *frame == first[0].1), "byte for byte");
        }
    }
    assert_eq!(at, [800, 1_600, 3_200, 6_400, 12_800, 22_800, 32_800, 42_800, 52_800]);
}

#[test]
fn retries_without_client_authentication_are_unsigned() {
    let mut world = World::open(Settings { client_auth: ClientAuth::None, ..settings() });
    world.submit(b"op");
    world.pass(800 * MS);
    world.drain();
    world.pass(900 * MS);
    let sent = world.take_sent();
    assert!(sent.len() > 1);
    for (_, frame) in sent {
        assert_eq!(world.parse(&frame).authenticator(), &Authenticator::None);
    }
}

#[test]
fn lost_connection_to_the_leader_sends_all_bundles_to_all() {
    let mut world = World::open(settings());
    world.send_one(b"a");
    world.send_one(b"b");
    world.link(2, LinkState::Down);
    assert_eq!(world.receivers(), [], "not the leader");
    world.link(0, LinkState::Down);
    assert_eq!(world.receivers(), [1, 3, 1, 3], "both bundles, at once, to who can be reached");
    world.link(0, LinkState::Down);
    assert_eq!(world.receivers(), [], "once");
    // A new bundle does not wait for the dead leader.
    world.submit(b"c");
    world.drain();
    assert_eq!(world.receivers(), [1, 3]);
    // A replica that reconnects receives the bundles that it may have missed.
    world.link(2, LinkState::Up);
    assert_eq!(world.receivers(), [2, 2, 2]);
    world.link(0, LinkState::Up);
    assert_eq!(world.receivers(), [0, 0, 0]);
}

#[test]
fn first_bundles_wait_for_the_connection_to_the_leader() {
    let mut world = World::with(settings());
    world.core.open(world.now, NONCE);
    world.drain();
    world.link(1, LinkState::Up);
    world.link(2, LinkState::Up);
    assert_eq!(world.receivers(), []);
    world.link(0, LinkState::Up);
    assert_eq!(world.receivers(), [0]);
    // Replies to an execution before this connection was up reached no connection, so the client sends the bundle.
    world.link(3, LinkState::Up);
    assert_eq!(world.receivers(), [3]);
    world.link(3, LinkState::Down);
    world.link(3, LinkState::Up);
    assert_eq!(world.receivers(), [], "only the first time: nothing in flight depends on one backup");

    let mut world = World::with(settings());
    world.core.open(world.now, NONCE);
    world.link(1, LinkState::Up);
    world.link(0, LinkState::Down);
    assert_eq!(world.receivers(), [1], "the leader cannot be reached: no waiting");
    world.link(2, LinkState::Up);
    assert_eq!(world.receivers(), [2]);

    let mut world = World::with(settings());
    world.core.open(world.now, NONCE);
    world.link(1, LinkState::Up);
    world.pass(799 * MS);
    assert_eq!(world.receivers(), []);
    world.pass(MS);
    assert_eq!(world.receivers(), [1], "the leader's connection hangs");
}
