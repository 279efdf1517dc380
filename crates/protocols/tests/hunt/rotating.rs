//! Messages of liars in the rotating form.

use crate::net::Form;
use quorate_consensus::harness::payload;
use quorate_consensus::parts::blames::blame;
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Certificate, Signed};
use quorate_protocols::sync_hotstuff::rotating::{
    Answer, Header, Rotating, RotatingMessage, ViewEvidence, vote,
};
use quorate_protocols::sync_hotstuff::{SyncHotStuff, VOTE};
use quorate_types::rng::Rng;
use quorate_types::{Block, BlockId, Height, Incarnation, ReplicaId, Signature, View};
use std::collections::{BTreeMap, BTreeSet};

const SIGNATURE: Signature = Signature([0; 64]);

/// See the module.
pub(crate) struct RotatingHunt;

/// Place of a vote: view and block.
type Place = (View, BlockId);

/// Messages that liars have received or made.
pub(crate) struct Knowledge {
    n: u16,
    liars: Vec<ReplicaId>,
    headers: Vec<Header>,
    votes: BTreeMap<Place, BTreeSet<ReplicaId>>,
    blames: BTreeMap<View, BTreeSet<ReplicaId>>,
    number: u64,
}

impl Knowledge {
    fn leader(&self, view: u64) -> ReplicaId {
        ReplicaId(u16::try_from((view - 1) % u64::from(self.n)).unwrap())
    }

    fn weak(&self) -> usize {
        self.liars.len() + 1
    }

    fn learn_header(&mut self, header: &Header) {
        if !self.headers.contains(header) {
            self.headers.push(header.clone());
        }
    }

    fn signers(&self, who: Option<&BTreeSet<ReplicaId>>) -> Vec<ReplicaId> {
        let all: BTreeSet<ReplicaId> = who.into_iter().flatten().chain(&self.liars).copied().collect();
        all.into_iter().take(self.weak()).collect()
    }

    /// Blocks with an honest vote.
    fn certifiable(&self, before: u64) -> Vec<Place> {
        let voted = self.votes.iter().filter(|((view, _), who)| *view < View(before) && !who.is_empty());
        voted.map(|(place, _)| *place).collect()
    }

    fn certificate(&self, place: &Place) -> Certificate {
        let votes: Vec<_> =
            self.signers(self.votes.get(place)).into_iter().map(|id| (id, SIGNATURE)).collect();
        Certificate::of(vote(place.0, place.1), &votes)
    }

    fn certified(&self, rng: &mut Rng, before: u64) -> Option<Certificate> {
        let places = self.certifiable(before);
        let recent = if rng.chance(800_000) { places.len().saturating_sub(4) } else { 0 };
        rng.pick(&places[recent..]).map(|place| self.certificate(place))
    }

    fn near(&self, rng: &mut Rng, (low, high): (u64, u64)) -> u64 {
        match rng.below(10) {
            0 => high + 1,
            1 if low > 1 => low - 1,
            2 => high + rng.below(u64::from(self.n) * 2),
            _ => rng.between(low, high),
        }
    }

    fn of_view(&self, rng: &mut Rng, view: u64) -> Option<Header> {
        let of_view: Vec<&Header> = self.headers.iter().filter(|it| it.block.view == View(view)).collect();
        rng.pick(&of_view).copied().cloned()
    }

    /// Returns a proposal of a liar, new or repeated.
    fn propose(&mut self, rng: &mut Rng, view: u64) -> RotatingMessage {
        let parent_of = |header: &Header| {
            let place = (header.parent_view, header.block.parent);
            if place.0 == View::ZERO { Certificate::genesis(VOTE) } else { self.certificate(&place) }
        };
        if let Some(header) = self.of_view(rng, view).filter(|_| rng.chance(500_000)) {
            let parent = parent_of(&header);
            return RotatingMessage::Propose { header, parent };
        }
        let parent = self.certified(rng, view).filter(|_| rng.chance(950_000));
        let parent = parent.unwrap_or_else(|| Certificate::genesis(VOTE));
        let below = self.headers.iter().find(|header| header.block.id() == parent.block());
        let height = below.map_or(Height::ZERO, |header| header.block.height);
        self.number += 1;
        let block = Block {
            parent: parent.block(),
            height: height.next(),
            view: View(view),
            proposer: self.leader(view),
            time_ns: self.number,
            payload: payload(self.number).id,
            extra: bind_certificate(parent.view(), parent.block()),
        };
        let header = Header { block, parent_view: parent.view() };
        self.learn_header(&header);
        RotatingMessage::Propose { header, parent }
    }

    fn conflict(&self, rng: &mut Rng, view: u64) -> Option<ViewEvidence> {
        let (one, other) = (self.of_view(rng, view)?, self.of_view(rng, view)?);
        (one != other).then(|| ViewEvidence::Conflict(Box::new((signed(&one), signed(&other)))))
    }

    fn certificates(&self, rng: &mut Rng, view: u64) -> Option<ViewEvidence> {
        let of_view: Vec<Place> =
            self.certifiable(view + 1).into_iter().filter(|place| place.0 == View(view)).collect();
        let (one, other) = (rng.pick(&of_view)?, rng.pick(&of_view)?);
        let both = Box::new((self.certificate(one), self.certificate(other)));
        (one != other).then_some(ViewEvidence::Certificates(both))
    }

    fn blamed(&self, rng: &mut Rng) -> Option<Certificate> {
        let views: Vec<&View> = self.blames.keys().collect();
        let view = **rng.pick(&views[views.len().saturating_sub(2)..])?;
        let votes: Vec<_> =
            self.signers(self.blames.get(&view)).into_iter().map(|id| (id, SIGNATURE)).collect();
        Some(Certificate::of(blame(view), &votes))
    }

    fn answer(&self, rng: &mut Rng, view: u64, incarnation: Incarnation) -> RotatingMessage {
        let stage = if rng.chance(700_000) { RecoveryStage::Running } else { RecoveryStage::Silent };
        let mut answer = Answer::bare(incarnation, stage);
        answer.blames = self.blamed(rng).filter(|_| rng.chance(400_000));
        answer.header = self.of_view(rng, view).filter(|_| rng.chance(300_000)).as_ref().map(signed);
        answer.certificates =
            self.certified(rng, u64::MAX).filter(|_| rng.chance(300_000)).into_iter().collect();
        RotatingMessage::Answer(Box::new(answer))
    }

    /// Returns a message of one liar.
    fn message(&self, rng: &mut Rng, view: u64) -> Option<RotatingMessage> {
        Some(match rng.below(12) {
            0..=4 => RotatingMessage::Certified(self.certified(rng, view + 1)?),
            5 => RotatingMessage::Evidence(ViewEvidence::Blames(self.blamed(rng)?)),
            6 | 7 => RotatingMessage::Evidence(self.conflict(rng, view)?),
            8 => RotatingMessage::Evidence(self.certificates(rng, view)?),
            9 => RotatingMessage::Show(signed(&self.of_view(rng, view)?)),
            10 => RotatingMessage::Status { view: View(view), lock: self.certified(rng, view)? },
            _ => self.answer(rng, view, Incarnation::ZERO),
        })
    }
}

fn signed(header: &Header) -> Signed<Header> {
    Signed { body: header.clone(), by: header.block.proposer, signature: SIGNATURE }
}

impl Form for RotatingHunt {
    type Protocol = SyncHotStuff<Rotating>;
    type Message = RotatingMessage;
    type Knowledge = Knowledge;
    const NAME: &'static str = "sync-hotstuff-rr";
    const FASTEST: u64 = 10;
    const COMMITS_IN_ITS_VIEW: bool = false;

    fn knowledge(n: u16, liars: &[ReplicaId]) -> Knowledge {
        let (headers, votes, blames) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Knowledge { n, liars: liars.to_vec(), headers, votes, blames, number: 0 }
    }

    fn stage_report(is_running: bool) -> RotatingMessage {
        let stage = if is_running { RecoveryStage::Running } else { RecoveryStage::Silent };
        RotatingMessage::Answer(Box::new(Answer::bare(Incarnation::ZERO, stage)))
    }

    fn learn(knowledge: &mut Knowledge, from: ReplicaId, message: &RotatingMessage) {
        match message {
            RotatingMessage::Propose { header, .. } => knowledge.learn_header(header),
            RotatingMessage::Vote(header) => {
                let block = &header.body.block;
                knowledge.votes.entry((block.view, block.id())).or_default().insert(from);
                knowledge.learn_header(&header.body);
            }
            RotatingMessage::Blame(view) => {
                knowledge.blames.entry(*view).or_default().insert(from);
            }
            _ => {}
        }
    }

    fn answer(knowledge: &Knowledge, rng: &mut Rng, asked: &RotatingMessage) -> Option<RotatingMessage> {
        let RotatingMessage::Ask { incarnation } = asked else { return None };
        let last = knowledge.headers.last().map_or(1, |header| header.block.view.0);
        Some(knowledge.answer(rng, last, *incarnation))
    }

    fn lie(knowledge: &mut Knowledge, rng: &mut Rng, views: (u64, u64)) -> Vec<(ReplicaId, RotatingMessage)> {
        let view = knowledge.near(rng, views);
        let all = knowledge.liars.clone();
        let Some(one) = rng.pick(&all).copied() else { return Vec::new() };
        let each = |said: RotatingMessage, who: &[ReplicaId]| {
            who.iter().map(|liar| (*liar, said.clone())).collect::<Vec<_>>()
        };
        match rng.below(20) {
            0..=4 if all.contains(&knowledge.leader(view)) => {
                let said = knowledge.propose(rng, view);
                let mut all_said = vec![(knowledge.leader(view), said.clone())];
                if let RotatingMessage::Propose { header, .. } = said
                    && rng.chance(300_000)
                {
                    all_said.extend(each(RotatingMessage::Vote(signed(&header)), &all));
                }
                all_said
            }
            0..=8 => {
                let Some(header) = knowledge.of_view(rng, view) else { return Vec::new() };
                let who = if rng.chance(600_000) { all } else { vec![one] };
                each(RotatingMessage::Vote(signed(&header)), &who)
            }
            9 => each(RotatingMessage::Blame(View(view)), &all),
            _ => knowledge.message(rng, view).map(|said| (one, said)).into_iter().collect(),
        }
    }

    fn blocks(message: &RotatingMessage) -> Vec<&Block> {
        match message {
            RotatingMessage::Propose { header, .. } => vec![&header.block],
            RotatingMessage::Vote(header) | RotatingMessage::Show(header) => vec![&header.body.block],
            RotatingMessage::Answer(answer) => {
                let voted = answer.voted.iter().map(|voted| &voted.body);
                answer.header.iter().chain(voted).map(|header| &header.body.block).collect()
            }
            _ => Vec::new(),
        }
    }

    fn vote(message: &RotatingMessage) -> Option<(View, Height, BlockId)> {
        let RotatingMessage::Vote(header) = message else { return None };
        // Certificates of one view have equal rank, whatever their height.
        Some((header.body.block.view, Height::MAX, header.body.block.id()))
    }

    fn proposes(message: &RotatingMessage) -> Option<BlockId> {
        if let RotatingMessage::Propose { header, .. } = message { Some(header.block.id()) } else { None }
    }
}
