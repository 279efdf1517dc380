//! Who leads a view, by policy (`hotstuff` §18).
//!
//! The answer depends on the view and on the chain that ends in the block of a certificate, never on what a replica
//! happens to remember: the same certificate gives the same answer everywhere.

use super::block_tree::BlockTree;
use super::chain::{FIRST_VIEW, Tip};
use crate::protocol::OpenError;
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::limits::REPLICAS_MAX;
use quorate_types::{Block, BlockId, Committee, Height, ReplicaId, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// How leaders follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaderPolicy {
    /// Another one in each view.
    RoundRobin,
    /// Each leads several views in a row.
    Terms,
    /// Whoever leads goes on until a view is given up. A leader that serves others may starve one client for ever: no
    /// request's age is held against it.
    Stable,
    /// In terms, and who has failed of late is left out: others take its turns.
    Avoiding,
}

impl LeaderPolicy {
    /// Views of one leader in a row; giving one up ends the rest of them.
    #[must_use]
    pub fn term(self, views_per_leader: u64) -> u64 {
        match self {
            Self::Terms => views_per_leader,
            Self::Avoiding => AVOIDING_TERM,
            Self::RoundRobin | Self::Stable => 1,
        }
    }

    /// Turns without a commit after which nobody is left out any more, with f faulty replicas; 0 where nobody ever is.
    /// After f faulty leaders in a row an honest one commits within its turn: more are lost only where replicas do not
    /// agree on who has failed, or do not know it.
    #[must_use]
    pub fn patience(self, f: usize) -> usize {
        if self == Self::Avoiding { f.saturating_add(2) } else { 0 }
    }
}

/// Views that `Avoiding` gives one leader: one that is honest commits alone, so a wrong exclusion does no lasting harm.
const AVOIDING_TERM: u64 = 4;
/// A failure counts in the stretch of so many heights in which it was seen, and in the one after, where nothing else was
/// asked for.
pub const STRETCH: u64 = 4_096;
/// No stretch is longer.
const STRETCH_MAX: u64 = 1 << 40;
/// Views of one leader in a row at most.
const TERM_MAX: u64 = 1_000_000;

/// What the chain up to a block says about leaders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The block.
    tip: Tip,
    proposer: ReplicaId,
    /// From this height on all failures are known.
    since: Height,
    /// The height at which a turn of each replica was seen to have failed last; 0 for never.
    failures: Arc<[Height]>,
    /// The same at the blocks before, as many as a commit looks back at, newest first.
    before: Vec<(Tip, Arc<[Height]>)>,
    /// The newest block that the chain itself shows to be committed, and its failures.
    committed: (Tip, Arc<[Height]>),
}

impl Standing {
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

    /// The height of the block that it is about.
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

/// Blocks before that a standing names at most.
const BEFORE_MAX: usize = 2;

impl Wire for Standing {
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
    /// Views of one leader in a row.
    term: u64,
    /// Blocks in a row of views that commit the first of them.
    links: usize,
    /// How long a failure counts: in its stretch of so many heights and in the one after.
    stretch: u64,
    /// Who leads the first views, for the simulator.
    set: Vec<u16>,
    /// What is known of blocks that are not settled.
    known: BTreeMap<BlockId, Standing>,
    /// The last stable checkpoint.
    stable: Height,
    /// The height of what was written down last.
    recorded: Height,
}

impl Leaders {
    /// Leaders of a protocol that commits the first of `links` certified blocks of consecutive views.
    ///
    /// # Errors
    /// When the parameters are out of range.
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
        let genesis = Standing::genesis(committee.n());
        let known = BTreeMap::from([(BlockId::ZERO, genesis)]);
        let (stable, recorded) = (Height::ZERO, Height::ZERO);
        Ok(Self { policy, term, links, stretch: STRETCH, set, known, stable, recorded })
    }

    /// The same where a failure counts in a stretch of so many heights and in the one after.
    ///
    /// # Errors
    /// When that is out of range.
    pub fn remembering(mut self, stretch: u64) -> Result<Self, OpenError> {
        if !(1..=STRETCH_MAX).contains(&stretch) {
            let expected = format!("1 to {STRETCH_MAX}");
            return Err(OpenError::Params { name: "failures_count_for".to_owned(), expected });
        }
        self.stretch = stretch;
        Ok(self)
    }

    /// Takes up what was written down at an earlier checkpoint.
    pub fn restore(&mut self, standing: Standing, committee: &Committee) {
        if standing.failures.len() == committee.n() {
            self.recorded = standing.tip.height;
            self.known.insert(standing.tip.id, standing);
        }
    }

    /// After all was restored: where the chain below a stable checkpoint is not here and never will be, nothing is known
    /// of it, and everything from there on.
    pub fn begin(&mut self, committee: &Committee, blocks: &BlockTree, stable: Tip) {
        self.stable = stable.height;
        let will_be_known =
            |standing: &Standing| blocks.contains(standing.tip.id) || blocks.root() == standing.tip.id;
        if !self.looks_at_the_chain() || self.known.values().any(will_be_known) {
            return;
        }
        let mut unknown = Standing::genesis(committee.n());
        (unknown.tip, unknown.since) = (stable, stable.height);
        (unknown.proposer, unknown.committed.0) = (committee.rotate(stable.view.0), stable);
        self.known.insert(stable.id, unknown);
    }

    /// Whether anything of the chain has to be remembered.
    fn looks_at_the_chain(&self) -> bool {
        matches!(self.policy, LeaderPolicy::Stable | LeaderPolicy::Avoiding)
    }

    /// The first view after a view that was given up: with terms that of the next leader, so that a silent one costs one
    /// timer and not one for each of its views.
    #[must_use]
    pub fn after(&self, view: View) -> View {
        View(self.turn(view).saturating_add(1).saturating_mul(self.term))
    }

    /// Who leads a view after the certificate of `justify`; `None` where this replica does not know enough of the chain
    /// below it. Then nobody is refused for not being the leader.
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
                let standing = self.known.get(&justify)?;
                self.by_standing(committee, view, standing)
            }
        }
    }

    fn by_standing(&self, committee: &Committee, view: View, standing: &Standing) -> Option<ReplicaId> {
        if self.policy == LeaderPolicy::Stable {
            if standing.since > Height::ZERO && standing.since == standing.tip.height {
                return None; // Its header was never here.
            }
            let failed = view.since(standing.tip.view).saturating_sub(1);
            return Some(committee.rotate(u64::from(standing.proposer.0).saturating_add(failed)));
        }
        let (committed, failures) = &standing.committed;
        let turn = self.turn(view);
        let owner = committee.rotate(turn);
        // Nobody is left out for long where nothing is committed.
        let patience = u64::try_from(self.policy.patience(committee.f)).unwrap_or(u64::MAX);
        if view.since(committed.view) > patience.saturating_mul(self.term) {
            // Also where failures are not known: no committed block that is known then is older than the right one.
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
        // What is not known is older than what is: f failures that are known are the last ones.
        if standing.since > from && standing.since > Height::ZERO && failed.len() < committee.f {
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

    /// The turn that a view belongs to. In the plain rotation it is that of the replica of this number.
    fn turn(&self, view: View) -> u64 {
        view.0.checked_div(self.term).unwrap_or(view.0)
    }

    /// Works out what the chain up to a block says, from the nearest block below of which it is known.
    fn learn(&mut self, committee: &Committee, blocks: &BlockTree, id: BlockId) -> Option<()> {
        let mut path = Vec::new();
        let mut at = id;
        while !self.known.contains_key(&at) {
            let block = blocks.get(at)?;
            path.push((at, Arc::clone(block)));
            at = block.parent;
        }
        for (id, block) in path.into_iter().rev() {
            let standing = self.next(committee, self.known.get(&block.parent)?, &block, id);
            self.known.insert(id, standing);
        }
        Some(())
    }

    /// What a block adds to what its parent's chain says.
    fn next(&self, committee: &Committee, parent: &Standing, block: &Block, id: BlockId) -> Standing {
        let tip = Tip::of(block, id);
        let mut failures = Arc::clone(&parent.failures);
        if self.policy == LeaderPolicy::Avoiding && tip.view > parent.tip.view.next() {
            let mut seen = failures.to_vec();
            for id in self.who_failed(committee, parent.tip.view, tip.view) {
                if let Some(height) = seen.get_mut(id.index()) {
                    *height = tip.height;
                }
            }
            failures = seen.into();
        }
        let mut before = vec![(parent.tip, Arc::clone(&parent.failures))];
        before.extend(parent.before.iter().cloned());
        before.truncate(BEFORE_MAX.min(self.links.saturating_sub(1)));
        // The chain that ends here with certificates for all of it.
        let mut views = std::iter::once(tip.view).chain(before.iter().map(|(tip, _)| tip.view));
        let mut later = views.next().unwrap_or(tip.view);
        let in_a_row = before.len().saturating_add(1) == self.links
            && views.all(|view| std::mem::replace(&mut later, view) == view.next());
        let committed = match before.last() {
            Some(first) if in_a_row && first.0.view > parent.committed.0.view => first.clone(),
            _ => parent.committed.clone(),
        };
        Standing { tip, proposer: block.proposer, since: parent.since, failures, before, committed }
    }

    /// Whose views lead to nothing between a block and the next: their owners in the plain rotation. Not who led them by
    /// the policy: whoever does not know whom it left out then could not tell who has failed since, and would never know
    /// again as long as anybody fails.
    fn who_failed(&self, committee: &Committee, below: View, next: View) -> impl Iterator<Item = ReplicaId> {
        let mut first = below.next();
        // Votes for the last block of a turn are the next leader's to collect: who led up to it is not to blame.
        if self.turn(first) == self.turn(below) && self.turn(first) != self.turn(first.next()) {
            first = first.next();
        }
        let end = self.turn(next.minus(1)).saturating_add(u64::from(first < next));
        // More than once round all of them adds nothing.
        let n = u64::try_from(committee.n()).unwrap_or(u64::MAX);
        let begin = self.turn(first).max(end.saturating_sub(n));
        (begin..end).map(|turn| committee.rotate(turn))
    }

    /// What the chain up to a block says, to be written down when that block is committed at a checkpoint's height:
    /// below it nothing is kept. `None` where the policy needs nothing, or it was written down before.
    pub fn standing(&mut self, committee: &Committee, blocks: &BlockTree, id: BlockId) -> Option<&Standing> {
        if !self.looks_at_the_chain() {
            return None;
        }
        self.learn(committee, blocks, id)?;
        let standing = self.known.get(&id).filter(|standing| standing.tip.height > self.recorded)?;
        self.recorded = standing.tip.height;
        Some(standing)
    }

    /// Looks at the chain up to the committed block while its headers are here; what is settled below goes.
    pub fn keep_up(&mut self, committee: &Committee, blocks: &BlockTree, committed: BlockId) {
        if self.looks_at_the_chain() && self.learn(committee, blocks, committed).is_some() {
            let stable = self.stable;
            self.known.retain(|_, standing| standing.tip.height >= stable);
        }
    }

    /// A checkpoint is stable. To be written down is what the chain up to it says; as long as its headers are on their
    /// way, up to the block that was committed before: else the headers below would be gone after a restart.
    pub fn settle(
        &mut self,
        committee: &Committee,
        blocks: &BlockTree,
        stable: Tip,
        committed: Tip,
    ) -> Option<&Standing> {
        self.stable = stable.height;
        let is_here = self.looks_at_the_chain() && self.learn(committee, blocks, stable.id).is_some();
        self.standing(committee, blocks, if is_here { stable.id } else { committed.id })
    }
}
