//! The rules of a script about messages between replicas.

use super::tokens::Tokens;
use crate::frame::{Frame, Verdict};
use quorate_types::ReplicaId;

/// The action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RuleAction {
    Drop,
    Hold,
    Delay(u64),
}

/// A rule of a script.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) act: RuleAction,
    /// Senders; empty: all.
    from: Vec<ReplicaId>,
    /// Receivers; empty: all.
    to: Vec<ReplicaId>,
    /// Kinds; empty: all.
    kinds: Vec<String>,
}

impl Rule {
    pub(super) fn parse(act: RuleAction, tokens: &mut Tokens<'_>) -> Result<Self, String> {
        let who = |tokens: &mut Tokens<'_>| {
            if tokens.take("*") { Ok(Vec::new()) } else { tokens.some_replicas() }
        };
        let from = who(tokens)?;
        tokens.demand("->")?;
        let to = who(tokens)?;
        Ok(Self { act, from, to, kinds: tokens.rest().into_iter().map(str::to_owned).collect() })
    }

    /// Returns the replicas that the rule names.
    pub(super) fn names(&self) -> Vec<ReplicaId> {
        self.from.iter().chain(&self.to).copied().collect()
    }

    fn covers(&self, frame: &Frame) -> bool {
        let has = |ids: &[ReplicaId], id| ids.is_empty() || ids.contains(&id);
        let kind = frame.content.kind.as_str();
        has(&self.from, frame.from)
            && has(&self.to, frame.to)
            && (self.kinds.is_empty() || self.kinds.iter().any(|known| known == kind))
    }
}

/// All rules of a script, including ended ones.
#[derive(Default, Debug)]
pub(super) struct Rules(Vec<ActiveRule>);

#[derive(Debug)]
struct ActiveRule {
    rule: Rule,
    line: usize,
    /// Whether the rule has ever applied.
    has_acted: bool,
    is_over: bool,
}

impl Rules {
    pub(super) fn add(&mut self, rule: Rule, line: usize) {
        self.0.push(ActiveRule { rule, line, has_acted: false, is_over: false });
    }

    /// Returns the action for a frame: that of the first rule that covers it.
    pub(super) fn judge(&mut self, frame: &Frame) -> Option<RuleAction> {
        let made = self.0.iter_mut().find(|made| !made.is_over && made.rule.covers(frame))?;
        made.has_acted = true;
        Some(made.rule.act)
    }

    /// Ends the rules that hold messages, or all others.
    pub(super) fn end(&mut self, holds: bool) {
        for made in &mut self.0 {
            made.is_over |= (made.rule.act == RuleAction::Hold) == holds;
        }
    }

    /// Returns the line of a rule that never applied, which is a mistake in the script.
    pub(super) fn idle(&self) -> Option<usize> {
        self.0.iter().find(|made| !made.has_acted).map(|made| made.line)
    }
}

impl From<RuleAction> for Verdict {
    fn from(act: RuleAction) -> Self {
        match act {
            RuleAction::Drop => Self::Drop,
            RuleAction::Hold => Self::Hold,
            RuleAction::Delay(span) => Self::Delay(span),
        }
    }
}
