//! Figures: lists of filled and stroked paths, written as SVG and PNG.
//!
//! [`Canvas`] holds the paths, [`Axes`] maps numbers onto it and draws scales and labels.

mod axes;
mod canvas;
pub(crate) mod figure;
mod font;

pub use axes::{Axes, Axis};
pub(crate) use canvas::escape;
pub use canvas::{Anchor, Canvas, Rgb};

/// Okabe and Ito's colours, which colour-blind readers can tell apart; the first is the strongest. Yellow is left out:
/// it is hard to see on white.
pub const PALETTE: [Rgb; 7] =
    [[213, 94, 0], [0, 114, 178], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233], [0, 0, 0]];

/// Colour of text and of limits.
pub const INK: Rgb = [0x22; 3];

/// Font size of labels.
pub(crate) const TEXT: f32 = 16.0;
