//! Encodings: decoding inverts encoding, and no bytes stop a replica.

use super::super::RotatingRecord;
use super::super::message::CERTIFICATES_MAX;
use super::*;
use crate::encoding::tests::check_one_encoding;
use crate::sync_hotstuff::tests::strategies::{heights, ids, replicas, signed_by_some, stages, views};
use proptest::prelude::*;
use quorate_types::{PayloadId, Wire};

fn headers() -> impl Strategy<Value = Header> {
    (ids(), heights(), views(), replicas(), any::<u64>(), ids(), views()).prop_map(
        |(parent, height, view, proposer, time_ns, payload, parent_view)| Header {
            block: Block {
                parent,
                height,
                view,
                proposer,
                time_ns,
                payload: PayloadId(payload.0),
                extra: bind_certificate(parent_view, parent),
            },
            parent_view,
        },
    )
}

fn certificates() -> impl Strategy<Value = Certificate> {
    (views(), ids(), 0u16..4).prop_map(|(view, block, votes)| certificate(view.0, block, votes))
}

fn evidence() -> impl Strategy<Value = ViewEvidence> {
    prop_oneof![
        (signed_by_some(headers()), signed_by_some(headers()))
            .prop_map(|both| ViewEvidence::Conflict(Box::new(both))),
        (certificates(), certificates()).prop_map(|both| ViewEvidence::Certificates(Box::new(both))),
        certificates().prop_map(ViewEvidence::Blames),
    ]
}

fn answers() -> impl Strategy<Value = Answer> {
    (
        (any::<u64>(), stages(), prop::option::of(certificates())),
        prop::collection::vec(certificates(), 0..=CERTIFICATES_MAX),
        prop::option::of(signed_by_some(headers())),
        prop::option::of(signed_by_some(signed_by_some(headers()))),
    )
        .prop_map(|((incarnation, stage, blames), certificates, header, voted)| Answer {
            incarnation: Incarnation(incarnation),
            stage,
            blames,
            certificates,
            header,
            voted,
        })
}

fn messages() -> impl Strategy<Value = RotatingMessage> {
    prop_oneof![
        (headers(), certificates()).prop_map(|(header, parent)| RotatingMessage::Propose { header, parent }),
        signed_by_some(headers()).prop_map(RotatingMessage::Vote),
        certificates().prop_map(RotatingMessage::Certified),
        signed_by_some(headers()).prop_map(RotatingMessage::Show),
        (views(), certificates()).prop_map(|(view, lock)| RotatingMessage::Status { view, lock }),
        views().prop_map(RotatingMessage::Blame),
        evidence().prop_map(RotatingMessage::Evidence),
        any::<u64>().prop_map(|number| RotatingMessage::Ask { incarnation: Incarnation(number) }),
        answers().prop_map(|answer| RotatingMessage::Answer(Box::new(answer))),
    ]
}

fn records() -> impl Strategy<Value = RotatingRecord> {
    let blames = prop::option::of(certificates());
    prop_oneof![
        (views(), any::<bool>(), blames, certificates())
            .prop_map(|(view, quit, blames, lock)| RotatingRecord::Entered { view, quit, blames, lock }),
        (prop::option::of(signed_by_some(headers())), prop::option::of((headers(), certificates())))
            .prop_map(|(voted, proposed)| RotatingRecord::Said { voted, proposed }),
        certificates().prop_map(RotatingRecord::Highest),
    ]
}

/// Every input is refused or accepted, before and after the claims are checked.
fn hear(bytes: &[u8]) {
    let mut bench = Bench::new();
    bench.grow(&chain(1, GENESIS, 2));
    bench.next_view();
    let mut silent = Bench::opened(ME, N);
    for from in [1, 3] {
        let _ = bench.deliver(from, RotatingMessage::from_bytes(bytes).unwrap());
        let _ = silent.deliver(from, RotatingMessage::from_bytes(bytes).unwrap());
    }
    let message = RotatingMessage::from_bytes(bytes).unwrap();
    let (_, _, _) = (claims_hold(&message), message.place(), message.kind());
    message.bodies(&mut Vec::new());
    bench.pass(delta(8) + heartbeat());
    silent.answers(&stands(RecoveryStage::Running));
    bench.replica.crash().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn message_has_one_encoding(message in messages()) {
        check_one_encoding(&message);
    }

    #[test]
    fn damaged_messages_stop_nobody(message in messages(), at in any::<prop::sample::Index>(), flip in 0u8..) {
        let mut bytes = message.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(other) = RotatingMessage::from_bytes(&bytes) {
            prop_assert_eq!(other.to_bytes(), bytes.clone());
            hear(&bytes);
        }
    }

    #[test]
    fn record_has_one_encoding(record in records()) {
        check_one_encoding(&record);
    }

    #[test]
    fn headers_bind_all_that_they_say(one in headers(), two in headers()) {
        prop_assert_eq!(Header::from_bytes(&one.to_bytes()), Ok(one.clone()));
        prop_assert_eq!(one == two, one.statement() == two.statement());
    }
}

#[test]
fn answers_have_a_maximum_length() {
    let with = |count: usize| {
        let certificates = vec![Certificate::genesis(VOTE); count];
        RotatingMessage::Answer(Box::new(Answer { certificates, ..stands(RecoveryStage::Running) }))
            .to_bytes()
    };
    assert!(RotatingMessage::from_bytes(&with(CERTIFICATES_MAX)).is_ok());
    assert!(RotatingMessage::from_bytes(&with(CERTIFICATES_MAX + 1)).is_err());
}
