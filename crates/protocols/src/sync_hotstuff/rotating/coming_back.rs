//! Opening, and coming back (§18): what is asked, what is answered, and what follows from it.

use super::message::{Answer, RotatingMessage};
use super::{RotatingSyncHotStuff, Timer, noted};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{Certificate, Cx, Reject, Signed, To};
use quorate_types::{Height, Incarnation, ReplicaId};

impl RotatingSyncHotStuff {
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
        cx.send_unheld(to, RotatingMessage::Ask { incarnation: self.incarnation });
    }

    /// All are asked once more what has become of the view.
    pub(super) fn ask_all(&mut self, cx: &mut Cx<'_, Self>) {
        self.ask(cx, To::All);
    }

    /// The next standing, as soon as its time has come.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_, Self>) {
        let committee = cx.committee();
        while (!self.returning.is_silent() || self.is_whole(cx))
            && let Some(standing) = self.returning.advance(committee, cx.now())
        {
            let began = std::mem::replace(&mut self.has_begun, true);
            let is_running = standing == Standing::Running;
            self.note(cx, if is_running { noted::RUNNING } else { noted::VOTING }, Height::ZERO);
            let answer = self.answer(Incarnation::ZERO, cx.me());
            cx.send_unheld(To::All, RotatingMessage::Answer(Box::new(answer)));
            if !began {
                self.begin(cx);
            }
        }
        match self.returning.deadline(cx.now()) {
            Some(at) => cx.timers().set(Timer::Return, at),
            None => cx.timers().cancel(Timer::Return),
        }
    }

    /// Whether the highest certified block is here with all below it: who cannot vote on top of it counts among the f, and
    /// blames nobody. What is missing is asked for.
    fn is_whole(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let highest = self.certificates.highest().clone();
        let is_settled = highest.view() <= self.chain.committed().view;
        let is_whole = is_settled || self.ready(cx, highest.block()).is_some();
        if !is_whole {
            self.want_certified(cx, &highest);
        }
        is_whole
    }

    /// Silence is over: what was said last is said again, word for word, and the waits of the view begin anew.
    fn begin(&mut self, cx: &mut Cx<'_, Self>) {
        self.began = self.view;
        if let Some(header) = self.voted.clone() {
            self.resaid = header.body.block.view;
            // R6. In a view that was left, or whose leader has lied, it may have been withdrawn, and would leave now.
            let is_broken = self.views.get(&self.view).is_some_and(|heard| heard.is_broken);
            if self.resaid == self.view && !self.is_quit() && !is_broken {
                cx.send(To::All, RotatingMessage::Vote(header));
            }
        }
        if self.is_quit() {
            return self.wait_to_enter(cx);
        }
        if let Some((header, parent)) = self.proposed.clone()
            && header.block.view == self.view
        {
            cx.send(To::All, RotatingMessage::Propose { header, parent });
        }
        self.join_view(cx);
    }

    /// Something that peers have sent is lost for good.
    pub(super) fn on_gap(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let (committee, now) = (cx.committee(), cx.now());
        if self.returning.note_gap(peer, committee, now) {
            // With more than f of them it may be anything: as on opening.
            self.has_begun = false;
            self.waits.clear().into_iter().for_each(|view| self.forget_wait(view));
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
    ) -> Result<(), Reject> {
        if !self.answered.admits(link, cx.now(), self.delta.times(1)) {
            return Err(Reject::NotNow("asked again too soon"));
        }
        let answer = self.answer(incarnation, cx.me());
        cx.send_unheld(To::One(link), RotatingMessage::Answer(Box::new(answer)));
        Ok(())
    }

    fn answer(&self, incarnation: Incarnation, me: ReplicaId) -> Answer {
        let header = self.views.get(&self.view).and_then(|heard| heard.first.as_ref());
        let header = header.map(|(_, header)| header.clone());
        let mut certificates: Vec<Certificate> = vec![self.certificates.highest().clone()];
        let parent = header
            .iter()
            .find_map(|header| self.certificates.get(header.body.parent_view, header.body.block.parent));
        certificates.extend(parent.filter(|parent| !certificates.contains(parent)).cloned());
        let voted = self
            .own_vote
            .filter(|(vote, _)| self.voted.as_ref().is_some_and(|voted| voted.body.block.id() == *vote));
        let voted =
            voted.zip(self.voted.clone()).map(|((_, signature), body)| Signed { body, by: me, signature });
        Answer {
            incarnation,
            standing: self.returning.standing(),
            blames: self.blames_held.clone(),
            certificates,
            header,
            voted,
        }
    }

    pub(super) fn on_answer(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        answer: Answer,
    ) -> Result<(), Reject> {
        let Answer { incarnation, standing, blames, certificates, header, voted } = answer;
        if incarnation != Incarnation::ZERO && incarnation != self.incarnation {
            return Err(Reject::Stale);
        }
        // §18: what ends views comes first, so that nothing is signed before it counts. What is old is nobody's fault.
        for certificate in &certificates {
            self.take_certificate(cx, certificate);
        }
        if let Some(blames) = &blames {
            let _: Result<(), Reject> = self.on_blames(cx, blames);
        }
        if let Some(header) = &header {
            let _: Result<(), Reject> = self.on_header(cx, header, link);
        }
        if let Some(Signed { body: header, by, signature }) = voted {
            if by != link {
                return Err(Reject::Invalid("somebody else's vote"));
            }
            let _: Result<(), Reject> = self.on_header(cx, &header, link);
            let block = &header.body.block;
            let _: Result<(), Reject> = self.count(cx, (block.view, block.id()), by, signature);
        }
        self.returning.note(link, standing);
        self.advance(cx);
        Ok(())
    }
}
