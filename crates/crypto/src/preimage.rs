//! Bytes that keys sign. Each function hashes fixed-width fields under a context of its own, so no bytes ever have two
//! meanings.

use quorate_types::digest::context;
use quorate_types::{BundleDigest, ClusterId, DigestWriter, Domain, Incarnation, ReplicaId, Statement};

/// Returns the bytes that a replica's key signs: a statement in its domain. The key signs nothing else.
#[must_use]
pub fn statement_preimage(domain: &Domain, statement: &Statement) -> [u8; 32] {
    let mut writer = DigestWriter::new(&context::STATEMENT);
    writer
        .update(&domain.cluster.0.0)
        .update(&domain.protocol.0)
        .update(&domain.epoch.0.to_le_bytes())
        .update(&statement.kind.0)
        .update(&statement.view.0.to_le_bytes())
        .update(&statement.height.0.to_le_bytes())
        .update(&statement.scope.0)
        .update(&statement.subject.0);
    writer.finish().0
}

/// Returns the bytes that the admin's key signs to stop a node: one incarnation of one replica, in this cluster only.
#[must_use]
pub fn stop_preimage(cluster: ClusterId, replica: ReplicaId, incarnation: Incarnation) -> [u8; 32] {
    let mut writer = DigestWriter::new(&context::STOP);
    writer.update(&cluster.0.0).update(&replica.0.to_le_bytes()).update(&incarnation.0.to_le_bytes());
    writer.finish().0
}

/// Returns the bytes that a client's key signs for a bundle: its digest, in this cluster only.
#[must_use]
pub fn bundle_preimage(cluster: ClusterId, bundle: BundleDigest) -> [u8; 32] {
    let mut writer = DigestWriter::new(&context::BUNDLE_SIGNATURE);
    writer.update(&cluster.0.0).update(&bundle.0.0);
    writer.finish().0
}
