//! Axes: their range, their scale and their ticks. All three depend on the values alone.

use super::super::numbers::{float_of, index, pixel, short};
use super::text_width;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// The factor between the least and the greatest value from which on an axis of measured values is logarithmic.
const LOG_FACTOR: f64 = 50.0;
/// The same factor for values that an experiment has chosen.
const CHOSEN_LOG_FACTOR: f64 = 20.0;
/// The upper end of an axis with room above its values, for a greatest value of 1.
const ROOM: f64 = 1.09;
/// Pixels between the labels of two ticks.
const GAP: f64 = 12.0;
/// Decades of a logarithmic axis below its greatest value, at most.
const DECADES_MAX: i32 = 18;

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scale {
    Linear,
    Logarithmic,
    /// Names at equal distances, at 0, 1, 2 and so on.
    Names,
}

/// An axis.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::report) struct Axis {
    name: String,
    scale: Scale,
    low: f64,
    high: f64,
    /// Ticks with labels.
    labelled: Vec<(f64, String)>,
    /// Ticks without.
    minor: Vec<f64>,
}

impl Axis {
    /// Returns a linear axis from 0 on that contains all values.
    pub(in crate::report) fn from_zero(name: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let greatest = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if greatest > 0.0 { greatest } else { 1.0 };
        let mut axis = Self::bare(name, Scale::Linear, 0.0, high);
        axis.put_even_ticks(5.0);
        axis.high = axis.labelled.last().map_or(high, |(value, _)| *value);
        axis
    }

    /// Returns an axis of measured values: from 0 on, or logarithmic where they differ by a large factor.
    pub(in crate::report) fn measured(name: &str, values: &[f64]) -> Self {
        if differ(values, LOG_FACTOR) {
            Self::logarithmic(name, values)
        } else {
            Self::with_room(name, values)
        }
    }

    /// Returns a linear axis from 0 on with room above the greatest value, for markers.
    pub(in crate::report) fn with_room(name: &str, values: &[f64]) -> Self {
        let mut axis = Self::from_zero(name, values.iter().copied());
        let greatest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
        axis.high = axis.high.max(greatest * ROOM);
        axis
    }

    /// Returns a logarithmic axis that contains all values above 0.
    pub(in crate::report) fn logarithmic(name: &str, values: &[f64]) -> Self {
        let (least, greatest) =
            range_of(values.iter().copied().filter(|value| *value > 0.0)).unwrap_or((1.0, 10.0));
        let least = least.max(greatest / 10f64.powi(DECADES_MAX)).max(1e-12);
        let mut axis = Self::bare(&format!("{name}, log scale"), Scale::Logarithmic, least, greatest);
        let (first, last) = (power_below(least), power_below(greatest).saturating_add(1));
        let marks: Vec<f64> =
            (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power))).collect();
        let round = 1.0 + 1e-9;
        axis.low = marks.iter().copied().filter(|mark| *mark <= least * round).fold(least / 10.0, f64::max);
        axis.high = marks
            .iter()
            .copied()
            .find(|mark| *mark * round >= greatest && *mark > axis.low)
            .unwrap_or(greatest * 10.0);
        axis.put_decades(first, last);
        axis
    }

    /// Returns an axis of values that the experiment has chosen, with ticks at the values where the labels have room.
    pub(in crate::report) fn chosen(name: &str, values: &[f64], length: f64) -> Self {
        let Some((least, greatest)) = range_of(values.iter().copied()) else {
            return Self::from_zero(name, []);
        };
        let mut axis = if differ(values, CHOSEN_LOG_FACTOR) {
            let edge = (greatest / least).powf(0.06);
            Self { low: least / edge, high: greatest * edge, ..Self::logarithmic(name, values) }
        } else {
            let edge =
                if greatest > least { (greatest - least) * 0.06 } else { greatest.abs().max(1.0) * 0.5 };
            let mut axis = Self::bare(name, Scale::Linear, least - edge, greatest + edge);
            axis.put_even_ticks(6.0);
            axis
        };
        let mut ticks = values.to_vec();
        ticks.retain(|value| value.is_finite());
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let ticks: Vec<(f64, String)> = ticks.into_iter().map(|value| (value, short(value))).collect();
        if axis.have_room(&ticks, length) {
            axis.labelled = ticks;
            axis.minor.clear();
        }
        axis
    }

    /// Returns an axis of names at equal distances. Names without room become numbers, and the second part of the result
    /// explains each.
    pub(in crate::report) fn names(name: &str, names: &[String], length: f64) -> (Self, Vec<String>) {
        let room = length / float_of(names.len().max(1)) - GAP;
        let fit = names.iter().all(|name| text_width(name) <= room);
        let number = |i: usize| i.saturating_add(1).to_string();
        let label = |(i, name): (usize, &String)| (float_of(i), if fit { name.clone() } else { number(i) });
        let mut axis = Self::bare(name, Scale::Names, -0.5, float_of(names.len().max(1)) - 0.5);
        axis.labelled = names.iter().enumerate().map(label).collect();
        let explain = |(i, name): (usize, &String)| format!("{}: {name}", number(i));
        (axis, if fit { Vec::new() } else { names.iter().enumerate().map(explain).collect() })
    }

    fn bare(name: &str, scale: Scale, low: f64, high: f64) -> Self {
        Self { name: name.to_owned(), scale, low, high, labelled: Vec::new(), minor: Vec::new() }
    }

    /// Returns the name with its unit.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the axis has names in place of numbers.
    pub(super) fn has_names(&self) -> bool {
        self.scale == Scale::Names
    }

    /// Whether the axis has a place for a value.
    pub(super) fn has(&self, value: f64) -> bool {
        value.is_finite() && (self.scale != Scale::Logarithmic || value > 0.0)
    }

    /// Returns the place of a value, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let (low, high, value) = match self.scale {
            Scale::Logarithmic => (self.low.ln(), self.high.ln(), value.max(self.low).ln()),
            Scale::Linear | Scale::Names => (self.low, self.high, value),
        };
        let place = (value - low) / (high - low);
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Labels about so many multiples of a round number. The first is at the lower end or above it, and the last is at the
    /// upper end or above it, if the lower end is 0.
    fn put_even_ticks(&mut self, count: f64) {
        let step = round_step((self.high - self.low) / count);
        let (first, last) = ((self.low / step).ceil(), (self.high / step));
        let last = if self.low == 0.0 { (last - 1e-9).ceil() } else { last.floor() };
        let steps = index((last - first).clamp(0.0, 50.0));
        let tick = |i: usize| (first + float_of(i)) * step;
        self.labelled = (0..=steps).map(|i| (tick(i), short(tick(i)))).collect();
    }

    /// Labels powers of ten; of a short range also twice and five times these, of a long one only some.
    fn put_decades(&mut self, first: i32, last: i32) {
        let decades = (self.high / self.low).log10();
        let every = pixel((decades / 8.0).ceil()).max(1);
        let is_inside = |value: f64| value >= self.low * (1.0 - 1e-9) && value <= self.high * (1.0 + 1e-9);
        let digits: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (mut labelled, mut minor) = (Vec::new(), Vec::new());
        for power in first..=last {
            let of = |digit: f64| digit * 10f64.powi(power);
            if power.rem_euclid(every) == 0 {
                labelled.extend(digits.iter().map(|digit| of(*digit)).filter(|value| is_inside(*value)));
            }
            if every == 1 {
                minor.extend((1..10).map(|digit| of(f64::from(digit))).filter(|value| is_inside(*value)));
            }
        }
        self.labelled = labelled.into_iter().map(|value| (value, short(value))).collect();
        self.minor = minor;
    }

    /// Whether no label of these ticks touches another one on an axis of so many pixels.
    fn have_room(&self, ticks: &[(f64, String)], length: f64) -> bool {
        ticks.iter().zip(ticks.iter().skip(1)).all(|((a, text_a), (b, text_b))| {
            let distance = (self.place(*b) - self.place(*a)) * length;
            distance >= (text_width(text_a) + text_width(text_b)) / 2.0 + GAP
        })
    }
}

/// Returns the least and the greatest of the finite values.
fn range_of(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    let greatest = values.iter().copied().reduce(f64::max)?;
    Some((values.into_iter().reduce(f64::min)?, greatest))
}

/// Whether all values are above 0 and the greatest is the least times this factor, or more.
fn differ(values: &[f64], factor: f64) -> bool {
    range_of(values.iter().copied())
        .is_some_and(|(least, greatest)| least > 0.0 && greatest >= least * factor)
}

fn power_below(value: f64) -> i32 {
    pixel((value.log10() + 1e-9).floor())
}

/// Returns the round number at or above a step: 1, 2, 2.5 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    if !step.is_finite() || step <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powi(power_below(step));
    let digits = [1.0, 2.0, 2.5, 5.0, 10.0];
    power * digits.into_iter().find(|digit| digit * power >= step * (1.0 - 1e-9)).unwrap_or(10.0)
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (from, to) = (f64::from(limit.0), f64::from(limit.1));
        pixel(from + (to - from) * self.place(*value))
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return self.minor.clone();
        }
        self.labelled.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let label = self.labelled.iter().find(|(tick, _)| tick == value);
        label.map_or_else(|| short(*value), |(_, text)| text.clone())
    }
}
