//! The figures of `quorate load` against a cluster behind lines of a known delay.

use crate::common::Cluster;
use crate::support::{Ran, command};
use quorate_types::ClientAuth;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The delay of a line in each direction. It is long, so that a busy machine adds little to it.
const ONE_WAY: Duration = Duration::from_millis(500);

/// Carries the bytes of one direction. Each chunk leaves [`ONE_WAY`] after its arrival.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    let (chunks, due): (_, Receiver<(Instant, Vec<u8>)>) = channel();
    std::thread::spawn(move || {
        // A message never arrives here: the wait for one is the delay.
        let (_open, never) = channel::<()>();
        for (at, bytes) in due {
            let wait = at.saturating_duration_since(Instant::now());
            assert_eq!(never.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut room = [0; 1 << 16];
        while let Ok(read) = from.read(&mut room) {
            let is_open = read > 0 && chunks.send((Instant::now() + ONE_WAY, room[..read].to_vec())).is_ok();
            if !is_open {
                break;
            }
        }
    });
}

/// Starts a line to an address. Returns its near end.
fn line(far: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(replica)) = (client, TcpStream::connect(far)) else { continue };
            client.set_nodelay(true).unwrap();
            replica.set_nodelay(true).unwrap();
            carry(client.try_clone().unwrap(), replica.try_clone().unwrap());
            carry(replica, client);
        }
    });
    near
}

/// Writes a file of the cluster whose addresses for clients are the near ends of lines.
fn behind_lines(cluster: &Cluster) -> PathBuf {
    let mut text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    for replica in &cluster.testnet.cluster.replicas {
        let far = replica.clients;
        let quoted = format!("\"{far}\"");
        assert!(text.contains(&quoted), "{text}");
        text = text.replace(&quoted, &format!("\"{}\"", line(far)));
    }
    let file = cluster.dir().join("behind-lines.toml");
    fs::write(&file, text).unwrap();
    file
}

fn load(cluster: &Cluster, file: &Path, args: &[&str]) -> Value {
    let admin = cluster.dir().join("clients/admin.key");
    let mut command = command(&["load", "--json", "--seed", "1", "--warmup", "0"]);
    let ran = Ran::of(
        command.arg("--cluster").arg(file).arg("--admin-key").arg(admin).args(args).output().unwrap(),
    );
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err))
}

#[test]
fn known_delay_is_measured_within_five_percent() {
    let cluster = Cluster::start_patient(ClientAuth::Signature);
    let file = behind_lines(&cluster);
    let said = load(&cluster, &file, &["--rate", "20", "--bundle", "1", "--clients", "32", "--seconds", "5"]);
    let number = |path: &str| said.pointer(path).and_then(Value::as_f64).unwrap();
    let round_trip = 2.0 * ONE_WAY.as_secs_f64() * 1e9;
    assert!(number("/latency_ns/p50") >= round_trip, "{said}");
    for figure in ["/latency_ns/p50", "/latency_ns/mean"] {
        assert!(number(figure) <= round_trip * 1.05, "{figure}: {said}");
    }
    // The offered load is that which was sent, and all of it was answered.
    for counted in ["/due", "/sent", "/acknowledged"] {
        assert_eq!(number(counted), 100.0, "{counted}: {said}");
    }
    assert_eq!(number("/offered"), 20.0, "{said}");
}

/// One client has few bundles in flight, so most requests are sent long after they are due.
#[test]
fn wait_of_delayed_requests_counts() {
    let cluster = Cluster::start_patient(ClientAuth::Signature);
    let file = behind_lines(&cluster);
    let said = load(&cluster, &file, &["--rate", "10", "--bundle", "1", "--clients", "1", "--seconds", "2"]);
    let number = |path: &str| said.pointer(path).and_then(Value::as_f64).unwrap();
    let round_trip = 2.0 * ONE_WAY.as_secs_f64() * 1e9;
    assert!(number("/latency_ns/max") >= 3.0 * round_trip, "{said}");
    assert_eq!((number("/due"), number("/sent"), number("/acknowledged")), (20.0, 20.0, 20.0), "{said}");
    assert_eq!(said["saturated"], true, "{said}");
}
