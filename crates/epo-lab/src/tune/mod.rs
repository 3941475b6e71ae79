//! Search for good parameters: which values to try, how long to train each, and which trials
//! continue.
//!
//! ```text
//! Sampler ──▶ trials ──▶ runs (a trial × the seeds) ──Engine──▶ results at a rung ──▶ the best share continues
//!    ▲                                                                 │
//!    └────────────────── results of all trials so far ─────────────────┘
//! ```
//! A search is a function of its file and of the run folders. A trial depends only on the seed of the search,
//! its number and the results of earlier generations. A result depends only on the rows of a run up to the
//! rung. A search that was killed therefore continues with the same trials, on any engine, and ends with the
//! same bytes. No other state is kept.
//!
//! At a rung, runs are *paused*, not shortened: each has its full number of steps from the start, so its
//! learning rate decays over the whole run. A trial that continues has the same bytes as a run that was never
//! paused.

mod file;
mod importance;
mod sampler;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use epo_report::RunResults;
use epo_report::history::read_run;
use toml::Value;

use crate::engine::{EngineError, Plan, discard_unused};
use crate::sweep::{Places, PlannedRun, RunOutcome};

pub use file::{Range, SearchMethod, TuneFile, TunedParameter};
pub use importance::{Importance, importance};
pub use sampler::Sampler;

/// Share of the steps up to a rung over which return and cost are averaged.
pub const SHARE: f64 = 0.1;

/// One point of the search space, and its results.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Number of the trial, from 0.
    pub number: usize,
    /// Position in the search space, one number in [0, 1) per parameter.
    pub point: Vec<f64>,
    /// Value of each parameter, in the order of the file.
    pub values: Vec<Value>,
    /// Its runs, one per seed.
    pub runs: Vec<PlannedRun>,
    /// Results at the rungs that it reached, in order. The last rung is the end of the runs.
    pub results: Vec<TrialResult>,
    /// Reason for the failure: why its values are not a valid configuration, or the message of its
    /// first failed run.
    pub failure: Option<String>,
}

/// Results of a trial at a rung: means over the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialResult {
    /// Steps of the rung.
    pub steps: u64,
    /// Mean over the seeds of the results of the runs.
    pub mean: RunResults,
}

impl TrialResult {
    /// Returns the mean return if the mean cost is within the limit, otherwise minus the excess over the limit.
    ///
    /// [`Trial::compare`] puts every feasible trial before every infeasible one, whatever the two numbers are.
    pub fn score(&self) -> f64 {
        let RunResults { ret, cost, limit, .. } = self.mean;
        if self.mean.feasible() { ret } else { limit - cost }
    }
}

impl Trial {
    /// Returns `Greater` if this trial is better.
    ///
    /// A trial that reached a later rung is better: it was preferred in its generation. At the same rung, a
    /// feasible trial is better than an infeasible one. Of two feasible trials, the one with the higher return
    /// is better; of two infeasible ones, the one with the smaller excess. A failed trial is worse than all
    /// others. Of two equal trials, the earlier one is better.
    pub fn compare(&self, other: &Self) -> Ordering {
        let at_rung = || match (self.results.last(), other.results.last()) {
            (Some(a), Some(b)) => a.mean.compare(&b.mean),
            _ => Ordering::Equal,
        };
        (other.failure.is_some().cmp(&self.failure.is_some()))
            .then(self.results.len().cmp(&other.results.len()))
            .then_with(at_rung)
            .then(other.number.cmp(&self.number))
    }
}

/// The part of a search that is executed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Number of the first trial of the generation.
    pub first: usize,
    /// Number of trials of the generation.
    pub size: usize,
    /// Number of trials of the generation that have not been stopped.
    pub alive: usize,
    /// Number of the rung, from 0.
    pub rung: usize,
    /// Number of rungs, the end of the runs included.
    pub rungs: usize,
    /// Steps of the rung.
    pub steps: u64,
}

/// The reason why a search cannot continue. Nothing is lost: the same call continues it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The file has a mistake.
    #[error("{0}")]
    File(String),
    /// The engine cannot be used.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The record of a run cannot be used.
    #[error("{}: {why}", path.display())]
    Run {
        /// Run folder.
        path: PathBuf,
        /// Description of the problem.
        why: String,
    },
    /// A file of the search cannot be written or read.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// The trials of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// All trials, in the order of their numbers.
    pub trials: Vec<Trial>,
    /// Number of rungs, the end of the runs included.
    pub rungs: usize,
    /// Whether all planned trials have ended. If not, the search was asked to stop and the same command continues it.
    pub finished: bool,
}

impl Found {
    /// Returns the best trial that reached the end of its runs; `None` if there is none.
    pub fn best(&self) -> Option<&Trial> {
        let ended = self.trials.iter().filter(|trial| trial.results.len() == self.rungs);
        ended.max_by(|a, b| a.compare(b))
    }
}

/// Executes a plan and returns the outcome of each run. The round is for the display.
pub type Execute<'a> = dyn FnMut(&Plan, &Round) -> Result<Vec<RunOutcome>, EngineError> + 'a;

/// Runs the search of the file in the folder `dir`. `execute` gives each plan to an engine; `watch` receives
/// the trials after each round.
///
/// # Errors
/// If the file in `dir` is that of another search, a run cannot be read, or the engine cannot be used.
pub fn search(
    file: &TuneFile,
    dir: &Path,
    execute: &mut Execute<'_>,
    watch: &mut dyn FnMut(&Round, &[Trial]),
) -> Result<Found, TuneError> {
    let new = !dir.exists();
    claim(file, dir)?;
    let found = rounds(file, dir, execute, watch);
    if found.is_err() {
        discard_unused(dir, new);
    }
    found
}

/// Follows the search in the folder `dir` and starts no run. `read` returns the outcomes of the runs of a plan; the
/// search is followed up to the first round with a run that has not ended.
///
/// # Errors
/// If the file in `dir` is that of another search, or a run cannot be read.
pub fn follow(file: &TuneFile, dir: &Path, read: &mut Execute<'_>) -> Result<Found, TuneError> {
    check_same(file, dir)?;
    rounds(file, dir, read, &mut |_, _| ())
}

/// Executes one round after another until the search has ended or a run has not.
fn rounds(
    file: &TuneFile,
    dir: &Path,
    execute: &mut Execute<'_>,
    watch: &mut dyn FnMut(&Round, &[Trial]),
) -> Result<Found, TuneError> {
    let name = dir.file_name().map_or_else(|| "tune".to_owned(), |name| name.to_string_lossy().into_owned());
    let sampler = Sampler::new(file);
    let (mut trials, rungs) = (Vec::<Trial>::new(), file.rungs.len() + 1);
    while trials.len() < file.trials {
        let first = trials.len();
        let size = sampler.generation(first).min(file.trials - first);
        for number in first..first + size {
            let point = sampler.point(number, &trials[..first]);
            // values that are valid one by one may be invalid together; such a trial fails, and the
            // search continues
            trials.push(file.trial(number, point.clone()).unwrap_or_else(|why| Trial {
                number,
                values: file.values(&point),
                point,
                runs: Vec::new(),
                results: Vec::new(),
                failure: Some(why),
            }));
        }
        let mut alive: Vec<usize> =
            (first..first + size).filter(|&number| trials[number].failure.is_none()).collect();
        for rung in 0..rungs {
            if alive.is_empty() {
                break;
            }
            let until = file.rungs.get(rung).copied();
            let steps = until.unwrap_or(file.steps);
            let round = Round { first, size, alive: alive.len(), rung, rungs, steps };
            let runs = runs(&trials, &alive, until);
            let size = file.trials * file.seeds.len();
            let plan = Plan { dir: dir.to_owned(), name: name.clone(), runs, size };
            let outcomes = execute(&plan, &round)?;
            if outcomes.iter().any(|outcome| matches!(outcome, RunOutcome::Pending)) {
                return Ok(Found { trials, rungs, finished: false });
            }
            let failures = plan.runs.iter().zip(&outcomes).filter_map(|(run, outcome)| match outcome {
                RunOutcome::Failed(end, _) => Some((run.id.clone(), end.message.clone())),
                _ => None,
            });
            let failures: Vec<(String, String)> = failures.collect();
            let places =
                Places::find(dir).map_err(|source| TuneError::Io { path: dir.to_owned(), source })?;
            for &number in &alive {
                let trial = &mut trials[number];
                let failed = |(id, _): &&(String, String)| trial.runs.iter().any(|run| run.id == *id);
                match failures.iter().find(failed) {
                    Some((id, message)) => trial.failure = Some(format!("{id}: {message}")),
                    None => trial.results.push(result(trial, &places, steps)?),
                }
            }
            alive.retain(|&number| trials[number].failure.is_none());
            if until.is_some() {
                alive.sort_by(|&a, &b| trials[b].compare(&trials[a]));
                alive.truncate(file.kept(alive.len()));
                alive.sort_unstable();
            }
            watch(&round, &trials);
        }
    }
    Ok(Found { trials, rungs, finished: true })
}

/// Returns the runs of the trials of a generation that have not been stopped. Two trials with the same values
/// share their runs.
fn runs(trials: &[Trial], alive: &[usize], until: Option<u64>) -> Vec<PlannedRun> {
    let mut known = BTreeSet::new();
    let all = alive.iter().flat_map(|&number| {
        let name =
            move |run: &PlannedRun| PlannedRun { variant: format!("trial {number}"), until, ..run.clone() };
        trials[number].runs.iter().map(name)
    });
    all.filter(|run| known.insert(run.id.clone())).collect()
}

/// Reads the results of a trial at a rung. Rows after the rung are not used, because the run may have continued
/// since.
fn result(trial: &Trial, places: &Places, steps: u64) -> Result<TrialResult, TuneError> {
    let mut all = Vec::new();
    for run in &trial.runs {
        let wrong = |path: PathBuf, why: String| TuneError::Run { path, why };
        let dir = places.run_folder(&run.id);
        let dir = dir.ok_or_else(|| wrong(run.id.clone().into(), "the run folder is gone".to_owned()))?;
        let (mut read, _) = read_run(&dir, None).map_err(|why| wrong(dir.clone(), why))?;
        // a run is paused after the epoch that reaches the rung
        let end = (steps as f64 / read.epoch_steps).ceil() * read.epoch_steps;
        read.points.retain(|point| point.steps <= end);
        if read.points.is_empty() {
            let why = format!("no episode had ended at the rung of {steps} steps; use a later first rung");
            return Err(wrong(dir, why));
        }
        all.push(RunResults::of(&read, SHARE));
    }
    let mean = |of: fn(&RunResults) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let mean = RunResults {
        ret: mean(|r| r.ret),
        cost: mean(|r| r.cost),
        limit: mean(|r| r.limit),
        above: mean(|r| r.above),
        excess: mean(|r| r.excess),
        stays_from: None,
    };
    Ok(TrialResult { steps, mean })
}

/// Writes the search into its folder. Returns an error if the folder belongs to another search.
///
/// The file may have more trials than before if the earlier ones stay the same ([`TuneFile::continues`]).
fn claim(file: &TuneFile, dir: &Path) -> Result<(), TuneError> {
    check_same(file, dir)?;
    let path = dir.join("tune.toml");
    let io = |source| TuneError::Io { path: path.clone(), source };
    std::fs::create_dir_all(dir).map_err(io)?;
    crate::runs::write_whole(&path, file.text().as_bytes()).map_err(|e| match e {
        crate::LabError::Io { source, .. } => io(source),
        other => TuneError::File(other.to_string()),
    })
}

/// Returns an error if the folder belongs to another search.
fn check_same(file: &TuneFile, dir: &Path) -> Result<(), TuneError> {
    let path = dir.join("tune.toml");
    match epo_core::read_text(&path, epo_core::MOST_TEXT_BYTES) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => return Err(TuneError::Io { path, source }),
        Ok(text) => {
            let before = TuneFile::parse(&text).map_err(TuneError::File)?;
            if !file.continues(&before) {
                return Err(TuneError::File(format!(
                    "{} has trials of another search (see {}); choose another folder with --out",
                    dir.display(),
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::RunEnd;

    const FILE: &str = "[base]\nrun.task = \"SafetyPointGoal1-v0\"\nrun.steps = 4000\nrun.limit = 10\n\
        train.envs = 1\n[tune]\nmethod = \"random\"\ntrials = 8\nseeds = [3, 4]\nrungs = [1000, 2000]\nkeep = 0.5\n\
        [space]\ntrain.lr = { low = 1e-5, high = 1e-2, log = true }\nalgo.mu_init = { low = 0.5, high = 4.5 }\n";

    /// Return and cost that a fake run reaches: the return is larger for a larger learning rate, and a large μ is cheap.
    fn outcome(config: &str, steps: f64) -> (f64, f64) {
        let table: toml::Table = config.parse().unwrap();
        let number = |a: &str, b: &str| table[a][b].as_float().unwrap();
        let (lr, mu) = (number("train", "lr"), number("algo", "mu_init"));
        (lr.ln() + 12.0 + steps / 1e4, 20.0 - 4.0 * mu)
    }

    fn done() -> RunEnd {
        RunEnd { code: Some(0), seconds: 1.0, message: String::new(), until: None, log: None }
    }

    /// Writes a run folder with these rows of return, cost, epoch and steps.
    fn write_run(places: &Places, run: &PlannedRun, rows: &str) {
        let folder = places.runs(&run.id).join("EPO-{SafetyPointGoal1-v0}").join(&run.id);
        std::fs::create_dir_all(&folder).unwrap();
        let config = "[run]\ntask = \"SafetyPointGoal1-v0\"\nalgo = \"epo\"\nlimit = 10\n";
        std::fs::write(folder.join("config.toml"), format!("{config}seed = {}\n", run.seed)).unwrap();
        let header = "Metrics/EpRet,Metrics/EpCost,Train/Epoch,TotalEnvSteps\n";
        std::fs::write(folder.join("progress.csv"), format!("{header}{rows}")).unwrap();
    }

    /// An engine that writes records as `epo train` would, and stops after `budget` runs.
    fn fake<'a>(
        dir: &'a Path,
        budget: &'a mut usize,
        made: &'a mut Vec<(String, u64)>,
    ) -> impl FnMut(&Plan, &Round) -> Result<Vec<RunOutcome>, EngineError> + 'a {
        move |plan, _| {
            let places = Places::open(dir, plan.runs.len())?;
            let mut outcomes = Vec::new();
            for run in &plan.runs {
                let record = places.run_folder(&run.id).map(|folder| folder.join("progress.csv"));
                let text = record.map_or_else(String::new, |path| std::fs::read_to_string(path).unwrap());
                if text.lines().count() as u64 > run.goal() / 500 {
                    outcomes.push(RunOutcome::Done(done()));
                    continue;
                }
                if *budget == 0 {
                    outcomes.push(RunOutcome::Pending);
                    continue;
                }
                *budget -= 1;
                made.push((run.id.clone(), run.goal()));
                let row = |epoch: u64| {
                    let steps = (epoch + 1) as f64 * 500.0;
                    let (ret, cost) = outcome(&run.config, steps);
                    format!("{ret},{cost},{epoch},{steps}\n")
                };
                write_run(&places, run, &(0..run.goal() / 500).map(row).collect::<String>());
                outcomes.push(RunOutcome::Done(done()));
            }
            Ok(outcomes)
        }
    }

    fn whole(text: &str, dir: &Path) -> (Found, Vec<(String, u64)>) {
        let (mut budget, mut made) = (usize::MAX, Vec::new());
        let file = TuneFile::parse(text).unwrap();
        let found = search(&file, dir, &mut fake(dir, &mut budget, &mut made), &mut |_, _| ()).unwrap();
        (found, made)
    }

    /// This test fails if a trial that should go on is stopped, if one is trained longer than its rung, or if a seed is
    /// left out.
    #[test]
    fn half_of_the_trials_go_on_at_each_rung_and_the_best_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (found, made) = whole(FILE, dir.path());
        let reached = |n: usize| found.trials.iter().filter(|trial| trial.results.len() >= n).count();
        assert_eq!([reached(1), reached(2), reached(3), reached(4)], [8, 4, 2, 0]);
        let to = |steps: u64| made.iter().filter(|(_, goal)| *goal == steps).count();
        assert_eq!([to(1000), to(2000), to(4000)], [16, 8, 4], "two seeds each");
        // the costs do not depend on the steps, so the best trial at the end is the best of all
        let better = |trial: &&Trial| {
            let (ret, cost) = outcome(&trial.runs[0].config, 0.0);
            (cost <= 10.0, if cost <= 10.0 { ret } else { -cost })
        };
        let want = found.trials.iter().max_by(|a, b| better(a).partial_cmp(&better(b)).unwrap()).unwrap();
        assert_eq!(found.best(), Some(want));
        assert!(found.finished && want.results[2].mean.feasible());
        assert_eq!(want.results[2].score(), want.results[2].mean.ret);
        let bad = found.trials.iter().find(|trial| !trial.results[0].mean.feasible()).unwrap();
        assert_eq!(bad.results[0].score(), 10.0 - bad.results[0].mean.cost, "minus the excess");
    }

    /// This test fails if a search that was killed at any run asks for other trials, repeats a run or forgets a result.
    #[test]
    fn a_search_that_is_stopped_anywhere_goes_on_with_the_same_trials() {
        for method in ["random", "sobol", "tpe"] {
            let text = FILE.replace("\"random\"", &format!("\"{method}\"\nbatch = 4"));
            let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (want, all) = whole(&text, one.path());
            let file = TuneFile::parse(&text).unwrap();
            let mut made = Vec::new();
            let found = loop {
                let mut budget = 3;
                let mut engine = fake(many.path(), &mut budget, &mut made);
                let found = search(&file, many.path(), &mut engine, &mut |_, _| ()).unwrap();
                if found.finished {
                    break found;
                }
            };
            assert_eq!(found, want, "{method}");
            assert_eq!(made, all, "{method}: every run is made once to each of its rungs");
        }
    }

    #[test]
    fn a_failed_run_fails_its_trial_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = TuneFile::parse(FILE).unwrap();
        let (mut budget, mut made) = (usize::MAX, Vec::new());
        let mut engine = fake(dir.path(), &mut budget, &mut made);
        let mut broken = |plan: &Plan, round: &Round| {
            let mut outcomes = engine(plan, round)?;
            let end = RunEnd { code: Some(5), seconds: 1.0, message: "NaN".into(), until: None, log: None };
            if let Some(i) = plan.runs.iter().position(|run| run.variant == "trial 2") {
                outcomes[i] = RunOutcome::Failed(end, "log".into());
            }
            Ok(outcomes)
        };
        let found = search(&file, dir.path(), &mut broken, &mut |_, _| ()).unwrap();
        let failed: Vec<_> = found.trials.iter().filter(|t| t.failure.is_some()).map(|t| t.number).collect();
        assert_eq!(failed, [2]);
        assert!(found.trials[2].failure.as_ref().unwrap().ends_with(": NaN"));
        let worst = found.trials.iter().min_by(|a, b| a.compare(b)).unwrap();
        assert_eq!(worst.number, 2);
        assert_eq!(
            found.trials.iter().filter(|t| t.results.len() == 2).count(),
            2,
            "4 of 7 went on, 2 of 4 to the end"
        );
    }

    /// This test fails if more trials change the earlier ones, or if a folder is used for two searches.
    #[test]
    fn a_folder_of_another_search_is_refused_and_more_trials_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let plain = FILE.replace("rungs = [1000, 2000]\n", "");
        let (few, _) = whole(&plain, dir.path());
        let (more, made) = whole(&plain.replace("trials = 8", "trials = 12"), dir.path());
        assert_eq!((more.trials.len(), made.len()), (12, 8), "four new trials with two seeds");
        assert_eq!(more.trials[..8], few.trials);
        let refuse = |text: &str| {
            let file = TuneFile::parse(text).unwrap();
            let mut none = |_: &Plan, _: &Round| panic!("a run was begun");
            search(&file, dir.path(), &mut none, &mut |_, _| ()).unwrap_err().to_string()
        };
        for other in [
            plain.replace("high = 4.5", "high = 5.0"),
            plain.replace("seeds = [3, 4]", "seeds = [3]"),
            plain.replace("run.limit = 10", "run.limit = 11"),
            plain.clone(), // fewer trials than before
            FILE.to_owned(),
        ] {
            assert!(refuse(&other).contains("another search"), "{other}");
        }
    }

    /// This test fails if rows after the rung are used, or if a trial without an episode gets a result.
    #[test]
    fn a_rung_before_the_first_episode_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = TuneFile::parse(FILE).unwrap();
        let mut engine = |plan: &Plan, _: &Round| {
            let places = Places::open(dir.path(), 1)?;
            for run in &plan.runs {
                let rows = ",,0,1000\n7,1,1,2000\n";
                write_run(&places, run, rows);
            }
            Ok(vec![RunOutcome::Done(done()); plan.runs.len()])
        };
        let said = search(&file, dir.path(), &mut engine, &mut |_, _| ()).unwrap_err().to_string();
        assert!(said.contains("no episode had ended at the rung of 1000 steps"), "{said}");
    }

    /// This test fails if values that do not go together end the whole search.
    #[test]
    fn a_point_that_is_no_valid_configuration_is_a_failed_trial() {
        let text = "[base]\nrun.task = \"SafetyPointGoal1-v0\"\nrun.steps = 4000\nrun.limit = 10\ntrain.envs = 4\n\
                    algo.mu_init = 1.0\ntrain.lr = 1e-3\n[tune]\nmethod = \"random\"\ntrials = 12\nseeds = [3]\n\
                    [space]\ntrain.steps_per_epoch = [400, 2000, 4000]\ntrain.minibatch = [100, 200, 1000]\n";
        let (dir, mut budget, mut made) = (tempfile::tempdir().unwrap(), 1000, Vec::new());
        let file = TuneFile::parse(text).unwrap();
        let mut engine = fake(dir.path(), &mut budget, &mut made);
        let found = search(&file, dir.path(), &mut engine, &mut |_, _| {}).unwrap();
        let (failed, ended): (Vec<_>, Vec<_>) = found.trials.iter().partition(|t| t.failure.is_some());
        assert!(found.finished && !failed.is_empty() && !ended.is_empty(), "{found:?}");
        for trial in failed {
            let why = trial.failure.as_deref().unwrap();
            assert!(why.contains("train.minibatch = 1000") && trial.runs.is_empty(), "{why}");
        }
        assert!(ended.iter().all(|trial| trial.results.len() == 1));
    }
}
