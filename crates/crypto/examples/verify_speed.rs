//! Measures the cost of checking one signature on this machine, in µs: alone, in batches, and by committee tables.
//!
//! `cargo run --release -p quorate-crypto --example verify_speed`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a measurement needs a clock, and its numbers are its own"
)]

use quorate_crypto::{Batch, CommitteeKeys, Scheme, SigningKey, VerifyKey, curve_backend};
use quorate_types::{ClusterId, Committee, Epoch, Ledger, Member, ProtocolId, ReplicaId, Signature};
use std::time::Instant;

const RUNS: usize = 9;

/// Returns the median of several runs, in µs for each of `count`.
fn measure(count: usize, mut run: impl FnMut()) -> f64 {
    let repeats = (2_000 / count).max(1);
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..repeats {
                run();
            }
            start.elapsed().as_secs_f64() * 1e6 / (repeats * count) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

fn main() {
    let signers: Vec<SigningKey> = (0..256u16)
        .map(|i| {
            let mut seed = [7; 32];
            seed[..2].copy_from_slice(&i.to_le_bytes());
            SigningKey::from_seed(Scheme::Ed25519, seed)
        })
        .collect();
    let keys: Vec<VerifyKey> = signers
        .iter()
        .filter_map(|signer| VerifyKey::register(Scheme::Ed25519, signer.public()).ok())
        .collect();
    println!("curve arithmetic: {}", curve_backend());
    let message = [1; 32];
    let sign = measure(1, || {
        std::hint::black_box(signers[0].sign(&message));
    });
    let lone = signers[0].sign(&message);
    let single = measure(1, || assert!(keys[0].verify(&message, &lone)));
    let register = measure(1, || {
        let _ = std::hint::black_box(VerifyKey::register(Scheme::Ed25519, signers[0].public()));
    });
    println!("sign {sign:.1}   check alone {single:.1}   register a key {register:.1}");
    println!("{:>5} {:>14} {:>8} {:>17}", "batch", "distinct keys", "4 keys", "committee tables");
    for count in [2, 4, 8, 32, 64, 128, 256] {
        let batch_of = |distinct: usize| {
            let signed: Vec<(usize, [u8; 32], Signature)> = (0..count)
                .map(|i| (i % distinct, [i as u8; 32], signers[i % distinct].sign(&[i as u8; 32])))
                .collect();
            measure(count, || {
                let mut batch = Batch::with_capacity(count);
                for (signer, message, signature) in &signed {
                    batch.push(&keys[*signer], message, signature);
                }
                assert!(batch.check(&mut Ledger::default()).into_iter().all(|holds| holds));
            })
        };
        let n = count.min(100);
        let committee = Committee {
            cluster: ClusterId::ZERO,
            protocol: ProtocolId::new("none"),
            epoch: Epoch(0),
            f: 0,
            members: signers[..n]
                .iter()
                .map(|signer| Member { sign: signer.public(), link: signer.public() })
                .collect(),
        };
        let Ok(tables) = CommitteeKeys::new(Scheme::Ed25519, &committee) else {
            continue;
        };
        let votes: Vec<(ReplicaId, [u8; 32], Signature)> =
            (0..count).map(|i| (ReplicaId((i % n) as u16), message, signers[i % n].sign(&message))).collect();
        let by_tables = measure(count, || {
            let claims = votes.iter().map(|(by, preimage, signature)| (*by, preimage, signature));
            assert!(tables.check(claims, &mut Ledger::default()).into_iter().all(|holds| holds));
        });
        println!("{count:>5} {:>14.1} {:>8.1} {by_tables:>17.1}", batch_of(count), batch_of(4.min(count)));
    }
}
