//! Flame graphs as SVG, from profiles in the folded form. The outermost function is at the top.
//!
//! The width of a box is the share of its function and all functions that it calls. The title of a box, which browsers show
//! under the pointer, has its whole name and its share. There are no scripts, and the same profile gives the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Pixels of the picture.
const WIDTH: f64 = 1_600.0;
/// Pixels of a row.
const ROW: f64 = 17.0;
/// Pixels above the first row.
const HEAD: f64 = 40.0;
/// Pixels on each side.
const MARGIN: f64 = 8.0;
/// Pixels of a letter of the font.
const LETTER: f64 = 6.7;
/// Pixels below which a box is left out.
const LEAST: f64 = 0.4;
/// Rows at most.
const ROWS_MAX: usize = 160;
/// Fills of boxes. Black letters are readable on each of them.
const FILLS: [&str; 6] = ["#f6c26b", "#f2a27c", "#9cc9e8", "#a8d5a2", "#d3b8e0", "#e8d98b"];

/// A function with all stacks through it.
#[derive(Default)]
struct Node<'a> {
    weight: u64,
    calls: BTreeMap<&'a str, Self>,
}

impl<'a> Node<'a> {
    fn add(&mut self, stack: &'a str, weight: u64) {
        self.weight = self.weight.saturating_add(weight);
        let mut node = self;
        for name in stack.split(';').take(ROWS_MAX) {
            node = node.calls.entry(name).or_default();
            node.weight = node.weight.saturating_add(weight);
        }
    }

    fn rows(&self) -> usize {
        self.calls.values().map(|call| call.rows().saturating_add(1)).max().unwrap_or(0)
    }
}

/// Returns the flame graph of a profile. `unit` names the weights; a line that is no stack is left out.
#[must_use]
pub fn graph(folded: &str, title: &str, unit: &str) -> String {
    let mut root = Node::default();
    for line in folded.lines() {
        let Some((stack, weight)) = line.rsplit_once(' ') else { continue };
        if let Ok(weight) = weight.parse() {
            root.add(stack, weight);
        }
    }
    let rows = u32::try_from(root.rows()).unwrap_or(u32::MAX);
    let height = HEAD + ROW * f64::from(rows.max(1)) + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">{}: {} {}</text>\n",
        escaped(title),
        root.weight,
        escaped(unit)
    );
    let picture = Picture { total: float(root.weight).max(1.0), unit };
    picture.calls(&root, MARGIN, HEAD, &mut svg);
    svg.push_str("</svg>\n");
    svg
}

struct Picture<'a> {
    total: f64,
    unit: &'a str,
}

impl Picture<'_> {
    /// Draws the functions that a node calls, side by side.
    fn calls(&self, node: &Node<'_>, left: f64, top: f64, svg: &mut String) {
        let mut left = left;
        for (name, call) in &node.calls {
            let share = float(call.weight) / self.total;
            let width = share * (WIDTH - 2.0 * MARGIN);
            if width >= LEAST {
                self.draw(name, call, (left, top, width), svg);
                self.calls(call, left, top + ROW, svg);
            }
            left += width;
        }
    }

    fn draw(&self, name: &str, node: &Node<'_>, (left, top, width): (f64, f64, f64), svg: &mut String) {
        let percent = float(node.weight) / self.total * 100.0;
        let _ = writeln!(
            svg,
            "<g><title>{}: {percent:.2} %, {} {}</title><rect x=\"{left:.2}\" y=\"{top:.0}\" width=\"{width:.2}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"0.5\"/>{}</g>",
            escaped(name),
            node.weight,
            escaped(self.unit),
            ROW - 1.0,
            fill(name),
            label(name, left, top, width)
        );
    }
}

/// Returns the text of a box, as much of it as fits. A name that does not fit goes without its path.
fn label(name: &str, left: f64, top: f64, width: f64) -> String {
    let mut room = width - 6.0;
    let last = name.rsplit_once("::").map_or(name, |(_, last)| last);
    let fits_whole = u32::try_from(name.len()).is_ok_and(|letters| f64::from(letters) * LETTER <= room);
    let name = if fits_whole || last.contains('>') { name } else { last };
    let fits = |_: &char| {
        room -= LETTER;
        room >= 0.0
    };
    let text: String = name.chars().take_while(fits).collect();
    if text.chars().count() < 3 {
        return String::new();
    }
    format!("<text x=\"{:.2}\" y=\"{:.0}\">{}</text>", left + 3.0, top + 12.0, escaped(&text))
}

/// Returns the fill of a function: the same for all functions of a crate.
fn fill(name: &str) -> &'static str {
    let start = name.trim_start_matches(['<', '&', '(', '[']);
    let package = start.split([':', ' ', '<', '>']).next().unwrap_or_default();
    let sum = package.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let place = usize::try_from(sum).unwrap_or(0).checked_rem(FILLS.len()).unwrap_or(0);
    FILLS.get(place).copied().unwrap_or("#cccccc")
}

/// Returns a weight as a floating-point number.
#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "widths of boxes")]
fn float(weight: u64) -> f64 {
    weight as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_shares_and_names_are_escaped() {
        let svg = graph("main;a<T> 3\nmain;b 1\nmain;a<T>;c 4\nno stack\n", "replica 0 & more", "samples");
        assert!(svg.contains("replica 0 &amp; more: 8 samples"), "{svg}");
        assert!(svg.contains("<title>a&lt;T&gt;: 87.50 %, 7 samples</title>"), "{svg}");
        let width = WIDTH - 2.0 * MARGIN;
        for (name, share) in [("main", 1.0), ("a&lt;T&gt;", 0.875), ("b", 0.125), ("c", 0.5)] {
            let line = svg.lines().find(|line| line.contains(&format!("<title>{name}:"))).unwrap();
            assert!(line.contains(&format!("width=\"{:.2}\"", share * width)), "{line}");
        }
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(label("a::long::path::turn", 0.0, 0.0, 40.0).contains(">turn<"));
        assert!(label("a::b<c::d>", 0.0, 0.0, 40.0).contains(">a::b&lt;<"));
    }

    #[test]
    fn narrow_boxes_and_empty_profiles_are_pictures_too() {
        let svg = graph("main;rare 1\nmain;usual 100000\n", "t", "allocations");
        assert!(svg.contains("usual") && !svg.contains("rare"), "{svg}");
        assert!(graph("", "t", "samples").ends_with("</svg>\n"));
    }
}
