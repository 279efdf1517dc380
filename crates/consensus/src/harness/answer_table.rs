//! The host's answers in a test.

use crate::host_view::{HostView, PayloadRef, Pending, Ready};
use crate::parts::block_tree::BlockTree;
use quorate_types::{BlockId, PayloadId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Answers of the host, from a table.
#[derive(Debug)]
pub(super) struct AnswerTable {
    /// Answers about blocks by id.
    pub(super) answers: BTreeMap<BlockId, Option<Ready>>,
    /// Answer about all other blocks of the tree.
    pub(super) otherwise: Option<Ready>,
    /// Bytes of bodies by block.
    pub(super) body_bytes: BTreeMap<BlockId, usize>,
    /// Payloads that the protocol has not asked for yet.
    pub(super) payloads: VecDeque<PayloadRef>,
    /// Payloads handed out here: their bodies are available.
    pub(super) own: BTreeSet<PayloadId>,
    /// Blocks whose content the protocol wants to be omitted from new ones.
    pub(super) proposed: Vec<BlockId>,
    /// Arrival time of the oldest waiting bundle of a client of this replica.
    pub(super) oldest: Option<Time>,
    pub(super) overloaded: bool,
    pub(super) lagging: bool,
    pub(super) backlog_ns: u64,
    /// The latest moment of doubt.
    pub(super) last_doubt: Option<Time>,
    /// Latest time of a probe that enough peers have answered in time.
    pub(super) fresh: Time,
    /// Freshness that the protocol asked for and no answer had.
    pub(super) asked: Vec<Time>,
}

impl Default for AnswerTable {
    fn default() -> Self {
        Self {
            answers: BTreeMap::new(),
            otherwise: Some(Ready::Valid),
            body_bytes: BTreeMap::new(),
            payloads: VecDeque::new(),
            own: BTreeSet::new(),
            proposed: Vec::new(),
            oldest: None,
            overloaded: false,
            lagging: false,
            backlog_ns: 0,
            last_doubt: None,
            fresh: Time::MAX,
            asked: Vec::new(),
        }
    }
}

impl HostView for AnswerTable {
    fn ready(&self, blocks: &BlockTree, block: BlockId) -> Option<Ready> {
        if let Some(answer) = self.answers.get(&block) {
            return *answer;
        }
        let known = blocks.get(block).filter(|_| !blocks.is_bare(block))?;
        if self.own.contains(&known.payload) { Some(Ready::Valid) } else { self.otherwise }
    }
    fn body_bytes(&self, block: BlockId) -> usize {
        self.body_bytes.get(&block).copied().unwrap_or_default()
    }

    fn pending(&self) -> Pending {
        let waiting = usize::from(self.oldest.is_some());
        let bundles = self.payloads.len().saturating_add(waiting);
        let (overloaded, backlog_ns) = (self.overloaded, self.backlog_ns);
        Pending {
            bundles,
            undecided: bundles,
            bytes: bundles,
            oldest: self.oldest,
            overloaded,
            lagging: self.lagging,
            backlog_ns,
        }
    }
    fn payload_after(&mut self, _now: Time, _blocks: &BlockTree, _parent: BlockId) -> Option<PayloadRef> {
        let payload = self.payloads.pop_front()?;
        self.own.insert(payload.id);
        Some(payload)
    }
    fn chain_decided(&mut self, _blocks: &BlockTree, _block: BlockId) {}
    fn already_proposed(&mut self, _blocks: &BlockTree, block: BlockId) {
        self.proposed.push(block);
    }
    fn sound(&mut self, _now: Time, since: Time, fresh: Time) -> bool {
        if self.last_doubt.is_some_and(|last| last >= since) {
            return false;
        }
        if self.fresh < fresh {
            self.asked.push(fresh);
            return false;
        }
        true
    }
}
