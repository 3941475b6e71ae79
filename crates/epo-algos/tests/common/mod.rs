//! A constrained bandit: three actions, episodes of ten steps, an optimum in closed form.
//!
//! ```text
//! action   0: reward 0, cost 0     1: reward 0.6, cost 0.3     2: reward 1, cost 1
//! limit    5 per episode of 10 steps: half a cost per step
//! optimum  mix 1 and 2:  p₂ + 0.3 (1 − p₂) = 0.5  ⇒  p₂ = 2/7;   return 10 (0.6·5/7 + 2/7) = 50/7 = 7.143, cost 5
//! ```
//! The multiplier of the limit is the slope between 1 and 2, 0.4/0.7 = 4/7.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its own part; a failure here is a failed test

use epo_algos::{
    Agent, AlgoConfig, Algorithm, Discount, Epoch, Estimate, Estimator, Rollout, UpdateConfig, UpdateError,
    UpdateReport,
};
use epo_core::{ActionSpace, CostReading, Outcome, Purpose, Step, Stream};

pub(crate) const REWARD: [f64; 3] = [0.0, 0.6, 1.0];
pub(crate) const COST: [f64; 3] = [0.0, 0.3, 1.0];
pub(crate) const LIMIT: f64 = 5.0;
pub(crate) const BEST_RETURN: f64 = 50.0 / 7.0;
pub(crate) const EPISODE: usize = 10;
const STEPS: usize = 50;
/// Discounts for which 1/(1−γ) is the length of an episode.
pub(crate) const DISCOUNT: Discount = Discount { gamma: 0.9, lambda: 0.95, gamma_c: 0.9, lambda_c: 0.95 };

/// A learner on the bandit.
pub(crate) struct Learner {
    pub(crate) agent: Agent,
    pub(crate) algo: Box<dyn Algorithm>,
    pub(crate) rollout: Rollout,
    pub(crate) estimator: Estimator,
    pub(crate) seed: u64,
    pub(crate) epoch: u32,
    pub(crate) epochs: u32,
    pub(crate) limit: f64,
    /// +1, or −1 to flip the sign of the cost gradient.
    pub(crate) cost_sign: f64,
}

/// Copies of the parts of a batch, to be changed by a test.
pub(crate) struct Parts {
    pub(crate) rollout: Rollout,
    pub(crate) adv_r: Vec<f64>,
    pub(crate) adv_c: Vec<Vec<f64>>,
    pub(crate) reward: Estimate,
}

/// Settings of the update. The entropy bonus makes the mixed optimum attractive. Without it, dual ascent on
/// this linear problem would oscillate around the optimum.
pub(crate) fn update_config() -> UpdateConfig {
    UpdateConfig {
        passes: 10,
        minibatch: 100,
        lr: 3e-3,
        critic_lr: 3e-3,
        entropy: 0.03,
        ..UpdateConfig::default()
    }
}

impl Learner {
    pub(crate) fn new(config: &AlgoConfig, seed: u64, epochs: u32) -> Self {
        let agent = Agent::new(1, &ActionSpace::Discrete { n: 3 }, &[16], &[16], config.cost_critics(), seed);
        let algo = config.build(&update_config(), &DISCOUNT).unwrap();
        let (rollout, estimator) = (Rollout::new(20, STEPS, 1, 1), Estimator::default());
        Self { agent, algo, rollout, estimator, seed, epoch: 0, epochs, limit: LIMIT, cost_sign: 1.0 }
    }

    /// Collects an epoch and returns the mean episode return and the cost reading.
    pub(crate) fn collect(&mut self, reward: [f64; 3], cost: [f64; 3]) -> (f64, CostReading) {
        let (mut ret, mut costs) = (0.0, Vec::new());
        let mut ws = self.agent.policy.workspace(1);
        for (env, mut lane) in self.rollout.lanes().into_iter().enumerate() {
            let mut stream = Stream::at(self.seed, Purpose::Action, env as u32, u64::from(self.epoch) << 32);
            for t in 0..STEPS {
                let mut action = [0.0];
                let logp = self.agent.policy.act(&[1.0], &mut ws, &mut stream, &mut action);
                let a = action[0] as usize;
                let done = t % EPISODE == EPISODE - 1;
                let outcome = if done { Outcome::Terminated } else { Outcome::Running };
                lane.push(&[1.0], &action, logp, Step { reward: reward[a], cost: cost[a], outcome });
                if t % EPISODE == 0 {
                    costs.push(0.0);
                }
                *costs.last_mut().unwrap() += cost[a];
                ret += reward[a];
                if done {
                    lane.end(&[1.0]);
                }
            }
        }
        let n = costs.len() as f64;
        let mean = costs.iter().sum::<f64>() / n;
        let spread = (costs.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n).sqrt();
        (ret / n, CostReading::with_spread(mean, self.limit, spread).unwrap())
    }

    /// One epoch on rewards and costs per action.
    pub(crate) fn epoch_on(
        &mut self,
        reward: [f64; 3],
        cost: [f64; 3],
    ) -> Result<(f64, CostReading, UpdateReport), UpdateError> {
        let (ret, reading) = self.collect(reward, cost);
        let mut batch = self.estimator.estimate(&self.rollout, &mut self.agent, &DISCOUNT)?;
        let signed: Vec<Vec<f64>> =
            batch.adv_c.iter().map(|adv| adv.iter().map(|a| a * self.cost_sign).collect()).collect();
        batch.adv_c = &signed;
        let epoch = Epoch { index: self.epoch, total: self.epochs, seed: self.seed };
        let report = self.algo.update(&mut self.agent, &batch, reading, epoch)?;
        self.epoch += 1;
        Ok((ret, reading, report))
    }

    /// Updates with the collected steps after `spoil` has replaced parts of the batch.
    pub(crate) fn update_with(
        &mut self,
        cost: CostReading,
        spoil: impl FnOnce(&mut Parts),
    ) -> Result<UpdateReport, UpdateError> {
        let mut batch = self.estimator.estimate(&self.rollout, &mut self.agent, &DISCOUNT)?;
        let mut parts = Parts {
            rollout: batch.rollout.clone(),
            adv_r: batch.adv_r.to_vec(),
            adv_c: batch.adv_c.to_vec(),
            reward: batch.reward.clone(),
        };
        spoil(&mut parts);
        (batch.rollout, batch.adv_r) = (&parts.rollout, &parts.adv_r);
        (batch.adv_c, batch.reward) = (&parts.adv_c, &parts.reward);
        self.algo.update(&mut self.agent, &batch, cost, Epoch { index: 0, total: 1, seed: 0 })
    }

    /// Trains to the end and returns mean return and cost over the second half.
    pub(crate) fn train(&mut self) -> (f64, f64) {
        let tail = self.epochs / 2;
        let (mut ret, mut cost) = (0.0, 0.0);
        while self.epoch < self.epochs {
            let last = self.epoch >= self.epochs - tail;
            let (r, c, _) = self.epoch_on(REWARD, COST).unwrap();
            if last {
                ret += r / f64::from(tail);
                cost += c.mean() / f64::from(tail);
            }
        }
        (ret, cost)
    }

    /// Bits of everything that is trained.
    pub(crate) fn bits(&self) -> Vec<u32> {
        self.agent
            .tensors()
            .iter()
            .flat_map(|t| t.data.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
            .collect()
    }
}
