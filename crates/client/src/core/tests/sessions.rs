use super::*;

#[test]
fn unregistered_client_fails_at_once() {
    // The outcome reports it …
    let mut world = World::with(settings());
    for id in 0..4 {
        world.link(id, LinkState::Up);
    }
    world.core.open(world.now, NONCE);
    world.drain();
    let open = world.parse(&world.sent[0].1.clone());
    world.reply(1, &open, &Outcome::NotRegistered);
    world.reply(2, &open, &Outcome::NotRegistered);
    assert_eq!(world.take_events(), [Event::OpenFailed(Failure::NotRegistered)]);
    // … and so do the refusals of all replicas that can be waited for.
    world.core.open(world.now, NONCE + 1);
    world.take_sent();
    world.drain();
    let open = world.parse(&world.sent[0].1.clone());
    for from in [0, 1, 2, 0, 3] {
        world.refuse(from, &open, Refusal::NotRegistered);
    }
    assert_eq!(world.take_events(), [Event::OpenFailed(Failure::NotRegistered)]);
    // Waiting operations can be abandoned.
    let ticket = world.submit(b"op");
    world.core.abandon(world.now);
    world.drain();
    assert_eq!(
        world.take_events(),
        [Event::Failed { bundle: ticket.bundle, requests: 1, why: Failure::NotSent }]
    );
}

#[test]
fn lost_session_fails_possibly_executed_bundles_and_keeps_unsent_ones() {
    let mut world = World::open(settings());
    let sent: Vec<(u64, Bundle)> = (0..4u8).map(|i| world.send_one(&[i])).collect();
    let waiting = world.submit(b"waits");
    world.drain();
    let bundle = &sent[2].1;
    world.reply(3, bundle, &Outcome::NoSession);
    world.reply(3, bundle, &Outcome::NoSession);
    assert_eq!(world.take_events(), [], "one replica may lie");
    world.reply(1, bundle, &Outcome::NoSession);
    world.pass(2_000 * MS);
    let events = world.take_events();
    assert_eq!(events.last(), Some(&Event::SessionLost));
    let failed: BTreeSet<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Failed { bundle, why: Failure::SessionLost, .. } => Some(*bundle),
            _ => None,
        })
        .collect();
    assert_eq!(failed, sent.iter().map(|(ticket, _)| *ticket).collect());
    assert_eq!(events.len(), 5);
    // No bundle of the old session is ever sent again.
    world.take_sent();
    world.pass(60_000 * MS);
    assert_eq!(world.take_sent(), []);
    // Late replies to the old session change nothing, and the new session counts from 1 again.
    world.reply(0, &sent[0].1, &done(&[b""]));
    world.reply(1, &sent[0].1, &done(&[b""]));
    assert_eq!(world.take_events(), []);
    world.core.open(world.now, NONCE + 1);
    world.drain();
    let open = world.take_sent();
    let open = world.parse(&open[0].1);
    let second = SessionId { height: Height(90), index: 0 };
    world.reply(0, &open, &Outcome::Opened(second));
    world.reply(2, &open, &Outcome::Opened(second));
    assert_eq!(world.take_events(), [Event::Opened(second)]);
    let sent = world.take_sent();
    let bundle = world.parse(&sent[0].1);
    assert_eq!((bundle.session(), bundle.number()), (second, BundleNo(1)));
    assert_eq!(bundle.requests().collect::<Vec<_>>(), [b"waits"]);
    world.reply(0, &bundle, &done(&[b""]));
    world.reply(2, &bundle, &done(&[b""]));
    assert!(matches!(world.take_events()[..], [Event::Done { bundle, .. }] if bundle == waiting.bundle));
}

#[test]
fn bundle_numbers_stay_within_the_window() {
    let mut wide = settings();
    (wide.client_window, wide.in_flight_max) = (8, 100);
    let mut world = World::open(wide);
    // The slow start ends.
    let mut bundles: Vec<Bundle> = (0..4u8).map(|i| world.send_one(&[i]).1).collect();
    for bundle in bundles.drain(..) {
        (0..2).for_each(|from| world.reply(from, &bundle, &done(&[b""])));
    }
    world.take_sent();
    bundles.extend((0..8u8).map(|i| world.send_one(&[i]).1));
    world.submit(b"ninth");
    world.drain();
    assert_eq!(world.take_sent(), []);
    // Answers above a gap do not move the floor; the answer to the oldest bundle does.
    for bundle in &bundles[1..] {
        world.reply(0, bundle, &done(&[b""]));
        world.reply(1, bundle, &done(&[b""]));
    }
    assert_eq!(world.take_sent(), []);
    world.reply(0, &bundles[0], &done(&[b""]));
    world.reply(1, &bundles[0], &done(&[b""]));
    let sent = world.take_sent();
    assert_eq!(world.parse(&sent[0].1).number(), BundleNo(13));
}

#[test]
fn prepared_bundle_is_sent_unchanged() {
    let mut world = World::with(settings());
    assert_eq!(world.core.prepare([b"x" as &[u8]]).err(), Some(SubmitError::NoSession));
    let mut world = World::open(settings());
    let mut prepared: VecDeque<Prepared> =
        (0..40u8).map(|i| world.core.prepare([&[i] as &[u8], b"second"]).unwrap()).collect();
    assert_eq!(world.core.outstanding(), 0);
    let (mut answered, mut in_flight) = (0u8, VecDeque::new());
    while answered < 40 {
        while let Some(next) = prepared.pop_front() {
            match world.core.submit_prepared(world.now, next) {
                Ok(_) => {}
                Err((why, back)) => {
                    assert_eq!(why, SubmitError::Full);
                    prepared.push_front(*back);
                    break;
                }
            }
        }
        world.drain();
        in_flight.extend(world.take_sent().into_iter().map(|(_, frame)| world.parse(&frame)));
        assert!(in_flight.len() <= 4);
        let bundle: Bundle = in_flight.pop_front().unwrap();
        assert_eq!(bundle.number(), BundleNo(u64::from(answered) + 1));
        assert_eq!(bundle.requests().next(), Some(&[answered] as &[u8]));
        world.reply(0, &bundle, &done(&[b"", b""]));
        world.reply(3, &bundle, &done(&[b"", b""]));
        answered += 1;
    }
    assert_eq!(world.take_events().len(), 40);
    // A prepared bundle of a lost session is given back.
    let stale = world.core.prepare([b"x" as &[u8]]).unwrap();
    let (_, bundle) = world.send_one(b"op");
    world.reply(0, &bundle, &Outcome::NoSession);
    world.reply(1, &bundle, &Outcome::NoSession);
    assert_eq!(
        world.core.submit_prepared(world.now, stale).map_err(|(why, _)| why),
        Err(SubmitError::NoSession)
    );
}

#[test]
fn admin_client_registers_keys() {
    let mut world = World::open(settings());
    let keys = (0..1_000u32).map(|i| {
        let mut key = [7; 32];
        key[..4].copy_from_slice(&i.to_le_bytes());
        PublicKey(key)
    });
    let too_many = world.core.submit_keys(world.now, keys.clone().chain([PublicKey([1; 32])]));
    assert!(matches!(too_many, Err(SubmitError::TooLarge { what: Size::Keys(1_001), .. })));
    world.core.submit_keys(world.now, keys).unwrap();
    world.drain();
    let bundle = world.parse(&world.sent[0].1.clone());
    assert_eq!((bundle.kind(), bundle.request_count()), (BundleKind::Register, 1_000));
    world.reply(0, &bundle, &Outcome::Registered(999));
    world.reply(2, &bundle, &Outcome::Registered(999));
    assert!(matches!(world.take_events()[..], [Event::Done { answer: Answer::Registered(999), .. }]));
}
