//! Messages of views that have not begun here.

use super::message::SyncMessage;
use quorate_consensus::{Seal, Signed};
use quorate_types::{Height, ReplicaId, View};
use std::collections::{BTreeMap, VecDeque};

/// Messages of one replica that are kept at most: what comes first is kept, and what is kept comes back in order.
const EARLY_PER_PEER_MAX: usize = 4_096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Early {
    kept: BTreeMap<ReplicaId, VecDeque<(View, SyncMessage, Seal)>>,
    /// The highest header of a view that there was no room for.
    lost: BTreeMap<View, Height>,
}

impl Early {
    /// Whether one more message of a replica can be kept.
    pub(super) fn has_room(&self, link: ReplicaId) -> bool {
        self.kept.get(&link).is_none_or(|kept| kept.len() < EARLY_PER_PEER_MAX)
    }

    /// Keeps a message of a later view; the caller has looked whether there is room.
    pub(super) fn keep(&mut self, view: View, message: SyncMessage, seal: Seal, link: ReplicaId) {
        self.kept.entry(link).or_default().push_back((view, message, seal));
    }

    /// There is no room for a message; noted for views that this replica may enter in time.
    pub(super) fn lose(&mut self, view: View, message: &SyncMessage, last: View) {
        let (SyncMessage::Propose { header, .. } | SyncMessage::Vote(Signed { body: header, .. })) = message
        else {
            return;
        };
        if view <= last {
            let highest = self.lost.entry(view).or_default();
            *highest = header.block.height.max(*highest);
        }
    }

    /// Up to which height a view's headers may be missing among what is kept.
    pub(super) fn lost(&mut self, view: View) -> Height {
        self.lost = self.lost.split_off(&view);
        self.lost.get(&view).copied().unwrap_or_default()
    }

    /// Takes what belongs to a view; what belongs to earlier ones goes.
    pub(super) fn take(&mut self, view: View) -> Vec<(SyncMessage, Seal)> {
        let mut taken = Vec::new();
        for kept in self.kept.values_mut() {
            let (now, later): (VecDeque<_>, VecDeque<_>) = std::mem::take(kept)
                .into_iter()
                .filter(|(at, ..)| *at >= view)
                .partition(|(at, ..)| *at == view);
            *kept = later;
            taken.extend(now.into_iter().map(|(_, message, seal)| (message, seal)));
        }
        taken
    }
}
