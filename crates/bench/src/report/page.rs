//! The page of a report.

use super::cells::{Cell, OURS, Spread, cells, studies};
use super::chart::{Width, for_page, for_picture, render};
use super::coverage::Coverage;
use super::figures::{NOT_RECORDED, Shown, Table, build, everything, kind_name};
use super::noise;
use super::numbers::{exact, float, float_of, without_zeros};
use super::reading::SETTINGS;
use super::{Profiled, ReportError, png};
use crate::archive::{Archive, Manifest, Published, StudyFacts};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const TEMPLATE: &str = include_str!("../../templates/report.html");
/// Values of the yardstick that the header shows, at most.
const YARDSTICK_MAX: usize = 60;

/// Settings of our own cells that the header names in any case.
const OUR_SETTINGS: &[&str] = &["durability", "authentication of links", "authentication of clients"];
/// Settings of other systems that the header names in any case.
const SETTINGS_OF_OTHERS: &[&str] = &["durability", "authentication"];

/// A page, and the pictures beside it.
pub(super) struct Page {
    /// The text of the page.
    pub(super) html: String,
    /// The file name of each picture, and its SVG.
    pub(super) pictures: Vec<(String, String)>,
}

/// The values of the template.
#[derive(Serialize)]
struct Context<'a> {
    title: &'a str,
    facts: Vec<(String, String)>,
    yardstick: Vec<(String, String)>,
    noise: Vec<String>,
    coverage: Option<Table>,
    without_result: Vec<Missing>,
    profiles: &'a [Profiled],
    studies: Vec<Study>,
    png_note: &'static str,
}

/// A run or a cell without a result.
#[derive(Serialize)]
struct Missing {
    study: String,
    cell: String,
    runs: String,
    reason: String,
}

#[derive(Serialize)]
struct Study {
    name: String,
    title: String,
    notes: Vec<String>,
    repeats: String,
    settings: Vec<(String, String)>,
    figures: Vec<Shape>,
    published: Vec<Published>,
    everything: Table,
}

/// A figure for the template: a chart or a table.
#[derive(Default, Serialize)]
struct Shape {
    /// The chart, which needs no escaping.
    svg: String,
    /// The same chart for narrow windows.
    narrow: String,
    /// The file name of the picture; empty: none.
    picture: String,
    table: Option<Table>,
    remarks: Vec<String>,
}

/// Returns the page of an archive, with the coverage that its folder has.
///
/// # Errors
/// Fails when a chart cannot be drawn, or when the template is wrong.
pub(super) fn page(
    archive: &Archive,
    coverage: Option<&Coverage>,
    profiles: &[Profiled],
) -> Result<Page, ReportError> {
    let all = cells(archive);
    let manifest = &archive.manifest;
    let mut pictures = Vec::new();
    let mut shown = Vec::new();
    for facts in studies_of(manifest, &all) {
        let own: Vec<Cell> = all.iter().filter(|cell| cell.study == facts.name).cloned().collect();
        shown.push(study(&facts, &own, &mut pictures)?);
    }
    let context = Context {
        title: &manifest.title,
        facts: facts(manifest, &all),
        yardstick: yardstick(&manifest.yardstick),
        noise: noise::remarks(&all),
        coverage: coverage.map(Coverage::table),
        without_result: without_result(&all),
        profiles,
        studies: shown,
        png_note: if png::IS_AVAILABLE { "" } else { png::WITHOUT },
    };
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_template("report.html", TEMPLATE)?;
    let html = environment.get_template("report.html")?.render(Serde(context))?;
    Ok(Page { html, pictures })
}

/// Returns the studies of the manifest, and one for each other study that has cells.
fn studies_of(manifest: &Manifest, cells: &[Cell]) -> Vec<StudyFacts> {
    let mut all = manifest.studies.clone();
    for name in studies(cells) {
        if !all.iter().any(|study| study.name == name) {
            let note = "The manifest has no such study.".to_owned();
            let known = serde_json::json!({
                "name": name, "title": name, "notes": [note], "figures": [], "published": [], "repeats": 0,
            });
            all.extend(serde_json::from_value::<StudyFacts>(known).ok());
        }
    }
    all
}

fn facts(manifest: &Manifest, cells: &[Cell]) -> Vec<(String, String)> {
    let machine = &manifest.machine;
    let known = |text: &str| if text.is_empty() { NOT_RECORDED.to_owned() } else { text.to_owned() };
    let gigabytes = float(machine.memory_bytes) / 1e9;
    let memory = if machine.memory_bytes == 0 { known("") } else { format!("{gigabytes:.1} GB") };
    let cores = if machine.cores == 0 { known("") } else { machine.cores.to_string() };
    let with = cells.iter().filter(|cell| !cell.readings.is_empty()).count();
    let not_built = cells.iter().filter(|cell| cell.not_built.is_some()).count();
    let failed: usize = cells.iter().map(|cell| cell.failed.len()).sum();
    let counts = format!(
        "{} with a result, {} not built, {} failed runs",
        exact(float_of(with)),
        exact(float_of(not_built)),
        exact(float_of(failed))
    );
    [
        ("experiment", known(&manifest.tag)),
        ("started (UTC)", known(&manifest.stamp)),
        ("form", known(&manifest.form)),
        ("commit", known(&manifest.commit)),
        ("seed", manifest.seed.to_string()),
        ("processor", known(&machine.processor)),
        ("cores", cores),
        ("memory", memory),
        ("kernel", known(&machine.kernel)),
        ("file system of data", known(&machine.file_system)),
        ("cells", counts),
        ("offered load", offered(cells)),
        ("dropped", dropped(cells)),
        ("noise of the machine", noise::judgement(cells)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .chain(
        manifest
            .profile
            .iter()
            .map(|kind| ("profile".to_owned(), format!("{kind}, of one replica, which was slower for it"))),
    )
    .chain(settings(cells))
    .collect()
}

/// Returns the range of the loads that open loops have offered.
fn offered(cells: &[Cell]) -> String {
    let rates = cells.iter().flat_map(|cell| &cell.readings).filter_map(|reading| reading.offered);
    let Some(all) = Spread::of(rates) else { return NOT_RECORDED.to_owned() };
    let range =
        if all.min == all.max { exact(all.min) } else { format!("{} to {}", exact(all.min), exact(all.max)) };
    format!("{range} requests/s")
}

/// Returns the number of requests that were due and never had a good answer.
fn dropped(cells: &[Cell]) -> String {
    let readings = || cells.iter().flat_map(|cell| &cell.readings);
    let counted = || readings().filter_map(|reading| reading.due.zip(reading.dropped));
    let (due, dropped) = counted().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if due == 0.0 {
        return NOT_RECORDED.to_owned();
    }
    let share = without_zeros(&format!("{:.3}", dropped / due * 100.0)).to_owned();
    format!("{} of {} requests due have no good answer ({share} %)", exact(dropped), exact(due))
}

/// Returns durability and authentication of cells, our own first. A setting with several values has all of them.
fn settings(cells: &[Cell]) -> Vec<(String, String)> {
    let mut systems: Vec<&str> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.readings.is_empty()) {
        if !systems.contains(&cell.system.as_str()) {
            systems.push(&cell.system);
        }
    }
    systems.sort_by_key(|system| *system != OURS);
    let mut rows = Vec::new();
    for system in systems {
        let expected = if system == OURS { OUR_SETTINGS } else { SETTINGS_OF_OTHERS };
        for (_, name) in SETTINGS {
            let own = cells.iter().filter(|cell| cell.system == system);
            let readings = own.flat_map(|cell| &cell.readings);
            let values: BTreeSet<&str> =
                readings.filter_map(|reading| reading.settings.get(name).map(String::as_str)).collect();
            let text: Vec<&str> = values.into_iter().collect();
            let name_of = if system == OURS { name.to_owned() } else { format!("{name} of {system}") };
            if !text.is_empty() {
                rows.push((name_of, text.join(", ")));
            } else if expected.contains(&name) {
                rows.push((name_of, NOT_RECORDED.to_owned()));
            }
        }
    }
    rows
}

/// Returns the values of the yardstick, by their path in the object.
fn yardstick(value: &Value) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    flatten(String::new(), value, &mut rows);
    let left = rows.len().saturating_sub(YARDSTICK_MAX);
    rows.truncate(YARDSTICK_MAX);
    if left > 0 {
        rows.push(("further values".to_owned(), left.to_string()));
    }
    rows
}

fn flatten(path: String, value: &Value, rows: &mut Vec<(String, String)>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| flatten(below(name), value, rows)),
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(i, value)| flatten(below(&i.to_string()), value, rows));
        }
        Value::Null => {}
        Value::Number(number) => rows.push((path, number.as_f64().map_or_else(|| number.to_string(), exact))),
        Value::Bool(said) => rows.push((path, said.to_string())),
        Value::String(text) => rows.push((path, text.clone())),
    }
}

/// Returns the runs and cells without a result, by name and with the reason.
fn without_result(cells: &[Cell]) -> Vec<Missing> {
    let mut missing = Vec::new();
    for cell in cells {
        let mut push = |runs: String, reason: String| {
            missing.push(Missing { study: cell.study.clone(), cell: cell.label(), runs, reason });
        };
        if let Some(part) = &cell.not_built {
            push("none".to_owned(), format!("not built: {part}"));
        }
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (run, reason) in &cell.failed {
            reasons.entry(reason).or_default().push(run.to_string());
        }
        for (reason, runs) in reasons {
            push(runs.join(", "), format!("failed: {reason}"));
        }
    }
    missing
}

fn study(
    facts: &StudyFacts,
    cells: &[Cell],
    pictures: &mut Vec<(String, String)>,
) -> Result<Study, ReportError> {
    let mut shapes = Vec::new();
    for (i, figure) in facts.figures.iter().enumerate() {
        shapes.push(match build(figure, facts, cells, Width::Wide) {
            Shown::Table(table) => Shape { table: Some(table), ..Shape::default() },
            Shown::Chart(chart) => {
                let svg = render(&chart)?;
                let name = picture_name(&facts.name, i.saturating_add(1), kind_name(figure.kind));
                pictures.push((name.clone(), for_picture(&svg)));
                let narrow = match build(figure, facts, cells, Width::Narrow) {
                    Shown::Chart(narrow) => for_page(&render(&narrow)?, &chart.title),
                    Shown::Table(_) => String::new(),
                };
                Shape {
                    svg: for_page(&svg, &chart.title),
                    narrow,
                    picture: if png::IS_AVAILABLE { name } else { String::new() },
                    table: None,
                    remarks: chart.remarks,
                }
            }
        });
    }
    let repeats = if facts.repeats == 0 { NOT_RECORDED.to_owned() } else { facts.repeats.to_string() };
    Ok(Study {
        name: facts.name.clone(),
        title: facts.title.clone(),
        notes: facts.notes.clone(),
        repeats,
        settings: settings(cells),
        figures: shapes,
        published: facts.published.clone(),
        everything: everything("All measured values", &cells.iter().collect::<Vec<_>>()),
    })
}

fn picture_name(study: &str, number: usize, kind: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{}-{number}-{kind}.png", study.chars().map(safe).collect::<String>())
}
