//! Certificates of timeouts: a list of signed statements, which differ in the view that each lists.

use super::door::{Door, Seen};
use super::{first, name_of};
use quorate_consensus::Signed;
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof, timeout_statement};
use quorate_protocols::REGISTRY;
use quorate_protocols::chained::Content;
use quorate_types::codec::Wire as _;
use quorate_types::{Kind, Reader, ReplicaId, View};
use std::collections::{BTreeMap, BTreeSet};

/// A message with a certificate of timeouts.
struct Shown<'a> {
    seen: &'a Seen,
    content: Content,
    timeouts: TimeoutCertificate,
    /// The kind of a timeout's statement.
    kind: Kind,
}

fn proof_in(content: &mut Content) -> Option<&mut ViewProof> {
    match content {
        Content::Propose(_, proof) | Content::Timeout(_, proof, _) | Content::Advance(proof) => Some(proof),
        Content::Vote(_) => None,
    }
}

impl<'a> Shown<'a> {
    fn of(door: &Door, seen: &'a Seen) -> Option<Self> {
        let mut content = Content::decode(&mut Reader::new(&seen.body)).unwrap();
        let timeouts = proof_in(&mut content)?.timeouts.clone()?;
        let kind = if door.entry.spec.name.as_str() == "hotstuff" { "complain" } else { "timeout" };
        Some(Self { seen, content, timeouts, kind: Kind::new(kind) })
    }

    /// Returns the message with another certificate.
    fn body(&self, door: &Door, timeouts: TimeoutCertificate) -> Vec<u8> {
        let mut content = self.content.clone();
        proof_in(&mut content).unwrap().timeouts = Some(timeouts);
        let mut body = content.to_bytes();
        if door.entry.decode_message(&body).unwrap().auth().is_signed() {
            body.extend([0; 64]);
        }
        door.seal(self.seen.from, &mut body);
        body
    }

    fn listed(&self, door: &Door, by: ReplicaId) -> Signed<View> {
        let high = self.timeouts.high();
        let statement = timeout_statement(self.kind, self.timeouts.view, high);
        Signed { body: high, by, signature: door.sign(by, &statement) }
    }

    fn signed_by(&self, door: &Door, by: impl Iterator<Item = ReplicaId>) -> TimeoutCertificate {
        let listed = by.map(|by| self.listed(door, by)).collect();
        TimeoutCertificate { view: self.timeouts.view, listed }
    }

    /// Returns certificates that must be refused, and why.
    fn bad_ones(&self, door: &Door, needed: usize) -> [(TimeoutCertificate, &'static str); 6] {
        let good = self.signed_by(door, first(needed));
        let last = |change: &dyn Fn(&mut Vec<Signed<View>>)| {
            let mut listed = good.listed[..needed - 1].to_vec();
            change(&mut listed);
            TimeoutCertificate { view: good.view, listed }
        };
        let mut stranger = self.listed(door, ReplicaId(0));
        stranger.by = ReplicaId(door.committee.n() as u16);
        let mut copied = self.listed(door, ReplicaId(needed as u16));
        copied.signature = good.listed[0].signature;
        [
            (last(&|_| {}), "too few timeouts"),
            (last(&|listed| listed.push(good.listed[needed - 2])), "timeouts out of order"),
            (last(&|listed| listed.insert(0, good.listed[needed - 1])), "timeouts out of order"),
            (last(&|listed| listed.push(stranger)), "signer is not a member"),
            (last(&|listed| listed.push(copied)), "bad signature"),
            (TimeoutCertificate { view: good.view.next(), ..good.clone() }, "bad signature"),
        ]
    }
}

#[test]
fn bad_certificate_of_timeouts_in_any_message_is_refused() {
    let chained = ["hotstuff", "jolteon", "hotstuff2"];
    for entry in REGISTRY.iter().filter(|entry| chained.contains(&entry.spec.name.as_str())) {
        let name = entry.spec.name;
        let mut door = Door::of(entry);
        let mut rows: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for seen in door.seen.clone() {
            let Some(shown) = Shown::of(&door, &seen) else { continue };
            let n = door.committee.n();
            let form = |count| door.claims(&shown.body(&door, shown.signed_by(&door, first(count)))).err();
            let heard: Vec<_> = (1..=n).map(form).collect();
            let needed = heard.iter().position(Option::is_none).unwrap() + 1;
            assert!(heard[..needed - 1].iter().all(|why| *why == Some("too few timeouts")), "{heard:?}");
            rows.entry(seen.kind.to_string()).or_default().insert(name_of(&door.committee, needed));
            for round in 0..2 {
                for (number, (bad, why)) in shown.bad_ones(&door, needed).into_iter().enumerate() {
                    let body = shown.body(&door, bad);
                    let what = format!("{name} {}, round {round}: number {number}", seen.kind);
                    assert_eq!(door.hears(seen.from, &body), Some(why), "{what}");
                }
                let good = shown.body(&door, shown.signed_by(&door, first(needed)));
                assert_eq!(door.hears(seen.from, &good), None, "{name} {}", seen.kind);
            }
        }
        let kinds =
            if name.as_str() == "hotstuff" { ["next-view", "propose"] } else { ["advance", "propose"] };
        let expected = kinds.map(|kind| (kind.to_owned(), BTreeSet::from(["quorum"])));
        assert_eq!(rows, expected.into(), "{name}");
    }
}
