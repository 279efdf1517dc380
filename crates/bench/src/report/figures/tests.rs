use super::super::chart::Fill;
use super::super::tests::{archive, faulty, only, run};
use super::*;
use crate::archive::{Archive, Measure, Outcome};
use crate::report::cells::cells;
use serde_json::json;

/// Returns a figure of all cells of an archive.
fn shown(archive: &Archive, figure: serde_json::Value) -> Chart {
    let figure: Figure = serde_json::from_value(figure).unwrap();
    let Shown::Chart(chart) = build(&figure, &archive.manifest.studies[0], &cells(archive), Width::Wide)
    else {
        panic!("a chart")
    };
    chart
}

fn points(chart: &Chart) -> Vec<((f64, f64), Fill)> {
    let layers = chart.panels.iter().flat_map(|panel| &panel.layers);
    let point = |layer: &Layer| match layer {
        Layer::Point { at, fill, .. } if *fill != Fill::Small => Some((*at, *fill)),
        _ => None,
    };
    layers.filter_map(point).collect()
}

fn texts(chart: &Chart) -> Vec<&str> {
    chart.legend.iter().map(|entry| entry.text.as_str()).collect()
}

#[test]
fn saturated_cell_is_hollow_in_latency_against_throughput() {
    let chart = shown(&archive(), json!({ "kind": "latency-throughput" }));
    let expected = [
        ((400.0, 5.0), Fill::Full),
        ((500.0, 2.0), Fill::Full),
        ((900.0, 40.0), Fill::Hollow),
        ((1_100.0, 4.5), Fill::Full),
    ];
    assert_eq!(points(&chart), expected);
    assert_eq!(texts(&chart)[..3], ["hotstuff, n=4", "pbft, n=4", "etcd, raft, n=3"]);
    assert!(texts(&chart).iter().any(|text| text.starts_with("hollow: saturated")), "{:?}", texts(&chart));
    let remarks = chart.remarks.join("\n");
    assert!(
        remarks.contains("no run has a result: pbft n=4, rate 2000; zyzzyva n=4, rate 500."),
        "{remarks}"
    );
    assert!(remarks.contains("mean latency, as the median is not recorded: etcd raft n=3."), "{remarks}");
}

#[test]
fn lines_show_medians_and_whiskers_of_the_runs() {
    let chart = shown(
        &archive(),
        json!({ "kind": "lines", "x": "rate", "y": ["goodput"], "only": { "protocol": "pbft" } }),
    );
    assert_eq!(points(&chart), [((500.0, 500.0), Fill::Full), ((1_000.0, 900.0), Fill::Hollow)]);
    let whiskers = chart.panels[0].layers.iter().filter(|layer| matches!(layer, Layer::Whisker { .. }));
    assert_eq!(
        whiskers.collect::<Vec<_>>(),
        [&Layer::Whisker { x: 500.0, y: (490.0, 510.0) }, &Layer::Whisker { x: 1_000.0, y: (880.0, 930.0) },]
    );
}

#[test]
fn cell_without_the_axis_or_the_value_is_named() {
    let chart =
        shown(&archive(), json!({ "kind": "lines", "x": "rate", "y": ["cpu-per-request", "memory"] }));
    let remarks = chart.remarks.join("\n");
    assert!(remarks.contains("Not drawn, without a value of rate: etcd raft n=3."), "{remarks}");
    assert!(remarks.contains("Not recorded: CPU of all replicas (µs/request): etcd raft n=3."), "{remarks}");
    assert_eq!(chart.panels.len(), 2, "a panel for each measure");
    let chart = shown(&archive(), json!({ "kind": "bars", "x": "colour" }));
    assert_eq!(chart.panels[0].layers, empty_panel().layers);
}

#[test]
fn bars_of_a_group_do_not_touch() {
    let chart = shown(&archive(), json!({ "kind": "bars", "x": "rate" }));
    let mut bars: Vec<(f64, f64)> = Vec::new();
    for layer in &chart.panels[0].layers {
        if let Layer::Bar { x, .. } = layer {
            bars.push(*x);
        }
    }
    bars.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(bars.len() == 3 && bars.windows(2).all(|pair| pair[0].1 < pair[1].0), "{bars:?}");
}

#[test]
fn cells_with_the_same_place_are_remarked() {
    let runs = ["none", "fsync"].map(|durability| {
        let mut run = run("pbft", 500, 1, 500.0, 2.0);
        run.axes.insert("durability".to_owned(), durability.into());
        run
    });
    let archive = Archive { runs: runs.into(), ..archive() };
    let figure = |series: &[&str]| json!({ "kind": "lines", "x": "rate", "series": series });
    let remarks = shown(&archive, figure(&["protocol"])).remarks;
    assert!(remarks[0].starts_with("Several cells of pbft have the same place."), "{remarks:?}");
    assert!(shown(&archive, figure(&[])).remarks.is_empty());
    assert_eq!(texts(&shown(&archive, figure(&[])))[..2], ["durability fsync", "durability none"]);
}

#[test]
fn timeline_has_answers_errors_and_numbered_faults() {
    let chart = shown(&faulty(), json!({ "kind": "timeline" }));
    let faults: Vec<&Layer> =
        chart.panels[0].layers.iter().filter(|layer| matches!(layer, Layer::Fault { .. })).collect();
    assert_eq!(faults, [&Layer::Fault { x: 1.0, number: 1 }, &Layer::Fault { x: 3.0, number: 2 }]);
    assert_eq!(
        texts(&chart),
        [
            "good answers",
            "errors",
            "1: replica 0 killed (at 1 s)",
            "2: replica 0 started (at 3 s); link cut (at 3.01 s)"
        ]
    );
    let answers = Layer::Line {
        points: vec![(0.5, 100.0), (1.5, 10.0), (2.5, 100.0), (3.5, 100.0)],
        look: crate::report::chart::Look::of(0),
        stroke: crate::report::chart::Stroke::Solid,
    };
    assert!(chart.panels[0].layers.contains(&answers), "{:?}", chart.panels[0].layers);
}

#[test]
fn heat_map_counts_all_requests_once() {
    let chart = shown(&faulty(), json!({ "kind": "heat-map" }));
    let patches = chart.panels[0].layers.iter().filter(|layer| matches!(layer, Layer::Patch { .. })).count();
    assert_eq!(patches, 8, "two latencies in each of four intervals");
    let bar = chart.colour_bar.unwrap();
    assert_eq!((bar.low, bar.high), (1.0, 30.0));
    assert!(bar.place(1.0) == 0.0 && bar.place(30.0) == 1.0 && bar.place(f64::NAN) >= 0.0);
}

#[test]
fn curve_of_latencies_ends_at_all_requests() {
    let chart = shown(&faulty(), json!({ "kind": "cumulative" }));
    let line = chart.panels[0].layers.iter().find_map(|layer| match layer {
        Layer::Line { points, .. } => Some(points.clone()),
        _ => None,
    });
    let shares: Vec<f64> = line.unwrap().iter().map(|(_, share)| *share).collect();
    assert_eq!(shares, [75.0, 100.0]);
    let remarks = shown(&archive(), json!({ "kind": "cumulative" })).remarks.join("\n");
    assert!(remarks.contains("Drawn through percentiles"), "{remarks}");
    assert!(remarks.contains("latencies are not recorded: etcd raft n=3"), "{remarks}");
}

#[test]
fn figure_without_data_states_this() {
    let archive = Archive { runs: Vec::new(), ..archive() };
    for kind in ["latency-throughput", "lines", "bars", "heat-map", "cumulative", "timeline"] {
        let chart = shown(&archive, json!({ "kind": kind }));
        assert_eq!((chart.panels.len(), chart.legend.len()), (1, 0), "{kind}");
    }
}

#[test]
fn figure_with_too_many_panels_names_the_other_cells() {
    let template = faulty().runs[0].clone();
    let run = |rate: u64| {
        let mut run = template.clone();
        run.axes.insert("rate".to_owned(), rate.into());
        run
    };
    let archive = Archive { runs: (0..30).map(run).collect(), ..archive() };
    let chart = shown(&archive, json!({ "kind": "timeline" }));
    assert_eq!(chart.panels.len(), PANELS_MAX);
    assert!(chart.remarks[0].ends_with("rate 28; pbft n=4, rate 29."), "{:?}", chart.remarks);
}

#[test]
fn ledger_is_for_one_request_of_all_replicas() {
    let cells = cells(&faulty());
    let table = tables::ledger("Costs", &cells.iter().collect::<Vec<_>>());
    assert_eq!(table.columns, ["counter", "pbft n=4, rate 500"]);
    // Two replicas of 1,000 requests each: 3,000 and 1,000 messages, and 100 syncs each.
    assert_eq!(
        table.rows,
        [["messages", "4"], ["syncs", "0.2000"]].map(|row| row.map(str::to_owned).to_vec())
    );
}

#[test]
fn table_of_everything_has_other_numbers_and_remarks() {
    let mut costs = run("pbft", 500, 1, 0.0, 0.0);
    costs.load = json!({ "delays": 3, "is_fast": true, "name": "pbft" });
    let failed = {
        let mut run = costs.clone();
        run.run = 2;
        run.outcome = Outcome::Failed("late".to_owned());
        run
    };
    let cells = cells(&Archive { runs: vec![costs, failed], ..archive() });
    let table = everything("All", &cells.iter().collect::<Vec<_>>());
    assert_eq!(table.columns, ["cell", "runs", "delays", "is_fast", "remarks"]);
    assert_eq!(
        table.rows,
        [["pbft n=4, rate 500", "1", "3", "1", "failed runs: 2"].map(str::to_owned).to_vec()]
    );
    assert!(only(&cells).spread(Measure::Goodput).is_none());
    let cells = super::super::cells::cells(&archive());
    let table = everything("All", &cells.iter().collect::<Vec<_>>());
    assert_eq!(table.columns[8..], ["greatest latency (ms)", "p99.9 latency (ms)", "remarks"]);
    let saturated = &table.rows[2];
    assert_eq!(saturated[..3], ["pbft n=4, rate 1000", "3", "900 (880 to 930)"]);
    assert_eq!(saturated.last().unwrap(), "saturated: the latency is that of a growing queue");
}

#[test]
fn offered_load_is_an_axis_of_numbers() {
    let runs = [("50%", 2_000u64), ("130%", 5_200)].map(|(share, offered)| {
        let mut run = run("pbft", offered, 1, 1_990.0, 2.0);
        run.axes.insert("rate".to_owned(), share.into());
        run.load["goodput_first_reply"] = (offered / 2).into();
        run
    });
    let archive = Archive { runs: runs.into(), ..archive() };
    let chart = shown(&archive, json!({ "kind": "lines", "x": "offered", "y": ["goodput-first-reply"] }));
    assert_eq!(points(&chart), [((2_000.0, 1_000.0), Fill::Full), ((5_200.0, 2_600.0), Fill::Hollow)]);
    assert_eq!(texts(&chart)[0], "pbft n=4", "one series");
}

#[test]
fn share_of_signature_checks_is_per_cent_and_may_be_absent() {
    let mut with = run("pbft", 500, 1, 500.0, 2.0);
    let used = |id: u16, percent: f64| json!({ "id": id, "cpu_ms": 400, "signature_check_percent": percent });
    with.load["replicas"] = json!([used(0, 40.0), used(1, 80.0)]);
    with.load["leader"] = 0.into();
    let archive = Archive { runs: vec![with, run("hotstuff", 500, 1, 500.0, 2.0)], ..archive() };
    let chart = shown(&archive, json!({ "kind": "bars", "x": "protocol", "y": ["leader-check-share"] }));
    let tops: Vec<f64> = chart.panels[0]
        .layers
        .iter()
        .filter_map(|layer| if let Layer::Bar { top, .. } = layer { Some(*top) } else { None })
        .collect();
    assert_eq!(tops, [40.0]);
    assert!(chart.remarks.join("\n").contains("Not recorded: signature checks"), "{:?}", chart.remarks);
}

/// Figures of a command show numbers of its JSON object by their names.
#[test]
fn figures_show_fields_of_a_command() {
    let mut runs = Vec::new();
    for (n, round_us) in [(5, 90.5), (20, 400.0)] {
        let mut run = run("relay", 1, 1, 1.0, 1.0);
        run.n = n;
        run.axes = [("n".to_owned(), json!(n))].into();
        run.load = json!({ "n": n, "round_us": round_us, "reads_per_round": 6.5 });
        runs.push(run);
    }
    let archive = Archive { manifest: archive().manifest, runs };
    let lines = shown(&archive, json!({ "kind": "lines", "x": "n", "y": ["round_us"] }));
    assert_eq!(points(&lines), [((5.0, 90.5), Fill::Full), ((20.0, 400.0), Fill::Full)]);
    assert_eq!(lines.panels[0].y, Axis::measured("round (µs)", &[90.5, 400.0]));
    let fields = json!({ "kind": "bars", "x": "value", "y": ["round_us", "reads_per_round", "gone"], "only": { "n": 5 } });
    let bars = shown(&archive, fields);
    let tops: Vec<f64> = bars.panels[0]
        .layers
        .iter()
        .filter_map(|layer| match layer {
            Layer::Bar { top, .. } => Some(*top),
            _ => None,
        })
        .collect();
    assert_eq!(tops, [90.5, 6.5]);
    assert_eq!(bars.panels.len(), 1);
    let remarks = bars.remarks.join("\n");
    assert!(remarks.contains("Not recorded: gone: relay n=5."), "{remarks}");
    let single = json!({ "kind": "bars", "x": "value", "y": ["round_us"], "only": { "n": 5 } });
    assert_eq!(shown(&archive, single).panels[0].y, Axis::with_room("µs", &[90.5]));
}

#[test]
fn system_of_others_stands_beside_a_selection_of_cells() {
    let mut other = run("pbft", 1, 1, 1.0, 1.0);
    other.system = "other".to_owned();
    other.axes = [("n".to_owned(), json!(4))].into();
    other.load = json!({ "tx_per_s": 700, "latency_ms": 5.5 });
    let runs = vec![run("pbft", 500, 1, 500.0, 2.0), run("pbft", 900, 1, 900.0, 2.0), other];
    let archive = Archive { runs, ..archive() };
    let figure = |kind: &str| json!({ "kind": kind, "x": "n", "y": ["goodput"], "only": { "rate": 500 } });
    let tops = |chart: &Chart| -> Vec<f64> {
        let layers = chart.panels[0].layers.iter();
        layers
            .filter_map(|layer| if let Layer::Bar { top, .. } = layer { Some(*top) } else { None })
            .collect()
    };
    assert_eq!(tops(&shown(&archive, figure("bars"))), [500.0, 700.0]);
}

/// The load generator writes zeros where no request of the measured time was answered.
#[test]
fn latencies_without_samples_are_no_zeros() {
    let mut starved = run("pbft", 500, 1, 5.0, 0.0);
    starved.load["latency_ns"] = json!({ "samples": 0, "mean": 0.0, "p50": 0, "p99": 0 });
    let archive = Archive { runs: vec![starved], ..archive() };
    let chart = shown(&archive, json!({ "kind": "bars", "x": "n", "y": ["goodput", "latency-mean"] }));
    assert!(matches!(chart.panels[1].layers[..], [Layer::Empty(_)]), "{:?}", chart.panels[1].layers);
    assert!(chart.remarks.join("\n").contains("Not recorded: mean latency"), "{:?}", chart.remarks);
}
