//! The oracles: they judge what replicas do and clients see, and share no code with either.
//!
//! | oracle | says | where |
//! |---|---|---|
//! | agreement | at each height all replicas that run decide the same block, and all execute the same one with the same operations, and state the same state | `order` |
//! | exactly once | no operation is applied twice | `order` |
//! | right results | what a client was told is what the agreed order gives, and respects who asked after whom | `order` |
//! | durability | what a client was told is in the order that all replicas end with | `order` |
//! | linearizable | what clients were told can be explained without asking any replica | [`crate::linear`] |
//! | same slot | what may be said once is never said of two subjects, across restarts | `promises` |
//! | held | nothing that may be said once leaves before its guard was synced | `promises` |
//! | liveness | what a protocol promises after a heal, in time | `World::run_while` |
//! | circles | after a heal, views do not pass alike without anything being executed | `livelock` |
//! | pacemaker | views that are left by certificate only are, and after a heal all honest replicas meet in one | `pace` |
//! | bounds | queues and tables stay within limits | `bounds` |
//! | accusation | no honest replica refuses of another what only a liar says | `World::judge_accusations` |
//! | no panic | no assertion of the code fails | `seed` |
//! | replay | a second replica that is handed the same inputs gives the same outputs, byte for byte | `replay_check` |
//!
//! All of them judge honest replicas only, and what has to run and to follow, those whose disks are whole; clients believe f + 1 equal answers, so one of these is honest.
//!
//! Agreement, order and results together say more than a search for a linearisation: the order in which the
//! replicas say they executed is the linearisation, and it is checked as it grows against the naive [`crate::Model`],
//! against real time and between replicas. Where it explains all answers it is the proof; only where it does not is
//! another order searched for, which believes no replica and is the judge of real clusters too. What is left for
//! liveness is judged by who runs the world, because only that one knows when something is promised.

mod bounds;
mod finding;
mod livelock;
mod order;
mod pacemaker;
mod promises;

pub(crate) use bounds::check_bounds;
pub(crate) use finding::Judged;
pub use finding::{Failure, Oracle};
pub(crate) use livelock::{LivelockOracle, views_needed};
pub(crate) use order::OrderOracle;
pub(crate) use pacemaker::PacemakerOracle;
pub(crate) use promises::PromiseOracle;
