//! A trained policy, loaded from a run folder without environments.
//!
//! ```no_run
//! use epo_core::{Purpose, Stream};
//! use epo_lab::{evaluate::ActionMode, trained::TrainedPolicy};
//! let policy = TrainedPolicy::load("runs/EPO-{SafetyPointGoal1-v0}/seed-000".as_ref())?;
//! let obs = vec![0.0; policy.spec().obs_len];
//! let action = policy.actions(&obs, ActionMode::Mean, &mut Stream::new(0, Purpose::Action, 0));
//! assert_eq!(action.len(), policy.spec().action.len());
//! # Ok::<(), epo_lab::LabError>(())
//! ```

use std::path::Path;

use epo_algos::{Agent, CostCritic};
use epo_core::{ActionSpace, EnvSpec, Stream};
use epo_nn::{Mlp, Normalizer};
use serde::{Deserialize, Serialize};

use crate::collect::ActionMap;
use crate::config::ResolvedRun;
use crate::evaluate::ActionMode;
use crate::snapshot::Snapshot;
use crate::{LabError, runs};

/// Policy, critics and normaliser of the newest intact checkpoint of a run folder.
#[derive(Debug)]
pub struct TrainedPolicy {
    run: ResolvedRun,
    spec: EnvSpec,
    agent: Agent,
    normalizer: Normalizer,
    state: serde_json::Value,
    hash: String,
    notes: Vec<String>,
}

impl TrainedPolicy {
    /// Loads the policy of a run folder.
    ///
    /// # Errors
    /// If the folder is not a run folder or is damaged, or its task is neither in the registry nor described in
    /// the folder.
    pub fn load(dir: &Path) -> Result<Self, LabError> {
        let run = runs::read_config(dir)?;
        let spec = env_spec(dir, &run)?;
        let Snapshot { agent, normalizer, algorithm: state, loaded, .. } =
            Snapshot::read(dir, &run, &spec, None)?;
        Ok(Self { run, spec, agent, normalizer, state, hash: loaded.hash, notes: loaded.passed_over })
    }

    /// Configuration of the run.
    pub fn config(&self) -> &ResolvedRun {
        &self.run
    }

    /// Sizes and action space of the environment.
    pub fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    /// Policy and critics.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Normaliser of the observations.
    pub fn normalizer(&self) -> &Normalizer {
        &self.normalizer
    }

    /// State of the algorithm besides its networks, such as EPO's μ.
    pub fn algorithm_state(&self) -> &serde_json::Value {
        &self.state
    }

    /// Hash of the checkpoint.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// One line about each damaged checkpoint that was passed over.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the actions for observations (`[rows][obs_len]`), as `[rows][action length]`, within the bounds of the
    /// environment. `stream` is used for sampled actions only.
    ///
    /// # Panics
    /// If the length of `obs` is not a whole number of observations.
    pub fn actions(&self, obs: &[f64], mode: ActionMode, stream: &mut Stream) -> Vec<f64> {
        let (policy, map) = (&self.agent.policy, ActionMap::new(&self.spec.action));
        let mut ws = policy.workspace(1);
        let mut chosen = vec![0.0; policy.action_len()];
        let mut actions = vec![0.0; obs.len() / self.spec.obs_len * map.len()];
        let rows = self.normalized(obs);
        for (row, action) in rows.chunks_exact(self.spec.obs_len).zip(actions.chunks_exact_mut(map.len())) {
            match mode {
                ActionMode::Mean => policy.act_deterministic(row, &mut ws, &mut chosen),
                ActionMode::Sampled => {
                    policy.act(row, &mut ws, stream, &mut chosen);
                }
            }
            map.apply(&chosen, action);
            if let ActionSpace::Box { low, high } = &self.spec.action {
                for ((a, low), high) in action.iter_mut().zip(low).zip(high) {
                    *a = a.clamp(*low, *high);
                }
            }
        }
        actions
    }

    /// Returns the estimates of every critic for observations (`[rows][obs_len]`), by name: `reward`, `cost`
    /// (the expected discounted cost, V_N in the paper), `cost_far` (V_F of EPO's Penalty Metric Network) or
    /// `cost_variance`.
    ///
    /// # Panics
    /// If the length of `obs` is not a whole number of observations.
    pub fn values(&self, obs: &[f64]) -> Vec<(&'static str, Vec<f64>)> {
        let rows = self.normalized(obs);
        let predict = |net: &Mlp, unit: f64| {
            let mut out = vec![0.0; rows.len() / self.spec.obs_len];
            net.predict(&rows, &mut net.workspace(1), &mut out);
            out.into_iter().map(|v| unit * f64::from(v)).collect::<Vec<_>>()
        };
        let units = self.agent.units();
        let mut values = vec![("reward", predict(&self.agent.critic_r.net, units[0]))];
        let cost = self.agent.cost_kinds.iter().zip(&self.agent.critics_c).zip(&units[1..]);
        for ((kind, critic), unit) in cost {
            let output = predict(&critic.net, *unit);
            values.push(match kind {
                CostCritic::Value | CostCritic::AboveLimit => ("cost", output),
                CostCritic::Root | CostCritic::RootAboveLimit => {
                    ("cost_far", output.iter().map(|u| u * u).collect())
                }
                CostCritic::Variance => ("cost_variance", output),
            });
        }
        values
    }

    fn normalized(&self, obs: &[f64]) -> Vec<f32> {
        let n = self.spec.obs_len;
        assert_eq!(obs.len() % n, 0, "whole observations");
        let mut rows = vec![0.0; obs.len()];
        for (obs, row) in obs.chunks_exact(n).zip(rows.chunks_exact_mut(n)) {
            self.normalizer.normalize(obs, row);
        }
        rows
    }
}

/// Name of the file with the sizes and the action space of an environment that is not in the registry. Runs on
/// tasks of the registry do not have it.
const ENV_FILE: &str = "env.json";

/// The content of `env.json`.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSpec {
    id: String,
    obs_len: usize,
    max_steps: usize,
    action: SavedAction,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SavedAction {
    Box { low: Vec<f64>, high: Vec<f64> },
    Discrete { n: usize },
}

/// Writes the sizes of an environment that is not in the registry into a run folder, so that its policy can be loaded
/// without the environment.
///
/// # Errors
/// If the file cannot be written.
pub fn write_env_spec(dir: &Path, spec: &EnvSpec) -> Result<(), LabError> {
    let action = match spec.action.clone() {
        ActionSpace::Box { low, high } => SavedAction::Box { low, high },
        ActionSpace::Discrete { n } => SavedAction::Discrete { n },
    };
    let EnvSpec { id, obs_len, max_steps, .. } = spec.clone();
    let saved = SavedSpec { id, obs_len, max_steps, action };
    let json = serde_json::to_string_pretty(&saved).unwrap_or_default(); // numbers and texts cannot fail
    runs::write_whole(&dir.join(ENV_FILE), format!("{json}\n").as_bytes())
}

/// Returns the sizes of the environment of a run: from `env.json`, otherwise from the registry.
fn env_spec(dir: &Path, run: &ResolvedRun) -> Result<EnvSpec, LabError> {
    let path = dir.join(ENV_FILE);
    let text = match epo_core::read_text(&path, epo_core::MOST_TEXT_BYTES) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            return Err(LabError::run(&path, format!("not readable ({e})")));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Ok(runs::task_maker(&run.run.task, run.run.physics)?()?.spec().clone());
        }
        Err(e) => return Err(LabError::io("read", &path)(e)),
    };
    let saved: SavedSpec =
        serde_json::from_str(&text).map_err(|e| LabError::run(&path, format!("not readable ({e})")))?;
    let action = match saved.action {
        SavedAction::Box { low, high } if low.len() != high.len() || low.is_empty() => {
            return Err(LabError::run(&path, "the bounds of the actions differ in length or are empty"));
        }
        SavedAction::Box { low, high }
            if low.iter().zip(&high).any(|(l, h)| l.is_nan() || h.is_nan() || l > h) =>
        {
            return Err(LabError::run(&path, "a lower bound of the actions is above the upper one"));
        }
        SavedAction::Box { low, high } => ActionSpace::Box { low, high },
        SavedAction::Discrete { n } => ActionSpace::Discrete { n },
    };
    let SavedSpec { id, obs_len, max_steps, .. } = saved;
    if obs_len == 0 || matches!(action, ActionSpace::Discrete { n: 0 }) {
        return Err(LabError::run(&path, "an observation or the list of actions is empty"));
    }
    Ok(EnvSpec { id, obs_len, action, max_steps, cost_terms: Vec::new() })
}
