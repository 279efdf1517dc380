//! Leaders of views, by policy (`hotstuff` §18).
//!
//! The leader depends on the view and on the chain that ends in the block of a certificate, never on a replica's own
//! memory: all replicas derive the same leader from the same certificate.

use super::block_tree::BlockTree;
use super::chain::{FIRST_VIEW, Tip};
use crate::past::OpenError;
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::limits::REPLICAS_MAX;
use quorate_types::{Block, BlockId, Committee, Height, ReplicaId, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The order of leaders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaderPolicy {
    /// Another leader in each view.
    RoundRobin,
    /// Each leader has several views in a row.
    Terms,
    /// A leader stays until its view fails. It may starve one client for ever while it serves others: the age of a request
    /// does not count against it.
    Stable,
    /// As `Terms`, but other replicas take the turns of those that have failed lately.
    Avoiding,
}

impl LeaderPolicy {
    /// Returns the number of views of one leader in a row. A failed view ends the rest of them.
    #[must_use]
    pub fn term(self, views_per_leader: u64) -> u64 {
        match self {
            Self::Terms => views_per_leader,
            Self::Avoiding => AVOIDING_TERM,
            Self::RoundRobin | Self::Stable => 1,
        }
    }

    /// Returns the number of turns without a commit after which no replica is left out any more, with f faulty replicas; 0
    /// where the policy leaves out none. After f faulty leaders in a row an honest leader commits within its turn. More turns
    /// fail only where replicas disagree on the failed replicas, or do not know them.
    #[must_use]
    pub fn patience(self, f: usize) -> usize {
        if self == Self::Avoiding { f.saturating_add(2) } else { 0 }
    }
}

/// Views of one leader with `Avoiding`: an honest leader commits alone, so a wrong exclusion does no lasting harm.
const AVOIDING_TERM: u64 = 4;
/// The default length of a stretch in heights. A failure counts in the stretch in which it was seen, and in the next one.
pub const STRETCH: u64 = 4_096;
/// The longest stretch.
const STRETCH_MAX: u64 = 1 << 40;
/// The longest term in views.
const TERM_MAX: u64 = 1_000_000;

/// The facts about leaders in the chain up to a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaderHistory {
    /// The block at the end of the chain.
    tip: Tip,
    proposer: ReplicaId,
    /// The height from which on all failures are known.
    since: Height,
    /// The height at which the last failed turn of each replica was seen; 0 for never.
    failures: Arc<[Height]>,
    /// Failures at the blocks before, newest first, as far as a commit looks back.
    before: Vec<(Tip, Arc<[Height]>)>,
    /// The newest block that this chain itself commits, and the failures at it.
    committed: (Tip, Arc<[Height]>),
}

impl LeaderHistory {
    fn genesis(n: usize) -> Self {
        let none: Arc<[Height]> = vec![Height::ZERO; n].into();
        Self {
            tip: Tip::GENESIS,
            proposer: ReplicaId(0),
            since: Height::ZERO,
            failures: Arc::clone(&none),
            before: Vec::new(),
            committed: (Tip::GENESIS, none),
        }
    }

    /// Returns the height of the block at the end of the chain.
    #[must_use]
    pub fn height(&self) -> Height {
        self.tip.height
    }
}

fn put_failures(failures: &[Height], out: &mut Vec<u8>) {
    put_list(out, failures);
}

fn take_failures(reader: &mut Reader<'_>) -> Result<Arc<[Height]>, DecodeError> {
    Ok(reader.list("failures", REPLICAS_MAX, 8, Height::decode)?.into())
}

/// The number of blocks before the last one in a history, at most.
const BEFORE_MAX: usize = 2;

impl Wire for LeaderHistory {
    fn encode(&self, out: &mut Vec<u8>) {
        self.tip.encode(out);
        self.proposer.encode(out);
        self.since.encode(out);
        put_failures(&self.failures, out);
        quorate_types::codec::put_length(out, self.before.len());
        for (tip, failures) in self.before.iter().chain([&self.committed]) {
            tip.encode(out);
            put_failures(failures, out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (tip, proposer) = (Tip::decode(reader)?, ReplicaId::decode(reader)?);
        let (since, failures) = (Height::decode(reader)?, take_failures(reader)?);
        let before = reader.list("blocks before", BEFORE_MAX, 52, |reader| {
            Ok((Tip::decode(reader)?, take_failures(reader)?))
        })?;
        let committed = (Tip::decode(reader)?, take_failures(reader)?);
        Ok(Self { tip, proposer, since, failures, before, committed })
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Leaders {
    policy: LeaderPolicy,
    /// The number of views of one leader in a row.
    term: u64,
    /// The number of certified blocks of consecutive views that commit the first of them.
    links: usize,
    /// The length of a stretch in heights.
    stretch: u64,
    /// The leaders of the first views, for the simulator.
    set: Vec<u16>,
    /// Histories of blocks that are not settled.
    known: BTreeMap<BlockId, LeaderHistory>,
    /// For blocks above missing headers: the first missing block below. A replica that catches up asks about each new block.
    gaps: BTreeMap<BlockId, BlockId>,
    /// The height of the last stable checkpoint.
    stable: Height,
    /// The height of the last recorded history.
    recorded: Height,
}

/// Number of remembered gaps. Beyond it they are looked up again.
const GAPS_MAX: usize = 4_096;

impl Leaders {
    /// Returns the leaders of a protocol that commits the first of `links` certified blocks of consecutive views.
    ///
    /// # Errors
    /// Fails when the parameters are out of range.
    pub fn new(
        policy: LeaderPolicy,
        views_per_leader: u64,
        links: usize,
        set: Vec<u16>,
        committee: &Committee,
    ) -> Result<Self, OpenError> {
        if !(1..=TERM_MAX).contains(&views_per_leader) {
            let expected = format!("1 to {TERM_MAX}");
            return Err(OpenError::Params { name: "views_per_leader".to_owned(), expected });
        }
        if set.iter().any(|id| !committee.contains(ReplicaId(*id))) {
            let expected = format!("replicas below {}", committee.n());
            return Err(OpenError::Params { name: "leaders".to_owned(), expected });
        }
        let term = policy.term(views_per_leader);
        let genesis = LeaderHistory::genesis(committee.n());
        let known = BTreeMap::from([(BlockId::ZERO, genesis)]);
        let (stable, recorded) = (Height::ZERO, Height::ZERO);
        Ok(Self {
            policy,
            term,
            links,
            stretch: STRETCH,
            set,
            known,
            gaps: BTreeMap::new(),
            stable,
            recorded,
        })
    }

    /// Sets the length of a stretch in heights.
    ///
    /// # Errors
    /// A length out of range.
    pub fn remembering(mut self, stretch: u64) -> Result<Self, OpenError> {
        if !(1..=STRETCH_MAX).contains(&stretch) {
            let expected = format!("1 to {STRETCH_MAX}");
            return Err(OpenError::Params { name: "failures_count_for".to_owned(), expected });
        }
        self.stretch = stretch;
        Ok(self)
    }

    /// Restores a history that was recorded at an earlier checkpoint.
    pub fn restore(&mut self, history: LeaderHistory, committee: &Committee) {
        if history.failures.len() == committee.n() {
            self.recorded = history.tip.height;
            self.known.insert(history.tip.id, history);
            self.gaps.clear();
        }
    }

    /// Begins after all records were restored. Where the chain below the stable checkpoint is missing for good, its failures
    /// are unknown, and those above are known.
    pub fn begin(&mut self, committee: &Committee, blocks: &BlockTree, stable: Tip) {
        self.stable = stable.height;
        let will_be_known =
            |history: &LeaderHistory| blocks.contains(history.tip.id) || blocks.root() == history.tip.id;
        if !self.needs_the_chain() || self.known.values().any(will_be_known) {
            return;
        }
        let mut unknown = LeaderHistory::genesis(committee.n());
        (unknown.tip, unknown.since) = (stable, stable.height);
        (unknown.proposer, unknown.committed.0) = (committee.rotate(stable.view.0), stable);
        self.known.insert(stable.id, unknown);
        self.gaps.clear();
    }

    /// Whether the policy needs the chain.
    fn needs_the_chain(&self) -> bool {
        matches!(self.policy, LeaderPolicy::Stable | LeaderPolicy::Avoiding)
    }

    /// Returns the first view after a failed view. With terms it is the first view of the next leader: a silent leader costs
    /// one timer, and not one for each of its views.
    #[must_use]
    pub fn after(&self, view: View) -> View {
        View(self.turn(view).saturating_add(1).saturating_mul(self.term))
    }

    /// Returns the leader of a view after the certificate of the block `justify`. `None` where this replica does not know
    /// enough of the chain below that block; then it refuses no leader.
    pub fn leader(
        &mut self,
        committee: &Committee,
        blocks: &BlockTree,
        view: View,
        justify: BlockId,
    ) -> Option<ReplicaId> {
        let set = usize::try_from(view.since(FIRST_VIEW)).ok().and_then(|view| self.set.get(view));
        if let Some(id) = set {
            return Some(ReplicaId(*id));
        }
        match self.policy {
            LeaderPolicy::RoundRobin | LeaderPolicy::Terms => Some(committee.rotate(self.turn(view))),
            LeaderPolicy::Stable | LeaderPolicy::Avoiding => {
                self.learn(committee, blocks, justify)?;
                let history = self.known.get(&justify)?;
                self.by_history(committee, view, history)
            }
        }
    }

    fn by_history(&self, committee: &Committee, view: View, history: &LeaderHistory) -> Option<ReplicaId> {
        if self.policy == LeaderPolicy::Stable {
            if history.since > Height::ZERO && history.since == history.tip.height {
                return None; // This replica never had its header.
            }
            let failed = view.since(history.tip.view).saturating_sub(1);
            return Some(committee.rotate(u64::from(history.proposer.0).saturating_add(failed)));
        }
        let (committed, failures) = &history.committed;
        let turn = self.turn(view);
        let owner = committee.rotate(turn);
        // No replica is left out for long without a commit.
        let patience = u64::try_from(self.policy.patience(committee.f)).unwrap_or(u64::MAX);
        if view.since(committed.view) > patience.saturating_mul(self.term) {
            // This holds for unknown failures as well: the committed block known here is not older than the right one.
            return Some(owner);
        }
        let stretch = committed.height.0.checked_div(self.stretch).unwrap_or(0);
        let from = Height(stretch.saturating_sub(1).saturating_mul(self.stretch));
        let mut failed: Vec<(Height, ReplicaId)> = committee
            .ids()
            .zip(failures.iter())
            .filter(|(_, height)| **height > from)
            .map(|(id, height)| (*height, id))
            .collect();
        // Unknown failures are older than known ones: f known failures are the last ones.
        if history.since > from && history.since > Height::ZERO && failed.len() < committee.f {
            return None;
        }
        failed.sort_unstable_by(|a, b| b.cmp(a));
        failed.truncate(committee.f);
        let is_left_out = |id: &ReplicaId| failed.iter().any(|(_, left_out)| left_out == id);
        if !is_left_out(&owner) {
            return Some(owner);
        }
        let others: Vec<ReplicaId> = committee.ids().filter(|id| !is_left_out(id)).collect();
        let at = usize::try_from(turn).ok()?.checked_div(committee.n())?.checked_rem(others.len())?;
        others.get(at).copied()
    }

    /// Returns the turn of a view. In the plain rotation the turn belongs to the replica of this number.
    fn turn(&self, view: View) -> u64 {
        view.0.checked_div(self.term).unwrap_or(view.0)
    }

    /// Computes the history of a block from the nearest block below with a known history.
    fn learn(&mut self, committee: &Committee, blocks: &BlockTree, id: BlockId) -> Option<()> {
        if let (Some(gap), _) = self.gap(blocks, id) {
            if self.gaps.len() >= GAPS_MAX {
                self.gaps.clear();
            }
            if gap != id {
                self.gaps.insert(id, gap);
            }
            return None;
        }
        let mut path = Vec::new();
        let mut at = id;
        while !self.known.contains_key(&at) {
            let block = blocks.get(at)?;
            path.push((at, Arc::clone(block)));
            at = block.parent;
        }
        for (id, block) in path.into_iter().rev() {
            let history = self.next(committee, self.known.get(&block.parent)?, &block, id);
            self.known.insert(id, history);
            // The headers of earlier gaps may be dropped from now on, because their histories are known.
            self.gaps.clear();
        }
        Some(())
    }

    /// Returns the first missing block below a block, if its chain does not reach a known history, and the number of looked-up
    /// blocks.
    fn gap(&self, blocks: &BlockTree, id: BlockId) -> (Option<BlockId>, usize) {
        let (mut at, mut steps) = (id, 0usize);
        while !self.known.contains_key(&at) {
            let below = self.gaps.get(&at).copied();
            let Some(next) = below.or_else(|| blocks.get(at).map(|block| block.parent)) else {
                return (Some(at), steps);
            };
            (at, steps) = (next, steps.saturating_add(1));
        }
        (None, steps)
    }

    /// Returns the history of a block from that of its parent.
    fn next(
        &self,
        committee: &Committee,
        parent: &LeaderHistory,
        block: &Block,
        id: BlockId,
    ) -> LeaderHistory {
        let tip = Tip::of(block, id);
        let mut failures = Arc::clone(&parent.failures);
        if self.policy == LeaderPolicy::Avoiding && tip.view > parent.tip.view.next() {
            let mut seen = failures.to_vec();
            for id in self.failed_owners(committee, parent.tip.view, tip.view) {
                if let Some(height) = seen.get_mut(id.index()) {
                    *height = tip.height;
                }
            }
            failures = seen.into();
        }
        let mut before = vec![(parent.tip, Arc::clone(&parent.failures))];
        before.extend(parent.before.iter().cloned());
        before.truncate(BEFORE_MAX.min(self.links.saturating_sub(1)));
        // All blocks of the chain that ends here have certificates.
        let mut views = std::iter::once(tip.view).chain(before.iter().map(|(tip, _)| tip.view));
        let mut later = views.next().unwrap_or(tip.view);
        let in_a_row = before.len().saturating_add(1) == self.links
            && views.all(|view| std::mem::replace(&mut later, view) == view.next());
        let committed = match before.last() {
            Some(first) if in_a_row && first.0.view > parent.committed.0.view => first.clone(),
            _ => parent.committed.clone(),
        };
        LeaderHistory { tip, proposer: block.proposer, since: parent.since, failures, before, committed }
    }

    /// Returns the owners of the failed views between a block and the next, in the plain rotation.
    ///
    /// The leaders by the policy would not do. A replica that does not know the left-out replicas of those views could not
    /// tell which replicas have failed since, and would never know again as long as any replica fails.
    fn failed_owners(
        &self,
        committee: &Committee,
        below: View,
        next: View,
    ) -> impl Iterator<Item = ReplicaId> {
        let mut first = below.next();
        // The next leader collects the votes for the last block of a turn: the turn's owner is not to blame.
        if self.turn(first) == self.turn(below) && self.turn(first) != self.turn(first.next()) {
            first = first.next();
        }
        let end = self.turn(next.minus(1)).saturating_add(u64::from(first < next));
        // More than one round of all replicas adds nothing.
        let n = u64::try_from(committee.n()).unwrap_or(u64::MAX);
        let begin = self.turn(first).max(end.saturating_sub(n));
        (begin..end).map(|turn| committee.rotate(turn))
    }

    /// Returns the history of a block that is committed at a checkpoint's height, for the caller to record: no header below
    /// is kept. `None` where the policy needs no history, or it was recorded before.
    pub fn history(
        &mut self,
        committee: &Committee,
        blocks: &BlockTree,
        id: BlockId,
    ) -> Option<&LeaderHistory> {
        if !self.needs_the_chain() {
            return None;
        }
        self.learn(committee, blocks, id)?;
        let history = self.known.get(&id).filter(|history| history.tip.height > self.recorded)?;
        self.recorded = history.tip.height;
        Some(history)
    }

    /// Computes the history of the committed block while its headers are known, and drops histories below the checkpoint.
    pub fn keep_up(&mut self, committee: &Committee, blocks: &BlockTree, committed: BlockId) {
        if self.needs_the_chain() && self.learn(committee, blocks, committed).is_some() {
            let stable = self.stable;
            self.known.retain(|_, history| history.tip.height >= stable);
        }
    }

    /// Notes a stable checkpoint. Returns the history for the caller to record: that of the checkpoint's block, or, while
    /// headers up to it are missing, that of the block committed before. Without it the headers below would be lost after a
    /// restart.
    pub fn settle(
        &mut self,
        committee: &Committee,
        blocks: &BlockTree,
        stable: Tip,
        committed: Tip,
    ) -> Option<&LeaderHistory> {
        self.stable = stable.height;
        let is_known = self.needs_the_chain() && self.learn(committee, blocks, stable.id).is_some();
        self.history(committee, blocks, if is_known { stable.id } else { committed.id })
    }
}
