//! Answers of peers to a recovering replica (§18).

use super::super::replica::SyncHotStuff;
use super::message::{Answer, HEADERS_MAX};
use super::missed_heights::Span;
use super::statements::{Header, end_of, rank};
use super::variant::Variant;
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::{Certificate, Cx, Reject, Signed};
use quorate_types::{Height, ReplicaId, View};

impl<V: Variant> SyncHotStuff<V> {
    /// Asks all peers what has become of the view, at most once in a Δ. Returns whether it did.
    pub(super) fn ask_again(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let is_time = cx.now() >= self.recovery.asked_all_at().plus(self.delta.times(1));
        if is_time {
            self.ask_all(cx);
        }
        is_time
    }

    /// Whether the highest certified block that may be extended is complete. It is the highest one at the time when nothing
    /// else was left to wait for. Later certificates arrive as at any replica: otherwise a leader could keep this replica
    /// silent with ever new blocks. A block that conflicts with votes of q_R replicas is given up: nobody extends it, and
    /// perhaps no replica has it whole.
    pub(super) fn has_goal(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let committed = self.chain.committed().height;
        let tip = self.lock_before(cx.blocks(), View(u64::MAX)).tip;
        let stays = |goal: &Certificate| {
            end_of(goal).0 <= committed
                || self.extends(cx.blocks(), end_of(&tip), end_of(goal)) != Some(false)
        };
        let goal = self.state.goal.clone().filter(stays).unwrap_or(tip);
        let (height, id) = end_of(&goal);
        let is_whole = height <= committed || self.ready(cx, id).is_some();
        if !is_whole {
            self.want_certified(cx, &goal);
        }
        self.state.goal = Some(goal);
        is_whole
    }

    pub(super) fn on_answer(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        answer: Answer,
    ) -> Result<(), Reject> {
        let (view, told) = (self.view, self.told_without_headers(&answer));
        let Answer { incarnation, stage, evidence, certificates, new_view, headers, voted } = answer;
        if !self.recovery.is_answered(incarnation) {
            return Err(Reject::Stale);
        }
        // §18: evidence and certificates first, so that they count before this replica signs anything.
        for evidence in &evidence {
            let _: Result<(), Reject> = self.on_evidence(cx, evidence);
        }
        for certificate in &certificates {
            let quorum = V::responsive_quorum(cx.committee().n());
            if quorum.is_some_and(|quorum| certificate.signers.len() >= quorum) {
                self.take_responsive(cx, certificate);
            } else {
                self.take_certificate(cx, certificate);
            }
        }
        // Statements of a view that has not begun at this replica cannot be kept yet.
        let later = new_view.iter().map(|new_view| new_view.body.view);
        let later = later.chain(headers.iter().map(|header| header.body.block.view));
        self.state.is_behind |= later.max().is_some_and(|view| view > self.view);
        if let Some(new_view) = new_view {
            let _: Result<(), Reject> = self.on_new_view(cx, new_view, link);
        }
        for header in &headers {
            let _: Result<(), Reject> = self.on_header(cx, header, link);
        }
        if let Some(Signed { body: header, by, signature }) = voted {
            if by != link {
                return Err(Reject::Invalid("vote of another replica"));
            }
            self.forget_asked(header.body.block.id(), link);
            let _: Result<(), Reject> = self.on_header(cx, &header, link);
            let block = &header.body.block;
            let place = (block.view, block.height);
            let _: Result<(), Reject> = self.count(cx, place, block.id(), by, signature);
        }
        let left_out = told.filter(|_| self.view == view).and_then(|told| self.unheard(told));
        if let Some(left_out) = left_out.filter(|_| self.recovery.is_silent()) {
            // S2. §8, Lemma 1 b: others may have voted up to there for headers that this replica has not heard.
            self.note_missed(cx, left_out);
        }
        if left_out.is_none() || self.recovery.is_silent() {
            self.recovery.note_answer(link, stage);
        } else {
            // §18: an answer that leaves something out closes no gap. If it prevented votes of now, a liar could keep this
            // replica from voting for any time.
            self.recovery.note_partial_answer(link, stage);
        }
        self.advance_recovery(cx);
        Ok(())
    }

    /// Returns the highest certified block of the view that an ANSWER names without its header: it has room for so many. A
    /// replica that has voted higher shows a certificate of the parent; a vote alone proves nothing.
    fn told_without_headers(&self, answer: &Answer) -> Option<Height> {
        let of_view = |(view, height): (View, Height)| (view == self.view).then_some(height);
        let voted: Option<&Header> = answer.voted.as_ref().map(|vote| &vote.body.body);
        let voted = voted.and_then(|header| of_view((header.block.view, header.block.height)));
        let certified =
            answer.certificates.iter().filter_map(|certificate| of_view(rank(certificate))).max()?;
        let below = if Some(certified) == voted { certified.minus(1) } else { certified };
        (answer.headers.len() >= HEADERS_MAX).then_some(below)
    }

    /// Returns the heights up to there that are not settled and have no header at this replica.
    fn unheard(&self, told: Height) -> Option<Span> {
        let has_header = |height| self.in_view.statements.at(height).is_some();
        let mut span = Span { low: self.chain.committed().height.next(), high: told };
        while span.low <= span.high && has_header(span.low) {
            span.low = span.low.next();
        }
        while span.low <= span.high && has_header(span.high) {
            span.high = span.high.minus(1);
        }
        (span.low <= span.high).then_some(span)
    }
}
