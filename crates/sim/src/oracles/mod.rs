//! The oracles: they judge replicas and clients, and share no code with either.
//!
//! | oracle | property | where |
//! |---|---|---|
//! | agreement | at each height all running replicas decide the same block, execute the same operations, and state the same state | `order` |
//! | exactly once | no operation is applied twice | `order` |
//! | right results | a client's results follow from the agreed order, which respects real time | `order` |
//! | durability | every answered operation is in the order that all replicas end with | `order` |
//! | linearizable | the answers of clients can be explained without asking any replica | [`quorate_history`] |
//! | same slot | a replica signs one subject for each slot, across restarts | `promises` |
//! | held | no promise leaves before its guard entry was synced | `promises` |
//! | liveness | the protocol keeps its promises of progress after a heal, in time | `World::run_while` |
//! | livelock | after a heal, views do not repeat without execution | `livelock` |
//! | pacemaker | views are left by certificate only, and after a heal all honest replicas meet in one | `pacemaker` |
//! | bounds | queues and tables stay within limits | `bounds` |
//! | accusation | no honest replica refuses another one's message for a breach of the rules | `World::judge_accusations` |
//! | no panic | no assertion of the code fails | `report` |
//! | replay | a second replica with the same inputs gives the same outputs, byte for byte | `replay_check` |
//!
//! The oracles judge honest replicas only. Of these, replicas with undamaged disks have to run and to keep up. A
//! client accepts f + 1 equal answers, so one of them is an honest replica's.
//!
//! The replicas' order of execution is a linearization. It is checked as it grows: against the simple
//! [`crate::Model`], against real time, and between replicas. An order that explains all answers is a proof. Only
//! otherwise is another order searched for, without trusting any replica; that search also judges real clusters.
//!
//! Liveness is judged by the code that runs the world, because only that code knows when the protocol promises
//! progress.

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
