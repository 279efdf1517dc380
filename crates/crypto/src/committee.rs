//! The keys of a committee, prepared once per epoch.

use crate::aggregate::AggregateSignature;
use crate::batch::{Batch, Entry, commitments, terms};
use crate::error::BadKey;
use crate::key::{Scheme, VerifyKey};
use curve25519_dalek::constants::ED25519_BASEPOINT_POINT;
use curve25519_dalek::edwards::{EdwardsPoint, VartimeEdwardsPrecomputation};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::VartimePrecomputedMultiscalarMul;
use quorate_types::{Committee, Ledger, ReplicaId, ReplicaSet, Signature};
use std::fmt;

/// The largest committee for which tables pay.
const TABLE_KEYS_MAX: usize = 100;
/// The largest equation for which tables pay. Larger equations are cheaper without them.
const TABLE_BATCH_MAX: usize = 128;

/// A member's key that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("key of replica {replica}: {why}")]
pub struct BadMember {
    /// The replica that owns the key.
    pub replica: ReplicaId,
    /// The reason.
    pub why: BadKey,
}

/// The keys of a committee's statements, and tables that make checks cheaper. Building them takes about 40 µs for each
/// replica, once per epoch. Users share them behind an `Arc`.
pub struct CommitteeKeys {
    keys: Vec<VerifyKey>,
    /// The base point, then the negatives of the keys by id. `None` where tables do not pay.
    tables: Option<VartimeEdwardsPrecomputation>,
}

impl CommitteeKeys {
    /// Checks and prepares the committee's keys.
    ///
    /// # Errors
    /// Fails with the first member whose key is refused.
    pub fn new(scheme: Scheme, committee: &Committee) -> Result<Self, BadMember> {
        let keys: Vec<VerifyKey> = committee
            .ids()
            .zip(&committee.members)
            .map(|(replica, member)| {
                VerifyKey::register(scheme, member.sign).map_err(|why| BadMember { replica, why })
            })
            .collect::<Result<_, _>>()?;
        let tables = (scheme == Scheme::Ed25519 && keys.len() <= TABLE_KEYS_MAX).then(|| {
            let points = keys.iter().filter_map(VerifyKey::minus_point);
            VartimeEdwardsPrecomputation::new(std::iter::once(&ED25519_BASEPOINT_POINT).chain(points))
        });
        Ok(Self { keys, tables })
    }

    /// Returns a member's key; `None` for an id that is not a member.
    #[must_use]
    pub fn key(&self, by: ReplicaId) -> Option<&VerifyKey> {
        self.keys.get(by.index())
    }

    /// Whether `signature` is the signature of member `by` on `preimage`. [`CommitteeKeys::check`] is cheaper for
    /// several signatures.
    #[must_use]
    pub fn verify(
        &self,
        by: ReplicaId,
        preimage: &[u8; 32],
        signature: &Signature,
        ledger: &mut Ledger,
    ) -> bool {
        let holds = self.key(by).is_some_and(|key| key.verify(preimage, signature));
        ledger.signatures_single = ledger.signatures_single.saturating_add(1);
        ledger.signatures_bad = ledger.signatures_bad.saturating_add(u64::from(!holds));
        holds
    }

    /// Checks signatures of members together and returns, for each, whether it holds. The signature of a non-member
    /// does not hold.
    #[must_use]
    pub fn check<'c>(
        &self,
        claims: impl IntoIterator<Item = (ReplicaId, &'c [u8; 32], &'c Signature)>,
        ledger: &mut Ledger,
    ) -> Vec<bool> {
        let claims = claims.into_iter();
        let mut batch = Batch::with_capacity(claims.size_hint().0);
        for (by, preimage, signature) in claims {
            match self.key(by) {
                Some(key) => batch.push_in_slot(key, by.index(), preimage, signature),
                None => batch.push_verdict(false),
            }
        }
        match &self.tables {
            Some(tables) if batch.len() <= TABLE_BATCH_MAX => {
                let places = self.keys.len().saturating_add(1);
                batch.check_by(TABLE_BATCH_MAX, |entries| sum_by(tables, places, entries), ledger)
            }
            _ => batch.check(ledger),
        }
    }

    /// Whether `proof` consists of the signatures of exactly `signers` on `preimage`. The caller checks that a
    /// certificate has enough signers.
    #[must_use]
    pub fn verify_aggregate(
        &self,
        signers: &ReplicaSet,
        preimage: &[u8; 32],
        proof: &AggregateSignature,
        ledger: &mut Ledger,
    ) -> bool {
        let AggregateSignature::List(signatures) = proof;
        if signatures.len() != signers.len() {
            return false;
        }
        let claims = signers.iter().zip(signatures).map(|(by, signature)| (by, preimage, signature));
        self.check(claims, ledger).into_iter().all(|holds| holds)
    }
}

impl fmt::Debug for CommitteeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CommitteeKeys").field(&self.keys).finish()
    }
}

fn sum_by(tables: &VartimeEdwardsPrecomputation, places: usize, entries: &[Entry<'_>]) -> EdwardsPoint {
    let terms = terms(entries);
    let mut factors = vec![Scalar::ZERO; places];
    let by_slot = terms.keys.iter().map(|(slot, _, factor)| (slot.saturating_add(1), *factor));
    for (place, factor) in std::iter::once((0, terms.base)).chain(by_slot) {
        if let Some(sum) = factors.get_mut(place) {
            *sum = factor;
        }
    }
    let (dynamic_factors, points) = commitments(entries);
    tables.vartime_mixed_multiscalar_mul(factors, dynamic_factors, points)
}
