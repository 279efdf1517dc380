//! # quorate-storage
//!
//! What a replica keeps on disk: one write-ahead log that is also the store of blocks and bodies, snapshots of
//! which only changed chunks are written, and the format of a data folder.
//!
//! * [`Store`] is what a host uses. It runs over any [`Disk`]: [`FileDisk`] are real files, [`MemDisk`] is the
//!   simulator's, with every fault as an explicit knob. The code between is the same.
//! * What was synced is never written again: each write begins on a page of its own, so no later write can tear
//!   it. A torn tail is cut off when the log is opened, damage before the tail is refused, and nothing is ever
//!   repaired by guessing.
//! * Everything here is deterministic but for [`FileDisk`] and [`folder`]: no clock, no randomness, no threads.
//! * Not here: what an entry means. Records, certificates and proofs are opaque bytes; a log outlives protocols.
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
mod index;
mod log;
mod mem_disk;
mod number;
mod page_buffer;
mod snapshot;
mod store;

pub use disk::Disk;
pub use fault::Fault;
pub use file_disk::{Durability, FileDisk, FileDiskConfig, Mode};
pub use mem_disk::{Keep, MemDisk};
pub use snapshot::{SnapshotWriter, StoredSnapshot};
pub use store::{Store, StoreConfig};

/// Bytes of a segment of the log, unless a test asks for smaller ones.
pub const SEGMENT_BYTES: u32 = 16 << 20;
/// Bytes of a page: what a write to the log is padded to, and what direct I/O asks for.
pub const PAGE_BYTES: usize = 4096;
