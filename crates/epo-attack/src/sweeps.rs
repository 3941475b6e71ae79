//! Eight drivers share one sweep. They are killed at random and started again, under a clock that
//! jumps by days. In the end every run must have been done exactly once, with the same result as
//! when it runs alone.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::faults::preload;
use crate::lab::{Attack, Budget, Lab, SMALL, epo, left, reap, succeed};
use crate::walk::ID;

const DRIVERS: usize = 8;
/// Number of runs of one sweep.
const RUNS: u64 = 25;

pub(crate) fn attack(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    while budget.more(attack.tried) {
        let runs = RUNS.min(budget.most - attack.tried);
        let out = lab.place();
        match sweep(lab, &out, runs, attack.tried) {
            Ok(results) => results.into_iter().for_each(|result| attack.count(result)),
            Err(e) => {
                (0..runs).for_each(|_| attack.count(Err(e.clone())));
                break;
            }
        }
        let _ = std::fs::remove_dir_all(&out);
    }
    attack
}

/// Makes one sweep and returns the verdict on each of its runs.
fn sweep(lab: &mut Lab, out: &Path, runs: u64, first: u64) -> Result<Vec<Result<(), String>>, String> {
    let file = lab.place().with_extension("toml");
    let base: String = SMALL.iter().map(|set| set.replacen('=', " = ", 1) + "\n").collect();
    let seeds: Vec<String> = (first..first + runs).map(|seed| seed.to_string()).collect();
    let text = format!("[base]\nrun.task = \"{ID}\"\n{base}[grid]\nrun.seed = [{}]\n", seeds.join(", "));
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    let start = || -> Result<Child, String> {
        let mut command = epo(&["sweep", "--jobs", "2", "--quiet"]);
        command.arg(&file).arg("--out").arg(out);
        preload(&mut command, out);
        command.env("EPO_CLOCK_JUMP", "1").stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(|e| e.to_string())
    };
    let mut drivers: Vec<Child> = (0..DRIVERS).map(|_| start()).collect::<Result<_, _>>()?;
    let begun = Instant::now();
    let kills = 1 + runs / 4;
    let mut killed = 0;
    let done = || count(&out.join("journal"), "done.json");
    while done() < runs && begun.elapsed() < Duration::from_secs(60 + 4 * runs) {
        std::thread::sleep(Duration::from_millis(20 + lab.random.below(200) as u64));
        let i = lab.random.below(drivers.len());
        if killed < kills {
            killed += 1;
            reap(std::mem::replace(&mut drivers[i], start()?));
        } else if drivers[i].try_wait().is_ok_and(|status| status.is_some()) {
            drivers[i] = start()?; // it left because others held all runs
        }
    }
    let finished = done();
    drivers.into_iter().for_each(reap);
    if finished < runs {
        // a single driver must be able to finish the sweep
        let _ = succeed(epo(&["sweep", "--quiet"]).arg(&file).arg("--out").arg(out));
    }
    let folders = crate::lab::files(&out.join("runs"));
    let configs: Vec<_> = folders.iter().filter(|path| path.ends_with("config.toml")).collect();
    if configs.len() as u64 != runs || done() != runs {
        return Err(format!("{} run folders and {} done, for {runs} runs", configs.len(), done()));
    }
    let verdict = |config: &&std::path::PathBuf| {
        let dir = config.parent().unwrap_or(out);
        let again = lab_run(dir)?;
        let (here, alone) = (left(dir)?, left(&again)?);
        let _ = std::fs::remove_dir_all(again.parent().and_then(Path::parent).unwrap_or(&again));
        if here == alone { Ok(()) } else { Err(format!("{} differs from the run alone", dir.display())) }
    };
    Ok(configs.iter().map(verdict).collect())
}

/// Trains the configuration of a run folder again, alone, and returns the new folder.
fn lab_run(dir: &Path) -> Result<std::path::PathBuf, String> {
    let runs = dir.with_extension("alone");
    let text = std::fs::read_to_string(dir.join("config.toml")).map_err(|e| e.to_string())?;
    let given = dir.with_extension("toml");
    let text: String =
        text.lines().filter(|line| !line.starts_with("epo_version")).map(|l| l.to_owned() + "\n").collect();
    std::fs::write(&given, text).map_err(|e| e.to_string())?;
    succeed(epo(&["train", "--quiet", "--name", "run", "--config"]).arg(&given).arg("--runs").arg(&runs))?;
    crate::lab::folder(&runs).ok_or_else(|| "the run made no folder".into())
}

/// Number of folders of the journal that have the file `name`.
fn count(journal: &Path, name: &str) -> u64 {
    let entries = std::fs::read_dir(journal).into_iter().flatten().filter_map(Result::ok);
    entries.filter(|entry| entry.path().join(name).exists()).count() as u64
}
