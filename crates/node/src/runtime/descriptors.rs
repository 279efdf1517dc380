//! The number of client connections that this process has descriptors for.
//!
//! Strangers open as many connections as the node accepts. Without a free descriptor replicas could not connect either, and
//! the disk could not open the next file: the node would stop.

use quorate_net::reactor::NetConfig;
use quorate_types::limits::CLIENT_CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for log, snapshots, streams, and the files of the application.
const FILES: usize = 128;
/// The smallest number of client connections of a node.
const CONNECTIONS_MIN: usize = 16;

/// Raises the limit on descriptors as far as the system allows. Returns the number of client connections that fit.
pub(super) fn client_connections_max(config: &NetConfig) -> usize {
    let limit = raise();
    let reserved = FILES.saturating_add(config.descriptors_beside_clients());
    let fit = fit(limit, reserved);
    if fit < CLIENT_CONNECTIONS_MAX {
        let limit = limit.unwrap_or_default();
        tracing::warn!(
            "the limit on open files is {limit}: {fit} connections of clients fit; raise it (ulimit -n) to {} for {CLIENT_CONNECTIONS_MAX}",
            reserved.saturating_add(CLIENT_CONNECTIONS_MAX)
        );
    }
    fit
}

fn fit(limit: Option<u64>, reserved: usize) -> usize {
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    limit.saturating_sub(reserved).clamp(CONNECTIONS_MIN, CLIENT_CONNECTIONS_MAX)
}

/// Raises the limit and returns it; `None` if the system has none.
fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If the system refuses, the limit stays the same.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_do_not_get_reserved_descriptors() {
        assert_eq!(fit(None, 500), CLIENT_CONNECTIONS_MAX);
        assert_eq!(fit(Some(1 << 20), 500), CLIENT_CONNECTIONS_MAX);
        assert_eq!(fit(Some(1_024), 500), 524);
        assert_eq!(fit(Some(100), 500), CONNECTIONS_MIN);
    }
}
