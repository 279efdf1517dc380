//! `quorate inspect --diff`: the first difference of two states, each from a stopped node's disk or from a folder with a saved
//! state.

use super::escape::{escaped, text};
use super::inspect::node_file;
use crate::config::NodeConfig;
use crate::exit::Failure;
use crate::out;
use crate::saved_state::{SavedState, is_saved_state};
use crate::service::Service;
use quorate_app::{Differences, Execution};
use quorate_host::{StateAt, read_state};
use quorate_storage::FrozenDisk;
use quorate_storage::folder::{self, FolderGuard};
use quorate_types::Height;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Bytes of a value that are printed.
const SHOWN_BYTES_MAX: usize = 64;

/// A state to compare.
struct Side {
    path: PathBuf,
    source: Source,
    state: Execution,
}

enum Source {
    /// A backup, or a wrong state that was kept. It has one height.
    Saved,
    /// The disk of a stopped node. It has the states of some heights.
    Node(Box<NodeConfig>, FolderGuard),
}

impl Side {
    fn open(path: &Path, service: Service) -> Result<Self, Failure> {
        if is_saved_state(path) {
            let state = SavedState::open(path)?.load(service)?;
            return Ok(Self { path: path.to_owned(), source: Source::Saved, state });
        }
        let config = NodeConfig::load(&node_file(path))?;
        config.cluster.check_service(service)?;
        let folder = folder::open(&config.data_dir, &config.cluster.identity(config.id));
        let folder = folder.map_err(|error| config.error("data_dir", error.to_string()))?;
        let state = read(&config, &folder, service, StateAt::End)?;
        Ok(Self { path: path.to_owned(), source: Source::Node(Box::new(config), folder), state })
    }

    /// Goes back to the state of an earlier height, if the disk still has it.
    fn go_back(&mut self, height: Height, service: Service) {
        if let Source::Node(config, folder) = &self.source
            && self.state.height() > height
            && let Ok(state) = read(config, folder, service, StateAt::Height(height))
        {
            self.state = state;
        }
    }
}

fn read(
    config: &NodeConfig,
    folder: &FolderGuard,
    service: Service,
    at: StateAt,
) -> Result<Execution, Failure> {
    let disk = FrozenDisk::open(folder.path(), folder.salt()).map_err(Failure::run)?;
    let read = read_state(config.genesis(), service.open(), Box::new(disk), at);
    Ok(read.map_err(|fault| Failure::run(format!("{}: {fault}", config.data_dir.display())))?.0)
}

/// Compares two states, and prints the differences.
///
/// # Errors
/// Fails when a state cannot be read, and with [`Failure::No`] when the states differ.
pub(super) fn run(first: &Path, second: &Path, service: Service, wants_json: bool) -> Result<(), Failure> {
    let (mut first, mut second) = (Side::open(first, service)?, Side::open(second, service)?);
    let height = first.state.height().min(second.state.height());
    first.go_back(height, service);
    second.go_back(height, service);
    let found = first.state.differences(&mut second.state);
    if wants_json {
        out::json(&to_json(&found, [&mut first, &mut second]))?;
    } else {
        print(&found, [&mut first, &mut second])?;
    }
    if found.is_empty() { Ok(()) } else { Err(Failure::no("the states differ")) }
}

fn to_json(found: &Differences, sides: [&mut Side; 2]) -> serde_json::Value {
    let [first, second] = sides.map(|side| {
        json!({
            "path": side.path, "height": side.state.height().0, "state_digest": side.state.digest().to_string(),
            "time_ns": side.state.time_ns(),
        })
    });
    let entry = found.first_entry.as_ref().map(|entry| {
        json!({
            "key": text(&entry.key), "first": entry.first.as_deref().map(text),
            "second": entry.second.as_deref().map(text),
        })
    });
    json!({
        "equal": found.is_empty(), "first": first, "second": second, "clients_differ": found.clients,
        "sessions_differ": found.sessions, "header_differs": found.header, "chunks": found.chunks,
        "entries": found.entries, "first_entry": entry,
    })
}

fn print(found: &Differences, sides: [&mut Side; 2]) -> Result<(), Failure> {
    for (name, side) in ["first ", "second"].into_iter().zip(sides) {
        let (path, height) = (side.path.display(), side.state.height());
        out::line(format_args!("{name}  {path}: height {height}, digest {}", side.state.digest()))?;
    }
    if found.is_empty() {
        return out::line("equal");
    }
    if found.heights.is_some() {
        out::line(
            "the heights differ, because no disk has both states at one height: requests between them explain differences",
        )?;
    }
    match (&found.first_entry, found.entries) {
        (Some(entry), Some(count)) => {
            let values = [&entry.first, &entry.second].map(|value| shown(value.as_deref()));
            out::line(format_args!("{count} keys differ; the first one is \"{}\"", escaped(&entry.key)))?;
            out::line(format_args!("first   {}", values[0]))?;
            out::line(format_args!("second  {}", values[1]))?;
        }
        _ if !found.chunks.is_empty() => out::line(format_args!(
            "{} chunks of the service differ, from number {} on; the service does not name their keys (`Application::entries`)",
            found.chunks.len(),
            found.chunks.first().copied().unwrap_or_default()
        ))?,
        _ => {}
    }
    let others = [
        (found.header, "the headers of the service's snapshots differ"),
        (found.clients, "the registered keys of clients differ"),
        (found.sessions, "the sessions of clients differ"),
    ];
    for (_, line) in others.into_iter().filter(|(differs, _)| *differs) {
        out::line(line)?;
    }
    match found.times_ns {
        Some((first, second)) => {
            out::line(format_args!("the times of the service differ: {first} and {second} ns"))
        }
        None => Ok(()),
    }
}

fn shown(value: Option<&[u8]>) -> String {
    match value {
        None => "no value".to_owned(),
        Some(value) if value.len() <= SHOWN_BYTES_MAX => format!("\"{}\"", escaped(value)),
        Some(value) => {
            let start = value.get(..SHOWN_BYTES_MAX).unwrap_or_default();
            format!("\"{}\"… ({} bytes)", escaped(start), value.len())
        }
    }
}
