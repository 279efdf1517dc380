use super::*;
use quorate_types::digest::context;
use quorate_types::rng::Rng;
use quorate_types::{Height, Outcome};

fn digest(sessions: &mut Sessions) -> Digest {
    let mut writer = DigestWriter::new(&context::STATE);
    sessions.digest(&mut writer);
    writer.finish()
}

fn outcome(bytes: usize) -> KeptOutcome {
    let outcome: Arc<[u8]> = Arc::from(Outcome::Done(vec![vec![7; bytes]]).to_bytes());
    KeptOutcome { bundle: BundleDigest::ZERO, result: ReplyBundle::result_digest(&outcome), outcome }
}

#[test]
fn share_of_a_session_depends_on_the_number_of_sessions() {
    for (open, bytes) in [(0, 2 << 20), (1, 2 << 20), (16, 1 << 20), (1_000, 16_777), (5_000, 16 << 10)] {
        assert_eq!(allowance(open), bytes, "{open} sessions");
    }
}

/// A restored replica keeps, forgets and evicts exactly the same outcomes and sessions as the others.
#[test]
fn restored_sessions_keep_forget_and_evict_like_the_originals() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let mut sessions = Sessions::new(20, 1 << 10);
        let mut twin = Sessions::new(20, 1 << 10);
        let mut open: Vec<(SessionId, u64)> = Vec::new();
        for step in 0..400 {
            if rng.chance(50_000) || open.is_empty() {
                let id = SessionId { height: Height(step), index: 0 };
                let (mut gone, mut also_gone) = (Vec::new(), Vec::new());
                let client = PublicKey([u8::try_from(rng.below(3)).unwrap(); 32]);
                sessions.open(client, BundleNo(step), id, &mut gone);
                twin.open(client, BundleNo(step), id, &mut also_gone);
                assert_eq!(gone, also_gone, "seed {seed} step {step}");
                open.retain(|(id, _)| !gone.contains(id));
                open.push((id, 0));
            }
            let at = rng.index(open.len());
            // Sometimes a number is skipped, and the next step fills the gap.
            let gap = u64::from(rng.chance(200_000));
            open[at].1 += 1 + gap;
            let (id, number) = open[at];
            for number in (number - gap..=number).rev() {
                let kept = outcome(rng.index(200_000));
                sessions.record(id, BundleNo(number), kept.clone());
                twin.record(id, BundleNo(number), kept);
            }
            if rng.chance(50_000) {
                let mut snapshot = Snapshot::default();
                let clock = twin.snapshot(&mut snapshot);
                twin = twin.restore(clock, &mut snapshot.chunks()).unwrap();
            }
        }
        assert_eq!(digest(&mut sessions), digest(&mut twin), "seed {seed}");
        for (id, last) in open {
            assert_eq!(sessions.view(id), twin.view(id));
            let kept = |sessions: &Sessions| -> Vec<bool> {
                (1..=last).map(|number| sessions.kept(id, BundleNo(number)).is_some()).collect()
            };
            assert_eq!(kept(&sessions), kept(&twin), "seed {seed}");
            let session = sessions.get(id).unwrap();
            let charges: usize = session.kept.values().map(KeptOutcome::charge).sum();
            assert_eq!(session.kept_bytes, charges);
            assert_eq!(session.kept.len(), session.order.len());
            assert!(charges <= KEPT_SESSION_BYTES_MAX);
        }
    }
}
