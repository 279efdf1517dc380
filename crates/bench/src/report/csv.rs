//! `summary.csv`: a row for each cell.

use super::cells::Spread;
use super::numbers::{sound, without_zeros};
use super::reading::MEASURES;
use super::summary::{Row, Summary};
use crate::archive::{Archive, Measure};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// The columns before those of the axes.
const HEAD: [&str; 5] = ["study", "system", "protocol", "n", "f"];
/// The columns after those of the axes.
const OUTCOME: [&str; 3] = ["runs", "failed", "not_built"];
/// The column of the mark of an open loop that was not carried.
const SATURATED: &str = "saturated";
/// The starts of the names of columns.
const SETTING: &str = "setting_";
const LEDGER: &str = "ledger_";
/// The values of a measure.
const WHICH: [&str; 3] = ["min", "median", "max"];

/// Returns `summary.csv`: a row for each cell, with the least value, the median and the greatest value of each measure over
/// the runs. Goodput is in requests a second, latency in milliseconds, CPU in microseconds for a request, and memory in
/// megabytes. A column `ledger_…` has the median of a counter for one request, all replicas together. A value that is not
/// recorded is empty.
#[must_use]
pub fn summary_csv(archive: &Archive) -> String {
    text(&Summary::of(archive).rows)
}

fn text(rows: &[Row]) -> String {
    let names = |of: fn(&Row) -> Vec<&String>| rows.iter().flat_map(of).collect::<BTreeSet<&String>>();
    let axes = names(|row| row.axes.keys().collect());
    let settings = names(|row| row.settings.keys().collect());
    let counters = names(|row| row.counted.keys().collect());
    let mut head: Vec<String> = HEAD.map(str::to_owned).into();
    head.extend(axes.iter().map(|axis| (*axis).clone()));
    head.extend(OUTCOME.map(str::to_owned));
    for measure in MEASURES {
        head.extend(WHICH.map(|which| format!("{}_{which}", name(measure))));
    }
    head.push(SATURATED.to_owned());
    head.extend(settings.iter().map(|field| format!("{SETTING}{field}")));
    head.extend(counters.iter().map(|counter| format!("{LEDGER}{counter}")));
    let mut text = line(&head);
    for row in rows {
        let of = |map: &BTreeMap<String, String>, name: &String| map.get(name).cloned().unwrap_or_default();
        let mut fields: Vec<String> = [&row.study, &row.system, &row.protocol].map(Clone::clone).into();
        fields.extend([row.n.to_string(), row.f.to_string()]);
        fields.extend(axes.iter().map(|axis| of(&row.axes, axis)));
        fields.extend([row.runs.to_string(), row.failed.to_string(), row.not_built.clone()]);
        for measure in MEASURES {
            let values = row.values.get(&measure).map(|spread| [spread.min, spread.median, spread.max]);
            fields.extend(values.map_or_else(Default::default, |values| values.map(number)));
        }
        fields.push(if row.is_saturated { "yes" } else { "no" }.to_owned());
        fields.extend(settings.iter().map(|field| of(&row.settings, field)));
        let count = |counter: &&String| row.counted.get(*counter).copied().map(number).unwrap_or_default();
        fields.extend(counters.iter().map(count));
        text.push_str(&line(&fields));
    }
    text
}

fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Goodput => "goodput_per_s",
        Measure::GoodputFirstReply => "goodput_first_reply_per_s",
        Measure::LatencyMean => "latency_mean_ms",
        Measure::LatencyP50 => "latency_p50_ms",
        Measure::LatencyP99 => "latency_p99_ms",
        Measure::CpuPerRequest => "cpu_us_per_request",
        Measure::Memory => "memory_mb",
        Measure::LeaderCheckShare => "leader_check_share_percent",
    }
}

fn number(value: f64) -> String {
    without_zeros(&format!("{value:.9}")).to_owned()
}

fn line(fields: &[String]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
    fields.join(",") + "\n"
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// Reads the rows of a file. Columns of unknown names are left out, and absent columns count as not recorded.
///
/// # Errors
/// Fails with the first mistake.
pub(super) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let mut records = records(text)?.into_iter();
    let head = records.next().ok_or("the file is empty")?;
    if let Some(name) = HEAD.into_iter().chain(OUTCOME).find(|name| !head.iter().any(|known| known == name)) {
        return Err(format!("the column {name} is missing; `quorate bench` has written no such file"));
    }
    let mut rows = Vec::new();
    for (i, fields) in records.enumerate() {
        let at = |why: String| format!("row {}: {why}", i.saturating_add(1));
        if fields.len() != head.len() {
            return Err(at(format!("{} values instead of {}", fields.len(), head.len())));
        }
        rows.push(row(&head, &fields).map_err(at)?);
    }
    Ok(rows)
}

fn row(head: &[String], fields: &[String]) -> Result<Row, String> {
    let columns = || head.iter().map(String::as_str).zip(fields.iter().map(String::as_str));
    let field = |name: &str| columns().find(|(known, _)| *known == name).map_or("", |(_, field)| field);
    let axes = columns()
        .skip(HEAD.len())
        .take_while(|(name, _)| *name != OUTCOME[0])
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut row = Row {
        study: field("study").to_owned(),
        system: field("system").to_owned(),
        protocol: field("protocol").to_owned(),
        n: read("n", field("n"))?,
        f: read("f", field("f"))?,
        axes: axes.collect(),
        runs: read("runs", field("runs"))?,
        failed: read("failed", field("failed"))?,
        not_built: field("not_built").to_owned(),
        is_saturated: field(SATURATED) == "yes",
        ..Row::default()
    };
    for measure in MEASURES {
        let values = WHICH.map(|which| field(&format!("{}_{which}", name(measure))));
        if let [min, median, max] = values
            && values.iter().all(|value| !value.is_empty())
        {
            let value = |text: &str| figure(name(measure), text);
            row.values.insert(measure, Spread { min: value(min)?, median: value(median)?, max: value(max)? });
        }
    }
    for (name, value) in columns().filter(|(_, value)| !value.is_empty()) {
        if let Some(field) = name.strip_prefix(SETTING) {
            row.settings.insert(field.to_owned(), value.to_owned());
        } else if let Some(counter) = name.strip_prefix(LEDGER) {
            row.counted.insert(counter.to_owned(), figure(name, value)?);
        }
    }
    Ok(row)
}

fn read<T: FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name}: {text:?} is no number"))
}

fn figure(name: &str, text: &str) -> Result<f64, String> {
    sound(read(name, text)?).ok_or_else(|| format!("{name}: {text:?} is no sound number"))
}

/// Divides a text into records of fields. A quoted field may have commas, ends of lines and doubled quotes.
fn records(text: &str) -> Result<Vec<Vec<String>>, String> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => record.push(std::mem::take(&mut field)),
            '\r' if !is_quoted => {}
            '\n' if !is_quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            other => field.push(other),
        }
    }
    if is_quoted {
        return Err("a quote has no end".to_owned());
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push(record);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{archive, run};
    use serde_json::json;

    #[test]
    fn summary_that_is_read_has_the_same_rows() {
        let mut odd = run("pbft", 500, 1, 500.0, 2.0);
        odd.axes.insert("set".to_owned(), json!({ "a": 1, "b": "two, \"three\"\nfour" }));
        odd.load["leader"] = 1.into();
        let used =
            |id: u16, percent: f64| json!({ "id": id, "cpu_ms": 400, "signature_check_percent": percent });
        odd.load["replicas"] = json!([used(0, 75.0), used(1, 25.0)]);
        let archive = Archive { runs: [archive().runs, vec![odd]].concat(), ..archive() };
        let rows = Summary::of(&archive).rows;
        let read = parse(&summary_csv(&archive)).unwrap();
        assert_eq!(text(&read), summary_csv(&archive));
        let keys = |rows: &[Row]| rows.iter().map(Row::key).collect::<Vec<_>>();
        assert_eq!(keys(&read), keys(&rows));
        assert!(
            rows.iter().any(|row| row.counted.contains_key("syncs") && row.settings["durability"] == "fsync")
        );
        assert!(rows.iter().any(|row| row.median(Measure::LeaderCheckShare) == Some(25.0)));
    }

    #[test]
    fn damaged_summary_is_an_error_with_its_place() {
        let text = summary_csv(&archive());
        for (from, to, expected) in [
            ("study,", "stud,", "the column study is missing"),
            ("main,quorate,hotstuff,4", "main,quorate,hotstuff,four", "row 1: n: \"four\" is no number"),
            ("main,quorate,hotstuff,4", "main,quorate,4", "values instead of"),
            ("main,quorate,hotstuff,4", "\"main,quorate,hotstuff,4", "a quote has no end"),
        ] {
            let why = parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        assert!(parse("").is_err());
    }
}
