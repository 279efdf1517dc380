//! The tokens of commands, with errors that state the expected token.

use crate::{ms, secs};
use quorate_types::ReplicaId;

/// The remaining tokens of a command.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a>(Vec<&'a str>);

/// Returns a line without its comment and surrounding blanks.
pub(super) fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

impl<'a> Tokens<'a> {
    pub(super) fn of(line: &'a str) -> Self {
        let mut tokens: Vec<&str> = line.split_whitespace().collect();
        tokens.reverse();
        Self(tokens)
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.0.last().copied()
    }

    /// Returns the next token; `what` describes it in an error.
    pub(super) fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.pop().ok_or_else(|| format!("expected {what}, and the line ends"))
    }

    /// Consumes the next token if it is this word.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        if is_it {
            self.0.pop();
        }
        is_it
    }

    /// Consumes the next token, which has to be this word.
    pub(super) fn demand(&mut self, word: &str) -> Result<(), String> {
        match self.next(&format!("`{word}`"))? {
            next if next == word => Ok(()),
            next => Err(format!("expected `{word}`, not `{next}`")),
        }
    }

    /// Returns all remaining tokens.
    pub(super) fn rest(&mut self) -> Vec<&'a str> {
        let mut rest = std::mem::take(&mut self.0);
        rest.reverse();
        rest
    }

    /// Fails if tokens remain.
    pub(super) fn end(&self) -> Result<(), String> {
        self.peek().map_or(Ok(()), |word| Err(format!("expected the end of the line, not `{word}`")))
    }

    pub(super) fn number(&mut self, what: &str) -> Result<u64, String> {
        number(self.next(what)?, what)
    }

    /// Returns a client: `0` or `c0`.
    pub(super) fn client(&mut self) -> Result<usize, String> {
        let word = self.next("a client, such as `0`")?;
        client(word).ok_or_else(|| format!("expected a client, such as `0`, not `{word}`"))
    }

    pub(super) fn replica(&mut self) -> Result<ReplicaId, String> {
        let word = self.next("a replica, such as `1`")?;
        replica(word).ok_or_else(|| format!("expected a replica, such as `1`, not `{word}`"))
    }

    /// Returns the replicas that follow.
    pub(super) fn replicas(&mut self) -> Vec<ReplicaId> {
        let mut replicas = Vec::new();
        while let Some(id) = self.peek().and_then(replica) {
            replicas.push(id);
            self.0.pop();
        }
        replicas
    }

    /// Returns the replicas that follow: at least one.
    pub(super) fn some_replicas(&mut self) -> Result<Vec<ReplicaId>, String> {
        let first = self.replica()?;
        Ok(std::iter::once(first).chain(self.replicas()).collect())
    }

    /// Returns the replicas of `on 0 1 2`, if it follows. Empty: the condition's default.
    pub(super) fn on(&mut self) -> Result<Vec<ReplicaId>, String> {
        if self.take("on") { self.some_replicas() } else { Ok(Vec::new()) }
    }
}

pub(super) fn number<N: std::str::FromStr>(word: &str, what: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("expected {what}, not `{word}`"))
}

pub(super) fn replica(word: &str) -> Option<ReplicaId> {
    word.strip_prefix('r').unwrap_or(word).parse().ok().map(ReplicaId)
}

fn client(word: &str) -> Option<usize> {
    word.strip_prefix('c').unwrap_or(word).parse().ok()
}

/// Returns the place of a replica, or of a client as `c0`: n replicas come first, then clients.
pub(super) fn place(word: &str, n: usize) -> Option<usize> {
    match word.strip_prefix('c') {
        Some(client) => client.parse::<usize>().ok().map(|client| n.saturating_add(client)),
        None => replica(word).map(ReplicaId::index).filter(|index| *index < n),
    }
}

/// Parses a span: `5ms`, `2s`, `100us`, `0`.
pub(super) fn span(word: &str) -> Result<u64, String> {
    let units: [(&str, u64); 4] = [("ms", ms(1)), ("us", 1_000), ("ns", 1), ("s", secs(1))];
    let spelled = units.into_iter().find_map(|(unit, ns)| {
        let count: u64 = word.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(ns)
    });
    match (spelled, word) {
        (Some(ns), _) => Ok(ns),
        (None, "0") => Ok(0),
        _ => Err(format!("expected a span of time, such as `5ms` or `2s`, not `{word}`")),
    }
}
