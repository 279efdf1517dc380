//! Durable facts of the stable form (§3).

use super::super::replica::SyncHotStuff;
use super::evidence::{EVIDENCE_BYTES, EVIDENCE_MAX, QuitEvidence};
use super::statements::{Header, Lock, SyncNewView, rank};
use super::variant::Variant;
use crate::encoding::variants;
use quorate_consensus::{Certificate, Cx, Record, RecordKey, Signed};
use quorate_types::{Digest, Height, View};

/// A fact that is durable before a message that depends on it leaves.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant, reason = "written and read one at a time")]
pub enum SyncRecord {
    /// The view and the way into it. Written before every message of the view.
    Entered {
        /// The view.
        view: View,
        /// Whether it was left already.
        quit: bool,
        /// Evidence by which the view before was left, or this one, from the last blames on.
        evidence: Vec<QuitEvidence>,
        /// The lock, frozen for the view.
        lock: Lock,
        /// The leader's NEW-VIEW, once this replica has voted for its base.
        first_voted: Option<Signed<SyncNewView>>,
    },
    /// The last statements in a view. Written before VOTE and PROPOSE.
    Said {
        /// The view.
        view: View,
        /// The last vote.
        voted: Option<Signed<Header>>,
        /// The last proposal.
        proposed: Option<Header>,
        /// The lock of this replica's NEW-VIEW as the view's leader.
        new_view: Option<Lock>,
    },
    /// A certificate that was formed or received; durable with the next sync.
    Certified(Certificate),
    /// A certificate of q_R votes (Opt Sync).
    Responsive(Certificate),
    /// The newest certificate at a checkpoint's height. Certificates of settled heights are dropped, and a cluster that has
    /// been idle since would not find the end of its chain again.
    Settled(Certificate),
    /// The same of q_R votes (Opt Sync): no other certified block at that place may be extended.
    SettledResponsive(Certificate),
}

const ENTERED: u8 = 1;
const SAID: u8 = 2;
const CERTIFIED: u8 = 3;
const RESPONSIVE: u8 = 4;
const SETTLED: u8 = 5;
const SETTLED_RESPONSIVE: u8 = 6;

variants!(SyncRecord, "sync-hotstuff record":
    ENTERED = Entered { view, quit, evidence[EVIDENCE_MAX, EVIDENCE_BYTES], lock, first_voted },
    SAID = Said { view, voted, proposed, new_view },
    CERTIFIED = Certified(certificate),
    RESPONSIVE = Responsive(certificate),
    SETTLED = Settled(certificate),
    SETTLED_RESPONSIVE = SettledResponsive(certificate),
);

/// Returns the key of a certificate. At one height the certificates of all views are kept until a checkpoint settles it.
fn certificate_key(kind: u8, certificate: &Certificate) -> RecordKey {
    let (view, height) = rank(certificate);
    let mut scope = Digest::ZERO;
    // No checkpoint settles genesis: only its newest certificate is kept.
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

impl<V: Variant> SyncHotStuff<V> {
    /// Records the view and the way into it.
    pub(super) fn record_entered(&self, cx: &mut Cx<'_, Self>) {
        cx.record(&SyncRecord::Entered {
            view: self.view,
            quit: self.is_quit(),
            evidence: self.state.evidence.clone(),
            lock: self.state.lock.clone(),
            // S15. §8, Lemma 1 b: after a restart this replica must recognise statements that conflict with its first vote.
            first_voted: self.in_view.new_view.clone().filter(|_| self.in_view.first_voted.is_some()),
        });
    }

    /// Records the last statements.
    pub(super) fn record_said(&self, cx: &mut Cx<'_, Self>) {
        let (voted, proposed) = (self.in_view.voted.clone(), self.in_view.proposed.clone());
        let new_view = self.in_view.own_new_view.clone();
        cx.record(&SyncRecord::Said { view: self.view, voted, proposed, new_view });
    }
}
