//! Sizes of quorums at numbers of replicas where f + 1, the quorum, n - f and n differ.

use super::selection::change;
use super::views::{STATUS, T0, entries, leaves, new_view, standing, stands, suspect, with_height_1};
use super::{signed, *};
use crate::pbft::certificates::certified_bytes;
use crate::pbft::{BlockClaim, Certified, EntryProof, PREPARE, PbftSigned, SignedMessage, ViewChange};
use quorate_consensus::{Certificate, Claims, Message as _};
use quorate_types::{Signature, Statement, Wire};

/// Returns replica 2 of six, f = 1, without the NEW-VIEW of view 1. It knows that five have left view 0.
fn waits_for_view_1() -> Harness<Pbft> {
    let mut backup = open(2, 6);
    for from in [1, 3] {
        take(&mut backup, from, suspect(0));
    }
    backup.settle();
    for from in [0, 3, 4] {
        take(&mut backup, from, leaves(change(1, &[], &[])));
    }
    take(&mut backup, 5, leaves(change(1, &[], &[])));
    assert_eq!(stands(&backup), (1, false));
    backup
}

/// Returns the number of view changes by which a replica shows that it may be in its view.
fn shown(backup: &mut Harness<Pbft>) -> usize {
    backup.settle();
    backup.advance(STATUS);
    sent(backup);
    take(backup, 0, standing(0, true));
    let shown = entries(backup);
    let Some((_, PbftMessage::Entry { proof: EntryProof::ViewChanges(changes), .. })) = shown.first() else {
        panic!("{shown:?}")
    };
    changes.len()
}

#[test]
fn v9_proof_of_the_view_after_a_wrong_new_view_is_a_quorum() {
    let mut backup = waits_for_view_1();
    assert!(backup.deliver(ReplicaId(1), new_view(1, with_height_1(1), &[])).is_err());
    assert_eq!(stands(&backup), (2, false));
    assert_eq!(shown(&mut backup), 4);
}

#[test]
fn v13_proof_of_the_view_after_a_silent_leader_is_a_quorum() {
    let mut backup = waits_for_view_1();
    backup.advance(T0);
    assert_eq!(stands(&backup), (2, false));
    assert_eq!(shown(&mut backup), 4);
}

/// The room for certificates in frames and logs follows from their size, and wastes less than three signatures.
#[test]
fn s2_room_for_a_certificate_is_that_of_a_quorum() {
    // f = 11: f + 1 = 12, the quorum 24, n - f = 25.
    let committee = setup(36).committee::<PbftSigned>();
    let statement = Statement::new(PREPARE, View(1), Height(1), Digest([1; 32]));
    let signed = |count: u16| {
        let votes: Vec<_> = (0..count).map(|id| (ReplicaId(id), Signature([1; 64]))).collect();
        Certificate::of(statement, &votes)
    };
    let certified = Certified { proposal: signed(1), prepares: signed(23) };
    let entry = BlockClaim { height: Height(1), block: BlockId::ZERO, view: View(1) };
    let (needed, room) = (certified.to_bytes().len() + entry.to_bytes().len(), certified_bytes(&committee));
    assert!((needed..needed + 3 * 64).contains(&room), "{room} for {needed}");
}

/// Among six, f = 1, the quorum is 4: the leader and three others. f + 1 = 2 and n - f = 5.
#[test]
fn s3_certificate_has_a_quorum_with_its_leader() {
    let entry = (1, block(1, 7).id(), 0);
    let shows = |by: &[u16]| {
        let certified = vec![signed::certified(entry, by)];
        signed::leaves(ViewChange { certified, ..signed::shows(1, &[entry]) })
    };
    let committee = setup(6).committee::<PbftSigned>();
    let claimed = |by: &[u16]| {
        let mut claims = Claims::new(&committee, 4);
        SignedMessage(shows(by)).claims(&mut claims);
        claims.finish().err()
    };
    let taken = |by: &[u16]| {
        let mut backup = Harness::<PbftSigned>::open(ReplicaId(1), setup(6), &PbftParams::default()).unwrap();
        backup.deliver(ReplicaId(2), shows(by).into())
    };
    assert_eq!((claimed(&[1, 2, 3]), taken(&[1, 2, 3])), (None, Ok(())));
    assert_eq!(claimed(&[1, 2]), Some("too few signers"));
    assert_eq!(taken(&[1, 2]), Err(Reject::Invalid("too few signers")));
    assert_eq!(taken(&[1, 2, 3, 4]), Err(Reject::Invalid("more PREPAREs than needed")));
}
