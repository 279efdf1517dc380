//! What a run gave, for people and for tools. Every figure comes with its settings.

use super::meter::Meter;
use super::{LoadOptions, Pace};
use hdrhistogram::Histogram;
use quorate_types::ReplicaId;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

/// A histogram of nanoseconds up to ten minutes, with three significant digits.
pub(super) fn histogram() -> Histogram<u64> {
    // The bounds are constants that the library accepts; a histogram that resizes itself is the way out.
    Histogram::new_with_bounds(1_000, 600_000_000_000, 3)
        .or_else(|_| Histogram::new(3))
        .unwrap_or_else(|_| unreachable!("three significant digits are allowed"))
}

/// A count as a floating-point number, for rates.
#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// Latency in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stdev: f64,
    /// Median.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}

/// What one replica used in the measured time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplicaUse {
    /// Which replica.
    pub id: u16,
    /// CPU seconds for 1,000 requests.
    pub cpu_seconds_per_1000: f64,
    /// Resident bytes at the end.
    pub resident_bytes: u64,
    /// Voluntary context switches.
    pub voluntary_context_switches: u64,
    /// The cost ledger of the measured time.
    pub ledger: BTreeMap<String, u64>,
}

/// What a run gave.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
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
    /// Requests in a second that were offered; `None` in a closed loop.
    pub offered: Option<f64>,
    /// Requests in flight of a closed loop; 0 in an open one.
    pub in_flight: usize,
    /// Clients.
    pub clients: usize,
    /// Requests in a bundle; 0: whatever waits.
    pub bundle: u32,
    /// Requests sent, warm-up included.
    pub sent: u64,
    /// Requests answered, warm-up included.
    pub acknowledged: u64,
    /// Requests without an answer, warm-up included, whether they were sent or not.
    pub errors: u64,
    /// Those of them that were due and never sent.
    pub unsent: u64,
    /// Requests due in the measured time.
    pub due: u64,
    /// Those of them that were answered, in it or after it: the latencies are theirs.
    pub answered: u64,
    /// Bundles sent again.
    pub repeats: u64,
    /// From the first answer in the measured time to the last.
    pub seconds: f64,
    /// Answers in a second of that time.
    pub goodput: f64,
    /// Longest time without an answer, warm-up included.
    pub longest_gap_ms: f64,
    /// From due to answered.
    pub latency_ns: Latency,
    /// What the replicas used, as far as they have said so at the beginning and at the end of the measured time.
    pub replicas: Vec<ReplicaUse>,
}

impl Summary {
    pub(super) fn new(
        options: &LoadOptions,
        meter: &Meter,
        before: &HashMap<ReplicaId, Value>,
        after: &HashMap<ReplicaId, Value>,
    ) -> Self {
        let any = after.values().next().cloned().unwrap_or(Value::Null);
        let setting = |name: &str| any.pointer(&format!("/settings/{name}")).cloned().unwrap_or(Value::Null);
        let text = |name: &str| setting(name).as_str().unwrap_or("unknown").to_owned();
        let (offered, in_flight) = match options.pace {
            Pace::Open { rate } => (Some(rate), 0),
            Pace::Closed { in_flight } => (None, in_flight),
        };
        let seconds = Duration::from_nanos(meter.span_ns()).as_secs_f64();
        let h = &meter.histogram;
        Self {
            protocol: text("protocol"),
            n: setting("n").as_u64().unwrap_or(0),
            f: setting("f").as_u64().unwrap_or(0),
            durability: text("durability"),
            link_auth: text("link_auth"),
            client_auth: text("client_auth"),
            delta_ms: any.pointer("/guard/delta_ms").and_then(Value::as_f64),
            mode: any.pointer("/guard/mode").and_then(Value::as_str).map(str::to_owned),
            offered,
            in_flight,
            clients: options.clients,
            bundle: options.bundle.unwrap_or(0),
            sent: meter.sent,
            acknowledged: meter.acknowledged,
            errors: meter.errors,
            unsent: meter.unsent,
            due: meter.due,
            answered: meter.answered,
            repeats: meter.repeats,
            seconds,
            goodput: if seconds > 0.0 { float(meter.in_time) / seconds } else { 0.0 },
            longest_gap_ms: float(meter.longest_gap_ns) / 1e6,
            latency_ns: Latency {
                mean: h.mean(),
                stdev: h.stdev(),
                p50: h.value_at_quantile(0.5),
                p90: h.value_at_quantile(0.9),
                p99: h.value_at_quantile(0.99),
                p999: h.value_at_quantile(0.999),
                max: h.max(),
            },
            replicas: replica_uses(before, after),
        }
    }

    /// Whether the answers kept up with what was offered (within 5 %): otherwise the latency is that of a queue
    /// that grows, and says nothing.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.offered.is_some_and(|offered| self.goodput < offered * 0.95)
    }
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
            Some(ReplicaUse {
                id: id.0,
                cpu_seconds_per_1000: float(used("/usage/cpu_ms")) / float(requests),
                resident_bytes: number(end, "/usage/resident_bytes"),
                voluntary_context_switches: used("/usage/voluntary_context_switches"),
                ledger,
            })
        })
        .collect();
    uses.sort_by_key(|one| one.id);
    uses
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| float(ns) / 1e6;
        let latency = &self.latency_ns;
        write!(
            f,
            "{} n={} f={}, durability {}, links {}, client authentication {}",
            self.protocol, self.n, self.f, self.durability, self.link_auth, self.client_auth
        )?;
        if let (Some(delta_ms), Some(mode)) = (self.delta_ms, &self.mode) {
            write!(f, ", delta {delta_ms} ms, {mode}")?;
        }
        writeln!(f)?;
        let bundle = if self.bundle == 0 { "natural".to_owned() } else { self.bundle.to_string() };
        let pace = match self.offered {
            Some(offered) => format!("open loop, {offered:.0} req/s offered"),
            None => format!("closed loop, {} requests in flight", self.in_flight),
        };
        writeln!(f, "{pace}, {} clients, bundles {bundle}", self.clients)?;
        writeln!(
            f,
            "sent {}  acknowledged {}  errors {}  sent again {} bundles",
            self.sent, self.acknowledged, self.errors, self.repeats
        )?;
        writeln!(
            f,
            "due in the measured time {}, answered {}, never sent in all {}",
            self.due, self.answered, self.unsent
        )?;
        write!(f, "goodput {:.0} req/s over {:.2} s", self.goodput, self.seconds)?;
        writeln!(
            f,
            "{}",
            if self.is_saturated() { "  (saturated: latency is that of a queue)" } else { "" }
        )?;
        writeln!(
            f,
            "latency ms: mean {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}  p99.9 {:.3}  max {:.3}",
            latency.mean / 1e6,
            ms(latency.p50),
            ms(latency.p90),
            ms(latency.p99),
            ms(latency.p999),
            ms(latency.max)
        )?;
        writeln!(f, "longest time without an answer: {:.1} ms", self.longest_gap_ms)?;
        for used in &self.replicas {
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
            )?;
        }
        Ok(())
    }
}
