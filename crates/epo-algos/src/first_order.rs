//! The update loop that every first-order method shares: passes over shuffled minibatches, Adam, a KL stop.
//!
//! ```text
//! repeat ≤ passes:  for each minibatch: critics step on MSE + c Σw²;  policy steps on the objective's loss − c_H H
//!                   stop if KL over the whole batch > δ
//! ```
//! c is `critic_l2`, c_H is `entropy`, H is the mean entropy of the policy and δ is `target_kl`.
//! Source: OmniSafe's on-policy loop. Policy and critics are trained independently, each in the
//! same seeded order of minibatches. The critics make as many passes as the policy. `schedule.rs`
//! distributes the passes over threads.

use epo_core::{CostReading, Metric, TaskFamily};
use epo_nn::{Adam, Dist, Policy, PolicyWorkspace, clip_grad_norm, prefetch_rows};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{not_negative, positive, require};
use crate::context::{Shuffles, UpdateContext};
use crate::critics::{CriticBuffers, critic_jobs, critic_metrics, critic_report};
use crate::schedule::{Passes, train_beside};
use crate::{
    Agent, Algorithm, Batch, Epoch, Minibatch, Objective, RestoreError, UpdateError, UpdateReport, report,
};

/// The divergence that the KL stop reads. The two agree to second order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlDirection {
    /// `KL(old ‖ new)`, as in OmniSafe and in EPO's released code.
    OldNew,
    /// `KL(new ‖ old)`, as in EPO's Algorithm 1.
    NewOld,
}

epo_core::parameters! {
    /// Settings that all updates share.
    ///
    /// The defaults are those of OmniSafe, the implementation that the EPO paper compares with, except for
    /// `passes`, `target_kl` and `critic_l2` (`docs/algorithms.md`).
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct UpdateConfig {
        /// Maximum number of passes over the batch per epoch. Late passes overfit the noise of the
        /// costs in the batch.
        pub passes: usize = 4,
        /// Number of samples in a minibatch.
        pub minibatch: usize = 64,
        /// Learning rate of the policy.
        pub lr: f64 = 3e-4,
        /// Decay the learning rate of the policy linearly to 0 over the run.
        pub lr_decay: bool = true,
        /// Learning rate of the critics, constant.
        pub critic_lr: f64 = 3e-4,
        /// Weight of the L2 penalty Σw² in the loss of a critic, whose targets are about 1 in size. OmniSafe's 0.001
        /// refers to targets in units of the task; here it would flatten the critics.
        pub critic_l2: f64 = 0.0,
        /// Upper bound on the norm of a gradient.
        pub max_grad_norm: f64 = 40.0,
        /// Weight of the entropy bonus in the loss of the policy. A larger weight keeps the policy more random.
        pub entropy: f64 = 0.0,
        /// Upper bound δ on the KL divergence of an epoch, in nat; see `kl_stop`.
        pub target_kl: f64 = 0.01,
        /// Stop the passes of an epoch once the KL divergence exceeds `target_kl`.
        pub kl_stop: bool = true,
        /// Divergence of the KL stop: `old-new` for KL(old ‖ new), `new-old` for KL(new ‖ old).
        pub kl_direction: KlDirection = KlDirection::OldNew,
    }
}

impl UpdateConfig {
    /// The default settings for a family of tasks (the preset).
    ///
    /// The cost of a velocity task varies less between episodes, so late passes learn less noise there
    /// (`docs/notebook.md`).
    pub fn preset(family: TaskFamily) -> Self {
        match family {
            TaskFamily::Navigation => Self::default(),
            TaskFamily::Velocity => Self { passes: 10, target_kl: 0.02, ..Self::default() },
        }
    }

    /// Returns an error if a setting is invalid.
    ///
    /// # Errors
    /// The error names the key.
    pub fn check(&self) -> Result<(), UpdateError> {
        positive(&[
            ("train.passes", self.passes as f64),
            ("train.minibatch", self.minibatch as f64),
            ("train.max_grad_norm", self.max_grad_norm),
        ])?;
        not_negative(&[
            ("train.lr", self.lr),
            ("train.critic_lr", self.critic_lr),
            ("train.critic_l2", self.critic_l2),
            ("train.target_kl", self.target_kl),
        ])?;
        require(&[("train.entropy", self.entropy)], |_| true, "must be a finite number")
    }
}

/// The update of a first-order method: an objective in the shared loop.
#[derive(Debug)]
pub struct FirstOrder {
    /// The objective to minimise.
    pub objective: Box<dyn Objective>,
    config: UpdateConfig,
    cost_critics: usize,
    actor: Option<ActorBuffers>,
    critics: Vec<CriticBuffers>,
    shuffles: Shuffles,
}

impl FirstOrder {
    /// The loop around `objective`, which reads the advantages of `cost_critics` cost critics.
    pub fn new(objective: Box<dyn Objective>, config: UpdateConfig, cost_critics: usize) -> Self {
        let (actor, critics, shuffles) = Default::default();
        Self { objective, config, cost_critics, actor, critics, shuffles }
    }
}

impl Algorithm for FirstOrder {
    fn update(
        &mut self,
        agent: &mut Agent,
        batch: &Batch<'_>,
        cost: CostReading,
        epoch: Epoch,
    ) -> Result<UpdateReport, UpdateError> {
        let Self { objective, config, actor, critics, shuffles, .. } = self;
        let buffers = actor.get_or_insert_with(|| ActorBuffers::new(agent, config.minibatch));
        let lr = if config.lr_decay { config.lr * epoch.remaining() } else { config.lr };
        objective.begin(cost);

        let Agent { policy, policy_adam: adam, critic_r, critics_c, .. } = agent;
        let context = shuffles.context(batch, config, epoch);
        let jobs = critic_jobs(critic_r, critics_c, critics, &context);
        let mut actor = Actor { objective: &mut **objective, policy, adam, lr, buffers };
        train_beside(jobs, &context, |passes| actor.train(&context, passes))?;

        let mut values = actor.report();
        values.extend(critic_report(critics, batch));
        values.extend(objective.report());
        Ok(UpdateReport { values })
    }

    fn metrics(&self) -> Vec<Metric> {
        let own = self.objective.report().into_iter().map(|(m, _)| m);
        POLICY_METRICS.into_iter().chain(critic_metrics(self.cost_critics)).chain(own).collect()
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

/// Buffers and results of the policy's passes, reused from epoch to epoch.
#[derive(Debug)]
struct ActorBuffers {
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
    /// Number of passes made in this epoch.
    passes: usize,
    loss: f64,
    kl: f64,
    ratio: f64,
}

impl ActorBuffers {
    fn new(agent: &Agent, minibatch: usize) -> Self {
        Self {
            ws: agent.policy.workspace(minibatch),
            logp_old: Vec::with_capacity(minibatch),
            adv_r: Vec::with_capacity(minibatch),
            adv_c: vec![Vec::with_capacity(minibatch); agent.cost_kinds.len()],
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

    /// Loads the samples in `index`.
    fn gather(&mut self, batch: &Batch<'_>, index: &[u32]) {
        fn pick(to: &mut Vec<f64>, from: &[f64], index: &[u32]) {
            to.clear();
            to.extend(index.iter().map(|&i| from[i as usize]));
        }
        self.ws.gather(&batch.rollout.obs, &batch.rollout.action, index);
        pick(&mut self.logp_old, &batch.rollout.logp, index);
        pick(&mut self.adv_r, batch.adv_r, index);
        for (to, from) in self.adv_c.iter_mut().zip(batch.adv_c) {
            pick(to, from, index);
        }
        self.dlogp.clear();
        self.dlogp.resize(index.len(), 0.0);
    }
}

/// The policy in an update: its parameters, its optimiser and its objective.
struct Actor<'a> {
    objective: &'a mut dyn Objective,
    policy: &'a mut Policy,
    adam: &'a mut Adam,
    /// Learning rate of this epoch.
    lr: f64,
    buffers: &'a mut ActorBuffers,
}

impl Actor<'_> {
    /// Makes all passes of the policy, and announces each pass after the first to the critics.
    fn train(&mut self, context: &UpdateContext<'_>, passes: &Passes<'_, '_>) -> Result<(), UpdateError> {
        let UpdateContext { batch: &Batch { rollout, adv_r, adv_c, .. }, config, .. } = *context;
        self.policy.dist(&rollout.obs, &mut self.buffers.ws, &mut self.buffers.old);
        self.buffers.logp.clone_from(&rollout.logp);
        self.buffers.passes = 0;
        loop {
            let logp = &self.buffers.logp;
            self.objective.begin_pass(&Minibatch { logp, logp_old: &rollout.logp, adv_r, adv_c });
            self.pass(context)?;
            self.buffers.passes += 1;

            // evaluate the whole batch under the new policy, for the KL stop and for the next pass
            let last = self.buffers.passes >= config.passes;
            if !(last || config.kl_stop || self.objective.reads_current_logp()) {
                passes.announce();
                continue;
            }
            let ActorBuffers { ws, old, new, logp, kl, ratio, .. } = &mut *self.buffers;
            self.policy.dist(&rollout.obs, ws, new);
            new.log_prob(&rollout.action, logp);
            *kl = match self.objective.kl_direction().unwrap_or(config.kl_direction) {
                KlDirection::OldNew => old.kl(new),
                KlDirection::NewOld => new.kl(old),
            };
            if last || config.kl_stop && *kl > config.target_kl {
                let ratios = logp.iter().zip(&rollout.logp).map(|(new, old)| (new - old).exp());
                *ratio = ratios.sum::<f64>() / rollout.len() as f64;
                return Ok(());
            }
            passes.announce();
        }
    }

    /// Makes one pass over the batch. If a loss or a gradient is not finite, its step is not taken.
    fn pass(&mut self, context: &UpdateContext<'_>) -> Result<(), UpdateError> {
        let UpdateContext { batch, config, epoch, .. } = context;
        let Self { objective, policy, adam, lr, buffers } = self;
        let mut sum = 0.0;
        let mut minibatches = context.minibatches(buffers.passes).enumerate().peekable();
        while let Some((k, index)) = minibatches.next() {
            if let Some((_, next)) = minibatches.peek() {
                prefetch_rows(&batch.rollout.obs, policy.net().inputs(), next);
            }
            buffers.gather(batch, index);
            let ActorBuffers { ws, logp_old, adv_r, adv_c, dlogp, grad, .. } = &mut **buffers;
            let mb = Minibatch { logp: policy.log_prob(ws), logp_old, adv_r, adv_c };
            let loss = objective.loss(&mb, dlogp);
            policy.backward(ws, dlogp, config.entropy, grad);
            let norm = clip_grad_norm(grad, config.max_grad_norm);
            for (what, value) in [("policy loss", loss), ("policy gradient", norm)] {
                if !value.is_finite() {
                    let place = format!("epoch {}, pass {}, minibatch {k}", epoch.index, buffers.passes);
                    return Err(UpdateError::NotFinite { what: what.into(), value, place });
                }
            }
            policy.update(|p| adam.step(p, grad, *lr));
            sum += loss * index.len() as f64;
        }
        buffers.loss = sum / batch.len() as f64;
        Ok(())
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        let (std, b) = (self.policy.std(), &self.buffers);
        let std = std.iter().sum::<f64>() / std.len().max(1) as f64;
        let values = [b.kl, b.passes as f64, b.new.entropy(), b.ratio, std, self.lr, b.loss];
        POLICY_METRICS.into_iter().zip(values).collect()
    }
}
