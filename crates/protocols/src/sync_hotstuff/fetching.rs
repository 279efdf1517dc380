//! Fetching of blocks that cannot be voted for yet (§4 `want`, §7).
//!
//! A block is asked for a quarter of Δ after its header was first heard. All peers that have shown the header are asked:
//! a peer that has voted for a block has it. A peer that does not answer delays no other.

use super::replica::{End, Form, SyncHotStuff, Timer};
use quorate_consensus::Cx;
use quorate_types::{BlockId, ReplicaId, Time};

impl<F: Form> SyncHotStuff<F> {
    /// Fetches a block from a peer that has shown it. Its bodies are on their way in the good case.
    pub(super) fn fetch_soon(&mut self, cx: &mut Cx<'_, Self>, block: End, holder: ReplicaId) {
        let due = cx.now().plus(self.delta.quarter());
        self.fetch(cx, block, holder, due);
    }

    /// Fetches a block from a peer that has shown it, from `due` on.
    pub(super) fn fetch(&mut self, cx: &mut Cx<'_, Self>, (height, id): End, holder: ReplicaId, due: Time) {
        if holder == cx.me() || F::is_complete(self, cx, id) {
            return self.end_fetch(cx, id);
        }
        let is_due = due <= cx.now();
        let fetch = F::fetches(self).begin(id, height, due);
        let is_first = fetch.holders.is_empty();
        fetch.holders.insert(holder);
        fetch.due = fetch.due.min(due);
        if fetch.is_asked || (is_due && is_first) {
            fetch.is_asked = true;
            // §8, Lemma 1 a: also a peer that was asked before. It may have shown a header without its bodies and votes now.
            F::ask_for(self, cx, id, holder);
        } else if is_due {
            // There is no time to wait for earlier holders.
            self.ask_holders(cx, id);
        }
        self.arm_fetch(cx);
    }

    /// Ends the fetch of a block that is complete.
    pub(super) fn end_fetch(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if F::fetches(self).0.contains_key(&id) && F::is_complete(self, cx, id) {
            F::fetches(self).0.remove(&id);
            self.arm_fetch(cx);
        }
    }

    pub(super) fn on_fetch_timer(&mut self, cx: &mut Cx<'_, Self>) {
        for id in F::fetches(self).due(cx.now()) {
            if F::is_complete(self, cx, id) {
                F::fetches(self).0.remove(&id);
            } else {
                self.ask_holders(cx, id);
            }
        }
        self.arm_fetch(cx);
    }

    /// Asks all holders of a block once. A later holder is asked when it shows the block.
    pub(super) fn ask_holders(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        let Some(mut peers) = F::fetches(self).ask(id) else { return };
        if F::FETCHES_FROM_LEADER {
            peers.insert(self.leader);
        }
        peers.remove(cx.me());
        peers.iter().for_each(|peer| F::ask_for(self, cx, id, peer));
    }

    fn arm_fetch(&mut self, cx: &mut Cx<'_, Self>) {
        // A block that is due and was not asked for yet counts as well: another event may come first.
        match F::fetches(self).next_due() {
            Some(due) => cx.timers().set(Timer::Fetch, due),
            None => cx.timers().cancel(Timer::Fetch),
        }
    }
}
