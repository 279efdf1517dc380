//! The result of a run, for people and for tools. Every figure comes with its settings.

use super::errors::Errors;
use super::latencies::Latency;
use super::meter::{GRACE_NS, Meter};
use super::numbers::float;
use super::options::{LoadOptions, Pace};
use super::timeline::TimelineEntry;
use super::workload::{KeyDistribution, Mix};
use quorate_node::step_times::{StepFigures, between};
use quorate_types::ReplicaId;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

/// The share of an open loop's load that has to be answered in time for the load to count as carried.
const CARRIED_PERCENT: u128 = 95;

/// The work of one replica in the measured time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplicaUse {
    /// Id of the replica.
    pub id: u16,
    /// CPU milliseconds.
    pub cpu_ms: u64,
    /// CPU seconds for 1,000 requests.
    pub cpu_seconds_per_1000: f64,
    /// The share of the CPU time that was spent on checks of signatures, in percent.
    pub signature_check_percent: f64,
    /// Resident bytes at the end.
    pub resident_bytes: u64,
    /// Voluntary context switches.
    pub voluntary_context_switches: u64,
    /// The cost ledger of the measured time.
    pub ledger: BTreeMap<String, u64>,
    /// The times of the steps of the measured time, by kind.
    pub steps: BTreeMap<String, StepFigures>,
}

/// The cluster's settings, as its replicas report them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClusterFacts {
    /// Name of the protocol.
    pub protocol: String,
    /// Replicas.
    pub n: u64,
    /// Faulty replicas tolerated.
    pub f: u64,
    /// `fsync`, `os` or `none`.
    pub durability: String,
    /// `tls` or `plain`.
    pub link_auth: String,
    /// `signature` or `none`.
    pub client_auth: String,
    /// Milliseconds of the bound on delays that the protocol assumes; `None` where it assumes none.
    pub delta_ms: Option<f64>,
    /// `guarded` or `unguarded`, where there is such a bound.
    pub mode: Option<String>,
}

/// The load that was offered.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Offer {
    /// Requests in a second that were offered; `None` in a closed loop.
    pub offered: Option<f64>,
    /// `constant` or `poisson`: the gaps between due times; `None` in a closed loop.
    pub arrivals: Option<&'static str>,
    /// Requests in flight of a closed loop; 0 in an open one.
    pub in_flight: usize,
    /// Clients.
    pub clients: usize,
    /// Requests in a bundle; 0: all that wait.
    pub bundle: u32,
    /// `uniform` or `zipf`: the distribution of requests over keys; `None` for other operations than puts and gets.
    pub key_distribution: Option<&'static str>,
    /// The exponent of `zipf`.
    pub zipf_exponent: Option<f64>,
    /// The longest wait for answers after the end, in seconds.
    pub drain_seconds: f64,
}

impl Offer {
    fn of(options: &LoadOptions) -> Self {
        let (offered, arrivals, in_flight) = match options.pace {
            Pace::Open { rate, spacing } => (Some(rate), Some(spacing.name()), 0),
            Pace::Closed { in_flight } => (None, None, in_flight),
        };
        let distribution = match &options.mix {
            Mix::Kv { distribution, .. } => Some(*distribution),
            Mix::Echo { .. } | Mix::Judged { .. } | Mix::Service(_) => None,
        };
        Self {
            offered,
            arrivals,
            in_flight,
            clients: options.clients,
            bundle: options.bundle.unwrap_or(0),
            key_distribution: distribution.map(KeyDistribution::name),
            zipf_exponent: match distribution {
                Some(KeyDistribution::Zipf { exponent }) => Some(exponent),
                Some(KeyDistribution::Uniform) | None => None,
            },
            drain_seconds: options.drain.as_secs_f64(),
        }
    }
}

/// Counts of requests, bundles and sessions.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests sent, warm-up included.
    pub sent: u64,
    /// Requests with a good answer, warm-up included.
    pub acknowledged: u64,
    /// Requests without a good answer, warm-up included: an error of the service, no answer, or never sent.
    pub errors: u64,
    /// These errors, by kind.
    pub errors_by_kind: Errors,
    /// Requests that were due and never sent.
    pub unsent: u64,
    /// Requests due in the measured time.
    pub due: u64,
    /// Requests due in the measured time that have a good answer, whenever it came. The latencies are those of these requests.
    pub answered: u64,
    /// Requests due in the measured time that have a good answer in it, or within 100 ms of being due; or the good answers in
    /// the measured time, if they are more, up to `due`.
    pub carried: u64,
    /// Bundles sent again.
    pub repeats: u64,
    /// Sessions that were lost in the run, and opened again.
    pub sessions_lost: u64,
}

impl Counts {
    /// Adds errors of one kind.
    pub(super) fn add_errors(&mut self, kind: &str, count: u64) {
        self.errors = self.errors.saturating_add(count);
        self.errors_by_kind.add(kind, count);
    }
}

/// Times and rates.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Timing {
    /// The measured time, in seconds: the planned one, unless the run was ended earlier.
    pub seconds: f64,
    /// Good answers in each second of the measured time.
    pub goodput: f64,
    /// The same number of good answers, divided by the time from the first of them to the end of the measured time.
    pub goodput_first_reply: f64,
    /// Longest time without a good answer, warm-up included. The time before the first answer counts, and a gap that has
    /// not ended.
    pub longest_gap_ms: f64,
    /// Latency from the due time to the answer.
    pub latency_ns: Latency,
    /// All these latencies in nanoseconds: a histogram in the V2 format of HdrHistogram, without compression, as base64.
    pub latency_histogram: String,
}

/// The result of a run. As JSON it is one object with the fields of all parts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadSummary {
    /// The cluster's settings.
    #[serde(flatten)]
    pub cluster: ClusterFacts,
    /// The load that was offered.
    #[serde(flatten)]
    pub offer: Offer,
    /// Counts of requests, bundles and sessions.
    #[serde(flatten)]
    pub counts: Counts,
    /// Times and rates.
    #[serde(flatten)]
    pub timing: Timing,
    /// Whether the load of an open loop was not carried. Otherwise, 95 % of the requests that were due in the measured time
    /// had a good answer in it, or within 100 ms of being due.
    pub saturated: bool,
    /// The intervals of the measured time; `None` unless the run reports them.
    pub timeline: Option<Vec<TimelineEntry>>,
    /// CPU milliseconds of the load generator's own process in the measured time.
    pub generator_cpu_ms: f64,
    /// The replica that led for the whole measured time; `None` if the view has changed meanwhile, or if leaders rotate.
    pub leader: Option<u16>,
    /// The work of each replica that has reported it at the beginning and at the end of the measured time.
    pub replicas: Vec<ReplicaUse>,
}

impl LoadSummary {
    pub(super) fn new(
        options: &LoadOptions,
        meter: &Meter,
        before: &HashMap<ReplicaId, Value>,
        after: &HashMap<ReplicaId, Value>,
    ) -> Self {
        let any = after.values().next().cloned().unwrap_or(Value::Null);
        let setting = |name: &str| any.pointer(&format!("/settings/{name}")).cloned().unwrap_or(Value::Null);
        let text = |name: &str| setting(name).as_str().unwrap_or("unknown").to_owned();
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        let rate = |seconds: f64| if seconds > 0.0 { float(meter.in_time) / seconds } else { 0.0 };
        let measured = seconds(meter.span_ns());
        let mut counts = meter.counts.clone();
        // Where answers are slow, those to requests of the warm-up show that the cluster keeps pace.
        counts.carried = counts.carried.max(meter.in_time.min(counts.due));
        Self {
            cluster: ClusterFacts {
                protocol: text("protocol"),
                n: setting("n").as_u64().unwrap_or(0),
                f: setting("f").as_u64().unwrap_or(0),
                durability: text("durability"),
                link_auth: text("link_auth"),
                client_auth: text("client_auth"),
                delta_ms: any.pointer("/guard/delta_ms").and_then(Value::as_f64),
                mode: any.pointer("/guard/mode").and_then(Value::as_str).map(str::to_owned),
            },
            offer: Offer::of(options),
            saturated: matches!(options.pace, Pace::Open { .. }) && !has_share(&counts),
            counts,
            timing: Timing {
                seconds: measured,
                goodput: rate(measured),
                goodput_first_reply: rate(seconds(meter.span_from_first_reply_ns())),
                longest_gap_ms: float(meter.longest_gap_ns) / 1e6,
                latency_ns: meter.latencies.summary(),
                latency_histogram: meter.latencies.encoded(),
            },
            timeline: meter.timeline(),
            generator_cpu_ms: float(meter.generator_cpu_ns) / 1e6,
            leader: leader(before, after),
            replicas: replica_uses(before, after),
        }
    }

    /// Whether the cluster carried the load of an open loop: 95 % of the requests that were due in the measured time had a
    /// good answer in it, or within 100 ms of being due. Otherwise the latency is that of a growing queue, and has no
    /// meaning. A closed loop offers no more than is carried.
    #[must_use]
    pub const fn is_carried(&self) -> bool {
        !self.saturated
    }

    /// The share of the offered load that was carried, for people.
    #[must_use]
    pub fn carried_text(&self) -> String {
        let percent = float(self.counts.carried) / float(self.counts.due.max(1)) * 100.0;
        format!(
            "{} of {} requests due ({percent:.1} %) had a good answer in the measured time or within {} ms of being due",
            self.counts.carried,
            self.counts.due,
            GRACE_NS / 1_000_000
        )
    }
}

/// Whether the requests that were answered in time are the share of those due that counts as carried.
fn has_share(counts: &Counts) -> bool {
    u128::from(counts.carried).saturating_mul(100) >= u128::from(counts.due).saturating_mul(CARRIED_PERCENT)
}

/// The counters of the ledger that have the CPU time of checks of signatures.
const CHECK_COUNTERS: [&str; 2] = ["client_check_ns", "replica_check_ns"];

/// Returns the replica that has reported itself as the leader of the same view before and after the measured time; `None` if
/// there is no such replica, or more than one.
fn leader(before: &HashMap<ReplicaId, Value>, after: &HashMap<ReplicaId, Value>) -> Option<u16> {
    let led = |status: &Value, id: ReplicaId| {
        let leader = status.get("leader").and_then(Value::as_u64)?;
        status.get("view").and_then(Value::as_u64).filter(|_| leader == u64::from(id.0))
    };
    let is_leader = |id: &&ReplicaId| {
        let view =
            |statuses: &HashMap<ReplicaId, Value>| statuses.get(id).and_then(|status| led(status, **id));
        view(before).is_some() && view(before) == view(after)
    };
    let mut leaders = after.keys().filter(is_leader);
    leaders.next().filter(|_| leaders.next().is_none()).map(|id| id.0)
}

fn steps(status: &Value) -> &Value {
    status.get("steps").unwrap_or(&Value::Null)
}

fn replica_uses(before: &HashMap<ReplicaId, Value>, after: &HashMap<ReplicaId, Value>) -> Vec<ReplicaUse> {
    let mut uses: Vec<ReplicaUse> = after
        .iter()
        .filter_map(|(id, end)| {
            let start = before.get(id)?;
            let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64).unwrap_or(0);
            let used = |path: &str| number(end, path).saturating_sub(number(start, path));
            let empty = Map::new();
            let counters = end.get("ledger").and_then(Value::as_object).unwrap_or(&empty);
            let ledger: BTreeMap<String, u64> =
                counters.keys().map(|name| (name.clone(), used(&format!("/ledger/{name}")))).collect();
            let requests = ledger.get("requests").copied().unwrap_or(0).max(1);
            let cpu_ms = used("/usage/cpu_ms");
            let check_ns = CHECK_COUNTERS.iter().filter_map(|name| ledger.get(*name)).sum();
            Some(ReplicaUse {
                id: id.0,
                cpu_ms,
                cpu_seconds_per_1000: float(cpu_ms) / float(requests),
                signature_check_percent: float(check_ns) / 1e4 / float(cpu_ms.max(1)),
                resident_bytes: number(end, "/usage/resident_bytes"),
                voluntary_context_switches: used("/usage/voluntary_context_switches"),
                ledger,
                steps: between(steps(start), steps(end)),
            })
        })
        .collect();
    uses.sort_by_key(|used| used.id);
    uses
}

impl fmt::Display for LoadSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_settings(f)?;
        self.write_counts(f)?;
        self.write_latency(f)?;
        self.replicas.iter().try_for_each(|used| write_use(f, used))?;
        self.write_checks(f)
    }
}

impl LoadSummary {
    fn write_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} n={} f={}, durability {}, links {}, client authentication {}",
            self.cluster.protocol,
            self.cluster.n,
            self.cluster.f,
            self.cluster.durability,
            self.cluster.link_auth,
            self.cluster.client_auth
        )?;
        if let (Some(delta_ms), Some(mode)) = (self.cluster.delta_ms, &self.cluster.mode) {
            write!(f, ", delta {delta_ms} ms, {mode}")?;
        }
        writeln!(f)?;
        let bundle =
            if self.offer.bundle == 0 { "natural".to_owned() } else { self.offer.bundle.to_string() };
        let pace = match self.offer.offered {
            Some(offered) => {
                let arrivals = self.offer.arrivals.unwrap_or("constant");
                format!("open loop, {offered} req/s offered, {arrivals} arrivals")
            }
            None => format!("closed loop, {} requests in flight", self.offer.in_flight),
        };
        write!(f, "{pace}, {} clients, bundles {bundle}", self.offer.clients)?;
        if let Some(exponent) = self.offer.zipf_exponent {
            write!(f, ", keys by Zipf with exponent {exponent}")?;
        }
        writeln!(f)
    }

    /// Writes the share of the checks of signatures: of the leader, or of all replicas where none led all the time.
    fn write_checks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(used) = self.replicas.iter().find(|used| Some(used.id) == self.leader) {
            let percent = used.signature_check_percent;
            return writeln!(
                f,
                "signature checks: {percent:.1} % of the CPU of the leader, replica {}",
                used.id
            );
        }
        let cpu_ms: u64 = self.replicas.iter().map(|used| used.cpu_ms).sum();
        let spent: f64 =
            self.replicas.iter().map(|used| used.signature_check_percent * float(used.cpu_ms)).sum();
        if cpu_ms == 0 {
            return Ok(());
        }
        let percent = spent / float(cpu_ms);
        writeln!(
            f,
            "signature checks: {percent:.1} % of the CPU of all replicas, none of which led all the time"
        )
    }

    fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "sent {}  acknowledged {}  errors {}  sent again {} bundles",
            self.counts.sent, self.counts.acknowledged, self.counts.errors, self.counts.repeats
        )?;
        writeln!(
            f,
            "due in the measured time {}, answered {}, never sent in all {}",
            self.counts.due, self.counts.answered, self.counts.unsent
        )?;
        if self.counts.errors > 0 {
            writeln!(f, "errors: {}", self.counts.errors_by_kind)?;
        }
        if self.counts.sessions_lost > 0 {
            writeln!(f, "sessions lost and opened again: {}", self.counts.sessions_lost)?;
        }
        let places = if self.timing.goodput < 100.0 { 2 } else { 0 };
        writeln!(
            f,
            "goodput {:.places$} req/s over the measured time of {:.2} s, {:.places$} req/s from the first reply on",
            self.timing.goodput, self.timing.seconds, self.timing.goodput_first_reply
        )?;
        if self.offer.offered.is_some() {
            let carried =
                if self.is_carried() { "carried" } else { "NOT CARRIED, latency is that of a queue" };
            writeln!(f, "{carried}: {}", self.carried_text())?;
        }
        writeln!(f, "longest time without a good answer: {:.1} ms", self.timing.longest_gap_ms)
    }

    fn write_latency(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| float(ns) / 1e6;
        let latency = &self.timing.latency_ns;
        writeln!(
            f,
            "latency ms: mean {:.3}  stdev {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}  p99.9 {:.3}  max {:.3}",
            latency.mean / 1e6,
            latency.stdev / 1e6,
            ms(latency.p50),
            ms(latency.p90),
            ms(latency.p99),
            ms(latency.p999),
            ms(latency.max)
        )?;
        writeln!(
            f,
            "percentiles of {} samples, rank rounded up; {} of them beyond 600 s, counted as 600 s",
            latency.samples, latency.clamped
        )
    }
}

fn write_use(f: &mut fmt::Formatter<'_>, used: &ReplicaUse) -> fmt::Result {
    let per_block = |name: &str| {
        let blocks = used.ledger.get("blocks").copied().unwrap_or(0).max(1);
        float(used.ledger.get(name).copied().unwrap_or(0)) / float(blocks)
    };
    writeln!(
        f,
        "replica {}: {:.4} CPU s per 1,000 requests, {:.1} MB, per block: {:.2} syncs, {:.1} reads, {:.1} writes, {:.1} turns",
        used.id,
        used.cpu_seconds_per_1000,
        float(used.resident_bytes) / 1e6,
        per_block("syncs"),
        per_block("reads"),
        per_block("writes"),
        per_block("turns"),
    )
}

#[cfg(test)]
impl LoadSummary {
    /// The result of a run of an open loop with these counts.
    pub(crate) fn of(rate: f64, due: u64, carried: u64, errors: &[(&str, u64)]) -> Self {
        Self::of_pace(Pace::constant(rate), due, carried, errors)
    }

    fn of_pace(pace: Pace, due: u64, carried: u64, errors: &[(&str, u64)]) -> Self {
        let mix = Mix::Echo { request_bytes: 9, reply_bytes: 0 };
        let options = LoadOptions::alone(mix, pace, 1, 1, Duration::from_secs(1));
        let zero = quorate_types::Time::ZERO;
        let mut meter = Meter::new(zero, zero, zero.plus(1_000_000_000));
        meter.counts = Counts { due, sent: due, acknowledged: due, carried, ..Counts::default() };
        errors.iter().for_each(|(kind, count)| meter.counts.add_errors(kind, *count));
        Self::new(&options, &meter, &HashMap::new(), &HashMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_node::step_times::StepKind;
    use quorate_node::step_times::StepTimes;
    use serde_json::json;

    /// The report of a replica in view `view`, which replica 1 leads.
    fn report(view: u64, cpu_ms: u64, (client_ns, replica_ns): (u64, u64), steps: &StepTimes) -> Value {
        let ledger =
            json!({"requests": cpu_ms * 10, "client_check_ns": client_ns, "replica_check_ns": replica_ns});
        json!({"view": view, "leader": 1, "usage": {"cpu_ms": cpu_ms}, "ledger": ledger, "steps": steps.figures()})
    }

    #[test]
    fn summary_has_the_steps_and_the_share_of_signature_checks() {
        let mut steps = StepTimes::default();
        steps.add(StepKind::Vote, 9_000);
        let early = report(4, 1_000, (500_000_000, 1_000_000), &steps);
        steps.add(StepKind::Vote, 5_000);
        let late = report(4, 3_000, (900_000_000, 101_000_000), &steps);
        let both = |status: &Value| HashMap::from([0, 1].map(|id| (ReplicaId(id), status.clone())));
        let mut summary = LoadSummary::of(1.0, 1, 1, &[]);
        summary.replicas = replica_uses(&both(&early), &both(&late));
        summary.leader = leader(&both(&early), &both(&late));
        let used = &summary.replicas[1];
        assert_eq!((used.id, used.cpu_ms, summary.leader), (1, 2_000, Some(1)));
        // 400 ms and 100 ms of 2 s.
        assert!((used.signature_check_percent - 25.0).abs() < 1e-9, "{}", used.signature_check_percent);
        assert_eq!((used.steps["vote"].count, used.steps["vote"].total_ns), (1, 5_000));
        let shown = "signature checks: 25.0 % of the CPU of the leader, replica 1";
        assert!(summary.to_string().ends_with(&format!("{shown}\n")), "{summary}");

        let moved = report(5, 3_000, (900_000_000, 101_000_000), &steps);
        summary.leader = leader(&both(&early), &both(&moved));
        assert_eq!(summary.leader, None, "the view has changed");
        let shown = "signature checks: 25.0 % of the CPU of all replicas, none of which led all the time";
        assert!(summary.to_string().ends_with(&format!("{shown}\n")), "{summary}");
    }

    #[test]
    fn load_is_carried_with_95_percent_answered_in_time() {
        for (due, carried, is_carried) in [
            (0, 0, true),
            (1, 1, true),
            (1, 0, false),
            (20, 19, true),
            (20, 18, false),
            (3, 2, false),
            (1_000_000_000, 950_000_000, true),
            (1_000_000_000, 949_999_999, false),
            (u64::MAX, u64::MAX, true),
        ] {
            let summary = LoadSummary::of(1.0, due, carried, &[]);
            assert_eq!(summary.is_carried(), is_carried, "{carried} of {due}");
            assert_eq!(serde_json::to_value(&summary).unwrap()["saturated"], !is_carried);
            assert_eq!(summary.to_string().contains("NOT CARRIED"), !is_carried, "the same mark");
        }
        let closed = LoadSummary::of_pace(Pace::Closed { in_flight: 1 }, 10, 1, &[]);
        assert!(closed.is_carried() && !closed.to_string().contains("carried"), "{closed}");
    }

    #[test]
    fn summary_explains_errors_and_percentiles() {
        let text = LoadSummary::of(0.5, 20, 3, &[("TooLarge", 2), ("NoRoom", 11)]).to_string();
        for line in [
            "open loop, 0.5 req/s offered, constant arrivals, 1 clients, bundles natural",
            "sent 20  acknowledged 20  errors 13  sent again 0 bundles",
            "errors: 11 NoRoom, 2 TooLarge",
            "NOT CARRIED, latency is that of a queue: 3 of 20 requests due (15.0 %) had a good answer in the measured \
             time or within 100 ms of being due",
            "latency ms: mean 0.000  stdev 0.000  p50 0.000  p90 0.000  p99 0.000  p99.9 0.000  max 0.000",
            "percentiles of 0 samples, rank rounded up; 0 of them beyond 600 s, counted as 600 s",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} in {text}");
        }
        let json = serde_json::to_value(LoadSummary::of(0.5, 20, 3, &[("NoRoom", 11)])).unwrap();
        assert_eq!(json["errors_by_kind"], serde_json::json!({ "NoRoom": 11 }));
        assert_eq!((&json["latency_ns"]["samples"], &json["carried"]), (&0.into(), &3.into()));
        let names: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(names.len(), 37, "one object with all fields: {names:?}");
    }
}
