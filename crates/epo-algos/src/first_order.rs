//! The update loop that every first-order method shares: passes over shuffled minibatches, Adam, a KL stop.
//!
//! ```text
//! repeat ≤ passes:  for each minibatch: critics step on MSE + c Σw²;  policy steps on the objective's loss − c_H H
//!                   stop if KL over the whole batch > δ
//! ```
//! Source: OmniSafe's on-policy loop. Each network is a chain of its own: the critics never read the policy
//! within an epoch, so they may lag behind it, and only learn from it how many passes there are. Every chain
//! has the same seeded order of minibatches and runs it alone, so the bits do not depend on the number of
//! threads.

use epo_core::{CostReading, Metric};
use epo_nn::{Adam, Dist, Policy, PolicyWorkspace, clip_grad_norm, prefetch_rows};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::critics::{CriticWork, Queue, critic_metrics, critic_report, jobs, shuffle};
use crate::{
    Agent, Algorithm, Batch, Epoch, Minibatch, Objective, RestoreError, UpdateError, UpdateReport, report,
};

/// Which divergence the KL stop reads. They agree to second order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlDirection {
    /// `KL(old ‖ new)`: OmniSafe, and EPO's released code.
    OldNew,
    /// `KL(new ‖ old)`: EPO's Algorithm 1.
    NewOld,
}

/// What all updates share. The defaults are OmniSafe's, with which the EPO paper compared, but for δ (`docs/results.md`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateConfig {
    /// Most passes over the batch. 40. The order of each is held for the epoch: 4 bytes per pass and sample.
    pub passes: usize,
    /// Samples in a minibatch. 64.
    pub batch: usize,
    /// Learning rate of the policy. 3e-4.
    pub lr: f64,
    /// Whether the policy's learning rate decays linearly to 0 over the run. True.
    pub lr_decay: bool,
    /// Learning rate of the critics, constant. 3e-4.
    pub critic_lr: f64,
    /// Weight of Σw² in a critic's loss. 0.001.
    pub critic_l2: f64,
    /// Largest norm of a gradient. 40.
    pub max_grad_norm: f64,
    /// Weight of the entropy bonus. 0.
    pub entropy: f64,
    /// δ: the passes stop when the KL divergence exceeds it. 0.006; OmniSafe has 0.02. The episode costs of a batch are noisy,
    /// and passes after the first few seem to learn mostly the noise.
    pub target_kl: f64,
    /// Whether they do. True.
    pub kl_stop: bool,
    /// Which divergence. `old-new`.
    pub kl_direction: KlDirection,
}

impl Default for UpdateConfig {
    fn default() -> Self {
        Self {
            passes: 40,
            batch: 64,
            lr: 3e-4,
            lr_decay: true,
            critic_lr: 3e-4,
            critic_l2: 1e-3,
            max_grad_norm: 40.0,
            entropy: 0.0,
            target_kl: 0.006,
            kl_stop: true,
            kl_direction: KlDirection::OldNew,
        }
    }
}

/// An objective in the shared loop.
#[derive(Debug)]
pub struct FirstOrder {
    /// What is minimised.
    pub objective: Box<dyn Objective>,
    config: UpdateConfig,
    streams: usize,
    actor: Option<ActorWork>,
    critics: Vec<CriticWork>,
    orders: Vec<Vec<u32>>,
}

impl FirstOrder {
    /// The loop around `objective`, which reads `streams` cost streams.
    pub fn new(objective: Box<dyn Objective>, config: UpdateConfig, streams: usize) -> Self {
        Self { objective, config, streams, actor: None, critics: Vec::new(), orders: Vec::new() }
    }
}

impl Algorithm for FirstOrder {
    fn update(
        &mut self,
        agent: &mut Agent,
        batch: &Batch,
        cost: CostReading,
        epoch: Epoch,
    ) -> Result<UpdateReport, UpdateError> {
        let Self { objective, config, actor, critics, orders, .. } = self;
        let config = &*config;
        let actor = actor.get_or_insert_with(|| ActorWork::new(agent, config.batch));
        let lr = if config.lr_decay { config.lr * epoch.remaining() } else { config.lr };
        objective.begin(cost);

        let Agent { policy, policy_adam, critic_r, critics_c, .. } = agent;
        shuffle(orders, config.passes.max(1), batch.len(), epoch);
        let orders = &orders[..];
        let queue = Queue::new(jobs(critic_r, critics_c, critics, batch, config.batch), orders, 1);
        let mut result = Ok(());
        rayon::scope(|scope| {
            // this thread takes the policy first, so nobody ever waits for a thread that is not there
            for _ in 1..rayon::current_num_threads().min(2 + batch.costs.len()) {
                scope.spawn(|_| queue.work(batch, config, epoch));
            }
            let open = queue.open();
            result =
                actor.run(&mut **objective, policy, policy_adam, batch, orders, config, epoch, lr, &queue);
            drop(open);
            queue.work(batch, config, epoch);
        });
        result?;
        queue.into_result()?;

        let mut values = actor.report(policy, lr);
        values.extend(critic_report(critics, batch));
        values.extend(objective.report());
        Ok(UpdateReport { values })
    }

    fn metrics(&self) -> Vec<Metric> {
        let own = self.objective.report().into_iter().map(|(m, _)| m);
        POLICY_METRICS.into_iter().chain(critic_metrics(self.streams)).chain(own).collect()
    }

    fn state(&self) -> Value {
        self.objective.state()
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.objective.restore(state)
    }
}

const POLICY_METRICS: [Metric; 7] =
    [report::KL, report::STOP_ITER, report::ENTROPY, report::RATIO, report::STD, report::LR, report::LOSS_PI];

/// Buffers of the policy's chain.
#[derive(Debug)]
struct ActorWork {
    ws: PolicyWorkspace,
    logp_old: Vec<f64>,
    adv_r: Vec<f64>,
    adv_c: Vec<Vec<f64>>,
    dlogp: Vec<f64>,
    grad: Vec<f32>,
    old: Dist,
    new: Dist,
    /// `ln π` of the whole batch before a pass.
    logp: Vec<f64>,
    passes: usize,
    loss: f64,
    kl: f64,
    ratio: f64,
}

impl ActorWork {
    fn new(agent: &Agent, minibatch: usize) -> Self {
        Self {
            ws: agent.policy.workspace(minibatch),
            logp_old: Vec::with_capacity(minibatch),
            adv_r: Vec::with_capacity(minibatch),
            adv_c: vec![Vec::with_capacity(minibatch); agent.streams.len()],
            dlogp: Vec::with_capacity(minibatch),
            grad: vec![0.0; agent.policy.params().len()],
            old: Dist::default(),
            new: Dist::default(),
            logp: Vec::new(),
            passes: 0,
            loss: 0.0,
            kl: 0.0,
            ratio: 1.0,
        }
    }

    /// All passes of the policy; allows the critics each pass that it begins.
    fn run(
        &mut self,
        objective: &mut dyn Objective,
        policy: &mut Policy,
        adam: &mut Adam,
        batch: &Batch,
        orders: &[Vec<u32>],
        config: &UpdateConfig,
        epoch: Epoch,
        lr: f64,
        queue: &Queue<'_>,
    ) -> Result<(), UpdateError> {
        let Batch { rollout, adv_r, adv_c, .. } = batch;
        policy.dist(&rollout.obs, &mut self.ws, &mut self.old);
        self.logp.clone_from(&rollout.logp);
        self.passes = 0;
        loop {
            objective.begin_pass(&Minibatch { logp: &self.logp, logp_old: &rollout.logp, adv_r, adv_c });
            self.pass(objective, policy, adam, batch, &orders[self.passes], config, epoch, lr)?;
            self.passes += 1;

            // the whole batch under the new policy: for the stop, and for the next pass
            let last = self.passes >= config.passes;
            if !(last || config.kl_stop || objective.reads_whole_batch()) {
                queue.allow();
                continue;
            }
            policy.dist(&rollout.obs, &mut self.ws, &mut self.new);
            self.new.log_prob(&rollout.action, &mut self.logp);
            self.kl = match config.kl_direction {
                KlDirection::OldNew => self.old.kl(&self.new),
                KlDirection::NewOld => self.new.kl(&self.old),
            };
            if last || config.kl_stop && self.kl > config.target_kl {
                let ratios = self.logp.iter().zip(&rollout.logp).map(|(new, old)| (new - old).exp());
                self.ratio = ratios.sum::<f64>() / batch.len() as f64;
                return Ok(());
            }
            queue.allow();
        }
    }

    /// One pass over the batch. A step with a non-finite loss or gradient is not taken.
    fn pass(
        &mut self,
        objective: &dyn Objective,
        policy: &mut Policy,
        adam: &mut Adam,
        batch: &Batch,
        order: &[u32],
        config: &UpdateConfig,
        epoch: Epoch,
        lr: f64,
    ) -> Result<(), UpdateError> {
        let mut sum = 0.0;
        let mut minibatches = order.chunks(config.batch).enumerate().peekable();
        while let Some((k, index)) = minibatches.next() {
            if let Some((_, next)) = minibatches.peek() {
                prefetch_rows(&batch.rollout.obs, policy.net().inputs(), next);
            }
            self.gather(batch, index);
            let logp = policy.log_prob(&mut self.ws);
            let mb = Minibatch { logp, logp_old: &self.logp_old, adv_r: &self.adv_r, adv_c: &self.adv_c };
            let loss = objective.loss(&mb, &mut self.dlogp);
            policy.backward(&mut self.ws, &self.dlogp, config.entropy, &mut self.grad);
            let norm = clip_grad_norm(&mut self.grad, config.max_grad_norm);
            for (what, value) in [("policy loss", loss), ("policy gradient", norm)] {
                if !value.is_finite() {
                    let place = format!("epoch {}, pass {}, minibatch {k}", epoch.index, self.passes);
                    return Err(UpdateError::NotFinite { what: what.into(), value, place });
                }
            }
            policy.update(|p| adam.step(p, &self.grad, lr));
            sum += loss * index.len() as f64;
        }
        self.loss = sum / batch.len() as f64;
        Ok(())
    }

    /// Loads the samples that `index` names.
    fn gather(&mut self, batch: &Batch, index: &[u32]) {
        fn pick(to: &mut Vec<f64>, from: &[f64], index: &[u32]) {
            to.clear();
            to.extend(index.iter().map(|&i| from[i as usize]));
        }
        self.ws.gather(&batch.rollout.obs, &batch.rollout.action, index);
        pick(&mut self.logp_old, &batch.rollout.logp, index);
        pick(&mut self.adv_r, &batch.adv_r, index);
        for (to, from) in self.adv_c.iter_mut().zip(&batch.adv_c) {
            pick(to, from, index);
        }
        self.dlogp.clear();
        self.dlogp.resize(index.len(), 0.0);
    }

    fn report(&self, policy: &Policy, lr: f64) -> Vec<(Metric, f64)> {
        let std = policy.std().iter().sum::<f64>() / policy.std().len().max(1) as f64;
        let values = [self.kl, self.passes as f64, self.new.entropy(), self.ratio, std, lr, self.loss];
        POLICY_METRICS.into_iter().zip(values).collect()
    }
}
