//! STATUS and retransmission (§11, §15).
//!
//! Links lose nothing while both sides live, so retransmission is for restarts, gaps and lies. A vote convinces only when it
//! comes from its author, so each replica repeats its own messages alone: the identical statements, held like the first
//! time. Retransmission decides nothing, and the replica remembers of a STATUS only the time of its answer.

use super::message::{MissingAtHeight, PbftMessage, StatusReport, Vote};
use super::variant::Variant;
use super::{Instance, MS, Pbft, Timer};
use quorate_consensus::{Cx, OpenError, Reject, To};
use quorate_types::limits::STATUS_HEIGHTS_MAX;
use quorate_types::{Block, BlockId, Height, ReplicaId, ReplicaSet, View};

/// Own messages of one height to send again.
#[derive(Clone, Copy, Debug)]
struct ResendSet {
    proposal: bool,
    prepare: bool,
    commit: bool,
}

impl ResendSet {
    const ALL: Self = Self { proposal: true, prepare: true, commit: true };
}

impl<V: Variant> Pbft<V> {
    /// Resumes after a restart (§15).
    pub(super) fn resume(&mut self, cx: &mut Cx<'_, Self>) -> Result<(), OpenError> {
        let (view, is_leader, normal) =
            (self.current.view, self.current.leader == cx.me(), self.current.normal);
        let taken_over = self.last_taken_over();
        self.progress.known = self
            .instances
            .keys()
            .next_back()
            .map_or(self.progress.known, |last| self.progress.known.max(*last));
        // All known heights were undecided before the crash: the first STATUS names them.
        self.progress.stalled = self.progress.known;
        for (height, instance) in &mut self.instances {
            // Blocks that the view took over are not proposed once more: the NEW-VIEW proposes them.
            let Some(block) = instance.pre_prepared_in(view).filter(|_| normal && *height > taken_over)
            else {
                continue;
            };
            if !is_leader {
                instance.proposal = Some((view, block));
            } else if *height > self.progress.executed
                && instance.decided.is_none()
                && !cx.blocks().contains(block)
            {
                // The log keeps blocks before the records that name them, so this is damage.
                return Err(OpenError::Past(format!("the own proposal at height {height} is missing")));
            }
        }
        // Q3: identical statements, from Q and P. The own copies bring the own votes back into the count.
        for height in self.undecided() {
            self.send_again(cx, To::All, height, ResendSet::ALL);
        }
        if !self.current.normal {
            self.resume_view_change(cx);
        }
        self.watch_leader(cx);
        self.send_status(cx);
        self.arm_status(cx);
        Ok(())
    }

    /// Returns the known heights that are not decided at this replica.
    fn undecided(&self) -> Vec<Height> {
        let open = self.instances.range(self.progress.decided.next()..);
        open.filter(|(_, instance)| instance.decided.is_none()).map(|(height, _)| *height).collect()
    }

    /// Sends own messages of a height again.
    fn send_again(&self, cx: &mut Cx<'_, Self>, to: To, height: Height, set: ResendSet) {
        let Some(instance) = self.instances.get(&height) else {
            return;
        };
        let view = self.current.view;
        if let Some(block) = instance.pre_prepared_in(view) {
            if self.current.leader != cx.me() {
                if set.prepare {
                    cx.send(to, PbftMessage::Prepare(Vote { view, height, block }).into());
                }
            } else if set.proposal && self.current.normal && height <= self.last_taken_over() {
                // The NEW-VIEW proposes the block; in variant S this message does so as well.
                self.send_pledge(cx, to, height, block);
            } else if set.proposal
                && self.current.normal
                && let Some(header) = cx.blocks().get(block).map(|header| Block::clone(header))
            {
                cx.send(to, PbftMessage::PrePrepare { view, block: header }.into());
            }
        }
        // Any view: a peer may still be in it, and COMMITs of any view count.
        if set.commit
            && let Some((block, view)) = instance.prepared
        {
            cx.send(to, PbftMessage::Commit(Vote { view, height, block }).into());
        }
    }

    /// R3: handles a loss on the link to a peer.
    pub(super) fn on_gap(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        for height in self.undecided() {
            self.send_again(cx, To::One(peer), height, ResendSet::ALL);
        }
    }

    /// Notes a known height: STATUS goes out every `status_ms` until it is decided.
    pub(super) fn note_height(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        if height > self.progress.known {
            self.progress.known = height;
            self.send_status_soon(cx);
        }
    }

    pub(super) fn on_status_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.send_status(cx);
        let stalled: Vec<Height> = self
            .instances
            .range(self.progress.executed.next()..)
            .map(|(height, _)| *height)
            .take_while(|height| *height <= self.progress.stalled)
            .take(STATUS_HEIGHTS_MAX)
            .collect();
        for height in stalled {
            self.want_next(cx, height);
        }
        // Heights that are known now and still undecided at the next STATUS have waited for a whole period.
        self.progress.stalled = self.progress.known;
        self.arm_status(cx);
    }

    /// Makes a STATUS due soon: this replica seems to be behind, or a client waits.
    pub(super) fn send_status_soon(&self, cx: &mut Cx<'_, Self>) {
        let soon = cx.now().plus(self.params.status_ms.saturating_mul(MS));
        if cx.timers().get(Timer::Status).is_none_or(|at| at > soon) {
            cx.timers().set(Timer::Status, soon);
        }
    }

    fn arm_status(&self, cx: &mut Cx<'_, Self>) {
        // §11: idle when nothing is undecided or unexecuted.
        let is_idle = self.current.normal
            && self.progress.executed >= self.progress.known
            && cx.pending().oldest.is_none();
        let pause_ms = if is_idle { self.params.idle_status_ms } else { self.params.status_ms };
        let at = cx.now().plus(pause_ms.saturating_mul(MS));
        cx.timers().set(Timer::Status, at);
    }

    fn send_status(&self, cx: &mut Cx<'_, Self>) {
        let report = self.status_report(cx);
        cx.send_unheld(To::All, PbftMessage::Status(report).into());
    }

    fn status_report(&self, cx: &Cx<'_, Self>) -> StatusReport {
        StatusReport {
            view: self.current.view,
            normal: self.current.normal,
            stable: self.progress.stable,
            executed: self.progress.executed,
            missing: self.missing(cx),
        }
    }

    /// Returns the messages that this replica lacks to decide heights that have been undecided for a while.
    fn missing(&self, cx: &Cx<'_, Self>) -> Vec<MissingAtHeight> {
        let me = cx.me();
        let others: ReplicaSet = cx.committee().others(me).collect();
        let nothing = Instance::default();
        let mut missing = Vec::new();
        let mut height = self.progress.decided.next();
        while height <= self.progress.stalled && missing.len() < STATUS_HEIGHTS_MAX {
            let instance = self.instances.get(&height).unwrap_or(&nothing);
            if instance.decided.is_none() {
                missing.push(self.missing_at(height, instance, me, others));
            }
            height = height.next();
        }
        missing
    }

    fn missing_at(
        &self,
        height: Height,
        instance: &Instance,
        me: ReplicaId,
        others: ReplicaSet,
    ) -> MissingAtHeight {
        let view = self.current.view;
        let is_prepared = instance.prepared.is_some_and(|(_, latest)| latest == view);
        let mut prepares = if is_prepared || !self.current.normal { ReplicaSet::EMPTY } else { others };
        prepares.remove(self.current.leader);
        MissingAtHeight {
            height,
            proposal: self.current.normal
                && self.current.leader != me
                && (instance.proposal.is_none_or(|(known, _)| known != view)
                    || (!is_prepared && self.lacks_pledge(height))),
            prepares: without(prepares, instance.prepares.voted_in(view)),
            commits: without(others, instance.commits.voted_in(view)),
        }
    }

    /// R1: handles the STATUS of a peer.
    pub(super) fn on_status(
        &mut self,
        cx: &mut Cx<'_, Self>,
        by: ReplicaId,
        report: &StatusReport,
    ) -> Result<(), Reject> {
        if by == cx.me() {
            return Err(Reject::WrongSender);
        }
        self.peers.executed.insert(by, report.executed);
        // Heights that the peer has executed or lacks exist. A lie costs a longer STATUS, bounded by the window.
        let lacked = report.missing.iter().map(|missing| missing.height);
        let top = lacked.chain([report.executed]).max().unwrap_or_default();
        let top = top.min(self.progress.stable.plus(self.window));
        self.note_height(cx, top);
        self.progress.stalled = self.progress.stalled.max(top);
        if report.view > self.current.view {
            self.send_status_soon(cx);
        }
        let owes_entry = self.owes_entry(report);
        // A peer that lags far behind learns the progress of others, or it would suspect its leader (T7).
        let lags = self.progress.executed.since(report.executed) > self.params.blocks_in_flight;
        if report.missing.is_empty() && !owes_entry && !lags {
            return Ok(());
        }
        // One answer to a peer in half a period, each bounded by the length of the list.
        let pause = self.params.status_ms.saturating_mul(MS) / 2;
        let now = cx.now();
        if self.peers.answered.get(&by).is_some_and(|last| now.since(*last) < pause) {
            return Err(Reject::NotNow("status_too_soon"));
        }
        self.peers.answered.insert(by, now);
        if owes_entry || lags {
            let report = self.status_report(cx);
            cx.send_unheld(To::One(by), PbftMessage::Status(report).into());
        }
        if owes_entry {
            self.send_entry(cx, by);
        }
        for missing in &report.missing {
            self.help(cx, by, report.view, missing);
        }
        Ok(())
    }

    fn help(&self, cx: &mut Cx<'_, Self>, peer: ReplicaId, view: View, missing: &MissingAtHeight) {
        // Proposals and PREPAREs count in the peer's view only.
        let same_view = view == self.current.view;
        let set = ResendSet {
            proposal: same_view && missing.proposal,
            prepare: same_view && missing.prepares.contains(cx.me()),
            commit: missing.commits.contains(cx.me()),
        };
        self.send_again(cx, To::One(peer), missing.height, set);
    }

    /// R4: requests a needed and missing block from the next replica that has voted for it.
    pub(super) fn want_next(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        let (view, leader) = (self.current.view, self.current.leader);
        let Some(instance) = self.instances.get_mut(&height) else {
            return;
        };
        let proposed = instance.proposal.filter(|(known, _)| *known == view).map(|(_, block)| block);
        let is_missing = |block: &BlockId| Self::readiness(cx, height, *block).is_none();
        let Some(block) = instance.decided.or(proposed).filter(is_missing) else {
            return;
        };
        let mut voters: ReplicaSet =
            instance.commits.voters(block).iter().chain(instance.prepares.voters(block).iter()).collect();
        if proposed == Some(block) {
            voters.insert(leader);
        }
        voters.remove(cx.me());
        let later = voters.iter().find(|voter| instance.asked.is_some_and(|asked| *voter > asked));
        if let Some(voter) = later.or_else(|| voters.iter().next()) {
            instance.asked = Some(voter);
            cx.want(block, voter);
        }
    }
}

fn without(mut set: ReplicaSet, gone: ReplicaSet) -> ReplicaSet {
    for id in gone.iter() {
        set.remove(id);
    }
    set
}
