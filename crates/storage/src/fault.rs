//! Faults of the environment. A fault stops the replica, and no peer can cause one.

use quorate_types::{BlockId, BundleDigest, Height};

/// The advice for a folder that cannot be repaired.
const BEGIN_ANEW: &str = "This replica has lost promises. It counts as one of the f that may fail until it is back: move the \
    folder away, and start the node with --rejoin";

/// The reason why the store cannot continue. Every text says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// No space is left on the device.
    #[error("the disk is full while {doing}: free some space and start the node again")]
    Full {
        /// The failed operation.
        doing: &'static str,
    },
    /// The limit `disk_bytes_max` is reached and nothing may be reclaimed.
    #[error(
        "the data folder would exceed disk_bytes_max = {limit} bytes, and no part of it may be reclaimed yet: \
        raise disk_bytes_max and start the node again"
    )]
    Budget {
        /// The limit in bytes.
        limit: u64,
    },
    /// The operating system reports an error. A failed sync leaves the disk in an unknown state, so no operation is
    /// retried.
    #[error("the disk failed while {doing} ({error}): check the disk, then start the node again")]
    Io {
        /// The failed operation.
        doing: &'static str,
        /// The system's error.
        error: String,
    },
    /// The log is damaged before its tail: synced data can no longer be read.
    #[error(
        "the log is damaged in segment {generation} at byte {offset}: {why}. The node has changed nothing. Do not \
        replace the folder by an older copy, and keep it for inspection. {BEGIN_ANEW}"
    )]
    Damaged {
        /// The generation of the segment.
        generation: u32,
        /// The offset in the segment, in bytes.
        offset: u32,
        /// The reason.
        why: String,
    },
    /// A snapshot that is needed cannot be read.
    #[error(
        "the snapshot {name} is damaged: {why}. Check the disk, then start the node again: it uses an older snapshot, or \
        receives a state from its peers"
    )]
    DamagedSnapshot {
        /// The name of the file.
        name: String,
        /// The reason.
        why: String,
    },
    /// Heights are missing between the newest readable snapshot and the first height of the log.
    #[error(
        "heights are missing: the newest readable snapshot has height {snapshot}, but the log begins at height {first}. \
        The folder is incomplete: put its missing files back, or move it away and start the node with --rejoin"
    )]
    Gap {
        /// The height of the snapshot; 0 for none.
        snapshot: Height,
        /// The first height of the log.
        first: Height,
    },
    /// The host decides another block than the log has for a height, or skips a height.
    #[error(
        "height {height} is to be decided as {id}, but {kept}: two histories are mixed; stop this replica and ask \
         for help"
    )]
    ConflictingDecision {
        /// The height.
        height: Height,
        /// The block that the host decides.
        id: BlockId,
        /// The content of the log.
        kept: String,
    },
    /// The block of a decided height is not in the log. The host has a bug.
    #[error(
        "height {height} is decided, but its block {id} is not in the log: this is a bug, please report it"
    )]
    MissingBlock {
        /// The height.
        height: Height,
        /// The block.
        id: BlockId,
    },
    /// A body of a decided height is not in the log. The host has a bug.
    #[error(
        "height {height} is decided, but its body {body} is not in the log: this is a bug, please report it"
    )]
    MissingBody {
        /// The height.
        height: Height,
        /// The body.
        body: BundleDigest,
    },
    /// A record is too large for any segment.
    #[error(
        "a record of {bytes} bytes does not fit into a segment, which has room for {limit}: use larger segments"
    )]
    TooLarge {
        /// The bytes of the record.
        bytes: usize,
        /// The largest number of bytes of a record.
        limit: usize,
    },
    /// The log has other sizes of segments or pages.
    #[error(
        "the log has {found}, but this node is configured for {expected}: configure the sizes of the log"
    )]
    Geometry {
        /// The sizes of the log.
        found: String,
        /// The configured sizes.
        expected: String,
    },
    /// The host has called the functions for snapshots in a wrong order. The host has a bug.
    #[error("snapshot of height {height}: {why}: this is a bug, please report it")]
    Snapshot {
        /// The height.
        height: Height,
        /// The reason.
        why: &'static str,
    },
    /// The store has failed before and refuses all further work.
    #[error("the store has failed before and does nothing more: start the node again")]
    Stopped,
}
