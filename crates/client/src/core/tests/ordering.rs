//! Calls for the order of a bundle, and proofs that nobody has asked for.

use super::*;
use crate::order::OrderVerifier;
use crate::order::fixture::{Signers, links};
use quorate_types::OrderProof;
use quorate_types::rng::Rng;
use quorate_types::wire::NoOrder;

/// A world whose cluster has proofs of order, and the keys of its replicas.
fn ordering() -> (World, Signers) {
    ordering_among(settings())
}

fn ordering_among(settings: Settings) -> (World, Signers) {
    let signers = Signers::new(settings.cluster, settings.n as u8, settings.f);
    let mut world = World::open(settings);
    world.core.orders = OrderVerifier::new(Scheme::Ed25519, signers.committee.clone()).map(Arc::new);
    (world, signers)
}

/// Submits an operation whose order is asked for. Returns its ticket, its bundle, and the replicas that were asked.
fn order(world: &mut World) -> (u64, Bundle, Vec<u16>) {
    let ticket = world.core.order(world.now, [b"op".as_slice()]).unwrap();
    world.drain();
    let sent = world.take_sent();
    let bundle = world.parse(&sent[0].1);
    (ticket.bundle, bundle.clone(), asked(&sent, &bundle))
}

/// Returns the receivers of questions for the order of a bundle.
fn asked(sent: &[(ReplicaId, Bytes)], bundle: &Bundle) -> Vec<u16> {
    let question = FromClient::AskOrder { client: bundle.client(), bundle: bundle.digest() }.to_bytes();
    sent.iter().filter(|(_, frame)| *frame == question).map(|(to, _)| to.0).collect()
}

impl World {
    fn prove(&mut self, from: u16, bundle: &Bundle, proof: &OrderProof) {
        let (client, bundle) = (bundle.client(), bundle.digest());
        self.handle(from, FromReplica::Order { client, bundle, proof: Box::new(proof.clone()) });
    }

    fn no_order(&mut self, from: u16, bundle: &Bundle, why: NoOrder) {
        let (client, bundle) = (bundle.client(), bundle.digest());
        self.handle(from, FromReplica::NoOrder { client, bundle, why });
    }
}

#[test]
fn first_valid_proof_ends_a_call_for_order() {
    let (mut world, signers) = ordering();
    let (ticket, bundle, asked) = order(&mut world);
    assert_eq!(asked, [0], "one replica, which has received the bundle");
    let proof = signers.proof(&mut Rng::new(1), bundle.digest());
    world.prove(2, &bundle, &proof);
    assert_eq!(world.take_events(), [], "replica 2 was not asked");
    world.prove(0, &bundle, &proof);
    let events = world.take_events();
    let [Event::Ordered { bundle: ended, position, by, requests: 1, .. }] = events[..] else {
        panic!("{events:?}")
    };
    let block = proof.chain.block().unwrap();
    assert_eq!(
        (ended, by, position.height, position.block),
        (ticket, ReplicaId(0), block.height, block.id())
    );
    assert_eq!(proof.payload.bundles[position.index as usize], bundle.digest());
    world.prove(0, &bundle, &proof);
    for id in 0..4 {
        world.reply(id, &bundle, &done(&[b"late"]));
    }
    assert_eq!((world.take_events(), world.core.outstanding()), (vec![], 0), "the call ends once");
}

/// One replica may show a true proof together with a false result.
#[test]
fn true_proof_never_ends_a_call_for_results() {
    let (mut world, signers) = ordering();
    let (ticket, bundle) = world.send_one(b"op");
    let proof = signers.proof(&mut Rng::new(2), bundle.digest());
    for id in 0..4 {
        world.prove(id, &bundle, &proof);
    }
    world.reply(1, &bundle, &done(&[b"false"]));
    world.prove(1, &bundle, &proof);
    world.pass(900 * MS);
    world.prove(1, &bundle, &proof);
    world.reply(1, &bundle, &done(&[b"false"]));
    assert_eq!(world.take_events(), [], "one liar, with the truth about the order");
    assert_eq!(world.core.outstanding(), 1);
    world.reply(0, &bundle, &done(&[b"right"]));
    world.reply(3, &bundle, &done(&[b"right"]));
    let events = world.take_events();
    let [Event::Done { bundle: ended, answer: Answer::Results(results), .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*ended, results.get(0)), (ticket, Some(&b"right"[..])));
}

#[test]
fn bad_proof_counts_and_another_replica_is_asked() {
    let (mut world, signers) = ordering();
    let (_, bundle, _) = order(&mut world);
    let proof = signers.proof(&mut Rng::new(3), bundle.digest());
    let mut bad = proof.clone();
    links(&mut bad)[0].signature.0[0] ^= 1;
    world.prove(0, &bundle, &bad);
    assert_eq!((world.take_events(), world.core.counters().bad_proofs), (vec![], 1));
    assert_eq!(asked(&world.take_sent(), &bundle), [1]);
    world.prove(0, &bundle, &proof);
    assert_eq!(world.take_events(), [], "replica 0 owes no answer any more");
    let tried = world.core.tried(&|_| true).text;
    assert!(tried.contains("expected from replica 1; replica 0 has shown a bad proof: the sig"), "{tried}");
    // A true proof of another bundle's order.
    world.prove(1, &bundle, &signers.proof(&mut Rng::new(4), BundleDigest::ZERO));
    assert_eq!(asked(&world.take_sent(), &bundle), [2]);
    world.prove(2, &bundle, &proof);
    assert!(matches!(world.take_events()[..], [Event::Ordered { by: ReplicaId(2), .. }]));
    assert_eq!(world.core.counters().bad_proofs, 2);
}

#[test]
fn silent_replica_is_followed_by_the_next_and_then_by_all() {
    let (mut world, signers) = ordering();
    world.link(1, LinkState::Down);
    let (_, bundle, first) = order(&mut world);
    assert_eq!(first, [0]);
    world.pass(800 * MS);
    assert_eq!(asked(&world.take_sent(), &bundle), [2], "replica 1 is not reachable");
    world.pass(800 * MS);
    assert_eq!(asked(&world.take_sent(), &bundle), [0, 2, 3]);
    world.no_order(3, &bundle, NoOrder::Busy);
    assert_eq!(asked(&world.take_sent(), &bundle), [], "the next question has its time");
    world.pass(800 * MS);
    assert_eq!(asked(&world.take_sent(), &bundle), [0, 2, 3]);
    world.pass(800 * MS);
    assert_eq!(asked(&world.take_sent(), &bundle), [], "the pause has doubled");
    // The connection breaks, and the replica forgets the question.
    for id in [0, 2, 3] {
        world.link(id, LinkState::Down);
    }
    world.link(3, LinkState::Up);
    world.pass(1);
    assert!(asked(&world.take_sent(), &bundle).contains(&3));
    world.prove(3, &bundle, &signers.proof(&mut Rng::new(5), bundle.digest()));
    assert!(matches!(world.take_events()[..], [Event::Ordered { by: ReplicaId(3), .. }]));
}

#[test]
fn cluster_without_proofs_refuses_the_call() {
    let mut world = World::open(settings());
    let refused = world.core.order(world.now, [b"op".as_slice()]).unwrap_err();
    assert_eq!(refused, SubmitError::NoOrder(OrderError::NoProofs));
    assert_eq!(
        refused.to_string(),
        "no proof of order: this protocol has no proofs of order; nothing was sent"
    );
    world.drain();
    assert_eq!(world.take_sent(), []);
}

/// The bundle is executed and every replica has passed a checkpoint: no proof will ever come.
#[test]
fn executed_bundle_without_a_proof_fails_as_executed() {
    let (mut world, _) = ordering();
    let (ticket, bundle, _) = order(&mut world);
    for id in [0, 1, 2] {
        world.no_order(id, &bundle, NoOrder::NotKept);
    }
    for id in [1, 2] {
        world.reply(id, &bundle, &done(&[b"result"]));
    }
    assert_eq!(world.take_events(), [], "replica 3 is asked");
    assert_eq!(asked(&world.take_sent(), &bundle), [1, 2, 3]);
    world.pass(5_000 * MS);
    let sent = world.take_sent();
    assert!(sent.len() == asked(&sent, &bundle).len(), "an executed bundle is not sent again");
    for id in 0..4 {
        world.no_order(id, &bundle, NoOrder::NotKept);
    }
    let why = Failure::NoOrder(NoOrder::NotKept);
    assert_eq!(world.take_events(), [Event::Failed { bundle: ticket, requests: 1, why }]);
    assert_eq!((why.fate(), world.core.outstanding()), (Fate::Executed, 0));
}

/// The call for order goes on in the next session if its bundle was never executed.
#[test]
fn call_for_order_survives_a_lost_session() {
    let (mut world, signers) = ordering();
    let (first, before) = world.send_one(b"before");
    for id in 0..4 {
        world.reply(id, &before, &done(&[b"x"]));
    }
    assert!(matches!(world.take_events()[..], [Event::Done { bundle, .. }] if bundle == first));
    let (ticket, bundle, _) = order(&mut world);
    for id in 0..4 {
        world.reply(id, &bundle, &Outcome::NoSession);
    }
    assert_eq!(world.take_events(), [Event::SessionLost]);
    world.core.open(world.now, NONCE + 1);
    world.drain();
    let open = world.take_sent();
    let opening = world.parse(&open.last().unwrap().1);
    let session = SessionId { height: Height(70), index: 0 };
    for id in [1, 2] {
        world.reply(id, &opening, &Outcome::Opened(session));
    }
    assert_eq!(world.take_events(), [Event::Opened(session)]);
    let sent = world.take_sent();
    let again = world.parse(&sent[0].1);
    assert_eq!((again.session(), asked(&sent, &again)), (session, vec![0]));
    world.prove(0, &again, &signers.proof(&mut Rng::new(6), again.digest()));
    assert!(matches!(world.take_events()[..], [Event::Ordered { bundle, .. }] if bundle == ticket));
}

/// Six replicas with f = 1: n - f = 5 is neither f + 1, nor the quorum of 4, nor n.
#[test]
fn call_for_order_waits_for_n_minus_f_refusals() {
    let (mut world, _) = ordering_among(Settings { n: 6, ..settings() });
    let (_, bundle, _) = order(&mut world);
    for id in [1, 2] {
        world.reply(id, &bundle, &done(&[b"result"]));
    }
    for id in [4, 5] {
        world.link(id, LinkState::Down);
    }
    let refuse = |world: &mut World, ids: std::ops::Range<u16>| {
        // All reachable replicas are asked after a while.
        world.pass(5_000 * MS);
        ids.for_each(|id| world.no_order(id, &bundle, NoOrder::NotKept));
        world.take_events()
    };
    assert_eq!(refuse(&mut world, 0..4), [], "two are away, and one of them is honest");
    world.link(4, LinkState::Up);
    assert!(matches!(refuse(&mut world, 0..5)[..], [Event::Failed { .. }]));
}
