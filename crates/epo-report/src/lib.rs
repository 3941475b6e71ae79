//! From run folders to figures, tables and one page: `epo report`.
//!
//! ```text
//! runs ──read──▶ groups (all but the seed equal) ──▶ curves ──▶ figures/*.svg, *.png, curves/*.csv
//!                                                └─▶ tables ──▶ tables/*.md, *.csv, *.tex
//!                                                               index.html (all of it, no network), report.md
//! ```
//! Cost is not smoothed unless asked for, and the figure then says so: smoothing hides violations.

mod groups;
pub mod history;
mod page;
mod plot;
pub mod settings;
pub mod stats;
mod table;
mod tables;

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

pub use groups::{Achieved, Band, Group};

use crate::history::{Note, read_runs};
use plot::figure::{Figure, Panel};
use table::Table;

/// Choices of a report.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the shaded band shows.
    pub band: Band,
    /// Rows of the moving mean over returns; 1 for none.
    pub smooth_return: usize,
    /// Rows of the moving mean over costs; 1 for none.
    pub smooth_cost: usize,
    /// Share of a run's steps at its end that makes the final values.
    pub final_share: f64,
    /// Cost limit of runs that name none; without it they are left out.
    pub limit: Option<f64>,
    /// Heading of the page.
    pub title: String,
}

impl Default for Options {
    fn default() -> Self {
        let title = "Constrained reinforcement learning: report".into();
        Self { band: Band::Std, smooth_return: 1, smooth_cost: 1, final_share: 0.1, limit: None, title }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// None of the folders holds a run that can be shown.
    #[error("no run can be shown: {}", first_note(.0))]
    NoRuns(Vec<Note>),
    /// The report cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn first_note(notes: &[Note]) -> String {
    notes.first().map_or_else(|| "no folder was named".to_owned(), ToString::to_string)
}

/// What a report was made of, and what was written. Serialised, it is what `epo report --json` prints.
#[derive(Debug, serde::Serialize)]
pub struct Summary {
    /// The page.
    pub page: PathBuf,
    /// Every file that was written, the page last.
    pub files: Vec<PathBuf>,
    /// Runs shown.
    pub runs: usize,
    /// What so few seeds do not show.
    pub caveats: Vec<String>,
    /// What the reader should know about single folders.
    pub notes: Vec<Note>,
    /// Tables as data: `{"name", "title", "columns", "rows"}` each.
    pub tables: Vec<serde_json::Value>,
    /// Tables as Markdown, with the caveats.
    #[serde(skip)]
    pub markdown: String,
}

/// List of the files of a report, by which the next one in the folder knows what is out of date.
const FILES: &str = "files.txt";

/// Name of the figure of all tasks.
const OVERVIEW: &str = "overview";

/// One drawn figure.
struct Drawn {
    name: String,
    title: String,
    svg: String,
    png: Vec<u8>,
}

/// Reads the runs and writes the report into `out`.
pub fn write(paths: &[PathBuf], out: &Path, options: &Options) -> Result<Summary, ReportError> {
    let (runs, mut notes) = read_runs(paths, options.limit);
    if runs.is_empty() {
        return Err(ReportError::NoRuns(notes));
    }
    let groups = groups::groups(runs, options.final_share, &mut notes);
    let shown = groups.iter().map(|group| group.runs.len()).sum();
    let legend = legend(&groups);
    let (figures, curves) = figures(&groups, &legend, options);
    let tables = tables::tables(&groups, options.final_share);
    let caveats = tables::caveats(&groups);

    let before = fs::read_to_string(out.join(FILES)).unwrap_or_default();
    let mut files = Vec::new();
    let mut save = |path: PathBuf, bytes: &[u8]| save(path, bytes).map(|path| files.push(path));
    for figure in &figures {
        save(out.join("figures").join(format!("{}.svg", figure.name)), figure.svg.as_bytes())?;
        save(out.join("figures").join(format!("{}.png", figure.name)), &figure.png)?;
    }
    for (task, text) in &curves {
        save(out.join("curves").join(format!("{}.csv", file_name(task))), text.as_bytes())?;
    }
    for table in &tables {
        let path = |ending: &str| out.join("tables").join(format!("{}.{ending}", table.name));
        save(path("md"), table.to_markdown().as_bytes())?;
        save(path("csv"), table.to_csv().as_bytes())?;
        save(path("tex"), table.to_latex().as_bytes())?;
    }
    let markdown = markdown(&tables, &caveats);
    save(out.join("report.md"), format!("# {}\n\n{markdown}", options.title).as_bytes())?;
    let page = out.join("index.html");
    let content = page::Page {
        options,
        groups: &groups,
        figures: &figures,
        tables: &tables,
        caveats: &caveats,
        notes: &notes,
    };
    save(page.clone(), content.render().as_bytes())?;
    remove_old(out, &before, &files);
    let names: Vec<_> = files.iter().filter_map(|file| file.strip_prefix(out).ok()?.to_str()).collect();
    fs::write(out.join(FILES), names.join("\n") + "\n")
        .map_err(|source| ReportError::Write { path: out.join(FILES), source })?;
    let tables = tables.iter().map(Table::to_json).collect();
    Ok(Summary { page, files, runs: shown, caveats, notes, tables, markdown })
}

/// Removes what the report before wrote here and this one did not; nothing else in the folder, and nothing outside it.
fn remove_old(out: &Path, before: &str, files: &[PathBuf]) {
    let inside = |name: &&str| Path::new(name).components().all(|c| matches!(c, Component::Normal(_)));
    for old in before.lines().filter(inside).map(|name| out.join(name)) {
        if !files.contains(&old) {
            let _ = fs::remove_file(old); // gone already, or not ours any more
        }
    }
}

fn save(path: PathBuf, bytes: &[u8]) -> Result<PathBuf, ReportError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    match fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes)) {
        Ok(()) => Ok(path),
        Err(source) => Err(ReportError::Write { path, source }),
    }
}

/// A task id as a file name.
fn file_name(task: &str) -> String {
    task.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// Every label once, in the order of the groups; the place is the colour, the same in all figures.
fn legend(groups: &[Group]) -> Vec<String> {
    let mut legend: Vec<String> = Vec::new();
    let mut by_size: Vec<&[Group]> = groups.chunk_by(|a, b| a.task == b.task).collect();
    by_size.sort_by_key(|g| std::cmp::Reverse(g.len())); // the fullest task has the labels in their order
    for group in by_size.into_iter().flatten() {
        if !legend.contains(&group.label) {
            legend.push(group.label.clone());
        }
    }
    legend
}

/// Return and cost of one task.
fn panels(groups: &[Group], legend: &[String], options: &Options) -> [Panel; 2] {
    let entry = |group: &Group| legend.iter().position(|l| *l == group.label).unwrap_or(0);
    let curves = |value: fn(&crate::history::Point) -> f64, window: usize| {
        groups.iter().map(|g| groups::curve(g, value, window, options.band, entry(g))).collect()
    };
    let limit = |group: &Group| group.runs[0].limit;
    let same = groups.iter().all(|g| limit(g) == limit(&groups[0]));
    let limits = match same {
        true => vec![(limit(&groups[0]), None)],
        false => groups.iter().map(|g| (limit(g), Some(entry(g)))).collect(),
    };
    let label = |name: &str, window: usize| match window {
        0 | 1 => name.to_owned(),
        w => format!("{name}, mean of {w} epochs"),
    };
    let task = groups[0].task.as_str();
    let short = task.strip_prefix("Safety").unwrap_or(task);
    let [ret, cost] = [(options.smooth_return, "episode return"), (options.smooth_cost, "episode cost")];
    [
        Panel {
            title: short.to_owned(),
            y_label: label(ret.1, ret.0),
            series: curves(|p| p.ret, ret.0),
            limits: Vec::new(),
        },
        Panel {
            title: short.to_owned(),
            y_label: label(cost.1, cost.0),
            series: curves(|p| p.cost, cost.0),
            limits,
        },
    ]
}

/// One figure per task, one of all tasks if there are several, and the curves as CSV by task.
fn figures(groups: &[Group], legend: &[String], options: &Options) -> (Vec<Drawn>, Vec<(String, String)>) {
    let per_task: Vec<(&str, [Panel; 2])> = (groups.chunk_by(|a, b| a.task == b.task))
        .map(|g| (g[0].task.as_str(), panels(g, legend, options)))
        .collect();
    let draw = |name: String, title: String, figure: &Figure| {
        let canvas = figure.draw();
        Drawn { svg: canvas.to_svg(&title), png: canvas.to_png(), name, title }
    };
    let mut drawn = Vec::new();
    if per_task.len() > 1 {
        // rows of up to four tasks: returns above, costs below, as in the paper
        let mut all = Vec::new();
        for row in per_task.chunks(4) {
            let blank = || Panel { title: String::new(), ..Panel::default() };
            for which in 0..2 {
                all.extend(row.iter().map(|(_, p)| p[which].clone()));
                if per_task.len() > 4 {
                    all.extend((row.len()..4).map(|_| blank()));
                }
            }
        }
        let figure = Figure { columns: per_task.len().min(4), panels: all, legend: legend.to_vec() };
        drawn.push(draw(OVERVIEW.into(), "Learning curves of all tasks".into(), &figure));
    }
    for (task, panels) in &per_task {
        let present = |entry: usize| panels[0].series.iter().any(|s| s.entry == entry);
        // the legend of a single task leaves out what it does not show, but keeps the colours of the others
        let names =
            legend.iter().enumerate().map(|(i, l)| if present(i) { l.clone() } else { String::new() });
        let figure = Figure { columns: 2, panels: panels.to_vec(), legend: names.collect() };
        drawn.push(draw(file_name(task), format!("Learning curves of {task}"), &figure));
    }
    let curves =
        per_task.iter().map(|(task, panels)| ((*task).to_owned(), curve_csv(panels, legend))).collect();
    (drawn, curves)
}

fn curve_csv(panels: &[Panel; 2], legend: &[String]) -> String {
    let mut out = String::from("algorithm,steps,return_mean,return_lo,return_hi,cost_mean,cost_lo,cost_hi\n");
    for (ret, cost) in panels[0].series.iter().zip(&panels[1].series) {
        let label = legend[ret.entry].replace('"', "\"\"");
        let cell = |v: f64| if v.is_finite() { v.to_string() } else { String::new() };
        for i in 0..ret.steps.len() {
            let numbers =
                [ret.mean[i], ret.band[i].0, ret.band[i].1, cost.mean[i], cost.band[i].0, cost.band[i].1];
            out += &format!("\"{label}\",{},{}\n", ret.steps[i], numbers.map(cell).join(","));
        }
    }
    out
}

fn markdown(tables: &[Table], caveats: &[String]) -> String {
    let mut out = String::new();
    if !caveats.is_empty() {
        out += "## What these runs do not show\n\n";
        for caveat in caveats {
            out += &format!("- {caveat}\n");
        }
        out += "\n";
    }
    out + &tables.iter().map(Table::to_markdown).collect::<Vec<_>>().join("\n")
}
