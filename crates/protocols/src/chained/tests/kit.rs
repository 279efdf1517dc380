//! A test bench for the rules of chained protocols: one replica, and a chain that it learns block by block.

use super::super::{Chained, ChainedMessage, ChainedParams, Content, Rules, VOTE};
use quorate_consensus::harness::{Harness, Setup};
use quorate_consensus::parts::chain::{bind_certificate, empty_payload};
use quorate_consensus::parts::leaders::LeaderPolicy;
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Certificate, Reject, Signed};
use quorate_types::{Block, BlockId, Height, ReplicaId, Signature, Time, View};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SIGNATURE: Signature = Signature([0; 64]);

pub(super) fn r(id: u16) -> ReplicaId {
    ReplicaId(id)
}

/// Parameters with another leader in each view, as in the papers.
pub(super) fn round_robin<R: Rules>() -> ChainedParams<R::OwnParams> {
    ChainedParams { leader_policy: LeaderPolicy::RoundRobin, ..ChainedParams::default() }
}

/// Votes of replicas 0, 1 and 2 for a block.
pub(super) fn qc(block: &Block) -> Certificate {
    let vote = BlockVote { view: block.view, block: block.id() };
    Certificate::of(vote.statement(VOTE), &[0, 1, 2].map(|id| (r(id), SIGNATURE)))
}

/// A block on top of a certificate, by the leader of its view in round-robin.
pub(super) fn on(qc: &Certificate, height: u64, view: u64) -> Block {
    Block {
        parent: qc.block(),
        height: Height(height),
        view: View(view),
        proposer: r(u16::try_from(view % 4).unwrap()),
        time_ns: 0,
        payload: empty_payload(),
        extra: bind_certificate(qc.view(), qc.block()),
    }
}

/// Timeouts of replicas 0, 1 and 2 in a view, which list certificates of these views.
pub(super) fn timeouts(view: u64, highs: [u64; 3]) -> TimeoutCertificate {
    let listed =
        (0..).zip(highs).map(|(id, high)| Signed { body: View(high), by: r(id), signature: SIGNATURE });
    TimeoutCertificate { view: View(view), listed: listed.collect() }
}

pub(super) fn follows(qc: &Certificate) -> ViewProof {
    ViewProof { qc: qc.clone(), timeouts: None }
}

/// A proof of a view after failed ones.
pub(super) fn after(qc: &Certificate, view: u64, highs: [u64; 3]) -> ViewProof {
    ViewProof { qc: qc.clone(), timeouts: Some(timeouts(view, highs)) }
}

/// Replica 3 of four, and the chain that it has learnt.
pub(super) struct Bench<R: Rules> {
    pub(super) replica: Harness<Chained<R>>,
    /// The certificate of the chain's last block.
    pub(super) qc: Certificate,
    pub(super) height: u64,
    pub(super) blocks: Vec<Block>,
}

impl<R: Rules> Bench<R> {
    pub(super) fn new() -> Self {
        Self::of(3)
    }

    pub(super) fn of(me: u16) -> Self {
        Self::with(me, &round_robin::<R>())
    }

    pub(super) fn with(me: u16, params: &ChainedParams<R::OwnParams>) -> Self {
        let replica = Harness::open(r(me), Setup::of::<Chained<R>>(4), params).unwrap();
        Self { replica, qc: Certificate::genesis(VOTE), height: 0, blocks: Vec::new() }
    }

    /// The next block of the chain, in this view.
    pub(super) fn next(&self, view: u64) -> Block {
        on(&self.qc, self.height + 1, view)
    }

    /// The proof of a view on top of the chain.
    pub(super) fn proof(&self, view: u64) -> ViewProof {
        let timeouts = (self.qc.view().next() != View(view)).then(|| timeouts(view - 1, [0; 3]));
        ViewProof { qc: self.qc.clone(), timeouts }
    }

    pub(super) fn deliver(&mut self, from: ReplicaId, content: Content) -> Result<(), Reject> {
        self.replica.deliver(from, ChainedMessage::from(content))
    }

    /// The leader of a view proposes on top of the chain, and its block is certified.
    pub(super) fn block_in(&mut self, view: u64) -> Block {
        let block = self.next(view);
        let proof = self.proof(view);
        self.deliver(block.proposer, Content::Propose(block.clone(), proof)).unwrap();
        self.certify(&block);
        block
    }

    pub(super) fn certify(&mut self, block: &Block) {
        (self.qc, self.height) = (qc(block), block.height.0);
        self.blocks.push(block.clone());
    }

    /// Clients have requests.
    pub(super) fn busy(&mut self) {
        self.replica.waits(Some(Time(0)), false);
    }

    /// The timer of the view expires.
    pub(super) fn expire(&mut self) {
        let at = self.replica.deadline().expect("a timer is set");
        let ns = at.since(self.replica.now());
        assert_eq!(self.replica.advance(ns), 1);
    }

    /// The messages that were sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<Content> {
        self.replica.settle();
        self.replica.sent().iter().map(|(_, message)| message.clone().into()).collect()
    }

    /// The votes among the messages that were sent since the last call.
    pub(super) fn votes(&mut self) -> Vec<BlockVote> {
        let sent = self.sent();
        sent.into_iter()
            .filter_map(|content| if let Content::Vote(vote) = content { Some(vote) } else { None })
            .collect()
    }

    pub(super) fn view(&self) -> View {
        self.replica.status().view
    }

    /// Ids of the chains that were committed.
    pub(super) fn committed(&mut self) -> Vec<BlockId> {
        let committed = self.replica.committed();
        committed
            .into_iter()
            .map(|what| match what {
                quorate_consensus::Commit::Chain(id) => id,
                quorate_consensus::Commit::At(..) => panic!("chains commit with their ancestors"),
            })
            .collect()
    }
}
