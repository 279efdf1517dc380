//! # quorate-consensus
//!
//! The contract between a protocol and the host that runs it, and the parts that protocols call.
//!
//! A protocol is one [`Protocol`]: four associated types and a few handlers. A handler sees verified messages only, never
//! waits, and records the effects that it wants in its [`Cx`]. Results arrive as later events.
//!
//! ```text
//! host ── on_message / on_timer / on_ready / on_executed … ──▶ protocol
//!   ▲                                                            │ Cx: record, send, commit, want, timers …
//!   └──────────────── effects, in call order ◀───────────────────┘
//! ```
//!
//! Guarantees of the host, so that no protocol has to give them:
//! * a message reaches a handler only when its form, its window and every signature in it hold;
//! * a message sent with [`Cx::send`] leaves when everything recorded before is durable; the own copy arrives after that,
//!   so own votes count only then;
//! * no slot of a message that may fill it only `once` is ever filled twice, across restarts;
//! * a timer fires only after the host has handled everything that had arrived by then. Under overload it fires 20 ms late
//!   all the same, and later arrivals are handled after it;
//! * decided heights execute once, in order.
//!
//! [`Examined`] holds the facts about a protocol that only its examiners use: simulator, exam, and tests of the registry.
//!
//! This crate deliberately does not know its host: nothing here opens a socket, a file or a clock.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod amnesia;
mod attack;
mod effect;
mod erase;
mod examined;
mod figures;
#[cfg(feature = "harness")]
pub mod flawed;
#[cfg(feature = "harness")]
pub mod harness;
mod host_view;
mod message;
mod pace;
pub mod parts;
mod past;
mod protocol;
mod record;
mod reject;
mod spec;
mod status;
mod timers;

pub use amnesia::Abstention;
pub use attack::{Answer, Attack, AttackEntry, Hear, Retelling, Scene};
pub use effect::{Commit, Effect, Evidence, Hold, Note, To};
pub use erase::{AnyProtocol, Entry, Timed};
pub use examined::{Choice, Examined, Healed};
pub use figures::{Count, Figures, Formula, Idle, LeaderChange};
pub use host_view::{Env, HostView, PayloadRef, Pending, Ready};
pub use message::{Auth, Claim, Claims, Message, Place, Seal, Signed, Verified};
pub use pace::Pace;
pub use parts::certificate::{CHECKPOINT_KIND, Certificate, Checkpoint, CheckpointProof};
pub use past::{OpenError, Past};
pub use protocol::{Cx, LinkEvent, Protocol};
pub use record::{Record, RecordKey};
pub use reject::{Alarm, Reject};
pub use spec::{MessageRole, Model, Spec, Synchrony};
pub use status::{Status, Window};
pub use timers::Timers;
