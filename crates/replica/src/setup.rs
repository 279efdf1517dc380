//! Parameters with which a replica is opened, apart from its log.

use quorate_types::{Committee, Digest, Genesis, ReplicaId};
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub struct ReplicaSetup {
    /// The id of this replica.
    pub me: ReplicaId,
    /// The committee.
    pub committee: Arc<Committee>,
    /// The shared configuration.
    pub genesis: Arc<Genesis>,
    /// Parameters of the protocol: those of genesis and the local ones.
    pub params: toml::Table,
    /// Wall-clock nanoseconds at `Time(0)`.
    pub wall_offset_ns: u64,
    /// A secret that no peer knows: values that peers must not foretell derive from it.
    ///
    /// Each opening needs a new one. A wiped disk counts incarnations from the beginning, and the values of the first
    /// life would repeat. If nothing depends on that, [`SigningKey::secret`] gives the same one each time.
    ///
    /// [`SigningKey::secret`]: quorate_crypto::SigningKey::secret
    pub secret: Digest,
}

impl std::fmt::Debug for ReplicaSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret is left out.
        f.debug_struct("ReplicaSetup")
            .field("me", &self.me)
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}
