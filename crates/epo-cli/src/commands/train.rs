//! `epo train`

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context;
use epo_lab::collect::MakeEnv;
use epo_lab::config::{ConfigError, ResolvedRun};
use epo_lab::evaluate::{Watch, evaluate_finished};
use epo_lab::ranks::{Ranks, call_off};
use epo_lab::record::{metrics, value};
use epo_lab::train::{ResumeOptions, Trainer};
use epo_lab::{LabError, memory, reference, runs, stop};

use crate::exit::Code;
use crate::progress::{Progress, with_bar};
use crate::{output, ranks};

/// Arguments of `epo train`.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "epo train [TASK] [OPTIONS]\n       epo train --resume <RUN> [--steps <STEPS>] [--until <STEPS>] [--threads <THREADS>] [--accept-changes]"
)]
pub(crate) struct Args {
    /// Task id (`epo tasks` lists them) [default: SafetyPointGoal1-v0]
    task: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Folder in which the run folder is created
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Name of the run folder [default: made from seed and time]
    #[arg(long)]
    name: Option<String>,
    /// Print the whole configuration as TOML with the documentation of every key, then stop
    #[arg(long)]
    print_config: bool,
    /// Continue the run in this folder from its last checkpoint, until its end or until --steps
    #[arg(long, value_name = "RUN", conflicts_with_all = ["task", "algo", "seed", "limit", "envs", "physics", "config", "set", "runs", "name", "print_config"])]
    resume: Option<PathBuf>,
    /// With --resume: continue even if the configuration or the record was changed since the checkpoint
    #[arg(long, requires = "resume")]
    accept_changes: bool,
    /// Pause the run after the first epoch with at least this number of steps in total, such as 1e6; --resume continues it
    #[arg(long, value_name = "STEPS", value_parser = super::repro::count)]
    until: Option<u64>,
    /// Print only the run folder and the hash: no progress, and no table of the evaluation
    #[arg(long, short)]
    quiet: bool,
}

/// Options that configure a run; shared by the commands that start a run.
#[derive(clap::Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Algorithm (`epo algos` lists them) [default: epo]
    #[arg(long)]
    algo: Option<String>,
    /// Number of environment steps of the run, such as 1e6 [default: 1e7]
    #[arg(long)]
    steps: Option<String>,
    /// Root seed of all random streams [default: 0]
    #[arg(long)]
    seed: Option<String>,
    /// Limit on the mean episode cost [default: 25]
    #[arg(long)]
    limit: Option<String>,
    /// Number of parallel environments [default: 32]
    #[arg(long)]
    envs: Option<String>,
    /// Physics simulation: published (all bodies in every step) or fast (skips bodies at rest) [default: published]
    #[arg(long, value_name = "NAME")]
    physics: Option<String>,
    /// Number of threads; does not change the results [default: one per core]
    #[arg(long)]
    threads: Option<usize>,
    /// Configuration file (TOML) with the tables run, train and algo
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one configuration value, such as train.gamma=0.999; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl ConfigArgs {
    /// Returns the configuration: arguments override the file, and the file overrides the defaults.
    pub(crate) fn resolve(&self, task: Option<&str>) -> anyhow::Result<ResolvedRun> {
        let file = self.config.as_ref().map(|path| {
            epo_core::read_text(path, epo_core::MOST_TEXT_BYTES)
                .with_context(|| format!("cannot read {}", path.display()))
        });
        let file = file.transpose()?;
        let threads = self.threads.map(|n| n.to_string());
        let flags = [
            ("run.task", task),
            ("run.algo", self.algo.as_deref()),
            ("run.steps", self.steps.as_deref()),
            ("run.seed", self.seed.as_deref()),
            ("run.limit", self.limit.as_deref()),
            ("run.physics", self.physics.as_deref()),
            ("train.envs", self.envs.as_deref()),
            ("train.threads", threads.as_deref()),
        ];
        let flags = flags.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        let set: Vec<String> = flags.chain(self.set.iter().cloned()).collect();
        ResolvedRun::from_layers(file.as_deref(), &set).map_err(|error| match (error, &self.config) {
            (ConfigError::Syntax(why), Some(path)) => {
                ConfigError::Syntax(format!("{} is not a configuration: {why}", path.display())).into()
            }
            (ConfigError::UnknownKey { .. }, Some(path)) if is_sweep(file.as_deref()) => {
                let why = format!("{} is a file for `epo sweep`, not a configuration", path.display());
                ConfigError::Syntax(why).into()
            }
            (error, _) => error.into(),
        })
    }

    /// Returns the settings that may change when a run is resumed.
    fn resume_options(&self, accept_changes: bool) -> anyhow::Result<ResumeOptions> {
        // `--steps` is parsed as for a new run, so it accepts 1e6 and gives the same error messages.
        let steps = match &self.steps {
            Some(steps) => Some(ResolvedRun::from_layers(None, &[format!("run.steps={steps}")])?.run.steps),
            None => None,
        };
        Ok(ResumeOptions { threads: self.threads, steps, accept_changes })
    }
}

/// Returns true if the text has a table of a sweep file.
fn is_sweep(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.lines().any(|line| ["[grid]", "[base]", "[[list]]"].contains(&line.trim())))
}

/// Trains a new run or continues one.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    if args.print_config {
        let run = args.config.resolve(args.task.as_deref())?;
        output::print(reference::documented(&run).trim_end())?;
        return Ok(Code::Done);
    }
    let stop = stop::on_signals().context("cannot listen for signals")?;
    let mut ranks = ranks::connect(&stop)?;
    if ranks.rank() > 0 {
        return follow(&args, ranks, &stop);
    }
    let (count, prepared) = (ranks.count(), prepare(&args));
    let (dir, run, options, make_env) = prepared.inspect_err(|error| {
        let _ = call_off(&mut *ranks, &error.to_string()); // the error itself is reported below
    })?;
    let mut trainer = match &args.resume {
        Some(dir) => Trainer::resume_on(ranks, dir, options, &make_env)?,
        None => Trainer::create_on(ranks, &dir, run, &make_env)?,
    };
    let run = trainer.config().clone();
    let mut progress = Progress::new(&run, trainer.steps(), args.quiet);
    progress.note(&format!("{} on {}, seed {}: {}", run.run.algo, run.run.task, run.run.seed, dir.display()));
    if count > 1 {
        progress.note(&format!("{count} ranks share {} environments", run.train.envs));
    }
    trainer.notes().iter().for_each(|note| progress.warn(note));
    if args.resume.is_some() {
        progress.note(&resume_note(&trainer));
    }
    if run.total_steps() != run.run.steps {
        let (asked, total, envs) = (run.run.steps, run.total_steps(), run.train.envs);
        progress.note(&format!("{asked} steps are rounded up to {total}, a multiple of train.envs = {envs}"));
    }
    let reached = |steps: u64| args.until.is_some_and(|until| steps >= until);
    let halt = AtomicBool::new(stop.load(Relaxed) || reached(trainer.steps()));
    let ended = trainer.train(&halt, |row| {
        progress.row(row, &stop);
        let steps = value(row, metrics::STEPS).unwrap_or(0.0) as u64;
        halt.store(stop.load(Relaxed) || reached(steps), Relaxed);
    });
    progress.finish();
    let steps = trainer.steps();
    drop(trainer); // the other ranks end here
    let end = ended?;
    output::print(&format!("run {}\nhash {}", output::path(&dir), end.hash))?;
    if !end.finished && reached(steps) {
        progress.note(&format!("paused at {steps} of {} steps", run.total_steps()));
        return Ok(Code::Done);
    }
    if !end.finished {
        tell!("interrupted; continue with: {} train --resume {}", output::program(), output::quoted(&dir));
        return Ok(Code::Interrupted);
    }
    let episodes = run.train.final_eval_episodes;
    let watch = Watch { stop, ..Watch::default() };
    let evaluate = || evaluate_finished(&dir, &run, &make_env, &end.hash, &watch);
    if let Some(report) = with_bar(2 * episodes, args.quiet, &watch, evaluate)?
        && !args.quiet
    {
        output::print(&format!("\n{}", super::eval::text(&report)))?;
    }
    Ok(Code::Done)
}

/// A run to begin or to continue: its folder, its configuration, the settings changed by a resume, and its
/// environments.
type RunToTrain = (PathBuf, ResolvedRun, ResumeOptions, Box<MakeEnv<'static>>);

/// Checks the arguments. The folder of a new run is created last, so a wrong run leaves nothing behind.
fn prepare(args: &Args) -> anyhow::Result<RunToTrain> {
    if let Some(dir) = &args.resume {
        let options = args.config.resume_options(args.accept_changes)?;
        let run = runs::read_config(dir)?;
        let make_env = make_env(&run)?;
        return Ok((dir.clone(), run, options, make_env));
    }
    let run = args.config.resolve(args.task.as_deref())?;
    memory::check_task(&run, epo_tasks::task(&run.run.task)?)?;
    let make_env = make_env(&run)?;
    let dir = runs::new_folder(&args.runs, &run, args.name.as_deref())?;
    Ok((dir, run, ResumeOptions::default(), make_env))
}

fn make_env(run: &ResolvedRun) -> Result<Box<MakeEnv<'static>>, LabError> {
    Ok(Box::new(runs::task_maker(&run.run.task, run.run.physics)?))
}

/// Takes part in the run of rank 0. Rank 0 prints the messages that concern all ranks.
fn follow(args: &Args, ranks: Box<dyn Ranks>, stop: &AtomicBool) -> anyhow::Result<Code> {
    let (rank, threads) = (ranks.rank(), args.config.threads.unwrap_or(0));
    match epo_lab::ranks::follow(ranks, threads, stop, &make_env) {
        // the exit code of the launcher is that of the rank that failed
        Ok(()) | Err(LabError::OtherRank { .. }) => Ok(Code::Done),
        Err(error @ (LabError::Env(_) | LabError::Update { .. } | LabError::RanksDiffer { .. })) => {
            Ok(Code::of(&error.into()))
        }
        Err(error) => Err(anyhow::Error::from(error).context(format!("rank {rank}"))),
    }
}

/// Returns a message with the epoch and steps at which a resumed run continues.
fn resume_note(trainer: &Trainer<'_>) -> String {
    let (epoch, steps) = (trainer.epoch(), trainer.steps());
    if trainer.is_finished() {
        let epochs = output::count(epoch as usize, "epoch");
        return format!("the run is finished: {steps} steps in {epochs} (--steps N extends it)");
    }
    let (epochs, total) = (trainer.epochs(), trainer.config().total_steps());
    format!("continuing after epoch {epoch} of {epochs}, at {steps} of {total} steps")
}
