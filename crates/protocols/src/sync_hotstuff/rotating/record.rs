//! Durable facts of the rotating form (§3, §18).

use super::super::replica::SyncHotStuff;
use super::header::Header;
use super::state::Rotating;
use crate::encoding::variants;
use quorate_consensus::{Certificate, Cx, Record, RecordKey, Signed};
use quorate_types::{Digest, Height, View};

/// A fact that is durable before a message that depends on it leaves.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant, reason = "written and read one at a time")]
pub enum RotatingRecord {
    /// The view and the way into it. Written before every message of the view.
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
    /// The last statements. Written before VOTE and PROPOSE.
    Said {
        /// The last vote.
        voted: Option<Signed<Header>>,
        /// The last proposal, and its parent's certificate.
        proposed: Option<(Header, Certificate)>,
    },
    /// The highest known certificate, unless it is the lock; durable with the next sync. Every certified block above a
    /// committed one extends it, so no other certificate has to be shown.
    Highest(Certificate),
}

const ENTERED: u8 = 1;
const SAID: u8 = 2;
const HIGHEST: u8 = 3;

variants!(RotatingRecord, "sync-hotstuff-rr record":
    ENTERED = Entered { view, quit, blames, lock },
    SAID = Said { voted, proposed },
    HIGHEST = Highest(certificate),
);

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

impl SyncHotStuff<Rotating> {
    /// Records the view and the way into it.
    pub(super) fn record_entered(&self, cx: &mut Cx<'_, Self>) {
        cx.record(&RotatingRecord::Entered {
            view: self.view,
            quit: self.is_quit(),
            blames: self.state.blames_held.clone(),
            lock: self.state.lock.clone(),
        });
    }

    /// Records the last statements.
    pub(super) fn record_said(&self, cx: &mut Cx<'_, Self>) {
        let (voted, proposed) = (self.state.voted.clone(), self.state.proposed.clone());
        cx.record(&RotatingRecord::Said { voted, proposed });
    }
}
