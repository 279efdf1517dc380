//! # quorate-client
//!
//! Clients of a cluster: they send operations in signed bundles and accept a result when f + 1 replicas
//! report it.
//!
//! * [`core`]: one client as a pure state machine; the simulator runs it too. All rules are in this module.
//! * [`driver`]: many clients over one connection to each replica on the caller's thread ([`ClientPool`]), and
//!   one client with blocking calls ([`Client`]).
//! * `asynchronous`: the same core inside tokio (`AsyncClient`), with the feature `async`, which is on by default.
//! * [`ClusterInfo::read`] and [`keys`]: the cluster's file and the client's key file; [`config`] reads files field by field.
//!
//! * [`order`]: the verification of proofs of order.
//!
//! A client does not know which service a cluster runs, nor what an operation means. Only [`order`] asks which protocol it runs.
//!
//! ```no_run
//! use quorate_client::{Client, ClusterInfo, Options, keys};
//! use std::path::Path;
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = ClusterInfo::read(Path::new("cluster.toml"))?;
//! let key = keys::read_private(Path::new("clients/locks.key"))?;
//! let mut client = Client::connect(cluster, key, Options::default())?;
//! let result = client.call(b"an operation")?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

#[cfg(feature = "async")]
pub mod asynchronous;
pub mod cluster;
pub mod config;
mod conversation;
pub mod core;
pub mod driver;
pub mod keys;
pub mod order;

#[cfg(feature = "async")]
pub use asynchronous::AsyncClient;
pub use cluster::{AskAgain, ClusterInfo, LinkMode, ReplicaInfo};
pub use core::{
    Answer, Audience, BundleResults, Core, Counters, Event, Failure, Fate, LinkState, Output, Prepared,
    Settings, SubmitError, Ticket, Tried,
};
pub use driver::{Client, ClientError, ClientPool, CoreId, Options, Ordered, PoolEvent, status};
pub use order::{OrderError, OrderVerifier, Position};
