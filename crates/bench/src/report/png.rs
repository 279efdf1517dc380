//! PNG files of charts, behind the feature `png`.

use super::ReportError;

/// Whether this program makes PNG files.
pub(super) const IS_AVAILABLE: bool = cfg!(feature = "png");
/// The explanation for a report without PNG files.
pub(super) const WITHOUT: &str = "PNG files need a program that is built with the feature png";

/// Pixels of a picture for a pixel of the chart.
#[cfg(feature = "png")]
const SCALE: f32 = 2.0;
/// The one font of pictures. System fonts would make pictures differ between machines.
#[cfg(feature = "png")]
static FONT: &[u8] = include_bytes!("../../fonts/DejaVuSans-subset.ttf");

/// Returns the bytes of a PNG file on white ground; `None` without the feature.
///
/// # Errors
/// Fails when the SVG cannot be read.
#[cfg(not(feature = "png"))]
pub(super) fn picture(_name: &str, _svg: &str) -> Result<Option<Vec<u8>>, ReportError> {
    Ok(None)
}

/// Returns the bytes of a PNG file on white ground; `None` without the feature.
///
/// # Errors
/// Fails when the SVG cannot be read.
#[cfg(feature = "png")]
pub(super) fn picture(name: &str, svg: &str) -> Result<Option<Vec<u8>>, ReportError> {
    use resvg::tiny_skia::{Color, Pixmap, Transform};
    use resvg::usvg::{Options, Tree};

    let failed = |why: String| ReportError::Draw { chart: name.to_owned(), why };
    let mut options = Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size().to_int_size().scale_by(SCALE);
    let size = size.ok_or_else(|| failed("no size".to_owned()))?;
    let pixmap = Pixmap::new(size.width(), size.height());
    let mut pixmap = pixmap.ok_or_else(|| failed("too large".to_owned()))?;
    pixmap.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
    pixmap.encode_png().map(Some).map_err(|error| failed(error.to_string()))
}
