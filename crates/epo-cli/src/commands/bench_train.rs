//! `epo bench train`

use epo_lab::bench::{TrainBench, train};
use epo_lab::config::ResolvedRun;

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo bench train`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Task to train on; may be repeated [default: SafetyPointGoal1-v0]
    #[arg(long, value_name = "ID")]
    task: Vec<String>,
    /// Algorithm to train; may be repeated [default: epo and ppo-lag]
    #[arg(long, value_name = "NAME")]
    algo: Vec<String>,
    /// Number of threads; may be repeated [default: 1 and all cores]
    #[arg(long)]
    threads: Vec<usize>,
    /// Number of epochs; the fastest one is reported
    #[arg(long, default_value_t = 3)]
    epochs: u64,
    /// Set one configuration value, such as train.steps_per_epoch=20000; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Measures the time of whole epochs. Early stopping on the KL divergence is off, so every epoch makes all passes.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let or = |given: &[String], default: &[&str]| match given {
        [] => default.iter().map(ToString::to_string).collect(),
        given => given.to_vec(),
    };
    let threads = match &args.threads[..] {
        [] => {
            let mut both = vec![1, std::thread::available_parallelism().map_or(1, usize::from)];
            both.dedup();
            both
        }
        given => given.to_vec(),
    };
    let mut rows: Vec<TrainBench> = Vec::new();
    for task in or(&args.task, &["SafetyPointGoal1-v0"]) {
        for algo in or(&args.algo, &["epo", "ppo-lag"]) {
            for threads in &threads {
                rows.push(bench_train(&args, &task, &algo, *threads)?);
            }
        }
    }
    if args.json {
        print(&serde_json::to_string_pretty(&rows)?)?;
        return Ok(Code::Done);
    }
    let mut text =
        format!("{:<28} {:<8} threads  steps/s  rollout s  overhead  update s  passes  MB", "task", "algo");
    for r in &rows {
        text += &format!(
            "\n{:<28} {:<8} {:>7}  {:>7.0}  {:>9.2}  {:>8.2}  {:>8.2}  {:>6}  {:.0}",
            r.task,
            r.algo,
            r.threads,
            r.steps_per_s,
            r.rollout_s,
            r.collect_overhead,
            r.update_s,
            r.passes,
            r.peak_rss_mb
        );
    }
    print(&text)?;
    Ok(Code::Done)
}

fn bench_train(args: &Args, task: &str, algo: &str, threads: usize) -> anyhow::Result<TrainBench> {
    let mut set = vec![
        format!("run.task={task}"),
        format!("run.algo={algo}"),
        format!("train.threads={threads}"),
        "train.kl_stop=false".to_owned(),
    ];
    set.extend(args.set.iter().cloned());
    let mut run = ResolvedRun::from_layers(None, &set)?;
    run.run.steps = args.epochs.max(1) * run.train.steps_per_epoch as u64;
    let dir = tempfile::tempdir()?;
    Ok(train(&run, dir.path())?)
}
