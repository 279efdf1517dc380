//! Answers in each interval over time, with the injected faults.

use super::super::cells::{Cell, Spread};
use super::super::chart::{Axis, Chart, Entry, Layer, Look, Panel, Stroke, Symbol};
use super::super::numbers::{float, float_of, index, without_zeros};
use super::super::reading::{Interval, Reading};
use super::{LOW, TALL, remark, with_panels};
use std::collections::BTreeMap;

/// Intervals of a run, at most. A later one is a mistake of its source.
const INTERVALS_MAX: usize = 100_000;
/// The share of the whole time within which faults have one mark.
const CLOSE: f64 = 0.02;

/// The intervals of all runs of a cell, side by side.
pub(super) struct Times<'a> {
    /// Milliseconds of an interval.
    pub(super) step_ms: f64,
    /// The intervals that begin at so many steps from the start, one for each run.
    pub(super) intervals: BTreeMap<usize, Vec<&'a Interval>>,
}

impl<'a> Times<'a> {
    /// Returns the intervals of a cell; `None` where no run has recorded any.
    pub(super) fn of(cell: &'a Cell) -> Option<Self> {
        let steps = cell.readings.iter().filter_map(step);
        let step_ms = Spread::of(steps)?.median;
        let mut intervals: BTreeMap<usize, Vec<&Interval>> = BTreeMap::new();
        for interval in cell.readings.iter().flat_map(|reading| &reading.timeline) {
            let at = index(interval.at_ms / step_ms + 0.5);
            if at < INTERVALS_MAX {
                intervals.entry(at).or_default().push(interval);
            }
        }
        (!intervals.is_empty()).then_some(Self { step_ms, intervals })
    }

    /// Returns the seconds from the start to the end of the last interval.
    pub(super) fn seconds(&self) -> f64 {
        let last = self.intervals.keys().last().copied().unwrap_or(0);
        self.second(last.saturating_add(1))
    }

    /// Returns the second at which an interval begins.
    pub(super) fn second(&self, interval: usize) -> f64 {
        float_of(interval) * self.step_ms / 1e3
    }

    /// Returns the values of each interval over the runs, at the middle of the interval: second, spread.
    fn spreads(&self, value: impl Fn(&Interval) -> f64) -> Vec<(f64, Spread)> {
        let half = self.step_ms / 2e3;
        let spread = |(at, runs): (&usize, &Vec<&Interval>)| {
            let values = runs.iter().map(|interval| value(interval) / self.step_ms * 1e3);
            Some((self.second(*at) + half, Spread::of(values)?))
        };
        self.intervals.iter().filter_map(spread).collect()
    }
}

/// Returns the milliseconds between the starts of intervals. A single interval counts as a second.
fn step(reading: &Reading) -> Option<f64> {
    let starts: Vec<f64> = reading.timeline.iter().map(|interval| interval.at_ms).collect();
    starts.first()?;
    let steps = starts.iter().zip(starts.iter().skip(1)).map(|(a, b)| b - a).filter(|step| *step > 0.0);
    Some(Spread::of(steps).map_or(1e3, |spread| spread.median))
}

/// Returns the chart: a panel for each cell that has a timeline.
pub(super) fn chart(cells: &[&Cell]) -> Chart {
    let (with, without): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().copied().partition(|cell| Times::of(cell).is_some());
    let (with, too_many) = with_panels(&with);
    let mut chart = Chart::default();
    chart.remarks.extend(remark("Not drawn, as a timeline is not recorded", &without));
    chart.remarks.extend(too_many);
    let height = if with.len() > 1 { LOW } else { TALL };
    let (mut has_errors, mut has_runs, mut marks) = (false, false, Marks::default());
    for cell in with {
        let Some(times) = Times::of(cell) else { continue };
        let (answers, errors) = (times.spreads(|i| i.answered), times.spreads(|i| i.errors));
        let mut layers = Vec::new();
        let greatest: Vec<f64> = answers.iter().chain(&errors).map(|(_, spread)| spread.max).collect();
        if cell.readings.len() > 1 {
            has_runs = true;
            let band = answers.iter().map(|(at, spread)| (*at, spread.min, spread.max)).collect();
            layers.push(Layer::Band { points: band, look: Look::of(0) });
        }
        if errors.iter().any(|(_, spread)| spread.median > 0.0) {
            has_errors = true;
            let points = errors.iter().map(|(at, spread)| (*at, spread.median)).collect();
            layers.push(Layer::Line { points, look: Look::errors(), stroke: Stroke::Dashed });
        }
        let points = answers.iter().map(|(at, spread)| (*at, spread.median)).collect();
        layers.push(Layer::Line { points, look: Look::of(0), stroke: Stroke::Solid });
        layers.extend(marks.add(cell, times.seconds()));
        let x = Axis::from_zero("time (s)", [times.seconds()]);
        let y = Axis::with_room("answers (requests/s)", &greatest);
        chart.panels.push(Panel { title: cell.label(), x, y, layers, height });
    }
    chart.legend.push(Entry::new(Symbol::Line(Look::of(0), Stroke::Solid), "good answers"));
    if has_runs {
        chart.legend.push(Entry::new(Symbol::Band(Look::of(0)), "least and greatest of the runs"));
    }
    if has_errors {
        chart.legend.push(Entry::new(Symbol::Line(Look::errors(), Stroke::Dashed), "errors"));
    }
    chart.legend.append(&mut marks.legend);
    chart
}

/// The faults of all panels of a figure. Each text has one number.
#[derive(Default)]
pub(super) struct Marks {
    /// The entries of the legend.
    pub(super) legend: Vec<Entry>,
}

impl Marks {
    /// Returns the marks of the faults of a cell whose run takes so many seconds. Faults close to each other have one mark.
    pub(super) fn add(&mut self, cell: &Cell, seconds: f64) -> Vec<Layer> {
        let mut faults: Vec<(f64, String)> =
            cell.faults.iter().map(|fault| (float(fault.at_ms) / 1e3, fault.what.clone())).collect();
        faults.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        let mut groups: Vec<(f64, Vec<String>)> = Vec::new();
        for (at, what) in faults {
            let text = format!("{what} (at {} s)", without_zeros(&format!("{at:.3}")));
            match groups.last_mut() {
                Some((first, texts)) if at - *first < seconds * CLOSE => texts.push(text),
                _ => groups.push((at, vec![text])),
            }
        }
        groups
            .into_iter()
            .map(|(at, texts)| Layer::Fault { x: at, number: self.number(&texts.join("; ")) })
            .collect()
    }

    fn number(&mut self, text: &str) -> usize {
        let known = self
            .legend
            .iter()
            .position(|entry| entry.text.split_once(": ").is_some_and(|(_, old)| old == text));
        let number = known.unwrap_or(self.legend.len()).saturating_add(1);
        if known.is_none() {
            self.legend.push(Entry::new(Symbol::Fault, format!("{number}: {text}")));
        }
        number
    }
}
