//! Charts as data, and their drawing as SVG: panels below each other, and a legend below all panels.

mod axis;
mod draw;
mod legend;
mod palette;
mod svg;

pub(super) use axis::Axis;
pub(super) use draw::render;
pub(super) use palette::{Look, heat};
pub(super) use svg::{for_page, for_picture};

/// Pixels to the left of a plot: the labels of the y axis.
const LEFT: u32 = 76;
/// Pixels to the right of a plot.
const RIGHT: u32 = 24;

/// The width of a chart. A page shows the one that fits its window, and the text has the same size in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Width {
    /// For windows of usual width, and for pictures.
    #[default]
    Wide,
    /// For telephones.
    Narrow,
}

impl Width {
    /// Returns the pixels of the chart.
    const fn pixels(self) -> u32 {
        match self {
            Self::Wide => 800,
            Self::Narrow => 420,
        }
    }

    /// Returns the pixels of a plot.
    pub(super) const fn plot(self) -> u32 {
        self.pixels().saturating_sub(LEFT).saturating_sub(RIGHT)
    }

    /// Returns the pixels of a plot as a length.
    pub(super) fn room(self) -> f64 {
        f64::from(self.plot())
    }
}
/// Pixels of the text of labels and legends.
const TEXT: f64 = 12.5;
/// Pixels of a character on average. The font of pictures is wider than most others, so estimates suffice for them.
const CHARACTER: f64 = 7.6;

/// A chart.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Chart {
    /// The width.
    pub(super) width: Width,
    /// The title.
    pub(super) title: String,
    /// Panels, from top to bottom.
    pub(super) panels: Vec<Panel>,
    /// Entries of the legend.
    pub(super) legend: Vec<Entry>,
    /// The colours of patches.
    pub(super) colour_bar: Option<ColourBar>,
    /// Remarks for the text below the chart: the parts that are not drawn, and the reasons.
    pub(super) remarks: Vec<String>,
}

/// A plot with two axes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Panel {
    /// The title; empty: none.
    pub(super) title: String,
    /// The axis along x.
    pub(super) x: Axis,
    /// The axis along y.
    pub(super) y: Axis,
    /// The shapes, the lowest first.
    pub(super) layers: Vec<Layer>,
    /// Pixels of the height.
    pub(super) height: u32,
}

/// The strength of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stroke {
    /// A strong line.
    Solid,
    /// A fainter line of dashes.
    Dashed,
}

/// The inside of a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    /// A marker of one colour.
    Full,
    /// A marker with an empty inside: the load was not carried.
    Hollow,
    /// A small, fainter marker of one colour.
    Small,
}

/// A shape of a panel, in values of the axes.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Layer {
    /// A line through points.
    Line { points: Vec<(f64, f64)>, look: Look, stroke: Stroke },
    /// The area between the least and the greatest value: x, least, greatest.
    Band { points: Vec<(f64, f64, f64)>, look: Look },
    /// A marker.
    Point { at: (f64, f64), look: Look, fill: Fill },
    /// A marker above a value.
    Above { at: (f64, f64), look: Look, fill: Fill },
    /// The least and the greatest value along y.
    Whisker { x: f64, y: (f64, f64) },
    /// The least and the greatest value along x.
    Span { x: (f64, f64), y: f64 },
    /// A bar from 0 on.
    Bar { x: (f64, f64), top: f64, look: Look },
    /// A rectangle of this colour.
    Patch { x: (f64, f64), y: (f64, f64), rgb: (u8, u8, u8) },
    /// A dark ground under all patches, in light and dark surroundings.
    Ground,
    /// A fault: a line from bottom to top with its number.
    Fault { x: f64, number: usize },
    /// A text in the middle of a panel without data.
    Empty(String),
}

/// A symbol of the legend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Symbol {
    /// A line with markers.
    Series(Look),
    /// A line of this strength, without markers.
    Line(Look, Stroke),
    /// A bar.
    Bar(Look),
    /// A hollow marker.
    Hollow,
    /// Whiskers.
    Whisker,
    /// A band between the least and the greatest value.
    Band(Look),
    /// The line of a fault.
    Fault,
    /// No symbol.
    Text,
}

/// An entry of the legend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// The symbol.
    pub(super) symbol: Symbol,
    /// The text.
    pub(super) text: String,
}

impl Entry {
    /// Returns an entry.
    pub(super) fn new(symbol: Symbol, text: impl Into<String>) -> Self {
        Self { symbol, text: text.into() }
    }
}

/// The scale of the colours of patches: logarithmic, from the least to the greatest count.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ColourBar {
    /// The meaning of a colour, with its unit.
    pub(super) name: String,
    /// The least count, above 0.
    pub(super) low: f64,
    /// The greatest count.
    pub(super) high: f64,
}

impl ColourBar {
    /// Returns the place of a count on the scale, from 0 to 1.
    pub(super) fn place(&self, count: f64) -> f64 {
        let (low, high) = (self.low.max(f64::MIN_POSITIVE).ln(), self.high.max(f64::MIN_POSITIVE).ln());
        if high > low {
            ((count.max(f64::MIN_POSITIVE).ln() - low) / (high - low)).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }
}

/// Returns the pixels of a text's width, estimated.
fn text_width(text: &str) -> f64 {
    super::numbers::float_of(text.chars().count()) * CHARACTER
}

/// Returns a text of at most this width, with an ellipsis in place of its end.
fn shortened(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let room = super::numbers::index((width / CHARACTER - 1.0).max(0.0));
    text.chars().take(room).chain(std::iter::once('…')).collect()
}

/// Returns the lines of a text that has to fit a width. A word longer than a line is cut.
fn lines(text: &str, width: f64) -> Vec<String> {
    let room = super::numbers::index(width / CHARACTER).max(1);
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let Some(line) = lines.last_mut() else { break };
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used.saturating_add(gap).saturating_add(rest.len()) <= room {
                line.extend(std::iter::repeat_n(' ', gap).chain(rest.drain(..)));
            } else if used > 0 {
                lines.push(String::new());
            } else {
                line.extend(rest.drain(..room.min(rest.len())));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests;
