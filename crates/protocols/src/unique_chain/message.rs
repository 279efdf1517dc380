//! Messages of both protocols (`apollo` §19, `artemis` §15).

use super::entry::{Entry, Framed, RoundProof, claim_entry};
use super::statements::{ANSWER, ASK, CERTIFICATE_BYTES, ENTRIES, RELAY, SKIPS_MAX, WANT};
use crate::encoding::variants;
use quorate_consensus::parts::blames::{BLAME, blame};
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Auth, Certificate, Claims, Message, Place};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Digest, Height, Incarnation, Kind, PayloadId, View};
use std::fmt::Debug;

/// Entries in one answer at most.
pub(super) const ENTRIES_MAX: usize = 256;

/// A message of one form alone, beside those that both have.
pub trait OwnMessage<E>: Message + Clone + PartialEq {
    /// Appends the bodies that travel beside the message of an entry.
    fn entry_bodies(entry: &E, out: &mut Vec<PayloadId>);
}

/// A message of the protocol with entries `E` and own messages `X`.
#[derive(Clone, PartialEq, Debug)]
pub enum UniqueMessage<E, X> {
    /// The author of a round signs its entry: PROPOSE in Apollo, VOTE in Artemis.
    Entry {
        /// The entry.
        entry: E,
        /// Skip certificates of the rounds since its parent.
        skips: Vec<Certificate>,
    },
    /// RELAY: lets into its round.
    Proof(Box<RoundProof<E>>),
    /// BLAME: the author of the proof's round has sent no entry in time.
    Blame(Box<RoundProof<E>>),
    /// Question for the entries on the path to one, above a round.
    Want {
        /// Id of the last entry of the path.
        id: Digest,
        /// Entries of this round and below are not needed.
        above: View,
    },
    /// Answer to [`UniqueMessage::Want`].
    Entries {
        /// Entries that follow each other, oldest first.
        entries: Vec<Framed<E>>,
    },
    /// Question of a replica that has just been opened or has missed messages.
    Ask {
        /// Incarnation of the sender.
        incarnation: Incarnation,
        /// Proof of its round.
        proof: Box<RoundProof<E>>,
    },
    /// Answer to a recovering replica, and report to all when the sender's recovery stage has changed.
    Answer(Box<Answer<E>>),
    /// A message of this form alone.
    Own(X),
}

variants!(UniqueMessage<E: Entry, X: Wire>, "unique chain message":
    0 = Entry { entry, skips[SKIPS_MAX, CERTIFICATE_BYTES] },
    1 = Proof(proof),
    2 = Blame(proof),
    3 = Want { id, above },
    4 = Entries { entries[ENTRIES_MAX, Framed::<E>::BYTES_MIN] },
    5 = Ask { incarnation, proof },
    6 = Answer(answer),
    7 = Own(message),
);

/// State of a replica for a recovering peer (`sync-hotstuff` §18, `apollo` §7).
#[derive(Clone, PartialEq, Debug)]
pub struct Answer<E> {
    /// Incarnation of the asker; zero for a report without a question.
    pub incarnation: Incarnation,
    /// Recovery stage of the sender.
    pub stage: RecoveryStage,
    /// Proof of its round.
    pub proof: RoundProof<E>,
    /// Its last own entry.
    pub last: Option<Framed<E>>,
}

impl<E: Entry> Wire for Answer<E> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.incarnation.encode(out);
        self.stage.encode(out);
        self.proof.encode(out);
        self.last.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            incarnation: Incarnation::decode(reader)?,
            stage: RecoveryStage::decode(reader)?,
            proof: RoundProof::decode(reader)?,
            last: Option::decode(reader)?,
        })
    }
}

impl<E: Entry, X: OwnMessage<E>> Message for UniqueMessage<E, X> {
    fn kind(&self) -> Kind {
        match self {
            Self::Entry { .. } => E::KIND,
            Self::Proof(_) => RELAY,
            Self::Blame(_) => BLAME,
            Self::Want { .. } => WANT,
            Self::Entries { .. } => ENTRIES,
            Self::Ask { .. } => ASK,
            Self::Answer(_) => ANSWER,
            Self::Own(message) => message.kind(),
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::Entry { entry, .. } => {
                Place { view: entry.round(), height: entry.height(), certified: true }
            }
            Self::Proof(proof) | Self::Blame(proof) => {
                Place { view: proof.round, height: Height::ZERO, certified: true }
            }
            Self::Want { .. } | Self::Entries { .. } | Self::Ask { .. } | Self::Answer(_) => Place::ANYWHERE,
            Self::Own(message) => message.place(),
        }
    }

    fn auth(&self) -> Auth {
        match self {
            Self::Entry { entry, .. } => Auth::Signed(entry.statement()),
            Self::Blame(proof) => Auth::Signed(blame(proof.round)),
            Self::Proof(_) | Self::Entries { .. } => Auth::Relay,
            Self::Want { .. } | Self::Ask { .. } | Self::Answer(_) => Auth::Linked(None),
            Self::Own(message) => message.auth(),
        }
    }

    /// A blame promises nothing: it may be sent again.
    fn once(&self) -> bool {
        match self {
            Self::Blame(_) => false,
            Self::Own(message) => message.once(),
            _ => true,
        }
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Entry { entry, skips } => claim_entry(entry, skips, claims),
            Self::Proof(proof) | Self::Blame(proof) | Self::Ask { proof, .. } => proof.claim(claims),
            Self::Want { .. } => {}
            Self::Entries { entries } => {
                claims.make_room(entries.len());
                entries.iter().for_each(|entry| entry.claim(claims));
            }
            Self::Answer(answer) => {
                answer.proof.claim(claims);
                if let Some(last) = &answer.last {
                    last.claim(claims);
                }
            }
            Self::Own(message) => message.claims(claims),
        }
    }

    fn bodies(&self, out: &mut Vec<PayloadId>) {
        match self {
            Self::Entry { entry, .. } => X::entry_bodies(entry, out),
            Self::Own(message) => message.bodies(out),
            _ => {}
        }
    }
}
