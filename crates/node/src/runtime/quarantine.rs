//! The exclusion of a replica that has sent more than its log has.
//!
//! Its log was emptied, or an old copy is in its place, or a second machine uses its key. So each further statement may
//! equivocate. The folder detects this at the opening (see [`FolderGuard::record_incarnation`]). While the replica runs, more
//! than f peers detect it: one of them is honest. Then its links end, `status` shows the reason, and the folder keeps the
//! reason for later openings.

use quorate_net::Refusal;
use quorate_storage::folder::{FolderError, FolderGuard};
use quorate_types::{Committee, Incarnation, ReplicaId, ReplicaSet};
use std::path::Path;

/// Whether this replica is excluded, and the evidence so far.
#[derive(Debug)]
pub(super) struct Quarantine {
    /// `None` if no data outlives the process.
    folder: Option<FolderGuard>,
    /// f + 1.
    weak: usize,
    /// Peers that have received more than the log has.
    deniers: ReplicaSet,
    reason: Option<String>,
}

impl Quarantine {
    /// Returns the state at the opening `incarnation`, which is durable.
    pub(super) fn open(
        folder: Option<FolderGuard>,
        incarnation: Incarnation,
        committee: &Committee,
    ) -> Result<Self, FolderError> {
        let reason = folder.as_ref().map_or(Ok(None), |folder| folder.record_incarnation(incarnation.0))?;
        Ok(Self { folder, weak: committee.weak(), deniers: ReplicaSet::EMPTY, reason })
    }

    /// Returns the folder, for the next opening of this process.
    pub(super) fn into_folder(self) -> Option<FolderGuard> {
        self.folder
    }

    /// Returns the reason of the exclusion; `None` for a replica that takes part.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Notes that a connection of a peer was refused. Returns whether that excludes this replica.
    pub(super) fn refused(&mut self, peer: ReplicaId, refusal: Refusal) -> Result<bool, FolderError> {
        if refusal != Refusal::NeverSent {
            return Ok(false);
        }
        self.deniers.insert(peer);
        if self.reason.is_some() || self.deniers.len() < self.weak {
            return Ok(false);
        }
        let ids: Vec<String> = self.deniers.iter().map(|id| id.to_string()).collect();
        let reason = format!(
            "replicas {} have received more from this replica than its log has: the log was emptied, an old copy is in its \
             place, or a second machine uses its key",
            ids.join(", ")
        );
        self.exclude(reason)?;
        Ok(true)
    }

    /// Returns the data folder; `None` if no data outlives the process.
    pub(super) fn folder_path(&self) -> Option<&Path> {
        self.folder.as_ref().map(FolderGuard::path)
    }

    /// Whether an exclusion holds at later openings.
    pub(super) fn is_durable(&self) -> bool {
        self.folder.is_some()
    }

    /// Excludes this replica, also at all later openings of its folder.
    pub(super) fn exclude(&mut self, reason: String) -> Result<(), FolderError> {
        if let Some(folder) = &self.folder {
            folder.refuse(&reason)?;
        }
        self.reason = Some(reason);
        Ok(())
    }
}

/// Returns the line of the log, which is the alarm in `status` and the finding of `inspect` too.
pub(crate) fn alarm(reason: &str) -> String {
    format!(
        "this replica takes no part any more, because it has sent more than its disk has: {reason}. It counts among the f faulty \
         replicas: stop it, move its data folder away, and start it with --rejoin"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_storage::folder::{self, Identity};
    use quorate_types::{ClusterId, Digest, Epoch, Member, ProtocolId, PublicKey};

    fn committee(n: usize, f: usize) -> Committee {
        let member = Member { sign: PublicKey::default(), link: PublicKey::default() };
        let (cluster, protocol) = (ClusterId(Digest([1; 32])), ProtocolId::new("pbft"));
        Committee { cluster, protocol, epoch: Epoch(0), f, members: vec![member; n] }
    }

    #[test]
    fn more_than_f_peers_exclude_a_replica_and_fewer_do_not() {
        // The quorum is 4, and n - f is 5.
        let mut quarantine = Quarantine::open(None, Incarnation(1), &committee(6, 1)).unwrap();
        for _ in 0..3 {
            assert!(!quarantine.refused(ReplicaId(1), Refusal::NeverSent).unwrap(), "one peer may lie");
        }
        assert!(!quarantine.refused(ReplicaId(2), Refusal::TooSlow).unwrap());
        assert_eq!(quarantine.reason(), None);
        assert!(quarantine.refused(ReplicaId(3), Refusal::NeverSent).unwrap());
        assert!(quarantine.reason().unwrap().starts_with("replicas 1, 3 have received more"));
        assert!(!quarantine.refused(ReplicaId(2), Refusal::NeverSent).unwrap(), "only once");
    }

    #[test]
    fn exclusion_by_peers_holds_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (cluster, protocol) = (ClusterId(Digest([1; 32])), ProtocolId::new("pbft"));
        let identity = Identity { cluster, replica: ReplicaId(0), protocol };
        folder::format(dir.path(), &identity, 1).unwrap();
        let open = |incarnation| {
            let folder = folder::open(dir.path(), &identity).unwrap();
            Quarantine::open(Some(folder), Incarnation(incarnation), &committee(1, 0)).unwrap()
        };
        assert!(open(1).refused(ReplicaId(2), Refusal::NeverSent).unwrap());
        assert!(open(2).reason().unwrap().starts_with("replicas 2 have received more"));
    }
}
