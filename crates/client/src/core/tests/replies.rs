use super::*;
use proptest::prelude::*;
use quorate_types::rng::Rng;

#[test]
fn result_needs_f_plus_1_distinct_replicas() {
    let mut world = World::open(settings());
    let (ticket, bundle) = world.send_one(b"op");
    assert_eq!(bundle.requests().collect::<Vec<_>>(), [b"op"]);
    assert_eq!((bundle.session(), bundle.number()), (SESSION, BundleNo(1)));
    // One replica is not enough, even if it repeats itself.
    for _ in 0..5 {
        world.reply(3, &bundle, &done(&[b"yes"]));
    }
    // Two replicas with different results are not enough.
    world.reply(1, &bundle, &done(&[b"no"]));
    // A replica outside the committee does not count.
    world.reply(4, &bundle, &done(&[b"no"]));
    assert_eq!(world.take_events(), []);
    world.now = world.now.plus(3 * MS);
    world.reply(0, &bundle, &done(&[b"yes"]));
    let events = world.take_events();
    let [
        Event::Done {
            bundle: reported,
            answer: Answer::Results(results),
            requests: 1,
            submitted,
            sent,
            repeats: 0,
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(*reported, ticket);
    assert_eq!(results.get(0), Some(b"yes" as &[u8]));
    assert_eq!(results.get(1), None);
    assert_eq!((*submitted, *sent), (Time(5 * MS), Time(5 * MS)));
    // Late replies change nothing.
    world.reply(2, &bundle, &done(&[b"yes"]));
    world.reply(1, &bundle, &done(&[b"no"]));
    assert_eq!(world.take_events(), []);
    assert_eq!(world.core.outstanding(), 0);
    assert_eq!(world.core.deadline().map(|_| ()), Some(()), "the deadline may be early");
    world.pass(10_000 * MS);
    assert_eq!(world.core.deadline(), None);
    assert_eq!(world.receivers(), [] as [u16; 0]);
}

/// A liar names the honest result but sends other bytes. The client must not return them, and they must not hide the
/// honest bytes.
#[test]
fn outcome_with_another_digest_than_it_names_is_a_lie() {
    for order in [[3u16, 0, 1], [0, 3, 1], [0, 1, 3]] {
        let mut world = World::open(settings());
        let (_, bundle) = world.send_one(b"op");
        let mut honest_seen = 0;
        for from in order {
            let mut message = reply(&bundle, &done(&[b"right"]), View(0), ReplicaId(0));
            if from == 3
                && let FromReplica::Reply(_, reply) = &mut message
            {
                reply.outcome = Arc::from(done(&[b"wrong"]).to_bytes());
            }
            honest_seen += usize::from(from != 3);
            world.handle(from, message);
            if honest_seen == 2 {
                break;
            }
        }
        let events = world.take_events();
        let [Event::Done { answer: Answer::Results(results), .. }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(results.get(0), Some(b"right" as &[u8]));
    }
}

/// Replies count only for this content: not for other content under the same number, other sessions, other clients or unknown
/// numbers.
#[test]
fn only_replies_to_this_content_count() {
    let mut world = World::open(settings());
    let (_, bundle) = world.send_one(b"op");
    for from in 0..4 {
        for change in 0..5 {
            let mut message = reply(&bundle, &done(&[b"x"]), View(0), ReplicaId(0));
            let FromReplica::Reply(client, reply) = &mut message else { unreachable!() };
            match change {
                0 => reply.bundle = BundleDigest::ZERO,
                1 => reply.session.index += 1,
                2 => reply.session = SessionId::default(),
                3 => reply.number = BundleNo(u64::MAX),
                _ => *client = PublicKey([1; 32]),
            }
            world.handle(from, message);
        }
        world.handle(from, FromReplica::Status("{}".to_owned()));
        world.handle(from, FromReplica::Close(String::new()));
    }
    assert_eq!(world.take_events(), []);
    assert_eq!(world.core.counters().lies, 4);
}

#[test]
fn attempts_are_described_with_counts() {
    let mut world = World::with(settings());
    world.link(0, LinkState::Up);
    let tried = |world: &World| world.core.tried(&|_| true);
    assert_eq!(tried(&world), Tried { is_sent: false, text: "no session is open".to_owned() });
    world.core.open(world.now, NONCE);
    world.drain();
    let text = "no session was opened yet: sent to replica 0, none has answered".to_owned();
    assert_eq!(tried(&world), Tried { is_sent: false, text });
    let mut world = World::open(settings());
    assert_eq!(tried(&world), Tried { is_sent: false, text: "nothing was sent".to_owned() });
    let (ticket, bundle) = world.send_one(b"op");
    let expect = |world: &World, text: &str| {
        let expected = Tried { is_sent: true, text: text.to_owned() };
        assert_eq!(world.core.tried(&|bundle| bundle == ticket), expected);
    };
    expect(&world, "sent to replica 0, none has answered");
    world.pass(800 * MS);
    expect(&world, "sent to replicas 0, 1, 2, 3, 2 times, none has answered");
    world.refuse(1, &bundle, Refusal::Busy);
    world.refuse(2, &bundle, Refusal::Behind);
    world.refuse(3, &bundle, Refusal::Behind);
    expect(
        &world,
        "sent to replicas 0, 1, 2, 3, 2 times: 1 refuses (busy), 2 refuse (it is behind), 1 has not answered",
    );
    world.reply(1, &bundle, &done(&[b"a"]));
    let digest = |outcome: &Outcome| {
        let digest = ReplyBundle::result_digest(&outcome.to_bytes());
        quorate_types::digest::hex(&digest.0)[..8].to_owned()
    };
    let (a, b) = (digest(&done(&[b"a"])), digest(&done(&[b"b"])));
    let rest = "2 refuse (it is behind), 1 has not answered; 2 equal answers are needed";
    expect(&world, &format!("sent to replicas 0, 1, 2, 3, 2 times: 1 reports digest {a}…, {rest}"));
    world.reply(2, &bundle, &done(&[b"b"]));
    let rest = "1 refuses (it is behind), 1 has not answered; 2 equal answers are needed";
    expect(
        &world,
        &format!(
            "sent to replicas 0, 1, 2, 3, 2 times: replicas answer differently: 1 reports digest {a}…, 1 reports digest {b}…, {rest}"
        ),
    );
    assert!(!world.core.tried(&|_| false).is_sent, "bundles that were not asked for are not described");
}

/// The honest replicas first report the result, and then (for a duplicate) that it is forgotten, while
/// their messages overtake each other. The result wins once f + 1 replicas have reported it.
#[test]
fn later_answer_does_not_revoke_an_earlier_one() {
    let mut world = World::open(settings());
    let (_, bundle) = world.send_one(b"op");
    world.reply(0, &bundle, &done(&[b"r"]));
    world.reply(0, &bundle, &Outcome::Forgotten);
    world.reply(1, &bundle, &done(&[b"r"]));
    assert!(matches!(world.take_events()[..], [Event::Done { .. }]));
}

#[test]
fn outcomes_stored_for_one_replica_are_bounded() {
    let mut world = World::open(settings());
    let (_, bundle) = world.send_one(b"op");
    for i in 0..1_000u32 {
        world.reply(3, &bundle, &Outcome::Registered(i));
    }
    let held = Arc::from(Outcome::Registered(0).to_bytes());
    let BundleSlot::Flying(flight) = &mut world.core.slots[0] else { panic!() };
    let FromReplica::Reply(_, mut reply) = reply(&bundle, &Outcome::Registered(0), View(0), ReplicaId(0))
    else {
        unreachable!()
    };
    // One of the first four is stored: a second reply for it is accepted without another hash.
    reply.outcome = Arc::from([].as_slice());
    assert_eq!(flight.count_reply(ReplicaId(1), &reply, 2), flight::ReplyEffect::Accepted(held));
    // The others were never stored: a reply that claims one is checked anew.
    reply.result = ReplyBundle::result_digest(&Outcome::Registered(500).to_bytes());
    assert_eq!(flight.count_reply(ReplicaId(1), &reply, 2), flight::ReplyEffect::Lie);
    world.reply(0, &bundle, &done(&[b"r"]));
    world.reply(1, &bundle, &done(&[b"r"]));
    assert!(matches!(world.take_events()[..], [Event::Done { .. }]));
}

#[test]
fn leader_guess_follows_f_plus_1_replicas() {
    let mut world = World::open(settings());
    let view = |view, leader| (View(view), ReplicaId(leader));
    let reply_in_view = |world: &mut World, from: u16, (view, leader)| {
        let (_, bundle) = world.send_one(b"x");
        world.handle(from, reply(&bundle, &done(&[b""]), view, leader));
        world.reply((from + 1) % 4, &bundle, &done(&[b""]));
        world.take_events();
    };
    // One liar in a far view does not move the guess.
    let mut guess = LeaderGuess::new(4, 2, ReplicaId(0));
    guess.note(ReplicaId(3), View(u64::MAX), ReplicaId(3));
    guess.note(ReplicaId(0), View(5), ReplicaId(1));
    assert_eq!(guess.get(), ReplicaId(1), "f + 1 have reached view 5, and one names its leader");
    guess.note(ReplicaId(1), View(5), ReplicaId(1));
    // A liar in the right view with the wrong leader is outvoted; unknown leaders and unknown replicas are ignored.
    guess.note(ReplicaId(3), View(5), ReplicaId(3));
    assert_eq!(guess.get(), ReplicaId(1));
    guess.note(ReplicaId(3), View(6), ReplicaId(9));
    guess.note(ReplicaId(9), View(6), ReplicaId(2));
    assert_eq!(guess.get(), ReplicaId(1));
    guess.note(ReplicaId(0), View(6), ReplicaId(2));
    guess.note(ReplicaId(1), View(6), ReplicaId(2));
    assert_eq!(guess.get(), ReplicaId(2));
    // Through the core: bundles go to the new leader.
    reply_in_view(&mut world, 1, view(3, 3));
    reply_in_view(&mut world, 2, view(3, 3));
    assert_eq!(world.core.leader(), ReplicaId(3));
    world.submit(b"y");
    world.drain();
    assert_eq!(world.receivers(), [3]);
}

#[test]
fn busy_refusal_postpones_the_bundle_and_is_counted() {
    let mut world = World::open(settings());
    let (_, bundle) = world.send_one(b"op");
    let mut waited = Vec::new();
    for _ in 0..5 {
        world.refuse(0, &bundle, Refusal::Busy);
        world.refuse(0, &bundle, Refusal::Busy); // A repeated refusal changes nothing.
        let before = world.now;
        while world.sent.is_empty() {
            world.pass(MS);
        }
        assert_eq!(world.receivers(), [0]);
        waited.push(world.now.since(before) / MS);
    }
    assert_eq!(waited, [20, 40, 80, 160, 320]);
    assert_eq!(world.core.counters().busy, 10);
    // Even the refusals of all replicas are no result.
    for from in 0..4 {
        world.refuse(from, &bundle, Refusal::Busy);
    }
    assert_eq!(world.take_events(), []);
    // The retry to all happens on time all the same: one replica's refusal must not delay it.
    world.pass(800 * MS);
    assert!(world.receivers().contains(&1));
    // The pause has a bound, because bundles with higher numbers may wait for this one.
    world.refuse(0, &bundle, Refusal::Busy);
    world.pass(320 * MS);
    assert!(world.receivers().contains(&0));
}

#[test]
fn leader_that_is_behind_receives_the_bundle_again_soon() {
    let mut world = World::open(settings());
    let (_, bundle) = world.send_one(b"op");
    world.refuse(0, &bundle, Refusal::Behind);
    world.pass(2 * MS);
    assert_eq!(world.receivers(), [0]);
    world.refuse(0, &bundle, Refusal::Behind);
    world.pass(4 * MS);
    assert_eq!(world.receivers(), [0]);
    assert_eq!(world.take_events(), []);
}

/// A bundle that more than f replicas refuse as busy goes to the leader alone, until the next retry. One refusal may be a lie.
#[test]
fn busy_cluster_receives_the_bundle_again_at_the_leader_alone() {
    for (busy, asked) in [(1, vec![0, 1, 2, 3]), (2, vec![0])] {
        let mut world = World::open(settings());
        let (_, bundle) = world.send_one(b"op");
        world.pass(800 * MS);
        assert_eq!(world.receivers(), [0, 1, 2, 3]);
        (0..busy).for_each(|from| world.refuse(from, &bundle, Refusal::Busy));
        world.pass(20 * MS);
        assert_eq!(world.receivers(), asked, "{busy} replicas are busy");
        world.pass(800 * MS);
        assert!(world.receivers().ends_with(&[0, 1, 2, 3]));
    }
}

/// After a power cut no replica may have executed the opening of the session yet. All of them will.
#[test]
fn refusals_of_replicas_that_are_behind_fail_no_bundle() {
    for why in [Refusal::Behind, Refusal::OutOfWindow] {
        let mut world = World::open(settings());
        let (_, bundle) = world.send_one(b"op");
        (0..4).for_each(|from| world.refuse(from, &bundle, why));
        world.pass(900 * MS);
        (0..4).for_each(|from| world.refuse(from, &bundle, why));
        assert_eq!(world.take_events(), [], "{why:?}");
        (1..3).for_each(|from| world.reply(from, &bundle, &done(&[b"done"])));
        assert!(matches!(world.take_events()[..], [Event::Done { .. }]), "{why:?}");
    }
}

#[test]
fn one_lying_refusal_changes_no_result() {
    for why in [
        Refusal::BadSignature,
        Refusal::Malformed,
        Refusal::NumberReused,
        Refusal::NotRegistered,
        Refusal::Forgotten,
    ] {
        let mut world = World::open(settings());
        let (_, bundle) = world.send_one(b"op");
        world.refuse(0, &bundle, why);
        assert_eq!(world.receivers(), [0, 1, 2, 3], "the others are asked at once");
        for _ in 0..9 {
            world.refuse(0, &bundle, why);
        }
        assert_eq!(world.receivers(), []);
        world.refuse(2, &bundle, why);
        assert_eq!(world.take_events(), [], "two of four may be a liar and a laggard");
        world.reply(1, &bundle, &done(&[b""]));
        world.reply(3, &bundle, &done(&[b""]));
        assert!(matches!(world.take_events()[..], [Event::Done { .. }]));
    }
}

#[test]
fn bundle_fails_when_all_replicas_refuse_it() {
    let mut world = World::open(settings());
    let (ticket, bundle) = world.send_one(b"op");
    let (other, _) = world.send_one(b"other");
    for from in [0, 1, 2, 3] {
        world.refuse(from, &bundle, Refusal::BadSignature);
    }
    // The first refusal came before the bundle went to all: three distinct refusals after that decide.
    let why = Failure::Refused(Refusal::BadSignature);
    let events = world.take_events();
    assert_eq!(
        events,
        [
            Event::Failed { bundle: ticket, requests: 1, why },
            Event::Failed { bundle: other, requests: 1, why: Failure::SessionLost },
            Event::SessionLost,
        ]
    );
    assert_eq!(why.fate(), Fate::Unknown);
}

/// Six replicas with f = 1: n - f = 5 is neither f + 1, nor the quorum of 4, nor n.
#[test]
fn bundle_fails_when_n_minus_f_replicas_refuse_it() {
    let mut world = World::open(Settings { n: 6, ..settings() });
    let (_, bundle) = world.send_one(b"op");
    world.refuse(0, &bundle, Refusal::BadSignature);
    for from in 0..4 {
        world.refuse(from, &bundle, Refusal::BadSignature);
    }
    assert_eq!(world.take_events(), [], "two may still answer, and one of them is honest");
    world.refuse(4, &bundle, Refusal::BadSignature);
    assert!(matches!(world.take_events()[..], [Event::Failed { .. }, ..]));
}

#[test]
fn every_outcome_maps_to_its_failure() {
    for (outcome, expected, fate, lost) in [
        (Outcome::Forgotten, Failure::Forgotten, Fate::Unknown, false),
        (Outcome::TooLarge, Failure::TooLarge(1 << 20), Fate::Executed, false),
        (Outcome::NotAllowed, Failure::NotAllowed, Fate::NotExecuted, false),
        (Outcome::Superseded, Failure::Superseded, Fate::NotExecuted, true),
        (Outcome::OutOfWindow, Failure::OutOfWindow, Fate::Unknown, true),
        (Outcome::NoSession, Failure::SessionLost, Fate::Unknown, true),
        (Outcome::Opened(SESSION), Failure::Impossible, Fate::Unknown, false),
        (done(&[b"one", b"two"]), Failure::Impossible, Fate::Unknown, false),
    ] {
        let mut world = World::open(settings());
        let (_, bundle) = world.send_one(b"op");
        world.reply(0, &bundle, &outcome);
        world.reply(1, &bundle, &outcome);
        world.pass(2_000 * MS);
        let events = world.take_events();
        assert_eq!(failure(&events[0]), Some(expected));
        assert_eq!(expected.fate(), fate);
        assert_eq!(events.get(1) == Some(&Event::SessionLost), lost, "{outcome:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// f replicas send anything at any time, the others answer honestly in any order, and links come and go. Every
    /// operation gets its own honest result exactly once.
    #[test]
    fn liars_change_no_result(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let f = 1 + rng.index(2);
        let n = 3 * f + 1;
        let mut world = World::open(Settings { n, f, client_window: 8, ..settings() });
        let liars: Vec<u16> = (0..f).map(|i| (n - 1 - i) as u16).collect();
        // Messages that each honest replica will still send.
        let mut honest: Vec<(u16, Bundle)> = Vec::new();
        let mut seen: BTreeSet<(u16, BundleNo)> = BTreeSet::new();
        let mut known: Vec<Bundle> = Vec::new();
        let mut expected = BTreeMap::new();
        let mut results = BTreeMap::new();
        for step in 0..2_000u32 {
            if expected.len() < 30 && rng.chance(200_000) {
                let op = step.to_le_bytes();
                let ticket = world.submit(&op);
                expected.insert(ticket, op.to_vec());
            }
            world.drain();
            for (to, frame) in world.take_sent() {
                let bundle = world.parse(&frame);
                known.push(bundle.clone());
                // A replica forwards each bundle: all honest ones execute it, and answer once.
                if !liars.contains(&to.0) {
                    for id in (0..n as u16).filter(|id| !liars.contains(id)) {
                        if seen.insert((id, bundle.number())) {
                            honest.push((id, bundle.clone()));
                        }
                    }
                }
            }
            if !honest.is_empty() && rng.chance(500_000) {
                let (from, bundle) = honest.swap_remove(rng.index(honest.len()));
                let echo: Vec<Vec<u8>> = bundle.requests().map(<[u8]>::to_vec).collect();
                world.reply(from, &bundle, &Outcome::Done(echo));
            }
            if let Some(bundle) = rng.pick(&known).cloned() {
                lie(&mut world, &mut rng, &liars, &bundle);
            }
            if rng.chance(5_000) {
                let id = rng.index(n) as u16;
                world.link(id, LinkState::Down);
                world.link(id, LinkState::Up);
            }
            world.pass(rng.below(50 * MS));
            for event in world.take_events() {
                let Event::Done { bundle, answer: Answer::Results(reported), requests, .. } = event else {
                    panic!("seed {seed}: {event:?}");
                };
                for index in 0..requests {
                    let again = results.insert(Ticket { bundle, index }, reported.get(index).unwrap().to_vec());
                    prop_assert_eq!(again, None, "reported twice");
                }
            }
        }
        prop_assert_eq!(results, expected);
    }
}

fn lie(world: &mut World, rng: &mut Rng, liars: &[u16], bundle: &Bundle) {
    let from = *rng.pick(liars).unwrap();
    let outcomes = [
        done(&[b"false"]),
        Outcome::NoSession,
        Outcome::Superseded,
        Outcome::Forgotten,
        Outcome::Opened(SESSION),
    ];
    match rng.below(4) {
        0 => world.reply(from, bundle, &outcomes[rng.index(outcomes.len())]),
        1 => {
            let view = View(rng.next_u64());
            world.handle(from, reply(bundle, &done(&[b"false"]), view, ReplicaId(from)));
        }
        2 => {
            let echo: Vec<Vec<u8>> = bundle.requests().map(<[u8]>::to_vec).collect();
            let mut message = reply(bundle, &Outcome::Done(echo), View(0), ReplicaId(0));
            if let FromReplica::Reply(_, reply) = &mut message {
                reply.outcome = Arc::from(outcomes[rng.index(outcomes.len())].to_bytes());
            }
            world.handle(from, message);
        }
        _ => {
            let reasons = [Refusal::Busy, Refusal::Behind, Refusal::BadSignature, Refusal::Forgotten];
            world.refuse(from, bundle, reasons[rng.index(reasons.len())]);
        }
    }
}

/// Additive increase, multiplicative decrease: `Busy` reduces the bundles in flight, and answers increase them again.
#[test]
fn client_adapts_its_bundles_in_flight_to_a_busy_cluster() {
    let mut world = World::open(settings());
    let bundles: Vec<Bundle> = (0..4u8).map(|op| world.send_one(&[op]).1).collect();
    world.refuse(0, &bundles[3], Refusal::Busy);
    for bundle in &bundles[..2] {
        (1..3).for_each(|from| world.reply(from, bundle, &done(&[b""])));
    }
    world.take_sent();
    world.submit(b"later");
    world.drain();
    assert_eq!(world.receivers(), [], "two are in flight, and two may be");
    (1..3).for_each(|from| world.reply(from, &bundles[2], &done(&[b""])));
    assert_eq!(world.receivers(), [0]);
}

/// A thousand clients with many requests each must not send all of them again and again.
#[test]
fn postponed_bundles_are_sent_again_within_the_allowance() {
    let mut world = World::open(settings());
    let bundles: Vec<Bundle> = (0..4u8).map(|op| world.send_one(&[op]).1).collect();
    for round in 0..4 {
        for bundle in &bundles {
            world.refuse(0, bundle, Refusal::Busy);
        }
        world.take_sent();
        world.pass(101 * MS);
        let expected = if round == 0 { 2 } else { 1 };
        let sent: BTreeSet<_> = world.take_sent().iter().map(|(_, frame)| frame.clone()).collect();
        assert_eq!(sent.len(), expected, "round {round}");
    }
}
