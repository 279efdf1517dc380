//! Signatures, digests and tags. The signatures of a batch have distinct keys, and `items` are signatures.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use quorate_crypto::{Batch, CommitteeKeys, Scheme, SigningKey, VerifyKey};
use quorate_types::digest::{Context, keyed_tag};
use quorate_types::{
    ClusterId, Committee, Digest, Epoch, Ledger, Member, ProtocolId, PublicKey, ReplicaId, Signature,
};

const MESSAGE: [u8; 32] = [1; 32];

fn signers(count: usize) -> Vec<SigningKey> {
    let seeds = (0..count).map(|i| {
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&(i as u64).to_le_bytes());
        seed
    });
    seeds.map(|seed| SigningKey::from_seed(Scheme::Ed25519, seed)).collect()
}

fn keys(signers: &[SigningKey]) -> Vec<VerifyKey> {
    signers.iter().map(|signer| VerifyKey::register(Scheme::Ed25519, signer.public()).unwrap()).collect()
}

#[divan::bench]
fn sign(bencher: Bencher<'_, '_>) {
    let signer = signers(1).remove(0);
    bencher.bench(|| signer.sign(black_box(&MESSAGE)));
}

#[divan::bench]
fn check_one(bencher: Bencher<'_, '_>) {
    let signers = signers(1);
    let (keys, signature) = (keys(&signers), signers[0].sign(&MESSAGE));
    bencher.bench(|| assert!(keys[0].verify(black_box(&MESSAGE), &signature)));
}

#[divan::bench]
fn register_a_key(bencher: Bencher<'_, '_>) {
    let public: PublicKey = signers(1)[0].public();
    bencher.bench(|| VerifyKey::register(Scheme::Ed25519, black_box(public)).unwrap());
}

/// Signatures of clients: each has a message of its own.
#[divan::bench(args = [2, 4, 8, 64, 256])]
fn check_batch(bencher: Bencher<'_, '_>, count: usize) {
    let signers = signers(count);
    let keys = keys(&signers);
    let messages: Vec<[u8; 32]> = (0..count).map(|i| [i as u8; 32]).collect();
    let signatures: Vec<Signature> =
        signers.iter().zip(&messages).map(|(signer, message)| signer.sign(message)).collect();
    bencher.counter(ItemsCount::new(count)).bench(|| {
        let mut batch = Batch::with_capacity(count);
        for ((key, message), signature) in keys.iter().zip(&messages).zip(&signatures) {
            batch.push(key, message, signature);
        }
        assert!(batch.check(&mut Ledger::default()).into_iter().all(|holds| holds));
    });
}

/// Signatures of a committee's members on one message, by the tables of the committee.
#[divan::bench(args = [4, 8, 64])]
fn check_certificate(bencher: Bencher<'_, '_>, count: usize) {
    let signers = signers(count);
    let member = |signer: &SigningKey| Member { sign: signer.public(), link: signer.public() };
    let committee = Committee {
        cluster: ClusterId::ZERO,
        protocol: ProtocolId::new("none"),
        epoch: Epoch(0),
        f: 0,
        members: signers.iter().map(member).collect(),
    };
    let tables = CommitteeKeys::new(Scheme::Ed25519, &committee).unwrap();
    let claims: Vec<(ReplicaId, Signature)> =
        (0..).map(ReplicaId).zip(signers.iter().map(|signer| signer.sign(&MESSAGE))).collect();
    bencher.counter(ItemsCount::new(count)).bench(|| {
        let claims = claims.iter().map(|(by, signature)| (*by, &MESSAGE, signature));
        assert!(tables.check(claims, &mut Ledger::default()).into_iter().all(|holds| holds));
    });
}

#[divan::bench(args = [128, 4 << 10, 1 << 20])]
fn digest(bencher: Bencher<'_, '_>, bytes: usize) {
    let (data, context) = (vec![7; bytes], Context::new("quorate micro-benchmark"));
    bencher.counter(BytesCount::new(bytes)).bench(|| Digest::of(&context, black_box(&data)));
}

#[divan::bench(args = [32, 4 << 10])]
fn keyed_tag_of(bencher: Bencher<'_, '_>, bytes: usize) {
    let data = vec![7; bytes];
    bencher.counter(BytesCount::new(bytes)).bench(|| keyed_tag(&[3; 32], black_box(&data)));
}
