//! A proposal of Δ for a new cluster, from measurements before it runs: `quorate testnet` prints it where the protocol
//! assumes a bound on delays.
//!
//! Δ is the time from handler to handler. It contains three hops (a header, the request for its body, the answer) and the sync
//! of a disk. The proposal is twice that time, so that Δ covers a round trip that the guard measures.

use crate::exit::Failure;
use crate::sync_times;
use crate::testnet::Testnet;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of connections to each address; the slowest counts.
const TRIES: usize = 5;
/// The time after which an address without an answer is left out.
const PATIENCE: Duration = Duration::from_millis(500);
/// The proposed Δ is a multiple of this many milliseconds, and at least twice as large.
const STEP_MS: u128 = 5;

/// The measurements.
struct DelayMeasurements {
    /// The slowest round trip, with its address.
    round_trip: Option<(IpAddr, Duration)>,
    /// The longest round trip of emulated delays, which is no part of the measured one.
    emulated: Duration,
    /// The addresses without an answer.
    silent: Vec<IpAddr>,
    /// The slowest sync.
    sync: Duration,
}

/// Returns lines about the cluster's Δ, and whether each is a warning. There is none if the protocol assumes no bound.
///
/// # Errors
/// Fails when the folder cannot be written to.
pub(super) fn advice(testnet: &Testnet, dir: &Path) -> Result<Vec<(bool, String)>, Failure> {
    let cluster = &testnet.cluster;
    let Some(bound) = testnet.bound()? else {
        return Ok(Vec::new());
    };
    // Replicas on one machine have the same delays.
    let addresses: BTreeMap<IpAddr, SocketAddr> =
        cluster.replicas.iter().map(|replica| (replica.peers.ip(), replica.peers)).collect();
    let sync = sync_times::measure(dir)
        .map_err(|error| Failure::run(format!("cannot measure the disk of {}: {error}", dir.display())))?;
    let sync = sync.into_iter().max().unwrap_or_default();
    let emulated = testnet.delays().round_trip_max();
    let mut measured = DelayMeasurements { round_trip: None, emulated, silent: Vec::new(), sync };
    for (ip, address) in addresses {
        match slowest(address) {
            Some(took) if measured.round_trip.is_none_or(|(_, most)| took > most) => {
                measured.round_trip = Some((ip, took));
            }
            Some(_) => {}
            None => measured.silent.push(ip),
        }
    }
    Ok(measured.lines(bound.delta_ns))
}

impl DelayMeasurements {
    fn lines(&self, delta_ns: u64) -> Vec<(bool, String)> {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let delta = Duration::from_nanos(delta_ns);
        let round_trip = self.round_trip.map(|(_, took)| took).unwrap_or_default();
        let proposed = proposed_ms(round_trip.saturating_add(self.emulated), self.sync);
        let mut round_trip = match self.round_trip {
            Some((ip, took)) => format!("slowest round trip {:.2} ms to {ip}", ms(took)),
            None => "no round trip known".to_owned(),
        };
        if !self.emulated.is_zero() {
            round_trip.push_str(&format!(", {:.2} ms more are emulated", ms(self.emulated)));
        }
        let mut lines = vec![(
            false,
            format!(
                "delta_ms = {}, proposed {proposed}: measured from this machine: {round_trip}, slowest sync {:.2} ms",
                ms(delta),
                ms(self.sync)
            ),
        )];
        let silent: Vec<String> = self.silent.iter().map(IpAddr::to_string).collect();
        if !silent.is_empty() {
            lines.push((true, format!("no answer from {}: left out of the proposal", silent.join(", "))));
        }
        if delta.as_millis() < proposed {
            let problem = "the cluster would not be safe whenever a message takes longer";
            lines.push((
                true,
                format!(
                    "delta_ms = {} is too small for these delays: {problem}; use --set delta_ms={proposed}",
                    ms(delta)
                ),
            ));
        }
        lines
    }
}

/// Returns twice the time of three hops and a sync, in milliseconds.
fn proposed_ms(round_trip: Duration, sync: Duration) -> u128 {
    let ns = round_trip.as_nanos().saturating_mul(3).saturating_add(sync.as_nanos().saturating_mul(2));
    let steps = ns.div_ceil(STEP_MS.saturating_mul(1_000_000));
    steps.max(2).saturating_mul(STEP_MS)
}

/// Returns the slowest of a few round trips to an address; `None` if one has no answer.
fn slowest(address: SocketAddr) -> Option<Duration> {
    // The replica does not listen yet. On this machine a listener can stand in.
    let own = address.ip().is_loopback().then(|| TcpListener::bind((address.ip(), 0)).ok()).flatten();
    let address = own.as_ref().and_then(|own| own.local_addr().ok()).unwrap_or(address);
    let mut most = Duration::ZERO;
    for _ in 0..TRIES {
        let begin = Instant::now();
        if !is_answer(&TcpStream::connect_timeout(&address, PATIENCE)) {
            return None;
        }
        most = most.max(begin.elapsed());
    }
    Some(most)
}

/// Whether a machine has answered: a refused connection is an answer.
fn is_answer(connected: &io::Result<TcpStream>) -> bool {
    connected.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionRefused, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Durability, Settings};
    use crate::ports::free_addresses;
    use crate::service::Service;
    use crate::testnet::Plan;
    use quorate_client::cluster::LinkMode;
    use quorate_types::ClientAuth;

    #[test]
    fn proposal_is_twice_three_hops_and_a_sync() {
        for (round_trip_us, sync_us, proposed) in [
            (0, 0, 10),
            (2_000, 2_000, 10),
            (2_000, 2_001, 15),
            (10_000, 0, 30),
            (10_001, 0, 35),
            (100, 60_000, 125),
        ] {
            let [round_trip, sync] = [round_trip_us, sync_us].map(Duration::from_micros);
            assert_eq!(proposed_ms(round_trip, sync), proposed, "{round_trip:?}, {sync:?}");
        }
    }

    #[test]
    fn small_delta_has_a_warning() {
        let ip = IpAddr::from([10, 0, 0, 7]);
        let measured = DelayMeasurements {
            round_trip: Some((ip, Duration::from_millis(4))),
            emulated: Duration::ZERO,
            silent: vec![IpAddr::from([10, 0, 0, 8])],
            sync: Duration::from_millis(5),
        };
        let lines = measured.lines(25_000_000);
        let first = "delta_ms = 25, proposed 25: measured from this machine: slowest round trip 4.00 ms to 10.0.0.7, slowest sync 5.00 ms";
        assert_eq!(lines[0], (false, first.to_owned()));
        assert_eq!(lines[1], (true, "no answer from 10.0.0.8: left out of the proposal".to_owned()));
        assert_eq!(lines.len(), 2);
        let lines = measured.lines(20_000_000);
        assert!(lines[2].0 && lines[2].1.ends_with("--set delta_ms=25"), "{lines:?}");
        let emulated = DelayMeasurements { emulated: Duration::from_millis(200), ..measured };
        let lines = emulated.lines(25_000_000);
        assert!(lines[0].1.contains("4.00 ms to 10.0.0.7, 200.00 ms more are emulated"), "{lines:?}");
        assert!(lines[2].0 && lines[2].1.ends_with("--set delta_ms=625"), "{lines:?}");
    }

    #[test]
    fn this_machine_is_measured_without_a_listener() {
        let took = slowest("127.0.0.1:9".parse().unwrap()).unwrap();
        assert!(!took.is_zero() && took < PATIENCE);
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(is_answer(&TcpStream::connect_timeout(&closed, PATIENCE)), "refused");
        assert!(!is_answer(&Err(ErrorKind::TimedOut.into())));
    }

    #[test]
    fn delays_are_measured_only_for_protocols_with_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        for (name, set, lines) in [("pbft", &[][..], 0), ("sync-hotstuff", &["delta_ms=1"], 2)] {
            let entry = quorate_protocols::find(name).unwrap();
            let n = crate::config::replicas_or_default(None, entry);
            let plan = Plan {
                service: Service::KV,
                entry,
                addresses: free_addresses(usize::from(n)).unwrap(),
                client_auth: ClientAuth::Signature,
                links: LinkMode::Tls,
                durability: Durability::Fsync,
                allow_stop: false,
                settings: Settings {
                    set: set.iter().map(|text| text.parse().unwrap()).collect(),
                    ..Settings::default()
                },
            };
            let dir = folder.path().join(name);
            let testnet = Testnet::create(&dir, &plan).unwrap();
            assert_eq!((testnet.cluster.n(), testnet.cluster.genesis.f), (if lines > 0 { 3 } else { 4 }, 1));
            let advice = advice(&testnet, &dir).unwrap();
            assert_eq!(advice.len(), lines, "{advice:?}");
            assert_eq!(advice.iter().filter(|(warns, _)| *warns).count(), usize::from(lines > 0), "1 ms");
        }
    }
}
