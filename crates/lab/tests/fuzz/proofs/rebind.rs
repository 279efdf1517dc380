//! Entries of unique chains bind the signatures of their skip certificates. Other certificates need other entries.

use quorate_consensus::Entry;
use quorate_protocols::unique_chain::apollo::{NoMessage, Proposal};
use quorate_protocols::unique_chain::artemis::{ArtemisMessage, Vote};
use quorate_protocols::unique_chain::{self as unique, OwnMessage, RoundProof, UniqueMessage, skips_digest};
use quorate_types::codec::Wire;
use quorate_types::{Digest, Reader};

/// Lets every entry of a message bind the skip certificates that stand beside it. Leaves messages of other protocols alone.
pub(super) fn rebind(entry: &Entry, body: Vec<u8>) -> Vec<u8> {
    match entry.spec.name.as_str() {
        "apollo" => rebound::<Proposal, NoMessage>(&body, &|proposal, skips| {
            proposal.block.extra = Proposal::bind(proposal.parent_round, skips);
        }),
        "artemis" => rebound::<Vote, ArtemisMessage>(&body, &|vote, skips| vote.skips = skips),
        _ => body,
    }
}

fn rebound<E, X>(body: &[u8], bind: &dyn Fn(&mut E, Digest)) -> Vec<u8>
where
    E: unique::Entry,
    X: OwnMessage<E>,
{
    let mut reader = Reader::new(body);
    let mut message = UniqueMessage::<E, X>::decode(&mut reader).unwrap();
    match &mut message {
        UniqueMessage::Entry { entry, skips } => bind(entry, skips_digest(skips)),
        UniqueMessage::Proof(proof) | UniqueMessage::Blame(proof) | UniqueMessage::Ask { proof, .. } => {
            rebind_proof(proof, bind);
        }
        UniqueMessage::Entries { entries } => {
            entries.iter_mut().for_each(|framed| bind(&mut framed.entry, skips_digest(&framed.skips)));
        }
        UniqueMessage::Answer(answer) => {
            rebind_proof(&mut answer.proof, bind);
            if let Some(last) = &mut answer.last {
                bind(&mut last.entry, skips_digest(&last.skips));
            }
        }
        UniqueMessage::Want { .. } | UniqueMessage::Own(_) => {}
    }
    let mut written = message.to_bytes();
    written.extend(reader.take_rest());
    written
}

fn rebind_proof<E>(proof: &mut RoundProof<E>, bind: &dyn Fn(&mut E, Digest)) {
    if let Some(tip) = &mut proof.tip {
        bind(&mut tip.entry, skips_digest(&tip.skips));
    }
}
