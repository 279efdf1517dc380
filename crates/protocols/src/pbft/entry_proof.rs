//! The proof that let a replica into its view, for replicas that are behind (§8: entry evidence).
//!
//! An honest replica in view w holds a proof that f + 1 honest replicas have sent view changes for w - 1 or later. It hands
//! the proof on, so after a heal all honest replicas come to within one view of each other.

use super::message::StatusReport;
use super::variant::Variant;
use super::view_message::EntryProof;
use super::{Pbft, PbftMessage};
use quorate_consensus::{Cx, Reject, To};
use quorate_types::ReplicaId;

impl<V: Variant> Pbft<V> {
    /// Returns whether the sender of a STATUS needs the proof that let this replica into its view.
    pub(super) fn owes_entry(&self, report: &StatusReport) -> bool {
        let waits_here = report.view == self.current.view && !report.normal && self.current.normal;
        (report.view < self.current.view || waits_here) && self.current.proof != EntryProof::Nothing
    }

    /// V13. Sends the proof. Rate-limited with all other answers to a STATUS.
    pub(super) fn send_entry(&self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let entry = PbftMessage::Entry { view: self.current.view, proof: self.current.proof.clone() };
        cx.send_unheld(To::One(peer), entry.into());
    }

    /// V13. Handles a proof like its parts: its sender makes none of them more credible.
    pub(super) fn on_entry(&mut self, cx: &mut Cx<'_, Self>, proof: EntryProof) -> Result<(), Reject> {
        match proof {
            EntryProof::Nothing => Err(Reject::Invalid("empty entry proof")),
            EntryProof::NewView(new) => self.on_new_view(cx, *new),
            EntryProof::ViewChanges(changes) => {
                let mut result = Err(Reject::Invalid("empty entry proof"));
                for change in changes {
                    let taken = self.on_view_change(cx, change);
                    result = result.or(taken);
                }
                result
            }
        }
    }
}
