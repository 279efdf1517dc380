//! The side that receives a state: notices that it needs one, asks for offers, and chooses among them.
//!
//! ```text
//! no state, or no next block, or far behind ─▶ ask all ─▶ check an offer against its signatures ─▶ chunks from all peers that have it
//!                                    ▲                                                     │
//!                                    └── the state is gone, or its successors are ◀────────┤
//!                                                                       all chunks ─▶ proof ─▶ snapshot ─▶ open anew
//! ```

use super::receiving::{Received, Receiving};
use super::{TransferStatus, send};
use crate::outgoing::Outgoing;
use quorate_app::Execution;
use quorate_replica::{FrameSource, NextBlock, PieceAt, Replica, StateOffer, TransferMessage};
use quorate_storage::{BoxedStore, Fault, SnapshotWriter};
use quorate_types::{Height, Kind, ReplicaId, ReplicaSet, Time};
use std::collections::BTreeMap;

/// The time from the first sign that a state is needed to the first question. Further reports of peers may show a peer that
/// still keeps the next block.
const START_NS: u64 = 500_000_000;
/// That time while some peers claim to keep the next block.
const DOUBT_NS: u64 = 3_000_000_000;
/// The time for which a replica is far behind before it asks for a state although blocks arrive.
const FAR_NS: u64 = 5_000_000_000;
/// Bytes of a state that cost as much as the execution of one block. A state that costs more than the missing blocks is not
/// requested while peers keep these.
const BYTES_PER_BLOCK: u64 = 16 << 10;
/// The time for which no state is requested after an optional one was refused.
const REFUSED_NS: u64 = 30_000_000_000;
/// The time for which a peer that has lied is not asked. A damaged disk of an honest peer may be repaired.
const BAD_NS: u64 = 60_000_000_000;
/// The pause between two questions for offers.
const ASK_PAUSE_NS: u64 = 1_000_000_000;
/// The pause between two such questions while chunks arrive.
const ASK_MORE_NS: u64 = 5_000_000_000;
/// The time after which a complete state is installed although its successors are gone. The next transfer then begins with
/// a newer state.
const SUCCESSORS_NS: u64 = 3_000_000_000;

/// See the module.
pub(super) struct StateFetcher {
    /// With more missing blocks than this, the replica is far behind.
    far_heights: u64,
    /// Whether the replica was far behind at the last report of a peer.
    is_far: bool,
    /// Whether the replica can also go on from blocks.
    is_choice: bool,
    /// No optional state is requested until then.
    refused_until: Time,
    /// The time at which the need began; `None` without a need.
    since: Option<Time>,
    /// The height that the replica had executed then.
    issued: Height,
    /// The time at which that height last grew, or of the first look.
    progress_at: Option<Time>,
    /// The reports of peers at the last look.
    reports: u64,
    ask_at: Time,
    /// Peers that were asked and have not answered.
    asked: ReplicaSet,
    /// The height of each peer's snapshot.
    offers: BTreeMap<ReplicaId, Height>,
    /// Peers that have lied, with the reason, and the time until which they are not asked.
    bad: BTreeMap<ReplicaId, (&'static str, Time)>,
    receiving: Option<Receiving>,
    /// The time at which all chunks were there.
    complete_at: Option<Time>,
    /// Bytes of the state that `disk_bytes_max` does not allow.
    no_room: Option<u64>,
}

impl StateFetcher {
    pub(super) fn new(far_heights: u64) -> Self {
        Self {
            far_heights,
            is_far: false,
            is_choice: false,
            refused_until: Time::ZERO,
            since: None,
            issued: Height::ZERO,
            progress_at: None,
            reports: u64::MAX,
            ask_at: Time::ZERO,
            asked: ReplicaSet::EMPTY,
            offers: BTreeMap::new(),
            bad: BTreeMap::new(),
            receiving: None,
            complete_at: None,
            no_room: None,
        }
    }

    /// Whether a state is being received. The own service writes no snapshot meanwhile.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }

    /// Returns the progress; `None` without a need. A search for an optional state is no need.
    pub(super) fn status(&self) -> Option<TransferStatus> {
        self.since?;
        let receiving = self.receiving.as_ref();
        if self.is_choice && receiving.is_none() {
            return None;
        }
        let (received, total) = receiving.map_or((0, 0), Receiving::progress);
        let height = receiving.map(Receiving::height);
        let sources = self.offers.iter().filter(|(_, offered)| Some(**offered) == height);
        Some(TransferStatus {
            height,
            received,
            total,
            sources: sources.map(|(peer, _)| *peer).collect(),
            bad: self.bad.iter().map(|(peer, (why, _))| (*peer, *why)).collect(),
            no_room: self.no_room,
        })
    }

    /// Returns the time of the next call of [`Self::tick`].
    pub(super) fn deadline(&self) -> Option<Time> {
        self.since?;
        let complete = self.complete_at.map(|at| at.plus(SUCCESSORS_NS));
        let receiving = self.receiving.as_ref().and_then(Receiving::deadline);
        [Some(self.ask_at), complete, receiving].into_iter().flatten().min()
    }

    /// Notices a need or its end.
    fn look(&mut self, now: Time, replica: &Replica) {
        let (reports, issued) = (replica.reports(), replica.issued());
        if self.reports == reports && self.issued == issued {
            return;
        }
        let has_progress = std::mem::replace(&mut self.issued, issued) != issued;
        if has_progress || self.progress_at.is_none() {
            self.progress_at = Some(now);
        }
        let is_stuck = self.progress_at.is_some_and(|at| now.since(at) >= DOUBT_NS);
        if std::mem::replace(&mut self.reports, reports) != reports {
            self.is_far = replica.behind() > self.far_heights;
        }
        if self.receiving.as_ref().is_some_and(|receiving| receiving.height() <= issued) {
            // The replica has caught up from blocks.
            self.drop_target();
        }
        self.is_choice = match replica.next_block() {
            NextBlock::Gone => false,
            // Peers that claim to keep the next block, and do not send it, may be liars.
            NextBlock::Doubtful => !is_stuck && !replica.awaits_state(),
            NextBlock::Kept => !replica.awaits_state(),
        };
        let ask_at = match replica.next_block() {
            _ if replica.awaits_state() => Some(now.plus(START_NS)),
            NextBlock::Gone => Some(now.plus(START_NS)),
            NextBlock::Doubtful if !has_progress => Some(now.plus(DOUBT_NS)),
            _ => self.is_far.then_some(now.plus(FAR_NS).max(self.refused_until)),
        };
        match (self.since, ask_at) {
            (None, Some(at)) => (self.since, self.ask_at) = (Some(now), at),
            (Some(_), Some(at)) => self.ask_at = self.ask_at.min(at),
            (Some(_), None) if self.receiving.is_none() => self.since = None,
            _ => {}
        }
    }

    fn drop_target(&mut self) {
        (self.receiving, self.complete_at) = (None, None);
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: Time, replica: &Replica, store: &BoxedStore, out: &mut dyn Outgoing) {
        self.look(now, replica);
        if self.since.is_none() {
            return;
        }
        self.bad.retain(|_, (_, until)| now < *until);
        let needed = self.receiving.as_ref().map_or(0, Receiving::needed_bytes);
        if self.is_choice && needed > store.snapshot_room() / 2 {
            // The log grows meanwhile, and the own service writes no snapshot that would let it shrink.
            self.refuse(now);
        }
        if let Some(receiving) = &mut self.receiving {
            receiving.tick(now);
            let height = receiving.height();
            let offers = self.offers.iter().filter(|(_, offered)| **offered == height);
            receiving.ask(now, offers.map(|(peer, _)| *peer), out);
        }
        if self.ask_at <= now {
            self.ask_at = now.plus(if self.receiving.is_some() { ASK_MORE_NS } else { ASK_PAUSE_NS });
            let above = replica.issued().max(store.distrusted().minus(1));
            self.ask_for_offers(above, replica, out);
        }
    }

    /// Goes on from blocks for a while.
    fn refuse(&mut self, now: Time) {
        self.drop_target();
        self.refused_until = now.plus(REFUSED_NS);
        self.ask_at = self.refused_until;
    }

    fn ask_for_offers(&mut self, above: Height, replica: &Replica, out: &mut dyn Outgoing) {
        if replica.others().iter().all(|peer| self.bad.contains_key(peer)) {
            // There is nobody else to ask.
            self.bad.clear();
        }
        let height = self.receiving.as_ref().map(Receiving::height);
        // The state stays the best one as long as a peer keeps its successors.
        let is_best = height.is_some_and(|height| replica.next_block_after(height) != NextBlock::Gone);
        for peer in replica.others().iter().filter(|peer| !self.bad.contains_key(peer)) {
            if !is_best || self.offers.get(peer) != height.as_ref() {
                self.asked.insert(*peer);
                send(out, *peer, TransferMessage::AskState(above));
            }
        }
    }

    /// Takes in an offer.
    pub(super) fn on_state(
        &mut self,
        (now, from): (Time, ReplicaId),
        offer: StateOffer,
        (replica, execution): (&Replica, &Execution),
        store: &mut BoxedStore,
        out: &mut dyn Outgoing,
    ) -> Result<(), Fault> {
        if !self.asked.contains(from) || self.since.is_none() {
            return Ok(());
        }
        self.asked.remove(from);
        let checkpoint = offer.proof.checkpoint;
        // The intake has checked the signatures. Header and chunks must be those of the signed state (ADR 0015).
        if execution.check_manifest(&offer.header, &offer.chunks) != Ok((checkpoint.height, checkpoint.state))
        {
            let kind = TransferMessage::State(Box::new(offer)).kind();
            self.mark_bad((now, from), kind, "state is not the signed one", out);
            return Ok(());
        }
        let height = checkpoint.height;
        self.offers.insert(from, height);
        let (first, last) = store.kept();
        let fits = height >= last || height.next() >= first;
        if height <= replica.issued()
            || height < store.distrusted()
            || height <= store.newest_height()
            || !fits
        {
            return Ok(());
        }
        let replaces = match &self.receiving {
            None => true,
            Some(receiving) if height > receiving.height() => {
                let is_lost = !self.offers.values().any(|offered| *offered == receiving.height());
                is_lost || replica.next_block_after(receiving.height()) == NextBlock::Gone
            }
            Some(_) => false,
        };
        if replaces {
            self.begin(now, offer, height.since(replica.issued()), store)?;
        }
        self.tick(now, replica, store, out);
        Ok(())
    }

    /// Begins to receive a state that is so many blocks ahead, if there is room. An optional state must cost less than these
    /// blocks, and must leave room for the log.
    fn begin(
        &mut self,
        now: Time,
        offer: StateOffer,
        blocks: u64,
        store: &mut BoxedStore,
    ) -> Result<(), Fault> {
        let StateOffer { proof, header, chunks } = offer;
        // This precedes the first change: the own snapshot may be in progress, and goes on after a refusal.
        let carried = self.receiving.as_ref().map(Receiving::writer);
        let missing = store.missing_bytes(&chunks, carried)?;
        let needed = missing.saturating_add(carried.map_or(0, SnapshotWriter::bytes));
        let room = store.snapshot_room();
        let is_worth = blocks >= self.far_heights / 2 && missing <= blocks.saturating_mul(BYTES_PER_BLOCK);
        if self.is_choice && (!is_worth || needed > room / 2) {
            if self.receiving.is_none() {
                self.refuse(now);
            }
            return Ok(());
        }
        if needed > room {
            self.no_room = Some(needed.saturating_sub(room));
            return Ok(());
        }
        (self.no_room, self.complete_at) = (None, None);
        let carried = self.receiving.take().map(Receiving::into_writer);
        let writer = store.begin_received(proof.checkpoint.height, header, &chunks, carried)?;
        self.receiving = Some(Receiving::new(proof, writer, store)?);
        Ok(())
    }

    /// Notes that a peer has no newer snapshot.
    pub(super) fn on_no_state(&mut self, from: ReplicaId) {
        self.asked.remove(from);
    }

    /// Notes that a peer does not have the snapshot of this height any more.
    pub(super) fn on_no_piece(&mut self, now: Time, from: ReplicaId, height: Height) {
        if self.offers.get(&from) == Some(&height) {
            self.offers.remove(&from);
            if let Some(receiving) = &mut self.receiving {
                receiving.give_up(from);
            }
            self.ask_at = self.ask_at.min(now.plus(START_NS));
        }
    }

    /// Takes in a part of a chunk.
    pub(super) fn on_piece(
        &mut self,
        (now, from): (Time, ReplicaId),
        (at, bytes): (PieceAt, &[u8]),
        store: &mut BoxedStore,
        out: &mut dyn Outgoing,
    ) -> Result<(), Fault> {
        let Some(receiving) = self.receiving.as_mut().filter(|receiving| receiving.height() == at.height)
        else {
            return Ok(());
        };
        if let Err(why) = receiving.on_piece((now, from), at, bytes, store)? {
            self.mark_bad((now, from), TransferMessage::Piece(at, Vec::new()).kind(), why, out);
        }
        let Some(receiving) = &mut self.receiving else { return Ok(()) };
        let height = receiving.height();
        if self.offers.get(&from) == Some(&height) {
            receiving.ask(now, std::iter::once(from), out);
        }
        Ok(())
    }

    fn mark_bad(
        &mut self,
        (now, peer): (Time, ReplicaId),
        kind: Kind,
        why: &'static str,
        out: &mut dyn Outgoing,
    ) {
        self.bad.insert(peer, (why, now.plus(BAD_NS)));
        self.offers.remove(&peer);
        if let Some(receiving) = &mut self.receiving {
            receiving.give_up(peer);
        }
        out.rejected(FrameSource::Peer(peer), kind, why, true);
    }

    /// Whether a step has work that needs no arrival.
    pub(super) fn has_work(&self, now: Time, replica: &Replica) -> bool {
        let receiving = self.receiving.as_ref();
        receiving.is_some_and(|receiving| receiving.has_work(self.may_install(now, replica)))
    }

    /// Whether the state may be installed now: a peer keeps the block after it, or nobody has offered a newer state.
    fn may_install(&self, now: Time, replica: &Replica) -> bool {
        let Some(receiving) = &self.receiving else { return false };
        let has_waited = self.complete_at.is_some_and(|at| now.since(at) >= SUCCESSORS_NS);
        has_waited || replica.next_block_after(receiving.height()) != NextBlock::Gone
    }

    /// Takes a step with at most one sync. Returns whether the state is installed.
    pub(super) fn step(
        &mut self,
        now: Time,
        replica: &Replica,
        store: &mut BoxedStore,
    ) -> Result<bool, Fault> {
        let may_install = self.may_install(now, replica);
        let Some(receiving) = self.receiving.as_mut().filter(|receiving| receiving.has_work(may_install))
        else {
            return Ok(false);
        };
        match receiving.step(may_install, store)? {
            Received::Unfinished => Ok(false),
            Received::Complete => {
                self.complete_at.get_or_insert(now);
                Ok(false)
            }
            Received::Installed => Ok(true),
        }
    }
}
