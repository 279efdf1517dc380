//! A replica that has said more than its log knows takes part no more.
//!
//! Its log was emptied, or an old copy was put in its place, or its key runs on a second machine. Whatever it would say now
//! may contradict what it has said. The folder finds it out at the opening (see [`FolderGuard::record_incarnation`]), or more than f
//! peers do while it runs: one of them is honest. Its links end, `status` says why, and the folder keeps the reason, so
//! that it holds also when nobody remembers.

use quorate_net::Refusal;
use quorate_storage::folder::{FolderError, FolderGuard};
use quorate_types::{Incarnation, ReplicaId, ReplicaSet};

/// See the module.
#[derive(Debug)]
pub(super) struct Quarantine {
    /// `None` where nothing outlives the process.
    folder: Option<FolderGuard>,
    /// More than f.
    weak: usize,
    /// Peers that remember more than this replica does.
    deniers: ReplicaSet,
    why: Option<String>,
}

impl Quarantine {
    /// `life`: the opening that has begun, which is durable. `weak`: f + 1.
    pub(super) fn open(
        folder: Option<FolderGuard>,
        life: Incarnation,
        weak: usize,
    ) -> Result<Self, FolderError> {
        let why = folder.as_ref().map_or(Ok(None), |folder| folder.record_incarnation(life.0))?;
        Ok(Self { folder, weak, deniers: ReplicaSet::EMPTY, why })
    }

    /// Why this replica takes no part; `None` where it does.
    pub(super) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// A connection of a peer was refused for `refusal`. True when that ends this replica's part.
    pub(super) fn refused(&mut self, peer: ReplicaId, refusal: Refusal) -> Result<bool, FolderError> {
        if refusal == Refusal::NeverSent { self.deny(peer) } else { Ok(false) }
    }

    fn deny(&mut self, peer: ReplicaId) -> Result<bool, FolderError> {
        self.deniers.insert(peer);
        if self.why.is_some() || self.deniers.len() < self.weak {
            return Ok(false);
        }
        let ids: Vec<String> = self.deniers.iter().map(|id| id.to_string()).collect();
        let why = format!(
            "replicas {} have heard more from this replica than its log knows: the log was emptied, an old copy was put in \
             its place, or its key runs on a second machine",
            ids.join(", ")
        );
        if let Some(folder) = &self.folder {
            folder.refuse(&why)?;
        }
        self.why = Some(why);
        Ok(true)
    }
}

/// The line of the log, and the alarm in `status`.
pub(super) fn words(why: &str) -> String {
    format!(
        "this replica takes part no more, because it has said more than its disk knows: {why}. It counts among the f faulty ones"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_storage::folder::{self, Identity};
    use quorate_types::{ClusterId, Digest, ProtocolId};

    #[test]
    fn more_than_f_peers_end_its_part_and_fewer_do_not() {
        let mut quarantine = Quarantine::open(None, Incarnation(1), 2).unwrap();
        for _ in 0..3 {
            assert!(!quarantine.refused(ReplicaId(1), Refusal::NeverSent).unwrap(), "one peer may lie");
        }
        assert!(!quarantine.refused(ReplicaId(2), Refusal::TooSlow).unwrap());
        assert_eq!(quarantine.why(), None);
        assert!(quarantine.refused(ReplicaId(3), Refusal::NeverSent).unwrap());
        assert!(quarantine.why().unwrap().starts_with("replicas 1, 3 have heard more"));
        assert!(!quarantine.refused(ReplicaId(2), Refusal::NeverSent).unwrap(), "told once");
    }

    #[test]
    fn a_refusal_by_peers_holds_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (cluster, protocol) = (ClusterId(Digest([1; 32])), ProtocolId::new("pbft"));
        let identity = Identity { cluster, replica: ReplicaId(0), protocol };
        folder::format(dir.path(), &identity, 1).unwrap();
        let open = |life| {
            let folder = folder::open(dir.path(), &identity).unwrap();
            Quarantine::open(Some(folder), Incarnation(life), 1).unwrap()
        };
        assert!(open(1).refused(ReplicaId(2), Refusal::NeverSent).unwrap());
        assert!(open(2).why().unwrap().starts_with("replicas 2 have heard more"));
    }
}
