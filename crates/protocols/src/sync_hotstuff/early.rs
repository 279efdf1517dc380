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

#[cfg(test)]
mod tests {
    use super::super::tests::{GENESIS, N, chain, first_vote, r, voted};
    use super::*;
    use quorate_types::BlockId;

    /// However often something is said, it is kept once; and of what there is no place for there is little.
    #[test]
    fn what_is_said_again_takes_no_room() {
        let mut early = Early::default();
        let headers = chain(N, 2, (Height(3), BlockId::null(Height(3))), &[1, 2]);
        let seal = Seal { by: r(4), signature: None };
        let mut keep =
            |height, message: &SyncMessage| early.keep((View(2), height), message.clone(), seal, r(4), 2);
        assert!(keep(Some(Height(4)), &voted(&headers[0])) && keep(Some(Height(5)), &voted(&headers[1])));
        for header in &headers {
            assert!(!keep(Some(header.block.height), &voted(header)));
        }
        let words = (0..1_000).filter(|_| keep(None, &first_vote(2, GENESIS))).count();
        assert_eq!(words, WORDS_MAX);
        assert_eq!(early.take(View(2)).len(), 2 + WORDS_MAX);
        let kept = early.kept.get(&r(4)).map(|kept| (kept.messages.len(), kept.places.len()));
        assert_eq!(kept, Some((0, 0)));
    }
}
