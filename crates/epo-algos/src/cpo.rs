//! CPO: a trust-region step under a linearised cost constraint, solved in its dual.
//!
//! ```text
//! max_Δ gᵀΔ   s.t.   c + bᵀΔ ≤ 0,   ½ ΔᵀHΔ ≤ δ           g = ∇E[ρA_r], b = ∇E[ρA_c], c = c_scale (J_c − d)
//! q = gᵀH⁻¹g,  r = gᵀH⁻¹b,  s = bᵀH⁻¹b,  A = q − r²/s,  B = 2δ − c²/s
//! Δ = (H⁻¹g − ν H⁻¹b)/λ,   ν = max(0, λc + r)/s,   λ minimises  ½(A/λ + Bλ) − rc/s  where λc + r > 0,  else  ½(q/λ + 2δλ)
//! case 4  no cost gradient, c < 0                                     → Δ = √(2δ/q) H⁻¹g
//! case 3  c < 0, B < 0: the whole region is feasible                  → Δ = √(2δ/q) H⁻¹g
//! case 2  c < 0, B ≥ 0: feasible, and the limit cuts the region       → the dual
//! case 1  c ≥ 0, B ≥ 0: violated, and the limit cuts the region       → the dual
//! case 0  c ≥ 0, B < 0: the limit is out of reach                     → recovery: Δ = −√(2δ/s) H⁻¹b
//! search  Δ, 0.8Δ, …: KL ≤ δ; cost surrogate rises by at most max(−c, 0); reward surrogate does not fall in cases 2–4
//! ```
//! H is the Fisher matrix plus `damping` times the identity. The code writes x = H⁻¹g and p = H⁻¹b.
//!
//! Source: Achiam, Held, Tamar & Abbeel, ICML 2017. Deviations from OmniSafe:
//! - By default c has the unit of b: `c_scale = 1 / episode length`, as in the original code.
//!   OmniSafe compares the cost of an episode with a gradient per step (`c_scale = 1`).
//! - The KL divergence is summed over action dimensions. OmniSafe averages it, so the same δ is
//!   twice as strict here for two action dimensions.
//! - ν uses `λc + r`, because g is the gradient of a function that is maximised. OmniSafe's g has
//!   the same sign, but its ν uses `λc − r`, which belongs to a minimisation.
//!
//! The tests compare the solution with brute force.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{not_negative, positive, require};
use crate::context::Shuffles;
use crate::critics::{CriticBuffers, critic_jobs, critic_metrics, critic_report};
use crate::report::{self as m};
use crate::schedule::train_critics;
use crate::trust_region::{Candidate, TrustRegion, dot};
use crate::{
    Agent, AlgoInfo, AlgoSpec, Algorithm, Batch, CostCritic, CriticTraining, Discount, Epoch, Method,
    RestoreError, UpdateConfig, UpdateError, UpdateReport, auto,
};

epo_core::parameters! {
    /// Parameters of CPO.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct CpoParams {
        /// Size δ of the trust region, in nat: the KL divergence of a step is at most δ.
        pub target_kl: f64 = 0.01,
        /// Factor on the violation J_c − d: a positive number, or `auto` for 1 / mean episode
        /// length, as in the original code. The cost gradient is a mean over steps, so `auto` puts
        /// both in the same unit. OmniSafe uses 1.
        #[serde(with = "auto")]
        pub c_scale: Option<f64> = None,
        /// Maximum number of iterations of a conjugate-gradient solve.
        pub cg_iters: usize = 15,
        /// Number added to the diagonal of the Fisher matrix H.
        pub damping: f64 = 0.1,
        /// Maximum number of trials of the line search.
        pub search_trials: usize = 20,
        /// Factor on the length of the step from one trial of the line search to the next.
        pub search_decay: f64 = 0.8,
        /// Number of passes of the critics over the batch per epoch.
        pub critic_passes: usize = 10,
        /// Number of samples in a minibatch of the critics.
        pub critic_minibatch: usize = 128,
        /// Learning rate of the critics.
        pub critic_lr: f64 = 1e-3,
    }
}

impl AlgoSpec for CpoParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "cpo",
        label: "CPO",
        folder: "CPO",
        summary: "trust-region step under a linearised constraint (Achiam et al. 2017)",
        reads_limit: true,
        headlines: &[("KL", m::KL)],
    };

    fn preset(_family: TaskFamily) -> Self {
        Self::default()
    }

    fn cost_critics(&self) -> &'static [CostCritic] {
        &[CostCritic::Value]
    }

    fn check(&self) -> Result<(), UpdateError> {
        let share = [("algo.search_decay", self.search_decay)];
        require(&share, |v| v > 0.0 && v < 1.0, "must be between 0 and 1")?;
        positive(&[
            ("algo.target_kl", self.target_kl),
            ("algo.c_scale", self.c_scale.unwrap_or(1.0)),
            ("algo.critic_passes", self.critic_passes as f64),
            ("algo.critic_minibatch", self.critic_minibatch as f64),
        ])?;
        let counts =
            [("algo.cg_iters", self.cg_iters as f64), ("algo.search_trials", self.search_trials as f64)];
        require(&counts, |v| v <= 10_000.0, "must be at most 10000")?;
        not_negative(&[("algo.damping", self.damping), ("algo.critic_lr", self.critic_lr)])
    }

    fn critic_training(&self, _update: &UpdateConfig) -> CriticTraining {
        CriticTraining {
            passes: self.critic_passes,
            minibatch: self.critic_minibatch,
            passes_key: "algo.critic_passes",
            minibatch_key: "algo.critic_minibatch",
        }
    }

    fn method(&self, update: &UpdateConfig, _discount: &Discount) -> Method {
        Method::Own(Box::new(Cpo::new(self.clone(), update)))
    }
}

/// The solution of the dual problem of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dual {
    /// Case 0 to 4, as listed at the top of this file.
    pub case: u8,
    /// A = q − r²/s.
    pub a: f64,
    /// B = 2δ − c²/s.
    pub b: f64,
    /// λ*, multiplier of the trust region; 0 in case 0.
    pub lambda: f64,
    /// ν*, multiplier of the cost.
    pub nu: f64,
}

impl Dual {
    /// Solves the dual problem. `b_norm2` is ‖b‖²; below 1e-6 the cost gradient counts as zero.
    pub fn solve(q: f64, r: f64, s: f64, c: f64, delta: f64, b_norm2: f64) -> Self {
        let trpo = |case, a, b| Self { case, a, b, lambda: (q / (2.0 * delta)).sqrt(), nu: 0.0 };
        if b_norm2 <= 1e-6 && c < 0.0 {
            return trpo(4, 0.0, 0.0);
        }
        let (a, b) = ((q - r * r / s).max(0.0), 2.0 * delta - c * c / s); // A ≥ 0 (Cauchy–Schwarz) up to rounding
        let case = match (c < 0.0, b < 0.0) {
            (true, true) => return trpo(3, a, b),
            (true, false) => 2,
            (false, false) => 1,
            (false, true) => return Self { case: 0, a, b, lambda: 0.0, nu: (2.0 * delta / s).sqrt() },
        };
        // the constraint is active where λc + r > 0: below or above the kink −r/c, depending on the sign of c
        let kink = -r / c;
        let (active, inactive) = if c < 0.0 {
            ((0.0, kink), (kink.max(0.0), f64::INFINITY))
        } else if c > 0.0 {
            ((kink.max(0.0), f64::INFINITY), (0.0, kink))
        } else if r > 0.0 {
            ((0.0, f64::INFINITY), (1.0, 0.0))
        } else {
            ((1.0, 0.0), (0.0, f64::INFINITY))
        };
        let best = |(lo, hi): (f64, f64), num: f64, den: f64, shift: f64| {
            let lambda = (num / den).sqrt().min(hi).max(lo);
            // an empty interval has no candidate; λ = 0 is a candidate only if the numerator is 0
            let value = if hi < lo {
                f64::INFINITY
            } else if num == 0.0 {
                0.5 * den * lambda
            } else {
                0.5 * (num / lambda + den * lambda)
            };
            (lambda, value + shift)
        };
        let (lambda_a, value_a) = best(active, a, b, -r * c / s);
        let (lambda_b, value_b) = best(inactive, q, 2.0 * delta, 0.0);
        if value_a <= value_b {
            Self { case, a, b, lambda: lambda_a, nu: (lambda_a * c + r).max(0.0) / s }
        } else {
            Self { case, a, b, lambda: lambda_b, nu: 0.0 }
        }
    }

    /// Writes Δ, given `x = H⁻¹g` and `p = H⁻¹b`. Returns false if there is no direction because the gradient
    /// that the case needs is zero.
    pub fn step(&self, x: &[f64], p: &[f64], r: f64, s: f64, c: f64, out: &mut [f64]) -> bool {
        let (along_x, along_p) = match self.case {
            0 => (0.0, -self.nu),
            // Δ = (x − (r/s)p)/λ − (c/s)p: the same as (x − νp)/λ, and finite when g is parallel to b, where λ → 0
            _ if self.nu > 0.0 && self.lambda > 0.0 => (1.0 / self.lambda, -(r / s) / self.lambda - c / s),
            _ if self.nu > 0.0 => (0.0, -c / s),
            _ => (1.0 / self.lambda, 0.0),
        };
        for i in 0..out.len() {
            out[i] = along_x * x[i] + along_p * p[i];
        }
        along_x.is_finite() && along_p.is_finite()
    }
}

impl CpoParams {
    /// Returns the violation c in the unit of the cost gradient, which is cost per step.
    fn c(&self, cost: CostReading) -> f64 {
        self.c_scale.unwrap_or(1.0 / cost.length().max(1.0)) * cost.excess()
    }
}

/// The update of CPO. It keeps only buffers from one epoch to the next.
#[derive(Debug)]
pub struct Cpo {
    params: CpoParams,
    critic_config: UpdateConfig,
    region: TrustRegion,
    critics: Vec<CriticBuffers>,
    shuffles: Shuffles,
}

impl Cpo {
    /// The update at the start of training. From `config` it uses only the weight decay and gradient clip of
    /// the critics.
    pub fn new(params: CpoParams, config: &UpdateConfig) -> Self {
        let CriticTraining { passes, minibatch, .. } = params.critic_training(config);
        let critic_config = UpdateConfig { passes, minibatch, critic_lr: params.critic_lr, ..config.clone() };
        let (region, critics, shuffles) = Default::default();
        Self { params, critic_config, region, critics, shuffles }
    }

    /// Makes the step of the policy and returns its metrics.
    fn step(
        &mut self,
        agent: &mut Agent,
        batch: &Batch<'_>,
        c: f64,
    ) -> Result<Vec<(Metric, f64)>, UpdateError> {
        let Self {
            params: CpoParams { target_kl: delta, cg_iters, damping, search_decay, search_trials, .. },
            region,
            ..
        } = self;
        let policy = &mut agent.policy;
        let n = policy.params().len();
        let [mut g, mut b, mut x, mut p, mut step] = std::array::from_fn(|_| vec![0.0; n]);
        region.centre(policy, batch);
        region.gradient(policy, batch.adv_r, &mut g);
        region.gradient(policy, &batch.adv_c[0], &mut b);
        for (what, gradient) in
            [("gradient of the reward surrogate", &g), ("gradient of the cost surrogate", &b)]
        {
            UpdateError::check(what, gradient)?;
        }
        let residual = region.solve(policy, &g, &mut x, *cg_iters, *damping)?;
        region.solve(policy, &b, &mut p, *cg_iters, *damping)?;
        let (q, r, s) = (dot(&g, &x), dot(&g, &p), dot(&b, &p));
        let dual = Dual::solve(q, r, s, c, *delta, dot(&b, &b));

        let before = region.trial(policy, batch);
        let accept = |t: Candidate| {
            let reward_ok = dual.case <= 1 || t.surr_r >= before.surr_r;
            reward_ok && t.surr_c - before.surr_c <= (-c).max(0.0) && t.kl <= *delta
        };
        let start = policy.params().to_vec();
        let accepted = match dual.step(&x, &p, r, s, c, &mut step) {
            true => region.line_search(policy, batch, &step, *search_decay, *search_trials, accept),
            false => 0,
        };
        let after = region.trial(policy, batch);
        let moved =
            policy.params().iter().zip(&start).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
        let std = policy.std().iter().sum::<f64>() / policy.std().len().max(1) as f64;
        let values = [
            after.kl,
            region.entropy(),
            after.ratio,
            std,
            -after.surr_r,
            f64::from(dual.case),
            accepted as f64,
            moved,
            residual,
            dual.a,
            dual.b,
            q,
            r,
            s,
            dual.lambda,
            dual.nu,
        ];
        Ok(METRICS.into_iter().zip(values.map(finite_or_zero)).collect())
    }
}

/// Returns `v`, or 0 if it is not finite (a ratio of vanishing gradients).
fn finite_or_zero(v: f64) -> f64 {
    if v.is_finite() { v } else { 0.0 }
}

const METRICS: [Metric; 16] = [
    m::KL,
    m::ENTROPY,
    m::RATIO,
    m::STD,
    m::LOSS_PI,
    m::CPO_CASE,
    m::ACCEPTANCE,
    m::STEP_NORM,
    m::CG_RESIDUAL,
    m::CPO_A,
    m::CPO_B,
    m::CPO_Q,
    m::CPO_R,
    m::CPO_S,
    m::CPO_LAMBDA,
    m::CPO_NU,
];

impl Algorithm for Cpo {
    fn update(
        &mut self,
        agent: &mut Agent,
        batch: &Batch<'_>,
        cost: CostReading,
        epoch: Epoch,
    ) -> Result<UpdateReport, UpdateError> {
        let mut values = self.step(agent, batch, self.params.c(cost))?;
        let Self { critics, critic_config, shuffles, .. } = self;
        let context = shuffles.context(batch, critic_config, epoch);
        let jobs = critic_jobs(&mut agent.critic_r, &mut agent.critics_c, critics, &context);
        train_critics(jobs, &context)?;
        values.extend(critic_report(critics, batch));
        Ok(UpdateReport { values })
    }

    fn metrics(&self) -> Vec<Metric> {
        METRICS.into_iter().chain(critic_metrics(1)).collect()
    }

    fn state(&self) -> Value {
        Value::Null
    }

    fn restore(&mut self, _state: &Value) -> Result<(), RestoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best of a fine grid on the disc ½‖Δ‖² ≤ δ cut by c + bᵀΔ ≤ 0 (H = I).
    fn brute_force(g: [f64; 2], b: [f64; 2], c: f64, delta: f64) -> Option<f64> {
        let radius = (2.0 * delta).sqrt();
        let mut best: Option<f64> = None;
        for i in 0..=400 {
            for j in 0..7200 {
                let (rho, phi) =
                    (radius * f64::from(i) / 400.0, std::f64::consts::TAU * f64::from(j) / 7200.0);
                let d = [rho * phi.cos(), rho * phi.sin()];
                if c + dot(&b, &d) <= 0.0 {
                    best = Some(best.unwrap_or(f64::NEG_INFINITY).max(dot(&g, &d)));
                }
            }
        }
        best
    }

    fn solve(g: [f64; 2], b: [f64; 2], c: f64, delta: f64) -> (Dual, [f64; 2]) {
        let (q, r, s) = (dot(&g, &g), dot(&g, &b), dot(&b, &b));
        let dual = Dual::solve(q, r, s, c, delta, s);
        let mut step = [0.0; 2];
        assert!(dual.step(&g, &b, r, s, c, &mut step), "{dual:?}");
        (dual, step)
    }

    #[test]
    fn every_case_is_optimal_and_within_its_bounds() {
        // H = I, δ = ½: the region is the unit disc
        let cases: [(u8, [f64; 2], [f64; 2], f64); 8] = [
            (3, [1.0, 0.5], [0.3, 0.2], -5.0),  // slack: the limit misses the disc
            (2, [1.0, 0.0], [1.0, 0.2], -0.3),  // the reward gradient raises the cost, the limit is near
            (2, [1.0, 0.0], [-1.0, 0.2], -0.3), // the reward gradient lowers the cost, the limit is inactive
            (2, [1.0, 0.0], [1.0, 0.0], -0.1),  // parallel gradients
            (1, [1.0, 0.0], [1.0, 0.4], 0.3),   // violated, the limit is within reach
            (1, [1.0, 0.0], [-1.0, 0.4], 0.3),
            (1, [1.0, 0.3], [0.5, 1.0], 0.0), // exactly on the limit
            (1, [1.0, 0.3], [-0.5, -1.0], 0.0),
        ];
        for (case, g, b, c) in cases {
            let (dual, step) = solve(g, b, c, 0.5);
            assert_eq!(dual.case, case, "g={g:?} b={b:?} c={c}: {dual:?}");
            assert!(dot(&step, &step) <= 1.0 + 1e-9, "outside the region: {step:?}");
            assert!(c + dot(&b, &step) <= 1e-9, "outside the limit: {step:?}");
            let best = brute_force(g, b, c, 0.5).unwrap();
            assert!(
                (dot(&g, &step) - best).abs() < 5e-3,
                "g={g:?} b={b:?} c={c}: {} but {best} is possible",
                dot(&g, &step)
            );
        }
    }

    #[test]
    fn recovery_goes_straight_down_the_cost_to_the_edge() {
        assert_eq!(brute_force([1.0, 0.0], [0.6, 0.8], 2.0, 0.5), None, "no point of the disc is feasible");
        let (dual, step) = solve([1.0, 0.0], [0.6, 0.8], 2.0, 0.5);
        assert_eq!(dual.case, 0);
        assert!((step[0] + 0.6).abs() < 1e-12 && (step[1] + 0.8).abs() < 1e-12, "{step:?}");
    }

    #[test]
    fn without_a_cost_gradient_it_is_a_trust_region_step() {
        let dual = Dual::solve(4.0, 0.0, 1e-9, -1.0, 0.5, 1e-9);
        assert_eq!((dual.case, dual.lambda, dual.nu), (4, 2.0, 0.0));
    }

    #[test]
    fn a_hand_computed_dual() {
        // g = (1, 0), b = (1, 1), c = −½, δ = ½:  q = 1, r = 1, s = 2, A = ½, B = 1 − ⅛ = ⅞
        // λ_a = √(4/7) = 0.755929 ≤ −r/c = 2;  ν = (1 − 0.377964)/2 = 0.311018
        let (dual, step) = solve([1.0, 0.0], [1.0, 1.0], -0.5, 0.5);
        assert!((dual.a - 0.5).abs() < 1e-12 && (dual.b - 0.875).abs() < 1e-12);
        assert!((dual.lambda - 0.755_929).abs() < 1e-6 && (dual.nu - 0.311_018).abs() < 1e-6, "{dual:?}");
        assert!(
            (step[0] + step[1] - 0.5).abs() < 1e-9 && (dot(&step, &step) - 1.0).abs() < 1e-9,
            "both bind: {step:?}"
        );
    }

    #[test]
    fn vanishing_gradients_give_no_step() {
        let mut step = [0.0];
        let no_reward = Dual::solve(0.0, 0.0, 1.0, -10.0, 0.5, 1.0);
        assert!(!no_reward.step(&[0.0], &[1.0], 0.0, 1.0, -10.0, &mut step), "{no_reward:?}");
        let no_cost_while_violated = Dual::solve(1.0, 0.0, 0.0, 1.0, 0.5, 0.0);
        assert!(
            !no_cost_while_violated.step(&[1.0], &[0.0], 0.0, 0.0, 1.0, &mut step),
            "{no_cost_while_violated:?}"
        );
    }

    #[test]
    fn the_violation_is_that_of_a_mean_step() {
        let cost = CostReading::new(45.0, 25.0).unwrap().of_episodes(100, 1000.0);
        assert_eq!(CpoParams::default().c(cost), 20.0 / 1000.0);
        assert_eq!(CpoParams { c_scale: Some(1.0), ..CpoParams::default() }.c(cost), 20.0, "OmniSafe's");
    }
}
