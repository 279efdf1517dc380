//! Impossible claims of messages are refused before any signature is verified.

use super::*;
use crate::sync_hotstuff::PROPOSE;
use quorate_types::{Digest, Kind};

type Change<T> = fn(&mut T);

fn refused(message: &RotatingMessage) -> bool {
    claims_hold(message).is_err()
}

/// Returns invalid variants of a certificate.
fn wrong_certificates(header: &Header) -> Vec<(&'static str, Certificate)> {
    let good = certified(header);
    let with = |change: Change<Certificate>| {
        let mut wrong = good.clone();
        change(&mut wrong);
        wrong
    };
    let stranger = [0, 1, 9].map(|id| (r(id), SIGNATURE));
    vec![
        ("too few", certificate(1, id(header), 2)),
        ("a stranger", Certificate::of(good.statement, &stranger)),
        ("another kind", with(|it| it.statement.kind = PROPOSE)),
        ("a scope", with(|it| it.statement.scope = Digest([1; 32]))),
        ("a height", with(|it| it.statement.height = Height(1))),
        ("view 0", with(|it| it.statement.view = View(0))),
        (
            "a genesis of another block",
            Certificate { statement: good.statement, ..Certificate::genesis(VOTE) },
        ),
        ("a genesis of another kind", Certificate::genesis(Kind::new("other"))),
        ("more signers than signatures", with(|it| assert!(it.signers.insert(r(4))))),
    ]
}

#[test]
fn r1_certificates_are_of_enough_members_for_one_vote() {
    type Carrier = Box<dyn Fn(Certificate) -> RotatingMessage>;
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 2));
    let second = header(2, tip(&first), 2);
    let carriers: Vec<Carrier> = vec![
        Box::new(move |parent| RotatingMessage::Propose { header: second.clone(), parent }),
        Box::new(|lock| status(2, lock)),
        Box::new(RotatingMessage::Certified),
        Box::new(|it| {
            RotatingMessage::Answer(Box::new(Answer {
                certificates: vec![it],
                ..stands(RecoveryStage::Running)
            }))
        }),
        Box::new({
            let other = other.clone();
            move |it| RotatingMessage::Evidence(ViewEvidence::Certificates(Box::new((it, certified(&other)))))
        }),
        Box::new(move |it| {
            RotatingMessage::Evidence(ViewEvidence::Certificates(Box::new((certified(&other), it))))
        }),
    ];
    for carrier in carriers {
        let good = carrier(certified(&first));
        assert_eq!(claims_hold(&good), Ok(()), "{good:?}");
        for (what, certificate) in wrong_certificates(&first) {
            let message = carrier(certificate);
            assert!(refused(&message), "{what}: {message:?}");
        }
    }
    assert_eq!(claims_hold(&status(2, Certificate::genesis(VOTE))), Ok(()));
    assert!(refused(&status(1, certified(&first))), "a lock of no earlier view");
}

#[test]
fn headers_are_signed_by_their_leader_and_bind_their_parent() {
    let first = header(1, GENESIS, 1);
    let good = header(2, tip(&first), 2);
    let wrong: [(&str, Change<Signed<Header>>); 9] = [
        ("signed by somebody else", |it| it.by = r(2)),
        ("proposed by somebody else", |it| it.body.block.proposer = r(2)),
        ("of another leader's view", |it| it.body.block.view = View(3)),
        ("view 0", |it| it.body.block.view = View(0)),
        ("height 0", |it| it.body.block.height = Height(0)),
        ("another parent's view", |it| it.body.parent_view = View(0)),
        ("a parent of its own view", |it| {
            it.body.parent_view = View(2);
            it.body.block.extra = bind_certificate(View(2), it.body.block.parent);
        }),
        ("a genesis of another view", |it| {
            it.body.block.parent = BlockId::ZERO;
            it.body.block.extra = bind_certificate(View(1), BlockId::ZERO);
        }),
        ("another genesis", |it| {
            it.body.parent_view = View(0);
            it.body.block.extra = bind_certificate(View(0), it.body.block.parent);
        }),
    ];
    let other = header(2, GENESIS, 7);
    let carriers = |header: Signed<Header>| {
        let mut shows = stands(RecoveryStage::Running);
        shows.header = Some(header.clone());
        let mut votes = stands(RecoveryStage::Running);
        votes.voted = Some(Signed { body: header.clone(), by: r(4), signature: SIGNATURE });
        let pair = |one: &Signed<Header>, two: &Signed<Header>| {
            RotatingMessage::Evidence(ViewEvidence::Conflict(Box::new((one.clone(), two.clone()))))
        };
        [
            RotatingMessage::Vote(header.clone()),
            RotatingMessage::Answer(Box::new(shows)),
            RotatingMessage::Answer(Box::new(votes)),
            pair(&header, &signed(&other)),
            pair(&signed(&other), &header),
        ]
    };
    for message in carriers(signed(&good)) {
        assert_eq!(claims_hold(&message), Ok(()), "{message:?}");
    }
    let parent = certified(&first);
    let proposed = |header: Header| RotatingMessage::Propose { header, parent: parent.clone() };
    assert_eq!(claims_hold(&proposed(good.clone())), Ok(()));
    for (what, change) in wrong {
        let mut header = signed(&good);
        change(&mut header);
        assert!(refused(&proposed(header.body.clone())) || what == "signed by somebody else", "{what}");
        for message in carriers(header) {
            assert!(refused(&message), "{what}: {message:?}");
        }
    }
    let beside = RotatingMessage::Propose { header: good.clone(), parent: certified(&header(1, GENESIS, 9)) };
    assert_eq!(claims_hold(&beside), Err("proposal does not extend its certificate"));
    let mut answer = stands(RecoveryStage::Running);
    answer.voted = Some(Signed { body: signed(&good), by: r(9), signature: SIGNATURE });
    assert!(refused(&RotatingMessage::Answer(Box::new(answer))), "a stranger's vote");
    // Two statements without a conflict.
    for (one, two) in [(&good, &good), (&first, &good)] {
        let evidence = RotatingMessage::Evidence(conflict(one, two));
        assert_eq!(claims_hold(&evidence), Err("no conflict"));
        let both = Box::new((certified(one), certified(two)));
        let evidence = RotatingMessage::Evidence(ViewEvidence::Certificates(both));
        assert_eq!(claims_hold(&evidence), Err("no conflict"));
    }
}

#[test]
fn r13_blames_are_f_plus_1_for_one_view() {
    let carriers = |certificate: Certificate| {
        let mut answer = stands(RecoveryStage::Running);
        answer.blames = Some(certificate.clone());
        [
            RotatingMessage::Evidence(ViewEvidence::Blames(certificate)),
            RotatingMessage::Answer(Box::new(answer)),
        ]
    };
    for message in carriers(blames(1)) {
        assert_eq!(claims_hold(&message), Ok(()));
    }
    let few = Certificate::of(blame(View(1)), &[(r(0), SIGNATURE), (r(1), SIGNATURE)]);
    let mut other = blames(1);
    other.statement.kind = VOTE;
    for wrong in [few, other, blames(0)] {
        for message in carriers(wrong) {
            assert!(refused(&message), "{message:?}");
        }
    }
}

/// §17: one slot for each kind and view, whatever the height; a blame may be repeated.
#[test]
fn statements_have_no_height() {
    let first = header(1, GENESIS, 1);
    let second = header(2, tip(&first), 2);
    for (message, kind) in
        [(proposal(&second), "propose"), (voted(&second), "vote"), (status(2, certified(&first)), "status")]
    {
        let statement = message.auth().statement().unwrap();
        assert_eq!((statement.view, statement.height, statement.kind.as_str()), (View(2), Height(0), kind));
        assert!(message.once() && message.auth().is_signed());
    }
    assert!(!RotatingMessage::Blame(View(1)).once());
    assert_ne!(
        super::super::status(View(2), &certified(&first)),
        super::super::status(View(2), &certified(&second))
    );
}
