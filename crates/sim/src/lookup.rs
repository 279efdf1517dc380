//! Looks at a disk as its owner would find it after a crash right now.

use crate::settings::{Cluster, Settings};
use quorate_storage::{MemDisk, Store, StoreConfig};
use quorate_types::{LogEntry, Statement};

/// How a replica's store is configured.
pub(crate) fn store_config(settings: &Settings, cluster: &Cluster) -> StoreConfig {
    StoreConfig {
        limits: cluster.genesis.bodies,
        keep_bytes: settings.keep_bytes,
        disk_bytes_max: settings.disk_bytes_max,
    }
}

/// Whether the log on a disk has this guard entry.
pub(crate) fn has_guard(disk: MemDisk, settings: &Settings, cluster: &Cluster, guard: &Statement) -> bool {
    let mut found = false;
    let opened = Store::open(disk, store_config(settings, cluster), &mut |entry| {
        found |= matches!(entry, LogEntry::Guard(statement) if statement == *guard);
    });
    opened.is_ok() && found
}
