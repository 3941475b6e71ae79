//! Draws figures as filled and stroked paths, and writes them as SVG and PNG.
//!
//! [`Canvas`] holds the paths. [`Axes`] maps numbers to points of the canvas and draws scales and labels.

mod axes;
mod canvas;
pub(crate) mod figure;
mod font;

pub use axes::{Axes, Axis};
pub use canvas::{Anchor, Canvas, Rgb};
pub(crate) use canvas::{escape, without_style};

/// The colours of Okabe and Ito, which colour-blind readers can distinguish. The first is the most visible. Yellow is
/// left out, because it is hard to see on white.
pub const PALETTE: [Rgb; 7] =
    [[213, 94, 0], [0, 114, 178], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233], [0, 0, 0]];

/// Colour of text and of limits.
pub const INK: Rgb = [0x22; 3];

/// Font size of labels.
pub(crate) const TEXT: f32 = 16.0;
