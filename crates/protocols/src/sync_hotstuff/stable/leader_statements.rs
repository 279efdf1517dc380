//! Statements that the leader of the current view has signed.

use super::evidence::QuitEvidence;
use super::statements::{Header, LeaderStatement};
use quorate_consensus::Signed;
use quorate_types::{BlockId, Height};
use std::collections::BTreeMap;

/// All statements of the leader above the committed block, so that every conflict is noticed and can be proved (§2: store
/// every signed header of the view).
#[derive(Clone, Debug, Default)]
pub(super) struct LeaderStatements {
    /// First statement, which names the base.
    first: Option<Signed<LeaderStatement>>,
    headers: BTreeMap<Height, (BlockId, Signed<Header>)>,
    new_view: Option<Signed<LeaderStatement>>,
}

impl LeaderStatements {
    /// Returns the base of the view; `None` before the leader's first statement.
    pub(super) fn base(&self) -> Option<BlockId> {
        self.first.as_ref().map(|statement| statement.body.base())
    }

    /// Returns the NEW-VIEW of the view.
    pub(super) fn new_view(&self) -> Option<&Signed<LeaderStatement>> {
        self.new_view.as_ref()
    }

    /// Returns the header at a height.
    pub(super) fn at(&self, height: Height) -> Option<&(BlockId, Signed<Header>)> {
        self.headers.get(&height)
    }

    /// Returns headers above a height, lowest first.
    pub(super) fn above(&self, height: Height) -> impl Iterator<Item = &(BlockId, Signed<Header>)> {
        self.headers.range(height.next()..).map(|(_, header)| header)
    }

    /// Returns the highest header below a height.
    pub(super) fn below(&self, height: Height) -> Option<&(BlockId, Signed<Header>)> {
        self.headers.range(..height).next_back().map(|(_, header)| header)
    }

    /// Returns evidence if a statement conflicts with an earlier one.
    pub(super) fn conflict(&self, statement: &Signed<LeaderStatement>) -> Option<QuitEvidence> {
        let conflicts = |known: &Signed<LeaderStatement>| known.body.conflicts_with(&statement.body);
        let earlier = self.first.iter().chain(&self.new_view).find(|known| conflicts(known)).cloned();
        let found = earlier.or_else(|| {
            let near = match &statement.body {
                LeaderStatement::Header(header) => header.block.height.minus(1)..=header.block.height.next(),
                // No header is at or below the base of the view.
                LeaderStatement::NewView(_, lock) => Height::ZERO..=lock.tip.0.next(),
            };
            self.headers.range(near).map(|(_, (_, known))| LeaderStatement::of(known)).find(conflicts)
        })?;
        Some(QuitEvidence::Conflict(Box::new((found, statement.clone()))))
    }

    /// Notes a statement for the base that it names, if it is the first one.
    pub(super) fn add_base(&mut self, statement: &Signed<LeaderStatement>) {
        self.first.get_or_insert_with(|| statement.clone());
    }

    /// Notes a header without a conflict. True when it is new.
    pub(super) fn add_header(&mut self, id: BlockId, header: &Signed<Header>) -> bool {
        self.first.get_or_insert_with(|| LeaderStatement::of(header));
        let height = header.body.block.height;
        let is_new = !self.headers.contains_key(&height);
        if is_new {
            self.headers.insert(height, (id, header.clone()));
        }
        is_new
    }

    /// Notes the NEW-VIEW, which has no conflict. True when it is new.
    pub(super) fn add_new_view(&mut self, statement: &Signed<LeaderStatement>) -> bool {
        self.add_base(statement);
        let is_new = self.new_view.is_none();
        self.new_view.get_or_insert_with(|| statement.clone());
        is_new
    }

    /// Forgets headers below a settled height.
    pub(super) fn prune(&mut self, below: Height) {
        self.headers = self.headers.split_off(&below);
    }
}
