//! What leaves a replica during one turn, in the order and at the moments in which it leaves.

use crate::clock::Clock;
use crate::disk::Shared;
use crate::seat::Speakers;
use crate::shadow::Shadow;
use bytes::Bytes;
use quorate_consensus::{Note, To};
use quorate_host::Outgoing;
use quorate_replica::{ConnId, FrameSource, RestoredLog, Sink};
use quorate_types::codec::Wire as _;
use quorate_types::wire::{FromReplica, Lane, Refusal};
use quorate_types::{BlockId, BundleDigest, ClientId, FrameBody, Height, Kind, ReplicaId, ReplyBundle, Time};

/// One thing that leaves.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// To replicas.
    Peers { to: To, lane: Lane, frame_type: u8, body: Bytes },
    /// To the client at this place.
    Client { index: usize, body: Bytes },
}

/// A moment at which everything that was queued leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    /// How many parcels have left by then.
    pub(crate) upto: usize,
    /// How far into the turn it happens.
    pub(crate) after_ns: u64,
    /// How many of the bytes that the disk synced in this turn it had synced by then.
    pub(crate) synced: usize,
}

/// Everything that a turn leads to outside of its replica. Reused from turn to turn.
#[derive(Default, Debug)]
pub(crate) struct Leaving {
    pub(crate) parcels: Vec<Parcel>,
    pub(crate) flushes: Vec<Flush>,
    pub(crate) decided: Vec<(Height, BlockId)>,
    pub(crate) rejected: Vec<(FrameSource, Kind, &'static str)>,
    /// Peers that said what only a liar says, and what that is.
    pub(crate) blamed: Vec<(ReplicaId, &'static str)>,
    pub(crate) notes: Vec<Note>,
    /// Connections whose clients have proven themselves.
    pub(crate) proven: Vec<(usize, ClientId)>,
    /// Whose messages have passed the intake.
    pub(crate) passed: Vec<ReplicaId>,
}

impl Leaving {
    /// Empties it for the next turn.
    pub(crate) fn clear(&mut self) {
        self.parcels.clear();
        self.flushes.clear();
        self.decided.clear();
        self.rejected.clear();
        self.blamed.clear();
        self.notes.clear();
        self.proven.clear();
        self.passed.clear();
    }
}

/// The network as a turn sees it.
pub(crate) struct Exit<'a> {
    pub(crate) leaving: &'a mut Leaving,
    pub(crate) shared: &'a Shared,
    pub(crate) speakers: &'a Speakers,
    /// Who follows a replica that is opened.
    pub(crate) shadow: Option<&'a Shadow>,
    /// The replica's clock, and when its turn began; none while it is opened.
    pub(crate) clock: Option<(Clock, Time)>,
}

impl Exit<'_> {
    fn client(&mut self, conn: ConnId, message: Bytes) {
        if let Ok(index) = usize::try_from(conn.0) {
            self.leaving.parcels.push(Parcel::Client { index, body: message });
        }
    }
}

impl Outgoing for Exit<'_> {
    fn now(&mut self) -> Time {
        let spent = self.shared.watch(|watch| watch.spent_ns);
        self.clock.map_or(Time::ZERO, |(clock, began)| clock.local(began.plus(spent)))
    }
    fn peer(&mut self, to: To, lane: Lane, frame_type: u8, body: FrameBody) {
        let body = body.to_bytes();
        self.leaving.parcels.push(Parcel::Peers { to, lane, frame_type, body });
    }

    fn reply(&mut self, client: &ClientId, reply: &ReplyBundle) {
        let conns = self.speakers.of(client);
        if conns.is_empty() {
            return;
        }
        let message = Bytes::from(FromReplica::Reply(*client, reply.clone()).to_bytes());
        for index in conns {
            let parcel = Parcel::Client { index: *index, body: message.clone() };
            self.leaving.parcels.push(parcel);
        }
    }

    fn reply_to(&mut self, conn: ConnId, client: &ClientId, reply: &ReplyBundle) {
        let message = FromReplica::Reply(*client, reply.clone()).to_bytes();
        self.client(conn, Bytes::from(message));
    }

    fn proven(&mut self, conn: ConnId, client: &ClientId) {
        if let Ok(index) = usize::try_from(conn.0) {
            self.leaving.proven.push((index, *client));
        }
    }

    fn refuse(&mut self, conn: ConnId, client: &ClientId, bundle: BundleDigest, why: Refusal) {
        let message = FromReplica::Refused { client: *client, bundle, why };
        self.client(conn, Bytes::from(message.to_bytes()));
    }

    fn flush(&mut self) {
        let before = self.leaving.flushes.last().map_or(0, |flush| flush.upto);
        let upto = self.leaving.parcels.len();
        if upto == before {
            return;
        }
        // The power may go at this moment: then nothing of it leaves, and nothing after it.
        if !self.shared.step() {
            self.leaving.parcels.truncate(before);
            return;
        }
        let (after_ns, synced) = self.shared.watch(|watch| (watch.spent_ns, watch.synced.len()));
        self.leaving.flushes.push(Flush { upto, after_ns, synced });
    }

    fn rejected(&mut self, source: FrameSource, kind: Kind, reason: &'static str, is_breach: bool) {
        if let FrameSource::Peer(peer) = source
            && is_breach
        {
            self.leaving.blamed.push((peer, reason));
        }
        self.leaving.rejected.push((source, kind, reason));
    }

    fn passed(&mut self, from: ReplicaId) {
        self.leaving.passed.push(from);
    }

    fn decided(&mut self, height: Height, id: BlockId) {
        self.leaving.decided.push((height, id));
    }

    fn trace(&mut self, note: Note) {
        self.leaving.notes.push(note);
    }

    fn recorder(&mut self, log: &RestoredLog) -> Option<Sink> {
        self.shadow.map(|shadow| shadow.open(log))
    }
}
