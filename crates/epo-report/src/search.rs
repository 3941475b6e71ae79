//! The page of a search for parameters: the best trial, the effect of each parameter, and all trials.

use std::path::{Path, PathBuf};

use crate::page::{foot, head};
use crate::plot::{Anchor, Axes, Axis, Canvas, INK, PALETTE, Rgb, TEXT, escape, without_style};
use crate::table::number;
use crate::{ReportError, save};

/// A parameter of a search.
#[derive(Clone, Debug)]
pub struct SearchParameter {
    /// Key of the configuration.
    pub key: String,
    /// Smallest and largest value; for a choice the first and the last index.
    pub range: (f64, f64),
    /// Whether its axis is logarithmic.
    pub log: bool,
    /// Names of the choices; `None` for numbers.
    pub choices: Option<Vec<String>>,
    /// Share of the variance of the ranks that it explains by itself, if that is known.
    pub importance: Option<f64>,
}

/// Return and cost of a trial at a rung, means over the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchResult {
    /// Steps of the rung.
    pub steps: u64,
    /// Mean return.
    pub ret: f64,
    /// Mean cost.
    pub cost: f64,
}

/// A trial of a search.
#[derive(Clone, Debug)]
pub struct SearchTrial {
    /// Number of the trial.
    pub number: usize,
    /// Its values as numbers, in the order of the parameters; for a choice its index.
    pub places: Vec<f64>,
    /// Its values as text.
    pub values: Vec<String>,
    /// Results at the rungs that it reached.
    pub results: Vec<SearchResult>,
    /// State of the trial in words, such as `stopped at 100000 steps`.
    pub state: String,
}

/// Content of the page.
#[derive(Clone, Debug)]
pub struct SearchReport {
    /// Heading of the page.
    pub title: String,
    /// One sentence about the method, the number of trials and the seeds.
    pub about: String,
    /// Cost limit of the runs.
    pub limit: f64,
    /// The parameters, the most important first.
    pub parameters: Vec<SearchParameter>,
    /// The trials, the best first. `places` and `values` are in the order of `parameters`.
    pub trials: Vec<SearchTrial>,
    /// Whether the first trial has finished. Otherwise it was stopped or failed, and there is no best trial.
    pub has_best: bool,
    /// Configuration of the best trial.
    pub best_config: String,
}

const PANEL: (f32, f32) = (382.0, 270.0);
const AREA: [f32; 4] = [84.0, 30.0, 358.0, 220.0];
const BEST: Rgb = PALETTE[0];
const OTHER: Rgb = PALETTE[1];

impl SearchReport {
    /// Writes the page and its figures into the folder `out`, and returns the path of the page.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<PathBuf, ReportError> {
        let mut figures = vec![("plane", "Return over cost", self.plane())];
        figures.push(("parameters", "Parameters", self.panels()));
        if self.parameters.iter().any(|parameter| parameter.importance.is_some()) {
            figures.push(("importance", "Importance of the parameters", self.bars()));
        }
        for (name, title, canvas) in &figures {
            let svg = canvas.to_svg(title);
            save(out.join("figures").join(format!("{name}.svg")), svg.as_bytes())?;
            save(out.join("figures").join(format!("{name}.png")), &canvas.to_png())?;
        }
        let svg = |name: &str| {
            figures
                .iter()
                .find(|(n, ..)| *n == name)
                .map(|(_, title, canvas)| without_style(&canvas.to_svg(title)))
        };
        let mut page = head(&self.title);
        page += &format!("<p>{}</p>\n<h2>Best trial</h2>\n", escape(&self.about));
        page += &match (self.trials.first(), self.has_best) {
            (Some(best), true) => self.best(best),
            _ => "<p>No trial reached the end of its runs.</p>\n".to_owned(),
        };
        let captions = [
            (
                "plane",
                "Each mark is a trial at the last rung that it reached. The dashed line is the cost limit. The best trial \
                 is orange.",
            ),
            (
                "parameters",
                "Return of each trial at the first rung, which all trials reached, over the value of each parameter. A \
                 ring is a trial whose cost is above the limit.",
            ),
            (
                "importance",
                "Share of the variance of the ranks at the first rung that a parameter explains by itself (ε²). 0 means \
                 that it explains no more than chance. An influence that needs two parameters together is not seen.",
            ),
        ];
        page += "<h2>Figures</h2>\n";
        for (name, caption) in captions {
            if let Some(svg) = svg(name) {
                page += &format!("<figure>{svg}<figcaption>{}</figcaption></figure>\n", escape(caption));
            }
        }
        page += &self.table();
        page += &foot();
        save(out.join("index.html"), page.as_bytes())
    }

    fn best(&self, best: &SearchTrial) -> String {
        let last = best.results.last();
        let told = last.map_or_else(String::new, |result| {
            let over = if result.cost <= self.limit { "within" } else { "above" };
            format!(
                " Its mean return is {} and its mean cost is {}, {over} the limit of {}.",
                number(result.ret),
                number(result.cost),
                self.limit
            )
        });
        format!(
            "<p>Trial {} is the best.{}</p>\n<p>Its configuration, for <code>epo train --config best.toml</code>:</p>\n\
             <pre>{}</pre>\n",
            best.number,
            escape(&told),
            escape(self.best_config.trim_end())
        )
    }

    fn table(&self) -> String {
        let mut out = "<h2>Trials</h2>\n<p>Return and cost are means over the seeds, each over the last 10 % of the steps \
                       up to the rung.</p>\n<div class=\"wide\"><table>\n<thead><tr><th class=\"n\">Trial</th>"
            .to_owned();
        for parameter in &self.parameters {
            out += &format!("<th class=\"n\">{}</th>", escape(&parameter.key));
        }
        out += "<th class=\"n\">Steps</th><th class=\"n\">Return</th><th class=\"n\">Cost</th><th>State</th></tr></thead>\n";
        for trial in &self.trials {
            out += &format!("<tr><td class=\"n\">{}</td>", trial.number);
            for value in &trial.values {
                out += &format!("<td class=\"n\">{}</td>", escape(value));
            }
            let cell = |of: fn(&SearchResult) -> String| {
                let text = trial.results.last().map_or_else(|| "–".to_owned(), of);
                format!("<td class=\"n\">{text}</td>")
            };
            out += &(cell(|r| r.steps.to_string()) + &cell(|r| number(r.ret)) + &cell(|r| number(r.cost)));
            out += &format!("<td>{}</td></tr>\n", escape(&trial.state));
        }
        out + "</table></div>\n"
    }

    fn plane(&self) -> Canvas {
        let ends = || self.trials.iter().filter_map(|trial| Some((trial, trial.results.last()?)));
        let marks: Vec<Mark> = ends().map(|(trial, r)| self.mark(trial, (r.cost, r.ret), r.cost)).collect();
        let mut canvas = Canvas::new(PANEL.0, PANEL.1 + 12.0);
        let costs = marks.iter().map(|mark| mark.at.0).chain([self.limit, 0.0]);
        let x = enclosing(costs, "mean cost");
        let axes = Axes { x, y: self.returns(&marks), area: AREA };
        axes.draw_grid(&mut canvas);
        let (limit, _) = axes.at((self.limit, axes.y.range.0));
        canvas.line(&[(limit, AREA[1]), (limit, AREA[3])], INK, 1.5, Some([7.0, 5.0]));
        draw(&mut canvas, &axes, &marks);
        axes.draw_frame(&mut canvas, "all trials");
        canvas
    }

    fn panels(&self) -> Canvas {
        let columns = 2.min(self.parameters.len()).max(1);
        let rows = self.parameters.len().div_ceil(columns);
        let mut canvas = Canvas::new(PANEL.0 * columns as f32, PANEL.1 * rows as f32 + 12.0);
        for (i, parameter) in self.parameters.iter().enumerate() {
            let corner = (PANEL.0 * (i % columns) as f32, PANEL.1 * (i / columns) as f32);
            let area = [AREA[0] + corner.0, AREA[1] + corner.1, AREA[2] + corner.0, AREA[3] + corner.1];
            let firsts = self.trials.iter().filter_map(|trial| Some((trial, trial.results.first()?)));
            let marks: Vec<Mark> =
                firsts.map(|(trial, r)| self.mark(trial, (trial.places[i], r.ret), r.cost)).collect();
            let axes = Axes { x: parameter.axis(), y: self.returns(&marks), area };
            axes.draw_grid(&mut canvas);
            draw(&mut canvas, &axes, &marks);
            axes.draw_frame(&mut canvas, &parameter.key);
        }
        canvas
    }

    fn bars(&self) -> Canvas {
        let row = 30.0;
        let shown: Vec<_> = self.parameters.iter().filter_map(|p| Some((p, p.importance?))).collect();
        let bottom = 20.0 + row * shown.len() as f32;
        let mut canvas = Canvas::new(2.0 * PANEL.0, bottom + 60.0);
        let area = [260.0, 20.0, 2.0 * PANEL.0 - 40.0, bottom];
        let y = Axis { range: (0.0, 1.0), log: false, ticks: vec![], label: String::new() };
        let axes = Axes { x: Axis::linear(0.0, 1.0, "share of the variance (ε²)"), y, area };
        axes.draw_grid(&mut canvas);
        for (i, (parameter, share)) in shown.iter().enumerate() {
            let top = 20.0 + row * i as f32;
            let (right, _) = axes.at((*share, 0.0));
            let (upper, lower) = (top + 6.0, top + row - 6.0);
            canvas.fill(&[(area[0], upper), (right, upper), (right, lower), (area[0], lower)], OTHER, 1.0);
            canvas.hover(format!("{}: {share:.2}", parameter.key));
            canvas.text(&parameter.key, (area[0] - 8.0, lower - 3.0), TEXT, Anchor::End, INK);
        }
        axes.draw_frame(&mut canvas, "");
        canvas
    }

    fn mark(&self, trial: &SearchTrial, at: (f64, f64), cost: f64) -> Mark {
        let best = self.has_best && self.trials.first().is_some_and(|first| first.number == trial.number);
        let values = self.parameters.iter().zip(&trial.values).map(|(p, v)| format!("{} = {v}", p.key));
        let hover = format!("trial {}: {}", trial.number, values.collect::<Vec<_>>().join(", "));
        Mark { at, best, hollow: cost > self.limit, hover }
    }

    fn returns(&self, marks: &[Mark]) -> Axis {
        enclosing(marks.iter().map(|mark| mark.at.1), "mean return")
    }
}

impl SearchParameter {
    fn axis(&self) -> Axis {
        let (low, high) = self.range;
        if let Some(names) = &self.choices {
            let ticks = names.iter().enumerate().map(|(i, name)| (i as f64, name.clone())).collect();
            return Axis { range: (low - 0.5, high + 0.5), log: false, ticks, label: String::new() };
        }
        if !self.log {
            return Axis::enclosing(low, high, "");
        }
        let powers = (low.log10().ceil() as i32..=high.log10().floor() as i32).map(|p| 10_f64.powi(p));
        let ticks = powers.map(|v| (v, format!("{v:e}").replace('-', "−"))).collect();
        Axis { range: (low, high), log: true, ticks, label: String::new() }
    }
}

struct Mark {
    at: (f64, f64),
    best: bool,
    hollow: bool,
    hover: String,
}

/// Draws the best mark last, above the others.
fn draw(canvas: &mut Canvas, axes: &Axes, marks: &[Mark]) {
    for best in [false, true] {
        for mark in marks.iter().filter(|mark| mark.best == best) {
            let colour = if best { BEST } else { OTHER };
            match mark.hollow {
                true => canvas.ring(axes.at(mark.at), 5.0, colour),
                false => canvas.disc(axes.at(mark.at), 5.0, colour),
            }
            canvas.hover(mark.hover.clone());
        }
    }
}

/// Returns a linear axis around the values. Equal values get an axis of some width.
fn enclosing(values: impl Iterator<Item = f64>, label: &str) -> Axis {
    let finite = values.filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    match low <= high {
        false => Axis::linear(0.0, 1.0, label),
        true if low == high => Axis::enclosing(low - 1.0, high + 1.0, label),
        true => Axis::enclosing(low, high, label),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SearchReport {
        let parameter = |key: &str, log, choices: Option<Vec<String>>| SearchParameter {
            key: key.into(),
            range: if choices.is_some() { (0.0, 1.0) } else { (1e-5, 1e-3) },
            log,
            choices,
            importance: Some(0.25),
        };
        let trial = |number: usize, ret, cost| SearchTrial {
            number,
            places: vec![1e-4, 1.0],
            values: vec!["0.0001".into(), "<b>".into()],
            results: vec![SearchResult { steps: 1000, ret, cost }],
            state: "finished".into(),
        };
        SearchReport {
            title: "Search".into(),
            about: "Two trials.".into(),
            limit: 25.0,
            parameters: vec![
                parameter("train.lr", true, None),
                parameter("algo.pmn", false, Some(vec!["both".into(), "<b>".into()])),
            ],
            trials: vec![trial(4, 12.5, 20.0), trial(1, 30.0, 40.0)],
            has_best: true,
            best_config: "[train]\nlr = 0.0001\n".into(),
        }
    }

    #[test]
    fn the_page_names_the_best_trial_and_shows_every_trial_and_figure() {
        let dir = tempfile::tempdir().unwrap();
        let page = report().write(dir.path()).unwrap();
        let text = std::fs::read_to_string(page).unwrap();
        for part in ["Trial 4 is the best", "within the limit of 25", "lr = 0.0001", "algo.pmn", "ε²"] {
            assert!(text.contains(part), "{part}");
        }
        assert_eq!(text.matches("<figure>").count(), 3);
        assert!(!text.contains("<b>"), "values are escaped");
        assert!(text.contains("trial 1: train.lr = 0.0001"), "a mark has the values of its trial");
        for name in ["plane", "parameters", "importance"] {
            assert!(dir.path().join(format!("figures/{name}.png")).exists(), "{name}");
        }
        let none = SearchReport { has_best: false, trials: vec![], ..report() };
        let text = std::fs::read_to_string(none.write(dir.path()).unwrap()).unwrap();
        assert!(text.contains("No trial reached the end"), "a search without results has a page too");
    }
}
