//! # quorate-net
//!
//! Networking among known peers: links that report every loss across reconnects, a reactor that
//! drives them over TCP and TLS 1.3 on the caller's own thread, and a [`mesh`] for programs that want only
//! this.
//!
//! * [`link`]: sequence numbers, acknowledgements, resume. Pure: no socket, no clock. Its documentation has the
//!   frame layout.
//! * [`session`]: the layer between a socket and plain text.
//! * [`tls`]: configurations that accept exactly the expected Ed25519 keys and check nothing else.
//! * [`reactor`]: sockets, reconnects, limits; the one place that sleeps. It starts no thread.
//! * [`mesh`]: the same behind a channel, on a thread of its own.
//!
//! This crate does not know what a vote is. Handlers do not run while a connection is read: the reactor passes
//! events to a sink. The caller queues its answers afterwards, and they leave with the next flush.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

pub mod frame;
pub mod lanes;
pub mod link;
pub mod mesh;
pub mod reactor;
pub mod session;
pub mod tls;

pub use frame::Refusal;
pub use lanes::{Direction, Loss, Oversize, ResendLimits};
pub use link::{Greeter, Identity, Link, LinkEvent};
pub use reactor::{
    ConnId, Event, NetConfig, NetFault, PeerConfig, PeerStatus, Reactor, Security, SendError, Who,
};
pub use session::Session;
pub use tls::LinkKey;
