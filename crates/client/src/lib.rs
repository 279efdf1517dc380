//! # quorate-client
//!
//! Clients of a cluster: they send operations in signed bundles and accept a result when f + 1 replicas
//! report it.
//!
//! * [`core`]: one client as a pure state machine; the simulator runs it too. All rules are in this module.
//! * [`driver`]: many clients over one connection to each replica on the caller's thread ([`ClientPool`]), and
//!   one client with blocking calls ([`Client`]).
//! * [`asynchronous`]: the same core inside tokio ([`AsyncClient`]).
//!
//! A client does not know which protocol or which service a cluster runs, nor what an operation means.
//!
//! ```no_run
//! use quorate_client::{Client, ClusterInfo, Options};
//! use quorate_crypto::SigningKey;
//!
//! # fn example(cluster: ClusterInfo, key: SigningKey) -> Result<(), quorate_client::ClientError> {
//! let mut client = Client::connect(cluster, key, Options::default())?;
//! let result = client.call(b"an operation")?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

pub mod asynchronous;
pub mod cluster;
mod conversation;
pub mod core;
pub mod driver;

pub use asynchronous::AsyncClient;
pub use cluster::{AskAgain, ClusterInfo, LinkMode, ReplicaInfo};
pub use core::{
    Answer, Audience, BundleResults, Core, Counters, Event, Failure, Fate, LinkState, Output, Prepared,
    Settings, SubmitError, Ticket, Tried,
};
pub use driver::{Client, ClientError, ClientPool, CoreId, Options, PoolEvent, status};
