//! Samples of an epoch: what was collected ([`Rollout`]) and what was estimated from it ([`Batch`]).

use epo_core::{Outcome, Step};
use epo_nn::{Mlp, Workspace};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Agent, CostStream, UpdateError, gae};

/// Steps of `n_envs` environments, environment by environment: index `i = env · n_steps + t`.
///
/// Observations are normalised as they were when acted on. The buffers are reused from epoch to epoch.
#[derive(Clone, Debug)]
pub struct Rollout {
    n_envs: usize,
    n_steps: usize,
    obs_len: usize,
    act_len: usize,
    /// `[N][T][obs]`, acted on.
    pub obs: Vec<f32>,
    /// `[N][T][act]`, as sampled.
    pub action: Vec<f32>,
    /// `[N][T]`, `ln π` of the policy that acted.
    pub logp: Vec<f64>,
    /// `[N][T]`.
    pub reward: Vec<f64>,
    /// `[N][T]`.
    pub cost: Vec<f64>,
    /// `[N][T]`.
    pub outcome: Vec<Outcome>,
    /// Per environment, rows `[ends][obs]`: the true next observation of each step that ended an episode, and
    /// of the last step.
    end_obs: Vec<Vec<f32>>,
}

/// One environment's part of a rollout, to be filled step by step.
#[derive(Debug)]
pub struct Lane<'a> {
    obs_len: usize,
    act_len: usize,
    t: usize,
    obs: &'a mut [f32],
    action: &'a mut [f32],
    logp: &'a mut [f64],
    reward: &'a mut [f64],
    cost: &'a mut [f64],
    outcome: &'a mut [Outcome],
    end_obs: &'a mut Vec<f32>,
}

impl Rollout {
    /// Room for `n_envs · n_steps` steps.
    pub fn new(n_envs: usize, n_steps: usize, obs_len: usize, act_len: usize) -> Self {
        let n = n_envs * n_steps;
        Self {
            n_envs,
            n_steps,
            obs_len,
            act_len,
            obs: vec![0.0; n * obs_len],
            action: vec![0.0; n * act_len],
            logp: vec![0.0; n],
            reward: vec![0.0; n],
            cost: vec![0.0; n],
            outcome: vec![Outcome::Running; n],
            end_obs: vec![Vec::new(); n_envs],
        }
    }

    /// Number of steps in all.
    pub fn len(&self) -> usize {
        self.logp.len()
    }

    /// Whether there is no room for a step.
    pub fn is_empty(&self) -> bool {
        self.logp.is_empty()
    }

    /// The parts of the environments, emptied, to be filled in parallel.
    pub fn lanes(&mut self) -> Vec<Lane<'_>> {
        let (t, o, a) = (self.n_steps, self.obs_len, self.act_len);
        let fields =
            self.obs.chunks_mut(t * o).zip(self.action.chunks_mut(t * a)).zip(self.logp.chunks_mut(t));
        let fields = fields.zip(self.reward.chunks_mut(t)).zip(self.cost.chunks_mut(t));
        let fields = fields.zip(self.outcome.chunks_mut(t)).zip(&mut self.end_obs);
        fields
            .map(|((((((obs, action), logp), reward), cost), outcome), end_obs)| {
                end_obs.clear();
                Lane { obs_len: o, act_len: a, t: 0, obs, action, logp, reward, cost, outcome, end_obs }
            })
            .collect()
    }
}

impl Lane<'_> {
    /// Steps still to be filled.
    pub fn remaining(&self) -> usize {
        self.logp.len() - self.t
    }

    /// Adds a step: the observation acted on, the action, its `ln π`, and what the environment returned.
    ///
    /// # Panics
    /// If the lane is full, or a slice has the wrong length.
    pub fn push(&mut self, obs: &[f32], action: &[f32], logp: f64, step: Step) {
        let t = self.t;
        self.obs[t * self.obs_len..][..self.obs_len].copy_from_slice(obs);
        self.action[t * self.act_len..][..self.act_len].copy_from_slice(action);
        (self.logp[t], self.reward[t], self.cost[t], self.outcome[t]) =
            (logp, step.reward, step.cost, step.outcome);
        self.t += 1;
    }

    /// Adds the observation that the step just pushed led to. To be called exactly after a step that ended
    /// its episode (with the final observation, not the first of the next episode) and after the last step of
    /// the lane.
    pub fn end(&mut self, next_obs: &[f32]) {
        assert_eq!(next_obs.len(), self.obs_len, "length of an observation");
        self.end_obs.extend_from_slice(next_obs);
    }
}

/// Discounts and traces.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Discount {
    /// γ of the reward. 0.99.
    pub gamma: f64,
    /// λ of the reward's advantage estimate. 0.95.
    pub lambda: f64,
    /// γ of the cost. 0.99.
    pub gamma_c: f64,
    /// λ of the cost's advantage estimate. 0.95.
    pub lambda_c: f64,
}

impl Default for Discount {
    fn default() -> Self {
        Self { gamma: 0.99, lambda: 0.95, gamma_c: 0.99, lambda_c: 0.95 }
    }
}

/// One stream of values: advantages and targets of one critic, `[N][T]`.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// The critic at each step's observation.
    pub value: Vec<f64>,
    /// What the critic is trained towards.
    pub target: Vec<f64>,
    next_value: Vec<f64>,
    out: Vec<f32>,
    ws: Option<Workspace>,
}

/// A rollout with its advantages: what an update learns from.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What was collected.
    pub rollout: Rollout,
    /// Reward advantages, standardised.
    pub adv_r: Vec<f64>,
    /// Cost advantages, centred, one per stream of the agent.
    pub adv_c: Vec<Vec<f64>>,
    /// Reward values and targets.
    pub reward: Estimate,
    /// Cost values and targets, one per stream.
    pub costs: Vec<Estimate>,
    /// Mean reward advantage before it was standardised.
    pub adv_mean: f64,
}

impl Batch {
    /// Around a rollout; nothing is estimated yet.
    pub fn new(rollout: Rollout) -> Self {
        let reward = Estimate::default();
        Self { rollout, adv_r: Vec::new(), adv_c: Vec::new(), reward, costs: Vec::new(), adv_mean: 0.0 }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rollout.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.rollout.is_empty()
    }

    /// Evaluates the critics in bulk and estimates every advantage and target.
    ///
    /// The reward advantage is standardised, `(A − mean) / (std + 1e-8)`: without variance it is 0
    /// everywhere. Cost advantages are centred only, as their scale has a meaning against the limit.
    ///
    /// # Errors
    /// If an advantage or target is not finite: which, and at which sample.
    ///
    /// # Panics
    /// If the rollout was not filled as [`Lane`] asks.
    pub fn estimate(&mut self, agent: &Agent, discount: &Discount) -> Result<(), UpdateError> {
        let Self { rollout, adv_r, adv_c, reward, costs, adv_mean } = self;
        costs.resize_with(agent.streams.len(), Estimate::default);
        adv_c.resize_with(agent.streams.len(), Vec::new);

        // critics in bulk, each on a thread of its own
        let mut jobs = vec![(&agent.critic_r.net, &mut *reward, false)];
        for ((critic, estimate), stream) in agent.critics_c.iter().zip(&mut *costs).zip(&agent.streams) {
            jobs.push((&critic.net, estimate, *stream == CostStream::Root));
        }
        jobs.into_par_iter().for_each(|(net, estimate, root)| estimate.evaluate(net, rollout, root));

        // advantages and targets
        reward.advantages(rollout, &rollout.reward, discount.gamma, discount.lambda, adv_r);
        for k in 0..costs.len() {
            let (Discount { gamma_c, lambda_c, .. }, (first, rest)) = (*discount, costs.split_at_mut(k));
            let adv = &mut adv_c[k];
            match agent.streams[k] {
                // costs are not negative, so neither are the targets: √T_F exists
                CostStream::Value | CostStream::Root => {
                    rest[0].advantages(rollout, &rollout.cost, gamma_c, lambda_c, adv);
                }
                CostStream::Variance => {
                    let excess = variance_reward(rollout, &first[0], gamma_c);
                    rest[0].advantages(rollout, &excess, gamma_c * gamma_c, lambda_c * lambda_c, adv);
                    rest[0].target.iter_mut().for_each(|t| *t = t.max(0.0));
                }
            }
            UpdateError::check("cost advantage", adv)?;
        }
        UpdateError::check("reward advantage", adv_r)?;

        *adv_mean = mean(adv_r);
        standardise(adv_r);
        for adv in adv_c {
            let m = mean(adv);
            adv.iter_mut().for_each(|a| *a -= m);
        }
        Ok(())
    }
}

impl Estimate {
    /// Fills `value` and `next_value`. With `root`, the value is `|u|`.
    fn evaluate(&mut self, net: &Mlp, rollout: &Rollout, root: bool) {
        let read = |v: f32| if root { f64::from(v).abs() } else { f64::from(v) };
        let n = rollout.len();
        let ws = self.ws.get_or_insert_with(|| net.workspace(256));
        self.out.resize(n, 0.0);
        net.predict(&rollout.obs, ws, &mut self.out);
        self.value.clear();
        self.value.extend(self.out.iter().map(|&v| read(v)));
        self.next_value.resize(n, 0.0);
        for env in 0..rollout.n_envs {
            let ends = &rollout.end_obs[env];
            self.out.resize(ends.len() / rollout.obs_len, 0.0);
            net.predict(ends, ws, &mut self.out);
            let mut end = self.out.iter();
            for t in 0..rollout.n_steps {
                let i = env * rollout.n_steps + t;
                let at_end = rollout.outcome[i].is_done() || t + 1 == rollout.n_steps;
                self.next_value[i] = match at_end {
                    true => read(
                        *end.next()
                            .expect("Lane::end was not called after an episode's end or the last step"),
                    ),
                    false => self.value[i + 1],
                };
            }
            assert!(end.next().is_none(), "Lane::end was called where no episode ended");
        }
    }

    /// Writes the advantages of `signal` and sets the targets `A + V`.
    fn advantages(&mut self, rollout: &Rollout, signal: &[f64], gamma: f64, lambda: f64, adv: &mut Vec<f64>) {
        let t = rollout.n_steps;
        adv.resize(rollout.len(), 0.0);
        for env in 0..rollout.n_envs {
            let part = env * t..(env + 1) * t;
            gae(
                &signal[part.clone()],
                &self.value[part.clone()],
                &self.next_value[part.clone()],
                &rollout.outcome[part.clone()],
                gamma,
                lambda,
                &mut adv[part],
            );
        }
        self.target.clear();
        self.target.extend(adv.iter().zip(&self.value).map(|(a, v)| a + v));
    }
}

/// `(c + γV')² − V²`: the "reward" whose value at discount γ² is the variance of the cost return (Sobel 1982).
fn variance_reward(rollout: &Rollout, value: &Estimate, gamma: f64) -> Vec<f64> {
    (0..rollout.len())
        .map(|i| {
            let future =
                if rollout.outcome[i] == Outcome::Terminated { 0.0 } else { gamma * value.next_value[i] };
            (rollout.cost[i] + future).powi(2) - value.value[i].powi(2)
        })
        .collect()
}

pub(crate) fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len().max(1) as f64
}

fn standardise(x: &mut [f64]) {
    let m = mean(x);
    let var = x.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / x.len().max(1) as f64;
    let scale = 1.0 / (var.sqrt() + 1e-8);
    x.iter_mut().for_each(|v| *v = (*v - m) * scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Running, Terminated, Truncated};
    use epo_core::ActionSpace;

    /// Critics without hidden layers, `V(x) = w x + b`.
    fn agent(streams: &[CostStream], reward: [f32; 2], costs: &[[f32; 2]]) -> Agent {
        let mut agent = Agent::new(1, &ActionSpace::symmetric(1), &[], &[], streams, 0);
        agent.critic_r.net.set_params(&reward);
        for (critic, params) in agent.critics_c.iter_mut().zip(costs) {
            critic.net.set_params(params);
        }
        agent
    }

    /// One environment: rows of (observation, reward, cost, outcome, the true next observation where it is
    /// needed).
    fn batch(rows: &[(f32, f64, f64, Outcome, Option<f32>)]) -> Batch {
        let mut rollout = Rollout::new(1, rows.len(), 1, 1);
        let mut lane = rollout.lanes().remove(0);
        for &(obs, reward, cost, outcome, end) in rows {
            lane.push(&[obs], &[0.0], 0.0, Step { reward, cost, outcome });
            if let Some(end) = end {
                lane.end(&[end]);
            }
        }
        assert_eq!(lane.remaining(), 0);
        Batch::new(rollout)
    }

    #[test]
    fn episodes_bootstrap_from_where_they_really_ended() {
        // V(x) = x, γ = ½, λ = 0: target = r + ½ next.  The third step terminates: its next state is worth nothing
        let rows = [
            (10.0, 1.0, 0.0, Running, None),
            (20.0, 1.0, 0.0, Truncated, Some(26.0)), // not 30, where the next episode starts
            (30.0, 1.0, 0.0, Terminated, Some(1e6)),
            (40.0, 1.0, 0.0, Running, Some(50.0)), // cut: the observation after the last step
        ];
        let mut batch = batch(&rows);
        let discount = Discount { gamma: 0.5, lambda: 0.0, ..Discount::default() };
        batch.estimate(&agent(&[], [1.0, 0.0], &[]), &discount).unwrap();
        assert_eq!(batch.reward.target, [11.0, 14.0, 1.0, 26.0]);
        assert_eq!(batch.adv_mean, (1.0 - 6.0 - 29.0 - 14.0) / 4.0);
        let (m, v) = (mean(&batch.adv_r), mean(&batch.adv_r.iter().map(|a| a * a).collect::<Vec<_>>()));
        assert!(m.abs() < 1e-12 && (v - 1.0).abs() < 1e-6, "standardised: {m} {v}");
    }

    #[test]
    fn cost_streams_by_hand() {
        // γ = λ = ½, cost 1 then 0, V = 2:  δ = 1 + 1 − 2 = 0 and 0 + 1 − 2 = −1;  A = −¼, −1;  centred ±0.375
        // variance, W = 3: signal (1+1)² − 4 = 0 and (0+1)² − 4 = −3;  δ = 0 + ¾ − 3 = −2.25 and −3 + ¾ − 3 = −5.25;
        // A = −2.25 − 5.25/16 = −2.578125 and −5.25;  targets A + 3, cut at 0
        let rows = [(0.0, 0.0, 1.0, Running, None), (0.0, 0.0, 0.0, Running, Some(0.0))];
        let discount = Discount { gamma_c: 0.5, lambda_c: 0.5, ..Discount::default() };
        let streams = [CostStream::Value, CostStream::Variance, CostStream::Root];
        let mut batch = batch(&rows);
        // u = −2: the root is |u|
        batch
            .estimate(&agent(&streams, [0.0, 0.0], &[[0.0, 2.0], [0.0, 3.0], [0.0, -2.0]]), &discount)
            .unwrap();
        assert_eq!(batch.costs[0].target, [1.75, 1.0]);
        assert_eq!(batch.adv_c[0], [0.375, -0.375]);
        assert_eq!(batch.costs[1].target, [0.421_875, 0.0]);
        assert_eq!(batch.adv_c[1], [1.335_937_5, -1.335_937_5]);
        assert_eq!((&batch.costs[2].target, &batch.adv_c[2]), (&batch.costs[0].target, &batch.adv_c[0]));
        assert_eq!(batch.costs[2].value, [2.0, 2.0]);
    }

    #[test]
    fn advantages_without_variance_are_zero() {
        let mut batch =
            batch(&[(0.0, 2.0, 0.0, Terminated, Some(0.0)), (0.0, 2.0, 0.0, Terminated, Some(0.0))]);
        batch.estimate(&agent(&[], [0.0, 0.0], &[]), &Discount::default()).unwrap();
        assert_eq!(batch.adv_r, [0.0, 0.0]);
    }

    #[test]
    fn a_non_finite_reward_is_named_with_its_place() {
        let mut batch =
            batch(&[(0.0, 1.0, 0.0, Terminated, Some(0.0)), (0.0, f64::NAN, 0.0, Terminated, Some(0.0))]);
        let error = batch.estimate(&agent(&[], [0.0, 0.0], &[]), &Discount::default()).unwrap_err();
        assert_eq!(error.to_string(), "reward advantage is NaN (sample 1)");
    }
}
