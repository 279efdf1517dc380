//! The command `quorate sim`.

use quorate_sim::trace::{COLUMNS, EVENT_NAMES, heading, legend};
use serde_json::Value;
use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorate")).arg("sim").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the object that a run prints at its end, and all lines before it.
fn json(args: &[&str]) -> (Value, Vec<String>) {
    let ran = sim(&[args, &["--json"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{args:?}: {}", text(&ran.stderr));
    let mut lines: Vec<String> = text(&ran.stdout).lines().map(str::to_owned).collect();
    let last = lines.pop().unwrap();
    (serde_json::from_str(&last).unwrap(), lines)
}

#[test]
fn good_run_is_reported() {
    let long = ("sync-hotstuff-rotating", "sync-hotstuff-rr");
    for (named, protocol) in [("pbft", "pbft"), ("echo", "echo"), long] {
        let ran = sim(&["--protocol", named, "--seeds", "3..5"]);
        let said = text(&ran.stdout);
        assert_eq!(ran.status.code(), Some(0), "{said}{}", text(&ran.stderr));
        let summary: Vec<&str> = said.lines().skip_while(|line| !line.starts_with(protocol)).collect();
        assert_eq!(summary[0], format!("{protocol}: 2 seeds, 0 failures"), "{said}");
        for row in ["virtual time ", "requests ", "trace hash ", "Byzantine replicas ", "fault "] {
            assert!(summary.iter().any(|line| line.trim_start().starts_with(row)), "{row}: {said}");
        }
    }
}

/// Programs read one object at the end. A seed decides a run, also beside other runs.
#[test]
fn json_summary_is_one_object() {
    let (one, lines) = json(&["--protocol", "pbft", "--seed", "4"]);
    assert_eq!(lines, Vec::<String>::new());
    assert_eq!(
        (&one["protocol"], &one["n"], &one["seeds"], &one["failures"]),
        (&Value::from("pbft"), &Value::from(4), &Value::from(1), &Value::from(0))
    );
    assert!(one["requests"].as_u64().unwrap() >= 400 && one["virtual_seconds"].as_f64().unwrap() >= 60.0);
    assert!(one["seconds"].as_f64().unwrap() > 0.0);
    let hash = |value: &Value| value["trace_hash"].as_str().unwrap().to_owned();
    assert_eq!(hash(&one).len(), 64);
    assert_eq!(hash(&one), hash(&json(&["--protocol", "pbft", "--seeds", "4..5"]).0), "alone or in a range");
    let several = || hash(&json(&["--protocol", "pbft", "--seeds", "4..7"]).0);
    assert_eq!(several(), several(), "whichever ends first");
    assert_ne!(hash(&one), hash(&json(&["--protocol", "pbft", "--seed", "5"]).0));
}

/// Returns the lines of a trace without the explanation.
fn events(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| !line.starts_with('#')).collect()
}

fn seconds(line: &str) -> f64 {
    line[2..15].trim().parse().unwrap()
}

#[test]
fn trace_lists_the_events_of_a_run() {
    let (one, lines) = json(&["--protocol", "pbft", "--seed", "4", "--trace"]);
    let explained = lines.iter().position(|line| !line.starts_with('#')).unwrap() - 1;
    for line in legend().lines() {
        assert!(lines[..explained].contains(&format!("# {line}")), "{line}");
    }
    assert_eq!(lines[explained], heading());
    let events = events(&lines);
    assert!(events.len() > 10_000, "{} lines", events.len());
    let ends: Vec<usize> = COLUMNS
        .iter()
        .scan(0, |end, (_, width, _)| {
            *end += width + 2;
            Some(*end)
        })
        .collect();
    for line in &events {
        assert!(seconds(line) >= 0.0, "{line}");
        // Two blanks separate columns on long lines too.
        for end in &ends[..ends.len() - 1] {
            assert!(line.get(end - 2..*end).is_none_or(|gap| gap.trim().is_empty()), "{line}");
        }
    }
    for what in [
        "  r0     sends      -> r1-3         pre-prepare       v0  ",
        "  r3     gets       <- r0           pre-prepare       v0  ",
        "  refuses    <- r",
        "  world  begins     ",
        "  crashes  ",
        "  believes  ",
    ] {
        assert!(events.iter().any(|line| line.contains(what)), "{what}");
    }
    assert!(lines.iter().any(|line| line.starts_with("# Again:             cargo run --release -- sim ")));
    let (silent, _) = json(&["--protocol", "pbft", "--seed", "4"]);
    assert_eq!(one["trace_hash"], silent["trace_hash"], "reading along changes nothing");
}

#[test]
fn trace_is_restricted_to_the_selected_lines() {
    let trace = |args: &[&str]| json(&[&["--protocol", "pbft", "--seed", "4", "--trace"], args].concat()).1;
    let some = trace(&["--from", "1.5", "--to", "3"]);
    let some = events(&some);
    assert!(some.len() > 100 && some.iter().all(|line| (1.5..=3.0).contains(&seconds(line))));
    let last = trace(&["--last", "0.5"]);
    let last = events(&last);
    let end = seconds(last.last().unwrap());
    assert!(end > 60.0 && last.iter().all(|line| seconds(line) >= end - 0.5), "{end}");
    let only = trace(&["--only", "r2,h9,decides"]);
    let only = events(&only);
    assert_eq!(only.len(), 1, "{only:?}");
    assert!(
        only[0].contains("  r2     decides                    block                     h9  "),
        "{only:?}"
    );
}

/// Two twins out of four break agreement. The failure stands at the end, with its meaning and with commands that show
/// it again.
#[test]
fn failed_run_explains_the_failure() {
    let twins = ["--protocol", "pbft", "--n", "4", "--byzantine", "twin:2"];
    let ran = sim(&[&twins[..], &["--seeds", "200"]].concat());
    assert_eq!(ran.status.code(), Some(1));
    let said = text(&ran.stderr);
    let seed = said.trim_end().rsplit_once("--seed ").unwrap().1.to_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.html");
    let read = ["--seed", &seed, "--trace", "--last", "0.1", "--html", file.to_str().unwrap()];
    let ran = sim(&[&twins[..], &read].concat());
    assert_eq!(ran.status.code(), Some(1));
    let said = text(&ran.stdout);
    let marked: Vec<&str> = said.lines().filter(|line| line.starts_with(">>")).collect();
    assert_eq!(marked.len(), 1, "{said}");
    assert!(marked[0].contains("  world  fails  "), "{}", marked[0]);
    let found = said.lines().skip_while(|line| !line.starts_with(">>"));
    let end: Vec<&str> = found.filter(|line| line.starts_with("# ")).collect();
    for what in ["# FAILED: ", "# What that means: ", "# Byzantine: r", "# Again: ", "# As a drawing: "] {
        assert!(end.iter().any(|line| line.starts_with(what)), "{what}: {end:?}");
    }

    // Without a trace the report is the same.
    let told = text(&sim(&[&twins[..], &["--seed", &seed]].concat()).stdout);
    for line in end {
        assert!(told.contains(line.trim_start_matches("# ")), "{line}\n{told}");
    }

    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("FAILED, ") && page.contains(&format!("<title>pbft, seed {seed}</title>")));
}

#[test]
fn run_is_drawn_as_html() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.html");
    let (drawn, lines) =
        json(&["--protocol", "pbft", "--seed", "4", "--n", "7", "--html", file.to_str().unwrap()]);
    assert!(lines.is_empty(), "{lines:?}");
    let page = std::fs::read_to_string(&file).unwrap();
    let data = page.split_once(r#"<script id="data" type="application/json">"#).unwrap().1;
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let lanes: Vec<&str> =
        data["lanes"].as_array().unwrap().iter().map(|lane| lane.as_str().unwrap()).collect();
    assert_eq!(lanes[lanes.len() - 7..], ["r0", "r1", "r2", "r3", "r4", "r5", "r6"]);
    let count = data["at"].as_array().unwrap().len();
    assert!(count > 10_000, "{count}");
    for column in ["who", "what", "from", "to", "kind", "view", "height", "subject", "text", "number"] {
        assert_eq!(data[column].as_array().unwrap().len(), count, "{column}");
    }
    assert!(page.len() < 20_000_000, "{} bytes", page.len());
    for outside in ["http:", "https:", " src=", " href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let (silent, _) = json(&["--protocol", "pbft", "--seed", "4", "--n", "7"]);
    assert_eq!(drawn["trace_hash"], silent["trace_hash"], "drawing changes nothing");

    let nowhere = folder.path().join("no/such/folder");
    let ran = sim(&["--protocol", "pbft", "--seed", "6", "--html", nowhere.to_str().unwrap()]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("no/such/folder"), "{}", text(&ran.stderr));
}

/// The page that explains traces agrees with the program.
#[test]
fn columns_and_terms_of_the_trace_are_documented() {
    let page = std::fs::read_to_string("../../docs/reading-a-trace.md").unwrap();
    assert!(page.contains(legend().trim_end()), "the block in the page should be:\n{}", legend());
    assert!(page.contains(heading().as_str()), "{}", heading());
    let help = text(&sim(&["--help"]).stdout);
    for (word, says) in EVENT_NAMES {
        assert!(help.contains(&format!("  {word:<9}  {says}")), "{word}");
    }
}

#[test]
fn history_is_written_as_json_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.json");
    let (one, _) = json(&["--protocol", "pbft", "--seed", "6", "--history", file.to_str().unwrap()]);
    let written = std::fs::read_to_string(&file).unwrap();
    let operations: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(Some(operations.len()), one["requests"].as_u64().and_then(|count| count.try_into().ok()));
    for operation in &operations {
        let keys: Vec<&String> = operation.as_object().unwrap().keys().collect();
        for key in ["client", "kind", "key", "arg", "expect", "call_ns", "return_ns", "result"] {
            assert!(keys.iter().any(|known| *known == key), "{operation}");
        }
        let kind = operation["kind"].as_str().unwrap();
        assert!(["put", "get", "del", "cas", "incr"].contains(&kind), "{operation}");
        if let Some(end) = operation["return_ns"].as_u64() {
            assert!(end >= operation["call_ns"].as_u64().unwrap(), "{operation}");
        }
    }
    let last = &operations[operations.len() - 1];
    assert_eq!(last["kind"], "get", "every key is read at the end");

    let nowhere = folder.path().join("no/such/folder");
    let ran = sim(&["--protocol", "pbft", "--seed", "6", "--history", nowhere.to_str().unwrap()]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("no/such/folder"), "{}", text(&ran.stderr));
}

/// The figures of a protocol are printed as in its documentation.
#[test]
fn figures_are_measured_and_compared() {
    let ran = sim(&["--protocol", "echo", "--figures"]);
    let said = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{said}{}", text(&ran.stderr));
    assert!(said.starts_with("| figure") && said.contains("n = 10"), "{said}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures.md");
    assert!(std::fs::read_to_string(page).unwrap().contains(&said), "{said}");
    let one = text(&sim(&["--protocol", "echo", "--figures", "--n", "5"]).stdout);
    assert!(one.contains("n = 5") && !one.contains("n = 4"), "{one}");
}

/// A script is played. A difference of its trace is reported, and written with --update.
#[test]
fn scripts_are_played_and_updated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.txt");
    let file = file.to_str().unwrap();
    let play = |script: &str, more: &[&str]| {
        std::fs::write(file, script).unwrap();
        let ran = sim(&[&["--script", file], more].concat());
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
    };
    let script = "world protocol=echo\nclient 0 put k v\nrun until answered\n";
    let (code, played, said) = play(script, &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("line 2") && said.contains("--update"), "{said}");
    assert!(played.contains("c0  believes      put k v: done"), "{played}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), script, "nothing was written");
    assert_eq!(play(script, &["--update"]).0, Some(0));
    assert_eq!(std::fs::read_to_string(file).unwrap(), played);
    assert_eq!(play(&played, &[]).0, Some(0), "it is what is written");

    let (code, played, said) = play("world protocol=echo\nexpect height 9\n", &["--update"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("line 2: expected height 9 on replica 0, found 1"), "{said}");
    assert!(played.starts_with("world protocol=echo\n"), "{played}");
    assert_eq!(sim(&["--script", "no/such/file"]).status.code(), Some(2));
}

#[test]
fn usage_errors_have_one_line() {
    for (args, expected) in [
        (&["--protocol", "pfbt"][..], "no protocol is named \"pfbt\"; expected one of "),
        (&["--protocol", "pbft", "--n", "0"], "error: "),
        (&["--protocol", "pbft", "--n", "100000"], "error: "),
        (
            &["--protocol", "pbft", "--seeds", "9..3"],
            "expected a number of seeds above 0 or a range like 100..200",
        ),
        (&["--protocol", "pbft", "--seeds", "many"], "expected a number of seeds above 0 or a range"),
        (&["--protocol", "pbft", "--seeds", "5", "--seed", "3"], "cannot be used with"),
        (&["--protocol", "pbft", "--trace"], "--seed"),
        (&["--protocol", "pbft", "--history", "x"], "--seed"),
        (&["--protocol", "pbft", "--html", "x"], "--seed"),
        (&["--protocol", "pbft", "--seed", "1", "--only", "r1"], "--trace"),
        (&["--protocol", "pbft", "--seed", "1", "--last", "soon"], "expected a duration like"),
        (&["--figures", "--seed", "3"], "cannot be used with"),
        (&["--update"], "--script"),
    ] {
        let ran = sim(args);
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
    let said = text(&sim(&["--protocol", "pfbt"]).stderr);
    for known in ["echo", "pbft", "sync-hotstuff-rr", "sync-hotstuff-rotating"] {
        assert!(said.contains(known), "{said}");
    }
}
