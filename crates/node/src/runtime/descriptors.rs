//! The number of client connections that this process has descriptors for.
//!
//! Strangers can open as many connections as we let them. Were there no descriptor left, replicas could not
//! come in either, and the disk could not open the next file: the node would stop.

use quorate_net::reactor::NetConfig;
use quorate_types::limits::CLIENT_CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for log, snapshots, streams, and whatever the application opens.
const FILES: usize = 128;
/// With fewer connections than this a node is of no use.
const CONNECTIONS_MIN: usize = 16;

/// Raises the limit on descriptors as far as the system lets us, and says how many connections of clients fit.
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

/// The limit after it was raised; `None` when there is none.
fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where the system refuses, the limit stays what it was.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_not_given_to_clients() {
        assert_eq!(fit(None, 500), CLIENT_CONNECTIONS_MAX);
        assert_eq!(fit(Some(1 << 20), 500), CLIENT_CONNECTIONS_MAX);
        assert_eq!(fit(Some(1_024), 500), 524);
        assert_eq!(fit(Some(100), 500), CONNECTIONS_MIN);
    }
}
