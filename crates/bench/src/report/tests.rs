use super::cells::{Cell, Spread, cells};
use super::histogram::tests::written;
use super::*;
use crate::archive::{CellRun, Injected, Manifest, Measure, Outcome, run_folder, write_json};
use serde_json::{Value, json};

fn manifest() -> Manifest {
    let study = |name: &str, kinds: &[&str]| {
        let figures: Vec<Value> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
        json!({ "name": name, "title": format!("Study {name}"), "notes": [], "figures": figures,
                "published": [], "repeats": 3 })
    };
    let kinds =
        ["latency-throughput", "lines", "bars", "heat-map", "cumulative", "timeline", "ledger", "table"];
    serde_json::from_value(json!({
        "format": 1, "tag": "test", "title": "A test", "stamp": "2026-01-02T03:04:05Z",
        "machine": { "processor": "a processor", "cores": 2, "memory_bytes": 8_000_000_000_u64,
                     "kernel": "a kernel", "file_system": "ext4" },
        "commit": "abc", "seed": 7, "form": "short", "yardstick": { "disk": { "sync_us": 812.5 } },
        "studies": [study("main", &kinds)],
    }))
    .unwrap()
}

/// Returns a run of an open loop, with as many good answers and as much latency as given.
pub(super) fn run(protocol: &str, rate: u64, number: u32, goodput: f64, p50_ms: f64) -> CellRun {
    let latency = |factor: f64| p50_ms * factor * 1e6;
    serde_json::from_value(json!({
        "study": "main", "system": "quorate", "protocol": protocol, "n": 4, "f": 1,
        "axes": { "protocol": protocol, "n": 4, "rate": rate }, "run": number,
        "outcome": "done", "wall_seconds": 12.5, "faults": [],
        "load": {
            "protocol": protocol, "n": 4, "f": 1, "durability": "fsync", "link_auth": "tls",
            "client_auth": "signature", "offered": rate, "due": rate, "carried": goodput, "answered": goodput,
            "goodput": goodput,
            "latency_ns": { "samples": 9, "mean": latency(1.1), "p50": latency(1.0), "p90": latency(1.5),
                            "p99": latency(3.0), "p999": latency(4.0), "max": latency(5.0) },
            "replicas": [
                { "id": 0, "cpu_seconds_per_1000": 0.2, "resident_bytes": 40_000_000,
                  "ledger": { "requests": 1_000, "messages": 3_000, "syncs": 100 } },
                { "id": 1, "cpu_seconds_per_1000": 0.1, "resident_bytes": 50_000_000,
                  "ledger": { "requests": 1_000, "messages": 1_000, "syncs": 100 } },
            ],
        },
    }))
    .unwrap()
}

fn without(mut run: CellRun, outcome: Outcome) -> CellRun {
    run.outcome = outcome;
    run.load = Value::Null;
    run
}

fn external(number: u32, tx_per_s: f64) -> CellRun {
    let mut external = run("raft", 0, number, 0.0, 0.0);
    external.system = "etcd".to_owned();
    (external.n, external.f) = (3, 1);
    external.axes.clear();
    external.load = json!({ "system": "etcd", "protocol": "raft", "n": 3, "tx_per_s": tx_per_s, "latency_ms": 4.5,
                            "cpu_s_total": 3.0, "rss_mb_max": 210, "note": "no Byzantine faults" });
    external
}

/// Returns an archive with repeated, saturated, failed, missing and external cells.
pub(super) fn archive() -> Archive {
    let failed = Outcome::Failed("replica 2 ended: <b>no memory</b>".to_owned());
    let not_built = Outcome::NotBuilt("protocol zyzzyva".to_owned());
    let runs = vec![
        run("pbft", 500, 1, 510.0, 1.0),
        run("pbft", 500, 2, 490.0, 3.0),
        run("pbft", 500, 3, 500.0, 2.0),
        run("pbft", 1_000, 1, 900.0, 40.0),
        run("pbft", 1_000, 2, 880.0, 30.0),
        run("pbft", 1_000, 3, 930.0, 50.0),
        run("hotstuff", 500, 1, 400.0, 5.0),
        without(run("pbft", 2_000, 1, 0.0, 0.0), failed.clone()),
        without(run("hotstuff", 500, 2, 0.0, 0.0), failed),
        without(run("zyzzyva", 500, 1, 0.0, 0.0), not_built),
        external(1, 1_000.0),
        external(2, 1_200.0),
    ]
    .into_iter()
    .map(|mut run| {
        // Saturation is known from a field, or from the counts of older archives.
        if run.protocol == "hotstuff" && run.load.is_object() {
            run.load["saturated"] = false.into();
        }
        run
    });
    Archive { manifest: manifest(), runs: runs.collect() }
}

/// Returns an archive of one cell with timeline and faults.
pub(super) fn faulty() -> Archive {
    let mut run = run("pbft", 500, 1, 500.0, 2.0);
    let interval = |second: u64| {
        let (answered, errors) = if second == 1 { (10, 4) } else { (100, 0) };
        let counts = if second == 0 { [(1_500, 30), (9_000, 1)] } else { [(1_500, 3), (9_000, 1)] };
        json!({ "at_ms": second * 1_000, "answered": answered, "errors": errors, "histogram": written(&counts) })
    };
    run.load["timeline"] = (0..4).map(interval).collect();
    run.load["latency_histogram"] = written(&[(1_500, 3), (9_000, 1)]).into();
    let fault = |at_ms: u64, what: &str| Injected { at_ms, what: what.to_owned() };
    run.faults =
        vec![fault(3_010, "link cut"), fault(1_000, "replica 0 killed"), fault(3_000, "replica 0 started")];
    Archive { manifest: manifest(), runs: vec![run] }
}

/// Returns the only cell.
pub(super) fn only(cells: &[Cell]) -> &Cell {
    assert_eq!(cells.len(), 1);
    &cells[0]
}

fn save(archive: &Archive, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    write_json(&folder.join("manifest.json"), &archive.manifest).unwrap();
    for run in &archive.runs {
        let path = folder.join(run_folder(run));
        std::fs::create_dir_all(&path).unwrap();
        write_json(&path.join("cell.json"), run).unwrap();
    }
}

/// The report has its own copies of flame graphs, so that it can be moved without its archive.
#[test]
fn report_links_the_profiles_of_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = archive();
    all.manifest.profile = Some("cpu".to_owned());
    save(&all, folder.path());
    let profiled = all.runs.iter().find(|run| run.outcome == Outcome::Done).unwrap();
    std::fs::write(folder.path().join(run_folder(profiled)).join(PROFILE_PICTURE), "<svg/>").unwrap();
    let written = write(folder.path(), &folder.path().join("elsewhere")).unwrap();
    let page = std::fs::read_to_string(&written.page).unwrap();
    assert!(page.contains(r#"<a href="profile-1.svg">"#) && !page.contains("profile-2.svg"), "{page}");
    assert!(page.contains("cpu, of one replica"), "the header warns of slower figures");
    assert_eq!(std::fs::read_to_string(written.page.with_file_name("profile-1.svg")).unwrap(), "<svg/>");
    assert!(!html(&archive()).contains("Profiles"));
}

pub(super) fn html(archive: &Archive) -> String {
    page::page(archive, None, &[]).unwrap().html
}

#[test]
fn report_has_the_same_bytes_from_each_copy_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second/deeper"));
    let all = Archive { runs: [archive().runs, faulty().runs].concat(), ..archive() };
    save(&all, &first);
    save(&all, &second);
    let read = |folder: &Path| {
        let written = write(folder, &default_folder(folder)).unwrap();
        assert_eq!(written.page, folder.join("report/index.html"));
        let files = std::iter::once(&written.page).chain(&written.pictures);
        files.map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>()
    };
    let report = read(&first);
    assert_eq!(report.len(), if png::IS_AVAILABLE { 7 } else { 1 });
    assert!(report == read(&second) && report == read(&first), "different bytes");
    let text = String::from_utf8(report[0].clone()).unwrap();
    assert!(!text.contains(&folder.path().display().to_string()), "a path of this machine");
}

#[test]
fn report_is_one_file_that_opens_offline() {
    let text = html(&archive());
    for forbidden in ["http:", "https:", "<script", "<link", "@import", "url("] {
        let allowed = "http://www.w3.org/2000/svg";
        assert!(!text.replace(allowed, "").contains(forbidden), "{forbidden}");
    }
    assert_eq!(text.matches("<svg ").count(), 12, "one for each chart and width of windows");
}

#[test]
fn header_has_the_conditions() {
    let text = html(&archive());
    for part in [
        "<h1>A test</h1>",
        "a processor",
        "a kernel",
        "8.0 GB",
        "<td>abc</td>",
        "<td>short</td>",
        "disk.sync_us",
        "812.5",
        "<td>fsync</td>",
        "<td>signature</td>",
        "The figures show no latency, jitter,",
        "4 with a result, 1 not built, 2 failed runs",
        "500 to 1,000 requests&#x2f;s",
        "<th scope=\"row\">seed</th><td>7</td>",
        "400 of 5,000 requests due have no good answer (8 %)",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(text.contains(png::WITHOUT), !png::IS_AVAILABLE);
}

#[test]
fn cell_without_a_result_is_listed_and_is_no_zero() {
    let text = html(&archive());
    let list = text.split("id=\"without-result\"").nth(1).unwrap();
    for row in [
        "<td>main</td><td>pbft n=4, rate 2000</td><td>1</td><td>failed: replica 2 ended: &lt;b&gt;no memory&lt;&#x2f;b&gt;</td>",
        "<td>zyzzyva n=4, rate 500</td><td>none</td><td>not built: protocol zyzzyva</td>",
        "<td>hotstuff n=4, rate 500</td><td>2</td>",
    ] {
        assert!(list.contains(row), "{row} in {list}");
    }
    let all = cells(&archive());
    let failed = all.iter().find(|cell| cell.label() == "pbft n=4, rate 2000").unwrap();
    assert_eq!(failed.spread(Measure::Goodput), None);
}

#[test]
fn text_of_the_archive_is_escaped() {
    let attack = "<img src=x onerror=alert(1)>\"'&";
    let mut archive = faulty();
    let manifest = &mut archive.manifest;
    for text in
        [&mut manifest.title, &mut manifest.commit, &mut manifest.machine.processor, &mut manifest.form]
    {
        *text = attack.to_owned();
    }
    manifest.yardstick = json!({ attack: attack });
    let study = &mut manifest.studies[0];
    study.title = attack.to_owned();
    study.notes.push(attack.to_owned());
    study.published.push(
        serde_json::from_value(json!({ "system": attack, "conditions": attack, "figure": attack })).unwrap(),
    );
    study.figures[0].title = attack.to_owned();
    let mut other = archive.runs[0].clone();
    other.protocol = attack.to_owned();
    other.axes = [(attack.to_owned(), attack.into())].into();
    other.faults[0].what = attack.to_owned();
    let mut failed = without(other.clone(), Outcome::Failed(attack.to_owned()));
    failed.run = 2;
    let mut stranger = external(1, 5.0);
    stranger.load["note"] = attack.into();
    stranger.study = attack.to_owned();
    archive.runs.extend([other, failed, stranger]);
    let text = html(&archive);
    assert!(!text.contains("<img"), "{}", text.split("<img").next().unwrap_or_default());
    assert!(text.matches("&lt;img src=x onerror=alert(1)&gt;").count() > 20);
}

#[test]
fn absent_fields_are_not_recorded() {
    let mut bare = run("pbft", 500, 1, 500.0, 2.0);
    bare.load = json!({});
    let mut archive = Archive { manifest: manifest(), runs: vec![bare] };
    archive.manifest.yardstick = Value::Null;
    archive.manifest.machine = crate::archive::Machine::default();
    let text = html(&archive);
    for name in ["processor", "memory", "kernel", "durability"] {
        assert!(text.contains(&format!("<th scope=\"row\">{name}</th><td>not recorded</td>")), "{name}");
    }
    assert!(text.contains("Yardstick of the machine: not recorded."));
    assert_eq!(text.matches("<td>pbft n=4, rate 500</td><td>1</td><td>not recorded</td>").count(), 2);
}

#[test]
fn absurd_results_make_a_report_nevertheless() {
    let numbers = [json!(-1), json!(1e300), json!(u64::MAX), json!("500"), json!(null), json!([]), json!(0)];
    for number in numbers {
        let mut all = Archive { runs: [archive().runs, faulty().runs].concat(), ..archive() };
        for run in &mut all.runs {
            spoil(&mut run.load, &number);
            run.faults.push(Injected { at_ms: u64::MAX, what: String::new() });
        }
        let text = html(&all);
        assert!(!text.contains("NaN") && !text.contains("inf\"") && !text.contains(">inf<"), "{number}");
        let _ = (summary_csv(&all), compared(&all, &archive()).to_string());
    }
}

/// Replaces all numbers and texts of a value but the names of its fields.
fn spoil(value: &mut Value, number: &Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| spoil(value, number)),
        Value::Array(values) => values.iter_mut().for_each(|value| spoil(value, number)),
        other => other.clone_from(number),
    }
}

#[test]
fn study_that_the_manifest_lacks_is_shown() {
    let mut archive = archive();
    archive.runs[0].study = "lost".to_owned();
    let text = html(&archive);
    assert!(text.contains(">lost</h2>") && text.contains("The manifest has no such study."));
}

#[test]
fn summary_has_the_median_of_each_cell() {
    let text = summary_csv(&archive());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(
        "study,system,protocol,n,f,rate,runs,failed,not_built,goodput_per_s_min,goodput_per_s_median"
    ));
    assert!(lines[0].ends_with(
        "leader_check_share_percent_max,saturated,setting_client_auth,setting_durability,setting_link_auth,ledger_messages,ledger_syncs"
    ));
    let set = "signature,fsync,tls,4,0.2";
    let expected = [
        format!(
            "main,quorate,hotstuff,4,1,500,1,1,,400,400,400,,,,5.5,5.5,5.5,5,5,5,15,15,15,300,300,300,50,50,50,,,,no,{set}"
        ),
        format!(
            "main,quorate,pbft,4,1,500,3,0,,490,500,510,,,,1.1,2.2,3.3,1,2,3,3,6,9,300,300,300,50,50,50,,,,no,{set}"
        ),
        format!(
            "main,quorate,pbft,4,1,1000,3,0,,880,900,930,,,,33,44,55,30,40,50,90,120,150,300,300,300,50,50,50,,,,yes,{set}"
        ),
        "main,quorate,pbft,4,1,2000,0,1,,,,,,,,,,,,,,,,,,,,,,,,,,no,,,,,".to_owned(),
        "main,quorate,zyzzyva,4,1,500,0,0,protocol zyzzyva,,,,,,,,,,,,,,,,,,,,,,,,,no,,,,,".to_owned(),
        "main,etcd,raft,3,1,,2,0,,1000,1100,1200,,,,4.5,4.5,4.5,,,,,,,,,,210,210,210,,,,no,,,,,".to_owned(),
    ];
    assert_eq!(lines[1..], expected);
    let columns: Vec<usize> = lines.iter().map(|line| line.split(',').count()).collect();
    assert!(columns.iter().all(|count| *count == columns[0]), "{columns:?}");
}

#[test]
fn median_of_an_even_number_of_runs_is_the_mean_of_the_middle_two() {
    for (values, median) in [(vec![4.0, 1.0, 2.0, 10.0], 3.0), (vec![7.0], 7.0), (vec![1.0, f64::NAN], 1.0)] {
        assert_eq!(Spread::of(values.clone()).unwrap().median, median, "{values:?}");
    }
    assert_eq!(Spread::of([]), None);
}

#[test]
fn comparison_finds_exactly_the_regressions() {
    use Regression::{Failed, Goodput, LatencyP50, LatencyP99};
    let before = |rate| run("pbft", rate, 1, 1_000.0, 10.0);
    let after = |rate, goodput, p50, p99: f64| {
        let mut run = run("pbft", rate, 1, goodput, p50);
        run.load["latency_ns"]["p99"] = (p99 * 1e6).into();
        run
    };
    let mut saturated = before(7);
    saturated.load["saturated"] = true.into();
    let mut first: Vec<CellRun> = (1..=6).map(before).collect();
    first.extend([saturated, before(8), before(9), without(before(10), Outcome::Failed(String::new()))]);
    let second = vec![
        after(1, 900.0, 20.0, 60.0),
        after(2, 899.0, 10.0, 30.0),
        after(3, 1_000.0, 20.1, 30.0),
        after(4, 1_000.0, 10.0, 60.1),
        after(5, 10.0, 90.0, 90.0),
        after(6, 2_000.0, 1.0, 1.0),
        after(7, 1_000.0, 500.0, 500.0),
        without(before(8), Outcome::Failed("ended".to_owned())),
        before(10),
        before(11),
    ];
    let of = |runs: Vec<CellRun>| Archive { manifest: manifest(), runs };
    let comparison = compared(&of(first.clone()), &of(second));
    let found: Vec<(&str, &[Regression])> =
        comparison.cells.iter().map(|cell| (cell.cell.as_str(), cell.regressions.as_slice())).collect();
    let expected: [(&str, &[Regression]); 9] = [
        ("pbft n=4, rate 1", &[]),
        ("pbft n=4, rate 2", &[Goodput]),
        ("pbft n=4, rate 3", &[LatencyP50]),
        ("pbft n=4, rate 4", &[LatencyP99]),
        ("pbft n=4, rate 5", &[Goodput, LatencyP50, LatencyP99]),
        ("pbft n=4, rate 6", &[]),
        ("pbft n=4, rate 7", &[]),
        ("pbft n=4, rate 8", &[Failed]),
        ("pbft n=4, rate 10", &[]),
    ];
    assert_eq!(found, expected);
    assert!(comparison.is_worse());
    assert_eq!(comparison.only_first, ["main: pbft n=4, rate 9"]);
    assert_eq!(comparison.only_second, ["main: pbft n=4, rate 11"]);
    let text = comparison.to_string();
    assert!(
        text.contains("1,000 -> 899 (-10.1 %)") && text.contains("WORSE: goodput, median, p99"),
        "{text}"
    );
    assert!(text.ends_with("5 of 9 cells are worse\n"), "{text}");
    let same = compared(&of(first.clone()), &of(first));
    assert!(!same.is_worse() && same.cells.len() == 10 && same.only_first.is_empty(), "{same}");
}

#[test]
fn comparison_reads_folders_and_states_different_conditions() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    save(&archive(), &a);
    let mut other = archive();
    other.manifest.machine.kernel = "another kernel".to_owned();
    save(&other, &b);
    let comparison = compare(&a, &b).unwrap();
    assert!(!comparison.is_worse());
    assert_eq!(comparison.conditions, ["kernel differs: a kernel, then another kernel"]);
}

#[test]
fn comparison_needs_the_summary_and_the_manifest_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, kept, none] = ["whole", "kept", "none"].map(|name| folder.path().join(name));
    save(&archive(), &whole);
    for folder in [&kept, &none] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let why = |a: &Path| compare(a, &whole).unwrap_err().to_string();
    assert!(
        why(&none)
            .contains("no manifest.json. A comparison needs manifest.json, and the runs or summary.csv")
    );
    write_json(&kept.join("manifest.json"), &manifest()).unwrap();
    assert!(why(&kept).contains("neither runs nor summary.csv"), "{}", why(&kept));
    assert!(
        write(&kept, folder.path()).unwrap_err().to_string().contains("A report needs the file cell.json")
    );
    std::fs::write(kept.join("summary.csv"), summary_csv(&archive())).unwrap();
    let from_summary = compare(&kept, &whole).unwrap();
    assert_eq!(from_summary.cells, compare(&whole, &whole).unwrap().cells);
    assert!(from_summary.cells.len() == 6 && from_summary.only_first.is_empty(), "{from_summary}");
    std::fs::write(kept.join("summary.csv"), "study,system\n").unwrap();
    assert!(why(&kept).contains("summary.csv: the column protocol is missing"), "{}", why(&kept));
}

#[test]
fn cells_are_in_the_order_of_people() {
    let mut runs: Vec<CellRun> = [1_000, 500, 20_000].map(|rate| run("pbft", rate, 1, 1.0, 1.0)).into();
    runs.push(run("hotstuff", 7, 1, 1.0, 1.0));
    let names: Vec<String> = cells(&Archive { manifest: manifest(), runs }).iter().map(Cell::label).collect();
    assert_eq!(
        names,
        ["hotstuff n=4, rate 7", "pbft n=4, rate 500", "pbft n=4, rate 1000", "pbft n=4, rate 20000"]
    );
}

#[test]
fn protocols_and_values_have_the_order_of_the_experiment() {
    let mut manifest = manifest();
    manifest.studies[0].settings = serde_json::from_value(json!({
        "protocol": ["pbft", "jolteon", "artemis"], "rate": ["50%", "130%", "7%"], "batch": ["unlimited", 100, 9],
    }))
    .unwrap();
    let mut runs = Vec::new();
    for protocol in ["artemis", "zyzzyva", "pbft", "jolteon", "apollo"] {
        for (rate, batch) in
            [("130%", json!(9)), ("50%", json!("unlimited")), ("50%", json!(100)), ("90%", json!(9))]
        {
            let mut run = run(protocol, 1, 1, 1.0, 1.0);
            run.axes.insert("rate".to_owned(), rate.into());
            run.axes.insert("batch".to_owned(), batch);
            runs.push(run);
        }
    }
    let all = cells(&Archive { manifest, runs });
    let protocols: Vec<&str> = all.iter().map(|cell| cell.protocol.as_str()).step_by(4).collect();
    assert_eq!(protocols, ["pbft", "jolteon", "artemis", "apollo", "zyzzyva"]);
    let first: Vec<String> = all.iter().take(4).map(Cell::label).collect();
    let names = ["9, rate 130%", "9, rate 90%", "100, rate 50%", "unlimited, rate 50%"];
    assert_eq!(first, names.map(|name| format!("pbft n=4, batch {name}")));
}

#[cfg(feature = "png")]
#[test]
fn picture_has_the_text_of_the_chart() {
    let chart = |title: &str| {
        let chart = chart::Chart { title: title.to_owned(), ..chart::Chart::default() };
        png::picture("a", &chart::for_picture(&chart::render(&chart).unwrap())).unwrap().unwrap()
    };
    assert!(chart("").starts_with(b"\x89PNG"));
    assert!(chart("A title with glyphs").len() > chart("").len(), "the font is missing");
}
