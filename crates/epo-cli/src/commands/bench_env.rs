//! `epo bench env`

use std::io::IsTerminal;

use anyhow::Context;
use epo_tasks::Physics;
use epo_tasks::bench::{EnvBench, bench_env};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo bench env`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Task to measure; may be repeated [default: all]
    #[arg(long = "task", value_name = "ID")]
    tasks: Vec<String>,
    /// Physics to measure: published or fast [default: both, measured alternately]
    #[arg(long, value_name = "NAME")]
    physics: Option<Physics>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Measures the speed of each task and prints one row per task, physics and number of threads.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let tasks = match args.tasks.as_slice() {
        [] => epo_tasks::tasks().into_iter().filter(|task| task.is_simulated()).collect(),
        ids => ids.iter().map(|id| epo_tasks::task(id)).collect::<Result<Vec<_>, _>>()?,
    };
    let all = std::thread::available_parallelism()?.get();
    let mut counts = vec![1, all];
    counts.dedup();

    let physics = args.physics.map_or(Physics::ALL.to_vec(), |one| vec![one]);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?;
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(tasks.len() as u64), target).with_style(style);
    let mut rows = Vec::new();
    for task in tasks {
        bar.set_message(task.id.clone());
        rows.extend(bench_env(task, &counts, &physics).with_context(|| task.id.clone())?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    print(&if args.json { serde_json::to_string_pretty(&rows)? } else { table(&rows) })?;
    Ok(Code::Done)
}

fn table(rows: &[EnvBench]) -> String {
    let width = rows.iter().map(|r| r.task.len()).max().unwrap_or(4);
    let mut lines = vec![format!(
        "{:width$} physics   threads   steps/s  ratio  bare/s  overhead  reset ms  MB/env",
        "task"
    )];
    lines.extend(rows.iter().map(|r| {
        let mb = r.bytes_per_env as f64 / 1e6;
        let ratio = r.ratio.map_or("–".to_owned(), |x| format!("{x:.2}"));
        format!(
            "{:width$} {:9} {:7} {:9.0} {ratio:>6} {:7.0} {:9.3} {:9.3} {mb:7.2}",
            r.task,
            r.physics.name(),
            r.threads,
            r.steps_per_s,
            r.raw_physics_steps_per_s,
            r.overhead,
            r.reset_ms
        )
    }));
    let logs: Vec<f64> = rows.iter().map(|r| r.overhead.ln()).collect();
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    lines.push(format!("geometric mean of the overhead: {mean:.3}"));
    lines.join("\n")
}
