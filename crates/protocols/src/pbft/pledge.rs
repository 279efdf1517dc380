//! Signed PRE-PREPAREs of leaders, in variant S (§9): the part of a certificate that only the leader can give.
//!
//! The leader pre-prepares the blocks that its view takes over again by id (`Again`), so that they can be certified in that
//! view.

use super::certified::Certified;
use super::kinds::{PRE_PREPARE, PREPARE};
use super::message::{PbftMessage, Vote};
use super::variant::Variant;
use super::{Pbft, VIEWS_AHEAD};
use quorate_consensus::{Certificate, Cx, Evidence, Reject, Seal, To};
use quorate_types::{BlockId, Height, Kind, ReplicaId, Signature, View};

/// A signed PRE-PREPARE without its block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pledge {
    pub(super) view: View,
    pub(super) block: BlockId,
    pub(super) signature: Signature,
}

impl<V: Variant> Pbft<V> {
    /// Keeps a PRE-PREPARE signed by the leader of its view, with its block or without. Of the views from the current one on,
    /// the one of the lowest view is kept: an early message of a later leader must not cost this view its certificates.
    pub(super) fn note_pledge(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, vote: Vote) {
        let Vote { view, height, block } = vote;
        let is_near = view >= self.current.view && view.since(self.current.view) <= VIEWS_AHEAD;
        let Some(signature) = seal.signature.filter(|_| V::SIGNED && is_near) else {
            return;
        };
        if self.check_window(height).is_err() {
            return;
        }
        let current = self.current.view;
        let pledge = Pledge { view, block, signature };
        let known = &mut self.instance(height).pledge;
        match known {
            Some(first) if first.view == view && first.block != block => {
                let first = (*first, Vote { block: first.block, ..vote });
                self.accuse(cx, seal.by, PRE_PREPARE, (first.1, first.0.signature), (vote, signature));
                // The two signatures prove to every replica that this leader is faulty.
                if view == current && self.current.normal {
                    self.suspect_at_once(cx);
                }
            }
            Some(first) if first.view >= current && first.view <= view => {}
            _ => *known = Some(pledge),
        }
    }

    /// Reports two signed statements of one replica for one slot.
    pub(super) fn accuse(
        &self,
        cx: &mut Cx<'_, Self>,
        by: ReplicaId,
        kind: Kind,
        first: (Vote, Signature),
        second: (Vote, Signature),
    ) {
        let stated = |(vote, signature): (Vote, Signature)| (vote.statement(kind), signature);
        cx.accuse(Evidence { by, first: stated(first), second: stated(second) });
    }

    /// Handles a PRE-PREPARE by id of a block that a NEW-VIEW has taken over.
    pub(super) fn on_again(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, vote: Vote) -> Result<(), Reject> {
        self.check_window(vote.height)?;
        if !V::SIGNED {
            return Err(Reject::Invalid("variant"));
        }
        if vote.view < self.current.view {
            return Err(Reject::Stale);
        }
        if seal.by != self.leader_of(cx, vote.view) {
            return Err(Reject::WrongSender);
        }
        self.note_pledge(cx, seal, vote);
        self.check_prepared(cx, vote.height);
        Ok(())
    }

    /// Sends, in variant S, the PRE-PREPARE by id of a block that the view takes over.
    pub(super) fn send_pledge(&self, cx: &mut Cx<'_, Self>, to: To, height: Height, block: BlockId) {
        if V::SIGNED {
            cx.send(to, PbftMessage::Again(Vote { view: self.current.view, height, block }).into());
        }
    }

    /// Returns the certificates of a block that has prepared in the current view; `None` in variant H, which needs none.
    pub(super) fn certify(
        &self,
        height: Height,
        block: BlockId,
        needed: usize,
    ) -> Result<Option<Certified>, Incomplete> {
        if !V::SIGNED {
            return Ok(None);
        }
        let view = self.current.view;
        let instance = self.instances.get(&height).ok_or(Incomplete)?;
        let is_it = |pledge: &Pledge| pledge.view == view && pledge.block == block;
        let pledge = instance.pledge.filter(is_it).ok_or(Incomplete)?;
        let vote = Vote { view, height, block };
        let mut prepares = instance.prepares.signed(view, block);
        prepares.truncate(needed);
        Ok(Some(Certified {
            proposal: Certificate::of(
                vote.statement(PRE_PREPARE),
                &[(self.current.leader, pledge.signature)],
            ),
            prepares: Certificate::of(vote.statement(PREPARE), &prepares),
        }))
    }

    /// Returns whether the leader's signature under its proposal is missing, so that the leader has to send it again.
    pub(super) fn lacks_pledge(&self, height: Height) -> bool {
        let Some(instance) = self.instances.get(&height).filter(|_| V::SIGNED) else {
            return false;
        };
        instance.pledge.is_none_or(|pledge| pledge.view != self.current.view)
    }
}

/// A signature is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incomplete;
