//! Colours that people with any colour vision tell apart, also on dark ground, and markers that need no colour.

use super::super::numbers::{float_of, index, pixel};
use plotters::style::RGBColor;

/// Text, axes and grid. A page replaces it with the colour of its text.
pub(super) const INK: RGBColor = RGBColor(0x17, 0x19, 0x1c);
/// The inside of hollow markers. A page replaces it with the colour of its ground.
pub(super) const PAPER: RGBColor = RGBColor(0xfd, 0xfd, 0xfe);
/// The ground under patches.
pub(super) const GROUND: RGBColor = RGBColor(0x16, 0x1a, 0x22);
/// The lines of faults: visible on light, dark and coloured ground.
pub(super) const FAULT: RGBColor = RGBColor(0xe0, 0x40, 0x2c);

/// The palette of Okabe and Ito, without black, which a dark page hides, and without yellow, which a light page hides.
const SERIES: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x80, 0x80, 0x80),
];

/// Colours of counts, from few to many. Lightness grows all the way, so the order is visible without colour.
const HEAT: [(u8, u8, u8); 6] = [
    (0x3d, 0x3a, 0x7c),
    (0x2f, 0x66, 0x9a),
    (0x1f, 0x93, 0x93),
    (0x4d, 0xbd, 0x70),
    (0xb4, 0xd9, 0x45),
    (0xfd, 0xf0, 0x6a),
];

/// The shape of a marker. All shapes can be hollow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// A circle.
    Circle,
    /// A closed path through these pixels around its centre.
    Path(&'static [(i32, i32)]),
}

/// The shapes. Their number has no common divisor with that of the colours, so 42 series differ in one of the two.
const SHAPES: [Shape; 6] = [
    Shape::Circle,
    Shape::Path(&[(-4, -4), (4, -4), (4, 4), (-4, 4)]),
    Shape::Path(&[(0, -6), (5, 4), (-5, 4)]),
    Shape::Path(&[(0, -6), (6, 0), (0, 6), (-6, 0)]),
    Shape::Path(&[(0, 6), (5, -4), (-5, -4)]),
    Shape::Path(&[(-6, 0), (-3, -5), (3, -5), (6, 0), (3, 5), (-3, 5)]),
];

/// The colour and the marker of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::report) struct Look(usize);

impl Look {
    /// Returns the look of the series with this number.
    pub(in crate::report) fn of(series: usize) -> Self {
        Self(series)
    }

    /// Returns the look of errors: the colour of the fourth series.
    pub(in crate::report) fn errors() -> Self {
        Self(3)
    }

    pub(super) fn colour(self) -> RGBColor {
        let place = self.0.checked_rem(SERIES.len()).unwrap_or(0);
        SERIES.get(place).copied().unwrap_or(INK)
    }

    pub(super) fn shape(self) -> Shape {
        let place = self.0.checked_rem(SHAPES.len()).unwrap_or(0);
        SHAPES.get(place).copied().unwrap_or(Shape::Circle)
    }
}

/// Returns the colour of a place between 0 and 1 on the scale of counts.
pub(in crate::report) fn heat(place: f64) -> (u8, u8, u8) {
    let steps = float_of(HEAT.len().saturating_sub(1));
    let place = if place.is_finite() { place.clamp(0.0, 1.0) * steps } else { 0.0 };
    let below = index(place).min(HEAT.len().saturating_sub(2));
    let part = place - float_of(below);
    let (Some(low), Some(high)) = (HEAT.get(below), HEAT.get(below.saturating_add(1))) else {
        return (0, 0, 0);
    };
    let mix = |a: u8, b: u8| {
        let mixed = pixel(f64::from(a) + (f64::from(b) - f64::from(a)) * part);
        u8::try_from(mixed).unwrap_or(u8::MAX)
    };
    (mix(low.0, high.0), mix(low.1, high.1), mix(low.2, high.2))
}
