//! `epo algos`

use epo_lab::config;
use serde::Serialize;

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo algos`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    summary: &'static str,
    parameters: serde_json::Value,
}

/// Lists the algorithms with their own parameters.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let mut rows = Vec::new();
    for algo in config::algorithms() {
        let parameters = serde_json::to_value(config::params(&algo)?)?;
        rows.push(Row { name: algo.name(), summary: algo.summary(), parameters });
    }
    if args.json {
        print(&serde_json::to_string_pretty(&rows)?)?;
        return Ok(Code::Done);
    }
    let mut text = String::new();
    for Row { name, summary, parameters } in &rows {
        text += &format!("{name:<8} {summary}\n");
        for (key, value) in parameters.as_object().into_iter().flatten() {
            text += &format!("           algo.{key} = {value}\n");
        }
    }
    print(text.trim_end())?;
    Ok(Code::Done)
}
