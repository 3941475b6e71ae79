//! Figures of a report: rows of panels with one legend below.
//!
//! Sizes are chosen for figures of half the page width: at 3.3 inches the tick labels are still 7 points high.

use super::axes::{Axes, Axis, fit, ticks};
use super::canvas::{Anchor, Canvas, Rgb, svg_colour};
use super::font::FONT;
use super::{INK, PALETTE, TEXT};

/// Size of one panel with its labels.
const PANEL: (f32, f32) = (382.0, 270.0);
/// Margins around the plot inside a panel: left, top, right, bottom.
const ROOM: [f32; 4] = [84.0, 30.0, 24.0, 50.0];
const LEGEND_ROW: f32 = 26.0;
const LIMIT_DASH: Option<[f32; 2]> = Some([7.0, 5.0]);

/// Maximum number of lines in a figure. Colours and dashes cannot distinguish more lines.
pub(crate) const MOST_LINES: usize = 3 * PALETTE.len();

/// Line and band of one algorithm. `mean` and `band` have the same length as `steps`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// Index of the legend entry. It also selects the colour.
    pub entry: usize,
    pub steps: Vec<f64>,
    pub mean: Vec<f64>,
    /// Lower and upper edge of the band. They are not finite where there is no band.
    pub band: Vec<(f64, f64)>,
    /// Thin lines of single seeds: the seed, and pairs of steps and value.
    pub seeds: Vec<(u64, Vec<(f64, f64)>)>,
}

impl Series {
    pub(crate) fn has_band(&self) -> bool {
        self.band.iter().any(|(lo, hi)| lo.is_finite() && hi.is_finite())
    }
}

/// One run in a figure of return over cost.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub entry: usize,
    pub at: (f64, f64),
    /// Draws a ring instead of a disc.
    pub hollow: bool,
    pub hover: String,
}

/// Quantity on the horizontal axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Across {
    /// Environment steps, starting at 0.
    #[default]
    Steps,
    /// Episode cost; the limits are vertical lines.
    Cost,
}

/// One plot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panel {
    /// Title. A panel without a title is left empty.
    pub title: String,
    pub across: Across,
    pub y_label: String,
    pub series: Vec<Series>,
    pub marks: Vec<Mark>,
    /// Limits, drawn as dashed lines. The entry gives the colour if the limits differ between algorithms.
    pub limits: Vec<(f64, Option<usize>)>,
}

/// Values of the lines of one panel and where they are drawn, for the script of the page.
#[derive(Debug, PartialEq, serde::Serialize)]
pub(crate) struct PanelValues {
    /// Name of what the vertical axis shows.
    pub quantity: String,
    /// Left, top, right and bottom of the plot, in units of the figure.
    pub area: [f32; 4],
    /// First and last value of the horizontal axis.
    pub x: (f64, f64),
    /// First and last value of the vertical axis.
    pub y: (f64, f64),
    pub lines: Vec<LineValues>,
}

/// Values of one line.
#[derive(Debug, PartialEq, serde::Serialize)]
pub(crate) struct LineValues {
    pub name: String,
    /// Colour as in SVG.
    pub colour: String,
    /// True for the line of a single seed.
    pub thin: bool,
    pub steps: Vec<f64>,
    /// Values with five significant digits; `None` where there is no finite value.
    pub values: Vec<Option<f64>>,
}

/// Returns `v` rounded to five significant digits; `None` if it is not finite.
fn rounded(v: f64) -> Option<f64> {
    v.is_finite().then(|| format!("{v:.4e}").parse().expect("a number that was just written"))
}

/// A figure: rows of panels with one legend below.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    pub columns: usize,
    pub panels: Vec<Panel>,
    /// Names by index of the entry. An empty name is not shown.
    pub legend: Vec<String>,
}

fn colour(entry: usize) -> Rgb {
    PALETTE[entry % PALETTE.len()]
}

/// Returns the dashes of a line. Lines that reuse a colour of the palette are dashed.
fn dash(entry: usize) -> Option<[f32; 2]> {
    match entry / PALETTE.len() {
        0 => None,
        1 => Some([10.0, 3.0]),
        _ => Some([2.0, 3.0]),
    }
}

impl Figure {
    fn columns(&self) -> usize {
        self.columns.min(self.panels.len()).max(1)
    }

    /// Returns the panels that have a title, each with its upper left corner.
    fn placed(&self) -> impl Iterator<Item = (&Panel, (f32, f32))> {
        let columns = self.columns();
        let corner = move |i: usize| (PANEL.0 * (i % columns) as f32, PANEL.1 * (i / columns) as f32);
        let placed = self.panels.iter().enumerate().map(move |(i, panel)| (panel, corner(i)));
        placed.filter(|(panel, _)| !panel.title.is_empty())
    }

    /// Returns the values of the lines of every panel that has lines.
    pub(crate) fn values(&self) -> Vec<PanelValues> {
        let with_lines = self.placed().filter(|(panel, _)| !panel.series.is_empty());
        with_lines.map(|(panel, corner)| panel.values(corner, &self.legend)).collect()
    }

    pub(crate) fn draw(&self) -> Canvas {
        let columns = self.columns();
        let rows = self.panels.len().div_ceil(columns);
        let width = PANEL.0 * columns as f32;
        let legend = self.legend_rows(width);
        let height = PANEL.1 * rows as f32 + LEGEND_ROW * legend.len() as f32 + 12.0;
        let mut canvas = Canvas::new(width, height);
        for (panel, corner) in self.placed() {
            panel.draw(&mut canvas, corner, &self.legend);
        }
        for (i, row) in legend.iter().enumerate() {
            let y = PANEL.1 * rows as f32 + 4.0 + LEGEND_ROW * (i as f32 + 0.6);
            draw_legend_row(&mut canvas, row, y, width);
        }
        canvas
    }

    /// Returns the legend entries in rows that fit the width.
    fn legend_rows(&self, width: f32) -> Vec<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        let entry = |text: String, sample: Sample| Entry {
            text: fit(&text, width - SAMPLE - 40.0, TEXT),
            sample,
            width: 0.0,
        };
        let has_lines = self.panels.iter().any(|p| !p.series.is_empty());
        for (i, text) in self.legend.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            let sample = match has_lines || self.panels.iter().all(|p| p.marks.is_empty()) {
                true => Sample::Line(colour(i), dash(i), 2.5),
                false => Sample::Disc(colour(i)),
            };
            entries.push(entry(text.clone(), sample));
        }
        if self.panels.iter().flat_map(|p| &p.marks).any(|mark| mark.hollow) {
            entries.push(entry("evaluated, mean action".into(), Sample::Ring));
        }
        let limits = || self.panels.iter().flat_map(|p| &p.limits);
        let shared: Vec<f64> = limits().filter(|l| l.1.is_none()).map(|l| l.0).collect();
        let text = match shared.first() {
            Some(first) if shared.iter().all(|l| l == first) => Some(format!("limit {first}")),
            Some(_) => Some("limit".to_owned()),
            None => limits().next().map(|_| "limit, in the colour of its algorithm".to_owned()),
        };
        entries.extend(text.map(|text| entry(text, Sample::Line(INK, LIMIT_DASH, 1.8))));
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

/// Width of the line sample in a legend entry.
const SAMPLE: f32 = 30.0;

#[derive(Debug)]
enum Sample {
    Line(Rgb, Option<[f32; 2]>, f32),
    Disc(Rgb),
    Ring,
}

#[derive(Debug)]
struct Entry {
    text: String,
    sample: Sample,
    width: f32,
}

fn draw_legend_row(canvas: &mut Canvas, row: &[Entry], y: f32, width: f32) {
    let mut x = (width - row.iter().map(|e| e.width).sum::<f32>() + 22.0) / 2.0;
    for entry in row {
        let centre = (x + SAMPLE - RADIUS - 2.0, y - 5.0);
        match entry.sample {
            Sample::Line(colour, dash, thick) => {
                canvas.line(&[(x, y - 5.0), (x + SAMPLE, y - 5.0)], colour, thick, dash);
            }
            Sample::Disc(colour) => canvas.disc(centre, RADIUS, colour),
            Sample::Ring => canvas.ring(centre, RADIUS, INK),
        }
        canvas.text(&entry.text, (x + SAMPLE + 8.0, y), TEXT, Anchor::Start, INK);
        x += entry.width;
    }
}

/// Radius of a mark.
const RADIUS: f32 = 4.5;

impl Panel {
    /// Returns the axes of the panel whose upper left corner is given.
    fn axes(&self, (x0, y0): (f32, f32)) -> Axes {
        let area = [x0 + ROOM[0], y0 + ROOM[1], x0 + PANEL.0 - ROOM[2], y0 + PANEL.1 - ROOM[3]];
        let x = if self.across == Across::Cost { self.cost_axis() } else { self.steps_axis() };
        Axes { x, y: self.y_axis(), area }
    }

    fn values(&self, corner: (f32, f32), legend: &[String]) -> PanelValues {
        let axes = self.axes(corner);
        let mut lines = Vec::new();
        for s in &self.series {
            let name = legend.get(s.entry).map_or("", String::as_str);
            let line = |name: String, thin: bool, points: &mut dyn Iterator<Item = (f64, f64)>| {
                let (steps, values) = points.map(|(step, v)| (step, rounded(v))).unzip();
                LineValues { name, colour: svg_colour(colour(s.entry)), thin, steps, values }
            };
            let mean = &mut s.steps.iter().copied().zip(s.mean.iter().copied());
            lines.push(line(name.to_owned(), false, mean));
            for (seed, points) in &s.seeds {
                lines.push(line(format!("{name}, seed {seed}"), true, &mut points.iter().copied()));
            }
        }
        let quantity = if self.y_label.is_empty() { &self.title } else { &self.y_label };
        PanelValues { quantity: quantity.clone(), area: axes.area, x: axes.x.range, y: axes.y.range, lines }
    }

    fn draw(&self, canvas: &mut Canvas, corner: (f32, f32), legend: &[String]) {
        let axes = self.axes(corner);
        let [left, top, right, bottom] = axes.area;
        let is_plane = self.across == Across::Cost;
        let y_lo = axes.y.range.0;
        let name = |entry: usize| legend.get(entry).map_or("", String::as_str);
        axes.draw_grid(canvas);
        // Bands are drawn below all lines. The first algorithm is drawn last, on top of the others.
        for s in self.series.iter().rev() {
            for edge in band_outlines(s) {
                let outline: Vec<_> = edge.iter().map(|&(u, v)| axes.at((u, v.max(y_lo)))).collect();
                canvas.fill(&outline, colour(s.entry), 0.14); // six overlapping bands are still transparent
            }
        }
        for s in self.series.iter().rev() {
            for (seed, line) in &s.seeds {
                let line: Vec<_> = line.iter().map(|&point| axes.at(point)).collect();
                canvas.faint_line(&line, colour(s.entry), 0.8, 0.45);
                canvas.hover(format!("{}, seed {seed}", name(s.entry)));
            }
        }
        for &(limit, entry) in &self.limits {
            let ends = match is_plane {
                true => [top, bottom].map(|y| (axes.at((limit, y_lo)).0, y)),
                false => [left, right].map(|x| (x, axes.at((axes.x.range.0, limit)).1)),
            };
            canvas.line(&ends, entry.map_or(INK, colour), 1.8, LIMIT_DASH);
            canvas.hover(format!("limit {limit}"));
        }
        for s in self.series.iter().rev() {
            let line: Vec<_> = s.steps.iter().zip(&s.mean).map(|(&u, &v)| axes.at((u, v))).collect();
            match line[..] {
                [point] => canvas.disc(point, RADIUS, colour(s.entry)), // a run of one epoch
                _ => canvas.line(&line, colour(s.entry), 2.2, dash(s.entry)),
            }
            let seeds = if s.seeds.is_empty() { "" } else { ", mean over the seeds" };
            canvas.hover(format!("{}{seeds}", name(s.entry)));
        }
        for mark in self.marks.iter().rev() {
            match mark.hollow {
                true => canvas.ring(axes.at(mark.at), RADIUS, colour(mark.entry)),
                false => canvas.disc(axes.at(mark.at), RADIUS, colour(mark.entry)),
            }
            canvas.hover(mark.hover.clone());
        }
        axes.draw_frame(canvas, &self.title);
    }

    /// Returns the axis of environment steps, in thousands or millions.
    fn steps_axis(&self) -> Axis {
        let last = self.series.iter().filter_map(|s| s.steps.last()).fold(0.0_f64, |a, &b| a.max(b));
        let (unit, unit_name) = if last >= 3e5 { (1e6, "million") } else { (1e3, "thousand") };
        let ticks = ticks(0.0, (last / unit).max(1e-9), 5);
        // Whole epochs may end a run at 9.98 instead of 10 million steps. The axis then ends at the tick "10".
        let mut ends = ticks.values.iter().map(|v| v * unit);
        let end = ends.find(|v| (last..last * 1.03).contains(v)).unwrap_or(last).max(1e-9);
        let inside = ticks.values.iter().filter(|&&v| v * unit <= end * 1.001);
        let labels = inside.map(|&v| (v * unit, ticks.label(v))).collect();
        Axis {
            range: (0.0, end),
            log: false,
            ticks: labels,
            label: format!("environment steps ({unit_name})"),
        }
    }

    /// Returns an axis that contains the episode costs of all marks and limits.
    fn cost_axis(&self) -> Axis {
        let values = self.marks.iter().map(|m| m.at.0).chain(self.limits.iter().map(|l| l.0));
        let (lo, hi) = extent(values);
        Axis::enclosing(lo.min(0.0), hi.max(lo.min(0.0) + 1e-9), "episode cost")
    }

    /// Returns a vertical axis that contains all lines, bands, marks and limits.
    fn y_axis(&self) -> Axis {
        let is_cost = self.across == Across::Steps && !self.limits.is_empty();
        let limits = self.limits.iter().map(|l| l.0).filter(|_| is_cost);
        let edges = self.series.iter().flat_map(|s| s.band.iter().flat_map(|b| [b.0, b.1]));
        let means = self.series.iter().flat_map(|s| s.mean.iter().copied());
        let seeds =
            self.series.iter().flat_map(|s| s.seeds.iter().flat_map(|(_, line)| line.iter().map(|p| p.1)));
        let (lo, hi) =
            extent(limits.chain(edges).chain(means).chain(seeds).chain(self.marks.iter().map(|m| m.at.1)));
        // A cost axis starts at zero, because readers compare heights.
        let lo = if is_cost { lo.min(0.0) } else { lo };
        Axis::enclosing(lo, if hi > lo { hi } else { lo + 1.0 }, &self.y_label)
    }
}

/// Returns the smallest and the largest finite value; (0, 1) if there is none.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let span = |(lo, hi): (f64, f64), v: f64| (lo.min(v), hi.max(v));
    let (lo, hi) = values.filter(|v| v.is_finite()).fold((f64::INFINITY, f64::NEG_INFINITY), span);
    if lo > hi { (0.0, 1.0) } else { (lo, hi) }
}

/// Returns a closed outline for each range of steps in which a series has a band.
fn band_outlines(s: &Series) -> Vec<Vec<(f64, f64)>> {
    let points: Vec<_> = s.steps.iter().copied().zip(s.band.iter().copied()).collect();
    let stretches = points.split(|(_, (lo, hi))| !lo.is_finite() || !hi.is_finite());
    let outline = |stretch: &[(f64, (f64, f64))]| {
        let upper = stretch.iter().map(|&(u, (_, hi))| (u, hi));
        upper.chain(stretch.iter().rev().map(|&(u, (lo, _))| (u, lo))).collect()
    };
    stretches.filter(|s| s.len() > 1).map(outline).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_broken_where_it_is_unknown() {
        let nan = f64::NAN;
        let band = vec![(nan, nan), (0.0, 1.0), (0.0, 2.0), (nan, nan), (1.0, 1.0)];
        let steps = vec![0.0, 1.0, 2.0, 3.0, 4.0];
        let s = Series { steps, mean: vec![0.5; 5], band, ..Series::default() };
        assert_eq!(band_outlines(&s), vec![vec![(1.0, 1.0), (2.0, 2.0), (2.0, 0.0), (1.0, 0.0)]]);
        assert!(s.has_band() && !Series { band: vec![(nan, nan)], ..s }.has_band());
    }

    #[test]
    fn the_label_of_an_axis_is_clear_of_its_ticks() {
        for ticks in [ticks(-0.9, 0.2, 5), ticks(-1000.0, 200.0, 5), ticks(0.0, 90_000.0, 5)] {
            let width = |&v: &f64| FONT.width(&ticks.label(v), TEXT);
            let widest = ticks.values.iter().map(width).fold(0.0, f32::max);
            assert!(ROOM[0] - 6.0 - widest > 16.0 + TEXT * 0.3, "{ticks:?}: {widest}");
        }
    }

    fn drawn(panel: Panel) -> String {
        let panel = Panel { title: "T".into(), ..panel };
        Figure { columns: 1, panels: vec![panel], legend: vec!["EPO".into()] }.draw().to_svg("t")
    }

    #[test]
    fn a_run_of_one_epoch_is_drawn_as_a_dot() {
        let series = |n: usize| Series {
            steps: (1..=n).map(|i| 1000.0 * i as f64).collect(),
            mean: vec![1.0; n],
            band: vec![(f64::NAN, f64::NAN); n],
            ..Series::default()
        };
        let svg = |n: usize| drawn(Panel { series: vec![series(n)], ..Panel::default() });
        assert!(svg(1).contains("fill=\"#d55e00\""), "a dot");
        assert!(svg(2).contains("stroke=\"#d55e00\"") && !svg(2).contains("fill=\"#d55e00\""), "a line");
    }

    /// This test fails if the box at the pointer would show other values than the figure, or at another place.
    #[test]
    fn the_values_for_the_page_are_those_of_the_lines() {
        let series = Series {
            entry: 1,
            steps: vec![1e3, 2e3],
            mean: vec![0.006_123_456, f64::NAN],
            band: vec![(f64::NAN, f64::NAN); 2],
            seeds: vec![(7, vec![(1e3, -123_456.7)])],
        };
        let empty = Panel { title: "no lines".into(), ..Panel::default() };
        let panel = |y_label: &str| Panel {
            title: "T".into(),
            y_label: y_label.into(),
            series: vec![series.clone()],
            ..Panel::default()
        };
        let legend = vec!["EPO".to_owned(), "PPO".to_owned()];
        let figure = Figure { columns: 2, panels: vec![empty, panel("cost"), panel("")], legend };
        let values = figure.values();
        assert_eq!(values.iter().map(|p| p.quantity.as_str()).collect::<Vec<_>>(), ["cost", "T"]);
        let [left, top] = [PANEL.0 + ROOM[0], ROOM[1]];
        assert_eq!(values[0].area[..2], [left, top], "the second column of the first row");
        assert_eq!(values[1].area[..2], [ROOM[0], PANEL.1 + ROOM[1]], "the second row");
        assert_eq!(values[0].x, (0.0, 2e3));
        assert!(values[0].y.0 <= -123_456.7 && values[0].y.1 >= 0.006);
        let line = |name: &str, thin: bool, steps: &[f64], values: &[Option<f64>]| LineValues {
            name: name.into(),
            colour: "#0072b2".into(),
            thin,
            steps: steps.to_vec(),
            values: values.to_vec(),
        };
        let mean = line("PPO", false, &[1e3, 2e3], &[Some(0.006_123_5), None]);
        assert_eq!(values[0].lines, [mean, line("PPO, seed 7", true, &[1e3], &[Some(-123_460.0)])]);
    }

    #[test]
    fn single_seeds_and_marks_have_titles() {
        let steps = vec![1e3, 2e3];
        let seeds = vec![(7, vec![(1e3, 1.0), (2e3, 3.0)])];
        let series = Series { steps, mean: vec![1.0, 2.0], band: vec![(0.0, 2.0); 2], seeds, entry: 0 };
        let svg = drawn(Panel { series: vec![series], ..Panel::default() });
        assert!(
            svg.contains("<title>EPO, seed 7</title>")
                && svg.contains("<title>EPO, mean over the seeds</title>")
        );
        let mark = Mark { entry: 0, at: (10.0, 1.0), hollow: false, hover: "EPO, seed 3".into() };
        let plane =
            Panel { across: Across::Cost, marks: vec![mark], limits: vec![(25.0, None)], ..Panel::default() };
        let svg = drawn(plane);
        assert!(
            svg.contains("<title>EPO, seed 3</title>") && svg.contains("aria-label=\"episode cost\""),
            "{svg}"
        );
        assert!(svg.contains("<title>limit 25</title>"));
    }

    #[test]
    fn the_legend_is_broken_into_rows_and_names_the_limit() {
        let panel = Panel { title: "T".into(), limits: vec![(25.0, None)], ..Panel::default() };
        let legend = vec!["a rather long name of an algorithm".to_owned(); 3];
        let figure = Figure { panels: vec![panel.clone(), panel], columns: 2, legend };
        let rows = figure.legend_rows(740.0);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].last().unwrap().text, "limit 25");
        assert!(
            figure.draw().to_svg("t").contains("aria-label=\"limit 25\""),
            "the limit must be drawn without a curve too"
        );
    }
}
