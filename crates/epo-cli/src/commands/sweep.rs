//! `epo sweep`

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use epo_lab::history::read_run;
use epo_lab::report::Achieved;
use epo_lab::sweep::{DriveOptions, Fate, Overview, PlanError, Planned, SweepFile, drive};
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Code, Exit};
use crate::output;

/// Arguments of `epo sweep`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Sweep file: tables `base`, `grid` and `list` over config paths
    file: PathBuf,
    /// Folder of the sweep, which several processes may share (default: runs/ and the name of the file)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    how: How,
    /// List the runs and stop
    #[arg(long)]
    dry_run: bool,
}

/// How runs are driven; shared with `epo repro`.
#[derive(clap::Args, Debug)]
pub(crate) struct How {
    /// Runs side by side; they share the cores [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Try failed runs again
    #[arg(long)]
    retry_failed: bool,
    /// Program that is started with `train …` instead of this one, such as a wrapper of a scheduler
    #[arg(long, value_name = "PROGRAM")]
    command: Option<OsString>,
    /// No overview on stderr
    #[arg(long, short)]
    quiet: bool,
}

impl How {
    /// Runs side by side, and threads of each.
    pub(crate) fn shares(&self, runs: usize) -> (usize, usize) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.map_or(cores, usize::from).min(runs.max(1));
        (jobs, (cores / jobs).max(1))
    }
}

/// Runs what a sweep file asks for.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    let runs = SweepFile::parse(&text).and_then(|file| file.plan()).map_err(usage)?;
    if args.dry_run {
        let ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
        output::print(&ids.join("\n"))?;
        return Ok(Code::Done);
    }
    let stem = args.file.file_stem().unwrap_or("sweep".as_ref());
    let out = args.out.unwrap_or_else(|| Path::new("runs").join(stem));
    drive_all(&runs, &out, &args.how)
}

/// A mistake in a sweep file is a mistake of usage.
pub(crate) fn usage(error: PlanError) -> anyhow::Error {
    anyhow::Error::new(Exit(Code::Usage)).context(error.to_string())
}

/// Drives the runs to their ends and prints the table of them.
pub(crate) fn drive_all(runs: &[Planned], out: &Path, how: &How) -> anyhow::Result<Code> {
    let (jobs, threads) = how.shares(runs.len());
    let program = match &how.command {
        Some(command) => vec![command.clone()],
        None => vec![std::env::current_exe().context("cannot find this program")?.into()],
    };
    let options = DriveOptions { dir: out.to_owned(), jobs, threads, program, retry: how.retry_failed };
    let stop = epo_lab::stop::on_signals().context("cannot listen for signals")?;
    let mut screen = Screen::new(how.quiet);
    let fates = drive(runs, &options, &stop, &mut |overview| screen.show(overview));
    screen.clear();
    let fates = fates.with_context(|| format!("the sweep in {} cannot go on", out.display()))?;
    output::print(&summary(runs, &fates, out))?;
    let pending = fates.iter().filter(|fate| matches!(fate, Fate::Pending)).count();
    if pending > 0 {
        eprintln!("{pending} runs are not finished; the same command goes on with them");
        return Ok(Code::Interrupted);
    }
    let failed = fates.iter().any(|fate| matches!(fate, Fate::Failed(..)));
    Ok(if failed { Code::Failed } else { Code::Done })
}

fn summary(runs: &[Planned], fates: &[Fate], out: &Path) -> String {
    let mut lines = vec![
        "| Run | State | Time | Return | Cost |".to_owned(),
        "| --- | --- | ---: | ---: | ---: |".to_owned(),
    ];
    let mut failures = Vec::new();
    for (run, fate) in runs.iter().zip(fates) {
        let (state, time) = match fate {
            Fate::Done(ended) => ("done", duration(ended.seconds)),
            Fate::Failed(ended, log) => {
                failures.push(format!("{} failed, {} (log: {})", run.id, ended.message, log.display()));
                ("failed", duration(ended.seconds))
            }
            Fate::Pending => ("not finished", String::new()),
        };
        let folder = std::fs::read_dir(out.join("runs")).into_iter().flatten().filter_map(Result::ok);
        let record = folder.map(|parent| parent.path().join(&run.id)).find_map(|dir| read_run(&dir).ok());
        let (ret, cost) = record.map_or((String::new(), String::new()), |(run, _)| {
            let achieved = Achieved::of(&run, 0.1);
            (format!("{:.2}", achieved.ret), format!("{:.2}", achieved.cost))
        });
        lines.push(format!("| {} | {state} | {time} | {ret} | {cost} |", run.id));
    }
    lines.extend(failures);
    lines.join("\n")
}

/// `1 h 02 min`, `3 min 20 s` or `4 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

/// The live overview: a block that is redrawn on a terminal, else a line when something ends, and one a minute.
struct Screen {
    bar: Option<ProgressBar>,
    quiet: bool,
    last: Option<(usize, Instant)>,
}

impl Screen {
    fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style =
                ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        });
        Self { bar, quiet, last: None }
    }

    fn show(&mut self, overview: &Overview) {
        if let Some(bar) = &self.bar {
            bar.set_message(block(overview));
            bar.tick();
            return;
        }
        let ended = overview.done + overview.failed;
        let news = self.last.is_none_or(|(n, at)| n != ended || at.elapsed() > Duration::from_secs(60));
        if news && !self.quiet {
            eprintln!("{}", headline(overview));
            self.last = Some((ended, Instant::now()));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn headline(o: &Overview) -> String {
    let mut line = format!("{} of {} done, {} running", o.done, o.total, o.running.len());
    if o.failed > 0 {
        line += &format!(", {} failed", o.failed);
    }
    if o.elsewhere > 0 {
        line += &format!(", {} elsewhere", o.elsewhere);
    }
    if let Some(eta) = o.eta {
        line += &format!(", {} left", duration(eta));
    }
    line
}

fn block(overview: &Overview) -> String {
    let line = |r: &epo_lab::sweep::Running| {
        let share = r.steps as f64 / r.of.max(1) as f64;
        format!("  {:>3.0} % {:>6.0} steps/s  {}", 100.0 * share.min(1.0), r.steps_per_second, r.id)
    };
    let mut lines = vec![headline(overview)];
    lines.extend(overview.running.iter().map(line));
    lines.join("\n")
}
