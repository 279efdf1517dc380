//! The legend: rows below all panels, so that no entry hides data.

use super::super::numbers::{float, pixel, short};
use super::draw::{Area, Failure, draw_line, draw_marker, draw_whisker, write};
use super::palette::{FAULT, heat};
use super::{Chart, ColourBar, Fill, LEFT, Look, Stroke, Symbol, TEXT, Width, lines, shortened, text_width};
use plotters::element::{DashedPathElement, PathElement, Rectangle};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor};

/// Pixels of a row.
const ROW: u32 = 22;
/// Pixels of a symbol, and between an entry and the next one.
const SYMBOL: f64 = 38.0;
const GAP: f64 = 20.0;
/// Pixels of the scale of colours: its height with labels, and its width at most.
const BAR_HEIGHT: u32 = 62;
const BAR_WIDTH: i32 = 420;
/// Steps of the scale of colours.
const BAR_STEPS: i32 = 70;

/// The rows of a legend.
pub(super) struct Rows<'a> {
    rows: Vec<Vec<Item>>,
    bar: Option<&'a ColourBar>,
    width: Width,
}

/// A symbol with a text, or a further line of a text.
struct Item {
    across: f64,
    symbol: Symbol,
    text: String,
}

impl<'a> Rows<'a> {
    /// Divides the entries of a chart into rows. A text without room in one row has several.
    pub(super) fn of(chart: &'a Chart) -> Self {
        let mut rows: Vec<Vec<Item>> = Vec::new();
        let (mut used, mut last) = (f64::INFINITY, None);
        for entry in &chart.legend {
            let symbol = symbol_width(entry.symbol);
            let width = symbol + text_width(&entry.text) + GAP;
            let begins_texts = entry.symbol == Symbol::Text && last.is_some_and(|last| last != Symbol::Text);
            if used + width > chart.width.room() + GAP || begins_texts {
                rows.push(Vec::new());
                used = 0.0;
            }
            last = Some(entry.symbol);
            for (i, text) in lines(&entry.text, chart.width.room() - symbol).into_iter().enumerate() {
                let item = if i == 0 {
                    Item { across: used, symbol: entry.symbol, text }
                } else {
                    rows.push(Vec::new());
                    Item { across: symbol, symbol: Symbol::Text, text }
                };
                if let Some(row) = rows.last_mut() {
                    row.push(item);
                }
            }
            used += width;
        }
        Self { rows, bar: chart.colour_bar.as_ref(), width: chart.width }
    }

    /// Returns the pixels of the height.
    pub(super) fn height(&self) -> u32 {
        let rows = u32::try_from(self.rows.len()).unwrap_or(0).saturating_mul(ROW);
        let bar = if self.bar.is_some() { BAR_HEIGHT } else { 0 };
        rows.saturating_add(bar).saturating_add(14)
    }

    /// Draws the legend from this pixel on downwards.
    pub(super) fn draw(&self, root: &Area<'_>, top: i32) -> Result<(), Failure> {
        let mut middle = top.saturating_add(14);
        if let Some(bar) = self.bar {
            draw_bar(root, bar, self.width, top)?;
            middle = middle.saturating_add(i32::try_from(BAR_HEIGHT).unwrap_or(0));
        }
        for row in &self.rows {
            for item in row {
                draw_item(root, item, middle)?;
            }
            middle = middle.saturating_add(i32::try_from(ROW).unwrap_or(0));
        }
        Ok(())
    }
}

fn symbol_width(symbol: Symbol) -> f64 {
    if symbol == Symbol::Text { 0.0 } else { SYMBOL }
}

fn draw_item(root: &Area<'_>, item: &Item, middle: i32) -> Result<(), Failure> {
    let left = pixel(f64::from(LEFT) + item.across);
    let (right, centre) = (left.saturating_add(30), left.saturating_add(15));
    let line = || vec![(left, middle), (right, middle)];
    let (above, below) = (middle.saturating_sub(7), middle.saturating_add(7));
    match item.symbol {
        Symbol::Series(look) => {
            draw_line(root, line(), look, Stroke::Solid)?;
            draw_marker(root, (centre, middle), look, Fill::Full)?;
        }
        Symbol::Line(look, stroke) => draw_line(root, line(), look, stroke)?,
        Symbol::Bar(look) => {
            let corners = [(left, above), (centre, below)];
            root.draw(&Rectangle::new(corners, look.colour().filled()))?;
            draw_marker(root, (right.saturating_sub(4), middle), look, Fill::Full)?;
        }
        Symbol::Hollow => draw_marker(root, (centre, middle), Look::of(6), Fill::Hollow)?,
        Symbol::Whisker => draw_whisker(root, (centre, above), (centre, below))?,
        Symbol::Band(look) => {
            root.draw(&Rectangle::new([(left, above), (right, below)], look.colour().mix(0.22).filled()))?;
        }
        Symbol::Fault => {
            let path = vec![(centre, above), (centre, below)];
            root.draw(&DashedPathElement::new(path, 6, 3, FAULT.stroke_width(2)))?;
        }
        Symbol::Text => {}
    }
    let text_left = pixel(f64::from(left) + symbol_width(item.symbol));
    write(root, &item.text, (text_left, middle), TEXT, HPos::Left)
}

fn draw_bar(root: &Area<'_>, bar: &ColourBar, width: Width, top: i32) -> Result<(), Failure> {
    let length = i32::try_from(width.plot()).unwrap_or(BAR_WIDTH).min(BAR_WIDTH);
    let left = i32::try_from(LEFT).unwrap_or(0);
    let at = |step: i32| left.saturating_add(step.saturating_mul(length).checked_div(BAR_STEPS).unwrap_or(0));
    let (above, below) = (top.saturating_add(24), top.saturating_add(38));
    write(root, &shortened(&bar.name, width.room()), (left, top.saturating_add(12)), TEXT, HPos::Left)?;
    for step in 0..BAR_STEPS {
        let (r, g, b) = heat(f64::from(step) / f64::from(BAR_STEPS.saturating_sub(1)));
        let corners = [(at(step), above), (at(step.saturating_add(1)), below)];
        root.draw(&Rectangle::new(corners, RGBColor(r, g, b).filled()))?;
    }
    let mut free = i32::MIN;
    for count in ticks(bar) {
        let across = pixel(f64::from(left) + bar.place(count) * f64::from(length));
        let text = short(count);
        let half = pixel(text_width(&text) / 2.0).saturating_add(6);
        if across.saturating_sub(half) < free {
            continue;
        }
        free = across.saturating_add(half);
        let tick = vec![(across, below), (across, below.saturating_add(4))];
        root.draw(&PathElement::new(tick, super::palette::INK.mix(0.6)))?;
        write(root, &text, (across, below.saturating_add(13)), TEXT, HPos::Center)?;
    }
    Ok(())
}

/// Returns the counts that the scale of colours names: powers of ten, or the greatest count of a short scale.
fn ticks(bar: &ColourBar) -> Vec<f64> {
    let powers = (-3..=15).map(|power| 10f64.powi(power));
    let inside: Vec<f64> = powers.filter(|count| *count >= bar.low && *count <= bar.high).collect();
    if inside.len() >= 2 {
        return inside;
    }
    let mut ends = vec![bar.low, bar.high.max(float(0))];
    ends.dedup();
    ends
}
