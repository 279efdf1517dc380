//! Proofs inside of messages, damaged. A run of each registered protocol shows messages with certificates and with signatures
//! of others. A replica hears them again with the bad ones in their place, and everything around them rightly signed.
//!
//! The number of signers that a certificate needs is measured and compared with the rules of the papers. Two tables name every
//! message with a proof. A new message needs its row, and a row that no run shows any more needs a longer run in `door.rs`.

mod door;
mod more;
mod rebind;
mod timeouts;

use door::{Door, Seen, places};
use quorate_consensus::{Certificate, Claim};
use quorate_crypto::AggregateSignature;
use quorate_protocols::REGISTRY;
use quorate_types::codec::Wire as _;
use quorate_types::{
    ClusterId, Committee, Digest, Domain, Epoch, Height, ProtocolId, ReplicaId, ReplicaSet, Signature,
    Statement,
};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;

const CHAINED: &[&str] = &["jolteon", "hotstuff2"];
const PBFT: &[&str] = &["pbft", "pbft-signed"];
const STABLE: &[&str] = &["sync-hotstuff", "optsync"];
const UNIQUE: &[&str] = &["apollo", "artemis"];

/// Needed signers of the certificates in messages: protocols, kind of message, kind of the signed statement, and numbers. Where
/// there are two numbers, the message has certificates of both sizes. Echo has no certificates.
const CERTIFICATES: &[(&[&str], &str, &str, &[&str])] = &[
    (PBFT, "view-change", "host.checkpoint", &["quorum"]),
    (PBFT, "new-view", "host.checkpoint", &["quorum"]),
    (PBFT, "entry", "host.checkpoint", &["quorum"]),
    // The PRE-PREPARE of the leader, who sends no PREPARE, and those of Q - 1 others.
    (&["pbft-signed"], "view-change", "pre-prepare", &["one"]),
    (&["pbft-signed"], "view-change", "prepare", &["quorum - 1"]),
    (&["pbft-signed"], "new-view", "pre-prepare", &["one"]),
    (&["pbft-signed"], "new-view", "prepare", &["quorum - 1"]),
    (&["pbft-signed"], "entry", "pre-prepare", &["one"]),
    (&["pbft-signed"], "entry", "prepare", &["quorum - 1"]),
    (&["hotstuff"], "propose", "vote", &["quorum"]),
    (&["hotstuff"], "complain", "vote", &["quorum"]),
    (&["hotstuff"], "next-view", "vote", &["quorum"]),
    (CHAINED, "propose", "vote", &["quorum"]),
    (CHAINED, "timeout", "vote", &["quorum"]),
    (CHAINED, "advance", "vote", &["quorum"]),
    (STABLE, "propose", "vote", &["f + 1"]),
    (STABLE, "certified", "vote", &["f + 1"]),
    (STABLE, "evidence", "blame", &["f + 1"]),
    (STABLE, "answer", "blame", &["f + 1"]),
    (&["sync-hotstuff"], "new-view", "vote", &["f + 1"]),
    (&["sync-hotstuff"], "status", "vote", &["f + 1"]),
    (&["sync-hotstuff"], "forward", "vote", &["f + 1"]),
    (&["sync-hotstuff"], "answer", "vote", &["f + 1"]),
    // A lock has a responsive certificate, and the highest one.
    (&["optsync"], "new-view", "vote", &["f + 1", "responsive"]),
    (&["optsync"], "status", "vote", &["f + 1", "responsive"]),
    (&["optsync"], "forward", "vote", &["f + 1", "responsive"]),
    (&["optsync"], "answer", "vote", &["f + 1", "responsive"]),
    (&["optsync"], "notify", "vote", &["responsive"]),
    (&["sync-hotstuff-rr"], "propose", "vote", &["f + 1"]),
    (&["sync-hotstuff-rr"], "certified", "vote", &["f + 1"]),
    (&["sync-hotstuff-rr"], "status", "vote", &["f + 1"]),
    (&["sync-hotstuff-rr"], "answer", "vote", &["f + 1"]),
    (&["sync-hotstuff-rr"], "answer", "blame", &["f + 1"]),
    (&["sync-hotstuff-rr"], "evidence", "vote", &["f + 1"]),
    (&["sync-hotstuff-rr"], "evidence", "blame", &["f + 1"]),
    // Skip certificates.
    (&["apollo"], "propose", "blame", &["f + 1"]),
    (&["artemis"], "vote", "blame", &["f + 1"]),
    (UNIQUE, "relay", "blame", &["f + 1"]),
    (UNIQUE, "blame", "blame", &["f + 1"]),
    (UNIQUE, "entries", "blame", &["f + 1"]),
    (UNIQUE, "ask", "blame", &["f + 1"]),
    (UNIQUE, "answer", "blame", &["f + 1"]),
];

/// Signatures of others in messages: protocols, kind of message, kinds of the signed statements.
const SIGNATURES: &[(&[&str], &str, &[&str])] = &[
    (PBFT, "new-view", &["view-change"]),
    (PBFT, "entry", &["new-view", "view-change"]),
    (&["hotstuff"], "complain", &["vote"]),
    (&["hotstuff"], "next-view", &["complain"]),
    (&["hotstuff"], "propose", &["complain"]),
    (CHAINED, "timeout", &["vote"]),
    (CHAINED, "advance", &["timeout"]),
    (CHAINED, "propose", &["timeout"]),
    (STABLE, "vote", &["propose"]),
    (STABLE, "forward", &["new-view"]),
    (STABLE, "evidence", &["propose"]),
    (STABLE, "answer", &["new-view", "propose", "vote"]),
    (&["sync-hotstuff-rr"], "vote", &["propose"]),
    (&["sync-hotstuff-rr"], "show", &["propose"]),
    (&["sync-hotstuff-rr"], "evidence", &["propose"]),
    (&["sync-hotstuff-rr"], "answer", &["propose", "vote"]),
    (&["apollo"], "relay", &["propose"]),
    (&["apollo"], "blame", &["propose"]),
    (&["apollo"], "entries", &["propose"]),
    (&["apollo"], "ask", &["propose"]),
    (&["apollo"], "answer", &["propose"]),
    // Two blocks of a coordinator are evidence in a vote.
    (&["artemis"], "vote", &["cblock"]),
    (&["artemis"], "relay", &["cblock", "vote"]),
    (&["artemis"], "blame", &["cblock", "vote"]),
    (&["artemis"], "entries", &["vote"]),
    (&["artemis"], "ask", &["cblock", "vote"]),
    (&["artemis"], "answer", &["vote"]),
    (&["artemis"], "blocks", &["cblock"]),
];

/// Returns the name of a number of replicas. The sizes of committees here give each name a number of its own.
fn name_of(committee: &Committee, number: usize) -> &'static str {
    let (n, f) = (committee.n(), committee.f);
    let quorum = (n + f + 2) / 2;
    let names = [
        (1, "one"),
        (f + 1, "f + 1"),
        (quorum - 1, "quorum - 1"),
        (quorum, "quorum"),
        (n - f, "n - f"),
        (n, "n"),
    ];
    let responsive = [(3 * n / 4 + 1, "responsive")];
    let mut all = names.iter().chain(&responsive);
    all.find(|(size, _)| *size == number).map_or("no rule", |(_, name)| name)
}

/// A certificate at one place of a message.
struct Place<'a> {
    seen: &'a Seen,
    at: usize,
    statement: Statement,
    length: usize,
}

impl Place<'_> {
    fn body(&self, door: &Door, certificate: &Certificate) -> Vec<u8> {
        door.with(self.seen, self.at, self.length, &certificate.to_bytes())
    }
}

/// Returns the places of certificates in a message.
fn certificates<'a>(door: &Door, seen: &'a Seen) -> Vec<Place<'a>> {
    let mut found: BTreeMap<usize, Place<'a>> = BTreeMap::new();
    for claim in door.claims(&seen.body).unwrap() {
        if let Claim::Certificate(certificate) = claim {
            let bytes = certificate.to_bytes();
            for at in places(&seen.body, &bytes) {
                let (statement, length) = (certificate.statement, bytes.len());
                found.insert(at, Place { seen, at, statement, length });
            }
        }
    }
    found.into_values().collect()
}

fn first(count: usize) -> impl Iterator<Item = ReplicaId> {
    (0..count as u16).map(ReplicaId)
}

/// Returns the least number of signers with which a certificate at this place is well-formed.
fn measured(door: &Door, place: &Place<'_>) -> usize {
    let n = door.committee.n();
    let what = (door.entry.spec.name, place.seen.kind, place.statement);
    let form = |count| door.claims(&place.body(door, &door.certificate(place.statement, first(count)))).err();
    let heard: Vec<_> = (1..=n).map(form).collect();
    let least = heard.iter().position(Option::is_none).unwrap_or_else(|| panic!("{what:?}: {heard:?}"));
    assert!(heard[..least].iter().all(|why| *why == Some("too few signers")), "{what:?}: {heard:?}");
    assert!(heard[least..].iter().all(Option::is_none), "{what:?}: {heard:?}");
    least + 1
}

/// Returns domains that differ from a cluster's in one field each.
fn other_domains(mine: Domain) -> [Domain; 3] {
    [
        Domain { cluster: ClusterId(Digest([8; 32])), ..mine },
        Domain { protocol: ProtocolId::new("other"), ..mine },
        Domain { epoch: Epoch(mine.epoch.0 + 1), ..mine },
    ]
}

/// Returns statements that differ from this one in one field each.
fn other_statements(of: Statement) -> [Statement; 5] {
    [
        Statement { view: of.view.next(), ..of },
        Statement { height: Height(of.height.0 + 1), ..of },
        Statement { kind: quorate_types::Kind::new("other"), ..of },
        Statement { scope: Digest([9; 32]), ..of },
        Statement { subject: Digest([9; 32]), ..of },
    ]
}

/// Returns certificates that must be refused, and why.
fn bad_ones(door: &Door, statement: Statement, needed: usize) -> Vec<(Certificate, &'static str)> {
    let n = door.committee.n();
    let good = door.certificate(statement, first(needed));
    let AggregateSignature::List(signatures) = good.proof.clone();
    let with = |signers: ReplicaSet, signatures: Vec<Signature>| Certificate {
        statement,
        signers,
        proof: AggregateSignature::List(signatures),
    };
    let mut bad = vec![
        (door.certificate(statement, first(needed - 1)), "too few signers"),
        // One signer twice.
        (with(first(needed - 1).collect(), signatures.clone()), "too few signers"),
        (
            with(first(needed - 1).chain([ReplicaId(n as u16)]).collect(), signatures.clone()),
            "signer is not a member",
        ),
        (with(good.signers, [&signatures[..], &signatures[..1]].concat()), "signatures and signers differ"),
        (with(good.signers, signatures[1..].to_vec()), "signatures and signers differ"),
    ];
    if needed < n {
        // The signatures are of other signers.
        bad.push((with((1..=needed as u16).map(ReplicaId).collect(), signatures.clone()), "bad signature"));
    }
    if needed > 1 {
        let mut copied = signatures.clone();
        copied[1] = copied[0];
        bad.push((with(good.signers, copied), "bad signature"));
    }
    let others = other_statements(statement).map(|other| door.certificate(other, first(needed)));
    bad.extend(others.map(|other| (Certificate { statement, ..other }, "bad signature")));
    for domain in other_domains(door.committee.domain()) {
        let mut signatures = signatures.clone();
        signatures[needed - 1] = door.sign_in(ReplicaId(needed as u16 - 1), &domain, &statement);
        bad.push((with(good.signers, signatures), "bad signature"));
    }
    bad
}

/// Hears every bad certificate at a place, twice.
fn refuses_bad_ones(door: &mut Door, place: &Place<'_>, needed: usize) {
    for (number, (certificate, expected)) in bad_ones(door, place.statement, needed).into_iter().enumerate() {
        let body = place.body(door, &certificate);
        for again in 0..2 {
            let why = door.hears(place.seen.from, &body);
            let name = door.entry.spec.name;
            let (kind, statement) = (place.seen.kind, place.statement);
            assert_eq!(why, Some(expected), "{name} {kind}, {statement:?}: number {number}, time {again}");
        }
    }
}

type Row = (String, String);

/// Checks each certificate of the run. Returns the names of the needed numbers of signers.
fn check_certificates(door: &mut Door) -> BTreeMap<Row, BTreeSet<&'static str>> {
    let mut rows: BTreeMap<Row, BTreeSet<&'static str>> = BTreeMap::new();
    for seen in door.seen.clone() {
        let what = format!("{} {}", door.entry.spec.name, seen.kind);
        let found = certificates(door, &seen);
        for place in &found {
            let needed = measured(door, place);
            refuses_bad_ones(door, place, needed);
            let good = place.body(door, &door.certificate(place.statement, first(needed)));
            assert_eq!(door.hears(seen.from, &good), None, "{what}");
            // Now the good certificate is one that was checked before.
            refuses_bad_ones(door, place, needed);
            let row = (seen.kind.to_string(), place.statement.kind.to_string());
            rows.entry(row).or_default().insert(name_of(&door.committee, needed));
        }
        assert_eq!(door.hears(seen.from, &seen.body), None, "{what}");
        if let [place, ..] = &found[..] {
            refuses_bad_ones(door, place, measured(door, place));
        }
    }
    rows
}

/// Checks each signature of another replica inside of a message. Returns the kinds of messages and statements.
fn check_signatures(door: &mut Door) -> BTreeSet<Row> {
    let mut rows = BTreeSet::new();
    for seen in door.seen.clone() {
        for claim in door.claims(&seen.body).unwrap() {
            if let Claim::Signature { by, statement, signature } = claim {
                rows.insert((seen.kind.to_string(), statement.kind.to_string()));
                let bad = bad_signatures(door, by, statement);
                for at in places(&seen.body, &signature.0).collect::<Vec<_>>() {
                    refuses_bad_signatures(door, &seen, at, &bad);
                }
            }
        }
    }
    rows
}

/// Returns signatures of another replica, under other statements, and in other domains.
fn bad_signatures(door: &Door, by: ReplicaId, statement: Statement) -> Vec<Signature> {
    let next = ReplicaId((by.0 + 1) % door.committee.n() as u16);
    let mut bad = vec![door.sign(next, &statement)];
    bad.extend(other_statements(statement).map(|other| door.sign(by, &other)));
    let domains = other_domains(door.committee.domain());
    bad.extend(domains.map(|domain| door.sign_in(by, &domain, &statement)));
    bad
}

/// Hears every bad signature at a place, twice.
fn refuses_bad_signatures(door: &mut Door, seen: &Seen, at: usize, bad: &[Signature]) {
    for (number, bad) in bad.iter().enumerate() {
        let mut body = seen.body.clone();
        body[at..at + bad.0.len()].copy_from_slice(&bad.0);
        door.seal(seen.from, &mut body);
        for _ in 0..2 {
            let why = door.hears(seen.from, &body);
            assert_eq!(why, Some("bad signature"), "{} {}: number {number}", door.entry.spec.name, seen.kind);
        }
    }
}

#[test]
fn bad_proof_in_any_message_is_refused() {
    thread::scope(|scope| {
        for entry in REGISTRY {
            scope.spawn(move || check(Door::of(entry)));
        }
    });
}

/// Checks the messages of one protocol, and that the tables above name all of them.
fn check(mut door: Door) {
    let name = door.entry.spec.name.as_str();
    let text = |text: &&str| (*text).to_owned();
    let certificates = CERTIFICATES.iter().filter(|(protocols, ..)| protocols.contains(&name));
    let certificates: BTreeMap<Row, BTreeSet<&str>> = certificates
        .map(|(_, message, statement, needed)| {
            ((text(message), text(statement)), needed.iter().copied().collect())
        })
        .collect();
    assert_eq!(check_certificates(&mut door), certificates, "{name}");
    let signatures = SIGNATURES.iter().filter(|(protocols, ..)| protocols.contains(&name));
    let signatures: BTreeSet<Row> = signatures
        .flat_map(|(_, message, statements)| {
            statements.iter().map(|statement| (text(message), text(statement)))
        })
        .collect();
    assert_eq!(check_signatures(&mut door), signatures, "{name}");
}
