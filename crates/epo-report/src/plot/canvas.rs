//! A drawing made of filled and stroked paths, which is written as SVG and as PNG.
//!
//! Text is drawn as outlines of an embedded font (DejaVu Sans), so both files look the same on every machine. The SVG
//! also contains the text as `aria-label`.

use std::fmt::Write as _;

use super::font::FONT;
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, PathSegment, Pixmap, Stroke, StrokeDash,
    Transform,
};

/// Pixels of the PNG per unit of the SVG.
const PNG_SCALE: f32 = 2.0;

/// Style of an SVG file in dark mode. It repeats the rules of the report page (`page.rs`).
const DARK: &str = "<style>@media (prefers-color-scheme:dark){svg>rect{fill:#16181d}[fill=\"#222222\"]{fill:#ddd}\
    [stroke=\"#222222\"]{stroke:#ddd}[stroke=\"#e4e4e4\"]{stroke:#2c2f36}[stroke=\"#555555\"]{stroke:#999}\
    [stroke=\"#000000\"]{stroke:#fff}[fill=\"#000000\"]{fill:#fff}\
    [stroke=\"#0072b2\"]{stroke:#3d7eff}[fill=\"#0072b2\"]{fill:#3d7eff}}</style>\n";

/// Returns an SVG for a page that has its own styles. The content security policy of such a page refuses others.
pub(crate) fn without_style(svg: &str) -> String {
    svg.replacen(DARK, "", 1)
}

/// Colour as red, green and blue.
pub type Rgb = [u8; 3];

/// Horizontal alignment of a text at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at the point.
    Start,
    /// The text is centred at the point.
    Middle,
    /// The text ends at the point.
    End,
}

#[derive(Clone, Copy, Debug)]
enum Ink {
    Fill { opacity: f32 },
    Line { width: f32, dash: Option<[f32; 2]>, opacity: f32 },
}

#[derive(Debug)]
struct Item {
    path: Path,
    colour: Rgb,
    ink: Ink,
    label: Option<String>,
    /// Text that a browser shows while the pointer is on the path.
    hover: Option<String>,
}

/// A drawing. The y axis points downwards.
#[derive(Debug)]
pub struct Canvas {
    width: f32,
    height: f32,
    items: Vec<Item>,
}

impl Canvas {
    /// Returns an empty canvas of this size.
    pub fn new(width: f32, height: f32) -> Self {
        Self { width, height, items: Vec::new() }
    }

    fn push(&mut self, path: Option<Path>, colour: Rgb, ink: Ink) {
        let item = |path| Item { path, colour, ink, label: None, hover: None };
        self.items.extend(path.map(item));
    }

    /// Draws a polyline. Points that are not finite are left out.
    pub fn line(&mut self, points: &[(f32, f32)], colour: Rgb, width: f32, dash: Option<[f32; 2]>) {
        self.push(trace(points, false), colour, Ink::Line { width, dash, opacity: 1.0 });
    }

    /// Draws a solid, transparent polyline.
    pub fn faint_line(&mut self, points: &[(f32, f32)], colour: Rgb, width: f32, opacity: f32) {
        self.push(trace(points, false), colour, Ink::Line { width, dash: None, opacity });
    }

    /// Draws a filled polygon.
    pub fn fill(&mut self, points: &[(f32, f32)], colour: Rgb, opacity: f32) {
        self.push(trace(points, true), colour, Ink::Fill { opacity });
    }

    /// Draws a disc.
    pub fn disc(&mut self, (x, y): (f32, f32), radius: f32, colour: Rgb) {
        self.push(PathBuilder::from_circle(x, y, radius), colour, Ink::Fill { opacity: 1.0 });
    }

    /// Draws a ring.
    pub fn ring(&mut self, (x, y): (f32, f32), radius: f32, colour: Rgb) {
        self.push(
            PathBuilder::from_circle(x, y, radius),
            colour,
            Ink::Line { width: 1.8, dash: None, opacity: 1.0 },
        );
    }

    /// Adds a text to the last path. A browser shows it while the pointer is on the path.
    pub fn hover(&mut self, text: impl Into<String>) {
        if let Some(item) = self.items.last_mut() {
            item.hover = Some(text.into());
        }
    }

    /// Draws a text with its baseline at `(x, y)`.
    pub fn text(&mut self, text: &str, (x, y): (f32, f32), size: f32, anchor: Anchor, colour: Rgb) {
        let width = FONT.width(text, size);
        let shift = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::End => -width,
        };
        self.place(text, size, Transform::from_translate(x + shift, y), colour);
    }

    /// Draws a text that reads from bottom to top, centred at `(x, y)`.
    pub fn upright_text(&mut self, text: &str, (x, y): (f32, f32), size: f32) {
        let turn = Transform::from_row(0.0, -1.0, 1.0, 0.0, x, y);
        let shift = Transform::from_translate(-FONT.width(text, size) / 2.0, 0.0);
        self.place(text, size, shift.post_concat(turn), super::INK);
    }

    fn place(&mut self, text: &str, size: f32, place: Transform, colour: Rgb) {
        if let Some(path) = FONT.outline(text, size).and_then(|path| path.transform(place)) {
            let (ink, label) = (Ink::Fill { opacity: 1.0 }, Some(text.to_owned()));
            self.items.push(Item { path, colour, ink, label, hover: None });
        }
    }

    /// Returns the drawing as SVG. Screen readers read `title` aloud.
    pub fn to_svg(&self, title: &str) -> String {
        let (w, h) = (self.width, self.height);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             role=\"img\">\n<title>{}</title>\n{DARK}<rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n",
            escape(title)
        );
        for item in &self.items {
            let colour = svg_colour(item.colour);
            let d = path_data(&item.path);
            let label =
                item.label.as_ref().map_or(String::new(), |l| format!(" aria-label=\"{}\"", escape(l)));
            let ink = match item.ink {
                Ink::Fill { opacity: 1.0 } => format!("fill=\"{colour}\""),
                Ink::Fill { opacity } => format!("fill=\"{colour}\" fill-opacity=\"{opacity}\""),
                Ink::Line { width, dash, opacity } => {
                    let dash =
                        dash.map_or(String::new(), |[on, off]| format!(" stroke-dasharray=\"{on} {off}\""));
                    let opacity = match opacity {
                        1.0 => String::new(),
                        share => format!(" stroke-opacity=\"{share}\""),
                    };
                    format!(
                        "fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dash}{opacity}"
                    )
                }
            };
            // writing to a string cannot fail
            let _ = match &item.hover {
                None => writeln!(svg, "<path d=\"{d}\" {ink}{label}/>"),
                Some(hover) => {
                    writeln!(svg, "<path d=\"{d}\" {ink}{label}><title>{}</title></path>", escape(hover))
                }
            };
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns the drawing as PNG.
    pub fn to_png(&self) -> Vec<u8> {
        self.paint(PNG_SCALE).encode_png().expect("encoding into memory cannot fail")
    }

    /// Returns the drawing as pixels, row by row: red, green, blue and opacity, which is always 255. A unit of the drawing
    /// is one pixel.
    pub fn to_pixels(&self) -> Vec<u8> {
        self.paint(1.0).take()
    }

    fn paint(&self, pixels_per_unit: f32) -> Pixmap {
        let [w, h] = [self.width, self.height].map(|v| (v * pixels_per_unit).ceil() as u32);
        let mut pixmap = Pixmap::new(w, h).expect("a figure has an area");
        pixmap.fill(Color::WHITE);
        let scale = Transform::from_scale(pixels_per_unit, pixels_per_unit);
        for item in &self.items {
            let [r, g, b] = item.colour;
            let mut paint = Paint { anti_alias: true, ..Paint::default() };
            match item.ink {
                Ink::Fill { opacity } => {
                    paint.set_color_rgba8(r, g, b, (opacity * 255.0).round() as u8);
                    pixmap.fill_path(&item.path, &paint, FillRule::Winding, scale, None);
                }
                Ink::Line { width, dash, opacity } => {
                    paint.set_color_rgba8(r, g, b, (opacity * 255.0).round() as u8);
                    let dash = dash.and_then(|[on, off]| StrokeDash::new(vec![on, off], 0.0));
                    let (line_cap, line_join) = (LineCap::Butt, LineJoin::Round);
                    let stroke = Stroke { width, dash, line_cap, line_join, ..Stroke::default() };
                    pixmap.stroke_path(&item.path, &paint, &stroke, scale, None);
                }
            }
        }
        pixmap
    }
}

/// Returns a colour as SVG writes it.
pub(super) fn svg_colour([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn trace(points: &[(f32, f32)], close: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for &(x, y) in points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
        if builder.is_empty() { builder.move_to(x, y) } else { builder.line_to(x, y) }
    }
    if close {
        builder.close();
    }
    builder.finish()
}

fn path_data(path: &Path) -> String {
    let mut d = String::new();
    for segment in path.segments() {
        let (letter, points) = match segment {
            PathSegment::MoveTo(p) => ('M', vec![p]),
            PathSegment::LineTo(p) => ('L', vec![p]),
            PathSegment::QuadTo(a, p) => ('Q', vec![a, p]),
            PathSegment::CubicTo(a, b, p) => ('C', vec![a, b, p]),
            PathSegment::Close => ('Z', vec![]),
        };
        d.push(letter);
        let numbers: Vec<String> = points.iter().flat_map(|p| [short(p.x), short(p.y)]).collect();
        d.push_str(&numbers.join(" "));
    }
    d
}

/// Returns a number as text with at most two decimals.
fn short(v: f32) -> String {
    let rounded = (v * 100.0).round() / 100.0;
    if rounded == 0.0 { "0".into() } else { rounded.to_string() }
}

/// Returns a text with the special characters of XML and HTML escaped.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns red, green and blue of the pixel of the PNG at a point of the canvas.
    fn pixel(pixmap: &Pixmap, x: u32, y: u32) -> (u8, u8, u8) {
        let p = pixmap.pixel(x * 2, y * 2).unwrap();
        (p.red(), p.green(), p.blue())
    }

    #[test]
    fn both_files_hold_the_same_picture() {
        let mut canvas = Canvas::new(60.0, 40.0);
        canvas.fill(&[(10.0, 10.0), (30.0, 10.0), (30.0, 30.0), (10.0, 30.0)], [200, 0, 0], 1.0);
        canvas.line(&[(40.0, 5.0), (f32::NAN, 7.0), (40.0, 35.0)], [0, 0, 200], 4.0, None);
        let pixmap = Pixmap::decode_png(&canvas.to_png()).unwrap();
        assert_eq!((pixmap.width(), pixmap.height()), (120, 80));
        assert_eq!(pixel(&pixmap, 20, 20), (200, 0, 0));
        assert_eq!(pixel(&pixmap, 40, 20), (0, 0, 200));
        assert_eq!(pixel(&pixmap, 50, 20), (255, 255, 255));
        let svg = canvas.to_svg("a < b");
        assert!(
            svg.contains("<title>a &lt; b</title>") && svg.contains("M10 10L30 10L30 30L10 30Z"),
            "{svg}"
        );
        assert!(svg.contains("stroke=\"#0000c8\""), "{svg}");
        assert!(svg.contains("(prefers-color-scheme:dark)"), "a file follows the theme of the reader: {svg}");
        assert!(!without_style(&svg).contains("<style"), "a page has its own styles");
        canvas.hover("seed <1>");
        assert!(canvas.to_svg("t").contains("<title>seed &lt;1&gt;</title></path>"));
    }

    #[test]
    fn text_is_drawn_where_it_is_anchored() {
        let dark = |anchor: Option<Anchor>| {
            let mut canvas = Canvas::new(200.0, 200.0);
            match anchor {
                Some(anchor) => canvas.text("HHHH", (100.0, 100.0), 20.0, anchor, [0; 3]),
                None => canvas.upright_text("HHHHHHHHHH", (100.0, 100.0), 20.0),
            }
            let pixmap = Pixmap::decode_png(&canvas.to_png()).unwrap();
            let inked = |x0: u32, y0: u32| {
                (0..40)
                    .flat_map(|i| (0..40).map(move |j| (i, j)))
                    .any(|(i, j)| pixel(&pixmap, x0 + i, y0 + j).0 < 128)
            };
            // right, left and above of the point; above: more than a line's height away
            [inked(102, 70), inked(55, 70), inked(85, 38)]
        };
        assert_eq!(dark(Some(Anchor::Start)), [true, false, false]);
        assert_eq!(dark(Some(Anchor::End)), [false, true, false]);
        assert!(dark(None)[2]);
    }
}
