//! The link to one peer, without sockets: plain-text bytes in, frames out, and back.
//!
//! A link lives as long as its replica. Connections come and go beneath it: each begins with a hello from
//! both sides, which must agree, and continues at the end of the last one. A link promises for each lane that
//! frames come out in the order in which they went in, each at most once. If a frame is lost for good,
//! both sides receive [`LinkEvent::Lost`]. A link does not encrypt (the session beneath it does), does not know what
//! a vote is, reads no clock and draws no random number.
//!
//! # Layout
//! All integers are little-endian.
//! ```text
//! frame = length u32 | lane u8 | number u64 | type u8 | body        length counts the bytes after it
//!
//! type 1..4  data: numbered per lane and direction 0, 1, 2 … during one incarnation of the sender
//! type 5     ACK    number: the next one that the sender will use on this lane; body: 3 x u64, the next number
//!                   that it expects on each lane
//! type 6     HELLO  lane 0, number 0; body: types::wire::PeerHello; the first frame in both directions
//! type 7     CLOSE  lane 0, number 0; body: the reason as UTF-8, at most 256 bytes; the last frame
//! ```
//! * The higher id dials and sends its hello first; the other side answers with its own, or with CLOSE. Before
//!   the answer the dialler sends nothing else.
//! * `PeerHello::next` counts frames of the incarnation `peer_incarnation`. If that is not the receiver's own incarnation, the sender
//!   has received nothing of it. Sending continues at `next`, or at the first frame that is still kept.
//! * A number above the expected one means that the frames between are lost. A number below it closes the connection. If
//!   no frame follows a gap, an ACK on that lane shows the gap.
//! * An ACK precedes the next data, or follows alone: after 20 ms, or at once after 1 MiB. It has no answer.
//! * The link passes data of unknown types to its user.

use crate::frame::{
    self, Assembler, HEADER_BYTES, Header, Refusal, peer_frame_bytes, put_close, put_control, put_frame,
};
use crate::lanes::{Lanes, Loss, Oversize, ResendLimits, check_hello};
use quorate_types::limits::HANDSHAKE_NS_MAX;
use quorate_types::wire::{Lane, PeerHello, VERSION, frame as kind};
use quorate_types::{ClusterId, Epoch, FrameBody, Incarnation, ProtocolId, Reader, ReplicaId, Time, Wire};
use std::io::IoSlice;

/// The identity of this end of all its links. The other end must agree on cluster, epoch and protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The committee.
    pub epoch: Epoch,
    /// The protocol.
    pub protocol: ProtocolId,
    /// The id of this replica.
    pub me: ReplicaId,
    /// The incarnation of this replica: not zero, and never used before. Peers distinguish incarnations by it.
    pub incarnation: Incarnation,
}

/// A report of a link to its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent<'a> {
    /// Both hellos agree; frames flow.
    Up,
    /// A frame.
    Frame {
        /// The lane.
        lane: Lane,
        /// The type, one of `types::wire::frame`.
        frame_type: u8,
        /// The body, in the caller's buffer: copy a body that has to outlive the call.
        body: &'a [u8],
    },
    /// Frames were lost for good.
    Lost(Loss),
    /// The other side closes the connection and sends the reason. It chooses the text freely, up to 256 bytes.
    Closed {
        /// The reason.
        reason: &'a [u8],
    },
}

/// The delay after which an acknowledgement leaves alone, if no data leaves before.
pub const ACK_DELAY_NS: u64 = 20_000_000;

/// Received bytes after which an acknowledgement leaves at once, so that the sender need not keep more.
const ACK_AFTER_BYTES: usize = 1 << 20;

/// Memory that an idle link keeps for assembling frames.
const ASSEMBLER_KEEP_BYTES: usize = 1 << 20;

/// Pieces handed out in one call at most.
const SLICES: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No connection.
    Down,
    /// Connected; the hello of the other side is missing. It is late from `deadline` on.
    Greeting { deadline: Time },
    /// Frames flow.
    Up,
}

/// The link to one peer. The module's documentation describes it.
#[derive(Debug)]
pub struct Link {
    core: Core,
    assembler: Assembler<HEADER_BYTES>,
}

/// Everything but the assembler, so that a frame inside the assembler can be passed to it.
#[derive(Debug)]
struct Core {
    identity: Identity,
    peer: ReplicaId,
    phase: Phase,
    dialled: bool,
    lanes: Lanes,
    /// Frames of this connection alone: hello, acknowledgement, close.
    control: Vec<u8>,
    acknowledge: Acknowledge,
    lost: Vec<Loss>,
}

/// The acknowledgement that is owed to the peer.
#[derive(Debug, Default)]
struct Acknowledge {
    /// The time at which the acknowledgement leaves alone; `None` if none is owed.
    due: Option<Time>,
    /// Whether the acknowledgement leaves with the next write.
    now: bool,
    /// Received bytes that are not acknowledged.
    bytes: usize,
}

impl Link {
    /// Returns a link without a connection. Frames can be sent at once; they wait for the first connection.
    #[must_use]
    pub fn new(identity: Identity, peer: ReplicaId, limits: ResendLimits) -> Self {
        Self {
            core: Core {
                identity,
                peer,
                phase: Phase::Down,
                dialled: false,
                lanes: Lanes::new(limits),
                control: Vec::new(),
                acknowledge: Acknowledge::default(),
                lost: Vec::new(),
            },
            assembler: Assembler::new(peer_frame_bytes, ASSEMBLER_KEEP_BYTES),
        }
    }

    /// Whether this end of a link between `me` and `peer` dials.
    #[must_use]
    pub fn dials(me: ReplicaId, peer: ReplicaId) -> bool {
        me > peer
    }

    /// Returns the peer.
    #[must_use]
    pub fn peer(&self) -> ReplicaId {
        self.core.peer
    }

    /// Returns the last known incarnation of the peer; zero before its first hello.
    #[must_use]
    pub fn heard(&self) -> Incarnation {
        self.core.lanes.heard()
    }

    /// Whether frames flow.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.core.phase == Phase::Up
    }

    /// Returns the bytes kept for sending again, and those of them that wait to be sent.
    #[must_use]
    pub fn backlog(&self) -> (usize, usize) {
        self.core.lanes.backlog()
    }

    /// Begins a connection that this end dialled: the hello can be written.
    pub fn connect(&mut self, now: Time) {
        self.begin(now);
        self.core.dialled = true;
        self.core.put_hello();
    }

    /// Begins a connection that the other end dialled: its hello comes first. Use [`Link::accept_hello`]
    /// instead if only the hello reveals the dialling replica.
    pub fn accept(&mut self, now: Time) {
        self.begin(now);
    }

    fn begin(&mut self, now: Time) {
        self.disconnect();
        self.core.phase = Phase::Greeting { deadline: now.plus(HANDSHAKE_NS_MAX) };
    }

    /// Begins a connection that the other end dialled and whose hello has been read (see [`Greeter`]). The connection
    /// replaces an older one; if the hello is refused, the older one stays.
    ///
    /// # Errors
    /// The reason why the hello is refused.
    pub fn accept_hello(
        &mut self,
        hello: &PeerHello,
        sink: &mut dyn FnMut(LinkEvent<'_>),
    ) -> Result<(), Refusal> {
        check_hello(&self.core.hello(), hello, self.core.peer)?;
        let announce = self.core.lanes.resume(self.core.identity.incarnation, hello, &mut self.core.lost)?;
        self.disconnect();
        self.core.up(announce, sink);
        Ok(())
    }

    /// Ends the connection. Frames that were sent and not acknowledged are sent again on the next connection,
    /// unless its hello shows that they arrived.
    pub fn disconnect(&mut self) {
        self.core.phase = Phase::Down;
        self.core.dialled = false;
        self.core.control.clear();
        self.core.acknowledge = Acknowledge::default();
        self.assembler = Assembler::new(peer_frame_bytes, ASSEMBLER_KEEP_BYTES);
    }

    /// Queues a frame. The frame leaves when there is a connection, in the order of its
    /// lane. If the lane keeps too much already, its oldest half is dropped and reported lost later.
    ///
    /// # Errors
    /// Fails when the frame exceeds the limit of its lane.
    pub fn send(&mut self, lane: Lane, frame_type: u8, body: FrameBody) -> Result<(), Oversize> {
        self.core.lanes.push(lane, frame_type, body)
    }

    /// Takes bytes of the connection, cut anywhere, and hands out the events in them.
    ///
    /// # Errors
    /// The reason why the connection must be closed: write [`Link::close`] and drop it. Nothing more can be read from
    /// it. After [`Refusal::Closed`] there is nothing to write either.
    pub fn read(
        &mut self,
        now: Time,
        bytes: &[u8],
        sink: &mut dyn FnMut(LinkEvent<'_>),
    ) -> Result<(), Refusal> {
        let core = &mut self.core;
        self.assembler.feed(bytes, &mut |header, body| core.frame(now, header, body, sink))
    }

    /// Whether the link has bytes to write.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        let core = &self.core;
        !core.control.is_empty()
            || (core.phase == Phase::Up && (core.acknowledge.now || core.lanes.has_unsent()))
    }

    /// Passes bytes to `take`, which takes them all, in as many calls as needed: about `limit`
    /// bytes, more only to finish a frame. Returns their number.
    pub fn transmit(&mut self, limit: usize, take: &mut dyn FnMut(&[IoSlice<'_>])) -> usize {
        let core = &mut self.core;
        let mut written = 0usize;
        loop {
            let more = core.phase == Phase::Up && core.lanes.has_unsent() && written < limit;
            if core.phase == Phase::Up && (core.acknowledge.now || (more && core.acknowledge.due.is_some())) {
                core.put_ack(Lane::Consensus);
            }
            if more {
                core.lanes.skip_gaps(&mut core.lost);
            } else if core.control.is_empty() {
                return written;
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut used = 0usize;
            let mut free = slices.iter_mut();
            if !core.control.is_empty()
                && let Some(slot) = free.next()
            {
                *slot = IoSlice::new(&core.control);
                used = 1;
            }
            let gathered = if more {
                core.lanes.gather(free.into_slice(), limit.saturating_sub(written))
            } else {
                Default::default()
            };
            used = used.saturating_add(gathered.slices);
            take(slices.get(..used).unwrap_or_default());
            written = written.saturating_add(core.control.len()).saturating_add(gathered.bytes);
            core.lanes.sent(&gathered);
            core.control.clear();
        }
    }

    /// Appends all bytes that the link has to write.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        self.transmit(usize::MAX, &mut |slices| {
            for slice in slices {
                out.extend_from_slice(slice);
            }
        });
    }

    /// Appends the frame that gives the other side the reason why the connection is being closed.
    pub fn close(reason: &str, out: &mut Vec<u8>) {
        put_close(out, reason);
    }

    /// Returns the time of the next necessary call to [`Link::tick`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.core.phase {
            Phase::Down => None,
            Phase::Greeting { deadline } => Some(deadline),
            Phase::Up if self.core.acknowledge.now => None,
            Phase::Up => self.core.acknowledge.due,
        }
    }

    /// Does due work: an acknowledgement becomes ready to be written.
    ///
    /// # Errors
    /// The reason why the connection must be closed: the hello of the other side is late.
    pub fn tick(&mut self, now: Time) -> Result<(), Refusal> {
        match self.core.phase {
            Phase::Greeting { deadline } if now >= deadline => Err(Refusal::TooSlow),
            Phase::Up if self.core.acknowledge.due.is_some_and(|due| now >= due) => {
                self.core.acknowledge.now = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Hands out the losses that were noticed while writing.
    pub fn losses(&mut self, sink: &mut dyn FnMut(LinkEvent<'_>)) {
        for loss in self.core.lost.drain(..) {
            sink(LinkEvent::Lost(loss));
        }
    }

    /// Whether [`Link::losses`] has a loss to hand out.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        !self.core.lost.is_empty()
    }
}

impl Core {
    fn hello(&self) -> PeerHello {
        PeerHello {
            version: VERSION,
            cluster: self.identity.cluster,
            epoch: self.identity.epoch,
            protocol: self.identity.protocol,
            id: self.identity.me,
            incarnation: self.identity.incarnation,
            peer_incarnation: self.lanes.heard(),
            next: self.lanes.expected(),
        }
    }

    fn put_hello(&mut self) {
        let hello = self.hello().to_bytes();
        put_control(&mut self.control, kind::HELLO, &hello);
    }

    fn put_ack(&mut self, lane: Lane) {
        let mut body = [0; frame::ACK_BYTES];
        for (field, next) in body.chunks_exact_mut(8).zip(self.lanes.expected()) {
            field.copy_from_slice(&next.to_le_bytes());
        }
        let number = self.lanes.cursor(lane);
        put_frame(&mut self.control, lane, number, kind::ACK, &body);
        self.acknowledge = Acknowledge::default();
    }

    /// Brings the link up: both hellos agree. The side that was dialled answers only now, because its hello must count the
    /// frames of the older connection.
    fn up(&mut self, announce: [bool; 3], sink: &mut dyn FnMut(LinkEvent<'_>)) {
        if !self.dialled {
            self.put_hello();
        }
        for (lane, announce) in Lane::ALL.into_iter().zip(announce) {
            if announce {
                self.put_ack(lane);
            }
        }
        self.phase = Phase::Up;
        for loss in self.lost.drain(..) {
            sink(LinkEvent::Lost(loss));
        }
        sink(LinkEvent::Up);
    }

    fn frame(
        &mut self,
        now: Time,
        header: &[u8; HEADER_BYTES],
        body: &[u8],
        sink: &mut dyn FnMut(LinkEvent<'_>),
    ) -> Result<(), Refusal> {
        let (header, total) = Header::decode(header)?;
        match (header.frame_type, self.phase) {
            (_, Phase::Down) => Err(Refusal::HelloExpected),
            (kind::CLOSE, _) => {
                sink(LinkEvent::Closed { reason: body });
                Err(Refusal::Closed)
            }
            (kind::HELLO, Phase::Greeting { .. }) => {
                let hello = decode_hello(body)?;
                check_hello(&self.hello(), &hello, self.peer)?;
                let announce = self.lanes.resume(self.identity.incarnation, &hello, &mut self.lost)?;
                self.up(announce, sink);
                Ok(())
            }
            (_, Phase::Greeting { .. }) => Err(Refusal::HelloExpected),
            (kind::HELLO, Phase::Up) => Err(Refusal::BadControl),
            (kind::ACK, Phase::Up) => {
                if let Some(loss) = self.lanes.announced(header.lane, header.number)? {
                    sink(LinkEvent::Lost(loss));
                }
                self.lanes.acknowledge(decode_ack(body)?)
            }
            (frame_type, Phase::Up) => {
                if let Some(loss) = self.lanes.accept(header.lane, header.number)? {
                    sink(LinkEvent::Lost(loss));
                }
                self.owe(now, total);
                sink(LinkEvent::Frame { lane: header.lane, frame_type, body });
                Ok(())
            }
        }
    }

    fn owe(&mut self, now: Time, bytes: usize) {
        let owed = &mut self.acknowledge;
        owed.due.get_or_insert(now.plus(ACK_DELAY_NS));
        owed.bytes = owed.bytes.saturating_add(bytes);
        owed.now |= owed.bytes >= ACK_AFTER_BYTES;
    }
}

fn decode_ack(body: &[u8]) -> Result<[u64; 3], Refusal> {
    let mut reader = Reader::new(body);
    let mut next = || reader.u64().map_err(|_| Refusal::BadControl);
    Ok([next()?, next()?, next()?])
}

/// Decodes a hello. The version comes first, because another version may have another format.
fn decode_hello(body: &[u8]) -> Result<PeerHello, Refusal> {
    let version = Reader::new(body).u16().map_err(|_| Refusal::BadHello)?;
    if version != VERSION {
        return Err(Refusal::OtherVersion);
    }
    PeerHello::from_bytes(body).map_err(|_| Refusal::BadHello)
}

/// Reads the hello of a connection whose link is not known yet.
#[derive(Debug)]
pub struct Greeter {
    assembler: Assembler<HEADER_BYTES>,
    hello: Option<PeerHello>,
}

impl Default for Greeter {
    fn default() -> Self {
        Self { assembler: Assembler::new(greeting_bytes, 0), hello: None }
    }
}

impl Greeter {
    /// Takes received bytes, cut anywhere.
    ///
    /// # Errors
    /// Fails when the bytes are anything but one well-formed hello of this version.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let hello = &mut self.hello;
        self.assembler.feed(bytes, &mut |header, body| {
            greeting_bytes(header)?;
            if hello.is_some() {
                return Err(Refusal::HelloExpected);
            }
            *hello = Some(decode_hello(body)?);
            Ok(())
        })
    }

    /// Returns the hello, once it is complete.
    #[must_use]
    pub fn hello(&self) -> Option<&PeerHello> {
        self.hello.as_ref()
    }
}

/// Returns the bytes of a first frame. It must be a hello: the header of any other frame is refused.
fn greeting_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, Refusal> {
    match Header::decode(header)? {
        (header, total) if header.frame_type == kind::HELLO => Ok(total),
        _ => Err(Refusal::HelloExpected),
    }
}

#[cfg(test)]
mod tests;
