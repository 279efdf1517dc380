//! Golden scripts: a few commands to a small world, each followed by its trace, in one text file.
//!
//! ```text
//! # The good case.
//! world protocol=echo n=4 delay=1ms
//!        0.000  all stand         v0 h1
//! client 0 put k v
//!        0.000  c0  asks          put k v
//! run until answered
//!        1.000  r0  -> all        propose          v0 h2   A
//! ```
//!
//! Commands begin at the margin; [`COMMANDS`] lists them. `#` begins a comment. Indented lines are the trace, which
//! is compared or rewritten.
//!
//! A script is for reading. Host messages are left out unless a `show` names them. Blocks are called A, B, … in the
//! order of their first appearance. Time is counted in milliseconds from the first moment at which the world stood
//! still.

mod command;
mod expect;
mod observer;
mod player;
mod rules;
mod script_trace;
#[cfg(test)]
mod tests;
mod tokens;

pub use command::COMMANDS;

use command::Command;
use player::Player;
use quorate_consensus::Entry;
use std::fmt::Write as _;

/// An error of a script.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    /// The line, counted from 1.
    pub line: usize,
    /// A description of the error.
    pub what: String,
    /// The text that was played up to there.
    pub played: String,
}

/// Plays a script. Returns its text with the trace that each command causes. `find` finds protocols by name.
///
/// # Errors
/// Returns an error when a command is malformed, a condition does not hold, or an oracle fires.
pub fn play(text: &str, find: &dyn Fn(&str) -> Option<Entry>) -> Result<String, ScriptError> {
    let mut played = String::new();
    let mut player: Option<Player> = None;
    let mut last = 0;
    for (index, line) in text.lines().enumerate() {
        last = index.saturating_add(1);
        if line.starts_with([' ', '\t']) {
            continue; // Of the trace that is made anew.
        }
        let trouble =
            |what: String, played: &str| ScriptError { line: last, what, played: played.to_owned() };
        let command = tokens::without_comment(line);
        if command.is_empty() {
            let _ = writeln!(played, "{}", line.trim_end());
            continue;
        }
        let _ = writeln!(played, "{}", line.trim_end());
        let command = Command::parse(command).map_err(|what| trouble(what, &played))?;
        let result = match (command, &mut player) {
            (Command::World(settings), None) => {
                settings.open(find).and_then(Player::new).map(|new| player = Some(new))
            }
            (Command::World(_), Some(_)) => Err("there is already a world: a script has only one".to_owned()),
            (_, None) => Err("a script begins with its world, such as `world protocol=pbft`".to_owned()),
            (command, Some(player)) => player.carry_out(command, last),
        };
        for line in player.iter_mut().flat_map(Player::take_lines) {
            let _ = writeln!(played, "    {line}");
        }
        result.map_err(|what| trouble(what, &played))?;
    }
    for line in player.iter_mut().flat_map(Player::rest) {
        let _ = writeln!(played, "    {line}");
    }
    let done = match &player {
        Some(player) => player.check_rules(),
        None => {
            Err((last.max(1), "a script begins with its world, such as `world protocol=pbft`".to_owned()))
        }
    };
    done.map_err(|(line, what)| ScriptError { line, what, played: played.clone() })?;
    Ok(played)
}

/// Returns the first difference between two texts, for people; `None` where they are equal.
#[must_use]
pub fn first_difference(written: &str, played: &str) -> Option<String> {
    let (mut old, mut new) = (written.lines(), played.lines());
    let mut number: usize = 0;
    loop {
        number = number.saturating_add(1);
        match (old.next(), new.next()) {
            (None, None) => return None,
            (old, new) if old == new => {}
            (old, new) => {
                let shown = |line: Option<&str>| line.map_or("(the end)".to_owned(), str::to_owned);
                return Some(format!("line {number}\n  written: {}\n  played:  {}", shown(old), shown(new)));
            }
        }
    }
}
