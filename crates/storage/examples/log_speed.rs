//! Measures the cost of one append with its sync on this machine, by size, with direct I/O and with the page cache.
//! Command: `cargo run --release -p quorate-storage --example log_speed [FOLDER]`.

use quorate_storage::folder::{self, Identity};
use quorate_storage::{FileDisk, FileDiskConfig, Mode, Store, StoreConfig};
use quorate_types::{ClusterId, LogEntry, Mark, ProtocolId, ReplicaId};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(parent)?;
    println!(
        "append + sync in microseconds, p50 / p99; with segments filled before (in brackets: only reserved)\n"
    );
    println!("{:>10} {:>24} {:>24}", "bytes", "direct", "buffered");
    for (bytes, rounds) in [(512, 3_000), (4 << 10, 3_000), (64 << 10, 800), (1 << 20, 100)] {
        let mut cells = Vec::new();
        for direct in [true, false] {
            let filled = measure(folder.path(), direct, 16, bytes, rounds)?;
            let reserved = measure(folder.path(), direct, 0, bytes, rounds)?;
            cells.push(format!("{filled} ({reserved})"));
        }
        println!("{bytes:>10} {:>24} {:>24}", cells.remove(0), cells.remove(0));
    }
    Ok(())
}

fn measure(
    parent: &Path,
    direct: bool,
    segments: u64,
    bytes: usize,
    rounds: u64,
) -> Result<String, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(parent)?;
    let identity =
        Identity { cluster: ClusterId::ZERO, replica: ReplicaId(0), protocol: ProtocolId::new("echo") };
    folder::format(folder.path(), &identity, 1)?;
    let prepared_bytes = segments << 24;
    let config = FileDiskConfig { direct, prepared_bytes, ..FileDiskConfig::default() };
    let disk = FileDisk::open(folder.path(), config)?;
    let mut store = Store::open(disk, StoreConfig::default(), &mut |_| {})?;
    let entry = LogEntry::Record(vec![7; bytes].into());
    let mut times = Vec::new();
    for mark in 1..=rounds {
        let began = Instant::now();
        store.append(Mark(mark), &entry)?;
        store.write_and_sync()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let at = |share: usize| {
        let index = times.len().saturating_mul(share) / 100;
        times.get(index).copied().unwrap_or(Duration::ZERO).as_micros()
    };
    let star = if direct && store.disk().mode() == Mode::Buffered { "*" } else { "" };
    Ok(format!("{}/{}{star}", at(50), at(99)))
}
