//! Free ports of this machine, for clusters that are tried out.

use crate::exit::Failure;
use quorate_client::config::ReplicaAddresses;
use quorate_client::keys;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Ports below the range from which the system takes ports for outgoing connections: a port from inside that
/// range can be gone when its replica starts again.
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;
/// Ports that are tried before the system is asked for any.
const TRIES: u16 = 200;

/// Distinct ports of the loopback address that nobody listens on. They are not held: whoever uses them must be
/// ready to find one taken.
///
/// # Errors
/// When there are not so many.
pub fn free(count: usize) -> io::Result<Vec<u16>> {
    let seed = keys::random_u64().map_err(|error| io::Error::other(error.to_string()))?;
    let start = u16::try_from(seed % u64::from(COUNT)).unwrap_or_default();
    let mut ports = BTreeSet::new();
    // Held until all are found, so that none is found twice.
    let mut held = Vec::new();
    for step in 0..TRIES {
        if ports.len() == count {
            break;
        }
        let port = FIRST + (start + step) % COUNT;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            ports.insert(port);
            held.push(listener);
        }
    }
    while ports.len() < count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        ports.insert(listener.local_addr()?.port());
        held.push(listener);
    }
    Ok(ports.into_iter().collect())
}

/// Addresses of this machine, for peers and for clients of n replicas, that nobody listens on.
///
/// # Errors
/// When there are not so many.
pub fn free_addresses(n: usize) -> Result<Vec<ReplicaAddresses>, Failure> {
    let ports = free(n.saturating_mul(2));
    let ports = ports.map_err(|error| Failure::run(format!("no free ports: {error}")))?;
    let address = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let pairs = ports.chunks_exact(2).filter_map(|pair| match pair {
        [peers, clients] => Some(ReplicaAddresses { peers: address(*peers), clients: address(*clients) }),
        _ => None,
    });
    Ok(pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_distinct_and_free() {
        for count in [0, 1, 8, 300] {
            let ports = free(count).unwrap();
            assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), count);
            let _held: Vec<TcpListener> = ports
                .iter()
                .filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).ok())
                .collect();
        }
    }

    #[test]
    fn a_port_in_use_is_not_offered() {
        let mut held = Vec::new();
        for _ in 0..20 {
            for port in free(4).unwrap() {
                held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
            }
        }
    }
}
