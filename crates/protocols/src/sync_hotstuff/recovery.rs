//! Recovery (§18) of a replica of any form. S16 and R14.

use super::replica::{Form, SyncHotStuff, Timer, noted};
use quorate_consensus::parts::recovery::{Recovery, RecoveryStage};
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::{Cx, Signed};
use quorate_types::{BlockId, Height, Incarnation, ReplicaId, Signature};

impl<F: Form> Recovers for SyncHotStuff<F> {
    const RECOVER: Timer = Timer::Recover;

    fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    fn delta_ns(&self) -> u64 {
        self.delta.times(1)
    }

    fn question(&self) -> F::Message {
        F::ask(self)
    }

    fn report(&self, me: ReplicaId, incarnation: Incarnation, above: Height) -> F::Message {
        F::answer(self, me, incarnation, above)
    }

    fn reports_above(&self) -> Height {
        self.chain.committed().height
    }

    fn is_whole(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        F::is_whole(self, cx)
    }

    fn note_stage(&self, cx: &mut Cx<'_, Self>, stage: RecoveryStage) {
        let what = match stage {
            RecoveryStage::Silent => noted::SILENT,
            RecoveryStage::Voting => noted::VOTING,
            RecoveryStage::Running => noted::RUNNING,
        };
        self.note(cx, what, Height::ZERO);
    }

    fn resume(&mut self, cx: &mut Cx<'_, Self>) {
        F::resume(self, cx);
    }

    fn fall_silent(&mut self, cx: &mut Cx<'_, Self>) {
        F::fall_silent(self);
        cx.timers().retain(|timer| matches!(timer, Timer::Recover | Timer::Fetch));
    }
}

/// Returns the last vote with the signature of its own copy, if that copy has arrived.
pub(super) fn signed_vote<H: Clone>(
    me: ReplicaId,
    voted: Option<&H>,
    own_copy: Option<(BlockId, Signature)>,
    id: impl Fn(&H) -> BlockId,
) -> Option<Signed<H>> {
    let (header, (block, signature)) = (voted?, own_copy?);
    (id(header) == block).then(|| Signed { body: header.clone(), by: me, signature })
}
