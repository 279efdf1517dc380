//! Messages of views that have not begun at this replica.

use super::message::SyncMessage;
use super::missed_heights::Span;
use super::statements::Header;
use quorate_consensus::{Seal, Signed};
use quorate_types::{Height, ReplicaId, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Messages without a block that are kept of one replica: more than an honest one sends before this replica enters.
const WITHOUT_BLOCK_MAX: usize = 64;

/// Headers of a view that were too high to be kept.
#[derive(Clone, Debug)]
pub(super) struct HeadersTooHigh {
    pub(super) span: Span,
    /// The first header, and the first one that names another base.
    pub(super) headers: Vec<Signed<Header>>,
}

/// Messages that are kept of one replica.
#[derive(Debug, Default)]
struct KeptMessages {
    messages: VecDeque<(View, SyncMessage, Seal)>,
    /// Places of votes and proposals: at most one of each at a place.
    places: BTreeSet<(View, Height, bool)>,
}

impl KeptMessages {
    fn without_block(&self) -> usize {
        self.messages.len().saturating_sub(self.places.len())
    }
}

/// Early messages by sender.
#[derive(Debug, Default)]
pub(super) struct EarlyMessages {
    kept: BTreeMap<ReplicaId, KeptMessages>,
    too_high: BTreeMap<View, HeadersTooHigh>,
}

impl EarlyMessages {
    /// Keeps a message of a later view. A message with a height is about a block: the first one of each place is kept, for
    /// `most` places of one replica. An honest replica sends fewer before this one enters. Other messages are a liar's and
    /// count as never sent.
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
            None => kept.without_block() < WITHOUT_BLOCK_MAX,
        };
        if has_room {
            kept.messages.push_back((view, message, seal));
        }
        has_room
    }

    /// Notes a header of a later view that is too high to be kept.
    pub(super) fn note_too_high(&mut self, header: &Signed<Header>) {
        let block = &header.body.block;
        let span = Span::of(block.height);
        let noted =
            self.too_high.entry(block.view).or_insert_with(|| HeadersTooHigh { span, headers: Vec::new() });
        noted.span = noted.span.with(span);
        if noted.headers.iter().all(|known| known.body.base != header.body.base) && noted.headers.len() < 2 {
            noted.headers.push(header.clone());
        }
    }

    /// Takes the headers that were too high of a view that begins.
    pub(super) fn too_high(&mut self, view: View) -> Option<HeadersTooHigh> {
        self.too_high = self.too_high.split_off(&view);
        self.too_high.remove(&view)
    }

    /// Takes the messages of a view, and forgets those of earlier views.
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

    /// A repeated message is kept once, and messages without a block are few.
    #[test]
    fn repeated_early_messages_take_no_room() {
        let mut early = EarlyMessages::default();
        let headers = chain(N, 2, (Height(3), BlockId::null(Height(3))), &[1, 2]);
        let seal = Seal { by: r(4), signature: None };
        let mut keep =
            |height, message: &SyncMessage| early.keep((View(2), height), message.clone(), seal, r(4), 2);
        assert!(keep(Some(Height(4)), &voted(&headers[0])) && keep(Some(Height(5)), &voted(&headers[1])));
        for header in &headers {
            assert!(!keep(Some(header.block.height), &voted(header)));
        }
        let without_block = (0..1_000).filter(|_| keep(None, &first_vote(2, GENESIS))).count();
        assert_eq!(without_block, WITHOUT_BLOCK_MAX);
        assert_eq!(early.take(View(2)).len(), 2 + WITHOUT_BLOCK_MAX);
        let kept = early.kept.get(&r(4)).map(|kept| (kept.messages.len(), kept.places.len()));
        assert_eq!(kept, Some((0, 0)));
    }
}
