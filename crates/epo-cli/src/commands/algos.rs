//! `epo algos`

use std::collections::BTreeMap;

use epo_lab::config::{self, algo_named};
use epo_lab::reference::{algo_keys, comment};
use serde::Serialize;

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo algos`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show one algorithm with the documentation of its parameters
    name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// An algorithm in the JSON document.
#[derive(Serialize)]
struct AlgoEntry {
    name: &'static str,
    label: &'static str,
    summary: &'static str,
    /// Default value of each parameter, by name.
    parameters: serde_json::Value,
    /// Documentation of each parameter, by name.
    documentation: BTreeMap<String, String>,
}

/// Lists the algorithms, or shows one with its parameters.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let algos = match &args.name {
        Some(name) => vec![algo_named(name)?],
        None => config::algorithms(),
    };
    if args.json {
        let mut entries = Vec::new();
        for algo in &algos {
            let info = algo.info();
            let parameters = serde_json::to_value(config::params(algo)?)?;
            let leaf = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
            let documentation = algo_keys(algo).iter().map(|key| (leaf(&key.key), key.paragraph())).collect();
            let (name, label, summary) = (info.name, info.label, info.summary);
            entries.push(AlgoEntry { name, label, summary, parameters, documentation });
        }
        print(&serde_json::to_string_pretty(&entries)?)?;
        return Ok(Code::Done);
    }
    let mut text = String::new();
    for algo in &algos {
        let info = algo.info();
        text += &format!("{:<12} {}\n", info.name, info.summary);
        for key in algo_keys(algo) {
            match args.name {
                Some(_) => text += &format!("\n{}{} = {}\n", comment(&key.paragraph()), key.key, key.default),
                None => text += &format!("             {} = {}\n", key.key, key.default),
            }
        }
    }
    if args.name.is_none() {
        text += "\nepo algos NAME explains the parameters of an algorithm.";
    }
    print(text.trim_end())?;
    Ok(Code::Done)
}
