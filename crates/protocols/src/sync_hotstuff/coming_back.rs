//! Opening, and coming back (§18): what is asked, what is answered, and what follows from it.

use super::leaving::Leaving;
use super::message::{Answer, HEADERS_MAX, SyncMessage};
use super::missed::Span;
use super::normal::{IfIdle, end_of};
use super::words::{Header, rank};
use super::{SyncHotStuff, Timer, Variant, noted};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{Certificate, Cx, Reject, Signed, To};
use quorate_types::{Height, Incarnation, ReplicaId, View};

impl<V: Variant> SyncHotStuff<V> {
    /// Asks whoever is to be asked now, and takes up what time alone allows.
    pub(super) fn go_on_returning(&mut self, cx: &mut Cx<'_, Self>) {
        let (committee, me, now) = (cx.committee(), cx.me(), cx.now());
        let peers = self.returning.to_ask(committee, me, now);
        if !peers.is_empty() {
            self.ask(cx, To::Some(peers));
        }
        self.advance(cx);
    }

    fn ask(&mut self, cx: &mut Cx<'_, Self>, to: To) {
        let above = self.chain.committed().height;
        cx.send_unheld(to, SyncMessage::Ask { incarnation: self.incarnation, above });
    }

    /// All are asked once more what has become of the view.
    pub(super) fn ask_all(&mut self, cx: &mut Cx<'_, Self>) {
        self.asked_at = cx.now();
        self.ask(cx, To::All);
    }

    /// The same, at most once in a Δ. Whether it is time.
    pub(super) fn ask_again(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let is_time = cx.now() >= self.asked_at.plus(self.delta.times(1));
        if is_time {
            self.ask_all(cx);
        }
        is_time
    }

    /// The next standing, as soon as its time has come.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_, Self>) {
        let committee = cx.committee();
        // What is certified is looked through when it matters: there may be much of it, and whoever opens hears of each block.
        while self.returning.next(committee, cx.now()).is_some()
            && (!self.returning.is_silent() || self.is_whole(cx))
            && let Some(standing) = self.returning.advance(committee, cx.now())
        {
            self.goal = None;
            let began = std::mem::replace(&mut self.has_begun, true);
            self.note(
                cx,
                if standing == Standing::Running { noted::RUNNING } else { noted::VOTING },
                Height::ZERO,
            );
            let answer = self.answer(cx, Incarnation::ZERO, self.chain.committed().height);
            cx.send_unheld(To::All, SyncMessage::Answer(Box::new(answer)));
            if !began {
                self.begin(cx);
            }
        }
        match self.returning.deadline(cx.now()) {
            Some(at) => cx.timers().set(Timer::Return, at),
            None => cx.timers().cancel(Timer::Return),
        }
    }

    /// Whether the block that was the highest certified one to be gone on from, when nothing else was left to wait for, is here
    /// with all below it: who cannot vote on top of it counts among the f, and blames nobody. What is missing is asked for. What
    /// is certified later comes as it does to everybody: a leader could keep this replica silent with ever new blocks. What
    /// lies beside a block that q_R have voted for nobody goes on from, and it may be that nobody has it whole.
    fn is_whole(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let committed = self.chain.committed().height;
        let tip = self.lock_before(cx.blocks(), View(u64::MAX)).tip;
        let stays = |goal: &Certificate| {
            end_of(goal).0 <= committed
                || self.extends(cx.blocks(), end_of(&tip), end_of(goal)) != Some(false)
        };
        let goal = self.goal.clone().filter(stays).unwrap_or(tip);
        let (height, id) = end_of(&goal);
        let is_whole = height <= committed || self.ready(cx, id).is_some();
        if !is_whole {
            self.want_certified(cx, &goal);
        }
        self.goal = Some(goal);
        is_whole
    }

    /// Silence is over: what was said last is said again, word for word, and the waits of the view begin anew.
    fn begin(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(header) = self.voted.clone() {
            self.resaid = header.body.block.height;
            // S2. In a view that was left it may never have left this replica, and is not said any more (`quit_view`).
            if !self.is_quit() {
                cx.send(To::All, SyncMessage::Vote(header));
            }
        }
        if self.is_quit() {
            self.leaving = Some(Leaving::Wait { since: cx.now() });
            return self.arm_entry(cx, V::WAIT);
        }
        self.join_view(cx);
        // A view that was idle has its next block no sooner.
        let until = cx.now().plus(self.delta.times(4)).plus(self.heartbeat_ns);
        cx.timers().set(Timer::Progress, until);
        if let Some(lock) = self.said_new_view.clone() {
            cx.timers().cancel(Timer::Collect);
            cx.send(To::All, SyncMessage::NewView { view: self.view, lock });
        }
        if let Some(word) = self.shown.clone().filter(|word| word.by != cx.me()) {
            // §6: whom the others have heard another one from has to hear of it.
            cx.send_unheld(To::All, SyncMessage::Forward { word });
        }
        if let Some((height, base)) = self.first_voted {
            cx.send(To::All, SyncMessage::FirstVote { view: self.view, height, base });
        }
        if let Some(header) = self.proposed.clone()
            && let Some(parent) = self.certificate_of((header.block.height.minus(1), header.block.parent))
        {
            cx.send(To::All, SyncMessage::Propose { header, parent });
        }
        self.try_first_vote(cx);
        self.try_vote(cx);
        // Nobody may want anything yet, and the others wait for the first block.
        self.try_propose(cx, IfIdle::Wait);
    }

    /// Something that peers have sent is lost for good.
    pub(super) fn on_gap(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let (committee, now) = (cx.committee(), cx.now());
        if self.returning.note_gap(peer, committee, now) {
            // With more than f of them it may be anything: as on opening.
            self.has_begun = false;
            self.goal = None;
            self.unshown.extend(self.waits.clear());
            self.responsive = None;
            let keep = |timer| matches!(timer, Timer::Return | Timer::Fetch);
            cx.timers().retain(keep);
            self.note(cx, noted::SILENT, Height::ZERO);
        }
        self.go_on_returning(cx);
    }

    pub(super) fn on_back(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        if self.returning.note_link(peer, cx.now()) {
            self.ask(cx, To::One(peer));
        }
        self.advance(cx);
    }

    pub(super) fn on_ask(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        incarnation: Incarnation,
        above: Height,
    ) -> Result<(), Reject> {
        if !self.answered.admits(link, cx.now(), self.delta.times(1)) {
            return Err(Reject::NotNow("asked again too soon"));
        }
        let answer = self.answer(cx, incarnation, above);
        cx.send_unheld(To::One(link), SyncMessage::Answer(Box::new(answer)));
        Ok(())
    }

    fn answer(&self, cx: &mut Cx<'_, Self>, incarnation: Incarnation, above: Height) -> Answer {
        let me = cx.me();
        let headers: Vec<Signed<Header>> =
            self.heard.above(above).take(HEADERS_MAX).map(|(_, header)| header.clone()).collect();
        let voted = self
            .own_vote
            .filter(|(vote, _)| self.voted.as_ref().is_some_and(|voted| voted.body.block.id() == *vote));
        let voted =
            voted.zip(self.voted.clone()).map(|((_, signature), body)| Signed { body, by: me, signature });
        Answer {
            incarnation,
            standing: self.returning.standing(),
            evidence: self.evidence.clone(),
            certificates: self.certificates.newest(),
            new_view: self.shown.clone(),
            headers,
            voted,
        }
    }

    pub(super) fn on_answer(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        answer: Answer,
    ) -> Result<(), Reject> {
        let (view, told) = (self.view, self.told_without_headers(&answer));
        let Answer { incarnation, standing, evidence, certificates, new_view, headers, voted } = answer;
        if incarnation != Incarnation::ZERO && incarnation != self.incarnation {
            return Err(Reject::Stale);
        }
        // §18: evidence and certificates first, so that nothing is signed before they count.
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
        // What was said in a view that has not begun here cannot be taken yet.
        let said_in = new_view.iter().map(|word| word.body.view);
        let said_in = said_in.chain(headers.iter().map(|header| header.body.block.view));
        self.is_behind |= said_in.max().is_some_and(|view| view > self.view);
        if let Some(word) = new_view {
            let _: Result<(), Reject> = self.on_new_view(cx, word, link);
        }
        for header in &headers {
            let _: Result<(), Reject> = self.on_header(cx, header, link);
        }
        if let Some(Signed { body: header, by, signature }) = voted {
            if by != link {
                return Err(Reject::Invalid("somebody else's vote"));
            }
            self.forget_asked(header.body.block.id(), link);
            let _: Result<(), Reject> = self.on_header(cx, &header, link);
            let block = &header.body.block;
            let place = (block.view, block.height);
            let _: Result<(), Reject> = self.count(cx, place, block.id(), by, signature);
        }
        let left_out = told.filter(|_| self.view == view).and_then(|told| self.unheard(told));
        if let Some(left_out) = left_out.filter(|_| self.returning.is_silent()) {
            // S2. §8, Lemma 1 b: others may have voted up to there for what this replica has not heard.
            self.note_missed(cx, left_out);
        }
        if left_out.is_none() || self.returning.is_silent() {
            self.returning.note(link, standing);
        } else {
            // §18: a gap is not closed by what leaves something out. Where that were held against all votes of now, a liar
            // could keep this replica from voting for as long as it likes.
            self.returning.note_partly(link, standing);
        }
        self.advance(cx);
        Ok(())
    }

    /// The highest certified block of the view of which an ANSWER speaks without its header: there is room for so many. Whoever
    /// has voted higher shows a certificate of what that rests on; a vote alone proves nothing.
    fn told_without_headers(&self, answer: &Answer) -> Option<Height> {
        let here = |(view, height): (View, Height)| (view == self.view).then_some(height);
        let voted = answer.voted.as_ref().map(|vote| &vote.body.body.block);
        let voted = voted.and_then(|block| here((block.view, block.height)));
        let certified = answer.certificates.iter().filter_map(|certificate| here(rank(certificate))).max()?;
        let below = if Some(certified) == voted { certified.minus(1) } else { certified };
        (answer.headers.len() >= HEADERS_MAX).then_some(below)
    }

    /// Of what heights up to there, that are not settled, no header is here.
    fn unheard(&self, told: Height) -> Option<Span> {
        let mut span = Span { low: self.chain.committed().height.next(), high: told };
        while span.low <= span.high && self.heard.at(span.low).is_some() {
            span.low = span.low.next();
        }
        while span.low <= span.high && self.heard.at(span.high).is_some() {
            span.high = span.high.minus(1);
        }
        (span.low <= span.high).then_some(span)
    }
}
