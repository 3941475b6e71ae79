//! Comparison of algorithms with the exact optimum. The training loop runs on tabular CMDPs, and a linear program
//! solves the same CMDPs exactly.
//!
//! ```text
//! optimum  J_R*, λ*, limit d                       epo_theory::optimum
//! learned  J_R(π), J_C(π) of the learned policy    its probabilities at every state, evaluated by linear systems
//! gap      100 (J_R* − J_R(π)) / |J_R*|            negative if the policy earns more by violating the limit
//! ```
//! The discount of the CMDP is the probability that an episode of [`TabularEnv`] continues after a step. The expected
//! episode cost is therefore the J_C of the linear program. Only the training uses samples; the reported costs and
//! returns are exact.

mod table;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use epo_core::Env;
use epo_theory::{Cmdp, PolicyValues, SolveError, TabularEnv, TabularPolicy, optimum};
use serde::Serialize;

use crate::LabError;
use crate::config::{ResolvedRun, algo_named};
use crate::train::Trainer;

pub use table::{CmdpResult, MeanAndWorst, csv, markdown, summarise};

/// One training on one CMDP.
#[derive(Clone, Debug)]
pub struct Job {
    /// The CMDP. Training uses its first constraint only.
    pub cmdp: Cmdp,
    /// Name of the algorithm.
    pub algo: String,
    /// Root seed of the training.
    pub seed: u64,
    /// Number of environment steps.
    pub steps: u64,
    /// Settings `key=value`. They override [`SETTINGS`].
    pub set: Vec<String>,
}

/// The policy that a job has learned, compared with the optimum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobResult {
    /// Name of the CMDP.
    pub cmdp: String,
    /// Name of the algorithm.
    pub algo: String,
    /// Root seed of the training.
    pub seed: u64,
    /// Number of environment steps.
    pub steps: u64,
    /// Optimal return J_R* of the linear program.
    pub optimum: f64,
    /// Cost limit d.
    pub limit: f64,
    /// J_R of the learned policy.
    pub ret: f64,
    /// J_C of the learned policy.
    pub cost: f64,
    /// Gap to the optimal return, in per cent of its absolute value. Negative if the return is larger than the optimum.
    pub gap_percent: f64,
    /// Violation of the limit: max(J_C − d, 0).
    pub violation: f64,
    /// Number of steps up to the first policy with J_C ≤ d; `None` if no policy satisfies this.
    pub first_within: Option<u64>,
    /// Number of steps at the first epoch from which every policy has J_C ≤ d; `None` if the last
    /// policy has J_C > d.
    pub stays_within: Option<u64>,
    /// The same as `stays_within` for J_C ≤ 1.1 d. A policy that has converged to the limit still fluctuates around it.
    pub stays_near: Option<u64>,
}

/// Settings of all comparisons. The policy is a softmax with one logit per state and action. The learning rates are
/// larger than the defaults, which is possible because the problems are small.
pub const SETTINGS: [&str; 12] = [
    "train.hidden=[]", // observations are one-hot, so a linear network is a table
    "train.normalize_obs=false",
    "train.envs=8",
    "train.threads=1",
    "train.steps_per_epoch=4000",
    "train.passes=10",
    "train.minibatch=400",
    "train.lr=0.03",
    "train.critic_lr=0.03",
    "train.target_kl=0.01",
    "train.gamma=0.99", // episodes end at random; a discount just below 1 keeps the critics finite
    "train.gamma_c=0.99",
];

impl Job {
    /// Returns the configuration of the training: the defaults of the algorithm, then [`SETTINGS`], then `set`.
    ///
    /// # Errors
    /// If a key or a value is wrong.
    pub fn resolve(&self) -> Result<ResolvedRun, LabError> {
        let Self { cmdp, algo, seed, steps, set } = self;
        algo_named(algo)?;
        let mut layers: Vec<String> = SETTINGS.into_iter().map(str::to_owned).collect();
        layers.extend([format!("run.task={}", cmdp.name()), format!("run.algo={algo}")]);
        layers.extend([format!("run.seed={seed}"), format!("run.steps={steps}")]);
        layers.push(format!("run.limit={}", cmdp.limits()[0]));
        layers.extend_from_slice(set);
        Ok(ResolvedRun::from_layers(None, &layers)?)
    }
}

/// The result of a job; `None` if the job was stopped.
type Measured = Result<Option<JobResult>, LabError>;

/// Trains in the empty folder `dir` and returns the comparison with the optimum. The policy is evaluated exactly after
/// every epoch. `go_on` is called after each epoch; if it returns false, the result is `None`.
///
/// # Errors
/// If the configuration is wrong, the training fails or the folder cannot be written.
pub fn run_job(job: &Job, dir: &Path, mut go_on: impl FnMut() -> bool) -> Measured {
    let cmdp = &job.cmdp;
    let best = optimum(cmdp).map_err(unsolved)?;
    let limit = cmdp.limits()[0];
    let run = job.resolve()?;
    let per_epoch = run.train.steps_per_epoch as u64;
    let shared = Arc::new(cmdp.clone());
    let make = || -> Result<Box<dyn Env>, LabError> {
        Ok(Box::new(TabularEnv::new(shared.clone(), TabularEnv::steps_to_end(cmdp))))
    };
    let mut trainer = Trainer::create(dir, run, &make)?;
    let (mut costs, mut ret) = (Vec::new(), f64::NAN);
    while !trainer.is_finished() {
        trainer.one_epoch(|| 0.0)?;
        let PolicyValues { j_r, j_c, .. } = learned(&trainer, cmdp).evaluate(cmdp);
        costs.push(j_c[0]);
        ret = j_r;
        if !go_on() {
            return Ok(None);
        }
    }
    let cost = costs.last().copied().unwrap_or(f64::NAN);
    let first = costs.iter().position(|&c| c <= limit);
    Ok(Some(JobResult {
        cmdp: cmdp.name().to_owned(),
        algo: job.algo.clone(),
        seed: job.seed,
        steps: costs.len() as u64 * per_epoch,
        optimum: best.value,
        limit,
        ret,
        cost,
        gap_percent: 100.0 * (best.value - ret) / best.value.abs(),
        violation: (cost - limit).max(0.0),
        first_within: first.map(|epoch| (epoch as u64 + 1) * per_epoch),
        stays_within: stays(&costs, limit).map(|epochs| epochs * per_epoch),
        stays_near: stays(&costs, 1.1 * limit).map(|epochs| epochs * per_epoch),
    }))
}

/// Returns the first epoch, counted from 1, such that its cost and all later costs are at most
/// `bound`. `None` if the last cost is larger.
fn stays(costs: &[f64], bound: f64) -> Option<u64> {
    let within = costs.iter().rev().take_while(|&&c| c <= bound).count();
    (within > 0).then(|| (costs.len() - within) as u64 + 1)
}

/// Runs all jobs and returns their results in the order of the jobs. Each job trains on one thread in its own folder
/// under `dir`, and `threads` jobs run at once. The results do not depend on `threads`. `epoch_done` is called after
/// every epoch. If `stop` is set, the result is `None`.
///
/// # Errors
/// If a job fails. The other jobs are then cancelled.
pub fn run_jobs(
    jobs: &[Job],
    threads: usize,
    dir: &Path,
    stop: &AtomicBool,
    epoch_done: impl Fn() + Sync,
) -> Result<Option<Vec<JobResult>>, LabError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Mutex<Vec<(usize, Measured)>> = Mutex::default();
    let go_on = || {
        epoch_done();
        !stop.load(Relaxed) && !failed.load(Relaxed)
    };
    let work = || {
        while !stop.load(Relaxed) && !failed.load(Relaxed) {
            let i = next.fetch_add(1, Relaxed);
            let Some(job) = jobs.get(i) else { return };
            let row = run_job(job, &dir.join(i.to_string()), go_on);
            failed.fetch_or(row.is_err(), Relaxed);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((i, row));
        }
    };
    // rayon is not used here: a rayon worker that waits for the pool of one training would start another training
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(i, _)| *i);
    let rows: Vec<Option<JobResult>> = results.into_iter().map(|(_, row)| row).collect::<Result<_, _>>()?;
    let rows: Option<Vec<JobResult>> = rows.into_iter().collect();
    Ok(rows.filter(|rows| rows.len() == jobs.len()))
}

fn unsolved(error: SolveError) -> LabError {
    LabError::MakeEnv(epo_core::EnvError::Other(error.to_string()))
}

/// Returns the learned policy as a table of action probabilities, one row per state.
fn learned(trainer: &Trainer<'_>, cmdp: &Cmdp) -> TabularPolicy {
    let (n, m) = (cmdp.n_states(), cmdp.n_actions());
    let (mut obs, mut actions) = (vec![0.0_f32; n * m * n], vec![]);
    for (i, row) in obs.chunks_mut(n).enumerate() {
        let mut one_hot = vec![0.0; n];
        one_hot[i / m] = 1.0;
        trainer.collector.normalizer.normalize(&one_hot, row);
        actions.push((i % m) as f32);
    }
    let mut ws = trainer.agent.policy.workspace(n * m);
    ws.load(&obs, &actions);
    TabularPolicy::new(m, trainer.agent.policy.log_prob(&mut ws).iter().map(|l| l.exp()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stays_within_the_limit_after_its_last_epoch_above_it() {
        assert_eq!(stays(&[3.0, 1.0, 2.0, 1.0, 0.5], 1.0), Some(4), "kept from the fourth epoch on");
        assert_eq!(stays(&[1.0, 0.5], 1.0), Some(1), "kept from the start");
        assert_eq!(stays(&[0.5, 1.0, 1.01], 1.0), None, "above it at the end");
        assert_eq!(stays(&[f64::NAN], 1.0), None);
    }

    #[test]
    fn the_defaults_of_every_algorithm_resolve() {
        for algo in crate::config::algorithms() {
            let cmdp = epo_theory::stories::fast_or_slow();
            let job = Job { cmdp, algo: algo.name().into(), seed: 1, steps: 4000, set: vec![] };
            let run = job.resolve().unwrap();
            assert_eq!((run.algo.name(), run.run.limit), (algo.name(), 2.0));
        }
    }
}
