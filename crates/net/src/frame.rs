//! Frames on a stream: headers, and putting frames together from a stream that is cut anywhere.
//!
//! A frame is judged by its header alone: one that is too large for its lane is refused before anything of
//! its body is kept, and memory grows with what the other side really sent, never with a length field.

use quorate_types::limits::{FRAME_BYTES_MAX, REASON_BYTES_MAX};
use quorate_types::wire::{Lane, frame};
use std::fmt;

/// Bytes of the header of a frame between replicas: length, lane, sequence number, type.
pub const HEADER_BYTES: usize = 4 + 1 + 8 + 1;

/// Bytes of the header of a frame between client and replica: the length.
pub const CLIENT_HEADER_BYTES: usize = 4;

/// Bytes that the length field of a frame between replicas counts beside the body.
const COUNTED_HEADER_BYTES: usize = HEADER_BYTES - 4;

/// Bytes of a body on this lane at most.
#[must_use]
pub const fn body_bytes_max(lane: Lane) -> usize {
    lane.frame_bytes_max().saturating_sub(COUNTED_HEADER_BYTES)
}

/// Body of an acknowledgement: the next number expected, for each lane.
pub(crate) const ACK_BYTES: usize = 24;

/// Body of a hello at most. That of another version may be longer than ours and still deserves an answer
/// that says so.
const HELLO_BYTES_MAX: usize = 1_024;

/// Why a connection is closed: what the other side did, or how it differs from us. Its text travels in the
/// CLOSE frame and is what operators read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The length field exceeds what the lane allows.
    TooLarge,
    /// The length field is smaller than a header.
    TooShort,
    /// No such lane.
    UnknownLane,
    /// A frame that only links make has the wrong form.
    BadControl,
    /// A frame before the hello, or one before our answer to it.
    HelloExpected,
    /// The hello cannot be decoded.
    BadHello,
    /// Another version of the wire format.
    OtherVersion,
    /// Another cluster.
    OtherCluster,
    /// Another committee of the cluster.
    OtherEpoch,
    /// Another protocol.
    OtherProtocol,
    /// The hello names somebody who has no place at the other end of this link.
    OtherReplica,
    /// A frame that was received before.
    Repeated,
    /// Acknowledges, or claims to have heard, frames that were never sent. Also what a replica with a
    /// rolled-back disk hears when it opens under an incarnation that was used before.
    NeverSent,
    /// The other side ended the connection properly.
    Closed,
    /// The handshake or the first frame took too long.
    TooSlow,
    /// Too many connections, or too many of them half open.
    TooMany,
    /// Does not read what is sent to it.
    DoesNotRead,
    /// Holds too much memory with frames that it does not finish.
    Unfinished,
    /// The TLS handshake or a record is wrong; the words say how.
    Tls(&'static str),
}

impl Refusal {
    /// The reason in words, at most [`REASON_BYTES_MAX`] bytes.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::TooLarge => "frame too large",
            Self::TooShort => "frame shorter than its header",
            Self::UnknownLane => "unknown lane",
            Self::BadControl => "malformed control frame",
            Self::HelloExpected => "spoke before the hello was answered",
            Self::BadHello => "malformed hello",
            Self::OtherVersion => "another version of the wire format",
            Self::OtherCluster => "another cluster",
            Self::OtherEpoch => "another epoch",
            Self::OtherProtocol => "another protocol",
            Self::OtherReplica => "not the replica that belongs to this link",
            Self::Repeated => "sequence number came before",
            Self::NeverSent => "acknowledges frames that were never sent",
            Self::Closed => "closed by the other side",
            Self::TooSlow => "handshake took too long",
            Self::TooMany => "too many connections",
            Self::DoesNotRead => "does not read its replies",
            Self::Unfinished => "too much unfinished",
            Self::Tls(words) => words,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Refusal {}

/// The header of a frame between replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) lane: Lane,
    pub(crate) number: u64,
    pub(crate) frame_type: u8,
}

impl Header {
    /// The header of a body of `body` bytes; `None` when no lane allows so much.
    pub(crate) fn encode(&self, body: usize) -> Option<[u8; HEADER_BYTES]> {
        let length = body.checked_add(COUNTED_HEADER_BYTES)?;
        if length > self.lane.frame_bytes_max() {
            return None;
        }
        let [l0, l1, l2, l3] = u32::try_from(length).ok()?.to_le_bytes();
        let [s0, s1, s2, s3, s4, s5, s6, s7] = self.number.to_le_bytes();
        let lane = self.lane.tag();
        Some([l0, l1, l2, l3, lane, s0, s1, s2, s3, s4, s5, s6, s7, self.frame_type])
    }

    /// Reads a header and says how many bytes the whole frame has.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<(Self, usize), Refusal> {
        let [l0, l1, l2, l3, lane, s0, s1, s2, s3, s4, s5, s6, s7, frame_type] = *bytes;
        let lane = Lane::from_tag(lane).ok_or(Refusal::UnknownLane)?;
        let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        if length > lane.frame_bytes_max() {
            return Err(Refusal::TooLarge);
        }
        let body = length.checked_sub(COUNTED_HEADER_BYTES).ok_or(Refusal::TooShort)?;
        let control_fits = match frame_type {
            frame::ACK => body == ACK_BYTES,
            frame::HELLO => body <= HELLO_BYTES_MAX,
            frame::CLOSE => body <= REASON_BYTES_MAX,
            _ => true,
        };
        if !control_fits {
            return Err(Refusal::BadControl);
        }
        let number = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let header = Self { lane, number, frame_type };
        Ok((header, body.saturating_add(HEADER_BYTES)))
    }
}

/// Appends a small frame that only links make: it is true at its moment and is not sent again.
pub(crate) fn put_frame(out: &mut Vec<u8>, lane: Lane, number: u64, frame_type: u8, body: &[u8]) {
    let header = Header { lane, number, frame_type };
    if let Some(header) = header.encode(body.len()) {
        out.extend_from_slice(&header);
        out.extend_from_slice(body);
    }
}

/// Appends a hello or close, which belong to no lane.
pub(crate) fn put_control(out: &mut Vec<u8>, frame_type: u8, body: &[u8]) {
    put_frame(out, Lane::Consensus, 0, frame_type, body);
}

/// A CLOSE frame with this reason, cut to what the other side takes.
pub(crate) fn put_close(out: &mut Vec<u8>, reason: &str) {
    let bytes = reason.as_bytes();
    put_control(out, frame::CLOSE, bytes.get(..REASON_BYTES_MAX).unwrap_or(bytes));
}

/// How many bytes the frame that begins with this header has between replicas.
pub(crate) fn peer_frame_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, Refusal> {
    Header::decode(header).map(|(_, total)| total)
}

/// The length field of a frame between client and replica; `None` when it is too large.
#[must_use]
pub fn client_header(body: usize) -> Option<[u8; CLIENT_HEADER_BYTES]> {
    let fits = body <= FRAME_BYTES_MAX;
    u32::try_from(body).ok().filter(|_| fits).map(u32::to_le_bytes)
}

/// How many bytes the frame that begins with this header has between client and replica. An empty frame says
/// nothing and is refused.
///
/// # Errors
/// [`Refusal::TooShort`] and [`Refusal::TooLarge`].
pub fn client_frame_bytes(header: &[u8; CLIENT_HEADER_BYTES]) -> Result<usize, Refusal> {
    match usize::try_from(u32::from_le_bytes(*header)) {
        Ok(0) => Err(Refusal::TooShort),
        Ok(body) if body <= FRAME_BYTES_MAX => Ok(body.saturating_add(CLIENT_HEADER_BYTES)),
        _ => Err(Refusal::TooLarge),
    }
}

/// Says how many bytes a frame has, from its header.
pub type FrameBytes<const HEADER: usize> = fn(&[u8; HEADER]) -> Result<usize, Refusal>;

/// Takes a frame's header and body; an error ends the stream.
pub type EachFrame<'a, const HEADER: usize> = dyn FnMut(&[u8; HEADER], &[u8]) -> Result<(), Refusal> + 'a;

/// Puts frames together. A frame that lies whole in what was read is handed out where it lies; only one that
/// was cut is copied.
#[derive(Debug)]
pub struct Assembler<const HEADER: usize> {
    total: FrameBytes<HEADER>,
    partial: Vec<u8>,
    keep: usize,
}

impl<const HEADER: usize> Assembler<HEADER> {
    /// An assembler that keeps at most `keep` bytes of memory while nothing is unfinished.
    #[must_use]
    pub fn new(total: FrameBytes<HEADER>, keep: usize) -> Self {
        Self { total, partial: Vec::new(), keep }
    }

    /// Bytes of an unfinished frame that are kept.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.partial.len()
    }

    /// Takes what was read and hands out every frame that is complete: its header and its body.
    ///
    /// # Errors
    /// When a header is refused, or what `each` says. The stream is of no use after that.
    pub fn feed(&mut self, mut bytes: &[u8], each: &mut EachFrame<'_, HEADER>) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            if !self.partial.is_empty() {
                bytes = self.complete(bytes, each)?;
                continue;
            }
            let Some(header) = bytes.first_chunk::<HEADER>() else {
                self.partial.extend_from_slice(bytes);
                return Ok(());
            };
            let total = (self.total)(header)?;
            let Some((whole, rest)) = bytes.split_at_checked(total) else {
                self.partial.extend_from_slice(bytes);
                return Ok(());
            };
            each(header, whole.get(HEADER..).unwrap_or_default())?;
            bytes = rest;
        }
        Ok(())
    }

    /// Adds to the unfinished frame what belongs to it and returns the rest.
    fn complete<'a>(
        &mut self,
        bytes: &'a [u8],
        each: &mut EachFrame<'_, HEADER>,
    ) -> Result<&'a [u8], Refusal> {
        let wanted = match self.partial.first_chunk::<HEADER>() {
            None => HEADER,
            Some(header) => (self.total)(header)?,
        };
        let missing = wanted.saturating_sub(self.partial.len());
        let (taken, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
        self.partial.extend_from_slice(taken);
        if let Some(header) = self.partial.first_chunk::<HEADER>()
            && (self.total)(header)? == self.partial.len()
        {
            each(header, self.partial.get(HEADER..).unwrap_or_default())?;
            self.partial.clear();
            if self.partial.capacity() > self.keep {
                self.partial = Vec::new();
            }
        }
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client_assembler() -> Assembler<CLIENT_HEADER_BYTES> {
        Assembler::new(client_frame_bytes, 1 << 10)
    }

    proptest! {
        #[test]
        fn frames_come_whole_however_the_stream_is_cut(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 1..20),
            cuts in proptest::collection::vec(1usize..97, 1..50),
        ) {
            let mut stream = Vec::new();
            for body in &bodies {
                stream.extend_from_slice(&client_header(body.len()).unwrap());
                stream.extend_from_slice(body);
            }
            let mut assembler = client_assembler();
            let (mut got, mut rest, mut cuts) = (Vec::new(), &stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                assembler.feed(now, &mut |_, body| { got.push(body.to_vec()); Ok(()) }).unwrap();
                rest = later;
            }
            prop_assert_eq!(got, bodies);
            prop_assert_eq!(assembler.unfinished(), 0);
        }
    }

    #[test]
    fn an_oversize_frame_is_refused_by_its_header_and_keeps_nothing() {
        let mut assembler = client_assembler();
        let length = u32::try_from(FRAME_BYTES_MAX).unwrap() + 1;
        let mut never = |_: &[u8; 4], _: &[u8]| panic!("no frame is complete");
        assert_eq!(assembler.feed(&length.to_le_bytes(), &mut never), Err(Refusal::TooLarge));
        assert_eq!(assembler.feed(&[0, 0, 0, 0, 9], &mut never), Err(Refusal::TooShort));
        assert_eq!(assembler.partial.capacity(), 0);
    }

    #[test]
    fn a_claimed_length_allocates_only_what_came() {
        let mut assembler = client_assembler();
        let mut bytes = u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes().to_vec();
        bytes.push(1);
        assembler.feed(&bytes, &mut |_, _| Ok(())).unwrap();
        assert_eq!(assembler.unfinished(), 5);
        assert!(assembler.partial.capacity() <= 64, "grows with what came");
    }

    #[test]
    fn each_lane_has_its_limit() {
        for lane in Lane::ALL {
            let header = Header { lane, number: 7, frame_type: frame::PROTOCOL };
            let most = lane.frame_bytes_max() - COUNTED_HEADER_BYTES;
            assert_eq!(header.encode(most + 1), None, "{lane:?}");
            let mut bytes = header.encode(most).unwrap();
            assert_eq!(Header::decode(&bytes), Ok((header, most + HEADER_BYTES)));
            let over = u32::try_from(lane.frame_bytes_max()).unwrap() + 1;
            bytes[..4].copy_from_slice(&over.to_le_bytes());
            assert_eq!(Header::decode(&bytes), Err(Refusal::TooLarge));
            bytes[..4].copy_from_slice(&9u32.to_le_bytes());
            assert_eq!(Header::decode(&bytes), Err(Refusal::TooShort));
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[4] = 3;
        assert_eq!(Header::decode(&bytes), Err(Refusal::UnknownLane));
    }
}
