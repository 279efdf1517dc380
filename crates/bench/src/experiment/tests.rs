use super::*;
use crate::cell::{CellFault, DownCount, Rate};
use std::collections::BTreeSet;
use std::time::Duration;

const FILE: &str = r#"
tag = "test"
title = "A test"

[[study]]
name = "one"
title = "One"
repeats = 3
cells = { protocol = ["pbft", "hotstuff"], n = 4, batch = [1, "unlimited"], rate = ["50%", 1000], warmup = "2s", seconds = "10s" }
short = { repeats = 1, batch = 1 }
without = [{ protocol = "hotstuff", rate = 1000 }]

[[study]]
name = "two"
title = "Two"
cells = { protocol = "beacon-of-tomorrow", in_flight = 10, fault = "f-down", set = { delta_ms = 50 } }
"#;

fn cells(form: Form, changes: &[&str], only: &[&str]) -> Result<Vec<String>, String> {
    let read = |all: &[&str]| all.iter().map(|text| text.parse::<AxisValues>().unwrap()).collect::<Vec<_>>();
    let experiment = Experiment::parse(FILE).unwrap().in_form(form, &read(changes));
    let cells = experiment.cells(&read(only)).map_err(|why| why.to_string())?;
    Ok(cells.iter().map(|cell| format!("{} x{}", cell.name(), cell.repeats)).collect())
}

#[test]
fn cells_are_all_combinations_but_those_that_are_left_out() {
    let all = cells(Form::Full, &[], &[]).unwrap();
    assert_eq!(
        all,
        [
            "pbft n=4 one,batch=1,rate=50_ x3",
            "pbft n=4 one,batch=1,rate=1000 x3",
            "hotstuff n=4 one,batch=1,rate=50_ x3",
            "pbft n=4 one,batch=unlimited,rate=50_ x3",
            "pbft n=4 one,batch=unlimited,rate=1000 x3",
            "hotstuff n=4 one,batch=unlimited,rate=50_ x3",
            "beacon-of-tomorrow n=4 two x1",
        ]
        .iter()
        .map(|name| (*name).to_owned())
        .collect::<Vec<_>>()
    );
}

#[test]
fn short_form_and_command_line_replace_values() {
    let short = cells(Form::Short, &[], &["study=one"]).unwrap();
    assert_eq!(
        short,
        ["pbft n=4 one,rate=50_ x1", "pbft n=4 one,rate=1000 x1", "hotstuff n=4 one,rate=50_ x1"]
    );
    let changed = cells(Form::Short, &["protocol=artemis", "n=5,7"], &["study=one", "rate=50%"]).unwrap();
    assert_eq!(changed, ["artemis n=5 one,rate=50_ x1", "artemis n=7 one,rate=50_ x1"]);
    let once = cells(Form::Full, &["repeats=1"], &["study=one", "batch=1", "rate=1000"]).unwrap();
    assert_eq!(once, ["pbft n=4 one,batch=1,rate=1000 x1"]);
    let none = cells(Form::Full, &[], &["protocol=apollo"]).unwrap_err();
    assert!(none.contains("no cell has protocol=apollo") && none.contains("--list"), "{none}");
}

#[test]
fn settings_are_typed() {
    let experiment = Experiment::parse(FILE).unwrap();
    let cells = experiment.cells(&[]).unwrap();
    let first = &cells[0].settings;
    assert_eq!((first.rate, &first.fault), (Some(Rate::OfSaturation(50.0)), &CellFault::None));
    assert_eq!(first.set, ["block_requests_max=1"]);
    assert!(first.load.contains(&("seconds".to_owned(), "10s".to_owned())), "{:?}", first.load);
    let last = cells.last().unwrap();
    assert_eq!((last.settings.rate, &last.settings.fault), (None, &CellFault::Down(DownCount::All)));
    assert_eq!(
        (last.settings.set.as_slice(), last.entry().is_some()),
        (&["delta_ms=50".to_owned()][..], false)
    );
    assert!(cells[0].estimate() >= Duration::from_secs(12), "{:?}", cells[0].estimate());
}

/// Each mistake in a file is refused with its place.
#[test]
fn mistakes_are_refused_with_advice() {
    let wrong = |from: &str, to: &str| {
        assert!(FILE.contains(from), "{from}");
        let text = FILE.replace(from, to);
        match Experiment::parse(&text) {
            Err(why) => why,
            Ok(experiment) => experiment.cells(&[]).map(|_| ()).unwrap_err().to_string(),
        }
    };
    for (from, to, expected) in [
        ("tag = \"test\"", "tag = \"a/b\"", "letters, digits and hyphens"),
        ("name = \"two\"", "name = \"one\"", "there are two of this name"),
        ("in_flight = 10", "inflight = 10", "inflight: unknown; expected one of protocol"),
        ("in_flight = 10", "in_flight = 10, rate = 5", "exclude each other"),
        ("\"f-down\"", "\"f-up\"", "expected none, one-down"),
        ("\"50%\", 1000", "\"fast\"", "expected requests in a second"),
        ("[1, \"unlimited\"]", "[0]", "expected a number above 0"),
        ("[1, \"unlimited\"]", "[]", "the list is empty"),
        ("n = 4", "n = 1000000", "n: expected 1 to"),
        ("repeats = 3", "repeat = 3", "unknown field"),
        ("{ delta_ms = 50 }", "5", "expected a table"),
        ("repeats = 3", "figures = [{ kind = \"lines\", y = [\"goodpt\"] }]", "y = goodpt: expected goodput"),
    ] {
        let why = wrong(from, to);
        assert!(why.contains(expected), "{to}: {why}");
    }
}

/// Every file of the repository is valid in both forms, and every registered protocol fits in place of its own.
#[test]
fn files_of_the_repository_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let experiment = Experiment::read(&file.unwrap().path()).unwrap();
        for form in [Form::Short, Form::Full] {
            let cells = experiment.clone().in_form(form, &[]).cells(&[]).unwrap();
            assert!(!cells.is_empty(), "{}", experiment.tag);
            let mut checked = BTreeSet::new();
            for cell in cells {
                // The nodes of each cluster would start: its protocol has these limits and parameters.
                if checked.insert((cell.n, cell.settings.protocol.clone(), cell.settings.set.clone())) {
                    assert_eq!(cell.check(), Ok(()), "{}: {}", experiment.tag, cell.name());
                }
            }
        }
        count += 1;
    }
    assert!(count >= 8, "{count} files");
}

/// A command names settings of its cells, also such as no load has. Without `{protocol}` the protocol is a label.
#[test]
fn command_has_the_values_of_its_cell() {
    let text = |command: &str| {
        format!(
            "tag = \"t\"\ntitle = \"t\"\n[[study]]\nname = \"s\"\ntitle = \"s\"\nwork = \"command\"\ncommand = {command}\n\
             cells = {{ protocol = \"relay\", n = [5, 20], link_auth = [\"tls\", \"plain\"], rounds = 100 }}"
        )
    };
    let read = |command: &str| Experiment::parse(&text(command)).unwrap().cells(&[]);
    let cells = read(r#"["relay", "--n={n}", "{link_auth}", "{rounds}"]"#).unwrap();
    let words: Vec<String> = cells.iter().map(|cell| cell.command.join(" ")).collect();
    let expected =
        ["relay --n=5 tls 100", "relay --n=20 tls 100", "relay --n=5 plain 100", "relay --n=20 plain 100"];
    assert_eq!(words, expected);
    assert!(cells.iter().all(|cell| !cell.lacks_protocol()));
    assert!(read(r#"["sim", "{protocol}", "{rounds}"]"#).unwrap().iter().all(Cell::lacks_protocol));
    let missing = read(r#"["relay", "{rounds}", "{seed}"]"#).unwrap_err().to_string();
    assert!(missing.contains("{seed}: the cells have no setting of this name"), "{missing}");
    let unused = read(r#"["relay", "{n}"]"#).unwrap_err().to_string();
    assert!(unused.contains("rounds: unknown"), "{unused}");
}
