use super::selection::{change, id};
use super::*;
use crate::pbft::{EntryProof, NewView, StatusReport, ViewChange};
use quorate_consensus::harness::Cluster;
use quorate_consensus::{
    Alarm, Certificate, Checkpoint, CheckpointProof, Claim, Claims, Message, Ready, Signed,
};
use quorate_types::{Signature, Time, Wire};

pub(super) const STATUS: u64 = 1_000 * MS;
pub(super) const T0: u64 = 400 * MS;

pub(super) fn suspect(view: u64) -> PbftMessage {
    PbftMessage::Suspect { view: View(view), on: true }
}

pub(super) fn unsuspect(view: u64) -> PbftMessage {
    PbftMessage::Suspect { view: View(view), on: false }
}

pub(super) fn leaves(change: ViewChange) -> PbftMessage {
    PbftMessage::ViewChange(Box::new(change))
}

fn by(id: u16, body: ViewChange) -> Signed<ViewChange> {
    Signed { body, by: ReplicaId(id), signature: Signature([0; 64]) }
}

pub(super) fn new_view(view: u64, changes: Vec<Signed<ViewChange>>, picks: &[(u64, BlockId)]) -> PbftMessage {
    let picks = picks.iter().map(|(height, block)| (Height(*height), *block)).collect();
    PbftMessage::NewView(Box::new(NewView { view: View(view), changes, picks }))
}

/// Returns empty view changes of some replicas.
pub(super) fn empty(view: u64, ids: &[u16]) -> Vec<Signed<ViewChange>> {
    ids.iter().map(|id| by(*id, change(view, &[], &[]))).collect()
}

/// Returns the VIEW-CHANGEs that have left since the last call.
fn changes_sent(replica: &mut Harness<Pbft>) -> Vec<ViewChange> {
    replica.settle();
    let changes = sent(replica).into_iter().filter_map(|(_, message)| match message {
        PbftMessage::ViewChange(change) => Some(*change),
        _ => None,
    });
    changes.collect()
}

fn new_views_sent(replica: &mut Harness<Pbft>) -> Vec<NewView> {
    replica.settle();
    let new = sent(replica).into_iter().filter_map(|(_, message)| match message {
        PbftMessage::NewView(new) => Some(*new),
        _ => None,
    });
    new.collect()
}

pub(super) fn stands(replica: &Harness<Pbft>) -> (u64, bool) {
    let status = replica.status();
    (status.view.0, status.normal)
}

/// Delivers SUSPECTs of two other replicas.
fn push_out(replica: &mut Harness<Pbft>, view: u64) {
    for from in [2, 3] {
        take(replica, from, suspect(view));
    }
}

fn at(lines: &[String], text: &str) -> usize {
    lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text} in {lines:#?}"))
}

/// Returns replica 1 with height 1 prepared and height 2 accepted in view 0.
fn busy() -> Harness<Pbft> {
    let mut backup = open(1, 4);
    take(&mut backup, 0, pre_prepare(1, 7));
    take(&mut backup, 0, pre_prepare(2, 8));
    take(&mut backup, 2, prepare(1, 7));
    backup.settle();
    sent(&mut backup);
    backup.lines();
    backup
}

#[test]
fn prepared_block_survives_a_crash_of_the_leader() {
    let mut cluster = Cluster::<Pbft>::open(setup(4), &PbftParams::default()).unwrap();
    cluster.run();
    cluster.at(LEADER).offer([payload(1)]);
    // The leader dies when height 1 has prepared everywhere and one COMMIT has arrived.
    let mut commits = 0;
    cluster.run_where(|_, _, message| {
        commits += u32::from(matches!(message, PbftMessage::Commit(_)));
        commits <= 1 || !matches!(message, PbftMessage::Commit(_))
    });
    cluster.stop(LEADER);
    for id in 1..4 {
        cluster.at(ReplicaId(id)).waits(Some(Time(0)), false);
    }
    cluster.tick(T0);
    let executed = |cluster: &Cluster<Pbft>| (1..4).all(|id| cluster.executed(ReplicaId(id)) == Height(1));
    assert!(executed(&cluster), "{:#?}", cluster.trace());
    cluster.at(ReplicaId(1)).offer([payload(2)]);
    cluster.run();
    for id in 1..4 {
        assert_eq!(cluster.executed(ReplicaId(id)), Height(2));
        assert_eq!(cluster.decided(ReplicaId(id))[&Height(1)], block(1, 1).id(), "the first proposal");
        assert_eq!(cluster.at(ReplicaId(id)).status().last_view_change, "request overdue");
    }
}

#[test]
fn v1_a_view_change_is_recorded_and_ends_all_votes() {
    let mut backup = busy();
    push_out(&mut backup, 0);
    assert_eq!(stands(&backup), (1, false));
    let lines = backup.lines();
    let (entered, own, held) =
        (at(&lines, "record 3 h0"), at(&lines, "record 4 h0"), at(&lines, "hold All: view-change v1 h0"));
    assert!(entered < held && own < held, "{lines:#?}");
    assert_eq!(sent(&mut backup), [], "nothing leaves before the records are durable");
    let own = changes_sent(&mut backup);
    // The VIEW-CHANGE names P and Q.
    let one = (1, block(1, 7).id(), 0);
    assert_eq!(own, [change(1, &[one], &[one, (2, block(2, 8).id(), 0)])]);
    // No vote in view 0 any more: height 2 would prepare, height 3 is new.
    refuse(&mut backup, 0, pre_prepare(3, 9), Reject::Stale);
    refuse(&mut backup, 2, prepare(2, 8), Reject::Stale);
    backup.ready(block(2, 8).id(), Ready::Valid);
    backup.settle();
    assert_eq!(sent(&mut backup), []);
    // COMMITs of older views still decide.
    for from in [0, 2] {
        take(&mut backup, from, commit(0, 1, 7));
    }
    assert_eq!(decided(&mut backup), [(1, block(1, 7).id())]);
    // The same bytes are sent again until the view begins, also after a restart.
    backup.advance(STATUS);
    assert_eq!(changes_sent(&mut backup), own);
    backup.crash().unwrap();
    assert_eq!(stands(&backup), (1, false));
    assert_eq!(changes_sent(&mut backup), own);
    backup.advance(STATUS);
    assert_eq!(changes_sent(&mut backup), own);
}

#[test]
fn v1_no_vote_in_a_view_that_has_not_begun() {
    let mut backup = open(2, 4);
    for from in [1, 3] {
        take(&mut backup, from, suspect(0));
    }
    backup.settle();
    sent(&mut backup);
    let proposal = Block { view: View(1), proposer: ReplicaId(1), ..block(1, 7) };
    let message = PbftMessage::PrePrepare { view: View(1), block: proposal };
    refuse(&mut backup, 1, message, Reject::Early);
}

#[test]
fn v14_proposals_may_overtake_their_new_view() {
    let mut backup = open(2, 4);
    let proposal = |height, from: u16| {
        let block = Block { view: View(1), proposer: ReplicaId(from), ..block(height, 7) };
        PbftMessage::PrePrepare { view: View(1), block }
    };
    for height in 1..=16 {
        for _ in 0..10 {
            refuse(&mut backup, 1, proposal(height, 1), Reject::Early);
            refuse(&mut backup, 3, proposal(height, 3), Reject::Early);
        }
    }
    assert_eq!(backup.protocol().early.len(), 64, "64 proposals of the leader alone");
    take(&mut backup, 1, new_view(1, empty(1, &[0, 1, 3]), &[]));
    backup.settle();
    let prepared: Vec<_> = sent(&mut backup).into_iter().map(|(_, message)| message).collect();
    assert_eq!(prepared.len(), 7, "{prepared:?}");
    assert!(backup.protocol().early.is_empty());
}

#[test]
fn v2_a_view_change_must_be_well_formed() {
    let one = (1, id(1), 0);
    let far = (17, id(1), 0);
    let bad = [
        (change(0, &[], &[]), "view change to the first view"),
        (change(1, &[(1, id(1), 1)], &[]), "entry outside of the view change"),
        (change(1, &[], &[(1, id(1), 1)]), "entry outside of the view change"),
        (change(1, &[far], &[]), "entry outside of the view change"),
        (change(1, &[], &[far]), "entry outside of the view change"),
        (change(1, &[], &[(0, id(1), 0)]), "entry outside of the view change"),
        (change(1, &[one, (1, id(2), 0)], &[]), "entries out of order"),
        (change(1, &[], &[one, one]), "entries out of order"),
        (
            change(1, &[], &(0..65).map(|number| (1, id(number), 0)).collect::<Vec<_>>()),
            "too many blocks at one height",
        ),
        (
            // Four for each of the sixteen heights of the window.
            change(1, &[], &(0..65).map(|number| (1 + number % 16, id(number), 0)).collect::<Vec<_>>()),
            "too many entries",
        ),
    ];
    let mut backup = open(1, 4);
    for (bad, why) in bad {
        refuse(&mut backup, 3, leaves(bad), Reject::Invalid(why));
    }
    let most: Vec<_> = (0..64).map(|number| (1, id(number), 0)).collect();
    take(&mut backup, 3, leaves(change(1, &[one], &most)));
    refuse(&mut backup, 3, leaves(change(1, &[one], &most)), Reject::Duplicate);
    refuse(&mut backup, 3, leaves(change(1, &[], &[])), Reject::Duplicate);
}

#[test]
fn v3_f_plus_1_view_changes_make_others_join() {
    // n = 7: three distinct senders with a view or a later one.
    let mut backup = open(1, 7);
    take(&mut backup, 2, leaves(change(2, &[], &[])));
    refuse(&mut backup, 2, leaves(change(2, &[], &[])), Reject::Duplicate);
    take(&mut backup, 2, leaves(change(9, &[], &[])));
    take(&mut backup, 3, leaves(change(4, &[], &[])));
    assert_eq!(stands(&backup), (0, true), "two senders, with any number of messages");
    take(&mut backup, 4, leaves(change(3, &[], &[])));
    assert_eq!(stands(&backup), (3, false), "the greatest view that three have reached");
    assert_eq!(changes_sent(&mut backup).iter().map(|change| change.view.0).collect::<Vec<_>>(), [3]);
    assert_eq!(backup.status().last_view_change, "f + 1 joined a later view");
}

#[test]
fn v4_the_view_timer_needs_a_quorum() {
    // n = 4: one replica alone only repeats its VIEW-CHANGE.
    let mut backup = busy();
    push_out(&mut backup, 0);
    backup.settle();
    backup.advance(20 * STATUS);
    backup.settle();
    take(&mut backup, 2, leaves(change(1, &[], &[])));
    backup.advance(20 * STATUS);
    assert_eq!(stands(&backup), (1, false), "the own view change and another are not Q");
    // A view change for a later view counts as well.
    take(&mut backup, 3, leaves(change(2, &[], &[])));
    assert_eq!(stands(&backup), (1, false));
    backup.advance(T0 - 1);
    assert_eq!(stands(&backup), (1, false));
    backup.advance(1);
    assert_eq!(stands(&backup), (2, false));
    assert_eq!(backup.status().last_view_change, "no valid NEW-VIEW in time");
    // The next view timer is twice as long.
    backup.settle();
    take(&mut backup, 2, leaves(change(2, &[], &[])));
    backup.advance(2 * T0 - 1);
    assert_eq!(stands(&backup), (2, false));
    backup.advance(1);
    assert_eq!(stands(&backup), (3, false));
}

#[test]
fn v4_the_cap_bounds_the_view_timer() {
    // Replica 15 of 16 leads none of these views; Q = 11.
    let mut backup = open(15, 16);
    for view in 1..12 {
        for from in 0..11 {
            take(&mut backup, from, leaves(change(view, &[], &[])));
        }
        backup.settle();
        assert_eq!(stands(&backup), (view, false));
        let before = (T0 << (view - 1)).min(10_000 * MS);
        backup.advance(before - 1);
        assert_eq!(stands(&backup), (view, false));
        backup.advance(1);
        assert_eq!(stands(&backup), (view + 1, false));
    }
}

#[test]
fn v6_leader_waits_for_as_many_view_changes_as_select_needs() {
    // Scenario 6: a liar's P entry blocks both A and B until the fourth view change comes.
    let mut leader = busy();
    push_out(&mut leader, 0);
    leader.settle();
    sent(&mut leader);
    let lie = (1, id(99), 0);
    take(&mut leader, 3, leaves(change(1, &[lie], &[lie])));
    take(&mut leader, 2, leaves(change(1, &[], &[(1, block(1, 7).id(), 0)])));
    assert_eq!(new_views_sent(&mut leader), []);
    assert_eq!(stands(&leader), (1, false));
    take(&mut leader, 0, leaves(change(1, &[], &[(1, block(1, 7).id(), 0)])));
    leader.lines();
    let new = new_views_sent(&mut leader);
    assert_eq!(new.len(), 1);
    assert_eq!(new[0].picks, [(Height(1), block(1, 7).id())]);
    assert_eq!(new[0].changes.len(), 4);
    assert_eq!(stands(&leader), (1, true));
}

#[test]
fn v7_new_view_and_q_are_recorded_before_it_leaves() {
    let mut leader = busy();
    push_out(&mut leader, 0);
    leader.settle();
    sent(&mut leader);
    take(&mut leader, 3, leaves(change(1, &[], &[(1, block(1, 7).id(), 0)])));
    leader.lines();
    take(&mut leader, 2, leaves(change(1, &[], &[])));
    let lines = leader.lines();
    let held = at(&lines, "hold All: new-view v1 h0");
    assert!(at(&lines, "record 1 h1") < held && at(&lines, "record 5 h0") < held, "{lines:#?}");
    assert_eq!(stands(&leader), (1, false), "the view begins with the own copy");
    assert_eq!(leader.already_proposed(), []);
    assert_eq!(new_views_sent(&mut leader).len(), 1);
    assert_eq!(stands(&leader), (1, true));
    assert_eq!(leader.already_proposed(), [block(1, 7).id()], "new blocks omit its bundles");
}

#[test]
fn v7_a_new_view_survives_a_restart_before_its_own_copy() {
    let mut leader = busy();
    push_out(&mut leader, 0);
    leader.settle();
    take(&mut leader, 3, leaves(change(1, &[], &[(1, block(1, 7).id(), 0)])));
    sent(&mut leader);
    take(&mut leader, 2, leaves(change(1, &[], &[])));
    // The NEW-VIEW is durable and has left; then the power fails.
    leader.sync();
    let said: Vec<_> =
        sent(&mut leader).into_iter().filter(|(_, m)| matches!(m, PbftMessage::NewView(_))).collect();
    assert_eq!(said.len(), 1);
    leader.crash().unwrap();
    leader.settle();
    let again: Vec<_> =
        sent(&mut leader).into_iter().filter(|(_, m)| matches!(m, PbftMessage::NewView(_))).collect();
    assert_eq!(again, said, "the same bytes");
    assert_eq!(stands(&leader), (1, true));
    // The leader proposes above the heights that it took over.
    leader.offer([payload(20)]);
    leader.settle();
    let proposed: Vec<u64> = sent(&mut leader)
        .into_iter()
        .filter_map(|(_, message)| match message {
            PbftMessage::PrePrepare { block, .. } => Some(block.height.0),
            _ => None,
        })
        .collect();
    assert_eq!(proposed, [2]);
}

/// Returns view changes of 0, 2 and 3 that leave height 1 to be decided.
pub(super) fn with_height_1(view: u64) -> Vec<Signed<ViewChange>> {
    let entry = (1, block(1, 7).id(), 0);
    [(0, vec![]), (2, vec![entry]), (3, vec![entry])]
        .into_iter()
        .map(|(sender, p)| by(sender, change(view, &p, &[entry])))
        .collect()
}

#[test]
fn v8_wrong_new_view_is_refused() {
    // Scenario 8.
    let good = [(1, block(1, 7).id())];
    let mut backup = open(2, 4);
    let bad: Vec<(PbftMessage, &str)> = vec![
        (new_view(1, with_height_1(1), &[]), "another selection"),
        (new_view(1, with_height_1(1), &[(1, id(3))]), "another selection"),
        (new_view(1, with_height_1(1), &[(1, block(1, 7).id()), (2, id(3))]), "another selection"),
        (new_view(1, with_height_1(1)[..2].to_vec(), &good), "too few view changes"),
        (new_view(1, with_height_1(2), &good), "view change for another view"),
        (
            new_view(
                1,
                vec![by(0, change(1, &[], &[])), by(2, change(1, &[], &[])), by(9, change(1, &[], &[]))],
                &[],
            ),
            "view change for another view",
        ),
        (
            new_view(
                1,
                vec![
                    by(0, change(1, &[], &[])),
                    by(2, change(1, &[(1, id(1), 1)], &[])),
                    by(3, change(1, &[], &[])),
                ],
                &[],
            ),
            "entry outside of the view change",
        ),
    ];
    for (message, why) in bad {
        refuse(&mut backup, 1, message, Reject::Invalid(why));
    }
    for from in [0, 3] {
        refuse(&mut backup, from, new_view(1, with_height_1(1), &good), Reject::WrongSender);
    }
    // Twice the same sender: the encoding excludes it, and a handler refuses it all the same.
    let mut twice = with_height_1(1);
    twice[1] = twice[0].clone();
    let message = new_view(1, twice, &good);
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert!(PbftMessage::from_bytes(&bytes).is_err());
    refuse(&mut backup, 1, message, Reject::Invalid("too few view changes"));
    assert_eq!(stands(&backup), (0, true));
    take(&mut backup, 1, new_view(1, with_height_1(1), &good));
    assert_eq!(stands(&backup), (1, true));
    refuse(&mut backup, 1, new_view(1, with_height_1(1), &good), Reject::Duplicate);
    // A NEW-VIEW of an earlier view is stale.
    take(&mut backup, 3, new_view(3, empty(3, &[0, 1, 3]), &[]));
    refuse(&mut backup, 1, new_view(1, with_height_1(1), &good), Reject::Stale);
}

#[test]
fn v8_every_signature_of_a_new_view_is_claimed() {
    let committee = setup(4).committee::<Pbft>();
    let checkpoint = Checkpoint { height: Height(8), ..Checkpoint::GENESIS };
    let votes = [0, 1, 3].map(|id| (ReplicaId(id), Signature([id as u8; 64])));
    let certificate = Certificate::of(checkpoint.statement(), &votes);
    let mut body = change(1, &[], &[]);
    body.proof = CheckpointProof { checkpoint, certificate: certificate.clone() };
    let changes = vec![by(2, body.clone()), by(3, body.clone())];
    let claims_of = |message: &PbftMessage| {
        let mut claims = Claims::new(&committee, 3);
        message.claims(&mut claims);
        claims.finish().unwrap()
    };
    let proof = Claim::Certificate(certificate);
    let said =
        |by: u16, statement| Claim::Signature { by: ReplicaId(by), statement, signature: Signature([0; 64]) };
    let both = [said(2, body.statement()), proof.clone(), said(3, body.statement()), proof.clone()];
    // The sender's own statement is checked by its link or its own signature.
    let one = leaves(body);
    assert!(one.auth().is_signed());
    assert_eq!(claims_of(&one), [proof]);
    let new = new_view(1, changes.clone(), &[]);
    assert!(new.auth().is_signed());
    assert_eq!(claims_of(&new), both);
    let PbftMessage::NewView(inside) = new else { panic!() };
    let shown = EntryProof::ViewChanges(changes);
    assert_eq!(claims_of(&PbftMessage::Entry { view: View(1), proof: shown }), both);
    let leader = said(1, inside.statement());
    let signed = Signed { body: *inside, by: ReplicaId(1), signature: Signature([0; 64]) };
    let shown = EntryProof::NewView(Box::new(signed));
    let claims = claims_of(&PbftMessage::Entry { view: View(1), proof: shown });
    assert_eq!(claims, [std::slice::from_ref(&leader), &both].concat());
    // A proof with too few signers is refused before any signature is checked.
    let mut few = change(1, &[], &[]);
    let certificate = Certificate::of(checkpoint.statement(), &votes[..2]);
    few.proof = CheckpointProof { checkpoint, certificate };
    let mut claims = Claims::new(&committee, 3);
    leaves(few).claims(&mut claims);
    assert_eq!(claims.finish(), Err("too few signers"));
}

#[test]
fn v9_wrong_new_view_alone_does_not_end_a_view() {
    let mut backup = open(2, 4);
    let bad = || new_view(1, with_height_1(1), &[]);
    assert_eq!(backup.deliver(ReplicaId(1), bad()), Err(Reject::Invalid("another selection")));
    assert_eq!(stands(&backup), (0, true));
    for from in [1, 3] {
        take(&mut backup, from, suspect(0));
    }
    backup.settle();
    assert_eq!(backup.deliver(ReplicaId(1), bad()), Err(Reject::Invalid("another selection")));
    assert_eq!(stands(&backup), (1, false), "no quorum is known to have left view 0");
    for from in [0, 3] {
        take(&mut backup, from, leaves(change(1, &[], &[])));
    }
    assert_eq!(backup.deliver(ReplicaId(1), bad()), Err(Reject::Invalid("another selection")));
    assert_eq!(stands(&backup), (2, false));
    assert_eq!(backup.status().last_view_change, "wrong NEW-VIEW");
}

#[test]
fn v10_the_view_is_recorded_before_its_first_prepare() {
    let mut backup = busy();
    // Replica 2 leads view 2.
    let entry = (1, block(1, 7).id(), 0);
    let changes = vec![
        by(0, change(2, &[], &[entry])),
        by(2, change(2, &[entry], &[entry])),
        by(3, change(2, &[], &[])),
    ];
    take(&mut backup, 2, new_view(2, changes, &[(1, block(1, 7).id())]));
    let lines = backup.lines();
    let held = at(&lines, "hold All: prepare v2 h1");
    assert!(at(&lines, "record 3 h0") < held && at(&lines, "record 1 h1") < held, "{lines:#?}");
    backup.settle();
    let again = PbftMessage::Prepare(Vote { view: View(2), height: Height(1), block: block(1, 7).id() });
    assert_eq!(sent(&mut backup), to_all([again.clone()]));
    // After a restart the view and the blocks that it took over are known.
    backup.crash().unwrap();
    backup.settle();
    assert_eq!(stands(&backup), (2, true));
    assert_eq!(backup.status().leader, ReplicaId(2));
    assert!(sent(&mut backup).contains(&(To::All, again)));
    let taken = Block { view: View(2), proposer: ReplicaId(2), ..block(1, 9) };
    refuse(&mut backup, 2, PbftMessage::PrePrepare { view: View(2), block: taken }, Reject::Stale);
    let next = Block { view: View(2), proposer: ReplicaId(2), ..block(2, 9) };
    take(&mut backup, 2, PbftMessage::PrePrepare { view: View(2), block: next });
}

#[test]
fn v11_blocks_taken_over_are_voted_on_again() {
    let mut backup = busy();
    for from in [0, 2, 3] {
        take(&mut backup, from, commit(0, 1, 7));
    }
    backup.log_decided(Height(1), block(1, 7).id());
    backup.execute(Height(1));
    backup.settle();
    sent(&mut backup);
    assert_eq!(decided(&mut backup).len(), 1);
    let entry = (1, block(1, 7).id(), 0);
    let three = (3, id(33), 0);
    let changes = vec![
        by(0, change(2, &[three], &[entry, three])),
        by(2, change(2, &[entry], &[entry, three])),
        by(3, change(2, &[], &[])),
    ];
    let null = BlockId::null(Height(2));
    take(&mut backup, 2, new_view(2, changes, &[(1, block(1, 7).id()), (2, null), (3, id(33))]));
    backup.settle();
    let vote = |height: u64, block| Vote { view: View(2), height: Height(height), block };
    // Height 1 is executed and voted on again; the null block is always available; height 3 is fetched.
    assert_eq!(
        sent(&mut backup),
        to_all([PbftMessage::Prepare(vote(1, block(1, 7).id())), PbftMessage::Prepare(vote(2, null))])
    );
    // V12: the leader first, then the replicas that claim to have accepted the block.
    assert_eq!(backup.wanted(), [(id(33), ReplicaId(2)), (id(33), ReplicaId(0)), (id(33), ReplicaId(2))]);
    for height in [(1, block(1, 7).id()), (2, null)] {
        for from in [0, 3] {
            take(&mut backup, from, PbftMessage::Prepare(vote(height.0, height.1)));
            take(&mut backup, from, PbftMessage::Commit(vote(height.0, height.1)));
        }
        take(&mut backup, 2, PbftMessage::Commit(vote(height.0, height.1)));
    }
    backup.settle();
    assert_eq!(
        sent(&mut backup),
        to_all([PbftMessage::Commit(vote(1, block(1, 7).id())), PbftMessage::Commit(vote(2, null))])
    );
    assert_eq!(decided(&mut backup), [(2, null)], "height 1 is not decided twice");
    assert_eq!(backup.alarms(), []);
}

#[test]
fn v11_new_view_that_conflicts_with_a_decision_raises_the_alarm() {
    let mut backup = busy();
    backup.decide(Height(1), block(1, 7).id());
    let entry = (1, id(3), 0);
    let changes = vec![
        by(0, change(2, &[entry], &[entry])),
        by(2, change(2, &[], &[entry])),
        by(3, change(2, &[], &[])),
    ];
    take(&mut backup, 2, new_view(2, changes, &[(1, id(3))]));
    let (first, second) = (block(1, 7).id(), id(3));
    assert_eq!(backup.alarms(), [Alarm::SafetyBroken { height: Height(1), first, second }]);
}

#[test]
fn v11_dead_proposal_does_not_bind_a_later_view() {
    // Replica 1 alone has accepted height 2: the new view may decide another block at it.
    let mut backup = busy();
    take(&mut backup, 2, new_view(2, empty(2, &[0, 2, 3]), &[]));
    backup.settle();
    assert_eq!(sent(&mut backup), []);
    let other = Block { view: View(2), proposer: ReplicaId(2), ..block(2, 9) };
    let message = PbftMessage::PrePrepare { view: View(2), block: other.clone() };
    take(&mut backup, 2, message);
    backup.settle();
    let vote = Vote { view: View(2), height: Height(2), block: other.id() };
    assert_eq!(sent(&mut backup), to_all([PbftMessage::Prepare(vote)]));
    // Q names both blocks.
    push_out(&mut backup, 2);
    let own = changes_sent(&mut backup);
    let expected = change(
        3,
        &[(1, block(1, 7).id(), 0)],
        &[(1, block(1, 7).id(), 0), (2, block(2, 8).id(), 0), (2, other.id(), 2)],
    );
    assert_eq!(own, [expected]);
}

pub(super) fn standing(view: u64, normal: bool) -> PbftMessage {
    PbftMessage::Status(StatusReport {
        view: View(view),
        normal,
        stable: Height::ZERO,
        executed: Height::ZERO,
        missing: Vec::new(),
    })
}

pub(super) fn entries(replica: &mut Harness<Pbft>) -> Vec<(To, PbftMessage)> {
    replica.settle();
    let sent = sent(replica).into_iter();
    sent.filter(|(_, message)| matches!(message, PbftMessage::Entry { .. })).collect()
}

#[test]
fn v13_replica_that_is_behind_receives_the_entry_proof() {
    let mut ahead = open(2, 4);
    take(&mut ahead, 3, standing(0, true));
    assert_eq!(entries(&mut ahead), [], "the same view");
    take(&mut ahead, 1, new_view(1, with_height_1(1), &[(1, block(1, 7).id())]));
    ahead.settle();
    sent(&mut ahead);
    take(&mut ahead, 3, standing(0, true));
    let shown = entries(&mut ahead);
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].0, To::One(ReplicaId(3)));
    // Rate-limited, and also for a replica that waits for this view.
    assert!(ahead.deliver(ReplicaId(3), standing(0, true)).is_err());
    ahead.advance(STATUS / 2);
    take(&mut ahead, 3, standing(1, false));
    assert_eq!(entries(&mut ahead).len(), 1);
    ahead.advance(STATUS / 2);
    take(&mut ahead, 3, standing(1, true));
    assert_eq!(entries(&mut ahead), []);
    // A proof is handled like its parts, from any sender.
    let mut behind = open(3, 4);
    let (_, message) = shown.into_iter().next().unwrap();
    take(&mut behind, 0, message);
    assert_eq!(stands(&behind), (1, true));
    assert_eq!(behind.status().last_view_change, "a later view had begun");
    // A replica between views sends its proof as well.
    push_out(&mut ahead, 1);
    ahead.settle();
    ahead.advance(STATUS);
    sent(&mut ahead);
    take(&mut ahead, 3, standing(0, true));
    let shown = entries(&mut ahead);
    assert!(
        matches!(&shown[0].1, PbftMessage::Entry { view: View(2), proof: EntryProof::NewView(new) } if new.body.view == View(1)),
        "{shown:?}"
    );
}

#[test]
fn v13_entry_proof_covers_joining_and_timeout() {
    let mut ahead = open(1, 4);
    for from in [2, 3] {
        take(&mut ahead, from, leaves(change(3, &[], &[])));
    }
    ahead.settle();
    take(&mut ahead, 0, standing(0, true));
    let shown = entries(&mut ahead);
    let Some((_, PbftMessage::Entry { proof: EntryProof::ViewChanges(joined), .. })) = shown.first() else {
        panic!("{shown:?}")
    };
    assert_eq!(joined.len(), 2, "f + 1 for this view");
    let mut behind = open(0, 4);
    take(&mut behind, 1, shown.into_iter().next().unwrap().1);
    assert_eq!(stands(&behind), (3, false));
    // The view timer expires: the proof is a quorum for the view before.
    ahead.advance(T0);
    assert_eq!(stands(&ahead), (4, false));
    ahead.settle();
    ahead.advance(STATUS);
    sent(&mut ahead);
    take(&mut ahead, 0, standing(0, true));
    let shown = entries(&mut ahead);
    let Some((_, PbftMessage::Entry { proof: EntryProof::ViewChanges(quorum), .. })) = shown.first() else {
        panic!("{shown:?}")
    };
    assert_eq!(quorum.iter().map(|change| change.by.0).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn floors_and_window_follow_the_view() {
    use crate::pbft::{COMMIT, NEW_VIEW, PRE_PREPARE, PREPARE, VIEW_CHANGE};
    let mut backup = busy();
    push_out(&mut backup, 0);
    let low = [PRE_PREPARE, PREPARE, COMMIT].map(|kind| (kind, View(0)));
    let current = [VIEW_CHANGE, NEW_VIEW].map(|kind| (kind, View(1)));
    assert_eq!(backup.floors().views, low.into_iter().chain(current).collect::<Vec<_>>());
    assert_eq!(backup.window().views, View(0)..View(10));
    // With empty P and Q nothing binds to older views. COMMITs of the last begun view still count.
    let mut free = open(1, 4);
    push_out(&mut free, 0);
    assert_eq!(free.window().views, View(0)..View(10));
    assert_eq!(free.floors().views[0].1, View(1));
}
