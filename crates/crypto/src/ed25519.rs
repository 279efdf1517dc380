//! The Ed25519 rule of this project, ZIP 215, and the equation that single checks and batches share.
//!
//! A signature (R, s) of key A on message m is valid if and only if:
//!
//! * s is canonical;
//! * R and A decode, where R may have a non-canonical encoding;
//! * `[8][s]B = [8]R + [8][k]A` with `k = SHA-512(R ‖ A ‖ m)`.
//!
//! Single and batch checks agree under this rule. The factor 8 removes the part on which random coefficients and a
//! single equation can differ. Replicas that disagree about one vote would fork.

use crate::error::BadKey;
use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity;
use quorate_types::{PublicKey, Signature};
use sha2::{Digest as _, Sha512};

/// Decodes a key, and refuses keys under which the rule is unsound. A signature by a small-order key holds for every
/// message. A key with a torsion part or a second encoding would be two identities.
///
/// Returns `-A`, the form that both equations need.
pub(crate) fn register(key: &PublicKey) -> Result<EdwardsPoint, BadKey> {
    let point = CompressedEdwardsY(key.0).decompress().ok_or(BadKey::NotAPoint)?;
    if point.is_small_order() {
        return Err(BadKey::SmallOrder);
    }
    if !point.is_torsion_free() {
        return Err(BadKey::Torsion);
    }
    if point.compress().0 != key.0 {
        return Err(BadKey::NotCanonical);
    }
    Ok(-point)
}

/// A well-formed signature, with the challenge k of its message.
pub(crate) struct Parsed {
    pub(crate) k: Scalar,
    pub(crate) s: Scalar,
    pub(crate) minus_r: EdwardsPoint,
}

/// Decodes a signature of `key` on `message`. Returns `None` when s is not canonical or R is not a point.
pub(crate) fn parse(key: &PublicKey, message: &[u8], signature: &Signature) -> Option<Parsed> {
    let (r, s) = signature.0.split_first_chunk::<32>()?;
    let s = Scalar::from_canonical_bytes(*s.first_chunk::<32>()?).into_option()?;
    let minus_r = -CompressedEdwardsY(*r).decompress()?;
    let mut hash = Sha512::new();
    hash.update(r);
    hash.update(key.0);
    hash.update(message);
    let k = Scalar::from_bytes_mod_order_wide(&hash.finalize().into());
    Some(Parsed { k, s, minus_r })
}

/// Whether one signature holds under the key whose negative is `minus_a`.
pub(crate) fn holds(minus_a: &EdwardsPoint, parsed: &Parsed) -> bool {
    let sum = EdwardsPoint::vartime_double_scalar_mul_basepoint(&parsed.k, minus_a, &parsed.s);
    vanishes(&(sum + parsed.minus_r))
}

/// Whether a sum `[s]B - [k]A - R`, or a linear combination of such sums, vanishes as for valid signatures.
pub(crate) fn vanishes(sum: &EdwardsPoint) -> bool {
    sum.mul_by_cofactor().is_identity()
}

/// Returns the arithmetic that the curve crate runs on this processor: `avx512`, `avx2`, `fiat` or `serial`. Every
/// status and report names it, because it makes 30 to 40 % of the cost of a check.
#[must_use]
#[allow(unexpected_cfgs, reason = "the curve crate's own cfg, set for the whole build in .cargo/config.toml")]
pub fn curve_backend() -> &'static str {
    if cfg!(curve25519_dalek_backend = "fiat") {
        return "fiat";
    }
    if cfg!(curve25519_dalek_backend = "serial") {
        return "serial";
    }
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
    {
        // The curve crate also compiles this path when the whole build is for such a processor.
        let compiled = cfg!(curve25519_dalek_backend = "avx512")
            || (!cfg!(curve25519_dalek_backend = "simd")
                && cfg!(all(target_feature = "avx512ifma", target_feature = "avx512vl")));
        if compiled && is_x86_feature_detected!("avx512ifma") && is_x86_feature_detected!("avx512vl") {
            return "avx512";
        }
        if is_x86_feature_detected!("avx2") {
            return "avx2";
        }
    }
    "serial"
}
