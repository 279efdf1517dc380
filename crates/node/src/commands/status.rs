//! `quorate status`: the state of a running cluster, and whether it makes progress.

mod verdict;

use super::arguments::cluster_file;
use crate::config::{ClusterConfig, parse_seconds};
use crate::exit::Failure;
use crate::out;
use crate::step_times::StepFigures;
use clap::Args;
use comfy_table::Table;
use quorate_client::driver;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use verdict::Availability;

/// The help text after the options.
const LEGEND: &str = "The first line is the verdict: AVAILABLE or NOT AVAILABLE, the number of replicas that serve, the number that \
                      is needed, and the reason for each of the others. In the table, `committed` and `executed` are heights, `stable` is the height \
                      of the last checkpoint that a quorum has signed, `peers` counts links, `pool` counts bundles that wait, \
                      `pause ms` is the longest time for which the process stood still, and `digest` begins the digest of the \
                      state. docs/status.md explains every column and the timers of each protocol.";

/// Arguments of `quorate status`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub struct StatusArgs {
    /// The cluster's file, or its folder.
    #[arg(long, default_value = "cluster.toml", value_parser = cluster_file)]
    cluster: PathBuf,
    /// One JSON list with an object per replica.
    #[arg(long)]
    json: bool,
    /// Exit code 1 unless the cluster is available: enough replicas make progress and are connected to each other. That is
    /// a quorum, or all but f where the protocol assumes a bound on delays.
    #[arg(long)]
    ready: bool,
    /// Also shows the cost ledger.
    #[arg(long)]
    ledger: bool,
    /// Time to wait for answers: 3 (seconds), 500ms, 2m.
    #[arg(long, value_name = "DURATION", default_value = "3", value_parser = parse_seconds)]
    wait: Duration,
}

/// Queries every replica.
///
/// # Errors
/// Fails when the cluster's file is wrong, or with `--ready` when the cluster is not available.
pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let config = ClusterConfig::load(&args.cluster)?;
    let enough = config.serving_needed();
    let info = config.client_info();
    let answers = driver::status(info, args.wait).map_err(Failure::run)?;
    let replicas: Vec<Value> =
        answers.into_iter().enumerate().map(|(id, answer)| read_answer(id, answer)).collect();
    let verdict = Availability::of(&replicas, enough);
    if args.json {
        out::json(&replicas)?;
    } else {
        out::line(printable(&verdict.to_string()))?;
        print(&replicas, args.ledger)?;
    }
    if args.ready && !verdict.is_available() {
        return Err(Failure::run(verdict));
    }
    Ok(())
}

/// Reads the status of the queried replica. The id in the status is replaced.
fn read_answer(id: usize, answer: Result<String, String>) -> Value {
    let down = |why: &str| json!({"id": id, "up": false, "progress": false, "error": why});
    match answer.map(|text| serde_json::from_str(&text)) {
        Ok(Ok(Value::Object(mut status))) => {
            status.insert("id".to_owned(), id.into());
            Value::Object(status)
        }
        Ok(_) => down("malformed status"),
        Err(why) => down(&why),
    }
}

/// Returns the line about the view: the operation, the next timer, the number of view changes and the last reason.
fn view_line(id: u64, replica: &Value) -> String {
    let number = |path: &str| replica.pointer(path).and_then(Value::as_u64);
    let text = |path: &str| replica.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(view), Some(leader)) = (number("/view"), number("/leader")) else {
        return format!("replica {id} reports no view");
    };
    let doing = match replica.get("normal").and_then(Value::as_bool) {
        Some(true) => "normal",
        _ => "view change: waits for this view to begin",
    };
    let mut line = format!("replica {id} view {view} (leader {leader}): {doing}");
    let timers = replica.get("timers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let in_ms = |timer: &&Value| timer.get("in_ms").and_then(Value::as_u64).unwrap_or(u64::MAX);
    if let Some(next) = timers.iter().min_by_key(in_ms) {
        let name = next.get("name").and_then(Value::as_str).unwrap_or("?");
        line.push_str(&format!(", next timer {name} in {} ms", in_ms(&next)));
    }
    if let Some(changes) = number("/view_changes").filter(|changes| *changes > 0) {
        let plural = if changes == 1 { "" } else { "s" };
        line.push_str(&format!(", {changes} view change{plural}"));
    }
    if let Some(why) = text("/last_view_change/why") {
        line.push_str(&format!(", the last one: {why}"));
    }
    line
}

/// Returns the measurements of a replica's synchrony guard; `None` where its protocol assumes no bound on delays.
fn guard_line(id: u64, replica: &Value) -> Option<String> {
    let guard = replica.get("guard")?.as_object()?;
    let number = |name: &str| guard.get(name).and_then(Value::as_u64);
    let ms = |name: &str| guard.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let mode = guard.get("mode").and_then(Value::as_str).unwrap_or("?");
    let mut line = format!(
        "replica {id} {mode}: round trips p99.9 {:.1} ms, max {:.1} ms of {:.0} ms",
        ms("p999_ms"),
        ms("max_ms"),
        ms("delta_ms")
    );
    for late in guard.get("late").and_then(Value::as_array).into_iter().flatten() {
        let of = |name: &str| late.get(name).and_then(Value::as_u64).unwrap_or(0);
        line.push_str(&format!(", replica {} late for {} ms", of("id"), of("since_ms")));
    }
    let doubts = number("doubts").unwrap_or(0);
    if guard.get("doubt") == Some(&Value::Bool(true)) {
        line.push_str(&format!(", IN DOUBT (time {doubts})"));
    } else if let Some(ago) = number("last_doubt_ms") {
        line.push_str(&format!(", {doubts} doubts, the last one {ago} ms ago"));
    }
    if let Some(ppm) = guard.get("drift_ppm").and_then(Value::as_i64) {
        line.push_str(&format!(", clocks drift {ppm} ppm"));
    }
    if let Some(lags) = number("lags").filter(|lags| *lags > 0) {
        let plural = if lags == 1 { "" } else { "s" };
        line.push_str(&format!(", itself late {lags} time{plural}, by {:.1} ms at most", ms("lag_max_ms")));
    }
    for peer in replica.get("peers").and_then(Value::as_array).into_iter().flatten() {
        let of = |name: &str| peer.get(name).and_then(Value::as_u64).unwrap_or(0);
        if of("near_misses") > 0 {
            let often = of("near_misses");
            line.push_str(&format!(", leader {} answered {often} blames within 2 delta", of("id")));
        }
    }
    line.push_str(&format!(", {} probes", number("probes").unwrap_or(0)));
    Some(line)
}

/// Returns the delays that the links of a replica emulate, as the longest and the shortest of them; `None` if there are none.
fn delay_line(id: u64, replica: &Value) -> Option<String> {
    let peers = replica.get("peers").and_then(Value::as_array)?;
    let delays = peers.iter().filter_map(|peer| peer.get("delay_ms")?.as_f64());
    let (least, most) = delays.fold((f64::MAX, 0.0), |(least, most), ms| (ms.min(least), ms.max(most)));
    let range = if least < most { format!("{least} to {most}") } else { most.to_string() };
    (most > 0.0).then(|| format!("replica {id}: its links emulate one-way delays of {range} ms to its peers"))
}

/// Returns what a replica that has lost its disk waits for; `None` for any other.
fn amnesia_line(id: u64, replica: &Value) -> Option<String> {
    let amnesia = replica.get("amnesia")?.as_object()?;
    let number = |name: &str| amnesia.get(name).and_then(Value::as_u64);
    let (shown, needed) = (number("shown").unwrap_or(0), number("needed").unwrap_or(0));
    Some(match (number("stable"), number("view")) {
        (Some(stable), Some(view)) => {
            let stable = (stable > 0).then(|| format!("a stable checkpoint of height {stable}"));
            let views = (view > 0).then(|| format!("{needed} others in views from {view} on"));
            let waits: Vec<String> = stable.into_iter().chain(views).collect();
            if waits.is_empty() {
                format!("replica {id} is amnesiac: it has all that it waits for, and comes back")
            } else {
                format!("replica {id} is amnesiac: it waits for {}", waits.join(", and "))
            }
        }
        _ => format!("replica {id} is amnesiac: {shown} of {needed} others have shown it all they know"),
    })
}

/// Returns the progress of a transfer of state; `None` where none is needed.
fn transfer_line(id: u64, replica: &Value) -> Option<String> {
    let transfer = replica.get("transfer")?.as_object()?;
    let number = |name: &str| transfer.get(name).and_then(Value::as_u64);
    let list = |name: &str| transfer.get(name).and_then(Value::as_array).into_iter().flatten();
    let mut line = match number("height") {
        None => format!("replica {id} needs a state, and no peer has offered one yet"),
        Some(height) => {
            let sources: Vec<String> = list("sources").map(ToString::to_string).collect();
            let mb = |name: &str| number(name).unwrap_or(0) >> 20;
            format!(
                "replica {id} receives the state at height {height} from replicas {}: {} of {} MB",
                sources.join(", "),
                mb("received_bytes"),
                mb("total_bytes")
            )
        }
    };
    if let Some(why) = replica.get("missing_state").and_then(Value::as_str) {
        line.push_str(&format!("; its disk has none: {why}"));
    }
    for bad in list("bad") {
        let why = bad.get("why").and_then(Value::as_str).unwrap_or("?");
        let peer = bad.get("id").and_then(Value::as_u64).unwrap_or(0);
        line.push_str(&format!("; replica {peer} has lied: {why}"));
    }
    if let Some(bytes) = number("lacks_bytes") {
        line.push_str(&format!("; no room: raise disk_bytes_max by {bytes} bytes"));
    }
    Some(line)
}

/// Replaces characters that are not printable: a faulty replica may send any text to the terminal.
fn printable(text: &str) -> String {
    let printable = |c: char| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    text.chars().map(|c| if printable(c) { c } else { '?' }).collect()
}

/// The number of digits of a digest in the table: enough to distinguish states.
const DIGEST_DIGITS: usize = 8;
const PEERS: &str = "/peers";
const BYTES: &str = "/usage/resident_bytes";
const DIGEST: &str = "/state_digest";
/// The columns of the table: heading, and place of the value in the status.
const COLUMNS: [(&str, &str); 12] = [
    ("replica", "/id"),
    ("state", "/state"),
    ("view", "/view"),
    ("leader", "/leader"),
    ("committed", "/committed"),
    ("executed", "/executed"),
    ("stable", "/stable"),
    ("peers", PEERS),
    ("pool", "/pool/bundles"),
    ("pause ms", "/longest_pause_ms"),
    ("MB", BYTES),
    ("digest", DIGEST),
];

/// Returns the text of one cell of the table.
fn cell(replica: &Value, path: &str) -> String {
    let text = match replica.pointer(path) {
        Some(Value::Array(peers)) if path == PEERS => {
            let is_connected = |peer: &&Value| peer.get("connected") == Some(&Value::Bool(true));
            return format!("{}/{}", peers.iter().filter(is_connected).count(), peers.len());
        }
        Some(value) if path == BYTES => return (value.as_u64().unwrap_or(0) >> 20).to_string(),
        Some(Value::String(text)) => printable(text),
        Some(value) => printable(&value.to_string()),
        None => "-".to_owned(),
    };
    if path == DIGEST { text.chars().take(DIGEST_DIGITS).collect() } else { text }
}

fn print(replicas: &[Value], ledger: bool) -> Result<(), Failure> {
    let mut table = Table::new();
    table.set_header(COLUMNS.map(|(heading, _)| heading));
    for replica in replicas {
        if replica.get("up") == Some(&Value::Bool(true)) {
            table.add_row(COLUMNS.map(|(_, path)| cell(replica, path)));
        } else {
            table.add_row([cell(replica, "/id"), format!("down: {}", cell(replica, "/error"))]);
        }
    }
    out::line(table)?;
    replicas.iter().try_for_each(|replica| print_more(replica, ledger))
}

/// Prints the lines about values that are not in the table.
fn print_more(replica: &Value, ledger: bool) -> Result<(), Failure> {
    let id = replica.get("id").and_then(Value::as_u64).unwrap_or(0);
    if replica.get("up") == Some(&Value::Bool(true)) {
        out::line(printable(&view_line(id, replica)))?;
        if let Some(line) = guard_line(id, replica) {
            out::line(printable(&line))?;
        }
    }
    if let Some(line) = delay_line(id, replica) {
        out::line(printable(&line))?;
    }
    if let Some(line) = amnesia_line(id, replica) {
        out::line(printable(&line))?;
    }
    if let Some(line) = transfer_line(id, replica) {
        out::line(printable(&line))?;
    }
    if let Some(last) = replica.pointer("/synchrony_alarms/last").and_then(Value::as_str) {
        let count = replica.pointer("/synchrony_alarms/count").and_then(Value::as_u64).unwrap_or(0);
        out::line(format_args!("replica {id}: {} ({count} such alarms)", printable(last)))?;
    }
    if let Some(alarm) = replica.get("alarm").and_then(Value::as_str) {
        out::line(format_args!("replica {id}: {}", printable(alarm)))?;
    }
    for alarm in replica.get("alarms").and_then(Value::as_array).into_iter().flatten() {
        out::line(format_args!("replica {id}: {}", printable(alarm.as_str().unwrap_or("?"))))?;
    }
    for (source, reasons) in replica.get("rejects").and_then(Value::as_object).into_iter().flatten() {
        out::line(format_args!(
            "replica {id} has refused from {}: {}",
            printable(source),
            printable(&reasons.to_string())
        ))?;
    }
    if ledger && let Some(counters) = replica.get("ledger").and_then(Value::as_object) {
        let line: Vec<String> = counters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        out::line(format_args!("replica {id} ledger: {}", printable(&line.join(", "))))?;
        for line in step_lines(id, replica) {
            out::line(printable(&line))?;
        }
    }
    Ok(())
}

/// Returns a line for each kind of step that the replica has taken.
fn step_lines(id: u64, replica: &Value) -> Vec<String> {
    let line = |(name, figures): (&String, &Value)| {
        let figures = StepFigures::deserialize(figures).ok().filter(|figures| figures.count > 0)?;
        Some(format!("replica {id} step {name}: {figures}"))
    };
    replica.get("steps").and_then(Value::as_object).into_iter().flatten().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_the_id_of_the_queried_replica() {
        assert_eq!(read_answer(2, Ok("{\"id\":0,\"up\":true}".to_owned())), json!({"id": 2, "up": true}));
        for nonsense in ["", "[]", "7", "{\"id\":", "null"] {
            let status = read_answer(3, Ok(nonsense.to_owned()));
            assert_eq!(
                (&status["id"], &status["error"]),
                (&json!(3), &json!("malformed status")),
                "{nonsense}"
            );
        }
        let status = read_answer(1, Err("refused".to_owned()));
        assert_eq!((&status["up"], &status["error"]), (&json!(false), &json!("refused")));
    }

    #[test]
    fn view_line_has_the_reason_of_the_last_change() {
        let calm = json!({"view": 0, "leader": 0, "normal": true, "timers": [], "view_changes": 0,
            "last_view_change": {"view": 0, "why": ""}});
        assert_eq!(view_line(2, &calm), "replica 2 view 0 (leader 0): normal");
        let timers = json!([{"name": "Status", "in_ms": 700}, {"name": "View", "in_ms": 12}]);
        let busy = json!({"view": 5, "leader": 1, "normal": false, "timers": timers, "view_changes": 3,
            "last_view_change": {"view": 5, "why": "request overdue"}});
        let expected = "replica 0 view 5 (leader 1): view change: waits for this view to begin, next timer View in \
            12 ms, 3 view changes, the last one: request overdue";
        assert_eq!(view_line(0, &busy), expected);
        let mut once = calm;
        (once["view_changes"], once["last_view_change"]["why"]) = (json!(1), json!("request overdue"));
        let expected = "replica 2 view 0 (leader 0): normal, 1 view change, the last one: request overdue";
        assert_eq!(view_line(2, &once), expected);
        assert_eq!(view_line(1, &json!({})), "replica 1 reports no view");
    }

    #[test]
    fn all_but_f_serve_if_a_bound_is_assumed() {
        let spec = quorate_protocols::find("pbft").unwrap().spec;
        assert_eq!([(4, 1), (7, 2), (5, 1)].map(|(n, f)| spec.serving(n, f)), [3, 5, 4]);
        let synchronous = quorate_consensus::Spec { model: quorate_consensus::Model::Synchrony, ..spec };
        assert_eq!([(3, 1), (5, 2), (5, 1)].map(|(n, f)| synchronous.serving(n, f)), [2, 3, 4]);
    }

    #[test]
    fn guard_line_has_the_measurements() {
        assert_eq!(guard_line(1, &json!({"guard": null})), None);
        assert_eq!(guard_line(1, &json!({})), None);
        let mut guard = json!({"mode": "guarded", "delta_ms": 50.0, "p999_ms": 2.54, "max_ms": 9.0, "late": [],
            "doubt": false, "doubts": 0, "last_doubt_ms": null, "drift_ppm": null, "probes": 80});
        let begin = "replica 1 guarded: round trips p99.9 2.5 ms, max 9.0 ms of 50 ms";
        let line = |guard: &Value| guard_line(1, &json!({"guard": guard})).unwrap();
        assert_eq!(line(&guard), format!("{begin}, 80 probes"));
        guard["late"] = json!([{"id": 2, "since_ms": 120}, {"id": 0, "since_ms": 7}]);
        (guard["doubt"], guard["doubts"], guard["last_doubt_ms"]) = (json!(true), json!(3), json!(0));
        let late = "replica 2 late for 120 ms, replica 0 late for 7 ms";
        assert_eq!(line(&guard), format!("{begin}, {late}, IN DOUBT (time 3), 80 probes"));
        (guard["late"], guard["doubt"], guard["last_doubt_ms"]) = (json!([]), json!(false), json!(4_000));
        guard["drift_ppm"] = json!(-12);
        let after = "3 doubts, the last one 4000 ms ago, clocks drift -12 ppm";
        assert_eq!(line(&guard), format!("{begin}, {after}, 80 probes"));
        (guard["lags"], guard["lag_max_ms"]) = (json!(2), json!(17.25));
        let itself = "itself late 2 times, by 17.2 ms at most";
        assert_eq!(line(&guard), format!("{begin}, {after}, {itself}, 80 probes"));
        let peers = json!([{"id": 0, "near_misses": 0}, {"id": 2, "near_misses": 3}]);
        let near = "leader 2 answered 3 blames within 2 delta";
        let shown = guard_line(1, &json!({"guard": guard, "peers": peers})).unwrap();
        assert_eq!(shown, format!("{begin}, {after}, {itself}, {near}, 80 probes"));
    }

    #[test]
    fn delay_line_has_the_range_of_emulated_delays() {
        let line = |delays: &[f64]| {
            let peers: Vec<Value> = delays.iter().map(|ms| json!({"delay_ms": ms})).collect();
            delay_line(2, &json!({"peers": peers}))
        };
        assert_eq!((line(&[]), line(&[0.0, 0.0]), delay_line(2, &json!({}))), (None, None, None));
        let begin = "replica 2: its links emulate one-way delays of";
        assert_eq!(line(&[20.0, 20.0]).unwrap(), format!("{begin} 20 ms to its peers"));
        assert_eq!(line(&[20.0, 0.0, 87.5]).unwrap(), format!("{begin} 0 to 87.5 ms to its peers"));
    }

    #[test]
    fn amnesia_line_has_what_the_replica_waits_for() {
        assert_eq!(amnesia_line(1, &json!({"amnesia": null})), None);
        let mut replica = json!({"amnesia": {"shown": 1, "needed": 3, "stable": null, "view": null}});
        let line = amnesia_line(2, &replica).unwrap();
        assert_eq!(line, "replica 2 is amnesiac: 1 of 3 others have shown it all they know");
        replica["amnesia"] = json!({"shown": 3, "needed": 3, "stable": 512, "view": 4});
        let line = "replica 2 is amnesiac: it waits for a stable checkpoint of height 512, and 3 others in views from 4 on";
        assert_eq!(amnesia_line(2, &replica).unwrap(), line);
        replica["amnesia"]["view"] = 0.into();
        let line = "replica 2 is amnesiac: it waits for a stable checkpoint of height 512";
        assert_eq!(amnesia_line(2, &replica).unwrap(), line);
    }

    #[test]
    fn transfer_line_has_the_progress_and_the_liars() {
        assert_eq!(transfer_line(1, &json!({"transfer": null})), None);
        let mut replica =
            json!({"transfer": {"height": null, "sources": [], "bad": []}, "missing_state": "gone"});
        let line = transfer_line(2, &replica).unwrap();
        assert_eq!(line, "replica 2 needs a state, and no peer has offered one yet; its disk has none: gone");
        replica["transfer"] = json!({"height": 96, "received_bytes": 3 << 20, "total_bytes": 9 << 20, "sources": [0, 3],
            "bad": [{"id": 1, "why": "chunk"}], "lacks_bytes": 5});
        replica["missing_state"] = Value::Null;
        let line = "replica 2 receives the state at height 96 from replicas 0, 3: 3 of 9 MB; replica 1 has lied: chunk; no \
            room: raise disk_bytes_max by 5 bytes";
        assert_eq!(transfer_line(2, &replica).unwrap(), line);
    }

    #[test]
    fn step_lines_have_the_kinds_with_steps() {
        let mut times = crate::step_times::StepTimes::default();
        times.add(quorate_host::StepKind::ViewChange, 40_000);
        let lines = step_lines(3, &json!({"steps": times.figures()}));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("replica 3 step view_change: 1 times, total 0.0 ms, mean 40.0 µs"),
            "{lines:?}"
        );
        assert_eq!(step_lines(3, &json!({})), Vec::<String>::new());
    }

    #[test]
    fn no_escape_sequence_reaches_the_terminal() {
        assert_eq!(printable("\u{1b}[2Jnormal \u{202e}x\u{9b}\n"), "?[2Jnormal ?x??");
    }
}
