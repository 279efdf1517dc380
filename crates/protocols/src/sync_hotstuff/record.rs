//! What must survive a crash (§3).

use super::message::{EVIDENCE_BYTES, EVIDENCE_MAX, NewViewWord};
use super::words::{Evidence, Header, Lock, rank};
use super::{SyncHotStuff, Variant};
use quorate_consensus::{Certificate, Cx, Record, RecordKey, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::{Digest, Height, View};

/// A fact that is written down before a message that rests on it leaves.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant, reason = "written and read one at a time")]
pub enum SyncRecord {
    /// The view, and how it was entered. Before everything that is said in it.
    Entered {
        /// The view.
        view: View,
        /// Whether it was left already.
        quit: bool,
        /// Why the view before was left, or this one, from the last blames on.
        evidence: Vec<Evidence>,
        /// The lock, frozen for the view.
        lock: Lock,
        /// What the leader has shown to whoever goes on from there, once this replica has said that it does.
        first_voted: Option<Signed<NewViewWord>>,
    },
    /// What was said last in a view. Before VOTE and PROPOSE.
    Said {
        /// The view.
        view: View,
        /// The last vote.
        voted: Option<Signed<Header>>,
        /// The last proposal.
        proposed: Option<Header>,
        /// What this replica has shown as the view's leader.
        shown: Option<Lock>,
    },
    /// A certificate, when it is formed or learnt; rides on the next sync.
    Certified(Certificate),
    /// One of q_R votes (Opt Sync).
    Responsive(Certificate),
    /// The newest one at a checkpoint's height. Those of settled heights are dropped, and a cluster that has been idle
    /// since would not find the end of its chain again.
    Settled(Certificate),
    /// The same of q_R votes (Opt Sync): what else is certified at that place must not be gone on from.
    SettledResponsive(Certificate),
}

const ENTERED: u8 = 1;
const SAID: u8 = 2;
const CERTIFIED: u8 = 3;
const RESPONSIVE: u8 = 4;
const SETTLED: u8 = 5;
const SETTLED_RESPONSIVE: u8 = 6;

/// Of one height the certificates of all views are kept until a checkpoint settles it.
fn certificate_key(kind: u8, certificate: &Certificate) -> RecordKey {
    let (view, height) = rank(certificate);
    let mut scope = Digest::ZERO;
    // Nothing settles genesis: only its newest certificate is kept.
    if height > Height::ZERO
        && let Some(start) = scope.0.first_chunk_mut()
    {
        *start = view.0.to_le_bytes();
    }
    RecordKey { kind, height, scope }
}

impl Record for SyncRecord {
    fn key(&self) -> RecordKey {
        let newest = |kind| RecordKey { kind, height: Height::ZERO, scope: Digest::ZERO };
        match self {
            Self::Entered { .. } => newest(ENTERED),
            Self::Said { .. } => newest(SAID),
            Self::Certified(certificate) => certificate_key(CERTIFIED, certificate),
            Self::Responsive(certificate) => certificate_key(RESPONSIVE, certificate),
            Self::Settled(_) => newest(SETTLED),
            Self::SettledResponsive(_) => newest(SETTLED_RESPONSIVE),
        }
    }
}

impl Wire for SyncRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.key().kind);
        match self {
            Self::Entered { view, quit, evidence, lock, first_voted } => {
                view.encode(out);
                quit.encode(out);
                put_list(out, evidence);
                lock.encode(out);
                first_voted.encode(out);
            }
            Self::Said { view, voted, proposed, shown } => {
                view.encode(out);
                voted.encode(out);
                proposed.encode(out);
                shown.encode(out);
            }
            Self::Certified(certificate)
            | Self::Responsive(certificate)
            | Self::Settled(certificate)
            | Self::SettledResponsive(certificate) => certificate.encode(out),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            ENTERED => Self::Entered {
                view: View::decode(r)?,
                quit: r.bool()?,
                evidence: r.list("evidence", EVIDENCE_MAX, EVIDENCE_BYTES, Evidence::decode)?,
                lock: Lock::decode(r)?,
                first_voted: Option::decode(r)?,
            },
            SAID => Self::Said {
                view: View::decode(r)?,
                voted: Option::decode(r)?,
                proposed: Option::decode(r)?,
                shown: Option::decode(r)?,
            },
            CERTIFIED => Self::Certified(Certificate::decode(r)?),
            RESPONSIVE => Self::Responsive(Certificate::decode(r)?),
            SETTLED => Self::Settled(Certificate::decode(r)?),
            SETTLED_RESPONSIVE => Self::SettledResponsive(Certificate::decode(r)?),
            _ => return Err(DecodeError::Tag("sync-hotstuff record")),
        })
    }
}

impl<V: Variant> SyncHotStuff<V> {
    /// Writes down the view and what let this replica into it.
    pub(super) fn record_entered(&self, cx: &mut Cx<'_, Self>) {
        cx.record(&SyncRecord::Entered {
            view: self.view,
            quit: self.is_quit(),
            evidence: self.evidence.clone(),
            lock: self.lock.clone(),
            // S15. §8, Lemma 1 b: whoever is opened again has to know what this first vote contradicts.
            first_voted: self.shown.clone().filter(|_| self.first_voted.is_some()),
        });
    }

    /// Writes down what was said last.
    pub(super) fn record_said(&self, cx: &mut Cx<'_, Self>) {
        let (voted, proposed) = (self.voted.clone(), self.proposed.clone());
        cx.record(&SyncRecord::Said { view: self.view, voted, proposed, shown: self.said_new_view.clone() });
    }
}
