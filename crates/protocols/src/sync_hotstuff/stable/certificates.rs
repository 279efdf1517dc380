//! Votes and certificates of the current view and the one before, and the highest certificate of all.

use super::statements::{Lock, rank, vote};
use quorate_consensus::Certificate;
use quorate_types::{BlockId, Height, ReplicaId, Signature, Time, View};
use std::collections::BTreeMap;

/// A place for which a replica votes once.
type Rank = (View, Height);

/// Result of counting a vote.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum VoteCount {
    /// Counted; so many distinct replicas have voted for this block now.
    Counted(usize),
    /// The same vote was counted before.
    Again,
    /// The replica voted for another block at this place before; only that vote counts.
    Conflict(BlockId, Signature),
}

/// Votes and certificates by place.
#[derive(Clone, Debug, Default)]
pub(super) struct RankedCertificates {
    /// The first vote of each replica at each place. Bounded by the window of heights and views.
    votes: BTreeMap<Rank, BTreeMap<ReplicaId, (BlockId, Signature)>>,
    weak: BTreeMap<Rank, Certificate>,
    /// Arrival of each certificate in `weak`.
    arrivals: BTreeMap<Rank, Time>,
    /// Certificates of q_R votes; they are in `weak` as well.
    responsive: BTreeMap<Rank, Certificate>,
}

impl RankedCertificates {
    /// Counts a vote.
    pub(super) fn add_vote(
        &mut self,
        at: Rank,
        block: BlockId,
        by: ReplicaId,
        signature: Signature,
    ) -> VoteCount {
        let votes = self.votes.entry(at).or_default();
        match votes.get(&by) {
            Some((first, _)) if *first == block => VoteCount::Again,
            Some((first, said)) => VoteCount::Conflict(*first, *said),
            None => {
                votes.insert(by, (block, signature));
                VoteCount::Counted(self.voters(at, block))
            }
        }
    }

    /// Returns how many replicas have voted for a block at a place.
    pub(super) fn voters(&self, at: Rank, block: BlockId) -> usize {
        let votes = self.votes.get(&at).into_iter().flat_map(BTreeMap::values);
        votes.filter(|(voted, _)| *voted == block).count()
    }

    /// Returns the certificate of the votes for a block.
    pub(super) fn gather(&self, (view, height): Rank, block: BlockId) -> Certificate {
        let votes = self.votes.get(&(view, height)).into_iter().flatten();
        let votes: Vec<(ReplicaId, Signature)> = votes
            .filter(|(_, (voted, _))| *voted == block)
            .map(|(by, (_, signature))| (*by, *signature))
            .collect();
        Certificate::of(vote(view, height, block), &votes)
    }

    /// Keeps a certificate; true when none was known at its place.
    pub(super) fn add(&mut self, certificate: &Certificate, now: Time) -> bool {
        let at = rank(certificate);
        let is_new = !self.weak.contains_key(&at);
        if is_new {
            self.weak.insert(at, certificate.clone());
            self.arrivals.insert(at, now);
        }
        is_new
    }

    /// Returns when a kept certificate arrived.
    pub(super) fn arrival(&self, certificate: &Certificate) -> Time {
        self.arrivals.get(&rank(certificate)).copied().unwrap_or_default()
    }

    /// Keeps a certificate of q_R votes; true when none was known at its place. It replaces a certificate of f + 1 votes for
    /// another block at its place: nobody extends that block, and no timer commits it (`optsync` §8, Lemma 2 b).
    pub(super) fn add_responsive(&mut self, certificate: &Certificate) -> bool {
        let at = rank(certificate);
        let is_new = !self.responsive.contains_key(&at);
        if is_new {
            if self.weak.get(&at).is_some_and(|weak| weak.block() != certificate.block()) {
                self.weak.remove(&at);
            }
            self.responsive.insert(at, certificate.clone());
        }
        is_new
    }

    /// Whether no certificate of q_R votes is known above this one.
    pub(super) fn is_highest_responsive(&self, certificate: &Certificate) -> bool {
        self.responsive.last_key_value().is_none_or(|(highest, _)| *highest <= rank(certificate))
    }

    /// Returns the certificate at a place.
    pub(super) fn at(&self, view: View, height: Height) -> Option<&Certificate> {
        self.weak.get(&(view, height))
    }

    /// Whether a certificate of q_R votes is known at a place.
    pub(super) fn is_responsive(&self, view: View, height: Height) -> bool {
        self.responsive.contains_key(&(view, height))
    }

    /// Returns certificates of a view at or above a height, lowest first.
    pub(super) fn from(&self, view: View, height: Height) -> impl DoubleEndedIterator<Item = &Certificate> {
        self.weak.range((view, height)..=(view, Height::MAX)).map(|(_, certificate)| certificate)
    }

    /// Returns all certificates, highest first.
    pub(super) fn down(&self) -> impl Iterator<Item = &Certificate> {
        self.weak.values().rev()
    }

    /// Returns the highest certificate.
    pub(super) fn highest(&self) -> Option<&Certificate> {
        self.weak.last_key_value().map(|(_, certificate)| certificate)
    }

    /// Returns the highest view below another one that has a certificate.
    pub(super) fn last_view_before(&self, view: View) -> Option<View> {
        self.weak.range(..(view, Height::ZERO)).next_back().map(|((view, _), _)| *view)
    }

    /// Returns the certificates of a view, highest first.
    pub(super) fn of_view(&self, view: View) -> impl Iterator<Item = &Certificate> {
        self.from(view, Height::ZERO).rev()
    }

    /// Returns the highest certificate of q_R votes of a view.
    pub(super) fn highest_responsive(&self, view: View) -> Option<&Certificate> {
        let all = self.responsive.range((view, Height::ZERO)..=(view, Height::MAX));
        all.last().map(|(_, certificate)| certificate)
    }

    /// Returns certificates for a recovering peer: the highest ones of the last two views, responsive ones as well.
    pub(super) fn newest(&self) -> Vec<Certificate> {
        let mut newest: Vec<Certificate> = Vec::new();
        let Some(last) = self.highest().map(Certificate::view) else { return newest };
        for view in std::iter::once(last).chain(self.last_view_before(last)) {
            let highest = self.of_view(view).next();
            newest.extend(highest.into_iter().chain(self.highest_responsive(view)).cloned());
        }
        newest
    }

    /// Forgets certificates that no rule needs: those below the committed height, and those of views before the last two. The
    /// next lock is made of the entered view and the views before it. So their highest certificate stays, whatever is known
    /// of later views, and the highest certificate of q_R votes of each view (`optsync` §3, §6).
    pub(super) fn prune(&mut self, view: View, committed: Height) {
        let highest = self.weak.last_key_value().map(|(at, _)| *at);
        let lock = self.weak.range(..(view.next(), Height::ZERO)).next_back().map(|(at, _)| *at);
        let oldest = lock.map_or(view, |(last, _)| last).minus(1);
        let matters = |at: &Rank| at.0 >= oldest && at.1 >= committed;
        self.votes.retain(|at, _| at.1 >= committed && at.0 >= view.minus(1));
        self.weak.retain(|at, _| matters(at) || Some(*at) == highest || Some(*at) == lock);
        let weak = &self.weak;
        self.arrivals.retain(|at, _| weak.contains_key(at));
        let tops: BTreeMap<View, Height> = self.responsive.keys().copied().collect();
        let is_top = |at: &Rank| at.0 >= oldest && tops.get(&at.0) == Some(&at.1);
        self.responsive.retain(|at, _| matters(at) || is_top(at) || Some(*at) == highest);
    }
}

/// Returns the lock of certificates (`optsync` §6; without responsive ones that of `sync-hotstuff` §6). It consists of the
/// highest responsive certificate of the highest view, and of the highest certificate on or above that one (`extends`).
/// Certificates that nobody may extend (`fits`) do not count. A view that has no others does not count either.
pub(super) fn lock_of(
    certificates: &RankedCertificates,
    entered: View,
    fits: impl Fn(&Certificate) -> Option<bool>,
    extends: impl Fn(&Certificate, &Certificate) -> Option<bool>,
) -> Lock {
    let is_before = |it: &&Certificate| it.view() < entered && fits(it) != Some(false);
    let highest =
        [certificates.down().find(is_before), certificates.responsive.values().rev().find(is_before)];
    let fitting = highest.into_iter().flatten().map(Certificate::view).max();
    let Some(view) = fitting else { return Lock::genesis() };
    let responsive = certificates.highest_responsive(view).into_iter().collect();
    pick(responsive, certificates.of_view(view).collect(), fits, extends)
}

/// Returns the lock that a new leader extends, of all reported locks (`optsync` §6). It consists of the highest responsive
/// certificate of the highest view, and of the highest tip on or above that one.
pub(super) fn highest_of(
    locks: &BTreeMap<ReplicaId, Lock>,
    fits: impl Fn(&Certificate) -> Option<bool>,
    extends: impl Fn(&Certificate, &Certificate) -> Option<bool>,
) -> Lock {
    let fitting = locks.values().filter(|lock| fits(&lock.tip) != Some(false)).map(Lock::view).max();
    let Some(view) = fitting.or_else(|| locks.values().map(Lock::view).max()) else { return Lock::genesis() };
    let of_view = || locks.values().filter(|lock| lock.view() == view);
    let responsive = of_view().filter_map(|lock| lock.responsive.as_ref()).collect();
    pick(responsive, of_view().map(|lock| &lock.tip).collect(), fits, extends)
}

/// Returns the highest responsive certificate of one view, and the highest tip on or above it.
fn pick<'a>(
    responsive: Vec<&'a Certificate>,
    mut tips: Vec<&'a Certificate>,
    fits: impl Fn(&Certificate) -> Option<bool>,
    extends: impl Fn(&Certificate, &Certificate) -> Option<bool>,
) -> Lock {
    let responsive = responsive.into_iter().max_by_key(|high| rank(high));
    tips.extend(responsive);
    // Unknown ancestry excludes no block: its header is on its way.
    if tips.iter().any(|tip| fits(tip) != Some(false)) {
        tips.retain(|tip| fits(tip) != Some(false));
    }
    // A lower tip is not above it, whatever is known of its block: settled blocks may be forgotten.
    let above = |tip: &&&Certificate| {
        responsive.is_none_or(|high| rank(tip) >= rank(high) && extends(tip, high) != Some(false))
    };
    let tip = tips.iter().filter(above).max_by_key(|tip| rank(tip)).copied().or(responsive);
    match tip {
        Some(tip) => Lock { responsive: responsive.cloned(), tip: tip.clone() },
        None => Lock::genesis(),
    }
}

/// Whether a locked replica extends the lock that a new leader shows (`optsync` §6, `accept`). Without responsive
/// certificates it does if the rank is not lower (`sync-hotstuff` §6). `extends(a, b)`: whether `a` is `b` or extends it.
pub(super) fn accepts(
    own: &Lock,
    shown: &Lock,
    extends: impl Fn(&Certificate, &Certificate) -> Option<bool>,
) -> bool {
    if shown.view() != own.view() {
        return shown.view() > own.view();
    }
    let responsive = own.responsive.iter().chain(&shown.responsive).max_by_key(|high| rank(high));
    if responsive.is_some_and(|high| extends(&shown.tip, high) != Some(true)) {
        return false;
    }
    // A lower tip could leave out a block that a timer has committed above the responsive certificate.
    let conflicts = responsive
        .is_some_and(|high| extends(&own.tip, high) == Some(false) && extends(high, &own.tip) == Some(false));
    conflicts || rank(&shown.tip) >= rank(&own.tip)
}
