//! The experiments of the paper, as sweep files in the repository, and an estimate of their duration on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use toml::{Table, Value};

use crate::config::ResolvedRun;
use crate::sweep::{PlanError, PlannedRun, SweepFile};
use crate::{LabError, bench};

/// An experiment of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Figures 1 and 2, Tables 1 and 2: EPO and its baselines on the tasks of the paper.
    Paper,
    /// Figure 3: ablations of EPO.
    Ablation,
    /// Figure 4: EPO at several cost limits.
    Limits,
}

/// Changes that make an experiment smaller. Values that are not given stay as in the paper.
#[derive(Clone, Debug, Default)]
pub struct Shrink {
    /// Number of environment steps of each run.
    pub steps: Option<u64>,
    /// Number of seeds. The seeds are 0, 1, ….
    pub seeds: Option<u64>,
    /// Tasks that replace those of the paper. If empty, the tasks of the paper are used.
    pub tasks: Vec<String>,
    /// Algorithms that replace those of the paper. If empty, the algorithms of the paper are used.
    pub algos: Vec<String>,
}

impl Experiment {
    /// Returns the text of the experiment's sweep file.
    pub fn text(self) -> &'static str {
        match self {
            Self::Paper => include_str!("../../../experiments/paper.toml"),
            Self::Ablation => include_str!("../../../experiments/ablation.toml"),
            Self::Limits => include_str!("../../../experiments/limits.toml"),
        }
    }

    /// Returns the parsed sweep file with the changes of `shrink`.
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
            file.choose("run.algo", texts(&shrink.algos));
        }
        Ok(file)
    }
}

/// Number of environment steps of a measurement: a few episodes, which take one or two seconds. A measurement is longer
/// if a minibatch is larger, and shorter if an epoch is shorter.
const MEASURED_STEPS: usize = 8000;

/// A measurement that is about to begin.
#[derive(Clone, Copy, Debug)]
pub struct NextMeasurement<'a> {
    /// Number of measurements done before this one.
    pub done: usize,
    /// Total number of measurements.
    pub of: usize,
    /// The run of which a short epoch is measured.
    pub run: &'a PlannedRun,
}

/// Lower and upper bound on the duration of a run. Early stopping by KL divergence ends most updates early, and the
/// number of passes is not known in advance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duration {
    /// Seconds if every update stops after its first pass.
    pub least: f64,
    /// Seconds if every update makes all of its passes.
    pub most: f64,
}

/// Estimates the duration of each run, in the order of `runs`, if `jobs` runs with `threads` threads each run at once.
///
/// One short epoch is measured for every task and for every setting of the algorithm, but not for every pair of them.
/// Each measurement runs `jobs` times at once, because runs that share a machine slow each other down. The run folders
/// are made in `dir`. `watch` is called before each measurement. Returns `None` if `stop` was set.
pub fn estimate(
    runs: &[PlannedRun],
    jobs: usize,
    threads: usize,
    dir: &Path,
    stop: &AtomicBool,
    mut watch: impl FnMut(NextMeasurement<'_>),
) -> Result<Option<Vec<Duration>>, LabError> {
    let chosen = chosen(runs);
    let mut measured = Measured::new();
    for (done, &run) in chosen.iter().enumerate() {
        if stop.load(Relaxed) {
            return Ok(None);
        }
        watch(NextMeasurement { done, of: chosen.len(), run });
        measured.insert(key(run), side_by_side(run, jobs, threads, &dir.join(&run.id))?);
    }
    Ok(Some(runs.iter().map(|run| seconds(run, &chosen, &measured)).collect()))
}

/// Returns the number of seconds until all runs are done if `jobs` of them run at once. `seconds` has the duration of
/// each run. A run starts, in the given order, as soon as another one ends.
pub fn until_done(seconds: &[f64], jobs: usize) -> f64 {
    let mut busy = vec![0.0_f64; jobs.max(1)];
    for s in seconds {
        if let Some(first_free) = busy.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            *first_free += s;
        }
    }
    busy.into_iter().fold(0.0, f64::max)
}

/// Measured seconds per environment step, of collection and of update.
#[derive(Clone, Copy, Debug, Default)]
struct PerStep {
    collect: f64,
    /// Time of an update that makes all of its passes.
    update: f64,
    /// Number of passes of an update that is not stopped early; 1 if `kl_stop` is off. With `kl_stop`, an update may
    /// stop after its first pass.
    passes: f64,
}

/// Measurements by task and setting.
type Measured<'a> = BTreeMap<(&'a str, String), PerStep>;

fn key(run: &PlannedRun) -> (&str, String) {
    (&run.task, setting(run))
}

/// Returns the settings, besides the task, on which the time of an update depends: the algorithm and the given
/// parameters.
fn setting(run: &PlannedRun) -> String {
    let mut config: Table = run.config.parse().unwrap_or_default();
    if let Some(Value::Table(run)) = config.get_mut("run") {
        run.retain(|name, _| !["task", "seed", "steps", "limit"].contains(&name));
    }
    config.to_string()
}

/// Returns the runs to measure: the first run of each task and the first run of each setting.
fn chosen(runs: &[PlannedRun]) -> Vec<&PlannedRun> {
    let (mut tasks, mut settings) = (BTreeSet::new(), BTreeSet::new());
    let is_new = |run: &&PlannedRun| tasks.insert(run.task.clone()) | settings.insert(setting(run));
    runs.iter().filter(is_new).collect()
}

/// Estimates the duration of a run from the measurements.
///
/// The time to collect is that of the task. The time to update is that of the setting, scaled to the task. The scale is
/// the ratio of the update times of another setting that was measured on both tasks.
fn seconds(run: &PlannedRun, chosen: &[&PlannedRun], measured: &Measured<'_>) -> Duration {
    let of = |run: &PlannedRun| measured.get(&key(run)).copied();
    let like = |same: &dyn Fn(&PlannedRun) -> bool| chosen.iter().copied().find(|r| same(r)).unwrap_or(run);
    let of_task = like(&|r| r.task == run.task);
    let of_setting = like(&|r| setting(r) == setting(run));
    let task = of(of_task).unwrap_or_default();
    let there = measured.get(&(&of_setting.task, setting(of_task)));
    let larger = there.map_or(1.0, |there| task.update / there.update);
    let setting = of(of_setting).unwrap_or_default();
    let update = larger * setting.update;
    let steps = run.steps as f64;
    Duration {
        least: steps * (task.collect + update / setting.passes.max(1.0)),
        most: steps * (task.collect + update),
    }
}

/// Returns the mean measurement of `jobs` equal runs that run at once.
fn side_by_side(run: &PlannedRun, jobs: usize, threads: usize, folder: &Path) -> Result<PerStep, LabError> {
    let measure = &|job: usize| per_step(run, threads, &folder.join(job.to_string()));
    let all = std::thread::scope(|scope| {
        let started: Vec<_> = (0..jobs.max(1)).map(|job| scope.spawn(move || measure(job))).collect();
        let ended = started.into_iter().map(|s| s.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        ended.collect::<Result<Vec<_>, _>>()
    })?;
    let mean = |f: fn(&PerStep) -> f64| all.iter().map(f).sum::<f64>() / all.len() as f64;
    Ok(PerStep { collect: mean(|m| m.collect), update: mean(|m| m.update), passes: mean(|m| m.passes) })
}

fn per_step(run: &PlannedRun, threads: usize, folder: &Path) -> Result<PerStep, LabError> {
    let mut short = ResolvedRun::from_layers(Some(&run.config), &[])?;
    let envs = short.train.envs;
    short.train.threads = threads;
    // a short epoch may stop early where a whole one does not, so all passes are timed
    let kl_stop = std::mem::replace(&mut short.train.update.kl_stop, false);
    short.train.steps_per_epoch = short
        .train
        .steps_per_epoch
        .min(MEASURED_STEPS.max(short.train.update.minibatch).next_multiple_of(envs));
    short.run.steps = short.train.steps_per_epoch as u64;
    let times = bench::epochs(&short, folder)?;
    let steps = short.train.steps_per_epoch as f64;
    let passes = if kl_stop { times.passes.max(1.0) } else { 1.0 };
    Ok(PerStep { collect: times.rollout_s / steps, update: times.update_s / steps, passes })
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
            algos: vec!["epo".into(), "ppo".into(), "cpo".into()],
        };
        let runs = Experiment::Paper.file(&shrink).unwrap().plan().unwrap();
        let names: Vec<_> = runs.iter().map(|r| (r.algo.as_str(), r.seed, r.steps)).collect();
        assert_eq!(names, [("epo", 0, 64_000), ("ppo", 0, 64_000), ("cpo", 0, 64_000)]);
        assert!(
            runs[2].config.contains("target_kl = 0.005"),
            "the setting that tuning kept: {}",
            runs[2].config
        );
        let said = Experiment::Limits.file(&shrink).unwrap_err().to_string();
        assert!(said.contains("--algos does not apply"), "{said}");
        let wrong = Shrink { tasks: vec!["SafetyPointGoal11-v0".into()], ..Shrink::default() };
        let said = Experiment::Limits.file(&wrong).unwrap().plan().unwrap_err().to_string();
        assert!(said.contains("did you mean `SafetyPointGoal1-v0`"), "{said}");
    }

    /// This test fails if the duration is the sum divided by the number of jobs. That would be 4.5 s in the first case.
    #[test]
    fn the_total_time_is_that_of_the_last_run_to_end() {
        assert_eq!(until_done(&[3.0, 3.0, 3.0], 2), 6.0);
        assert_eq!(until_done(&[5.0, 1.0, 1.0, 2.0], 2), 5.0);
        assert_eq!((until_done(&[2.0, 1.0], 1), until_done(&[], 2)), (3.0, 0.0));
    }

    /// This test fails if every pair or every seed is measured, or if the update time of a wrong task or setting is
    /// used. It also fails if the update time is not scaled in proportion.
    #[test]
    fn one_measurement_per_task_and_per_setting_gives_the_time_of_every_pair() {
        let runs = Experiment::Paper.file(&Shrink::default()).unwrap().plan().unwrap();
        let chosen = chosen(&runs);
        assert_eq!(chosen.len(), 8 + 6 - 1);
        let places = |name: fn(&PlannedRun) -> &str| {
            let names: BTreeSet<_> = runs.iter().map(name).collect();
            names.into_iter().zip(1_u8..).map(|(n, k)| (n, f64::from(k))).collect::<BTreeMap<_, _>>()
        };
        let (task, algo) = (places(|r| &r.task), places(|r| &r.algo));
        let truth = |r: &PlannedRun| PerStep {
            collect: 1e-3 * task[&*r.task],
            update: 1e-4 * task[&*r.task] * (1.0 + algo[&*r.algo]),
            passes: 1.0 + algo[&*r.algo],
        };
        let measured: Measured<'_> = chosen.iter().map(|r| (key(r), truth(r))).collect();
        for run in &runs {
            let (got, want) = (seconds(run, &chosen, &measured), truth(run));
            let most = 1e7 * (want.collect + want.update);
            let least = 1e7 * (want.collect + want.update / want.passes);
            assert!((got.most / most - 1.0).abs() < 1e-12, "{}: {got:?}, not {most}", run.id);
            assert!((got.least / least - 1.0).abs() < 1e-12, "{}: {got:?}, not {least}", run.id);
        }
        // ablations of EPO differ in duration, so each is measured; runs that differ only in the limit do not
        let count = |e: Experiment| super::chosen(&e.file(&Shrink::default()).unwrap().plan().unwrap()).len();
        assert_eq!((count(Experiment::Ablation), count(Experiment::Limits)), (4, 1));
    }
}
