//! Flaws of chained protocols, for the museum.

use crate::chained_support::{Chained, ChainedMessage, Content, Rules, VOTE, boxed, read};
use quorate_consensus::flawed::Flaw;
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof, claim_votes};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{
    Attack, AttackEntry, Auth, Certificate, Claims, Commit, Effect, Hold, Message, Past, Protocol, Scene,
    Seal, Signed, To, Window,
};
use quorate_protocols::chained::{ChainedRecord, Timer};
use quorate_types::{Block, BlockId, Digest, Height, ReplicaId, Statement, View};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

/// A flaw. Each method changes nothing unless a flaw overrides it.
pub(crate) trait Wrong<R: Rules>: Default + Send + 'static {
    const ATTACKS: &'static [AttackEntry] = &[];
    /// Whether records survive a restart.
    const REMEMBERS: bool = true;

    fn begins(&mut self, me: ReplicaId) {
        let _ = me;
    }

    fn claims(content: Content, claims: &mut Claims<'_>) {
        ChainedMessage::<R>::from(content).claims(claims);
    }

    fn auth(content: Content) -> Auth {
        ChainedMessage::<R>::from(content).auth()
    }

    /// Returns the messages that a replica in this view handles instead of a received one.
    fn hears(&mut self, view: View, content: Content, by: ReplicaId) -> Vec<Content> {
        let _ = (view, by);
        vec![content]
    }

    fn hears_timer(&mut self) -> bool {
        true
    }

    /// Returns the message that the replica sends instead of its own, if any.
    fn says(&mut self, to: To, content: Content) -> Option<Content> {
        let _ = to;
        Some(content)
    }

    /// Changes the effects of an event.
    fn wants(&mut self, effects: &mut Vec<Effect>) {
        let _ = effects;
    }

    /// Changes the window of messages that are verified.
    fn window(&self, window: Window) -> Window {
        window
    }
}

/// A flaw of the protocol with the rules `R`.
pub(crate) struct In<R, X>(X, PhantomData<fn() -> R>);

impl<R, X: Default> Default for In<R, X> {
    fn default() -> Self {
        Self(X::default(), PhantomData)
    }
}

impl<R: Rules, X: Wrong<R>> Flaw<Chained<R>> for In<R, X> {
    const ATTACKS: &'static [AttackEntry] = X::ATTACKS;

    fn opens(&mut self, me: ReplicaId, past: &mut Past<ChainedRecord<R>>) {
        self.0.begins(me);
        if !X::REMEMBERS {
            past.records.clear();
        }
    }

    fn claims(message: &ChainedMessage<R>, claims: &mut Claims<'_>) {
        X::claims(message.clone().into(), claims);
    }

    fn auth(message: &ChainedMessage<R>) -> Auth {
        X::auth(message.clone().into())
    }

    fn hears(
        &mut self,
        protocol: &Chained<R>,
        message: ChainedMessage<R>,
        seal: &Seal,
    ) -> Vec<ChainedMessage<R>> {
        let handled = self.0.hears(protocol.status().view, message.into(), seal.by);
        handled.into_iter().map(ChainedMessage::from).collect()
    }

    fn hears_timer(&mut self, _: &Chained<R>, _: Timer) -> bool {
        self.0.hears_timer()
    }

    fn says(&mut self, _: &Chained<R>, to: &mut To, message: &mut ChainedMessage<R>) -> bool {
        let content = self.0.says(*to, message.clone().into());
        content.map(|content| *message = content.into()).is_some()
    }

    fn wants(&mut self, _: &Chained<R>, effects: &mut Vec<Effect>) {
        self.0.wants(effects);
    }

    fn window(&self, window: Window) -> Window {
        self.0.window(window)
    }
}

/// Returns the proof in a message.
fn proof(content: &Content) -> Option<&ViewProof> {
    match content {
        Content::Propose(_, proof) | Content::Timeout(_, proof, _) | Content::Advance(proof) => Some(proof),
        Content::Vote(_) => None,
    }
}

fn send<R: Rules>(content: Content) -> Effect {
    Effect::Send { to: To::All, hold: Hold::UntilDurable, message: boxed::<R>(content) }
}

/// Returns timeouts of a view that no replica has signed.
fn unproven(view: View) -> Option<TimeoutCertificate> {
    Some(TimeoutCertificate { view, listed: Vec::new() })
}

/// T1: a chain of certified blocks commits its first block, even if views lie between them.
#[derive(Default)]
pub(crate) struct ViewsLeftOut {
    blocks: BTreeMap<BlockId, Block>,
    committed: Height,
    commits: Vec<BlockId>,
}

impl<R: Rules> Wrong<R> for ViewsLeftOut {
    fn hears(&mut self, _: View, content: Content, _: ReplicaId) -> Vec<Content> {
        if let Content::Propose(block, _) = &content {
            self.blocks.insert(block.id(), block.clone());
        }
        if let Some(proof) = proof(&content) {
            let mut at = self.blocks.get(&proof.qc.block());
            for _ in 1..R::LINKS {
                at = at.and_then(|block| self.blocks.get(&block.parent));
            }
            if let Some(block) = at.filter(|block| block.height > self.committed) {
                self.committed = block.height;
                self.commits.push(block.id());
            }
        }
        vec![content]
    }

    fn wants(&mut self, effects: &mut Vec<Effect>) {
        let commits = self.commits.drain(..);
        effects.extend(commits.map(|id| Effect::Commit(Commit::Chain(id))));
    }
}

/// T1 with three phases: as [`ViewsLeftOut`], and timeouts carry no certificate.
#[derive(Default)]
pub(crate) struct ViewsLeftOutUnseen(ViewsLeftOut);

impl<R: Rules> Wrong<R> for ViewsLeftOutUnseen {
    fn claims(content: Content, claims: &mut Claims<'_>) {
        claim_certificate_alone(&content, claims);
    }

    fn hears(&mut self, view: View, content: Content, by: ReplicaId) -> Vec<Content> {
        <ViewsLeftOut as Wrong<R>>::hears(&mut self.0, view, without_certificate(content), by)
    }

    fn wants(&mut self, effects: &mut Vec<Effect>) {
        <ViewsLeftOut as Wrong<R>>::wants(&mut self.0, effects);
    }
}

/// T3: one vote more than a quorum makes the leader propose once more.
#[derive(Default)]
pub(crate) struct FiresAgain {
    me: ReplicaId,
    proposed: Option<(Block, ViewProof)>,
    again: Vec<Content>,
}

impl<R: Rules> Wrong<R> for FiresAgain {
    fn begins(&mut self, me: ReplicaId) {
        self.me = me;
    }

    fn hears(&mut self, _: View, content: Content, by: ReplicaId) -> Vec<Content> {
        match &content {
            Content::Propose(block, proof) if by == self.me => {
                self.proposed = Some((block.clone(), proof.clone()));
            }
            Content::Vote(vote) => {
                let late = self.proposed.take_if(|(block, _)| block.parent == vote.block);
                self.again.extend(late.map(|(block, proof)| {
                    let time_ns = block.time_ns + 1;
                    Content::Propose(Block { time_ns, ..block }, proof)
                }));
            }
            _ => {}
        }
        vec![content]
    }

    fn wants(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.again.drain(..).map(send::<R>));
    }

    fn window(&self, window: Window) -> Window {
        Window { views: window.views.start.minus(1)..window.views.end, ..window }
    }
}

/// T4: of two certificates the lower one is kept, so that all proposals carry the one of genesis.
#[derive(Default)]
pub(crate) struct LowestCertificate;

impl<R: Rules> Wrong<R> for LowestCertificate {
    fn says(&mut self, _: To, content: Content) -> Option<Content> {
        let Content::Propose(block, proof) = content else { return Some(content) };
        let block = Block {
            parent: BlockId::ZERO,
            height: Height(1),
            extra: bind_certificate(View::ZERO, BlockId::ZERO),
            ..block
        };
        Some(Content::Propose(block, ViewProof { qc: Certificate::genesis(VOTE), ..proof }))
    }
}

/// L1, M7: timeouts do not carry the last vote.
#[derive(Default)]
pub(crate) struct NoLastVote;

impl<R: Rules> Wrong<R> for NoLastVote {
    fn says(&mut self, _: To, content: Content) -> Option<Content> {
        Some(match content {
            Content::Timeout(view, proof, _) => Content::Timeout(view, proof, None),
            other => other,
        })
    }
}

/// Claims the certificate of votes, but not the timeouts.
fn claim_certificate_alone(content: &Content, claims: &mut Claims<'_>) {
    if let Some(proof) = proof(content) {
        claim_votes(&proof.qc, VOTE, claims);
    }
}

/// L2: a replica that has received a view's proposal leaves the view. The next leader alone waits for the votes.
#[derive(Default)]
pub(crate) struct LeavesUnproven {
    me: ReplicaId,
}

impl<R: Rules> Wrong<R> for LeavesUnproven {
    fn begins(&mut self, me: ReplicaId) {
        self.me = me;
    }

    fn claims(content: Content, claims: &mut Claims<'_>) {
        claim_certificate_alone(&content, claims);
    }

    fn hears(&mut self, view: View, content: Content, _: ReplicaId) -> Vec<Content> {
        let unproven_jump = proof(&content).and_then(|proof| proof.timeouts.as_ref());
        let is_unproven = unproven_jump.is_some_and(|timeouts| timeouts.listed.is_empty());
        match &content {
            // Messages without a proof move no other replica.
            Content::Advance(_) if is_unproven => Vec::new(),
            Content::Timeout(of, ..) | Content::Propose(Block { view: of, .. }, _)
                if is_unproven && *of != view =>
            {
                Vec::new()
            }
            Content::Propose(block, proof) if self.me.0 != u16::try_from((block.view.0 + 1) % 4).unwrap() => {
                let on = ViewProof { qc: proof.qc.clone(), timeouts: unproven(block.view) };
                vec![content, Content::Advance(on)]
            }
            _ => vec![content],
        }
    }
}

/// Returns the message without the certificates that come with timeouts.
fn without_certificate(content: Content) -> Content {
    let none = Certificate::genesis(VOTE);
    match content {
        // The receiver believes the sender's view.
        Content::Timeout(view, _, last_vote) => {
            let proof = ViewProof { qc: none, timeouts: unproven(view.minus(1)) };
            Content::Timeout(view, proof, last_vote)
        }
        Content::Advance(ViewProof { timeouts: Some(timeouts), .. }) => {
            Content::Advance(ViewProof { qc: none, timeouts: Some(timeouts) })
        }
        other => other,
    }
}

/// M5: timeouts carry no certificate, and a replica that enters by them learns none.
#[derive(Default)]
pub(crate) struct NoCertificates;

impl<R: Rules> Wrong<R> for NoCertificates {
    fn claims(content: Content, claims: &mut Claims<'_>) {
        claim_certificate_alone(&content, claims);
    }

    fn hears(&mut self, _: View, content: Content, _: ReplicaId) -> Vec<Content> {
        vec![without_certificate(content)]
    }
}

/// M6: timeouts carry no certificate and no last vote, and replicas that are behind receive no proof. No replica votes below
/// the highest certificate that it has received in a proposal.
#[derive(Default)]
pub(crate) struct HiddenLock {
    locked: View,
}

impl<R: Rules> Wrong<R> for HiddenLock {
    fn claims(content: Content, claims: &mut Claims<'_>) {
        claim_certificate_alone(&content, claims);
    }

    fn hears(&mut self, _: View, content: Content, _: ReplicaId) -> Vec<Content> {
        if let Content::Propose(_, proof) = &content {
            if proof.qc.view() < self.locked {
                return Vec::new();
            }
            self.locked = proof.qc.view();
        }
        vec![without_certificate(content)]
    }

    fn says(&mut self, to: To, content: Content) -> Option<Content> {
        let is_answer = matches!(content, Content::Advance(_)) && to != To::All;
        if is_answer { None } else { <NoLastVote as Wrong<R>>::says(&mut NoLastVote, to, content) }
    }
}

/// L5: a proposal does not carry the proof of its view, and replicas in an earlier view drop it.
#[derive(Default)]
pub(crate) struct UnprovenProposals {
    known: Option<TimeoutCertificate>,
}

impl UnprovenProposals {
    fn learn(&mut self, content: &Content) {
        if let Some(timeouts) = proof(content).and_then(|proof| proof.timeouts.clone()) {
            self.known = Some(timeouts);
        }
    }

    /// Returns the message with the receiver's own proof, `None` where the receiver is in another view.
    fn complete(&self, view: View, content: Content) -> Option<Content> {
        let known = self.known.clone().filter(|timeouts| timeouts.view.next() == view);
        let completed = |of: View, proof: ViewProof| match (&proof.timeouts, &known) {
            (None, _) if proof.qc.view().next() == of => Some(proof),
            (None, Some(_)) if of == view => Some(ViewProof { timeouts: known.clone(), ..proof }),
            (None, _) => None,
            (Some(_), _) => Some(proof),
        };
        Some(match content {
            Content::Propose(block, proof) => {
                let proof = completed(block.view, proof)?;
                Content::Propose(block, proof)
            }
            Content::Timeout(of, proof, vote) => Content::Timeout(of, completed(of, proof)?, vote),
            other => other,
        })
    }
}

fn bare(proof: ViewProof) -> ViewProof {
    ViewProof { timeouts: None, ..proof }
}

impl<R: Rules> Wrong<R> for UnprovenProposals {
    fn hears(&mut self, view: View, content: Content, _: ReplicaId) -> Vec<Content> {
        self.learn(&content);
        self.complete(view, content).into_iter().collect()
    }

    fn says(&mut self, _: To, content: Content) -> Option<Content> {
        Some(match content {
            Content::Propose(block, proof) => Content::Propose(block, bare(proof)),
            other => other,
        })
    }
}

/// L6: the timeouts of a view are sent to all once, and never again to a replica that has missed them.
#[derive(Default)]
pub(crate) struct SaidOnce(UnprovenProposals);

impl<R: Rules> Wrong<R> for SaidOnce {
    fn hears(&mut self, view: View, content: Content, by: ReplicaId) -> Vec<Content> {
        <UnprovenProposals as Wrong<R>>::hears(&mut self.0, view, content, by)
    }

    fn says(&mut self, to: To, content: Content) -> Option<Content> {
        match content {
            Content::Propose(block, proof) => Some(Content::Propose(block, bare(proof))),
            Content::Timeout(view, proof, vote) => Some(Content::Timeout(view, bare(proof), vote)),
            Content::Advance(_) if to != To::All => None,
            other => Some(other),
        }
    }
}

/// M10, T3: votes of different views count together, one vote of each replica.
#[derive(Default)]
pub(crate) struct VotesOfTwoViews {
    newest: Option<BlockVote>,
    counted: BTreeSet<(View, ReplicaId)>,
}

impl<R: Rules> Wrong<R> for VotesOfTwoViews {
    fn hears(&mut self, _: View, content: Content, by: ReplicaId) -> Vec<Content> {
        let Content::Vote(vote) = content else { return vec![content] };
        let newest = *self.newest.insert(match self.newest {
            Some(newest) if newest.view >= vote.view => newest,
            _ => vote,
        });
        if self.counted.insert((newest.view, by)) { vec![Content::Vote(newest)] } else { Vec::new() }
    }
}

/// M28: after fifty proposals the replica ignores all timers.
#[derive(Default)]
pub(crate) struct DeafToTimers {
    proposals: u32,
}

const PROPOSALS_MAX: u32 = 50;

impl<R: Rules> Wrong<R> for DeafToTimers {
    fn hears(&mut self, _: View, content: Content, _: ReplicaId) -> Vec<Content> {
        self.proposals += u32::from(matches!(content, Content::Propose(..)));
        vec![content]
    }

    fn hears_timer(&mut self) -> bool {
        self.proposals < PROPOSALS_MAX
    }
}

/// S1: certificates in messages are not verified.
#[derive(Default)]
pub(crate) struct Credulous<R>(PhantomData<fn() -> R>);

impl<R: Rules> Wrong<R> for Credulous<R> {
    const ATTACKS: &'static [AttackEntry] = &[AttackEntry {
        name: "forged certificate",
        about: "Shows a certificate of its own signature alone, for a block that nobody has.",
        make: || Box::new(Forger::<R>(forge_alone, PhantomData)),
    }];

    fn claims(_: Content, _: &mut Claims<'_>) {}
}

/// S2: the statement of a vote has its view, but not its block.
#[derive(Default)]
pub(crate) struct VotesForNoBlock<R>(PhantomData<fn() -> R>);

fn for_no_block(statement: Statement) -> Statement {
    Statement { subject: Digest::ZERO, ..statement }
}

impl<R: Rules> Wrong<R> for VotesForNoBlock<R> {
    const ATTACKS: &'static [AttackEntry] = &[AttackEntry {
        name: "moved certificate",
        about: "Shows the votes for one block as if they were for another, which nobody has.",
        make: || Box::new(Forger::<R>(move_votes, PhantomData)),
    }];

    fn auth(content: Content) -> Auth {
        let is_vote = matches!(content, Content::Vote(_));
        match ChainedMessage::<R>::from(content).auth() {
            Auth::Signed(statement) if is_vote => Auth::Signed(for_no_block(statement)),
            other => other,
        }
    }

    fn claims(content: Content, claims: &mut Claims<'_>) {
        let Some(ViewProof { qc, timeouts }) = proof(&content) else { return };
        let quorum = claims.committee().quorum();
        claims.certificate(&Certificate { statement: for_no_block(qc.statement), ..qc.clone() }, quorum);
        if let Some(timeouts) = timeouts {
            timeouts.claim(R::TIMEOUT, claims);
        }
        if let Content::Timeout(_, _, Some(Signed { body, by, signature })) = &content {
            claims.signature(*by, for_no_block(body.statement(VOTE)), signature);
        }
    }
}

/// S3: the number of signers of a certificate is not checked.
#[derive(Default)]
pub(crate) struct CountsNobody<R>(PhantomData<fn() -> R>);

impl<R: Rules> Wrong<R> for CountsNobody<R> {
    const ATTACKS: &'static [AttackEntry] = <Credulous<R> as Wrong<R>>::ATTACKS;

    fn claims(content: Content, claims: &mut Claims<'_>) {
        let Some(ViewProof { qc, timeouts }) = proof(&content) else { return };
        claims.certificate(qc, 1);
        if let Some(timeouts) = timeouts {
            timeouts.claim(R::TIMEOUT, claims);
        }
    }
}

/// S5: every proposal gets a vote, in any view and on any certificate.
#[derive(Default)]
pub(crate) struct VotesForAll {
    votes: Vec<BlockVote>,
}

impl<R: Rules> Wrong<R> for VotesForAll {
    fn hears(&mut self, _: View, content: Content, _: ReplicaId) -> Vec<Content> {
        if let Content::Propose(block, _) = &content {
            self.votes.push(BlockVote { view: block.view, block: block.id() });
        }
        vec![content]
    }

    fn wants(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.votes.drain(..).map(|vote| send::<R>(Content::Vote(vote))));
    }
}

/// S6: no record survives a restart.
#[derive(Default)]
pub(crate) struct Forgets;

impl<R: Rules> Wrong<R> for Forgets {
    const REMEMBERS: bool = false;
}

/// A certificate that a Byzantine replica adds to a message of its own.
type Forge = fn(&Scene<'_>, &Content) -> Option<Certificate>;

/// Sends an invalid certificate before each message of its own.
struct Forger<R>(Forge, PhantomData<fn() -> R>);

/// A block that was never proposed.
const NOBODYS: Digest = Digest([7; 32]);

impl<R: Rules> Attack for Forger<R> {
    fn says(
        &mut self,
        scene: &mut Scene<'_>,
        _: ReplicaId,
        message: Box<dyn Message>,
    ) -> Vec<Box<dyn Message>> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let forged = read::<R>(&bytes).and_then(|content| (self.0)(scene, &content));
        let sent = forged.map(|qc| boxed::<R>(Content::Advance(ViewProof { qc, timeouts: None })));
        // The forged certificate comes first: of two certificates of one view the first one counts.
        sent.into_iter().chain([message]).collect()
    }
}

fn forge_alone(scene: &Scene<'_>, content: &Content) -> Option<Certificate> {
    let view = proof(content)?.qc.view().plus(2);
    let statement = BlockVote { view, block: BlockId(NOBODYS) }.statement(VOTE);
    let vote = (scene.me, (scene.sign)(&statement));
    Some(Certificate::of(statement, &[vote]))
}

fn move_votes(_: &Scene<'_>, content: &Content) -> Option<Certificate> {
    let qc = proof(content)?.qc.clone();
    let moved = Statement { subject: NOBODYS, ..qc.statement };
    (!qc.is_genesis()).then_some(Certificate { statement: moved, ..qc })
}
