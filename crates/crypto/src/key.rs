//! Keys that sign and keys that verify, under either scheme.

use crate::ed25519;
use crate::error::{BadKey, BadKeyFile};
use crate::pem;
use crate::secret::Secret;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use curve25519_dalek::edwards::EdwardsPoint;
use quorate_types::digest::{Context, keyed_tag};
use quorate_types::{Digest, PublicKey, Signature};
use std::fmt;
use std::sync::Arc;

/// The algorithm that makes and verifies signatures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Ed25519 by the ZIP-215 rule.
    Ed25519,
    /// A keyed hash that anyone can compute. It is for simulation only, where thousands of runs must not spend their
    /// time on curves. Code that uses a network must not use it.
    Cheap,
}

/// A public key that was checked and is ready to verify signatures. It has about 200 bytes, so users pass it by
/// reference.
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
    /// Checks and prepares a public key. The cost is about that of checking one signature, so the caller should keep
    /// the result.
    ///
    /// # Errors
    /// Fails when the key would make the rule unsound; see [`BadKey`]. [`Scheme::Cheap`] never fails.
    pub fn register(scheme: Scheme, key: PublicKey) -> Result<Self, BadKey> {
        let form = match scheme {
            Scheme::Ed25519 => Form::Ed25519(ed25519::register(&key)?),
            Scheme::Cheap => Form::Cheap,
        };
        Ok(Self { public: key, form })
    }

    /// Returns the registered key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Whether `signature` is this key's signature of `message`. [`crate::Batch`] is cheaper for several signatures.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        match &self.form {
            Form::Ed25519(minus_a) => ed25519::parse(&self.public, message, signature)
                .is_some_and(|parsed| ed25519::holds(minus_a, &parsed)),
            Form::Cheap => *signature == cheap_signature(&self.public, message),
        }
    }

    /// Returns the negative of the key's point; `None` under [`Scheme::Cheap`].
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

/// A private key. Clones share it, and dropping the last one wipes it. `Debug` shows the public half only.
#[derive(Clone)]
pub struct SigningKey {
    public: PublicKey,
    pair: Pair,
}

#[derive(Clone)]
enum Pair {
    /// A key pair whose memory the library wipes when it frees the key.
    Ed25519(Arc<Ed25519KeyPair>),
    /// No data, because a cheap signature needs only the public half.
    Cheap,
}

impl SigningKey {
    /// Returns the key that 32 secret bytes determine.
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

    /// Reads the Ed25519 key of an unencrypted PKCS#8 document (version 1 or 2).
    ///
    /// # Errors
    /// Fails with [`BadKeyFile::NotEd25519`].
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, BadKeyFile> {
        Ed25519KeyPair::from_pkcs8(der).map(Self::ed25519).map_err(|_| BadKeyFile::NotEd25519)
    }

    /// Reads the Ed25519 key of a PEM text from [`SigningKey::to_pkcs8_pem`] or another tool.
    ///
    /// # Errors
    /// Fails when the text is not one PEM block `PRIVATE KEY`, or its content is not an Ed25519 key.
    pub fn from_pkcs8_pem(text: &str) -> Result<Self, BadKeyFile> {
        let der = pem::decode(text).ok_or(BadKeyFile::NotPem)?;
        Self::from_pkcs8_der(der.expose())
    }

    /// Returns the key as a PKCS#8 document of version 1, which every tool reads. Returns `None` under
    /// [`Scheme::Cheap`], which has no file form.
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

    /// Returns [`SigningKey::to_pkcs8_der`] as PEM text, for a file that only its owner may read.
    #[must_use]
    pub fn to_pkcs8_pem(&self) -> Option<Secret<String>> {
        self.to_pkcs8_der().map(|der| pem::encode(der.expose()))
    }

    /// Returns the public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs `message`. The signature is the same each time.
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

    /// Returns a secret that only the owner of the key can compute. It is the same each time: the hash of a signature
    /// that never leaves this function.
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
