//! Messages of views that have not begun here.

use super::message::SyncMessage;
use super::missed::Span;
use super::words::Header;
use quorate_consensus::{Seal, Signed};
use quorate_types::{ReplicaId, View};
use std::collections::{BTreeMap, VecDeque};

/// What was too high to be kept of a view.
#[derive(Clone, Debug)]
pub(super) struct TooHigh {
    pub(super) span: Span,
    /// The first header, and the first one that names another base.
    pub(super) headers: Vec<Signed<Header>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Early {
    kept: BTreeMap<ReplicaId, VecDeque<(View, SyncMessage, Seal)>>,
    too_high: BTreeMap<View, TooHigh>,
}

impl Early {
    /// Keeps a message of a later view. `most` of one replica are kept, what comes first: more than anybody honest says before
    /// this one is there. What is not kept is a liar's, and counts as never said.
    pub(super) fn keep(
        &mut self,
        view: View,
        message: SyncMessage,
        seal: Seal,
        link: ReplicaId,
        most: usize,
    ) -> bool {
        let kept = self.kept.entry(link).or_default();
        let has_room = kept.len() < most;
        if has_room {
            kept.push_back((view, message, seal));
        }
        has_room
    }

    /// A header of a later view is too high.
    pub(super) fn note_too_high(&mut self, header: &Signed<Header>) {
        let block = &header.body.block;
        let span = Span::of(block.height);
        let noted = self.too_high.entry(block.view).or_insert_with(|| TooHigh { span, headers: Vec::new() });
        noted.span = noted.span.with(span);
        if noted.headers.iter().all(|known| known.body.base != header.body.base) && noted.headers.len() < 2 {
            noted.headers.push(header.clone());
        }
    }

    /// What was too high of a view that begins.
    pub(super) fn too_high(&mut self, view: View) -> Option<TooHigh> {
        self.too_high = self.too_high.split_off(&view);
        self.too_high.remove(&view)
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
