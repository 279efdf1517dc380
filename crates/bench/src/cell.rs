//! One cell of an experiment: a cluster, its load and its fault.

use crate::archive::{axis_text, cell_name};
use crate::experiment::{AxisValues, External, Study, Work};
use quorate_consensus::Entry;
use quorate_node::config::Settings;
use quorate_node::testnet;
use quorate_protocols::find;
use quorate_types::limits::REPLICAS_MAX;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings that are options of `quorate load`, with `-` in place of `_`.
pub const LOAD_OPTIONS: [&str; 17] = [
    "rate",
    "in_flight",
    "arrivals",
    "clients",
    "bundle",
    "send_to",
    "seconds",
    "warmup",
    "drain",
    "timeline",
    "presign",
    "request_bytes",
    "reply_bytes",
    "keys",
    "key_distribution",
    "zipf_exponent",
    "read_share",
];
/// Settings of the cluster.
pub const CLUSTER_SETTINGS: [&str; 10] =
    ["protocol", "n", "batch", "durability", "client_auth", "link_auth", "link_delay", "fault", "pin", "set"];

/// Whether a cluster or a load has a setting of this name.
#[must_use]
pub fn is_setting(name: &str) -> bool {
    LOAD_OPTIONS.contains(&name) || CLUSTER_SETTINGS.contains(&name)
}

/// The load of a cell in requests in a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rate {
    /// Requests in a second.
    Fixed(f64),
    /// Percent of the goodput at saturation, which a run in a closed loop has shown before.
    OfSaturation(f64),
}

/// A fault of a cell.
#[derive(Clone, PartialEq, Debug)]
pub enum CellFault {
    /// All replicas are well.
    None,
    /// The last replicas are not started.
    Down(DownCount),
    /// The last f replicas have this Byzantine host.
    Lie(String),
    /// The first leader has this Byzantine host.
    LyingLeader(String),
    /// The frames of the first leader to other replicas are delayed by so many milliseconds.
    SlowLeader(u64),
    /// A replica is killed at this time of the measured time; the leader, or another one.
    Kill {
        /// Whether it is the leader.
        leader: bool,
        /// The time.
        at: Duration,
    },
}

/// The number of replicas that are not started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownCount {
    /// One.
    One,
    /// f.
    All,
}

/// The typed settings of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct CellSettings {
    /// The name of the protocol.
    pub protocol: String,
    /// Replicas; `None`: the smallest number that tolerates one fault.
    pub n: Option<usize>,
    /// Values for `--set` of `quorate testnet`.
    pub set: Vec<String>,
    /// Options of `quorate testnet`, without the dashes.
    pub cluster: Vec<(String, String)>,
    /// Options of `quorate load`, without the dashes; not the rate.
    pub load: Vec<(String, String)>,
    /// The rate; `None` for a closed loop.
    pub rate: Option<Rate>,
    /// The fault.
    pub fault: CellFault,
    /// Whether the replicas have all cores but the last one, and the load has the last one.
    pub pin: bool,
}

impl CellSettings {
    /// Reads the values of all settings of a cell.
    ///
    /// # Errors
    /// Fails with the name of an unknown or wrong setting.
    pub fn read(values: &Map<String, Value>) -> Result<Self, String> {
        if let Some(name) = values.keys().find(|name| !is_setting(name)) {
            let all = CLUSTER_SETTINGS.iter().chain(&LOAD_OPTIONS).copied().collect::<Vec<_>>().join(", ");
            return Err(format!("{name}: unknown; expected one of {all}"));
        }
        let text = |name: &str| values.get(name).map(axis_text);
        let mut settings = Self {
            protocol: text("protocol").unwrap_or_else(|| "pbft".to_owned()),
            n: None,
            set: set_values(values.get("set"))?,
            cluster: Vec::new(),
            load: Vec::new(),
            rate: text("rate").map(|rate| read_rate(&rate)).transpose()?,
            fault: read_fault(text("fault").as_deref().unwrap_or("none"))?,
            pin: match values.get("pin") {
                None => false,
                Some(Value::Bool(pin)) => *pin,
                Some(_) => return Err("pin: expected true or false".to_owned()),
            },
        };
        if let Some(n) = values.get("n") {
            let n = n.as_u64().and_then(|n| usize::try_from(n).ok());
            let n = n.filter(|n| (1..=REPLICAS_MAX).contains(n));
            settings.n = Some(n.ok_or_else(|| format!("n: expected 1 to {REPLICAS_MAX}"))?);
        }
        match text("batch").as_deref() {
            None | Some("unlimited") => {}
            Some(batch) if batch.parse::<u32>().is_ok_and(|batch| batch > 0) => {
                settings.set.push(format!("block_requests_max={batch}"));
            }
            Some(other) => return Err(format!("batch: {other}: expected a number above 0, or unlimited")),
        }
        for name in ["durability", "client_auth", "link_auth", "link_delay"] {
            let value = text(name).filter(|value| name != "link_delay" || value != "none");
            settings.cluster.extend(value.map(|value| (option(name), value)));
        }
        for name in LOAD_OPTIONS.iter().filter(|name| **name != "rate") {
            settings.load.extend(text(name).map(|value| (option(name), value)));
        }
        if settings.rate.is_some() && values.contains_key("in_flight") {
            return Err(
                "rate and in_flight exclude each other: an open loop has the one, a closed the other"
                    .to_owned(),
            );
        }
        Ok(settings)
    }

    /// Returns the value of a load option as a time, or a default.
    fn time(&self, name: &str, default: Duration) -> Duration {
        let value = self.load.iter().find(|(option, _)| option == name).map(|(_, value)| value.as_str());
        value.and_then(read_time).unwrap_or(default)
    }
}

/// Returns the option of a setting, without the dashes.
fn option(name: &str) -> String {
    name.replace('_', "-")
}

fn set_values(set: Option<&Value>) -> Result<Vec<String>, String> {
    match set {
        None => Ok(Vec::new()),
        Some(Value::Object(fields)) => {
            Ok(fields.iter().map(|(name, value)| format!("{name}={}", axis_text(value))).collect())
        }
        Some(_) => Err("set: expected a table of settings, for example { delta_ms = 50 }".to_owned()),
    }
}

fn read_rate(text: &str) -> Result<Rate, String> {
    let (number, make): (&str, fn(f64) -> Rate) = match text.strip_suffix('%') {
        Some(percent) => (percent, Rate::OfSaturation),
        None => (text, Rate::Fixed),
    };
    let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    let wrong =
        || format!("rate: {text}: expected requests in a second, or a share of saturation such as \"50%\"");
    number.map(make).ok_or_else(wrong)
}

/// Reads `500ms`, `10s`, `2m`, or a number of seconds.
#[must_use]
pub fn read_time(text: &str) -> Option<Duration> {
    match text.trim().parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}

fn read_fault(text: &str) -> Result<CellFault, String> {
    let (name, argument) = text.split_once(['@', ':']).unwrap_or((text, ""));
    let time =
        || read_time(argument).ok_or_else(|| format!("fault: {text}: expected a time, such as {name}@5s"));
    let or = |default: &str| if argument.is_empty() { default.to_owned() } else { argument.to_owned() };
    Ok(match name {
        "none" => CellFault::None,
        "one-down" => CellFault::Down(DownCount::One),
        "f-down" => CellFault::Down(DownCount::All),
        "silent" => CellFault::Lie("mute".to_owned()),
        "lie" => CellFault::Lie(or("mutate")),
        "lying-leader" => CellFault::LyingLeader(or("own")),
        "slow-leader" => {
            let delay = read_time(&or("50ms")).ok_or_else(|| format!("fault: {text}: expected a time"))?;
            CellFault::SlowLeader(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
        }
        "kill" => CellFault::Kill { leader: false, at: time()? },
        "kill-leader" => CellFault::Kill { leader: true, at: time()? },
        _ => {
            return Err(format!(
                "fault: {text}: expected none, one-down, f-down, silent, lie:HOST, lying-leader:HOST, slow-leader:TIME, kill@TIME or kill-leader@TIME"
            ));
        }
    })
}

/// A cell.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// The study.
    pub study: String,
    /// The work.
    pub work: Work,
    /// The words of a [`Work::Command`], with the values of this cell.
    pub command: Vec<String>,
    /// Whether its result depends on its protocol, which must then be built.
    pub needs_protocol: bool,
    /// Runs.
    pub repeats: u32,
    /// Saturating loads in a row that find its saturation.
    pub saturating_loads: u32,
    /// The values of its axes.
    pub axes: BTreeMap<String, Value>,
    /// All settings.
    pub settings: CellSettings,
    /// Replicas.
    pub n: usize,
    /// Faulty replicas tolerated; 0 for an unknown protocol.
    pub f: usize,
    /// The system of others that is run instead; `None` for a cell of ours.
    pub external: Option<External>,
}

impl Cell {
    /// Creates a cell of a study. `words` are the values that its command names.
    ///
    /// # Errors
    /// Fails when a fault needs more replicas, or when the command names a setting without a value.
    pub fn new(
        study: &Study,
        mut axes: BTreeMap<String, Value>,
        settings: CellSettings,
        words: &Map<String, Value>,
    ) -> Result<Self, String> {
        let entry = find(&settings.protocol);
        let n = settings.n.or(entry.map(|entry| entry.smallest(1))).unwrap_or(4);
        let f = entry.map_or(0, |entry| (entry.spec.faults)(n));
        axes.insert("protocol".to_owned(), Value::String(settings.protocol.clone()));
        axes.insert("n".to_owned(), Value::from(n));
        let needs_fault = !matches!(settings.fault, CellFault::None | CellFault::SlowLeader(_));
        if needs_fault && entry.is_some() && f == 0 {
            return Err(format!("{n} replicas of {} tolerate no fault: use a greater n", settings.protocol));
        }
        let mut words = words.clone();
        for (name, value) in [("protocol", &settings.protocol), ("n", &n.to_string())] {
            words.insert(name.to_owned(), Value::String(value.clone()));
        }
        let command = study.command.iter().map(|word| filled(word, &words)).collect::<Result<_, _>>()?;
        Ok(Self {
            study: study.name.clone(),
            work: study.work,
            command,
            needs_protocol: study.needs_protocol(),
            repeats: study.repeats.max(1),
            saturating_loads: study.saturating_loads.max(1),
            axes,
            settings,
            n,
            f,
            external: None,
        })
    }

    /// Checks that the nodes of its cluster would start.
    ///
    /// # Errors
    /// Fails with the field and the expected value.
    pub fn check(&self) -> Result<(), String> {
        let Some(entry) = self.entry().filter(|_| self.work == Work::Load && self.external.is_none()) else {
            return Ok(());
        };
        let set = self.settings.set.iter().map(|set| set.parse()).collect::<Result<_, String>>()?;
        let delay = self.settings.cluster.iter().find(|(option, _)| option == "link-delay");
        let settings = Settings { set, link_delay: delay.map(|(_, delay)| delay.parse()).transpose()? };
        testnet::check(entry, self.n, &settings).map_err(|failure| failure.to_string())
    }

    /// Returns the entry of its protocol; `None` where it is not built.
    #[must_use]
    pub fn entry(&self) -> Option<&'static Entry> {
        find(&self.settings.protocol)
    }

    /// Whether the protocol of the cell is not built, and its result depends on it.
    #[must_use]
    pub fn lacks_protocol(&self) -> bool {
        self.needs_protocol && self.entry().is_none()
    }

    /// Returns the name, for people.
    #[must_use]
    pub fn name(&self) -> String {
        let system = self.external.as_ref().map_or(self.settings.protocol.as_str(), |of| of.system.as_str());
        format!("{system} n={} {}", self.n, cell_name(&self.study, &self.axes))
    }

    /// Whether it has one of the values of a restriction.
    #[must_use]
    pub fn has(&self, restriction: &AxisValues) -> bool {
        let own = match restriction.axis.as_str() {
            "study" => Some(self.study.clone()),
            axis => self.axes.get(axis).map(axis_text),
        };
        own.is_some_and(|own| restriction.values.iter().any(|value| axis_text(value) == own))
    }

    /// Returns the time that one run takes, about.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        if self.work == Work::Command || self.external.is_some() {
            return Duration::from_secs(20);
        }
        let time = |name, default| self.settings.time(name, Duration::from_secs(default));
        let nodes = Duration::from_millis(120).saturating_mul(u32::try_from(self.n).unwrap_or(u32::MAX));
        let rest = Duration::from_secs(3).saturating_add(nodes);
        time("warmup", 3).saturating_add(time("seconds", 10)).saturating_add(rest)
    }
}

/// Returns a word of a command with values in place of the names in braces.
fn filled(word: &str, values: &Map<String, Value>) -> Result<String, String> {
    let mut text = word.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("{{{name}}}"), &axis_text(value));
    }
    match text.split_once('{') {
        Some(_) => Err(format!("command: {word}: the cells have no setting of this name")),
        None => Ok(text),
    }
}
