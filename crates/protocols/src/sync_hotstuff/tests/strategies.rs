//! Random parts of messages and records, for the tests of encodings.

use proptest::prelude::*;
use quorate_consensus::Signed;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_types::{BlockId, Digest, Height, ReplicaId, Signature, View};

pub(in super::super) fn ids() -> impl Strategy<Value = BlockId> {
    any::<[u8; 32]>().prop_map(|bytes| BlockId(Digest(bytes)))
}

pub(in super::super) fn views() -> impl Strategy<Value = View> {
    prop_oneof![(0u64..5).prop_map(View), any::<u64>().prop_map(View)]
}

pub(in super::super) fn heights() -> impl Strategy<Value = Height> {
    prop_oneof![(0u64..5).prop_map(Height), any::<u64>().prop_map(Height)]
}

pub(in super::super) fn signatures() -> impl Strategy<Value = Signature> {
    any::<u8>().prop_map(|byte| Signature([byte; 64]))
}

pub(in super::super) fn replicas() -> impl Strategy<Value = ReplicaId> {
    prop_oneof![(0u16..5).prop_map(ReplicaId), any::<u16>().prop_map(ReplicaId)]
}

pub(in super::super) fn stages() -> impl Strategy<Value = RecoveryStage> {
    prop_oneof![Just(RecoveryStage::Silent), Just(RecoveryStage::Voting), Just(RecoveryStage::Running)]
}

/// Statements that some replica has signed.
pub(in super::super) fn signed_by_some<T: std::fmt::Debug>(
    body: impl Strategy<Value = T>,
) -> impl Strategy<Value = Signed<T>> {
    (body, replicas(), signatures()).prop_map(|(body, by, signature)| Signed { body, by, signature })
}
