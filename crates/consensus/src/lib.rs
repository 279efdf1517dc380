//! # quorate-consensus
//!
//! The contract between a protocol and the host that runs it, and the parts that protocols call.
//!
//! A protocol is one [`Protocol`]: four associated types and a few handlers. A handler sees verified messages
//! only, never waits, and records what it wants done in its [`Cx`]; results come back as later events.
//!
//! ```text
//! host ── on_message / on_timer / on_ready / on_executed … ──▶ protocol
//!   ▲                                                            │ Cx: record, send, commit, want, timers …
//!   └──────────────── effects, in call order ◀───────────────────┘
//! ```
//!
//! What the host guarantees, so that no protocol has to:
//! * a message reaches a handler only when its form, its window and every signature in it hold;
//! * what is sent with [`Cx::send`] leaves when everything recorded before is durable; the own copy comes back
//!   after that, so own votes count only then;
//! * no slot of a message that may be said `once` is ever filled twice, across restarts;
//! * timers fire only after everything that had arrived by then was handled; where more comes than can be handled,
//!   they fire 20 ms late all the same, and what came meanwhile is handled after them;
//! * decided heights execute once, in order.
//!
//! This crate deliberately does not know its host: nothing here opens a socket, a file or a clock.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod attack;
mod context;
mod effect;
mod erase;
mod figures;
#[cfg(feature = "harness")]
pub mod flawed;
#[cfg(feature = "harness")]
pub mod harness;
mod message;
mod pace;
pub mod parts;
mod protocol;
mod reject;
mod timers;

pub use attack::{Answer, Attack, AttackEntry, Retelling, Scene};
pub use context::{Cx, Env, HostView, PayloadRef, Pending, Ready};
pub use effect::{Basis, Commit, Effect, Evidence, Hold, Note, To};
pub use erase::{AnyProtocol, Entry, RawPast, Timed};
pub use figures::{Count, Figures, Formula, Idle, LeaderChange};
pub use message::{Auth, Claim, Claims, Message, Place, Seal, Signed, Verified};
pub use pace::Pace;
pub use parts::certificate::{CHECKPOINT_KIND, Certificate, Checkpoint, CheckpointProof};
pub use protocol::{
    Choice, Healed, LinkEvent, Model, OpenError, Past, Protocol, Record, RecordKey, Spec, Status, Synchrony,
    Window,
};
pub use reject::{Alarm, Reject};
pub use timers::Timers;
