use super::*;
use crate::encoding::tests::check_one_encoding;
use crate::pbft::{
    BlockClaim, Certified, EntryProof, MissingAtHeight, NewView, PbftRecord, SignedMessage, StatusReport,
    ViewChange,
};
use proptest::prelude::*;
use quorate_consensus::{Certificate, CheckpointProof, Signed};
use quorate_types::{Kind, PayloadId, ReplicaSet, Signature, Statement, Wire};

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

fn missing() -> impl Strategy<Value = MissingAtHeight> {
    (any::<u64>(), any::<bool>(), sets(), sets()).prop_map(|(height, proposal, prepares, commits)| {
        MissingAtHeight { height: Height(height), proposal, prepares, commits }
    })
}

fn entries() -> impl Strategy<Value = Vec<BlockClaim>> {
    let entry = (any::<u64>(), digests(), any::<u64>()).prop_map(|(height, block, view)| BlockClaim {
        height: Height(height),
        block: BlockId(block),
        view: View(view),
    });
    prop::collection::vec(entry, 0..4)
}

fn certificates() -> impl Strategy<Value = Certificate> {
    (votes(), prop::collection::vec(any::<u8>(), 0..4)).prop_map(|(vote, signers)| {
        let statement = Statement::new(Kind::new("any"), vote.view, vote.height, vote.block.0);
        let votes =
            signers.into_iter().zip(0u16..).map(|(byte, id)| (ReplicaId(id * 5), Signature([byte; 64])));
        Certificate::of(statement, &votes.collect::<Vec<_>>())
    })
}

fn certified() -> impl Strategy<Value = Certified> {
    (certificates(), certificates()).prop_map(|(proposal, prepares)| Certified { proposal, prepares })
}

fn changes() -> impl Strategy<Value = ViewChange> {
    let shown = prop::collection::vec(certified(), 0..3);
    (any::<u64>(), any::<u64>(), entries(), entries(), shown).prop_map(
        |(view, stable, prepared, pre_prepared, certified)| {
            let mut proof = CheckpointProof::genesis();
            proof.checkpoint.height = Height(stable);
            ViewChange { view: View(view), proof, prepared, pre_prepared, certified }
        },
    )
}

fn signature() -> impl Strategy<Value = Signature> {
    any::<u8>().prop_map(|byte| Signature([byte; 64]))
}

fn signed_changes() -> impl Strategy<Value = Vec<Signed<ViewChange>>> {
    prop::collection::vec((changes(), signature()), 0..4).prop_map(|changes| {
        let signed = changes.into_iter().zip(0u16..).map(|((body, signature), id)| Signed {
            body,
            by: ReplicaId(id * 3),
            signature,
        });
        signed.collect()
    })
}

fn new_views() -> impl Strategy<Value = NewView> {
    let picks = prop::collection::vec((any::<u64>(), digests()), 0..4);
    (any::<u64>(), signed_changes(), picks).prop_map(|(view, changes, picks)| NewView {
        view: View(view),
        changes,
        picks: picks.into_iter().map(|(height, block)| (Height(height), BlockId(block))).collect(),
    })
}

fn entry_proofs() -> impl Strategy<Value = EntryProof> {
    prop_oneof![
        Just(EntryProof::Nothing),
        signed_changes().prop_map(EntryProof::ViewChanges),
        (new_views(), any::<u16>(), signature()).prop_map(|(body, by, signature)| {
            EntryProof::NewView(Box::new(Signed { body, by: ReplicaId(by), signature }))
        }),
    ]
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
            PbftMessage::Status(StatusReport {
                view: View(view),
                normal,
                stable: Height(stable),
                executed: Height(executed),
                missing,
            })
        }),
        changes().prop_map(|change| PbftMessage::ViewChange(Box::new(change))),
        new_views().prop_map(|new| PbftMessage::NewView(Box::new(new))),
        (any::<u64>(), any::<bool>()).prop_map(|(view, on)| PbftMessage::Suspect { view: View(view), on }),
        (any::<u64>(), entry_proofs())
            .prop_map(|(view, proof)| PbftMessage::Entry { view: View(view), proof }),
    ]
}

proptest! {
    #[test]
    fn message_has_one_encoding(message in messages()) {
        check_one_encoding(&message);
    }

    /// Variant S has the same messages and one more.
    #[test]
    fn signed_message_has_the_same_encoding(message in messages(), vote in votes()) {
        prop_assert_eq!(SignedMessage::from_bytes(&message.to_bytes()), Ok(SignedMessage(message)));
        let again = PbftMessage::Again(vote);
        prop_assert!(PbftMessage::from_bytes(&again.to_bytes()).is_err());
        check_one_encoding(&SignedMessage(again));
    }

    #[test]
    fn decoded_message_has_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..400), tag in 0u8..9) {
        let mut bytes = bytes;
        bytes.insert(0, tag);
        if let Ok(message) = PbftMessage::from_bytes(&bytes) {
            prop_assert_eq!(message.to_bytes(), bytes);
        }
    }

    #[test]
    fn damaged_messages_never_panic(message in messages(), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = message.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(other) = PbftMessage::from_bytes(&bytes) {
            prop_assert_eq!(other.to_bytes(), bytes.clone());
            // A handler may refuse the message, but must not panic.
            let mut backup = open(1, 4);
            let _ = backup.deliver(ReplicaId(3), PbftMessage::from_bytes(&bytes).unwrap());
            let _ = backup.deliver(LEADER, other);
            backup.settle();
        }
    }

    #[test]
    fn record_has_one_encoding(record in records()) {
        check_one_encoding(&record);
    }

    /// A subject binds all of a message: messages that differ make different statements.
    #[test]
    fn statements_bind_everything(first in changes(), second in changes(), one in new_views(), two in new_views()) {
        prop_assert_eq!(first == second, first.statement() == second.statement());
        let signatures_aside = |new: &NewView| {
            let said: Vec<_> = new.changes.iter().map(|change| (change.by, change.body.statement())).collect();
            (new.view, said, new.picks.clone())
        };
        let equal = signatures_aside(&one) == signatures_aside(&two);
        prop_assert_eq!(equal, one.statement() == two.statement());
    }
}

fn records() -> impl Strategy<Value = PbftRecord> {
    let place = || (any::<u64>(), digests(), any::<u64>());
    prop_oneof![
        place().prop_map(|(height, block, view)| PbftRecord::PrePrepared {
            height: Height(height),
            block: BlockId(block),
            view: View(view),
        }),
        (place(), prop::option::of(certified())).prop_map(|((height, block, view), certified)| {
            PbftRecord::Prepared {
                height: Height(height),
                block: BlockId(block),
                view: View(view),
                certified: certified.map(Box::new),
            }
        }),
        (any::<u64>(), any::<bool>(), entry_proofs()).prop_map(|(view, normal, proof)| PbftRecord::Entered {
            view: View(view),
            normal,
            proof,
        }),
        changes().prop_map(|change| PbftRecord::ViewChange(Box::new(change))),
        new_views().prop_map(|new| PbftRecord::NewView(Box::new(new))),
    ]
}

#[test]
fn a_status_names_a_bounded_number_of_heights() {
    let missing = MissingAtHeight {
        height: Height(1),
        proposal: true,
        prepares: ReplicaSet::EMPTY,
        commits: ReplicaSet::EMPTY,
    };
    let status = |count| {
        let report = StatusReport {
            view: View(1),
            normal: true,
            stable: Height(0),
            executed: Height(0),
            missing: vec![missing; count],
        };
        PbftMessage::Status(report).to_bytes()
    };
    assert!(PbftMessage::from_bytes(&status(64)).is_ok());
    assert!(PbftMessage::from_bytes(&status(65)).is_err());
    // The count alone allocates nothing.
    let mut bytes = status(0);
    let count_at = bytes.len() - 4;
    bytes.truncate(count_at);
    60u32.encode(&mut bytes);
    assert!(PbftMessage::from_bytes(&bytes).is_err());
}

#[test]
fn counts_of_a_view_change_allocate_nothing() {
    let change = ViewChange {
        view: View(1),
        proof: CheckpointProof::genesis(),
        prepared: Vec::new(),
        pre_prepared: Vec::new(),
        certified: Vec::new(),
    };
    let mut bytes = PbftMessage::ViewChange(Box::new(change)).to_bytes();
    // The counts of certificates, of Q, and of P before them.
    for from_end in [4, 8, 12] {
        let at = bytes.len() - from_end;
        let mut lie = bytes[..at].to_vec();
        (1u32 << 20).encode(&mut lie);
        assert!(PbftMessage::from_bytes(&lie).is_err());
    }
    bytes.push(0);
    assert!(PbftMessage::from_bytes(&bytes).is_err());
}
