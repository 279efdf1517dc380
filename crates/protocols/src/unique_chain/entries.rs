//! Entries: from their arrival to acceptance and commit (`apollo` §4, §5, §8).

use super::entry::{Entry, EntryRef, rounds_ahead};
use super::message::{ENTRIES_MAX, UniqueMessage};
use super::record::UniqueRecord;
use super::replica::{Form, FramedOf, UniqueChain, Verdict, noted};
use super::rounds::EnteredBy;
use super::store::First;
use quorate_consensus::parts::chain::Tip;
use quorate_consensus::{Alarm, Commit, Cx, Evidence, Reject, To};
use quorate_types::{BlockId, Digest, Height, ReplicaId, ReplicaSet, Signature, Statement, View};

/// The way on which an entry has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// In the message of its author. Another replica may not send that message.
    Author,
    /// As the tip of a proof.
    Tip,
    /// In an answer to a question. One question asks for all that the entries of the answer lack.
    Answer,
    /// Known before.
    Fetched,
}

impl<F: Form> UniqueChain<F> {
    /// §5: handles the message of an author.
    pub(super) fn on_entry(
        &mut self,
        cx: &mut Cx<'_, Self>,
        frame: FramedOf<F>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        self.take_entry(cx, frame, link, Origin::Author)
    }

    /// U3. Takes an entry in: it is accepted now, or once its ancestors and blocks have arrived.
    pub(super) fn take_entry(
        &mut self,
        cx: &mut Cx<'_, Self>,
        frame: FramedOf<F>,
        link: ReplicaId,
        origin: Origin,
    ) -> Result<(), Reject> {
        let place = frame.entry.place();
        self.note_skipped(cx, frame.entry.parent().round, place.round);
        let is_direct = origin == Origin::Author && link == frame.entry.author();
        self.note_late(cx, place.round, frame.entry.author(), is_direct);
        if self.entries.is_unknown_base(place) {
            self.keep_base(cx, frame, link);
            return Ok(());
        }
        let is_over = place.round <= self.entries.base().round;
        if self.entries.is_accepted(place) || (is_over && !self.suspects(cx, place, link, origin)) {
            return Err(Reject::Stale);
        }
        if self.entries.contains(place.id) {
            self.fetch(cx, place.id, link, origin);
            self.check_conflict(cx, place.id, link);
            return Ok(());
        }
        if is_over {
            self.entries.keep(frame, link);
            self.show_base(cx, link);
            self.check_conflict(cx, place.id, link);
            return Err(Reject::Stale);
        }
        let parent = frame.entry.parent();
        let is_connected = self.entries.is_accepted(parent) || self.entries.contains(parent.id);
        if self.is_far(cx, place.round) && !is_connected {
            return self.keep_far(cx, frame, link);
        }
        self.check_first(cx, &frame, link, origin)?;
        F::learn(self, cx, &frame.entry);
        self.entries.keep(frame, link);
        self.accept_from(cx, place.id);
        if !self.entries.is_accepted(place) {
            self.fetch(cx, place.id, link, origin);
            self.check_conflict(cx, place.id, link);
        }
        Ok(())
    }

    /// U10. Keeps the entry of the committed block that others have decided. Now the round can be proved: where all replicas have
    /// the same committed entry and nothing above it, no round would end otherwise.
    fn keep_base(&mut self, cx: &mut Cx<'_, Self>, frame: FramedOf<F>, link: ReplicaId) {
        let id = frame.entry.id();
        self.entries.keep(frame, link);
        self.entries.accept(id);
        if self.proof().is_some() && self.round.wait.is_none() && !self.recovery.is_silent() {
            self.begin_wait(cx);
            F::on_round(self, cx);
        }
    }

    /// U4. §4, §5: two entries of one author for one round are evidence, and noticed before bodies. The second one counts only
    /// if it is asked for by its id, or as the tip of a peer's proof. It is never a reason to refuse a chain that a later
    /// author has built on it.
    fn check_first(
        &mut self,
        cx: &mut Cx<'_, Self>,
        frame: &FramedOf<F>,
        link: ReplicaId,
        origin: Origin,
    ) -> Result<(), Reject> {
        let EntryRef { round, id } = frame.entry.place();
        let Some(first) = self.entries.first(round) else {
            self.entries.note_first(round, First { id, signature: frame.signature });
            return Ok(());
        };
        if first.id == id {
            return Ok(());
        }
        let by = frame.entry.author();
        let signed = |id: Digest, signature: Signature| {
            (Statement::new(F::Entry::KIND, round, Height::ZERO, id), signature)
        };
        let (first, second) = (signed(first.id, first.signature), signed(id, frame.signature));
        cx.accuse(Evidence { by, first, second });
        let counts = self.entries.is_wanted(id)
            || (origin == Origin::Tip && self.entries.admits_alternate(round, link));
        match (counts, link == by) {
            (true, _) => Ok(()),
            (false, true) => Err(Reject::Equivocation),
            // A replica that only hands entries on has done nothing wrong.
            (false, false) => Err(Reject::NotNow("its author has equivocated")),
        }
    }

    /// Keeps the newest entry of a peer that is far ahead, and asks the peer for the path to it.
    fn keep_far(&mut self, cx: &mut Cx<'_, Self>, frame: FramedOf<F>, link: ReplicaId) -> Result<(), Reject> {
        let round = frame.entry.round();
        if self.inbox.far.get(&link).is_none_or(|known| known.entry.round() < round) {
            let parent = frame.entry.parent();
            self.inbox.far.insert(link, frame);
            self.ask_for_path(cx, parent, round, link);
        }
        Err(Reject::Early)
    }

    /// Takes the entries that were far ahead and are not any more.
    pub(super) fn take_far(&mut self, cx: &mut Cx<'_, Self>) {
        let peers: Vec<ReplicaId> = self.inbox.far.keys().copied().collect();
        for peer in peers {
            let is_near = self.inbox.far.get(&peer).is_some_and(|frame| {
                !self.is_far(cx, frame.entry.round()) || self.entries.is_accepted(frame.entry.parent())
            });
            if is_near && let Some(frame) = self.inbox.far.remove(&peer) {
                let _: Result<(), Reject> = self.take_entry(cx, frame, peer, Origin::Fetched);
            }
        }
    }

    /// Accepts all entries that wait for nothing any more.
    pub(super) fn accept_pending(&mut self, cx: &mut Cx<'_, Self>) {
        let base = self.entries.base().round;
        for id in self.entries.pending() {
            if self.entries.get(id).is_some_and(|frame| frame.entry.round() > base) {
                self.accept_from(cx, id);
            }
        }
    }

    /// U3. §4, accept: accepts an entry whose parent is accepted, and the entries that wait for it.
    pub(super) fn accept_from(&mut self, cx: &mut Cx<'_, Self>, id: Digest) {
        let (mut work, mut highest) = (vec![id], None);
        while let Some(id) = work.pop() {
            let Some(entry) = self.entries.get(id).map(|frame| frame.entry.clone()) else { continue };
            if self.entries.has_other_round(entry.parent()) {
                // Skip certificates were shown for other rounds than those since its parent.
                self.entries.drop_entry(id);
                continue;
            }
            if self.entries.is_accepted(entry.place()) || !self.entries.is_accepted(entry.parent()) {
                continue;
            }
            match F::judge(self, cx, &entry) {
                Verdict::Missing => {}
                Verdict::Invalid => {
                    self.note(cx, noted::INVALID, entry.round(), Height::ZERO);
                    self.entries.drop_entry(id);
                }
                Verdict::Valid => {
                    self.accept(cx, &entry);
                    highest = highest.max(Some((entry.round(), entry.author())));
                    work.extend(self.entries.waiting_for(id));
                }
            }
        }
        let Some((round, author)) = highest else { return };
        if round >= self.round.number {
            let by = if author == cx.me() { EnteredBy::OwnEntry } else { EnteredBy::Other };
            self.enter_round(cx, round.next(), by);
        }
        self.take_waiting_proofs(cx);
    }

    fn accept(&mut self, cx: &mut Cx<'_, Self>, entry: &F::Entry) {
        let place = entry.place();
        self.end_fetch(cx, place.id);
        if self.entries.accept(place.id) {
            self.skips = self.skips.split_off(&place.round.next());
        }
        self.note(cx, noted::ACCEPTED, place.round, entry.height());
        // The entry of a stable block stays in the log: nobody could prove a round otherwise after a cold start.
        let height = F::height(self, entry).plus(self.genesis.checkpoint_every);
        if let Some(frame) = self.entries.get(place.id) {
            // §3: durable with the next own entry, which the others may build on.
            cx.record(&UniqueRecord::Accepted { height, frame: frame.clone() });
        }
        if self.is_stopped_by_conflict(cx, entry) {
            return;
        }
        self.try_commit(cx, place);
        F::on_accepted(self, cx, entry);
    }

    /// U17. §12: an entry that arrives within 2 Δ of the own blame of its author predicts that an honest round will be skipped.
    /// One that its author delivers later may have left in time, on a link that is slower than Δ.
    fn note_late(&mut self, cx: &mut Cx<'_, Self>, round: View, author: ReplicaId, is_direct: bool) {
        let Some((_, at)) = self.signs.blamed.filter(|(blamed, _)| *blamed == round) else { return };
        let is_near = cx.now() <= at.plus(self.delta.times(2));
        if !is_near && !is_direct {
            return;
        }
        self.signs.blamed = None;
        let why = "the entry of a blamed author arrived more than 2 delta after the blame";
        let doubt = Alarm::SynchronyDoubt { view: round, peer: Some(author), why };
        cx.alarm(if is_near { Alarm::NearMiss { view: round, leader: author } } else { doubt });
    }

    /// U12. §12: an accepted entry that is above the committing one misses the committed block: the replica stops.
    fn is_stopped_by_conflict(&mut self, cx: &mut Cx<'_, Self>, entry: &F::Entry) -> bool {
        let conflicts = self.committed_by.is_some_and(|by| entry.round() >= by)
            && self.entries.extends_base(entry.place()) == Some(false);
        if conflicts {
            self.break_safety(cx, F::block(entry));
        }
        conflicts
    }

    /// U11. §8, try_commit: commits the highest entry on whose path down from this one, both included, f + 1 distinct authors
    /// have signed. Authors are counted, not rounds.
    fn try_commit(&mut self, cx: &mut Cx<'_, Self>, by: EntryRef) {
        let (weak, base) = (cx.committee().weak(), self.entries.base());
        let (mut authors, mut at) = (ReplicaSet::EMPTY, by);
        let entry = loop {
            if at.round <= base.round {
                return;
            }
            let Some(frame) = self.entries.get(at.id) else { return };
            authors.insert(frame.entry.author());
            if authors.len() >= weak {
                break &frame.entry;
            }
            at = frame.entry.parent();
        };
        match self.entries.extends_base(at) {
            Some(true) => {}
            Some(false) => return self.break_safety(cx, F::block(entry)),
            None => return,
        }
        let Some(at) = self.worth_committing(cx, at) else { return };
        let Some(block) = self.entries.get(at.id).map(|frame| F::block(&frame.entry)) else { return };
        self.committed_by = self.committed_by.max(Some(by.round));
        self.entries.commit(at);
        self.commit_block(cx, block, at.round);
        F::on_committed(self, cx, at);
    }

    /// Returns the highest entry up to this one that is worth committing. Entries without requests are committed with later
    /// ones, or some together, so that all replicas of an idle cluster stop at the same height.
    fn worth_committing(&self, cx: &mut Cx<'_, Self>, place: EntryRef) -> Option<EntryRef> {
        // Every replica syncs once in n rounds, and executes before the next ones are committed.
        let together = rounds_ahead(cx.committee()).saturating_add(1).next_power_of_two().max(8);
        let mut at = place;
        while at.round > self.entries.base().round {
            let entry = self.entries.get(at.id)?.entry.clone();
            let height = F::height(self, &entry);
            if height.0.is_multiple_of(together) || F::carries_requests(self, cx, &entry) {
                return Some(at);
            }
            at = entry.parent();
        }
        None
    }

    /// Commits a block with its ancestors, unless it is committed.
    fn commit_block(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, round: View) {
        let Some(tip) = self.chain.tip(cx.blocks(), id) else { return };
        if tip.height > self.chain.committed().height {
            self.note(cx, noted::COMMITTED, round, tip.height);
            cx.commit(Commit::Chain(id));
            self.chain.commit(Tip { view: tip.view, ..tip });
        }
    }

    /// Returns the entries that a peer lacks, at a limited rate (§2, Fetch).
    pub(super) fn on_want(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        id: Digest,
        above: View,
    ) -> Result<(), Reject> {
        let (now, delta_ns) = (cx.now(), self.delta.times(1));
        // The question counts as well: the walk down the path is long, whatever the answer.
        if !self.served.entries.admits(link, now, delta_ns, 1) {
            return Err(Reject::NotNow("asked again too soon"));
        }
        let entries = self.entries.path(id, above, ENTRIES_MAX);
        if entries.first().is_none_or(|first| first.entry.parent().round > above) {
            F::on_unserved(self, cx, link, above);
        }
        if entries.is_empty() {
            return Err(Reject::NotNow("no such entries"));
        }
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        if !self.served.entries.admits(link, now, delta_ns, count) {
            return Err(Reject::NotNow("asked again too soon"));
        }
        cx.send_unheld(To::One(link), UniqueMessage::Entries { entries });
        Ok(())
    }

    /// Takes the answer to a question for entries.
    pub(super) fn on_entries(
        &mut self,
        cx: &mut Cx<'_, Self>,
        entries: Vec<FramedOf<F>>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let follow = entries.windows(2).all(|pair| match pair {
            [before, after] => after.entry.parent() == before.entry.place(),
            _ => true,
        });
        if !follow {
            return Err(Reject::Invalid("entries that do not follow each other"));
        }
        // An entry that is asked for names its parent, so that one is asked for as well.
        for frame in entries.iter().rev() {
            let EntryRef { round, id } = frame.entry.place();
            if self.entries.is_wanted(id) {
                self.entries.want(frame.entry.parent().id, round, link);
            }
        }
        let places: Vec<EntryRef> = entries.iter().map(|frame| frame.entry.place()).collect();
        for frame in entries {
            // A refused entry is a known one, or one that nobody has asked for.
            let _: Result<(), Reject> = self.take_entry(cx, frame, link, Origin::Answer);
        }
        if link != cx.me() {
            self.fetch_together(cx, &places, link);
        }
        self.take_far(cx);
        self.check_pending_conflicts(cx);
        Ok(())
    }

    /// Checks the entries again that are not accepted: one below them has arrived.
    fn check_pending_conflicts(&mut self, cx: &mut Cx<'_, Self>) {
        for id in self.entries.pending() {
            if let Some(holder) = self.entries.holder(id) {
                self.check_conflict(cx, id, holder);
            }
        }
    }

    /// Makes an entry the committed one that this replica has not committed itself. Rounds up to it are over. The wait of a
    /// round begins when its proof is known.
    pub(super) fn adopt_base(&mut self, cx: &mut Cx<'_, Self>, base: EntryRef) {
        if self.entries.contains(base.id) {
            self.entries.accept(base.id);
        }
        self.entries.commit(base);
        self.skips = self.skips.split_off(&self.entries.tip().round.next());
        if self.round.number <= base.round {
            self.begin_round(cx, base.round.next());
        }
        for id in self.entries.waiting_for(base.id) {
            self.accept_from(cx, id);
        }
        self.take_far(cx);
        // The path to a pending entry may be known to its holder.
        if let Some(id) = self.entries.pending().pop()
            && let Some(holder) = self.entries.holder(id)
        {
            self.fetch(cx, id, holder, Origin::Fetched);
        }
    }
}
