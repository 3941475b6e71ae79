//! Algorithms against the truth: the training loop on tabular CMDPs whose optimum is a linear program.
//!
//! ```text
//! truth    J_R*, λ*, limit d                       epo_theory::optimum
//! reached  J_R(π), J_C(π) of the learned policy    its probabilities at every state, evaluated by linear systems
//! gap      100 (J_R* − J_R(π)) / |J_R*|            negative if the policy earns more by violating the limit
//! ```
//! The discount of the CMDP is the chance that an episode of [`TabularEnv`] goes on, so the mean episode cost that the
//! learner reads is the J_C of the program. Nothing here is sampled but the training itself: costs and returns are exact.

mod table;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use epo_core::Env;
use epo_theory::{Cmdp, Evaluation, Policy, SolveError, TabularEnv, optimum};
use serde::Serialize;

use crate::LabError;
use crate::config::{ResolvedRun, algo_named};
use crate::train::Trainer;

pub use table::{Over, Summary, csv, markdown, summarise};

/// One training on one CMDP.
#[derive(Clone, Debug)]
pub struct Job {
    /// The problem; the first constraint is the one that is trained for.
    pub cmdp: Cmdp,
    /// Algorithm.
    pub algo: String,
    /// Seed.
    pub seed: u64,
    /// Environment steps, rounded up to whole epochs.
    pub steps: u64,
    /// `key=value` on top of [`SETTINGS`] and [`OWN_SETTINGS`].
    pub set: Vec<String>,
}

/// What it led to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the CMDP.
    pub cmdp: String,
    /// Algorithm.
    pub algo: String,
    /// Seed.
    pub seed: u64,
    /// Environment steps.
    pub steps: u64,
    /// J_R* of the linear program.
    pub best_return: f64,
    /// d.
    pub limit: f64,
    /// J_R of the learned policy.
    pub ret: f64,
    /// J_C of the learned policy.
    pub cost: f64,
    /// How much return is missing, in per cent of the best.
    pub gap_percent: f64,
    /// (J_C − d)⁺.
    pub violation: f64,
    /// Steps to the first policy with J_C ≤ d; `None` if there was none.
    pub first_within: Option<u64>,
    /// Steps after which every policy has J_C ≤ d; `None` if the last has not.
    pub stays_within: Option<u64>,
    /// The same for J_C ≤ 1.1 d: a learner that rests at the limit crosses it by a hair for ever.
    pub stays_near: Option<u64>,
}

/// The settings of all comparisons: a softmax policy with one logit per state and action, and what small problems allow.
pub const SETTINGS: [&str; 13] = [
    "train.hidden=[]", // one-hot observations: a linear network is a table
    "train.normalize_obs=false",
    "train.envs=8",
    "train.threads=1",
    "train.steps_per_epoch=4000",
    "train.passes=10",
    "train.minibatch=400",
    "train.lr=0.03",
    "train.critic_lr=0.03",
    "train.critic_l2=0",
    "train.target_kl=0.01",
    "train.gamma=0.99", // the episodes end by themselves; close to 1 keeps critics finite
    "train.gamma_c=0.99",
];

/// What single algorithms have on top; all others keep their defaults.
pub const OWN_SETTINGS: &[(&str, &str)] = &[
    // sharp at the limit (a softplus of width 1 charges policies well within it, `docs/theory.md` 9), and a μ that recovers
    // while the limit is kept, so that it finds the level that λ* asks for
    (
        "epo",
        "algo.sharpness=20 algo.mu_init=100 algo.mu_min=0.01 algo.scale_by=spread algo.scale=1 algo.mu_law=step algo.normalize_loss=false",
    ),
];

impl Job {
    /// The configuration: settings of all, those of the algorithm, `set`.
    ///
    /// # Errors
    /// If a key or a value is wrong.
    pub fn resolve(&self) -> Result<ResolvedRun, LabError> {
        let Self { cmdp, algo, seed, steps, set } = self;
        algo_named(algo)?;
        let own = OWN_SETTINGS.iter().filter(|(name, _)| name == algo).flat_map(|(_, own)| own.split(' '));
        let mut layers: Vec<String> = SETTINGS.into_iter().chain(own).map(str::to_owned).collect();
        layers.extend([format!("run.task={}", cmdp.name()), format!("run.algo={algo}")]);
        layers.extend([format!("run.seed={seed}"), format!("run.steps={steps}")]);
        layers.push(format!("run.limit={}", cmdp.limits()[0]));
        layers.extend_from_slice(set);
        Ok(ResolvedRun::from_layers(None, &layers)?)
    }
}

/// A row, or `None` if it was asked to stop.
type Measured = Result<Option<Row>, LabError>;

/// Trains in the empty folder `dir` and measures the policy after every epoch. `go_on` is asked after each; `None` if it
/// said no.
///
/// # Errors
/// If the configuration is wrong, the training fails or the folder cannot be written.
pub fn measure(job: &Job, dir: &Path, mut go_on: impl FnMut() -> bool) -> Measured {
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
        let Evaluation { j_r, j_c, .. } = learned(&trainer, cmdp).evaluate(cmdp);
        costs.push(j_c[0]);
        ret = j_r;
        if !go_on() {
            return Ok(None);
        }
    }
    let cost = costs.last().copied().unwrap_or(f64::NAN);
    let first = costs.iter().position(|&c| c <= limit);
    Ok(Some(Row {
        cmdp: cmdp.name().to_owned(),
        algo: job.algo.clone(),
        seed: job.seed,
        steps: costs.len() as u64 * per_epoch,
        best_return: best.value,
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

/// Epochs up to the first of the last unbroken row of costs within `bound`.
fn stays(costs: &[f64], bound: f64) -> Option<u64> {
    let within = costs.iter().rev().take_while(|&&c| c <= bound).count();
    (within > 0).then(|| (costs.len() - within) as u64 + 1)
}

/// Runs all jobs, `threads` at a time and each on one, in folders under `dir`. Rows are in the order of the jobs, and the
/// same for any number of threads. `epoch_done` is told of every epoch; `None` if `stop` was set.
///
/// # Errors
/// The first error; the other trainings are given up.
pub fn measure_all(
    jobs: &[Job],
    threads: usize,
    dir: &Path,
    stop: &AtomicBool,
    epoch_done: impl Fn() + Sync,
) -> Result<Option<Vec<Row>>, LabError> {
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
            let row = measure(job, &dir.join(i.to_string()), go_on);
            failed.fetch_or(row.is_err(), Relaxed);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((i, row));
        }
    };
    // not rayon: a worker that waits for the pool of a training would begin another one meanwhile
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(i, _)| *i);
    let rows: Vec<Option<Row>> = results.into_iter().map(|(_, row)| row).collect::<Result<_, _>>()?;
    let rows: Option<Vec<Row>> = rows.into_iter().collect();
    Ok(rows.filter(|rows| rows.len() == jobs.len()))
}

fn unsolved(error: SolveError) -> LabError {
    LabError::MakeEnv(epo_core::EnvError::Other(error.to_string()))
}

/// The learned policy as a table: its probabilities at every one-hot observation.
fn learned(trainer: &Trainer<'_>, cmdp: &Cmdp) -> Policy {
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
    Policy::new(m, trainer.agent.policy.log_prob(&mut ws).iter().map(|l| l.exp()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_after_the_last_epoch_above_it() {
        assert_eq!(stays(&[3.0, 1.0, 2.0, 1.0, 0.5], 1.0), Some(4), "kept from the fourth epoch on");
        assert_eq!(stays(&[1.0, 0.5], 1.0), Some(1), "kept from the start");
        assert_eq!(stays(&[0.5, 1.0, 1.01], 1.0), None, "above it at the end");
        assert_eq!(stays(&[f64::NAN], 1.0), None);
    }

    #[test]
    fn every_default_and_every_own_setting_resolves() {
        for algo in crate::config::algorithms() {
            let cmdp = epo_theory::stories::fast_or_slow();
            let job = Job { cmdp, algo: algo.name().into(), seed: 1, steps: 4000, set: vec![] };
            let run = job.resolve().unwrap();
            assert_eq!((run.algo.name(), run.run.limit), (algo.name(), 2.0));
        }
        assert!(OWN_SETTINGS.iter().all(|(name, _)| algo_named(name).is_ok()));
    }
}
