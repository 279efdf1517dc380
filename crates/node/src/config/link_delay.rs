//! Emulated delays between replicas, for experiments: the option `--link-delay` and its matrix, and the numbers in `node.toml`.

use super::duration::parse_seconds;
use crate::exit::Failure;
use quorate_net::reactor::LINK_DELAY_NS_MAX;
use quorate_types::ReplicaId;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;

const NS_PER_MS: u64 = 1_000_000;
/// The longest delay in milliseconds.
const MS_MAX: u64 = LINK_DELAY_NS_MAX / NS_PER_MS;
/// The text that selects the table of regions.
const REGIONS: &str = "regions";
/// The field of a matrix in TOML.
const MATRIX: &str = "delay_ms";

/// One-way delays in microseconds between Washington DC, London, Dallas, Tokyo and São Paulo, in this order.
///
/// Source: the round trips between regions that IBM Cloud has published for its virtual private cloud ("Network latency", average
/// of 28 September to 27 October 2024). Both directions are averaged and halved. Two replicas in one region have half of the
/// published 2 ms between its zones.
const REGION_DELAYS_US: [[u64; 5]; 5] = [
    [1_000, 38_000, 15_500, 84_000, 59_500],
    [38_000, 1_000, 57_000, 121_000, 94_000],
    [15_500, 57_000, 1_000, 71_000, 72_000],
    [84_000, 121_000, 71_000, 1_000, 142_500],
    [59_500, 94_000, 72_000, 142_500, 1_000],
];

/// The option `--link-delay`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkDelay {
    /// The same delay between any two replicas, in nanoseconds.
    Constant(u64),
    /// The delays between five cloud regions, to which the replicas belong in turn.
    Regions,
    /// A file with the delay of each pair.
    File(PathBuf),
}

impl FromStr for LinkDelay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match parse_seconds(text) {
            _ if text == REGIONS => Ok(Self::Regions),
            // Any other text is the name of a file.
            Err(_) => Ok(Self::File(text.into())),
            Ok(delay) => match u64::try_from(delay.as_nanos()) {
                Ok(ns) if ns <= LINK_DELAY_NS_MAX => Ok(Self::Constant(ns)),
                _ => {
                    Err(format!("expected at most {MS_MAX}ms; a number alone is in seconds, so write 100ms"))
                }
            },
        }
    }
}

impl fmt::Display for LinkDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(ns) => write!(f, "{}ms", show_ms(*ns)),
            Self::Regions => f.write_str(REGIONS),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl LinkDelay {
    /// Returns the delays between `n` replicas.
    ///
    /// # Errors
    /// Fails when the file cannot be read, or is no matrix of `n` rows with `n` delays each.
    pub fn between(&self, n: usize) -> Result<LinkDelays, Failure> {
        match self {
            Self::Constant(ns) => Ok(LinkDelays::of_pairs(n, |_, _| Some(*ns))),
            Self::Regions => Ok(LinkDelays::of_pairs(n, |from, to| {
                let delays = REGION_DELAYS_US.get(from.checked_rem(REGION_DELAYS_US.len())?)?;
                Some(delays.get(to.checked_rem(delays.len())?)?.saturating_mul(1_000))
            })),
            Self::File(path) => {
                let problem = |problem| Failure::usage(format!("--link-delay {}: {problem}", path.display()));
                let matrix = read_matrix(path, n).map_err(problem)?;
                Ok(LinkDelays::of_pairs(n, |from, to| matrix.get(from)?.get(to).copied()))
            }
        }
    }
}

/// The one-way delays between the replicas of a cluster, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkDelays {
    /// By sender, and in each row by receiver; zero from a replica to itself.
    rows: Vec<Vec<u64>>,
}

impl LinkDelays {
    fn of_pairs(n: usize, delay: impl Fn(usize, usize) -> Option<u64>) -> Self {
        let delay = |from, to| if from == to { 0 } else { delay(from, to).unwrap_or(0) };
        Self { rows: (0..n).map(|from| (0..n).map(|to| delay(from, to)).collect()).collect() }
    }

    /// Returns the delays from this replica to each replica, by id; empty if there is none.
    #[must_use]
    pub fn from(&self, id: ReplicaId) -> Vec<u64> {
        let row = self.rows.get(id.index()).cloned().unwrap_or_default();
        if row.iter().all(|ns| *ns == 0) { Vec::new() } else { row }
    }

    /// Returns the longest sum of the delays between two replicas and back.
    #[must_use]
    pub fn round_trip_max(&self) -> Duration {
        let back = |from: usize, to: usize| self.rows.get(to).and_then(|row| row.get(from)).copied();
        let sums = self.rows.iter().enumerate().flat_map(|(from, row)| {
            row.iter().enumerate().map(move |(to, ns)| ns.saturating_add(back(from, to).unwrap_or(0)))
        });
        Duration::from_nanos(sums.max().unwrap_or(0))
    }

    /// Describes the delays in one line; `None` if there is none.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let all = self.rows.iter().enumerate().flat_map(|(from, row)| {
            row.iter().enumerate().filter(move |(to, _)| from != *to).map(|(_, ns)| *ns)
        });
        let (least, most) = all.fold((u64::MAX, 0), |(least, most), ns| (ns.min(least), ns.max(most)));
        let range = match (most, least == most) {
            (0, _) => return None,
            (_, true) => show_ms(most),
            (_, false) => format!("{} to {}", show_ms(least), show_ms(most)),
        };
        Some(format!("links emulate one-way delays of {range} ms"))
    }
}

/// Reads a file with `n` rows of `n` delays in milliseconds: TOML if its name ends in `.toml`, and CSV otherwise.
fn read_matrix(path: &Path, n: usize) -> Result<Vec<Vec<u64>>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!(
            "cannot be read: {error}; expected a duration such as 100ms, {REGIONS}, or a file with a matrix"
        )
    })?;
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let rows = if is_toml { toml_rows(&text)? } else { csv_rows(&text) };
    let numbers = format!("{n} numbers of milliseconds from 0 to {MS_MAX}, one for each replica");
    if rows.len() != n {
        return Err(format!("expected {n} rows with {numbers}, found {} rows; correct the file", rows.len()));
    }
    let read = |(place, row): (String, Vec<String>)| {
        let delays: Option<Vec<u64>> = row.iter().map(|text| parse_ms(text)).collect();
        let delays = delays.filter(|delays| delays.len() == n);
        delays.ok_or_else(|| format!("{place}: expected {numbers}, found {}; correct it", row.join(", ")))
    };
    rows.into_iter().map(read).collect()
}

/// Returns the rows of a matrix in CSV, each with its place. Empty lines and lines that begin with `#` are comments.
fn csv_rows(text: &str) -> Vec<(String, Vec<String>)> {
    let lines = text.lines().map(str::trim).zip(1u64..);
    let rows = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    rows.map(|(line, number)| {
        let cells = line.split(',').map(|cell| cell.trim().to_owned()).collect();
        (format!("line {number}"), cells)
    })
    .collect()
}

/// Returns the rows of a matrix in TOML, each with its place.
fn toml_rows(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let expected = format!("expected {MATRIX} = [[0, 20, …], …] and nothing else; correct the file");
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| format!("not valid TOML: {}; {expected}", error.message()))?;
    let rows = table.get(MATRIX).and_then(toml::Value::as_array).filter(|_| table.len() == 1);
    let cells = |(row, number): (&toml::Value, u64)| {
        let cells = row.as_array()?.iter().map(toml::Value::to_string).collect();
        Some((format!("row {number} of {MATRIX}"), cells))
    };
    rows.and_then(|rows| rows.iter().zip(1u64..).map(cells).collect()).ok_or(expected)
}

/// Reads the delays of `node.toml`, in nanoseconds.
pub(super) fn read_delays(value: &DeValue<'_>) -> Option<Vec<u64>> {
    let read = |entry: &Spanned<DeValue<'_>>| match entry.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => parse_ms(number.as_str()),
        DeValue::Float(number) => parse_ms(number.as_str()),
        _ => None,
    };
    value.as_array()?.iter().map(read).collect()
}

/// Returns the description of the delays of `node.toml` in errors.
pub(super) fn expected_delays() -> String {
    format!("a list of milliseconds from 0 to {MS_MAX}, one for each replica, or []")
}

/// Writes delays as TOML.
pub(super) fn show_delays(delays_ns: &[u64]) -> String {
    let numbers: Vec<String> = delays_ns.iter().map(|ns| show_ms(*ns)).collect();
    format!("[{}]", numbers.join(", "))
}

/// Reads a number of milliseconds; returns nanoseconds.
fn parse_ms(text: &str) -> Option<u64> {
    let ms: f64 = text.parse().ok()?;
    let delay = Duration::try_from_secs_f64(ms / 1e3).ok()?;
    u64::try_from(delay.as_nanos()).ok().filter(|ns| *ns <= LINK_DELAY_NS_MAX)
}

/// Writes nanoseconds as a decimal number of milliseconds, exactly.
fn show_ms(ns: u64) -> String {
    let (whole, fraction) = (ns / NS_PER_MS, ns % NS_PER_MS);
    let text = format!("{whole}.{fraction:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
