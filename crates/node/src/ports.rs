//! Free ports of this machine, for local clusters.

use crate::exit::Failure;
use quorate_client::config::ReplicaAddresses;
use quorate_client::keys;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// The first of the ports to try. They are below the range from which the system takes ports for outgoing connections: a
/// port in that range may be in use when its replica starts again.
const FIRST: u16 = 10_000;
/// The number of ports to choose from.
const COUNT: u16 = 20_000;
/// The number of ports to try before the system chooses.
const TRIES: u16 = 200;

/// Returns distinct ports of the loopback address without a listener. They are not reserved: another program may use one
/// before the caller does.
///
/// # Errors
/// Fails when there are not enough.
pub fn free(count: usize) -> io::Result<Vec<u16>> {
    let seed = keys::random_u64().map_err(|error| io::Error::other(error.to_string()))?;
    let start = u16::try_from(seed % u64::from(COUNT)).unwrap_or_default();
    let mut ports = BTreeSet::new();
    // Listeners stay open until all ports are found, so that no port is found twice.
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

/// Returns addresses of this machine without a listener, for peers and for clients of n replicas.
///
/// # Errors
/// Fails when there are not enough.
pub fn free_addresses(n: usize) -> Result<Vec<ReplicaAddresses>, Failure> {
    let ports = free(n.saturating_mul(2));
    let ports =
        ports.map_err(|error| Failure::run(format!("no free ports: {error}; stop other programs")))?;
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
    fn port_in_use_is_not_returned() {
        let mut held = Vec::new();
        for _ in 0..20 {
            for port in free(4).unwrap() {
                held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
            }
        }
    }
}
