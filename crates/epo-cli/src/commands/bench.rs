//! `epo bench`

use super::{bench_env, bench_physics, bench_train, bench_update};
use crate::exit::Code;

/// Arguments of `epo bench`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(clap::Subcommand, Debug)]
enum BenchCommand {
    /// Measure the time of environment steps and resets, compared with the bare physics simulation
    Env(bench_env::Args),
    /// Test whether fast and published physics give equivalent returns, costs and episode lengths
    Physics(bench_physics::Args),
    /// Measure the time of whole training epochs
    Train(bench_train::Args),
    /// Measure the time of a network update, compared with the peak multiply-add rate of one core
    Update(bench_update::Args),
}

/// Runs the chosen benchmark.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    match args.command {
        BenchCommand::Env(args) => bench_env::run(args),
        BenchCommand::Physics(args) => bench_physics::run(args),
        BenchCommand::Train(args) => bench_train::run(args),
        BenchCommand::Update(args) => bench_update::run(args),
    }
}
