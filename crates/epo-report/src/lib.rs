//! Writes reports on run folders: figures, tables and an HTML page.
//!
//! ```text
//! run folders ──history──▶ runs ──groups──▶ groups (equal but for the seed) ──figures──▶ figures/*.svg, *.png, curves/*.csv
//!                                             └──tables──▶ tables/*.md, *.csv, *.tex
//!                                                          index.html (all of it, no network), report.md
//! ```
//! [`write()`] writes a report. [`history`] reads run folders of this program and of OmniSafe. This crate neither
//! trains nor steps an environment. Costs are not smoothed by default, because smoothing hides violations of the limit.
//! A figure with smoothed costs says so.

mod curves;
pub mod date;
mod equal_cost;
mod evaluation;
mod figures;
mod files;
pub mod groups;
pub mod history;
pub mod labels;
pub mod list;
mod page;
pub mod plot;
pub mod policies;
mod progress;
pub mod search;
pub mod settings;
pub mod state;
pub mod stats;
mod table;
mod tables;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

pub use curves::Band;
pub use evaluation::{EvaluatedPolicy, Evaluation};
pub use files::{printable, shorten};
pub use groups::{Group, RunResults};
pub use table::csv_text;

use figures::Figures;
use history::{Note, read_runs};
use table::Table;

/// Options of a report.
#[derive(Clone, Debug)]
pub struct Options {
    /// Meaning of the shaded band. Default: one standard deviation.
    pub band: Band,
    /// Width of the moving average over returns, in epochs. 1, the default, turns smoothing off.
    pub smooth_return: usize,
    /// Width of the moving average over costs, in epochs. 1, the default, turns smoothing off.
    pub smooth_cost: usize,
    /// Fraction of the steps at the end of a run over which final values are averaged. Default: 0.1.
    pub final_share: f64,
    /// Cost limit of runs whose configuration has none. Default: `None`, which leaves such runs out.
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

/// Reason why no report is written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// None of the folders contains a run that can be shown.
    #[error("no run can be shown: {}", first_note(.0))]
    NoRuns(Vec<Note>),
    /// The report cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// File or folder that cannot be written.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

fn first_note(notes: &[Note]) -> String {
    notes.first().map_or_else(|| "no folder was given".to_owned(), ToString::to_string)
}

/// Contents and files of a written report. `epo report --json` prints it in serialised form.
#[derive(Debug, serde::Serialize)]
pub struct WrittenReport {
    /// Path of the HTML page.
    pub page: PathBuf,
    /// All written files; the HTML page is the last.
    pub files: Vec<PathBuf>,
    /// Number of runs in the report.
    pub runs: usize,
    /// Conclusions that the number of seeds does not support.
    pub caveats: Vec<String>,
    /// Notes on single folders, files and tasks.
    pub notes: Vec<Note>,
    /// Tables as data, each with the keys `name`, `title`, `columns` and `rows`.
    pub tables: Vec<serde_json::Value>,
    /// Tables as Markdown, with the caveats.
    #[serde(skip)]
    pub markdown: String,
}

/// Name of the file that lists the files of a report. The next report uses it to remove outdated files.
const FILES: &str = "files.txt";

/// Reads the runs at or below `paths`, writes the report into the folder `out`, and returns its summary.
pub fn write(paths: &[PathBuf], out: &Path, options: &Options) -> Result<WrittenReport, ReportError> {
    let (runs, mut notes) = read_runs(paths, options.limit);
    if runs.is_empty() {
        return Err(ReportError::NoRuns(notes));
    }
    let groups = groups::groups(runs, options.final_share, &mut notes);
    let shown = groups.iter().map(|group| group.runs.len()).sum();
    let figures = Figures::of(&groups, options);
    let tables = tables::tables(&groups, options.final_share);
    let caveats = tables::caveats(&groups);

    let before = files::read_text(&out.join(FILES)).ok().flatten().unwrap_or_default();
    let mut files = Vec::new();
    let mut save = |path: PathBuf, bytes: &[u8]| save(path, bytes).map(|path| files.push(path));
    for figure in figures.all() {
        save(out.join("figures").join(format!("{}.svg", figure.name)), figure.svg.as_bytes())?;
        save(out.join("figures").join(format!("{}.png", figure.name)), &figure.png)?;
    }
    for (name, text) in &figures.curves {
        save(out.join("curves").join(format!("{name}.csv")), text.as_bytes())?;
    }
    for table in &tables {
        let path = |ending: &str| out.join("tables").join(format!("{}.{ending}", table.name));
        save(path("md"), table.to_markdown().as_bytes())?;
        save(path("csv"), table.to_csv().as_bytes())?;
        save(path("tex"), table.to_latex().as_bytes())?;
    }
    let markdown = markdown(&tables, &caveats);
    save(
        out.join("report.md"),
        format!("# {}\n\n{markdown}", table::markdown_text(&options.title)).as_bytes(),
    )?;
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
    self::save(out.join(FILES), (names.join("\n") + "\n").as_bytes())?;
    let tables = tables.iter().map(Table::to_json).collect();
    Ok(WrittenReport { page, files, runs: shown, caveats, notes, tables, markdown })
}

/// Removes files of the previous report that the present report did not write.
///
/// Other files in the folder stay. Links are not followed, so files outside the folder stay too.
fn remove_old(out: &Path, before: &str, files: &[PathBuf]) {
    let files: BTreeSet<&PathBuf> = files.iter().collect();
    let inside = |name: &&str| Path::new(name).components().all(|c| matches!(c, Component::Normal(_)));
    let has_link = |path: &Path| {
        let within = path.ancestors().skip(1).take_while(|folder| *folder != out);
        within.into_iter().any(Path::is_symlink)
    };
    for old in before.lines().filter(inside).map(|name| out.join(name)) {
        if !files.contains(&old) && !has_link(&old) {
            let _ = fs::remove_file(old); // an error is ignored: the file may already be gone
        }
    }
}

fn save(path: PathBuf, bytes: &[u8]) -> Result<PathBuf, ReportError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let write = || {
        fs::create_dir_all(parent)?;
        if path.is_symlink() {
            fs::remove_file(&path)?; // replaces the link itself; its target stays unchanged
        }
        fs::write(&path, bytes)
    };
    match write() {
        Ok(()) => Ok(path),
        Err(source) => Err(ReportError::Write { path, source }),
    }
}

fn markdown(tables: &[Table], caveats: &[String]) -> String {
    let mut out = String::new();
    if !caveats.is_empty() {
        out += "## What these runs do not show\n\n";
        for caveat in caveats {
            out += &format!("- {}\n", table::markdown_text(caveat));
        }
        out += "\n";
    }
    out + &tables.iter().map(Table::to_markdown).collect::<Vec<_>>().join("\n")
}
