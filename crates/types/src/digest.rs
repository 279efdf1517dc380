//! Digests: BLAKE3 in key-derivation mode, one context string for each kind of object.
//!
//! A digest under one context can never pass for a digest under another. This file alone chooses the hash function.

use blake3::hazmat::{ContextKey, HasherExt as _, hash_derive_key_context};
use std::cmp::Ordering;
use std::fmt;
use std::sync::OnceLock;

/// A context string and its key. The key is derived once, because that costs as much as a short digest.
pub struct Context {
    name: &'static str,
    key: OnceLock<ContextKey>,
}

impl Context {
    /// Returns the context of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, key: OnceLock::new() }
    }

    fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_from_context_key(self.key.get_or_init(|| hash_derive_key_context(self.name)))
    }
}

/// Contexts: one for each kind of hashed object. A context is never reused and never changed.
pub mod context {
    use super::Context;

    /// Header of a block.
    pub static BLOCK: Context = Context::new("quorate block v1");
    /// The fixed block of a height without a decided block.
    pub static NULL_BLOCK: Context = Context::new("quorate null block v1");
    /// Content of a bundle, without its authenticator.
    pub static BUNDLE: Context = Context::new("quorate bundle v1");
    /// Text that a client's key signs for a bundle.
    pub static BUNDLE_SIGNATURE: Context = Context::new("quorate bundle signature v1");
    /// Text that the admin's key signs to stop a node.
    pub static STOP: Context = Context::new("quorate stop v1");
    /// List of the bundle digests of a block.
    pub static PAYLOAD: Context = Context::new("quorate payload v1");
    /// Results of a bundle.
    pub static RESULT: Context = Context::new("quorate result v1");
    /// State of application and sessions.
    pub static STATE: Context = Context::new("quorate state v1");
    /// One chunk of a snapshot, such as a bucket of a bucket map.
    pub static BUCKET: Context = Context::new("quorate bucket v1");
    /// List of the ids of all chunks of a snapshot, such as the buckets of a map.
    pub static BUCKETS: Context = Context::new("quorate buckets v2");
    /// Header and list of chunks of a snapshot with a header.
    pub static SNAPSHOT: Context = Context::new("quorate snapshot v1");
    /// A checkpoint.
    pub static CHECKPOINT: Context = Context::new("quorate checkpoint v1");
    /// The shared configuration of a cluster.
    pub static GENESIS: Context = Context::new("quorate genesis v1");
    /// Text that a replica's key signs.
    pub static STATEMENT: Context = Context::new("quorate statement v1");
    /// Coefficients of a batch of signature checks.
    pub static BATCH: Context = Context::new("quorate batch coefficients v1");
    /// A certificate, as its key in the cache of verified certificates.
    pub static CERTIFICATE: Context = Context::new("quorate certificate v1");
    /// Numbers of probes of the bound on delays, which peers must not be able to predict.
    pub static PROBE: Context = Context::new("quorate probe v1");
    /// A protocol's own composite objects. The first field names the protocol and the object.
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
    /// Compares in the order of the bytes. Maps compare digests all the time, and the first eight bytes nearly always
    /// decide. Their comparison needs no function call.
    fn cmp(&self, other: &Self) -> Ordering {
        self.first().cmp(&other.first()).then_with(|| self.0.cmp(&other.0))
    }
}

impl Digest {
    /// All zeros. It stands for "none" where a digest is optional: the parent of a block without ancestors, an unused
    /// scope.
    pub const ZERO: Self = Self([0; 32]);

    /// Returns the digest of `bytes` under `context`.
    #[must_use]
    pub fn of(context: &Context, bytes: &[u8]) -> Self {
        Self(*context.hasher().update(bytes).finalize().as_bytes())
    }

    /// Returns the first eight bytes as a number with the same order.
    fn first(&self) -> u64 {
        self.0.first_chunk().copied().map_or(0, u64::from_be_bytes)
    }

    /// Whether this is [`Digest::ZERO`].
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Returns the first eight hexadecimal digits, for people.
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

/// Returns lower-case hexadecimal text of `bytes`.
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

/// Parses hexadecimal text; `None` for any other text.
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

/// A digest that is computed piece by piece.
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

    /// Returns the digest of all added bytes.
    #[must_use]
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

/// An endless stream of bytes that only the seed determines. Batch checks draw their coefficients from it.
pub struct DigestStream(blake3::OutputReader);

impl DigestStream {
    /// Returns the stream of all bytes that were added to `seed`.
    #[must_use]
    pub fn new(seed: &DigestWriter) -> Self {
        Self(seed.0.finalize_xof())
    }

    /// Fills `buffer` with the next bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill(buffer);
    }
}

/// Returns a 32-byte tag over `bytes` under a secret `key`.
#[must_use]
pub fn keyed_tag(key: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key, bytes).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_under_different_contexts_differ() {
        assert_ne!(Digest::of(&context::BLOCK, b"x"), Digest::of(&context::BUNDLE, b"x"));
    }

    #[test]
    fn digest_equals_blake3_key_derivation() {
        for bytes in [&b""[..], b"x", &[7; 5_000]] {
            let expected = blake3::derive_key("quorate block v1", bytes);
            assert_eq!(Digest::of(&context::BLOCK, bytes).0, expected);
        }
    }

    #[test]
    fn digest_in_pieces_equals_digest_of_the_whole() {
        let mut writer = DigestWriter::new(&context::BLOCK);
        writer.update(b"ab").update(b"c");
        assert_eq!(writer.finish(), Digest::of(&context::BLOCK, b"abc"));
    }

    #[test]
    fn hexadecimal_text_round_trips() {
        let digest = Digest::of(&context::BLOCK, b"x");
        assert_eq!(from_hex(&digest.to_string()).unwrap(), digest.0);
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
