//! `quorate machine`: the speed of this machine, measured in a few seconds, for comparisons of figures from two machines.
//!
//! Every report includes it. The floors of the project were set on a machine with SHA-256 at 1.7 GB/s and a 512-byte sync
//! of 0.14 ms. [`Scale`] translates them.

use comfy_table::{ContentArrangement, Table};
use quorate_client::keys;
use quorate_crypto::{Batch, CommitteeKeys, Scheme, SigningKey, VerifyKey, curve_backend};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::sync_times;
use quorate_types::digest::Context;
use quorate_types::{ClusterId, Committee, Digest, Epoch, Ledger, Member, ProtocolId, ReplicaId, Signature};
use serde::Serialize;
use sha2::Digest as _;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Throughput of SHA-256 on the reference machine of the floors, in GB/s.
const REFERENCE_SHA256_GB: f64 = 1.7;
/// A 512-byte write with sync on the reference machine, in milliseconds.
const REFERENCE_SYNC_MS: f64 = 0.14;
/// Number of serial syncs for which a single request waits.
const SERIAL_SYNCS: f64 = 3.0;
const BATCH: usize = 64;
const ROUNDS: usize = 5_000;
const WAKE_UPS: u64 = 500;
/// Time without work after which a thread sleeps.
const FALL_ASLEEP: Duration = Duration::from_micros(100);
/// Duration of each measurement of speed. The median of its rounds counts.
const SPAN: Duration = Duration::from_millis(300);

/// The disk to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder on the disk to measure; the command writes a file of 1 MiB there and removes it
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// The speed of a machine. Each time is for one unit of the named work.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Yardstick {
    /// SHA-256 of 1 MiB, in GB/s.
    pub sha256_gb_per_s: f64,
    /// BLAKE3 of 100 kB, in microseconds.
    pub blake3_100kb_us: f64,
    /// One Ed25519 signature, in microseconds.
    pub ed25519_sign_us: f64,
    /// Check of one signature alone, in microseconds.
    pub ed25519_check_us: f64,
    /// Check of 4 signatures of a committee's members on one message at once, as in a certificate, in microseconds.
    pub ed25519_check_4_us: f64,
    /// The same for 8 signatures.
    pub ed25519_check_8_us: f64,
    /// Check of one signature in a batch of 64 with 64 keys, in microseconds.
    pub ed25519_batch64_us: f64,
    /// The curve arithmetic in use.
    pub ed25519_path: &'static str,
    /// Median of a write of 512 bytes to an existing file with sync, in milliseconds.
    pub sync_512b_p50_ms: f64,
    /// 99th percentile of the same, in milliseconds.
    pub sync_512b_p99_ms: f64,
    /// Median of a round trip of one byte over loopback between two threads, in microseconds.
    pub loopback_round_trip_us: f64,
    /// Median of the wake-up of a sleeping thread, in microseconds.
    pub wake_up_us: f64,
    /// Factors that translate figures of the reference machine.
    pub scale: Scale,
}

/// Factors that translate the floors to this machine.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Scale {
    /// Factor of a throughput.
    pub throughput: f64,
    /// Milliseconds to add to a latency.
    pub latency_added_ms: f64,
}

impl Scale {
    /// Computes the factors from SHA-256 in GB/s and the median of a 512-byte sync in milliseconds.
    #[must_use]
    pub fn of(sha256_gb_per_s: f64, sync_ms: f64) -> Self {
        Self {
            throughput: sha256_gb_per_s / REFERENCE_SHA256_GB,
            latency_added_ms: (SERIAL_SYNCS * (sync_ms - REFERENCE_SYNC_MS)).max(0.0),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Fails when the folder cannot be written, or when the machine refuses sockets or random bytes.
pub fn run(args: &Args) -> Result<(), Failure> {
    let yardstick = measure(&args.dir)?;
    if args.json { out::json(&yardstick) } else { out::line(yardstick.table().trim_fmt()) }
}

/// Measures this machine and the disk of `dir`, in about three seconds.
///
/// # Errors
/// Fails when the folder cannot be written, or when the machine refuses sockets or random bytes.
pub fn measure(dir: &Path) -> Result<Yardstick, Failure> {
    let fail = |what: &str, error: io::Error| Failure::run(format!("cannot measure {what}: {error}"));
    let mut syncs =
        sync_times::measure(dir).map_err(|error| fail(&format!("the disk of {}", dir.display()), error))?;
    let [sync_p50, sync_p99] = [50, 99].map(|percent| percentile(&mut syncs, percent));
    let data = vec![7; 1 << 20];
    let sha256 = repeat(1, || sha2::Sha256::digest(black_box(&data)));
    let hundred: Vec<u8> = data.iter().copied().take(100_000).collect();
    let blake3 = repeat(10, || Digest::of(&Context::new("quorate yardstick"), black_box(&hundred)));
    let signatures = Signatures::new()?;
    let sha256_gb_per_s = f64::from(1u32 << 20) / 1e9 / sha256.as_secs_f64();
    Ok(Yardstick {
        sha256_gb_per_s,
        blake3_100kb_us: micros(blake3),
        ed25519_sign_us: micros(signatures.sign()),
        ed25519_check_us: micros(signatures.check()),
        ed25519_check_4_us: micros(signatures.check_certificate(4)?),
        ed25519_check_8_us: micros(signatures.check_certificate(8)?),
        ed25519_batch64_us: micros(signatures.check_batch()),
        ed25519_path: curve_backend(),
        sync_512b_p50_ms: micros(sync_p50) / 1e3,
        sync_512b_p99_ms: micros(sync_p99) / 1e3,
        loopback_round_trip_us: micros(loopback().map_err(|error| fail("loopback", error))?),
        wake_up_us: micros(wake_up()),
        scale: Scale::of(sha256_gb_per_s, micros(sync_p50) / 1e3),
    })
}

impl Yardstick {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("SHA-256 of 1 MiB", format!("{:.2} GB/s", self.sha256_gb_per_s));
        row("BLAKE3 of 100 kB", format!("{:.1} us", self.blake3_100kb_us));
        row("Ed25519: sign", format!("{:.1} us", self.ed25519_sign_us));
        row("Ed25519: check alone", format!("{:.1} us ({})", self.ed25519_check_us, self.ed25519_path));
        let certificates = format!("{:.1} and {:.1} us", self.ed25519_check_4_us, self.ed25519_check_8_us);
        row("Ed25519: check 4 and 8 at once, of a certificate", certificates);
        row("Ed25519: check in a batch of 64", format!("{:.1} us each", self.ed25519_batch64_us));
        let sync = format!("p50 {:.3} ms, p99 {:.3} ms", self.sync_512b_p50_ms, self.sync_512b_p99_ms);
        row("512-byte write with sync", sync);
        row("loopback round trip", format!("{:.1} us", self.loopback_round_trip_us));
        row("wake-up of a thread", format!("{:.1} us", self.wake_up_us));
        row("floors of throughput: multiply by", format!("{:.2}", self.scale.throughput));
        row("floors of latency: add", format!("{:.2} ms", self.scale.latency_added_ms));
        table
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the median time of one `work`, measured in rounds of `count`.
fn repeat<T>(count: u32, mut work: impl FnMut() -> T) -> Duration {
    let start = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < 3 || start.elapsed() < SPAN {
        let round = Instant::now();
        for _ in 0..count {
            black_box(work());
        }
        rounds.push(round.elapsed() / count.max(1));
    }
    percentile(&mut rounds, 50)
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let place = times.len().saturating_sub(1).saturating_mul(percent) / 100;
    times.get(place).copied().unwrap_or_default()
}

struct Signatures {
    signers: Vec<SigningKey>,
    keys: Vec<VerifyKey>,
    signatures: Vec<Signature>,
}

const MESSAGE: &[u8; 32] = b"what the yardstick has to sign..";

impl Signatures {
    fn new() -> Result<Self, Failure> {
        let signers: Result<Vec<SigningKey>, _> = (0..BATCH).map(|_| keys::generate()).collect();
        let signers = signers.map_err(Failure::run)?;
        let keys: Result<Vec<VerifyKey>, _> =
            signers.iter().map(|signer| VerifyKey::register(Scheme::Ed25519, signer.public())).collect();
        let keys = keys.map_err(Failure::run)?;
        let signatures = signers.iter().map(|signer| signer.sign(MESSAGE)).collect();
        Ok(Self { signers, keys, signatures })
    }

    fn sign(&self) -> Duration {
        let mut signers = self.signers.iter().cycle();
        repeat(64, || signers.next().map(|signer| signer.sign(MESSAGE)))
    }

    fn check(&self) -> Duration {
        let mut pairs = self.keys.iter().zip(&self.signatures).cycle();
        repeat(16, || pairs.next().map(|(key, signature)| key.verify(MESSAGE, signature)))
    }

    /// Measures the check of a certificate with so many signers, who are the whole committee.
    fn check_certificate(&self, signers: usize) -> Result<Duration, Failure> {
        let members = self.signers.iter().take(signers).map(SigningKey::public);
        let committee = Committee {
            cluster: ClusterId::ZERO,
            protocol: ProtocolId::new("yardstick"),
            epoch: Epoch(0),
            f: 0,
            members: members.map(|key| Member { sign: key, link: key }).collect(),
        };
        let keys = CommitteeKeys::new(Scheme::Ed25519, &committee).map_err(Failure::run)?;
        let claims: Vec<(ReplicaId, &Signature)> =
            (0..).map(ReplicaId).zip(&self.signatures).take(signers).collect();
        let mut ledger = Ledger::default();
        Ok(repeat(8, || {
            keys.check(claims.iter().map(|(by, signature)| (*by, MESSAGE, *signature)), &mut ledger)
        }))
    }

    fn check_batch(&self) -> Duration {
        let mut ledger = Ledger::default();
        let whole = repeat(1, || {
            let mut batch = Batch::with_capacity(BATCH);
            for (key, signature) in self.keys.iter().zip(&self.signatures) {
                batch.push(key, MESSAGE, signature);
            }
            batch.check(&mut ledger)
        });
        whole / u32::try_from(BATCH).unwrap_or(1)
    }
}

fn loopback() -> io::Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let mut times = Vec::with_capacity(ROUNDS);
    let mut byte = [1];
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        near.write_all(&byte)?;
        near.read_exact(&mut byte)?;
        times.push(begin.elapsed());
    }
    drop(near);
    // The thread ends with its connection.
    let _ = echo.join();
    Ok(percentile(&mut times, 50))
}

/// Measures the time from waking a sleeping thread until it runs.
fn wake_up() -> Duration {
    let start = Instant::now();
    let since_start = move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let (asked, woken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (theirs, answer) = (Arc::clone(&asked), Arc::clone(&woken));
    let sleeper = thread::spawn(move || {
        for round in 1..=WAKE_UPS {
            while theirs.load(Ordering::Acquire) < round {
                thread::park();
            }
            answer.store(since_start(), Ordering::Release);
        }
    });
    let mut times = Vec::new();
    for round in 1..=WAKE_UPS {
        // Wait until the other thread sleeps.
        let pause = Instant::now();
        while pause.elapsed() < FALL_ASLEEP {
            std::hint::spin_loop();
        }
        let before = woken.load(Ordering::Acquire);
        let begin = since_start();
        asked.store(round, Ordering::Release);
        sleeper.thread().unpark();
        while woken.load(Ordering::Acquire) == before {
            std::hint::spin_loop();
        }
        times.push(Duration::from_nanos(woken.load(Ordering::Acquire).saturating_sub(begin)));
    }
    // The thread has finished all rounds.
    let _ = sleeper.join();
    percentile(&mut times, 50)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn floors_scale_as_documented() {
        let same = Scale::of(1.7, 0.14);
        assert!((same.throughput - 1.0).abs() < 1e-9 && same.latency_added_ms.abs() < 1e-9);
        let slow = Scale::of(0.85, 1.14);
        assert!((slow.throughput - 0.5).abs() < 1e-9 && (slow.latency_added_ms - 3.0).abs() < 1e-9);
        assert!(Scale::of(1.7, 0.05).latency_added_ms.abs() < 1e-9, "a faster disk lowers no floor");
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let mut times: Vec<Duration> = (0..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(percentile(&mut times, 50), Duration::from_micros(50));
        assert_eq!(percentile(&mut times, 99), Duration::from_micros(99));
        assert_eq!(percentile(&mut [], 50), Duration::ZERO);
    }

    #[test]
    fn measurements_are_positive_and_leave_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let yardstick = measure(folder.path()).unwrap();
        let json = serde_json::to_value(&yardstick).unwrap();
        for (name, value) in json.as_object().unwrap().iter().filter(|(_, value)| value.is_number()) {
            assert!(value.as_f64().unwrap() > 0.0, "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(measure(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
