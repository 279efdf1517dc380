//! U1 and U2: impossible claims of messages are refused before any signature is verified.

use super::*;
use quorate_consensus::{Claim, Claims, Message as _};

/// Returns the claims of a message, before any signature is verified.
pub(in super::super) fn claims_of(message: &Message) -> Result<Vec<Claim>, &'static str> {
    let committee = Setup::of::<UniqueChain<Apollo>>(usize::from(N)).committee::<UniqueChain<Apollo>>();
    let mut claims = Claims::new(&committee, 3);
    message.claims(&mut claims);
    claims.finish()
}

fn is_refused(message: &Message) -> bool {
    claims_of(message).is_err()
}

fn with_skips(entry: &Proposal, skips: Vec<Certificate>) -> Message {
    let mut entry = entry.clone();
    entry.block.extra = Proposal::bind(entry.parent_round, skips_digest(&skips));
    UniqueMessage::Entry { entry, skips }
}

#[test]
fn u1_entry_is_of_the_leader_of_its_round() {
    let good = entry(3, tip(&entry(1, GENESIS, 1)), 3);
    assert_eq!(claims_of(&proposal(&good)).map(|claims| claims.len()), Ok(1), "a certificate");
    let mut wrong = good.clone();
    wrong.block.proposer = r(0);
    assert!(is_refused(&proposal(&wrong)));
    let mut round = good.clone();
    round.block.view = View(4);
    round.block.proposer = r(2);
    assert!(is_refused(&with_skips(&round, skips(1, 4))));
    let mut zero = entry(1, GENESIS, 1);
    zero.block.view = View::ZERO;
    assert!(is_refused(&with_skips(&zero, vec![])));
}

#[test]
fn u1_genesis_is_the_parent_of_round_0() {
    let mut named = entry(1, GENESIS, 1);
    named.block.parent = BlockId(Digest([1; 32]));
    assert!(is_refused(&proposal(&named)));
    let mut round = entry(2, tip(&entry(1, GENESIS, 1)), 2);
    round.block.parent = BlockId::ZERO;
    assert!(is_refused(&proposal(&round)));
}

/// Scenario 10.
#[test]
fn u1_each_skipped_round_has_a_skip_certificate() {
    let first = entry(1, GENESIS, 1);
    let good = entry(4, tip(&first), 4);
    assert!(!is_refused(&proposal(&good)));
    // Three signatures, two signers.
    let repeated = Certificate { signers: blames(2, 2).signers, ..blames(2, 3) };
    let mut other = blames(2, 3);
    other.statement.kind = quorate_types::Kind::new("propose");
    let wrong = [
        vec![],
        vec![blames(2, 3)],
        vec![blames(3, 3)],
        vec![blames(2, 3), blames(2, 3)],
        vec![blames(3, 3), blames(2, 3)],
        vec![blames(2, 3), blames(3, 3), blames(4, 3)],
        vec![blames(1, 3), blames(2, 3), blames(3, 3)],
        vec![blames(2, 2), blames(3, 3)],
        vec![repeated, blames(3, 3)],
        vec![other, blames(3, 3)],
    ];
    for skips in wrong {
        assert!(is_refused(&with_skips(&good, skips.clone())), "{skips:?}");
    }
    // The parent is of an earlier round.
    let mut later = entry(1, GENESIS, 1);
    later.parent_round = View(1);
    later.block.parent = id(&first);
    assert!(is_refused(&with_skips(&later, vec![])));
}

#[test]
fn u1_entry_binds_its_skip_certificates_and_the_round_of_its_parent() {
    let good = entry(3, tip(&entry(1, GENESIS, 1)), 3);
    let other_signers = Certificate::of(blame(View(2)), &[1, 2, 3].map(|id| (r(id), SIGNATURE)));
    let moved = UniqueMessage::Entry { entry: good.clone(), skips: vec![other_signers] };
    assert!(is_refused(&moved));
    let mut parent = good.clone();
    parent.parent_round = View(2);
    assert!(is_refused(&UniqueMessage::Entry { entry: parent, skips: vec![] }));
}

#[test]
fn u1_signature_of_an_entry_names_its_round_and_no_height() {
    let entry = entry(2, tip(&entry(1, GENESIS, 1)), 2);
    let statement = proposal(&entry).auth().statement().unwrap();
    let named = (statement.kind, statement.view, statement.height, statement.subject);
    assert_eq!(named, (super::super::PROPOSE, View(2), Height::ZERO, id(&entry).0));
    assert!(proposal(&entry).once() && proposal(&entry).auth().is_signed());
}

#[test]
fn u2_proof_shows_a_certificate_for_each_round_since_its_tip() {
    let first = entry(1, GENESIS, 1);
    for (round, tip) in [(1, None), (2, Some(&first)), (3, None), (4, Some(&first))] {
        assert!(!is_refused(&relay(round, tip)), "{round}");
        assert!(!is_refused(&blamed(round, tip)), "{round}");
    }
    let carriers: [fn(RoundProof<Proposal>) -> Message; 4] = [
        |proof| UniqueMessage::Proof(Box::new(proof)),
        |proof| UniqueMessage::Blame(Box::new(proof)),
        |proof| UniqueMessage::Ask { incarnation: Incarnation(1), proof: Box::new(proof) },
        |proof| UniqueMessage::Answer(Box::new(Answer { proof, ..stands(RecoveryStage::Running) })),
    ];
    for carrier in carriers {
        let good = proof(4, Some(&first));
        assert!(!is_refused(&carrier(good.clone())));
        assert!(is_refused(&carrier(RoundProof { skips: vec![], ..good.clone() })));
        assert!(is_refused(&carrier(RoundProof { round: View(3), ..good.clone() })));
        assert!(is_refused(&carrier(RoundProof { round: View(1), skips: vec![], ..good.clone() })));
        assert!(is_refused(&carrier(RoundProof { tip: None, ..good.clone() })));
        assert!(is_refused(&carrier(RoundProof { round: View(0), tip: None, skips: vec![], resync: false })));
        let weak = vec![blames(2, 3), blames(3, 2)];
        assert!(is_refused(&carrier(RoundProof { skips: weak, ..good })));
    }
}

#[test]
fn u2_tip_of_a_proof_is_signed_by_its_leader() {
    let first = entry(1, GENESIS, 1);
    let claims = claims_of(&relay(2, Some(&first))).unwrap();
    let statement = quorate_types::Statement::new(super::super::PROPOSE, View(1), Height::ZERO, id(&first).0);
    assert_eq!(claims, [Claim::Signature { by: r(0), statement, signature: SIGNATURE }]);
    let mut wrong = first;
    wrong.block.proposer = r(3);
    assert!(is_refused(&relay(2, Some(&wrong))));
    assert!(is_refused(&UniqueMessage::Entries { entries: vec![frame(&wrong)] }));
    let answer = Answer { last: Some(frame(&wrong)), ..stands(RecoveryStage::Running) };
    assert!(is_refused(&UniqueMessage::Answer(Box::new(answer))));
}
