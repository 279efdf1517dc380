//! The part of a link that survives its connections: three lanes with their sequence numbers, the frames kept
//! for sending again, and the next expected numbers.
//!
//! Numbers count the frames of one lane in one direction, from zero, for the whole incarnation of the sender.
//! The receiver takes each number once and in order. A frame is kept until it is acknowledged. When a lane keeps
//! too much, its oldest half is dropped. If the other side lacks a dropped frame, both sides receive a
//! [`Loss`]: the sender when it skips the numbers, the receiver when it sees the gap.

use crate::frame::{HEADER_BYTES, Header, Refusal};
use quorate_types::limits::{RESEND_BYTES_MAX, RESEND_FRAMES_MAX};
use quorate_types::wire::{Lane, PeerHello};
use quorate_types::{FrameBody, Incarnation, ReplicaId};
use std::collections::VecDeque;
use std::io::IoSlice;

/// The direction of lost frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From the peer to this replica.
    Incoming,
    /// From this replica to the peer.
    Outgoing,
}

/// Frames `from..to` of a lane are lost for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The direction.
    pub direction: Direction,
    /// The lane.
    pub lane: Lane,
    /// Number of the first lost frame.
    pub from: u64,
    /// Number of the first frame after the gap; [`u64::MAX`] if it is unknown because the peer started a
    /// new incarnation.
    pub to: u64,
}

/// The body is too large for its lane: every peer would refuse it. This is always a mistake of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a frame of {bytes} bytes does not fit on lane {lane:?}")]
pub struct Oversize {
    /// The lane.
    pub lane: Lane,
    /// Bytes of the body.
    pub bytes: usize,
}

/// The limits of the frames that a lane keeps for sending again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResendLimits {
    /// Bytes at most.
    pub bytes: usize,
    /// Frames at most.
    pub frames: usize,
}

impl Default for ResendLimits {
    fn default() -> Self {
        Self { bytes: RESEND_BYTES_MAX, frames: RESEND_FRAMES_MAX }
    }
}

/// A frame that is kept until it is acknowledged.
#[derive(Debug)]
struct Kept {
    header: [u8; HEADER_BYTES],
    body: FrameBody,
    bytes: usize,
}

/// One lane towards the peer.
#[derive(Debug, Default)]
struct Outgoing {
    /// Frames `first..first + kept.len()`, without a gap.
    kept: VecDeque<Kept>,
    first: u64,
    /// Number of the next frame that this connection sends; below `first` if frames in between were dropped.
    cursor: u64,
    bytes: usize,
}

impl Outgoing {
    fn next(&self) -> u64 {
        self.first.saturating_add(u64::try_from(self.kept.len()).unwrap_or(u64::MAX))
    }

    fn drop_first(&mut self) {
        if let Some(frame) = self.kept.pop_front() {
            self.bytes = self.bytes.saturating_sub(frame.bytes);
            self.first = self.first.saturating_add(1);
        }
    }

    fn drop_below(&mut self, number: u64) {
        while self.first < number && !self.kept.is_empty() {
            self.drop_first();
        }
    }

    /// Returns the number of kept frames that this connection has sent.
    fn sent(&self) -> usize {
        usize::try_from(self.cursor.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }
}

/// The frames that a call to [`Lanes::gather`] collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) slices: usize,
    pub(crate) bytes: usize,
    frames: [u64; 3],
}

/// Sequence numbers, resend buffers and expectations towards one peer.
#[derive(Debug)]
pub(crate) struct Lanes {
    limits: ResendLimits,
    out: [Outgoing; 3],
    expected: [u64; 3],
    /// The incarnation of the peer whose frames `expected` counts; zero before its first hello.
    heard: Incarnation,
}

impl Lanes {
    pub(crate) fn new(limits: ResendLimits) -> Self {
        Self { limits, out: Default::default(), expected: [0; 3], heard: Incarnation::ZERO }
    }

    pub(crate) fn heard(&self) -> Incarnation {
        self.heard
    }

    /// Returns the number of the next frame that this connection sends on a lane.
    pub(crate) fn cursor(&self, lane: Lane) -> u64 {
        part_of_lane(lane, self.out.each_ref()).cursor
    }

    /// Returns the next expected numbers, for hellos and acknowledgements.
    pub(crate) fn expected(&self) -> [u64; 3] {
        self.expected
    }

    /// Returns the kept bytes, and those of them that this connection has not sent.
    pub(crate) fn backlog(&self) -> (usize, usize) {
        self.out.iter().fold((0, 0), |(kept, unsent), lane| {
            let sent: usize = lane.kept.iter().take(lane.sent()).map(|frame| frame.bytes).sum();
            (kept.saturating_add(lane.bytes), unsent.saturating_add(lane.bytes.saturating_sub(sent)))
        })
    }

    /// Appends a frame to its lane. If the lane keeps too much, its oldest half is dropped: half, so that the frames for an
    /// absent peer are reported lost once in a while and not one by one.
    pub(crate) fn push(&mut self, lane: Lane, frame_type: u8, body: FrameBody) -> Result<(), Oversize> {
        let bytes = body.len();
        let limits = self.limits;
        let out = part_of_lane(lane, self.out.each_mut());
        let number = out.next();
        let header = Header { lane, number, frame_type };
        let header = header.encode(bytes).ok_or(Oversize { lane, bytes })?;
        let bytes = bytes.saturating_add(HEADER_BYTES);
        let full = out.bytes.saturating_add(bytes) > limits.bytes || out.kept.len() >= limits.frames;
        while full && (out.bytes > limits.bytes / 2 || out.kept.len() > limits.frames / 2) {
            out.drop_first();
        }
        out.bytes = out.bytes.saturating_add(bytes);
        out.kept.push_back(Kept { header, body, bytes });
        Ok(())
    }

    /// Whether this connection has frames to send.
    pub(crate) fn has_unsent(&self) -> bool {
        self.out.iter().any(|lane| lane.cursor < lane.next())
    }

    /// Skips frames that were dropped before this connection sent them, and reports them lost.
    pub(crate) fn skip_gaps(&mut self, lost: &mut Vec<Loss>) {
        for (lane, out) in Lane::ALL.into_iter().zip(&mut self.out) {
            if out.cursor < out.first {
                lost.push(Loss { direction: Direction::Outgoing, lane, from: out.cursor, to: out.first });
                out.cursor = out.first;
            }
        }
    }

    /// Collects frames that this connection has not sent, lane by lane, until `slices` is full or `limit`
    /// bytes are reached: at least one frame if there is one. The caller must have skipped gaps.
    pub(crate) fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>], limit: usize) -> Gathered {
        let mut gathered = Gathered::default();
        let mut free = slices.iter_mut();
        for (out, count) in self.out.iter().zip(&mut gathered.frames) {
            for frame in out.kept.range(out.sent().min(out.kept.len())..) {
                if gathered.bytes >= limit || free.len() < 2 {
                    return gathered;
                }
                for (piece, slot) in [&frame.header[..], &frame.body].into_iter().zip(&mut free) {
                    *slot = IoSlice::new(piece);
                    gathered.slices = gathered.slices.saturating_add(1);
                }
                gathered.bytes = gathered.bytes.saturating_add(frame.bytes);
                *count = count.saturating_add(1);
            }
        }
        gathered
    }

    /// Marks the gathered frames as sent on this connection.
    pub(crate) fn sent(&mut self, gathered: &Gathered) {
        for (lane, count) in self.out.iter_mut().zip(gathered.frames) {
            lane.cursor = lane.cursor.saturating_add(count);
        }
    }

    /// Takes an acknowledgement: the numbers that the peer expects next.
    pub(crate) fn acknowledge(&mut self, next: [u64; 3]) -> Result<(), Refusal> {
        if self.out.iter().zip(next).any(|(lane, next)| next > lane.cursor) {
            return Err(Refusal::NeverSent);
        }
        for (lane, next) in self.out.iter_mut().zip(next) {
            lane.drop_below(next);
        }
        Ok(())
    }

    /// Takes the number of a received frame, before the frame is handed out. Returns the gap before it, if there is
    /// one.
    pub(crate) fn accept(&mut self, lane: Lane, number: u64) -> Result<Option<Loss>, Refusal> {
        let gap = self.announced(lane, number)?;
        *part_of_lane(lane, self.expected.each_mut()) = number.saturating_add(1);
        Ok(gap)
    }

    /// Notes that the peer continues with this number. Returns the gap before it, if there is one.
    pub(crate) fn announced(&mut self, lane: Lane, number: u64) -> Result<Option<Loss>, Refusal> {
        let expected = part_of_lane(lane, self.expected.each_mut());
        let from = *expected;
        if number < from || number == u64::MAX {
            return Err(Refusal::Repeated);
        }
        *expected = number;
        Ok((number > from).then_some(Loss { direction: Direction::Incoming, lane, from, to: number }))
    }

    /// Begins a connection: continues at the numbers that the peer expects, and reports losses.
    ///
    /// When the peer started a new incarnation, the frames kept for the old one are dropped: their addressee is gone. A refused
    /// hello changes nothing. Returns the lanes on which the peer would not see a gap by itself, because no frame follows it.
    pub(crate) fn resume(
        &mut self,
        me: Incarnation,
        hello: &PeerHello,
        lost: &mut Vec<Loss>,
    ) -> Result<[bool; 3], Refusal> {
        let knows_me = hello.peer_incarnation == me;
        if knows_me && self.out.iter().zip(hello.next).any(|(lane, next)| next > lane.next()) {
            return Err(Refusal::NeverSent);
        }
        let new_incarnation = self.heard != Incarnation::ZERO && self.heard != hello.incarnation;
        if new_incarnation {
            self.forget_old_incarnation(lost);
        }
        self.heard = hello.incarnation;
        let mut announce = [false; 3];
        for ((lane, next), announce) in self.out.iter_mut().zip(hello.next).zip(&mut announce) {
            let expects = if knows_me { next } else { 0 };
            lane.drop_below(expects);
            *announce = expects < lane.first && lane.kept.is_empty();
            // Frames for the old incarnation were reported when they were dropped.
            lane.cursor = if new_incarnation { lane.first } else { expects };
        }
        self.skip_gaps(lost);
        Ok(announce)
    }

    fn forget_old_incarnation(&mut self, lost: &mut Vec<Loss>) {
        let lanes = Lane::ALL.into_iter().zip(&mut self.out).zip(&mut self.expected);
        for ((lane, out), expected) in lanes {
            lost.push(Loss { direction: Direction::Incoming, lane, from: *expected, to: u64::MAX });
            *expected = 0;
            if !out.kept.is_empty() {
                lost.push(Loss { direction: Direction::Outgoing, lane, from: out.first, to: out.next() });
            }
            out.first = out.next();
            out.kept.clear();
            out.bytes = 0;
        }
    }
}

/// Returns the part of this lane.
fn part_of_lane<T>(lane: Lane, [consensus, bodies, catch_up]: [T; 3]) -> T {
    match lane {
        Lane::Consensus => consensus,
        Lane::Bodies => bodies,
        Lane::CatchUp => catch_up,
    }
}

/// Checks that a hello agrees with this side, and that it comes from `peer`.
pub(crate) fn check_hello(ours: &PeerHello, theirs: &PeerHello, peer: ReplicaId) -> Result<(), Refusal> {
    if theirs.cluster != ours.cluster {
        Err(Refusal::OtherCluster)
    } else if theirs.epoch != ours.epoch {
        Err(Refusal::OtherEpoch)
    } else if theirs.protocol != ours.protocol {
        Err(Refusal::OtherProtocol)
    } else if theirs.id != peer {
        Err(Refusal::OtherReplica)
    } else if theirs.incarnation == Incarnation::ZERO {
        Err(Refusal::BadHello)
    } else {
        Ok(())
    }
}
