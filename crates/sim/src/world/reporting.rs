//! Reports of the world to the reader of its trace. They cost nothing without a reader, and never change a run.

use super::World;
use super::plan::Plan;
use crate::arrival::{Arrival, TwinHalf};
use crate::frame::{BUNDLE, Content, Frame};
use crate::network_fault::{Change, NetworkFault};
use crate::places::Places;
use crate::settings::{Cluster, Settings};
use crate::trace::{EventDetails, Fingerprint, Transit, Who, compact_names, seconds};
use quorate_consensus::{LinkEvent, To};
use quorate_replica::HostMessage;
use quorate_types::bundle::BundleKind;
use quorate_types::codec::Wire as _;
use quorate_types::wire::{FromClient, FromReplica, frame};
use quorate_types::{Bundle, Kind, Payload, Reader, ReplicaId, Time};

/// Largest number of characters of a message's text.
const INSIDE_CHARS_MAX: usize = 200;
/// Largest number of places with names.
const PLACES_MAX: usize = 64;

/// A reader of frames and client messages.
pub(super) struct FrameReader<'a> {
    pub(super) settings: &'a Settings,
    pub(super) cluster: &'a Cluster,
}

impl FrameReader<'_> {
    /// Describes a frame between replicas.
    pub(super) fn frame(&self, frame_type: u8, body: &[u8]) -> EventDetails {
        let details = EventDetails::of(&Content::of(&self.settings.entry, frame_type, body));
        match frame_type {
            frame::BUNDLE => match Bundle::parse_sealed(body, &self.cluster.genesis.bodies) {
                Ok(bundle) => self.bundle(details, &bundle),
                Err(_) => details,
            },
            frame::PAYLOAD => match Payload::from_bytes(body) {
                Ok(payload) => {
                    let bundles: Vec<String> =
                        payload.bundles.iter().map(|bundle| bundle.0.short()).collect();
                    details.about(payload.id().0.short()).and(&format!("bundles {}", bundles.join(" ")))
                }
                Err(_) => details,
            },
            frame::HOST => match HostMessage::decode(&mut Reader::new(body)) {
                Ok(message) => details.and(&shortened(&format!("{message:?}"))),
                Err(_) => details,
            },
            _ => details.and(&format!("{} bytes", body.len())).and(&self.inside(body)),
        }
    }

    /// Formats a protocol's message with its own `Debug`.
    fn inside(&self, body: &[u8]) -> String {
        let message = self.settings.entry.decode_frame(body).ok();
        message.map(|(message, _)| shortened(&format!("{message:?}"))).unwrap_or_default()
    }

    fn bundle(&self, details: EventDetails, bundle: &Bundle) -> EventDetails {
        let keys = &self.cluster.client_keys;
        let client = match keys.iter().position(|key| key.public() == bundle.client()) {
            Some(index) => Who::Client(index).to_string(),
            None => "somebody".to_owned(),
        };
        let says = match bundle.kind() {
            BundleKind::Open => format!("{client} asks for a session"),
            BundleKind::Register => format!("{client} registers keys"),
            BundleKind::Requests => {
                let number = |request: &[u8]| {
                    let number = request.first_chunk().map(|number| u64::from_le_bytes(*number));
                    number.map_or("?".to_owned(), |number| format!("#{number}"))
                };
                let operations: Vec<String> = bundle.requests().map(number).collect();
                format!("bundle {} of {client}: {}", bundle.number(), operations.join(" "))
            }
        };
        details.about(bundle.digest().0.short()).and(&says)
    }

    /// Describes a message of a client.
    pub(super) fn request(&self, message: &[u8]) -> EventDetails {
        match FromClient::from_bytes(message) {
            Ok(FromClient::Bundle { authenticator, content }) => {
                let details = EventDetails::kind(BUNDLE.as_str());
                match Bundle::parse(&content, authenticator, &self.cluster.genesis.bodies) {
                    Ok(bundle) => self.bundle(details, &bundle),
                    Err(_) => details.and("malformed"),
                }
            }
            Ok(FromClient::Attach(_)) => {
                EventDetails::kind("attach").and("asks for its replies on this connection")
            }
            Ok(FromClient::Hello { .. }) => EventDetails::kind("hello"),
            Ok(FromClient::Status) => EventDetails::kind("status"),
            Ok(FromClient::Stop { .. }) => EventDetails::kind("stop"),
            Ok(FromClient::AskOrder { bundle, .. }) => {
                EventDetails::kind("ask-order").about(bundle.0.short()).and("asks for a proof of its order")
            }
            Err(_) => EventDetails::kind("unknown").and(&format!("{} bytes", message.len())),
        }
    }

    /// Describes a message to a client.
    pub(super) fn answer(&self, message: &[u8]) -> EventDetails {
        match FromReplica::from_bytes(message) {
            Ok(FromReplica::Reply(_, reply)) => {
                let says = format!(
                    "bundle {} results in {}, led by r{}",
                    reply.number,
                    reply.result.short(),
                    reply.leader
                );
                EventDetails::kind("reply")
                    .at(Some(reply.view), None)
                    .about(reply.bundle.0.short())
                    .and(&says)
            }
            Ok(FromReplica::Refused { bundle, why, .. }) => {
                EventDetails::kind("refusal").about(bundle.0.short()).and(&format!("{why:?}"))
            }
            Ok(FromReplica::Order { bundle, proof, .. }) => {
                let height = proof.chain.block().map(|block| block.height);
                EventDetails::kind("order").at(None, height).about(bundle.0.short()).and("is proved")
            }
            Ok(FromReplica::NoOrder { bundle, why, .. }) => {
                EventDetails::kind("no-order").about(bundle.0.short()).and(why.text())
            }
            Ok(other) => EventDetails::kind("other").and(&shortened(&format!("{other:?}"))),
            Err(_) => EventDetails::kind("unknown").and(&format!("{} bytes", message.len())),
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(INSIDE_CHARS_MAX) {
        Some((at, _)) => format!("{} …", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the actor at a place.
pub(super) fn who(n: usize, place: usize) -> Who {
    match u16::try_from(place) {
        Ok(id) if place < n => Who::Replica(ReplicaId(id)),
        _ => Who::Client(place.saturating_sub(n)),
    }
}

/// Formats the replicas and clients at these places: `r0 r2-3 c1`.
pub(super) fn names(n: usize, places: usize, some: Places) -> String {
    let whos: Vec<Who> = (0..places.min(PLACES_MAX))
        .filter(|place| some.contains(*place))
        .map(|place| who(n, place))
        .collect();
    if whos.len() == places { "all".to_owned() } else { compact_names(&whos) }
}

fn percent(ppm: u32) -> String {
    format!("{}.{} %", ppm / 10_000, ppm / 1_000 % 10)
}

/// Describes a network fault: its change and its places.
fn network_fault_details(n: usize, places: usize, network_fault: &NetworkFault) -> EventDetails {
    let millis = |ns: u64| format!("{}.{} ms", ns / 1_000_000, ns / 100_000 % 10);
    let (kind, how) = match network_fault.change {
        Change::Slow { delay_ns, jitter_ns } => {
            ("slow".to_owned(), format!("by {} and {} at random", millis(delay_ns), millis(jitter_ns)))
        }
        Change::Lossy(ppm) => ("loss".to_owned(), percent(ppm)),
        Change::Twice(ppm) => ("doubling".to_owned(), percent(ppm)),
        Change::Clogged(until) => ("clog".to_owned(), format!("until {}", seconds(until))),
        Change::Corrupt(ppm) => ("corruption".to_owned(), percent(ppm)),
        Change::Old(ppm) => ("old packets".to_owned(), percent(ppm)),
        Change::Trickle => ("trickle".to_owned(), String::new()),
        Change::Late { by_ns, until } if until > Time::ZERO => {
            ("late".to_owned(), format!("by {}, and until {}", millis(by_ns), seconds(until)))
        }
        Change::Late { by_ns, .. } => ("late".to_owned(), format!("by {}", millis(by_ns))),
        Change::Cut => ("cut".to_owned(), String::new()),
    };
    let name = |some| names(n, places, some);
    let arrow = if network_fault.both_ways { "<->" } else { "->" };
    let place = format!("{} {arrow} {}", name(network_fault.from), name(network_fault.to));
    EventDetails::kind(kind)
        .and(&if network_fault.from == Places::ALL { "everywhere".to_owned() } else { place })
        .and(&how)
}

/// Describes a planned event.
fn plan_text(plan: &Plan) -> String {
    match plan {
        Plan::CrashAtStep(id, steps, _) => {
            format!("r{id} loses power at step {steps} from now")
        }
        Plan::WallClock(id, off_ns) => {
            format!("the wall clock of r{id} is off by {} ms from its next start on", off_ns / 1_000_000)
        }
        Plan::Disconnect(a, b) => format!("the connection of r{a} and r{b} breaks"),
        Plan::HalfOpen(deaf, other, until) => {
            format!("r{deaf} learns only at {} that its connection to r{other} is closed", seconds(*until))
        }
        Plan::CutLeader(number, until) => {
            format!("f{number}: the current leader is cut off until {}", seconds(*until))
        }
        other => format!("{other:?}"),
    }
}

/// Describes the faults between two places.
fn causes(network_faults: &[(u64, NetworkFault)], from: usize, to: usize) -> String {
    let here = network_faults.iter().filter(|(_, network_fault)| network_fault.covers(from, to));
    let names: Vec<String> = here
        .map(|(number, network_fault)| {
            format!("f{number} {}", network_fault_details(0, 0, network_fault).kind)
        })
        .collect();
    if names.is_empty() { "the link conditions".to_owned() } else { names.join(", ") }
}

/// Describes an event of bytes on a connection.
pub(super) fn piece_details(
    network_faults: &[(u64, NetworkFault)],
    from: ReplicaId,
    to: ReplicaId,
    bytes: usize,
    how: &str,
) -> EventDetails {
    let details =
        EventDetails::text(format!("{bytes} bytes")).from(Who::Replica(from)).to([Who::Replica(to)]);
    details.and(how).and(&causes(network_faults, from.index(), to.index()))
}

impl World {
    fn places(&self) -> (usize, usize) {
        (self.settings.n, self.settings.n.saturating_add(self.clients.len()))
    }

    /// Reports a planned event that is about to happen.
    pub(super) fn report_plan(&mut self, plan: &Plan) {
        if !self.trace.has_reader() {
            return;
        }
        let (n, places) = self.places();
        let numbered = |number: u64, network_fault: &NetworkFault| {
            network_fault_details(n, places, network_fault).transit(Transit::Numbered(number))
        };
        let (what, details) = match plan {
            Plan::Begin(number, network_fault) => ("begins", numbered(*number, network_fault)),
            Plan::End(number) => match self.network.faults.iter().find(|(known, _)| known == number) {
                Some((_, network_fault)) => ("ends", numbered(*number, network_fault)),
                // A fault that a heal has ended does not end a second time.
                None => return,
            },
            // These events are reported when they take effect.
            Plan::Crash(..)
            | Plan::Start(_)
            | Plan::Reopen(_)
            | Plan::Wipe(_)
            | Plan::Pause(..)
            | Plan::Drift(..)
            | Plan::Disk(..)
            | Plan::Executor(..)
            | Plan::Damage(..)
            | Plan::ClientCut(..)
            | Plan::Corrupt
            | Plan::Exempt(_)
            | Plan::ByzantineClient(_) => return,
            other => ("plans", EventDetails::text(plan_text(other))),
        };
        self.trace.report(self.now, Who::World, what, || details);
    }

    /// Describes the network faults in effect.
    pub(super) fn conditions_details(network_faults: &[(u64, NetworkFault)]) -> EventDetails {
        let numbers: Vec<String> = network_faults.iter().map(|(number, _)| format!("f{number}")).collect();
        EventDetails::text(if numbers.is_empty() { "good".to_owned() } else { numbers.join(" ") })
    }

    /// Reports an unusual fate of a frame; `why` explains it.
    pub(super) fn report_frame(&mut self, at: Time, what: &'static str, frame: &Frame, why: &str) {
        let (from, to) = (Who::Replica(frame.from), Who::Replica(frame.to));
        self.trace.report(at, Who::World, what, || {
            let fingerprint = Fingerprint::of(&frame.body);
            let transit = if matches!(what, "loses" | "drops") {
                Transit::Ends(fingerprint)
            } else {
                Transit::Meets(fingerprint)
            };
            EventDetails::of(&frame.content).from(from).to([to]).transit(transit).and(why)
        });
    }

    /// Reports that a hook has changed a frame's body.
    pub(super) fn report_altered(&mut self, at: Time, frame: &Frame, body: &[u8]) {
        let (from, to) = (Who::Replica(frame.from), Who::Replica(frame.to));
        let Self { trace, settings, cluster, .. } = self;
        trace.report(at, Who::World, "alters", || {
            let transit = Transit::Becomes(Fingerprint::of(&frame.body), Fingerprint::of(body));
            let details = FrameReader { settings, cluster }.frame(frame.frame_type, body);
            details.from(from).to([to]).transit(transit).and("a hook of the test")
        });
    }

    /// Notes a frame that the link conditions have lost.
    pub(super) fn note_lost(&mut self, at: Time, frame: &Frame) {
        let (from, to) = (Who::Replica(frame.from), Who::Replica(frame.to));
        let Self { trace, network, .. } = self;
        trace.note(at, Who::World, "loses", &[], || {
            let details = EventDetails::of(&frame.content).from(from).to([to]);
            let why = causes(&network.faults, frame.from.index(), frame.to.index());
            details.transit(Transit::Ends(Fingerprint::of(&frame.body))).and(&why)
        });
    }

    /// Reports a frame that arrives twice.
    pub(super) fn report_doubled(&mut self, at: Time, frame: &Frame) {
        if self.trace.has_reader() {
            let why = causes(&self.network.faults, frame.from.index(), frame.to.index());
            self.report_frame(at, "doubles", frame, &why);
        }
    }

    /// Reports the receivers from which a Byzantine replica withholds a message.
    pub(super) fn report_withheld(
        &mut self,
        at: Time,
        (from, half): (ReplicaId, TwinHalf),
        content: &Content,
        (to, let_through): (To, &[ReplicaId]),
    ) {
        if !self.trace.has_reader() {
            return;
        }
        let withheld = self.receivers(from, to).filter(|id| !let_through.contains(id));
        let whom: Vec<Who> = withheld.map(Who::Replica).collect();
        if !whom.is_empty() {
            self.trace.report(at, Who::Replica(from), "withholds", || {
                EventDetails::of(content).to(whom).and(half_text(half))
            });
        }
    }

    /// Reports a lost message between a client and a replica.
    pub(super) fn report_lost_client_message(&mut self, at: Time, from: usize, to: usize, message: &[u8]) {
        let n = self.settings.n;
        let Self { trace, network, settings, cluster, .. } = self;
        trace.report(at, Who::World, "loses", || {
            let reader = FrameReader { settings, cluster };
            let details = if from < n { reader.answer(message) } else { reader.request(message) };
            let details =
                details.from(who(n, from)).to([who(n, to)]).transit(Transit::Ends(Fingerprint::of(message)));
            details.first(&causes(&network.faults, from, to))
        });
    }

    /// Reports an arrival at a stopped replica.
    pub(super) fn report_arrival_at_stopped(&mut self, id: ReplicaId, arrival: &Arrival) {
        if !self.trace.has_reader() {
            return;
        }
        let Self { trace, settings, cluster, now, .. } = self;
        let reader = FrameReader { settings, cluster };
        let (from, body, details) = match arrival {
            Arrival::Frame { from, frame_type, body } => {
                (Who::Replica(*from), body, reader.frame(*frame_type, body))
            }
            Arrival::Client { index, message } => (Who::Client(*index), message, reader.request(message)),
            _ => return,
        };
        let details = details.from(from).to([Who::Replica(id)]).transit(Transit::Ends(Fingerprint::of(body)));
        trace.report(*now, Who::World, "loses", || details.first("the replica is down"));
    }

    /// Reports the input that a replica has read for its turn.
    pub(super) fn report_read(&mut self, id: ReplicaId) {
        let now = self.now;
        let Self { trace, slots, settings, cluster, .. } = self;
        let heard = slots.get_mut(id.index()).and_then(|slot| slot.read_log.as_mut());
        let reader = FrameReader { settings, cluster };
        for arrival in heard.into_iter().flatten() {
            let (what, details) = match arrival {
                Arrival::Frame { from, frame_type, body } => {
                    let details = match *frame_type {
                        frame::BUNDLE | frame::PAYLOAD => reader.frame(*frame_type, body),
                        // The message's text was reported when it was sent.
                        _ => EventDetails::of(&Content::of(&settings.entry, *frame_type, body)),
                    };
                    (
                        "gets",
                        details.from(Who::Replica(*from)).transit(Transit::Arrives(Fingerprint::of(body))),
                    )
                }
                Arrival::Client { index, message } => {
                    let details = reader.request(message).from(Who::Client(*index));
                    ("gets", details.transit(Transit::Arrives(Fingerprint::of(message))))
                }
                Arrival::Link(peer, event) => {
                    let says = match event {
                        LinkEvent::Back => "back",
                        LinkEvent::Gap => "a gap: frames were lost for good",
                    };
                    ("link", EventDetails::text(says).from(Who::Replica(*peer)))
                }
                _ => continue,
            };
            trace.report(now, Who::Replica(id), what, || details);
        }
    }

    /// Begins to log the input of a replica, if the trace has a reader.
    pub(super) fn begin_read_log(&mut self, id: ReplicaId) {
        let has_reader = self.trace.has_reader();
        if let Some(slot) = self.slot_mut(id).filter(|_| has_reader) {
            slot.read_log = Some(Vec::new());
        }
    }

    /// Returns the expired timers of a replica, if the trace has a reader.
    pub(super) fn timers_due(&self, id: ReplicaId) -> Vec<(Time, String)> {
        let slot = self.slot(id).filter(|_| self.trace.has_reader());
        let Some(running) = slot.and_then(|slot| slot.running.as_ref()) else { return Vec::new() };
        let local = running.local(self.now);
        let timers = running.host.replica().status().timers;
        timers.into_iter().filter(|(at, _)| *at <= local).collect()
    }

    /// Reports expired timers that are no longer set after the turn.
    pub(super) fn report_timers(&mut self, id: ReplicaId, due: Vec<(Time, String)>) {
        if due.is_empty() {
            return;
        }
        let left = self.timers_due(id);
        let slot = self.slot(id);
        let is_alone = slot.and_then(|slot| slot.read_log.as_ref()).is_none_or(Vec::is_empty);
        let how = if is_alone { "fires" } else { "fires, unless an arrival has stopped it" };
        for (at, name) in due.into_iter().filter(|timer| !left.contains(timer)) {
            let _ = at;
            self.trace
                .report(self.now, Who::Replica(id), "timer", || EventDetails::text(format!("{name} {how}")));
        }
    }

    /// Reports the current view of a replica.
    pub(super) fn report_view(&mut self, id: ReplicaId) {
        if self.trace.has_reader() {
            let view = self.running(id).map(|running| running.host.replica().leader());
            self.trace.report_view(self.now, id, view);
        }
    }

    /// Describes a refused message: which one of that sender and kind, where only one is possible.
    pub(super) fn refusal(
        heard: Option<&Vec<Arrival>>,
        reader: &FrameReader<'_>,
        from: Who,
        kind: Kind,
        why: &str,
    ) -> EventDetails {
        let same = heard.into_iter().flatten().filter_map(|arrival| match arrival {
            Arrival::Frame { from: sender, frame_type, body } if Who::Replica(*sender) == from => {
                let content = Content::of(&reader.settings.entry, *frame_type, body);
                (content.kind == kind).then_some(content)
            }
            _ => None,
        });
        let mut same: Vec<EventDetails> = same.map(|content| EventDetails::of(&content)).collect();
        same.dedup();
        let details = match same.pop() {
            Some(only) if same.is_empty() => only,
            _ => EventDetails::kind(kind.as_str()),
        };
        details.from(from).and(why)
    }
}

/// Returns the text for the second half of a twin.
pub(super) fn half_text(half: TwinHalf) -> &'static str {
    match half {
        TwinHalf::First => "",
        TwinHalf::Second => "as the second half of the twin",
    }
}
