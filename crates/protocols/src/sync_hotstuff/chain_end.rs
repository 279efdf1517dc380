//! End of the committed chain (§8): it moves on by the rules of the form, by decided blocks, and by checkpoints.

use super::replica::{End, Form, SyncHotStuff, noted};
use quorate_consensus::parts::chain::{Ancestry, Tip};
use quorate_consensus::{Alarm, Commit, Cx};

impl<F: Form> SyncHotStuff<F> {
    /// S8, R12. §8: commits a block with its ancestors, on the committed chain. `rule` is the note in the trace.
    pub(super) fn commit(&mut self, cx: &mut Cx<'_, Self>, (height, id): End, rule: &'static str) {
        let committed = self.chain.committed();
        if height <= committed.height {
            return;
        }
        let Some(tip) = self.chain.tip(cx.blocks(), id) else { return };
        match self.chain.ancestry(cx.blocks(), tip) {
            Ancestry::Extends => {
                cx.commit(Commit::Chain(id));
                self.note(cx, rule, height);
                if rule == noted::COMMITTED {
                    F::note_timer_commit(self, tip);
                }
                self.adopt_tip(cx, tip);
            }
            Ancestry::Conflicts(second) => {
                cx.alarm(Alarm::SafetyBroken { height: committed.height, first: committed.id, second });
            }
            Ancestry::Unknown(_) => {} // `on_ready` tries again.
        }
    }

    /// Moves the committed end on, by whatever rule.
    pub(super) fn adopt_tip(&mut self, cx: &mut Cx<'_, Self>, tip: Tip) {
        if tip.height > self.chain.committed().height {
            self.chain.commit(tip);
            F::settle(self, cx);
            // A header that was too high to be voted for may be low enough now.
            F::vote_for_headers(self, cx);
        }
    }

    /// Moves the committed end on to blocks that were decided without this replica's own rules.
    pub(super) fn adopt_decided(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(tip) = self.chain.decided(cx.blocks()) {
            self.adopt_tip(cx, tip);
        }
    }

    /// Reports that the bound on delays has not held, or that a replica lies about it. Nothing else follows (§13).
    pub(super) fn doubt(&self, cx: &mut Cx<'_, Self>, why: &'static str) {
        cx.alarm(Alarm::SynchronyDoubt { view: self.view, peer: None, why });
    }
}
