//! Digests: BLAKE3 in key-derivation mode, one context string for each kind of object.
//!
//! A digest under one context can never be taken for a digest under another. The choice of hash function
//! sits in this file alone.

use blake3::hazmat::{ContextKey, HasherExt as _, hash_derive_key_context};
use std::cmp::Ordering;
use std::fmt;
use std::sync::OnceLock;

/// A context string, and the key that follows from it: worked out once, because it costs as much as a short digest.
pub struct Context {
    name: &'static str,
    key: OnceLock<ContextKey>,
}

impl Context {
    /// A context of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, key: OnceLock::new() }
    }

    fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_from_context_key(self.key.get_or_init(|| hash_derive_key_context(self.name)))
    }
}

/// Contexts. One for each kind of object that is hashed; never reused, never changed.
pub mod context {
    use super::Context;

    /// Header of a block.
    pub static BLOCK: Context = Context::new("quorate block v1");
    /// The fixed block of a height at which nothing was decided.
    pub static NULL_BLOCK: Context = Context::new("quorate null block v1");
    /// Content of a bundle, without its authenticator.
    pub static BUNDLE: Context = Context::new("quorate bundle v1");
    /// What a client's key signs for a bundle.
    pub static BUNDLE_SIGNATURE: Context = Context::new("quorate bundle signature v1");
    /// List of the bundle digests of a block.
    pub static PAYLOAD: Context = Context::new("quorate payload v1");
    /// Results of a bundle.
    pub static RESULT: Context = Context::new("quorate result v1");
    /// State of application and sessions.
    pub static STATE: Context = Context::new("quorate state v1");
    /// One bucket of a bucket map.
    pub static BUCKET: Context = Context::new("quorate bucket v1");
    /// List of the digests of all buckets of a map.
    pub static BUCKETS: Context = Context::new("quorate buckets v1");
    /// A checkpoint.
    pub static CHECKPOINT: Context = Context::new("quorate checkpoint v1");
    /// The shared configuration of a cluster.
    pub static GENESIS: Context = Context::new("quorate genesis v1");
    /// What a replica's key signs.
    pub static STATEMENT: Context = Context::new("quorate statement v1");
    /// Coefficients of a batch of signature checks.
    pub static BATCH: Context = Context::new("quorate batch coefficients v1");
    /// A certificate, as the key of the cache of checked ones.
    pub static CERTIFICATE: Context = Context::new("quorate certificate v1");
    /// Numbers of probes of the bound on delays, which their peers must not foretell.
    pub static PROBE: Context = Context::new("quorate probe v1");
    /// A protocol's own composite objects: the first field names the protocol and the object.
    pub static PROTOCOL: Context = Context::new("quorate protocol object v1");
}

/// A 32-byte BLAKE3 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl PartialOrd for Digest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Digest {
    /// The order of the bytes. Maps of digests compare them all the time, and the first eight bytes nearly always decide:
    /// no call is needed for these.
    fn cmp(&self, other: &Self) -> Ordering {
        self.first().cmp(&other.first()).then_with(|| self.0.cmp(&other.0))
    }
}

impl Digest {
    /// All zeros: "none" where a digest is optional (parent of a block without ancestors, unused scope).
    pub const ZERO: Self = Self([0; 32]);

    /// Digest of `bytes` under `context`.
    #[must_use]
    pub fn of(context: &Context, bytes: &[u8]) -> Self {
        Self(*context.hasher().update(bytes).finalize().as_bytes())
    }

    /// The first eight bytes, as a number that is ordered like them.
    fn first(&self) -> u64 {
        self.0.first_chunk().copied().map_or(0, u64::from_be_bytes)
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
    pub fn new(context: &Context) -> Self {
        Self(context.hasher())
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
        assert_ne!(Digest::of(&context::BLOCK, b"x"), Digest::of(&context::BUNDLE, b"x"));
    }

    #[test]
    fn digests_are_those_of_the_key_derivation_mode() {
        for bytes in [&b""[..], b"x", &[7; 5_000]] {
            let expected = blake3::derive_key("quorate block v1", bytes);
            assert_eq!(Digest::of(&context::BLOCK, bytes).0, expected);
        }
    }

    #[test]
    fn pieces_equal_whole() {
        let mut writer = DigestWriter::new(&context::BLOCK);
        writer.update(b"ab").update(b"c");
        assert_eq!(writer.finish(), Digest::of(&context::BLOCK, b"abc"));
    }

    #[test]
    fn hex_round_trip() {
        let digest = Digest::of(&context::BLOCK, b"x");
        assert_eq!(from_hex(&digest.to_string()).unwrap(), digest.0);
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
