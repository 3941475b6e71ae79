//! Attacks on runs, and a table of the results (`./check long`).
//!
//! The program works in two ways. Called with a command of `epo`, such as `epo-attack train …`, it is `epo`
//! with one more task. Called without a command, it attacks such processes, run folders and parsers:
//!
//! | module | attack |
//! |---|---|
//! | `kill` | SIGKILL at random moments: training, saving, evaluating; then resume |
//! | `faults` | the k-th system call fails, writes half, or kills; full disks |
//! | `damage` | bits, lengths and names of every file of a run folder |
//! | `fuzz` | mutated configurations, sweep files, run folders, `.npz` and safetensors |
//! | `coverage` | the same, with inputs that are guided by coverage |
//! | `numbers` | NaN, infinite and huge numbers from an environment |
//! | `hostile` | an environment that panics, aborts, crashes or hangs |
//! | `sweeps` | eight drivers of one sweep, killed at random, under a clock that jumps |
//! | `steady` | numbers of threads; memory and descriptors over a long run; valgrind |
//!
//! An attempt fails if the result of a run differs from that of an undisturbed run, if something is lost, or if a process
//! panics, hangs or takes too much memory.
//!
//! Built with the feature `coverage` (by `coverage.sh`), the program is libFuzzer with the parsers of `fuzz`.

#![cfg_attr(
    feature = "coverage",
    no_main,
    allow(dead_code, unsafe_code, reason = "libFuzzer has the main function")
)]

#[cfg(feature = "coverage")]
libfuzzer_sys::fuzz_target!(|input: &[u8]| coverage::parse(input));

mod coverage;
mod damage;
mod faults;
mod fuzz;
mod hostile;
mod kill;
mod lab;
mod numbers;
mod steady;
mod sweeps;
mod table;
mod walk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use lab::{Attack, Budget, Lab};
use table::Row;

/// Attack runs, folders and parsers, and print how often an attack did harm.
#[derive(Parser, Debug)]
#[command(name = "epo-attack")]
struct Args {
    /// Time for all attacks together, in minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
    /// Make only a few attempts of each kind
    #[arg(long)]
    short: bool,
    /// Seed of the random attacks
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Program of `coverage.sh`; it guides the fuzzed inputs by coverage. Without it they are random mutations
    #[arg(long, value_name = "FILE")]
    coverage: Option<PathBuf>,
    /// Write the short inputs that `--coverage` finds to this folder; `crates/epo-attack/corpus` has those of the tests
    #[arg(long, value_name = "DIR", requires = "coverage")]
    keep: Option<PathBuf>,
    /// Run only the attacks whose name contains this text
    #[arg(long)]
    only: Option<String>,
}

/// An attack: its name, its share of the time, the numbers of attempts in the short and the long form.
struct Plan {
    name: &'static str,
    share: f64,
    short: u64,
    long: u64,
    run: fn(&mut Lab, &Budget) -> Attack,
}

const PLANS: [Plan; 20] = [
    Plan { name: "kill -9 in training and saving", share: 5.0, short: 12, long: 1000, run: kill::training },
    Plan { name: "kill -9 on simulated tasks", share: 3.0, short: 2, long: 100, run: kill::tasks },
    Plan { name: "kill -9 in an evaluation", share: 1.0, short: 3, long: 100, run: kill::evaluation },
    Plan { name: "failed system call in training", share: 3.0, short: 40, long: 5000, run: faults::training },
    Plan { name: "failed system call in resuming", share: 2.0, short: 20, long: 2000, run: faults::resuming },
    Plan { name: "full disk", share: 1.0, short: 4, long: 20, run: faults::full_disk },
    Plan { name: "damaged bit", share: 3.0, short: 300, long: 10_000, run: damage::bits },
    Plan {
        name: "file cut, swapped, renamed or removed",
        share: 1.0,
        short: 60,
        long: 2000,
        run: damage::files,
    },
    Plan {
        name: "fuzzed configuration",
        share: 1.0,
        short: 20_000,
        long: 1_000_000,
        run: fuzz::configuration,
    },
    Plan { name: "fuzzed --set", share: 1.0, short: 20_000, long: 1_000_000, run: fuzz::assignments },
    Plan { name: "fuzzed sweep file", share: 1.0, short: 10_000, long: 1_000_000, run: fuzz::sweeps },
    Plan { name: "fuzzed .npz", share: 1.0, short: 40_000, long: 1_000_000, run: fuzz::npz },
    Plan { name: "fuzzed safetensors", share: 1.0, short: 5_000, long: 200_000, run: fuzz::tensors },
    Plan { name: "fuzzed run folder", share: 1.0, short: 5_000, long: 200_000, run: fuzz::folders },
    Plan { name: "NaN, infinite and huge numbers", share: 1.0, short: 30, long: 1000, run: numbers::attack },
    Plan {
        name: "panic, abort, crash and hang of an environment",
        share: 1.0,
        short: 4,
        long: 100,
        run: hostile::attack,
    },
    Plan {
        name: "sweep: 8 drivers, kills, jumping clock",
        share: 4.0,
        short: 16,
        long: 500,
        run: sweeps::attack,
    },
    Plan {
        name: "2, 3, 4 and 8 threads instead of 1",
        share: 1.0,
        short: 4,
        long: 100,
        run: steady::threads,
    },
    Plan { name: "memory and descriptors in a long run", share: 2.0, short: 1, long: 20, run: steady::leaks },
    Plan { name: "MuJoCo under valgrind", share: 2.0, short: 0, long: 76, run: steady::valgrind },
];

/// Commands of `epo` that this program understands, and its own workers.
const COMMANDS: [&str; 5] = ["train", "eval", "sweep", "report", "parity"];

fn main() -> ExitCode {
    let first = std::env::args().nth(1).unwrap_or_default();
    match first.as_str() {
        command if COMMANDS.contains(&command) => epo_cli::run(register),
        "fuzz-worker" => fuzz::worker(),
        "physics-worker" => steady::physics_worker(),
        _ => attack(&Args::parse()),
    }
}

fn register() -> Result<(), epo_tasks::TaskError> {
    epo_tasks::register_env("the position", "1 above the position 1", || Ok(walk::walk(None)))?;
    Ok(())
}

/// Limits this process and its children to 8 GB of addresses: an attack that finds a leak must not harm the machine.
fn limit_memory() {
    let limit = Some(8 << 30);
    let limits = rustix::process::Rlimit { current: limit, maximum: limit };
    let _ = rustix::process::setrlimit(rustix::process::Resource::As, limits);
}

fn attack(args: &Args) -> ExitCode {
    let chosen = |plan: &&Plan| {
        args.only.as_ref().is_none_or(|part| plan.name.contains(part.as_str()))
            && !(args.short && plan.short == 0)
    };
    let plans: Vec<&Plan> = PLANS.iter().filter(chosen).collect();
    let mut lab = match Lab::new(args.seed) {
        Ok(lab) => lab,
        Err(e) => {
            eprintln!("error: no folder for the attacks can be made: {e}");
            return ExitCode::FAILURE;
        }
    };
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    lab.coverage = args.coverage.as_ref().map(absolute);
    lab.keep = args.keep.as_ref().map(absolute);
    limit_memory();
    let end = Instant::now() + Duration::from_secs_f64(60.0 * args.minutes.clamp(0.1, 1e5));
    let mut rows: Vec<Row> = Vec::new();
    for (i, plan) in plans.iter().enumerate() {
        let shares: f64 = plans[i..].iter().map(|plan| plan.share).sum();
        let left = end.saturating_duration_since(Instant::now());
        let time = left.mul_f64(plan.share / shares);
        let begun = Instant::now();
        let most = if args.short { plan.short } else { plan.long };
        let attack = (plan.run)(&mut lab, &Budget::new(begun + time, most));
        for what in attack.failures.iter().take(5) {
            eprintln!("FAILED {}: {what}", plan.name);
        }
        eprintln!(
            "{}: {} tried, {} failed, {:.1} s{}",
            plan.name,
            attack.tried,
            attack.failed,
            begun.elapsed().as_secs_f64(),
            attack.note.as_ref().map_or_else(String::new, |note| format!(" ({note})"))
        );
        rows.push(Row::new(plan.name, attack.tried, attack.failed));
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&rows).unwrap_or_default(),
        false => table::text(&rows),
    };
    #[allow(clippy::print_stdout, reason = "the result of the program")]
    {
        println!("{text}");
    }
    if rows.iter().any(|row| row.failed > 0) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
