//! Reasons why a key is refused.

/// The reason why a public key is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadKey {
    /// The bytes are not a point of the curve.
    #[error("not a point of the curve")]
    NotAPoint,
    /// The point has small order, so a signature by it would hold for every message.
    #[error("a point of small order")]
    SmallOrder,
    /// The point has a torsion part.
    #[error("a point outside the prime-order group")]
    Torsion,
    /// The bytes are a non-canonical encoding of the point.
    #[error("not the canonical encoding of its point")]
    NotCanonical,
}

/// The reason why a text or its bytes are not a private key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadKeyFile {
    /// The text is not exactly one PEM block `PRIVATE KEY`.
    #[error("expected one PEM block of type PRIVATE KEY")]
    NotPem,
    /// The block is not an unencrypted PKCS#8 Ed25519 key, or its public half does not belong to the private one.
    #[error("expected an unencrypted PKCS#8 Ed25519 private key")]
    NotEd25519,
}
