//! # quorate-crypto
//!
//! Signatures: what is signed, who signs it, and whether it holds, one by one or in batches. Pure: no I/O, no
//! threads, no randomness of its own.
//!
//! * What a key signs is made in one place: [`statement_preimage`] for replicas, [`bundle_preimage`] for clients.
//! * One rule decides whether a signature is valid, and single checks, batches and committee tables agree on
//!   it: ZIP 215 (`ed25519.rs`). Nothing else in the project checks an Ed25519 signature of a bundle or a
//!   statement.
//! * A key enters through [`VerifyKey::register`], which refuses the keys that would make the rule unsound.
//!
//! Not here: files, file modes and making keys (the node has the randomness); TLS (the links have it); when
//! to form a batch (the intake knows what waits).
//!
//! ```
//! use quorate_crypto::{Batch, Scheme, SigningKey, VerifyKey};
//! use quorate_types::Ledger;
//!
//! let signer = SigningKey::from_seed(Scheme::Ed25519, [7; 32]);
//! let key = VerifyKey::register(Scheme::Ed25519, signer.public())?;
//! let mut batch = Batch::new();
//! batch.push(&key, b"one", &signer.sign(b"one"));
//! batch.push(&key, b"two", &signer.sign(b"one"));
//! assert_eq!(batch.check(&mut Ledger::default()), [true, false]);
//! # Ok::<(), quorate_crypto::BadKey>(())
//! ```

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod aggregate;
mod batch;
mod committee;
mod ed25519;
mod key;
mod pem;
mod preimage;
mod secret;
#[cfg(test)]
mod tests;

pub use aggregate::AggregateSignature;
pub use batch::{BATCH_MAX, Batch};
pub use committee::{BadMember, CommitteeKeys};
pub use ed25519::curve_backend;
pub use key::{BadKey, BadKeyFile, Scheme, SigningKey, VerifyKey};
pub use preimage::{bundle_preimage, statement_preimage};
pub use secret::Secret;
