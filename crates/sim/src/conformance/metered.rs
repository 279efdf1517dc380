//! A world that is measured, and the counts of its traffic.

use super::report::{FigureLine, Measured, NotMeasured};
use crate::disk::Costs;
use crate::frame::{Frame, Verdict};
use crate::link_conditions::LinkConditions;
use crate::oracles::Failure;
use crate::seed::synchrony::HEARTBEAT;
use crate::settings::{BadSettings, Settings};
use crate::world::World;
use crate::{ms, secs};
use quorate_client::core::Audience;
use quorate_consensus::{Count, Entry, Figures, Formula, formula};
use quorate_history::{Op, OpId};
use quorate_types::wire::frame;
use quorate_types::{Height, Kind, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Duration of a message where delays are counted, and of a sync where syncs are counted.
pub(super) const UNIT_NS: u64 = ms(1);
/// Number of checkpoint intervals that are counted, with one block for each height.
pub(super) const INTERVALS: u64 = 2;
/// Turns at one moment are a nanosecond apart. Shorter times than this are neither a delay nor a sync.
pub(super) const TURNS_NS: u64 = 1_000;
/// Time after which everything in flight has arrived. A checkpoint waits up to 50 ms for another sync, and so does
/// its proof.
pub(super) const REST_NS: u64 = ms(150);
/// Upper bound on every duration here, leader timers included.
pub(super) const LONG_NS: u64 = secs(120);

pub(super) const CHECKPOINT: Kind = Kind::new("host.checkpoint");
/// The parameter that lengthens timers which count in Δ.
pub(super) const DRIFT: &str = "drift_ppm";
/// The parameter that selects the leader policy.
pub(super) const LEADER_POLICY: &str = "leader_policy";
pub(super) const ROUND_ROBIN: &str = "round-robin";
/// Interval between empty blocks that is longer than any measurement.
pub(super) const HEARTBEAT_MS: i64 = 10_000;
pub(super) const CHECKPOINTS: Formula = formula!(|n| n * (n - 1));

/// Messages that the protocol and CHECKPOINT have sent since the last reset.
#[derive(Default, Debug)]
pub(super) struct SentCounts {
    pub(super) sent: BTreeMap<Kind, u64>,
    /// Departure time of the first message of each kind.
    pub(super) first: BTreeMap<Kind, Time>,
}

impl SentCounts {
    pub(super) fn note(&mut self, now: Time, frame: &Frame) {
        let kind = frame.content.kind;
        if frame.frame_type == frame::PROTOCOL || kind == CHECKPOINT {
            let count = self.sent.entry(kind).or_default();
            *count = count.saturating_add(1);
            self.first.entry(kind).or_insert(now);
        }
    }

    pub(super) fn sent(&self, kind: Kind) -> u64 {
        self.sent.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the time since the first message of a kind left.
    pub(super) fn since(&self, kind: Option<Kind>, now: Time) -> u64 {
        let first = kind.and_then(|kind| self.first.get(&kind));
        first.map_or(0, |first| whole(now.since(*first)))
    }
}

/// A world that is measured.
pub(super) struct MeteredWorld {
    pub(super) world: World,
    pub(super) sent_counts: Rc<RefCell<SentCounts>>,
    pub(super) asked: u64,
    /// Δ, where the protocol has one.
    pub(super) delta_ns: Option<u64>,
}

/// A time, as a multiple of Δ and a rest.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Elapsed {
    pub(super) deltas: u64,
    pub(super) rest_ns: u64,
    /// The shortest and the longest rest.
    range_ns: Option<(u64, u64)>,
}

impl Elapsed {
    pub(super) fn add(&mut self, ns: u64, delta_ns: Option<u64>) {
        let delta_ns = delta_ns.unwrap_or(u64::MAX);
        self.deltas = self.deltas.saturating_add(ns.checked_div(delta_ns).unwrap_or(0));
        let rest_ns = ns.checked_rem(delta_ns).unwrap_or(0);
        self.rest_ns = self.rest_ns.saturating_add(rest_ns);
        let (least, most) = self.range_ns.unwrap_or((rest_ns, rest_ns));
        self.range_ns = Some((least.min(rest_ns), most.max(rest_ns)));
    }

    /// Returns the lines about a time: message delays, and multiples of Δ where there is one.
    pub(super) fn lines(
        self,
        what: &str,
        of: u64,
        (delays, deltas): (u64, u64),
        delta_ns: Option<u64>,
        spread: u64,
    ) -> Vec<FigureLine> {
        let line =
            |what: String, delays, total, of| FigureLine::new(what, delays, delays, Measured { total, of });
        let mut lines = if spread == 0 {
            vec![line(format!("delays {what}"), delays, self.rest_ns, of.saturating_mul(UNIT_NS))]
        } else {
            let (least, most) = self.range_ns.unwrap_or_default();
            let fastest = delays.saturating_sub(spread);
            vec![
                line(format!("delays {what}, fastest"), fastest, least, UNIT_NS),
                line(format!("delays {what}, slowest"), delays, most, UNIT_NS),
            ]
        };
        if delta_ns.is_some() {
            let measured = Measured { total: self.deltas, of };
            lines.push(FigureLine::new(format!("delta {what}"), deltas, deltas, measured));
        }
        lines
    }
}

impl MeteredWorld {
    pub(super) fn new(entry: &Entry, n: usize, delay_ns: u64, sync_ns: u64) -> Result<Self, NotMeasured> {
        Self::with_clients(entry, n, delay_ns, sync_ns, 1)
    }

    pub(super) fn with_clients(
        entry: &Entry,
        n: usize,
        delay_ns: u64,
        sync_ns: u64,
        clients: usize,
    ) -> Result<Self, NotMeasured> {
        let mut settings = Settings::new(entry, 1).with_n(n);
        settings.conditions = LinkConditions::constant(delay_ns);
        settings.costs = Costs { sync_ns, ..Costs::NONE };
        settings.clients = clients;
        // A client cannot know a rotating leader.
        if entry.spec.rotates_leaders {
            settings.client.audience = Audience::All;
        }
        // Timers have their usual values: none of them expires without a fault.
        settings.parameters.exam = false;
        // The figures are the papers', whose leaders rotate round-robin.
        if (entry.params)().map_err(BadSettings::from)?.contains_key(LEADER_POLICY) {
            settings.set(LEADER_POLICY, ROUND_ROBIN);
        }
        let synchrony = (entry.params)().and_then(|params| (entry.synchrony)(&params));
        let delta_ns = synchrony.map_err(BadSettings::from)?.map(|synchrony| synchrony.delta_ns);
        if delta_ns.is_some() {
            // Clocks are exact here, and no empty block is proposed.
            settings.set(DRIFT, 0);
            settings.set(HEARTBEAT, HEARTBEAT_MS);
        }
        let mut world = World::new(settings)?;
        world.take_exact_times();
        world.run_while("the client has its session", LONG_NS, |world| world.session(0).is_none())?;
        world.run_for(secs(1))?;
        let mut metered = Self { world, sent_counts: Rc::default(), asked: 0, delta_ns };
        metered.watch(|_| Verdict::Pass);
        Ok(metered)
    }

    /// Counts every frame from now on, and lets `judge` decide about it.
    pub(super) fn watch(&mut self, judge: impl Fn(&Frame) -> Verdict + 'static) {
        let sent_counts = Rc::clone(&self.sent_counts);
        self.world.hook(move |now, frame| {
            sent_counts.borrow_mut().note(now, frame);
            judge(frame)
        });
    }

    pub(super) fn ask(&mut self) -> Option<OpId> {
        self.asked = self.asked.saturating_add(1);
        let op = Op::Put { key: "k".to_owned(), value: self.asked.to_string() };
        self.world.submit(0, &[op]).first().copied()
    }

    /// Runs until some replica has executed more than this height.
    pub(super) fn run_past(&mut self, height: Height) -> Result<(), Failure> {
        self.world.run_while("a block is executed", LONG_NS, |world| world.height() <= height)
    }

    pub(super) fn run_until_level(&mut self) -> Result<(), Failure> {
        self.world.run_while("every replica has executed it", LONG_NS, |world| !world.is_level())
    }

    /// Runs until an operation is answered, and returns how long that took.
    pub(super) fn run_until_answered(&mut self, id: Option<OpId>) -> Result<u64, Failure> {
        let open = |world: &World| {
            id.and_then(|id| world.history().get(id)).is_some_and(|record| record.answered.is_none())
        };
        self.world.run_while("the request is answered", LONG_NS, open)?;
        let record = id.and_then(|id| self.world.history().get(id));
        let took = record.and_then(|record| Some(record.answered?.since(record.call)));
        Ok(whole(took.unwrap_or_default()))
    }

    /// Runs until everything in flight has arrived.
    pub(super) fn rest(&mut self) -> Result<(), Failure> {
        self.world.run_for(REST_NS)
    }
}

/// Returns a line for each kind of message, and one for their sum.
pub(super) fn each_and_all(
    counts: &[Count],
    n: usize,
    sent_counts: &SentCounts,
    of: u64,
    what: &str,
) -> Vec<FigureLine> {
    let line = |count: &Count| {
        let measured = Measured { total: sent_counts.sent(count.kind), of };
        let stated = (count.messages.of)(size(n));
        FigureLine::new(format!("`{}` {what}", count.kind), count.messages.text, stated, measured)
    };
    let mut lines: Vec<FigureLine> = counts.iter().map(line).collect();
    let stated = lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.stated));
    let total = lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.measured.total));
    lines.push(FigureLine::new(format!("messages {what}"), "their sum", stated, Measured { total, of }));
    lines
}

/// Returns the lines about blocks without faults: messages, delays, and messages that no figure covers. Each time comes with
/// the number of its measurements.
pub(super) fn good_case_lines(
    figures: &Figures,
    n: usize,
    (sent_counts, blocks): (&SentCounts, u64),
    commits: (Elapsed, u64),
    replies: (Elapsed, u64),
    delta_ns: Option<u64>,
) -> Vec<FigureLine> {
    let mut lines = each_and_all(figures.block, n, sent_counts, blocks, "for a block");
    let checkpoints = Measured { total: sent_counts.sent(CHECKPOINT), of: INTERVALS };
    let what = format!("`{CHECKPOINT}` for a checkpoint");
    lines.push(FigureLine::new(what, CHECKPOINTS.text, (CHECKPOINTS.of)(size(n)), checkpoints));
    for (what, (took, of), delays) in [
        ("from proposal to execution", commits, figures.commit_delays),
        ("from request to reply", replies, figures.reply_delays),
    ] {
        let delays = (delays.of)(size(n));
        let times = (delays, figures.commit_deltas);
        lines.extend(took.lines(what, of, times, delta_ns, figures.spread));
    }
    lines.extend(unstated_kinds(figures, &[], sent_counts));
    lines
}

/// Returns a line for each kind of message that no figure covers.
pub(super) fn unstated_kinds(
    figures: &Figures,
    change: &[Count],
    sent_counts: &SentCounts,
) -> Vec<FigureLine> {
    let counted: Vec<Kind> = figures.block.iter().chain(change).map(|count| count.kind).collect();
    let is_known =
        |kind: &Kind| *kind == CHECKPOINT || counted.contains(kind) || figures.not_counted.contains(kind);
    let unstated_kinds = sent_counts.sent.iter().filter(|(kind, _)| !is_known(kind));
    unstated_kinds
        .map(|(kind, total)| {
            FigureLine::new(
                format!("`{kind}`, which no figure covers"),
                "",
                0,
                Measured { total: *total, of: 1 },
            )
        })
        .collect()
}

/// Removes the nanoseconds between turns at one moment.
pub(super) fn whole(span_ns: u64) -> u64 {
    span_ns.saturating_sub(span_ns % TURNS_NS)
}

pub(super) fn size(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
