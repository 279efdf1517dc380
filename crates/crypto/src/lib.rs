//! # quorate-crypto
//!
//! Signatures: signed bytes, keys, and checks of single signatures and of batches. The crate is pure: it has no I/O, no
//! threads and no randomness of its own.
//!
//! * One file makes all signed bytes: [`statement_preimage`] for replicas, [`bundle_preimage`] and
//!   [`stop_preimage`] for clients.
//! * One rule decides whether a signature is valid: ZIP 215 (`ed25519.rs`). Single checks, batches and committee tables
//!   agree on it. No other code of the project checks an Ed25519 signature of a bundle or a statement.
//! * Keys enter through [`VerifyKey::register`], which refuses the keys that would make the rule unsound.
//!
//! Not here: files and file modes; key generation, because the node has the randomness; TLS, which belongs to the
//! links. The intake chooses the time to form a batch.
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
mod error;
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
pub use error::{BadKey, BadKeyFile};
pub use key::{Scheme, SigningKey, VerifyKey};
pub use preimage::{bundle_preimage, statement_preimage, stop_preimage};
pub use secret::Secret;
