use super::fake::{Behaviour, Fake, answer, ask_again, link_key, no_listener};
use super::*;
use crate::cluster::{AskAgain, LinkMode};
use crate::core::Answer;
use quorate_crypto::Scheme;
use quorate_types::codec::Wire;
use quorate_types::wire::VERSION;
use quorate_types::{ClusterId, ProtocolId, PublicKey};

/// The longest time that a test waits for an event.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than any test, so that no retry happens.
const NEVER_NS: u64 = 3_600_000_000_000;

fn key(number: u16) -> SigningKey {
    let mut seed = [1; 32];
    seed[..2].copy_from_slice(&number.to_le_bytes());
    SigningKey::from_seed(Scheme::Ed25519, seed)
}

fn options() -> Options {
    Options { timeout: DEADLINE, ..Options::default() }
}

fn client(fake: &Fake) -> Client {
    Client::connect(fake.info.clone(), key(0), options()).unwrap()
}

/// Polls until `done` returns true.
fn until(pool: &mut ClientPool, mut done: impl FnMut(&mut ClientPool, PoolEvent) -> bool) {
    let start = Instant::now();
    let mut events = Vec::new();
    loop {
        assert!(start.elapsed() < DEADLINE, "too late: {}", pool.trouble());
        pool.poll(Duration::from_secs(1), &mut events).unwrap();
        for event in std::mem::take(&mut events) {
            if done(pool, event) {
                return;
            }
        }
    }
}

fn until_open(pool: &mut ClientPool, mut count: usize) {
    until(pool, |_, event| {
        count -= usize::from(matches!(event, PoolEvent::Client(_, Event::Opened(_))));
        count == 0
    });
}

/// Polls until all connections are up: from then on only the leader receives bundles.
fn until_connected(pool: &mut ClientPool) {
    let start = Instant::now();
    while !pool.cluster.ids().all(|replica| pool.link(replica) == Some(LinkState::Up)) {
        assert!(start.elapsed() < DEADLINE, "too late: {}", pool.trouble());
        pool.poll(Duration::from_millis(100), &mut Vec::new()).unwrap();
    }
}

#[test]
fn calls_return_their_results() {
    for links in [LinkMode::Tls, LinkMode::Plain] {
        let fake = Fake::start(4, links);
        let mut client = client(&fake);
        assert_eq!(client.call(b"one").unwrap(), answer(b"one"));
        let ops: Vec<Vec<u8>> = (0..10_000u32).map(|i| i.to_le_bytes().to_vec()).collect();
        let results = client.call_many(ops.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(results, ops.iter().map(|op| answer(op)).collect::<Vec<_>>());
        assert_eq!(client.call_many([]).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(fake.state().executed.len(), 10_001, "each once");
        // A large operation and one that is too large.
        let large = vec![7; fake.info.limits.request_bytes_max as usize];
        assert_eq!(client.call(&large).unwrap(), answer(&large));
        let too_large = [&large[..], b"x"].concat();
        assert!(matches!(client.call(&too_large), Err(ClientError::Submit(SubmitError::TooLarge { .. }))));
        assert_eq!(client.call(b"after").unwrap(), answer(b"after"));
    }
}

/// Replica 0 is asked first, and shows a bad proof.
#[test]
fn call_for_order_returns_the_place_that_one_replica_proves() {
    let fake = Fake::start(4, LinkMode::Tls);
    let mut client = client(&fake);
    client.call(b"before").unwrap();
    fake.behave(0, Behaviour::Wrong);
    let ordered = client.order(b"op").unwrap();
    assert_ne!(ordered.by, ReplicaId(0));
    assert_eq!(client.call(b"after").unwrap(), answer(b"after"));
    let executed = fake.state().executed.clone();
    assert_eq!(executed, [b"before".to_vec(), b"op".to_vec(), b"after".to_vec()]);
    let mut info = fake.info.clone();
    info.protocol = ProtocolId::new("pbft");
    let mut other = Client::connect(info, key(1), options()).unwrap();
    let refused = other.order(b"never");
    let expected = SubmitError::NoOrder(OrderError::NoProofs);
    assert!(matches!(&refused, Err(ClientError::Submit(why)) if *why == expected), "{refused:?}");
    assert_eq!(other.call(b"next").unwrap(), answer(b"next"));
    assert!(!fake.state().executed.contains(&b"never".to_vec()));
}

#[test]
fn connections_have_nodelay() {
    let fake = Fake::start(4, LinkMode::Tls);
    let mut pool = ClientPool::new(fake.info.clone()).unwrap();
    pool.add(key(0), pool.settings()).unwrap();
    until_open(&mut pool, 1);
    let mut sockets = pool.peers.iter().filter_map(|peer| peer.connection.as_ref());
    assert!(sockets.all(|connection| connection.socket.nodelay().unwrap()));
}

#[test]
fn one_faulty_replica_changes_no_result() {
    let hello = |cluster, id| {
        let version = VERSION;
        let frame = FromReplica::Hello { version, cluster, id }.to_bytes();
        [&(frame.len() as u32).to_le_bytes()[..], &frame].concat()
    };
    let malformed = [&5u32.to_le_bytes()[..], &[99; 5]].concat();
    let early = {
        let frame = FromReplica::Status("{}".to_owned()).to_bytes();
        [&(frame.len() as u32).to_le_bytes()[..], &frame].concat()
    };
    for (behaviour, links, trouble) in [
        (Behaviour::Wrong, LinkMode::Tls, None),
        (Behaviour::WrongBytes, LinkMode::Tls, None),
        (Behaviour::Silent, LinkMode::Plain, None),
        (Behaviour::Sends(vec![0xff; 64]), LinkMode::Tls, Some("a frame of")),
        (Behaviour::Sends(malformed), LinkMode::Tls, Some("malformed")),
        (Behaviour::Sends(early), LinkMode::Plain, Some("before")),
        (Behaviour::Sends(hello(ClusterId::ZERO, ReplicaId(2))), LinkMode::Tls, Some("another cluster")),
        (
            Behaviour::Sends(hello(ClusterId(quorate_types::Digest([8; 32])), ReplicaId(3))),
            LinkMode::Tls,
            Some("replica 3"),
        ),
    ] {
        let fake = Fake::start(4, links);
        fake.behave(2, behaviour.clone());
        let mut client = client(&fake);
        for i in 0..50u8 {
            assert_eq!(client.call(&[i]).unwrap(), answer(&[i]), "{behaviour:?}");
        }
        if let Some(trouble) = trouble {
            let start = Instant::now();
            while !client.pool.trouble_with(ReplicaId(2)).contains(trouble) {
                assert!(start.elapsed() < DEADLINE, "{}", client.pool.trouble());
                client.pool.poll(Duration::from_millis(20), &mut Vec::new()).unwrap();
            }
        }
    }
}

/// The retry never happens, so a dead leader would stop all bundles. The failed or broken connection to it sends the bundles to
/// the others.
#[test]
fn unreachable_leader_costs_no_retry() {
    let refused = |info: &mut ClusterInfo| info.replicas[0].address = no_listener();
    let other_key = |info: &mut ClusterInfo| info.replicas[0].link = link_key(77).public();
    let changes: [&dyn Fn(&mut ClusterInfo); 2] = [&refused, &other_key];
    for change in changes {
        let fake = Fake::start(4, LinkMode::Tls);
        let mut info = fake.info.clone();
        change(&mut info);
        let mut pool = ClientPool::new(info).unwrap();
        let settings = Settings { retry_ns: NEVER_NS, ..pool.settings() };
        pool.add(key(0), settings).unwrap();
        until_open(&mut pool, 1);
        assert_eq!(pool.link(ReplicaId(0)), Some(LinkState::Down));
        assert!(!pool.trouble_with(ReplicaId(0)).is_empty());
    }
}

#[test]
fn server_with_another_key_is_refused() {
    let fake = Fake::start(4, LinkMode::Tls);
    let mut info = fake.info.clone();
    for replica in &mut info.replicas {
        replica.link = link_key(77).public();
    }
    let short = Options { timeout: Duration::from_secs(3), ..options() };
    let Err(ClientError::Timeout { trouble, .. }) = Client::connect(info, key(0), short).map(|_| ()) else {
        panic!("connected to servers with another key");
    };
    assert!(trouble.contains("replica 3") && trouble.contains("link key"), "{trouble}");
    assert_eq!(fake.state().executed.len(), 0);
}

#[test]
fn silent_leader_costs_one_retry() {
    let fake = Fake::start(4, LinkMode::Tls);
    fake.behave(0, Behaviour::Silent);
    let mut pool = ClientPool::new(fake.info.clone()).unwrap();
    let settings = Settings { retry_ns: 30_000_000, ..pool.settings() };
    let id = pool.add(key(0), settings).unwrap();
    until_open(&mut pool, 1);
    until_connected(&mut pool);
    let now = pool.now();
    let op: &[u8] = b"op";
    pool.core(id).unwrap().submit_bundle(now, [op]).unwrap();
    until(&mut pool, |_, event| match event {
        PoolEvent::Client(_, Event::Done { repeats, .. }) => {
            assert!(repeats > 0);
            true
        }
        _ => false,
    });
    assert_eq!(fake.state().executed, [b"op"]);
}

#[test]
fn operations_are_executed_once_across_broken_connections() {
    for links in [LinkMode::Tls, LinkMode::Plain] {
        let fake = Fake::start(4, links);
        let mut client = client(&fake);
        for round in 0..6u8 {
            for i in 0..20u8 {
                let op = [round, i];
                if i == 7 {
                    fake.cut();
                }
                assert_eq!(client.call(&op).unwrap(), answer(&op));
            }
        }
        let state = fake.state();
        let expected: Vec<Vec<u8>> =
            (0..6u8).flat_map(|round| (0..20u8).map(move |i| vec![round, i])).collect();
        assert_eq!(state.executed, expected);
        assert!(state.accepted.iter().all(|count| *count >= 2), "{:?}", state.accepted);
    }
}

#[test]
fn session_lost_while_idle_is_replaced_unnoticed() {
    let fake = Fake::start(4, LinkMode::Tls);
    let mut client = client(&fake);
    client.call(b"before").unwrap();
    fake.forget_sessions();
    let many: Vec<Vec<u8>> = (0..10_000u32).map(|i| i.to_le_bytes().to_vec()).collect();
    let results = client.call_many(many.iter().map(Vec::as_slice)).unwrap();
    assert_eq!(results, many.iter().map(|op| answer(op)).collect::<Vec<_>>());
    let expected: Vec<Vec<u8>> = std::iter::once(b"before".to_vec()).chain(many).collect();
    assert_eq!(fake.state().executed, expected, "each once, in its order");
}

#[test]
fn only_reads_without_room_are_repeated_alone() {
    let mut fake = Fake::start(4, LinkMode::Tls);
    let many: [&[u8]; 5] = [b"one", b"large 1", b"large write", b"large 2", b"two"];
    let no_room = b"no room".to_vec();
    // Without a rule of the service the client cannot know which operations only read.
    let results = client(&fake).call_many(many).unwrap();
    assert_eq!(results.iter().filter(|result| **result == no_room).count(), 3);
    fake.info.ask_again = Some(AskAgain(ask_again));
    fake.state().executed.clear();
    let mut client = client(&fake);
    let results = client.call_many(many).unwrap();
    let expected = [answer(b"one"), answer(b"large 1"), no_room.clone(), answer(b"large 2"), answer(b"two")];
    assert_eq!(results, expected);
    let again: Vec<&[u8]> = [&many[..], &[b"large 1", b"large 2"]].concat();
    assert_eq!(fake.state().executed, again, "each write once");
    // A value that a later operation may have changed is not read again.
    let results = client.call_many([&b"large 3"[..], b"all change"]).unwrap();
    assert_eq!(results, [no_room, answer(b"all change")]);
    assert_eq!(client.call(b"large 4").unwrap(), answer(b"large 4"));
    assert_eq!(fake.state().executed.len(), 10);
}

/// One replica is right, one is wrong, and two are silent: the client cannot decide.
#[test]
fn late_call_describes_its_attempts() {
    static WAITING: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let fake = Fake::start(4, LinkMode::Tls);
    let mut client = client(&fake);
    client.call(b"before").unwrap();
    client.options.timeout = WAITING_AFTER + Duration::from_millis(500);
    client.options.waiting = Some(|text| WAITING.lock().unwrap().push(text.to_owned()));
    for (replica, behaviour) in [(1, Behaviour::Wrong), (2, Behaviour::Silent), (3, Behaviour::Silent)] {
        fake.behave(replica, behaviour);
    }
    let late = client.call(b"op").unwrap_err();
    let ClientError::Timeout { fate, tried, .. } = &late else { panic!("{late:?}") };
    assert_eq!(*fate, Fate::Unknown);
    let [sent, differ, answers, _] = tried.split([':', ';']).collect::<Vec<_>>()[..] else {
        panic!("{tried}")
    };
    assert!(sent.starts_with("sent to replicas 0, 1, 2, 3, ") && sent.ends_with(" times"), "{sent}");
    assert_eq!(differ, " replicas answer differently", "{tried}");
    assert!(
        answers.ends_with("…, 2 have not answered") && answers.matches("1 reports digest ").count() == 2,
        "{tried}"
    );
    let text = late.to_string();
    assert!(text.contains("the outcome is unknown: it may still take effect, once at most"), "{text}");
    assert!(text.ends_with("(all connections are up)"), "{text}");
    let waiting = WAITING.lock().unwrap();
    assert_eq!(waiting.len(), 1, "one report for each call: {waiting:?}");
    assert!(waiting[0].starts_with("waiting for an answer: sent to replicas 0, 1, 2, 3"), "{waiting:?}");
}

/// Stopped processes accept connections and send nothing. No bundle leaves, so none can take effect.
#[test]
fn no_bundle_leaves_without_a_session() {
    let mut fake = Fake::start(4, LinkMode::Tls);
    let listeners: Vec<_> = (0..4).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    for (replica, listener) in fake.info.replicas.iter_mut().zip(&listeners) {
        replica.address = listener.local_addr().unwrap();
    }
    let short = Options { timeout: Duration::from_millis(300), ..options() };
    let late = Client::connect(fake.info.clone(), key(0), short).map(|_| ()).unwrap_err();
    assert!(matches!(late, ClientError::Timeout { fate: Fate::NotExecuted, .. }), "{late:?}");
    let text = late.to_string();
    let says = "no session was opened yet: sent to no replica, none has answered; it was not executed and will not take";
    assert!(text.contains(says) && text.contains("replica 3: no hello yet"), "{text}");
}

#[test]
fn unregistered_client_gets_no_session_until_it_is_registered() {
    let fake = Fake::start(4, LinkMode::Tls);
    fake.state().registered = Some([key(0).public()].into());
    let refused = Client::connect(fake.info.clone(), key(1), options()).map(|_| ());
    assert!(matches!(refused, Err(ClientError::Failed(Failure::NotRegistered))), "{refused:?}");
    let mut admin = client(&fake);
    let keys: Vec<PublicKey> = (0..2_500).map(|i| key(i).public()).collect();
    assert_eq!(admin.register(&keys).unwrap(), 2_499, "one key was registered before");
    let mut other = Client::connect(fake.info.clone(), key(1), options()).unwrap();
    assert_eq!(other.call(b"hello").unwrap(), answer(b"hello"));
}

#[test]
fn late_call_ends_in_time_and_abandons_its_bundles() {
    let fake = Fake::start(4, LinkMode::Plain);
    let short = Options { timeout: Duration::from_millis(200), in_flight_max: 1, waiting: None };
    let mut client = Client::connect(fake.info.clone(), key(0), options()).unwrap();
    client.options = short;
    for replica in 0..4 {
        fake.behave(replica, Behaviour::Silent);
    }
    let late = client.call(b"sent");
    assert!(matches!(late, Err(ClientError::Timeout { .. })), "{late:?}");
    for replica in 0..4 {
        fake.behave(replica, Behaviour::Honest);
    }
    client.options = options();
    assert_eq!(client.call(b"next").unwrap(), answer(b"next"));
    let executed = fake.state().executed.clone();
    assert!(executed.iter().filter(|op| **op == b"next").count() == 1);
    assert!(executed.iter().filter(|op| **op == b"sent").count() <= 1);
}

#[test]
fn busy_replicas_receive_the_bundle_again() {
    let fake = Fake::start(4, LinkMode::Tls);
    let mut pool = ClientPool::new(fake.info.clone()).unwrap();
    let settings = Settings { retry_ns: NEVER_NS, ..pool.settings() };
    let id = pool.add(key(0), settings).unwrap();
    until_open(&mut pool, 1);
    until_connected(&mut pool);
    fake.behave(0, Behaviour::Busy);
    let now = pool.now();
    pool.core(id).unwrap().submit(now, b"op").unwrap();
    let start = Instant::now();
    while pool.core(id).unwrap().counters().busy < 3 {
        assert!(start.elapsed() < DEADLINE);
        pool.poll(Duration::from_millis(100), &mut Vec::new()).unwrap();
    }
    fake.behave(0, Behaviour::Honest);
    until(&mut pool, |_, event| matches!(event, PoolEvent::Client(_, Event::Done { .. })));
}

/// Many clients share one connection to each replica, each with bundles of its own in flight.
#[test]
fn many_clients_share_the_connections() {
    const CLIENTS: u16 = 200;
    const BUNDLES: usize = 10;
    let fake = Fake::start(4, LinkMode::Tls);
    let mut pool = ClientPool::new(fake.info.clone()).unwrap();
    let settings = Settings { in_flight_max: 2, ..pool.settings() };
    // Half of them join before there is a connection, half of them once it is up.
    let mut ids: Vec<CoreId> = (0..CLIENTS / 2).map(|i| pool.add(key(i), settings).unwrap()).collect();
    until_open(&mut pool, ids.len());
    let late: Vec<CoreId> = (CLIENTS / 2..CLIENTS).map(|i| pool.add(key(i), settings).unwrap()).collect();
    until_open(&mut pool, late.len());
    ids.extend(late);
    for id in &ids {
        for number in 0..BUNDLES as u32 {
            let op = [&(id.0 as u32).to_le_bytes()[..], &number.to_le_bytes()].concat();
            let now = pool.now();
            let ops = [op.as_slice(), b"second"];
            pool.core(*id).unwrap().submit_bundle(now, ops).unwrap();
        }
    }
    let mut done = vec![0; ids.len()];
    until(&mut pool, |_, event| {
        if let PoolEvent::Client(id, Event::Done { answer: Answer::Results(results), .. }) = event {
            let op = [&(id.0 as u32).to_le_bytes()[..], &(done[id.0] as u32).to_le_bytes()].concat();
            assert_eq!(results.get(0), Some(&answer(&op)[..]), "its own, in its order");
            done[id.0] += 1;
        }
        done.iter().all(|count| *count == BUNDLES)
    });
    assert_eq!(fake.state().accepted, [1, 1, 1, 1]);
    assert_eq!(fake.state().executed.len(), usize::from(CLIENTS) * BUNDLES * 2);
}

#[test]
fn status_comes_from_every_replica() {
    let fake = Fake::start(4, LinkMode::Tls);
    fake.behave(1, Behaviour::Silent);
    let mut info = fake.info.clone();
    info.replicas[3].address = no_listener();
    let answers = status(info, Duration::from_secs(3)).unwrap();
    assert_eq!(answers[0], Ok("{\"id\":0}".to_owned()));
    assert_eq!(answers[1], Err("no answer in time".to_owned()));
    assert_eq!(answers[2], Ok("{\"id\":2}".to_owned()));
    assert!(answers[3].as_ref().is_err_and(|why| why.contains("refused")), "{answers:?}");
}

/// The answer to a request to stop reaches the caller, and not a client of the pool.
#[test]
fn answer_to_a_stop_request_is_an_event_of_its_replica() {
    let fake = Fake::start(4, LinkMode::Tls);
    let mut pool = ClientPool::new(fake.info.clone()).unwrap();
    assert!(!pool.ask_stop(ReplicaId(2), Incarnation(8), &key(0)), "there is no connection yet");
    until_connected(&mut pool);
    assert!(!pool.ask_stop(ReplicaId(4), Incarnation(8), &key(0)), "there is no such replica");
    assert!(pool.ask_stop(ReplicaId(2), Incarnation(8), &key(0)));
    until(&mut pool, |_, event| event == PoolEvent::Stop(ReplicaId(2), StopAnswer::OtherIncarnation));
}

/// The poll reports bytes and the close behind them at once, and never again.
#[test]
fn close_behind_the_last_message_is_noticed() {
    for links in [LinkMode::Tls, LinkMode::Plain] {
        let fake = Fake::start(4, links);
        let mut pool = ClientPool::new(fake.info.clone()).unwrap();
        until_connected(&mut pool);
        assert!(pool.ask_stop(ReplicaId(2), Incarnation(7), &key(0)));
        let mut events = Vec::new();
        pool.poll(Duration::ZERO, &mut events).unwrap();
        let start = Instant::now();
        while fake.open_connections() > 3 {
            assert!(start.elapsed() < DEADLINE, "the replica closes its connection");
            std::thread::yield_now();
        }
        while events.is_empty() {
            assert!(start.elapsed() < DEADLINE, "the answer comes");
            pool.poll(Duration::from_secs(1), &mut events).unwrap();
        }
        assert_eq!(events, [PoolEvent::Stop(ReplicaId(2), StopAnswer::Accepted)]);
        assert_eq!(pool.link(ReplicaId(2)), Some(LinkState::Down), "{links:?}");
    }
}
