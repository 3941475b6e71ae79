//! Draws two axes with ticks, grid and labels.

use super::canvas::{Anchor, Canvas, Rgb};
use super::font::FONT;
use super::{INK, TEXT};

pub(super) const GRID: Rgb = [0xe4; 3];
pub(super) const AXIS: Rgb = [0x55; 3];
const TITLE: f32 = 17.0;

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// First and last value.
    pub range: (f64, f64),
    /// True if the scale is logarithmic.
    pub log: bool,
    /// Value and label of each tick.
    pub ticks: Vec<(f64, String)>,
    /// Name and unit.
    pub label: String,
}

impl Axis {
    /// Returns a linear axis from `lo` to `hi` with about five ticks at round values.
    pub fn linear(lo: f64, hi: f64, label: &str) -> Self {
        let ticks = ticks(lo, hi, 5);
        let inside = ticks.values.iter().filter(|&&v| v >= lo - 1e-9 && v <= hi + 1e-9);
        let ticks = inside.map(|&v| (v, ticks.label(v))).collect();
        Self { range: (lo, hi), log: false, ticks, label: label.to_owned() }
    }

    /// Returns a logarithmic axis with ticks at `values`.
    pub fn logarithmic(lo: f64, hi: f64, values: &[f64], label: &str) -> Self {
        let ticks = values.iter().map(|v| (*v, v.to_string())).collect();
        Self { range: (lo, hi), log: true, ticks, label: label.to_owned() }
    }

    /// Returns a linear axis whose ends are round values that enclose `lo..hi`.
    pub(crate) fn enclosing(lo: f64, hi: f64, label: &str) -> Self {
        let ticks = ticks(lo, hi, 5);
        let range = (ticks.values[0], ticks.values[ticks.values.len() - 1]);
        let ticks = ticks.values.iter().map(|&v| (v, ticks.label(v))).collect();
        Self { range, log: false, ticks, label: label.to_owned() }
    }

    /// Returns the position of a value on the axis: 0 at the first end, 1 at the last.
    fn share(&self, v: f64) -> f64 {
        let (lo, hi) = self.range;
        match self.log {
            true => (v / lo).ln() / (hi / lo).ln(),
            false => (v - lo) / (hi - lo),
        }
    }
}

/// Two axes in a rectangle of a canvas.
#[derive(Clone, Debug)]
pub struct Axes {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Left, top, right and bottom of the plot, without labels and ticks.
    pub area: [f32; 4],
}

impl Axes {
    /// Returns the point of the canvas for a pair of values.
    pub fn at(&self, (x, y): (f64, f64)) -> (f32, f32) {
        let [left, top, right, bottom] = self.area;
        let between = |from: f32, to: f32, share: f64| from + (share * f64::from(to - from)) as f32;
        (between(left, right, self.x.share(x)), between(bottom, top, self.y.share(y)))
    }

    /// Draws the grid lines and the labels of the ticks. Call it before drawing the data.
    pub fn draw_grid(&self, canvas: &mut Canvas) {
        let [left, top, right, bottom] = self.area;
        for (v, label) in &self.x.ticks {
            let (x, _) = self.at((*v, self.y.range.0));
            canvas.line(&[(x, top), (x, bottom)], GRID, 1.0, None);
            canvas.text(label, (x, bottom + 19.0), TEXT, Anchor::Middle, INK);
        }
        for (v, label) in &self.y.ticks {
            let (_, y) = self.at((self.x.range.0, *v));
            canvas.line(&[(left, y), (right, y)], GRID, 1.0, None);
            canvas.text(label, (left - 6.0, y + 5.5), TEXT, Anchor::End, INK);
        }
    }

    /// Draws the two axis lines, their labels and a title. Call it after drawing the data.
    pub fn draw_frame(&self, canvas: &mut Canvas, title: &str) {
        let [left, top, right, bottom] = self.area;
        let (across, down) = ((left + right) / 2.0, (top + bottom) / 2.0);
        canvas.line(&[(left, top), (left, bottom), (right, bottom)], AXIS, 1.2, None);
        let title = fit(title, right - left + 60.0, TITLE);
        canvas.text(&title, (across, top - 10.0), TITLE, Anchor::Middle, INK);
        let label = fit(&self.x.label, right - left + 60.0, TEXT);
        canvas.text(&label, (across, bottom + 41.0), TEXT, Anchor::Middle, INK);
        let label = fit(&self.y.label, bottom - top + 60.0, TEXT);
        canvas.upright_text(&label, (left - 68.0, down), TEXT);
    }
}

/// Returns `text`, shortened until it is at most `width` wide.
pub(crate) fn fit(text: &str, width: f32, size: f32) -> String {
    let mut short = crate::files::shorten(text, 300);
    let mut most = short.chars().count();
    while most > 1 && FONT.width(&short, size) > width {
        most -= 1;
        short = crate::files::shorten(text, most);
    }
    short
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks {
    pub(super) values: Vec<f64>,
    decimals: usize,
}

impl Ticks {
    pub(super) fn label(&self, v: f64) -> String {
        let v = if v == 0.0 { 0.0 } else { v }; // no "-0"
        if v.abs() >= 1e5 {
            let text = format!("{v:.2e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.')).replace('-', "−")
        } else {
            format!("{v:.*}", self.decimals).replace('-', "−")
        }
    }
}

/// Returns at most `most + 1` round values whose ends enclose `lo..hi`.
pub(super) fn ticks(lo: f64, hi: f64, most: usize) -> Ticks {
    let raw = (hi - lo) / most as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let count = |step: f64| (hi / step).ceil() - (lo / step).floor();
    let step = [1.0, 2.0, 2.5, 5.0, 10.0, 20.0].map(|m| m * power);
    let step = step.into_iter().find(|&s| count(s) <= most as f64).unwrap_or(50.0 * power);
    let first = (lo / step + 1e-9).floor() as i64;
    let last = (hi / step - 1e-9).ceil() as i64;
    let digits = |s: f64| (0..6).find(|&d| (s * 10_f64.powi(d) - (s * 10_f64.powi(d)).round()).abs() < 1e-6);
    let decimals = digits(step).unwrap_or(6) as usize;
    Ticks { values: (first..=last.max(first + 1)).map(|i| i as f64 * step).collect(), decimals }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_few_and_enclose_the_data() {
        assert_eq!(ticks(0.0, 10.0, 5), Ticks { values: vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0], decimals: 0 });
        assert_eq!(ticks(-0.3, 1.1, 5), Ticks { values: vec![-0.5, 0.0, 0.5, 1.0, 1.5], decimals: 1 });
        for (lo, hi) in [(0.0, 1e-3), (-7.0, 3.0), (24.9, 25.1), (0.0, 123_456.0), (-1e6, 3.0)] {
            let t = ticks(lo, hi, 5).values;
            assert!(
                t.len() >= 2 && t.len() <= 7 && t[0] <= lo + 1e-9 && t[t.len() - 1] >= hi - 1e-9,
                "{lo} {hi}: {t:?}"
            );
        }
    }

    #[test]
    fn large_ticks_have_labels_of_their_own() {
        let label = |v| Ticks { values: Vec::new(), decimals: 0 }.label(v);
        assert_eq!(
            [1e5, 1.5e5, 2.5e5, -3e5 - 1e-9, 1e6 - 1e-9].map(label),
            ["1e5", "1.5e5", "2.5e5", "−3e5", "1e6"]
        );
    }

    #[test]
    fn values_are_placed_by_the_scale() {
        let axes = Axes {
            x: Axis::logarithmic(0.1, 10.0, &[1.0], "x"),
            y: Axis::linear(-1.0, 3.0, "y"),
            area: [10.0, 20.0, 110.0, 60.0],
        };
        assert_eq!(axes.at((0.1, -1.0)), (10.0, 60.0));
        assert_eq!(axes.at((1.0, 1.0)), (60.0, 40.0), "half of two decades, half of the height");
        assert!(axes.y.ticks.iter().all(|(v, _)| (-1.0..=3.0).contains(v)), "{:?}", axes.y.ticks);
    }

    #[test]
    fn a_long_title_is_cut_to_its_place() {
        let title = fit(&"x".repeat(5000), 300.0, TEXT);
        assert!(FONT.width(&title, TEXT) <= 300.0 && title.ends_with('…'), "{title}");
        assert_eq!(fit("short", 300.0, TEXT), "short");
    }
}
