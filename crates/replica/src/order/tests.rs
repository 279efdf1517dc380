use super::*;
use crate::host_tests::{bundle, open, outputs};
use crate::input::Input;
use quorate_types::{Digest, PublicKey, Time};

const CLIENT: ClientId = PublicKey([7; 32]);

fn question(conn: u64, number: u8) -> Question {
    Question { conn: ConnId(conn), client: CLIENT, bundle: digest(number) }
}

fn digest(number: u8) -> BundleDigest {
    BundleDigest(Digest([number; 32]))
}

fn ask(conn: u64, bundle: BundleDigest) -> Input {
    Input::AskOrder { conn: ConnId(conn), client: CLIENT, bundle }
}

/// Returns the connections that received an answer without a proof, with the reason.
fn refused(outputs: &[Output]) -> Vec<(u64, NoOrder)> {
    let refused = outputs.iter().filter_map(|output| match output {
        Output::Order { conn, answer: Err(why), .. } => Some((conn.0, *why)),
        _ => None,
    });
    refused.collect()
}

#[test]
fn decided_block_answers_the_questions_for_its_bundles_once() {
    let mut orders = OrderQuestions::default();
    for asked in [question(1, 1), question(2, 1), question(1, 1), question(1, 2)] {
        assert_eq!(orders.wait(asked), None);
    }
    let payload = Payload { bundles: vec![digest(1), digest(3)] };
    assert_eq!(orders.decide(Height(4), &payload), [question(1, 1), question(2, 1)]);
    assert_eq!(orders.decide(Height(5), &payload), []);
    assert_eq!(orders.heights.get(&digest(1)), Some(&Height(4)), "the first height counts");
    assert_eq!(orders.by_conn.len(), 1, "one question waits");
    orders.disconnect(ConnId(1));
    assert!(orders.waiting.is_empty() && orders.by_conn.is_empty());
    orders.prune(Height(4));
    assert!(orders.heights.is_empty());
}

#[test]
fn connection_has_a_bounded_number_of_waiting_questions() {
    let mut orders = OrderQuestions::default();
    let most = u8::try_from(ORDER_ASKS_WAITING_MAX).unwrap();
    assert!((0..most).all(|number| orders.wait(question(1, number)).is_none()));
    assert_eq!(orders.wait(question(2, 0)), None, "another connection has its own share");
    assert_eq!(orders.wait(question(1, most)), Some(question(1, 0)), "the oldest gives way");
    assert_eq!(orders.waiting.values().map(BTreeSet::len).sum::<usize>(), ORDER_ASKS_WAITING_MAX + 1);
    let payload = Payload { bundles: vec![digest(0)] };
    assert_eq!(orders.decide(Height(1), &payload), [question(2, 0)]);
}

#[test]
fn protocol_without_proofs_answers_with_the_reason() {
    let mut replica = open();
    replica.handle(Time(1), Input::Client(ConnId(3), bundle(1)));
    replica.handle(Time(2), ask(3, bundle(1).digest()));
    assert_eq!(refused(&outputs(&mut replica)), [(3, NoOrder::NoProofs)]);
}

/// The protocol of this test has no evidence.
#[test]
fn question_for_a_decided_bundle_is_answered_at_once() {
    let mut replica = open();
    replica.entry.proves_order = true;
    let payload = Arc::new(Payload { bundles: vec![bundle(1).digest()] });
    let block = Block {
        parent: BlockId::ZERO,
        height: Height(1),
        view: quorate_types::View(1),
        proposer: quorate_types::ReplicaId(0),
        time_ns: 0,
        payload: payload.id(),
        extra: Digest::ZERO,
    };
    replica.handle(Time(1), ask(3, bundle(1).digest()));
    replica.handle(Time(1), ask(4, bundle(1).digest()));
    replica.handle(Time(1), Input::Disconnected(ConnId(4)));
    assert_eq!(refused(&outputs(&mut replica)), [], "no block has the bundle");
    let id = block.id();
    replica.blocks.insert(block);
    replica.handle(Time(2), Input::Client(ConnId(3), bundle(1)));
    replica.handle(Time(3), Input::Payload(quorate_types::ReplicaId(0), payload));
    replica.decide(Height(1), id);
    replica.settle();
    assert_eq!(refused(&outputs(&mut replica)), [(3, NoOrder::NotKept)]);
    replica.handle(Time(4), ask(5, bundle(1).digest()));
    assert_eq!(refused(&outputs(&mut replica)), [(5, NoOrder::NotKept)]);
}
