//! Digests: BLAKE3 in key-derivation mode, one context string for each kind of object.
//!
//! A digest under one context can never be taken for a digest under another. The choice of hash function
//! sits in this file alone.

use std::fmt;

/// Context strings. One for each kind of object that is hashed; never reused, never changed.
pub mod context {
    /// Header of a block.
    pub const BLOCK: &str = "quorate block v1";
    /// The fixed block of a height at which nothing was decided.
    pub const NULL_BLOCK: &str = "quorate null block v1";
    /// Content of a bundle, without its authenticator.
    pub const BUNDLE: &str = "quorate bundle v1";
    /// What a client's key signs for a bundle.
    pub const BUNDLE_SIGNATURE: &str = "quorate bundle signature v1";
    /// List of the bundle digests of a block.
    pub const PAYLOAD: &str = "quorate payload v1";
    /// Results of a bundle.
    pub const RESULT: &str = "quorate result v1";
    /// State of application and sessions.
    pub const STATE: &str = "quorate state v1";
    /// One bucket of a bucket map.
    pub const BUCKET: &str = "quorate bucket v1";
    /// List of the digests of all buckets of a map.
    pub const BUCKETS: &str = "quorate buckets v1";
    /// A checkpoint.
    pub const CHECKPOINT: &str = "quorate checkpoint v1";
    /// The shared configuration of a cluster.
    pub const GENESIS: &str = "quorate genesis v1";
    /// What a replica's key signs.
    pub const STATEMENT: &str = "quorate statement v1";
    /// Coefficients of a batch of signature checks.
    pub const BATCH: &str = "quorate batch coefficients v1";
    /// A certificate, as the key of the cache of checked ones.
    pub const CERTIFICATE: &str = "quorate certificate v1";
    /// A protocol's own composite objects: the first field names the protocol and the object.
    pub const PROTOCOL: &str = "quorate protocol object v1";
}

/// A 32-byte BLAKE3 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// All zeros: "none" where a digest is optional (parent of a block without ancestors, unused scope).
    pub const ZERO: Self = Self([0; 32]);

    /// Digest of `bytes` under `context`.
    #[must_use]
    pub fn of(context: &'static str, bytes: &[u8]) -> Self {
        Self(blake3::derive_key(context, bytes))
    }

    /// Whether this is [`Digest::ZERO`].
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The first eight hexadecimal digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        let mut text = hex(&self.0);
        text.truncate(8);
        text
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Lower-case hexadecimal text of `bytes`.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Bytes of a hexadecimal text, `None` when it is not one.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits?;
    if digits.len() % 2 != 0 {
        return None;
    }
    Some(digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

/// A digest computed piece by piece.
#[derive(Clone)]
pub struct DigestWriter(blake3::Hasher);

impl DigestWriter {
    /// Starts a digest under `context`.
    #[must_use]
    pub fn new(context: &'static str) -> Self {
        Self(blake3::Hasher::new_derive_key(context))
    }

    /// Adds `bytes`. The caller makes the sequence unambiguous (fixed widths or lengths).
    pub fn update(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(bytes);
        self
    }

    /// The digest of all that was added.
    #[must_use]
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

/// An endless stream of bytes that only the seed decides: coefficients of batch checks.
pub struct DigestStream(blake3::OutputReader);

impl DigestStream {
    /// The stream that follows from everything added to `seed`.
    #[must_use]
    pub fn new(seed: &DigestWriter) -> Self {
        Self(seed.0.finalize_xof())
    }

    /// Fills `buffer` with the next bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill(buffer);
    }
}

/// A 32-byte tag over `bytes` under a secret `key`.
#[must_use]
pub fn keyed_tag(key: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key, bytes).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_separate() {
        assert_ne!(Digest::of(context::BLOCK, b"x"), Digest::of(context::BUNDLE, b"x"));
    }

    #[test]
    fn pieces_equal_whole() {
        let mut writer = DigestWriter::new(context::BLOCK);
        writer.update(b"ab").update(b"c");
        assert_eq!(writer.finish(), Digest::of(context::BLOCK, b"abc"));
    }

    #[test]
    fn hex_round_trip() {
        let digest = Digest::of(context::BLOCK, b"x");
        assert_eq!(from_hex(&digest.to_string()).unwrap(), digest.0);
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
