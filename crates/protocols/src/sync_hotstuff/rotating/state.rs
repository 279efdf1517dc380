//! State of a replica of the rotating form.

use super::super::block_fetches::BlockFetches;
use super::super::waits::Waits;
use super::header::Header;
use super::view_facts::{ViewCertificates, ViewFacts};
use quorate_consensus::parts::votes::Votes;
use quorate_consensus::{Certificate, Signed};
use quorate_types::{BlockId, Height, PayloadId, Signature, View};
use std::collections::BTreeMap;

/// Sync HotStuff with rotating leaders, as a form of the family.
#[derive(Debug)]
pub struct Rotating;

/// State of one view.
#[derive(Debug, Default)]
pub struct InView {
    /// Whether 2 Δ have passed since this leader entered the view.
    pub(super) collected: bool,
}

/// State that outlives views.
#[derive(Debug)]
pub struct State {
    /// Payload of an empty block.
    pub(super) empty: PayloadId,
    /// Blames by which this view or the one before was left, if nothing above it is certified; recorded.
    pub(super) blames_held: Option<Certificate>,
    /// Highest certificate on entering the view; recorded.
    pub(super) lock: Certificate,
    /// Height of its block, if that was known.
    pub(super) locked: Height,
    pub(super) certificates: ViewCertificates,
    /// R6. Views above the current one whose headers and votes are kept, and views below it whose headers are kept: n.
    ///
    /// Statements of a view may arrive before the certificate or the blames that let others into it (unheld after held). Nobody
    /// goes beyond the next view that this replica leads until this replica enters it. A header that is not kept is not asked
    /// for, and this replica would cast a conflicting vote after its voter has stopped waiting (§8, Lemma 1 a). Certificates
    /// may arrive long before headers.
    pub(super) near: u64,
    /// Facts about views near the current one, and about views whose waits run.
    pub(super) views: BTreeMap<View, ViewFacts>,
    pub(super) votes: Votes,
    /// Last vote; recorded.
    pub(super) voted: Option<Signed<Header>>,
    /// Block and signature of the last vote whose own copy has arrived.
    pub(super) own_copy: Option<(BlockId, Signature)>,
    /// Last proposal and its parent's certificate; recorded.
    pub(super) proposed: Option<(Header, Certificate)>,
    /// View of the last vote that was cast before this replica was opened or fell silent.
    pub(super) repeated: View,
    /// View in which the silence ended.
    pub(super) began: View,
    /// Own votes that all replicas have and that are not committed.
    pub(super) waits: Waits<View>,
    /// Last blocks that timers have committed.
    pub(super) relied_on: BTreeMap<View, BlockId>,
    /// Blocks that are not ready. Bounded by the views that are kept.
    pub(super) fetches: BlockFetches,
}
