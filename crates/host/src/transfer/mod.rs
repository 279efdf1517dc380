//! Transfer of state: brings a replica back that has no state, whose peers do not keep its next block, or that is far behind.
//!
//! The rules are in ADR 0015 and in section 15 of `docs/specification/pbft.md`. A transfer is the same for every
//! protocol. The replica goes on with its protocol meanwhile. When the state is durable, the replica is opened anew on it
//! and learns the blocks after it from f + 1 peers.

mod fetcher;
mod receiving;
mod server;

use crate::outgoing::Outgoing;
use fetcher::StateFetcher;
use quorate_app::Execution;
use quorate_consensus::To;
use quorate_replica::{HostMessage, Replica, TransferMessage};
use quorate_storage::{BoxedStore, Fault};
use quorate_types::codec::Wire as _;
use quorate_types::wire::{Lane, frame};
use quorate_types::{Height, ReplicaId, Time};
use server::StateServer;

/// The progress of a replica that receives a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferStatus {
    /// The height of the state; `None` while no peer has offered one.
    pub height: Option<Height>,
    /// Bytes of chunks that have arrived.
    pub received: u64,
    /// Bytes of all chunks that must arrive.
    pub total: u64,
    /// Peers that have the state.
    pub sources: Vec<ReplicaId>,
    /// Peers that have lied, with the reason. They are not asked.
    pub bad: Vec<(ReplicaId, &'static str)>,
    /// Bytes of the state that `disk_bytes_max` does not allow; `None` when there is room.
    pub no_room: Option<u64>,
}

/// Queues a message of a transfer. Transfers have the lane that is served last.
fn send(out: &mut dyn Outgoing, to: ReplicaId, message: TransferMessage) {
    let body = HostMessage::Transfer(message).to_bytes();
    out.peer(To::One(to), Lane::CatchUp, frame::HOST, body.into());
}

/// See the module.
pub(crate) struct Transfer {
    server: StateServer,
    fetcher: StateFetcher,
    /// Messages of peers that wait for the end of the check.
    messages: Vec<(ReplicaId, TransferMessage)>,
}

impl Transfer {
    /// Creates the transfer of a replica that is far behind with more than `far_heights` missing blocks.
    pub(crate) fn new(far_heights: u64) -> Self {
        let fetcher = StateFetcher::new(far_heights);
        Self { server: StateServer::default(), fetcher, messages: Vec::new() }
    }

    /// Takes in a message whose claims were checked.
    pub(crate) fn push(&mut self, from: ReplicaId, message: TransferMessage) {
        self.messages.push((from, message));
    }

    /// Returns the progress of a transfer; `None` when no state is needed, and none is received.
    pub(crate) fn status(&self) -> Option<TransferStatus> {
        self.fetcher.status()
    }

    /// Whether a state is being received. The own service writes no snapshot meanwhile.
    pub(crate) fn is_receiving(&self) -> bool {
        self.fetcher.is_receiving()
    }

    /// Whether a peer waits for a snapshot that is newer than any here. The caller begins one.
    pub(crate) fn is_snapshot_wanted(&mut self) -> bool {
        self.server.is_snapshot_wanted()
    }

    /// Whether there is work that needs no arrival.
    pub(crate) fn has_work(&self, now: Time, replica: &Replica) -> bool {
        self.server.has_work() || self.fetcher.has_work(now, replica)
    }

    /// Returns the time at which there is work.
    pub(crate) fn deadline(&self) -> Option<Time> {
        [self.server.deadline(), self.fetcher.deadline()].into_iter().flatten().min()
    }

    /// Whether a peer waits for a checkpoint that is newer than the newest snapshot with a proof. True once for each
    /// question.
    pub(crate) fn takes_wanted_heights(&mut self) -> bool {
        self.server.takes_wanted_heights()
    }

    /// Handles messages, and does what is due. Makes no sync.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        (replica, execution): (&Replica, &Execution),
        store: &mut BoxedStore,
        out: &mut dyn Outgoing,
    ) -> Result<(), Fault> {
        for (from, message) in std::mem::take(&mut self.messages) {
            let to = (now, from);
            match message {
                TransferMessage::AskState(above) => self.server.on_ask_state(to, above, store, out)?,
                TransferMessage::AskPiece(at) => self.server.on_ask_piece(from, at),
                TransferMessage::State(offer) => {
                    self.fetcher.on_state(to, *offer, (replica, execution), store, out)?;
                }
                TransferMessage::NoState => self.fetcher.on_no_state(from),
                TransferMessage::Piece(at, bytes) => {
                    self.fetcher.on_piece(to, (at, &bytes), store, out)?;
                }
                TransferMessage::NoPiece(height) => self.fetcher.on_no_piece(now, from, height),
            }
        }
        self.fetcher.tick(now, replica, store, out);
        self.server.serve(now, store, out)
    }

    /// Takes a step with at most one sync. Returns whether a state is installed: the replica must then be opened anew.
    pub(crate) fn step(
        &mut self,
        now: Time,
        replica: &Replica,
        store: &mut BoxedStore,
    ) -> Result<bool, Fault> {
        self.fetcher.step(now, replica, store)
    }
}
