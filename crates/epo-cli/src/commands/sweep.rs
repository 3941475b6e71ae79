//! `epo sweep`

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use epo_lab::engine::local::Local;
use epo_lab::engine::ray::{Ray, RayOptions};
use epo_lab::engine::slurm::{Resources, Slurm, forget_cancel, is_cancelled};
use epo_lab::engine::{Engine, EngineError, Plan};
use epo_lab::sweep::{Overview, Places, PlanError, PlannedRun, RunOutcome, SweepFile};
use epo_report::RunResults;
use epo_report::history::read_run;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use super::status;
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
    /// Number of runs at the same time; they share the cores [default: one per core]. With --on slurm: number of tasks
    /// at the same time [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Run failed runs again
    #[arg(long)]
    retry_failed: bool,
    /// Program to start as `PROGRAM train …` instead of this one, such as a wrapper for a container; on a cluster it is
    /// started as `PROGRAM work …`
    #[arg(long, value_name = "PROGRAM")]
    command: Option<OsString>,
    #[command(flatten)]
    engine: EngineOptions,
    /// Print no progress on stderr
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options that choose where the runs are executed, and the resources that they request there.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineOptions {
    /// Where the runs are executed
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t)]
    on: EngineName,
    /// Print the state of every run, then stop
    #[arg(long, conflicts_with_all = ["cancel", "print_script"])]
    status: bool,
    /// With --status: print the state again whenever it changes, until all runs have ended
    #[arg(long, requires = "status")]
    watch: bool,
    /// Remove the runs from the queue of the engine; running ones save first
    #[arg(long)]
    cancel: bool,
    /// Print the script that would be submitted, then stop
    #[arg(long)]
    print_script: bool,
    /// Submit the script in this file, which --print-script has printed and you have changed
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Submit and return, instead of waiting for the runs
    #[arg(long)]
    detach: bool,
    /// Number of runs of each task of a job array [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pack: Option<u32>,
    /// Partition of the cluster
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Time limit of a task, such as 4:00:00; a run that reaches it saves and continues in the next task
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// Number of cores of a task [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus: Option<u32>,
    /// Memory of a task, such as 2G
    #[arg(long, value_name = "SIZE")]
    mem: Option<String>,
    /// Account that pays for the tasks
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Further option of sbatch, such as --sbatch=--qos=high; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Path or URL through which run folders are transferred if the nodes of a Ray cluster share no folder
    #[arg(long, value_name = "PLACE")]
    storage: Option<String>,
    /// Maximum number of times that a run is started again after a time limit, a preemption or the loss of its node
    /// [default: 20]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum EngineName {
    /// Child processes on this machine
    #[default]
    Local,
    /// Job arrays on a Slurm cluster
    Slurm,
    /// Tasks on a Ray cluster (RAY_ADDRESS names it); needs a Python with the package ray
    Ray,
}

impl EngineOptions {
    /// Returns an error for options that the chosen engine does not have.
    fn check(&self) -> anyhow::Result<()> {
        let slurm = [
            ("--partition", self.partition.is_some()),
            ("--time", self.time.is_some()),
            ("--mem", self.mem.is_some()),
            ("--account", self.account.is_some()),
            ("--sbatch", !self.sbatch.is_empty()),
            ("--pack", self.pack.is_some()),
            ("--print-script", self.print_script),
            ("--script", self.script.is_some()),
            ("--detach", self.detach),
        ];
        let cluster = [("--cpus", self.cpus.is_some()), ("--retries", self.retries.is_some())];
        let ray = [("--storage", self.storage.is_some())];
        let given = |options: &[(&'static str, bool)], engine| {
            options.iter().find(|(_, given)| *given).map(|(option, _)| (*option, engine))
        };
        let wrong = match self.on {
            EngineName::Slurm => given(&ray, "ray"),
            EngineName::Ray => given(&slurm, "slurm"),
            EngineName::Local => {
                given(&slurm, "slurm").or(given(&ray, "ray")).or(given(&cluster, "slurm` or `--on ray"))
            }
        };
        match wrong {
            Some((option, engine)) => {
                Err(EngineError::Usage(format!("{option} needs another engine: add `--on {engine}`")).into())
            }
            None => Ok(()),
        }
    }

    /// Returns the resources of the sweep file, replaced by those of the command line.
    fn resources(&self, file: &SweepFile, jobs: Option<u16>) -> anyhow::Result<Resources> {
        let file = Resources::from_table(&file.engine("slurm"))?;
        Ok(Resources {
            partition: self.partition.clone().or(file.partition),
            time: self.time.clone().or(file.time),
            cpus: self.cpus.unwrap_or(file.cpus),
            mem: self.mem.clone().or(file.mem),
            account: self.account.clone().or(file.account),
            pack: self.pack.unwrap_or(file.pack),
            at_once: jobs.map(u32::from).or(file.at_once),
            retries: self.retries.unwrap_or(file.retries),
            options: [file.options, self.sbatch.clone()].concat(),
            grace: file.grace,
            setup: file.setup,
        })
    }
}

impl SweepOptions {
    /// Returns the number of runs at the same time and the number of threads of each.
    pub(crate) fn shares(&self, runs: usize) -> (usize, usize) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.map_or(cores, usize::from).min(runs.max(1));
        (jobs, (cores / jobs).max(1))
    }

    /// Returns the engine for a plan of `runs` runs. `tables` contains the tables of the engines,
    /// such as `[slurm]`.
    pub(crate) fn engine(&self, runs: usize, tables: &SweepFile) -> anyhow::Result<Box<dyn Engine>> {
        self.engine.check()?;
        match self.engine.on {
            EngineName::Local => {
                let (jobs, threads) = self.shares(runs);
                Ok(Box::new(Local { jobs, threads, program: self.program()?, retry: self.retry_failed }))
            }
            EngineName::Slurm => Ok(Box::new(self.slurm(tables)?)),
            EngineName::Ray => Ok(Box::new(self.ray(tables)?)),
        }
    }

    fn ray(&self, tables: &SweepFile) -> anyhow::Result<Ray> {
        let file = RayOptions::from_table(&tables.engine("ray"))?;
        let options = RayOptions {
            storage: self.engine.storage.clone().or(file.storage),
            cpus: self.engine.cpus.unwrap_or(file.cpus),
            at_once: self.jobs.map(u32::from).or(file.at_once),
            retries: self.engine.retries.unwrap_or(file.retries),
            ..file
        };
        // a Python module is started with the Python of the node, a binary with its path
        let module = self.command.is_none() && output::is_python();
        let program = self.program()?;
        let python = match &options.python {
            Some(python) => python.into(),
            None if module => program[0].clone(),
            None => "python3".into(),
        };
        let program = if module { Vec::new() } else { program };
        Ok(Ray { options, program, python, retry: self.retry_failed })
    }

    /// Returns an error for options that a search does not have, because its runs depend on earlier results.
    pub(crate) fn check_search(&self) -> anyhow::Result<()> {
        let engine = &self.engine;
        let others = [
            ("--print-script", engine.print_script),
            ("--script", engine.script.is_some()),
            ("--detach", engine.detach),
        ];
        match others.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(EngineError::Usage(format!(
                "`epo tune` has no {option}: which runs it makes depends on the results of earlier ones"
            ))
            .into()),
            None => Ok(()),
        }
    }

    /// Whether to print the state of the runs instead of executing them.
    pub(crate) fn asks_for_status(&self) -> bool {
        self.engine.status
    }

    /// Prints the state of the runs of a plan.
    pub(crate) fn print_status(&self, plan: &Plan, tables: &SweepFile) -> anyhow::Result<()> {
        let mut engine = self.engine(plan.runs.len(), tables)?;
        status::print(plan, &mut *engine, self.json, self.engine.watch)
    }

    /// Removes the runs of a folder from the queue, if that was asked for. Returns whether it was.
    pub(crate) fn cancels(&self, plan: &Plan, tables: &SweepFile) -> anyhow::Result<bool> {
        if self.engine.cancel {
            cancel(plan, &mut *self.engine(0, tables)?, self.json)?;
        }
        Ok(self.engine.cancel)
    }

    fn slurm(&self, tables: &SweepFile) -> anyhow::Result<Slurm> {
        let own_script = self.engine.script.as_ref().map(|path| {
            epo_core::read_text(path, epo_core::MOST_TEXT_BYTES)
                .with_context(|| format!("cannot read {}", path.display()))
        });
        Ok(Slurm {
            resources: self.engine.resources(tables, self.jobs)?,
            program: self.program()?,
            retry: self.retry_failed,
            detach: self.engine.detach,
            own_script: own_script.transpose()?,
        })
    }

    fn program(&self) -> anyhow::Result<Vec<OsString>> {
        match &self.command {
            // a path is made absolute, so that it is valid in every folder; a plain name is looked
            // up in PATH
            Some(command) if command.to_string_lossy().contains('/') => {
                Ok(vec![std::path::absolute(command).context("cannot find the program")?.into()])
            }
            Some(command) => Ok(vec![command.clone()]),
            None => output::program_command().context("cannot find this program"),
        }
    }
}

/// Runs all configurations of a sweep file.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let text = read_file(&args.file)?;
    let wrong = |PlanError(mistakes)| {
        let named = mistakes.iter().map(|mistake| format!("{}: {mistake}", args.file.display()));
        usage(PlanError(named.collect()))
    };
    let file = SweepFile::parse(&text).map_err(wrong)?;
    let runs = file.plan().map_err(wrong)?;
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
    let plan = Plan { name: stem.to_string_lossy().into_owned(), dir: out.clone(), size: runs.len(), runs };
    let Some(summary) = execute(&plan, &file, &args.how)? else { return Ok(Code::Done) };
    output::print(&if args.how.json { serde_json::to_string_pretty(&summary)? } else { summary.text() })?;
    if summary.done > 0 && summary.pending == 0 && !args.how.quiet {
        let (program, runs) = (output::program(), output::quoted(&out.join("runs")));
        tell!(
            "for curves and tables, run: {program} report {runs} --out {}",
            output::quoted(&out.join("report"))
        );
    }
    Ok(summary.code())
}

/// Reads the file of a sweep or a search. A file that is not text counts as wrong usage.
pub(crate) fn read_file(path: &Path) -> anyhow::Result<String> {
    let text = epo_core::read_text(path, epo_core::MOST_TEXT_BYTES);
    let text = text.map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => anyhow::Error::new(Exit(Code::Usage)).context(e),
        _ => e.into(),
    });
    text.with_context(|| format!("cannot read {}", path.display()))
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
///
/// Returns `None` if the options ask for something else (`--status`, `--cancel`, `--print-script`); that is then done.
pub(crate) fn execute(plan: &Plan, file: &SweepFile, how: &SweepOptions) -> anyhow::Result<Option<Summary>> {
    let mut engine = how.engine(plan.runs.len(), file)?;
    if how.engine.print_script {
        output::print(how.slurm(file)?.preview(plan)?.trim_end())?;
        return Ok(None);
    }
    if how.cancels(plan, file)? {
        return Ok(None);
    }
    if how.asks_for_status() {
        how.print_status(plan, file)?;
        return Ok(None);
    }
    forget_cancel(&plan.dir)?;
    let stop = epo_lab::stop::on_signals().context("cannot listen for signals")?;
    let mut screen = Screen::new(how.quiet);
    let (mut written, mut refused) = (None, (0, String::new()));
    let outcomes = engine.execute(plan, &stop, &mut |overview| {
        // not earlier: an engine that refuses must leave no folder behind
        written.get_or_insert_with(|| {
            let written = epo_lab::sweep::write_plan(&plan.dir, &plan.runs);
            written.inspect_err(|e| tell!("the plan of the sweep cannot be written: {e}"))
        });
        screen.show(overview);
        refused = (overview.refused, overview.note.clone());
    });
    screen.clear();
    let out = &plan.dir;
    let outcomes = outcomes.with_context(|| format!("the sweep in {} cannot continue", out.display()))?;
    written.transpose()?;
    let places = Places::find(out).context("the sweep cannot be read")?;
    let rows: Vec<RunEntry> =
        plan.runs.iter().zip(outcomes).map(|(run, outcome)| RunEntry::new(run, outcome, &places)).collect();
    let count = |state| rows.iter().filter(|row| row.state == state).count();
    let (done, failed, pending) = (count("done"), count("failed"), count("pending"));
    if pending > 0 {
        let runs = output::count(pending, "run");
        match engine.name() {
            "slurm" if is_cancelled(out) => {
                tell!(
                    "{runs} not finished, because the sweep was cancelled; the same command submits them again"
                );
            }
            "slurm" if refused.0 > 0 => tell!(
                "{runs} not finished, and {} of them not submitted, because Slurm has not accepted them ({}). Run the \
                 same command again later: it submits them",
                refused.0,
                refused.1
            ),
            "slurm" => tell!(
                "{runs} not finished; Slurm continues them. The same command waits for them, --status shows them, \
                 --cancel ends them"
            ),
            _ => tell!("{runs} not finished; run the same command again to continue"),
        }
    }
    Ok(Some(Summary {
        out: out.to_owned(),
        done,
        failed,
        pending,
        submitted: how.engine.detach && refused.0 == 0,
        runs: rows,
    }))
}

/// Removes the runs of a folder from the queue of the engine, and prints their number.
fn cancel(plan: &Plan, engine: &mut dyn Engine, json: bool) -> anyhow::Result<()> {
    let runs = engine.cancel(plan)?;
    output::print(&match json {
        true => json!({"cancelled": runs}).to_string(),
        false => format!("{} cancelled; those that were running save first", output::count(runs, "run")),
    })?;
    Ok(())
}

/// The results of a sweep. `epo sweep --json` prints it in serialised form.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    out: PathBuf,
    done: usize,
    failed: usize,
    pub(crate) pending: usize,
    /// Whether the command returned as soon as all runs were submitted.
    #[serde(skip)]
    submitted: bool,
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
            _ if self.submitted => Code::Done,
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

/// Maximum number of runs that the overview shows.
const MOST_LINES: usize = 20;

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
        // printed even with `--quiet`
        for line in &overview.news {
            match &self.bar {
                Some(bar) => bar.println(line),
                None => tell!("{line}"),
            }
        }
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
    if o.queued > 0 {
        line += &format!(", {} queued", o.queued);
    }
    if o.refused > 0 {
        line += &format!(", {} not submitted", o.refused);
    }
    if o.elsewhere > 0 {
        line += &format!(", {} in other processes", o.elsewhere);
    }
    if let Some(eta) = o.eta {
        line += &format!(", {} left", duration(eta));
    }
    if !o.note.is_empty() {
        line += &format!(" ({})", o.note);
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
    lines.extend(overview.running.iter().take(MOST_LINES).map(line));
    if overview.running.len() > MOST_LINES {
        lines.push(format!("  and {} more", overview.running.len() - MOST_LINES));
    }
    lines.join("\n")
}
