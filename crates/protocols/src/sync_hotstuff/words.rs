//! What a leader signs in its view, and when two such words contradict each other (§2).

use quorate_consensus::{Certificate, Claims, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::digest::context;
use quorate_types::{Block, BlockId, Committee, Digest, Height, ReplicaId, Statement, View};
use std::collections::BTreeMap;

use super::message::{BLAME, NEW_VIEW, PROPOSE, STATUS, VOTE};
use super::split::Split;

/// Who leads a view.
pub(super) fn leader(committee: &Committee, view: View) -> ReplicaId {
    committee.rotate(view.0.saturating_sub(1))
}

/// What a block binds as `extra`: the block that its view goes on from.
#[must_use]
pub fn bind_base(base: BlockId) -> Digest {
    let mut bytes = b"sync-hotstuff: base of the view".to_vec();
    base.encode(&mut bytes);
    Digest::of(&context::PROTOCOL, &bytes)
}

/// A block with the base of its view: two views shown to different replicas are provable by their bases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The block.
    pub block: Block,
    /// The block certified inside the view's NEW-VIEW; zero in the first view.
    pub base: BlockId,
}

impl Header {
    /// What its leader signs.
    #[must_use]
    pub fn statement(&self) -> Statement {
        Statement::new(PROPOSE, self.block.view, self.block.height, self.block.id().0)
    }

    /// What a replica signs that votes for it.
    #[must_use]
    pub fn vote(&self) -> Statement {
        vote(self.block.view, self.block.height, self.block.id())
    }

    /// Whether it is of its view's leader.
    pub(super) fn is_of_leader(header: &Signed<Self>, committee: &Committee) -> bool {
        let block = &header.body.block;
        header.by == leader(committee, block.view) && block.proposer == header.by
    }

    /// Claims that it is a header of its view's leader, and that this is the leader's signature.
    pub fn claim(header: &Signed<Self>, claims: &mut Claims<'_>) {
        let block = &header.body.block;
        if block.view == View::ZERO || block.height == Height::ZERO {
            return claims.refuse("header of no view");
        }
        if !Self::is_of_leader(header, claims.committee()) {
            return claims.refuse("header of somebody who does not lead");
        }
        if block.extra != bind_base(header.body.base) {
            return claims.refuse("header without its base");
        }
        claims.signature(header.by, header.body.statement(), &header.signature);
    }

    /// S5. §2: whether this certificate is that of its parent, in its own view; if not, why.
    pub(super) fn check_parent(&self, parent: &Certificate) -> Result<(), &'static str> {
        let Block { view, height, .. } = self.block;
        let is_first = view == super::FIRST_VIEW && parent.is_genesis() && height == Height::ZERO.next();
        if self.block.extra != bind_base(self.base) {
            Err("header without its base")
        } else if height == Height::ZERO || parent.block() != self.block.parent {
            Err("proposal beside its certificate")
        } else if !is_first && rank(parent) != (view, height.minus(1)) {
            Err("certificate of another place")
        } else {
            Ok(())
        }
    }
}

impl Wire for Header {
    fn encode(&self, out: &mut Vec<u8>) {
        self.block.encode(out);
        self.base.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { block: Block::decode(reader)?, base: BlockId::decode(reader)? })
    }
}

/// The statement of a vote.
#[must_use]
pub fn vote(view: View, height: Height, block: BlockId) -> Statement {
    Statement::new(VOTE, view, height, block.0)
}

/// A certificate's place: first the view, then the height.
pub(super) fn rank(certificate: &Certificate) -> (View, Height) {
    (certificate.statement.view, certificate.statement.height)
}

/// Claims that this is a certificate of votes of at least so many replicas, or that of genesis.
pub(super) fn claim_votes(certificate: &Certificate, at_least: usize, claims: &mut Claims<'_>) {
    let (view, height) = rank(certificate);
    if certificate.statement != vote(view, height, certificate.block()) {
        return claims.refuse("certificate of something else");
    }
    if view == View::ZERO && !certificate.is_genesis() {
        return claims.refuse("certificate of view 0");
    }
    claims.certificate(certificate, at_least);
}

/// q_R: so many votes decide at once (`optsync` §1). Two such quorums share an honest replica, and each has an honest one,
/// among n ≥ 2f + 1.
pub(super) fn responsive_quorum(n: usize) -> usize {
    n.saturating_mul(3).checked_div(4).unwrap_or(0).saturating_add(1)
}

/// What a replica is locked on when it enters a view: certificates of one view. Without `responsive` it is Sync HotStuff's
/// lock, the highest certificate.
#[derive(Clone, PartialEq, Debug)]
pub struct Lock {
    /// The highest block that is certified by q_R votes.
    pub responsive: Option<Certificate>,
    /// The highest certified block that is that one or extends it.
    pub tip: Certificate,
}

impl Lock {
    /// Of who has never voted.
    #[must_use]
    pub fn genesis() -> Self {
        Self { responsive: None, tip: Certificate::genesis(VOTE) }
    }

    /// The view of its certificates.
    #[must_use]
    pub fn view(&self) -> View {
        self.tip.view()
    }

    /// What is signed of it.
    #[must_use]
    pub fn name(&self) -> LockName {
        LockName {
            view: self.view(),
            responsive: self.responsive.as_ref().map(|high| (high.statement.height, high.block())),
            tip: (self.tip.statement.height, self.tip.block()),
        }
    }

    /// Claims that its certificates are valid and of one view.
    pub fn claim(&self, claims: &mut Claims<'_>) {
        let (n, weak) = (claims.committee().n(), claims.committee().weak());
        claim_votes(&self.tip, weak, claims);
        if let Some(responsive) = &self.responsive {
            if rank(responsive) > rank(&self.tip) || responsive.view() != self.view() {
                return claims.refuse("lock of several views");
            }
            if responsive.is_genesis() {
                return claims.refuse("nobody has voted for genesis");
            }
            claim_votes(responsive, responsive_quorum(n), claims);
        }
    }
}

impl Wire for Lock {
    fn encode(&self, out: &mut Vec<u8>) {
        self.responsive.encode(out);
        self.tip.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { responsive: Option::decode(reader)?, tip: Certificate::decode(reader)? })
    }
}

/// A lock without its signatures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockName {
    /// The view of its certificates.
    pub view: View,
    /// Height and block of its responsive certificate.
    pub responsive: Option<(Height, BlockId)>,
    /// Height and block of its highest certificate.
    pub tip: (Height, BlockId),
}

impl LockName {
    fn digest(&self) -> Digest {
        let mut bytes = b"sync-hotstuff: lock".to_vec();
        self.encode(&mut bytes);
        Digest::of(&context::PROTOCOL, &bytes)
    }

    /// What a replica signs that reports it on entering a view.
    #[must_use]
    pub fn status(&self, view: View) -> Statement {
        Statement::new(STATUS, view, Height::ZERO, self.digest())
    }
}

impl Wire for LockName {
    fn encode(&self, out: &mut Vec<u8>) {
        let (height, block) = self.tip;
        self.view.encode(out);
        self.responsive.is_some().encode(out);
        let (responsive_height, responsive) = self.responsive.unwrap_or_default();
        for (height, block) in [(responsive_height, responsive), (height, block)] {
            height.encode(out);
            block.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let view = View::decode(reader)?;
        let has_responsive = reader.bool()?;
        let mut place = || Ok((Height::decode(reader)?, BlockId::decode(reader)?));
        let (responsive, tip) = (place()?, place()?);
        if !has_responsive && responsive != Default::default() {
            return Err(DecodeError::Tag("lock without a responsive certificate"));
        }
        Ok(Self { view, responsive: has_responsive.then_some(responsive), tip })
    }
}

/// A word of a leader about its view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// A proposal's header.
    Header(Header),
    /// The lock that a view goes on from.
    NewView(View, LockName),
}

impl Word {
    /// Its view.
    #[must_use]
    pub fn view(&self) -> View {
        match self {
            Self::Header(header) => header.block.view,
            Self::NewView(view, _) => *view,
        }
    }

    /// What is signed.
    #[must_use]
    pub fn statement(&self) -> Statement {
        match self {
            Self::Header(header) => header.statement(),
            Self::NewView(view, lock) => Statement::new(NEW_VIEW, *view, Height::ZERO, lock.digest()),
        }
    }

    /// The block that it says the view goes on from.
    #[must_use]
    pub fn base(&self) -> BlockId {
        match self {
            Self::Header(header) => header.base,
            Self::NewView(_, lock) => lock.tip.1,
        }
    }

    /// Whether no honest leader says both (§2, conflict). What lies further apart [`Evidence::Split`] is for.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        if self.view() != other.view() {
            return false;
        }
        if self.base() != other.base() {
            return true;
        }
        match (self, other) {
            (Self::NewView(..), Self::NewView(..)) => false,
            // A view lies above what it goes on from.
            (Self::NewView(_, lock), Self::Header(header))
            | (Self::Header(header), Self::NewView(_, lock)) => {
                let ((base, id), block) = (lock.tip, &header.block);
                block.height <= base || block.height == base.next() && block.parent != id
            }
            (Self::Header(a), Self::Header(b)) => {
                let (low, high) = if a.block.height <= b.block.height { (a, b) } else { (b, a) };
                match high.block.height.since(low.block.height) {
                    0 => low != high,
                    1 => high.block.parent != low.block.id(),
                    _ => false,
                }
            }
        }
    }
}

impl Wire for Word {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Header(header) => {
                out.push(0);
                header.encode(out);
            }
            Self::NewView(view, lock) => {
                out.push(1);
                view.encode(out);
                lock.encode(out);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Header(Header::decode(reader)?)),
            1 => Ok(Self::NewView(View::decode(reader)?, LockName::decode(reader)?)),
            _ => Err(DecodeError::Tag("word of a leader")),
        }
    }
}

/// Why a view is to be left: it can be shown to everybody.
#[derive(Clone, PartialEq, Debug)]
pub enum Evidence {
    /// Its leader has contradicted itself.
    Conflict(Box<(Signed<Word>, Signed<Word>)>),
    /// Its leader has signed headers that do not lie on one chain.
    Split(Box<Split>),
    /// f + 1 replicas blame it.
    Blames(Certificate),
}

impl Evidence {
    /// The view that is left.
    #[must_use]
    pub fn view(&self) -> View {
        match self {
            Self::Conflict(both) => both.0.body.view(),
            Self::Split(split) => split.view(),
            Self::Blames(certificate) => certificate.view(),
        }
    }

    /// Whether it proves that a leader lies. Blames prove that somebody honest is in the view.
    pub(super) fn is_contradiction(&self) -> bool {
        !matches!(self, Self::Blames(_))
    }

    /// Claims that it proves what it says.
    pub fn claim(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Conflict(both) => {
                let (first, second) = &**both;
                if !first.body.contradicts(&second.body) {
                    return claims.refuse("no contradiction");
                }
                let author = leader(claims.committee(), first.body.view());
                if first.by != author || second.by != author || first.body.view() == View::ZERO {
                    return claims.refuse("words of somebody who does not lead");
                }
                for word in [first, second] {
                    // The signature is for the block: another base beside it would be nobody's word.
                    if let Word::Header(header) = &word.body
                        && header.block.extra != bind_base(header.base)
                    {
                        return claims.refuse("header without its base");
                    }
                    claims.signature(author, word.body.statement(), &word.signature);
                }
            }
            Self::Split(split) => split.claim(claims),
            Self::Blames(certificate) => claim_blames(certificate, claims),
        }
    }
}

/// Claims that f + 1 replicas blame a view.
pub(super) fn claim_blames(certificate: &Certificate, claims: &mut Claims<'_>) {
    let view = certificate.view();
    if certificate.statement != blame(view) || view == View::ZERO {
        return claims.refuse("blames for nothing");
    }
    let weak = claims.committee().weak();
    claims.certificate(certificate, weak);
}

/// The statement of a blame.
#[must_use]
pub fn blame(view: View) -> Statement {
    Statement::new(BLAME, view, Height::ZERO, Digest::ZERO)
}

impl Wire for Evidence {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Conflict(both) => {
                out.push(0);
                both.0.encode(out);
                both.1.encode(out);
            }
            Self::Blames(certificate) => {
                out.push(1);
                certificate.encode(out);
            }
            Self::Split(split) => {
                out.push(2);
                split.encode(out);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Conflict(Box::new((Signed::decode(reader)?, Signed::decode(reader)?)))),
            1 => Ok(Self::Blames(Certificate::decode(reader)?)),
            2 => Ok(Self::Split(Box::new(Split::decode(reader)?))),
            _ => Err(DecodeError::Tag("evidence")),
        }
    }
}

/// What the leader of the current view has said: everything above the committed block, so that whatever contradicts it
/// is noticed and can be proved (§2: store every signed header of the view).
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// The first word, which names the base.
    first: Option<Signed<Word>>,
    headers: BTreeMap<Height, (BlockId, Signed<Header>)>,
    new_view: Option<Signed<Word>>,
}

impl Heard {
    /// The block that the view goes on from; `None` before the leader has said anything.
    pub(super) fn base(&self) -> Option<BlockId> {
        self.first.as_ref().map(|word| word.body.base())
    }

    /// The NEW-VIEW of the view.
    pub(super) fn new_view(&self) -> Option<&Signed<Word>> {
        self.new_view.as_ref()
    }

    /// The header at a height.
    pub(super) fn at(&self, height: Height) -> Option<&(BlockId, Signed<Header>)> {
        self.headers.get(&height)
    }

    /// Headers above a height, lowest first.
    pub(super) fn above(&self, height: Height) -> impl Iterator<Item = &(BlockId, Signed<Header>)> {
        self.headers.range(height.next()..).map(|(_, header)| header)
    }

    /// The highest header below a height.
    pub(super) fn below(&self, height: Height) -> Option<&(BlockId, Signed<Header>)> {
        self.headers.range(..height).next_back().map(|(_, header)| header)
    }

    /// What contradicts a word, of what was heard before.
    pub(super) fn conflict(&self, word: &Signed<Word>) -> Option<Evidence> {
        let contradicts = |known: &Signed<Word>| known.body.contradicts(&word.body);
        let earlier = self.first.iter().chain(&self.new_view).find(|known| contradicts(known)).cloned();
        let found = earlier.or_else(|| {
            let near = match &word.body {
                Word::Header(header) => header.block.height.minus(1)..=header.block.height.next(),
                // No header lies below what the view goes on from.
                Word::NewView(_, lock) => Height::ZERO..=lock.tip.0.next(),
            };
            self.headers.range(near).map(|(_, (_, known))| as_word(known)).find(contradicts)
        })?;
        Some(Evidence::Conflict(Box::new((found, word.clone()))))
    }

    /// Notes a word for the base that it names, if it is the first one.
    pub(super) fn add_word(&mut self, word: &Signed<Word>) {
        self.first.get_or_insert_with(|| word.clone());
    }

    /// Notes a header that contradicts nothing. True when it is new.
    pub(super) fn add_header(&mut self, id: BlockId, header: &Signed<Header>) -> bool {
        self.first.get_or_insert_with(|| as_word(header));
        let height = header.body.block.height;
        let is_new = !self.headers.contains_key(&height);
        if is_new {
            self.headers.insert(height, (id, header.clone()));
        }
        is_new
    }

    /// Notes the NEW-VIEW, which contradicts nothing. True when it is new.
    pub(super) fn add_new_view(&mut self, word: &Signed<Word>) -> bool {
        self.first.get_or_insert_with(|| word.clone());
        let is_new = self.new_view.is_none();
        self.new_view.get_or_insert_with(|| word.clone());
        is_new
    }

    /// Forgets headers below a height that is settled.
    pub(super) fn prune(&mut self, below: Height) {
        self.headers = self.headers.split_off(&below);
    }
}

/// A signed header as a word.
pub(super) fn as_word(header: &Signed<Header>) -> Signed<Word> {
    Signed { body: Word::Header(header.body.clone()), by: header.by, signature: header.signature }
}
