//! Golden scripts: a few commands to a small world, and below each of them what came of it, in one text file.
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
//! Commands begin at the margin ([`COMMANDS`] lists them), `#` begins a comment, what is indented is the trace: it is
//! compared with what happens, or written. A script is for reading: messages of the host are left out unless a
//! `show` names them, blocks are called A, B, … in the order in which they turn up, and time is counted in
//! milliseconds from the moment at which the world stood still for the first time.

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

/// What a script cannot be played for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
    /// What was played up to there.
    pub played: String,
}

/// Plays a script: its text again, each command with the trace that it causes. `find` knows protocols by their names.
///
/// # Errors
/// When a command makes no sense, something that was expected is not so, or an oracle finds something.
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
            (Command::World(_), Some(_)) => Err("there is a world already: one script, one world".to_owned()),
            (_, None) => Err("a script begins with its world, such as `world protocol=pbft`".to_owned()),
            (command, Some(player)) => player.carry_out(command, last),
        };
        for told in player.iter_mut().flat_map(Player::told) {
            let _ = writeln!(played, "    {told}");
        }
        result.map_err(|what| trouble(what, &played))?;
    }
    for told in player.iter_mut().flat_map(Player::rest) {
        let _ = writeln!(played, "    {told}");
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

/// Where two texts begin to differ, for people; `None` where they are the same.
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
