//! The `epo` command as a library, and the landing page of the library's documentation.
//!
//! `epo` trains policies that respect a cost limit (constrained, or safe, reinforcement learning). The crates, from the
//! highest to the lowest:
//!
//! | crate | content |
//! |---|---|
//! | `epo_cli` | all commands of `epo` in a program of your own: [`run`] |
//! | [`epo_replay`] | replays of episodes as HTML pages and animated pictures |
//! | [`epo_lab`] | runs: [`Trainer`](epo_lab::train::Trainer), configuration, evaluation, checkpoints, sweeps |
//! | [`epo_theory`] | small problems with exact optima, and the paper's theorems as checks |
//! | [`epo_dash`] | a web page that shows runs while they train |
//! | [`epo_report`] | reports on run folders |
//! | `epo_algos` | the algorithms: a new one implements `AlgoSpec` and `Objective` |
//! | [`epo_nn`] | networks, policies and optimisers |
//! | [`epo_tasks`] | the Safety-Gymnasium tasks, and how to [`register`](epo_tasks::register) your own |
//! | `epo_mujoco` | a small safe interface to MuJoCo |
//! | [`epo_core`] | shared types: [`Env`](epo_core::Env), [`Step`](epo_core::Step), [`Stream`](epo_core::Stream), [`Metric`](epo_core::Metric) |
//!
//! The command parses its arguments, calls the other crates and returns an exit code.
//! Results go to stdout; progress and messages go to stderr. Each command has one file in `commands/`.
//!
//! Your own program can offer all commands of `epo` for your own tasks:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! fn my_task() -> epo_tasks::navigation::NavigationTask {
//!     # todo!()
//!     // return a robot, a scene and rules; see `examples/own_task`
//! }
//!
//! fn main() -> ExitCode {
//!     epo_cli::run(|| {
//!         epo_tasks::register(my_task())?;
//!         Ok(())
//!     })
//! }
//! ```

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use epo_tasks::TaskError;

#[macro_use]
mod output;

mod commands;
mod exit;
mod progress;
mod ranks;

/// Constrained reinforcement learning: EPO, its baselines and the Safety-Gymnasium tasks.
#[derive(Parser, Debug)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train an algorithm on a task, or continue a run
    Train(Box<commands::train::Args>),
    /// Evaluate the trained policy of a run
    Eval(commands::eval::Args),
    /// List the algorithms with their parameters
    Algos(commands::algos::Args),
    /// List the tasks with their sizes, rewards and costs
    Tasks(commands::tasks::Args),
    /// Step recorded reference episodes and report the largest differences
    Parity(commands::parity::Args),
    /// Measure speed, or compare the two physics simulations
    Bench(commands::bench::Args),
    /// Write one episode of a random policy to a file that a viewer can show
    Rollout(commands::rollout::Args),
    /// Play episodes of a run and write them as an HTML page that shows where costs were paid
    Replay(Box<commands::replay::Args>),
    /// Write the model of a task as MJCF, for MuJoCo and its viewers
    Model(commands::model::Args),
    /// Export the trained policy of a run
    Export(commands::export::Args),
    /// Write learning curves, tables and an HTML page from run folders
    Report(commands::report::Args),
    /// List runs with their state and newest results
    Runs(commands::runs::Args),
    /// Show runs in the browser while they train
    Dash(commands::dash::Args),
    /// Run a grid or a list of configurations in parallel
    Sweep(Box<commands::sweep::Args>),
    /// Make the runs of one task of a sweep; engines such as Slurm call this on a node
    Work(commands::work::Args),
    /// Search for good parameters, and stop bad trials early
    Tune(commands::tune::Args),
    /// Repeat an experiment of the paper and write its report
    Repro(Box<commands::repro::Args>),
    /// Check the paper's statements on small problems whose optimum is known exactly
    Theory(commands::theory::Args),
    /// Print the licences of epo and of everything that it contains
    #[command(alias = "licenses")]
    Licences,
}

/// Calls `register`, runs the command given by the arguments of this process, and returns the exit code.
///
/// `register` is called once, before the arguments are parsed. It calls [`epo_tasks::register`] or
/// [`epo_tasks::register_env`] for each task of the program. With `|| Ok(())` only the published tasks exist. A sweep
/// starts this same program for each of its runs, so the registered tasks exist there too.
pub fn run(register: impl FnOnce() -> Result<(), TaskError>) -> ExitCode {
    main(std::env::args_os().collect(), register).into()
}

/// Does the same as [`run`] with the given arguments, the first of which is the name of the program. Returns the exit
/// code.
///
/// `program` is the command that starts this program again, for the runs of a sweep: for a Python module that is the
/// interpreter with its arguments.
pub fn run_as(program: Vec<OsString>, args: Vec<OsString>) -> u8 {
    output::set_program(program);
    main(args, || Ok(()))
}

/// Parses the arguments of the program. A negative number such as `-1` is taken as the value of the
/// option before it. The error message of that option then says what is wrong with the number.
fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    fn take_negative_numbers(command: clap::Command) -> clap::Command {
        let command = command.mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        });
        command.mut_subcommands(take_negative_numbers)
    }
    let mut command = take_negative_numbers(Cli::command());
    Cli::from_arg_matches(&command.try_get_matches_from_mut(args)?).map_err(|e| e.format(&mut command))
}

fn main(args: Vec<OsString>, register: impl FnOnce() -> Result<(), TaskError>) -> u8 {
    epo_lab::sweep::die_with_parent();
    let result = register().map_err(anyhow::Error::from).and_then(|()| match parse(args) {
        Ok(cli) => command(cli.command),
        // help and version are errors to clap, with the exit code 0
        Err(error) => {
            let _ = error.print(); // a closed pipe is not an error
            Ok(if error.exit_code() == 0 { exit::Code::Done } else { exit::Code::Usage })
        }
    });
    let code = result.unwrap_or_else(|error| {
        tell!("error: {}", exit::message(&error));
        exit::Code::of(&error)
    });
    code as u8
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
        Command::Replay(args) => commands::replay::run(*args),
        Command::Model(args) => commands::model::run(args),
        Command::Export(args) => commands::export::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Runs(args) => commands::runs::run(args),
        Command::Dash(args) => commands::dash::run(args),
        Command::Sweep(args) => commands::sweep::run(*args),
        Command::Work(args) => commands::work::run(args),
        Command::Tune(args) => commands::tune::run(args),
        Command::Repro(args) => commands::repro::run(*args),
        Command::Theory(args) => commands::theory::run(args),
        Command::Licences => commands::licences::run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of each command and the options of it that take a value.
    fn options(words: &[String], command: &clap::Command, found: &mut Vec<(Vec<String>, String)>) {
        let takes_value = |arg: &&clap::Arg| arg.get_action().takes_values();
        let long = command.get_arguments().filter(takes_value).filter_map(clap::Arg::get_long);
        found.extend(long.map(|name| (words.to_vec(), format!("--{name}"))));
        for below in command.get_subcommands() {
            options(&[words, &[below.get_name().to_owned()]].concat(), below, found);
        }
    }

    /// This test fails if an option takes `-1` for another option: the message would then not say what is wrong.
    #[test]
    fn a_negative_number_is_the_value_of_the_option_before_it() {
        let mut all = Vec::new();
        options(&["epo".to_owned()], &Cli::command(), &mut all);
        assert!(all.len() > 50, "{} options", all.len());
        for (words, option) in all {
            let said = parse(words.iter().chain([&option, &"-1".to_owned()]).map(OsString::from).collect());
            let kind = said.map(|_| ()).map_err(|e| e.kind());
            assert_ne!(kind, Err(clap::error::ErrorKind::UnknownArgument), "{words:?} {option} -1");
        }
    }
}
