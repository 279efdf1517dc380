//! Facts about this machine, for the manifest.

use crate::archive::Machine;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the facts about this machine. `folder` is where clusters keep their data.
#[must_use]
pub fn facts(folder: &Path) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kilobytes =
        memory.and_then(|text| text.split(' ').next().and_then(|number| number.parse::<u64>().ok()));
    Machine {
        processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_bytes: kilobytes.unwrap_or(0).saturating_mul(1_024),
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        file_system: file_system(&read("/proc/mounts"), folder),
    }
}

/// Returns the type of the file system of a folder: that of the longest mount point above it.
fn file_system(mounts: &str, folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let found = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        folder.starts_with(point).then_some((point.len(), kind))
    });
    found.max_by_key(|(length, _)| *length).map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

/// Returns the commit of the checkout that has this program, and whether it has changes; `unknown` without a checkout.
#[must_use]
pub fn commit(exe: &Path) -> String {
    let folder = exe.parent().unwrap_or(exe);
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("-C").arg(folder).args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "HEAD"]) {
        Some(commit)
            if git(&["status", "--porcelain", "--untracked-files=no"])
                .is_some_and(|text| text.is_empty()) =>
        {
            commit
        }
        Some(commit) => format!("{commit} with changes"),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_is_that_of_the_longest_mount_point() {
        let mounts = "a / ext4 rw 0 0\nb /tmp tmpfs rw 0 0\nc /tmpfiles xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/tmp")), "tmpfs");
        assert_eq!(file_system(mounts, Path::new("/")), "ext4");
        assert_eq!(file_system("", Path::new("/")), "unknown");
    }
}
