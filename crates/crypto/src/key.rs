//! Keys: one that signs, one that checks, under either scheme.

use crate::ed25519;
use crate::pem;
use crate::secret::Secret;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use curve25519_dalek::edwards::EdwardsPoint;
use quorate_types::digest::{Context, keyed_tag};
use quorate_types::{Digest, PublicKey, Signature};
use std::fmt;
use std::sync::Arc;

/// How signatures are made and checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Ed25519 by the ZIP-215 rule.
    Ed25519,
    /// A keyed hash that anyone can compute: for simulation only, where thousands of runs must not spend
    /// their time on curves. Nothing that talks to a network may use it.
    Cheap,
}

/// Why a public key is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadKey {
    /// The bytes are not a point of the curve.
    #[error("not a point of the curve")]
    NotAPoint,
    /// The point has small order: everything would be signed by it.
    #[error("a point of small order")]
    SmallOrder,
    /// The point has a torsion part.
    #[error("a point outside the prime-order group")]
    Torsion,
    /// The point has another, canonical encoding.
    #[error("not the canonical encoding of its point")]
    NotCanonical,
}

/// Why a text or its bytes are not a private key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadKeyFile {
    /// There is no single PEM block `PRIVATE KEY`.
    #[error("expected one PEM block of type PRIVATE KEY")]
    NotPem,
    /// The block is not an unencrypted PKCS#8 Ed25519 key, or its two halves contradict each other.
    #[error("expected an unencrypted PKCS#8 Ed25519 private key")]
    NotEd25519,
}

/// A public key that was checked and is ready to check signatures. Cheap to copy around by reference; about
/// 200 bytes.
#[derive(Clone)]
pub struct VerifyKey {
    public: PublicKey,
    form: Form,
}

#[derive(Clone)]
enum Form {
    /// The negative of the key's point.
    Ed25519(EdwardsPoint),
    Cheap,
}

impl VerifyKey {
    /// Checks a public key and prepares it. Costs about as much as checking one signature; keep the result.
    ///
    /// # Errors
    /// When the key would make the rule unsound; see [`BadKey`]. Never under [`Scheme::Cheap`].
    pub fn register(scheme: Scheme, key: PublicKey) -> Result<Self, BadKey> {
        let form = match scheme {
            Scheme::Ed25519 => Form::Ed25519(ed25519::register(&key)?),
            Scheme::Cheap => Form::Cheap,
        };
        Ok(Self { public: key, form })
    }

    /// The key as it was registered.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Whether `signature` is this key's signature of `message`. Where several wait, use [`crate::Batch`].
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        match &self.form {
            Form::Ed25519(minus_a) => ed25519::parse(&self.public, message, signature)
                .is_some_and(|parsed| ed25519::holds(minus_a, &parsed)),
            Form::Cheap => *signature == cheap_signature(&self.public, message),
        }
    }

    /// The negative of the key's point; `None` under [`Scheme::Cheap`].
    pub(crate) fn minus_point(&self) -> Option<&EdwardsPoint> {
        match &self.form {
            Form::Ed25519(minus_a) => Some(minus_a),
            Form::Cheap => None,
        }
    }
}

impl fmt::Debug for VerifyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.public, f)
    }
}

/// A private key. Clones share it; the last one wipes it. `Debug` shows the public half only.
#[derive(Clone)]
pub struct SigningKey {
    public: PublicKey,
    pair: Pair,
}

#[derive(Clone)]
enum Pair {
    /// The library wipes its own memory when the key is freed.
    Ed25519(Arc<Ed25519KeyPair>),
    /// The public half is all that a cheap signature needs.
    Cheap,
}

impl SigningKey {
    /// The key that follows from 32 secret bytes.
    #[must_use]
    pub fn from_seed(scheme: Scheme, seed: [u8; 32]) -> Self {
        let seed = Secret::new(seed);
        match scheme {
            Scheme::Ed25519 => match Ed25519KeyPair::from_seed_unchecked(seed.expose()) {
                Ok(pair) => Self::ed25519(pair),
                Err(_) => unreachable!("any 32 bytes are an Ed25519 seed"),
            },
            Scheme::Cheap => {
                Self { public: PublicKey(keyed_tag(seed.expose(), b"public")), pair: Pair::Cheap }
            }
        }
    }

    fn ed25519(pair: Ed25519KeyPair) -> Self {
        let mut public = [0; 32];
        public.copy_from_slice(pair.public_key().as_ref());
        Self { public: PublicKey(public), pair: Pair::Ed25519(Arc::new(pair)) }
    }

    /// The Ed25519 key of an unencrypted PKCS#8 document (version 1 or 2).
    ///
    /// # Errors
    /// [`BadKeyFile::NotEd25519`].
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, BadKeyFile> {
        Ed25519KeyPair::from_pkcs8(der).map(Self::ed25519).map_err(|_| BadKeyFile::NotEd25519)
    }

    /// The Ed25519 key of a PEM text, as [`SigningKey::to_pkcs8_pem`] and other tools write it.
    ///
    /// # Errors
    /// When the text is not one PEM block `PRIVATE KEY`, or its content is not an Ed25519 key.
    pub fn from_pkcs8_pem(text: &str) -> Result<Self, BadKeyFile> {
        let der = pem::decode(text).ok_or(BadKeyFile::NotPem)?;
        Self::from_pkcs8_der(der.expose())
    }

    /// The key as a PKCS#8 document (version 1, which every tool reads); `None` under [`Scheme::Cheap`],
    /// which has no file form.
    #[must_use]
    pub fn to_pkcs8_der(&self) -> Option<Secret<Vec<u8>>> {
        match &self.pair {
            Pair::Ed25519(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().ok()?;
                Some(Secret::new(der.as_ref().to_vec()))
            }
            Pair::Cheap => None,
        }
    }

    /// [`SigningKey::to_pkcs8_der`] as PEM text, for a file that only its owner may read.
    #[must_use]
    pub fn to_pkcs8_pem(&self) -> Option<Secret<String>> {
        self.to_pkcs8_der().map(|der| pem::encode(der.expose()))
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs `message`: the same bytes each time.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Signature {
        match &self.pair {
            Pair::Ed25519(pair) => {
                let mut bytes = [0; 64];
                bytes.copy_from_slice(pair.sign(message).as_ref());
                Signature(bytes)
            }
            Pair::Cheap => cheap_signature(&self.public, message),
        }
    }

    /// What nobody knows who has not the key, the same each time: of a signature that is never shown.
    #[must_use]
    pub fn secret(&self, context: &Context) -> Digest {
        Digest::of(context, &self.sign(&Digest::of(context, b"secret").0).0)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({:?})", self.public)
    }
}

fn cheap_signature(public: &PublicKey, message: &[u8]) -> Signature {
    let tag = keyed_tag(&public.0, message);
    let mut bytes = [0; 64];
    for (place, byte) in bytes.iter_mut().zip(tag.iter().chain(&tag)) {
        *place = *byte;
    }
    Signature(bytes)
}
