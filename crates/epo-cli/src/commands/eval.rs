//! `epo eval`

use std::path::PathBuf;

use anyhow::Context;
use epo_lab::config::threads;
use epo_lab::evaluate::{ActionMode, EvalPlan, EvalReport, Evaluation, Spread, Watch, evaluate_run};
use epo_lab::{runs, stop};
use epo_tasks::Physics;

use crate::exit::Code;
use crate::output::{print, table};
use crate::progress::with_bar;

/// Arguments of `epo eval`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Run folder
    run: PathBuf,
    /// Number of episodes for each of the two policies (mean action, sampled action)
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    episodes: u32,
    /// Seed of the evaluation episodes
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Report the policy with sampled actions first and apply --max-cost to it, instead of the policy with the mean
    /// action
    #[arg(long)]
    stochastic: bool,
    /// Exit with code 3 if the mean episode cost of the policy that is reported first is above X
    #[arg(long, value_name = "X", value_parser = number)]
    max_cost: Option<f64>,
    /// Physics simulation: published (all bodies in every step) or fast (skips bodies at rest)
    #[arg(long, value_name = "NAME", default_value_t = Physics::Published)]
    physics: Physics,
    /// Number of threads, at most 1024; does not change the results [default: one per core]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Parses a number. NaN is refused, because it cannot be compared.
fn number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if !x.is_nan() => Ok(x),
        _ => Err("expected a number".to_owned()),
    }
}

/// Evaluates a run and adds the result to `eval.json` in its folder.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let config = runs::read_config(&args.run)?;
    let make_env = runs::task_maker(&config.run.task, args.physics)?;
    let plan = EvalPlan {
        episodes: args.episodes as usize,
        seed: args.seed,
        threads: threads("--threads", args.threads)?,
        physics: args.physics,
    };
    if let Some(note) = runs::other_version(&args.run) {
        tell!("note: {note}");
    }
    let shown = if args.stochastic { ActionMode::Sampled } else { ActionMode::Mean };
    let stop = stop::on_signals().context("cannot listen for signals")?;
    let watch = Watch { stop, ..Watch::default() };
    let evaluate = || evaluate_run(&args.run, &make_env, plan, shown, &watch);
    let (report, notes) = with_bar(2 * plan.episodes, false, &watch, evaluate)?;
    notes.iter().for_each(|note| tell!("{note}; the previous checkpoint is used"));
    // The report is printed before it is saved, because the folder may not be writable.
    print(&if args.json { serde_json::to_string_pretty(&report)? } else { text(&report) })?;
    report.write(&args.run)?;
    let cost = report.shown.cost.spread.mean;
    match args.max_cost {
        Some(most) if cost > most => {
            tell!("the mean cost {cost} of the policy with the {} is above {most}", shown.label());
            Ok(Code::NotMet)
        }
        _ => Ok(Code::Done),
    }
}

/// Returns a table with one row per action mode.
pub(crate) fn text(report: &EvalReport) -> String {
    let Evaluation { episodes, cost, physics, .. } = &report.shown;
    let header = [
        "Policy".to_owned(),
        "Return [95 % interval]".to_owned(),
        "Cost [95 % interval]".to_owned(),
        "Median cost".to_owned(),
        format!("Cost ≤ {}", cost.limit),
        "Steps".to_owned(),
    ];
    let row = |e: &Evaluation| {
        let interval = |spread: &Spread| match spread.ci95 {
            Some([lo, hi]) => format!("{:.2} [{lo:.2}, {hi:.2}]", spread.mean),
            None => format!("{:.2}", spread.mean),
        };
        [
            e.policy.label().to_owned(),
            interval(&e.ret),
            interval(&e.cost.spread),
            format!("{:.1}", e.cost.median),
            format!("{:.0} %", 100.0 * e.cost.p_feasible),
            format!("{:.0}", e.length.mean),
        ]
    };
    let rows: Vec<_> = std::iter::once(header).chain(report.side_by_side().map(row)).collect();
    let EvalReport { task, algo, .. } = report;
    let plural = if *episodes == 1 { "episode" } else { "episodes" };
    format!(
        "Evaluation of {algo} on {task} with {physics} physics: {episodes} {plural} per policy\n\n{}",
        table(&rows, 1).join("\n")
    )
}
