//! Impossible claims of messages are refused before any signature is verified.

use super::*;
use crate::sync_hotstuff::statements::BLAME;
use crate::sync_hotstuff::{LockName, NEW_VIEW, PROPOSE};
use quorate_consensus::Claims;
use quorate_types::{Digest, Kind};

both! {
    certificates_are_of_enough_members_for_one_vote;
    headers_are_signed_by_their_leader_and_bind_their_base;
    locks_are_of_one_earlier_view;
    blames_are_f_plus_1_for_one_view;
    conflicts_are_statements_of_the_leader;
    every_part_of_an_answer_is_claimed;
    answer_of_an_honest_replica_is_always_accepted;
}

/// Also among three replicas with votes of all, where each certificate counts with all its signatures.
fn answer_of_an_honest_replica_is_always_accepted<V: Variant>() {
    for n in [3u16, 5, 7] {
        let committee = Setup::of::<SyncHotStuff<V>>(usize::from(n)).committee::<SyncHotStuff<V>>();
        let blocks = chain(n, 1, GENESIS, &(1..=33).collect::<Vec<u64>>());
        let full = |view| certificate(view, end(&blocks[0]), n);
        let lock = Lock { responsive: Some(full(1)), tip: full(1) };
        let votes: Vec<_> = (0..n).map(|id| (r(id), SIGNATURE)).collect();
        let SyncMessage::Forward { new_view } = forward(n, 2, &lock) else { panic!() };
        let mut answer = stands(RecoveryStage::Running);
        answer.evidence = vec![QuitEvidence::Blames(Certificate::of(blame(View(1)), &votes))];
        answer.certificates = vec![full(1), full(1), full(2), full(2)];
        answer.new_view = Some(new_view);
        answer.headers = blocks[..32].iter().map(signed).collect();
        answer.voted = Some(Signed { body: signed(&blocks[32]), by: r(1), signature: SIGNATURE });
        let mut claims = Claims::new(&committee, usize::from(weak(n)));
        SyncMessage::Answer(Box::new(answer)).claims(&mut claims);
        assert_eq!(claims.finish().map(|_| ()), Ok(()), "n = {n}");
    }
}

type Change<T> = fn(&mut T);

fn refused<V: Variant>(message: &SyncMessage) -> bool {
    claims_hold::<V>(message).is_err()
}

fn blocks() -> Vec<Header> {
    chain(N, 1, GENESIS, &[1, 2])
}

/// Returns invalid variants of a certificate of at least `quorum` votes.
fn wrong_certificates(header: &Header, quorum: u16) -> Vec<(&'static str, Certificate)> {
    let good = certificate(1, end(header), quorum);
    let with = |change: Change<Certificate>| {
        let mut wrong = good.clone();
        change(&mut wrong);
        wrong
    };
    let stranger = [0, 1, 2, 3, 9].map(|id| (r(id), SIGNATURE));
    vec![
        ("too few", certificate(1, end(header), quorum - 1)),
        ("a stranger", Certificate::of(good.statement, &stranger)),
        ("another kind", with(|it| it.statement.kind = PROPOSE)),
        ("a scope", with(|it| it.statement.scope = Digest([1; 32]))),
        ("view 0", with(|it| it.statement.view = View(0))),
        (
            "a genesis of another block",
            Certificate { statement: good.statement, ..Certificate::genesis(VOTE) },
        ),
        ("a genesis of another kind", Certificate::genesis(Kind::new("other"))),
        ("more signers than signatures", with(|it| assert!(it.signers.insert(r(4))))),
    ]
}

fn certificates_are_of_enough_members_for_one_vote<V: Variant>() {
    type Carrier<'a> = Box<dyn Fn(Certificate) -> SyncMessage + 'a>;
    let (all, quorum) = (blocks(), weak(N));
    let first = &all[0];
    let carriers: Vec<Carrier<'_>> = vec![
        Box::new(|parent| {
            let header = all[usize::from(!parent.is_genesis())].clone();
            SyncMessage::Propose { header, parent }
        }),
        Box::new(|tip| SyncMessage::Status { view: View(2), lock: lock(tip) }),
        Box::new(|tip| new_view(2, &lock(tip))),
        Box::new(|tip| forward(N, 2, &lock(tip))),
        Box::new(SyncMessage::Certified),
        Box::new(|it| {
            SyncMessage::Answer(Box::new(Answer { certificates: vec![it], ..stands(RecoveryStage::Running) }))
        }),
    ];
    for carrier in carriers {
        let good = carrier(certified(N, first));
        assert_eq!(claims_hold::<V>(&good), Ok(()), "{good:?}");
        assert_eq!(claims_hold::<V>(&carrier(Certificate::genesis(VOTE))), Ok(()));
        for (what, certificate) in wrong_certificates(first, quorum) {
            let message = carrier(certificate);
            assert!(refused::<V>(&message), "{what}: {message:?}");
        }
    }
    // Certificates that decide have q_R votes, and are not of genesis.
    let quorum = 4;
    assert_eq!(claims_hold::<V>(&SyncMessage::Notify(certificate(1, end(first), quorum))), Ok(()));
    for (what, certificate) in wrong_certificates(first, quorum) {
        assert!(refused::<V>(&SyncMessage::Notify(certificate)), "{what}");
    }
    assert!(refused::<V>(&SyncMessage::Notify(Certificate::genesis(VOTE))));
}

fn headers_are_signed_by_their_leader_and_bind_their_base<V: Variant>() {
    let good = blocks().remove(0);
    let wrong: [(&str, Change<Signed<Header>>); 6] = [
        ("signed by somebody else", |it| it.by = r(1)),
        ("proposed by somebody else", |it| it.body.block.proposer = r(1)),
        ("of another leader's view", |it| it.body.block.view = View(2)),
        ("view 0", |it| it.body.block.view = View(0)),
        ("height 0", |it| it.body.block.height = Height(0)),
        ("another base", |it| it.body.base = BlockId::null(Height(1))),
    ];
    let carriers = |header: Signed<Header>| {
        let mut shows = stands(RecoveryStage::Running);
        shows.headers = vec![header.clone()];
        let mut votes = stands(RecoveryStage::Running);
        votes.voted = Some(Signed { body: header.clone(), by: r(4), signature: SIGNATURE });
        [
            SyncMessage::Vote(header),
            SyncMessage::Answer(Box::new(shows)),
            SyncMessage::Answer(Box::new(votes)),
        ]
    };
    for message in carriers(signed(&good)) {
        assert_eq!(claims_hold::<V>(&message), Ok(()));
    }
    for (what, change) in wrong {
        let mut header = signed(&good);
        change(&mut header);
        for message in carriers(header) {
            assert!(refused::<V>(&message), "{what}: {message:?}");
        }
    }
    // A view 0 of its would-be leader.
    let mut zero = signed(&good);
    (zero.body.block.view, zero.by, zero.body.block.proposer) = (View(0), r(0), r(0));
    assert!(refused::<V>(&SyncMessage::Vote(zero)));
    let parent = Certificate::genesis(VOTE);
    let unbound = Header { base: BlockId::null(Height(1)), ..good };
    assert!(refused::<V>(&SyncMessage::Propose { header: unbound, parent }));
    let mut answer = stands(RecoveryStage::Running);
    answer.voted = Some(Signed { body: signed(&blocks()[0]), by: r(9), signature: SIGNATURE });
    assert!(refused::<V>(&SyncMessage::Answer(Box::new(answer))), "a stranger's vote");
}

fn locks_are_of_one_earlier_view<V: Variant>() {
    let all = blocks();
    let (first, second) = (&all[0], &all[1]);
    let high = |view, header: &Header| Some(certificate(view, end(header), 4));
    let tip = |view, header: &Header| certificate(view, end(header), weak(N));
    let good = Lock { responsive: high(1, first), tip: tip(1, second) };
    let wrong = [
        ("several views", Lock { responsive: high(1, first), tip: tip(2, second) }),
        ("a later view below", Lock { responsive: high(2, first), tip: tip(1, second) }),
        ("responsive above its tip", Lock { responsive: high(1, second), tip: tip(1, first) }),
        ("too few votes", Lock { responsive: Some(tip(1, first)), tip: tip(1, second) }),
        (
            "genesis by votes",
            Lock { responsive: Some(Certificate::genesis(VOTE)), tip: Certificate::genesis(VOTE) },
        ),
        ("votes above genesis", Lock { responsive: high(1, first), tip: Certificate::genesis(VOTE) }),
    ];
    let carriers = |view: u64, lock: &Lock| {
        let mut answer = stands(RecoveryStage::Running);
        let SyncMessage::Forward { new_view: signed } = forward(N, view, lock) else { panic!() };
        answer.new_view = Some(signed);
        let answer = SyncMessage::Answer(Box::new(answer));
        [
            new_view(view, lock),
            forward(N, view, lock),
            answer,
            SyncMessage::Status { view: View(view), lock: lock.clone() },
        ]
    };
    for message in carriers(3, &good) {
        assert_eq!(claims_hold::<V>(&message), Ok(()));
    }
    for (what, lock) in wrong {
        for message in carriers(3, &lock) {
            assert!(refused::<V>(&message), "{what}: {message:?}");
        }
    }
    // A base is of an earlier view, and signed by the leader.
    let [new, forwarded, answer, _] = carriers(1, &good);
    assert!(refused::<V>(&new) && refused::<V>(&forwarded) && refused::<V>(&answer));
    let SyncMessage::Forward { mut new_view } = forward(N, 3, &good) else { panic!() };
    new_view.by = r(1);
    assert!(refused::<V>(&SyncMessage::Forward { new_view }));
}

fn blames_are_f_plus_1_for_one_view<V: Variant>() {
    let QuitEvidence::Blames(good) = blames(N, 2) else { panic!() };
    assert_eq!(claims_hold::<V>(&SyncMessage::Evidence(QuitEvidence::Blames(good.clone()))), Ok(()));
    let wrong: [(&str, Change<Certificate>); 6] = [
        ("a subject", |it| it.statement.subject = Digest([1; 32])),
        ("a height", |it| it.statement.height = Height(1)),
        ("another kind", |it| it.statement.kind = NEW_VIEW),
        ("view 0", |it| it.statement.view = View(0)),
        ("too few", |it| *it = Certificate::of(it.statement, &[(r(0), SIGNATURE), (r(1), SIGNATURE)])),
        ("nobody", |it| *it = Certificate::genesis(BLAME)),
    ];
    for (what, change) in wrong {
        let mut certificate = good.clone();
        change(&mut certificate);
        assert!(refused::<V>(&SyncMessage::Evidence(QuitEvidence::Blames(certificate))), "{what}");
    }
}

fn conflicts_are_statements_of_the_leader<V: Variant>() {
    let good = blocks().remove(0);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let statement = |header: &Header| Signed {
        body: LeaderStatement::Header(header.clone()),
        by: r(0),
        signature: SIGNATURE,
    };
    let claimed = |first: Signed<LeaderStatement>, second: Signed<LeaderStatement>| {
        claims_hold::<V>(&SyncMessage::Evidence(conflict(first, second)))
    };
    assert_eq!(claimed(statement(&good), statement(&other)), Ok(()));
    let by = |header: &Header, by| Signed { by: r(by), ..statement(header) };
    assert!(claimed(by(&good, 1), by(&other, 1)).is_err());
    assert!(claimed(statement(&good), by(&other, 1)).is_err());
    assert!(claimed(statement(&good), statement(&good)).is_err());
    // The signature covers the block. A replica with one header must not be able to forge another.
    let forged = Header { base: BlockId::null(Height(1)), ..good.clone() };
    assert!(
        forged.statement() == good.statement()
            && LeaderStatement::Header(forged.clone()).conflicts_with(&LeaderStatement::Header(good.clone()))
    );
    assert!(claimed(statement(&good), statement(&forged)).is_err());
    assert!(claimed(statement(&forged), statement(&good)).is_err());
    // Nobody leads view 0.
    let zero = |header: &Header| {
        let mut header = header.clone();
        header.block.view = View(0);
        statement(&header)
    };
    assert!(claimed(zero(&good), zero(&other)).is_err());
}

fn every_part_of_an_answer_is_claimed<V: Variant>() {
    let all = blocks();
    let SyncMessage::Forward { new_view } = forward(N, 2, &lock(certified(N, &all[0]))) else { panic!() };
    let full = Answer {
        incarnation: Incarnation(1),
        stage: RecoveryStage::Running,
        evidence: vec![blames(N, 1)],
        certificates: vec![certified(N, &all[0]); 4],
        new_view: Some(new_view),
        headers: vec![signed(&all[1]); 32],
        voted: Some(Signed { body: signed(&all[1]), by: r(4), signature: SIGNATURE }),
    };
    let holds = |answer: Answer| claims_hold::<V>(&SyncMessage::Answer(Box::new(answer)));
    assert_eq!(holds(full.clone()), Ok(()), "there is room for as many signatures");
    let mut wrong = full;
    wrong.evidence = vec![blames(N, 0)];
    assert!(holds(wrong).is_err());
}

#[test]
fn signed_statements_are_those_of_the_table() {
    let all = blocks();
    let base = lock(certified(N, &all[0]));
    let said = |message: &SyncMessage| {
        message
            .auth()
            .statement()
            .map(|it| (it.kind.as_str().to_owned(), it.view.0, it.height.0, message.once()))
    };
    let is = |kind: &str, view, height, once| Some((kind.to_owned(), view, height, once));
    assert_eq!(said(&proposal(N, &all[1])), is("propose", 1, 2, true));
    assert_eq!(said(&voted(&all[1])), is("vote", 1, 2, true));
    assert_eq!(said(&first_vote(2, end(&all[0]))), is("vote", 2, 1, true));
    assert_eq!(said(&new_view(2, &base)), is("new-view", 2, 0, true));
    assert_eq!(said(&SyncMessage::Status { view: View(2), lock: base.clone() }), is("status", 2, 0, true));
    assert_eq!(said(&SyncMessage::Blame(View(2))), is("blame", 2, 0, false));
    let unsigned = [
        SyncMessage::Evidence(blames(N, 1)),
        forward(N, 2, &base),
        SyncMessage::Notify(certificate(1, end(&all[0]), 4)),
        SyncMessage::Certified(certified(N, &all[0])),
        SyncMessage::Lack { view: View(1), height: Height(1), block: id(&all[0]) },
        SyncMessage::Ask { incarnation: Incarnation(1), above: Height(0) },
        SyncMessage::Answer(Box::new(stands(RecoveryStage::Silent))),
    ];
    assert!(unsigned.iter().all(|it| said(it).is_none()));
    // Certificates consist of the statements of votes; §13, 9: each binds its view.
    assert_eq!(voted(&all[1]).auth().statement(), Some(certified(N, &all[1]).statement));
    assert_ne!(first_vote(2, end(&all[0])).auth().statement(), Some(certified(N, &all[0]).statement));
    // The statement of a lock covers all its parts but the signatures.
    let more = Lock { tip: certificate(1, end(&all[0]), 4), ..base.clone() };
    assert_eq!(new_view(2, &more).auth(), new_view(2, &base).auth());
    let name = base.name();
    let others = [
        LockName { view: View(2), ..name },
        LockName { responsive: Some((Height(1), id(&all[0]))), ..name },
        LockName { responsive: Some((Height(0), GENESIS.1)), ..name },
        LockName { tip: (Height(2), name.tip.1), ..name },
        LockName { tip: (name.tip.0, id(&all[1])), ..name },
    ];
    for other in others {
        assert_ne!(other.status(View(2)), name.status(View(2)), "{other:?}");
    }
}
