//! The cost ledger: counters per unit of work. Every rule of the hot path has a counter. `status` shows the counters,
//! and tests assert them.

macro_rules! ledger {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The cost of all work so far. Each part of a node has its own ledger, and the node adds them up.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Ledger {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Ledger {
            /// Returns name and value of every counter.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// Adds another part's counters.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// Returns the difference to the `earlier` ledger.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name)),* }
            }
        }
    };
}

ledger! {
    /// Requests executed.
    requests,
    /// Bundles executed.
    bundles,
    /// Blocks executed.
    blocks,
    /// Passes of the loop.
    turns,
    /// Wake-ups of the loop from its poll.
    wakeups,
    /// Reads from sockets.
    reads,
    /// Writes to sockets.
    writes,
    /// Writes to the log.
    log_writes,
    /// Syncs: of the log, of snapshots, of the folder with their names.
    syncs,
    /// The largest number of syncs in one turn.
    turn_syncs_max,
    /// Bytes read from sockets.
    bytes_in,
    /// Bytes written to sockets.
    bytes_out,
    /// Bytes written to the log.
    log_bytes,
    /// Bytes of state written for snapshots.
    snapshot_bytes,
    /// Bytes of bodies hashed.
    body_bytes_hashed,
    /// Bytes of bodies copied in user space after the TLS library has handed out plain text.
    body_bytes_copied,
    /// Bytes of bodies that were new to this replica.
    body_bytes_new,
    /// Signatures made.
    signatures_made,
    /// Signatures checked one by one.
    signatures_single,
    /// Signatures checked in batches.
    signatures_batched,
    /// Batches checked.
    batches,
    /// Signatures that did not hold.
    signatures_bad,
    /// CPU nanoseconds of checks of the signatures of clients' bundles.
    client_check_ns,
    /// CPU nanoseconds of checks of the signatures of replicas: their own and those in certificates.
    replica_check_ns,
    /// Checks saved because the certificate or bundle was known.
    cache_hits,
    /// Allocations of the heap on the thread of the loop.
    allocations,
    /// Allocations that the application made, which `allocations` includes.
    allocations_application,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledgers_add_and_subtract() {
        let mut sum = Ledger { syncs: 2, ..Ledger::default() };
        let before = sum;
        sum.add(&Ledger { syncs: 3, reads: 1, ..Ledger::default() });
        assert_eq!(sum.since(&before), Ledger { syncs: 3, reads: 1, ..Ledger::default() });
        assert!(sum.entries().contains(&("syncs", 5)));
    }
}
