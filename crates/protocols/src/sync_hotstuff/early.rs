//! Messages of views that have not begun here.

use super::message::SyncMessage;
use super::words::Header;
use quorate_consensus::{Seal, Signed};
use quorate_types::{ReplicaId, View};
use std::collections::{BTreeMap, VecDeque};

/// Messages of one replica that are kept at most: what comes first is kept, and what is kept comes back in order.
const EARLY_PER_PEER_MAX: usize = 4_096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Early {
    kept: BTreeMap<ReplicaId, VecDeque<(View, SyncMessage, Seal)>>,
    /// The highest header of a view that there was no room for.
    lost: BTreeMap<View, Signed<Header>>,
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
    pub(super) fn lose(&mut self, view: View, message: &SyncMessage, seal: &Seal, last: View) {
        let header = match (message, seal.signature) {
            (SyncMessage::Vote(header) | SyncMessage::Show(header), _) => header.clone(),
            (SyncMessage::Propose { header, .. }, Some(signature)) => {
                Signed { body: header.clone(), by: seal.by, signature }
            }
            _ => return,
        };
        let is_higher = |known: &Signed<Header>| header.body.block.height > known.body.block.height;
        if view <= last && self.lost.get(&view).is_none_or(is_higher) {
            self.lost.insert(view, header);
        }
    }

    /// Up to which of a view's headers some may be missing among what is kept.
    pub(super) fn lost(&mut self, view: View) -> Option<Signed<Header>> {
        self.lost = self.lost.split_off(&view);
        self.lost.remove(&view)
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
