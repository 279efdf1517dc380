//! The leader whose messages the intake reads first.

use crate::protocol::{Cx, Protocol};
use quorate_types::ReplicaId;

/// The peer of the last call of [`Cx::urgent`]. A replica that opens has no such peer.
///
/// A protocol may change its view thousands of times a second, so only a change of the peer has an effect.
#[derive(Debug, Default)]
pub struct UrgentPeer(Option<ReplicaId>);

impl UrgentPeer {
    /// Makes the intake read the messages of this leader first. No peer's messages come first where this replica leads or the
    /// leader is unknown.
    pub fn follow<P: Protocol>(&mut self, cx: &mut Cx<'_, P>, leader: Option<ReplicaId>) {
        let peer = leader.filter(|leader| *leader != cx.me());
        if std::mem::replace(&mut self.0, peer) != peer {
            cx.urgent(peer);
        }
    }
}
