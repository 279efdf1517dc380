//! Inputs of the service: operations of clients, and states that it continues from.

use crate::runner::{Decoder, Read, written};
use quorate_app::{Application, At, Execution, Kv, KvOp, KvResult};
use quorate_types::bundle::BundleBuilder;
use quorate_types::codec::{put_bytes, put_length};
use quorate_types::mutate::{mutate, nudge};
use quorate_types::rng::Rng;
use quorate_types::{
    Authenticator, Block, BodyLimits, Bundle, BundleKind, BundleNo, ClientAuth, FullBlock, Genesis, Height,
    Member, ProtocolId, PublicKey, Reader, SessionId, Wire as _,
};

const CLIENT: PublicKey = PublicKey([5; 32]);

fn operations() -> Vec<Vec<u8>> {
    let (key, value) = (b"key".as_slice(), b"17".as_slice());
    let all = [
        KvOp::Put { key, value },
        KvOp::Get { key },
        KvOp::Delete { key },
        KvOp::CompareAndSwap { key, expect: Some(value), value: b"18" },
        KvOp::CompareAndSwap { key, expect: None, value },
        KvOp::Increment { key, by: -3 },
        KvOp::Scan { from: b"", to: Some(b"z"), limit: 10 },
        KvOp::Scan { from: key, to: None, limit: u32::MAX },
        KvOp::Echo { reply_bytes: 20, padding: b"xxxx" },
    ];
    all.iter().map(KvOp::to_bytes).collect()
}

/// Each request of a client has a result that the client can decode, and that fits its room.
#[test]
fn operations_of_clients_are_executed_or_refused() {
    Decoder::new("kv-operation", operations(), |bytes| {
        written(KvOp::parse(bytes), |op, out| op.encode(out)).into()
    })
    .fuzz();
    let mut store = Kv::with_buckets(4);
    Decoder::new("kv-apply", operations(), |bytes| {
        const ROOM: usize = 64 << 10;
        let at = At { height: Height(1), time_ns: 1, client: CLIENT, room: ROOM };
        let (mut reply, mut answer) = (Vec::new(), Vec::new());
        store.apply(&at, bytes, &mut reply);
        store.query(bytes, ROOM, &mut answer);
        for reply in [&reply, &answer] {
            assert!(reply.len() <= ROOM, "{} bytes", reply.len());
            assert_eq!(KvResult::from_bytes(reply).unwrap().to_bytes(), *reply);
        }
        // A stored value is removed again, because the store would otherwise grow with the number of inputs.
        let Ok(op) = KvOp::parse(bytes) else { return Read::Refused };
        if let KvOp::Put { key, .. } | KvOp::CompareAndSwap { key, .. } | KvOp::Increment { key, .. } = op {
            store.apply(&at, &KvOp::Delete { key }.to_bytes(), &mut Vec::new());
        }
        store.digest();
        Read::Taken
    })
    .holding(64, 256 << 10)
    .costing(4)
    .fuzz();
    let results = [
        KvResult::Done,
        KvResult::Value(b"17".to_vec()),
        KvResult::Absent,
        KvResult::Mismatch,
        KvResult::Number(-3),
        KvResult::Entries {
            entries: vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), Vec::new())],
            more: true,
        },
        KvResult::Padding(20),
        KvResult::Error(quorate_app::KvError::NoRoom),
    ];
    Decoder::of("kv-result", &results).fuzz();
}

fn genesis() -> Genesis {
    Genesis {
        protocol: ProtocolId::new("pbft"),
        f: 0,
        members: vec![Member { sign: PublicKey([1; 32]), link: PublicKey([2; 32]) }],
        client_auth: ClientAuth::None,
        bodies: BodyLimits::default(),
        client_window: 64,
        clients_max: 4,
        checkpoint_every: 4,
        window: 8,
        application: "kv 1".to_owned(),
        admin: PublicKey([4; 32]),
        clients: vec![CLIENT],
        params: String::new(),
        salt: [0; 32],
        base: None,
    }
}

fn fresh() -> Execution {
    // A snapshot with few buckets is small.
    Execution::new(&genesis(), Box::new(Kv::with_buckets(4))).unwrap()
}

fn block(height: u64, bundles: Vec<Bundle>) -> FullBlock {
    let header = Block { height: Height(height), time_ns: height.wrapping_mul(1_000), ..blank() };
    FullBlock { height: Height(height), id: header.id(), block: Some(header), bundles }
}

fn blank() -> Block {
    Block::from_bytes(&[0; quorate_types::block::BLOCK_BYTES]).unwrap()
}

fn bundle(kind: BundleKind, session: SessionId, number: u64, requests: &[Vec<u8>]) -> Bundle {
    let mut builder = BundleBuilder::new(kind, CLIENT, session, BundleNo(number));
    for request in requests {
        builder.push(request);
    }
    Bundle::parse(&builder.finish(), Authenticator::None, &BodyLimits::default()).unwrap()
}

/// Packs a snapshot into one piece: the header, and the chunks in order; consecutive empty chunks are counted.
fn snapshots() -> Vec<Vec<u8>> {
    let mut execution = fresh();
    let mut all = vec![pack(&mut execution)];
    execution.execute(&block(1, vec![bundle(BundleKind::Open, SessionId::default(), 9, &[])]));
    all.push(pack(&mut execution));
    let session = SessionId { height: Height(1), index: 0 };
    let requests = operations();
    for height in 2..6 {
        let numbers = [2 * height, 2 * height + 1];
        let bundles = numbers.map(|number| bundle(BundleKind::Requests, session, number, &requests[..4]));
        execution.execute(&block(height, bundles.to_vec()));
        all.push(pack(&mut execution));
    }
    all
}

fn pack(execution: &mut Execution) -> Vec<u8> {
    let snapshot = execution.snapshot();
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, snapshot.header());
    let mut chunks = snapshot.chunks().peekable();
    while let Some(chunk) = chunks.next() {
        let mut same = 1;
        while chunks.next_if(|next| *next == chunk).is_some() {
            same += 1;
        }
        put_length(&mut bytes, same);
        put_bytes(&mut bytes, &chunk);
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut reader = Reader::new(bytes);
    let header = reader.bytes("header", 1 << 16).ok()?.to_vec();
    let mut chunks = Vec::new();
    while !reader.rest().is_empty() {
        let same = reader.length("chunks", 300).ok()?;
        let chunk = reader.bytes("chunk", 1 << 16).ok()?;
        chunks.extend((0..same).map(|_| chunk.to_vec()));
    }
    (chunks.len() < 400).then_some((header, chunks))
}

/// A snapshot is refused, or restored to the promised digest. A restored state can continue.
#[test]
fn snapshots_of_states_are_restored_or_refused() {
    Decoder::new("snapshot", snapshots(), |bytes| {
        let Some((header, chunks)) = unpack(bytes) else { return Read::Refused };
        let mut execution = fresh();
        if execution.restore(&header, &mut chunks.iter().cloned()).is_err() {
            return Read::Refused;
        }
        let again = unpack(&pack(&mut execution)).unwrap();
        assert_eq!(again, (header, chunks), "the same state is the same snapshot");
        go_on(&mut execution);
        Read::Taken
    })
    .changed_by(in_fields)
    .holding(64, 1 << 20)
    .costing(20)
    .fuzz();
}

/// A forged snapshot: the digest in its header is that of its content.
#[test]
fn forged_snapshots_are_restored_or_refused() {
    Decoder::new("snapshot-made-up", snapshots(), |bytes| {
        let Some((mut header, chunks)) = unpack(bytes) else { return Read::Refused };
        let mut execution = fresh();
        let first = execution.restore(&header, &mut chunks.clone().into_iter());
        if let Err(quorate_app::RestoreError::WrongState { expected, found }) = first {
            let at = header.windows(32).position(|window| window == expected.0).unwrap();
            header[at..at + 32].copy_from_slice(&found.0);
            execution = fresh();
            execution.restore(&header, &mut chunks.into_iter()).unwrap();
        } else if first.is_err() {
            return Read::Refused;
        }
        go_on(&mut execution);
        Read::Taken
    })
    .changed_by(in_fields)
    .holding(64, 1 << 20)
    .costing(20)
    .fuzz();
}

/// Executes further requests of a client on any state.
fn go_on(execution: &mut Execution) {
    let next = execution.height().next();
    if next == execution.height() {
        return; // The largest height has none that follows.
    }
    let session = SessionId { height: Height(1), index: 0 };
    let bundles = vec![
        bundle(BundleKind::Open, SessionId::default(), 9, &[]),
        bundle(BundleKind::Open, SessionId::default(), 10, &[]),
        bundle(BundleKind::Requests, session, 5, &operations()),
        bundle(BundleKind::Requests, session, 70, &operations()),
    ];
    let executed = execution.execute(&block(next.0, bundles));
    assert_eq!(executed.bundles.len(), 4);
    execution.digest();
}

/// Changes mostly bytes within fields: behind a wrong length nothing is read.
fn in_fields(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    if rng.chance(800_000) { nudge(rng, bytes, other) } else { mutate(rng, bytes, other) }
}
