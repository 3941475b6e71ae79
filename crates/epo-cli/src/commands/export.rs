//! `epo export`

use std::path::PathBuf;

use anyhow::Context;
use epo_lab::evaluate::ActionMode;
use epo_lab::trained::TrainedPolicy;
use epo_lab::{onnx, runs};

use crate::exit::Code;
use crate::output::{path, print};

/// Arguments of `epo export`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Run folder
    run: PathBuf,
    /// ONNX file to write: normaliser, network, action and its bounds in one graph
    #[arg(long, value_name = "FILE")]
    onnx: PathBuf,
    /// Let the graph sample its actions, as in training, instead of taking the mean action
    #[arg(long)]
    stochastic: bool,
}

/// Exports the policy of the newest checkpoint of a run.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let policy = TrainedPolicy::load(&args.run)?;
    policy.notes().iter().for_each(|note| tell!("{note}; the previous checkpoint is used"));
    let mode = if args.stochastic { ActionMode::Sampled } else { ActionMode::Mean };
    runs::write_whole(&args.onnx, &onnx::export(&policy, mode))
        .with_context(|| format!("{} could not be written", args.onnx.display()))?;
    print(&format!("{}\nhash {}", path(&args.onnx), policy.hash()))?;
    Ok(Code::Done)
}
