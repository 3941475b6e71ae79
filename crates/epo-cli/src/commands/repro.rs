//! `epo repro`

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Context;
use epo_lab::engine::Plan;
use epo_lab::repro::{Duration, Experiment, NextMeasurement, Shrink, estimate, until_done};
use epo_report::Options;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::report;
use super::sweep::{SweepOptions, execute, usage, what};
use crate::exit::Code;
use crate::output::{self, duration};

/// Arguments of `epo repro`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Experiment to run
    #[arg(value_enum)]
    experiment: ExperimentArg,
    /// Number of environment steps of each run, such as 1e6 [default: that of the experiment]
    #[arg(long, value_parser = count)]
    steps: Option<u64>,
    /// Number of seeds, counted from 0 [default: that of the experiment]
    #[arg(long, value_parser = count)]
    seeds: Option<u64>,
    /// Tasks, separated by commas [default: those of the experiment]
    #[arg(long, value_delimiter = ',', value_parser = name)]
    tasks: Vec<String>,
    /// Algorithms, separated by commas [default: those of the experiment]
    #[arg(long, value_delimiter = ',', value_parser = name)]
    algos: Vec<String>,
    /// Folder for the runs and the report; the same command continues an interrupted experiment
    #[arg(long)]
    out: PathBuf,
    /// List the runs and estimate their duration on this machine from a short measurement, then stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    how: SweepOptions,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ExperimentArg {
    /// EPO and its baselines on the tasks of the paper
    Paper,
    /// Ablation study: variants of EPO compared with EPO
    Ablation,
    /// EPO at several cost limits
    Limits,
}

impl ExperimentArg {
    fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Ablation => "ablation",
            Self::Limits => "limits",
        }
    }
}

/// Parses one name of a list and removes the spaces around it.
fn name(text: &str) -> Result<String, String> {
    Ok(text.trim().to_owned())
}

/// Parses a whole number of at least 1; `1e6` is accepted too.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    let whole = value.is_finite() && value >= 1.0 && value.fract() == 0.0 && value < 1e18;
    if whole { Ok(value as u64) } else { Err(format!("`{text}` is not a whole number of at least 1")) }
}

/// Runs an experiment of the paper and writes its report.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let (experiment, title) = match args.experiment {
        ExperimentArg::Paper => (Experiment::Paper, "EPO and its baselines"),
        ExperimentArg::Ablation => (Experiment::Ablation, "Variants of EPO compared with EPO"),
        ExperimentArg::Limits => (Experiment::Limits, "EPO at several limits"),
    };
    let shrink = Shrink { steps: args.steps, seeds: args.seeds, tasks: args.tasks, algos: args.algos };
    let file = experiment.file(&shrink).map_err(usage)?;
    let runs = file.plan().map_err(usage)?;
    if args.dry_run {
        return dry_run(&runs, &args.how);
    }
    let plan =
        Plan { name: args.experiment.name().to_owned(), dir: args.out.clone(), size: runs.len(), runs };
    let Some(sweep) = execute(&plan, &file, &args.how)? else { return Ok(Code::Done) };
    if !args.how.json {
        output::print(&sweep.text())?;
    }
    let report = match sweep.code() {
        _ if sweep.pending > 0 => None,
        // The report leaves out failed runs and says so.
        code => {
            let options = Options { title: title.into(), ..Options::default() };
            match report::make(&[args.out.join("runs")], &args.out.join("report"), &options, false) {
                Err(e) if code == Code::Done => return Err(e),
                // Some runs failed, and the exit code says so. The missing report is only mentioned.
                Err(e) => {
                    tell!("no report: {e:#}");
                    None
                }
                Ok(report) => Some(report),
            }
        }
    };
    if args.how.json {
        output::print(&serde_json::to_string_pretty(&json!({"sweep": sweep, "report": report}))?)?;
    } else if let Some(report) = report {
        output::print(&report.markdown)?;
    }
    Ok(sweep.code())
}

fn dry_run(runs: &[epo_lab::sweep::PlannedRun], how: &SweepOptions) -> anyhow::Result<Code> {
    let (jobs, threads) = how.shares(runs.len());
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let stop = epo_lab::stop::on_signals().context("cannot listen for signals")?;
    let screen = Measurements::new(how.quiet);
    let seconds = estimate(runs, jobs, threads, dir.path(), &stop, |now| screen.show(now));
    screen.clear();
    let Some(times) = seconds.context("the measurement failed")? else { return Ok(Code::Interrupted) };
    let total = |of: fn(&Duration) -> f64| until_done(&times.iter().map(of).collect::<Vec<_>>(), jobs);
    let (least, most) = (total(|t| t.least), total(|t| t.most));
    if how.json {
        let run = |(run, time): (&epo_lab::sweep::PlannedRun, &Duration)| {
            let mut value = what(run);
            value["seconds"] = json!(time.most);
            value["seconds_least"] = json!(time.least);
            value
        };
        let runs: Vec<_> = runs.iter().zip(&times).map(run).collect();
        let document =
            json!({"jobs": jobs, "threads": threads, "seconds": most, "seconds_least": least, "runs": runs});
        output::print(&serde_json::to_string_pretty(&document)?)?;
        return Ok(Code::Done);
    }
    let header = ["Run", "Steps", "At least", "At most"].map(str::to_owned);
    let row = |(run, time): (&epo_lab::sweep::PlannedRun, &Duration)| {
        [run.label(), run.steps.to_string(), duration(time.least), duration(time.most)]
    };
    let rows: Vec<_> = [header].into_iter().chain(runs.iter().zip(&times).map(row)).collect();
    let mut lines = output::table(&rows, 1);
    lines.push(format!(
        "{}, {jobs} side by side with {} each: between {} and {} on this machine at its present load.",
        output::count(runs.len(), "run"),
        output::count(threads, "thread"),
        duration(least),
        duration(most)
    ));
    lines.push(
        "The lower estimate assumes that the KL stop ends every update after one pass. The upper estimate assumes that \
         every update makes all passes."
            .to_owned(),
    );
    output::print(&lines.join("\n"))?;
    Ok(Code::Done)
}

/// Shows the progress of the measurements on stderr: a bar on a terminal, otherwise one line per measurement.
enum Measurements {
    Nowhere,
    Lines,
    Bar(ProgressBar),
}

impl Measurements {
    fn new(quiet: bool) -> Self {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Self::Nowhere,
            (_, false) => Self::Lines,
            _ => {
                let style = ProgressStyle::with_template("{bar:24} {pos}/{len} measured, now {msg}");
                let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
                Self::Bar(ProgressBar::new(0).with_style(style))
            }
        }
    }

    fn show(&self, now: NextMeasurement<'_>) {
        let NextMeasurement { done, of, run } = now;
        let comma = if run.variant.is_empty() { "" } else { ", " };
        let what = format!("{} on {}{comma}{}", run.algo, run.task, run.variant);
        match self {
            Self::Nowhere => {}
            Self::Lines => tell!("measuring {} of {of}: {what}", done + 1),
            Self::Bar(bar) => {
                bar.set_length(of as u64);
                bar.set_position(done as u64);
                bar.set_message(what);
            }
        }
    }

    fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
