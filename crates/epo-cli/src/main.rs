//! The `epo` command: arguments, one call into a library, an exit code.
//!
//! Results go to stdout, progress and messages to stderr. One file per command under `commands/`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod commands;
mod exit;

/// Constrained reinforcement learning: EPO, its baselines and the Safety-Gymnasium tasks.
#[derive(Parser, Debug)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the tasks with their sizes, rewards and costs
    Tasks(commands::tasks::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Tasks(args) => commands::tasks::run(args),
    };
    match result {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            exit::Code::of(&error).into()
        }
    }
}
