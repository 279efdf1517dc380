//! The form with a stable leader: Sync HotStuff and Opt Sync. Its rules are those of the family's documentation.
//!
//! `form.rs` has the entry points, `normal.rs` the steady state, `commit.rs` the commits, `view_change.rs` the change of views.

mod ancestry;
mod attacks;
mod certificates;
mod commit;
mod early_messages;
mod evidence;
mod fetching;
mod form;
mod leader_statements;
mod message;
mod missed_heights;
mod normal;
mod paths;
mod record;
mod recovery;
mod split;
mod state;
mod statements;
#[cfg(test)]
pub(super) mod tests;
mod variant;
mod view_change;

pub use evidence::QuitEvidence;
pub use message::{Answer, SyncMessage};
pub use record::SyncRecord;
pub use split::Split;
pub use statements::{Header, LeaderStatement, Lock, LockName, SyncNewView, bind_base, vote};
pub use variant::{Optimistic, Plain, Variant};
