//! The samples of an epoch: the [`Rollout`] that was collected, and the [`Batch`] that is estimated from it.
//!
//! ```text
//! Rollout ──Estimator::estimate──▶ Batch
//! ```
//! A [`Batch`] comes from [`Estimator::estimate`] only, so an update never sees samples without advantages.

use epo_core::{Outcome, Step, WireError, WireReader, WireWriter};
use epo_nn::{Mlp, Workspace};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::config::require;
use crate::{Agent, CostCritic, UpdateError, gae};

/// Steps of `n_envs` environments, environment by environment: index `i = env · n_steps + t`.
///
/// Observations are stored as the policy saw them: normalised with the statistics at that time. The
/// buffers are reused from epoch to epoch.
#[derive(Clone, Debug)]
pub struct Rollout {
    n_envs: usize,
    n_steps: usize,
    obs_len: usize,
    act_len: usize,
    /// Observations that the policy acted on, `[N][T][obs]`.
    pub obs: Vec<f32>,
    /// Actions as sampled, `[N][T][act]`.
    pub action: Vec<f32>,
    /// `ln π` of the policy that acted, `[N][T]`.
    pub logp: Vec<f64>,
    /// Rewards, `[N][T]`.
    pub reward: Vec<f64>,
    /// Costs, `[N][T]`.
    pub cost: Vec<f64>,
    /// Outcomes of the steps, `[N][T]`.
    pub outcome: Vec<Outcome>,
    /// Per environment, rows `[ends][obs]`: the true next observation of each step that ended an episode, and of the
    /// last step.
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
    /// An empty rollout with room for `n_envs · n_steps` steps.
    pub fn new(n_envs: usize, n_steps: usize, obs_len: usize, act_len: usize) -> Self {
        let mut rollout = Self {
            n_envs,
            n_steps: 0,
            obs_len,
            act_len,
            obs: Vec::new(),
            action: Vec::new(),
            logp: Vec::new(),
            reward: Vec::new(),
            cost: Vec::new(),
            outcome: Vec::new(),
            end_obs: vec![Vec::new(); n_envs],
        };
        rollout.set_steps(n_steps);
        rollout
    }

    /// Changes the number of steps of each environment. The steps in the rollout become invalid. Memory is
    /// allocated only if the rollout grows.
    pub fn set_steps(&mut self, n_steps: usize) {
        let n = self.n_envs * n_steps;
        self.n_steps = n_steps;
        self.obs.resize(n * self.obs_len, 0.0);
        self.action.resize(n * self.act_len, 0.0);
        self.logp.resize(n, 0.0);
        self.reward.resize(n, 0.0);
        self.cost.resize(n, 0.0);
        self.outcome.resize(n, Outcome::Running);
    }

    /// Number of steps of all environments together, filled or not.
    pub fn len(&self) -> usize {
        self.logp.len()
    }

    /// Returns true if the rollout has no room for any step.
    pub fn is_empty(&self) -> bool {
        self.logp.is_empty()
    }

    /// Returns the mean square of `G_t = γ G_{t−1} + x_t`, the discounted sum of a signal over the earlier
    /// steps of the episode. The sums restart at 0 at the beginning of the rollout.
    fn mean_square(&self, signal: &[f64], gamma: f64) -> f64 {
        let mut total = 0.0;
        for (signal, outcome) in signal.chunks(self.n_steps).zip(self.outcome.chunks(self.n_steps)) {
            let mut sum = 0.0;
            for (x, outcome) in signal.iter().zip(outcome) {
                sum = gamma * sum + x;
                total += sum * sum;
                if outcome.is_done() {
                    sum = 0.0;
                }
            }
        }
        total / self.len().max(1) as f64
    }

    /// Standard deviation of the cost of a step.
    pub fn step_cost_std(&self) -> f64 {
        let m = mean(&self.cost);
        mean_of(self.cost.iter().map(|c| (c - m) * (c - m)), self.len()).sqrt()
    }

    /// Empties the rollout and returns the part of each environment, so that the parts can be filled in
    /// parallel.
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
    /// Number of steps that are still to be filled.
    pub fn remaining(&self) -> usize {
        self.logp.len() - self.t
    }

    /// Adds a step: the observation that the policy acted on, the action, its `ln π`, and the result.
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

    /// Adds the observation that the last pushed step led to.
    ///
    /// Call it after each step that ended an episode, with the final observation of that episode,
    /// and after the last step of the lane. Do not call it after any other step.
    pub fn end(&mut self, next_obs: &[f32]) {
        assert_eq!(next_obs.len(), self.obs_len, "length of an observation");
        self.end_obs.extend_from_slice(next_obs);
    }

    /// Appends all steps of the lane to a message. [`Lane::read`] fills the lane of another process with them.
    pub fn write(&self, message: &mut WireWriter) {
        message.f32s(self.obs);
        message.f32s(self.action);
        message.f64s(self.logp);
        message.f64s(self.reward);
        message.f64s(self.cost);
        message.bytes(&self.outcome.iter().map(|outcome| *outcome as u8).collect::<Vec<_>>());
        message.f32s(self.end_obs);
    }

    /// Fills the lane with the steps that [`Lane::write`] appended to a message.
    ///
    /// # Errors
    /// If the lengths in the message differ from those of this lane, or [`Lane::write`] did not write the
    /// message.
    pub fn read(&mut self, message: &mut WireReader<'_>) -> Result<(), WireError> {
        message.f32s(self.obs)?;
        message.f32s(self.action)?;
        message.f64s(self.logp)?;
        message.f64s(self.reward)?;
        message.f64s(self.cost)?;
        let outcomes = message.bytes()?;
        if outcomes.len() != self.outcome.len() {
            return Err(WireError);
        }
        for (outcome, byte) in self.outcome.iter_mut().zip(outcomes) {
            let all = [Outcome::Running, Outcome::Terminated, Outcome::Truncated];
            *outcome = all.into_iter().find(|known| *known as u8 == *byte).ok_or(WireError)?;
        }
        message.f32_vec(self.end_obs)?;
        self.t = self.logp.len();
        Ok(())
    }
}

epo_core::parameters! {
    /// Discounts and GAE factors.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct Discount {
        /// Discount γ of the reward, at least 0 and below 1.
        pub gamma: f64 = 0.99,
        /// Factor λ of the generalised advantage estimate of the reward, from 0 to 1. A smaller λ has less variance
        /// and more bias.
        pub lambda: f64 = 0.95,
        /// Discount γ of the cost, at least 0 and below 1.
        pub gamma_c: f64 = 0.99,
        /// Factor λ of the generalised advantage estimate of the cost, from 0 to 1.
        pub lambda_c: f64 = 0.95,
    }
}

impl Discount {
    /// Returns an error if a discount is outside [0, 1) or a factor λ is outside [0, 1]. The algorithms divide
    /// by 1 − γ, so γ = 1 is not allowed.
    ///
    /// # Errors
    /// The error names the key.
    pub fn check(&self) -> Result<(), UpdateError> {
        let discounts = [("train.gamma", self.gamma), ("train.gamma_c", self.gamma_c)];
        require(&discounts, |v| (0.0..1.0).contains(&v), "must be at least 0 and below 1")?;
        let traces = [("train.lambda", self.lambda), ("train.lambda_c", self.lambda_c)];
        require(&traces, |v| (0.0..=1.0).contains(&v), "must be from 0 to 1")
    }
}

/// The values and targets of one critic at every step, `[N][T]`.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// Value estimate at the observation of each step, in units of the task.
    pub value: Vec<f64>,
    /// Target that the critic is trained towards.
    pub target: Vec<f64>,
    /// Unit of the network's output: value = unit × output.
    pub unit: f64,
    next_value: Vec<f64>,
    out: Vec<f32>,
    ws: Option<Workspace>,
}

/// A rollout with its advantages and targets: the data of an update.
///
/// Only [`Estimator::estimate`] makes one.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Batch<'a> {
    /// The steps that were collected.
    pub rollout: &'a Rollout,
    /// Reward advantages, standardised.
    pub adv_r: &'a [f64],
    /// Cost advantages, centred; one vector per cost critic of the agent.
    pub adv_c: &'a [Vec<f64>],
    /// Values and targets of the reward critic.
    pub reward: &'a Estimate,
    /// Values and targets of the cost critics, one entry per critic.
    pub costs: &'a [Estimate],
    /// Mean reward advantage before it was standardised.
    pub adv_mean: f64,
}

impl Batch<'_> {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rollout.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.rollout.is_empty()
    }
}

/// Turns rollouts into batches. It owns the buffers of the estimates, which are reused from epoch to epoch.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    adv_r: Vec<f64>,
    adv_c: Vec<Vec<f64>>,
    reward: Estimate,
    costs: Vec<Estimate>,
    excess: Vec<f64>,
    limit: f64,
}

impl Estimator {
    /// Returns an estimator for the cost limit d. Only the targets of some critics depend on d.
    pub fn for_limit(limit: f64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Evaluates the critics on the whole rollout and estimates all advantages and targets.
    ///
    /// The reward advantage is standardised, `(A − mean) / std`; it is 0 everywhere if it has no variance.
    /// Cost advantages are only centred, because their scale must stay comparable with the limit.
    ///
    /// # Errors
    /// If an advantage is not finite. The error names the advantage and the sample.
    ///
    /// # Panics
    /// If the rollout was not filled as [`Lane`] requires.
    pub fn estimate<'a>(
        &'a mut self,
        rollout: &'a Rollout,
        agent: &mut Agent,
        discount: &Discount,
    ) -> Result<Batch<'a>, UpdateError> {
        let Self { adv_r, adv_c, reward, costs, excess, limit } = self;
        agent.rescale(
            rollout.mean_square(&rollout.reward, discount.gamma),
            rollout.mean_square(&rollout.cost, discount.gamma_c),
        );
        let units = agent.units();
        costs.resize_with(agent.cost_kinds.len(), Estimate::default);
        adv_c.resize_with(agent.cost_kinds.len(), Vec::new);

        // evaluate the critics on the whole rollout, in parallel
        let mut jobs = vec![(&agent.critic_r.net, &mut *reward, false)];
        for ((critic, estimate), kind) in agent.critics_c.iter().zip(&mut *costs).zip(&agent.cost_kinds) {
            jobs.push((&critic.net, estimate, kind.is_root()));
        }
        jobs.into_par_iter().zip(units).for_each(|((net, estimate, root), unit)| {
            estimate.unit = unit;
            estimate.evaluate(net, rollout, root);
        });

        // advantages and targets
        reward.advantages(rollout, &rollout.reward, discount.gamma, discount.lambda, adv_r);
        for k in 0..costs.len() {
            let (Discount { gamma_c, lambda_c, .. }, (first, rest)) = (*discount, costs.split_at_mut(k));
            let adv = &mut adv_c[k];
            match agent.cost_kinds[k] {
                // costs are not negative, so neither are the targets: √T_F exists
                CostCritic::Value | CostCritic::Root => {
                    rest[0].advantages(rollout, &rollout.cost, gamma_c, lambda_c, adv);
                }
                CostCritic::AboveLimit | CostCritic::RootAboveLimit => {
                    rest[0].advantages(rollout, &rollout.cost, gamma_c, lambda_c, adv);
                    rest[0].aim_above(rollout, *limit, gamma_c);
                }
                CostCritic::Variance => {
                    variance_reward(rollout, &first[0], gamma_c, excess);
                    rest[0].advantages(rollout, excess, gamma_c * gamma_c, lambda_c * lambda_c, adv);
                    rest[0].target.iter_mut().for_each(|t| *t = t.max(0.0));
                }
            }
            UpdateError::check("cost advantage", adv)?;
        }
        UpdateError::check("reward advantage", adv_r)?;

        let adv_mean = mean(adv_r);
        standardise(adv_r);
        for adv in &mut *adv_c {
            let m = mean(adv);
            adv.iter_mut().for_each(|a| *a -= m);
        }
        Ok(Batch { rollout, adv_r, adv_c, reward, costs, adv_mean })
    }
}

impl Estimate {
    /// Fills `value` and `next_value`. With `root`, the value is `|u|` of the output `u`.
    fn evaluate(&mut self, net: &Mlp, rollout: &Rollout, root: bool) {
        let unit = self.unit;
        let read = |v: f32| unit * if root { f64::from(v).abs() } else { f64::from(v) };
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

impl Estimate {
    /// Sets the targets `max(c + γV' − d, 0)`.
    fn aim_above(&mut self, rollout: &Rollout, limit: f64, gamma: f64) {
        for (i, target) in self.target.iter_mut().enumerate() {
            let ended = rollout.outcome[i] == Outcome::Terminated;
            let future = if ended { 0.0 } else { gamma * self.next_value[i] };
            *target = (rollout.cost[i] + future - limit).max(0.0);
        }
    }
}

/// Writes `(c + γV')² − V²`. Used as a reward with the discount γ², its value is the variance of
/// the discounted cost return (Sobel 1982).
fn variance_reward(rollout: &Rollout, value: &Estimate, gamma: f64, out: &mut Vec<f64>) {
    out.clear();
    out.extend((0..rollout.len()).map(|i| {
        let future =
            if rollout.outcome[i] == Outcome::Terminated { 0.0 } else { gamma * value.next_value[i] };
        (rollout.cost[i] + future).powi(2) - value.value[i].powi(2)
    }));
}

pub(crate) fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len().max(1) as f64
}

fn mean_of(x: impl Iterator<Item = f64>, n: usize) -> f64 {
    x.sum::<f64>() / n.max(1) as f64
}

/// Subtracts the mean and divides by the standard deviation. If the numbers differ only by rounding, all become
/// 0.
fn standardise(x: &mut [f64]) {
    let m = mean(x);
    let (var, square) =
        (mean_of(x.iter().map(|v| (v - m) * (v - m)), x.len()), mean_of(x.iter().map(|v| v * v), x.len()));
    let scale = if var > 1e-24 * square { 1.0 / var.sqrt() } else { 0.0 };
    x.iter_mut().for_each(|v| *v = (*v - m) * scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Running, Terminated, Truncated};
    use epo_core::ActionSpace;

    /// Critics without hidden layers, `V(x) = w x + b`.
    fn agent(kinds: &[CostCritic], reward: [f32; 2], costs: &[[f32; 2]]) -> Agent {
        let mut agent = Agent::new(1, &ActionSpace::symmetric(1), &[], &[], kinds, 0);
        agent.critic_r.net.set_params(&reward);
        for (critic, params) in agent.critics_c.iter_mut().zip(costs) {
            critic.net.set_params(params);
        }
        agent.scales = None;
        agent
    }

    /// One environment: rows of (observation, reward, cost, outcome, the true next observation where it is
    /// needed).
    fn rollout(rows: &[(f32, f64, f64, Outcome, Option<f32>)]) -> Rollout {
        let mut rollout = Rollout::new(1, rows.len(), 1, 1);
        let mut lane = rollout.lanes().remove(0);
        for &(obs, reward, cost, outcome, end) in rows {
            lane.push(&[obs], &[0.0], 0.0, Step { reward, cost, outcome });
            if let Some(end) = end {
                lane.end(&[end]);
            }
        }
        assert_eq!(lane.remaining(), 0);
        rollout
    }

    /// Fails if a field of a step is left out of a message, or is read into another field.
    #[test]
    fn a_lane_that_another_process_filled_is_the_same_lane() {
        let rows = [
            (1.0, 2.0, 3.0, Running, None),
            (4.0, 5.0, 6.0, Terminated, Some(7.0)),
            (8.0, 9.0, 10.0, Truncated, Some(11.0)),
        ];
        let mut sent = Rollout::new(1, 3, 1, 1);
        let mut lane = sent.lanes().remove(0);
        for (i, (obs, reward, cost, outcome, end)) in rows.into_iter().enumerate() {
            lane.push(&[obs], &[-obs], -(i as f64), Step { reward, cost, outcome });
            end.into_iter().for_each(|end| lane.end(&[end]));
        }
        let mut message = WireWriter::default();
        lane.write(&mut message);
        let bytes = message.finish();

        let mut got = Rollout::new(1, 3, 1, 1);
        let mut lane = got.lanes().remove(0);
        let mut reader = WireReader::new(&bytes);
        lane.read(&mut reader).unwrap();
        assert_eq!((lane.remaining(), reader.end()), (0, Ok(())));
        assert_eq!((got.obs, got.action), (sent.obs, sent.action));
        assert_eq!((got.logp, got.reward, got.cost), (sent.logp, sent.reward, sent.cost));
        assert_eq!((got.outcome, got.end_obs), (sent.outcome, sent.end_obs));
        for steps in [2, 4] {
            let mut other = Rollout::new(1, steps, 1, 1);
            assert_eq!(other.lanes()[0].read(&mut WireReader::new(&bytes)), Err(WireError), "{steps} steps");
        }
    }

    #[test]
    fn episodes_bootstrap_from_their_true_final_observation() {
        // V(x) = x, γ = ½, λ = 0: target = r + ½ next.  The third step terminates: its next state has the value 0
        let rows = [
            (10.0, 1.0, 0.0, Running, None),
            (20.0, 1.0, 0.0, Truncated, Some(26.0)), // not 30, where the next episode starts
            (30.0, 1.0, 0.0, Terminated, Some(1e6)),
            (40.0, 1.0, 0.0, Running, Some(50.0)), // cut by the end of the rollout: the observation after the last step
        ];
        let (rollout, mut estimator) = (rollout(&rows), Estimator::default());
        let discount = Discount { gamma: 0.5, lambda: 0.0, ..Discount::default() };
        let batch = estimator.estimate(&rollout, &mut agent(&[], [1.0, 0.0], &[]), &discount).unwrap();
        assert_eq!(batch.reward.target, [11.0, 14.0, 1.0, 26.0]);
        assert_eq!(batch.adv_mean, (1.0 - 6.0 - 29.0 - 14.0) / 4.0);
        let (m, v) = (mean(batch.adv_r), mean(&batch.adv_r.iter().map(|a| a * a).collect::<Vec<_>>()));
        assert!(m.abs() < 1e-12 && (v - 1.0).abs() < 1e-6, "standardised: {m} {v}");
    }

    #[test]
    fn cost_advantages_by_hand() {
        // γ = λ = ½, cost 1 then 0, V = 2:  δ = 1 + 1 − 2 = 0 and 0 + 1 − 2 = −1;  A = −¼, −1;  centred ±0.375
        // variance, W = 3: signal (1+1)² − 4 = 0 and (0+1)² − 4 = −3;  δ = 0 + ¾ − 3 = −2.25 and −3 + ¾ − 3 = −5.25;
        // A = −2.25 − 5.25/16 = −2.578125 and −5.25;  targets A + 3, cut at 0
        let rows = [(0.0, 0.0, 1.0, Running, None), (0.0, 0.0, 0.0, Running, Some(0.0))];
        let discount = Discount { gamma_c: 0.5, lambda_c: 0.5, ..Discount::default() };
        let kinds = [CostCritic::Value, CostCritic::Variance, CostCritic::Root];
        let (rollout, mut estimator) = (rollout(&rows), Estimator::default());
        // u = −2: the root is |u|
        let mut agent = agent(&kinds, [0.0, 0.0], &[[0.0, 2.0], [0.0, 3.0], [0.0, -2.0]]);
        let batch = estimator.estimate(&rollout, &mut agent, &discount).unwrap();
        assert_eq!(batch.costs[0].target, [1.75, 1.0]);
        assert_eq!(batch.adv_c[0], [0.375, -0.375]);
        assert_eq!(batch.costs[1].target, [0.421_875, 0.0]);
        assert_eq!(batch.adv_c[1], [1.335_937_5, -1.335_937_5]);
        assert_eq!((&batch.costs[2].target, &batch.adv_c[2]), (&batch.costs[0].target, &batch.adv_c[0]));
        assert_eq!(batch.costs[2].value, [2.0, 2.0]);
    }

    /// This test fails if the limit is missing from the targets, or if it reaches the advantages.
    #[test]
    fn targets_above_the_limit_by_hand() {
        // γ = ½, V = 8, d = 3, costs 1, 0, and 5 at the end:  T = 1 + 4 − 3, 0 + 4 − 3, 5 − 3;  with V = 2: 0, 0, 2
        let rows = [
            (0.0, 0.0, 1.0, Running, None),
            (0.0, 0.0, 0.0, Running, None),
            (0.0, 0.0, 5.0, Terminated, Some(0.0)),
        ];
        let discount = Discount { gamma_c: 0.5, lambda_c: 0.5, ..Discount::default() };
        let kinds = [CostCritic::AboveLimit, CostCritic::RootAboveLimit, CostCritic::Value];
        let (rollout, mut estimator) = (rollout(&rows), Estimator::for_limit(3.0));
        let mut agent = agent(&kinds, [0.0, 0.0], &[[0.0, 8.0], [0.0, -2.0], [0.0, 8.0]]);
        let batch = estimator.estimate(&rollout, &mut agent, &discount).unwrap();
        assert_eq!(batch.costs[0].target, [2.0, 1.0, 2.0]);
        assert_eq!(batch.costs[1].target, [0.0, 0.0, 2.0]);
        assert_eq!(batch.adv_c[0], batch.adv_c[2]);
    }

    #[test]
    fn advantages_without_variance_are_zero() {
        let rollout =
            rollout(&[(0.0, 2.0, 0.0, Terminated, Some(0.0)), (0.0, 2.0, 0.0, Terminated, Some(0.0))]);
        let mut estimator = Estimator::default();
        let batch =
            estimator.estimate(&rollout, &mut agent(&[], [0.0, 0.0], &[]), &Discount::default()).unwrap();
        assert_eq!(batch.adv_r, [0.0, 0.0]);
    }

    #[test]
    fn a_non_finite_reward_is_named_with_its_place() {
        let rollout =
            rollout(&[(0.0, 1.0, 0.0, Terminated, Some(0.0)), (0.0, f64::NAN, 0.0, Terminated, Some(0.0))]);
        let mut estimator = Estimator::default();
        let mut agent = agent(&[], [0.0, 0.0], &[]);
        let error = estimator.estimate(&rollout, &mut agent, &Discount::default()).unwrap_err();
        assert_eq!(error.to_string(), "reward advantage is NaN (sample 1)");
    }

    /// This test fails if a shorter rollout keeps lanes or samples of the longer one.
    #[test]
    fn a_shortened_rollout_equals_one_made_with_that_length() {
        let fill = |rollout: &mut Rollout| {
            for (env, mut lane) in rollout.lanes().into_iter().enumerate() {
                while lane.remaining() > 0 {
                    let x = (10 * env + lane.remaining()) as f32;
                    let step = Step { reward: f64::from(x), cost: 1.0, outcome: Running };
                    lane.push(&[x], &[x], 0.5, step);
                }
                lane.end(&[7.0]);
            }
        };
        let (mut cut, mut made) = (Rollout::new(2, 5, 1, 1), Rollout::new(2, 3, 1, 1));
        fill(&mut cut);
        cut.set_steps(3);
        fill(&mut cut);
        fill(&mut made);
        let mut agent = agent(&[CostCritic::Value], [0.5, 0.1], &[[0.2, 0.3]]);
        let (mut a, mut b) = (Estimator::default(), Estimator::default());
        let a = a.estimate(&cut, &mut agent, &Discount::default()).unwrap();
        let b = b.estimate(&made, &mut agent, &Discount::default()).unwrap();
        assert_eq!((cut.len(), &cut.obs, &cut.reward), (6, &made.obs, &made.reward));
        assert_eq!((a.adv_r, a.adv_c, &a.reward.target), (b.adv_r, b.adv_c, &b.reward.target));
    }

    /// This test fails if γ = 1 is accepted, which makes 1/(1 − γ) infinite, or if NaN is accepted.
    #[test]
    fn every_discount_has_the_same_rule() {
        for bad in [1.0, -0.1, f64::NAN] {
            let default = Discount::default();
            for discount in [Discount { gamma: bad, ..default }, Discount { gamma_c: bad, ..default }] {
                assert!(discount.check().is_err(), "{discount:?}");
            }
        }
        let edge = Discount { gamma: 0.0, lambda: 1.0, gamma_c: 0.0, lambda_c: 0.0 };
        assert!(edge.check().is_ok());
        assert!(Discount { lambda: 1.1, ..edge }.check().is_err());
    }
}
