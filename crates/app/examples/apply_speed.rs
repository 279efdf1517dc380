//! Measures the cost of execution on this machine: `cargo run --release -p quorate-app --example apply_speed`.
//!
//! The example measures puts of 128 bytes in bundles of 100: straight into the store, and through sessions and
//! outcomes. It also measures digests at checkpoints, snapshots and scans.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a measurement needs a clock, and its data are its own"
)]

use quorate_app::{Application, At, Execution, Kv, KvOp};
use quorate_types::bundle::BundleBuilder;
use quorate_types::rng::Rng;
use quorate_types::{
    Authenticator, BodyLimits, Bundle, BundleKind, BundleNo, ClientAuth, FullBlock, Genesis, Height, Outcome,
    ProtocolId, PublicKey, SessionId, Wire,
};
use std::time::Instant;

const ROUNDS: usize = 7;
const CLIENT: PublicKey = PublicKey([1; 32]);

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| run()).collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    key[4..].copy_from_slice(format!("{i:012}").as_bytes());
    key
}

fn filled(keys: u64) -> Kv {
    let (mut store, mut reply) = (Kv::new(), Vec::new());
    for i in 0..keys {
        let op = KvOp::Put { key: &key(i), value: &[0; 128] };
        reply.clear();
        store.apply(&At::default(), &op.to_bytes(), &mut reply);
    }
    store
}

fn store(keys: u64) {
    const OPS: usize = 100_000;
    let mut store = filled(keys);
    let mut rng = Rng::new(1);
    let ops: Vec<Vec<u8>> = (0..OPS)
        .map(|_| {
            let op = KvOp::Put { key: &key(rng.below(keys)), value: &[1; 128] };
            op.to_bytes()
        })
        .collect();
    let mut reply = Vec::with_capacity(OPS);
    let mut apply = |store: &mut Kv| {
        seconds(|| {
            reply.clear();
            for op in &ops {
                store.apply(&At::default(), op, &mut reply);
            }
        }) / OPS as f64
            * 1e9
    };
    let put = median(|| apply(&mut store));
    let digest = median(|| {
        apply(&mut store);
        seconds(|| _ = store.digest()) * 1e6
    });
    let mut snapshot = None;
    let snap = median(|| seconds(|| snapshot = Some(store.snapshot())) * 1e6);
    let during = median(|| {
        snapshot = Some(store.snapshot());
        apply(&mut store)
    });
    drop(snapshot);
    let mut reply = Vec::new();
    let mut scan = |limit| {
        let from = key(keys / 2);
        let op = KvOp::Scan { from: &from, to: None, limit };
        let op = op.to_bytes();
        median(|| {
            seconds(|| {
                for _ in 0..100 {
                    reply.clear();
                    store.query(&op, 1 << 20, &mut reply);
                }
            }) / 100.0
                * 1e6
        })
    };
    let (one, hundred) = (scan(1), scan(100));
    println!(
        "{keys:>9} keys: put {put:.0} ns, during a snapshot {during:.0} ns; digest after 100,000 puts {digest:.0} µs; \
         snapshot {snap:.0} µs; scan of 1 / 100 entries {one:.1} / {hundred:.1} µs"
    );
}

fn genesis() -> Genesis {
    Genesis {
        protocol: ProtocolId::new("pbft"),
        f: 0,
        members: vec![],
        client_auth: ClientAuth::None,
        bodies: BodyLimits::default(),
        client_window: 16_384,
        clients_max: 4_096,
        checkpoint_every: 128,
        window: 256,
        application: "kv 1".to_owned(),
        admin: PublicKey([2; 32]),
        clients: vec![CLIENT],
        params: String::new(),
        salt: [0; 32],
        base: None,
    }
}

/// Measures blocks of `per_block` bundles with `requests` puts each. The sessions take turns.
fn execution(sessions: usize, per_block: usize, requests: usize, name: &str) {
    const BLOCKS: usize = 300;
    let mut execution = Execution::new(&genesis(), Box::new(Kv::new())).unwrap();
    let bundle = |kind, session, number: u64, ops: &[Vec<u8>]| {
        let mut builder = BundleBuilder::new(kind, CLIENT, session, BundleNo(number));
        for op in ops {
            builder.push(op);
        }
        let content = builder.finish();
        Bundle::parse(&content, Authenticator::None, &BodyLimits::default()).unwrap()
    };
    let block = |height: Height, bundles| FullBlock { bundles, ..FullBlock::null(height) };
    let opens = (0..sessions).map(|i| bundle(BundleKind::Open, SessionId::default(), i as u64, &[]));
    let opened = execution.execute(&block(Height(1), opens.collect()));
    let ids: Vec<SessionId> = opened
        .bundles
        .iter()
        .map(|bundle| match Outcome::from_bytes(&bundle.outcome).unwrap() {
            Outcome::Opened(session) => session,
            other => panic!("{other:?}"),
        })
        .collect();
    let mut rng = Rng::new(2);
    let mut count = 0;
    let mut blocks: Vec<FullBlock> = Vec::new();
    for i in 0..BLOCKS * (ROUNDS + 1) {
        let bundles = (0..per_block).map(|_| {
            let ops: Vec<Vec<u8>> = (0..requests)
                .map(|_| {
                    let op = KvOp::Put { key: &key(rng.below(10_000)), value: &[1; 128] };
                    op.to_bytes()
                })
                .collect();
            count += 1;
            let turn = count - 1;
            bundle(BundleKind::Requests, ids[turn % sessions], (turn / sessions + 1) as u64, &ops)
        });
        blocks.push(block(Height(i as u64 + 2), bundles.collect()));
    }
    let mut rounds = blocks.chunks(BLOCKS);
    let mut run = || {
        let blocks = rounds.next().unwrap();
        seconds(|| {
            for block in blocks {
                let executed = execution.execute(block);
                assert_eq!(executed.fresh() as usize, per_block * requests);
            }
        }) / (BLOCKS * per_block * requests) as f64
            * 1e9
    };
    run();
    println!("{name}: {:.0} ns per request", median(run));
}

fn main() {
    store(10_000);
    store(1_000_000);
    execution(1, 20, 100, "1 session, bundles of 100, with digests every 128 blocks");
    execution(200, 20, 100, "200 sessions, bundles of 100");
    execution(200, 100, 1, "200 sessions, bundles of 1");
}
