//! What can go wrong with the environment. A fault stops the replica; none is ever a peer's doing.

use quorate_types::{BlockId, BundleDigest, Height};

/// What there is to do about a folder that cannot be repaired.
const STAYS_STOPPED: &str = "This replica cannot take part any more: it is one of the f that may fail, and stays stopped \
    while the others go on; only a disk that is repaired without loss brings it back";

/// Why the store cannot go on. Every text says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// No space is left on the device.
    #[error("the disk is full ({doing}): free some space and start the node again")]
    Full {
        /// What was being done.
        doing: &'static str,
    },
    /// The limit `disk_bytes_max` is reached and nothing may be reclaimed.
    #[error(
        "the data folder would exceed disk_bytes_max = {limit} bytes and nothing in it may be reclaimed yet: \
         raise disk_bytes_max and start the node again"
    )]
    Budget {
        /// The limit, bytes.
        limit: u64,
    },
    /// The operating system reports an error. After a failed sync nobody knows what is on the disk, so nothing
    /// is tried again.
    #[error("the disk failed ({doing}: {error}): check the disk, then start the node again")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: String,
    },
    /// The log is damaged before its tail: something that was synced can no longer be read.
    #[error(
        "the log is damaged in segment {generation} at byte {offset}: {why}; nothing was changed. Do not put an \
         older copy in its place: keep this folder for inspection. {STAYS_STOPPED}"
    )]
    Damaged {
        /// Generation of the segment.
        generation: u32,
        /// Where in the segment, bytes.
        offset: u32,
        /// What is wrong.
        why: String,
    },
    /// A snapshot that is needed cannot be read.
    #[error("the snapshot {name} is damaged: {why}. Keep this folder for inspection. {STAYS_STOPPED}")]
    DamagedSnapshot {
        /// Name of the file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Between the newest readable snapshot and the first height that the log keeps, heights are missing.
    #[error(
        "heights are missing: the newest readable snapshot is of height {snapshot} and the log begins at \
         {first}. Keep this folder for inspection. {STAYS_STOPPED}"
    )]
    Gap {
        /// Height of the snapshot; 0 when there is none.
        snapshot: Height,
        /// First height that the log keeps.
        first: Height,
    },
    /// Two different blocks are said to be decided at one height, or a height is skipped.
    #[error(
        "height {height}: {id} is said to be decided, and {kept}: stop and ask for help, two histories are being \
         mixed"
    )]
    Contradiction {
        /// The height.
        height: Height,
        /// What is said now.
        id: BlockId,
        /// What the log says.
        kept: String,
    },
    /// A height was decided whose block is not in the log: a mistake of the host.
    #[error(
        "height {height} is decided and its block {id} was never appended: this is a bug, please report it"
    )]
    MissingBlock {
        /// The height.
        height: Height,
        /// The block.
        id: BlockId,
    },
    /// A height was decided of which a body is not in the log: a mistake of the host.
    #[error(
        "height {height} is decided and its body {body} is not in the log: this is a bug, please report it"
    )]
    MissingBody {
        /// The height.
        height: Height,
        /// The body.
        body: BundleDigest,
    },
    /// A record that no segment can hold.
    #[error("a record of {bytes} bytes does not fit into a segment of {limit}: use larger segments")]
    TooLarge {
        /// Bytes of the record.
        bytes: usize,
        /// Bytes that a record may have.
        limit: usize,
    },
    /// The disk was written with other sizes of segments or pages.
    #[error("the log was written with {found} and this node is configured for {expected}: use the former")]
    Geometry {
        /// What stands on the disk.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// The order of calls around snapshots was not kept: a mistake of the host.
    #[error("snapshot of height {height}: {why}: this is a bug, please report it")]
    Snapshot {
        /// The height.
        height: Height,
        /// What is wrong.
        why: &'static str,
    },
    /// The store failed before and does nothing more.
    #[error("the store has failed before and does nothing more: start the node again")]
    Stopped,
}
