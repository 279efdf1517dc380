//! The network of the world: connections between replicas that break and are dialled again, datagrams, and channels
//! between clients and replicas.

use super::links::{DIAL_NS, OldFrame, ReplicaPair};
use super::reporting::{FrameReader, half_text, piece_details};
use super::{Event, World};
use crate::arrival::{Arrival, TwinHalf};
use crate::byzantine::REPLY;
use crate::fault::Fault;
use crate::frame::{Content, Frame, Verdict};
use crate::link_conditions::LinkConditions;
use crate::lookup::binds;
use crate::oracles::Oracle;
use crate::queue::EventClass;
use crate::replica_slot::ConnectionEvent;
use crate::trace::{EventDetails, Fingerprint, Transit, Who};
use crate::turn_output::{Outbound, TurnOutput};
use bytes::Bytes;
use quorate_consensus::{CHECKPOINT_KIND, LinkEvent, To};
use quorate_net::Refusal;
use quorate_types::rng::Rng;
use quorate_types::wire::Lane;
use quorate_types::{ReplicaId, Time};

/// Time until a lost piece of a connection is resent.
const RESEND_NS: u64 = 200_000_000;
/// Share of lost pieces that break their connection: one in this number.
const BREAKS_ONE_IN: u64 = 12;
/// Time after which a cut connection may break. After four times as long it has broken.
const BREAK_NS: u64 = 1_000_000_000;
const DIAL_NS_MAX: u64 = 2_000_000_000;

/// Interval between datagrams that are remembered.
const OLD_EVERY: u64 = 7;
/// Largest number of remembered datagrams.
const OLD_MAX: usize = 256;

/// Number of bytes of a write that trickle. They arrive in pieces of limited size, with pauses of this mean length.
const TRICKLE_BYTES: usize = 512;
const TRICKLE_PIECE_MAX: u64 = 48;
const TRICKLE_NS: u64 = 4_000_000;
/// A write that would arrive later than this does not trickle, so that a slow stream recovers.
const TRICKLE_BEHIND_NS: u64 = 500_000_000;

/// Splits this many bytes off the front, a few at a time. At least one byte remains.
fn trickle(rng: &mut Rng, rest: &mut Bytes, bytes: usize) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut taken = 0usize;
    while taken < bytes && rest.len() > 1 {
        let most = u64::try_from(rest.len().saturating_sub(1)).unwrap_or(1).min(TRICKLE_PIECE_MAX);
        let piece = rest.split_to(usize::try_from(rng.between(1, most)).unwrap_or(1));
        taken = taken.saturating_add(piece.len());
        pieces.push(piece);
    }
    pieces
}

impl World {
    /// Sends the output of a turn, each message at its time.
    pub(super) fn send_output(
        &mut self,
        from: ReplicaId,
        half: TwinHalf,
        began: Time,
        output: &mut TurnOutput,
        synced: &[u8],
    ) {
        self.note_view(began, from, half);
        let mut outbound = std::mem::take(&mut output.outbound).into_iter();
        let (mut left, mut seen) = (0usize, 0usize);
        for flush in output.flushes.drain(..) {
            let at = began.plus(flush.after_ns);
            let news = synced.get(seen..flush.synced).unwrap_or_default();
            self.oracles.promises.synced(from, news);
            seen = flush.synced;
            for outbound in outbound.by_ref().take(flush.upto.saturating_sub(left)) {
                match outbound {
                    Outbound::Peers { to, lane, frame_type, body } => {
                        let later = synced.get(flush.synced..).unwrap_or_default();
                        self.send(at, (from, half), to, (lane, frame_type, body), later);
                    }
                    Outbound::Client { index, body } => {
                        if self.allows(from, half, REPLY, self.place(index)) {
                            let body = self.forged_reply(from, body);
                            self.reply(at, from, index, body);
                        }
                    }
                }
            }
            left = flush.upto;
            self.write_links(from, at);
        }
        self.oracles.promises.synced(from, synced.get(seen..).unwrap_or_default());
    }

    /// Sends a frame to some replicas. `later` holds the bytes that were synced after this moment, in the same turn.
    fn send(
        &mut self,
        at: Time,
        (from, half): (ReplicaId, TwinHalf),
        to: To,
        frame: (Lane, u8, Bytes),
        later: &[u8],
    ) {
        let (lane, frame_type, body) = frame;
        let content = self.kind_of(frame_type, &body);
        self.judge_frame(at, from, &content, later);
        if self.schedule.is_some() {
            return self.send_by_schedule(at, (from, half), to, (frame_type, body), &content);
        }
        let mut meant: Vec<ReplicaId> = std::mem::take(&mut self.buffers.receivers);
        meant.clear();
        let to_all = to;
        meant.extend(self.receivers(from, to).filter(|to| self.allows(from, half, content.kind, to.index())));
        if !meant.is_empty() {
            let Self { trace, settings, cluster, .. } = self;
            trace.note(at, Who::Replica(from), "sends", &[&body], || {
                let details = FrameReader { settings, cluster }.frame(frame_type, &body).and(half_text(half));
                details
                    .to(meant.iter().copied().map(Who::Replica))
                    .transit(Transit::Leaves(Fingerprint::of(&body)))
            });
        }
        let forges = self.forges(from);
        self.count_byzantine_faults((from, half), (to_all, meant.len()));
        self.report_withheld(at, (from, half), &content, (to_all, &meant));
        for to in meant.iter().copied() {
            let frame = Frame { from, to, lane, frame_type, body: body.clone(), content };
            if forges {
                self.send_forged(at, &frame);
            } else {
                self.note_equivocation(from, &content);
                self.send_one(at, frame);
            }
        }
        self.buffers.receivers = meant;
    }

    /// Returns the receivers of a frame.
    pub(super) fn receivers(&self, from: ReplicaId, to: To) -> impl Iterator<Item = ReplicaId> + use<> {
        self.replicas().filter(move |id| {
            *id != from
                && match &to {
                    To::All => true,
                    To::One(one) => one == id,
                    To::Some(set) => set.contains(*id),
                }
        })
    }

    /// Lets the oracles judge a frame of an honest replica.
    fn judge_frame(&mut self, at: Time, from: ReplicaId, content: &Content, later: &[u8]) {
        if !self.is_honest(from) {
            return;
        }
        if let Some(statement) = content.statement.filter(|statement| statement.kind == CHECKPOINT_KIND) {
            let verdict = self.oracles.order.stated(from, statement.height, statement.subject);
            self.judge(at, verdict);
        }
        let Self { oracles, slots, cluster, settings, .. } = self;
        let mut on_disk = |counts_now: bool| {
            let (Some(slot), Some(statement)) = (slots.get(from.index()), &content.statement) else {
                return false;
            };
            let binds = |disk| binds(disk, settings, cluster, statement);
            slot.machine.survived.as_ref().is_some_and(|disk| binds(disk.clone()))
                || (counts_now && binds(slot.machine.disk.synced_image()))
        };
        let verdict = oracles.promises.leaves(from, content, later, &mut on_disk);
        self.judge(at, verdict);
    }

    pub(super) fn send_one(&mut self, at: Time, mut frame: Frame) {
        let verdict = match &mut self.hooks.frame {
            Some(hook) => hook(at, &frame),
            None => Verdict::Pass,
        };
        match verdict {
            Verdict::Pass => self.transmit(at, &frame),
            Verdict::Drop => self.report_frame(at, "drops", &frame, "a hook of the test"),
            Verdict::Delay(span) => {
                self.report_frame(at, "delays", &frame, "a hook of the test");
                self.queue.push(at.plus(span), EventClass::Arrival, Event::Leaves(Box::new(frame)));
            }
            Verdict::Hold => {
                self.report_frame(at, "holds", &frame, "a hook of the test");
                self.network.held.push(frame);
            }
            Verdict::Replace(body) => {
                self.report_altered(at, &frame, &body);
                frame.content = self.kind_of(frame.frame_type, &body);
                frame.body = body;
                let content = frame.content;
                self.roles.altered.insert(frame.from);
                self.judge_frame(at, frame.from, &content, &[]);
                self.transmit(at, &frame);
            }
        }
    }

    /// Transmits a frame: over the link, or as a datagram.
    pub(super) fn transmit(&mut self, at: Time, frame: &Frame) {
        let count = self.counters.sent.entry(frame.content.kind).or_default();
        *count = count.saturating_add(1);
        self.show_to_attack(frame);
        if !self.waits(at, frame) {
            self.enter(at, frame);
        }
    }

    /// Puts a frame on its link, or sends it as a datagram.
    pub(super) fn enter(&mut self, at: Time, frame: &Frame) {
        let Frame { from, to, lane, frame_type, .. } = *frame;
        if self.is_datagrams() {
            return self.send_datagram(at, frame);
        }
        let peer_link =
            self.slots.get_mut(from.index()).and_then(|slot| slot.running.as_mut()?.peer_link(to));
        let Some(peer_link) = peer_link else { return };
        match peer_link.link.send(lane, frame_type, frame.body.clone().into()) {
            Ok(()) if at <= self.now => self.write_links(from, at),
            Ok(()) => {}
            // The limits of a lane exceed the traffic of any world.
            Err(error) if self.is_honest(from) => {
                let what = format!("replica {from} sends more to replica {to} than a link accepts: {error}");
                self.judge(at, Err((Oracle::Bounds, what)));
            }
            Err(_) => {}
        }
    }

    /// Sends a frame as a datagram.
    fn send_datagram(&mut self, at: Time, frame: &Frame) {
        let conditions = *self.network.map.get(frame.from.index(), frame.to.index());
        self.count_faults(conditions.faults);
        if conditions.loses(&mut self.rngs.network) {
            if !conditions.is_cut {
                self.count_fault(Fault::Loss);
            }
            return self.note_lost(at, frame);
        }
        if conditions.corrupts(&mut self.rngs.network) {
            self.count_fault(Fault::CorruptFrame);
            // A datagram with changed bytes never reaches a replica, because its authentication fails.
            return self.note_lost(at, frame);
        }
        self.resend_old(at, frame, &conditions);
        let mut copies = 1;
        if conditions.duplicate_ppm > 0 && self.rngs.network.chance(conditions.duplicate_ppm) {
            self.count_fault(Fault::Duplication);
            self.report_doubled(at, frame);
            copies = 2;
        }
        for _ in 0..copies {
            let arrival =
                Arrival::Frame { from: frame.from, frame_type: frame.frame_type, body: frame.body.clone() };
            let arrives = conditions.arrival(&mut self.rngs.network, at);
            self.queue.push(arrives, EventClass::Arrival, Event::Arrives(frame.to, arrival));
        }
    }

    /// Resends an old datagram now and then, and remembers some of the new ones.
    fn resend_old(&mut self, at: Time, frame: &Frame, conditions: &LinkConditions) {
        if conditions.old_ppm > 0 && self.rngs.network.chance(conditions.old_ppm) {
            let known =
                self.network.old.iter().filter(|(from, to, _)| (*from, *to) == (frame.from, frame.to));
            let known: Vec<&OldFrame> = known.collect();
            if let Some((from, to, (frame_type, body))) =
                self.rngs.network.pick(&known).map(|old| (*old).clone())
            {
                self.count_fault(Fault::OldPackets);
                let arrives = conditions.arrival(&mut self.rngs.network, at);
                let arrival = Arrival::Frame { from, frame_type, body };
                self.queue.push(arrives, EventClass::Arrival, Event::Arrives(to, arrival));
            }
        }
        self.network.datagrams_sent = self.network.datagrams_sent.wrapping_add(1);
        if self.network.datagrams_sent.is_multiple_of(OLD_EVERY) {
            let place = usize::try_from(self.network.datagrams_sent / OLD_EVERY).unwrap_or(0) % OLD_MAX;
            let old = (frame.from, frame.to, (frame.frame_type, frame.body.clone()));
            match self.network.old.get_mut(place) {
                Some(known) => *known = old,
                None => self.network.old.push(old),
            }
        }
    }

    /// Writes the output of a replica's links.
    pub(super) fn write_links(&mut self, from: ReplicaId, at: Time) {
        let mut buffer = std::mem::take(&mut self.buffers.bytes);
        for peer in self.replicas() {
            let peer_link =
                self.slots.get_mut(from.index()).and_then(|slot| slot.running.as_mut()?.peer_link(peer));
            let Some(Some(conn)) = peer_link.as_ref().map(|peer_link| peer_link.conn) else { continue };
            let Some(peer_link) = peer_link.filter(|peer_link| peer_link.link.wants_write()) else {
                continue;
            };
            buffer.clear();
            peer_link.link.write(&mut buffer);
            self.put_on_connection(from, peer, conn, at, Bytes::copy_from_slice(&buffer));
        }
        self.buffers.bytes = buffer;
    }

    pub(super) fn put_on_connection(
        &mut self,
        from: ReplicaId,
        to: ReplicaId,
        conn: u64,
        at: Time,
        bytes: Bytes,
    ) {
        let index = ReplicaPair::index(from, to);
        let conditions = *self.network.map.get(from.index(), to.index());
        self.count_faults(conditions.faults);
        let Self { network, rngs, queue, trace, counters, .. } = self;
        let (rng, faults) = (&mut rngs.network, &network.faults);
        let Some(pair) = network.pairs.get_mut(index).filter(|pair| pair.conn == Some(conn)) else {
            return; // The connection is gone, and this end has not heard of it.
        };
        let (last, stalled) = pair.direction(from);
        if conditions.is_cut || !stalled.is_empty() {
            trace.report(at, Who::World, "stalls", || piece_details(faults, from, to, bytes.len(), ""));
            return stalled.push(bytes);
        }
        // Links number and authenticate their bytes, so a changed or repeated piece ends the connection.
        let ends = if conditions.corrupts(rng) {
            Some(Fault::CorruptFrame)
        } else {
            (conditions.old_ppm > 0 && rng.chance(conditions.old_ppm)).then_some(Fault::OldPackets)
        };
        if let Some(fault) = ends {
            self.count_fault(fault);
            self.break_pair(index);
            return;
        }
        let mut arrives = conditions.arrival(rng, at);
        let mut breaks = false;
        if conditions.loses(rng) {
            *counters.faults.entry(Fault::Loss).or_default() += 1;
            arrives = arrives.plus(RESEND_NS.saturating_add(rng.exponential_ns(RESEND_NS)));
            breaks = rng.below(BREAKS_ONE_IN) == 0;
            let late = arrives.since(at) / 1_000_000;
            trace.report(at, Who::World, "resends", || {
                piece_details(faults, from, to, bytes.len(), &format!("{late} ms late"))
            });
        }
        arrives = arrives.max(*last);
        *last = arrives;
        let mut rest = bytes;
        let trickles = conditions.trickles && arrives.since(at) < TRICKLE_BEHIND_NS;
        let trickles = if trickles { rest.len().min(TRICKLE_BYTES) } else { 0 };
        let mut push = |at, bytes| {
            queue.push(at, EventClass::Arrival, Event::Arrives(to, Arrival::Bytes { from, conn, bytes }));
        };
        for piece in trickle(rng, &mut rest, trickles) {
            push(arrives, piece);
            arrives = arrives.plus(rng.exponential_ns(TRICKLE_NS));
            *last = arrives;
        }
        // A stream may be split anywhere. The link conditions decide how much later the rest arrives.
        let cut = if rng.below(16) == 0 { rng.index(rest.len()) } else { 0 };
        if cut > 0 {
            push(arrives, rest.split_to(cut));
            arrives = arrives.plus(rng.exponential_ns(conditions.jitter_ns));
            *last = arrives;
        }
        push(arrives, rest);
        if breaks {
            self.break_pair(index);
        }
    }

    /// Whether an arrival announces a connection that has ended since.
    pub(super) fn is_stale(&self, id: ReplicaId, arrival: &Arrival) -> bool {
        let (Arrival::Dialled { peer, conn } | Arrival::Accepted { peer, conn }) = arrival else {
            return false;
        };
        self.network.pairs.get(ReplicaPair::index(id, *peer)).is_none_or(|pair| pair.conn != Some(*conn))
    }

    /// Breaks a connection. Each end learns of it after a while.
    pub(super) fn break_pair(&mut self, index: usize) -> bool {
        self.break_in_turn(index, None)
    }

    /// Breaks a connection whose end at `deaf` learns of it only at `until`.
    pub(super) fn half_open(&mut self, deaf: ReplicaId, other: ReplicaId, until: Time) {
        if self.break_in_turn(ReplicaPair::index(deaf, other), Some((deaf, until))) {
            self.count_fault(Fault::HalfOpen);
        }
    }

    /// Breaks a connection. `deaf` is the end that learns of it only at that time; the dialling end dials only after
    /// that.
    fn break_in_turn(&mut self, index: usize, deaf: Option<(ReplicaId, Time)>) -> bool {
        let now = self.now;
        let Some(pair) = self.network.pairs.get_mut(index) else { return false };
        let Some(conn) = pair.conn.take() else { return false };
        pair.stalled = [Vec::new(), Vec::new()];
        let (low, high) = (pair.low, pair.high);
        self.trace.note(now, Who::World, "breaks", &[&conn.to_le_bytes()], || {
            EventDetails::text(format!("connection {conn}")).from(Who::Replica(low)).to([Who::Replica(high)])
        });
        for (id, peer) in [(low, high), (high, low)] {
            let mut at = now.plus(self.rngs.network.between(1, 20_000_000));
            if let Some((deaf, until)) = deaf
                && deaf == id
            {
                at = at.max(until);
            }
            self.queue.push(at, EventClass::Arrival, Event::Arrives(id, Arrival::Closed { peer, conn }));
        }
        match deaf {
            Some((deaf, until)) if deaf == high => self.dial_after(index, until.since(now)),
            _ => self.dial_after(index, 0),
        }
        true
    }

    fn dial_after(&mut self, index: usize, after_ns: u64) {
        let Self { network, rngs, queue, now, .. } = self;
        let rng = &mut rngs.network;
        let Some(pair) = network.pairs.get_mut(index) else { return };
        pair.attempt = pair.attempt.saturating_add(1);
        let pause = pair.pause_ns.saturating_add(rng.below(pair.pause_ns));
        pair.pause_ns = pair.pause_ns.saturating_mul(2).min(DIAL_NS_MAX);
        let event = Event::Dial { pair: index, attempt: pair.attempt };
        queue.push(now.plus(after_ns).plus(pause), EventClass::Answer, event);
    }

    /// Dials a connection: the higher of two replicas dials the lower.
    pub(super) fn dial(&mut self, index: usize, attempt: u64) {
        let now = self.now;
        let Some(pair) =
            self.network.pairs.get(index).filter(|pair| pair.attempt == attempt && pair.conn.is_none())
        else {
            return;
        };
        let (low, high) = (pair.low, pair.high);
        let (there, back) = (
            *self.network.map.get(high.index(), low.index()),
            *self.network.map.get(low.index(), high.index()),
        );
        let reachable = self.is_running(low) && self.is_running(high);
        if !reachable || there.loses(&mut self.rngs.network) || back.loses(&mut self.rngs.network) {
            return self.dial_after(index, 0);
        }
        let conn = self.network.next_conn;
        self.network.next_conn = conn.saturating_add(1);
        let accepted = there.arrival(&mut self.rngs.network, now);
        let dialled = back.arrival(&mut self.rngs.network, accepted);
        if let Some(pair) = self.network.pairs.get_mut(index) {
            pair.conn = Some(conn);
            pair.pause_ns = DIAL_NS;
            pair.last = [accepted, dialled];
        }
        self.trace.note(now, Who::Replica(high), "dials", &[&conn.to_le_bytes()], || {
            EventDetails::text(format!("connection {conn}")).to([Who::Replica(low)])
        });
        let arrivals = [
            (low, accepted, Arrival::Accepted { peer: high, conn }),
            (high, dialled, Arrival::Dialled { peer: low, conn }),
        ];
        for (id, at, arrival) in arrivals {
            self.queue.push(at, EventClass::Arrival, Event::Arrives(id, arrival));
        }
    }

    /// Breaks a replica's connections when its machine stops, or dials them when it starts.
    pub(super) fn reconnect(&mut self, id: ReplicaId, is_back: bool) {
        for peer in self.replicas().filter(|peer| *peer != id) {
            let index = ReplicaPair::index(id, peer);
            self.break_pair(index);
            // Twins scenarios use datagrams, so nothing is ever dialled.
            if is_back && self.schedule.is_none() {
                if let Some(pair) = self.network.pairs.get_mut(index) {
                    pair.pause_ns = DIAL_NS;
                }
                self.dial_after(index, 0);
            }
        }
        if is_back && self.is_datagrams() {
            let now = self.now;
            for peer in self.replicas().filter(|peer| *peer != id) {
                for (to, of) in [(id, peer), (peer, id)] {
                    // In twins scenarios all links are up at once.
                    let is_lean = self.schedule.is_some();
                    let at = now.plus(if is_lean { 1 } else { self.rngs.network.between(1, 5_000_000) });
                    let arrival = Arrival::Link(of, LinkEvent::Back);
                    self.queue.push(at, EventClass::Arrival, Event::Arrives(to, arrival));
                }
            }
        }
    }

    /// Applies changed conditions: stalled bytes continue, and cut connections may break later.
    pub(super) fn conditions_changed(&mut self) {
        for index in 0..self.network.pairs.len() {
            let Some(pair) = self.network.pairs.get(index) else { continue };
            let (low, high) = (pair.low, pair.high);
            let Some(conn) = pair.conn else { continue };
            let mut is_cut = false;
            for from in [low, high] {
                let Some(pair) = self.network.pairs.get_mut(index) else { continue };
                let to = pair.other(from);
                if self.network.map.get(from.index(), to.index()).is_cut {
                    is_cut = true;
                    continue;
                }
                let stalled = std::mem::take(pair.direction(from).1);
                for bytes in stalled {
                    self.put_on_connection(from, to, conn, self.now, bytes);
                }
            }
            if is_cut {
                let at = self.now.plus(self.rngs.network.between(BREAK_NS, BREAK_NS.saturating_mul(4)));
                self.queue.push(at, EventClass::Answer, Event::Breaks { pair: index, conn });
            }
        }
    }

    pub(super) fn break_if_cut(&mut self, index: usize, conn: u64) {
        let Some(pair) = self.network.pairs.get(index).filter(|pair| pair.conn == Some(conn)) else { return };
        let (low, high) = (pair.low.index(), pair.high.index());
        if self.network.map.get(low, high).is_cut || self.network.map.get(high, low).is_cut {
            self.break_pair(index);
        }
    }

    /// Breaks the connection of two replicas, if there is one.
    pub fn disconnect(&mut self, a: ReplicaId, b: ReplicaId) -> bool {
        self.break_pair(ReplicaPair::index(a, b))
    }

    /// Handles the connection events of a turn.
    pub(super) fn handle_connection_events(&mut self, id: ReplicaId) {
        for connection_events in std::mem::take(&mut self.buffers.connection_events) {
            match connection_events {
                ConnectionEvent::Closed(peer, why) => {
                    self.trace.note(self.now, Who::Replica(id), "closed", &[why.as_bytes()], || {
                        EventDetails::text(why.as_str()).from(Who::Replica(peer))
                    });
                }
                ConnectionEvent::Refused(peer, conn, why) => {
                    self.trace.note(self.now, Who::Replica(id), "refuses", &[why.as_bytes()], || {
                        EventDetails::kind("connection").from(Who::Replica(peer)).and(why)
                    });
                    for (one, other) in [(id, peer), (peer, id)] {
                        if let Some(slot) = self.slot_mut(one) {
                            slot.refused.insert(other);
                        }
                    }
                    let index = ReplicaPair::index(id, peer);
                    if self.network.pairs.get(index).is_some_and(|pair| pair.conn == Some(conn)) {
                        self.break_pair(index);
                    }
                    // A slow handshake can be the link's fault; no other refusal can.
                    let honest = self.is_honest(id) && self.is_honest(peer);
                    if honest && why != Refusal::TooSlow.reason() {
                        let what = format!("replica {id} closes its link to replica {peer}: {why}");
                        self.judge(self.now, Err((Oracle::Links, what)));
                    }
                }
            }
        }
    }
}
