//! Encodings: decoding inverts encoding, and no bytes stop a replica.

use super::super::UniqueRecord;
use super::super::apollo::NoFact;
use super::claims::claims_of;
use super::*;
use crate::encoding::tests::check_one_encoding;
use proptest::prelude::*;
use quorate_consensus::Message as _;
use quorate_types::Wire;

fn entries() -> impl Strategy<Value = Proposal> {
    (1u64..30, 0u64..4, any::<u64>()).prop_map(|(round, below, number)| {
        let on = Tip { view: View(round.saturating_sub(below + 1)), ..GENESIS };
        entry(round, on, number)
    })
}

fn proofs() -> impl Strategy<Value = RoundProof<Proposal>> {
    (1u64..40, prop::option::of(entries()), any::<bool>())
        .prop_map(|(round, tip, resync)| RoundProof { resync, ..proof(round, tip.as_ref()) })
}

fn stages() -> impl Strategy<Value = RecoveryStage> {
    prop_oneof![Just(RecoveryStage::Silent), Just(RecoveryStage::Voting), Just(RecoveryStage::Running)]
}

fn messages() -> impl Strategy<Value = Message> {
    let boxed = |proof| Box::new(proof);
    prop_oneof![
        entries().prop_map(|entry| proposal(&entry)),
        proofs().prop_map(move |proof| UniqueMessage::Proof(boxed(proof))),
        proofs().prop_map(move |proof| UniqueMessage::Blame(boxed(proof))),
        (any::<[u8; 32]>(), any::<u64>())
            .prop_map(|(id, above)| UniqueMessage::Want { id: Digest(id), above: View(above) }),
        prop::collection::vec(entries(), 0..4)
            .prop_map(|entries| UniqueMessage::Entries { entries: entries.iter().map(frame).collect() }),
        (any::<u64>(), proofs()).prop_map(move |(number, proof)| UniqueMessage::Ask {
            incarnation: Incarnation(number),
            proof: boxed(proof)
        }),
        (any::<u64>(), stages(), proofs(), prop::option::of(entries())).prop_map(
            |(number, stage, proof, last)| UniqueMessage::Answer(Box::new(Answer {
                incarnation: Incarnation(number),
                stage,
                proof,
                last: last.as_ref().map(frame),
            }))
        ),
    ]
}

fn records() -> impl Strategy<Value = UniqueRecord<Proposal, NoFact>> {
    prop_oneof![
        entries().prop_map(|entry| UniqueRecord::Own { skips: skips_of(&entry), entry }),
        (any::<u64>(), entries()).prop_map(|(height, entry)| UniqueRecord::Accepted {
            height: Height(height),
            frame: frame(&entry)
        }),
    ]
}

/// Every input is refused or accepted, before and after the claims are checked.
fn hear(bytes: &[u8]) {
    let mut bench = Bench::new();
    bench.grow(&chain(1, GENESIS, 2));
    let mut silent = Bench::opened(ME);
    for from in [1, 3] {
        let _ = bench.deliver(from, Message::from_bytes(bytes).unwrap());
        let _ = silent.deliver(from, Message::from_bytes(bytes).unwrap());
    }
    let message = Message::from_bytes(bytes).unwrap();
    let (_, _, _) = (claims_of(&message), message.place(), message.kind());
    message.bodies(&mut Vec::new());
    bench.pass(wait());
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
        if let Ok(other) = Message::from_bytes(&bytes) {
            prop_assert_eq!(other.to_bytes(), bytes.clone());
            // A changed entry that is never signed reaches no handler.
            if claims_of(&other).is_ok() {
                hear(&bytes);
            }
        }
    }

    #[test]
    fn record_has_one_encoding(record in records()) {
        check_one_encoding(&record);
    }

    #[test]
    fn id_of_an_entry_binds_all_fields(one in entries(), two in entries()) {
        prop_assert_eq!(one == two, place(&one) == place(&two));
    }
}
