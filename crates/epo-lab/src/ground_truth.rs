//! Algorithms against the truth: the training loop on tabular CMDPs whose optimum is a linear program.
//!
//! ```text
//! truth    J_R*, λ*, limit d                       epo_theory::optimum
//! reached  J_R(π), J_C(π) of the learned policy    its probabilities at every state, evaluated by linear systems
//! gap      100 (J_R* − J_R(π)) / |J_R*|            negative if the policy earns more by violating the limit
//! ```
//! The discount of the CMDP is the chance that an episode of [`TabularEnv`] goes on, so the mean episode cost that the
//! learner reads is the J_C of the program. Nothing here is sampled but the training itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use epo_core::Env;
use epo_theory::{Cmdp, Evaluation, Policy, SolveError, TabularEnv, optimum};
use serde::Serialize;

use crate::LabError;
use crate::config::ResolvedRun;
use crate::record::{metrics, value};
use crate::train::Trainer;

/// One algorithm on one CMDP.
#[derive(Clone, Debug, Serialize)]
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
    /// Environment steps until the measured cost was first within the limit; `None` if never.
    pub steps_to_feasible: Option<u64>,
}

/// The settings of all comparisons: a softmax policy with one logit per state and action, and what small problems allow.
pub const SETTINGS: [&str; 14] = [
    "train.hidden=[]", // one-hot observations: a linear network is a table
    "train.normalize_obs=false",
    "train.envs=8",
    "train.threads=1",
    "train.steps_per_epoch=4000",
    "train.passes=10",
    "train.batch=400",
    "train.lr=0.03",
    "train.critic_lr=0.03",
    "train.critic_l2=0",
    "train.target_kl=0.01",
    "train.gamma=0.99", // the episodes end by themselves; close to 1 keeps critics finite
    "train.gamma_c=0.99",
    "train.save_every=1000000",
];

/// EPO's own, on top: sharp at the limit (a softplus of width 1 charges policies well within it, `docs/theory.md` 9), and a μ that
/// recovers while the limit is kept, so that it finds the level that λ* asks for.
pub const EPO_SETTINGS: [&str; 5] =
    ["algo.sharpness=20", "algo.mu_init=200", "algo.mu_min=1", "algo.mu_decay=0.95", "algo.mu_feasible=1.05"];

/// Trains `algo` on a CMDP in the empty folder `dir` and measures the policy that it ends with. Baselines have their
/// defaults, EPO has [`EPO_SETTINGS`]; `set` comes last.
pub fn measure(
    cmdp: &Cmdp,
    algo: &str,
    seed: u64,
    steps: u64,
    set: &[String],
    dir: &Path,
) -> Result<Row, LabError> {
    let best = optimum(cmdp).map_err(unsolved)?;
    let limit = cmdp.limits()[0];
    let mut layers: Vec<String> = SETTINGS.iter().map(|s| (*s).to_owned()).collect();
    let run = [("task", cmdp.name().to_owned()), ("algo", algo.to_owned()), ("seed", seed.to_string())];
    layers.extend(run.map(|(key, value)| format!("run.{key}={value}")));
    layers.extend([format!("run.steps={steps}"), format!("run.limit={limit}")]);
    if algo == "epo" {
        layers.extend(EPO_SETTINGS.map(String::from));
    }
    layers.extend_from_slice(set);
    let run = ResolvedRun::from_layers(None, &layers)?;

    let shared = Arc::new(cmdp.clone());
    let make = || -> Result<Box<dyn Env>, LabError> {
        Ok(Box::new(TabularEnv::new(shared.clone(), TabularEnv::steps_to_end(cmdp))))
    };
    let mut trainer = Trainer::create(dir, run, &make)?;
    let mut feasible = None;
    trainer.train(&AtomicBool::new(false), |row| {
        let within = value(row, metrics::COST_READING).is_some_and(|cost| cost <= limit);
        if within && feasible.is_none() {
            feasible = value(row, metrics::STEPS).map(|steps| steps as u64);
        }
    })?;
    let Evaluation { j_r, j_c, .. } = learned(&trainer, cmdp).evaluate(cmdp);
    Ok(Row {
        cmdp: cmdp.name().to_owned(),
        algo: algo.to_owned(),
        seed,
        steps,
        best_return: best.value,
        limit,
        ret: j_r,
        cost: j_c[0],
        gap_percent: 100.0 * (best.value - j_r) / best.value.abs(),
        violation: (j_c[0] - limit).max(0.0),
        steps_to_feasible: feasible,
    })
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
        trainer.normalizer.normalize(&one_hot, row);
        actions.push((i % m) as f32);
    }
    let mut ws = trainer.agent.policy.workspace(n * m);
    ws.load(&obs, &actions);
    Policy::new(m, trainer.agent.policy.log_prob(&mut ws).iter().map(|l| l.exp()).collect())
}
