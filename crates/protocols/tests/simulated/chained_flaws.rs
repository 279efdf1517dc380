//! What can be wrong with a chained protocol, in the words that all of them have: for the museum.

use crate::words::{Said, Words};
use quorate_consensus::flawed::Flaw;
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof, claim_votes};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{
    Attack, AttackEntry, Auth, Certificate, Claims, Commit, Effect, Hold, Message, Past, Protocol, Scene,
    Seal, Signed, To, Window,
};
use quorate_types::{Block, BlockId, Digest, Height, ReplicaId, Statement, View};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

/// What is wrong. Each method leaves everything as it is unless it says otherwise.
pub(crate) trait Wrong<W: Words>: Default + Send + 'static {
    const ATTACKS: &'static [AttackEntry] = &[];
    /// Whether what was written down is still there after a restart.
    const REMEMBERS: bool = true;

    fn begins(&mut self, me: ReplicaId) {
        let _ = me;
    }

    fn claims(said: Said, claims: &mut Claims<'_>) {
        W::message(said).claims(claims);
    }

    fn auth(said: Said) -> Auth {
        W::message(said).auth()
    }

    /// What is heard in the place of this, by a replica in that view.
    fn hears(&mut self, view: View, said: Said, by: ReplicaId) -> Vec<Said> {
        let _ = (view, by);
        vec![said]
    }

    fn hears_timer(&mut self) -> bool {
        true
    }

    /// What is said in the place of this.
    fn says(&mut self, to: To, said: Said) -> Option<Said> {
        let _ = to;
        Some(said)
    }

    /// What else is wanted, or what is not.
    fn wants(&mut self, effects: &mut Vec<Effect>) {
        let _ = effects;
    }

    /// What is worth verifying.
    fn window(&self, window: Window) -> Window {
        window
    }
}

/// A flaw of one of the protocols.
pub(crate) struct In<W, X>(X, PhantomData<fn() -> W>);

impl<W, X: Default> Default for In<W, X> {
    fn default() -> Self {
        Self(X::default(), PhantomData)
    }
}

impl<W: Words, X: Wrong<W>> Flaw<W::Protocol> for In<W, X> {
    const ATTACKS: &'static [AttackEntry] = X::ATTACKS;

    fn opens(&mut self, me: ReplicaId, past: &mut Past<<W::Protocol as Protocol>::Record>) {
        self.0.begins(me);
        if !X::REMEMBERS {
            past.records.clear();
        }
    }

    fn claims(message: &W::Message, claims: &mut Claims<'_>) {
        X::claims(W::said(message.clone()), claims);
    }

    fn auth(message: &W::Message) -> Auth {
        X::auth(W::said(message.clone()))
    }

    fn hears(&mut self, protocol: &W::Protocol, message: W::Message, seal: &Seal) -> Vec<W::Message> {
        let heard = self.0.hears(protocol.status().view, W::said(message), seal.by);
        heard.into_iter().map(W::message).collect()
    }

    fn hears_timer(&mut self, _: &W::Protocol, _: <W::Protocol as Protocol>::Timer) -> bool {
        self.0.hears_timer()
    }

    fn says(&mut self, _: &W::Protocol, to: &mut To, message: &mut W::Message) -> bool {
        let said = self.0.says(*to, W::said(message.clone())).map(W::message);
        said.map(|said| *message = said).is_some()
    }

    fn wants(&mut self, _: &W::Protocol, effects: &mut Vec<Effect>) {
        self.0.wants(effects);
    }

    fn window(&self, window: Window) -> Window {
        self.0.window(window)
    }
}

/// The proof in what is said.
fn proof(said: &Said) -> Option<&ViewProof> {
    match said {
        Said::Propose(_, proof) | Said::GiveUp(_, proof, _) | Said::Show(proof) => Some(proof),
        Said::Vote(_) => None,
    }
}

fn send<W: Words>(said: Said) -> Effect {
    Effect::Send { to: To::All, hold: Hold::UntilDurable, message: W::say(said) }
}

/// A view is over, and nobody has said so.
fn unproven(view: View) -> Option<TimeoutCertificate> {
    Some(TimeoutCertificate { view, listed: Vec::new() })
}

/// T1: blocks in a row commit, whatever views lie between them.
#[derive(Default)]
pub(crate) struct ViewsLeftOut {
    blocks: BTreeMap<BlockId, Block>,
    committed: Height,
    commits: Vec<BlockId>,
}

impl<W: Words> Wrong<W> for ViewsLeftOut {
    fn hears(&mut self, _: View, said: Said, _: ReplicaId) -> Vec<Said> {
        if let Said::Propose(block, _) = &said {
            self.blocks.insert(block.id(), block.clone());
        }
        if let Some(proof) = proof(&said) {
            let mut at = self.blocks.get(&proof.qc.block());
            for _ in 1..W::LINKS {
                at = at.and_then(|block| self.blocks.get(&block.parent));
            }
            if let Some(block) = at.filter(|block| block.height > self.committed) {
                self.committed = block.height;
                self.commits.push(block.id());
            }
        }
        vec![said]
    }

    fn wants(&mut self, effects: &mut Vec<Effect>) {
        let commits = self.commits.drain(..);
        effects.extend(commits.map(|id| Effect::Commit(Commit::Chain(id))));
    }
}

/// T1 with three phases: the same, and who gives a view up shows no certificate.
#[derive(Default)]
pub(crate) struct ViewsLeftOutUnseen(ViewsLeftOut);

impl<W: Words> Wrong<W> for ViewsLeftOutUnseen {
    fn claims(said: Said, claims: &mut Claims<'_>) {
        claim_certificate_alone::<W>(&said, claims);
    }

    fn hears(&mut self, view: View, said: Said, by: ReplicaId) -> Vec<Said> {
        <ViewsLeftOut as Wrong<W>>::hears(&mut self.0, view, without_certificate::<W>(said), by)
    }

    fn wants(&mut self, effects: &mut Vec<Effect>) {
        <ViewsLeftOut as Wrong<W>>::wants(&mut self.0, effects);
    }
}

/// T3: one vote more than a quorum makes the leader propose once more.
#[derive(Default)]
pub(crate) struct FiresAgain {
    me: ReplicaId,
    proposed: Option<(Block, ViewProof)>,
    again: Vec<Said>,
}

impl<W: Words> Wrong<W> for FiresAgain {
    fn begins(&mut self, me: ReplicaId) {
        self.me = me;
    }

    fn hears(&mut self, _: View, said: Said, by: ReplicaId) -> Vec<Said> {
        match &said {
            Said::Propose(block, proof) if by == self.me => {
                self.proposed = Some((block.clone(), proof.clone()));
            }
            Said::Vote(vote) => {
                let late = self.proposed.take_if(|(block, _)| block.parent == vote.block);
                self.again.extend(late.map(|(block, proof)| {
                    let time_ns = block.time_ns + 1;
                    Said::Propose(Block { time_ns, ..block }, proof)
                }));
            }
            _ => {}
        }
        vec![said]
    }

    fn wants(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.again.drain(..).map(send::<W>));
    }

    fn window(&self, window: Window) -> Window {
        Window { views: window.views.start.minus(1)..window.views.end, ..window }
    }
}

/// T4: of two certificates the lower one is kept, so that proposals rest on the one of genesis for ever.
#[derive(Default)]
pub(crate) struct LowestCertificate;

impl<W: Words> Wrong<W> for LowestCertificate {
    fn says(&mut self, _: To, said: Said) -> Option<Said> {
        let Said::Propose(block, proof) = said else { return Some(said) };
        let block = Block {
            parent: BlockId::ZERO,
            height: Height(1),
            extra: bind_certificate(View::ZERO, BlockId::ZERO),
            ..block
        };
        Some(Said::Propose(block, ViewProof { qc: Certificate::genesis(W::VOTE), ..proof }))
    }
}

/// L1, M7: complaints do not carry the last vote.
#[derive(Default)]
pub(crate) struct NoLastVote;

impl<W: Words> Wrong<W> for NoLastVote {
    fn says(&mut self, _: To, said: Said) -> Option<Said> {
        Some(match said {
            Said::GiveUp(view, proof, _) => Said::GiveUp(view, proof, None),
            other => other,
        })
    }
}

/// Only certificates of votes are checked, not who has given a view up.
fn claim_certificate_alone<W: Words>(said: &Said, claims: &mut Claims<'_>) {
    if let Some(proof) = proof(said) {
        claim_votes(&proof.qc, W::VOTE, claims);
    }
}

/// L2: who has heard a view's proposal leaves the view, but for the next leader, who waits for the votes.
#[derive(Default)]
pub(crate) struct LeavesUnproven {
    me: ReplicaId,
}

impl<W: Words> Wrong<W> for LeavesUnproven {
    fn begins(&mut self, me: ReplicaId) {
        self.me = me;
    }

    fn claims(said: Said, claims: &mut Claims<'_>) {
        claim_certificate_alone::<W>(&said, claims);
    }

    fn hears(&mut self, view: View, said: Said, _: ReplicaId) -> Vec<Said> {
        let unproven_jump = proof(&said).and_then(|proof| proof.timeouts.as_ref());
        let is_unproven = unproven_jump.is_some_and(|timeouts| timeouts.listed.is_empty());
        match &said {
            // What nobody proves moves nobody else.
            Said::Show(_) if is_unproven => Vec::new(),
            Said::GiveUp(of, ..) | Said::Propose(Block { view: of, .. }, _) if is_unproven && *of != view => {
                Vec::new()
            }
            Said::Propose(block, proof) if self.me.0 != u16::try_from((block.view.0 + 1) % 4).unwrap() => {
                let on = ViewProof { qc: proof.qc.clone(), timeouts: unproven(block.view) };
                vec![said, Said::Show(on)]
            }
            _ => vec![said],
        }
    }
}

/// What a replica hears where nobody tells how high its certificate is when a view is given up.
fn without_certificate<W: Words>(said: Said) -> Said {
    let none = Certificate::genesis(W::VOTE);
    match said {
        // Its sender's view is believed.
        Said::GiveUp(view, _, last_vote) => {
            let proof = ViewProof { qc: none, timeouts: unproven(view.minus(1)) };
            Said::GiveUp(view, proof, last_vote)
        }
        Said::Show(ViewProof { timeouts: Some(timeouts), .. }) => {
            Said::Show(ViewProof { qc: none, timeouts: Some(timeouts) })
        }
        other => other,
    }
}

/// M5: who gives a view up shows no certificate, and whoever enters by that learns none.
#[derive(Default)]
pub(crate) struct NoCertificates;

impl<W: Words> Wrong<W> for NoCertificates {
    fn claims(said: Said, claims: &mut Claims<'_>) {
        claim_certificate_alone::<W>(&said, claims);
    }

    fn hears(&mut self, _: View, said: Said, _: ReplicaId) -> Vec<Said> {
        vec![without_certificate::<W>(said)]
    }
}

/// M6: nor its last vote, nor shows its certificate to who is behind; and nobody votes below the highest certificate that
/// it has heard of in a proposal.
#[derive(Default)]
pub(crate) struct HiddenLock {
    locked: View,
}

impl<W: Words> Wrong<W> for HiddenLock {
    fn claims(said: Said, claims: &mut Claims<'_>) {
        claim_certificate_alone::<W>(&said, claims);
    }

    fn hears(&mut self, _: View, said: Said, _: ReplicaId) -> Vec<Said> {
        if let Said::Propose(_, proof) = &said {
            if proof.qc.view() < self.locked {
                return Vec::new();
            }
            self.locked = proof.qc.view();
        }
        vec![without_certificate::<W>(said)]
    }

    fn says(&mut self, to: To, said: Said) -> Option<Said> {
        let is_answer = matches!(said, Said::Show(_)) && to != To::All;
        if is_answer { None } else { <NoLastVote as Wrong<W>>::says(&mut NoLastVote, to, said) }
    }
}

/// L5: a proposal does not say what lets into its view: who is not there yet drops it.
#[derive(Default)]
pub(crate) struct UnprovenProposals {
    known: Option<TimeoutCertificate>,
}

impl UnprovenProposals {
    fn learn(&mut self, said: &Said) {
        if let Some(timeouts) = proof(said).and_then(|proof| proof.timeouts.clone()) {
            self.known = Some(timeouts);
        }
    }

    /// What is said, with the proof that its receiver has itself; nothing where it is in another view.
    fn complete(&self, view: View, said: Said) -> Option<Said> {
        let known = self.known.clone().filter(|timeouts| timeouts.view.next() == view);
        let shown = |of: View, proof: ViewProof| match (&proof.timeouts, &known) {
            (None, _) if proof.qc.view().next() == of => Some(proof),
            (None, Some(_)) if of == view => Some(ViewProof { timeouts: known.clone(), ..proof }),
            (None, _) => None,
            (Some(_), _) => Some(proof),
        };
        Some(match said {
            Said::Propose(block, proof) => {
                let proof = shown(block.view, proof)?;
                Said::Propose(block, proof)
            }
            Said::GiveUp(of, proof, vote) => Said::GiveUp(of, shown(of, proof)?, vote),
            other => other,
        })
    }
}

fn bare(proof: ViewProof) -> ViewProof {
    ViewProof { timeouts: None, ..proof }
}

impl<W: Words> Wrong<W> for UnprovenProposals {
    fn hears(&mut self, view: View, said: Said, _: ReplicaId) -> Vec<Said> {
        self.learn(&said);
        self.complete(view, said).into_iter().collect()
    }

    fn says(&mut self, _: To, said: Said) -> Option<Said> {
        Some(match said {
            Said::Propose(block, proof) => Said::Propose(block, bare(proof)),
            other => other,
        })
    }
}

/// L6: that a view was given up is said once, to all, and shown to nobody who has missed it.
#[derive(Default)]
pub(crate) struct SaidOnce(UnprovenProposals);

impl<W: Words> Wrong<W> for SaidOnce {
    fn hears(&mut self, view: View, said: Said, by: ReplicaId) -> Vec<Said> {
        <UnprovenProposals as Wrong<W>>::hears(&mut self.0, view, said, by)
    }

    fn says(&mut self, to: To, said: Said) -> Option<Said> {
        match said {
            Said::Propose(block, proof) => Some(Said::Propose(block, bare(proof))),
            Said::GiveUp(view, proof, vote) => Some(Said::GiveUp(view, bare(proof), vote)),
            Said::Show(_) if to != To::All => None,
            other => Some(other),
        }
    }
}

/// M10, T3: votes of different views count together, one of each replica.
#[derive(Default)]
pub(crate) struct VotesOfTwoViews {
    newest: Option<BlockVote>,
    counted: BTreeSet<(View, ReplicaId)>,
}

impl<W: Words> Wrong<W> for VotesOfTwoViews {
    fn hears(&mut self, _: View, said: Said, by: ReplicaId) -> Vec<Said> {
        let Said::Vote(vote) = said else { return vec![said] };
        let newest = *self.newest.insert(match self.newest {
            Some(newest) if newest.view >= vote.view => newest,
            _ => vote,
        });
        if self.counted.insert((newest.view, by)) { vec![Said::Vote(newest)] } else { Vec::new() }
    }
}

/// M28: after so many proposals no timer is heard any more.
#[derive(Default)]
pub(crate) struct DeafToTimers {
    proposals: u32,
}

const PROPOSALS_MAX: u32 = 50;

impl<W: Words> Wrong<W> for DeafToTimers {
    fn hears(&mut self, _: View, said: Said, _: ReplicaId) -> Vec<Said> {
        self.proposals += u32::from(matches!(said, Said::Propose(..)));
        vec![said]
    }

    fn hears_timer(&mut self) -> bool {
        self.proposals < PROPOSALS_MAX
    }
}

/// S1: certificates inside of messages are believed.
#[derive(Default)]
pub(crate) struct Credulous<W>(PhantomData<fn() -> W>);

impl<W: Words> Wrong<W> for Credulous<W> {
    const ATTACKS: &'static [AttackEntry] = &[AttackEntry {
        name: "forged certificate",
        about: "Shows a certificate of its own signature alone, for a block that nobody has.",
        make: || Box::new(Forger::<W>(forge_alone::<W>, PhantomData)),
    }];

    fn claims(_: Said, _: &mut Claims<'_>) {}
}

/// S2: a vote says in which view it is cast, not for which block.
#[derive(Default)]
pub(crate) struct VotesForNoBlock<W>(PhantomData<fn() -> W>);

fn for_no_block(statement: Statement) -> Statement {
    Statement { subject: Digest::ZERO, ..statement }
}

impl<W: Words> Wrong<W> for VotesForNoBlock<W> {
    const ATTACKS: &'static [AttackEntry] = &[AttackEntry {
        name: "moved certificate",
        about: "Shows the votes for one block as if they were for another, which nobody has.",
        make: || Box::new(Forger::<W>(move_votes::<W>, PhantomData)),
    }];

    fn auth(said: Said) -> Auth {
        let is_vote = matches!(said, Said::Vote(_));
        match W::message(said).auth() {
            Auth::Signed(statement) if is_vote => Auth::Signed(for_no_block(statement)),
            other => other,
        }
    }

    fn claims(said: Said, claims: &mut Claims<'_>) {
        let Some(ViewProof { qc, timeouts }) = proof(&said) else { return };
        let quorum = claims.committee().quorum();
        claims.certificate(&Certificate { statement: for_no_block(qc.statement), ..qc.clone() }, quorum);
        if let Some(timeouts) = timeouts {
            timeouts.claim(W::GIVE_UP, claims);
        }
        if let Said::GiveUp(_, _, Some(Signed { body, by, signature })) = &said {
            claims.signature(*by, for_no_block(body.statement(W::VOTE)), signature);
        }
    }
}

/// S3: nobody counts how many replicas have signed a certificate.
#[derive(Default)]
pub(crate) struct CountsNobody<W>(PhantomData<fn() -> W>);

impl<W: Words> Wrong<W> for CountsNobody<W> {
    const ATTACKS: &'static [AttackEntry] = <Credulous<W> as Wrong<W>>::ATTACKS;

    fn claims(said: Said, claims: &mut Claims<'_>) {
        let Some(ViewProof { qc, timeouts }) = proof(&said) else { return };
        claims.certificate(qc, 1);
        if let Some(timeouts) = timeouts {
            timeouts.claim(W::GIVE_UP, claims);
        }
    }
}

/// S5: every proposal gets a vote, in whatever view it is and on whatever it stands.
#[derive(Default)]
pub(crate) struct VotesForAll {
    votes: Vec<BlockVote>,
}

impl<W: Words> Wrong<W> for VotesForAll {
    fn hears(&mut self, _: View, said: Said, _: ReplicaId) -> Vec<Said> {
        if let Said::Propose(block, _) = &said {
            self.votes.push(BlockVote { view: block.view, block: block.id() });
        }
        vec![said]
    }

    fn wants(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.votes.drain(..).map(|vote| send::<W>(Said::Vote(vote))));
    }
}

/// S6: nothing that was written down is there after a restart.
#[derive(Default)]
pub(crate) struct Forgets;

impl<W: Words> Wrong<W> for Forgets {
    const REMEMBERS: bool = false;
}

/// What a liar adds to a message of its own.
type Forge = fn(&Scene<'_>, &Said) -> Option<Certificate>;

/// Shows with each message of its own a certificate that is none.
struct Forger<W>(Forge, PhantomData<fn() -> W>);

/// A block that nobody has proposed.
const NOBODYS: Digest = Digest([7; 32]);

impl<W: Words> Attack for Forger<W> {
    fn says(
        &mut self,
        scene: &mut Scene<'_>,
        _: ReplicaId,
        message: Box<dyn Message>,
    ) -> Vec<Box<dyn Message>> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let forged = W::read(&bytes).and_then(|said| (self.0)(scene, &said));
        let shown = forged.map(|qc| W::say(Said::Show(ViewProof { qc, timeouts: None })));
        // The lie comes first: of two certificates of one view the first one stays.
        shown.into_iter().chain([message]).collect()
    }
}

fn forge_alone<W: Words>(scene: &Scene<'_>, said: &Said) -> Option<Certificate> {
    let view = proof(said)?.qc.view().plus(2);
    let statement = BlockVote { view, block: BlockId(NOBODYS) }.statement(W::VOTE);
    let vote = (scene.me, (scene.sign)(&statement));
    Some(Certificate::of(statement, &[vote]))
}

fn move_votes<W: Words>(_: &Scene<'_>, said: &Said) -> Option<Certificate> {
    let qc = proof(said)?.qc.clone();
    let moved = Statement { subject: NOBODYS, ..qc.statement };
    (!qc.is_genesis()).then_some(Certificate { statement: moved, ..qc })
}
