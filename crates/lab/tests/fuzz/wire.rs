//! Messages and recordings: values with one encoding.

use crate::runner::{Decoder, written};
use crate::world::captured;
use quorate_consensus::parts::certificate::Certificate;
use quorate_consensus::{Alarm, Checkpoint, CheckpointProof, Note, Seal, To};
use quorate_crypto::AggregateSignature;
use quorate_protocols::find;
use quorate_replica::{
    Checked, CheckedMessage, ConnId, HostMessage, Input, NameInterner, Output, OwnCopyTicket, Unsealed,
};
use quorate_types::bundle::BundleBuilder;
use quorate_types::wire::{
    FromClient, FromReplica, Lane, NoOrder, PeerHello, Refusal, StopAnswer, VERSION, frame,
};
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, Bundle, BundleDigest, BundleKind, BundleNo, ClusterId, Digest,
    Domain, Epoch, Executed, Floors, Genesis, Height, Incarnation, Kind, LogEntry, Mark, OrderChain,
    OrderProof, Outcome, Payload, PayloadId, ProtocolId, PublicKey, ReplicaId, ReplicaSet, ReplyBundle,
    SessionId, Signature, SignedBlock, Slot, Statement, Time, View, Wire as _,
};
use std::sync::Arc;

const DIGEST: Digest = Digest([0xd1; 32]);
const KEY: PublicKey = PublicKey([0x4e; 32]);
const SIGNATURE: Signature = Signature([0x51; 64]);
const SESSION: SessionId = SessionId { height: Height(3), index: 1 };
const KIND: Kind = Kind::new("vote");

fn statement() -> Statement {
    Statement::new(KIND, View(2), Height(17), DIGEST)
}

fn block() -> Block {
    Block {
        parent: BlockId(DIGEST),
        height: Height(17),
        view: View(2),
        proposer: ReplicaId(1),
        time_ns: 1_770_000_000_000_000_000,
        payload: PayloadId(DIGEST),
        extra: Digest::ZERO,
    }
}

fn payload(count: u8) -> Payload {
    Payload { bundles: (0..count).map(|number| BundleDigest(Digest([number; 32]))).collect() }
}

fn order_proof(links: u64) -> OrderProof {
    let link = |view| SignedBlock { block: Block { view: View(view), ..block() }, signature: SIGNATURE };
    OrderProof { payload: payload(3), chain: OrderChain::Blocks((1..=links).map(link).collect()) }
}

fn content(kind: BundleKind) -> Vec<u8> {
    let (session, number) = match kind {
        BundleKind::Open => (SessionId::default(), BundleNo(99)),
        BundleKind::Requests | BundleKind::Register => (SESSION, BundleNo(4)),
    };
    let mut builder = BundleBuilder::new(kind, KEY, session, number);
    match kind {
        BundleKind::Requests => builder.push(b"first").push(b"").push(b"the third of them"),
        BundleKind::Register => builder.push(&KEY.0).push(&[7; 32]),
        BundleKind::Open => &mut builder,
    };
    builder.finish()
}

fn bundle() -> Bundle {
    let signed = Authenticator::Signature(SIGNATURE);
    Bundle::parse(&content(BundleKind::Requests), signed, &BodyLimits::default()).unwrap()
}

fn outcomes() -> Vec<Outcome> {
    vec![
        Outcome::Done(vec![b"one".to_vec(), Vec::new(), b"three".to_vec()]),
        Outcome::NoSession,
        Outcome::Opened(SESSION),
        Outcome::Registered(3),
        Outcome::TooLarge,
    ]
}

fn replies() -> Vec<ReplyBundle> {
    let reply = |outcome: &Outcome| {
        let outcome: Arc<[u8]> = outcome.to_bytes().into();
        ReplyBundle {
            session: SESSION,
            number: BundleNo(4),
            bundle: BundleDigest(DIGEST),
            result: ReplyBundle::result_digest(&outcome),
            outcome,
            view: View(2),
            leader: ReplicaId(2),
        }
    };
    outcomes().iter().map(reply).collect()
}

#[test]
fn messages_of_clients_and_links_are_decoded_or_refused() {
    Decoder::of(
        "peer-hello",
        &[PeerHello {
            version: VERSION,
            cluster: ClusterId(DIGEST),
            epoch: Epoch(0),
            protocol: ProtocolId::new("pbft"),
            id: ReplicaId(3),
            incarnation: Incarnation(2),
            peer_incarnation: Incarnation(1),
            next: [1, 2, 3],
        }],
    )
    .fuzz();
    let bundle = |kind| FromClient::Bundle {
        authenticator: Authenticator::Signature(SIGNATURE),
        content: content(kind),
    };
    Decoder::of(
        "from-client",
        &[
            FromClient::Hello { version: VERSION, cluster: ClusterId(DIGEST) },
            FromClient::Attach(vec![KEY, PublicKey([1; 32])]),
            bundle(BundleKind::Requests),
            bundle(BundleKind::Open),
            FromClient::Status,
            FromClient::AskOrder { client: KEY, bundle: BundleDigest(DIGEST) },
            FromClient::Stop { incarnation: Incarnation(2), signature: SIGNATURE },
        ],
    )
    .fuzz();
    let mut all = vec![
        FromReplica::Hello { version: VERSION, cluster: ClusterId(DIGEST), id: ReplicaId(1) },
        FromReplica::Refused { client: KEY, bundle: BundleDigest(DIGEST), why: Refusal::Busy },
        FromReplica::Status("{\"view\":3}".to_owned()),
        FromReplica::Close("frame too large".to_owned()),
        FromReplica::Order { client: KEY, bundle: BundleDigest(DIGEST), proof: Box::new(order_proof(2)) },
        FromReplica::NoOrder { client: KEY, bundle: BundleDigest(DIGEST), why: NoOrder::NotKept },
        FromReplica::Stop(StopAnswer::OtherIncarnation),
    ];
    all.extend(replies().into_iter().map(|reply| FromReplica::Reply(KEY, reply)));
    Decoder::of("from-replica", &all).fuzz();
    Decoder::of("outcome", &outcomes()).fuzz();
    let samples = vec![outcomes()[0].to_bytes(), Outcome::Done(Vec::new()).to_bytes()];
    // Reading in place agrees with decoding a value, except for limits.
    Decoder::new("outcome-results", samples, |bytes| {
        let Some(results) = Outcome::results(bytes) else {
            assert!(!matches!(Outcome::from_bytes(bytes), Ok(Outcome::Done(_))));
            return false.into();
        };
        let whole = Outcome::Done(results.map(<[u8]>::to_vec).collect());
        crate::runner::Read::Written(whole.to_bytes())
    })
    .fuzz();
}

#[test]
fn bundles_are_decoded_or_refused() {
    let kinds = [BundleKind::Requests, BundleKind::Open, BundleKind::Register];
    let mut samples: Vec<Vec<u8>> = kinds.into_iter().map(|kind| [vec![0], content(kind)].concat()).collect();
    samples.push(bundle().sealed().to_vec());
    samples.extend(captured().iter().flat_map(|run| run.frames(frame::BUNDLE)).cloned());
    Decoder::new("bundle", samples, |bytes| {
        let bundle = Bundle::parse_sealed(bytes, &BodyLimits::default());
        bundle
            .map(|bundle| {
                let requests = bundle.requests().count();
                assert_eq!(requests as u64, u64::from(bundle.request_count()), "all of them can be read");
                let mut again = bundle.authenticator().to_bytes();
                again.extend_from_slice(bundle.content());
                again
            })
            .into()
    })
    .fuzz();
}

#[test]
fn blocks_and_statements_are_decoded_or_refused() {
    Decoder::of("block", &[block()]).fuzz();
    Decoder::of("order-proof", &[order_proof(0), order_proof(3)]).fuzz();
    Decoder::of("no-order", &NoOrder::ALL).fuzz();
    Decoder::of("stop-answer", &StopAnswer::ALL).fuzz();
    Decoder::of("payload", &[payload(0), payload(1), payload(5)]).fuzz();
    Decoder::of(
        "floors",
        &[
            Floors::default(),
            Floors { height: Height(9), views: vec![(KIND, View(3)), (Kind::new("propose"), View(2))] },
        ],
    )
    .fuzz();
    let sets = [vec![], vec![0, 3], vec![1, 64, 255]];
    let sets = sets.map(|ids| ids.into_iter().map(ReplicaId).collect::<ReplicaSet>());
    Decoder::of("replica-set", &sets).fuzz();
    let domain = Domain { cluster: ClusterId(DIGEST), protocol: ProtocolId::new("pbft"), epoch: Epoch(0) };
    Decoder::of("domain", &[domain]).fuzz();
    Decoder::of::<Slot>("slot", &[statement().slot()]).fuzz();
    Decoder::of("statement", &[statement()]).fuzz();
    Decoder::of("session-id", &[SESSION]).fuzz();
    Decoder::of("optional-number", &[None, Some(7u64)]).fuzz();
    Decoder::of("refusal", &[Refusal::Busy, Refusal::Behind]).fuzz();
    Decoder::of("authenticator", &[Authenticator::None, Authenticator::Signature(SIGNATURE)]).fuzz();
}

#[test]
fn certificates_and_checkpoints_are_decoded_or_refused() {
    let votes = [(ReplicaId(2), SIGNATURE), (ReplicaId(0), Signature([1; 64])), (ReplicaId(3), SIGNATURE)];
    let certificate = Certificate::of(statement(), &votes);
    let checkpoint =
        Checkpoint { height: Height(8), block: BlockId(DIGEST), view: View(1), state: Digest([3; 32]) };
    let of_checkpoint = Certificate::of(checkpoint.statement(), &votes);
    Decoder::of("aggregate-signature", &[certificate.proof.clone(), AggregateSignature::of(&[])]).fuzz();
    Decoder::of("certificate", &[certificate, Certificate::genesis(KIND)]).fuzz();
    Decoder::of("checkpoint", &[Checkpoint::GENESIS, checkpoint]).fuzz();
    let proof = CheckpointProof { checkpoint, certificate: of_checkpoint };
    Decoder::of("checkpoint-proof", &[CheckpointProof::genesis(), proof]).fuzz();
}

#[test]
fn genesis_is_decoded_or_refused() {
    let runs: Vec<Genesis> = captured().iter().map(|run| run.genesis.clone()).collect();
    let samples = runs.iter().map(|genesis| genesis.to_bytes()).collect();
    Decoder::new("genesis", samples, |bytes| {
        // A decoded genesis may be invalid; a valid one has a committee of all members.
        let genesis = Genesis::from_bytes(bytes).inspect(|genesis| {
            if genesis.check().is_ok() {
                assert_eq!(genesis.committee().n(), genesis.members.len());
            }
        });
        genesis.map(|genesis| genesis.to_bytes()).into()
    })
    .fuzz();
    let limits: Vec<BodyLimits> = runs.iter().map(|genesis| genesis.bodies).collect();
    Decoder::of("body-limits", &limits).fuzz();
}

#[test]
fn host_messages_are_decoded_or_refused() {
    let mut samples = vec![
        HostMessage::Checkpoint(Checkpoint::GENESIS),
        HostMessage::Proof(Box::new(CheckpointProof::genesis())),
        HostMessage::AskProof,
        HostMessage::AskDecided(Height(4)),
        HostMessage::Decided(Height(4), vec![BlockId(DIGEST), BlockId::ZERO]),
        HostMessage::AskBlock { id: BlockId(DIGEST), height: Height(4), above: Height(2) },
        HostMessage::Block(block()),
        HostMessage::NoBlock(BlockId(DIGEST)),
        HostMessage::Probe { incarnation: Incarnation(3), number: 9 },
        HostMessage::ProbeAnswer { incarnation: Incarnation(3), number: 9, oldest_ns: 7, at: Time(5) },
        HostMessage::AskShow { incarnation: Incarnation(3), round: 2, stable: Height(4), view: View(1) },
        HostMessage::ShownProof(Box::new(CheckpointProof::genesis())),
        HostMessage::Shown { incarnation: Incarnation(3), round: 2, view: View(1), stable: Height(4) },
    ];
    let heard = captured().iter().flat_map(|run| run.frames(frame::HOST));
    samples.extend(heard.filter_map(|body| HostMessage::from_bytes(body).ok()));
    Decoder::of("host-message", &samples).fuzz();
}

fn inputs() -> Vec<Input> {
    let entry = find("pbft").unwrap();
    let runs = captured().iter().find(|run| run.entry.spec.name == entry.spec.name).unwrap();
    let mut all = Vec::new();
    for body in runs.frames(frame::PROTOCOL).step_by(3) {
        let (message, signature) = entry.decode_frame(body).unwrap();
        let signature = signature.map(|_| SIGNATURE);
        let seal = Seal { by: ReplicaId(2), signature };
        all.push(Input::Peer(Checked {
            link: ReplicaId(2),
            seal,
            message: CheckedMessage::Protocol(message),
        }));
    }
    let seal = Seal { by: ReplicaId(1), signature: None };
    let message = CheckedMessage::Host(HostMessage::AskDecided(Height(4)));
    all.extend([
        Input::Peer(Checked { link: ReplicaId(1), seal, message }),
        Input::Client(ConnId(3), bundle()),
        Input::Bundle { from: ReplicaId(1), bundle: bundle(), pending: true },
        Input::Payload(ReplicaId(1), Arc::new(payload(3))),
        Input::Own(OwnCopyTicket(7), Some(SIGNATURE)),
        Input::Durable(Mark(7)),
        Input::Executed(Executed { height: Height(3), evicted: vec![SESSION], ..Executed::default() }),
        Input::StoredIds(ReplicaId(1), Height(3), vec![BlockId(DIGEST)]),
        Input::Kept(Height(3)),
        Input::Rolled,
        Input::AskOrder { conn: ConnId(3), client: KEY, bundle: BundleDigest(DIGEST) },
        Input::Disconnected(ConnId(3)),
    ]);
    all
}

fn outputs() -> Vec<Output> {
    let runs = captured();
    let mut all: Vec<Output> = runs
        .iter()
        .flat_map(|run| run.log.iter().step_by(run.log.len() / 16 + 1))
        .map(|entry| Output::Persist { mark: Mark(5), entry: entry.clone() })
        .collect();
    let frame =
        Unsealed::Protocol { body: vec![1, 2, 3], sign: Some(statement()), own: Some(OwnCopyTicket(3)) };
    let message = HostMessage::AskProof;
    let order = |answer| Output::Order { conn: ConnId(3), client: KEY, bundle: BundleDigest(DIGEST), answer };
    all.extend([
        Output::Persist { mark: Mark(1), entry: LogEntry::Body(bundle()) },
        Output::Send { to: To::All, lane: Lane::Consensus, frame },
        Output::Send {
            to: To::One(ReplicaId(2)),
            lane: Lane::CatchUp,
            frame: Unsealed::Host { message, sign: None, own: None },
        },
        Output::Send { to: To::All, lane: Lane::Bodies, frame: Unsealed::Payload(Arc::new(payload(2))) },
        Output::Reply { client: KEY, reply: replies().remove(0) },
        order(Ok(Box::new(order_proof(2)))),
        order(Err(NoOrder::Busy)),
        Output::Stop(Alarm::StateDiverged { height: Height(4) }),
        Output::Stop(Alarm::SynchronyDoubt { view: View(4), peer: Some(ReplicaId(1)), why: "late" }),
        Output::Trace(Note { what: "leaves the view", view: View(2), height: Height(1) }),
    ]);
    all
}

/// The parts of a recording.
#[test]
fn recorded_steps_are_decoded_or_refused() {
    let (entry, limits) = (find("pbft").unwrap(), BodyLimits::default());
    let encoded = |fill: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        fill(&mut out);
        out
    };
    let samples = inputs().iter().map(|input| encoded(&|out| input.encode(out))).collect();
    Decoder::new("recorded-input", samples, |bytes| {
        written(Input::decode(entry, &limits, bytes), |input, out| input.encode(out)).into()
    })
    .fuzz();
    let samples = outputs().iter().map(|output| encoded(&|out| output.encode(out))).collect();
    let mut names = NameInterner::default();
    Decoder::new("recorded-output", samples, |bytes| {
        let output = Output::decode(&limits, &mut names, bytes);
        written(output, |output, out| output.encode(out)).into()
    })
    .fuzz();
}
