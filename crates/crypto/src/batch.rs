//! Checks of many signatures in one equation.
//!
//! The random linear combination of all equations of a batch vanishes if and only if each of them does, up to a
//! chance of 2^-128. The coefficients are a hash of everything in the batch, so nobody can choose them before the
//! signatures are fixed. Every replica that forms the same batch computes the same coefficients.

use crate::ed25519::{self, Parsed};
use crate::key::VerifyKey;
use curve25519_dalek::constants::ED25519_BASEPOINT_POINT;
use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::VartimeMultiscalarMul;
use quorate_types::digest::{DigestStream, context};
use quorate_types::{DigestWriter, Ledger, Signature};

/// The largest number of signatures in one equation. From about 190 points on, the curve crate uses an algorithm that
/// gains little beyond this size. A longer check would also delay a turn too much.
pub const BATCH_MAX: usize = 256;

/// The largest piece of a failed batch whose signatures are checked one by one.
const PIECE_MIN: usize = 4;

/// The number of bad signatures in one equation after which the rest is checked one by one. A batch of bad signatures
/// thus costs at most about twice the single checks.
const BISECT_BAD_MAX: usize = 8;

/// One signature that waits for its batch.
pub(crate) struct Entry<'a> {
    key: &'a VerifyKey,
    minus_a: &'a EdwardsPoint,
    /// The key's place in the tables. It has no meaning without tables.
    slot: usize,
    /// The index of the verdict.
    place: usize,
    signature: Signature,
    parsed: Parsed,
    coefficient: Scalar,
}

/// Signatures that are checked together. Verdicts have the order of the pushes.
///
/// The caller may push any number. Each equation has up to [`BATCH_MAX`] signatures. A lone signature is checked alone,
/// which is cheaper than a batch of one.
#[derive(Default)]
pub struct Batch<'a> {
    verdicts: Vec<bool>,
    entries: Vec<Entry<'a>>,
    singles: usize,
}

impl<'a> Batch<'a> {
    /// Returns an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty batch with room for `count` signatures.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self { verdicts: Vec::with_capacity(count), entries: Vec::with_capacity(count), singles: 0 }
    }

    /// Adds a signature of `key` on `message`. A malformed signature gets its verdict at once and spoils no equation.
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

    /// Adds a verdict that is known already.
    pub(crate) fn push_verdict(&mut self, holds: bool) {
        self.verdicts.push(holds);
        self.singles = self.singles.saturating_add(1);
    }

    /// Returns the number of pushed signatures.
    #[must_use]
    pub fn len(&self) -> usize {
        self.verdicts.len()
    }

    /// Whether the batch has no signature.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty()
    }

    /// Checks all signatures and returns, for each push, whether the signature holds. The verdict equals that of
    /// [`VerifyKey::verify`]. Adds the cost to `ledger`.
    #[must_use]
    pub fn check(self, ledger: &mut Ledger) -> Vec<bool> {
        self.check_by(BATCH_MAX, sum_of_any, ledger)
    }

    /// Checks in the same way as [`Batch::check`]. Equations have up to `most` signatures, and `sum_of` computes
    /// their sums.
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
                    set_verdict(&mut self.verdicts, entry, ed25519::holds(entry.minus_a, &entry.parsed));
                }
                continue;
            }
            // Sorting puts equal keys side by side. Each distinct key then has one term, and the bad signatures of
            // one signer lie in one piece.
            entries.sort_unstable_by_key(|entry| (entry.slot, entry.key.public()));
            draw_coefficients(entries);
            let mut bisection =
                Bisection { sum_of: &sum_of, verdicts: &mut self.verdicts, bad: 0, singles: 0 };
            bisection.check(entries, &sum_of(entries));
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

fn set_verdict(verdicts: &mut [bool], entry: &Entry<'_>, holds: bool) {
    if let Some(verdict) = verdicts.get_mut(entry.place) {
        *verdict = holds;
    }
}

/// Draws 128-bit coefficients from a stream over all (k, R, s, A).
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
    /// The factor of the base point.
    pub(crate) base: Scalar,
    /// For each key: its slot, `-A`, and the factor of `-A`.
    pub(crate) keys: Vec<(usize, EdwardsPoint, Scalar)>,
}

/// Collects the terms of `entries`, whose equal keys stand side by side.
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

/// Returns factors and points of the terms `-z R`.
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

/// A search for the bad signatures of an equation that does not hold.
struct Bisection<'b, F> {
    sum_of: &'b F,
    verdicts: &'b mut Vec<bool>,
    bad: usize,
    singles: usize,
}

impl<'a, F: Fn(&[Entry<'a>]) -> EdwardsPoint> Bisection<'_, F> {
    /// Sets the verdicts of `entries`, whose terms add up to `sum`.
    fn check(&mut self, entries: &[Entry<'a>], sum: &EdwardsPoint) {
        if ed25519::vanishes(sum) {
            for entry in entries {
                set_verdict(self.verdicts, entry, true);
            }
            return;
        }
        if entries.len() <= PIECE_MIN || self.bad >= BISECT_BAD_MAX {
            for entry in entries {
                let holds = ed25519::holds(entry.minus_a, &entry.parsed);
                set_verdict(self.verdicts, entry, holds);
                self.bad = self.bad.saturating_add(usize::from(!holds));
            }
            self.singles = self.singles.saturating_add(entries.len());
            return;
        }
        // The sum is linear, so the right half's sum is the difference and costs nothing.
        let (left, right) = entries.split_at(entries.len() / 2);
        let left_sum = (self.sum_of)(left);
        self.check(left, &left_sum);
        self.check(right, &(sum - left_sum));
    }
}
