//! `epo tasks`

use crate::exit::Code;

/// Arguments of `epo tasks`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Lists the tasks.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let _ = args.json;
    Ok(Code::Done)
}
