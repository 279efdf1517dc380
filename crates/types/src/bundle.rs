//! Bundles: consecutive requests of one client under one authenticator.
//!
//! A bundle is the unit of authentication, deduplication, retransmission, pooling and reply. Its digest covers the
//! content without the authenticator. The client may therefore retransmit the same bundle under another
//! authenticator.
//!
//! ```text
//! content = kind u8 | client [32] | session (u64, u32) | number u64 | count u32 | count x (length u32, bytes)
//! ```

use crate::codec::{DecodeError, Reader, Wire, put_bytes, put_length, put_tagged};
use crate::digest::{Digest, context};
use crate::genesis::BodyLimits;
use crate::ids::{BundleDigest, BundleNo, ClientId, PublicKey, SessionId, Signature};
use crate::limits::REGISTER_KEYS_MAX;
use triomphe::ThinArc;

/// Bytes of a content before the first request.
pub const BUNDLE_HEADER_BYTES: usize = 1 + 32 + 12 + 8 + 4;

const AUTHENTICATOR_BYTES_MAX: usize = 1 + 64;
const SESSION_AND_NUMBER_BYTES: usize = 12 + 8;

/// The kind of work that a bundle requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BundleKind {
    /// Requests to the application, inside a session.
    Requests,
    /// Opens a session for a registered client. `session` is zero, and `number` is a nonce that the client draws for
    /// each run. The same nonce always names the same session.
    Open,
    /// Registers client keys, one in each request. Only the admin client may, inside its session.
    Register,
}

impl BundleKind {
    fn tag(self) -> u8 {
        match self {
            Self::Requests => 0,
            Self::Open => 1,
            Self::Register => 2,
        }
    }
}

/// The proof that a bundle comes from its client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Authenticator {
    /// No proof: client authentication `none`.
    None,
    /// Ed25519 over the digest of the bundle (`quorate_crypto::bundle_preimage`).
    Signature(Signature),
}

impl Wire for Authenticator {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::None => out.push(0),
            Self::Signature(signature) => put_tagged(out, 1, &[signature]),
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::None),
            1 => Signature::decode(reader).map(Self::Signature),
            _ => Err(DecodeError::Tag("authenticator")),
        }
    }
}

/// A bundle whose form was checked. The intake checks whether its authenticator holds.
///
/// The type is a handle: parsed header and bytes lie in one allocation, which clones share.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle(ThinArc<Head, u8>);

/// The fields that the parser has read from the bytes.
#[derive(PartialEq, Eq)]
struct Head {
    digest: BundleDigest,
    kind: BundleKind,
    client: ClientId,
    session: SessionId,
    number: BundleNo,
    requests: u32,
    /// The offset of the content, which follows the authenticator.
    content_at: usize,
    authenticator: Authenticator,
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Head { digest, kind, session, number, requests, .. } = self.head();
        write!(f, "{kind:?}({digest:?} {session:?}#{number} x{requests})")
    }
}

impl AsRef<[u8]> for Bundle {
    fn as_ref(&self) -> &[u8] {
        self.sealed()
    }
}

impl Bundle {
    /// Parses the wire form of a bundle: authenticator and content. Checks the form of the content against `limits`,
    /// hashes the content once and copies all bytes once.
    ///
    /// # Errors
    /// Fails when the content is not canonical, exceeds a limit, or does not fit its kind.
    pub fn parse_sealed(sealed: &[u8], limits: &BodyLimits) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(sealed);
        let authenticator = Authenticator::decode(&mut reader)?;
        let content = reader.take_rest();
        Self::build(sealed, content, authenticator, limits, None)
    }

    /// Parses a bundle from its two parts, in the same way as [`Bundle::parse_sealed`].
    ///
    /// # Errors
    /// Fails in the cases of [`Bundle::parse_sealed`].
    pub fn parse(
        content: &[u8],
        authenticator: Authenticator,
        limits: &BodyLimits,
    ) -> Result<Self, DecodeError> {
        Self::build(&seal(content, &authenticator), content, authenticator, limits, None)
    }

    /// Parses a bundle in the same way as [`Bundle::parse_sealed`], without hashing the content. The caller knows
    /// that its digest is `digest`: this replica has computed it before and stored it on its own checksummed disk.
    ///
    /// # Errors
    /// Fails in the cases of [`Bundle::parse_sealed`].
    pub fn with_digest(
        sealed: &[u8],
        limits: &BodyLimits,
        digest: BundleDigest,
    ) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(sealed);
        let authenticator = Authenticator::decode(&mut reader)?;
        let content = reader.take_rest();
        Self::build(sealed, content, authenticator, limits, Some(digest))
    }

    fn build(
        sealed: &[u8],
        content: &[u8],
        authenticator: Authenticator,
        limits: &BodyLimits,
        digest: Option<BundleDigest>,
    ) -> Result<Self, DecodeError> {
        let limit = |what, value: usize, most: u32| {
            let (length, limit) = (u64::try_from(value).unwrap_or(u64::MAX), u64::from(most));
            if length > limit { Err(DecodeError::TooLong { what, length, limit }) } else { Ok(()) }
        };
        limit("bundle", content.len(), limits.bundle_bytes_max)?;
        let mut reader = Reader::new(content);
        let kind = match reader.u8()? {
            0 => BundleKind::Requests,
            1 => BundleKind::Open,
            2 => BundleKind::Register,
            _ => return Err(DecodeError::Tag("bundle kind")),
        };
        let client = PublicKey::decode(&mut reader)?;
        let session = SessionId::decode(&mut reader)?;
        let number = BundleNo::decode(&mut reader)?;
        let requests = reader.u32()?;
        limit(
            "requests in a bundle",
            usize::try_from(requests).unwrap_or(usize::MAX),
            limits.bundle_requests_max,
        )?;
        for _ in 0..requests {
            let length = reader.u32()?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            limit("request", length, limits.request_bytes_max)?;
            reader.take(length)?;
        }
        reader.finish()?;
        let digest = digest.unwrap_or_else(|| bundle_digest(content));
        let content_at = sealed.len().saturating_sub(content.len());
        let head = Head { digest, kind, client, session, number, requests, content_at, authenticator };
        let bundle = Self(ThinArc::from_header_and_slice(head, sealed));
        bundle.fits_its_kind()?;
        Ok(bundle)
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    fn fits_its_kind(&self) -> Result<(), DecodeError> {
        let in_session = self.session() != SessionId::default();
        let fits = match self.kind() {
            BundleKind::Requests => in_session && self.number().0 > 0 && self.request_count() > 0,
            BundleKind::Open => !in_session && self.request_count() == 0,
            BundleKind::Register => {
                let keys = usize::try_from(self.request_count()).unwrap_or(usize::MAX);
                let all_keys = self.requests().all(|request| request.len() == 32);
                in_session && self.number().0 > 0 && (1..=REGISTER_KEYS_MAX).contains(&keys) && all_keys
            }
        };
        if fits { Ok(()) } else { Err(DecodeError::Value("bundle")) }
    }

    /// Returns the digest of the content.
    #[must_use]
    pub fn digest(&self) -> BundleDigest {
        self.head().digest
    }
    /// Returns the kind of the bundle.
    #[must_use]
    pub fn kind(&self) -> BundleKind {
        self.head().kind
    }
    /// Returns the client that the content names.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.head().client
    }
    /// Returns the session of the bundle; zero for [`BundleKind::Open`].
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.head().session
    }
    /// Returns the number in the session, or the nonce of [`BundleKind::Open`].
    #[must_use]
    pub fn number(&self) -> BundleNo {
        self.head().number
    }
    /// Returns the number of requests.
    #[must_use]
    pub fn request_count(&self) -> u32 {
        self.head().requests
    }
    /// Returns the encoded content.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        self.sealed().get(self.head().content_at..).unwrap_or_default()
    }
    /// Returns the wire form: encoded authenticator and content.
    #[must_use]
    pub fn sealed(&self) -> &[u8] {
        &self.0.slice
    }
    /// Returns the authenticator.
    #[must_use]
    pub fn authenticator(&self) -> &Authenticator {
        &self.head().authenticator
    }
    /// Returns the bytes that count for the bundle in every limit.
    #[must_use]
    pub fn size(&self) -> usize {
        self.content().len()
    }

    /// Returns the requests in order.
    pub fn requests(&self) -> impl Iterator<Item = &[u8]> {
        let mut reader = Reader::new(self.content().get(BUNDLE_HEADER_BYTES..).unwrap_or_default());
        std::iter::from_fn(move || reader.bytes("request", usize::MAX).ok())
    }
}

/// Encodes the wire form: authenticator and content.
fn seal(content: &[u8], authenticator: &Authenticator) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(content.len().saturating_add(AUTHENTICATOR_BYTES_MAX));
    authenticator.encode(&mut sealed);
    sealed.extend_from_slice(content);
    sealed
}

/// Builds the content of a bundle: the client's side of [`Bundle::parse`].
#[derive(Clone, Debug)]
pub struct BundleBuilder {
    content: Vec<u8>,
    count: u32,
}

impl BundleBuilder {
    /// Starts a bundle.
    #[must_use]
    pub fn new(kind: BundleKind, client: ClientId, session: SessionId, number: BundleNo) -> Self {
        let mut content = Vec::with_capacity(256);
        content.push(kind.tag());
        client.encode(&mut content);
        session.encode(&mut content);
        number.encode(&mut content);
        put_length(&mut content, 0);
        Self { content, count: 0 }
    }

    /// Replaces session and number. A client that collects requests knows both only when it sends the bundle.
    pub fn address(&mut self, session: SessionId, number: BundleNo) {
        let mut header = Vec::with_capacity(SESSION_AND_NUMBER_BYTES);
        session.encode(&mut header);
        number.encode(&mut header);
        let from = 1 + 32;
        if let Some(place) = self.content.get_mut(from..from + SESSION_AND_NUMBER_BYTES) {
            place.copy_from_slice(&header);
        }
    }

    /// Adds a request.
    pub fn push(&mut self, request: &[u8]) -> &mut Self {
        put_bytes(&mut self.content, request);
        self.count = self.count.saturating_add(1);
        self
    }

    /// Requests so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes so far.
    #[must_use]
    pub fn size(&self) -> usize {
        self.content.len()
    }

    /// Returns the finished content.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let at = BUNDLE_HEADER_BYTES.saturating_sub(4);
        if let Some(count) = self.content.get_mut(at..BUNDLE_HEADER_BYTES) {
            count.copy_from_slice(&self.count.to_le_bytes());
        }
        self.content
    }
}

/// Returns the digest of a bundle's content.
#[must_use]
pub fn bundle_digest(content: &[u8]) -> BundleDigest {
    BundleDigest(Digest::of(&context::BUNDLE, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Height;

    const SESSION: SessionId = SessionId { height: Height(3), index: 1 };

    fn parse(content: &[u8]) -> Result<Bundle, DecodeError> {
        Bundle::parse(content, Authenticator::None, &BodyLimits::default())
    }

    #[test]
    fn requests_round_trip() {
        let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([7; 32]), SESSION, BundleNo(9));
        builder.push(b"one").push(b"").push(b"three");
        let bundle = parse(&builder.finish()).unwrap();
        assert_eq!(bundle.requests().collect::<Vec<_>>(), [b"one" as &[u8], b"", b"three"]);
        assert_eq!((bundle.session(), bundle.number(), bundle.request_count()), (SESSION, BundleNo(9), 3));
        assert_eq!(bundle.digest(), bundle_digest(bundle.content()));
    }

    #[test]
    fn builder_takes_session_and_number_after_the_requests() {
        let key = PublicKey([7; 32]);
        let mut early = BundleBuilder::new(BundleKind::Requests, key, SESSION, BundleNo(9));
        let mut late = BundleBuilder::new(BundleKind::Requests, key, SessionId::default(), BundleNo(0));
        early.push(b"one").push(b"two");
        late.push(b"one").push(b"two");
        late.address(SESSION, BundleNo(9));
        assert_eq!(late.finish(), early.finish());
    }

    #[test]
    fn bundle_that_does_not_fit_its_kind_is_refused() {
        let build = |kind, session, number, requests: &[&[u8]]| {
            let mut builder = BundleBuilder::new(kind, PublicKey([7; 32]), session, BundleNo(number));
            for request in requests {
                builder.push(request);
            }
            parse(&builder.finish())
        };
        assert!(build(BundleKind::Open, SessionId::default(), 77, &[]).is_ok());
        assert!(build(BundleKind::Register, SESSION, 1, &[&[1; 32]]).is_ok());
        for wrong in [
            build(BundleKind::Requests, SessionId::default(), 1, &[b"x"]),
            build(BundleKind::Requests, SESSION, 0, &[b"x"]),
            build(BundleKind::Requests, SESSION, 1, &[]),
            build(BundleKind::Open, SESSION, 1, &[]),
            build(BundleKind::Open, SessionId::default(), 1, &[b"x"]),
            build(BundleKind::Register, SESSION, 1, &[&[1; 31]]),
            build(BundleKind::Register, SESSION, 1, &[]),
        ] {
            assert_eq!(wrong, Err(DecodeError::Value("bundle")));
        }
    }

    #[test]
    fn bundle_that_is_too_large_or_not_canonical_is_refused() {
        let limits = BodyLimits { request_bytes_max: 4, bundle_requests_max: 2, ..BodyLimits::default() };
        let build = |requests: &[&[u8]]| {
            let mut builder =
                BundleBuilder::new(BundleKind::Requests, PublicKey([7; 32]), SESSION, BundleNo(1));
            for request in requests {
                builder.push(request);
            }
            builder.finish()
        };
        let parse = |content: &[u8]| Bundle::parse(content, Authenticator::None, &limits);
        assert!(parse(&build(&[b"1234"])).is_ok());
        assert!(matches!(parse(&build(&[b"12345"])), Err(DecodeError::TooLong { what: "request", .. })));
        assert!(matches!(parse(&build(&[b"1", b"2", b"3"])), Err(DecodeError::TooLong { .. })));
        let mut trailing = build(&[b"1"]);
        trailing.push(0);
        assert_eq!(parse(&trailing), Err(DecodeError::Trailing));
        let whole = build(&[b"1234"]);
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }
}
