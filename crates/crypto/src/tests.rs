use super::*;
use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT, EIGHT_TORSION};
use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::scalar::Scalar;
use proptest::prelude::*;
use quorate_types::codec::Wire;
use quorate_types::digest::from_hex;
use quorate_types::rng::Rng;
use quorate_types::{
    BundleDigest, ClusterId, Committee, Digest, Domain, Epoch, Height, Kind, Ledger, Member, ProtocolId,
    PublicKey, ReplicaId, ReplicaSet, Signature, Statement, View,
};
use sha2::{Digest as _, Sha512};

fn seed(rng: &mut Rng) -> [u8; 32] {
    std::array::from_fn(|_| rng.next_u64() as u8)
}

fn signer(number: u64) -> SigningKey {
    SigningKey::from_seed(Scheme::Ed25519, seed(&mut Rng::new(number)))
}

fn verify_key(signer: &SigningKey) -> VerifyKey {
    VerifyKey::register(Scheme::Ed25519, signer.public()).unwrap()
}

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    from_hex(hex).unwrap().try_into().unwrap()
}

fn zebra_accepts(key: &PublicKey, message: &[u8], signature: &Signature) -> bool {
    let Ok(key) = ed25519_zebra::VerificationKey::try_from(key.0) else {
        return false;
    };
    key.verify(&ed25519_zebra::Signature::from(signature.0), message).is_ok()
}

/// A private key in plain form, which can make signatures that no honest signer makes.
struct Forger {
    secret: Scalar,
    public: PublicKey,
}

impl Forger {
    fn new(rng: &mut Rng) -> Self {
        let secret = scalar(rng);
        let public = PublicKey((ED25519_BASEPOINT_POINT * secret).compress().0);
        Self { secret, public }
    }

    /// Returns a signature whose R is `[r]B + extra`.
    fn sign(&self, rng: &mut Rng, message: &[u8], extra: EdwardsPoint) -> Signature {
        let r = scalar(rng);
        self.finish(r, (ED25519_BASEPOINT_POINT * r + extra).compress().0, message)
    }

    fn finish(&self, r: Scalar, encoded: [u8; 32], message: &[u8]) -> Signature {
        let k = challenge(&encoded, &self.public, message);
        let s = r + k * self.secret;
        Signature([encoded, s.to_bytes()].concat().try_into().unwrap())
    }
}

fn scalar(rng: &mut Rng) -> Scalar {
    let wide: [u8; 64] = std::array::from_fn(|_| rng.next_u64() as u8);
    Scalar::from_bytes_mod_order_wide(&wide)
}

fn challenge(r: &[u8; 32], key: &PublicKey, message: &[u8]) -> Scalar {
    let mut hash = Sha512::new();
    hash.update(r);
    hash.update(key.0);
    hash.update(message);
    Scalar::from_bytes_mod_order_wide(&hash.finalize().into())
}

/// Returns all encodings of points of small order, canonical or not. The standard lists 26: each y of the eight points,
/// y + p if it fits, and both signs.
fn small_order_encodings() -> Vec<[u8; 32]> {
    let mut found = Vec::new();
    let p_low = 0xedu8; // p = 2^255 - 19.
    let mut candidates: Vec<[u8; 32]> = EIGHT_TORSION.iter().map(|point| point.compress().0).collect();
    for low in 0..19u8 {
        // y + p for y < 19.
        let mut above = [0xff; 32];
        above[0] = p_low + low;
        above[31] = 0x7f;
        candidates.push(above);
    }
    for candidate in candidates {
        for sign in [0, 0x80] {
            let mut encoding = candidate;
            encoding[31] = encoding[31] & 0x7f | sign;
            let small = CompressedEdwardsY(encoding).decompress().is_some_and(|point| point.is_small_order());
            if small && !found.contains(&encoding) {
                found.push(encoding);
            }
        }
    }
    found
}

const RFC8032: [(&str, &str, &str, &str); 3] = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b\
         d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c\
         387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659\
         4a7c15e9716ed28dc027beceea1ec40a",
    ),
];

#[test]
fn rfc_8032_vectors_hold() {
    for (secret, public, message, signature) in RFC8032 {
        let signer = SigningKey::from_seed(Scheme::Ed25519, bytes(secret));
        let (message, signature) = (from_hex(message).unwrap(), Signature(bytes(signature)));
        assert_eq!(signer.public(), PublicKey(bytes(public)));
        assert_eq!(signer.sign(&message), signature);
        assert!(verify_key(&signer).verify(&message, &signature));
        assert!(!verify_key(&signer).verify(b"other", &signature));
    }
}

/// Wycheproof's verdicts follow RFC 8032. Exactly one of its invalid signatures holds under ZIP 215. Its R is the
/// neutral point in the second encoding ("minus zero"), and ZIP 215 allows every encoding of R.
#[test]
fn wycheproof_vectors_hold_but_for_one_encoding_of_r() {
    let accepted_by_zip_215 = [151];
    let set = wycheproof::eddsa::TestSet::load(wycheproof::eddsa::TestName::Ed25519).unwrap();
    let mut seen = (0, 0);
    let mut more = Vec::new();
    for group in &set.test_groups {
        let public = PublicKey(group.key.pk.as_ref().try_into().unwrap());
        let key = VerifyKey::register(Scheme::Ed25519, public).unwrap();
        for test in &group.tests {
            // The codec refuses a signature of any other length.
            let signature = <[u8; 64]>::try_from(test.sig.as_ref()).map(Signature);
            let accepted = signature.is_ok_and(|signature| key.verify(&test.msg, &signature));
            if test.result == wycheproof::TestResult::Valid {
                assert!(accepted, "test {}: {}", test.tc_id, test.comment);
                seen.0 += 1;
            } else {
                seen.1 += 1;
                if accepted {
                    more.push(test.tc_id);
                }
            }
        }
    }
    assert_eq!(more, accepted_by_zip_215);
    assert!(seen.0 > 70 && seen.1 > 50, "too few vectors were read: {seen:?}");
}

#[test]
fn signatures_equal_those_of_another_library() {
    let mut rng = Rng::new(1);
    for i in 0..64 {
        let secret = seed(&mut rng);
        let message: Vec<u8> = (0..i).map(|_| rng.next_u64() as u8).collect();
        let theirs = ed25519_zebra::SigningKey::from(secret).sign(&message);
        let ours = SigningKey::from_seed(Scheme::Ed25519, secret).sign(&message);
        assert_eq!(ours.0, <[u8; 64]>::from(theirs));
    }
}

#[test]
fn keys_that_break_the_rule_are_refused() {
    let encodings = small_order_encodings();
    assert!(encodings.len() >= 14, "found {}", encodings.len());
    for encoding in &encodings {
        let refused = VerifyKey::register(Scheme::Ed25519, PublicKey(*encoding));
        assert_eq!(refused.err(), Some(BadKey::SmallOrder), "{encoding:?}");
    }
    let honest = CompressedEdwardsY(signer(1).public().0).decompress().unwrap();
    for torsion in &EIGHT_TORSION[1..] {
        let mixed = PublicKey((honest + torsion).compress().0);
        assert_eq!(VerifyKey::register(Scheme::Ed25519, mixed).err(), Some(BadKey::Torsion));
    }
    // y = p + 3 is a second encoding of y = 3, if that is a point.
    for low in 0..19u8 {
        let mut above = [0xff; 32];
        (above[0], above[31]) = (0xed + low, 0x7f);
        assert!(VerifyKey::register(Scheme::Ed25519, PublicKey(above)).is_err());
    }
    let not_a_point = (0..=255u8)
        .map(|byte| PublicKey([byte; 32]))
        .find(|key| CompressedEdwardsY(key.0).decompress().is_none())
        .unwrap();
    assert_eq!(VerifyKey::register(Scheme::Ed25519, not_a_point).err(), Some(BadKey::NotAPoint));
}

/// R may have small order, a torsion part or a second encoding. The rule and its other implementation accept all of
/// them. A library under RFC 8032 would not, so all replicas must use one library.
#[test]
fn crafted_commitments_are_accepted_by_all_checks() {
    let mut rng = Rng::new(7);
    let forger = Forger::new(&mut rng);
    let key = VerifyKey::register(Scheme::Ed25519, forger.public).unwrap();
    let mut signatures = Vec::new();
    for torsion in EIGHT_TORSION {
        signatures.push(forger.sign(&mut rng, b"m", torsion));
    }
    for encoding in small_order_encodings() {
        signatures.push(forger.finish(Scalar::ZERO, encoding, b"m"));
    }
    let mut batch = Batch::new();
    for signature in &signatures {
        assert!(zebra_accepts(&forger.public, b"m", signature));
        assert!(key.verify(b"m", signature));
        batch.push(&key, b"m", signature);
    }
    assert!(batch.check(&mut Ledger::default()).into_iter().all(|holds| holds));
}

#[test]
fn signature_with_non_canonical_s_is_refused() {
    let (signer, order) = (signer(3), Scalar::ZERO - Scalar::ONE);
    let key = verify_key(&signer);
    let good = signer.sign(b"m");
    // s + l is the same number modulo l.
    let mut sum = [0u8; 32];
    let mut carry = 0u16;
    for (i, byte) in sum.iter_mut().enumerate() {
        let order_byte = u16::from(order.as_bytes()[i]) + u16::from(i == 0);
        carry += u16::from(good.0[32 + i]) + order_byte;
        *byte = carry as u8;
        carry >>= 8;
    }
    let mut malleable = good;
    malleable.0[32..].copy_from_slice(&sum);
    assert!(key.verify(b"m", &good) && !key.verify(b"m", &malleable));
    let mut batch = Batch::new();
    batch.push(&key, b"m", &good);
    batch.push(&key, b"m", &malleable);
    batch.push(&key, b"m", &good);
    assert_eq!(batch.check(&mut Ledger::default()), [true, false, true]);
}

/// The ways in which an attacker may craft a signature.
#[derive(Clone, Copy, Debug)]
enum Forgery {
    Honest,
    Torsion(usize),
    SmallOrder(usize),
    /// An honest signature with one flipped bit.
    Flipped(usize),
    OtherMessage,
    OtherKey,
    /// A signature whose bytes are all equal.
    Constant(u8),
}

fn forgery() -> impl Strategy<Value = Forgery> {
    prop_oneof![
        4 => Just(Forgery::Honest),
        1 => (0..8usize).prop_map(Forgery::Torsion),
        1 => (0..64usize).prop_map(Forgery::SmallOrder),
        1 => (0..512usize).prop_map(Forgery::Flipped),
        1 => Just(Forgery::OtherMessage),
        1 => Just(Forgery::OtherKey),
        1 => any::<u8>().prop_map(Forgery::Constant),
    ]
}

fn craft(forgery: Forgery, forger: &Forger, rng: &mut Rng, message: &[u8]) -> Signature {
    let identity = EIGHT_TORSION[0];
    match forgery {
        Forgery::Honest => forger.sign(rng, message, identity),
        Forgery::Torsion(i) => forger.sign(rng, message, EIGHT_TORSION[i]),
        Forgery::SmallOrder(i) => {
            let encodings = small_order_encodings();
            forger.finish(Scalar::ZERO, encodings[i % encodings.len()], message)
        }
        Forgery::Flipped(bit) => {
            let mut signature = forger.sign(rng, message, identity);
            signature.0[bit / 8] ^= 1 << (bit % 8);
            signature
        }
        Forgery::OtherMessage => forger.sign(rng, b"another", identity),
        Forgery::OtherKey => Forger::new(rng).sign(rng, message, identity),
        Forgery::Constant(byte) => Signature([byte; 64]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Single checks, batches, committee tables and the other implementation of the rule agree on all inputs.
    #[test]
    fn all_checks_give_the_same_verdict(
        seed in any::<u64>(),
        forgeries in proptest::collection::vec((0..5usize, forgery()), 0..40),
    ) {
        let mut rng = Rng::new(seed);
        let forgers: Vec<Forger> = (0..5).map(|_| Forger::new(&mut rng)).collect();
        let committee = committee_of(forgers.iter().map(|forger| forger.public));
        let keys = CommitteeKeys::new(Scheme::Ed25519, &committee).unwrap();
        let claims: Vec<(ReplicaId, [u8; 32], Signature)> = forgeries
            .iter()
            .enumerate()
            .map(|(i, (signer, forgery))| {
                let message = [i as u8; 32];
                (ReplicaId(*signer as u16), message, craft(*forgery, &forgers[*signer], &mut rng, &message))
            })
            .collect();
        let mut ledger = Ledger::default();
        let mut batch = Batch::new();
        for (by, message, signature) in &claims {
            batch.push(keys.key(*by).unwrap(), message, signature);
        }
        let singles: Vec<bool> = claims
            .iter()
            .map(|(by, message, signature)| keys.verify(*by, message, signature, &mut ledger))
            .collect();
        let zebra: Vec<bool> = claims
            .iter()
            .map(|(by, message, signature)| zebra_accepts(&forgers[by.index()].public, message, signature))
            .collect();
        let tables = keys.check(claims.iter().map(|(by, m, s)| (*by, m, s)), &mut ledger);
        prop_assert_eq!(&singles, &zebra);
        prop_assert_eq!(&batch.check(&mut ledger), &zebra);
        prop_assert_eq!(&tables, &zebra);
    }
}

fn committee_of(keys: impl IntoIterator<Item = PublicKey>) -> Committee {
    Committee {
        cluster: ClusterId(Digest([1; 32])),
        protocol: ProtocolId::new("pbft"),
        epoch: Epoch(0),
        f: 1,
        members: keys.into_iter().map(|sign| Member { sign, link: sign }).collect(),
    }
}

/// Bisection finds exactly the bad signatures: none, one at each end, all of one signer, all. The lengths cross the
/// boundary of equations, and a batch has equal keys.
#[test]
fn bisection_finds_exactly_the_bad_signatures() {
    let signers: Vec<SigningKey> = (0..7).map(signer).collect();
    let keys: Vec<VerifyKey> = signers.iter().map(verify_key).collect();
    let check = |length: usize, is_bad: &dyn Fn(usize) -> bool| {
        let mut batch = Batch::with_capacity(length);
        for i in 0..length {
            let message = (i as u64).to_le_bytes();
            let mut signature = signers[i % 7].sign(&message);
            if is_bad(i) {
                signature = signers[i % 7].sign(b"something else");
            }
            batch.push(&keys[i % 7], &message, &signature);
        }
        let mut ledger = Ledger::default();
        let verdicts = batch.check(&mut ledger);
        let expected: Vec<bool> = (0..length).map(|i| !is_bad(i)).collect();
        assert_eq!(verdicts, expected, "of {length}");
        let bad = expected.iter().filter(|good| !**good).count();
        assert_eq!(ledger.signatures_bad, bad as u64);
        ledger
    };
    for length in [0, 1, 2, 3, 5, 64, 255, 256, 257, 300] {
        check(length, &|_| false);
        check(length, &|_| true);
        check(length, &|i| i == 0);
        check(length, &|i| i + 1 == length);
        check(length, &|i| i % 7 == 3);
        check(length, &|i| i % 2 == 1);
    }
    let clean = check(300, &|_| false);
    assert_eq!((clean.batches, clean.signatures_batched, clean.signatures_single), (2, 300, 0));
    let odd = check(257, &|_| false);
    assert_eq!((odd.batches, odd.signatures_batched, odd.signatures_single), (1, 256, 1));
    let alone = check(1, &|_| false);
    assert_eq!((alone.batches, alone.signatures_single), (0, 1), "a lone signature made a batch");
    let one_bad = check(256, &|i| i == 99);
    assert!(one_bad.signatures_single <= 4, "{one_bad:?}");
}

/// The errors of two signatures cancel in a plain sum. Without coefficients the batch would accept both.
#[test]
fn errors_that_cancel_in_a_plain_sum_are_found() {
    let signer = signer(5);
    let key = verify_key(&signer);
    let (mut a, mut b) = (signer.sign(b"a"), signer.sign(b"b"));
    let shift = |signature: &mut Signature, by: Scalar| {
        let s = Scalar::from_canonical_bytes(signature.0[32..].try_into().unwrap()).unwrap() + by;
        signature.0[32..].copy_from_slice(s.as_bytes());
    };
    shift(&mut a, Scalar::ONE);
    shift(&mut b, -Scalar::ONE);
    let mut batch = Batch::new();
    batch.push(&key, b"a", &a);
    batch.push(&key, b"b", &b);
    assert_eq!(batch.check(&mut Ledger::default()), [false, false]);
}

#[test]
fn committee_keys_accept_members_only() {
    for scheme in [Scheme::Ed25519, Scheme::Cheap] {
        let signers: Vec<SigningKey> = (0..4).map(|i| SigningKey::from_seed(scheme, [i; 32])).collect();
        let committee = committee_of(signers.iter().map(SigningKey::public));
        let keys = CommitteeKeys::new(scheme, &committee).unwrap();
        let preimage = [9; 32];
        let mut ledger = Ledger::default();
        let votes: Vec<(ReplicaId, Signature)> =
            [2u16, 0, 3].map(|i| (ReplicaId(i), signers[usize::from(i)].sign(&preimage))).to_vec();
        let claims = votes.iter().map(|(by, signature)| (*by, &preimage, signature));
        let stranger = (ReplicaId(4), &preimage, &votes[0].1);
        let swapped = (ReplicaId(1), &preimage, &votes[0].1);
        assert_eq!(
            keys.check(claims.chain([stranger, swapped]), &mut ledger),
            [true, true, true, false, false]
        );
        assert!(!keys.verify(ReplicaId(4), &preimage, &votes[0].1, &mut ledger));
        assert!(keys.key(ReplicaId(4)).is_none());

        let proof = AggregateSignature::of(&votes);
        assert_eq!(AggregateSignature::from_bytes(&proof.to_bytes()).as_ref(), Ok(&proof));
        let set = |ids: &[u16]| -> ReplicaSet { ids.iter().map(|id| ReplicaId(*id)).collect() };
        assert!(keys.verify_aggregate(&set(&[0, 2, 3]), &preimage, &proof, &mut ledger));
        for wrong in [&[0, 1, 2][..], &[0, 2], &[0, 1, 2, 3], &[]] {
            assert!(!keys.verify_aggregate(&set(wrong), &preimage, &proof, &mut ledger), "{wrong:?}");
        }
        assert!(!keys.verify_aggregate(&set(&[0, 2, 3]), &[8; 32], &proof, &mut ledger));
    }
}

#[test]
fn verdicts_beyond_the_sizes_of_tables_are_right() {
    // Both sizes exceed those for which there are tables.
    let signers: Vec<SigningKey> = (0..101).map(signer).collect();
    for n in [31, 101] {
        let committee = committee_of(signers[..n].iter().map(SigningKey::public));
        let keys = CommitteeKeys::new(Scheme::Ed25519, &committee).unwrap();
        let claims: Vec<(ReplicaId, [u8; 32], Signature)> = (0..150usize)
            .map(|i| {
                let said = if i % 40 == 7 { b"no" } else { b"ok" };
                (
                    ReplicaId((i % n) as u16),
                    [i as u8; 32],
                    signers[i % n].sign(&[said[0] ^ b'o' ^ i as u8; 32]),
                )
            })
            .collect();
        let verdicts = keys.check(claims.iter().map(|(by, m, s)| (*by, m, s)), &mut Ledger::default());
        for (i, holds) in verdicts.into_iter().enumerate() {
            assert_eq!(holds, i % 40 != 7, "n={n} i={i}");
        }
    }
}

#[test]
fn refused_member_key_is_reported_with_its_replica() {
    let mut members: Vec<PublicKey> = (0..4).map(|i| signer(i).public()).collect();
    members[2] = PublicKey(small_order_encodings()[0]);
    let bad = CommitteeKeys::new(Scheme::Ed25519, &committee_of(members)).err();
    assert_eq!(bad, Some(BadMember { replica: ReplicaId(2), why: BadKey::SmallOrder }));
}

#[test]
fn preimages_bind_every_field() {
    let domain =
        Domain { cluster: ClusterId(Digest([1; 32])), protocol: ProtocolId::new("pbft"), epoch: Epoch(2) };
    let statement = Statement {
        kind: Kind::new("vote"),
        view: View(3),
        height: Height(4),
        scope: Digest([5; 32]),
        subject: Digest([6; 32]),
    };
    let mut seen = vec![statement_preimage(&domain, &statement)];
    let domains = [
        Domain { cluster: ClusterId::ZERO, ..domain },
        Domain { protocol: ProtocolId::new("echo"), ..domain },
        Domain { epoch: Epoch(3), ..domain },
    ];
    let statements = [
        Statement { kind: Kind::new("veto"), ..statement },
        Statement { view: View(4), ..statement },
        Statement { height: Height(3), ..statement },
        Statement { view: View(4), height: Height(3), ..statement },
        Statement { scope: Digest([6; 32]), ..statement },
        Statement { subject: Digest([5; 32]), ..statement },
        Statement { scope: Digest([6; 32]), subject: Digest([5; 32]), ..statement },
    ];
    seen.extend(domains.iter().map(|other| statement_preimage(other, &statement)));
    seen.extend(statements.iter().map(|other| statement_preimage(&domain, other)));
    let digest = BundleDigest(Digest([1; 32]));
    seen.push(bundle_preimage(domain.cluster, digest));
    seen.push(bundle_preimage(ClusterId::ZERO, digest));
    seen.push(bundle_preimage(domain.cluster, BundleDigest::ZERO));
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
    // Signed bytes may never change, because old signatures must stay verifiable.
    assert_eq!(
        Digest(statement_preimage(&domain, &statement)).to_string(),
        "120cb48e1336d6f6f045ffdb347ea8a326808d413851e5b2ba06f66443f2d338"
    );
    assert_eq!(
        Digest(bundle_preimage(domain.cluster, digest)).to_string(),
        "501010f4e0092482ef91f2ab085d3e3a72c950186e34861303ba652c08902413"
    );
}

#[test]
fn keys_round_trip_through_pem() {
    for number in 0..40 {
        let key = signer(number);
        let pem = key.to_pkcs8_pem().unwrap();
        assert!(pem.expose().starts_with("-----BEGIN PRIVATE KEY-----\n"));
        assert!(pem.expose().ends_with("-----END PRIVATE KEY-----\n"));
        let again = SigningKey::from_pkcs8_pem(pem.expose()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(again.sign(b"m"), key.sign(b"m"));
    }
    // RFC 8410, section 10.3: a key in the form of another tool.
    let of_the_rfc = "-----BEGIN PRIVATE KEY-----\r\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\r\n\
        -----END PRIVATE KEY-----\r\n";
    let public: [u8; 32] = bytes("19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1");
    assert_eq!(SigningKey::from_pkcs8_pem(of_the_rfc).unwrap().public().0, public);
    assert!(SigningKey::from_seed(Scheme::Cheap, [1; 32]).to_pkcs8_pem().is_none());
}

#[test]
fn damaged_key_files_are_refused() {
    let pem = signer(1).to_pkcs8_pem().unwrap();
    let whole = pem.expose();
    for cut in 0..whole.len() - 1 {
        assert!(SigningKey::from_pkcs8_pem(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let body = whole.lines().nth(1).unwrap();
    for (replaced, by) in [
        (body, "MC4CAQAwBQYDK2VwBCIEI=Tuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC"),
        (body, "!!!!"),
        (body, ""),
        (body, "===="),
        (body, "MC4="),
        ("PRIVATE KEY", "RSA PRIVATE KEY"),
        ("-----END PRIVATE KEY-----", ""),
    ] {
        assert!(SigningKey::from_pkcs8_pem(&whole.replace(replaced, by)).is_err(), "{by}");
    }
    assert_eq!(SigningKey::from_pkcs8_pem(&format!("{whole}{whole}")).err(), Some(BadKeyFile::NotPem));
}

#[test]
fn only_canonical_base64_decodes() {
    use crate::pem::{decode, encode};
    for length in 0..100usize {
        let data: Vec<u8> = (0..length).map(|i| (i * 37) as u8).collect();
        let text = encode(&data);
        assert!(text.expose().lines().all(|line| line.len() <= 64));
        assert_eq!(decode(text.expose()).unwrap().expose(), &data);
    }
    let block = |body: &str| format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    assert_eq!(decode(&block("Zm8=")).unwrap().expose(), b"fo");
    for wrong in ["Zm9=", "Zm8", "Zm==", "Z===", "=Zm8", "Zm8=Zm8=", "Zm8=="] {
        assert!(decode(&block(wrong)).is_none(), "{wrong}");
    }
}

#[test]
fn secrets_are_not_printed() {
    let key = SigningKey::from_seed(Scheme::Ed25519, [0x5a; 32]);
    let text = format!("{key:?} {:?}", key.to_pkcs8_pem());
    assert!(!text.contains("5a5a") && !text.contains("90, 90") && !text.contains("WlpaWl"), "{text}");
    assert!(text.contains("Secret(..)"), "{text}");
}

#[test]
fn curve_backend_has_a_known_name() {
    assert!(["avx512", "avx2", "serial", "fiat"].contains(&curve_backend()));
}
