//! Variant S: the differences when all votes are signed (§9).

use super::selection::{at_height, id};
use super::*;
use crate::pbft::select::{Sizes, select};
use crate::pbft::{
    AllSigned, BlockClaim, COMMIT, Certified, EntryProof, Linked, NewView, PRE_PREPARE, PREPARE, PbftSigned,
    SUSPECT, SignedMessage, StatusReport, Variant, ViewChange,
};
use quorate_consensus::harness::Cluster;
use quorate_consensus::{Auth, Certificate, CheckpointProof, Claim, Claims, Message, OpenError, Signed};
use quorate_types::{Committee, Kind, Signature, Statement, Time, Wire};

fn committee() -> Committee {
    Setup::of::<PbftSigned>(4).committee::<PbftSigned>()
}

fn open_signed(id: u16) -> Harness<PbftSigned> {
    Harness::open(ReplicaId(id), Setup::of::<PbftSigned>(4), &PbftParams::default()).unwrap()
}

fn give(harness: &mut Harness<PbftSigned>, from: u16, message: PbftMessage) {
    let words = format!("{message:?}");
    assert_eq!(harness.deliver(ReplicaId(from), message.into()), Ok(()), "{words}");
}

fn deny(harness: &mut Harness<PbftSigned>, from: u16, message: PbftMessage, why: &'static str) {
    let words = format!("{message:?}");
    assert_eq!(harness.deliver(ReplicaId(from), message.into()), Err(Reject::Invalid(why)), "{words}");
}

/// Returns the messages that have left since the last call, without STATUS.
fn left(harness: &mut Harness<PbftSigned>) -> Vec<PbftMessage> {
    harness.settle();
    let left = harness.sent().into_iter().map(|(_, message)| PbftMessage::from(message));
    left.filter(|message| !matches!(message, PbftMessage::Status(_))).collect()
}

fn changes_left(harness: &mut Harness<PbftSigned>) -> Vec<ViewChange> {
    let left = left(harness).into_iter().filter_map(|message| match message {
        PbftMessage::ViewChange(change) => Some(*change),
        _ => None,
    });
    left.collect()
}

fn signed_by(kind: Kind, (height, block, view): (u64, BlockId, u64), by: &[u16]) -> Certificate {
    let votes: Vec<_> = by.iter().map(|id| (ReplicaId(*id), Signature([0; 64]))).collect();
    Certificate::of(Statement::new(kind, View(view), Height(height), block.0), &votes)
}

/// Returns certificates of a prepared block, signed by its leader and these two replicas.
pub(super) fn certified(entry: (u64, BlockId, u64), by: &[u16]) -> Certified {
    let leader = u16::try_from(entry.2 % 4).unwrap();
    Certified { proposal: signed_by(PRE_PREPARE, entry, &[leader]), prepares: signed_by(PREPARE, entry, by) }
}

/// Returns a view change with certificates for these (height, block, view), each by the two replicas after the leader.
pub(super) fn shows(view: u64, entries: &[(u64, BlockId, u64)]) -> ViewChange {
    let prepared = entries.iter().map(|(height, block, view)| BlockClaim {
        height: Height(*height),
        block: *block,
        view: View(*view),
    });
    let certified = entries.iter().map(|entry| {
        let leader = u16::try_from(entry.2 % 4).unwrap();
        certified(*entry, &[(leader + 1) % 4, (leader + 2) % 4])
    });
    ViewChange {
        view: View(view),
        proof: CheckpointProof::genesis(),
        prepared: prepared.collect(),
        pre_prepared: Vec::new(),
        certified: certified.collect(),
    }
}

pub(super) fn leaves(change: ViewChange) -> PbftMessage {
    PbftMessage::ViewChange(Box::new(change))
}

fn new_view(view: u64, changes: &[(u16, ViewChange)], picks: &[(u64, BlockId)]) -> PbftMessage {
    let signed = |(by, body): &(u16, ViewChange)| Signed {
        body: body.clone(),
        by: ReplicaId(*by),
        signature: Signature([0; 64]),
    };
    PbftMessage::NewView(Box::new(NewView {
        view: View(view),
        changes: changes.iter().map(signed).collect(),
        picks: picks.iter().map(|(height, block)| (Height(*height), *block)).collect(),
    }))
}

fn again(view: u64, height: u64, block: BlockId) -> PbftMessage {
    PbftMessage::Again(Vote { view: View(view), height: Height(height), block })
}

/// Returns replica 1 with height 1 prepared in view 0.
fn busy() -> Harness<PbftSigned> {
    let mut backup = open_signed(1);
    give(&mut backup, 0, pre_prepare(1, 7));
    backup.settle();
    give(&mut backup, 2, prepare(1, 7));
    assert_eq!(left(&mut backup), [prepare(1, 7), commit(0, 1, 7)]);
    backup.lines();
    backup
}

fn push_out(harness: &mut Harness<PbftSigned>, view: u64) {
    for from in [2, 3] {
        give(harness, from, PbftMessage::Suspect { view: View(view), on: true });
    }
}

#[test]
fn s1_votes_are_signed_and_statements_are_unchanged() {
    let suspect = PbftMessage::Suspect { view: View(3), on: true };
    for (message, kind, is_signed) in [
        (pre_prepare(1, 7), PRE_PREPARE, true),
        (again(1, 1, id(1)), PRE_PREPARE, true),
        (prepare(1, 7), PREPARE, true),
        (commit(0, 1, 7), COMMIT, true),
        (suspect, SUSPECT, false),
    ] {
        let said = message.auth().statement().unwrap();
        assert_eq!(message.auth(), Auth::Linked(Some(said)), "variant H: {message:?}");
        assert_eq!(said.kind, kind);
        let expected = if is_signed { Auth::Signed(said) } else { Auth::Linked(Some(said)) };
        assert_eq!(SignedMessage(message).auth(), expected);
    }
    assert_ne!(AllSigned::SPEC.name, Linked::SPEC.name, "nothing signed in one is valid in the other");
}

#[test]
fn s2_every_signature_of_a_certificate_is_claimed() {
    let entry = (1, block(1, 7).id(), 0);
    let change = shows(1, &[entry]);
    let expected = vec![
        Claim::Certificate(signed_by(PRE_PREPARE, entry, &[0])),
        Claim::Certificate(signed_by(PREPARE, entry, &[1, 2])),
    ];
    let committee = committee();
    let claims_of = |message: PbftMessage| {
        let mut claims = Claims::new(&committee, 3);
        SignedMessage(message).claims(&mut claims);
        claims.finish().map(|mut claims| {
            claims.retain(|claim| matches!(claim, Claim::Certificate(_)));
            claims
        })
    };
    let message = leaves(change.clone());
    assert_eq!(claims_of(message), Ok(expected.clone()));
    let twice: Vec<Claim> = [expected.clone(), expected].concat();
    let new = new_view(1, &[(2, change.clone()), (3, change.clone())], &[]);
    let PbftMessage::NewView(inside) = new.clone() else { panic!() };
    assert_eq!(claims_of(new), Ok(twice.clone()));
    let shown = EntryProof::ViewChanges(inside.changes.clone());
    assert_eq!(claims_of(PbftMessage::Entry { view: View(1), proof: shown }), Ok(twice.clone()));
    let signed = Signed { body: *inside, by: ReplicaId(1), signature: Signature([0; 64]) };
    let shown = EntryProof::NewView(Box::new(signed));
    assert_eq!(claims_of(PbftMessage::Entry { view: View(1), proof: shown }), Ok(twice));
    // Too few signatures are refused before any is checked.
    let mut few = change.clone();
    few.certified[0] = certified(entry, &[1]);
    assert_eq!(claims_of(leaves(few)), Err("too few signers"));
    // Certificates of a whole window are not too many.
    let many: Vec<_> = (1..=512).map(|height| (height, id(height), 0)).collect();
    assert_eq!(claims_of(leaves(shows(1, &many))).map(|claims| claims.len()), Ok(1_024));
}

#[test]
fn s3_certificates_must_match_p() {
    let entry = (1, block(1, 7).id(), 1);
    let good = shows(3, &[entry]);
    let with = |shown: Certified| ViewChange { certified: vec![shown], ..good.clone() };
    let proposal = |said, by: u16| Certified {
        proposal: signed_by(PRE_PREPARE, said, &[by]),
        ..certified(entry, &[2, 3])
    };
    let prepares =
        |said, by: &[u16]| Certified { prepares: signed_by(PREPARE, said, by), ..certified(entry, &[2, 3]) };
    let something_else = "certificate of something else";
    let bad = [
        (with(proposal(entry, 0)), "proposal of another than the leader"),
        (with(proposal((1, id(9), 1), 1)), something_else),
        (with(proposal((2, entry.1, 1), 1)), something_else),
        (with(proposal((1, entry.1, 2), 1)), something_else),
        (with(prepares((1, id(9), 1), &[2, 3])), something_else),
        (with(prepares((2, entry.1, 1), &[2, 3])), something_else),
        (with(prepares((1, entry.1, 2), &[2, 3])), something_else),
        (with(prepares(entry, &[1, 2])), "the leader's own PREPARE"),
        (with(prepares(entry, &[2])), "too few signers"),
        (with(prepares(entry, &[2, 9])), "signer is not a member"),
        (ViewChange { certified: Vec::new(), ..good.clone() }, "certificates and entries differ"),
        (ViewChange { prepared: Vec::new(), ..good.clone() }, "certificates and entries differ"),
        (ViewChange { pre_prepared: good.prepared.clone(), ..good.clone() }, "Q in variant S"),
        (shows(1, &[entry]), "entry outside of the view change"),
        (shows(3, &[(17, id(1), 1)]), "entry outside of the view change"),
        (at_height(shows(3, &[entry]), 1), "entry outside of the view change"),
    ];
    let mut backup = open_signed(0);
    for (bad, why) in bad {
        deny(&mut backup, 2, leaves(bad.clone()), why);
        // A NEW-VIEW that contains it is refused as well.
        let changes = [(0, shows(3, &[])), (1, bad), (2, shows(3, &[]))];
        assert!(backup.deliver(ReplicaId(3), new_view(3, &changes, &[]).into()).is_err());
        assert_eq!(backup.status().view, View(0));
    }
    give(&mut backup, 2, leaves(good.clone()));
    // In variant H no replica could check them.
    let mut other = open(0, 4);
    refuse(&mut other, 2, leaves(good), Reject::Invalid("certificates where votes are not signed"));
}

#[test]
fn s4_the_certificate_of_the_highest_view_is_taken() {
    let sizes = Sizes { quorum: 3, weak: 2, window: 16 };
    let picks = |set: &[ViewChange]| {
        let selected = select(&set.iter().collect::<Vec<_>>(), sizes, AllSigned::pick)?;
        Some(selected.picks.into_iter().map(|(height, block)| (height.0, block)).collect::<Vec<_>>())
    };
    let (old, new) = (shows(5, &[(1, id(1), 1)]), shows(5, &[(1, id(3), 3)]));
    let none = || shows(5, &[]);
    assert_eq!(picks(&[old.clone(), new.clone()]), None, "Q are needed");
    // Q view changes suffice in any order; one certificate suffices.
    assert_eq!(picks(&[old.clone(), new.clone(), none()]), Some(vec![(1, id(3))]));
    assert_eq!(picks(&[none(), new, old.clone()]), Some(vec![(1, id(3))]));
    assert_eq!(picks(&[none(), none(), old]), Some(vec![(1, id(1))]));
    let third = shows(5, &[(3, id(7), 2)]);
    let nulls = vec![(1, BlockId::null(Height(1))), (2, BlockId::null(Height(2))), (3, id(7))];
    assert_eq!(picks(&[none(), third.clone(), none()]), Some(nulls));
    let settled = at_height(none(), 2);
    assert_eq!(picks(&[settled, third, none()]), Some(vec![(3, id(7))]));
}

#[test]
fn s5_certificate_of_prepared_block_survives_restart() {
    let mut backup = busy();
    backup.crash().unwrap();
    left(&mut backup);
    push_out(&mut backup, 0);
    let entry = (1, block(1, 7).id(), 0);
    let expected = shows(1, &[entry]);
    assert_eq!(changes_left(&mut backup), std::slice::from_ref(&expected));
    backup.crash().unwrap();
    assert_eq!(changes_left(&mut backup), [expected]);
}

#[test]
fn s6_no_block_prepares_without_the_leaders_signature() {
    // The new view takes height 1 over: replica 2 votes at once, and the block prepares when the leader has signed it.
    let mut backup = open_signed(2);
    let entry = (1, block(1, 7).id(), 0);
    let changes = [(0, shows(1, &[])), (1, shows(1, &[entry])), (3, shows(1, &[]))];
    backup.fetched(block(1, 7));
    give(&mut backup, 1, new_view(1, &changes, &[(1, entry.1)]));
    let own = PbftMessage::Prepare(vote(1, 1, 7));
    assert_eq!(left(&mut backup), [own]);
    give(&mut backup, 3, PbftMessage::Prepare(vote(1, 1, 7)));
    assert_eq!(left(&mut backup), [], "no certificate is complete");
    assert_eq!(
        backup.deliver(ReplicaId(3), again(1, 1, entry.1).into()),
        Err(Reject::WrongSender),
        "only the leader's signature counts"
    );
    give(&mut backup, 1, again(1, 1, entry.1));
    assert_eq!(left(&mut backup), [PbftMessage::Commit(vote(1, 1, 7))]);
    let mut hybrid = open(2, 4);
    refuse(&mut hybrid, 1, again(0, 1, entry.1), Reject::Invalid("variant"));
}

#[test]
fn s7_leader_signs_blocks_that_it_takes_over() {
    let mut leader = busy();
    push_out(&mut leader, 0);
    leader.settle();
    for from in [2, 3] {
        give(&mut leader, from, leaves(shows(1, &[])));
    }
    let block_1 = block(1, 7).id();
    let left_then = left(&mut leader);
    assert!(left_then.contains(&again(1, 1, block_1)), "{left_then:?}");
    // The same after a restart, and for a peer that asks.
    leader.crash().unwrap();
    assert!(left(&mut leader).contains(&again(1, 1, block_1)));
    let missing = crate::pbft::MissingAtHeight {
        height: Height(1),
        proposal: true,
        prepares: quorate_types::ReplicaSet::EMPTY,
        commits: quorate_types::ReplicaSet::EMPTY,
    };
    let standing = StatusReport {
        view: View(1),
        normal: true,
        stable: Height::ZERO,
        executed: Height::ZERO,
        missing: vec![missing],
    };
    leader.advance(1_000 * MS);
    left(&mut leader);
    give(&mut leader, 3, PbftMessage::Status(standing));
    assert_eq!(left(&mut leader), [again(1, 1, block_1)]);
}

#[test]
fn s8_lost_signature_of_the_leader_is_requested() {
    let mut backup = open_signed(1);
    give(&mut backup, 0, pre_prepare(1, 7));
    backup.settle();
    backup.crash().unwrap();
    backup.settle();
    backup.sent();
    backup.advance(2_000 * MS);
    let asks = backup.sent().into_iter().any(|(_, message)| {
        matches!(message.0, PbftMessage::Status(standing) if standing.missing.iter().any(|missing| missing.proposal))
    });
    assert!(asks, "the block is available, the signature is not");
    give(&mut backup, 2, prepare(1, 7));
    assert!(!left(&mut backup).contains(&commit(0, 1, 7)));
    assert_eq!(backup.deliver(LEADER, pre_prepare(1, 7).into()), Err(Reject::Duplicate));
    assert!(left(&mut backup).contains(&commit(0, 1, 7)));
}

#[test]
fn s9_equivocating_replica_is_accused() {
    let mut backup = open_signed(1);
    give(&mut backup, 0, pre_prepare(1, 7));
    backup.lines();
    assert_eq!(backup.deliver(LEADER, pre_prepare(1, 8).into()), Err(Reject::Equivocation));
    let lines = backup.lines();
    assert!(lines.contains(&"accuse 0".to_owned()), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("suspect")), "the leader is suspected at once: {lines:#?}");
    give(&mut backup, 2, prepare(1, 7));
    assert_eq!(backup.deliver(ReplicaId(2), prepare(1, 8).into()), Err(Reject::Equivocation));
    assert!(backup.lines().contains(&"accuse 2".to_owned()));
    give(&mut backup, 3, commit(0, 1, 7));
    assert_eq!(backup.deliver(ReplicaId(3), commit(0, 1, 8).into()), Err(Reject::Equivocation));
    assert!(backup.lines().contains(&"accuse 3".to_owned()));
    // Variant H has no evidence to report.
    let mut hybrid = open(1, 4);
    take(&mut hybrid, 2, prepare(1, 7));
    refuse(&mut hybrid, 2, prepare(1, 8), Reject::Equivocation);
}

#[test]
fn s9_early_proposal_of_a_later_leader_keeps_the_signature_of_this_view() {
    let mut backup = open_signed(1);
    for view in [2, 1, 3] {
        let leader = u16::try_from(view).unwrap();
        let _ = backup.deliver(ReplicaId(leader), again(view, 1, id(9)).into());
    }
    give(&mut backup, 0, pre_prepare(1, 7));
    for view in [2, 1, 3] {
        let leader = u16::try_from(view).unwrap();
        let _ = backup.deliver(ReplicaId(leader), again(view, 1, id(9)).into());
    }
    backup.settle();
    give(&mut backup, 2, prepare(1, 7));
    assert!(left(&mut backup).contains(&commit(0, 1, 7)));
}

#[test]
fn s10_the_window_is_bounded() {
    let open = |n, window| {
        let setup = Setup { window, checkpoint_every: window / 2, ..Setup::of::<PbftSigned>(n) };
        Harness::<PbftSigned>::open(LEADER, setup, &PbftParams::default()).err()
    };
    assert_eq!((open(4, 512), open(16, 256)), (None, None));
    for (n, window) in [(4, 514), (100, 256)] {
        assert!(
            matches!(open(n, window), Some(OpenError::Params { name, .. }) if name == "window"),
            "{n} {window}"
        );
    }
}

/// The largest possible NEW-VIEW fits into a frame.
#[test]
fn s10_a_new_view_fits_into_a_frame() {
    let (n, window): (u16, u64) = (16, 256);
    let quorum = Setup::of::<PbftSigned>(n.into()).committee::<PbftSigned>().quorum();
    let voters: Vec<u16> = (1..u16::try_from(quorum).unwrap()).collect();
    let entries =
        (1..=window).map(|height| BlockClaim { height: Height(height), block: id(height), view: View(0) });
    let change = ViewChange {
        view: View(1),
        proof: CheckpointProof::genesis(),
        prepared: entries.collect(),
        pre_prepared: Vec::new(),
        certified: (1..=window).map(|height| certified((height, id(height), 0), &voters)).collect(),
    };
    let changes: Vec<_> = (0..n).map(|id| (id, change.clone())).collect();
    let picks: Vec<_> = (1..=window).map(|height| (height, id(height))).collect();
    let mut bytes = Vec::new();
    new_view(1, &changes, &picks).encode(&mut bytes);
    let per_height = bytes.len() / usize::try_from(window).unwrap() / usize::from(n);
    assert!(per_height <= 400 + 64 * quorum, "{per_height} bytes for a height of a view change");
    assert!(bytes.len() < quorate_types::limits::FRAME_CONSENSUS_BYTES_MAX);
}

#[test]
fn s11_cluster_survives_a_crash_of_the_leader() {
    let setup = Setup::of::<PbftSigned>(4);
    let mut cluster = Cluster::<PbftSigned>::open(setup, &PbftParams::default()).unwrap();
    cluster.run();
    cluster.at(LEADER).offer([payload(1)]);
    let mut commits = 0;
    cluster.run_where(|_, _, message| {
        commits += u32::from(matches!(message.0, PbftMessage::Commit(_)));
        commits <= 1 || !matches!(message.0, PbftMessage::Commit(_))
    });
    cluster.stop(LEADER);
    for id in 1..4 {
        cluster.at(ReplicaId(id)).waits(Some(Time(0)), false);
    }
    cluster.tick(400 * MS);
    cluster.at(ReplicaId(1)).offer([payload(2)]);
    cluster.run();
    for id in 1..4 {
        assert_eq!(cluster.executed(ReplicaId(id)), Height(2), "{:#?}", cluster.trace());
        assert_eq!(cluster.decided(ReplicaId(id))[&Height(1)], block(1, 1).id());
    }
}
