//! # quorate-storage
//!
//! The disk state of a replica: a write-ahead log, snapshots, and the format of a data folder. The log is also the
//! store of blocks and bodies. A snapshot writes only changed chunks.
//!
//! * [`Store`] is the interface for a host. It runs over any [`Disk`]: [`FileDisk`] has real files, [`MemDisk`] is the
//!   simulator's and has a method for every fault. The code between is the same.
//! * Synced data is never written again. Each write begins on a page of its own, so no later write can tear it.
//! * Opening a log cuts a torn tail off and refuses damage before the tail. It never repairs by guessing.
//! * All code but [`FileDisk`] and [`folder`] is deterministic: it has no clock, no randomness and no threads.
//! * Not here: the meaning of entries. Records, certificates and proofs are opaque bytes, because a log outlives
//!   protocols.
//!
//! ```
//! use quorate_storage::{MemDisk, Store, StoreConfig};
//! use quorate_types::{LogEntry, Mark};
//!
//! let disk = MemDisk::new(2 << 20, 4096);
//! let mut store = Store::open(disk, StoreConfig::default(), &mut |_| {}).unwrap();
//! store.append(Mark(1), &LogEntry::Record(b"voted in view 7".as_slice().into())).unwrap();
//! assert_eq!(store.durable(), Mark(0));
//! assert_eq!(store.write_and_sync().unwrap(), Mark(1));
//!
//! let mut entries = Vec::new();
//! Store::open(store.into_disk(), StoreConfig::default(), &mut |entry| entries.push(entry)).unwrap();
//! assert_eq!(entries, [LogEntry::Record(b"voted in view 7".as_slice().into())]);
//! ```

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod disk;
mod entry;
mod fault;
mod file_disk;
pub mod folder;
mod frozen_disk;
mod index;
mod log;
mod mem_disk;
mod number;
mod page_buffer;
mod snapshot;
mod snapshot_reader;
mod store;

pub use disk::Disk;
pub use fault::Fault;
pub use file_disk::{Durability, FileDisk, FileDiskConfig, Mode};
pub use frozen_disk::FrozenDisk;
pub use mem_disk::{Keep, MemDisk};
pub use snapshot::{SnapshotWriter, StoredSnapshot};
pub use snapshot_reader::SnapshotReader;
pub use store::{BoxedStore, Store, StoreConfig};

/// The number of bytes of a segment of the log. Tests may use smaller segments.
pub const SEGMENT_BYTES: u32 = 16 << 20;
/// The number of bytes of a page. Writes to the log are padded to it, and direct I/O needs it.
pub const PAGE_BYTES: usize = 4096;
