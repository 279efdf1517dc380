//! # The unique chain: Apollo
//!
//! Each round has one author, who signs at most one entry. An entry names its parent by hash, and that is a vote for the parent
//! and all its ancestors. An entry is committed once entries of f + 1 distinct authors are on its chain, itself included: one
//! of them is honest, its round is never skipped, and it signs one entry, so every later chain contains it.

pub mod apollo;
pub mod artemis;
mod conflicts;
mod entries;
mod entry;
mod fetching;
mod figures;
mod message;
mod record;
mod recovery;
mod replica;
mod rounds;
mod statements;
mod store;

pub use apollo::Apollo;
pub use artemis::Artemis;
pub use entry::{Entry, EntryRef, Framed, RoundProof, skips_digest};
pub use message::{Answer, OwnMessage, UniqueMessage};
pub use record::UniqueRecord;
pub use replica::{Form, IfIdle, Timer, UniqueChain, Verdict};
pub use statements::{FIRST_ROUND, PROPOSE, RELAY, VOTE};
