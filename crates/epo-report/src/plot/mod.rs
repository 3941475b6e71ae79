//! Figures as lists of filled and stroked paths, written as SVG and PNG.

pub(crate) mod canvas;
pub(crate) mod figure;
mod font;
