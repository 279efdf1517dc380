//! # quorate-app
//!
//! The parts of a replicated service: the [`Application`] trait, the [`BucketMap`] from which applications are built,
//! [`MapApplication`] for applications whose whole state is such a map, [`Execution`] (sessions and application under one
//! digest and one snapshot), and the key-value store [`Kv`].
//!
//! The crate is pure: it has no I/O, no clock and no randomness. An application is written against this crate alone.
//!
//! * Not here: the order of blocks (`quorate-replica`), the files of snapshots (`quorate-storage`), and the counting of
//!   replies (`quorate-client`).
//! * Equal inputs in equal order give equal states, digests, replies and evictions at every replica.
//! * A bundle that is ordered twice changes the state once.
//!
//! ```
//! use quorate_app::{Application, At, Kv, KvOp, KvResult};
//! use quorate_types::Wire;
//!
//! let mut store = Kv::new();
//! let mut reply = Vec::new();
//! store.apply(&At::default(), &KvOp::Increment { key: b"hits", by: 2 }.to_bytes(), &mut reply);
//! assert_eq!(KvResult::from_bytes(&reply), Ok(KvResult::Number(2)));
//! ```

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod application;
mod bucket_map;
mod buckets;
mod difference;
mod execution;
mod kv;
mod map_application;
mod panics;
mod sessions;
mod snapshot;
mod window;

pub use application::{Application, At};
pub use bucket_map::BucketMap;
pub use difference::{Differences, DifferentEntry};
pub use execution::{Execution, WrongApplication};
pub use kv::{
    ECHO_BYTES_MAX, KEY_BYTES_MAX, Kv, KvError, KvOp, KvResult, KvRules, SCAN_ENTRIES_MAX, may_ask_again,
    prefix_end, successor,
};
pub use map_application::{MapApplication, OnMap};
pub use panics::{APPLICATION_PANIC, panic_text};
pub use sessions::{KeptOutcome, SessionView};
pub use snapshot::{Chunk, RestoreError, Snapshot};
