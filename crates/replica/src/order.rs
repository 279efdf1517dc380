//! Questions of clients for the order of their bundles.
//!
//! A question is answered at once if a decided block above the stable checkpoint has the bundle. Otherwise the question waits
//! for such a block, also where the bundle is unknown: it may be on its way. Each connection has a bounded number of waiting
//! questions, and its end removes them.
//!
//! The answer is a proof, and no promise of this replica, so it does not wait for the disk. Each proposer among the signers has its
//! own block on disk, and the path below it.

use crate::output::{ConnId, Output};
use crate::replica::Replica;
use quorate_types::limits::ORDER_ASKS_WAITING_MAX;
use quorate_types::wire::NoOrder;
use quorate_types::{Block, BlockId, BundleDigest, ClientId, Height, OrderProof, Payload};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A question of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Question {
    conn: ConnId,
    client: ClientId,
    bundle: BundleDigest,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OrderQuestions {
    /// The height of each bundle of the decided blocks above the stable checkpoint, and of K heights below it. For the latter the
    /// answer is that the proof is not kept. The first height counts: execution skips a bundle that is ordered again. Empty for
    /// protocols without proofs of order.
    heights: BTreeMap<BundleDigest, Height>,
    /// Questions that wait, by bundle.
    waiting: BTreeMap<BundleDigest, BTreeSet<Question>>,
    /// Questions that wait, by connection, the oldest first.
    by_conn: BTreeMap<ConnId, VecDeque<Question>>,
}

impl OrderQuestions {
    /// Notes the bundles of a decided block. Returns the questions for them.
    fn decide(&mut self, height: Height, payload: &Payload) -> Vec<Question> {
        let mut due = Vec::new();
        for bundle in &payload.bundles {
            self.heights.entry(*bundle).or_insert(height);
            for question in self.waiting.remove(bundle).unwrap_or_default() {
                self.forget(&question);
                due.push(question);
            }
        }
        due
    }

    fn forget(&mut self, question: &Question) {
        if let Some(of_conn) = self.by_conn.get_mut(&question.conn) {
            of_conn.retain(|other| other != question);
            if of_conn.is_empty() {
                self.by_conn.remove(&question.conn);
            }
        }
    }

    /// Lets a question wait. Returns the oldest question of its connection if there are too many.
    fn wait(&mut self, question: Question) -> Option<Question> {
        if !self.waiting.entry(question.bundle).or_default().insert(question) {
            return None;
        }
        let of_conn = self.by_conn.entry(question.conn).or_default();
        of_conn.push_back(question);
        let oldest = if of_conn.len() > ORDER_ASKS_WAITING_MAX { of_conn.pop_front() } else { None };
        if let Some(oldest) = &oldest {
            self.stop_waiting(oldest);
        }
        oldest
    }

    fn stop_waiting(&mut self, question: &Question) {
        if let Some(waiting) = self.waiting.get_mut(&question.bundle) {
            waiting.remove(question);
            if waiting.is_empty() {
                self.waiting.remove(&question.bundle);
            }
        }
    }

    /// Forgets the questions of a connection.
    pub(crate) fn disconnect(&mut self, conn: ConnId) {
        for question in self.by_conn.remove(&conn).unwrap_or_default() {
            self.stop_waiting(&question);
        }
    }

    /// Forgets the bundles of blocks up to a height.
    pub(crate) fn prune(&mut self, floor: Height) {
        self.heights.retain(|_, height| *height > floor);
    }
}

impl Replica {
    /// Handles a question for the order of a bundle.
    pub(crate) fn on_ask_order(&mut self, conn: ConnId, client: ClientId, bundle: BundleDigest) {
        let question = Question { conn, client, bundle };
        if !self.entry.proves_order {
            return self.answer_order(question, Err(NoOrder::NoProofs));
        }
        if self.orders.heights.contains_key(&bundle) {
            return self.show_order(question);
        }
        if let Some(oldest) = self.orders.wait(question) {
            self.answer_order(oldest, Err(NoOrder::Busy));
        }
    }

    /// Answers the questions for a block that was decided now. Heights come in order.
    pub(crate) fn show_decided(&mut self, height: Height, id: BlockId) {
        if !self.entry.proves_order {
            return;
        }
        let Some((_, payload)) = self.stored(id) else { return };
        for question in self.orders.decide(height, &payload) {
            self.show_order(question);
        }
    }

    /// Notes the blocks that were decided before this opening.
    pub(crate) fn note_restored_order(&mut self) {
        let mut height = self.checkpoints.stable().checkpoint.height.next();
        while height <= self.sequencer.executed() {
            if let Some(id) = self.sequencer.decided(height) {
                self.show_decided(height, id);
            }
            height = height.next();
        }
    }

    /// Shows the proof for a bundle of a decided block, if the protocol has the evidence.
    fn show_order(&mut self, question: Question) {
        let answer = self.order_proof(question.bundle).ok_or(NoOrder::NotKept);
        self.answer_order(question, answer.map(Box::new));
    }

    fn order_proof(&self, bundle: BundleDigest) -> Option<OrderProof> {
        let height = self.orders.heights.get(&bundle)?;
        let id = self.sequencer.decided(*height)?;
        let (block, payload) = self.stored(id)?;
        let chain = self.running.protocol.order_chain(&self.setup.committee, id)?;
        let is_of_block = chain.block() == Some(&*block);
        is_of_block.then(|| OrderProof { payload: Payload::clone(&payload), chain })
    }

    /// Returns a block with its list of bundles.
    fn stored(&self, id: BlockId) -> Option<(Arc<Block>, Arc<Payload>)> {
        let block = self.blocks.get(id)?;
        let payload = self.services.bodies.payload(block.payload)?;
        Some((Arc::clone(block), Arc::clone(payload)))
    }

    fn answer_order(&mut self, question: Question, answer: Result<Box<OrderProof>, NoOrder>) {
        let Question { conn, client, bundle } = question;
        self.out.push_back(Output::Order { conn, client, bundle, answer });
    }
}

#[cfg(test)]
mod tests;
