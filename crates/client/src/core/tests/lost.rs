//! Tests of sessions lost with bundles in flight: some bundles go into the next session, and others must not.

use super::*;
use proptest::prelude::*;
use quorate_types::rng::Rng;
use std::collections::BTreeMap;

const NEXT: SessionId = SessionId { height: Height(90), index: 0 };

/// Returns a client that all replicas have answered, as after a call and some time.
fn answered() -> World {
    let mut world = World::open(settings());
    let (_, bundle) = world.send_one(b"before");
    for from in 0..4 {
        world.reply(from, &bundle, &done(&[b""]));
    }
    world.take_events();
    world
}

/// Opens the next session; returns the bundles that leave in it.
fn reopen(world: &mut World, session: SessionId) -> Vec<Bundle> {
    world.take_sent();
    world.core.open(world.now, NONCE + 1 + session.height.0);
    world.drain();
    let open = world.take_sent();
    let open = world.parse(&open[0].1);
    for from in 0..4 {
        world.reply(from, &open, &Outcome::Opened(session));
    }
    assert_eq!(world.take_events(), [Event::Opened(session)]);
    world.take_sent().iter().map(|(_, frame)| world.parse(frame)).collect()
}

#[test]
fn idle_client_does_not_notice_the_eviction_of_its_session() {
    for by_reply in [false, true] {
        let mut world = answered();
        let tickets: Vec<(u64, Bundle)> = [b"one", b"two"].map(|op| world.send_one(op)).to_vec();
        let deny = |world: &mut World, from: u16| {
            for (_, bundle) in &tickets {
                match by_reply {
                    true => world.reply(from, bundle, &Outcome::NoSession),
                    false => world.refuse(from, bundle, Refusal::NoSession),
                }
            }
        };
        deny(&mut world, 0);
        assert_eq!(world.take_events(), [], "one replica may lie");
        deny(&mut world, 2);
        assert_eq!(world.take_events(), [Event::SessionLost], "no bundle has failed");
        let later = world.submit(b"three").bundle;
        let again = reopen(&mut world, NEXT);
        let ops: Vec<Vec<u8>> =
            again.iter().flat_map(|bundle| bundle.requests().map(<[u8]>::to_vec)).collect();
        assert_eq!(ops, [&b"one"[..], b"two", b"three"], "each operation once, in its order");
        for (index, bundle) in again.iter().enumerate() {
            assert_eq!((bundle.session(), bundle.number()), (NEXT, BundleNo(index as u64 + 1)));
            world.reply(0, bundle, &done(&[b"r"]));
            world.reply(1, bundle, &done(&[b"r"]));
        }
        let done: Vec<u64> = world
            .take_events()
            .iter()
            .map(|event| match event {
                Event::Done { bundle, .. } => *bundle,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(done, [tickets[0].0, tickets[1].0, later]);
    }
}

/// In each of these cases a replica may have executed the operation without a report to this client.
#[test]
fn bundle_that_may_have_been_executed_is_never_sent_again() {
    type Act = fn(&mut World, &Bundle);
    let doubts: [(&str, Act); 4] = [
        ("a connection broke", |world, _| {
            for from in 1..4 {
                world.link(from, LinkState::Down);
                world.link(from, LinkState::Up);
            }
        }),
        ("replies went elsewhere", |world, _| {
            for from in 1..4 {
                let (client, bundle) = (world.core.client(), BundleDigest::ZERO);
                world.handle(from, FromReplica::Refused { client, bundle, why: Refusal::Busy });
            }
        }),
        ("replicas have reported an execution", |world, bundle| {
            // Each replica sends its own lie, so that none is accepted.
            for from in 1..4u8 {
                world.reply(u16::from(from), bundle, &done(&[&[from]]));
            }
        }),
        ("replicas have reported that the result is forgotten", |world, bundle| {
            world.reply(1, bundle, &Outcome::Forgotten);
            world.reply(2, bundle, &Outcome::OutOfWindow);
            world.reply(3, bundle, &done(&[b""]));
        }),
    ];
    for (doubt, act) in doubts {
        let mut world = answered();
        let (ticket, bundle) = world.send_one(b"op");
        act(&mut world, &bundle);
        for from in 0..4 {
            world.refuse(from, &bundle, Refusal::NoSession);
        }
        world.pass(2_000 * MS);
        let failed = Event::Failed { bundle: ticket, requests: 1, why: Failure::SessionLost };
        assert_eq!(world.take_events(), [failed, Event::SessionLost], "{doubt}");
        assert_eq!(reopen(&mut world, NEXT).len(), 0, "{doubt}");
    }
    // A replica that had not answered before the bundle left may not have known of this connection.
    let mut world = World::open(settings());
    let (ticket, bundle) = world.send_one(b"op");
    for from in [0, 3, 0, 3] {
        world.refuse(from, &bundle, Refusal::NoSession);
    }
    world.reply(0, &bundle, &Outcome::NoSession);
    world.reply(3, &bundle, &Outcome::NoSession);
    world.pass(2_000 * MS);
    let failed = Event::Failed { bundle: ticket, requests: 1, why: Failure::SessionLost };
    assert_eq!(world.take_events(), [failed, Event::SessionLost]);
}

/// Replicas without a certain answer reply first. The client asks the others, and waits for them before it drops the session.
#[test]
fn client_waits_for_replicas_with_a_certain_answer() {
    let mut world = World::open(settings());
    let (ticket, bundle) = world.send_one(b"op");
    world.reply(0, &bundle, &Outcome::NoSession);
    world.reply(3, &bundle, &Outcome::NoSession);
    assert_eq!(world.take_events(), [], "replicas 1 and 2 have opened the session");
    assert_eq!(world.receivers(), [0, 1, 2, 3]);
    world.submit(b"later");
    world.drain();
    assert_eq!(world.take_sent(), [], "no further bundle leaves in a lost session");
    world.refuse(1, &bundle, Refusal::NoSession);
    world.refuse(2, &bundle, Refusal::NoSession);
    assert_eq!(world.take_events(), [Event::SessionLost]);
    assert_eq!(reopen(&mut world, NEXT).len(), 2, "operation {ticket} and the later one");
}

#[test]
fn bundle_that_loses_session_after_session_fails_as_evicted() {
    let mut world = answered();
    let (ticket, bundle) = world.send_one(b"op");
    let mut bundle = bundle;
    for round in 0..4u64 {
        for from in 0..4 {
            world.refuse(from, &bundle, Refusal::NoSession);
        }
        let events = world.take_events();
        if round == 3 {
            let failed = Event::Failed { bundle: ticket, requests: 1, why: Failure::Evicted };
            assert_eq!(events, [failed, Event::SessionLost]);
            assert_eq!(Failure::Evicted.fate(), Fate::NotExecuted);
            assert!(Failure::Evicted.to_string().contains("clients_max"));
            return;
        }
        assert_eq!(events, [Event::SessionLost]);
        let mut again = reopen(&mut world, SessionId { height: Height(100 + round), index: 0 });
        bundle = again.remove(0);
    }
}

/// A displaced client gets its replies back with the next bundle, and soon asks all replicas for its bundles in flight.
#[test]
fn displaced_client_is_not_starved() {
    let mut world = answered();
    let (_, bundle) = world.send_one(b"in flight");
    let (client, zero) = (world.core.client(), BundleDigest::ZERO);
    for from in [1, 2] {
        world.handle(from, FromReplica::Refused { client, bundle: zero, why: Refusal::Busy });
    }
    assert_eq!(world.core.counters().displaced, 2);
    let text = world.core.tried(&|_| true).text;
    assert!(text.ends_with("; replicas 1, 2 now answer newer connections with this key"), "{text}");
    world.pass(50 * MS);
    assert_eq!(world.receivers(), [0, 1, 2, 3], "long before the usual retry");
    world.reply(0, &bundle, &done(&[b""]));
    world.reply(1, &bundle, &done(&[b""]));
    world.take_events();
    world.submit(b"next");
    world.drain();
    assert_eq!(world.receivers(), [0, 1, 2], "the leader, and the replicas that answer others");
    world.submit(b"and next");
    world.drain();
    assert_eq!(world.receivers(), [0]);
}

/// Replicas that execute one order of bundles, and connections that carry their messages in order.
struct Cluster {
    rng: Rng,
    /// The order: bundles, or the eviction of a session.
    order: Vec<Result<Bundle, SessionId>>,
    /// The number of steps that each replica has executed.
    executed: Vec<usize>,
    /// Messages to the client that have not arrived.
    pipes: Vec<VecDeque<FromReplica>>,
    is_up: Vec<bool>,
    /// Whether the replies go to this connection.
    replies_here: Vec<bool>,
    seen: Vec<Bundle>,
    sessions: u64,
}

impl Cluster {
    /// Returns the open sessions, the outcomes in them, and the executed operations, after `steps` steps of the order.
    fn state(&self, steps: usize) -> (BTreeSet<SessionId>, BTreeMap<BundleDigest, Outcome>, Vec<Vec<u8>>) {
        let (mut open, mut results, mut ops) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        for (height, step) in self.order[..steps].iter().enumerate() {
            match step {
                Err(session) => {
                    open.remove(session);
                }
                Ok(bundle) if bundle.kind() == BundleKind::Open => {
                    let session = SessionId { height: Height(height as u64 + 1), index: 0 };
                    results.entry(bundle.digest()).or_insert_with(|| {
                        open.insert(session);
                        Outcome::Opened(session)
                    });
                }
                Ok(bundle) if results.contains_key(&bundle.digest()) => {}
                Ok(bundle) if open.contains(&bundle.session()) => {
                    ops.extend(bundle.requests().map(<[u8]>::to_vec));
                    results.insert(bundle.digest(), done(&vec![&b"r"[..]; bundle.request_count() as usize]));
                }
                Ok(_) => {}
            }
        }
        (open, results, ops)
    }

    fn outcome(&self, steps: usize, bundle: &Bundle) -> Outcome {
        let (open, mut results, _) = self.state(steps);
        match results.remove(&bundle.digest()) {
            Some(outcome) if bundle.kind() == BundleKind::Open || open.contains(&bundle.session()) => outcome,
            _ => Outcome::NoSession,
        }
    }

    fn send(&mut self, from: usize, message: FromReplica) {
        if self.is_up[from] {
            self.pipes[from].push_back(message);
        }
    }

    /// Executes the next step at a replica, which sends the outcome if its replies go to this connection.
    fn execute(&mut self, replica: usize) {
        let steps = self.executed[replica] + 1;
        if steps > self.order.len() {
            return;
        }
        self.executed[replica] = steps;
        if let Ok(bundle) = self.order[steps - 1].clone()
            && self.replies_here[replica]
        {
            let outcome = self.outcome(steps, &bundle);
            self.send(replica, reply(&bundle, &outcome, View(0), ReplicaId(0)));
        }
    }

    /// Delivers a bundle to a replica, which answers, refuses or takes it. The last replica denies all sessions.
    fn receive(&mut self, replica: usize, bundle: &Bundle) {
        let (open, mut results, _) = self.state(self.executed[replica]);
        let (client, digest) = (bundle.client(), bundle.digest());
        let is_open = bundle.kind() == BundleKind::Open || open.contains(&bundle.session());
        if replica == 3 && bundle.kind() == BundleKind::Requests
            || !is_open && bundle.session().height.0 <= self.executed[replica] as u64
        {
            self.send(replica, FromReplica::Refused { client, bundle: digest, why: Refusal::NoSession });
        } else if let Some(outcome) = results.remove(&digest) {
            self.replies_here[replica] = true;
            self.send(replica, reply(bundle, &outcome, View(0), ReplicaId(0)));
        } else {
            self.replies_here[replica] = true;
        }
        self.seen.push(bundle.clone());
    }

    fn step(&mut self, world: &mut World) {
        let replica = self.rng.index(4);
        match self.rng.below(100) {
            0..30 => {
                for _ in 0..self.rng.below(8) {
                    if let Some(message) = self.pipes[replica].pop_front() {
                        world.handle(replica as u16, message);
                    }
                }
            }
            30..60 => (0..self.rng.below(6)).for_each(|_| self.execute(replica)),
            60..70 if !self.seen.is_empty() => {
                // The bundle may have been ordered before, because a leader may lie.
                let back = if self.rng.below(5) == 0 { self.seen.len() } else { self.seen.len().min(6) };
                let bundle = self.seen[self.seen.len() - 1 - self.rng.index(back)].clone();
                self.order.push(Ok(bundle));
            }
            70..71 => {
                let open: Vec<SessionId> = self.state(self.order.len()).0.into_iter().collect();
                if let Some(session) = open.last() {
                    self.order.push(Err(*session));
                }
            }
            71..73 => {
                (self.is_up[replica], self.replies_here[replica]) = (false, false);
                self.pipes[replica].clear();
                world.link(replica as u16, LinkState::Down);
            }
            73..92 if !self.is_up[replica] => {
                self.is_up[replica] = true;
                world.link(replica as u16, LinkState::Up);
            }
            // The client's attachment follows its hello.
            73..92 => self.replies_here[replica] = true,
            92..94 if self.replies_here[replica] => {
                self.replies_here[replica] = false;
                let (client, bundle) = (world.core.client(), BundleDigest::ZERO);
                self.send(replica, FromReplica::Refused { client, bundle, why: Refusal::Busy });
            }
            _ => {
                let ns = self.rng.below(300 * MS);
                world.pass(ns);
            }
        }
        for (to, frame) in world.take_sent() {
            let bundle = world.parse(&frame);
            if self.is_up[to.index()] {
                self.receive(to.index(), &bundle);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Sessions are evicted at any time, connections break and are displaced, bundles are ordered late and repeatedly, and one
    /// replica denies every session. Still no operation is executed twice, and no executed one is reported as not executed.
    #[test]
    fn no_operation_is_executed_twice(seed in any::<u64>()) {
        let mut world = World::with(settings());
        let mut cluster = Cluster {
            rng: Rng::new(seed),
            order: Vec::new(),
            executed: vec![0; 4],
            pipes: vec![VecDeque::new(); 4],
            is_up: vec![true; 4],
            replies_here: vec![true; 4],
            seen: Vec::new(),
            sessions: 0,
        };
        (0..4).for_each(|id| world.link(id, LinkState::Up));
        world.core.open(world.now, NONCE);
        world.drain();
        let (mut made, mut again, mut tickets) = (0u32, 0, BTreeMap::new());
        for _ in 0..1_000 {
            if cluster.rng.below(20) == 0 && world.core.outstanding() < 4 {
                made += 1;
                tickets.insert(world.submit(&made.to_le_bytes()).bundle, made);
                world.drain();
            }
            cluster.step(&mut world);
            for event in world.take_events() {
                match event {
                    Event::SessionLost | Event::OpenFailed(_) => {
                        cluster.sessions += 1;
                        again += world.core.outstanding();
                        world.core.open(world.now, NONCE + cluster.sessions);
                        world.drain();
                    }
                    Event::Failed { bundle, why, .. } if why.fate() == Fate::NotExecuted => {
                        let op = tickets[&bundle].to_le_bytes();
                        let (_, _, ops) = cluster.state(cluster.order.len());
                        prop_assert!(!ops.iter().any(|done| *done == op), "{why:?} of an executed operation");
                    }
                    _ => {}
                }
            }
        }
        let (_, _, ops) = cluster.state(cluster.order.len());
        let distinct: BTreeSet<&Vec<u8>> = ops.iter().collect();
        prop_assert_eq!(distinct.len(), ops.len(), "executed twice, {} sent again", again);
    }
}
