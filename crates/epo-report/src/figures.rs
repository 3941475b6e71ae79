//! The figures of a report and the curves as CSV.
//!
//! Each task has up to three figures: learning curves, final return over final cost, and diagnostics. If there are
//! several tasks, one more figure shows the learning curves of all of them, for use in papers. The numbers of figures
//! and lines are limited; the report says what is left out.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::curves::{MOST_SEEDS, curve, diagnostic};
use crate::evaluation::{EvaluatedPolicy, of_policy};
use crate::files::FileNames;
use crate::groups::Group;
use crate::history::{DIAGNOSTICS, Point};
use crate::plot::figure::{Across, Figure, MOST_LINES, Mark, Panel, PanelValues, Series};
use crate::table::{csv_text, number};
use crate::{Band, Options};

/// Maximum number of tasks whose figures are drawn.
pub(crate) const MOST_TASKS: usize = 40;
/// Maximum number of tasks in the figure of all tasks.
const MOST_TOGETHER: usize = 12;
/// Maximum number of runs of one algorithm in the figure of return over cost.
const MOST_MARKS: usize = 200;

/// One drawn figure.
pub(crate) struct DrawnFigure {
    /// Path below `figures/`, without file extension.
    pub name: String,
    pub title: String,
    /// What the figure shows and what it leaves out.
    pub caption: String,
    pub svg: String,
    pub png: Vec<u8>,
    /// Values of the lines, for the page.
    pub values: Vec<PanelValues>,
}

/// All figures and curves of a report.
pub(crate) struct Figures {
    /// Figures of each task, in the order of the page.
    pub tasks: Vec<Vec<DrawnFigure>>,
    /// The figure of all tasks; `None` if there is only one task.
    pub together: Option<DrawnFigure>,
    /// Curves as CSV: file name without extension, and content.
    pub curves: Vec<(String, String)>,
    /// Sentences that say what is not drawn because a maximum is exceeded.
    pub left_out: Vec<String>,
}

impl Figures {
    /// Returns all figures.
    pub(crate) fn all(&self) -> impl Iterator<Item = &DrawnFigure> {
        self.together.iter().chain(self.tasks.iter().flatten())
    }

    pub(crate) fn of(groups: &[Group], options: &Options) -> Self {
        let legend = legend(groups);
        let by_task: Vec<&[Group]> = groups.chunk_by(|a, b| a.task == b.task).collect();
        let mut names = FileNames::default();
        names.name(TOGETHER); // reserves the name, so that no task gets it
        let named: Vec<(String, &[Group])> = by_task.iter().map(|g| (names.name(&g[0].task), *g)).collect();
        let curves = |(name, of_task): &(String, &[Group])| {
            let panels = learning_curves(of_task, &legend, options);
            (name.clone(), curve_csv(&panels, of_task))
        };
        let drawn = &named[..named.len().min(MOST_TASKS)];
        let mut left_out = Vec::new();
        if drawn.len() < named.len() {
            let (all, most) = (named.len(), MOST_TASKS);
            left_out.push(format!(
                "The figures show the first {most} of {all} tasks; the tables and curves/ hold all."
            ));
        }
        let widest = by_task.iter().map(|g| g.len()).max().unwrap_or(0);
        if widest > MOST_LINES {
            left_out.push(format!(
                "A figure shows at most {MOST_LINES} algorithms or variants; there are up to {widest} on a task. The tables hold all."
            ));
        }
        let most_seeds = groups.iter().map(|g| g.runs.len()).max().unwrap_or(0);
        if most_seeds > MOST_SEEDS {
            left_out.push(format!(
                "Thin lines show the first {MOST_SEEDS} of up to {most_seeds} seeds; the mean and the band are over all."
            ));
        }
        Self {
            tasks: drawn.par_iter().map(|(name, g)| of_task(name, g, &legend, options)).collect(),
            together: together(&by_task, &legend, options),
            curves: named.par_iter().map(curves).collect(),
            left_out,
        }
    }
}

/// File name of the figure of all tasks.
const TOGETHER: &str = "overview";

/// Returns the index of every label. The index selects the colour, so a label has the same colour in all figures.
fn legend(groups: &[Group]) -> BTreeMap<&str, usize> {
    let mut by_size: Vec<&[Group]> = groups.chunk_by(|a, b| a.task == b.task).collect();
    by_size.sort_by_key(|g| std::cmp::Reverse(g.len())); // the task with the most groups orders the labels
    let mut legend = BTreeMap::new();
    for group in by_size.into_iter().flatten() {
        let next = legend.len();
        legend.entry(group.label.as_str()).or_insert(next);
    }
    legend
}

/// Returns the legend names by index. Names of groups that are not shown are empty.
fn names(groups: &[&Group], legend: &BTreeMap<&str, usize>) -> Vec<String> {
    let mut names = Vec::new();
    for group in groups {
        let entry = legend[group.label.as_str()];
        names.resize(names.len().max(entry + 1), String::new());
        names[entry].clone_from(&group.label);
    }
    names
}

/// Returns the limit lines of groups: one line if all limits are equal, otherwise one line per group in its colour.
fn limits(groups: &[Group], legend: &BTreeMap<&str, usize>) -> Vec<(f64, Option<usize>)> {
    let limit = |group: &Group| group.runs[0].limit;
    match groups.iter().all(|g| limit(g) == limit(&groups[0])) {
        true => vec![(limit(&groups[0]), None)],
        false => groups.iter().take(MOST_LINES).map(|g| (limit(g), Some(legend[g.label.as_str()]))).collect(),
    }
}

/// Returns the task id without the prefix `Safety`, for headings.
fn short(task: &str) -> String {
    task.strip_prefix("Safety").filter(|rest| !rest.is_empty()).unwrap_or(task).to_owned()
}

/// Returns the panels for the return and the cost of one task.
fn learning_curves(groups: &[Group], legend: &BTreeMap<&str, usize>, options: &Options) -> [Panel; 2] {
    let panel = |name: &str, value: fn(&Point) -> f64, window: usize| Panel {
        title: short(&groups[0].task),
        y_label: if window > 1 { format!("{name}, mean of {window} epochs") } else { name.to_owned() },
        series: groups
            .iter()
            .map(|g| curve(g, value, window, options.band, legend[g.label.as_str()]))
            .collect(),
        ..Panel::default()
    };
    let cost = panel("episode cost", |p| p.cost, options.smooth_cost);
    [
        panel("episode return", |p| p.ret, options.smooth_return),
        Panel { limits: limits(groups, legend), ..cost },
    ]
}

fn draw(name: String, title: String, caption: String, figure: &Figure) -> DrawnFigure {
    let canvas = figure.draw();
    DrawnFigure {
        svg: canvas.to_svg(&title),
        png: canvas.to_png(),
        values: figure.values(),
        name,
        title,
        caption,
    }
}

/// Returns the figures of one task.
fn of_task(
    name: &str,
    groups: &[Group],
    legend: &BTreeMap<&str, usize>,
    options: &Options,
) -> Vec<DrawnFigure> {
    let groups = &groups[..groups.len().min(MOST_LINES)];
    let task = &groups[0].task;
    let shown = names(&groups.iter().collect::<Vec<_>>(), legend);
    let panels = learning_curves(groups, legend, options);
    let caption = curve_caption(&panels[0].series, options);
    let curves = Figure { columns: 2, panels: panels.to_vec(), legend: shown.clone() };
    let mut drawn = vec![draw(name.to_owned(), format!("Learning curves of {task}"), caption, &curves)];
    if let Some(panel) = plane(groups, legend) {
        let hollow = panel.marks.iter().any(|m| m.hollow);
        let figure = Figure { columns: 1, panels: vec![panel], legend: shown.clone() };
        let mut caption =
            "Each disc is a run: its final return over its final cost. Runs left of the dashed line are within the limit."
                .to_owned();
        if hollow {
            caption += " Each ring is the evaluation of a run with the mean action.";
        }
        drawn.push(draw(format!("plane/{name}"), format!("Return and cost of {task}"), caption, &figure));
    }
    let panels = diagnostics(groups, legend);
    if !panels.is_empty() {
        let figure = Figure { columns: 3, panels, legend: shown };
        let title = format!("Diagnostics of {task}");
        drawn.push(draw(
            format!("diagnostics/{name}"),
            title,
            "The lines are means over the seeds.".into(),
            &figure,
        ));
    }
    drawn
}

/// Returns a caption that explains the line, the thin lines and the band, if they are present.
fn curve_caption(series: &[Series], options: &Options) -> String {
    let mut text = match series.iter().any(|s| !s.seeds.is_empty()) {
        true => "The line is the mean over the seeds. Thin lines are single seeds.".to_owned(),
        false => "The line is the only seed.".to_owned(),
    };
    if series.iter().any(Series::has_band) {
        text += match options.band {
            Band::Std => " The band is one standard deviation over the seeds to either side.",
            Band::Ci95 => " The band is the 95 % interval of the mean over the seeds (Student’s t).",
        };
    }
    text
}

/// Returns the figure of final return over final cost with one mark per run; `None` if no run has final values.
fn plane(groups: &[Group], legend: &BTreeMap<&str, usize>) -> Option<Panel> {
    let mut marks = Vec::new();
    for group in groups {
        let entry = legend[group.label.as_str()];
        for (&i, achieved) in group.reached.iter().zip(&group.achieved).take(MOST_MARKS) {
            let run = &group.runs[i];
            let mut mark = |at: (f64, f64), hollow: bool, kind: &str| {
                let (ret, cost) = (number(at.1), number(at.0));
                let hover = format!("{}, seed {}, {kind}: return {ret}, cost {cost}", group.label, run.seed);
                marks.push(Mark { entry, at, hollow, hover });
            };
            mark((achieved.cost, achieved.ret), false, "end of training");
            if let Some(e) = of_policy(&run.evaluations, EvaluatedPolicy::Mean) {
                mark((e.cost, e.ret), true, "evaluated with the mean action");
            }
        }
    }
    (!marks.is_empty()).then(|| Panel {
        title: short(&groups[0].task),
        across: Across::Cost,
        y_label: "episode return".into(),
        marks,
        limits: limits(groups, legend),
        ..Panel::default()
    })
}

/// Returns one panel for each diagnostic that at least one run has.
fn diagnostics(groups: &[Group], legend: &BTreeMap<&str, usize>) -> Vec<Panel> {
    let panel = |(which, (_, name)): (usize, &(epo_core::Metric, String))| {
        let series: Vec<Series> =
            (groups.iter()).filter_map(|g| diagnostic(g, which, legend[g.label.as_str()])).collect();
        let (title, y_label) = (name.clone(), String::new());
        (!series.is_empty()).then(|| Panel { title, y_label, series, ..Panel::default() })
    };
    DIAGNOSTICS.iter().enumerate().filter_map(panel).collect()
}

/// Returns one figure with the learning curves of several tasks: returns above, costs below, up to four tasks per row.
fn together(by_task: &[&[Group]], legend: &BTreeMap<&str, usize>, options: &Options) -> Option<DrawnFigure> {
    if !(2..=MOST_TOGETHER).contains(&by_task.len()) {
        return None;
    }
    let of_task = |groups: &&[Group]| {
        let mut panels = learning_curves(&groups[..groups.len().min(MOST_LINES)], legend, options);
        for series in panels.iter_mut().flat_map(|p| &mut p.series) {
            series.seeds.clear(); // the panels are too small to show single seeds
        }
        panels
    };
    let all: Vec<[Panel; 2]> = by_task.iter().map(of_task).collect();
    let columns = all.len().min(4);
    let mut panels = Vec::new();
    for row in all.chunks(columns) {
        for which in 0..2 {
            panels.extend(row.iter().map(|p| p[which].clone()));
            panels.extend((row.len()..columns).map(|_| Panel::default()));
        }
    }
    let groups: Vec<&Group> = by_task.iter().flat_map(|g| g.iter().take(MOST_LINES)).collect();
    let figure = Figure { columns, panels, legend: names(&groups, legend) };
    Some(draw(TOGETHER.into(), "Learning curves of all tasks".into(), String::new(), &figure))
}

fn curve_csv(panels: &[Panel; 2], groups: &[Group]) -> String {
    let mut out = String::from("algorithm,steps,return_mean,return_lo,return_hi,cost_mean,cost_lo,cost_hi\n");
    for ((ret, cost), group) in panels[0].series.iter().zip(&panels[1].series).zip(groups) {
        let label = csv_text(&group.label);
        let cell = |v: f64| if v.is_finite() { v.to_string() } else { String::new() };
        for i in 0..ret.steps.len() {
            let numbers =
                [ret.mean[i], ret.band[i].0, ret.band[i].1, cost.mean[i], cost.band[i].0, cost.band[i].1];
            out += &format!("{label},{},{}\n", ret.steps[i], numbers.map(cell).join(","));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::groups;
    use crate::groups::tests::run;

    fn figures(tasks: usize, algos: &[&str], seeds: u64) -> (Figures, Vec<Group>) {
        let mut runs = Vec::new();
        for task in 0..tasks {
            for algo in algos {
                runs.extend(
                    (0..seeds).map(|s| run(&format!("T{task}"), algo, s, &[(0.0, 60.0), (1.0, 9.0)])),
                );
            }
        }
        let groups = groups(runs, 0.1, &mut Vec::new());
        (Figures::of(&groups, &Options::default()), groups)
    }

    #[test]
    fn one_task_has_no_figure_of_all_tasks_and_one_seed_no_band() {
        let (one, _) = figures(1, &["epo"], 1);
        assert!(one.together.is_none() && one.tasks.len() == 1 && one.left_out.is_empty());
        assert!(!one.tasks[0][0].caption.contains("The band"), "{}", one.tasks[0][0].caption);
        let (two, _) = figures(2, &["epo", "ppo"], 2);
        assert!(two.together.is_some() && two.tasks[0][0].caption.contains("The band"));
        let names: Vec<_> = two.tasks.iter().flatten().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["T0", "plane/T0", "T1", "plane/T1"], "the figure of all tasks is not among them");
        assert!(two.tasks[0][1].svg.contains("EPO, seed 1, end of training: return 1.00, cost 9.00"));
    }

    /// This test fails if the number of figures is not limited, or if the report does not say what is left out.
    #[test]
    fn tasks_and_curves_beyond_the_limits_are_named() {
        let (many, _) = figures(MOST_TASKS + 2, &["epo"], 1);
        assert_eq!((many.tasks.len(), many.curves.len()), (MOST_TASKS, MOST_TASKS + 2));
        assert!(
            many.together.is_none() && many.left_out[0].contains("first 40 of 42 tasks"),
            "{:?}",
            many.left_out
        );
        let algos: Vec<String> = (0..MOST_LINES + 3).map(|i| format!("a{i:02}")).collect();
        let (wide, groups) = figures(1, &algos.iter().map(String::as_str).collect::<Vec<_>>(), 1);
        assert!(
            wide.left_out[0].contains("at most 21") && wide.left_out[0].contains("up to 24"),
            "{:?}",
            wide.left_out
        );
        let rows = wide.curves[0].1.lines().count();
        assert_eq!(rows, 1 + 2 * groups.len(), "curves are missing in the CSV");
        let (deep, _) = figures(1, &["epo"], MOST_SEEDS as u64 + 5);
        assert!(deep.left_out[0].contains("first 20 of up to 25 seeds"), "{:?}", deep.left_out);
    }
}
