//! State of a replica of the stable form.

use super::super::block_fetches::BlockFetches;
use super::super::replica::End;
use super::super::waits::Waits;
use super::certificates::RankedCertificates;
use super::early_messages::EarlyMessages;
use super::evidence::QuitEvidence;
use super::leader_statements::LeaderStatements;
use super::missed_heights::MissedHeights;
use super::statements::{Header, Lock, SyncNewView};
use quorate_consensus::{Certificate, Signed};
use quorate_types::{BlockId, Height, ReplicaId, ReplicaSet, Signature, Time, View};
use std::collections::{BTreeMap, BTreeSet};

/// Views above the current one whose messages are kept.
pub(super) const VIEWS_AHEAD: u64 = 2;

/// State of one view.
#[derive(Debug, Default)]
pub struct InView {
    /// Statements of the leader.
    pub(super) statements: LeaderStatements,
    /// The leader's NEW-VIEW, with its certificates.
    pub(super) new_view: Option<Signed<SyncNewView>>,
    /// Lock of this replica's own NEW-VIEW as leader; recorded.
    pub(super) own_new_view: Option<Lock>,
    /// Locks that were reported to this replica as leader.
    pub(super) statuses: BTreeMap<ReplicaId, Lock>,
    /// Last vote; recorded.
    pub(super) voted: Option<Signed<Header>>,
    /// Block and signature of the last vote whose own copy has arrived.
    pub(super) own_copy: Option<(BlockId, Signature)>,
    /// Base that this replica has voted for; recorded.
    pub(super) first_voted: Option<End>,
    /// Last proposal; recorded.
    pub(super) proposed: Option<Header>,
    /// Height of the last vote that was cast before this replica was opened or fell silent.
    pub(super) repeated: Height,
    /// Own votes that all replicas have and that are not committed.
    pub(super) waits: Waits<Height>,
    /// Time before which no wait begins.
    pub(super) waits_from: Time,
    /// Height of the highest vote whose 2 Δ are over.
    pub(super) expired: Height,
    /// Heights at which the leader may have signed headers that this replica does not have.
    pub(super) missed: MissedHeights,
    /// Voted heights without a running 2 Δ timer; their certificates must be broadcast.
    pub(super) unshown: BTreeSet<Height>,
    /// Highest block that q_R votes have decided.
    pub(super) responsive: Option<End>,
    /// Blocks that are not ready, or lack a certificate of their parent. Bounded by the window of heights.
    pub(super) fetches: BlockFetches,
    /// Peers that were sent a certificate of a height because they lacked one.
    pub(super) certificates_sent: BTreeMap<Height, ReplicaSet>,
}

/// State that outlives views.
#[derive(Debug)]
pub struct State {
    /// K.
    pub(super) checkpoint_every: u64,
    /// Evidence by which the view before was left, or this one, from the last blames on; recorded.
    pub(super) evidence: Vec<QuitEvidence>,
    /// The last view that was entered; views that were only left do not count.
    pub(super) entered: View,
    /// Lock of the entered view; recorded.
    pub(super) lock: Lock,
    pub(super) certificates: RankedCertificates,
    /// Maximum height above the committed block that is voted for, whatever the window.
    pub(super) voted_ahead_max: u64,
    /// Windows above the committed block in which this replica votes.
    pub(super) windows_voted: u64,
    /// Whether kept messages of this view are being handled.
    pub(super) is_recalling: bool,
    /// The last view in which all peers were asked because of an equivocation further ahead.
    pub(super) asked_ahead: View,
    /// The last view in which a timer has committed.
    pub(super) timer_committed: View,
    pub(super) early: EarlyMessages,
    /// Certified block that this silent replica must have whole before it signs anything.
    pub(super) goal: Option<Certificate>,
    /// Whether others have been seen in a later view: this replica asks them on entering it.
    pub(super) is_behind: bool,
}
