//! Tools of trust-region methods over the whole batch: surrogate gradients, Fisher products, conjugate gradient and line
//! search.
//!
//! The batch is divided into pieces of a fixed size. Each piece keeps the activations of one forward pass. Sums run
//! over the pieces in order, so the result does not depend on the number of threads.

use std::ops::Range;

use epo_nn::{CgScratch, Dist, Policy, PolicyWorkspace, conjugate_gradient};
use rayon::prelude::*;

use crate::{Batch, CostClip, Minibatch, Rollout, UpdateError, cost_surrogate};

/// Number of samples in a piece.
const PIECE: usize = 2048;

/// Buffers of a trust-region step, reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct TrustRegion {
    pieces: Vec<Piece>,
    cg: CgScratch,
    old: Dist,
    new: Dist,
    logp: Vec<f64>,
    ws: Option<PolicyWorkspace>,
}

#[derive(Debug)]
struct Piece {
    rows: Range<usize>,
    ws: PolicyWorkspace,
    dlogp: Vec<f64>,
    grad: Vec<f32>,
    product: Vec<f64>,
}

/// A policy compared with the one that acted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Reward surrogate `E[ρ A_r]`.
    pub(crate) surr_r: f64,
    /// Cost surrogate `E[ρ A_c]`.
    pub(crate) surr_c: f64,
    /// `KL(old ‖ new)`, summed over action dimensions, mean over states.
    pub(crate) kl: f64,
    /// Mean probability ratio ρ.
    pub(crate) ratio: f64,
}

impl TrustRegion {
    /// Makes `policy` the centre of the region: runs it over the batch and keeps the activations.
    pub(crate) fn centre(&mut self, policy: &Policy, batch: &Batch<'_>) {
        let (n, params) = (batch.len(), policy.params().len());
        if self.pieces.last().is_none_or(|p| p.rows.end != n) {
            let piece = |start: usize| {
                let rows = start..(start + PIECE).min(n);
                let ws = policy.workspace(rows.len());
                Piece {
                    dlogp: vec![0.0; rows.len()],
                    grad: vec![0.0; params],
                    product: vec![0.0; params],
                    ws,
                    rows,
                }
            };
            self.pieces = (0..n).step_by(PIECE).map(piece).collect();
        }
        let (obs, act) = (batch.rollout.obs.len() / n, batch.rollout.action.len() / n);
        let Rollout { obs: all_obs, action, .. } = batch.rollout;
        self.pieces.par_iter_mut().for_each(|p| {
            let Range { start, end } = p.rows;
            p.ws.load(&all_obs[start * obs..end * obs], &action[start * act..end * act]);
            policy.log_prob(&mut p.ws);
        });
        let ws = self.ws.get_or_insert_with(|| policy.workspace(256));
        policy.dist(&batch.rollout.obs, ws, &mut self.old);
        self.logp.resize(n, 0.0);
    }

    /// Writes `∇_θ E[ρ A]` at the centre, where ρ = 1.
    pub(crate) fn gradient(&mut self, policy: &Policy, adv: &[f64], out: &mut [f64]) {
        let scale = 1.0 / adv.len() as f64;
        self.pieces.par_iter_mut().for_each(|p| {
            p.dlogp.iter_mut().zip(&adv[p.rows.clone()]).for_each(|(d, a)| *d = a * scale);
            policy.backward(&mut p.ws, &p.dlogp, 0.0, &mut p.grad);
        });
        out.fill(0.0);
        for p in &self.pieces {
            out.iter_mut().zip(&p.grad).for_each(|(o, g)| *o += f64::from(*g));
        }
    }

    /// Writes `x ≈ (H + damping I)⁻¹ b`, where H is the Fisher matrix at the centre. Returns the
    /// relative residual `‖b − (H + damping I) x‖ / ‖b‖`.
    pub(crate) fn solve(
        &mut self,
        policy: &Policy,
        b: &[f64],
        x: &mut [f64],
        iters: usize,
        damping: f64,
    ) -> Result<f64, UpdateError> {
        let Self { pieces, cg, .. } = self;
        let n: usize = pieces.iter().map(|p| p.rows.len()).sum();
        let product = |v: &[f64], out: &mut [f64]| {
            pieces
                .par_iter_mut()
                .for_each(|p| policy.fisher_vector_product(&mut p.ws, v, 0.0, &mut p.product));
            out.iter_mut().zip(v).for_each(|(o, v)| *o = damping * v);
            for p in &*pieces {
                let share = p.rows.len() as f64 / n as f64;
                out.iter_mut().zip(&p.product).for_each(|(o, hv)| *o += share * hv);
            }
        };
        let info =
            conjugate_gradient(product, b, x, iters, 1e-10, cg).map_err(|e| UpdateError::NotFinite {
                what: "curvature of the policy".into(),
                value: e.curvature,
                place: "conjugate gradient".into(),
            })?;
        let norm = dot(b, b).sqrt();
        Ok(if norm > 0.0 { info.residual / norm } else { 0.0 })
    }

    /// Compares `policy` with the centre.
    pub(crate) fn trial(&mut self, policy: &Policy, batch: &Batch<'_>) -> Candidate {
        let ws = self.ws.get_or_insert_with(|| policy.workspace(256));
        policy.dist(&batch.rollout.obs, ws, &mut self.new);
        self.new.log_prob(&batch.rollout.action, &mut self.logp);
        let (adv_r, adv_c) = (batch.adv_r, batch.adv_c);
        let whole = Minibatch { logp: &self.logp, logp_old: &batch.rollout.logp, adv_r, adv_c };
        let mean = |adv: &dyn Fn(usize) -> f64| cost_surrogate(&whole, CostClip::None, 0.0, adv);
        let (surr_r, surr_c) = (mean(&|i| adv_r[i]), mean(&|i| adv_c[0][i]));
        Candidate { surr_r, surr_c, kl: self.old.kl(&self.new), ratio: mean(&|_| 1.0) }
    }

    /// Mean entropy of the policy that was measured last.
    pub(crate) fn entropy(&self) -> f64 {
        self.new.entropy()
    }

    /// Tries `θ + decay^j · step` for `j = 0, 1, …`. Keeps the first candidate that `accept`
    /// accepts, and returns its number, counted from 1. If there is none, it restores θ and returns
    /// 0.
    pub(crate) fn line_search(
        &mut self,
        policy: &mut Policy,
        batch: &Batch<'_>,
        step: &[f64],
        decay: f64,
        trials: usize,
        accept: impl Fn(Candidate) -> bool,
    ) -> usize {
        let start = policy.params().to_vec();
        let mut fraction = 1.0;
        for trial in 1..=trials {
            policy.update(|p| {
                for ((p, &s), d) in p.iter_mut().zip(&start).zip(step) {
                    *p = (f64::from(s) + fraction * d) as f32;
                }
            });
            // a comparison with a KL that is not finite is false, so such a step is rejected and a
            // shorter one is tried
            if accept(self.trial(policy, batch)) {
                return trial;
            }
            fraction *= decay;
        }
        policy.set_params(&start);
        0
    }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Estimate, Rollout};
    use epo_core::{ActionSpace, Outcome, Purpose, Step, Stream};

    /// A Gaussian policy, a rollout, and random advantages of reward and cost.
    fn sample(n: usize) -> (Policy, Rollout, [Vec<f64>; 2]) {
        let mut stream = Stream::new(4, Purpose::Random, 0);
        let policy = Policy::new(3, &[8], &ActionSpace::symmetric(2), &mut stream);
        let mut rollout = Rollout::new(1, n, 3, 2);
        let (mut ws, mut lane) = (policy.workspace(1), rollout.lanes().remove(0));
        for _ in 0..n {
            let obs: [f32; 3] = std::array::from_fn(|_| stream.normal() as f32);
            let mut action = [0.0; 2];
            let logp = policy.act(&obs, &mut ws, &mut stream, &mut action);
            lane.push(&obs, &action, logp, Step { reward: 0.0, cost: 0.0, outcome: Outcome::Running });
        }
        let advantages = std::array::from_fn(|_| (0..n).map(|_| stream.normal()).collect());
        (policy, rollout, advantages)
    }

    /// Returns a batch of these samples without estimates of critics.
    fn batch<'a>(
        rollout: &'a Rollout,
        adv_r: &'a [f64],
        adv_c: &'a [Vec<f64>],
        reward: &'a Estimate,
    ) -> Batch<'a> {
        Batch { rollout, adv_r, adv_c, reward, costs: &[], adv_mean: 0.0 }
    }

    #[test]
    fn sums_over_pieces_equal_those_over_the_whole_batch() {
        let (policy, rollout, [adv_r, adv_c]) = sample(PIECE + 300);
        let (adv_c, no_critic) = ([adv_c], Estimate::default());
        let batch = batch(&rollout, &adv_r, &adv_c, &no_critic);
        let n = batch.len();
        let mut region = TrustRegion::default();
        region.centre(&policy, &batch);
        let mut ws = policy.workspace(n);
        ws.load(&batch.rollout.obs, &batch.rollout.action);
        policy.log_prob(&mut ws);

        let params = policy.params().len();
        let (mut got, mut want) = (vec![0.0; params], vec![0.0; params]);
        region.gradient(&policy, batch.adv_r, &mut got);
        let dlogp: Vec<f64> = batch.adv_r.iter().map(|a| a / n as f64).collect();
        policy.backward(&mut ws, &dlogp, 0.0, &mut want);
        assert!(got.iter().zip(&want).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-6), "gradient");

        // x solves (H + 0.1) x = g, H over all rows at once
        let (mut x, mut hx) = (vec![0.0; params], vec![0.0; params]);
        let residual = region.solve(&policy, &got, &mut x, 60, 0.1).unwrap();
        policy.fisher_vector_product(&mut ws, &x, 0.1, &mut hx);
        let error =
            hx.iter().zip(&got).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() / dot(&got, &got).sqrt();
        assert!(
            residual < 1e-4 && error < 1e-4,
            "residual {residual}, error against the whole batch {error}"
        );
    }

    #[test]
    fn the_line_search_takes_a_step_uphill_or_restores_the_parameters() {
        let (mut policy, rollout, [adv_r, adv_c]) = sample(500);
        let (adv_c, no_critic) = ([adv_c], Estimate::default());
        let batch = batch(&rollout, &adv_r, &adv_c, &no_critic);
        let mut region = TrustRegion::default();
        region.centre(&policy, &batch);
        let before = region.trial(&policy, &batch);
        let mut g = vec![0.0; policy.params().len()];
        region.gradient(&policy, batch.adv_r, &mut g);
        assert!(before.kl.abs() < 1e-12 && (before.ratio - 1.0).abs() < 1e-9);

        let start = policy.params().to_vec();
        let none = region.line_search(&mut policy, &batch, &g, 0.5, 5, |_| false);
        assert_eq!((none, policy.params()), (0, &start[..]), "the parameters were not restored");
        // The first trials exceed this KL.
        let step: Vec<f64> = g.iter().map(|g| 20.0 * g).collect();
        let taken = region
            .line_search(&mut policy, &batch, &step, 0.5, 30, |t| t.kl <= 1e-4 && t.surr_r > before.surr_r);
        let after = region.trial(&policy, &batch);
        assert!(taken > 1 && after.kl <= 1e-4 && after.surr_r > before.surr_r, "{taken} {after:?}");
    }
}
