//! A Byzantine replica on the real network: a node whose frames to other replicas are rewritten before they leave.
//!
//! Tests of clusters need it. A program that serves has no command for it; the laboratory has `quorate lie`.

use crate::config::{NodeConfig, NodeKeys};
use quorate_types::{FrameBody, ReplicaId};

/// A rewriting of the frames between a replica and the others.
pub trait Disguise: Send {
    /// Pushes the frames that leave for `to` instead of this one, each with its type.
    fn says(&mut self, to: ReplicaId, frame_type: u8, body: &FrameBody, out: &mut Vec<(u8, FrameBody)>);

    /// Handles a frame of another replica, before the replica itself handles it.
    fn hears(&mut self, frame_type: u8, body: &[u8]);
}

/// Function that makes the disguise of a replica for each of its openings.
pub type MakeDisguise<'a> = &'a dyn Fn(&NodeConfig, &NodeKeys) -> Box<dyn Disguise>;
