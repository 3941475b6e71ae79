//! `epo bench`

use super::{bench_env, bench_physics, bench_train, bench_update};
use crate::exit::Code;

/// Arguments of `epo bench`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Time steps and resets of tasks, compared with the bare physics
    Env(bench_env::Args),
    /// Check that fast physics is the same task as published physics
    Physics(bench_physics::Args),
    /// Time whole epochs of training
    Train(bench_train::Args),
    /// Time the update of a network, compared with the multiply-add peak of this core
    Update(bench_update::Args),
}

/// Measures.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    match args.what {
        What::Env(args) => bench_env::run(args),
        What::Physics(args) => bench_physics::run(args),
        What::Train(args) => bench_train::run(args),
        What::Update(args) => bench_update::run(args),
    }
}
