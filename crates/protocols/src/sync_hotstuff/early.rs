//! Messages of views that have not begun here.

use super::message::SyncMessage;
use super::missed::Span;
use super::words::Header;
use quorate_consensus::{Seal, Signed};
use quorate_types::{Height, ReplicaId, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What one replica says early of no block: more than anybody honest does before this one is there.
const WORDS_MAX: usize = 64;

/// What was too high to be kept of a view.
#[derive(Clone, Debug)]
pub(super) struct TooHigh {
    pub(super) span: Span,
    /// The first header, and the first one that names another base.
    pub(super) headers: Vec<Signed<Header>>,
}

/// What was kept of one replica.
#[derive(Debug, Default)]
struct Kept {
    messages: VecDeque<(View, SyncMessage, Seal)>,
    /// Those of blocks: at most one vote and one proposal of each place.
    places: BTreeSet<(View, Height, bool)>,
}

impl Kept {
    fn words(&self) -> usize {
        self.messages.len().saturating_sub(self.places.len())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Early {
    kept: BTreeMap<ReplicaId, Kept>,
    too_high: BTreeMap<View, TooHigh>,
}

impl Early {
    /// Keeps a message of a later view, for a block where there is a height: the first one of each place, for `most` places
    /// of one replica. That is more than anybody honest says before this one is there; what is not kept is a liar's, and
    /// counts as never said.
    pub(super) fn keep(
        &mut self,
        (view, height): (View, Option<Height>),
        message: SyncMessage,
        seal: Seal,
        link: ReplicaId,
        most: usize,
    ) -> bool {
        let kept = self.kept.entry(link).or_default();
        let is_proposal = matches!(message, SyncMessage::Propose { .. });
        let has_room = match height {
            Some(height) => kept.places.len() < most && kept.places.insert((view, height, is_proposal)),
            None => kept.words() < WORDS_MAX,
        };
        if has_room {
            kept.messages.push_back((view, message, seal));
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
            let (now, later): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut kept.messages)
                .into_iter()
                .filter(|(at, ..)| *at >= view)
                .partition(|(at, ..)| *at == view);
            kept.messages = later;
            kept.places.retain(|(at, ..)| *at > view);
            taken.extend(now.into_iter().map(|(_, message, seal)| (message, seal)));
        }
        taken
    }
}
