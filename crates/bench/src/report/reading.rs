//! The result of one run, read from the JSON object of the archive. Each part may be absent: archives outlive programs.

use super::histogram::Histogram;
use super::numbers::{float, sound};
use crate::archive::{CellRun, Measure, Quantity, axis_text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The share of an open loop's load that has to be answered in time. With less the latency is that of a growing queue.
const CARRIED_PERCENT: f64 = 95.0;
/// Other numbers of a result that are kept, at most.
const OTHERS_MAX: usize = 16;

/// Settings for the header: the field of the result, and the name for people.
pub(super) const SETTINGS: [(&str, &str); 5] = [
    ("durability", "durability"),
    ("link_auth", "authentication of links"),
    ("client_auth", "authentication of clients"),
    ("authentication", "authentication"),
    ("service", "service"),
];

/// Settings of a run for `summary.csv`: fields of the result.
const CONDITIONS: [&str; 10] = [
    "durability",
    "link_auth",
    "client_auth",
    "authentication",
    "service",
    "arrivals",
    "in_flight",
    "clients",
    "bundle",
    "seconds",
];

/// Further numbers of a load, for the table of all values: the place in the result, the name for people, and the unit's size.
const FURTHER: [(&str, &str, f64); 5] = [
    ("/errors", "errors", 1.0),
    ("/generator_cpu_ms", "CPU of the load generator (s)", 1e3),
    ("/latency_ns/max", "greatest latency (ms)", 1e6),
    ("/latency_ns/p999", "p99.9 latency (ms)", 1e6),
    ("/longest_gap_ms", "longest time without an answer (ms)", 1.0),
];

/// All measures, in the order of tables.
pub(super) const MEASURES: [Measure; 8] = [
    Measure::Goodput,
    Measure::GoodputFirstReply,
    Measure::LatencyMean,
    Measure::LatencyP50,
    Measure::LatencyP99,
    Measure::CpuPerRequest,
    Measure::Memory,
    Measure::LeaderCheckShare,
];

/// Whether a table shows a measure only where a run has recorded it.
pub(super) fn is_optional(measure: Measure) -> bool {
    matches!(measure, Measure::GoodputFirstReply | Measure::LeaderCheckShare)
}

/// Returns the name of a measure with its unit.
pub(super) fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Goodput => "goodput (requests/s)",
        Measure::GoodputFirstReply => "goodput from the first reply on (requests/s)",
        Measure::LatencyMean => "mean latency (ms)",
        Measure::LatencyP50 => "median latency (ms)",
        Measure::LatencyP99 => "p99 latency (ms)",
        Measure::CpuPerRequest => "CPU of all replicas (µs/request)",
        Measure::Memory => "memory of a replica (MB)",
        Measure::LeaderCheckShare => "signature checks in the leader's CPU time (%)",
    }
}

/// Units at the end of a field's name, and their text.
const UNITS: [(&str, &str); 8] = [
    ("_gb_per_s", "GB/s"),
    ("_per_s", "1/s"),
    ("_ns", "ns"),
    ("_us", "µs"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_mb", "MB"),
    ("_bytes", "bytes"),
];

/// Returns the name and the unit of a field for people: `round` and `µs` for `round_us`. The unit may be empty.
pub(super) fn name_and_unit(field: &str) -> (String, &'static str) {
    let found = UNITS.iter().find_map(|(end, unit)| Some((field.strip_suffix(end)?, *unit)));
    let (name, unit) = found.unwrap_or((field, ""));
    (name.replace('_', " "), unit)
}

/// Returns the name of a quantity with its unit.
pub(super) fn name_of(quantity: &Quantity) -> String {
    match quantity {
        Quantity::Measure(measure) => name(*measure).to_owned(),
        Quantity::Field(field) => match name_and_unit(field) {
            (name, "") => name,
            (name, unit) => format!("{name} ({unit})"),
        },
    }
}

/// An interval of a run's timeline.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Interval {
    /// Milliseconds from the start of the measured time to the start of the interval.
    pub(super) at_ms: f64,
    /// Good answers in the interval.
    pub(super) answered: f64,
    /// Errors in the interval.
    pub(super) errors: f64,
    /// The latencies of these answers.
    pub(super) histogram: Option<Histogram>,
}

/// The result of one run.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Reading {
    /// The measured values that are recorded.
    pub(super) values: BTreeMap<Measure, f64>,
    /// Whether the cluster did not carry the offered load.
    pub(super) is_saturated: bool,
    /// Whether the load took all that the cluster gives: it was not carried, or it was a closed loop.
    pub(super) is_saturating: bool,
    /// Requests in a second that were offered; absent in a closed loop.
    pub(super) offered: Option<f64>,
    /// Good answers in a second of the saturating loads in a row that were run before this load.
    pub(super) saturations: Vec<f64>,
    /// Requests that were due in the measured time.
    pub(super) due: Option<f64>,
    /// Requests that were due and had no good answer in time.
    pub(super) dropped: Option<f64>,
    /// All latencies.
    pub(super) histogram: Option<Histogram>,
    /// The shares of requests, and the milliseconds within which they were answered. The fallback for the histogram.
    pub(super) percentiles: Vec<(f64, f64)>,
    /// Intervals, in ascending order of time.
    pub(super) timeline: Vec<Interval>,
    /// The cost ledger of all replicas for one request.
    pub(super) ledger: BTreeMap<String, f64>,
    /// Settings for the header: name and value.
    pub(super) settings: BTreeMap<&'static str, String>,
    /// Settings for `summary.csv`: field and value.
    pub(super) conditions: BTreeMap<&'static str, String>,
    /// Further numbers, by name.
    pub(super) others: BTreeMap<String, f64>,
    /// The remark of an external system.
    pub(super) note: String,
}

impl Reading {
    /// Reads the result of a run.
    pub(super) fn of(run: &CellRun) -> Self {
        let load = &run.load;
        let mut values = BTreeMap::new();
        for measure in MEASURES {
            if let Some(value) = measured(load, measure).and_then(sound) {
                values.insert(measure, value);
            }
        }
        let others = if values.contains_key(&Measure::Goodput) { further(load) } else { others(load) };
        Self {
            values,
            is_saturated: is_saturated(load),
            is_saturating: is_saturated(load) || is_closed(load),
            offered: number(load, "/offered"),
            saturations: saturations(load),
            due: number(load, "/due"),
            dropped: number(load, "/due")
                .zip(number(load, "/answered"))
                .map(|(due, in_time)| (due - in_time).max(0.0)),
            histogram: text(load, "/latency_histogram").and_then(Histogram::read),
            percentiles: percentiles(load),
            timeline: timeline(load),
            ledger: ledger(load),
            settings: settings(run),
            conditions: conditions(load),
            others,
            note: text(load, "/note").unwrap_or_default().to_owned(),
        }
    }
}

fn number(load: &Value, path: &str) -> Option<f64> {
    load.pointer(path).and_then(Value::as_f64).and_then(sound)
}

fn text<'a>(load: &'a Value, path: &str) -> Option<&'a str> {
    load.pointer(path).and_then(Value::as_str)
}

/// Returns a measured value: that of our load generator, or else that of an external system's line.
fn measured(load: &Value, measure: Measure) -> Option<f64> {
    let has_samples = number(load, "/latency_ns/samples") != Some(0.0);
    let ms =
        |name: &str| number(load, &format!("/latency_ns/{name}")).filter(|_| has_samples).map(|ns| ns / 1e6);
    let external = |name: &str| number(load, &format!("/latency_ms/{name}"));
    match measure {
        Measure::Goodput => number(load, "/goodput").or_else(|| number(load, "/tx_per_s")),
        Measure::GoodputFirstReply => number(load, "/goodput_first_reply"),
        Measure::LeaderCheckShare => leader_check_share(load),
        // An external system prints a number, its mean, or an object with some of these names.
        Measure::LatencyMean => {
            ms("mean").or_else(|| number(load, "/latency_ms")).or_else(|| external("mean"))
        }
        Measure::LatencyP50 => ms("p50").or_else(|| external("p50")),
        Measure::LatencyP99 => ms("p99").or_else(|| external("p99")),
        Measure::CpuPerRequest => {
            let uses = replicas(load).filter_map(|used| number(used, "/cpu_seconds_per_1000"));
            uses.map(|seconds| seconds * 1_000.0).reduce(|a, b| a + b).or_else(|| external_cpu(load))
        }
        Measure::Memory => {
            let bytes = replicas(load).filter_map(|used| number(used, "/resident_bytes"));
            bytes.map(|bytes| bytes / 1e6).reduce(f64::max).or_else(|| number(load, "/rss_mb_max"))
        }
    }
}

/// Returns the percentage of the leader's CPU time that checks of signatures took; that of all replicas together where no
/// replica led all the time.
fn leader_check_share(load: &Value) -> Option<f64> {
    let leader = load.get("leader").filter(|leader| leader.is_u64());
    let is_meant = |used: &&Value| leader.is_none() || used.get("id") == leader;
    let shares = replicas(load).filter(is_meant).filter_map(|used| {
        let cpu_ms = number(used, "/cpu_ms")?;
        Some((number(used, "/signature_check_percent")? * cpu_ms, cpu_ms))
    });
    let (checks, cpu_ms) = shares.reduce(|a, b| (a.0 + b.0, a.1 + b.1))?;
    (cpu_ms > 0.0).then(|| checks / cpu_ms)
}

/// Returns the CPU microseconds for a request of an external system that has recorded the number of its requests.
fn external_cpu(load: &Value) -> Option<f64> {
    let seconds = number(load, "/cpu_s_total")?;
    let counted = || Some(number(load, "/tx_per_s")? * number(load, "/seconds")?);
    let requests = number(load, "/requests").or_else(counted).filter(|requests| *requests > 0.0)?;
    Some(seconds * 1e6 / requests)
}

fn replicas(load: &Value) -> impl Iterator<Item = &Value> {
    load.get("replicas").and_then(Value::as_array).into_iter().flatten()
}

fn is_saturated(load: &Value) -> bool {
    if let Some(said) = load.get("saturated").and_then(Value::as_bool) {
        return said;
    }
    let carried = || Some((number(load, "/offered")?, number(load, "/carried")?, number(load, "/due")?));
    carried().is_some_and(|(_, carried, due)| carried * 100.0 < due * CARRIED_PERCENT)
}

/// Whether the load was a closed loop, which always offers as much as the cluster answers.
fn is_closed(load: &Value) -> bool {
    number(load, "/offered").is_none() && number(load, "/in_flight").is_some_and(|count| count > 0.0)
}

fn saturations(load: &Value) -> Vec<f64> {
    let entries = load.get("saturations").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(Value::as_f64).filter_map(sound).collect()
}

fn percentiles(load: &Value) -> Vec<(f64, f64)> {
    let points = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];
    if number(load, "/latency_ns/samples").is_some_and(|samples| samples == 0.0) {
        return Vec::new();
    }
    let at = |(name, share)| Some((share, number(load, &format!("/latency_ns/{name}"))? / 1e6));
    points.into_iter().filter_map(at).collect()
}

fn timeline(load: &Value) -> Vec<Interval> {
    let entries = load.get("timeline").and_then(Value::as_array);
    let read = |entry: &Value| {
        Some(Interval {
            at_ms: number(entry, "/at_ms")?,
            answered: number(entry, "/answered")?,
            errors: number(entry, "/errors").unwrap_or(0.0),
            histogram: text(entry, "/histogram").and_then(Histogram::read),
        })
    };
    let mut intervals: Vec<Interval> = entries.into_iter().flatten().filter_map(read).collect();
    intervals.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    intervals
}

/// Returns the sum of all replicas' counters, divided by the requests. Each replica executes all requests, so the number of
/// requests is that of the replica with the most.
fn ledger(load: &Value) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut requests = 0f64;
    for used in replicas(load) {
        let counters = used.get("ledger").and_then(Value::as_object);
        for (name, value) in counters.into_iter().flatten() {
            let Some(count) = value.as_f64().and_then(sound) else { continue };
            if name == "requests" {
                requests = requests.max(count);
            } else {
                *sums.entry(name.clone()).or_default() += count;
            }
        }
    }
    if requests == 0.0 {
        return BTreeMap::new();
    }
    sums.into_iter().map(|(name, sum)| (name, sum / requests)).collect()
}

/// Returns the settings that the header shows. A name is absent where the run has not recorded it.
fn settings(run: &CellRun) -> BTreeMap<&'static str, String> {
    let mut settings = BTreeMap::new();
    for (field, shown) in SETTINGS {
        let value = run.load.get(field).or_else(|| run.axes.get(field)).and_then(Value::as_str);
        if let Some(value) = value.filter(|value| *value != "unknown") {
            settings.insert(shown, value.to_owned());
        }
    }
    settings
}

fn conditions(load: &Value) -> BTreeMap<&'static str, String> {
    let is_known = |value: &&Value| value.is_string() || value.as_f64().and_then(sound).is_some();
    let read = |field: &'static str| Some((field, axis_text(load.get(field).filter(is_known)?)));
    CONDITIONS.into_iter().filter_map(read).filter(|(_, value)| value != "unknown").collect()
}

fn further(load: &Value) -> BTreeMap<String, f64> {
    let read = |(path, name, size): (&str, &str, f64)| Some((name.to_owned(), number(load, path)? / size));
    FURTHER.into_iter().filter_map(read).collect()
}

/// Returns the first numbers of an object that is no result of a load, in its own order of names.
fn others(load: &Value) -> BTreeMap<String, f64> {
    let described: BTreeSet<&str> = ["n", "f", "tx_per_s", "rss_mb_max"].into();
    let fields = load.as_object().into_iter().flatten();
    let numbers =
        fields.filter(|(name, _)| !described.contains(name.as_str())).filter_map(|(name, value)| {
            let value = value.as_f64().or_else(|| value.as_bool().map(|said| float(u64::from(said))))?;
            Some((name.clone(), value)).filter(|(_, value)| value.is_finite())
        });
    numbers.take(OTHERS_MAX).collect()
}
