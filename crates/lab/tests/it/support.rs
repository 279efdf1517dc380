//! The program, run as its users run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The output and the exit code of a command.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Checks for exit code 2 and a single line that contains all parts.
    pub fn refuses(&self, case: &str, parts: &[&str]) {
        self.ends_with(2, case, parts);
    }

    /// Checks for exit code 1 and a single line that contains all parts.
    pub fn fails(&self, case: &str, parts: &[&str]) {
        self.ends_with(1, case, parts);
    }

    fn ends_with(&self, code: i32, case: &str, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{case}: {} {}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{case}: {}", self.err);
        assert!(self.err.starts_with("error: "), "{case}: {}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "{case}: expected {part:?} in {}", self.err);
        }
    }
}

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(args);
    command
}

pub fn quorate(args: &[&str]) -> Ran {
    Ran::of(command(args).output().unwrap())
}

/// The files of a cluster, created by `quorate testnet`.
pub struct Cluster {
    folder: TempDir,
}

impl Cluster {
    pub fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Self { folder };
        let made = quorate(&[&["testnet", "--out", cluster.path("").to_str().unwrap()], more].concat());
        assert_eq!(made.code, Some(0), "{}", made.err);
        cluster
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("cluster").join(name)
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs replica 0, which is expected to refuse.
    pub fn start(&self) -> Ran {
        self.start_node("node0/node.toml")
    }

    pub fn start_node(&self, name: &str) -> Ran {
        quorate(&["node", "--config", self.path(name).to_str().unwrap()])
    }

    /// Replaces a file while `check` runs.
    pub fn with_text<T>(&self, name: &str, text: &str, check: impl FnOnce() -> T) -> T {
        let before = self.text(name);
        fs::write(self.path(name), text).unwrap();
        let result = check();
        fs::write(self.path(name), before).unwrap();
        result
    }

    /// Replaces a part of a file while `check` runs.
    pub fn with_change<T>(&self, name: &str, from: &str, to: &str, check: impl FnOnce() -> T) -> T {
        let text = self.text(name);
        assert!(text.contains(from), "{from} is not in {name}");
        self.with_text(name, &text.replacen(from, to, 1), check)
    }
}

/// Returns `file:line: `, the beginning of an error at a place.
pub fn place(file: &Path, line: usize) -> String {
    format!("{}:{line}: ", file.display())
}
