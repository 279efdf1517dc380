//! The trace of a script: short lines of fixed columns.

use super::rules::RuleAction;
use crate::frame::Frame;
use bytes::Bytes;
use quorate_types::wire::frame;
use quorate_types::{Digest, Kind, ReplicaId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A frame that left for one or more receivers, and its fate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ObservedFrame {
    at: Time,
    from: ReplicaId,
    to: Vec<ReplicaId>,
    kind: Kind,
    /// `v0 h2`.
    place: String,
    subject: Option<Digest>,
    is_protocol: bool,
    pub(super) act: Option<RuleAction>,
    body: Bytes,
}

impl ObservedFrame {
    pub(super) fn of(at: Time, frame: &Frame, act: Option<RuleAction>) -> Self {
        let (content, is_protocol) = (&frame.content, frame.frame_type == frame::PROTOCOL);
        let view = is_protocol.then(|| format!("v{}", content.view));
        let height = (content.height.0 > 0).then(|| format!("h{}", content.height));
        // A statement about a view alone names no block.
        let subject = height.as_ref().and(content.statement).map(|statement| statement.subject);
        Self {
            at,
            from: frame.from,
            to: vec![frame.to],
            kind: content.kind,
            place: view.into_iter().chain(height).collect::<Vec<_>>().join(" "),
            subject: subject.filter(|subject| !subject.is_zero()),
            is_protocol,
            act,
            body: frame.body.clone(),
        }
    }

    /// Returns a held frame at its release.
    pub(super) fn released(self, at: Time) -> Self {
        Self { at, act: None, ..self }
    }

    /// Merges the same frame to another receiver into this line. Returns whether it did.
    pub(super) fn joins(&mut self, next: &Self) -> bool {
        let is_same = Self { to: Vec::new(), ..self.clone() } == Self { to: Vec::new(), ..next.clone() };
        if is_same {
            self.to.extend(&next.to);
            self.to.sort_unstable();
        }
        is_same
    }
}

/// The lines of a script's trace.
#[derive(Debug)]
pub(super) struct ScriptTrace {
    n: usize,
    zero: Time,
    /// Kinds that the script shows or hides.
    shown: BTreeSet<String>,
    hidden: BTreeSet<String>,
    /// Letters of blocks and other subjects.
    names: BTreeMap<Digest, String>,
    lines: Vec<(Time, String)>,
}

impl ScriptTrace {
    /// Creates a trace. `hidden`: kinds that belong to no block are shown on request only.
    pub(super) fn new(n: usize, zero: Time, hidden: &[Kind]) -> Self {
        Self {
            n,
            zero,
            shown: BTreeSet::new(),
            hidden: hidden.iter().map(ToString::to_string).collect(),
            names: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    pub(super) fn show(&mut self, kind: &str) {
        self.hidden.remove(kind);
        self.shown.insert(kind.to_owned());
    }

    pub(super) fn hide(&mut self, kind: &str) {
        self.shown.remove(kind);
        self.hidden.insert(kind.to_owned());
    }

    fn wants(&self, kind: &str, is_usual: bool) -> bool {
        self.shown.contains(kind) || (is_usual && !self.hidden.contains(kind))
    }

    /// Writes an event.
    pub(super) fn happens(&mut self, at: Time, who: &str, what: &str, details: &str) {
        let since = at.since(self.zero) / 1_000;
        let line = format!("{:>4}.{:03}  {who:<3} {what:<13} {details}", since / 1_000, since % 1_000);
        self.lines.push((at, line.trim_end().to_owned()));
    }

    /// Writes a frame that a replica sends.
    pub(super) fn sends(&mut self, seen: &ObservedFrame) {
        if !self.wants(seen.kind.as_str(), seen.is_protocol) {
            return;
        }
        let to: Vec<String> = seen.to.iter().map(|id| format!("r{id}")).collect();
        let to = if to.len().saturating_add(1) == self.n { "all".to_owned() } else { to.join(" ") };
        let (arrow, note) = match seen.act {
            None => ("->", String::new()),
            Some(RuleAction::Drop) => ("-x", "lost".to_owned()),
            Some(RuleAction::Hold) => ("-|", "held".to_owned()),
            Some(RuleAction::Delay(span)) => {
                ("->", format!("late by {}.{:03}", span / 1_000_000, span / 1_000 % 1_000))
            }
        };
        let name = seen.subject.map(|subject| self.name(subject)).unwrap_or_default();
        let details = format!("{:<16} {:<7} {name:<3} {note}", seen.kind.as_str(), seen.place);
        self.happens(seen.at, &format!("r{}", seen.from), &format!("{arrow} {to}"), &details);
    }

    /// Writes a reply to a client.
    pub(super) fn replies(&mut self, at: Time, from: ReplicaId, client: usize, what: &str) {
        if self.wants("reply", true) {
            self.happens(at, &format!("r{from}"), &format!("-> c{client}"), what);
        }
    }

    /// Returns the letter of a digest. A new digest gets the next letter.
    fn name(&mut self, subject: Digest) -> String {
        let count = self.names.len();
        let name = self.names.entry(subject).or_insert_with(|| {
            let letter = ('A'..='Z').nth(count % 26).unwrap_or('?');
            if count < 26 { letter.to_string() } else { format!("{letter}{}", count / 26) }
        });
        name.clone()
    }

    /// Removes and returns the lines up to a moment, in the order of time.
    pub(super) fn take_lines(&mut self, until: Time) -> Vec<String> {
        self.lines.sort_by_key(|(at, _)| *at);
        let later = self.lines.partition_point(|(at, _)| *at <= until);
        let rest = self.lines.split_off(later);
        std::mem::replace(&mut self.lines, rest).into_iter().map(|(_, line)| line).collect()
    }
}
