//! `epo theory`: the paper's statements on CMDPs whose optimum is known.

use std::path::PathBuf;

use anyhow::Context;
use epo_theory::checks::{self, Report};
use epo_theory::figures;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo theory`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Write the figures (SVG) and report.json into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Random CMDPs per check
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    cmdps: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the checks and draws the figures.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let bar = ProgressBar::new(1000); // drawn on stderr, and only on a terminal
    bar.set_style(ProgressStyle::with_template("theory {wide_bar} {percent} %  {elapsed}")?);
    let report = checks::run(args.cmdps as usize, |done| bar.set_position((done * 1000.0) as u64))?;
    bar.finish_and_clear();
    let json = serde_json::to_string_pretty(&report)?;
    if let Some(dir) = &args.out {
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
        for (name, svg) in figures::all()? {
            write(name, &svg)?;
        }
        write("report.json", &json)?;
    }
    print(&if args.json { json } else { table(&report) })?;
    Ok(if report.ok { Code::Done } else { Code::NotMet })
}

fn table(report: &Report) -> String {
    let mut text = format!("{:24} {:>6} {:>10} {:>10}  statement\n", "check", "n", "worst", "tolerance");
    for c in &report.checks {
        let failed = if c.ok { String::new() } else { format!("  FAILED at {}", c.worst_case) };
        text += &format!(
            "{:24} {:6} {:10.1e} {:10.0e}  {}{failed}\n",
            c.name, c.n, c.worst, c.tolerance, c.statement
        );
        if !c.note.is_empty() {
            text += &format!("{:55}{}\n", "", c.note);
        }
    }
    text += "\nConditions that the paper does not spell out:";
    for c in &report.counter_examples {
        let failed = if c.ok { "" } else { " (NOT CONFIRMED)" };
        text += &format!("\n- {}{failed}: {}\n    {}", c.statement, c.needs, c.found);
    }
    text
}
