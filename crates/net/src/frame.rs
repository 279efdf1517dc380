//! Frames on a stream: headers, and the assembly of frames from a stream that is cut anywhere.
//!
//! The header alone decides about a frame: one that is too large for its lane is refused before any byte of
//! its body is kept. Memory grows with the received bytes, never with a length field.

use quorate_types::limits::{FRAME_BYTES_MAX, REASON_BYTES_MAX};
use quorate_types::wire::{Lane, frame};
use std::fmt;

/// Bytes of the header of a frame between replicas: length, lane, sequence number, type.
pub const HEADER_BYTES: usize = 4 + 1 + 8 + 1;

/// Bytes of the header of a frame between client and replica: the length.
pub const CLIENT_HEADER_BYTES: usize = 4;

/// Bytes that the length field of a frame between replicas counts in addition to the body.
const COUNTED_HEADER_BYTES: usize = HEADER_BYTES - 4;

/// Returns the most bytes of a body on this lane.
#[must_use]
pub const fn body_bytes_max(lane: Lane) -> usize {
    lane.frame_bytes_max().saturating_sub(COUNTED_HEADER_BYTES)
}

/// Bytes of the body of an acknowledgement: the next number expected, for each lane.
pub(crate) const ACK_BYTES: usize = 24;

/// Bytes of the body of a hello at most. The hello of another version may be longer than ours, and its sender still receives the
/// reason of the refusal.
const HELLO_BYTES_MAX: usize = 1_024;

/// The reason why a connection is closed: an act of the other side, or its difference from this side. The text travels in the
/// CLOSE frame, and operators read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The length field exceeds what the lane allows.
    TooLarge,
    /// The length field is smaller than a header.
    TooShort,
    /// The lane is unknown.
    UnknownLane,
    /// A control frame, which only links make, has the wrong form.
    BadControl,
    /// A frame arrived before the hello, or before this side's answer to it.
    HelloExpected,
    /// The hello cannot be decoded.
    BadHello,
    /// The other side has another version of the wire format.
    OtherVersion,
    /// The other side belongs to another cluster.
    OtherCluster,
    /// The other side belongs to another committee of the cluster.
    OtherEpoch,
    /// The other side runs another protocol.
    OtherProtocol,
    /// The hello names a replica that does not belong to the other end of this link.
    OtherReplica,
    /// A frame arrived again.
    Repeated,
    /// The other side acknowledges frames that were never sent. A replica with a rolled-back disk receives this reason
    /// too, when it opens an incarnation that was used before.
    NeverSent,
    /// The other side ended the connection properly.
    Closed,
    /// The handshake or the first frame took too long.
    TooSlow,
    /// There are too many connections, or too many half-open ones.
    TooMany,
    /// The other side does not read its messages.
    DoesNotRead,
    /// Unfinished frames of the other side hold too much memory.
    Unfinished,
    /// The TLS handshake or a record is wrong, for the reason in the text.
    Tls(&'static str),
}

impl Refusal {
    /// Returns the text of the reason, at most [`REASON_BYTES_MAX`] bytes.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::TooLarge => "frame too large",
            Self::TooShort => "frame shorter than its header",
            Self::UnknownLane => "unknown lane",
            Self::BadControl => "malformed control frame",
            Self::HelloExpected => "sent a frame before the hello was answered",
            Self::BadHello => "malformed hello",
            Self::OtherVersion => "another version of the wire format",
            Self::OtherCluster => "another cluster",
            Self::OtherEpoch => "another epoch",
            Self::OtherProtocol => "another protocol",
            Self::OtherReplica => "not the replica that belongs to this link",
            Self::Repeated => "repeated sequence number",
            Self::NeverSent => "acknowledges frames that were never sent",
            Self::Closed => "closed by the other side",
            Self::TooSlow => "handshake took too long",
            Self::TooMany => "too many connections",
            Self::DoesNotRead => "does not read its replies",
            Self::Unfinished => "too many bytes in unfinished frames",
            Self::Tls(text) => text,
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
    /// Returns the header for a body of `body` bytes; `None` if the body exceeds the limit of its lane.
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

    /// Reads a header; returns it with the bytes of the whole frame.
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

/// Appends a small frame that only links make. The frame holds at its moment and is never sent again.
pub(crate) fn put_frame(out: &mut Vec<u8>, lane: Lane, number: u64, frame_type: u8, body: &[u8]) {
    let header = Header { lane, number, frame_type };
    if let Some(header) = header.encode(body.len()) {
        out.extend_from_slice(&header);
        out.extend_from_slice(body);
    }
}

/// Appends a hello or a close, which belong to no lane.
pub(crate) fn put_control(out: &mut Vec<u8>, frame_type: u8, body: &[u8]) {
    put_frame(out, Lane::Consensus, 0, frame_type, body);
}

/// Appends a CLOSE frame with this reason, cut to the limit of the other side.
pub(crate) fn put_close(out: &mut Vec<u8>, reason: &str) {
    let bytes = reason.as_bytes();
    put_control(out, frame::CLOSE, bytes.get(..REASON_BYTES_MAX).unwrap_or(bytes));
}

/// Returns the bytes of the whole frame between replicas that begins with this header.
pub(crate) fn peer_frame_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, Refusal> {
    Header::decode(header).map(|(_, total)| total)
}

/// Returns the length field of a frame between client and replica; `None` if the body is too large.
#[must_use]
pub fn client_header(body: usize) -> Option<[u8; CLIENT_HEADER_BYTES]> {
    let fits = body <= FRAME_BYTES_MAX;
    u32::try_from(body).ok().filter(|_| fits).map(u32::to_le_bytes)
}

/// Returns the bytes of the whole frame between client and replica that begins with this header. An empty frame carries
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

/// Computes the bytes of a whole frame from its header.
pub type FrameBytes<const HEADER: usize> = fn(&[u8; HEADER]) -> Result<usize, Refusal>;

/// Takes a frame's header and body; an error ends the stream.
pub type EachFrame<'a, const HEADER: usize> = dyn FnMut(&[u8; HEADER], &[u8]) -> Result<(), Refusal> + 'a;

/// Assembles frames. A frame that lies whole in the received bytes is handed out without a copy; only a
/// cut frame is copied.
#[derive(Debug)]
pub struct Assembler<const HEADER: usize> {
    total: FrameBytes<HEADER>,
    partial: Vec<u8>,
    keep: usize,
}

impl<const HEADER: usize> Assembler<HEADER> {
    /// Returns an assembler that keeps at most `keep` bytes of memory while no frame is unfinished.
    #[must_use]
    pub fn new(total: FrameBytes<HEADER>, keep: usize) -> Self {
        Self { total, partial: Vec::new(), keep }
    }

    /// Returns the bytes of the unfinished frame.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.partial.len()
    }

    /// Takes received bytes and hands out every complete frame: its header and its body.
    ///
    /// # Errors
    /// Fails when a header is refused, or the error of `each`. The stream is unusable after that.
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

    /// Adds the bytes that belong to the unfinished frame, and returns the rest.
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
        fn frames_are_whole_for_every_cut_of_the_stream(
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
    fn oversize_frame_is_refused_by_its_header_without_memory() {
        let mut assembler = client_assembler();
        let length = u32::try_from(FRAME_BYTES_MAX).unwrap() + 1;
        let mut never = |_: &[u8; 4], _: &[u8]| panic!("no frame is complete");
        assert_eq!(assembler.feed(&length.to_le_bytes(), &mut never), Err(Refusal::TooLarge));
        assert_eq!(assembler.feed(&[0, 0, 0, 0, 9], &mut never), Err(Refusal::TooShort));
        assert_eq!(assembler.partial.capacity(), 0);
    }

    #[test]
    fn claimed_length_allocates_only_received_bytes() {
        let mut assembler = client_assembler();
        let mut bytes = u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes().to_vec();
        bytes.push(1);
        assembler.feed(&bytes, &mut |_, _| Ok(())).unwrap();
        assert_eq!(assembler.unfinished(), 5);
        assert!(assembler.partial.capacity() <= 64, "the buffer grows with the received bytes");
    }

    #[test]
    fn frame_is_limited_by_its_lane() {
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
