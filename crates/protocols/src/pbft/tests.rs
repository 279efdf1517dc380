//! One test for each rule of the module's table, named after it, and the codec.

mod codec;
mod liveness;
mod recovery;
mod rules;
mod selection;
mod signed;
mod sizes;
mod torn;
mod views;
mod watch;

use super::{Pbft, PbftMessage, PbftParams, Vote};
use quorate_consensus::harness::{Harness, Setup, payload};
use quorate_consensus::{Commit, Reject, To};
use quorate_types::{Block, BlockId, Digest, Height, ReplicaId, View};

pub(super) const LEADER: ReplicaId = ReplicaId(0);
pub(super) const MS: u64 = 1_000_000;

pub(super) fn setup(n: usize) -> Setup {
    Setup::of::<Pbft>(n)
}

/// Returns replica `id` of `n`.
pub(super) fn open(id: u16, n: usize) -> Harness<Pbft> {
    Harness::open(ReplicaId(id), setup(n), &PbftParams::default()).unwrap()
}

/// Returns the block of an honest leader of view 0 at a height; `number` names the payload.
pub(super) fn block(height: u64, number: u64) -> Block {
    Block {
        parent: BlockId::ZERO,
        height: Height(height),
        view: View::ZERO,
        proposer: LEADER,
        time_ns: number,
        payload: payload(number).id,
        extra: Digest::ZERO,
    }
}

pub(super) fn pre_prepare(height: u64, number: u64) -> PbftMessage {
    PbftMessage::PrePrepare { view: View::ZERO, block: block(height, number) }
}

pub(super) fn vote(view: u64, height: u64, number: u64) -> Vote {
    Vote { view: View(view), height: Height(height), block: block(height, number).id() }
}

pub(super) fn prepare(height: u64, number: u64) -> PbftMessage {
    PbftMessage::Prepare(vote(0, height, number))
}

pub(super) fn commit(view: u64, height: u64, number: u64) -> PbftMessage {
    PbftMessage::Commit(vote(view, height, number))
}

/// Delivers a message that must be accepted.
pub(super) fn take(harness: &mut Harness<Pbft>, from: u16, message: PbftMessage) {
    let text = format!("{message:?}");
    assert_eq!(harness.deliver(ReplicaId(from), message), Ok(()), "{text}");
}

/// Delivers a message that must be refused without any effect.
pub(super) fn refuse(harness: &mut Harness<Pbft>, from: u16, message: PbftMessage, why: Reject) {
    harness.lines();
    let text = format!("{message:?}");
    assert_eq!(harness.deliver(ReplicaId(from), message), Err(why), "{text}");
    assert_eq!(harness.lines(), Vec::<String>::new(), "{text}");
}

/// Returns the messages that have left since the last call, without STATUS.
pub(super) fn sent(harness: &mut Harness<Pbft>) -> Vec<(To, PbftMessage)> {
    let mut sent = harness.sent();
    sent.retain(|(_, message)| !matches!(message, PbftMessage::Status(_)));
    sent
}

pub(super) fn to_all(messages: impl IntoIterator<Item = PbftMessage>) -> Vec<(To, PbftMessage)> {
    messages.into_iter().map(|message| (To::All, message)).collect()
}

/// Returns the decisions since the last call: height and block.
pub(super) fn decided(harness: &mut Harness<Pbft>) -> Vec<(u64, BlockId)> {
    let committed = harness.committed();
    let at = committed.into_iter().map(|what| match what {
        Commit::At(height, id) => (height.0, id),
        Commit::Chain(_) => panic!("no chain here"),
    });
    at.collect()
}
