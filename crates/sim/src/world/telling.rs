//! What the world tells who reads along: nothing of it happens while nobody does, and nothing of it changes a run.

use super::{Plan, World};
use crate::byzantine::Voice;
use crate::frame::{BUNDLE, Content, Frame};
use crate::front::{Change, Front, Places};
use crate::seat::Arrival;
use crate::settings::{Cluster, Settings};
use crate::trace::{Passage, Print, Tale, Who, crowd, seconds};
use quorate_consensus::{LinkEvent, To};
use quorate_replica::HostMessage;
use quorate_types::bundle::BundleKind;
use quorate_types::codec::Wire as _;
use quorate_types::wire::{FromClient, FromReplica, frame};
use quorate_types::{Bundle, Kind, Payload, Reader, ReplicaId, Time};

/// What is told of the inside of a message at most.
const INSIDE_CHARS_MAX: usize = 200;
/// Places that have names.
const PLACES_MAX: usize = 64;

/// Reads what travels.
pub(super) struct Eyes<'a> {
    pub(super) settings: &'a Settings,
    pub(super) cluster: &'a Cluster,
}

impl Eyes<'_> {
    /// A frame between replicas.
    pub(super) fn frame(&self, frame_type: u8, body: &[u8]) -> Tale {
        let tale = Tale::of(&Content::of(&self.settings.entry, frame_type, body));
        match frame_type {
            frame::BUNDLE => match Bundle::parse_sealed(body, &self.cluster.genesis.bodies) {
                Ok(bundle) => self.bundle(tale, &bundle),
                Err(_) => tale,
            },
            frame::PAYLOAD => match Payload::from_bytes(body) {
                Ok(payload) => {
                    let bundles: Vec<String> =
                        payload.bundles.iter().map(|bundle| bundle.0.short()).collect();
                    tale.about(payload.id().0.short()).and(&format!("bundles {}", bundles.join(" ")))
                }
                Err(_) => tale,
            },
            frame::HOST => match HostMessage::decode(&mut Reader::new(body)) {
                Ok(message) => tale.and(&shortened(&format!("{message:?}"))),
                Err(_) => tale,
            },
            _ => tale.and(&format!("{} bytes", body.len())).and(&self.inside(body)),
        }
    }

    /// A protocol's message as its own code prints it.
    fn inside(&self, body: &[u8]) -> String {
        let message = self.settings.entry.decode_frame(body).ok();
        message.map(|(message, _)| shortened(&format!("{message:?}"))).unwrap_or_default()
    }

    fn bundle(&self, tale: Tale, bundle: &Bundle) -> Tale {
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
        tale.about(bundle.digest().0.short()).and(&says)
    }

    /// What a client sends.
    pub(super) fn request(&self, message: &[u8]) -> Tale {
        match FromClient::from_bytes(message) {
            Ok(FromClient::Bundle { authenticator, content }) => {
                let tale = Tale::kind(BUNDLE.as_str());
                match Bundle::parse(&content, authenticator, &self.cluster.genesis.bodies) {
                    Ok(bundle) => self.bundle(tale, &bundle),
                    Err(_) => tale.and("malformed"),
                }
            }
            Ok(FromClient::Attach(_)) => Tale::kind("attach").and("wants its replies here"),
            Ok(FromClient::Hello { .. }) => Tale::kind("hello"),
            Ok(FromClient::Status) => Tale::kind("status"),
            Err(_) => Tale::kind("unknown").and(&format!("{} bytes", message.len())),
        }
    }

    /// What a replica tells a client.
    pub(super) fn answer(&self, message: &[u8]) -> Tale {
        match FromReplica::from_bytes(message) {
            Ok(FromReplica::Reply(_, reply)) => {
                let says = format!(
                    "bundle {} results in {}, led by r{}",
                    reply.number,
                    reply.result.short(),
                    reply.leader
                );
                Tale::kind("reply").at(Some(reply.view), None).about(reply.bundle.0.short()).and(&says)
            }
            Ok(FromReplica::Refused { bundle, why, .. }) => {
                Tale::kind("refusal").about(bundle.0.short()).and(&format!("{why:?}"))
            }
            Ok(other) => Tale::kind("other").and(&shortened(&format!("{other:?}"))),
            Err(_) => Tale::kind("unknown").and(&format!("{} bytes", message.len())),
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(INSIDE_CHARS_MAX) {
        Some((at, _)) => format!("{} …", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Who stands at a place.
pub(super) fn who(n: usize, place: usize) -> Who {
    match u16::try_from(place) {
        Ok(id) if place < n => Who::Replica(ReplicaId(id)),
        _ => Who::Client(place.saturating_sub(n)),
    }
}

/// The replicas and clients at these places: `r0 r2-3 c1`.
pub(super) fn names(n: usize, places: usize, some: Places) -> String {
    let whos: Vec<Who> = (0..places.min(PLACES_MAX))
        .filter(|place| some.contains(*place))
        .map(|place| who(n, place))
        .collect();
    if whos.len() == places { "all".to_owned() } else { crowd(&whos) }
}

fn percent(ppm: u32) -> String {
    format!("{}.{} %", ppm / 10_000, ppm / 1_000 % 10)
}

/// A front in a few words: what it does, and where.
fn front_tale(n: usize, places: usize, front: &Front) -> Tale {
    let millis = |ns: u64| format!("{}.{} ms", ns / 1_000_000, ns / 100_000 % 10);
    let (kind, how) = match front.change {
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
    let arrow = if front.both_ways { "<->" } else { "->" };
    let place = format!("{} {arrow} {}", name(front.from), name(front.to));
    Tale::kind(kind).and(&if front.from == Places::ALL { "everywhere".to_owned() } else { place }).and(&how)
}

/// What is planned, in words.
fn plan_text(plan: &Plan) -> String {
    match plan {
        Plan::CrashAtStep(id, steps, _) => {
            format!("r{id} loses power at the {steps}. change of its disk or flush from now")
        }
        Plan::WallClock(id, off_ns) => {
            format!("r{id}: its clock on the wall is {} ms off from its next start on", off_ns / 1_000_000)
        }
        Plan::Disconnect(a, b) => format!("the connection of r{a} and r{b} breaks"),
        Plan::HalfOpen(deaf, other, until) => {
            format!("r{deaf} hears only at {} that its connection to r{other} is gone", seconds(*until))
        }
        Plan::CutLeader(number, until) => {
            format!("f{number}: whoever leads is cut off until {}", seconds(*until))
        }
        other => format!("{other:?}"),
    }
}

/// The faults between two places.
fn causes(fronts: &[(u64, Front)], from: usize, to: usize) -> String {
    let here = fronts.iter().filter(|(_, front)| front.covers(from, to));
    let names: Vec<String> =
        here.map(|(number, front)| format!("f{number} {}", front_tale(0, 0, front).kind)).collect();
    if names.is_empty() { "the weather".to_owned() } else { names.join(", ") }
}

/// What happens to bytes on a connection.
pub(super) fn piece_tale(
    fronts: &[(u64, Front)],
    from: ReplicaId,
    to: ReplicaId,
    bytes: usize,
    how: &str,
) -> Tale {
    let tale = Tale::text(format!("{bytes} bytes")).from(Who::Replica(from)).to([Who::Replica(to)]);
    tale.and(how).and(&causes(fronts, from.index(), to.index()))
}

impl World {
    fn places(&self) -> (usize, usize) {
        (self.settings.n, self.settings.n.saturating_add(self.clients.len()))
    }

    /// Something that was planned is about to be done.
    pub(super) fn tell_plan(&mut self, plan: &Plan) {
        if !self.trace.is_read() {
            return;
        }
        let (n, places) = self.places();
        let numbered =
            |number: u64, front: &Front| front_tale(n, places, front).passage(Passage::Numbered(number));
        let (what, tale) = match plan {
            Plan::Begin(number, front) => ("begins", numbered(*number, front)),
            Plan::End(number) => match self.fronts.iter().find(|(known, _)| known == number) {
                Some((_, front)) => ("ends", numbered(*number, front)),
                // What has healed before ends no second time.
                None => return,
            },
            // What comes of these is told when it happens.
            Plan::Crash(..)
            | Plan::Start(_)
            | Plan::Pause(..)
            | Plan::Drift(..)
            | Plan::Disk(..)
            | Plan::Executor(..)
            | Plan::Damage(..)
            | Plan::ClientCut(..)
            | Plan::Corrupt
            | Plan::Adrift(_)
            | Plan::Rogue(_) => return,
            other => ("plans", Tale::text(plan_text(other))),
        };
        self.trace.tell(self.now, Who::World, what, || tale);
    }

    /// The faults of the network that there are now.
    pub(super) fn weather_tale(fronts: &[(u64, Front)]) -> Tale {
        let numbers: Vec<String> = fronts.iter().map(|(number, _)| format!("f{number}")).collect();
        Tale::text(if numbers.is_empty() { "good".to_owned() } else { numbers.join(" ") })
    }

    /// A frame that was sent does not simply go its way: `why` says more.
    pub(super) fn tell_of_frame(&mut self, at: Time, what: &'static str, frame: &Frame, why: &str) {
        let (from, to) = (Who::Replica(frame.from), Who::Replica(frame.to));
        self.trace.tell(at, Who::World, what, || {
            let print = Print::of(&frame.body);
            let passage =
                if matches!(what, "loses" | "drops") { Passage::Ends(print) } else { Passage::Meets(print) };
            Tale::of(&frame.content).from(from).to([to]).passage(passage).and(why)
        });
    }

    /// A frame has another body from here on.
    pub(super) fn tell_altered(&mut self, at: Time, frame: &Frame, body: &[u8]) {
        let (from, to) = (Who::Replica(frame.from), Who::Replica(frame.to));
        let Self { trace, settings, cluster, .. } = self;
        trace.tell(at, Who::World, "alters", || {
            let passage = Passage::Becomes(Print::of(&frame.body), Print::of(body));
            let tale = Eyes { settings, cluster }.frame(frame.frame_type, body);
            tale.from(from).to([to]).passage(passage).and("a hook of the test")
        });
    }

    /// A frame is lost to the weather.
    pub(super) fn note_lost(&mut self, at: Time, frame: &Frame) {
        let (from, to) = (Who::Replica(frame.from), Who::Replica(frame.to));
        let Self { trace, fronts, .. } = self;
        trace.note(at, Who::World, "loses", &[], || {
            let tale = Tale::of(&frame.content).from(from).to([to]);
            let why = causes(fronts, frame.from.index(), frame.to.index());
            tale.passage(Passage::Ends(Print::of(&frame.body))).and(&why)
        });
    }

    /// A frame arrives twice.
    pub(super) fn tell_doubled(&mut self, at: Time, frame: &Frame) {
        if self.trace.is_read() {
            let why = causes(&self.fronts, frame.from.index(), frame.to.index());
            self.tell_of_frame(at, "doubles", frame, &why);
        }
    }

    /// A Byzantine replica does not send something to all who are meant.
    pub(super) fn tell_withheld(
        &mut self,
        at: Time,
        (from, voice): (ReplicaId, Voice),
        content: &Content,
        (to, let_through): (To, &[ReplicaId]),
    ) {
        if !self.trace.is_read() {
            return;
        }
        let withheld = self.receivers(from, to).filter(|id| !let_through.contains(id));
        let whom: Vec<Who> = withheld.map(Who::Replica).collect();
        if !whom.is_empty() {
            self.trace.tell(at, Who::Replica(from), "withholds", || {
                Tale::of(content).to(whom).and(voice_text(voice))
            });
        }
    }

    /// A letter between a client and a replica is lost.
    pub(super) fn tell_lost_letter(&mut self, at: Time, from: usize, to: usize, message: &[u8]) {
        let n = self.settings.n;
        let Self { trace, fronts, settings, cluster, .. } = self;
        trace.tell(at, Who::World, "loses", || {
            let eyes = Eyes { settings, cluster };
            let tale = if from < n { eyes.answer(message) } else { eyes.request(message) };
            let tale = tale.from(who(n, from)).to([who(n, to)]).passage(Passage::Ends(Print::of(message)));
            tale.first(&causes(fronts, from, to))
        });
    }

    /// Something arrives where nobody is.
    pub(super) fn tell_at_closed_door(&mut self, id: ReplicaId, arrival: &Arrival) {
        if !self.trace.is_read() {
            return;
        }
        let Self { trace, settings, cluster, now, .. } = self;
        let eyes = Eyes { settings, cluster };
        let (from, body, tale) = match arrival {
            Arrival::Frame { from, frame_type, body } => {
                (Who::Replica(*from), body, eyes.frame(*frame_type, body))
            }
            Arrival::Client { index, message } => (Who::Client(*index), message, eyes.request(message)),
            _ => return,
        };
        let tale = tale.from(from).to([Who::Replica(id)]).passage(Passage::Ends(Print::of(body)));
        trace.tell(*now, Who::World, "loses", || tale.first("nobody is there"));
    }

    /// What a replica has read for its turn.
    pub(super) fn tell_heard(&mut self, id: ReplicaId) {
        let now = self.now;
        let Self { trace, seats, settings, cluster, .. } = self;
        let heard = seats.get_mut(id.index()).and_then(|seat| seat.heard.as_mut());
        let eyes = Eyes { settings, cluster };
        for arrival in heard.into_iter().flatten() {
            let (what, tale) = match arrival {
                Arrival::Frame { from, frame_type, body } => {
                    let tale = match *frame_type {
                        frame::BUNDLE | frame::PAYLOAD => eyes.frame(*frame_type, body),
                        // Its inside was told when it was sent.
                        _ => Tale::of(&Content::of(&settings.entry, *frame_type, body)),
                    };
                    ("gets", tale.from(Who::Replica(*from)).passage(Passage::Arrives(Print::of(body))))
                }
                Arrival::Client { index, message } => {
                    let tale = eyes.request(message).from(Who::Client(*index));
                    ("gets", tale.passage(Passage::Arrives(Print::of(message))))
                }
                Arrival::Link(peer, event) => {
                    let says = match event {
                        LinkEvent::Back => "back",
                        LinkEvent::Gap => "a gap: frames were lost for good",
                    };
                    ("link", Tale::text(says).from(Who::Replica(*peer)))
                }
                _ => continue,
            };
            trace.tell(now, Who::Replica(id), what, || tale);
        }
    }

    /// Begins to listen to what a replica reads, while somebody reads along.
    pub(super) fn listen(&mut self, id: ReplicaId) {
        let is_read = self.trace.is_read();
        if let Some(seat) = self.seat_mut(id).filter(|_| is_read) {
            seat.heard = Some(Vec::new());
        }
    }

    /// The timers of a replica that are due; nobody asks while nobody reads along.
    pub(super) fn timers_due(&self, id: ReplicaId) -> Vec<(Time, String)> {
        let seat = self.seat(id).filter(|_| self.trace.is_read());
        let Some(running) = seat.and_then(|seat| seat.running.as_ref()) else { return Vec::new() };
        let local = running.local(self.now);
        let timers = running.host.replica().status().timers;
        timers.into_iter().filter(|(at, _)| *at <= local).collect()
    }

    /// Which of the timers that were due are no longer set after the turn.
    pub(super) fn tell_timers(&mut self, id: ReplicaId, due: Vec<(Time, String)>) {
        if due.is_empty() {
            return;
        }
        let left = self.timers_due(id);
        let seat = self.seat(id);
        let is_alone = seat.and_then(|seat| seat.heard.as_ref()).is_none_or(Vec::is_empty);
        let how = if is_alone { "fires" } else { "fires, unless what just arrived has stopped it" };
        for (at, name) in due.into_iter().filter(|timer| !left.contains(timer)) {
            let _ = at;
            self.trace.tell(self.now, Who::Replica(id), "timer", || Tale::text(format!("{name} {how}")));
        }
    }

    /// In which view a replica is now.
    pub(super) fn tell_view(&mut self, id: ReplicaId) {
        if self.trace.is_read() {
            let running = self.seat(id).and_then(|seat| seat.running.as_ref());
            let view = running.map(|running| running.host.replica().leader());
            self.trace.tell_view(self.now, id, view);
        }
    }

    /// A replica refuses something that it read: which message of that sender and kind, where only one can be meant.
    pub(super) fn refusal(
        heard: Option<&Vec<Arrival>>,
        eyes: &Eyes<'_>,
        from: Who,
        kind: Kind,
        why: &str,
    ) -> Tale {
        let same = heard.into_iter().flatten().filter_map(|arrival| match arrival {
            Arrival::Frame { from: sender, frame_type, body } if Who::Replica(*sender) == from => {
                let content = Content::of(&eyes.settings.entry, *frame_type, body);
                (content.kind == kind).then_some(content)
            }
            _ => None,
        });
        let mut same: Vec<Tale> = same.map(|content| Tale::of(&content)).collect();
        same.dedup();
        let tale = match same.pop() {
            Some(only) if same.is_empty() => only,
            _ => Tale::kind(kind.as_str()),
        };
        tale.from(from).and(why)
    }
}

/// Which half of a twin speaks.
pub(super) fn voice_text(voice: Voice) -> &'static str {
    match voice {
        Voice::First => "",
        Voice::Second => "as its second half",
    }
}
