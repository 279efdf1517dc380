use super::*;
use crate::pbft::{Missing, PbftRecord, Standing};
use proptest::prelude::*;
use quorate_consensus::{Message, Record};
use quorate_types::{PayloadId, ReplicaSet, Wire};

fn digests() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

fn blocks() -> impl Strategy<Value = Block> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u16>(), any::<u64>());
    (digests(), numbers, digests(), digests()).prop_map(
        |(parent, (height, view, proposer, time_ns), payload, extra)| Block {
            parent: BlockId(parent),
            height: Height(height),
            view: View(view),
            proposer: ReplicaId(proposer),
            time_ns,
            payload: PayloadId(payload),
            extra,
        },
    )
}

fn votes() -> impl Strategy<Value = Vote> {
    (any::<u64>(), any::<u64>(), digests()).prop_map(|(view, height, block)| Vote {
        view: View(view),
        height: Height(height),
        block: BlockId(block),
    })
}

fn sets() -> impl Strategy<Value = ReplicaSet> {
    prop::collection::vec(0u16..256, 0..8).prop_map(|ids| ids.into_iter().map(ReplicaId).collect())
}

fn missing() -> impl Strategy<Value = Missing> {
    (any::<u64>(), any::<bool>(), sets(), sets()).prop_map(|(height, proposal, prepares, commits)| Missing {
        height: Height(height),
        proposal,
        prepares,
        commits,
    })
}

fn messages() -> impl Strategy<Value = PbftMessage> {
    let status =
        (any::<u64>(), any::<bool>(), any::<u64>(), any::<u64>(), prop::collection::vec(missing(), 0..=64));
    prop_oneof![
        (any::<u64>(), blocks())
            .prop_map(|(view, block)| PbftMessage::PrePrepare { view: View(view), block }),
        votes().prop_map(PbftMessage::Prepare),
        votes().prop_map(PbftMessage::Commit),
        status.prop_map(|(view, normal, stable, executed, missing)| {
            PbftMessage::Status(Standing {
                view: View(view),
                normal,
                stable: Height(stable),
                executed: Height(executed),
                missing,
            })
        }),
    ]
}

fn encode(message: &PbftMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn messages_round_trip(message in messages()) {
        prop_assert_eq!(PbftMessage::decode(&encode(&message)), Ok(message));
    }

    #[test]
    fn every_truncation_and_extension_is_refused(message in messages()) {
        let mut bytes = encode(&message);
        for end in 0..bytes.len() {
            prop_assert!(PbftMessage::decode(&bytes[..end]).is_err(), "{} of {}", end, bytes.len());
        }
        bytes.push(0);
        prop_assert!(PbftMessage::decode(&bytes).is_err());
    }

    #[test]
    fn what_decodes_has_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..400), tag in 0u8..5) {
        let mut bytes = bytes;
        bytes.insert(0, tag);
        if let Ok(message) = PbftMessage::decode(&bytes) {
            prop_assert_eq!(encode(&message), bytes);
        }
    }

    #[test]
    fn damaged_messages_never_panic(message in messages(), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = encode(&message);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(other) = PbftMessage::decode(&bytes) {
            prop_assert_eq!(encode(&other), bytes.clone());
            // A handler that sees it may refuse it, and nothing worse.
            let mut backup = open(1, 4);
            let _ = backup.deliver(ReplicaId(3), PbftMessage::decode(&bytes).unwrap());
            let _ = backup.deliver(LEADER, other);
            backup.settle();
        }
    }

    #[test]
    fn records_round_trip(height in any::<u64>(), block in digests(), view in any::<u64>(), first in any::<bool>()) {
        let (height, block, view) = (Height(height), BlockId(block), View(view));
        let record = if first {
            PbftRecord::PrePrepared { height, block, view }
        } else {
            PbftRecord::Prepared { height, block, view }
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        prop_assert_eq!(PbftRecord::decode(&bytes), Ok(record));
        for end in 0..bytes.len() {
            prop_assert!(PbftRecord::decode(&bytes[..end]).is_err());
        }
        bytes.push(0);
        prop_assert!(PbftRecord::decode(&bytes).is_err());
    }
}

#[test]
fn a_status_names_a_bounded_number_of_heights() {
    let missing = Missing {
        height: Height(1),
        proposal: true,
        prepares: ReplicaSet::EMPTY,
        commits: ReplicaSet::EMPTY,
    };
    let status = |count| {
        encode(&PbftMessage::Status(Standing {
            view: View(1),
            normal: true,
            stable: Height(0),
            executed: Height(0),
            missing: vec![missing; count],
        }))
    };
    assert!(PbftMessage::decode(&status(64)).is_ok());
    assert!(PbftMessage::decode(&status(65)).is_err());
    // The count alone allocates nothing.
    let mut bytes = status(0);
    let count_at = bytes.len() - 4;
    bytes.truncate(count_at);
    60u32.encode(&mut bytes);
    assert!(PbftMessage::decode(&bytes).is_err());
}
