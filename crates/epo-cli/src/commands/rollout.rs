//! `epo rollout`

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use epo_tasks::Physics;
use epo_tasks::rollout::{RolloutFile, record};

use crate::exit::Code;

/// Arguments of `epo rollout`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Task id (`epo tasks` lists them)
    task: String,
    /// Seed of the episode and of the random policy
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of steps, at least 1 [default: until the episode ends]
    #[arg(long, value_parser = super::repro::count)]
    steps: Option<u64>,
    /// Physics simulation: published (all bodies in every step) or fast (skips bodies at rest)
    #[arg(long, value_name = "NAME", default_value_t = Physics::Published)]
    physics: Physics,
    /// File to write (its format is described in docs/rollout-format.md)
    #[arg(long)]
    out: PathBuf,
}

/// Writes one episode of a random policy to a file that a viewer can show.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let mut env = epo_tasks::make_with(&args.task, args.physics)?;
    let steps = args.steps.map_or(env.info().max_steps, |n| n as usize);
    let rollout = record(&mut env, args.seed, steps)?;
    save(&rollout, &args.out).with_context(|| format!("{} could not be written", args.out.display()))?;
    let (reward, cost): (f64, f64) =
        rollout.frames.iter().fold((0.0, 0.0), |(r, c), frame| (r + frame.reward, c + frame.cost));
    tell!("{}: {} steps, return {reward:.3}, cost {cost}", args.task, rollout.frames.len() - 1);
    Ok(Code::Done)
}

/// Writes to a temporary file in the same folder and renames it, so `path` never holds an incomplete file.
fn save(rollout: &RolloutFile, path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path does not end in a file name"))?;
    let partial = path.with_file_name(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()));
    let written = write(rollout, &partial).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial); // the error of writing is reported, not this one
    }
    written
}

fn write(rollout: &RolloutFile, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    serde_json::to_writer(&mut file, rollout)?;
    file.write_all(b"\n")?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}
