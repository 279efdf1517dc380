//! Looks at a disk as its owner would find it after a crash right now.

use crate::seat::Seat;
use crate::settings::{Cluster, Settings};
use quorate_storage::{Store, StoreConfig};
use quorate_types::{LogEntry, Statement};

/// How a replica's store is configured.
pub(crate) fn store_config(settings: &Settings, cluster: &Cluster) -> StoreConfig {
    StoreConfig {
        limits: cluster.genesis.bodies,
        keep_bytes: settings.keep_bytes,
        disk_bytes_max: settings.disk_bytes_max,
    }
}

/// The guard entries that the log has, if nothing unsynced survives.
pub(crate) fn guards(seat: &Seat, settings: &Settings, cluster: &Cluster) -> Vec<Statement> {
    let mut guards = Vec::new();
    let image = seat.shared.synced_image();
    let opened = Store::open(image, store_config(settings, cluster), &mut |entry| {
        if let LogEntry::Guard(statement) = entry {
            guards.push(statement);
        }
    });
    // What cannot be opened vouches for nothing.
    opened.map_or_else(|_| Vec::new(), |_| guards)
}
