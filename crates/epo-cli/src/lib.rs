//! The `epo` command as a library: arguments, one call into another library, an exit code.
//!
//! Results go to stdout, progress and messages to stderr. One file per command is in `commands/`.
//!
//! A program of your own has all commands of `epo`, and they know your tasks by their ids:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! fn my_task() -> epo_tasks::navigation::NavigationTask {
//!     # todo!()
//!     // a robot, a scene and rules: see `examples/own_task`
//! }
//!
//! fn main() -> ExitCode {
//!     epo_cli::run(|| {
//!         epo_tasks::register(my_task())?;
//!         Ok(())
//!     })
//! }
//! ```

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use epo_tasks::TaskError;

#[macro_use]
mod output;

mod commands;
mod exit;
mod progress;

/// Constrained reinforcement learning: EPO, its baselines and the Safety-Gymnasium tasks.
#[derive(Parser, Debug)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train an algorithm on a task, or go on with a run
    Train(Box<commands::train::Args>),
    /// Play episodes with a trained policy
    Eval(commands::eval::Args),
    /// List the algorithms with their parameters
    Algos(commands::algos::Args),
    /// List the tasks with their sizes, rewards and costs
    Tasks(commands::tasks::Args),
    /// Step recorded reference episodes and report the largest differences
    Parity(commands::parity::Args),
    /// Measure speed
    Bench(commands::bench::Args),
    /// Write one episode of a random policy for a viewer
    Rollout(commands::rollout::Args),
    /// Learning curves, tables and one page from run folders
    Report(commands::report::Args),
    /// Run a grid or list of configurations, in parallel, until all are done
    Sweep(commands::sweep::Args),
    /// Repeat an experiment of the paper and report on it
    Repro(commands::repro::Args),
    /// Check the paper's statements on small problems whose optimum is known exactly
    Theory(commands::theory::Args),
}

/// Registers tasks with `register`, then runs the command that the arguments of this process name. Returns the exit code.
///
/// `register` is called once, before anything else. It calls [`epo_tasks::register`] or [`epo_tasks::register_env`] for
/// each task of the program; `|| Ok(())` leaves the published tasks alone. A sweep starts this same program for each of
/// its runs, so the runs know the tasks too.
pub fn run(register: impl FnOnce() -> Result<(), TaskError>) -> ExitCode {
    epo_lab::sweep::die_with_parent();
    let result = register().map_err(anyhow::Error::from).and_then(|()| command(Cli::parse().command));
    match result {
        Ok(code) => code.into(),
        Err(error) => {
            tell!("error: {}", exit::message(&error));
            exit::Code::of(&error).into()
        }
    }
}

fn command(command: Command) -> anyhow::Result<exit::Code> {
    match command {
        Command::Train(args) => commands::train::run(*args),
        Command::Eval(args) => commands::eval::run(args),
        Command::Algos(args) => commands::algos::run(args),
        Command::Tasks(args) => commands::tasks::run(args),
        Command::Parity(args) => commands::parity::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Rollout(args) => commands::rollout::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Sweep(args) => commands::sweep::run(args),
        Command::Repro(args) => commands::repro::run(args),
        Command::Theory(args) => commands::theory::run(args),
    }
}
