//! `epo repro`

use std::path::PathBuf;

use anyhow::Context;
use epo_lab::report::Options;
use epo_lab::repro::{Experiment, Shrink, estimate};

use super::report;
use super::sweep::{How, drive_all, duration, usage};
use crate::exit::Code;
use crate::output;

/// Arguments of `epo repro`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Which experiment
    #[arg(value_enum)]
    experiment: Which,
    /// Environment steps of each run, such as 1e6
    #[arg(long, value_parser = count)]
    steps: Option<u64>,
    /// Number of seeds
    #[arg(long)]
    seeds: Option<u64>,
    /// Tasks instead of the paper's
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    tasks: Vec<String>,
    /// Algorithms instead of the paper's
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    algos: Vec<String>,
    /// Folder for runs and report; the same command goes on where it was
    #[arg(long)]
    out: PathBuf,
    /// Say what would run and how long it would take here, from a short measurement
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    how: How,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Which {
    /// EPO and five baselines on eight tasks
    Paper,
    /// Parts of EPO against the whole
    Ablation,
    /// EPO at several limits
    Limits,
}

/// A whole number, also as `1e6`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    let whole = value.is_finite() && value >= 1.0 && value.fract() == 0.0 && value < 1e18;
    if whole { Ok(value as u64) } else { Err(format!("`{text}` is not a whole number of at least 1")) }
}

/// Runs an experiment of the paper and reports on it.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let (experiment, title) = match args.experiment {
        Which::Paper => (Experiment::Paper, "EPO and its baselines"),
        Which::Ablation => (Experiment::Ablation, "Parts of EPO against the whole"),
        Which::Limits => (Experiment::Limits, "EPO at several limits"),
    };
    let shrink = Shrink { steps: args.steps, seeds: args.seeds, tasks: args.tasks, algos: args.algos };
    let runs = experiment.file(&shrink).and_then(|file| file.plan()).map_err(usage)?;
    if args.dry_run {
        return dry_run(&runs, &args.how);
    }
    let code = drive_all(&runs, &args.out, &args.how)?;
    if code == Code::Interrupted {
        return Ok(code);
    }
    // failed runs are missing in the report; it says so
    let options = Options { title: title.into(), ..Options::default() };
    report::make(&[args.out.join("runs")], &args.out.join("report"), &options, false)?;
    Ok(code)
}

fn dry_run(runs: &[epo_lab::sweep::Planned], how: &How) -> anyhow::Result<Code> {
    let (jobs, threads) = how.shares(runs.len());
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    eprintln!("measuring this machine ...");
    let seconds = estimate(runs, threads, dir.path()).context("the measurement failed")?;
    let mut lines = vec!["| Run | Steps | Time |".to_owned(), "| --- | ---: | ---: |".to_owned()];
    for (run, &s) in runs.iter().zip(&seconds) {
        lines.push(format!("| {} | {} | {} |", run.id, run.steps, duration(s)));
    }
    let total: f64 = seconds.iter().sum::<f64>() / jobs as f64;
    lines.push(format!(
        "{} runs, {jobs} side by side with {threads} threads each: about {} on this machine.",
        runs.len(),
        duration(total)
    ));
    output::print(&lines.join("\n"))?;
    Ok(Code::Done)
}
