//! The paper's experiments as committed sweep files, and how long they will take here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use toml::{Table, Value};

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

/// A measurement that is about to begin.
#[derive(Clone, Copy, Debug)]
pub struct Measuring<'a> {
    /// Measurements done before it.
    pub done: usize,
    /// Measurements in all.
    pub of: usize,
    /// The run that it is a short epoch of.
    pub run: &'a Planned,
}

/// How long a run takes: between these two, because the KL stop ends most updates early and nobody knows beforehand
/// after how many passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duration {
    /// Seconds if every update stops after its first pass.
    pub least: f64,
    /// Seconds if every update makes all of its passes.
    pub most: f64,
}

/// How long each run will take with this many threads while `jobs` of them run side by side, in the order of `runs`.
///
/// One short epoch is measured for every task and for every setting of the algorithm, not for every pair of them, and
/// `jobs` times at once, because runs that share a machine slow each other down. Folders are made in `dir`. `watch` sees
/// each measurement before it begins; `None` if `stop` was set meanwhile.
pub fn estimate(
    runs: &[Planned],
    jobs: usize,
    threads: usize,
    dir: &Path,
    stop: &AtomicBool,
    mut watch: impl FnMut(Measuring<'_>),
) -> Result<Option<Vec<Duration>>, LabError> {
    let chosen = chosen(runs);
    let mut measured = Measured::new();
    for (done, &run) in chosen.iter().enumerate() {
        if stop.load(Relaxed) {
            return Ok(None);
        }
        watch(Measuring { done, of: chosen.len(), run });
        measured.insert(key(run), side_by_side(run, jobs, threads, &dir.join(&run.id))?);
    }
    Ok(Some(runs.iter().map(|run| seconds(run, &chosen, &measured)).collect()))
}

/// Seconds until all is done, `jobs` side by side, each run begun as soon as there is room.
pub fn until_done(seconds: &[f64], jobs: usize) -> f64 {
    let mut busy = vec![0.0_f64; jobs.max(1)];
    for s in seconds {
        if let Some(first_free) = busy.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            *first_free += s;
        }
    }
    busy.into_iter().fold(0.0, f64::max)
}

/// Seconds per environment step.
#[derive(Clone, Copy, Debug, Default)]
struct PerStep {
    collect: f64,
    /// With all passes.
    update: f64,
    /// Passes that the KL stop can save all but one of; 1 if there is no KL stop.
    passes: f64,
}

/// By task and setting.
type Measured<'a> = BTreeMap<(&'a str, String), PerStep>;

fn key(run: &Planned) -> (&str, String) {
    (&run.task, setting(run))
}

/// What decides the time of an update beside the task: algorithm and parameters as given.
fn setting(run: &Planned) -> String {
    let mut config: Table = run.config.parse().unwrap_or_default();
    if let Some(Value::Table(run)) = config.get_mut("run") {
        run.retain(|name, _| !["task", "seed", "steps", "limit"].contains(&name));
    }
    config.to_string()
}

/// The runs to measure: each the first of its task or the first of its setting.
fn chosen(runs: &[Planned]) -> Vec<&Planned> {
    let (mut tasks, mut settings) = (BTreeSet::new(), BTreeSet::new());
    let is_new = |run: &&Planned| tasks.insert(run.task.clone()) | settings.insert(setting(run));
    runs.iter().filter(is_new).collect()
}

/// The task gives the time to collect; the setting gives the time to update, in proportion to what the observations of the
/// task cost another setting that was measured on both tasks.
fn seconds(run: &Planned, chosen: &[&Planned], measured: &Measured<'_>) -> Duration {
    let of = |run: &Planned| measured.get(&key(run)).copied();
    let like = |same: &dyn Fn(&Planned) -> bool| chosen.iter().copied().find(|r| same(r)).unwrap_or(run);
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

/// Mean of `jobs` equal runs at once.
fn side_by_side(run: &Planned, jobs: usize, threads: usize, folder: &Path) -> Result<PerStep, LabError> {
    let measure = &|job: usize| per_step(run, threads, &folder.join(job.to_string()));
    let all = std::thread::scope(|scope| {
        let started: Vec<_> = (0..jobs.max(1)).map(|job| scope.spawn(move || measure(job))).collect();
        let ended = started.into_iter().map(|s| s.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        ended.collect::<Result<Vec<_>, _>>()
    })?;
    let mean = |f: fn(&PerStep) -> f64| all.iter().map(f).sum::<f64>() / all.len() as f64;
    Ok(PerStep { collect: mean(|m| m.collect), update: mean(|m| m.update), passes: mean(|m| m.passes) })
}

fn per_step(run: &Planned, threads: usize, folder: &Path) -> Result<PerStep, LabError> {
    let mut short = ResolvedRun::from_layers(Some(&run.config), &[])?;
    let envs = short.train.envs;
    short.train.threads = threads;
    // a short epoch may stop where a whole one would not, so all passes are timed
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
            algos: vec!["epo".into(), "cpo".into()],
        };
        let runs = Experiment::Paper.file(&shrink).unwrap().plan().unwrap();
        let names: Vec<_> = runs.iter().map(|r| (r.algo.as_str(), r.seed, r.steps)).collect();
        assert_eq!(names, [("epo", 0, 64_000), ("cpo", 0, 64_000)]);
        let said = Experiment::Limits.file(&shrink).unwrap_err().to_string();
        assert!(said.contains("--algos does not apply"), "{said}");
        let wrong = Shrink { tasks: vec!["SafetyPointGoal11-v0".into()], ..Shrink::default() };
        let said = Experiment::Limits.file(&wrong).unwrap().plan().unwrap_err().to_string();
        assert!(said.contains("did you mean `SafetyPointGoal1-v0`"), "{said}");
    }

    /// Kills: the sum over the number of jobs, which would have three equal runs on two end halfway through the third.
    #[test]
    fn all_is_done_when_the_last_run_is() {
        assert_eq!(until_done(&[3.0, 3.0, 3.0], 2), 6.0);
        assert_eq!(until_done(&[5.0, 1.0, 1.0, 2.0], 2), 5.0);
        assert_eq!((until_done(&[2.0, 1.0], 1), until_done(&[], 2)), (3.0, 0.0));
    }

    /// Kills: a measurement per pair or per seed, the update of another task or setting, a sum instead of the proportion.
    #[test]
    fn a_measurement_per_task_and_per_setting_tells_the_time_of_every_pair() {
        let runs = Experiment::Paper.file(&Shrink::default()).unwrap().plan().unwrap();
        let chosen = chosen(&runs);
        assert_eq!(chosen.len(), 8 + 6 - 1);
        let places = |name: fn(&Planned) -> &str| {
            let names: BTreeSet<_> = runs.iter().map(name).collect();
            names.into_iter().zip(1_u8..).map(|(n, k)| (n, f64::from(k))).collect::<BTreeMap<_, _>>()
        };
        let (task, algo) = (places(|r| &r.task), places(|r| &r.algo));
        let truth = |r: &Planned| PerStep {
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
        // the parts of EPO differ in time, its limits do not
        let count = |e: Experiment| super::chosen(&e.file(&Shrink::default()).unwrap().plan().unwrap()).len();
        assert_eq!((count(Experiment::Ablation), count(Experiment::Limits)), (4, 1));
    }
}
