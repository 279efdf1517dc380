//! Conditions that a script demands beside its trace.

use super::tokens::Tokens;
use crate::world::World;
use quorate_types::{Height, ReplicaId, View};

/// A condition.
#[derive(Clone, Debug)]
pub(super) enum Expect {
    Height(Height, Vec<ReplicaId>),
    View(View, Vec<ReplicaId>),
    Stable(Height, Vec<ReplicaId>),
    Running(Vec<ReplicaId>),
    Down(Vec<ReplicaId>),
    Answered(u64),
    Waiting(u64),
    Sent(String, u64),
    Refused(u64),
}

impl Expect {
    pub(super) fn parse(tokens: &mut Tokens<'_>) -> Result<Self, String> {
        const KNOWN: &str = "height, view, stable, running, down, answered, waiting, sent or refused";
        Ok(match tokens.next(KNOWN)? {
            "height" => Self::Height(Height(tokens.number("a height")?), tokens.on()?),
            "view" => Self::View(View(tokens.number("a view")?), tokens.on()?),
            "stable" => Self::Stable(Height(tokens.number("a height")?), tokens.on()?),
            "running" => Self::Running(tokens.some_replicas()?),
            "down" => Self::Down(tokens.some_replicas()?),
            "answered" => Self::Answered(tokens.number("a number of operations")?),
            "waiting" => Self::Waiting(tokens.number("a number of operations")?),
            "sent" => {
                let kind = tokens.next("a kind of messages, such as `commit`")?.to_owned();
                Self::Sent(kind, tokens.number("a number of messages")?)
            }
            "refused" => Self::Refused(tokens.number("a number of messages")?),
            other => return Err(format!("expected {KNOWN}, not `{other}`")),
        })
    }

    /// # Errors
    /// Returns an error with the expected and the found value. `sent` returns the number of messages of a kind since
    /// the script began, and `refused` is the number of refused messages.
    pub(super) fn check(
        &self,
        world: &World,
        sent: impl Fn(&str) -> u64,
        refused: u64,
    ) -> Result<(), String> {
        match self {
            Self::Height(height, on) => each(world, on, "height", *height, |id| Some(world.executed(id))),
            Self::View(view, on) => {
                each(world, on, "view", *view, |id| world.status(id).map(|status| status.view))
            }
            Self::Stable(height, on) => each(world, on, "stable checkpoint", *height, |id| {
                world.status(id).map(|status| status.stable)
            }),
            Self::Running(ids) => match ids.iter().find(|id| !world.is_running(**id)) {
                Some(id) => Err(format!("expected replica {id} to run, and it is down")),
                None => Ok(()),
            },
            Self::Down(ids) => match ids.iter().find(|id| world.is_running(**id)) {
                Some(id) => Err(format!("expected replica {id} to be down, and it runs")),
                None => Ok(()),
            },
            Self::Answered(count) => equal("answered operations", *count, answered(world)),
            Self::Waiting(count) => {
                let all = u64::try_from(world.history().records().len()).unwrap_or(u64::MAX);
                equal("operations without an answer", *count, all.saturating_sub(answered(world)))
            }
            Self::Sent(kind, count) => equal(&format!("messages `{kind}`"), *count, sent(kind)),
            Self::Refused(count) => equal("refused messages", *count, refused),
        }
    }
}

fn answered(world: &World) -> u64 {
    u64::try_from(world.history().answered()).unwrap_or(u64::MAX)
}

fn equal(what: &str, expected: u64, found: u64) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("expected {expected} {what}, found {found}")) }
}

/// Returns the named replicas, or all running honest ones.
pub(super) fn meant(world: &World, named: &[ReplicaId]) -> Vec<ReplicaId> {
    if named.is_empty() {
        return world.honest().filter(|id| world.is_running(*id)).collect();
    }
    named.to_vec()
}

fn each<T: PartialEq + std::fmt::Display>(
    world: &World,
    on: &[ReplicaId],
    what: &str,
    expected: T,
    found: impl Fn(ReplicaId) -> Option<T>,
) -> Result<(), String> {
    for id in meant(world, on) {
        match found(id) {
            Some(found) if found == expected => {}
            Some(found) => return Err(format!("expected {what} {expected} on replica {id}, found {found}")),
            None => return Err(format!("expected {what} {expected} on replica {id}, which does not run")),
        }
    }
    Ok(())
}
