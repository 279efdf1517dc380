//! The outputs of a host's turn, which go to the reactor.

use super::clients::Clients;
use super::clock::{NodeClock, thread_cpu_ns};
use super::rejects::{Origin, Rejects};
use crate::disguise::Disguise;
use crate::step_times::StepTimes;
use quorate_consensus::{Note, To};
use quorate_host::{Outgoing, StepKind};
use quorate_net::reactor::{ConnId as NetConn, Reactor, SendError};
use quorate_replica::{ConnId, FrameSource};
use quorate_types::codec::Wire as _;
use quorate_types::wire::{FromReplica, Lane, NoOrder, Refusal};
use quorate_types::{BundleDigest, ClientId, FrameBody, Kind, OrderProof, ReplicaId, ReplyBundle, Time};

/// The output of one turn: the reactor, the table of clients and the counts of refusals.
pub(super) struct NodeOutput<'a> {
    pub(super) net: &'a mut Reactor,
    pub(super) clients: &'a mut Clients,
    pub(super) rejects: &'a mut Rejects,
    pub(super) steps: &'a mut StepTimes,
    pub(super) now: Time,
    pub(super) clock: NodeClock,
    pub(super) disguise: &'a mut Option<Box<dyn Disguise>>,
}

impl NodeOutput<'_> {
    /// Sends the frames that a liar says instead of one frame, to each receiver.
    fn lie(&mut self, to: To, lane: Lane, frame_type: u8, body: &FrameBody) {
        let mut frames = Vec::new();
        let receivers: Vec<ReplicaId> = match to {
            To::All => self.net.others().collect(),
            To::One(id) => vec![id],
            To::Some(set) => set.iter().collect(),
        };
        for to in receivers {
            if let Some(disguise) = self.disguise {
                disguise.says(to, frame_type, body, &mut frames);
            }
            for (frame_type, body) in frames.drain(..) {
                self.send_peer(to, lane, frame_type, body);
            }
        }
    }

    fn send_peer(&mut self, to: ReplicaId, lane: Lane, frame_type: u8, body: FrameBody) {
        let sent = self.net.send_peer(to, lane, frame_type, body);
        self.count_oversize(sent);
    }

    /// Counts a frame that was too long to be sent. The limits on bodies and claims keep every frame below the limit of its
    /// lane.
    fn count_oversize<E>(&mut self, sent: Result<(), E>) {
        if sent.is_err() {
            self.rejects.count(Origin::Own, "oversize frame not sent");
        }
    }

    /// Counts a refusal, and reports it in the log if an operator has to see it.
    fn refused(&mut self, origin: Origin, reason: &'static str, is_for_the_log: bool) {
        if !is_for_the_log {
            self.rejects.count(origin, reason);
        } else if let Some(often) = self.rejects.count_due(self.now, origin, reason) {
            tracing::warn!("refused from {origin}: {reason}{often}");
        }
    }

    fn send_client(&mut self, conn: ConnId, message: &FromReplica) {
        send_client(self.net, self.rejects, conn, message);
    }
}

fn send_client(net: &mut Reactor, rejects: &mut Rejects, conn: ConnId, message: &FromReplica) {
    match net.send_client(NetConn(conn.0), &|out| message.encode(out)) {
        // The client of a connection that is gone or does not read asks another replica again. The reactor reports the
        // connection.
        Ok(()) | Err(SendError::Gone | SendError::Full) => {}
        Err(SendError::Oversize) => rejects.count(Origin::Own, "oversize reply not sent"),
    }
}

/// Notifies connections that a client's replies go to newer connections with the same key: a refusal of no bundle.
pub(super) fn notify_displaced(clients: &mut Clients, net: &mut Reactor, rejects: &mut Rejects) {
    for (conn, client) in clients.take_displaced() {
        rejects.count(clients.origin(conn), "too many connections with one key");
        let (bundle, why) = (BundleDigest::ZERO, Refusal::Busy);
        send_client(net, rejects, conn, &FromReplica::Refused { client, bundle, why });
    }
}

impl Outgoing for NodeOutput<'_> {
    fn now(&mut self) -> Time {
        self.clock.now()
    }
    fn peer(&mut self, to: To, lane: Lane, frame_type: u8, body: FrameBody) {
        if self.disguise.is_some() {
            return self.lie(to, lane, frame_type, &body);
        }
        match to {
            To::All => {
                let sent = self.net.broadcast(lane, frame_type, &body);
                self.count_oversize(sent);
            }
            To::One(id) => self.send_peer(id, lane, frame_type, body),
            To::Some(set) => {
                set.iter().for_each(|id| self.send_peer(id, lane, frame_type, body.clone()));
            }
        }
    }

    fn reply(&mut self, client: &ClientId, reply: &ReplyBundle) {
        let Self { clients, net, rejects, .. } = self;
        let mut conns = clients.of(client).peekable();
        if conns.peek().is_some() {
            let message = FromReplica::Reply(*client, reply.clone());
            conns.for_each(|conn| send_client(net, rejects, conn, &message));
        }
    }

    fn reply_to(&mut self, conn: ConnId, client: &ClientId, reply: &ReplyBundle) {
        self.send_client(conn, &FromReplica::Reply(*client, reply.clone()));
    }

    fn proven(&mut self, conn: ConnId, client: &ClientId) {
        if self.clients.prove(conn, client) {
            self.net.vouch(NetConn(conn.0));
            notify_displaced(self.clients, self.net, self.rejects);
        }
    }

    fn refuse(&mut self, conn: ConnId, client: &ClientId, bundle: BundleDigest, why: Refusal) {
        let origin = self.clients.origin(conn);
        self.refused(origin, name(why), why.is_breach() || why == Refusal::Busy);
        self.send_client(conn, &FromReplica::Refused { client: *client, bundle, why });
    }

    fn order(
        &mut self,
        conn: ConnId,
        client: &ClientId,
        bundle: BundleDigest,
        answer: Result<Box<OrderProof>, NoOrder>,
    ) {
        let client = *client;
        let message = match answer {
            Ok(proof) => FromReplica::Order { client, bundle, proof },
            Err(why) => FromReplica::NoOrder { client, bundle, why },
        };
        self.send_client(conn, &message);
    }

    fn flush(&mut self) {
        // A delay counts from the time at which a frame leaves, which may be much later than the beginning of the turn.
        let now = if self.net.has_delays() { self.clock.now() } else { self.now };
        self.net.flush(now);
    }

    fn rejected(&mut self, source: FrameSource, _: Kind, reason: &'static str, is_breach: bool) {
        match source {
            FrameSource::Peer(id) => self.refused(Origin::Replica(id), reason, is_breach),
            // `refuse` counts it and sends the reason: the replica refuses bundles too, not only its intake.
            FrameSource::Client(_) => {}
        }
    }

    fn urgent(&mut self, peer: Option<ReplicaId>) {
        self.net.urgent(peer);
    }

    fn stopwatch_ns(&mut self) -> u64 {
        self.clock.now().0
    }

    fn cpu_ns(&mut self) -> u64 {
        thread_cpu_ns()
    }

    fn step(&mut self, kind: StepKind, ns: u64) {
        self.steps.add(kind, ns);
    }

    fn trace(&mut self, note: Note) {
        tracing::debug!(view = note.view.0, height = note.height.0, "{}", note.what);
    }
}

/// Returns the name under which `status` counts a refusal.
fn name(why: Refusal) -> &'static str {
    match why {
        Refusal::Busy => "busy",
        Refusal::BadSignature => "bad signature",
        Refusal::Malformed => "malformed bundle",
        Refusal::NoSession => "no session",
        Refusal::NumberReused => "number reused",
        Refusal::OutOfWindow => "out of window",
        Refusal::NotRegistered => "not registered",
        Refusal::Forgotten => "forgotten",
        Refusal::Behind => "behind",
    }
}

/// The frames that a host sends before its links exist.
#[derive(Default)]
pub(super) struct EarlyOutput {
    pub(super) frames: Vec<(To, Lane, u8, FrameBody)>,
    pub(super) urgent: Option<ReplicaId>,
}

impl Outgoing for EarlyOutput {
    fn now(&mut self) -> Time {
        Time::ZERO
    }
    fn peer(&mut self, to: To, lane: Lane, frame_type: u8, body: FrameBody) {
        self.frames.push((to, lane, frame_type, body));
    }
    fn reply(&mut self, _: &ClientId, _: &ReplyBundle) {}
    fn reply_to(&mut self, _: ConnId, _: &ClientId, _: &ReplyBundle) {}
    fn proven(&mut self, _: ConnId, _: &ClientId) {}
    fn refuse(&mut self, _: ConnId, _: &ClientId, _: BundleDigest, _: Refusal) {}
    fn order(&mut self, _: ConnId, _: &ClientId, _: BundleDigest, _: Result<Box<OrderProof>, NoOrder>) {}
    fn flush(&mut self) {}
    fn rejected(&mut self, _: FrameSource, _: Kind, _: &'static str, _: bool) {}
    fn urgent(&mut self, peer: Option<ReplicaId>) {
        self.urgent = peer;
    }
    fn trace(&mut self, _: Note) {}
}
