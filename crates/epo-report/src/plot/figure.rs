//! Learning curves as the paper draws them: return and cost side by side, mean line, shaded band, dashed limit.
//!
//! Sizes are chosen for half a page: at 3.3 inches the ticks are still 7 points high.

use super::canvas::{Anchor, Canvas, Rgb};
use super::font::FONT;

/// Okabe and Ito's colours, told apart by everybody; the first is the strongest. Yellow is left out: it is not seen
/// on white.
const PALETTE: [Rgb; 7] =
    [[213, 94, 0], [0, 114, 178], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233], [0, 0, 0]];
const GRID: Rgb = [0xe4; 3];
const AXIS: Rgb = [0x55; 3];
const LIMIT: Rgb = [0x22; 3];
const TEXT: f32 = 16.0;
const TITLE: f32 = 17.0;

/// Size of one panel with its labels.
const PANEL: (f32, f32) = (382.0, 270.0);
/// Room around the plot inside a panel: left, top, right, bottom.
const ROOM: [f32; 4] = [84.0, 30.0, 24.0, 50.0];
const LEGEND_ROW: f32 = 26.0;

/// One algorithm's line and band; the three have the length of `steps`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// Index of the legend entry, which is also its colour.
    pub entry: usize,
    pub steps: Vec<f64>,
    pub mean: Vec<f64>,
    /// Lower and upper edge of the band; not finite where there is none.
    pub band: Vec<(f64, f64)>,
}

/// One plot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panel {
    /// Heading; a panel without one is an empty place.
    pub title: String,
    pub y_label: String,
    pub series: Vec<Series>,
    /// Dashed lines; the entry gives the colour if the limits differ between algorithms.
    pub limits: Vec<(f64, Option<usize>)>,
}

/// A figure: panels in rows, one legend below.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    pub columns: usize,
    pub panels: Vec<Panel>,
    /// Names by entry; an empty one is not listed.
    pub legend: Vec<String>,
}

fn colour(entry: usize) -> Rgb {
    PALETTE[entry % PALETTE.len()]
}

/// Beyond the palette lines are told apart by their dashes too.
fn dash(entry: usize) -> Option<[f32; 2]> {
    match entry / PALETTE.len() {
        0 => None,
        1 => Some([10.0, 3.0]),
        _ => Some([2.0, 3.0]),
    }
}

impl Figure {
    pub(crate) fn draw(&self) -> Canvas {
        let columns = self.columns.min(self.panels.len()).max(1);
        let rows = self.panels.len().div_ceil(columns);
        let width = PANEL.0 * columns as f32;
        let legend = self.legend_rows(width);
        let height = PANEL.1 * rows as f32 + LEGEND_ROW * legend.len() as f32 + 12.0;
        let mut canvas = Canvas::new(width, height);
        for (i, panel) in self.panels.iter().enumerate() {
            let corner = (PANEL.0 * (i % columns) as f32, PANEL.1 * (i / columns) as f32);
            if !panel.title.is_empty() {
                panel.draw(&mut canvas, corner);
            }
        }
        for (i, row) in legend.iter().enumerate() {
            let y = PANEL.1 * rows as f32 + 4.0 + LEGEND_ROW * (i as f32 + 0.6);
            draw_legend_row(&mut canvas, row, y, width);
        }
        canvas
    }

    /// Legend entries broken into rows that fit.
    fn legend_rows(&self, width: f32) -> Vec<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        for (i, text) in self.legend.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            entries.push(Entry {
                text: text.clone(),
                colour: colour(i),
                dash: dash(i),
                thick: 2.5,
                width: 0.0,
            });
        }
        let shared: Vec<f64> =
            self.panels.iter().flat_map(|p| &p.limits).filter(|l| l.1.is_none()).map(|l| l.0).collect();
        if let Some(&first) = shared.first() {
            let same = shared.iter().all(|&l| l == first);
            let text = if same { format!("limit {first}") } else { "limit".to_owned() };
            entries.push(Entry { text, colour: LIMIT, dash: Some([7.0, 5.0]), thick: 1.8, width: 0.0 });
        } else if self.panels.iter().any(|p| !p.limits.is_empty()) {
            let text = "limit, in the colour of its line".to_owned();
            entries.push(Entry { text, colour: LIMIT, dash: Some([7.0, 5.0]), thick: 1.8, width: 0.0 });
        }
        let mut rows: Vec<Vec<Entry>> = vec![Vec::new()];
        let mut used = 0.0;
        for mut entry in entries {
            entry.width = SAMPLE + 8.0 + FONT.width(&entry.text, TEXT) + 22.0;
            if used + entry.width > width && used > 0.0 {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += entry.width;
            rows.last_mut().expect("there is always a row").push(entry);
        }
        rows
    }
}

/// Length of the line in a legend entry.
const SAMPLE: f32 = 30.0;

#[derive(Debug)]
struct Entry {
    text: String,
    colour: Rgb,
    dash: Option<[f32; 2]>,
    thick: f32,
    width: f32,
}

fn draw_legend_row(canvas: &mut Canvas, row: &[Entry], y: f32, width: f32) {
    let mut x = (width - row.iter().map(|e| e.width).sum::<f32>() + 22.0) / 2.0;
    for entry in row {
        canvas.line(&[(x, y - 5.0), (x + SAMPLE, y - 5.0)], entry.colour, entry.thick, entry.dash);
        canvas.text(&entry.text, (x + SAMPLE + 8.0, y), TEXT, Anchor::Start, false);
        x += entry.width;
    }
}

/// A linear map from data to canvas.
#[derive(Clone, Copy, Debug)]
struct Scale {
    from: (f64, f64),
    to: (f32, f32),
}

impl Scale {
    fn at(self, v: f64) -> f32 {
        let share = (v - self.from.0) / (self.from.1 - self.from.0);
        self.to.0 + (share * f64::from(self.to.1 - self.to.0)) as f32
    }
}

impl Panel {
    fn draw(&self, canvas: &mut Canvas, (x0, y0): (f32, f32)) {
        let (left, right) = (x0 + ROOM[0], x0 + PANEL.0 - ROOM[2]);
        let (top, bottom) = (y0 + ROOM[1], y0 + PANEL.1 - ROOM[3]);
        let last = self.series.iter().filter_map(|s| s.steps.last()).fold(0.0_f64, |a, &b| a.max(b));
        let (unit, unit_name) = if last >= 3e5 { (1e6, "million") } else { (1e3, "thousand") };
        let x_ticks = ticks(0.0, (last / unit).max(1e-9), 5);
        let y_ticks = self.y_ticks();
        let (y_lo, y_hi) = (y_ticks.values[0], y_ticks.values[y_ticks.values.len() - 1]);
        // 9.98 of 10 million, cut by whole epochs, still ends at the tick "10"
        let end =
            x_ticks.values.iter().map(|v| v * unit).find(|v| (last..last * 1.03).contains(v)).unwrap_or(last);
        let x = Scale { from: (0.0, end.max(1e-9)), to: (left, right) };
        let y = Scale { from: (y_lo, y_hi), to: (bottom, top) };

        // grid and ticks
        for &v in x_ticks.values.iter().filter(|&&v| v * unit <= end * 1.001) {
            let at = x.at(v * unit);
            canvas.line(&[(at, top), (at, bottom)], GRID, 1.0, None);
            canvas.text(&x_ticks.label(v), (at, bottom + 19.0), TEXT, Anchor::Middle, false);
        }
        for &v in &y_ticks.values {
            let at = y.at(v);
            canvas.line(&[(left, at), (right, at)], GRID, 1.0, None);
            canvas.text(&y_ticks.label(v), (left - 6.0, at + 5.5), TEXT, Anchor::End, false);
        }
        // bands below all lines, the first algorithm on top of the others
        for s in self.series.iter().rev() {
            for (edge, colour) in band_outlines(s).into_iter().map(|e| (e, colour(s.entry))) {
                let outline: Vec<_> = edge.iter().map(|&(u, v)| (x.at(u), y.at(v.max(y_lo)))).collect();
                canvas.fill(&outline, colour, 0.14); // six on top of each other can still be seen through
            }
        }
        for &(limit, entry) in &self.limits {
            let ends = [(left, y.at(limit)), (right, y.at(limit))];
            canvas.line(&ends, entry.map_or(LIMIT, colour), 1.8, Some([7.0, 5.0]));
        }
        for s in self.series.iter().rev() {
            let line: Vec<_> = s.steps.iter().zip(&s.mean).map(|(&u, &v)| (x.at(u), y.at(v))).collect();
            match line[..] {
                [point] => canvas.fill(&dot(point), colour(s.entry), 1.0), // a run of one epoch
                _ => canvas.line(&line, colour(s.entry), 2.2, dash(s.entry)),
            }
        }
        canvas.line(&[(left, top), (left, bottom), (right, bottom)], AXIS, 1.2, None);
        canvas.text(&self.title, ((left + right) / 2.0, top - 10.0), TITLE, Anchor::Middle, false);
        let x_label = format!("environment steps ({unit_name})");
        canvas.text(&x_label, ((left + right) / 2.0, bottom + 41.0), TEXT, Anchor::Middle, false);
        canvas.text(&self.y_label, (x0 + 16.0, (top + bottom) / 2.0), TEXT, Anchor::Middle, true);
    }

    /// Ticks that hold every line, band and limit.
    fn y_ticks(&self) -> Ticks {
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        let limits = self.limits.iter().map(|l| l.0);
        let edges = self.series.iter().flat_map(|s| s.band.iter().flat_map(|b| [b.0, b.1]));
        let means = self.series.iter().flat_map(|s| s.mean.iter().copied());
        for v in limits.chain(edges).chain(means).filter(|v| v.is_finite()) {
            (lo, hi) = (lo.min(v), hi.max(v));
        }
        if lo > hi {
            (lo, hi) = (0.0, 1.0);
        }
        // a cost axis starts at zero: the eye compares heights, and a band below zero would mean nothing
        let is_cost = !self.limits.is_empty();
        let never_negative = self.series.iter().all(|s| s.mean.iter().all(|&v| v >= 0.0));
        let lo = if is_cost && (never_negative || lo > 0.0) { 0.0 } else { lo };
        ticks(lo, if hi > lo { hi } else { lo + 1.0 }, 5)
    }
}

/// A small disc.
fn dot((x, y): (f32, f32)) -> Vec<(f32, f32)> {
    const RADIUS: f32 = 4.0;
    let at = |i: u8| (f32::from(i) * std::f32::consts::TAU / 16.0).sin_cos();
    (0..16).map(at).map(|(sin, cos)| (x + RADIUS * cos, y + RADIUS * sin)).collect()
}

/// Closed outlines of the stretches where a series has a band.
fn band_outlines(s: &Series) -> Vec<Vec<(f64, f64)>> {
    let points: Vec<_> = s.steps.iter().copied().zip(s.band.iter().copied()).collect();
    let stretches = points.split(|(_, (lo, hi))| !lo.is_finite() || !hi.is_finite());
    let outline = |stretch: &[(f64, (f64, f64))]| {
        let upper = stretch.iter().map(|&(u, (_, hi))| (u, hi));
        upper.chain(stretch.iter().rev().map(|&(u, (lo, _))| (u, lo))).collect()
    };
    stretches.filter(|s| s.len() > 1).map(outline).collect()
}

#[derive(Clone, Debug, PartialEq)]
struct Ticks {
    values: Vec<f64>,
    decimals: usize,
}

impl Ticks {
    fn label(&self, v: f64) -> String {
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

/// At most `most + 1` round values whose ends enclose `lo..hi`.
fn ticks(lo: f64, hi: f64, most: usize) -> Ticks {
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
    fn a_band_is_broken_where_it_is_unknown() {
        let nan = f64::NAN;
        let band = vec![(nan, nan), (0.0, 1.0), (0.0, 2.0), (nan, nan), (1.0, 1.0)];
        let s = Series { steps: vec![0.0, 1.0, 2.0, 3.0, 4.0], mean: vec![0.5; 5], band, entry: 0 };
        assert_eq!(band_outlines(&s), vec![vec![(1.0, 1.0), (2.0, 2.0), (2.0, 0.0), (1.0, 0.0)]]);
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
    fn the_label_of_an_axis_is_clear_of_its_ticks() {
        for ticks in [ticks(-0.9, 0.2, 5), ticks(-1000.0, 200.0, 5), ticks(0.0, 90_000.0, 5)] {
            let width = |&v: &f64| FONT.width(&ticks.label(v), TEXT);
            let widest = ticks.values.iter().map(width).fold(0.0, f32::max);
            assert!(ROOM[0] - 6.0 - widest > 16.0 + TEXT * 0.3, "{ticks:?}: {widest}");
        }
    }

    #[test]
    fn a_run_of_one_epoch_is_seen() {
        let series = |n: usize| Series {
            entry: 0,
            steps: (1..=n).map(|i| 1000.0 * i as f64).collect(),
            mean: vec![1.0; n],
            band: vec![(f64::NAN, f64::NAN); n],
        };
        let svg = |n: usize| {
            let panel = Panel { title: "T".into(), series: vec![series(n)], ..Panel::default() };
            Figure { columns: 1, panels: vec![panel], legend: Vec::new() }.draw().to_svg("t")
        };
        assert!(svg(1).contains("fill=\"#d55e00\""), "a dot");
        assert!(svg(2).contains("stroke=\"#d55e00\"") && !svg(2).contains("fill=\"#d55e00\""), "a line");
    }

    #[test]
    fn the_legend_is_broken_into_rows_and_names_the_limit() {
        let panel = Panel { title: "T".into(), limits: vec![(25.0, None)], ..Panel::default() };
        let legend = vec!["a rather long name of an algorithm".to_owned(); 3];
        let figure = Figure { panels: vec![panel.clone(), panel], columns: 2, legend };
        let rows = figure.legend_rows(740.0);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].last().unwrap().text, "limit 25");
        assert!(figure.draw().to_svg("t").contains("aria-label=\"limit 25\""), "drawn even without a curve");
    }
}
