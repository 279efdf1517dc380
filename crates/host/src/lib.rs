//! # quorate-host
//!
//! A replica with its log, its application and its key, as one value that takes a *turn* at a time. The node
//! drives it with real sockets and a real disk, the simulator with its own: what is simulated is what ships.
//!
//! It deliberately does not know where bytes come from or go to ([`Outgoing`]), what time it is (an argument),
//! or which disk it writes to ([`quorate_storage::Disk`]).
//!
//! The order inside a turn is the one thing to know here (see [`Host::turn`]):
//! check → handle → send what promises nothing → one log write and one sync → send what was held → execute.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod executor;
mod loads;
mod open;
mod outgoing;
mod turn;

pub use executor::{Executor, Stamp};
pub use open::{HostSetup, OpenFault};
pub use outgoing::Outgoing;
pub use turn::{Fault, Host, TurnEnd, Work};
