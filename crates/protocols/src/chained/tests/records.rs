//! The encoding of records: data folders keep them.

use crate::chained::{ChainedRecord, HotStuff, HotStuff2, Jolteon, Rules, VOTE};
use quorate_consensus::parts::chain::Tip;
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::BlockVote;
use quorate_types::codec::Wire;
use quorate_types::{BlockId, Digest, Height, View};

/// Checks that the record of a replica with the state `rules` is the fields' encodings in a row, and can be read back.
fn check<R: Rules>(rules: R, encoded_rules: &[u8]) {
    let voted = Some(BlockVote { view: View(7), block: BlockId(Digest([1; 32])) });
    let proof = ViewProof::genesis(VOTE);
    let record =
        ChainedRecord::State { view: View(8), proof: proof.clone(), voted, rules, proposed: View(5) };
    let mut expected = vec![1];
    View(8).encode(&mut expected);
    proof.encode(&mut expected);
    voted.encode(&mut expected);
    expected.extend(encoded_rules);
    View(5).encode(&mut expected);
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    assert_eq!(bytes, expected);
    assert_eq!(ChainedRecord::from_bytes(&bytes), Ok(record));
    bytes.push(0);
    assert!(ChainedRecord::<R>::from_bytes(&bytes).is_err());
}

#[test]
fn record_of_hotstuff_has_the_tip_of_the_lock() {
    let tip = Tip { view: View(6), height: Height(4), id: BlockId(Digest([2; 32])) };
    let mut rules = HotStuff::default();
    rules.note_two_chain(tip);
    check(rules, &tip.to_bytes());
}

#[test]
fn record_of_jolteon_has_the_last_barred_view() {
    let mut rules = Jolteon::default();
    rules.note_timeout(View(9));
    check(rules, &View(9).to_bytes());
}

#[test]
fn record_of_hotstuff2_has_the_view_of_the_lock() {
    let mut rules = HotStuff2::default();
    rules.note_vote(Tip { view: View(6), ..Tip::GENESIS });
    check(rules, &View(6).to_bytes());
}
