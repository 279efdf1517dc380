//! Messages of liars in the stable form: Sync HotStuff and Opt Sync.

use crate::net::Form;
use quorate_consensus::harness::payload;
use quorate_consensus::parts::blames::blame;
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Certificate, Protocol, Signed};
use quorate_protocols::sync_hotstuff::{
    Answer, Header, LeaderStatement, Lock, QuitEvidence, SyncHotStuff, SyncMessage, SyncNewView, VOTE,
    Variant, bind_base, vote,
};
use quorate_types::rng::Rng;
use quorate_types::{Block, BlockId, Height, Incarnation, ReplicaId, Signature, View};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

const SIGNATURE: Signature = Signature([0; 64]);

/// See the module.
pub(crate) struct StableHunt<V>(PhantomData<V>);

/// Place of a vote: view, height and block.
type Place = (View, Height, BlockId);

/// Messages that liars have received or made.
pub(crate) struct Knowledge {
    n: u16,
    liars: Vec<ReplicaId>,
    /// Number of votes that decide at once.
    responsive: Option<usize>,
    headers: Vec<Header>,
    /// Honest voters of each place; all liars vote for it as well.
    votes: BTreeMap<Place, BTreeSet<ReplicaId>>,
    blames: BTreeMap<View, BTreeSet<ReplicaId>>,
    new_views: Vec<Signed<SyncNewView>>,
    /// Distinguishes blocks.
    number: u64,
}

impl Knowledge {
    fn leader(&self, view: u64) -> ReplicaId {
        ReplicaId(u16::try_from((view - 1) % u64::from(self.n)).unwrap())
    }

    fn is_led_by_liar(&self, view: u64) -> bool {
        self.liars.contains(&self.leader(view))
    }

    /// f + 1.
    fn weak(&self) -> usize {
        self.liars.len() + 1
    }

    fn learn_header(&mut self, header: &Header) {
        if !self.headers.contains(header) {
            self.headers.push(header.clone());
        }
    }

    fn signers(&self, who: Option<&BTreeSet<ReplicaId>>) -> BTreeSet<ReplicaId> {
        who.into_iter().flatten().chain(&self.liars).copied().collect()
    }

    /// Returns places for which liars can show so many votes.
    fn certifiable(&self, quorum: usize) -> Vec<Place> {
        let all = self.votes.iter().filter(|(_, who)| self.signers(Some(*who)).len() >= quorum);
        all.map(|(place, _)| *place).collect()
    }

    fn certificate(&self, place: &Place, quorum: usize) -> Certificate {
        let signers = self.signers(self.votes.get(place));
        let votes: Vec<_> = signers.into_iter().take(quorum).map(|id| (id, SIGNATURE)).collect();
        Certificate::of(vote(place.0, place.1, place.2), &votes)
    }

    fn lock(&self, rng: &mut Rng, view: u64) -> Lock {
        let tips: Vec<Place> =
            self.certifiable(self.weak()).into_iter().filter(|place| place.0 < View(view)).collect();
        let recent = if rng.chance(700_000) { tips.len().saturating_sub(6) } else { 0 };
        let Some(tip) = rng.pick(&tips[recent..]) else { return Lock::genesis() };
        let mut lock = Lock { responsive: None, tip: self.certificate(tip, self.weak()) };
        if let Some(quorum) = self.responsive.filter(|_| rng.chance(700_000)) {
            let fits = |place: &Place| place.0 == tip.0 && place.1 <= tip.1;
            let fitting: Vec<Place> = self.certifiable(quorum).into_iter().filter(fits).collect();
            lock.responsive = rng.pick(&fitting).map(|place| self.certificate(place, quorum));
        }
        lock
    }

    /// Returns a view near those of the honest replicas.
    fn near(&self, rng: &mut Rng, (low, high): (u64, u64)) -> u64 {
        match rng.below(10) {
            0 => high + 1,
            1 if low > 1 => low - 1,
            2 => high + 2,
            _ => rng.between(low, high),
        }
    }

    /// Returns a header of a view, preferably a late one.
    fn of_view(&self, rng: &mut Rng, view: u64) -> Option<Header> {
        let of_view: Vec<&Header> = self.headers.iter().filter(|it| it.block.view == View(view)).collect();
        let late = if rng.chance(700_000) { of_view.len().saturating_sub(4) } else { 0 };
        rng.pick(&of_view[late..]).copied().cloned()
    }

    fn new_view_of(&self, rng: &mut Rng, view: u64) -> Option<Signed<SyncNewView>> {
        let of_view: Vec<_> = self.new_views.iter().filter(|it| it.body.view == View(view)).collect();
        rng.pick(&of_view).copied().cloned()
    }

    /// Returns a proposal of a liar on a block of its view, new or repeated, or on the base of the view.
    fn propose(&mut self, rng: &mut Rng, view: u64) -> SyncMessage {
        let base_of = |place: &Place| {
            let known =
                self.headers.iter().find(|it| it.block.id() == place.2 && it.block.view == View(view));
            known.map_or(place.2, |header| header.base)
        };
        let of_view = self.certifiable(self.weak()).into_iter().filter(|place| place.0 == View(view));
        let mut places: Vec<(Place, BlockId)> = of_view.map(|place| (place, base_of(&place))).collect();
        if view == 1 {
            places.push(((View(1), Height::ZERO, BlockId::ZERO), BlockId::ZERO));
        }
        let recent = if rng.chance(600_000) { places.len().saturating_sub(3) } else { 0 };
        let Some((place, base)) = rng.pick(&places[recent..]).copied() else {
            return self.new_view(rng, view);
        };
        let is_genesis = place.1 == Height::ZERO && view == 1;
        let parent =
            if is_genesis { Certificate::genesis(VOTE) } else { self.certificate(&place, self.weak()) };
        let said: Vec<&Header> = self
            .headers
            .iter()
            .filter(|it| it.block.view == View(view) && it.block.parent == place.2)
            .collect();
        if let Some(header) = rng.pick(&said).copied().filter(|_| rng.chance(550_000)).cloned() {
            return SyncMessage::Propose { header, parent };
        }
        self.number += 1;
        let block = Block {
            parent: place.2,
            height: place.1.next(),
            view: View(view),
            proposer: self.leader(view),
            time_ns: self.number,
            payload: if rng.chance(300_000) { empty_payload() } else { payload(self.number).id },
            extra: bind_base(base),
        };
        let header = Header { block, base };
        self.votes.entry((View(view), header.block.height, header.block.id())).or_default();
        self.learn_header(&header);
        SyncMessage::Propose { header, parent }
    }

    /// Returns a header of a view that no replica can vote for: too high, far above or below the leader's headers, or in conflict
    /// with them.
    fn stray(&mut self, rng: &mut Rng, view: u64, by: ReplicaId) -> Header {
        self.number += 1;
        let base = match self.of_view(rng, view) {
            Some(header) => header.base,
            None => {
                self.new_view_of(rng, view).map_or(BlockId::ZERO, |new_view| new_view.body.lock.tip.block())
            }
        };
        let near = rng.pick(&self.headers).map_or(Height(1), |header| header.block.height);
        let height = match rng.below(4) {
            0 => near.plus(rng.below(600)),
            1 => near.plus(2),
            _ => near.minus(rng.below(3)).max(Height(1)),
        };
        let below: Vec<BlockId> = self
            .headers
            .iter()
            .filter(|it| rng.chance(200_000) || it.block.height.next() == height)
            .map(|it| it.block.id())
            .collect();
        let parent = rng.pick(&below).copied().unwrap_or(BlockId::null(height));
        let block = Block {
            parent,
            height,
            view: View(view),
            proposer: by,
            time_ns: self.number,
            payload: empty_payload(),
            extra: bind_base(base),
        };
        Header { block, base }
    }

    fn new_view(&mut self, rng: &mut Rng, view: u64) -> SyncMessage {
        let lock = self.lock(rng, view);
        let body = SyncNewView { view: View(view), lock: lock.clone() };
        self.new_views.push(Signed { body, by: self.leader(view), signature: SIGNATURE });
        self.votes.entry((View(view), lock.tip.statement.height, lock.tip.block())).or_default();
        SyncMessage::NewView { view: View(view), lock }
    }

    /// Returns two conflicting statements of a leader.
    fn conflict(&self, rng: &mut Rng, view: u64) -> Option<QuitEvidence> {
        let of_view: Vec<&Header> = self.headers.iter().filter(|it| it.block.view == View(view)).collect();
        let statement = |header: &Header| LeaderStatement::Header(header.clone());
        let pairs = of_view.iter().flat_map(|a| of_view.iter().map(move |b| (*a, *b)));
        let pairs: Vec<_> = pairs.filter(|(a, b)| statement(a).conflicts_with(&statement(b))).collect();
        let signed = |header: &Header| Signed {
            body: statement(header),
            by: header.block.proposer,
            signature: SIGNATURE,
        };
        rng.pick(&pairs).map(|(a, b)| QuitEvidence::Conflict(Box::new((signed(a), signed(b)))))
    }

    /// Returns f + 1 blames of one of the last views that an honest replica has blamed.
    fn blamed(&self, rng: &mut Rng) -> Option<QuitEvidence> {
        let views: Vec<&View> = self.blames.keys().collect();
        let view = **rng.pick(&views[views.len().saturating_sub(2)..])?;
        let signers = self.signers(self.blames.get(&view));
        let votes: Vec<_> = signers.into_iter().take(self.weak()).map(|id| (id, SIGNATURE)).collect();
        Some(QuitEvidence::Blames(Certificate::of(blame(view), &votes)))
    }

    /// Returns a certificate of so many votes, of no old view.
    fn certified(&self, rng: &mut Rng, view: u64, quorum: usize) -> Option<Certificate> {
        let fits = |place: &Place| place.0.0 + 1 >= view;
        let fitting: Vec<Place> = self.certifiable(quorum).into_iter().filter(fits).collect();
        rng.pick(&fitting).map(|place| self.certificate(place, quorum))
    }

    fn answer(&self, rng: &mut Rng, view: u64, incarnation: Incarnation) -> SyncMessage {
        let stage = if rng.chance(700_000) { RecoveryStage::Running } else { RecoveryStage::Silent };
        let mut answer = Answer::bare(incarnation, stage);
        if rng.chance(300_000) {
            answer.headers = self.of_view(rng, view).iter().map(signed).collect();
        }
        if rng.chance(300_000) {
            answer.certificates = self.certified(rng, 0, self.weak()).into_iter().collect();
        }
        if rng.chance(300_000) {
            answer.evidence = self.blamed(rng).into_iter().collect();
        }
        if rng.chance(200_000) {
            answer.new_view = self.new_view_of(rng, view);
        }
        SyncMessage::Answer(Box::new(answer))
    }

    /// Returns a message of one liar.
    fn message(&self, rng: &mut Rng, view: u64) -> Option<SyncMessage> {
        Some(match rng.below(12) {
            0 | 1 => SyncMessage::Certified(self.certified(rng, view, self.weak())?),
            2 => SyncMessage::Notify(self.certified(rng, view, self.responsive?)?),
            3 => SyncMessage::Forward { new_view: self.new_view_of(rng, view)? },
            4 => SyncMessage::Evidence(self.blamed(rng)?),
            5 | 6 => SyncMessage::Evidence(self.conflict(rng, view)?),
            7 | 8 => SyncMessage::Vote(signed(&self.of_view(rng, view)?)),
            9 => SyncMessage::Status { view: View(view), lock: self.lock(rng, view) },
            10 => {
                let block = self.of_view(rng, view)?.block;
                SyncMessage::Lack { view: View(view), height: block.height.minus(1), block: block.parent }
            }
            _ => self.answer(rng, view, Incarnation::ZERO),
        })
    }

    /// Returns messages of all liars, each for itself.
    fn promise(&self, rng: &mut Rng, view: u64) -> Option<SyncMessage> {
        Some(match rng.below(8) {
            0 => SyncMessage::Blame(View(view)),
            1 | 2 => {
                let tip = self.new_view_of(rng, view)?.body.lock.tip;
                let (height, base) = (tip.statement.height, tip.block());
                SyncMessage::FirstVote { view: View(view), height, base }
            }
            _ => SyncMessage::Vote(signed(&self.of_view(rng, view)?)),
        })
    }
}

fn signed(header: &Header) -> Signed<Header> {
    Signed { body: header.clone(), by: header.block.proposer, signature: SIGNATURE }
}

impl<V: Variant> Form for StableHunt<V>
where
    SyncHotStuff<V>: Protocol<Params = SynchronyParams>,
{
    type Protocol = SyncHotStuff<V>;
    type Message = SyncMessage;
    type Knowledge = Knowledge;
    const NAME: &'static str = V::SPEC.summary;
    const FASTEST: u64 = 1_000;
    const COMMITS_IN_ITS_VIEW: bool = true;

    fn knowledge(n: u16, liars: &[ReplicaId]) -> Knowledge {
        Knowledge {
            n,
            liars: liars.to_vec(),
            responsive: V::responsive_quorum(usize::from(n)),
            headers: Vec::new(),
            votes: BTreeMap::new(),
            blames: BTreeMap::new(),
            new_views: Vec::new(),
            number: 0,
        }
    }

    fn stage_report(is_running: bool) -> SyncMessage {
        let stage = if is_running { RecoveryStage::Running } else { RecoveryStage::Silent };
        SyncMessage::Answer(Box::new(Answer::bare(Incarnation::ZERO, stage)))
    }

    fn learn(knowledge: &mut Knowledge, from: ReplicaId, message: &SyncMessage) {
        match message {
            SyncMessage::Propose { header, .. } => knowledge.learn_header(header),
            SyncMessage::Vote(header) => {
                let block = &header.body.block;
                knowledge.votes.entry((block.view, block.height, block.id())).or_default().insert(from);
                knowledge.learn_header(&header.body);
            }
            SyncMessage::FirstVote { view, height, base } => {
                knowledge.votes.entry((*view, *height, *base)).or_default().insert(from);
            }
            SyncMessage::NewView { view, lock } => {
                let body = SyncNewView { view: *view, lock: lock.clone() };
                knowledge.new_views.push(Signed { body, by: from, signature: SIGNATURE });
            }
            SyncMessage::Blame(view) => {
                knowledge.blames.entry(*view).or_default().insert(from);
            }
            _ => {}
        }
    }

    fn answer(knowledge: &Knowledge, rng: &mut Rng, asked: &SyncMessage) -> Option<SyncMessage> {
        let SyncMessage::Ask { incarnation, .. } = asked else { return None };
        let last = knowledge.headers.last().map_or(1, |header| header.block.view.0);
        Some(knowledge.answer(rng, last, *incarnation))
    }

    fn lie(knowledge: &mut Knowledge, rng: &mut Rng, views: (u64, u64)) -> Vec<(ReplicaId, SyncMessage)> {
        let view = knowledge.near(rng, views);
        let all = knowledge.liars.clone();
        let Some(one) = rng.pick(&all).copied() else { return Vec::new() };
        if rng.chance(40_000) {
            // Any replica can sign a proposal of any view.
            let by = if rng.chance(500_000) { one } else { knowledge.leader(view) };
            let header = knowledge.stray(rng, view, by);
            return vec![(one, SyncMessage::Propose { header, parent: Certificate::genesis(VOTE) })];
        }
        match rng.below(20) {
            0..=4 if knowledge.is_led_by_liar(view) && rng.chance(150_000) => {
                let header = knowledge.stray(rng, view, knowledge.leader(view));
                knowledge.learn_header(&header);
                vec![(one, SyncMessage::Vote(signed(&header)))]
            }
            0..=4 if knowledge.is_led_by_liar(view) => {
                let again = view > 1 && rng.chance(200_000);
                let said = if again { knowledge.new_view(rng, view) } else { knowledge.propose(rng, view) };
                let mut all_said = vec![(knowledge.leader(view), said.clone())];
                if let SyncMessage::Propose { header, .. } = said
                    && rng.chance(300_000)
                {
                    all_said.extend(all.iter().map(|liar| (*liar, SyncMessage::Vote(signed(&header)))));
                }
                all_said
            }
            0..=9 => {
                let Some(said) = knowledge.promise(rng, view) else { return Vec::new() };
                let who = if rng.chance(600_000) { all } else { vec![one] };
                who.into_iter().map(|liar| (liar, said.clone())).collect()
            }
            _ => knowledge.message(rng, view).map(|said| (one, said)).into_iter().collect(),
        }
    }

    fn blocks(message: &SyncMessage) -> Vec<&Block> {
        match message {
            SyncMessage::Propose { header, .. } => vec![&header.block],
            SyncMessage::Vote(header) => vec![&header.body.block],
            SyncMessage::Answer(answer) => {
                let voted = answer.voted.iter().map(|voted| &voted.body);
                answer.headers.iter().chain(voted).map(|header| &header.body.block).collect()
            }
            _ => Vec::new(),
        }
    }

    fn vote(message: &SyncMessage) -> Option<(View, Height, BlockId)> {
        match message {
            SyncMessage::Vote(header) => {
                let block = &header.body.block;
                Some((block.view, block.height, block.id()))
            }
            SyncMessage::FirstVote { view, height, base } => Some((*view, *height, *base)),
            _ => None,
        }
    }

    fn proposes(message: &SyncMessage) -> Option<BlockId> {
        if let SyncMessage::Propose { header, .. } = message { Some(header.block.id()) } else { None }
    }
}
