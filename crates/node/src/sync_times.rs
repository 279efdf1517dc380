//! Measurement of small synced writes: the time that a promise waits for the disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of writes.
const WRITES: u64 = 1_000;
/// The time after which fewer writes are enough: the disk is slow.
const SPAN_MAX: Duration = Duration::from_secs(3);

/// Measures 512-byte writes with a sync on the disk of `dir`, and returns the time of each. Removes its file of 1 MiB.
///
/// # Errors
/// Fails when the folder cannot be written to.
pub fn measure(dir: &Path) -> io::Result<Vec<Duration>> {
    let path = dir.join(format!(".quorate-machine-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let times = write_and_sync(&file);
    drop(file);
    fs::remove_file(&path)?;
    times
}

/// Measures the writes. The file does not grow meanwhile.
fn write_and_sync(file: &File) -> io::Result<Vec<Duration>> {
    file.write_all_at(&vec![0; 1 << 20], 0)?;
    file.sync_all()?;
    let mut times = Vec::new();
    let block = [7; 512];
    let start = Instant::now();
    for at in 0..WRITES {
        let begin = Instant::now();
        file.write_all_at(&block, (at * 512) % (1 << 20))?;
        file.sync_data()?;
        times.push(begin.elapsed());
        if start.elapsed() > SPAN_MAX {
            break;
        }
    }
    Ok(times)
}
