//! `epo bench physics`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use epo_lab::config::threads;
use epo_lab::physics::{ComparisonPlan, MetricComparison, PlayedPolicy, TASKS, compare, judge};
use epo_lab::{LabError, runs, stop};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::{Code, Exit};
use crate::output::{print, table};

/// Arguments of `epo bench physics`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Task to compare; may be repeated [default: Goal1, Goal2, Push1, Push2 and Button2 of Point and Car]
    #[arg(long = "task", value_name = "ID")]
    tasks: Vec<String>,
    /// Policy that chooses the actions; may be repeated [default: random and scripted, plus trained if --run is given]
    #[arg(long = "policy", value_name = "NAME")]
    policies: Vec<PolicyName>,
    /// Run folder whose policy is used on the task it was trained on; may be repeated, one run per task
    #[arg(long = "run", value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Minimum number of episodes per policy and physics; more are played if the differences are too noisy
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..))]
    episodes: u32,
    /// Maximum number of episodes per policy and physics
    #[arg(long, default_value_t = 20_000)]
    max_episodes: u32,
    /// Number of threads, at most 1024; does not change the results [default: one per core]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// File that stores the results of each task and policy; results that it already holds are not computed again
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    Random,
    Scripted,
    Trained,
}

/// Compares published and fast physics. Exits with code 3 if a comparison does not show equivalence.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let work = work(&args)?;
    let mut rows = match &args.out {
        Some(path) if path.exists() => read(path)?,
        _ => Vec::new(),
    };
    let plan = ComparisonPlan {
        episodes: args.episodes as usize,
        max_episodes: args.max_episodes as usize,
        threads: threads("--threads", args.threads)?,
    };
    let stop = stop::on_signals().context("cannot listen for signals")?;
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} {msg}")?;
    let bar = ProgressBar::with_draw_target(None, target).with_style(style);
    for (task, player) in &work {
        if rows.iter().any(|row| row.task == *task && row.policy == player.name()) {
            continue;
        }
        bar.set_message(format!("{task}, {}", player.name()));
        bar.reset();
        let progress = |done: usize, planned: usize| {
            bar.set_length(planned as u64);
            bar.set_position(done as u64);
        };
        match compare(task, player, plan, &stop, &progress) {
            Ok(new) => rows.extend(new),
            Err(LabError::Interrupted(_)) => {
                bar.finish_and_clear();
                match &args.out {
                    Some(path) => tell!("interrupted; rerun the command to continue from {}", path.display()),
                    None => tell!("interrupted; nothing was saved (--out FILE saves finished results)"),
                }
                return Ok(Code::Interrupted);
            }
            Err(error) => return Err(error.into()),
        }
        judge(&mut rows);
        if let Some(path) = &args.out {
            runs::write_whole(path, format!("{}\n", serde_json::to_string_pretty(&rows)?).as_bytes())?;
        }
    }
    bar.finish_and_clear();
    judge(&mut rows);
    print(&if args.json { serde_json::to_string_pretty(&rows)? } else { text(&rows) })?;
    Ok(if rows.iter().all(|row| row.equivalent) { Code::Done } else { Code::NotMet })
}

/// Returns the pairs of task and policy to compare, in order.
fn work(args: &Args) -> anyhow::Result<Vec<(String, PlayedPolicy)>> {
    let mut trained = Vec::new();
    for dir in &args.runs {
        let (task, player) = PlayedPolicy::of_run(dir)?;
        if trained.iter().any(|(other, _)| *other == task) {
            let why = format!("--run names two runs of {task}; give one run per task");
            return Err(anyhow::Error::new(Exit(Code::Usage)).context(why));
        }
        trained.push((task, player));
    }
    let plays = |name| args.policies.is_empty() || args.policies.contains(&name);
    if args.policies.contains(&PolicyName::Trained) && trained.is_empty() {
        return Err(anyhow::Error::new(Exit(Code::Usage)).context("--policy trained needs --run RUN"));
    }
    let tasks: Vec<String> = match &args.tasks[..] {
        [] if !plays(PolicyName::Random) && !plays(PolicyName::Scripted) => {
            trained.iter().map(|(task, _)| task.clone()).collect()
        }
        [] => TASKS.iter().map(ToString::to_string).collect(),
        given => given.to_vec(),
    };
    let mut work = Vec::new();
    for task in tasks {
        epo_tasks::task(&task)?;
        let scripts =
            [(PolicyName::Random, PlayedPolicy::Random), (PolicyName::Scripted, PlayedPolicy::Scripted)];
        work.extend(scripts.into_iter().filter(|(name, _)| plays(*name)).map(|(_, p)| (task.clone(), p)));
        if let Some(i) = trained.iter().position(|(other, _)| *other == task) {
            work.extend(Some(trained.swap_remove(i)).filter(|_| plays(PolicyName::Trained)));
        }
    }
    if let Some((task, _)) = trained.first() {
        let why = format!("--run names a run of {task}, which is not compared; add --task {task}");
        return Err(anyhow::Error::new(Exit(Code::Usage)).context(why));
    }
    Ok(work)
}

fn read(path: &Path) -> anyhow::Result<Vec<MetricComparison>> {
    let text = epo_core::read_text(path, epo_core::MOST_TEXT_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    match serde_json::from_str(&text) {
        Ok(rows) => Ok(rows),
        Err(e) => bail!("{} does not hold results of `epo bench physics`: {e}", path.display()),
    }
}

fn text(rows: &[MetricComparison]) -> String {
    let header =
        ["Task", "Policy", "Metric", "Episodes", "Published", "Fast", "Difference", "Margin", "p", "Same"];
    let row = |r: &MetricComparison| {
        let number = |x: f64| if x.abs() < 1e-3 && x != 0.0 { format!("{x:.1e}") } else { format!("{x:.3}") };
        [
            r.task.clone(),
            r.policy.clone(),
            r.metric.clone(),
            r.episodes.to_string(),
            number(r.published),
            number(r.fast),
            format!("[{}, {}]", number(r.difference[0]), number(r.difference[1])),
            number(r.margin),
            r.p_value.map_or(String::new(), |p| format!("{p:.3}")),
            if r.equivalent { "yes" } else { "NO" }.to_owned(),
        ]
    };
    let all: Vec<_> = std::iter::once(header.map(str::to_owned)).chain(rows.iter().map(row)).collect();
    let different = rows.iter().filter(|r| !r.equivalent).count();
    let end = match different {
        0 => format!("Both physics are equivalent in all {} comparisons.", rows.len()),
        n => format!("Equivalence is not shown in {n} of {} comparisons.", rows.len()),
    };
    format!("{}\n\n{end}", table(&all, 3).join("\n"))
}
