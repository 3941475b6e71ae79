//! Training the critics: one pass of one critic, and the queue that lets any thread take the next pass.
//!
//! ```text
//! L_V = 1/n Σ (V(s_i) − target_i)² + c Σ w²,   gradient norm ≤ 40,   Adam
//! ```
//! Source: OmniSafe (c = 0.001 over weights and biases). EPO's root loss is the same square on its output
//! `u`, see [`crate::pmn::critic_loss`].

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use epo_core::{Metric, Purpose, Stream};
use epo_nn::{Mlp, Workspace, add_l2_and_clip, narrow, prefetch_rows};
use rayon::prelude::*;

use crate::batch::mean;
use crate::pmn::critic_loss;
use crate::{Batch, Critic, Epoch, UpdateConfig, UpdateError, report};

/// Buffers of one critic.
#[derive(Debug)]
pub(crate) struct CriticWork {
    ws: Workspace,
    dout: Vec<f32>,
    grad: Vec<f32>,
    /// Mean loss of the last pass.
    pub(crate) loss: f64,
}

impl CriticWork {
    pub(crate) fn new(net: &Mlp, minibatch: usize) -> Self {
        let grad = vec![0.0; net.params().len()];
        Self { ws: net.workspace(minibatch), dout: Vec::with_capacity(minibatch), grad, loss: 0.0 }
    }
}

/// A critic with what it learns from, and the passes it has made in this epoch.
#[derive(Debug)]
pub(crate) struct CriticJob<'a> {
    pub(crate) index: usize,
    pub(crate) critic: &'a mut Critic,
    pub(crate) work: &'a mut CriticWork,
    pub(crate) target: &'a [f64],
    pub(crate) done: usize,
}

/// All critics of an agent as jobs, reward first.
pub(crate) fn jobs<'a>(
    critic_r: &'a mut Critic,
    critics_c: &'a mut [Critic],
    works: &'a mut Vec<CriticWork>,
    batch: &'a Batch,
    minibatch: usize,
) -> Vec<CriticJob<'a>> {
    let critics: Vec<&mut Critic> = std::iter::once(critic_r).chain(critics_c).collect();
    works.resize_with(critics.len(), || CriticWork::new(&critics[0].net, minibatch));
    let targets = std::iter::once(&batch.reward).chain(&batch.costs).map(|e| &e.target[..]);
    let jobs = critics.into_iter().zip(works).zip(targets).enumerate();
    jobs.map(|(index, ((critic, work), target))| CriticJob { index, critic, work, target, done: 0 }).collect()
}

/// The order of the samples in each pass: a pure function of seed, epoch and pass. All networks share it.
pub(crate) fn shuffle(orders: &mut Vec<Vec<u32>>, passes: usize, samples: usize, epoch: Epoch) {
    orders.resize_with(passes, Vec::new);
    orders.par_iter_mut().enumerate().for_each(|(pass, order)| {
        order.clear();
        order.extend(0..samples as u32);
        Stream::at(epoch.seed, Purpose::Shuffle, epoch.index, (pass as u64) << 32).shuffle(order);
    });
}

impl CriticWork {
    /// Loss of the samples that `index` names, and the norm of its gradient. That, clipped, is in `self.grad`.
    fn gradient(
        &mut self,
        net: &Mlp,
        obs: &[f32],
        target: &[f64],
        index: &[u32],
        l2: f64,
        max_norm: f64,
    ) -> (f64, f64) {
        self.ws.gather(obs, index);
        let scale = 1.0 / index.len() as f64;
        let mut loss = 0.0;
        self.dout.clear();
        for (&v, &i) in net.forward(&mut self.ws).iter().zip(index) {
            let (value, slope) = critic_loss(target[i as usize], f64::from(v));
            loss += scale * value;
            self.dout.push(narrow(scale * slope));
        }
        net.backward(&mut self.ws, &self.dout, &mut self.grad);
        let (norm, penalty) = add_l2_and_clip(&mut self.grad, net.params(), l2, max_norm);
        (loss + penalty, norm)
    }
}

impl CriticJob<'_> {
    /// One pass over the batch in this order. A step with a non-finite gradient is not taken.
    fn pass(
        &mut self,
        order: &[u32],
        batch: &Batch,
        config: &UpdateConfig,
        epoch: Epoch,
    ) -> Result<(), UpdateError> {
        let Critic { net, adam } = &mut *self.critic;
        let (obs, l2, max_norm) = (&batch.rollout.obs, config.critic_l2, config.max_grad_norm);
        let mut sum = 0.0;
        let mut minibatches = order.chunks(config.batch).enumerate().peekable();
        while let Some((k, index)) = minibatches.next() {
            if let Some((_, next)) = minibatches.peek() {
                prefetch_rows(obs, net.inputs(), next);
            }
            let (loss, norm) = self.work.gradient(net, obs, self.target, index, l2, max_norm);
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
            net.update(|p| adam.step(p, &self.work.grad, config.critic_lr));
            sum += loss * index.len() as f64;
        }
        self.work.loss = sum / batch.len() as f64;
        self.done += 1;
        Ok(())
    }
}

/// Passes to be made, and the critics that nobody is working on.
///
/// A critic may make pass `p` as soon as it is known that there is a pass `p`. Critics make their passes one
/// after another, whichever thread takes them, so the outcome does not depend on who does.
#[derive(Debug)]
pub(crate) struct Queue<'a> {
    state: Mutex<QueueState<'a>>,
    orders: &'a [Vec<u32>],
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState<'a> {
    idle: Vec<CriticJob<'a>>,
    allowed: usize,
    closed: bool,
    /// The failure of the critic with the lowest index.
    failed: Option<(usize, UpdateError)>,
}

/// See [`Queue::open`].
pub(crate) struct Open<'q, 'a>(&'q Queue<'a>);

impl Drop for Open<'_, '_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<'a> Queue<'a> {
    /// With `allowed` passes known, of those that `orders` has.
    pub(crate) fn new(jobs: Vec<CriticJob<'a>>, orders: &'a [Vec<u32>], allowed: usize) -> Self {
        let state = QueueState { idle: jobs, allowed, closed: false, failed: None };
        Self { state: Mutex::new(state), orders, changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // a panic elsewhere surfaces through rayon
    }

    /// One pass more is to be made.
    pub(crate) fn allow(&self) {
        self.lock().allowed += 1;
        self.changed.notify_all();
    }

    /// No further pass will be allowed.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Closes the queue when it is dropped, be it by a panic: nobody waits for a policy that is gone.
    pub(crate) fn open(&self) -> Open<'_, 'a> {
        Open(self)
    }

    /// Makes passes until none is left and none will come.
    pub(crate) fn work(&self, batch: &Batch, config: &UpdateConfig, epoch: Epoch) {
        let mut state = self.lock();
        loop {
            // the critic that is furthest behind
            let open = |job: &CriticJob<'_>| job.done < state.allowed;
            let next = (0..state.idle.len())
                .filter(|&j| open(&state.idle[j]))
                .min_by_key(|&j| (state.idle[j].done, state.idle[j].index));
            if let Some(j) = next {
                let mut job = state.idle.swap_remove(j);
                drop(state);
                let result = job.pass(&self.orders[job.done], batch, config, epoch);
                state = self.lock();
                match result {
                    Ok(()) => state.idle.push(job),
                    Err(e) if state.failed.as_ref().is_none_or(|(i, _)| job.index < *i) => {
                        state.failed = Some((job.index, e))
                    }
                    Err(_) => {}
                }
                self.changed.notify_all();
            } else if state.closed {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// After all work: the first failure, if any.
    pub(crate) fn into_result(self) -> Result<(), UpdateError> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failed.map_or(Ok(()), |(_, e)| Err(e))
    }
}

/// Trains the critics for `config.passes` passes, on as many threads as there are.
pub(crate) fn train(
    jobs: Vec<CriticJob<'_>>,
    batch: &Batch,
    config: &UpdateConfig,
    epoch: Epoch,
) -> Result<(), UpdateError> {
    let n = jobs.len();
    let mut orders = Vec::new();
    shuffle(&mut orders, config.passes, batch.len(), epoch);
    let queue = Queue::new(jobs, &orders, config.passes);
    queue.close();
    rayon::scope(|scope| {
        for _ in 0..n {
            scope.spawn(|_| queue.work(batch, config, epoch));
        }
    });
    queue.into_result()
}

/// Losses and values of the critics: metrics and what they were.
pub(crate) fn critic_report(works: &[CriticWork], batch: &Batch) -> Vec<(Metric, f64)> {
    let estimates = std::iter::once(&batch.reward).chain(&batch.costs);
    let mut out = vec![(report::ADV, batch.adv_mean)];
    for (work, (metrics, e)) in works.iter().zip(METRICS.iter().zip(estimates)) {
        out.push((metrics.0, work.loss));
        if let Some([value, explained]) = metrics.1 {
            out.extend([(value, mean(&e.value)), (explained, explained_variance(&e.value, &e.target))]);
        }
    }
    out
}

/// `1 − Var(target − value) / Var(target)`: 1 is perfect, 0 no better than a constant. 0 if the targets are all alike.
fn explained_variance(value: &[f64], target: &[f64]) -> f64 {
    let error: Vec<f64> = target.iter().zip(value).map(|(t, v)| t - v).collect();
    let variance = |x: &[f64]| {
        let m = mean(x);
        x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / x.len() as f64
    };
    let all = variance(target);
    if all > 0.0 { 1.0 - variance(&error) / all } else { 0.0 }
}

/// The metrics of [`critic_report`] with `streams` cost critics.
pub(crate) fn critic_metrics(streams: usize) -> Vec<Metric> {
    let each = METRICS[..=streams]
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
    use super::*;

    #[test]
    fn explained_variance_by_hand() {
        let target = [1.0, 3.0, 5.0];
        assert_eq!(explained_variance(&target, &target), 1.0);
        assert_eq!(
            explained_variance(&[7.0; 3], &target),
            0.0,
            "a constant explains nothing, whatever its value"
        );
        // errors −1, 0, 1: 1 − (2/3)/(8/3)
        assert!((explained_variance(&[2.0, 3.0, 4.0], &target) - 0.75).abs() < 1e-15);
        assert!(explained_variance(&[5.0, 3.0, 1.0], &target) < 0.0, "worse than a constant");
        assert_eq!(explained_variance(&[1.0, 2.0], &[4.0, 4.0]), 0.0);
    }

    #[test]
    fn the_loss_by_hand_and_its_gradient() {
        // V(x) = 2x + 1 at x = 1, 3 against 2, 8 (the sample in between is not named), c = 0.1:
        // errors 1 and −1: MSE 1, plus 0.1 (4 + 1) = 1.5;  ∂w = (2·1·1 − 2·1·3)/2 + 0.4 = −1.6,  ∂b = 0 + 0.2
        let mut net = Mlp::new(&[1, 1], &mut Stream::new(0, Purpose::Init, 0));
        net.set_params(&[2.0, 1.0]);
        let mut work = CriticWork::new(&net, 2);
        let (loss, norm) = work.gradient(&net, &[1.0, 50.0, 3.0], &[2.0, 0.0, 8.0], &[0, 2], 0.1, 40.0);
        assert!((loss - 1.5).abs() < 1e-7, "{loss}");
        assert!((norm - (1.6_f64 * 1.6 + 0.04).sqrt()).abs() < 1e-6, "{norm}");
        assert!((work.grad[0] + 1.6).abs() < 1e-6 && (work.grad[1] - 0.2).abs() < 1e-6, "{:?}", work.grad);
    }

    #[test]
    fn every_pass_and_epoch_has_an_order_of_its_own() {
        let order = |index, pass| {
            let mut orders = Vec::new();
            shuffle(&mut orders, 2, 50, Epoch { index, total: 9, seed: 1 });
            orders.swap_remove(pass)
        };
        let (a, b, c) = (order(0, 0), order(0, 1), order(1, 0));
        assert!(a != b && a != c && b != c && a == order(0, 0));
        let mut sorted = a;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
