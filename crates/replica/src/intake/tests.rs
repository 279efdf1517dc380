use super::message_checks::kind_of;
use super::*;
use crate::host_message::Heights;
use crate::host_tests::{Old, large, open};
use quorate_crypto::{SigningKey, bundle_preimage};
use quorate_types::bundle::{BundleBuilder, BundleKind, bundle_digest};
use quorate_types::{BodyLimits, BundleNo, ClusterId, Height, SessionId};

/// Runs the intake. Returns the passed messages with their senders, and the refused ones with the reasons.
fn run(intake: &mut Intake, replica: &Replica) -> (Vec<String>, Vec<String>) {
    let mut passed = Passed::default();
    intake.run(replica, &Old, &mut || true, &mut || 0, &mut passed);
    let said = passed.inputs.iter().map(|input| match input {
        Input::Peer(checked) => format!("{} {}", checked.link.0, kind_of(&checked.message)),
        Input::Payload(from, _) => format!("{} payload", from.0),
        input => panic!("{input:?}"),
    });
    let refused = passed.refused.iter().map(|refused| {
        let FrameSource::Peer(from) = refused.source else { panic!("{refused:?}") };
        format!("{} {}", from.0, refused.reason)
    });
    (said.collect(), refused.collect())
}

fn hear(intake: &mut Intake, from: ReplicaId, message: &HostMessage) {
    let mut body = Vec::new();
    message.encode(&mut body);
    intake.peer_frame(from, frame::HOST, &body);
}

/// A message from before a gap must not pass after it: an answer would close a newer gap.
#[test]
fn messages_from_before_a_gap_are_dropped() {
    let (replica, one, three) = (open(), ReplicaId(1), ReplicaId(3));
    let mut intake = replica.intake(Scheme::Cheap);
    let heights = HostMessage::Heights(Heights { executed: Height(1), kept: Height(1), stable: Height(0) });
    for from in [one, three] {
        hear(&mut intake, from, &HostMessage::AskProof);
    }
    let mut payload = Vec::new();
    Payload { bundles: Vec::new() }.encode(&mut payload);
    intake.peer_frame(one, frame::PAYLOAD, &payload);
    intake.peer_frame(one, frame::BUNDLE, large(1).sealed());
    assert!(matches!(intake.link(one, LinkEvent::Gap), Input::Link(from, LinkEvent::Gap) if from == one));
    hear(&mut intake, one, &heights);
    let (said, refused) = run(&mut intake, &replica);
    assert_eq!(said, ["3 host.ask-proof", "1 host.heights", "1 payload"]);
    // The body was checked as always.
    assert_eq!(refused, ["1 before a gap", "1 bad signature"]);

    // A link that comes back has lost no frame, and a gap counts once.
    hear(&mut intake, one, &heights);
    intake.link(one, LinkEvent::Back);
    intake.link(three, LinkEvent::Gap);
    assert_eq!(run(&mut intake, &replica).0, ["1 host.heights"]);
    hear(&mut intake, three, &heights);
    assert_eq!(run(&mut intake, &replica).0, ["3 host.heights"]);
}

/// Queues a message that costs as much as these signature checks, and has no signature.
fn wait(intake: &mut Intake, from: ReplicaId, checks: usize) {
    wait_with(intake, from, checks, Vec::new());
}

fn wait_with(
    intake: &mut Intake,
    from: ReplicaId,
    cost: usize,
    checks: Vec<(ReplicaId, [u8; 32], Signature)>,
) {
    let (cost, message) = (shares::cost(0, cost), CheckedMessage::Host(HostMessage::AskProof));
    let waiting = WaitingMessage {
        from,
        cost,
        message,
        signature: None,
        checks,
        certificates: Vec::new(),
        own: Vec::new(),
    };
    intake.messages.queues.push(waiting);
}

#[test]
fn paused_peer_is_read_again_after_a_gap_dropped_its_messages() {
    let (replica, one) = (open(), ReplicaId(1));
    let mut intake = replica.intake(Scheme::Cheap);
    (0..1_000).for_each(|_| wait(&mut intake, one, 1));
    run(&mut intake, &replica);
    assert!(intake.paused_peers().contains(one) && !intake.is_drained());
    intake.link(one, LinkEvent::Gap);
    let (said, refused) = run(&mut intake, &replica);
    assert!(said.is_empty() && !refused.is_empty());
    assert!(intake.paused_peers().is_empty() && intake.is_drained());
}

/// The last turn is remembered from run to run.
#[test]
fn senders_of_expensive_messages_take_turns() {
    let replica = open();
    let mut intake = replica.intake(Scheme::Cheap);
    for from in [0, 1, 3] {
        (0..2).for_each(|_| wait(&mut intake, ReplicaId(from), 590));
        wait(&mut intake, ReplicaId(from), 1);
    }
    let order: Vec<Vec<String>> = (0..7).map(|_| run(&mut intake, &replica).0).collect();
    let order: Vec<String> = order.iter().map(|said| said.iter().map(|said| &said[..1]).collect()).collect();
    assert_eq!(order, ["0", "1", "3", "0", "01", "13", "3"]);
    assert!(intake.is_drained());
}

/// Hundreds of bad signatures take tens of milliseconds. A known suspect delays no other peer for that long, also
/// where none waits yet. It is heard in the end, because its disk may be corrupt.
#[test]
fn long_message_of_a_suspect_is_checked_in_pieces() {
    const LONG: usize = 590;
    let (replica, one, three) = (open(), ReplicaId(1), ReplicaId(3));
    let mut intake = replica.intake(Scheme::Cheap);
    let bad = |count| vec![(three, [0; 32], Signature([1; 64])); count];
    let checked = |intake: &Intake| intake.ledger().signatures_single + intake.ledger().signatures_batched;
    wait_with(&mut intake, three, 1, bad(1));
    assert_eq!(run(&mut intake, &replica).1, ["3 bad signature"], "the peer is a suspect now");
    for busy in [false, true] {
        let before = checked(&intake);
        wait_with(&mut intake, three, LONG, bad(LONG));
        if busy {
            (0..500).for_each(|_| wait(&mut intake, one, 1));
        }
        assert_eq!(run(&mut intake, &replica).1, ["3 bad signature"]);
        assert!(checked(&intake) - before <= 8, "the rest is not checked");
        while !intake.is_drained() {
            run(&mut intake, &replica);
        }
    }

    wait(&mut intake, three, LONG);
    let heights = HostMessage::Heights(Heights { executed: Height(1), kept: Height(1), stable: Height(0) });
    hear(&mut intake, three, &heights);
    let (mut runs, mut heard) = (0, Vec::new());
    while heard.is_empty() {
        wait(&mut intake, one, 1);
        let (mut said, refused) = run(&mut intake, &replica);
        assert!(refused.is_empty() && said.contains(&"1 host.ask-proof".to_owned()), "others are heard");
        said.retain(|said| said.starts_with('3'));
        heard.append(&mut said);
        runs += 1;
    }
    assert_eq!(runs, 1 + LONG / 8, "one run for each piece");
    assert_eq!(heard, ["3 host.ask-proof", "3 host.heights"], "in order");
    assert!(intake.is_drained());
}

/// A bundle, signed by its client unless the signature is bad.
fn signed(cluster: ClusterId, is_good: bool) -> Bundle {
    let key = SigningKey::from_seed(Scheme::Ed25519, [9; 32]);
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, key.public(), session, BundleNo(1));
    builder.push(b"x");
    let content = builder.finish();
    let preimage = bundle_preimage(cluster, bundle_digest(&content));
    let signature = if is_good { key.sign(&preimage) } else { Signature([1; 64]) };
    Bundle::parse(&content, Authenticator::Signature(signature), &BodyLimits::default()).unwrap()
}

/// A client hands its bundle to all replicas, and each of them spreads it. A liar may add a signature of its own.
#[test]
fn copies_of_a_bundle_are_checked_once() {
    let replica = open();
    let mut intake = replica.intake(Scheme::Ed25519);
    let cluster = replica.setup.committee.cluster;
    let (good, bad) = (signed(cluster, true), signed(cluster, false));
    let mut run = |copies: &[(u16, &Bundle)]| {
        for (from, copy) in copies {
            intake.peer_frame(ReplicaId(*from), frame::BUNDLE, copy.sealed());
        }
        let mut passed = Passed::default();
        intake.run(&replica, &Old, &mut || true, &mut || 0, &mut passed);
        let Ledger { signatures_single, signatures_batched, .. } = *intake.ledger();
        (passed.inputs.len(), passed.refused.len(), signatures_single + signatures_batched)
    };
    assert_eq!(run(&[(0, &good), (1, &good), (3, &good)]), (3, 0, 1), "one check for three copies");
    let (passed, refused, _) = run(&[(3, &bad), (0, &good), (1, &good), (3, &bad), (3, &good)]);
    assert_eq!((passed, refused), (3, 2), "a copy with another signature says nothing about the others");
}

/// A clock that advances by 7 ns with each reading shows which checks are measured, and how often it is read.
#[test]
fn cpu_time_of_checks_is_counted_by_signer() {
    let (replica, three) = (open(), ReplicaId(3));
    let cluster = replica.setup.committee.cluster;
    let mut clock = 0;
    let mut run = |intake: &mut Intake| {
        let mut cpu_ns = || {
            clock += 7;
            clock
        };
        intake.run(&replica, &Old, &mut || true, &mut cpu_ns, &mut Passed::default());
        let Ledger { client_check_ns, replica_check_ns, .. } = *intake.ledger();
        (client_check_ns, replica_check_ns, clock)
    };
    let mut intake = replica.intake(Scheme::Cheap);
    wait(&mut intake, three, 1);
    assert_eq!(run(&mut intake), (0, 0, 0), "a message without a signature");
    wait_with(&mut intake, three, 2, vec![(three, [0; 32], Signature([1; 64])); 2]);
    assert_eq!(run(&mut intake), (0, 7, 14), "one measurement for a batch");
    let mut intake = replica.intake(Scheme::Ed25519);
    (0..2).for_each(|_| intake.peer_frame(three, frame::BUNDLE, signed(cluster, true).sealed()));
    assert_eq!(run(&mut intake), (7, 0, 28));
    assert_eq!(run(&mut intake), (7, 0, 28), "nothing waits");
}
