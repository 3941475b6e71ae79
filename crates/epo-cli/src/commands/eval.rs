//! `epo eval`

use std::path::PathBuf;

use epo_lab::evaluate::{EvalPlan, EvalReport, Spread, evaluate_run};
use epo_lab::runs;

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo eval`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Run folder
    run: PathBuf,
    /// Episodes to play
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    episodes: u32,
    /// Names the episodes
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Draw actions as in training, instead of taking the mean
    #[arg(long)]
    stochastic: bool,
    /// Exit with code 3 if the mean cost is above this
    #[arg(long, value_name = "X")]
    max_cost: Option<f64>,
    /// Threads; does not change a number [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Evaluates a run and leaves `eval.json` in its folder.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let config = runs::read_config(&args.run)?;
    let make_env = runs::task_maker(&config.run.task)?;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let plan = EvalPlan {
        episodes: args.episodes as usize,
        seed: args.seed,
        stochastic: args.stochastic,
        threads: args.threads.unwrap_or_else(cores),
    };
    if let Some(note) = runs::other_version(&args.run) {
        tell!("note: {note}");
    }
    let (report, notes) = evaluate_run(&args.run, &make_env, plan)?;
    notes.iter().for_each(|note| tell!("{note}; the one before it is used"));
    let json = serde_json::to_string_pretty(&report)?;
    let said = if args.json { json.clone() } else { text(&report) };
    print(&said)?; // first: the folder may be another's, not writable
    runs::write_whole(&args.run.join("eval.json"), format!("{json}\n").as_bytes())?;
    match args.max_cost {
        Some(most) if report.cost.spread.mean > most => {
            tell!("the mean cost {} is above {most}", report.cost.spread.mean);
            Ok(Code::NotMet)
        }
        _ => Ok(Code::Done),
    }
}

fn text(report: &EvalReport) -> String {
    let EvalReport { task, algo, episodes, cost, .. } = report;
    let line = |name: &str, s: &Spread| {
        format!("\n{name:<7} {:>9.3} ± {:<8.3} 95 % [{:.3}, {:.3}]", s.mean, s.std, s.ci95[0], s.ci95[1])
    };
    format!("{algo} on {task}, {episodes} episodes")
        + &line("return", &report.ret)
        + &line("cost", &cost.spread)
        + &line("length", &report.length)
        + &format!("\n{:.1} % of the episodes within the limit of {}", 100.0 * cost.p_feasible, cost.limit)
}
