//! Whether a protocol costs what its specification says: messages, message delays and syncs are counted in a world
//! without faults, in which every message takes equally long, and compared with the protocol's own
//! [`Figures`].
//!
//! Counted is what leaves a replica for another one. Own copies travel nowhere. What the host sends for every protocol
//! alike is not the protocol's, save CHECKPOINT, whose number is the same for all and stands here.

mod busy;
mod idle;
mod table;

pub use table::markdown;

use crate::disk::Costs;
use crate::frame::{Frame, Verdict};
use crate::history::OpId;
use crate::model::Op;
use crate::oracles::Failure;
use crate::seed::synchrony::HEARTBEAT;
use crate::settings::{BadSettings, Settings, smallest};
use crate::weather::Weather;
use crate::world::World;
use crate::{ms, secs};
use quorate_client::core::Audience;
use quorate_consensus::{Count, Entry, Figures, Formula, LeaderChange, formula};
use quorate_types::wire::frame;
use quorate_types::{Height, Kind, ProtocolId, ReplicaId, Time};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// How long every message takes where delays are counted, and every sync where these are.
const UNIT_NS: u64 = ms(1);
/// Intervals between checkpoints that are counted, with one block for each height.
const INTERVALS: u64 = 2;
/// Requests whose syncs are counted.
const REQUESTS: u64 = 10;
/// Turns that follow each other at one moment are a nanosecond apart: less than this is no delay and no sync.
const TURNS_NS: u64 = 1_000;
/// What is still under way has ended after this: a checkpoint waits for a sync of somebody else's for 50 ms, and so does its
/// proof.
const REST_NS: u64 = ms(150);
/// Nothing here takes longer, timers of leaders included.
const LONG_NS: u64 = secs(120);

const CHECKPOINT: Kind = Kind::new("host.checkpoint");
/// The parameter by which timers that count in Δ are longer.
const DRIFT: &str = "drift_ppm";
/// The parameter that says how leaders follow each other.
const LEADER_POLICY: &str = "leader_policy";
const ROUND_ROBIN: &str = "round-robin";
/// Nothing here takes as long as until an empty block.
const HEARTBEAT_MS: i64 = 10_000;
const CHECKPOINTS: Formula = formula!(|n| n * (n - 1));

/// A protocol of so many replicas, measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub protocol: ProtocolId,
    /// Replicas.
    pub n: usize,
    /// Every figure.
    pub lines: Vec<Line>,
    /// What has to be known to compare them with the paper's.
    pub remarks: &'static [&'static str],
}

impl Report {
    /// Whether every figure is what the protocol states.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.lines.iter().all(Line::agrees)
    }
}

/// One figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// What is counted.
    pub what: String,
    /// How the protocol states it.
    pub formula: String,
    /// Its value for so many replicas.
    pub stated: u64,
    /// What was measured.
    pub measured: Measured,
}

impl Line {
    fn new(what: impl Into<String>, formula: impl ToString, stated: u64, measured: Measured) -> Self {
        Self { what: what.into(), formula: formula.to_string(), stated, measured }
    }

    /// Whether it is what the protocol states.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.measured.is(self.stated)
    }
}

/// So much in all, of so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// In all.
    pub total: u64,
    /// Blocks, intervals, units of time: whatever the figure is about.
    pub of: u64,
}

impl Measured {
    /// Whether each has exactly so many.
    #[must_use]
    pub fn is(&self, each: u64) -> bool {
        self.of > 0 && self.of.checked_mul(each) == Some(self.total)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.total.checked_div(self.of), self.total.checked_rem(self.of)) {
            (Some(each), Some(0)) => write!(f, "{each}"),
            _ => write!(f, "{}/{}", self.total, self.of),
        }
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum NotMeasured {
    /// The protocol does not say what it costs.
    #[error("{0} states no figures (Examined::FIGURES)")]
    NoFigures(ProtocolId),
    /// So many replicas do not suit it.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// Not even without faults does it work.
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// The sizes that a protocol is measured at: the smallest that tolerate one, two and three faults.
#[must_use]
pub fn sizes(entry: &Entry) -> [usize; 3] {
    [1, 2, 3].map(|f| smallest(entry, f))
}

/// Measures a protocol of n replicas.
///
/// # Errors
/// When there is nothing to compare with, or the protocol does not run.
pub fn measure(entry: &Entry, n: usize) -> Result<Report, NotMeasured> {
    let protocol = entry.spec.name;
    let figures = entry.figures.ok_or(NotMeasured::NoFigures(protocol))?;
    // Where leaders follow each other, one block is carried on by the next, so that they are counted while there are many.
    let mut lines = if entry.spec.rotates_leaders {
        busy::good_case(entry, n, &figures)?
    } else {
        good_case(entry, n, &figures)?
    };
    lines.push(syncs(entry, n, &figures)?);
    if let Some(idle) = figures.idle {
        lines.extend(idle::blocks(entry, n, &figures, idle)?);
    }
    if let Some(change) = &figures.leader_change {
        lines.extend(leader_change(entry, n, &figures, change)?);
    }
    Ok(Report { protocol, n, lines, remarks: figures.remarks })
}

/// What the protocol and CHECKPOINT have sent since somebody looked.
#[derive(Default, Debug)]
struct Tally {
    sent: BTreeMap<Kind, u64>,
    /// When the first of each kind left.
    first: BTreeMap<Kind, Time>,
}

impl Tally {
    fn note(&mut self, now: Time, frame: &Frame) {
        let kind = frame.content.kind;
        if frame.frame_type == frame::PROTOCOL || kind == CHECKPOINT {
            let count = self.sent.entry(kind).or_default();
            *count = count.saturating_add(1);
            self.first.entry(kind).or_insert(now);
        }
    }

    fn sent(&self, kind: Kind) -> u64 {
        self.sent.get(&kind).copied().unwrap_or_default()
    }

    /// Since the first message of a kind left.
    fn since(&self, kind: Option<Kind>, now: Time) -> u64 {
        let first = kind.and_then(|kind| self.first.get(&kind));
        first.map_or(0, |first| whole(now.since(*first)))
    }
}

/// A world that is only measured.
struct Bench {
    world: World,
    tally: Rc<RefCell<Tally>>,
    asked: u64,
    /// Δ, where the protocol has one.
    delta_ns: Option<u64>,
}

/// A time, as times Δ and what is left of it.
#[derive(Clone, Copy, Default, Debug)]
struct Span {
    deltas: u64,
    rest_ns: u64,
}

impl Span {
    fn add(&mut self, ns: u64, delta_ns: Option<u64>) {
        let delta_ns = delta_ns.unwrap_or(u64::MAX);
        self.deltas = self.deltas.saturating_add(ns.checked_div(delta_ns).unwrap_or(0));
        self.rest_ns = self.rest_ns.saturating_add(ns.checked_rem(delta_ns).unwrap_or(0));
    }

    /// The lines about it: message delays, and times Δ where there is one.
    fn lines(self, what: &str, of: u64, (delays, deltas): (u64, u64), delta_ns: Option<u64>) -> Vec<Line> {
        let units = of.saturating_mul(UNIT_NS);
        let rest = Measured { total: self.rest_ns, of: units };
        let mut lines = vec![Line::new(format!("delays {what}"), delays, delays, rest)];
        if delta_ns.is_some() {
            let measured = Measured { total: self.deltas, of };
            lines.push(Line::new(format!("delta {what}"), deltas, deltas, measured));
        }
        lines
    }
}

impl Bench {
    fn new(entry: &Entry, n: usize, delay_ns: u64, sync_ns: u64) -> Result<Self, NotMeasured> {
        let mut settings = Settings::new(entry, 1).with_n(n);
        settings.weather = Weather::constant(delay_ns);
        settings.costs = Costs { sync_ns, ..Costs::NONE };
        settings.clients = 1;
        // A rotating leader is nobody whom a client could know.
        if entry.spec.rotates_leaders {
            settings.audience = Audience::All;
        }
        // Timers as they are used: none of them is to fire where nothing goes wrong.
        settings.exam_params = false;
        // Figures are the papers', whose leaders take turns.
        if (entry.params)().map_err(BadSettings::from)?.contains_key(LEADER_POLICY) {
            settings.set(LEADER_POLICY, ROUND_ROBIN);
        }
        let synchrony = (entry.params)().and_then(|params| (entry.synchrony)(&params));
        let delta_ns = synchrony.map_err(BadSettings::from)?.map(|synchrony| synchrony.delta_ns);
        if delta_ns.is_some() {
            // Clocks are right here, and nothing is proposed that nobody has asked for.
            settings.set(DRIFT, 0);
            settings.set(HEARTBEAT, HEARTBEAT_MS);
        }
        let mut world = World::new(settings)?;
        world.take_exact_times();
        world.run_while("the client has its session", LONG_NS, |world| world.session(0).is_none())?;
        world.run_for(secs(1))?;
        let mut bench = Self { world, tally: Rc::default(), asked: 0, delta_ns };
        bench.watch(|_| Verdict::Pass);
        Ok(bench)
    }

    /// Counts from now on what leaves, and lets `judge` decide about it.
    fn watch(&mut self, judge: impl Fn(&Frame) -> Verdict + 'static) {
        let tally = Rc::clone(&self.tally);
        self.world.hook(move |now, frame| {
            tally.borrow_mut().note(now, frame);
            judge(frame)
        });
    }

    fn ask(&mut self) -> Option<OpId> {
        self.asked = self.asked.saturating_add(1);
        let op = Op::Put { key: "k".to_owned(), value: self.asked.to_string() };
        self.world.submit(0, &[op]).first().copied()
    }

    /// Until somebody has executed more than this.
    fn run_past(&mut self, height: Height) -> Result<(), Failure> {
        self.world.run_while("a block is executed", LONG_NS, |world| world.height() <= height)
    }

    fn run_until_level(&mut self) -> Result<(), Failure> {
        self.world.run_while("every replica has executed it", LONG_NS, |world| !world.is_level())
    }

    /// Until an operation is answered: how long it took.
    fn run_until_answered(&mut self, id: Option<OpId>) -> Result<u64, Failure> {
        let open = |world: &World| {
            id.and_then(|id| world.history().get(id)).is_some_and(|record| record.answered.is_none())
        };
        self.world.run_while("the request is answered", LONG_NS, open)?;
        let record = id.and_then(|id| self.world.history().get(id));
        let took = record.and_then(|record| Some(record.answered?.since(record.call)));
        Ok(whole(took.unwrap_or_default()))
    }

    /// What is still under way ends.
    fn rest(&mut self) -> Result<(), Failure> {
        self.world.run_for(REST_NS)
    }
}

/// One request after the other: messages and delays.
fn good_case(entry: &Entry, n: usize, figures: &Figures) -> Result<Vec<Line>, NotMeasured> {
    let mut bench = Bench::new(entry, n, UNIT_NS, 0)?;
    let proposal = figures.block.first().map(|count| count.kind);
    let interval = bench.world.settings().checkpoint_every;
    while !bench.world.height().0.is_multiple_of(interval) {
        let id = bench.ask();
        bench.run_until_answered(id)?;
    }
    bench.rest()?;
    *bench.tally.borrow_mut() = Tally::default();
    let from = bench.world.height();
    let (mut commits, mut replies, mut requests) = (Span::default(), Span::default(), 0u64);
    while bench.world.height().since(from) < INTERVALS.saturating_mul(interval) {
        bench.tally.borrow_mut().first.clear();
        let height = bench.world.highest();
        let id = bench.ask();
        bench.run_past(height)?;
        bench.run_until_level()?;
        commits.add(bench.tally.borrow().since(proposal, bench.world.now()), bench.delta_ns);
        replies.add(bench.run_until_answered(id)?, bench.delta_ns);
        requests = requests.saturating_add(1);
    }
    bench.rest()?;
    let tally = bench.tally.borrow();
    let mut lines = each_and_all(figures.block, n, &tally, bench.world.height().since(from), "for a block");
    let checkpoints = Measured { total: tally.sent(CHECKPOINT), of: INTERVALS };
    let what = format!("`{CHECKPOINT}` for a checkpoint");
    lines.push(Line::new(what, CHECKPOINTS.text, (CHECKPOINTS.of)(size(n)), checkpoints));
    let (delta, deltas) = (bench.delta_ns, figures.commit_deltas);
    let commit = (figures.commit_delays, deltas);
    lines.extend(commits.lines("from proposal to execution", requests, commit, delta));
    let reply = (figures.reply_delays, deltas);
    lines.extend(replies.lines("from request to reply", requests, reply, delta));
    lines.extend(strangers(figures, &[], &tally));
    Ok(lines)
}

/// Nothing but syncs takes time: the answer comes after as many as follow one another.
fn syncs(entry: &Entry, n: usize, figures: &Figures) -> Result<Line, NotMeasured> {
    let mut bench = Bench::new(entry, n, 0, UNIT_NS)?;
    let mut total = Span::default();
    for _ in 0..REQUESTS {
        let id = bench.ask();
        total.add(bench.run_until_answered(id)?, bench.delta_ns);
        bench.rest()?;
    }
    let measured = Measured { total: total.rest_ns, of: REQUESTS.saturating_mul(UNIT_NS) };
    let stated = figures.serial_syncs;
    Ok(Line::new("syncs in a row from request to reply", stated, stated, measured))
}

/// The proposals of the first leader reach nobody.
fn leader_change(
    entry: &Entry,
    n: usize,
    figures: &Figures,
    change: &LeaderChange,
) -> Result<Vec<Line>, NotMeasured> {
    let mut bench = Bench::new(entry, n, UNIT_NS, 0)?;
    let leader = bench.world.status(ReplicaId(0)).map(|status| status.leader);
    let proposal = figures.block.first().map(|count| count.kind);
    let only = Cell::new(None);
    bench.watch(move |frame| {
        let is_its = Some(frame.from) == leader && Some(frame.content.kind) == proposal;
        // In a later view it may lead again.
        if is_its && only.get().is_none() {
            only.set(Some(frame.content.view));
        }
        if is_its && only.get() == Some(frame.content.view) { Verdict::Drop } else { Verdict::Pass }
    });
    let height = bench.world.highest();
    let id = bench.ask();
    bench.run_past(height)?;
    let first = change.messages.first().map(|count| count.kind);
    let mut took = Span::default();
    took.add(bench.tally.borrow().since(first, bench.world.now()), bench.delta_ns);
    let tally = bench.tally.replace(Tally::default());
    bench.run_until_level()?;
    bench.run_until_answered(id)?;
    let mut lines = each_and_all(change.messages, n, &tally, 1, "for a change of leader");
    let what = format!("from `{}` to execution", first.map(|kind| kind.to_string()).unwrap_or_default());
    lines.extend(took.lines(&what, 1, (change.commit_delays, change.commit_deltas), bench.delta_ns));
    lines.extend(strangers(figures, change.messages, &tally));
    Ok(lines)
}

/// Each kind of message, and all of them together.
fn each_and_all(counts: &[Count], n: usize, tally: &Tally, of: u64, what: &str) -> Vec<Line> {
    let line = |count: &Count| {
        let measured = Measured { total: tally.sent(count.kind), of };
        let stated = (count.messages.of)(size(n));
        Line::new(format!("`{}` {what}", count.kind), count.messages.text, stated, measured)
    };
    let mut lines: Vec<Line> = counts.iter().map(line).collect();
    let stated = lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.stated));
    let total = lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.measured.total));
    lines.push(Line::new(format!("messages {what}"), "their sum", stated, Measured { total, of }));
    lines
}

/// What was sent and no figure speaks of.
fn strangers(figures: &Figures, change: &[Count], tally: &Tally) -> Vec<Line> {
    let counted: Vec<Kind> = figures.block.iter().chain(change).map(|count| count.kind).collect();
    let is_known =
        |kind: &Kind| *kind == CHECKPOINT || counted.contains(kind) || figures.not_counted.contains(kind);
    let strangers = tally.sent.iter().filter(|(kind, _)| !is_known(kind));
    strangers
        .map(|(kind, total)| {
            Line::new(
                format!("`{kind}`, of which no figure speaks"),
                "",
                0,
                Measured { total: *total, of: 1 },
            )
        })
        .collect()
}

/// Without what turns at one moment are apart.
fn whole(span_ns: u64) -> u64 {
    span_ns.saturating_sub(span_ns % TURNS_NS)
}

fn size(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
