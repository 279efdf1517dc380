//! The drawing of a chart.

use super::super::ReportError;
use super::legend::Rows;
use super::palette::{FAULT, GROUND, INK, PAPER, Shape};
use super::{Axis, Chart, Fill, LEFT, Layer, Look, Panel, RIGHT, Stroke, TEXT, Width, lines, shortened};
use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, TextStyle};

/// Pixels around the title of a chart, and of a line of it.
const TITLE: u32 = 18;
const TITLE_LINE: u32 = 22;
/// Pixels of the text of a title.
const TITLE_TEXT: f64 = 16.0;
/// Pixels below the title of a panel, and of a line of it.
const PANEL_TITLE: u32 = 6;
const PANEL_TITLE_LINE: u32 = 18;
/// Pixels of the numbers of faults above a plot.
const FAULT_NUMBERS: u32 = 15;
/// Pixels of the name of the y axis above a plot.
const Y_NAME: u32 = 30;
/// Pixels from the left end of a plot to the left end of the name of its y axis.
const Y_NAME_LEFT: i32 = 60;
/// Pixels below a plot: the labels and the name of the x axis, and a gap.
const BELOW: u32 = 56;
/// Pixels from a plot down to the middle of the name of its x axis.
const X_NAME: i32 = 32;
/// Pixels from a value to the marker above it.
const LIFT: i32 = 12;
/// Pixels of half the cap of a whisker.
const CAP: i32 = 4;

/// The whole picture, in pixels.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;
/// The error of a drawing. A drawing into memory has none, but the library cannot know.
pub(super) type Failure = DrawingAreaErrorKind<std::io::Error>;

/// Draws a chart as SVG: dark ink on no ground.
pub(in crate::report) fn render(chart: &Chart) -> Result<String, ReportError> {
    let rows = Rows::of(chart);
    let panels = chart.panels.iter().map(|panel| panel_height(panel, chart.width));
    let height = panels.fold(title_height(chart).saturating_add(rows.height()), u32::saturating_add);
    let mut svg = String::new();
    let drawn = draw(
        chart,
        &rows,
        &SVGBackend::with_string(&mut svg, (chart.width.pixels(), height)).into_drawing_area(),
    );
    drawn.map_err(|error| ReportError::Draw { chart: chart.title.clone(), why: error.to_string() })?;
    Ok(svg)
}

fn title_lines(chart: &Chart) -> Vec<String> {
    lines(&chart.title, chart.width.room() * TEXT / TITLE_TEXT)
}

fn title_height(chart: &Chart) -> u32 {
    height_of(&title_lines(chart), TITLE, TITLE_LINE)
}

fn panel_title(panel: &Panel, width: Width) -> Vec<String> {
    if panel.title.is_empty() { Vec::new() } else { lines(&panel.title, width.room()) }
}

fn panel_title_height(panel: &Panel, width: Width) -> u32 {
    let lines = panel_title(panel, width);
    if lines.is_empty() { 0 } else { height_of(&lines, PANEL_TITLE, PANEL_TITLE_LINE) }
}

/// Returns the pixels of so many lines with so many pixels around them.
fn height_of(lines: &[String], around: u32, line: u32) -> u32 {
    u32::try_from(lines.len()).unwrap_or(0).saturating_mul(line).saturating_add(around)
}

/// Writes lines above each other, from the left end of the plot on.
fn write_lines(area: &Area<'_>, lines: &[String], around: u32, line: u32, size: f64) -> Result<(), Failure> {
    let left = i32::try_from(LEFT).unwrap_or(0);
    let mut middle = around.midpoint(line);
    for text in lines {
        write(area, text, (left, i32::try_from(middle).unwrap_or(0)), size, HPos::Left)?;
        middle = middle.saturating_add(line);
    }
    Ok(())
}

/// Returns the pixels above a plot: its title, the name of the y axis, and the numbers of faults.
fn above(panel: &Panel, width: Width) -> u32 {
    let has_faults = panel.layers.iter().any(|layer| matches!(layer, Layer::Fault { .. }));
    let faults = if has_faults { FAULT_NUMBERS } else { 0 };
    panel_title_height(panel, width).saturating_add(Y_NAME).saturating_add(faults)
}

fn panel_height(panel: &Panel, width: Width) -> u32 {
    panel.height.saturating_add(BELOW).saturating_add(above(panel, width))
}

fn draw(chart: &Chart, rows: &Rows, root: &Area<'_>) -> Result<(), Failure> {
    write_lines(root, &title_lines(chart), TITLE, TITLE_LINE, TITLE_TEXT)?;
    let mut top = title_height(chart);
    for panel in &chart.panels {
        let height = panel_height(panel, chart.width);
        let area = root.clone().shrink((0, top), (chart.width.pixels(), height));
        draw_panel(panel, chart.width, &area, root)?;
        top = top.saturating_add(height);
    }
    rows.draw(root, i32::try_from(top).unwrap_or(i32::MAX))?;
    root.present()
}

/// Returns the style of a text in ink.
pub(super) fn text_style(size: f64, across: HPos) -> TextStyle<'static> {
    // The backend divides sizes by 1.24.
    TextStyle::from(("sans-serif", size * 1.24).into_font()).color(&INK).pos(Pos::new(across, VPos::Center))
}

/// Writes a text whose middle line is at this height.
pub(super) fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: f64,
    across: HPos,
) -> Result<(), Failure> {
    // Control characters are not allowed in SVG.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    area.draw(&Text::new(text, at, text_style(size, across)))
}

fn draw_panel(panel: &Panel, width: Width, area: &Area<'_>, root: &Area<'_>) -> Result<(), Failure> {
    draw_names(panel, width, area)?;
    let mut plot: Plot<'_> = ChartBuilder::on(area)
        .margin_top(above(panel, width))
        .margin_right(RIGHT)
        .x_label_area_size(BELOW)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(panel.x.clone(), panel.y.clone())?;
    let is_ground = |layer: &&Layer| matches!(layer, Layer::Ground);
    for layer in panel.layers.iter().filter(is_ground) {
        draw_layer(layer, panel, &plot, root)?;
    }
    let mut mesh = plot.configure_mesh();
    if panel.x.has_names() {
        mesh.disable_x_mesh();
    }
    mesh.bold_line_style(INK.mix(0.16))
        .light_line_style(INK.mix(0.06))
        .axis_style(INK.mix(0.55))
        .set_all_tick_mark_size(4)
        .x_label_style(text_style(TEXT, HPos::Center))
        .y_label_style(text_style(TEXT, HPos::Right))
        .draw()?;
    for layer in panel.layers.iter().filter(|layer| !is_ground(layer)) {
        draw_layer(layer, panel, &plot, root)?;
    }
    Ok(())
}

/// Writes the title of a panel and the names of its axes. Names of y axes are horizontal: they need not fit a height.
fn draw_names(panel: &Panel, width: Width, area: &Area<'_>) -> Result<(), Failure> {
    let left = i32::try_from(LEFT).unwrap_or(0);
    let room = width.room();
    write_lines(area, &panel_title(panel, width), PANEL_TITLE, PANEL_TITLE_LINE, TEXT)?;
    let middle = i32::try_from(panel_title_height(panel, width)).unwrap_or(0).saturating_add(12);
    let y_name = shortened(panel.y.name(), room + f64::from(Y_NAME_LEFT));
    write(area, &y_name, (left.saturating_sub(Y_NAME_LEFT), middle), TEXT, HPos::Left)?;
    let plot_end = i32::try_from(above(panel, width).saturating_add(panel.height)).unwrap_or(0);
    let centre = left.saturating_add(i32::try_from(width.plot() / 2).unwrap_or(0));
    write(
        area,
        &shortened(panel.x.name(), room + f64::from(RIGHT) * 2.0),
        (centre, plot_end.saturating_add(X_NAME)),
        TEXT,
        HPos::Center,
    )
}

fn draw_layer(layer: &Layer, panel: &Panel, plot: &Plot<'_>, root: &Area<'_>) -> Result<(), Failure> {
    let has = |(x, y): &(f64, f64)| panel.x.has(*x) && panel.y.has(*y);
    let place = |at: (f64, f64)| plot.backend_coord(&at);
    match layer {
        Layer::Line { points, look, stroke } => {
            let points: Vec<(i32, i32)> = points.iter().copied().filter(has).map(place).collect();
            draw_line(root, points, *look, *stroke)
        }
        Layer::Band { points, look } => {
            let upper = points.iter().map(|(x, _, high)| (*x, *high));
            let lower = points.iter().rev().map(|(x, low, _)| (*x, *low));
            let edge: Vec<(i32, i32)> = upper.chain(lower).filter(has).map(place).collect();
            if edge.len() < 3 { Ok(()) } else { root.draw(&Polygon::new(edge, look.colour().mix(0.22))) }
        }
        Layer::Point { at, look, fill } if has(at) => draw_marker(root, place(*at), *look, *fill),
        Layer::Above { at, look, fill } if has(at) => {
            let (across, down) = place(*at);
            draw_marker(root, (across, down.saturating_sub(LIFT)), *look, *fill)
        }
        Layer::Whisker { x, y } if has(&(*x, y.0)) && has(&(*x, y.1)) => {
            draw_whisker(root, place((*x, y.0)), place((*x, y.1)))
        }
        Layer::Span { x, y } if has(&(x.0, *y)) && has(&(x.1, *y)) => {
            draw_whisker(root, place((x.0, *y)), place((x.1, *y)))
        }
        Layer::Bar { x, top, look } if has(&(x.0, *top)) => {
            rectangle(root, place((x.0, 0.0)), place((x.1, *top)), look.colour())
        }
        Layer::Patch { x, y, rgb } if has(&(x.0, y.0)) && has(&(x.1, y.1)) => {
            rectangle(root, place((x.0, y.0)), place((x.1, y.1)), RGBColor(rgb.0, rgb.1, rgb.2))
        }
        Layer::Ground => {
            let (across, down) = plot.plotting_area().get_pixel_range();
            rectangle(root, (across.start, down.end), (across.end, down.start), GROUND)
        }
        Layer::Fault { x, number } if panel.x.has(*x) => draw_fault(plot, root, *x, *number),
        Layer::Empty(text) => {
            let (across, down) = plot.plotting_area().get_pixel_range();
            let middle = |range: &std::ops::Range<i32>| range.start.midpoint(range.end);
            write(root, text, (middle(&across), middle(&down)), TEXT, HPos::Center)
        }
        _ => Ok(()),
    }
}

fn rectangle(root: &Area<'_>, a: (i32, i32), b: (i32, i32), colour: RGBColor) -> Result<(), Failure> {
    let (from, to) = ((a.0.min(b.0), a.1.min(b.1)), (a.0.max(b.0), a.1.max(b.1)));
    root.draw(&Rectangle::new([from, to], colour.filled()))
}

/// Draws a line through these pixels.
pub(super) fn draw_line(
    root: &Area<'_>,
    points: Vec<(i32, i32)>,
    look: Look,
    stroke: Stroke,
) -> Result<(), Failure> {
    if points.len() < 2 {
        return Ok(());
    }
    match stroke {
        Stroke::Solid => root.draw(&PathElement::new(points, look.colour().stroke_width(2))),
        Stroke::Dashed => root.draw(&DashedPathElement::new(points, 5, 4, look.colour().stroke_width(1))),
    }
}

/// Draws a marker around this pixel.
pub(super) fn draw_marker(root: &Area<'_>, at: (i32, i32), look: Look, fill: Fill) -> Result<(), Failure> {
    let colour = look.colour();
    let (inside, size) = match fill {
        Fill::Full => (colour.filled(), 5),
        Fill::Hollow => (PAPER.filled(), 5),
        Fill::Small => (colour.mix(0.75).filled(), 3),
    };
    let scaled = |pixels: i32| pixels.saturating_mul(size).checked_div(5).unwrap_or(0);
    let moved = |(x, y): &(i32, i32)| (at.0.saturating_add(scaled(*x)), at.1.saturating_add(scaled(*y)));
    match look.shape() {
        Shape::Circle => {
            root.draw(&Circle::new(at, size, inside))?;
            if fill != Fill::Small {
                root.draw(&Circle::new(at, size, colour.stroke_width(2)))?;
            }
        }
        Shape::Path(corners) => {
            let corners: Vec<(i32, i32)> = corners.iter().map(moved).collect();
            root.draw(&Polygon::new(corners.clone(), inside))?;
            if fill != Fill::Small {
                let closed: Vec<(i32, i32)> = corners.iter().chain(corners.iter().take(2)).copied().collect();
                root.draw(&PathElement::new(closed, colour.stroke_width(2)))?;
            }
        }
    }
    Ok(())
}

/// Draws a line with a cap at each end. Nothing is drawn where both ends are the same pixel.
pub(super) fn draw_whisker(root: &Area<'_>, a: (i32, i32), b: (i32, i32)) -> Result<(), Failure> {
    if a == b {
        return Ok(());
    }
    let style = INK.mix(0.7).stroke_width(1);
    root.draw(&PathElement::new(vec![a, b], style))?;
    for end in [a, b] {
        let (across, up) = if a.0 == b.0 { (CAP, 0) } else { (0, CAP) };
        let (from, to) = (
            (end.0.saturating_sub(across), end.1.saturating_sub(up)),
            (end.0.saturating_add(across), end.1.saturating_add(up)),
        );
        root.draw(&PathElement::new(vec![from, to], style))?;
    }
    Ok(())
}

fn draw_fault(plot: &Plot<'_>, root: &Area<'_>, x: f64, number: usize) -> Result<(), Failure> {
    let (_, down) = plot.plotting_area().get_pixel_range();
    let (across, _) = plot.backend_coord(&(x, 0.0));
    let (top, bottom) = (down.start.min(down.end), down.start.max(down.end));
    let line = vec![(across, top), (across, bottom)];
    root.draw(&DashedPathElement::new(line, 6, 3, FAULT.stroke_width(2)))?;
    write(root, &number.to_string(), (across, top.saturating_sub(8)), 11.0, HPos::Center)
}
