//! The paper's experiments as committed sweep files, and how long they will take here.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Value;

use crate::config::ResolvedRun;
use crate::sweep::{PlanError, Planned, SweepFile};
use crate::{LabError, bench};

/// An experiment of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Figures 1 and 2, Tables 1 and 2: EPO and five baselines on eight tasks.
    Paper,
    /// Figure 3: parts of EPO against the whole.
    Ablation,
    /// Figure 4: EPO at several limits.
    Limits,
}

/// How an experiment is made smaller; what is not given stays as the paper has it.
#[derive(Clone, Debug, Default)]
pub struct Shrink {
    /// Environment steps of each run.
    pub steps: Option<u64>,
    /// Number of seeds, from 0.
    pub seeds: Option<u64>,
    /// Tasks instead of the paper's.
    pub tasks: Vec<String>,
    /// Algorithms instead of the paper's.
    pub algos: Vec<String>,
}

impl Experiment {
    /// The committed sweep file.
    pub fn text(self) -> &'static str {
        match self {
            Self::Paper => include_str!("../../../experiments/paper.toml"),
            Self::Ablation => include_str!("../../../experiments/ablation.toml"),
            Self::Limits => include_str!("../../../experiments/limits.toml"),
        }
    }

    /// The sweep file with its changes.
    pub fn file(self, shrink: &Shrink) -> Result<SweepFile, PlanError> {
        let mut file = SweepFile::parse(self.text())?;
        let texts = |values: &[String]| values.iter().cloned().map(Value::String).collect();
        let int = |v: u64| Value::Integer(i64::try_from(v).unwrap_or(i64::MAX));
        if let Some(steps) = shrink.steps {
            file.set("run.steps", int(steps));
        }
        if let Some(seeds) = shrink.seeds {
            if seeds == 0 {
                return Err(PlanError(vec!["--seeds must be at least 1".into()]));
            }
            file.set_axis("run.seed", (0..seeds).map(int).collect());
        }
        if !shrink.tasks.is_empty() {
            file.set_axis("run.task", texts(&shrink.tasks));
        }
        if !shrink.algos.is_empty() {
            if self != Self::Paper {
                return Err(PlanError(vec![
                    "this experiment compares variants of EPO: --algos does not apply".into(),
                ]));
            }
            file.set_axis("run.algo", texts(&shrink.algos));
        }
        Ok(file)
    }
}

/// Environment steps of a measurement, at least: a few episodes, a second or two.
const MEASURED_STEPS: usize = 8000;

/// Seconds that each run will take with this many threads while `jobs` of them run side by side, in the order of `runs`.
///
/// One short epoch of each task with the first algorithm gives the time to collect; one of each algorithm on the
/// first task gives the time to update. Each is measured `jobs` times at once, because runs that share a machine slow
/// each other down. Folders are made in `dir`.
pub fn estimate(runs: &[Planned], jobs: usize, threads: usize, dir: &Path) -> Result<Vec<f64>, LabError> {
    let Some(first) = runs.first() else { return Ok(Vec::new()) };
    let mut measured: BTreeMap<(&str, &str), (f64, f64)> = BTreeMap::new();
    for run in runs {
        let needed = run.algo == first.algo || run.task == first.task;
        if needed && !measured.contains_key(&(&*run.task, &*run.algo)) {
            let folder = dir.join(format!("{}-{}", run.algo, run.task));
            measured.insert((&run.task, &run.algo), side_by_side(run, jobs, threads, &folder)?);
        }
    }
    let of = |task: &str, algo: &str| measured.get(&(task, algo)).copied();
    let seconds = |run: &Planned| {
        let collect = of(&run.task, &first.algo).or(of(&run.task, &run.algo)).map_or(0.0, |m| m.0);
        let update = of(&first.task, &run.algo).or(of(&run.task, &run.algo)).map_or(0.0, |m| m.1);
        run.steps as f64 * (collect + update)
    };
    Ok(runs.iter().map(seconds).collect())
}

/// Mean seconds to collect and to update, per environment step, of `jobs` equal runs at once.
fn side_by_side(run: &Planned, jobs: usize, threads: usize, folder: &Path) -> Result<(f64, f64), LabError> {
    let measure = &|job: usize| seconds_per_step(run, threads, &folder.join(job.to_string()));
    let all = std::thread::scope(|scope| {
        let started: Vec<_> = (0..jobs.max(1)).map(|job| scope.spawn(move || measure(job))).collect();
        let ended = started.into_iter().map(|s| s.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        ended.collect::<Result<Vec<_>, _>>()
    })?;
    let mean = |f: fn(&(f64, f64)) -> f64| all.iter().map(f).sum::<f64>() / all.len() as f64;
    Ok((mean(|m| m.0), mean(|m| m.1)))
}

/// Seconds to collect and to update, per environment step.
fn seconds_per_step(run: &Planned, threads: usize, folder: &Path) -> Result<(f64, f64), LabError> {
    let mut short = ResolvedRun::from_layers(Some(&run.config), &[])?;
    let envs = short.train.envs;
    short.train.threads = threads;
    short.train.update.kl_stop = false; // a short epoch may stop where a whole one would not: all passes, the longest time
    short.train.steps_per_epoch =
        short.train.steps_per_epoch.min(MEASURED_STEPS.max(short.train.update.batch).next_multiple_of(envs));
    short.run.steps = short.train.steps_per_epoch as u64;
    let measured = bench::train(&short, folder)?;
    let steps = measured.steps_per_epoch as f64;
    Ok((measured.rollout_s / steps, measured.update_s / steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_the_papers_experiments() {
        let count = |e: Experiment| e.file(&Shrink::default()).unwrap().plan().unwrap();
        let paper = count(Experiment::Paper);
        assert_eq!(paper.len(), 8 * 6 * 3);
        assert!(paper.iter().all(|r| r.steps == 10_000_000 && r.config.contains("limit = 25")));
        assert_eq!(count(Experiment::Ablation).len(), 4 * 3);
        assert_eq!(count(Experiment::Limits).len(), 3 * 3);
    }

    #[test]
    fn an_experiment_can_be_shrunk() {
        let shrink = Shrink {
            steps: Some(64_000),
            seeds: Some(1),
            tasks: vec!["SafetyPointGoal1-v0".into()],
            algos: vec!["epo".into(), "cpo".into()],
        };
        let runs = Experiment::Paper.file(&shrink).unwrap().plan().unwrap();
        let names: Vec<_> = runs.iter().map(|r| (r.algo.as_str(), r.seed, r.steps)).collect();
        assert_eq!(names, [("epo", 0, 64_000), ("cpo", 0, 64_000)]);
        let said = Experiment::Limits.file(&shrink).unwrap_err().to_string();
        assert!(said.contains("--algos does not apply"), "{said}");
        let wrong = Shrink { tasks: vec!["SafetyPointGoal11-v0".into()], ..Shrink::default() };
        let said = Experiment::Limits.file(&wrong).unwrap().plan().unwrap_err().to_string();
        assert!(said.contains("nearest"), "{said}");
    }
}
