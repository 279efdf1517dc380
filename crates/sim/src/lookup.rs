//! Inspection of a disk as its owner would find it after a crash now.

use crate::settings::{Cluster, Settings};
use quorate_storage::{BoxedStore, MemDisk, StoreConfig};
use quorate_types::{LogEntry, Statement};

/// Returns the configuration of a replica's store.
pub(crate) fn store_config(settings: &Settings, cluster: &Cluster) -> StoreConfig {
    StoreConfig {
        limits: cluster.genesis.bodies,
        window: cluster.genesis.window,
        keep_bytes: settings.storage.keep_bytes,
        disk_bytes_max: settings.storage.disk_bytes_max,
        ..StoreConfig::default()
    }
}

/// Whether the log on a disk keeps its owner from equivocating about a statement: it has the guard's entry, or floors
/// above its slot.
pub(crate) fn binds(disk: MemDisk, settings: &Settings, cluster: &Cluster, said: &Statement) -> bool {
    let mut found = false;
    let slot = said.slot();
    let opened =
        BoxedStore::open(Box::new(disk), store_config(settings, cluster), &mut |entry| match entry {
            LogEntry::Guard(statement) => found |= statement == *said,
            LogEntry::Floors(floors) => found |= floors.is_dead(&slot),
            _ => {}
        });
    opened.is_ok() && found
}
