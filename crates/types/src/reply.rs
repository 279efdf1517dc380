//! Replies: one replica's outcome for a bundle. A client accepts a result when f + 1 replicas send equal result
//! digests.

use crate::codec::{DecodeError, Reader, Wire, put_bytes, put_tagged};
use crate::digest::{Digest, context};
use crate::ids::{BundleDigest, BundleNo, ReplicaId, SessionId, View};
use crate::limits::{BUNDLE_REQUESTS_CEILING, REPLY_BYTES_CEILING};
use std::sync::Arc;

/// The outcome of a bundle. The result digest covers the encoded outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The requests were executed. Each has one result.
    Done(Vec<Vec<u8>>),
    /// The session is unknown or evicted, or belongs to another client. Nothing was executed.
    NoSession,
    /// A session was opened.
    Opened(SessionId),
    /// The client is not registered, so no session was opened.
    NotRegistered,
    /// The number of newly registered keys.
    Registered(u32),
    /// The keys were not registered: the client is not the admin client, or there is no room.
    NotAllowed,
    /// The bundle was executed before, and its results are no longer kept.
    Forgotten,
    /// Another bundle was ordered under this number before. This one was not executed.
    Superseded,
    /// The number lies too far above the floor of the session. The bundle was not executed.
    OutOfWindow,
    /// The bundle was executed, and its results exceed the limit on replies.
    TooLarge,
}

impl Outcome {
    /// Returns the results inside an encoded [`Outcome::Done`], without copying them. Returns `None` for any other or
    /// malformed outcome.
    #[must_use]
    pub fn results(encoded: &[u8]) -> Option<Results<'_>> {
        let (0, rest) = encoded.split_first().map(|(tag, rest)| (*tag, rest))? else {
            return None;
        };
        let mut reader = Reader::new(rest);
        let count = usize::try_from(reader.u32().ok()?).ok()?;
        let results = Results { reader: reader.clone(), left: count };
        for _ in 0..count {
            reader.bytes("result", usize::MAX).ok()?;
        }
        reader.finish().ok()?;
        Some(results)
    }
}

/// The results of one bundle, in the order of its requests. [`Outcome::results`] creates it.
#[derive(Clone, Debug)]
pub struct Results<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Iterator for Results<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        self.reader.bytes("result", usize::MAX).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Results<'_> {}

impl Wire for Outcome {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Done(results) => {
                out.push(0);
                crate::codec::put_length(out, results.len());
                for result in results {
                    put_bytes(out, result);
                }
            }
            Self::NoSession => out.push(1),
            Self::Opened(session) => put_tagged(out, 2, &[session]),
            Self::NotRegistered => out.push(3),
            Self::Registered(count) => put_tagged(out, 4, &[count]),
            Self::NotAllowed => out.push(5),
            Self::Forgotten => out.push(6),
            Self::Superseded => out.push(7),
            Self::OutOfWindow => out.push(8),
            Self::TooLarge => out.push(9),
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = usize::try_from(REPLY_BYTES_CEILING).unwrap_or(usize::MAX);
        let count = usize::try_from(BUNDLE_REQUESTS_CEILING).unwrap_or(usize::MAX);
        Ok(match reader.u8()? {
            0 => Self::Done(
                reader.list("results", count, 4, |r| r.bytes("result", bytes).map(<[u8]>::to_vec))?,
            ),
            1 => Self::NoSession,
            2 => Self::Opened(SessionId::decode(reader)?),
            3 => Self::NotRegistered,
            4 => Self::Registered(reader.u32()?),
            5 => Self::NotAllowed,
            6 => Self::Forgotten,
            7 => Self::Superseded,
            8 => Self::OutOfWindow,
            9 => Self::TooLarge,
            _ => return Err(DecodeError::Tag("outcome")),
        })
    }
}

/// The reply of one replica to one bundle. The digest does not cover view and leader. The client accepts the highest
/// view that f + 1 replies reach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyBundle {
    /// The session of the bundle; zero for one that opens a session.
    pub session: SessionId,
    /// The number of the bundle, or the nonce of one that opens a session.
    pub number: BundleNo,
    /// The digest of the bundle.
    pub bundle: BundleDigest,
    /// The digest of `outcome`.
    pub result: Digest,
    /// An encoded [`Outcome`], shared with the session that keeps it for retransmissions.
    pub outcome: Arc<[u8]>,
    /// The replica's view.
    pub view: View,
    /// The leader of that view.
    pub leader: ReplicaId,
}

impl ReplyBundle {
    /// Returns the digest that clients compare.
    #[must_use]
    pub fn result_digest(outcome: &[u8]) -> Digest {
        Digest::of(&context::RESULT, outcome)
    }
}

impl Wire for ReplyBundle {
    fn encode(&self, out: &mut Vec<u8>) {
        self.session.encode(out);
        self.number.encode(out);
        self.bundle.encode(out);
        self.result.encode(out);
        self.view.encode(out);
        self.leader.encode(out);
        put_bytes(out, &self.outcome);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let session = SessionId::decode(reader)?;
        let number = BundleNo::decode(reader)?;
        let bundle = BundleDigest::decode(reader)?;
        let result = Digest::decode(reader)?;
        let view = View::decode(reader)?;
        let leader = ReplicaId::decode(reader)?;
        let limit = usize::try_from(REPLY_BYTES_CEILING).unwrap_or(usize::MAX);
        let outcome = Arc::from(reader.bytes("outcome", limit)?);
        Ok(Self { session, number, bundle, result, outcome, view, leader })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Height;

    #[test]
    fn results_are_read_without_copying() {
        let whole = Outcome::Done(vec![b"one".to_vec(), vec![], b"three".to_vec()]).to_bytes();
        let results = Outcome::results(&whole).unwrap();
        assert_eq!(results.len(), 3);
        assert_eq!(results.collect::<Vec<_>>(), [b"one" as &[u8], b"", b"three"]);
        for cut in 0..whole.len() {
            assert!(Outcome::results(&whole[..cut]).is_none(), "cut at {cut}");
        }
        assert!(Outcome::results(&[&whole[..], b"x"].concat()).is_none());
        assert!(Outcome::results(&Outcome::NoSession.to_bytes()).is_none());
        let many = [&[0u8][..], &u32::MAX.to_le_bytes()].concat();
        assert!(Outcome::results(&many).is_none(), "a count larger than the bytes was accepted");
    }

    #[test]
    fn outcomes_round_trip() {
        for outcome in [
            Outcome::Done(vec![vec![1, 2], vec![]]),
            Outcome::NoSession,
            Outcome::Opened(SessionId { height: Height(1), index: 2 }),
            Outcome::NotRegistered,
            Outcome::Registered(3),
            Outcome::NotAllowed,
            Outcome::Forgotten,
            Outcome::Superseded,
            Outcome::OutOfWindow,
            Outcome::TooLarge,
        ] {
            assert_eq!(Outcome::from_bytes(&outcome.to_bytes()), Ok(outcome));
        }
        assert_eq!(Outcome::from_bytes(&[10]), Err(DecodeError::Tag("outcome")));
    }
}
