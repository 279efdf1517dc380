//! SVG texts for pages and for pictures.

use super::palette::{INK, PAPER};
use plotters::style::RGBColor;

/// Returns the SVG for a page: it takes the colours of the page, grows and shrinks with it, and has a name for readers
/// that cannot see it.
pub(in crate::report) fn for_page(svg: &str, name: &str) -> String {
    let ink = format!("\"{}\"", hex(INK));
    let paper = format!("\"{}\"", hex(PAPER));
    let lean = lean(svg).replace(&ink, "\"currentColor\"").replace(&paper, "\"var(--paper)\"");
    let (head, body) = lean.split_once('>').unwrap_or(("", &lean));
    let view = head.find("viewBox").and_then(|at| head.get(at..)).unwrap_or_default();
    format!("<svg class=\"chart\" role=\"img\" aria-label=\"{}\" {view}>{body}", escaped(name))
}

/// Returns the SVG for a picture on white ground.
pub(in crate::report) fn for_picture(svg: &str) -> String {
    lean(svg)
}

/// Removes attributes that have their default value.
fn lean(svg: &str) -> String {
    svg.replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace(" dy=\"0.5ex\"", " dy=\"0.36em\"")
}

fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
