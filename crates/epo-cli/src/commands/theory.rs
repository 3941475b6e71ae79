//! `epo theory`: checks the paper's statements, and trains the algorithms, on CMDPs whose optimum is known.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use epo_lab::config;
use epo_lab::ground_truth::{self, CmdpResult, Job, JobResult};
use epo_lab::runs::write_whole;
use epo_lab::stop;
use epo_theory::checks::{self, Report};
use epo_theory::{RandomCmdp, figures, stories};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::repro::count;
use crate::exit::Code;
use crate::output::{count as count_of, print};

/// Arguments of `epo theory`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Folder for the figures (SVG) and report.json; with --learn, for learn.csv and learn.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of random CMDPs per check
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(conflicts_with = "learn")]
    cmdps: u32,
    /// Train the algorithms on four small CMDPs and compare the results with the optimum, instead of running the
    /// checks. All algorithms with three seeds take about four minutes on one core; more cores share the work
    #[arg(long)]
    learn: bool,
    /// Number of seeds per algorithm and CMDP; the first seed is 1
    #[arg(long, value_name = "N", default_value_t = 3, requires = "learn")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Algorithm to train; may be repeated [default: all]
    #[arg(long, value_name = "NAME", requires = "learn")]
    algo: Vec<String>,
    /// Number of environment steps of each training run, such as 4e5
    #[arg(long, value_name = "N", value_parser = count, default_value = "400000", requires = "learn")]
    steps: u64,
    /// Number of random CMDPs in addition to the four examples; their limits are spread from 0.5 to 100
    #[arg(long, value_name = "N", default_value_t = 0, requires = "learn")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=1000))]
    random: u64,
    /// Set one configuration value of all training runs, such as algo.sharpness=5; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "learn")]
    set: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the checks and draws the figures, or trains the algorithms (`--learn`).
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    }
    if args.learn { learn(&args) } else { check(&args) }
}

fn check(args: &Args) -> anyhow::Result<Code> {
    let begun = Instant::now();
    let bar = bar("theory", 1000)?;
    let report = checks::run(args.cmdps as usize, |done| bar.set_position((done * 1000.0) as u64))?;
    bar.finish_and_clear();
    let json = serde_json::to_string_pretty(&report)?;
    if let Some(dir) = &args.out {
        for (name, svg) in figures::all() {
            write_whole(&dir.join(name), svg.as_bytes())?;
        }
        write_whole(&dir.join("report.json"), json.as_bytes())?;
    }
    print(&if args.json { json } else { table(&report) })?;
    tell!("{:.1} s", begun.elapsed().as_secs_f64());
    Ok(code(&report))
}

fn code(report: &Report) -> Code {
    if report.ok { Code::Done } else { Code::NotMet }
}

/// Returns a progress bar on stderr; it is visible only on a terminal.
fn bar(name: &str, length: u64) -> anyhow::Result<ProgressBar> {
    let style = ProgressStyle::with_template(&format!("{name} {{wide_bar}} {{percent}} %  {{elapsed}}"))?;
    Ok(ProgressBar::new(length).with_style(style))
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
    text += "\nConditions that the paper does not state:";
    for c in &report.counter_examples {
        let failed = if c.ok { "" } else { " (NOT CONFIRMED)" };
        text += &format!("\n- {}{failed}: {}\n    {}", c.statement, c.needs, c.found);
    }
    text
}

/// One line of `--learn --json`: means over the seeds.
#[derive(Serialize)]
struct LearnedRow<'a> {
    cmdp: &'a str,
    algo: &'a str,
    seeds: usize,
    optimum: f64,
    #[serde(rename = "return")]
    ret: f64,
    limit: f64,
    cost: f64,
    gap_percent: f64,
    violation: f64,
}

impl<'a> LearnedRow<'a> {
    fn of(s: &'a CmdpResult) -> Self {
        let violation = (s.cost.mean - s.limit).max(0.0);
        let (ret, cost, gap_percent) = (s.ret.mean, s.cost.mean, s.gap_percent.mean);
        let CmdpResult { cmdp, algo, seeds, optimum, limit, .. } = s;
        let (seeds, optimum, limit) = (*seeds, *optimum, *limit);
        Self { cmdp, algo, seeds, optimum, ret, limit, cost, gap_percent, violation }
    }
}

fn learn(args: &Args) -> anyhow::Result<Code> {
    let begun = Instant::now();
    let jobs = jobs(args)?;
    let mut epochs = 0; // a wrong configuration ends the command before any training starts
    for job in &jobs {
        epochs += u64::from(job.resolve()?.epochs());
    }
    let bar = bar("learn", epochs)?;
    let stop = stop::on_signals().context("cannot listen for signals")?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let runs = ground_truth::run_jobs(&jobs, threads, scratch.path(), &stop, || bar.inc(1))?;
    bar.finish_and_clear();
    let Some(runs) = runs else {
        tell!("stopped; nothing was saved, and the same command starts from the beginning");
        return Ok(Code::Interrupted);
    };
    let summary = ground_truth::summarise(&runs);
    let json = serde_json::to_string_pretty(&summary.iter().map(LearnedRow::of).collect::<Vec<_>>())?;
    // The result is printed before it is saved, so that it is not lost if the folder is not writable.
    print(&if args.json { json.clone() } else { page(&summary, &runs, args) })?;
    if let Some(dir) = &args.out {
        write_whole(&dir.join("learn.csv"), ground_truth::csv(&runs).as_bytes())?;
        write_whole(&dir.join("learn.json"), json.as_bytes())?;
    }
    tell!("{}, {:.0} s", count_of(jobs.len(), "run"), begun.elapsed().as_secs_f64());
    Ok(Code::Done)
}

/// Returns the training runs, ordered by CMDP, algorithm and seed.
fn jobs(args: &Args) -> anyhow::Result<Vec<Job>> {
    let mut algos = Vec::new();
    for name in &args.algo {
        algos.push(config::algo_named(name)?.name());
    }
    if algos.is_empty() {
        algos = config::algorithms().iter().map(|algo| algo.name()).collect();
    }
    let mut jobs = Vec::new();
    let random = (1..=args.random).map(|seed| {
        let cmdp = RandomCmdp::draw(seed, 1).build(seed);
        let position = (seed - 1) as f64 / (args.random.max(2) - 1) as f64;
        let limit = 0.5 * 200_f64.powf(position); // from 0.5 to 100
        let unit = limit / cmdp.limits()[0];
        cmdp.in_cost_unit(unit)
    });
    for cmdp in stories::all().into_iter().chain(random) {
        for algo in &algos {
            for seed in 1..=args.seeds {
                let (cmdp, algo, set) = (cmdp.clone(), (*algo).to_owned(), args.set.clone());
                jobs.push(Job { cmdp, algo, seed, steps: args.steps, set });
            }
        }
    }
    Ok(jobs)
}

fn page(summary: &[CmdpResult], runs: &[JobResult], args: &Args) -> String {
    let mut text = ground_truth::markdown(summary);
    text += &format!(
        "\n{}, {} steps each. Cells show the mean over the seeds and the worst seed. The worst gap is the one farthest \
         from 0. The last three columns are in thousands of steps; “–” means that a seed never reached it.",
        count_of(args.seeds as usize, "seed"),
        runs[0].steps
    );
    if !args.set.is_empty() {
        text += &format!("\nSet for all algorithms with --set: {}.", args.set.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_check_or_one_unconfirmed_counter_example_is_exit_code_3() {
        let Report { cmdps, checks, counter_examples, .. } = checks::run(1, |_| ()).unwrap();
        let report = |checks: &[_], counters: &[_]| Report::new(cmdps, checks.to_vec(), counters.to_vec());
        let good = report(&checks, &counter_examples);
        assert_eq!(code(&good), Code::Done);

        let mut wrong = checks.clone();
        (wrong[2].worst, wrong[2].ok) = (1.0, false);
        let failed = report(&wrong, &counter_examples);
        assert_eq!(code(&failed), Code::NotMet);
        assert!(table(&failed).contains(&format!("FAILED at {}", wrong[2].worst_case)));

        let mut unconfirmed = counter_examples.clone();
        unconfirmed[0].ok = false;
        assert_eq!(code(&report(&checks, &unconfirmed)), Code::NotMet);
    }
}
