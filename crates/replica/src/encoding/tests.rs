//! The encoding of inputs and outputs: every variant can be written and read, and no other bytes can be read.

use crate::host_message::{Heights, HostMessage};
use crate::transfer_message::{PieceAt, StateOffer, TransferMessage};
use crate::{Checked, CheckedMessage, ConnId, Input, NameInterner, Output, OwnCopyTicket, Unsealed};
use proptest::prelude::*;
use quorate_consensus::{
    Alarm, Auth, Certificate, Checkpoint, CheckpointProof, Entry, LinkEvent, Message, Model, Note, OpenError,
    Place, Reject, Seal, Spec, To,
};
use quorate_crypto::AggregateSignature;
use quorate_types::bundle::BundleBuilder;
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::rng::Rng;
use quorate_types::wire::{Lane, NoOrder, Refusal};
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, Bundle, BundleDigest, BundleKind, BundleNo, ChunkId, Digest,
    Executed, ExecutedBundle, Floors, FullBlock, Height, Incarnation, Kind, LogEntry, Mark, OrderChain,
    OrderProof, Payload, PayloadId, ProtocolId, PublicKey, ReplicaId, ReplicaSet, ReplyBundle, SessionId,
    Signature, SignedBlock, Statement, Time, View,
};
use std::sync::Arc;

/// A message of the protocol: a number.
#[derive(Debug, PartialEq)]
struct Word(u64);

impl Message for Word {
    fn kind(&self) -> Kind {
        Kind::new("word")
    }
    fn place(&self) -> Place {
        Place::ANYWHERE
    }
    fn auth(&self) -> Auth {
        Auth::Relay
    }
}

impl Wire for Word {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        u64::decode(reader).map(Self)
    }
}

fn entry() -> Entry {
    Entry {
        spec: Spec {
            name: ProtocolId::new("word"),
            summary: "one number",
            model: Model::Teaching,
            faults: |_| 0,
            checkpoint_quorum: |n, _| n,
            replies: |_, _| 1,
            votes_are_durable: true,
            votes_are_signed: false,
            local_validity: false,
            replaces_leader: false,
            rotates_leaders: false,
            first_view: View::ZERO,
            shared_params: &[],
            repeatable: &[],
            roles: &[],
        },
        open: |_, _, _| Err(OpenError::Committee("this protocol never runs".to_owned())),
        decode: |reader| Ok(Box::new(Word::decode(reader)?)),
        record: |_| Err(DecodeError::Trailing),
        attacks: &[],
        figures: None,
        params: || Err(OpenError::Committee("this protocol never runs".to_owned())),
        exam_only: &[],
        choices: &[],
        recovery: |_, _, _| Err(OpenError::Committee("this protocol never runs".to_owned())),
        exam_params: |_, _| Err(OpenError::Committee("this protocol never runs".to_owned())),
        synchrony: |_| Ok(None),
        pace: |_| Ok(None),
        proves_order: false,
    }
}

/// Draws values.
struct Draw(Rng);

impl Draw {
    fn of(seed: u64) -> Self {
        Self(Rng::new(seed))
    }
    fn u64(&mut self) -> u64 {
        // Small numbers, large ones, and the ends.
        match self.0.below(4) {
            0 => self.0.below(3),
            1 => u64::MAX,
            _ => self.0.next_u64(),
        }
    }
    fn bool(&mut self) -> bool {
        self.0.chance(500_000)
    }
    fn option<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.bool() { Some(make(self)) } else { None }
    }
    fn list<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.0.between(0, most)).map(|_| make(self)).collect()
    }
    fn bytes(&mut self) -> Vec<u8> {
        self.list(40, |d| d.0.next_u64() as u8)
    }
    fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.0.next_u64() as u8)
    }
    fn offer(&mut self) -> StateOffer {
        let chunks = self.list(5, |d| ChunkId { digest: d.digest(), length: d.u64() as u32 });
        StateOffer { proof: self.proof(), header: self.bytes(), chunks }
    }
    fn piece(&mut self, length: u32) -> PieceAt {
        PieceAt { height: self.height(), index: self.u64() as u32, offset: self.u64() as u32, length }
    }
    fn digest(&mut self) -> Digest {
        if self.0.chance(100_000) { Digest::ZERO } else { Digest(self.array()) }
    }
    fn height(&mut self) -> Height {
        Height(self.u64())
    }
    fn view(&mut self) -> View {
        View(self.u64())
    }
    fn block_id(&mut self) -> BlockId {
        BlockId(self.digest())
    }
    fn replica(&mut self) -> ReplicaId {
        ReplicaId(self.0.below(256) as u16)
    }
    fn set(&mut self) -> ReplicaSet {
        let mut set = ReplicaSet::EMPTY;
        for id in self.list(9, Self::replica) {
            set.insert(id);
        }
        set
    }
    fn kind(&mut self) -> Kind {
        Kind::new(["a", "prepare", "host.checkpoint", "sixteen-bytes-ab"][self.0.index(4)])
    }
    fn name(&mut self) -> &'static str {
        ["", "view", "not the leader of this view", "höher"][self.0.index(4)]
    }
    fn signature(&mut self) -> Signature {
        Signature(self.array())
    }
    fn statement(&mut self) -> Statement {
        let (view, height) = (self.view(), self.height());
        Statement { kind: self.kind(), view, height, scope: self.digest(), subject: self.digest() }
    }
    fn session(&mut self) -> SessionId {
        SessionId { height: self.height(), index: self.u64() as u32 }
    }
    fn client(&mut self) -> PublicKey {
        PublicKey(self.array())
    }
    fn bundle(&mut self) -> Bundle {
        let client = self.client();
        let (session, number) = (SessionId { height: Height(3), index: 1 }, BundleNo(self.0.between(1, 99)));
        let authenticator = match self.option(Self::signature) {
            Some(signature) => Authenticator::Signature(signature),
            None => Authenticator::None,
        };
        let content = if self.0.chance(200_000) {
            BundleBuilder::new(BundleKind::Open, client, SessionId::default(), number).finish()
        } else {
            let mut builder = BundleBuilder::new(BundleKind::Requests, client, session, number);
            builder.push(&self.bytes());
            for request in self.list(3, Self::bytes) {
                builder.push(&request);
            }
            builder.finish()
        };
        Bundle::parse(&content, authenticator, &BodyLimits::default()).unwrap()
    }
    fn payload(&mut self) -> Payload {
        Payload { bundles: self.list(5, |d| BundleDigest(d.digest())) }
    }
    fn block(&mut self) -> Block {
        Block {
            parent: self.block_id(),
            height: self.height(),
            view: self.view(),
            proposer: self.replica(),
            time_ns: self.u64(),
            payload: PayloadId(self.digest()),
            extra: self.digest(),
        }
    }
    fn full_block(&mut self) -> FullBlock {
        FullBlock {
            height: self.height(),
            id: self.block_id(),
            block: self.option(Self::block),
            bundles: self.list(4, Self::bundle),
        }
    }
    fn checkpoint(&mut self) -> Checkpoint {
        Checkpoint { height: self.height(), block: self.block_id(), view: self.view(), state: self.digest() }
    }
    fn proof(&mut self) -> CheckpointProof {
        let (statement, signers) = (self.statement(), self.set());
        let proof = AggregateSignature::List(self.list(4, Self::signature));
        CheckpointProof {
            checkpoint: self.checkpoint(),
            certificate: Certificate { statement, signers, proof },
        }
    }
    fn executed(&mut self) -> Executed {
        let bundles = self.list(4, |d| ExecutedBundle {
            client: d.client(),
            session: d.session(),
            number: BundleNo(d.u64()),
            bundle: BundleDigest(d.digest()),
            result: d.digest(),
            outcome: d.bytes().into(),
            applied: d.u64() as u32,
        });
        let evicted = self.list(3, Self::session);
        Executed { height: self.height(), bundles, evicted, state: self.option(Self::digest) }
    }
    fn order_proof(&mut self) -> OrderProof {
        let links = self.list(4, |d| SignedBlock { block: d.block(), signature: d.signature() });
        OrderProof { payload: self.payload(), chain: OrderChain::Blocks(links) }
    }
    fn reply(&mut self) -> ReplyBundle {
        ReplyBundle {
            session: self.session(),
            number: BundleNo(self.u64()),
            bundle: BundleDigest(self.digest()),
            result: self.digest(),
            outcome: self.bytes().into(),
            view: self.view(),
            leader: self.replica(),
        }
    }
}

/// Draws each variant of an enum, and numbers the variants. A new variant does not compile until it has a number, and
/// the test fails when a number is not drawn.
macro_rules! variants {
    ($all:ident, $draw:ident: $($number:literal => $pattern:pat => $make:expr,)*) => {
        fn $all($draw: &mut Draw) -> Vec<Self::Of> {
            let all = vec![$($make),*];
            let numbers: Vec<u32> = all
                .iter()
                .map(|value| match value {
                    $($pattern => $number,)*
                })
                .collect();
            assert_eq!(numbers, [$($number),*], "every variant is drawn once");
            all
        }
    };
}

/// Values of an enum, one of each variant.
trait Each {
    type Of;
    fn each(draw: &mut Draw) -> Vec<Self::Of>;
    fn one(draw: &mut Draw) -> Self::Of {
        let mut all = Self::each(draw);
        let at = draw.0.index(all.len());
        all.swap_remove(at)
    }
}

impl Each for HostMessage {
    type Of = Self;
    variants! { each, d:
        0 => Self::Checkpoint(_) => Self::Checkpoint(d.checkpoint()),
        1 => Self::Proof(_) => Self::Proof(Box::new(d.proof())),
        2 => Self::AskProof => Self::AskProof,
        3 => Self::Heights(_) => Self::Heights(Heights { executed: d.height(), kept: d.height(), stable: d.height() }),
        4 => Self::AskDecided(_) => Self::AskDecided(d.height()),
        5 => Self::Decided(..) => Self::Decided(d.height(), d.list(5, Draw::block_id)),
        6 => Self::AskBlock { .. } => Self::AskBlock { id: d.block_id(), height: d.height(), above: d.height() },
        7 => Self::Block(_) => Self::Block(d.block()),
        8 => Self::NoBlock(_) => Self::NoBlock(d.block_id()),
        9 => Self::Probe { .. } => Self::Probe { incarnation: Incarnation(d.u64()), number: d.u64() },
        10 => Self::ProbeAnswer { .. } => Self::ProbeAnswer { incarnation: Incarnation(d.u64()), number: d.u64(), oldest_ns: d.u64(), at: Time(d.u64()) },
        11 => Self::Transfer(_) => Self::Transfer(TransferMessage::one(d)),
        12 => Self::AskShow { .. } => Self::AskShow { incarnation: Incarnation(d.u64()), round: d.u64(), stable: d.height(), view: d.view() },
        13 => Self::ShownProof(_) => Self::ShownProof(Box::new(d.proof())),
        14 => Self::Shown { .. } => Self::Shown { incarnation: Incarnation(d.u64()), round: d.u64(), view: d.view(), stable: d.height() },
    }
}

impl Each for TransferMessage {
    type Of = Self;
    variants! { each, d:
        0 => Self::AskState(_) => Self::AskState(d.height()),
        1 => Self::State(_) => Self::State(Box::new(d.offer())),
        2 => Self::NoState => Self::NoState,
        3 => Self::AskPiece(_) => Self::AskPiece(d.piece(0)),
        4 => Self::Piece(..) => piece(d),
        5 => Self::NoPiece(_) => Self::NoPiece(d.height()),
    }
}

fn piece(d: &mut Draw) -> TransferMessage {
    let bytes = d.bytes();
    TransferMessage::Piece(d.piece(bytes.len() as u32), bytes)
}

impl Each for LogEntry {
    type Of = Self;
    variants! { each, d:
        0 => Self::Incarnation(_) => Self::Incarnation(Incarnation(d.u64())),
        1 => Self::Record(_) => Self::Record(d.bytes().into()),
        2 => Self::Guard(_) => Self::Guard(d.statement()),
        3 => Self::Floors(_) => Self::Floors(Floors { height: d.height(), views: d.list(4, |d| (d.kind(), d.view())) }),
        4 => Self::Block(..) => Self::Block(Arc::new(d.block()), Arc::new(d.payload())),
        5 => Self::Body(_) => Self::Body(d.bundle()),
        6 => Self::Decided { .. } => Self::Decided { height: d.height(), id: d.block_id() },
        7 => Self::Certificate(_) => Self::Certificate(d.bytes()),
        8 => Self::Proof(_) => Self::Proof(d.bytes()),
        9 => Self::BaseBegin => Self::BaseBegin,
        10 => Self::BaseEnd => Self::BaseEnd,
    }
}

impl Each for To {
    type Of = Self;
    variants! { each, d:
        0 => Self::All => Self::All,
        1 => Self::One(_) => Self::One(d.replica()),
        2 => Self::Some(_) => Self::Some(d.set()),
    }
}

impl Each for Lane {
    type Of = Self;
    variants! { each, _d:
        0 => Self::Consensus => Self::Consensus,
        1 => Self::Bodies => Self::Bodies,
        2 => Self::CatchUp => Self::CatchUp,
    }
}

impl Each for Refusal {
    type Of = Self;
    variants! { each, _d:
        0 => Self::Busy => Self::Busy,
        1 => Self::BadSignature => Self::BadSignature,
        2 => Self::Malformed => Self::Malformed,
        3 => Self::NoSession => Self::NoSession,
        4 => Self::NumberReused => Self::NumberReused,
        5 => Self::OutOfWindow => Self::OutOfWindow,
        6 => Self::NotRegistered => Self::NotRegistered,
        7 => Self::Forgotten => Self::Forgotten,
        8 => Self::Behind => Self::Behind,
    }
}

impl Each for Reject {
    type Of = Self;
    variants! { each, d:
        0 => Self::WrongSender => Self::WrongSender,
        1 => Self::Stale => Self::Stale,
        2 => Self::Early => Self::Early,
        3 => Self::Duplicate => Self::Duplicate,
        4 => Self::Equivocation => Self::Equivocation,
        5 => Self::NotNow(_) => Self::NotNow(d.name()),
        6 => Self::Invalid(_) => Self::Invalid(d.name()),
    }
}

impl Each for Alarm {
    type Of = Self;
    variants! { each, d:
        0 => Self::SafetyBroken { .. } => Self::SafetyBroken { height: d.height(), first: d.block_id(), second: d.block_id() },
        1 => Self::StateDiverged { .. } => Self::StateDiverged { height: d.height() },
        2 => Self::SynchronyDoubt { .. } => Self::SynchronyDoubt { view: d.view(), peer: d.option(Draw::replica), why: d.name() },
        3 => Self::NearMiss { .. } => Self::NearMiss { view: d.view(), leader: d.replica() },
        4 => Self::RolledBack { .. } => Self::RolledBack { view: d.view(), height: d.height() },
    }
}

impl Each for LinkEvent {
    type Of = Self;
    variants! { each, _d:
        0 => Self::Gap => Self::Gap,
        1 => Self::Back => Self::Back,
    }
}

impl Each for Unsealed {
    type Of = Self;
    variants! { each, d:
        0 => Self::Protocol { .. } => Self::Protocol { body: d.bytes(), sign: d.option(Draw::statement), own: d.option(|d| OwnCopyTicket(d.u64())) },
        1 => Self::Host { .. } => Self::Host { message: HostMessage::one(d), sign: d.option(Draw::statement), own: d.option(|d| OwnCopyTicket(d.u64())) },
        2 => Self::Bundle(_) => Self::Bundle(d.bundle()),
        3 => Self::Payload(_) => Self::Payload(Arc::new(d.payload())),
    }
}

impl Each for CheckedMessage {
    type Of = Self;
    variants! { each, d:
        0 => Self::Protocol(_) => Self::Protocol(Box::new(Word(d.u64()))),
        1 => Self::Host(_) => Self::Host(HostMessage::one(d)),
    }
}

impl Each for Input {
    type Of = Self;
    variants! { each, d:
        0 => Self::Peer(_) => Self::Peer(checked(d, None)),
        1 => Self::Client(..) => Self::Client(ConnId(d.u64()), d.bundle()),
        2 => Self::Bundle { .. } => Self::Bundle { from: d.replica(), bundle: d.bundle(), pending: d.bool() },
        3 => Self::Payload(..) => Self::Payload(d.replica(), Arc::new(d.payload())),
        4 => Self::Own(..) => Self::Own(OwnCopyTicket(d.u64()), d.option(Draw::signature)),
        5 => Self::Durable(_) => Self::Durable(Mark(d.u64())),
        6 => Self::Executed(_) => Self::Executed(d.executed()),
        7 => Self::Link(..) => Self::Link(d.replica(), LinkEvent::one(d)),
        8 => Self::Stored(..) => Self::Stored(d.replica(), d.block_id(), d.option(|d| Box::new(d.full_block()))),
        9 => Self::StoredIds(..) => Self::StoredIds(d.replica(), d.height(), d.list(5, Draw::block_id)),
        10 => Self::Kept(_) => Self::Kept(d.height()),
        11 => Self::Rolled => Self::Rolled,
        12 => Self::Unchecked(_) => Self::Unchecked(d.list(5, Draw::replica).into_iter().collect()),
        13 => Self::AskOrder { .. } => Self::AskOrder { conn: ConnId(d.u64()), client: d.client(), bundle: BundleDigest(d.digest()) },
        14 => Self::Disconnected(_) => Self::Disconnected(ConnId(d.u64())),
        15 => Self::WantHeights(_) => Self::WantHeights(d.height()),
        16 => Self::OwnStatement(_) => Self::OwnStatement(d.statement()),
    }
}

impl Each for Output {
    type Of = Self;
    variants! { each, d:
        0 => Self::Persist { .. } => Self::Persist { mark: Mark(d.u64()), entry: LogEntry::one(d) },
        1 => Self::Sync(_) => Self::Sync(Mark(d.u64())),
        2 => Self::Send { .. } => Self::Send { to: To::one(d), lane: Lane::one(d), frame: Unsealed::one(d) },
        3 => Self::Execute(_) => Self::Execute(d.full_block()),
        4 => Self::Reply { .. } => Self::Reply { client: d.client(), reply: d.reply() },
        5 => Self::Refuse { .. } => Self::Refuse { conn: ConnId(d.u64()), client: d.client(), bundle: BundleDigest(d.digest()), why: Refusal::one(d) },
        6 => Self::Load { .. } => Self::Load { to: d.replica(), height: d.height(), id: d.block_id() },
        7 => Self::LoadIds { .. } => Self::LoadIds { to: d.replica(), from: d.height() },
        8 => Self::Rejected { .. } => Self::Rejected { from: d.replica(), kind: d.kind(), why: Reject::one(d) },
        9 => Self::Urgent(_) => Self::Urgent(d.option(Draw::replica)),
        10 => Self::Stop(_) => Self::Stop(Alarm::one(d)),
        11 => Self::Trace(_) => Self::Trace(Note { what: d.name(), view: d.view(), height: d.height() }),
        12 => Self::Order { .. } => Self::Order { conn: ConnId(d.u64()), client: d.client(), bundle: BundleDigest(d.digest()), answer: Ok(Box::new(d.order_proof())) },
    }
}

fn checked(d: &mut Draw, message: Option<CheckedMessage>) -> Checked {
    let seal = Seal { by: d.replica(), signature: d.option(Draw::signature) };
    Checked { link: d.replica(), seal, message: message.unwrap_or_else(|| CheckedMessage::one(d)) }
}

/// Draws one of each variant, and of each variant of their parts.
fn inputs(d: &mut Draw) -> Vec<Input> {
    let mut all = Input::each(d);
    all.extend(
        CheckedMessage::each(d).into_iter().map(|m| Input::Peer(checked(d, Some(m)))).collect::<Vec<_>>(),
    );
    let transfers = TransferMessage::each(d).into_iter().map(HostMessage::Transfer);
    for message in transfers.chain(HostMessage::each(d)).collect::<Vec<_>>() {
        all.push(Input::Peer(checked(d, Some(CheckedMessage::Host(message)))));
    }
    for event in LinkEvent::each(d) {
        all.push(Input::Link(d.replica(), event));
    }
    all
}

/// Draws as [`inputs`] does.
fn outputs(d: &mut Draw) -> Vec<Output> {
    let mut all = Output::each(d);
    all.extend(LogEntry::each(d).into_iter().map(|entry| Output::Persist { mark: Mark(1), entry }));
    let frames = Unsealed::each(d).into_iter();
    all.extend(frames.map(|frame| Output::Send { to: To::All, lane: Lane::Bodies, frame }));
    for message in HostMessage::each(d) {
        let frame = Unsealed::Host { message, sign: None, own: None };
        all.push(Output::Send { to: To::All, lane: Lane::CatchUp, frame });
    }
    for (to, lane) in To::each(d).into_iter().zip(Lane::each(d)) {
        all.push(Output::Send { to, lane, frame: Unsealed::Bundle(d.bundle()) });
    }
    for why in Refusal::each(d) {
        let (client, bundle) = (d.client(), BundleDigest(d.digest()));
        all.push(Output::Refuse { conn: ConnId(1), client, bundle, why });
    }
    for why in Reject::each(d) {
        all.push(Output::Rejected { from: d.replica(), kind: d.kind(), why });
    }
    for why in NoOrder::ALL {
        let (client, bundle) = (d.client(), BundleDigest(d.digest()));
        all.push(Output::Order { conn: ConnId(1), client, bundle, answer: Err(why) });
    }
    all.extend(Alarm::each(d).into_iter().map(Output::Stop));
    all
}

/// Whether two inputs are equal. Messages of protocols are compared by their own type.
fn same(a: &Input, b: &Input) -> bool {
    match (a, b) {
        (Input::Peer(a), Input::Peer(b)) => {
            let same = match (&a.message, &b.message) {
                (CheckedMessage::Protocol(a), CheckedMessage::Protocol(b)) => {
                    let (a, b): (&dyn std::any::Any, &dyn std::any::Any) = (&**a, &**b);
                    a.downcast_ref::<Word>().unwrap() == b.downcast_ref::<Word>().unwrap()
                }
                (CheckedMessage::Host(a), CheckedMessage::Host(b)) => a == b,
                _ => false,
            };
            same && a.link == b.link && a.seal == b.seal
        }
        (Input::Client(c, a), Input::Client(d, b)) => c == d && a == b,
        (
            Input::Bundle { from, bundle, pending },
            Input::Bundle { from: other, bundle: others, pending: theirs },
        ) => from == other && bundle == others && pending == theirs,
        (Input::Payload(c, a), Input::Payload(d, b)) => c == d && a == b,
        (Input::Own(c, a), Input::Own(d, b)) => c == d && a == b,
        (Input::Durable(a), Input::Durable(b)) => a == b,
        (Input::Executed(a), Input::Executed(b)) => a == b,
        (Input::Link(c, a), Input::Link(d, b)) => c == d && a == b,
        (Input::Stored(c, e, a), Input::Stored(d, f, b)) => c == d && e == f && a == b,
        (Input::StoredIds(c, e, a), Input::StoredIds(d, f, b)) => c == d && e == f && a == b,
        (Input::Kept(a), Input::Kept(b)) => a == b,
        (Input::Rolled, Input::Rolled) => true,
        (Input::Unchecked(a), Input::Unchecked(b)) => a == b,
        (
            Input::AskOrder { conn, client, bundle },
            Input::AskOrder { conn: other, client: theirs, bundle: others },
        ) => conn == other && client == theirs && bundle == others,
        (Input::Disconnected(a), Input::Disconnected(b)) => a == b,
        (Input::WantHeights(a), Input::WantHeights(b)) => a == b,
        (Input::OwnStatement(a), Input::OwnStatement(b)) => a == b,
        _ => false,
    }
}

fn read_input(bytes: &[u8]) -> Result<Input, DecodeError> {
    Input::decode(&entry(), &BodyLimits::default(), bytes)
}

fn read_output(names: &mut NameInterner, bytes: &[u8]) -> Result<Output, DecodeError> {
    Output::decode(&BodyLimits::default(), names, bytes)
}

fn written(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    fill(&mut bytes);
    bytes
}

/// Returns all encodings of one draw.
fn samples(seed: u64) -> Vec<Vec<u8>> {
    let mut d = Draw::of(seed);
    let mut all: Vec<Vec<u8>> = inputs(&mut d).iter().map(|input| written(|out| input.encode(out))).collect();
    all.extend(outputs(&mut d).iter().map(|output| written(|out| output.encode(out))));
    all
}

/// Checks that readable bytes are canonical: written again they are the same.
fn must_be_canonical(names: &mut NameInterner, bytes: &[u8]) {
    if let Ok(input) = read_input(bytes) {
        assert_eq!(written(|out| input.encode(out)), bytes, "{input:?}");
    }
    if let Ok(output) = read_output(names, bytes) {
        assert_eq!(written(|out| output.encode(out)), bytes, "{output:?}");
    }
}

proptest! {
    #[test]
    fn every_input_survives(seed: u64) {
        for input in inputs(&mut Draw::of(seed)) {
            let bytes = written(|out| input.encode(out));
            let read = read_input(&bytes);
            prop_assert!(read.as_ref().is_ok_and(|read| same(read, &input)), "{input:?} became {read:?}");
            must_be_canonical(&mut NameInterner::default(), &bytes);
        }
    }

    #[test]
    fn every_output_survives(seed: u64) {
        let mut names = NameInterner::default();
        for output in outputs(&mut Draw::of(seed)) {
            let bytes = written(|out| output.encode(out));
            let read = read_output(&mut names, &bytes);
            prop_assert_eq!(read.as_ref(), Ok(&output));
        }
    }

    #[test]
    fn random_bytes_do_not_panic(tag in 0u8..20, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut names = NameInterner::default();
        must_be_canonical(&mut names, &bytes);
        // Most random bytes fail at the tag; these get further.
        must_be_canonical(&mut names, &[&[tag][..], &bytes].concat());
    }

    #[test]
    fn a_changed_byte_does_not_panic_and_is_canonical(seed: u64, at: usize, by in 1u8..) {
        let mut names = NameInterner::default();
        for mut bytes in samples(seed) {
            let at = at % bytes.len();
            bytes[at] = bytes[at].wrapping_add(by);
            must_be_canonical(&mut names, &bytes);
        }
    }
}

#[test]
fn truncated_and_trailing_bytes_are_refused() {
    let (mut d, mut names) = (Draw::of(7), NameInterner::default());
    for input in inputs(&mut d) {
        let mut bytes = written(|out| input.encode(out));
        for end in 0..bytes.len() {
            assert!(read_input(&bytes[..end]).is_err(), "{input:?} cut at {end}");
        }
        bytes.push(0);
        // A message of a protocol or host has a length, so a further byte is left over.
        assert!(read_input(&bytes).is_err(), "{input:?} and a byte");
    }
    for output in outputs(&mut d) {
        let mut bytes = written(|out| output.encode(out));
        for end in 0..bytes.len() {
            assert!(read_output(&mut names, &bytes[..end]).is_err(), "{output:?} cut at {end}");
        }
        bytes.push(0);
        assert!(read_output(&mut names, &bytes).is_err(), "{output:?} and a byte");
    }
}

/// The shortest result of execution for many bundles: each entry has its minimal size.
#[test]
fn many_empty_outcomes_survive() {
    let bundle = ExecutedBundle {
        client: PublicKey([1; 32]),
        session: SessionId::default(),
        number: BundleNo(0),
        bundle: BundleDigest(Digest::ZERO),
        result: Digest::ZERO,
        outcome: Arc::from([]),
        applied: 0,
    };
    let executed = Executed { bundles: vec![bundle; 100], ..Executed::default() };
    let input = Input::Executed(executed);
    let read = read_input(&written(|out| input.encode(out))).unwrap();
    assert!(same(&read, &input));
}

/// Each count and length of a few bytes claims that four billion follow.
#[test]
fn false_lengths_are_harmless() {
    let mut names = NameInterner::default();
    let counts = [vec![7; 9], vec![9; 35], vec![10; 11], vec![3; 73], vec![2, 1, 0, 0]];
    for start in counts {
        let bytes = [&start[..], &u32::MAX.to_le_bytes(), &[0; 64]].concat();
        let _ = (read_input(&bytes), read_output(&mut names, &bytes));
    }
    for bytes in samples(11) {
        for at in 0..bytes.len().saturating_sub(3) {
            let mut bytes = bytes.clone();
            bytes[at..at + 4].fill(0xff);
            must_be_canonical(&mut names, &bytes);
        }
    }
}

#[test]
fn number_of_names_is_bounded() {
    let mut names = NameInterner::default();
    let note = |name: String| {
        let note = Note { what: Box::leak(name.into_boxed_str()), view: View(1), height: Height(1) };
        written(|out| Output::Trace(note).encode(out))
    };
    for number in 0..1_024 {
        assert!(read_output(&mut names, &note(format!("name {number}"))).is_ok());
    }
    let one_more = note("one more".to_owned());
    assert_eq!(read_output(&mut names, &one_more), Err(DecodeError::Value("name")));
    assert!(read_output(&mut names, &note("name 7".to_owned())).is_ok(), "known names are still read");
    assert!(read_output(&mut NameInterner::default(), &note("x".repeat(257))).is_err());
}
