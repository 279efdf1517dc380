//! The link to one peer, without sockets: plain-text bytes in, frames out, and back.
//!
//! A link lives as long as its replica. Connections come and go beneath it: each begins with a hello from
//! both sides, which must agree, and goes on where the last one stopped. What a link promises, per lane:
//! frames come out in the order in which they went in, each at most once, and if one cannot come any more
//! both sides hear [`LinkEvent::Lost`]. It does not encrypt (the session beneath it does), does not know what
//! a vote is, reads no clock and draws no random number.
//!
//! # Layout
//! All integers are little-endian.
//! ```text
//! frame = length u32 | lane u8 | number u64 | type u8 | body        length counts what follows it
//!
//! type 1..4  data: numbered per lane and direction 0, 1, 2 … during one incarnation of the sender
//! type 5     ACK    number: the next one that the sender will use on this lane; body: 3 x u64, the next number
//!                   that it expects on each lane
//! type 6     HELLO  lane 0, number 0; body: types::wire::PeerHello; the first frame in both directions
//! type 7     CLOSE  lane 0, number 0; body: the reason as UTF-8, at most 256 bytes; the last frame
//! ```
//! * The higher id dials and says its hello first; the other side answers with its own, or with CLOSE. Before
//!   the answer the dialler sends nothing else.
//! * `PeerHello::next` counts frames of the incarnation `peer_incarnation`. When that is not the receiver's own, nothing
//!   of this life was heard. Sending goes on at `next`, or at the first frame that is still kept.
//! * A number above the expected one: what lies between is lost. A number below it closes the connection. Where
//!   no frame follows a gap, an ACK on that lane shows it.
//! * An ACK rides in front of the next data; it follows alone after 20 ms, or at once after 1 MiB. It is
//!   never answered.
//! * Data types that the receiver does not know are the business of who uses the link.

use crate::frame::{
    self, Assembler, HEADER_BYTES, Header, Refusal, peer_frame_bytes, put_close, put_control, put_frame,
};
use crate::lanes::{Lanes, Loss, Oversize, ResendLimits, check_hello};
use quorate_types::limits::HANDSHAKE_NS_MAX;
use quorate_types::wire::{Lane, PeerHello, VERSION, frame as kind};
use quorate_types::{ClusterId, Epoch, FrameBody, Incarnation, ProtocolId, Reader, ReplicaId, Time, Wire};
use std::io::IoSlice;

/// Who this end of all its links is. The other end must agree on cluster, epoch and protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Which committee.
    pub epoch: Epoch,
    /// Which protocol.
    pub protocol: ProtocolId,
    /// Who we are.
    pub me: ReplicaId,
    /// Our incarnation: not zero, and never used before by this replica. Peers tell our lives apart by it.
    pub incarnation: Incarnation,
}

/// What a link says to who uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent<'a> {
    /// Both hellos agree; frames flow.
    Up,
    /// A frame.
    Frame {
        /// On which lane.
        lane: Lane,
        /// Its type, as `types::wire::frame` lists them.
        frame_type: u8,
        /// Its body, in the buffer that was read: copy what outlives the call.
        body: &'a [u8],
    },
    /// Frames were lost for good.
    Lost(Loss),
    /// The other side closes the connection and says why. The words are its own: at most 256 bytes, but
    /// otherwise whatever it likes.
    Closed {
        /// The reason.
        reason: &'a [u8],
    },
}

/// An acknowledgement that found nothing to ride on follows after this time.
pub const ACK_DELAY_NS: u64 = 20_000_000;

/// An acknowledgement goes at once after so many bytes, so that the sender need not keep more.
const ACK_AFTER_BYTES: usize = 1 << 20;

/// Memory that an idle link keeps for putting frames together.
const ASSEMBLER_KEEP_BYTES: usize = 1 << 20;

/// Pieces handed out in one call at most.
const SLICES: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No connection.
    Down,
    /// Connected; the hello of the other side is missing. `deadline`: when that becomes its fault.
    Greeting { deadline: Time },
    /// Frames flow.
    Up,
}

/// The link to one peer. See the module's words.
#[derive(Debug)]
pub struct Link {
    core: Core,
    assembler: Assembler<HEADER_BYTES>,
}

/// All but the assembler, so that a frame that lies in the assembler can be handed to it.
#[derive(Debug)]
struct Core {
    identity: Identity,
    peer: ReplicaId,
    phase: Phase,
    dialled: bool,
    lanes: Lanes,
    /// Frames that only this connection knows: hello, acknowledgement, close.
    control: Vec<u8>,
    acknowledge: Acknowledge,
    lost: Vec<Loss>,
}

/// What is owed to the peer.
#[derive(Debug, Default)]
struct Acknowledge {
    /// When the acknowledgement goes alone; `None` when nothing is owed.
    due: Option<Time>,
    now: bool,
    bytes: usize,
}

impl Link {
    /// A link that has no connection yet. Frames can be sent from now on and wait for the first one.
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

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> ReplicaId {
        self.core.peer
    }

    /// The life of the peer that we know; zero before its first hello.
    #[must_use]
    pub fn heard(&self) -> Incarnation {
        self.core.lanes.heard()
    }

    /// Whether frames flow.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.core.phase == Phase::Up
    }

    /// Bytes kept for sending again, and those of them that wait to be sent.
    #[must_use]
    pub fn backlog(&self) -> (usize, usize) {
        self.core.lanes.backlog()
    }

    /// A connection that this end dialled is there: the hello can be written.
    pub fn connect(&mut self, now: Time) {
        self.begin(now);
        self.core.dialled = true;
        self.core.put_hello();
    }

    /// A connection that the other end dialled is there: its hello comes first. Use [`Link::accept_hello`]
    /// instead where who dialled becomes known by the hello only.
    pub fn accept(&mut self, now: Time) {
        self.begin(now);
    }

    fn begin(&mut self, now: Time) {
        self.disconnect();
        self.core.phase = Phase::Greeting { deadline: now.plus(HANDSHAKE_NS_MAX) };
    }

    /// A connection that the other end dialled is there, and its hello has been read (see [`Greeter`]). It
    /// takes the place of an older connection; when the hello is refused, the older one stays.
    ///
    /// # Errors
    /// Why the hello is refused.
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

    /// The connection is gone. What was sent and is not acknowledged will be sent again on the next one,
    /// unless its hello says that it arrived.
    pub fn disconnect(&mut self) {
        self.core.phase = Phase::Down;
        self.core.dialled = false;
        self.core.control.clear();
        self.core.acknowledge = Acknowledge::default();
        self.assembler = Assembler::new(peer_frame_bytes, ASSEMBLER_KEEP_BYTES);
    }

    /// Queues a frame. It goes when there is a connection, in the order of its
    /// lane. When the lane keeps too much already, its oldest half is dropped and reported lost later.
    ///
    /// # Errors
    /// When no peer would take the frame because it is too large.
    pub fn send(&mut self, lane: Lane, frame_type: u8, body: FrameBody) -> Result<(), Oversize> {
        self.core.lanes.push(lane, frame_type, body)
    }

    /// Takes what was read from the connection, cut anywhere, and hands out what it means.
    ///
    /// # Errors
    /// Why the connection must be closed: write [`Link::close`] and drop it. Nothing more can be read from
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

    /// Whether there is something to write.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        let core = &self.core;
        !core.control.is_empty()
            || (core.phase == Phase::Up && (core.acknowledge.now || core.lanes.has_unsent()))
    }

    /// Hands what is to be written to `take`, which takes it all, in as many calls as it needs: about `limit`
    /// bytes, more only to finish a frame. Returns how many.
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

    /// Appends all that is to be written.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        self.transmit(usize::MAX, &mut |slices| {
            for slice in slices {
                out.extend_from_slice(slice);
            }
        });
    }

    /// Appends the frame that tells the other side why the connection is being closed.
    pub fn close(reason: &str, out: &mut Vec<u8>) {
        put_close(out, reason);
    }

    /// When [`Link::tick`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.core.phase {
            Phase::Down => None,
            Phase::Greeting { deadline } => Some(deadline),
            Phase::Up if self.core.acknowledge.now => None,
            Phase::Up => self.core.acknowledge.due,
        }
    }

    /// Notices what is due: an acknowledgement becomes ready to be written.
    ///
    /// # Errors
    /// Why the connection must be closed: the hello of the other side is late.
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

    /// Hands out losses that were noticed while writing.
    pub fn losses(&mut self, sink: &mut dyn FnMut(LinkEvent<'_>)) {
        for loss in self.core.lost.drain(..) {
            sink(LinkEvent::Lost(loss));
        }
    }

    /// Whether [`Link::losses`] has something to say.
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

    /// Both hellos agree. The side that was dialled answers only now: its hello must count what the older
    /// connection brought.
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

/// Reads the version first: all that follows it may look different in another one.
fn decode_hello(body: &[u8]) -> Result<PeerHello, Refusal> {
    let version = Reader::new(body).u16().map_err(|_| Refusal::BadHello)?;
    if version != VERSION {
        return Err(Refusal::OtherVersion);
    }
    PeerHello::from_bytes(body).map_err(|_| Refusal::BadHello)
}

/// Reads the hello of a connection of which it is not known yet to which link it belongs.
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
    /// Takes what was read, cut anywhere.
    ///
    /// # Errors
    /// When it is not one well-formed hello of this version and nothing else.
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

    /// The hello, once it is complete.
    #[must_use]
    pub fn hello(&self) -> Option<&PeerHello> {
        self.hello.as_ref()
    }
}

/// A stranger's first frame must be a hello: anything else is refused by its header.
fn greeting_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, Refusal> {
    match Header::decode(header)? {
        (header, total) if header.frame_type == kind::HELLO => Ok(total),
        _ => Err(Refusal::HelloExpected),
    }
}

#[cfg(test)]
mod tests;
