//! O5: the lock of two parts, alone (`optsync` §6, §7 Lemma 3).

use super::super::certificates::{RankedCertificates, accepts, highest_of, lock_of};
use super::*;
use quorate_types::rng::Rng;
use quorate_types::{ReplicaId, quorum};
use std::collections::BTreeMap;

/// Two branches of one view, as a lying leader proposes them: heights up to `fork` are common.
#[derive(Debug)]
struct Fork {
    n: u16,
    fork: u64,
    top: u64,
    /// Branch and highest height of the votes of each honest replica.
    honest: Vec<(u64, u64)>,
}

impl Fork {
    fn draw(rng: &mut Rng) -> Self {
        let n = [3, 4, 5, 7][rng.index(4)];
        let (fork, top) = (rng.below(3), 3 + rng.below(2));
        let honest = usize::from(n - (n - 1) / 2);
        // Now and then most are on one branch, or nothing is ever decided.
        let drift = rng.below(1_000_001);
        let mut vote = || (u64::from(rng.chance(u32::try_from(drift).unwrap())), rng.below(top + 1));
        Self { n, fork, top, honest: (0..honest).map(|_| vote()).collect() }
    }

    fn block(&self, branch: u64, height: u64) -> End {
        let branch = if height > self.fork { branch } else { 0 };
        (Height(height), BlockId::null(Height(branch * 100 + height)))
    }

    fn blocks(&self) -> Vec<End> {
        let all = (0..2).flat_map(|branch| (1..=self.top).map(move |height| (branch, height)));
        let mut blocks: Vec<End> = all.map(|(branch, height)| self.block(branch, height)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Whether a block is another one or extends it.
    fn is_above(&self, (height, id): End, low: End) -> bool {
        let on = |branch| {
            self.block(branch, height.0).1 == id && low.0 <= height && self.block(branch, low.0.0) == low
        };
        on(0) || on(1)
    }

    /// Returns the number of votes for a block; liars vote for everything.
    fn votes(&self, block: End) -> usize {
        let voted = |(branch, height): &&(u64, u64)| self.is_above(self.block(*branch, *height), block);
        self.honest.iter().filter(voted).count()
    }

    fn can_gather(&self, block: End, quorum: usize) -> bool {
        let liars = usize::from(self.n) - self.honest.len();
        self.votes(block) > 0 && self.votes(block) + liars >= quorum
    }

    fn weak(&self) -> Vec<Certificate> {
        let quorum = weak(self.n);
        let can = self.blocks().into_iter().filter(|block| self.can_gather(*block, usize::from(quorum)));
        can.map(|block| certificate(1, block, quorum)).collect()
    }

    fn responsive(&self) -> Vec<Certificate> {
        let quorum = quorum::responsive(usize::from(self.n));
        let can = self.blocks().into_iter().filter(|block| self.can_gather(*block, quorum));
        can.map(|block| certificate(1, block, u16::try_from(quorum).unwrap())).collect()
    }

    fn extends(&self, tip: &Certificate, low: &Certificate) -> Option<bool> {
        Some(self.is_above(at(tip), at(low)))
    }

    /// Returns every lock that a liar can show.
    fn locks(&self) -> Vec<Lock> {
        let responsive: Vec<_> =
            std::iter::once(None).chain(self.responsive().into_iter().map(Some)).collect();
        let pairs = self.weak().into_iter().flat_map(|tip| {
            responsive.iter().map(move |high| Lock { responsive: high.clone(), tip: tip.clone() })
        });
        pairs
            .filter(|lock| lock.responsive.as_ref().is_none_or(|high| self.is_above(at(&lock.tip), at(high))))
            .collect()
    }

    /// Returns the lock of a replica that holds these certificates and some others.
    fn lock(&self, rng: &mut Rng, held: &[&Certificate], held_responsive: Option<&Certificate>) -> Lock {
        let mut certificates = RankedCertificates::default();
        for it in held {
            certificates.add(it, Time::ZERO);
        }
        for it in self.weak().iter().filter(|_| rng.chance(500_000)) {
            certificates.add(it, Time::ZERO);
        }
        for it in self.responsive().iter().filter(|_| rng.chance(300_000)).chain(held_responsive) {
            certificates.add_responsive(it);
            certificates.add(it, Time::ZERO);
        }
        lock_of(&certificates, View(2), |_| Some(true), |tip, low| self.extends(tip, low))
    }
}

fn at(certificate: &Certificate) -> End {
    (certificate.statement.height, certificate.block())
}

/// Lemma 3: no lock of a liar makes an honest replica extend a block that leaves out a committed one. All honest replicas
/// extend the lock of an honest leader.
#[test]
fn o5_every_lock_extends_the_committed_block() {
    let mut rng = Rng::new(20);
    let (mut committed, mut refused, mut held_up) = (0, 0, 0);
    for _ in 0..4_000 {
        let fork = Fork::draw(&mut rng);
        let by_votes: Vec<Certificate> = fork.responsive();
        let all = |block: &Certificate| fork.votes(at(block)) == fork.honest.len();
        let by_timer: Vec<Certificate> = fork.weak().into_iter().filter(all).collect();
        let decided: Vec<_> =
            by_votes.iter().map(|it| (it, true)).chain(by_timer.iter().map(|it| (it, false))).collect();
        let decided = (!decided.is_empty()).then(|| decided[rng.index(decided.len())]);
        committed += u32::from(decided.is_some());
        let held: Vec<&Certificate> = decided.iter().map(|(it, _)| *it).collect();
        let held_responsive = decided.filter(|(_, by_votes)| *by_votes).map(|(it, _)| it);
        let locks: Vec<Lock> =
            fork.honest.iter().map(|_| fork.lock(&mut rng, &held, held_responsive)).collect();
        let extends = |tip: &Certificate, low: &Certificate| fork.extends(tip, low);
        let shown = fork.locks();
        for (own, new) in locks.iter().flat_map(|own| shown.iter().map(move |new| (own, new))) {
            let takes = accepts(own, new, extends);
            refused += u32::from(!takes);
            let fits = decided.is_none_or(|(block, _)| fork.is_above(at(&new.tip), at(block)));
            assert!(
                fits || !takes,
                "{fork:#?} has committed {decided:?}, is locked on {own:?}, goes on from {new:?}"
            );
        }
        // Reports of liars are among those of all honest replicas.
        let liars: Vec<Lock> =
            (0..usize::from(fork.n) - fork.honest.len()).filter_map(|_| rng.pick(&shown).cloned()).collect();
        let reports: Vec<Lock> = locks.iter().cloned().chain(liars).collect();
        let reports: BTreeMap<ReplicaId, Lock> = (0..).map(r).zip(reports).collect();
        let chosen = highest_of(&reports, |_| Some(true), extends);
        held_up += locks.iter().filter(|own| !accepts(own, &chosen, extends)).count();
    }
    assert!(committed > 500 && refused > 5_000, "{committed} {refused}: the test tests something");
    assert_eq!(held_up, 0, "an honest leader was refused");
}

/// A replica that has caught up past its certificates may know that the block of the responsive one is settled, and have
/// forgotten a block below. All replicas would refuse a lower tip.
#[test]
fn o5_tip_is_no_lower_than_the_responsive_certificate() {
    let blocks = chain(5, 1, GENESIS, &[1, 2]);
    let (low, high) = (certified(5, &blocks[0]), certificate(1, end(&blocks[1]), 4));
    let mut certificates = RankedCertificates::default();
    certificates.add(&low, Time::ZERO);
    certificates.add(&high, Time::ZERO);
    certificates.add_responsive(&high);
    let fits = |tip: &Certificate| (tip.block() == high.block()).then_some(false);
    let lock = lock_of(&certificates, View(2), fits, |_, _| None);
    assert_eq!((lock.responsive.as_ref(), &lock.tip), (Some(&high), &high));
}

/// The rule case by case. Heights are those of the responsive block and of the tip, and 10 more on another branch.
#[test]
fn o5_locks_are_compared_in_two_parts() {
    let place = |number: u64| (Height(number % 10), BlockId::null(Height(number)));
    let extends = |tip: &Certificate, low: &Certificate| {
        let (tip, low) = (at(tip), at(low));
        let branch = |(height, id): End| id == BlockId::null(height);
        Some(low.0 <= tip.0 && (low.0 == Height(1) || branch(tip) == branch(low)))
    };
    let lock = |view, responsive: Option<u64>, tip| Lock {
        responsive: responsive.map(|it| certificate(view, place(it), 4)),
        tip: certificate(view, place(tip), 3),
    };
    let cases = [
        // Views are compared first.
        (lock(2, None, 3), lock(1, Some(5), 9), false),
        (lock(2, Some(5), 9), lock(3, None, 2), true),
        // Without responsive certificates the height counts, on any branch.
        (lock(2, None, 3), lock(2, None, 2), false),
        (lock(2, None, 3), lock(2, None, 3), true),
        (lock(2, None, 3), lock(2, None, 14), true),
        // The tip is on the higher one of both.
        (lock(2, Some(3), 4), lock(2, None, 15), false),
        (lock(2, Some(3), 4), lock(2, Some(2), 12), false),
        (lock(2, Some(2), 4), lock(2, Some(3), 4), true),
        // An own tip on its chain is no higher.
        (lock(2, None, 3), lock(2, Some(2), 2), false),
        (lock(2, None, 3), lock(2, Some(2), 3), true),
        (lock(2, Some(2), 4), lock(2, Some(3), 3), false),
        (lock(2, None, 2), lock(2, Some(3), 3), true),
        // An own tip that conflicts with it is committed by nobody.
        (lock(2, None, 15), lock(2, Some(2), 2), true),
    ];
    for (own, shown, expected) in cases {
        assert_eq!(accepts(&own, &shown, extends), expected, "{:?} and {:?}", own.name(), shown.name());
    }
}
