//! What must survive a crash (§3, §18).

use super::RotatingSyncHotStuff;
use super::words::Header;
use quorate_consensus::{Certificate, Cx, Record, RecordKey, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Digest, Height, View};

/// A fact that is written down before a message that rests on it leaves.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant, reason = "written and read one at a time")]
pub enum RotatingRecord {
    /// The view, and how it was entered. Before everything that is said in it.
    Entered {
        /// The view.
        view: View,
        /// Whether it was left already.
        quit: bool,
        /// Blames by which this view or an earlier one was left.
        blames: Option<Certificate>,
        /// The lock, frozen for the view.
        lock: Certificate,
    },
    /// What was said last. Before VOTE and PROPOSE.
    Said {
        /// The last vote.
        voted: Option<Signed<Header>>,
        /// The last proposal, and what it rests on.
        proposed: Option<(Header, Certificate)>,
    },
    /// The highest certificate that is known, where it is not the lock; rides on the next sync. Whatever is certified above
    /// a committed block extends it, so that no other one has to be shown.
    Highest(Certificate),
}

const ENTERED: u8 = 1;
const SAID: u8 = 2;
const HIGHEST: u8 = 3;

impl Record for RotatingRecord {
    fn key(&self) -> RecordKey {
        let kind = match self {
            Self::Entered { .. } => ENTERED,
            Self::Said { .. } => SAID,
            Self::Highest(_) => HIGHEST,
        };
        RecordKey { kind, height: Height::ZERO, scope: Digest::ZERO }
    }
}

impl Wire for RotatingRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.key().kind);
        match self {
            Self::Entered { view, quit, blames, lock } => {
                view.encode(out);
                quit.encode(out);
                blames.encode(out);
                lock.encode(out);
            }
            Self::Said { voted, proposed } => {
                voted.encode(out);
                proposed.is_some().encode(out);
                if let Some((header, parent)) = proposed {
                    header.encode(out);
                    parent.encode(out);
                }
            }
            Self::Highest(certificate) => certificate.encode(out),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            ENTERED => Self::Entered {
                view: View::decode(r)?,
                quit: r.bool()?,
                blames: Option::decode(r)?,
                lock: Certificate::decode(r)?,
            },
            SAID => Self::Said {
                voted: Option::decode(r)?,
                proposed: if r.bool()? { Some((Header::decode(r)?, Certificate::decode(r)?)) } else { None },
            },
            HIGHEST => Self::Highest(Certificate::decode(r)?),
            _ => return Err(DecodeError::Tag("sync-hotstuff-rr record")),
        })
    }
}

impl RotatingSyncHotStuff {
    /// Writes down the view and what let this replica into it.
    pub(super) fn record_entered(&self, cx: &mut Cx<'_, Self>) {
        cx.record(&RotatingRecord::Entered {
            view: self.view,
            quit: self.is_quit(),
            blames: self.blames_held.clone(),
            lock: self.lock.clone(),
        });
    }

    /// Writes down what was said last.
    pub(super) fn record_said(&self, cx: &mut Cx<'_, Self>) {
        cx.record(&RotatingRecord::Said { voted: self.voted.clone(), proposed: self.proposed.clone() });
    }
}
