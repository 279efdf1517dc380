//! Fetching of certified blocks (§4 `want`, §7).

use super::super::replica::SyncHotStuff;
use super::state::Rotating;
use quorate_consensus::{Certificate, Cx};
use quorate_types::{BlockId, Height, ReplicaSet};
use std::collections::BTreeSet;

impl SyncHotStuff<Rotating> {
    /// Fetches a certified block from its voters: an honest one is among them. This happens at once if its header is missing.
    /// Otherwise its bodies are on their way, as those of any block that was shown.
    pub(super) fn take_up_certified(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let id = certificate.block();
        if cx.blocks().get(id).is_none() {
            return self.want_certified(cx, certificate);
        }
        let holders = self.state.fetches.0.get(&id).map_or(ReplicaSet::EMPTY, |fetch| fetch.holders);
        for by in certificate.signers.iter().filter(|by| !holders.contains(*by)) {
            self.fetch_soon(cx, (Height::ZERO, id), by);
        }
    }

    /// Fetches a certified block from its voters at once.
    pub(super) fn want_certified(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let now = cx.now();
        for by in certificate.signers.iter() {
            self.fetch(cx, (Height::ZERO, certificate.block()), by, now);
        }
    }

    /// Asks for a block again if it was asked for before: its parent is certified now.
    pub(super) fn ask_late(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if self.state.fetches.is_asked(id) && self.ready(cx, id).is_none() {
            self.ask_holders(cx, id);
        }
        self.end_fetch(cx, id);
    }

    /// Forgets fetches of blocks that no kept view names. So there are no more fetches than kept blocks.
    pub(super) fn settle_fetches(&mut self) {
        if self.state.fetches.0.is_empty() {
            return;
        }
        let heads = self.state.views.values().filter_map(|facts| facts.first.as_ref().map(|(id, _)| *id));
        let certified = self.state.certificates.down().map(Certificate::block);
        let matters: BTreeSet<BlockId> = heads.chain(certified).collect();
        self.state.fetches.0.retain(|id, _| matters.contains(id));
    }
}
