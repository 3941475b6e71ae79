//! Compares our episodes with recorded episodes of the Python package Safety-Gymnasium.
//!
//! A recording contains the id of a task, a seed, the actions, and the results of Safety-Gymnasium.
//! [`compare`] makes the task from the id, resets it with the seed and plays the actions. It uses
//! the rest of the file only to compare.

use std::path::Path;

use epo_core::{Env, EnvError, Outcome};

use crate::npz::{Npz, NpzError};
use crate::{TaskError, make};

/// Largest difference of an observation or a reward that still counts as the same episode.
pub const TOLERANCE: f64 = 1e-8;

/// The reason why a recording could not be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParityError {
    /// The file is not a readable `.npz`.
    #[error(transparent)]
    File(#[from] NpzError),
    /// The description of the recording is not usable.
    #[error("array `meta`: {0}")]
    Meta(String),
    /// The task could not be made.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The task refused to play the episode.
    #[error("step {step}: {cause}")]
    Env {
        /// Number of the step; 0 is the reset.
        step: usize,
        /// The message of the task.
        cause: EnvError,
    },
}

/// The description of an episode, as the recorder wrote it.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
struct Meta {
    env_id: String,
    seed: u64,
    cost_names: Vec<String>,
}

/// A recorded episode of `T` steps.
#[derive(Clone, Debug)]
pub struct ReferenceEpisode {
    meta: Meta,
    /// `[T, act]`
    action: Vec<f64>,
    /// `[T + 1, obs]`, the first from the reset
    obs: Vec<f64>,
    /// `[T + 1, nq]`
    qpos: Vec<f64>,
    reward: Vec<f64>,
    cost: Vec<f64>,
    /// `[T, terms]`
    costs: Vec<f64>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    goal_met: Vec<bool>,
    act_len: usize,
    obs_len: usize,
}

impl ReferenceEpisode {
    /// Reads a recording. It is refused if the lengths of its arrays do not fit together.
    pub fn open(path: &Path) -> Result<Self, ParityError> {
        Self::from_npz(&Npz::open(path)?)
    }

    /// Takes the arrays out of a file that has been read.
    pub fn from_npz(npz: &Npz) -> Result<Self, ParityError> {
        let meta: Meta =
            serde_json::from_str(npz.text("meta")?).map_err(|e| ParityError::Meta(e.to_string()))?;
        let steps = npz.bools("terminated")?.len();
        let rows = |name, rows| {
            let (shape, values) = npz.f64s(name, 2)?;
            if shape[0] != rows {
                return Err(NpzError::array(name, format!("has {} rows, not {rows}", shape[0])));
            }
            match values.iter().find(|x| !x.is_finite()) {
                Some(x) => Err(NpzError::array(name, format!("holds {x}"))),
                None => Ok((shape[1], values.to_vec())),
            }
        };
        let column = |name| {
            let (shape, values) = npz.f64s(name, 1)?;
            match values.iter().find(|x| !x.is_finite()) {
                _ if shape[0] != steps => {
                    Err(NpzError::array(name, format!("has {} entries, not {steps}", shape[0])))
                }
                Some(x) => Err(NpzError::array(name, format!("holds {x}"))),
                None => Ok(values.to_vec()),
            }
        };
        let flags = |name| match npz.bools(name)? {
            flags if flags.len() == steps => Ok(flags.to_vec()),
            flags => Err(NpzError::array(name, format!("has {} entries, not {steps}", flags.len()))),
        };
        let (act_len, action) = rows("action", steps)?;
        let (obs_len, obs) = rows("obs", steps + 1)?;
        let (_, qpos) = rows("qpos", steps + 1)?;
        let (terms, costs) = rows("costs", steps)?;
        if terms != meta.cost_names.len() {
            let names = meta.cost_names.len();
            return Err(NpzError::array("costs", format!("has {terms} columns for {names} names")).into());
        }
        let (reward, cost) = (column("reward")?, column("cost")?);
        let (terminated, truncated) = (flags("terminated")?, flags("truncated")?);
        let goal_met = flags("goal_met")?;
        Ok(Self {
            meta,
            action,
            obs,
            qpos,
            reward,
            cost,
            costs,
            terminated,
            truncated,
            goal_met,
            act_len,
            obs_len,
        })
    }

    /// Id of the task.
    pub fn env_id(&self) -> &str {
        &self.meta.env_id
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.reward.len()
    }

    /// Sum of the costs.
    pub fn total_cost(&self) -> f64 {
        self.cost.iter().sum()
    }

    /// Number of steps in which the goal was met.
    pub fn goals_met(&self) -> usize {
        self.goal_met.iter().filter(|met| **met).count()
    }

    /// Whether any step has a cost under the name of this term.
    pub fn charges(&self, term: &str) -> bool {
        let names = &self.meta.cost_names;
        let column = names.iter().position(|name| name == term);
        column.is_some_and(|k| self.costs.chunks(names.len()).any(|row| row[k] > 0.0))
    }

    /// Whether the recorded flags of step `t` agree with this outcome.
    fn flags_agree(&self, t: usize, outcome: Outcome, max_steps: usize) -> bool {
        let (terminated, truncated) = (self.terminated[t], self.truncated[t]);
        match outcome {
            Outcome::Running => !terminated && !truncated,
            Outcome::Truncated => !terminated && truncated,
            // Safety-Gymnasium sets both flags when an episode terminates in its very last step
            Outcome::Terminated => terminated && (!truncated || t + 1 == max_steps),
        }
    }
}

/// The largest absolute differences over an episode.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// Task id.
    pub env_id: String,
    /// Number of steps played; fewer than recorded if our episode ended early.
    pub steps: usize,
    /// Largest difference of an entry of an observation, that of the reset included.
    pub max_obs: f64,
    /// Largest difference of a reward.
    pub max_reward: f64,
    /// Largest difference of a cost or a cost term.
    pub max_cost: f64,
    /// Largest difference of a generalised position. It does not count for `ok`.
    pub max_qpos: f64,
    /// The first step that differs; 0 is the reset, `None` if none does.
    pub first_diff_step: Option<usize>,
    /// Whether observations and rewards agree within [`TOLERANCE`], and costs, cost terms and flags are equal.
    pub ok: bool,
}

/// Plays a recorded episode from its id, seed and actions, and compares.
pub fn compare(recording: &ReferenceEpisode) -> Result<Comparison, ParityError> {
    let mut env = make(&recording.meta.env_id)?;
    let fits = |name, got, want| {
        let problem = format!("has {got} columns, {} has {want}", recording.meta.env_id);
        if got == want { Ok(()) } else { Err(NpzError::array(name, problem)) }
    };
    fits("obs", recording.obs_len, env.spec().obs_len)?;
    fits("action", recording.act_len, env.spec().action.len())?;
    let (nq, rows) = (env.qpos().len(), recording.steps() + 1);
    fits("qpos", recording.qpos.len() / rows, nq)?;
    let terms = term_indices(recording, &env.spec().cost_terms)?;

    let mut obs = vec![0.0; recording.obs_len];
    env.reset(recording.meta.seed, &mut obs).map_err(|cause| ParityError::Env { step: 0, cause })?;
    let mut result = Comparison {
        env_id: recording.meta.env_id.clone(),
        steps: 0,
        max_obs: distance(&obs, &recording.obs[..obs.len()]),
        max_reward: 0.0,
        max_cost: 0.0,
        max_qpos: distance(env.qpos(), &recording.qpos[..nq]),
        first_diff_step: None,
        ok: true,
    };
    result.first_diff_step = (result.max_obs > TOLERANCE).then_some(0);
    for t in 0..recording.steps() {
        let action = &recording.action[t * recording.act_len..][..recording.act_len];
        let step = env.step(action, &mut obs).map_err(|cause| ParityError::Env { step: t + 1, cause })?;
        let d_obs = distance(&obs, &recording.obs[(t + 1) * obs.len()..][..obs.len()]);
        let d_reward = (step.reward - recording.reward[t]).abs();
        let recorded_terms = &recording.costs[t * terms.len()..][..terms.len()];
        let ours = |term: &Term| match *term {
            Term::Sum => step.cost,
            Term::At(i) => env.cost_terms()[i],
        };
        let d_terms = terms.iter().zip(recorded_terms).map(|(term, x)| (ours(term) - x).abs());
        let d_cost = d_terms.fold((step.cost - recording.cost[t]).abs(), f64::max);
        let flags = recording.flags_agree(t, step.outcome, env.spec().max_steps)
            && env.goal_met() == recording.goal_met[t];

        result.steps = t + 1;
        result.max_obs = result.max_obs.max(d_obs);
        result.max_reward = result.max_reward.max(d_reward);
        result.max_cost = result.max_cost.max(d_cost);
        result.max_qpos = result.max_qpos.max(distance(env.qpos(), &recording.qpos[(t + 1) * nq..][..nq]));
        let agrees = d_obs <= TOLERANCE && d_reward <= TOLERANCE && d_cost == 0.0 && flags;
        if !agrees {
            result.first_diff_step.get_or_insert(t + 1);
        }
        if step.outcome.is_done() && t + 1 < recording.steps() {
            // The recorded episode continues after ours has ended.
            result.first_diff_step.get_or_insert(t + 1);
            break;
        }
    }
    result.ok = result.first_diff_step.is_none();
    Ok(result)
}

/// Our number that a recorded cost term is compared with.
enum Term {
    /// The cost of the step; Safety-Gymnasium repeats it under the name `cost_sum`.
    Sum,
    /// The cost term at this index.
    At(usize),
}

fn term_indices(recording: &ReferenceEpisode, ours: &[String]) -> Result<Vec<Term>, ParityError> {
    let find = |name: &String| match ours.iter().position(|x| x == name) {
        Some(i) => Ok(Term::At(i)),
        None if name == "cost_sum" => Ok(Term::Sum),
        None => Err(ParityError::Meta(format!("{} has no cost term `{name}`", recording.meta.env_id))),
    };
    recording.meta.cost_names.iter().map(find).collect()
}

/// Largest absolute difference; infinite if either side has a NaN.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let far = |(x, y): (&f64, &f64)| if (x - y).is_nan() { f64::INFINITY } else { (x - y).abs() };
    a.iter().zip(b).map(far).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> ReferenceEpisode {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
        ReferenceEpisode::open(&folder.join("SafetySwimmerVelocity-v1.npz")).unwrap()
    }

    /// A change of a recording, and its name for messages.
    type Change = (&'static str, fn(&mut ReferenceEpisode));

    #[test]
    fn every_kind_of_difference_is_found_at_its_step() {
        let same = compare(&recorded()).unwrap();
        assert_eq!((same.ok, same.first_diff_step, same.steps), (true, None, 60));
        let changes: [Change; 6] = [
            ("observation", |r| r.obs[3 * 8 + 7] += 1.1e-8),
            ("reward", |r| r.reward[2] -= 1.1e-8),
            ("cost", |r| r.cost[2] += 1e-300),
            ("terminated", |r| r.terminated[2] = true),
            ("truncated", |r| r.truncated[2] = true),
            ("goal", |r| r.goal_met[2] = true),
        ];
        for (what, change) in changes {
            let mut altered = recorded();
            change(&mut altered);
            let result = compare(&altered).unwrap();
            assert_eq!((result.ok, result.first_diff_step), (false, Some(3)), "{what}");
        }
        // The reset counts as step 0. Differences of positions are only reported.
        let mut altered = recorded();
        altered.obs[0] += 1e-3;
        assert_eq!(compare(&altered).unwrap().first_diff_step, Some(0));
        let mut altered = recorded();
        altered.qpos[9] += 0.5;
        let result = compare(&altered).unwrap();
        assert!(result.ok && result.max_qpos > 0.4);
    }

    #[test]
    fn cost_terms_are_compared_by_name() {
        let mut altered = recorded();
        altered.meta.cost_names = vec!["cost_velocity".into()];
        altered.costs = altered.cost.clone();
        assert!(compare(&altered).unwrap().ok);
        altered.costs[4] += 1.0;
        assert_eq!(compare(&altered).unwrap().first_diff_step, Some(5));
        altered.meta.cost_names = vec!["cost_unknown".into()];
        assert!(compare(&altered).unwrap_err().to_string().contains("no cost term `cost_unknown`"));
    }

    #[test]
    fn an_episode_that_ends_before_its_recording_is_a_difference() {
        // The Hopper falls in the last recorded step. Further steps are added to the recording.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
        let mut recording = ReferenceEpisode::open(&folder.join("SafetyHopperVelocity-v1.npz")).unwrap();
        let (n, a, o, q) = (recording.steps(), recording.act_len, recording.obs_len, 6);
        for _ in 0..300 {
            recording.action.extend(vec![1.0; a]);
            recording.obs.extend(vec![0.0; o]);
            recording.qpos.extend(vec![0.0; q]);
            recording.reward.push(0.0);
            recording.cost.push(0.0);
            for flags in [&mut recording.terminated, &mut recording.truncated, &mut recording.goal_met] {
                flags.push(false);
            }
        }
        let result = compare(&recording).unwrap();
        assert_eq!((result.ok, result.first_diff_step, result.steps), (false, Some(n), n), "{result:?}");
    }

    #[test]
    fn arrays_that_do_not_fit_the_task_are_refused() {
        let mut altered = recorded();
        altered.meta.env_id = "SafetyHopperVelocity-v1".into();
        let error = compare(&altered).unwrap_err().to_string();
        assert_eq!(error, "array `obs` has 8 columns, SafetyHopperVelocity-v1 has 11");
        altered.meta.env_id = "SafetyHoperVelocity-v1".into();
        assert!(
            compare(&altered).unwrap_err().to_string().contains("did you mean `SafetyHopperVelocity-v1`?")
        );
    }
}
