//! Encodings: decoding inverts encoding, and no bytes stop a replica.

use super::super::message::HEADERS_MAX;
use super::*;
use crate::encoding::tests::check_one_encoding;
use crate::sync_hotstuff::tests::strategies::{
    heights, ids, replicas, signatures, signed_by_some, stages, views,
};
use crate::sync_hotstuff::{LockName, Split, SyncRecord};
use proptest::prelude::*;
use quorate_types::{Kind, PayloadId, ReplicaId, Statement, Wire};

fn headers() -> impl Strategy<Value = Header> {
    (ids(), heights(), views(), replicas(), any::<u64>(), ids(), ids()).prop_map(
        |(parent, height, view, proposer, time_ns, payload, base)| Header {
            block: Block {
                parent,
                height,
                view,
                proposer,
                time_ns,
                payload: PayloadId(payload.0),
                extra: bind_base(base),
            },
            base,
        },
    )
}

fn certificates() -> impl Strategy<Value = Certificate> {
    (views(), heights(), ids(), prop::collection::vec(signatures(), 0..4)).prop_map(
        |(view, height, block, votes)| {
            let votes: Vec<_> = (0..).map(ReplicaId).zip(votes).collect();
            Certificate::of(Statement::new(Kind::new("vote"), view, height, block.0), &votes)
        },
    )
}

fn locks() -> impl Strategy<Value = Lock> {
    (prop::option::of(certificates()), certificates()).prop_map(|(responsive, tip)| Lock { responsive, tip })
}

fn statements() -> impl Strategy<Value = LeaderStatement> {
    prop_oneof![
        headers().prop_map(LeaderStatement::Header),
        (views(), locks()).prop_map(|(view, lock)| LeaderStatement::NewView(view, lock.name())),
    ]
}

fn evidence() -> impl Strategy<Value = QuitEvidence> {
    prop_oneof![
        (signed_by_some(statements()), signed_by_some(statements()))
            .prop_map(|both| QuitEvidence::Conflict(Box::new(both))),
        (signed_by_some(headers()), signed_by_some(headers()), prop::collection::vec(headers(), 0..4))
            .prop_map(|(low, high, between)| {
                let between = between.into_iter().map(|header| header.block).collect();
                QuitEvidence::Split(Box::new(Split { low, high, between }))
            }),
        certificates().prop_map(QuitEvidence::Blames),
    ]
}

fn new_views() -> impl Strategy<Value = SyncNewView> {
    (views(), locks()).prop_map(|(view, lock)| SyncNewView { view, lock })
}

fn answers() -> impl Strategy<Value = Answer> {
    (
        (any::<u64>(), stages(), prop::collection::vec(evidence(), 0..3)),
        prop::collection::vec(certificates(), 0..=4),
        prop::option::of(signed_by_some(new_views())),
        prop::collection::vec(signed_by_some(headers()), 0..4),
        prop::option::of(signed_by_some(signed_by_some(headers()))),
    )
        .prop_map(|((incarnation, stage, evidence), certificates, new_view, headers, voted)| Answer {
            incarnation: Incarnation(incarnation),
            stage,
            evidence,
            certificates,
            new_view,
            headers,
            voted,
        })
}

fn messages() -> impl Strategy<Value = SyncMessage> {
    prop_oneof![
        (headers(), certificates()).prop_map(|(header, parent)| SyncMessage::Propose { header, parent }),
        signed_by_some(headers()).prop_map(SyncMessage::Vote),
        (views(), heights(), ids()).prop_map(|(view, height, base)| SyncMessage::FirstVote {
            view,
            height,
            base
        }),
        (views(), locks()).prop_map(|(view, lock)| SyncMessage::NewView { view, lock }),
        (views(), locks()).prop_map(|(view, lock)| SyncMessage::Status { view, lock }),
        views().prop_map(SyncMessage::Blame),
        evidence().prop_map(SyncMessage::Evidence),
        signed_by_some(new_views()).prop_map(|new_view| SyncMessage::Forward { new_view }),
        certificates().prop_map(SyncMessage::Notify),
        (any::<u64>(), heights())
            .prop_map(|(number, above)| SyncMessage::Ask { incarnation: Incarnation(number), above }),
        answers().prop_map(|answer| SyncMessage::Answer(Box::new(answer))),
        (views(), heights(), ids()).prop_map(|(view, height, block)| SyncMessage::Lack {
            view,
            height,
            block
        }),
        certificates().prop_map(SyncMessage::Certified),
    ]
}

fn records() -> impl Strategy<Value = SyncRecord> {
    let first_voted = prop::option::of(signed_by_some(new_views()));
    let evidence = prop::collection::vec(evidence(), 0..3);
    prop_oneof![
        (views(), any::<bool>(), evidence, locks(), first_voted).prop_map(
            |(view, quit, evidence, lock, first_voted)| SyncRecord::Entered {
                view,
                quit,
                evidence,
                lock,
                first_voted
            }
        ),
        (
            views(),
            prop::option::of(signed_by_some(headers())),
            prop::option::of(headers()),
            prop::option::of(locks())
        )
            .prop_map(|(view, voted, proposed, new_view)| SyncRecord::Said {
                view,
                voted,
                proposed,
                new_view
            }),
        certificates().prop_map(SyncRecord::Certified),
        certificates().prop_map(SyncRecord::Responsive),
        certificates().prop_map(SyncRecord::Settled),
        certificates().prop_map(SyncRecord::SettledResponsive),
    ]
}

/// Every input is refused or accepted, before and after the claims are checked.
fn hear<V: Variant>(bytes: &[u8]) {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.grow(&blocks);
    bench.next_view();
    let mut silent = Bench::<V>::opened(ME, N);
    for from in [1, 4] {
        let _ = bench.deliver(from, SyncMessage::from_bytes(bytes).unwrap());
        let _ = silent.deliver(from, SyncMessage::from_bytes(bytes).unwrap());
    }
    let message = SyncMessage::from_bytes(bytes).unwrap();
    let (_, _, _) = (claims_hold::<V>(&message), message.place(), message.kind());
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
        if let Ok(other) = SyncMessage::from_bytes(&bytes) {
            prop_assert_eq!(other.to_bytes(), bytes.clone());
            hear::<Plain>(&bytes);
            hear::<Optimistic>(&bytes);
        }
    }

    #[test]
    fn record_has_one_encoding(record in records()) {
        check_one_encoding(&record);
    }

    /// The signed name of a lock binds all of it but the signatures.
    #[test]
    fn names_of_locks_round_trip_and_bind(one in locks(), two in locks()) {
        prop_assert_eq!(LockName::from_bytes(&one.name().to_bytes()), Ok(one.name()));
        let places = |lock: &Lock| (lock.responsive.as_ref().map(|it| (it.statement.height, it.block())), lock.tip.statement);
        let equal = places(&one) == places(&two);
        prop_assert_eq!(equal, one.name().status(View(1)) == two.name().status(View(1)));
        prop_assert!(one.name().status(View(1)) != one.name().status(View(2)));
    }

    #[test]
    fn conflicting_statements_are_of_one_view(one in statements(), two in statements()) {
        prop_assert_eq!(one.conflicts_with(&two), two.conflicts_with(&one));
        prop_assert!(!one.conflicts_with(&one));
        prop_assert!(!one.conflicts_with(&two) || one.view() == two.view());
    }
}

#[test]
fn answers_have_a_maximum_length() {
    let header = signed(&header(N, 1, GENESIS.1, GENESIS, 1));
    let with = |certificates: usize, headers: usize| {
        let certificates = vec![Certificate::genesis(VOTE); certificates];
        let headers = vec![header.clone(); headers];
        let answer = Answer { certificates, headers, ..stands(RecoveryStage::Running) };
        SyncMessage::Answer(Box::new(answer)).to_bytes()
    };
    assert!(SyncMessage::from_bytes(&with(4, HEADERS_MAX)).is_ok());
    assert!(SyncMessage::from_bytes(&with(5, 0)).is_err());
    assert!(SyncMessage::from_bytes(&with(0, HEADERS_MAX + 1)).is_err());
    // A count alone allocates nothing.
    let bytes = with(0, 0);
    let at = bytes.len() - 1 - 4;
    let mut lie = bytes[..at].to_vec();
    30u32.encode(&mut lie);
    lie.push(0);
    assert!(SyncMessage::from_bytes(&lie).is_err());
}

#[test]
fn lock_without_a_responsive_certificate_has_one_encoding() {
    let mut bytes = Lock::genesis().name().to_bytes();
    let at = 8 + 1;
    assert_eq!(bytes[at - 1], 0);
    bytes[at] = 1;
    assert!(LockName::from_bytes(&bytes).is_err());
}
