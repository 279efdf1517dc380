//! The side that sends a state: offers of the newest snapshot with a proof, and parts of its chunks.
//!
//! A peer may ask for anything at any time, so the work is bounded: one offer for each peer and pause, a queue of parts for
//! each peer, and a number of bytes in a second for all of them.

use super::send;
use crate::outgoing::Outgoing;
use crate::peer_queues::PeerQueues;
use quorate_consensus::{CheckpointProof, To};
use quorate_replica::{HostMessage, PieceAt, StateOffer, TransferMessage};
use quorate_storage::{BoxedStore, Fault, StoredSnapshot};
use quorate_types::codec::Wire as _;
use quorate_types::limits::{CHUNK_PIECE_BYTES_MAX, PIECES_PER_PEER_MAX, STATE_BYTES_PER_SECOND};
use quorate_types::wire::{Lane, frame};
use quorate_types::{FrameBody, Height, ReplicaId, Time};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The pause between two offers to one peer.
const OFFER_PAUSE_NS: u64 = 500_000_000;
/// The pause between two snapshots that are written for a peer.
const WANTED_PAUSE_NS: u64 = 30_000_000_000;
/// Bytes that one turn sends: a read of the disk must not make a turn long.
const BYTES_PER_TURN: u64 = 1 << 20;
/// Bytes that may be sent at once after a pause.
const BURST_BYTES: u64 = 4 << 20;
/// Bytes that each part counts in addition to its own.
const PIECE_OVERHEAD_BYTES: u64 = 1_024;

/// See the module.
#[derive(Default)]
pub(super) struct StateServer {
    asks: PeerQueues<PieceAt>,
    /// The time of the last offer to each peer.
    offered: BTreeMap<ReplicaId, Time>,
    /// The newest snapshot with a proof, as a frame.
    offer: Option<(Height, FrameBody)>,
    /// Manifests of snapshots that peers receive.
    manifests: BTreeMap<Height, StoredSnapshot>,
    /// Snapshots of which a part could not be read.
    unreadable: BTreeSet<Height>,
    /// Bytes that may be sent now.
    allowance: u64,
    /// The time of the last change of the allowance.
    filled_at: Time,
    /// The time of the last question that no snapshot answered; `None` when a snapshot was begun since.
    wanted_at: Option<Time>,
    /// The time at which a snapshot was last begun for a peer.
    begun_at: Option<Time>,
    /// Whether the host has to see that a checkpoint comes.
    wants_heights: bool,
}

impl StateServer {
    /// Answers a peer that asks for a snapshot above a height.
    pub(super) fn on_ask_state(
        &mut self,
        (now, from): (Time, ReplicaId),
        above: Height,
        store: &BoxedStore,
        out: &mut dyn Outgoing,
    ) -> Result<(), Fault> {
        if self.offered.get(&from).is_some_and(|last| now.since(*last) < OFFER_PAUSE_NS) {
            return Ok(());
        }
        self.offered.insert(from, now);
        let newest = store.newest_proven().filter(|height| *height > above);
        match newest.map(|height| self.offer(height, store)).transpose()?.flatten() {
            Some(body) => out.peer(To::One(from), Lane::CatchUp, frame::HOST, body),
            None => {
                send(out, from, TransferMessage::NoState);
                if self.begun_at.is_none_or(|begun| now.since(begun) >= WANTED_PAUSE_NS) {
                    (self.wanted_at, self.wants_heights) = (Some(now), true);
                }
            }
        }
        Ok(())
    }

    /// Whether a peer waits for a checkpoint. True once for each question.
    pub(super) fn takes_wanted_heights(&mut self) -> bool {
        std::mem::take(&mut self.wants_heights)
    }

    /// Whether a peer waits for a snapshot that is newer than any here.
    pub(super) fn is_snapshot_wanted(&mut self) -> bool {
        let wanted = self.wanted_at.take();
        self.begun_at = wanted.or(self.begun_at);
        wanted.is_some()
    }

    /// Returns the frame that offers the snapshot of this height; `None` when it cannot be read.
    fn offer(&mut self, height: Height, store: &BoxedStore) -> Result<Option<FrameBody>, Fault> {
        if let Some((_, body)) = self.offer.as_ref().filter(|(offered, _)| *offered == height) {
            return Ok(Some(body.clone()));
        }
        let Some(snapshot) = self.manifest(height, store)? else { return Ok(None) };
        let Ok(proof) = CheckpointProof::from_bytes(snapshot.proof()) else { return Ok(None) };
        let offer =
            StateOffer { proof, header: snapshot.header().to_vec(), chunks: snapshot.ids().collect() };
        let message = HostMessage::Transfer(TransferMessage::State(Box::new(offer)));
        let body: FrameBody = message.to_bytes().into();
        self.offer = Some((height, body.clone()));
        Ok(Some(body))
    }

    /// Returns the manifest of a snapshot with a proof, as long as the store has it.
    fn manifest(&mut self, height: Height, store: &BoxedStore) -> Result<Option<&StoredSnapshot>, Fault> {
        self.manifests.retain(|height, _| store.has_proven(*height));
        self.unreadable.retain(|height| store.has_proven(*height));
        if self.unreadable.contains(&height) {
            return Ok(None);
        }
        match self.manifests.entry(height) {
            Entry::Occupied(manifest) => Ok(Some(manifest.into_mut())),
            Entry::Vacant(place) => match store.proven_snapshot(height) {
                Ok(snapshot) => Ok(snapshot.map(|snapshot| &*place.insert(snapshot))),
                // The damage is found again when the node starts. Peers receive the state from others.
                Err(Fault::DamagedSnapshot { .. }) => Ok(None),
                Err(fault) => Err(fault),
            },
        }
    }

    /// Takes in a request for a part of a chunk.
    pub(super) fn on_ask_piece(&mut self, from: ReplicaId, at: PieceAt) {
        // A peer with a full queue asks again later.
        let _ = self.asks.push(from, at, PIECES_PER_PEER_MAX);
    }

    /// Whether a part can be sent now.
    pub(super) fn has_work(&self) -> bool {
        !self.asks.is_empty() && self.allowance > 0
    }

    /// Returns the time at which the next part can be sent.
    pub(super) fn deadline(&self) -> Option<Time> {
        let is_waiting = !self.asks.is_empty() && self.allowance == 0;
        let piece = u64::try_from(CHUNK_PIECE_BYTES_MAX).unwrap_or(u64::MAX);
        let pause = piece.saturating_mul(1_000_000_000).checked_div(STATE_BYTES_PER_SECOND);
        is_waiting.then(|| self.filled_at.plus(pause.unwrap_or(1_000_000_000)))
    }

    /// Sends parts of chunks, as many as this turn and this second allow.
    pub(super) fn serve(
        &mut self,
        now: Time,
        store: &BoxedStore,
        out: &mut dyn Outgoing,
    ) -> Result<(), Fault> {
        if self.asks.is_empty() {
            return Ok(());
        }
        self.fill(now);
        let mut left = self.allowance.min(BYTES_PER_TURN);
        while left > 0
            && let Some((from, at)) = self.asks.pop()
        {
            let message = self.answer(at, store)?;
            let cost = u64::from(at.length).saturating_add(PIECE_OVERHEAD_BYTES);
            self.allowance = self.allowance.saturating_sub(cost);
            left = left.saturating_sub(cost);
            send(out, from, message);
        }
        Ok(())
    }

    fn fill(&mut self, now: Time) {
        let since = u128::from(now.since(self.filled_at));
        let bytes = since.saturating_mul(u128::from(STATE_BYTES_PER_SECOND)) / 1_000_000_000;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        // A few nanoseconds give no byte. They count at the next call.
        if bytes > 0 {
            self.filled_at = now;
            self.allowance = self.allowance.saturating_add(bytes).min(BURST_BYTES);
        }
    }

    fn answer(&mut self, at: PieceAt, store: &BoxedStore) -> Result<TransferMessage, Fault> {
        let gone = TransferMessage::NoPiece(at.height);
        let Some(snapshot) = self.manifest(at.height, store)? else { return Ok(gone) };
        let index = usize::try_from(at.index).unwrap_or(usize::MAX);
        let is_inside = snapshot.ids().nth(index).is_some_and(|id| {
            at.offset.checked_add(at.length).is_some_and(|end| end <= id.length)
                && usize::try_from(at.length).is_ok_and(|length| length <= CHUNK_PIECE_BYTES_MAX)
        });
        if !is_inside {
            return Ok(gone);
        }
        match store.snapshot_piece(snapshot, (index, at.offset, at.length)) {
            Ok(bytes) => Ok(TransferMessage::Piece(at, bytes)),
            // One bad sector must not stop a replica that runs. The next start finds it, and peers ask others.
            Err(Fault::Io { .. }) => {
                self.unreadable.insert(at.height);
                self.offer = None;
                Ok(gone)
            }
            Err(fault) => Err(fault),
        }
    }
}
