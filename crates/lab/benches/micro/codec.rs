//! Encodings of the messages and blocks that make up most traffic.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use quorate_consensus::Certificate;
use quorate_protocols::pbft::{PREPARE, PbftMessage, Vote};
use quorate_types::bundle::BundleBuilder;
use quorate_types::wire::{FromClient, FromReplica};
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, Bundle, BundleDigest, BundleKind, BundleNo, Digest, Height,
    Outcome, Payload, PublicKey, ReplicaId, ReplyBundle, SessionId, Signature, Statement, View, Wire,
};
use std::fmt;
use std::sync::Arc;

/// Bytes of a request.
const REQUEST: usize = 128;
/// Requests of a bundle.
const REQUESTS: usize = 100;
/// Bundles of a block.
const BUNDLES: usize = 400;

/// A value to encode and to decode.
struct Sample {
    name: &'static str,
    bytes: Vec<u8>,
    encode: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    decode: fn(&[u8]) -> bool,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.bytes.len())
    }
}

impl Sample {
    fn new<T: Wire + Send + Sync + 'static>(name: &'static str, value: T) -> Self {
        let decode = |bytes: &[u8]| black_box(T::from_bytes(bytes)).is_ok();
        Self { name, bytes: value.to_bytes(), encode: Box::new(move || black_box(&value).to_bytes()), decode }
    }
}

fn block() -> Block {
    Block {
        parent: BlockId(Digest([1; 32])),
        height: Height(1_000),
        view: View(3),
        proposer: ReplicaId(2),
        time_ns: 1_700_000_000_000_000_000,
        payload: Payload::default().id(),
        extra: Digest([2; 32]),
    }
}

/// Returns the content of a bundle.
fn content() -> Vec<u8> {
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([3; 32]), session, BundleNo(1));
    for _ in 0..REQUESTS {
        builder.push(&[7; REQUEST]);
    }
    builder.finish()
}

fn certificate() -> Certificate {
    let votes: Vec<(ReplicaId, Signature)> = (0..3).map(|id| (ReplicaId(id), Signature([5; 64]))).collect();
    Certificate::of(Statement::new(PREPARE, View(3), Height(1_000), Digest([4; 32])), &votes)
}

fn samples() -> Vec<Sample> {
    let vote = Vote { view: View(3), height: Height(1_000), block: block().id() };
    let outcome: Arc<[u8]> = Arc::from(Outcome::Done(vec![vec![0; 8]; REQUESTS]).to_bytes());
    let reply = ReplyBundle {
        session: SessionId { height: Height(1), index: 0 },
        number: BundleNo(1),
        bundle: BundleDigest(Digest([6; 32])),
        result: ReplyBundle::result_digest(&outcome),
        outcome,
        view: View(3),
        leader: ReplicaId(2),
    };
    let bundle = FromClient::Bundle { authenticator: Authenticator::None, content: content() };
    vec![
        Sample::new("prepare", PbftMessage::Prepare(vote)),
        Sample::new("pre-prepare", PbftMessage::PrePrepare { view: View(3), block: block() }),
        Sample::new("block", block()),
        Sample::new("payload of 400", Payload { bundles: vec![BundleDigest(Digest([6; 32])); BUNDLES] }),
        Sample::new("certificate of 3", certificate()),
        Sample::new("bundle of 100 of a client", bundle),
        Sample::new("reply to 100", FromReplica::Reply(PublicKey([3; 32]), reply)),
    ]
}

#[divan::bench(args = samples())]
fn encode(bencher: Bencher<'_, '_>, sample: &Sample) {
    bencher.counter(BytesCount::new(sample.bytes.len())).bench(|| (sample.encode)());
}

#[divan::bench(args = samples())]
fn decode(bencher: Bencher<'_, '_>, sample: &Sample) {
    bencher
        .counter(BytesCount::new(sample.bytes.len()))
        .bench(|| assert!((sample.decode)(black_box(&sample.bytes))));
}

/// The check of a bundle's form, with its digest and its one copy.
#[divan::bench]
fn parse_bundle_of_100(bencher: Bencher<'_, '_>) {
    let (content, limits) = (content(), BodyLimits::default());
    bencher
        .counter(BytesCount::new(content.len()))
        .bench(|| Bundle::parse(black_box(&content), Authenticator::None, &limits).unwrap());
}

#[divan::bench]
fn id_of_block(bencher: Bencher<'_, '_>) {
    let block = block();
    bencher.bench(|| black_box(&block).id());
}
