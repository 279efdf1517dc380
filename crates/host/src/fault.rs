//! Reasons for which a host does not open or stops.

use quorate_app::RestoreError;
use quorate_consensus::{Alarm, OpenError};
use quorate_replica::BadLog;
use quorate_types::Height;

/// The reason for which a host must stop.
#[derive(Debug, thiserror::Error)]
pub enum HostFault {
    /// The disk failed, is full, or holds contradictory data.
    #[error(transparent)]
    Storage(#[from] quorate_storage::Fault),
    /// The replica has stopped itself because safety is broken.
    #[error("{0}")]
    Stopped(Alarm),
    /// The host could not be opened.
    #[error(transparent)]
    Open(#[from] OpenFault),
}

/// The reason for which a host does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// The log holds an entry that this version does not write.
    #[error(transparent)]
    Log(#[from] BadLog),
    /// The protocol refuses its parameters or its committee.
    #[error(transparent)]
    Protocol(#[from] OpenError),
    /// The snapshot cannot be restored.
    #[error(
        "{0}; move the folder's snapshots away: the node then takes its state from its log, or receives one from its peers"
    )]
    Snapshot(#[from] RestoreError),
    /// The proof in a snapshot cannot be read.
    #[error(
        "the snapshot of height {height} has a proof that this version cannot read: move this snapshot away, or use the \
        version that wrote it"
    )]
    Proof {
        /// The height of the snapshot.
        height: Height,
    },
    /// The service differs from the one that genesis names.
    #[error("{0}")]
    Application(String),
    /// The log does not reach back to the snapshot.
    #[error(
        "the log begins after height {missing}, and the newest snapshot is older: the folder is incomplete; move it away and start the node with --rejoin"
    )]
    Gap {
        /// The first height that is missing.
        missing: Height,
    },
    /// The folder's first state is not the one that genesis names.
    #[error(
        "the folder begins with another state than `base` in the cluster file names: it belongs to another cluster; use \
        the folder and the cluster file that `quorate restore` has written together"
    )]
    OtherBase,
    /// Log and snapshots do not give the state of a height.
    #[error(
        "the folder does not have the state of height {height}: {why}; choose a height that `quorate inspect` lists, or \
        the folder of another replica"
    )]
    NoStateAt {
        /// The height.
        height: Height,
        /// The reason.
        why: String,
    },
    /// Execution of the log gave a state that differs from the one that a quorum has signed.
    #[error(
        "the state at height {height} differs from the one that a quorum has signed: test the memory of this machine, \
        then start the node, which receives the right state from its peers"
    )]
    Diverged {
        /// The height whose states differ.
        height: Height,
    },
}
