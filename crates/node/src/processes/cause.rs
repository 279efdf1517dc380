//! The cause of a child's end: the signal or the exit code, and the report of the child in its log.

use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSYS, SIGTRAP};
use signal_hook::low_level::signal_name;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

/// The number of bytes at the end of a log that are read.
const LOG_TAIL_BYTES: u64 = 16 << 10;
/// Signals that a process causes itself, so that its log may have a report.
const OWN_SIGNALS: [i32; 7] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];
/// The beginning of the line with which a command reports its failure.
const ERROR: &str = "error: ";

/// Describes the end of a child, and its cause as far as its log has it from byte `start` on.
pub(super) fn of(status: Option<ExitStatus>, log: &Path, start: u64) -> String {
    let Some(status) = status else { return "(the system reports no status)".to_owned() };
    if let Some(signal) = status.signal() {
        let name = signal_name(signal).map_or(String::new(), |name| format!(", {name}"));
        if !OWN_SIGNALS.contains(&signal) {
            let by =
                if signal == SIGKILL { ": somebody killed it, or the system ran out of memory" } else { "" };
            return format!("(signal {signal}{name}){by}");
        }
        let report = report(log, start).map_or(String::new(), |report| format!(": {report}"));
        return format!("(signal {signal}{name}){report}");
    }
    let code = status.code().map_or("unknown".to_owned(), |code| code.to_string());
    match report(log, start) {
        Some(report) => format!("(exit code {code}): {report}"),
        None => format!("(exit code {code}) without a report in {}", log.display()),
    }
}

/// Returns the report of a process about its end: its error, else its panic, else its last line.
pub(super) fn report(log: &Path, start: u64) -> Option<String> {
    let text = tail(log, start)?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if let Some(error) = lines.iter().rev().find_map(|line| line.strip_prefix(ERROR)) {
        return Some(error.to_owned());
    }
    // The next line has the text of the panic; advice on backtraces follows.
    let panic = lines.iter().rposition(|line| line.starts_with("thread ") && line.contains("panicked at"));
    if let Some(at) = panic {
        return Some(lines.iter().skip(at).take(2).copied().collect::<Vec<_>>().join(" "));
    }
    lines.last().map(|line| (*line).to_owned())
}

/// Returns the end of a file, from `start` at the earliest.
fn tail(path: &Path, start: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(start.max(length.saturating_sub(LOG_TAIL_BYTES)))).ok()?;
    let mut tail = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut tail).ok()?;
    Some(String::from_utf8_lossy(&tail).into_owned())
}
