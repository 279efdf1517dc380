//! Many signatures in one equation.
//!
//! The random linear combination of all equations of a batch vanishes if and only if (up to a chance of
//! 2^-128) each of them does. The coefficients are a hash of everything in the batch, so nobody can choose
//! them before the signatures are fixed, and every replica that forms the same batch computes the same.

use crate::ed25519::{self, Parsed};
use crate::key::VerifyKey;
use curve25519_dalek::constants::ED25519_BASEPOINT_POINT;
use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::VartimeMultiscalarMul;
use quorate_types::digest::{DigestStream, context};
use quorate_types::{DigestWriter, Ledger, Signature};

/// Signatures in one equation at most: from about 190 points the curve crate changes to an algorithm that
/// gains little more beyond this, while a check must not hold up a turn for long.
pub const BATCH_MAX: usize = 256;

/// Pieces of this size and smaller are checked one by one when a batch failed.
const PIECE_MIN: usize = 4;

/// After this many bad signatures in one equation the rest is checked one by one, so that a batch full of
/// bad ones costs about twice the single checks and not more.
const BISECT_BAD_MAX: usize = 8;

/// One signature that waits for its batch.
pub(crate) struct Entry<'a> {
    key: &'a VerifyKey,
    minus_a: &'a EdwardsPoint,
    /// Where the key stands in the tables; without meaning where there are none.
    slot: usize,
    /// Where the verdict goes.
    place: usize,
    signature: Signature,
    parsed: Parsed,
    coefficient: Scalar,
}

/// Signatures that are checked together. Verdicts come in the order of the pushes.
///
/// Any number may be pushed; equations are formed of up to [`BATCH_MAX`]. A lone signature is checked alone,
/// which is cheaper than a batch of one.
#[derive(Default)]
pub struct Batch<'a> {
    verdicts: Vec<bool>,
    entries: Vec<Entry<'a>>,
    singles: usize,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `count` signatures.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self { verdicts: Vec::with_capacity(count), entries: Vec::with_capacity(count), singles: 0 }
    }

    /// Adds a signature of `key` on `message`. What is malformed is decided here and spoils no equation.
    pub fn push(&mut self, key: &'a VerifyKey, message: &[u8], signature: &Signature) {
        self.push_in_slot(key, 0, message, signature);
    }

    pub(crate) fn push_in_slot(
        &mut self,
        key: &'a VerifyKey,
        slot: usize,
        message: &[u8],
        signature: &Signature,
    ) {
        let place = self.verdicts.len();
        let Some(minus_a) = key.minus_point() else {
            self.push_verdict(key.verify(message, signature));
            return;
        };
        let Some(parsed) = ed25519::parse(&key.public(), message, signature) else {
            self.push_verdict(false);
            return;
        };
        self.verdicts.push(false);
        self.entries.push(Entry {
            key,
            minus_a,
            slot,
            place,
            signature: *signature,
            parsed,
            coefficient: Scalar::ZERO,
        });
    }

    /// Adds a place whose verdict is known already.
    pub(crate) fn push_verdict(&mut self, holds: bool) {
        self.verdicts.push(holds);
        self.singles = self.singles.saturating_add(1);
    }

    /// How many were pushed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.verdicts.len()
    }

    /// Whether nothing was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty()
    }

    /// Checks all of it: for each push, whether the signature holds. The answer is the one that
    /// [`VerifyKey::verify`] gives. What it cost is added to `ledger`.
    #[must_use]
    pub fn check(self, ledger: &mut Ledger) -> Vec<bool> {
        self.check_by(BATCH_MAX, sum_of_any, ledger)
    }

    /// As [`Batch::check`], with equations of up to `most` signatures whose sums `sum_of` computes.
    pub(crate) fn check_by(
        mut self,
        most: usize,
        sum_of: impl Fn(&[Entry<'a>]) -> EdwardsPoint,
        ledger: &mut Ledger,
    ) -> Vec<bool> {
        let mut singles = self.singles;
        for entries in self.entries.chunks_mut(most.max(1)) {
            if entries.len() < 2 {
                singles = singles.saturating_add(entries.len());
                for entry in entries {
                    note(&mut self.verdicts, entry, ed25519::holds(entry.minus_a, &entry.parsed));
                }
                continue;
            }
            // Equal keys side by side: one term for each distinct key, and the bad signatures of one
            // signer in one piece.
            entries.sort_unstable_by_key(|entry| (entry.slot, entry.key.public()));
            draw_coefficients(entries);
            let mut bisection =
                Bisection { sum_of: &sum_of, verdicts: &mut self.verdicts, bad: 0, singles: 0 };
            bisection.settle(entries, &sum_of(entries));
            singles = singles.saturating_add(bisection.singles);
            ledger.batches = ledger.batches.saturating_add(1);
            ledger.signatures_batched = ledger.signatures_batched.saturating_add(count(entries.len()));
        }
        let bad = self.verdicts.iter().filter(|holds| !**holds).count();
        ledger.signatures_single = ledger.signatures_single.saturating_add(count(singles));
        ledger.signatures_bad = ledger.signatures_bad.saturating_add(count(bad));
        self.verdicts
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn note(verdicts: &mut [bool], entry: &Entry<'_>, holds: bool) {
    if let Some(verdict) = verdicts.get_mut(entry.place) {
        *verdict = holds;
    }
}

/// 128-bit coefficients from a stream over all (k, R, s, A).
fn draw_coefficients(entries: &mut [Entry<'_>]) {
    let mut all = Vec::with_capacity(entries.len().saturating_mul(128));
    for entry in entries.iter() {
        all.extend_from_slice(entry.parsed.k.as_bytes());
        all.extend_from_slice(&entry.signature.0);
        all.extend_from_slice(&entry.key.public().0);
    }
    let mut seed = DigestWriter::new(&context::BATCH);
    let mut stream = DigestStream::new(seed.update(&all));
    for entry in entries {
        let mut bytes = [0; 16];
        stream.fill(&mut bytes);
        entry.coefficient = Scalar::from(u128::from_le_bytes(bytes));
    }
}

/// The terms of one equation, `Σ z (s B - k A - R)`, with one term for each distinct key.
pub(crate) struct Terms {
    /// Factor of the base point.
    pub(crate) base: Scalar,
    /// Slot, `-A` and its factor.
    pub(crate) keys: Vec<(usize, EdwardsPoint, Scalar)>,
}

/// Collects the terms of `entries`, in which equal keys stand side by side.
pub(crate) fn terms(entries: &[Entry<'_>]) -> Terms {
    let mut base = Scalar::ZERO;
    let mut keys: Vec<(usize, EdwardsPoint, Scalar)> = Vec::with_capacity(entries.len());
    for run in entries.chunk_by(|a, b| a.slot == b.slot && a.key.public() == b.key.public()) {
        let mut factor = Scalar::ZERO;
        for entry in run {
            base += entry.coefficient * entry.parsed.s;
            factor += entry.coefficient * entry.parsed.k;
        }
        if let Some(first) = run.first() {
            keys.push((first.slot, *first.minus_a, factor));
        }
    }
    Terms { base, keys }
}

/// Factors and points of the terms `-z R`.
pub(crate) fn commitments<'a>(
    entries: &'a [Entry<'_>],
) -> (impl Iterator<Item = Scalar> + 'a, impl Iterator<Item = EdwardsPoint> + 'a) {
    (entries.iter().map(|entry| entry.coefficient), entries.iter().map(|entry| entry.parsed.minus_r))
}

fn sum_of_any(entries: &[Entry<'_>]) -> EdwardsPoint {
    let Terms { base, keys } = terms(entries);
    let (factors, points) = commitments(entries);
    let factors = keys.iter().map(|key| key.2).chain(factors);
    let points = keys.iter().map(|key| key.1).chain(points);
    EdwardsPoint::vartime_multiscalar_mul(
        std::iter::once(base).chain(factors),
        std::iter::once(ED25519_BASEPOINT_POINT).chain(points),
    )
}

/// Finds the bad signatures of an equation that does not hold.
struct Bisection<'b, F> {
    sum_of: &'b F,
    verdicts: &'b mut Vec<bool>,
    bad: usize,
    singles: usize,
}

impl<'a, F: Fn(&[Entry<'a>]) -> EdwardsPoint> Bisection<'_, F> {
    /// Decides `entries`, whose terms add up to `sum`.
    fn settle(&mut self, entries: &[Entry<'a>], sum: &EdwardsPoint) {
        if ed25519::vanishes(sum) {
            for entry in entries {
                note(self.verdicts, entry, true);
            }
            return;
        }
        if entries.len() <= PIECE_MIN || self.bad >= BISECT_BAD_MAX {
            for entry in entries {
                let holds = ed25519::holds(entry.minus_a, &entry.parsed);
                note(self.verdicts, entry, holds);
                self.bad = self.bad.saturating_add(usize::from(!holds));
            }
            self.singles = self.singles.saturating_add(entries.len());
            return;
        }
        // The sum is linear: what the left half does not account for is the right half's, for free.
        let (left, right) = entries.split_at(entries.len() / 2);
        let left_sum = (self.sum_of)(left);
        self.settle(left, &left_sum);
        self.settle(right, &(sum - left_sum));
    }
}
