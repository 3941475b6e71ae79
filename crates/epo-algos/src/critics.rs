//! Training the critics: one pass of one critic, and the metrics that critics report.
//!
//! ```text
//! L_V = 1/n Σ (y(s_i) − target_i / unit)² + c Σ w²,   gradient norm ≤ max_grad_norm,   Adam
//! ```
//! y is the output of the network, so the value of a state is unit × y. c is `critic_l2`, and Σ w²
//! is over weights and biases. Source: OmniSafe (max_grad_norm = 40; its c of 0.001 refers to unit = 1). EPO's root
//! loss is the same square on its output `u`; see [`critic_loss`].

use epo_core::Metric;
use epo_nn::{Mlp, Workspace, add_l2_and_clip, narrow, prefetch_rows};

use crate::batch::mean;
use crate::context::UpdateContext;
use crate::{Batch, Critic, Estimate, UpdateError, report};

/// Buffers of one critic, reused from epoch to epoch.
#[derive(Debug)]
pub(crate) struct CriticBuffers {
    ws: Workspace,
    dout: Vec<f32>,
    grad: Vec<f32>,
    /// Mean loss of the last pass.
    pub(crate) loss: f64,
}

impl CriticBuffers {
    fn new(net: &Mlp, minibatch: usize) -> Self {
        let grad = vec![0.0; net.params().len()];
        Self { ws: net.workspace(minibatch), dout: Vec::with_capacity(minibatch), grad, loss: 0.0 }
    }
}

/// A critic with its targets, its buffers and the number of passes that it has made in this epoch.
#[derive(Debug)]
pub(crate) struct CriticJob<'a> {
    /// 0 is the reward critic; cost critics follow.
    pub(crate) index: usize,
    /// Number of passes made in this epoch.
    pub(crate) done: usize,
    critic: &'a mut Critic,
    buffers: &'a mut CriticBuffers,
    target: &'a [f64],
    /// Unit of the network's output.
    unit: f64,
}

/// All critics of an agent as jobs, the reward critic first.
pub(crate) fn critic_jobs<'a>(
    critic_r: &'a mut Critic,
    critics_c: &'a mut [Critic],
    buffers: &'a mut Vec<CriticBuffers>,
    context: &UpdateContext<'a>,
) -> Vec<CriticJob<'a>> {
    let critics: Vec<&mut Critic> = std::iter::once(critic_r).chain(critics_c).collect();
    buffers.resize_with(critics.len(), || CriticBuffers::new(&critics[0].net, context.config.minibatch));
    let estimates = std::iter::once(context.batch.reward).chain(context.batch.costs);
    let jobs = critics.into_iter().zip(buffers).zip(estimates).enumerate();
    let job = |(index, ((critic, buffers), estimate))| {
        let Estimate { target, unit, .. }: &Estimate = estimate;
        CriticJob { index, done: 0, critic, buffers, target, unit: *unit }
    };
    jobs.map(job).collect()
}

impl CriticBuffers {
    /// Returns the loss of the samples in `index` and the norm of its gradient, and leaves the clipped gradient in
    /// `self.grad`.
    fn gradient(
        &mut self,
        net: &Mlp,
        obs: &[f32],
        (target, unit): (&[f64], f64),
        index: &[u32],
        l2: f64,
        max_norm: f64,
    ) -> (f64, f64) {
        self.ws.gather(obs, index);
        let (scale, per_unit) = (1.0 / index.len() as f64, 1.0 / unit);
        let mut loss = 0.0;
        self.dout.clear();
        for (&v, &i) in net.forward(&mut self.ws).iter().zip(index) {
            let (value, slope) = critic_loss(target[i as usize] * per_unit, f64::from(v));
            loss += scale * value;
            self.dout.push(narrow(scale * slope));
        }
        net.backward(&mut self.ws, &self.dout, &mut self.grad);
        let (norm, penalty) = add_l2_and_clip(&mut self.grad, net.params(), l2, max_norm);
        (loss + penalty, norm)
    }
}

impl CriticJob<'_> {
    /// Makes the next pass over the batch. If a gradient is not finite, its step is not taken.
    ///
    /// # Errors
    /// If the gradient is not finite.
    pub(crate) fn pass(&mut self, context: &UpdateContext<'_>) -> Result<(), UpdateError> {
        let UpdateContext { batch, config, epoch, .. } = context;
        let Critic { net, adam } = &mut *self.critic;
        let (obs, l2, max_norm) = (&batch.rollout.obs, config.critic_l2, config.max_grad_norm);
        let mut sum = 0.0;
        let mut minibatches = context.minibatches(self.done).enumerate().peekable();
        while let Some((k, index)) = minibatches.next() {
            if let Some((_, next)) = minibatches.peek() {
                prefetch_rows(obs, net.inputs(), next);
            }
            let (loss, norm) = self.buffers.gradient(net, obs, (self.target, self.unit), index, l2, max_norm);
            if !norm.is_finite() {
                let what = if self.index == 0 {
                    "gradient of the reward critic"
                } else {
                    "gradient of a cost critic"
                };
                let place = format!(
                    "critic {}, epoch {}, pass {}, minibatch {k}",
                    self.index, epoch.index, self.done
                );
                return Err(UpdateError::NotFinite { what: what.into(), value: norm, place });
            }
            net.update(|p| adam.step(p, &self.buffers.grad, config.critic_lr));
            sum += loss * index.len() as f64;
        }
        self.buffers.loss = sum / batch.len() as f64;
        self.done += 1;
        Ok(())
    }
}

/// The losses and values of the critics.
pub(crate) fn critic_report(critics: &[CriticBuffers], batch: &Batch<'_>) -> Vec<(Metric, f64)> {
    let estimates = std::iter::once(batch.reward).chain(batch.costs);
    let mut out = vec![(report::ADV, batch.adv_mean)];
    for (critic, (metrics, e)) in critics.iter().zip(METRICS.iter().zip(estimates)) {
        out.push((metrics.0, critic.loss));
        if let Some([value, explained]) = metrics.1 {
            out.extend([(value, mean(&e.value)), (explained, explained_variance(&e.value, &e.target))]);
        }
    }
    out
}

/// Returns `1 − Var(target − value) / Var(target)`: 1 is perfect, 0 is no better than a constant. If all targets are
/// equal, it returns 0.
fn explained_variance(value: &[f64], target: &[f64]) -> f64 {
    let error: Vec<f64> = target.iter().zip(value).map(|(t, v)| t - v).collect();
    let variance = |x: &[f64]| {
        let m = mean(x);
        x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / x.len() as f64
    };
    let all = variance(target);
    if all > 0.0 { 1.0 - variance(&error) / all } else { 0.0 }
}

/// Loss of a critic at one sample, `(y − t)²`, and its derivative with respect to the output `y`.
///
/// For V_N, `y = V_N` and `t = T_N`. For V_F, `y = u` with `V_F = u²`, and `t = √T_F ≥ 0`. For
/// `u ≥ 0` this is the paper's loss `T_F + V_F − 2√(T_F V_F)`. The derivative of that form with
/// respect to V_F, `1 − √(T_F/V_F)`, is −∞ for `V_F → 0` and NaN for `V_F < 0`.
///
/// For `u < 0` the paper's loss has a second, mirrored minimum. The square has no such minimum: it
/// moves `u` towards `t`, so `u` has the same sign in all states.
pub(crate) fn critic_loss(target: f64, output: f64) -> (f64, f64) {
    let error = output - target;
    (error * error, 2.0 * error)
}

/// The metrics of [`critic_report`] with `cost_critics` cost critics.
pub(crate) fn critic_metrics(cost_critics: usize) -> Vec<Metric> {
    let each = METRICS[..=cost_critics]
        .iter()
        .flat_map(|(loss, value)| std::iter::once(*loss).chain(value.iter().flatten().copied()));
    std::iter::once(report::ADV).chain(each).collect()
}

const METRICS: [(Metric, Option<[Metric; 2]>); 3] = [
    (report::LOSS_R, Some([report::VALUE_R, report::EXPLAINED_R])),
    (report::LOSS_C, Some([report::VALUE_C, report::EXPLAINED_C])),
    (report::LOSS_C_FAR, None),
];

#[cfg(test)]
mod tests {
    use epo_core::{Purpose, Stream};

    use super::*;

    #[test]
    fn explained_variance_by_hand() {
        let target = [1.0, 3.0, 5.0];
        assert_eq!(explained_variance(&target, &target), 1.0);
        assert_eq!(explained_variance(&[7.0; 3], &target), 0.0, "a constant explains no variance");
        // errors −1, 0, 1: 1 − (2/3)/(8/3)
        assert!((explained_variance(&[2.0, 3.0, 4.0], &target) - 0.75).abs() < 1e-15);
        assert!(explained_variance(&[5.0, 3.0, 1.0], &target) < 0.0, "worse than a constant");
        assert_eq!(explained_variance(&[1.0, 2.0], &[4.0, 4.0]), 0.0);
    }

    #[test]
    fn the_loss_by_hand_and_its_gradient() {
        // V(x) = 2x + 1 at x = 1, 3 against 2, 8 (the minibatch leaves out the sample in between), c = 0.1:
        // errors 1 and −1: MSE 1, plus 0.1 (4 + 1) = 1.5;  ∂w = (2·1·1 − 2·1·3)/2 + 0.4 = −1.6,  ∂b = 0 + 0.2
        let mut net = Mlp::new(&[1, 1], &mut Stream::new(0, Purpose::Init, 0));
        net.set_params(&[2.0, 1.0]);
        let mut work = CriticBuffers::new(&net, 2);
        let (loss, norm) =
            work.gradient(&net, &[1.0, 50.0, 3.0], (&[2.0, 0.0, 8.0], 1.0), &[0, 2], 0.1, 40.0);
        assert!((loss - 1.5).abs() < 1e-7, "{loss}");
        assert!((norm - (1.6_f64 * 1.6 + 0.04).sqrt()).abs() < 1e-6, "{norm}");
        assert!((work.grad[0] + 1.6).abs() < 1e-6 && (work.grad[1] - 0.2).abs() < 1e-6, "{:?}", work.grad);
    }
}
