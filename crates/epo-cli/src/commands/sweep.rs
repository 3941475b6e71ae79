//! `epo sweep`

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use epo_lab::engine::local::Local;
use epo_lab::engine::{Engine, Plan};
use epo_lab::sweep::{Overview, Places, PlanError, PlannedRun, RunOutcome, SweepFile};
use epo_report::RunResults;
use epo_report::history::read_run;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use crate::exit::{Code, Exit};
use crate::output::{self, duration};

/// Arguments of `epo sweep`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Sweep file (TOML) with tables `base`, `grid` and `list` of configuration keys
    file: PathBuf,
    /// Folder of the sweep; several processes may share it [default: runs/ followed by the name of the file]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    how: SweepOptions,
    /// List the runs, then stop
    #[arg(long)]
    dry_run: bool,
}

/// Options for running a set of runs; shared with `epo repro`.
#[derive(clap::Args, Debug)]
pub(crate) struct SweepOptions {
    /// Number of runs at the same time; they share the cores [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), allow_negative_numbers = true)]
    jobs: Option<u16>,
    /// Run failed runs again
    #[arg(long)]
    retry_failed: bool,
    /// Program to start as `PROGRAM train …` instead of this one, such as a wrapper for a job scheduler
    #[arg(long, value_name = "PROGRAM")]
    command: Option<OsString>,
    /// Print no progress on stderr
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

impl SweepOptions {
    /// Returns the number of runs at the same time and the number of threads of each.
    pub(crate) fn shares(&self, runs: usize) -> (usize, usize) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.map_or(cores, usize::from).min(runs.max(1));
        (jobs, (cores / jobs).max(1))
    }

    /// Returns the engine that executes `runs` runs.
    pub(crate) fn engine(&self, runs: usize) -> anyhow::Result<Box<dyn Engine>> {
        let (jobs, threads) = self.shares(runs);
        let program = match &self.command {
            Some(command) => vec![command.clone()],
            None => output::program_command().context("cannot find this program")?,
        };
        Ok(Box::new(Local { jobs, threads, program, retry: self.retry_failed }))
    }
}

/// Runs all configurations of a sweep file.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let text = epo_core::read_text(&args.file, epo_core::MOST_TEXT_BYTES)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    let runs = SweepFile::parse(&text).and_then(|file| file.plan()).map_err(usage)?;
    if args.dry_run {
        let labels: Vec<String> = runs.iter().map(PlannedRun::label).collect();
        output::print(&match args.how.json {
            true => {
                serde_json::to_string_pretty(&json!({"runs": runs.iter().map(what).collect::<Vec<_>>()}))?
            }
            false => labels.join("\n"),
        })?;
        return Ok(Code::Done);
    }
    let stem = args.file.file_stem().unwrap_or("sweep".as_ref());
    let out = args.out.unwrap_or_else(|| Path::new("runs").join(stem));
    let plan = Plan { name: stem.to_string_lossy().into_owned(), dir: out.clone(), runs };
    let summary = execute(&plan, &args.how)?;
    output::print(&if args.how.json { serde_json::to_string_pretty(&summary)? } else { summary.text() })?;
    if summary.done > 0 && summary.pending == 0 && !args.how.quiet {
        tell!("for curves and tables, run: epo report '{0}/runs' --out '{0}/report'", out.display());
    }
    Ok(summary.code())
}

/// Returns an error with the exit code for wrong usage; a wrong sweep file counts as such.
pub(crate) fn usage(error: PlanError) -> anyhow::Error {
    anyhow::Error::new(Exit(Code::Usage)).context(error.to_string())
}

/// Returns the description of a planned run as JSON.
pub(crate) fn what(run: &PlannedRun) -> serde_json::Value {
    json!({
        "id": run.id, "task": run.task, "algo": run.algo, "variant": run.variant, "seed": run.seed, "steps": run.steps
    })
}

/// Executes the runs of a plan on the chosen engine, shows their progress, and returns their results.
pub(crate) fn execute(plan: &Plan, how: &SweepOptions) -> anyhow::Result<Summary> {
    let mut engine = how.engine(plan.runs.len())?;
    let stop = epo_lab::stop::on_signals().context("cannot listen for signals")?;
    let mut screen = Screen::new(how.quiet);
    let outcomes = engine.execute(plan, &stop, &mut |overview| screen.show(overview));
    screen.clear();
    let out = &plan.dir;
    let outcomes = outcomes.with_context(|| format!("the sweep in {} cannot continue", out.display()))?;
    let places = Places::find(out).context("the sweep cannot be read")?;
    let rows: Vec<RunEntry> =
        plan.runs.iter().zip(outcomes).map(|(run, outcome)| RunEntry::new(run, outcome, &places)).collect();
    let count = |state| rows.iter().filter(|row| row.state == state).count();
    let (done, failed, pending) = (count("done"), count("failed"), count("pending"));
    if pending > 0 {
        tell!("{} not finished; run the same command again to continue", output::count(pending, "run"));
    }
    Ok(Summary { out: out.to_owned(), done, failed, pending, runs: rows })
}

/// The results of a sweep. `epo sweep --json` prints it in serialised form.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    out: PathBuf,
    done: usize,
    failed: usize,
    pending: usize,
    runs: Vec<RunEntry>,
}

#[derive(Debug, Serialize)]
struct RunEntry {
    id: String,
    #[serde(skip)]
    label: String,
    task: String,
    algo: String,
    variant: String,
    seed: u64,
    /// Planned number of environment steps.
    steps: u64,
    state: &'static str,
    /// Run folder; `None` if the run has not started.
    folder: Option<PathBuf>,
    /// Duration of all epochs in seconds, including epochs that another process ran.
    seconds: Option<f64>,
    /// Mean episode return over the last 10 % of the steps; `cost` is averaged in the same way.
    #[serde(rename = "return")]
    ret: Option<f64>,
    cost: Option<f64>,
    /// Exit code of a failed run; `message` and `log` are also for failed runs only.
    exit_code: Option<i32>,
    message: Option<String>,
    log: Option<PathBuf>,
}

impl RunEntry {
    fn new(run: &PlannedRun, outcome: RunOutcome, places: &Places) -> Self {
        let (state, ended, log) = match outcome {
            RunOutcome::Done(ended) => ("done", Some(ended), None),
            RunOutcome::Failed(ended, log) => ("failed", Some(ended), Some(log)),
            RunOutcome::Pending => ("pending", None, None),
        };
        let folder = places.run_folder(&run.id);
        let record = folder.as_ref().and_then(|dir| read_run(dir, None).ok()).map(|(run, _)| run);
        let achieved = record.as_ref().map(|run| RunResults::of(run, 0.1));
        let seconds = record.and_then(|run| run.seconds());
        let failure = ended.as_ref().filter(|_| log.is_some());
        Self {
            id: run.id.clone(),
            label: run.label(),
            task: run.task.clone(),
            algo: run.algo.clone(),
            variant: run.variant.clone(),
            seed: run.seed,
            steps: run.steps,
            state,
            folder,
            seconds: seconds.or(ended.as_ref().map(|e| e.seconds)),
            ret: achieved.map(|a| a.ret),
            cost: achieved.map(|a| a.cost),
            exit_code: failure.and_then(|e| e.code),
            message: failure.map(|e| e.message.clone()),
            log,
        }
    }
}

impl Summary {
    pub(crate) fn code(&self) -> Code {
        match (self.pending, self.failed) {
            (0, 0) => Code::Done,
            (0, _) => Code::Failed,
            _ => Code::Interrupted,
        }
    }

    pub(crate) fn text(&self) -> String {
        let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.2}"));
        let row = |run: &RunEntry| {
            let time = run.seconds.map_or(String::new(), duration);
            let state = if run.state == "pending" { "not finished" } else { run.state };
            [run.label.clone(), state.to_owned(), time, number(run.ret), number(run.cost)]
        };
        let header = ["Run", "State", "Time", "Return", "Cost"].map(str::to_owned);
        let rows: Vec<[String; 5]> = [header].into_iter().chain(self.runs.iter().map(row)).collect();
        let mut lines = output::table(&rows, 2);
        for run in &self.runs {
            if let (Some(message), Some(log)) = (&run.message, &run.log) {
                lines.push(format!("{} failed, {message} (log: {})", run.label, log.display()));
            }
        }
        if self.failed > 0 {
            lines.push("`--retry-failed` runs failed runs again".to_owned());
        }
        lines.join("\n")
    }
}

/// The live overview. A terminal shows a block that is redrawn.
/// Otherwise a line is printed whenever a run ends, and once per minute.
pub(crate) struct Screen {
    bar: Option<ProgressBar>,
    quiet: bool,
    last: Option<(usize, Instant)>,
}

impl Screen {
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style =
                ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        });
        Self { bar, quiet, last: None }
    }

    pub(crate) fn show(&mut self, overview: &Overview) {
        if let Some(bar) = &self.bar {
            bar.set_message(block(overview));
            bar.tick();
            return;
        }
        let ended = overview.done + overview.failed + usize::from(overview.stopping);
        let waits = !overview.stopping || !overview.running.is_empty();
        let news =
            waits && self.last.is_none_or(|(n, at)| n != ended || at.elapsed() > Duration::from_secs(60));
        if news && !self.quiet {
            tell!("{}", headline(overview));
            self.last = Some((ended, Instant::now()));
        }
    }

    /// Removes the block from the terminal.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn headline(o: &Overview) -> String {
    if o.stopping {
        let runs = output::count(o.running.len(), "run");
        return format!("stopping {runs} at the end of the epoch; press Ctrl-C again to exit at once");
    }
    let mut line = format!("{} of {} done, {} running", o.done, o.total, o.running.len());
    if o.failed > 0 {
        line += &format!(", {} failed", o.failed);
    }
    if o.elsewhere > 0 {
        line += &format!(", {} in other processes", o.elsewhere);
    }
    if let Some(eta) = o.eta {
        line += &format!(", {} left", duration(eta));
    }
    line
}

fn block(overview: &Overview) -> String {
    let line = |r: &epo_lab::sweep::Running| {
        let share = r.steps as f64 / r.of.max(1) as f64;
        let speed = r.steps_per_second.map_or(String::new(), |speed| format!("{speed:.0} steps/s"));
        format!("  {:>3.0} %  {speed:>13}  {}", 100.0 * share.min(1.0), r.label)
    };
    let mut lines = vec![headline(overview)];
    lines.extend(overview.running.iter().map(line));
    lines.join("\n")
}
