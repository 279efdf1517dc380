//! Looks at a disk as its owner would find it after a crash right now.

use crate::frame::Content;
use crate::seat::Seat;
use crate::settings::{Cluster, Settings};
use quorate_storage::{Store, StoreConfig};
use quorate_types::LogEntry;

/// How a replica's store is configured.
pub(crate) fn store_config(settings: &Settings, cluster: &Cluster) -> StoreConfig {
    StoreConfig {
        limits: cluster.genesis.bodies,
        keep_bytes: settings.keep_bytes,
        disk_bytes_max: settings.disk_bytes_max,
    }
}

/// Whether the log has the guard entry of what is said, if nothing unsynced survived.
pub(crate) fn has_guard(seat: &Seat, settings: &Settings, cluster: &Cluster, content: &Content) -> bool {
    let mut found = false;
    let image = seat.shared.synced_image();
    let opened = Store::open(image, store_config(settings, cluster), &mut |entry| {
        if let LogEntry::Guard(statement) = entry {
            found |= Some(statement) == content.statement;
        }
    });
    opened.is_ok() && found
}
