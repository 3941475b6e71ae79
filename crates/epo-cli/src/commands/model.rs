//! `epo model`

use std::path::PathBuf;

use anyhow::Context;
use epo_core::Env;

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo model`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Task id (`epo tasks` lists them)
    task: String,
    /// Seed of the episode whose layout the model has
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// File to write [default: print to stdout]
    #[arg(long, value_name = "FILE.xml")]
    out: Option<PathBuf>,
}

/// Writes the model of a task as MJCF, with the bodies where an episode begins.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let mut env = epo_tasks::make(&args.task)?;
    let mut obs = vec![0.0; env.spec().obs_len];
    env.reset(args.seed, &mut obs).map_err(|e| anyhow::anyhow!("{}: {e}", args.task))?;
    let model = env.mjcf()?;
    match &args.out {
        Some(path) => epo_lab::runs::write_whole(path, model.as_bytes())
            .with_context(|| format!("{} could not be written", path.display()))?,
        None => print(model.trim_end())?,
    }
    Ok(Code::Done)
}
