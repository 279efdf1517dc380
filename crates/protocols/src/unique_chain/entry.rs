//! Entries of the unique chain, the certificates by which rounds are skipped, and proofs of rounds (`apollo` §2).
//!
//! Each round has one author, who signs at most one entry: a block in Apollo, a vote in Artemis. An entry names its parent.
//! For each round between both it shows a skip certificate. A round proof is an entry and skip certificates for all rounds
//! after it. It lets into its round and is signed by nobody.

use super::statements::{CERTIFICATE_BYTES, SKIPS_MAX, author};
use quorate_consensus::parts::blames::claim_blames;
use quorate_consensus::{Certificate, Claims};
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::digest::context;
use quorate_types::{Committee, Digest, Height, Kind, ReplicaId, Signature, Statement, View};
use std::fmt::Debug;

/// Round and id of an entry. Genesis has round 0 and the id zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct EntryRef {
    /// Its round.
    pub round: View,
    /// Its id.
    pub id: Digest,
}

quorate_types::wire_struct!(EntryRef { round, id });

impl EntryRef {
    /// Genesis.
    pub const GENESIS: Self = Self { round: View::ZERO, id: Digest::ZERO };
}

/// An entry of the unique chain.
pub trait Entry: Wire + Clone + PartialEq + Debug + Send + 'static {
    /// Kind of its statement.
    const KIND: Kind;
    /// Bytes of the shortest encoding.
    const BYTES_MIN: usize;

    /// Returns its round.
    fn round(&self) -> View;
    /// Returns its author, who leads its round.
    fn author(&self) -> ReplicaId;
    /// Returns its parent.
    fn parent(&self) -> EntryRef;
    /// Returns its id, which binds all its fields.
    fn id(&self) -> Digest;
    /// Returns the height to which its messages belong; 0 for entries without a height.
    fn height(&self) -> Height;
    /// Whether it binds these skip certificates, given by [`skips_digest`].
    fn binds(&self, skips: Digest) -> bool;
    /// Claims what is signed inside.
    fn claim(&self, claims: &mut Claims<'_>) {
        let _ = claims;
    }

    /// Returns round and id.
    fn place(&self) -> EntryRef {
        EntryRef { round: self.round(), id: self.id() }
    }

    /// Returns the statement of its author. Its height is 0: a round has one slot, whatever the height of the entry.
    fn statement(&self) -> Statement {
        Statement::new(Self::KIND, self.round(), Height::ZERO, self.id())
    }
}

/// Returns the digest of a list of skip certificates.
#[must_use]
pub fn skips_digest(skips: &[Certificate]) -> Digest {
    let mut bytes = b"unique chain: skipped rounds".to_vec();
    skips.iter().for_each(|skip| skip.encode(&mut bytes));
    Digest::of(&context::PROTOCOL, &bytes)
}

/// Checks that these certificates skip exactly the rounds between two entries, in ascending order.
fn check_skips(after: View, before: View, skips: &[Certificate]) -> Result<(), &'static str> {
    let count = usize::try_from(before.since(after).saturating_sub(1)).unwrap_or(usize::MAX);
    if before <= after || skips.len() != count {
        return Err("rounds without entry or skip certificate");
    }
    let mut round = after;
    for skip in skips {
        round = round.next();
        if skip.view() != round {
            return Err("skip certificate of another round");
        }
    }
    Ok(())
}

/// Claims that f + 1 replicas blame each skipped round. Their number is bounded by the frame, and checked certificates are
/// remembered.
fn claim_skips(skips: &[Certificate], claims: &mut Claims<'_>) {
    claims.make_room(skips.iter().map(|skip| skip.signers.len()).sum());
    skips.iter().for_each(|skip| claim_blames(skip, claims));
}

/// U1. `apollo` §4, valid_header: claims that an entry is one of its round's author, and that it shows a skip certificate for
/// each round since its parent. The caller claims the author's signature.
pub(super) fn claim_entry<E: Entry>(entry: &E, skips: &[Certificate], claims: &mut Claims<'_>) {
    let (round, parent) = (entry.round(), entry.parent());
    if round == View::ZERO || entry.author() != author(claims.committee(), round) {
        return claims.refuse("entry of a replica that does not lead its round");
    }
    if (parent.round == View::ZERO) != (parent.id == Digest::ZERO) {
        return claims.refuse("genesis is the entry of round 0");
    }
    if let Err(why) = check_skips(parent.round, round, skips) {
        return claims.refuse(why);
    }
    if !entry.binds(skips_digest(skips)) {
        return claims.refuse("entry that does not bind its skip certificates");
    }
    claim_skips(skips, claims);
    entry.claim(claims);
}

/// An entry with its author's signature, and the skip certificates of the rounds since its parent.
#[derive(Clone, PartialEq, Debug)]
pub struct Framed<E> {
    /// The entry.
    pub entry: E,
    /// Skip certificates, one for each round since the parent.
    pub skips: Vec<Certificate>,
    /// The author's signature.
    pub signature: Signature,
}

impl<E: Entry> Framed<E> {
    /// Bytes of the shortest encoding.
    pub(super) const BYTES_MIN: usize = E::BYTES_MIN + 4 + 64;

    /// Claims that the entry is valid as far as it shows, and that its author has signed it.
    pub(super) fn claim(&self, claims: &mut Claims<'_>) {
        claim_entry(&self.entry, &self.skips, claims);
        claims.signature(self.entry.author(), self.entry.statement(), &self.signature);
    }

    /// Returns the approximate bytes in memory.
    pub(super) fn weight(&self) -> usize {
        let skips: usize = self.skips.iter().map(|skip| skip.signers.len().saturating_mul(64)).sum();
        skips.saturating_add(self.skips.len().saturating_mul(CERTIFICATE_BYTES)).saturating_add(512)
    }
}

impl<E: Entry> Wire for Framed<E> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.entry.encode(out);
        put_list(out, &self.skips);
        self.signature.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            entry: E::decode(reader)?,
            skips: decode_skips(reader)?,
            signature: Signature::decode(reader)?,
        })
    }
}

/// Decodes a list of skip certificates.
pub(super) fn decode_skips(reader: &mut Reader<'_>) -> Result<Vec<Certificate>, DecodeError> {
    reader.list("skips", SKIPS_MAX, CERTIFICATE_BYTES, Certificate::decode)
}

/// A proof that the rounds before this one have ended (`apollo` §2). Without skips it is the relay of the good case.
#[derive(Clone, PartialEq, Debug)]
pub struct RoundProof<E> {
    /// The round that the proof lets into.
    pub round: View,
    /// The accepted entry of the highest round; `None` for genesis.
    pub tip: Option<Framed<E>>,
    /// Skip certificates of the rounds since.
    pub skips: Vec<Certificate>,
    /// Whether the sender has recovered lately: a receiver in a later round answers (§7).
    pub resync: bool,
}

impl<E: Entry> RoundProof<E> {
    /// Returns the place of the tip.
    #[must_use]
    pub fn tip_place(&self) -> EntryRef {
        self.tip.as_ref().map_or(EntryRef::GENESIS, |tip| tip.entry.place())
    }

    /// U2. Claims that tip and skip certificates let into the round.
    pub(super) fn claim(&self, claims: &mut Claims<'_>) {
        let after = self.tip.as_ref().map_or(View::ZERO, |tip| tip.entry.round());
        if let Err(why) = check_skips(after, self.round, &self.skips) {
            return claims.refuse(why);
        }
        claim_skips(&self.skips, claims);
        if let Some(tip) = &self.tip {
            tip.claim(claims);
        }
    }
}

impl<E: Entry> Wire for RoundProof<E> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.round.encode(out);
        self.tip.encode(out);
        put_list(out, &self.skips);
        self.resync.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            round: View::decode(reader)?,
            tip: Option::decode(reader)?,
            skips: decode_skips(reader)?,
            resync: bool::decode(reader)?,
        })
    }
}

/// Returns the replicas of a committee that lead rounds, in their order: every f + 1 consecutive ones are distinct.
pub(super) fn rounds_ahead(committee: &Committee) -> u64 {
    u64::try_from(committee.n()).unwrap_or(u64::MAX)
}
