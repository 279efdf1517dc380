//! The certificates of a prepared block in variant S (§9): signatures that show to any replica that it has prepared.
//!
//! They are the PRE-PREPARE of the leader of a view, without the block, and the PREPAREs of Q - 1 others for the same view,
//! height and block.

use quorate_consensus::Certificate;

/// Heights that one VIEW-CHANGE may show certificates for; L is at most this in variant S.
pub(super) const CERTIFIED_MAX: usize = 512;

/// The two certificates that show that a block has prepared.
#[derive(Clone, PartialEq, Debug)]
pub struct Certified {
    /// The leader's PRE-PREPARE.
    pub proposal: Certificate,
    /// Q - 1 PREPAREs of distinct others.
    pub prepares: Certificate,
}

quorate_types::wire_struct!(Certified { proposal, prepares });
