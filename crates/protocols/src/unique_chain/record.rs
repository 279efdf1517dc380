//! Durable facts (`apollo` §3, `artemis` §4).

use super::entry::{Entry, Framed};
use super::statements::{CERTIFICATE_BYTES, SKIPS_MAX};
use crate::encoding::variants;
use quorate_consensus::{Certificate, Record, RecordKey};
use quorate_types::codec::Wire;
use quorate_types::{Digest, Height};

/// A durable fact.
#[derive(Clone, PartialEq, Debug)]
pub enum UniqueRecord<E, X> {
    /// The last own entry. Written before it leaves.
    Own {
        /// The entry.
        entry: E,
        /// Skip certificates of the rounds since its parent.
        skips: Vec<Certificate>,
    },
    /// An accepted entry, durable with the next own entry.
    Accepted {
        /// The height of the checkpoint that makes it obsolete: K above its block.
        height: Height,
        /// The entry.
        frame: Framed<E>,
    },
    /// A fact of this form alone.
    Form(X),
}

const OWN: u8 = 1;
const ACCEPTED: u8 = 2;
const FORM: u8 = 3;

variants!(UniqueRecord<E: Entry, X: Wire>, "unique chain record":
    OWN = Own { entry, skips[SKIPS_MAX, CERTIFICATE_BYTES] },
    ACCEPTED = Accepted { height, frame },
    FORM = Form(fact),
);

impl<E: Entry, X: Record> Record for UniqueRecord<E, X> {
    fn key(&self) -> RecordKey {
        match self {
            Self::Own { .. } => RecordKey { kind: OWN, height: Height::ZERO, scope: Digest::ZERO },
            Self::Accepted { height, frame } => {
                RecordKey { kind: ACCEPTED, height: *height, scope: frame.entry.id() }
            }
            Self::Form(fact) => fact.key(),
        }
    }
}
