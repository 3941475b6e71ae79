//! EPO as its authors' released code intends it: two softplus streams, one of them on the variance of the cost.
//!
//! ```text
//! L(θ) = (−E[min(ρ A_r, clip(ρ) A_r)] + Ψ (α sp(E[ρ A_N]) + (1−α) sp(E[ρ A_W]))) / (1 + μΨ)
//! Ψ = e^{min(J_c − d, ψ_max)} / μ,   sp(x) = ln(1 + e^x)
//! ```
//! `A_W` is the advantage of a critic of the variance of the discounted cost return. J_c − d
//! appears only in Ψ, as cost per episode. α = ½ and μ = 10 are constants. Neither cost surrogate
//! is clipped or multiplied by 1/(1−γ). `normalize_loss` switches the division by 1 + μΨ.
//!
//! Source: github.com/Ontroad/EPOPMN at a4895fa. It does not run without repairs, which
//! `docs/epo-released.md` lists. Deviations: the arguments of the softplus have no upper bound,
//! because its constant was not released. The slopes of the softplus are computed once per pass on
//! the whole batch instead of on each minibatch.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};

use crate::config::{check_clip, positive, require};
use crate::epo::check_psi_max;
use crate::pmn::{penalty_factor, sigmoid, softplus};
use crate::report::{ALPHA, COST_WEIGHT, KL, MU, PENALTY, PSI};
use crate::{
    AlgoInfo, AlgoSpec, CostClip, CostCritic, Discount, Method, Minibatch, Objective, UpdateConfig,
    UpdateError, add_cost_gradient, clipped_surrogate, cost_surrogate,
};

epo_core::parameters! {
    /// Parameters of the released form of EPO.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct EpoReleasedParams {
        /// Half-width ε of the clip of the probability ratio. It clips the reward surrogate only.
        pub clip: f64 = 0.2,
        /// Weight α of the linear stream, from 0 to 1. The variance stream has the weight 1 − α.
        pub alpha: f64 = 0.5,
        /// Constant penalty factor μ. A smaller μ is stricter.
        pub mu: f64 = 10.0,
        /// Upper bound on the exponent of Ψ. The constant of the released code is not published.
        pub psi_max: f64 = 5.0,
        /// Divide the loss by 1 + μΨ, as the released code does.
        pub normalize_loss: bool = true,
    }
}

impl AlgoSpec for EpoReleasedParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "epo-released",
        label: "EPO-released",
        folder: "EPOReleased",
        summary: "EPO as its authors' released code intends it, with defects repaired (Gao et al. 2024)",
        reads_limit: true,
        headlines: &[("μ", MU), ("KL", KL)],
    };

    fn preset(_family: TaskFamily) -> Self {
        Self::default()
    }

    fn cost_critics(&self) -> &'static [CostCritic] {
        &[CostCritic::Value, CostCritic::Variance]
    }

    fn check(&self) -> Result<(), UpdateError> {
        check_clip(self.clip)?;
        require(&[("algo.alpha", self.alpha)], |v| (0.0..=1.0).contains(&v), "must be from 0 to 1")?;
        positive(&[("algo.mu", self.mu)])?;
        check_psi_max(self.psi_max)
    }

    fn method(&self, _update: &UpdateConfig, _discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(EpoReleased::new(self.clone())))
    }
}

/// The objective of the released form. It keeps no state from one epoch to the next.
#[derive(Clone, Debug)]
pub struct EpoReleased {
    /// Parameters of the algorithm.
    pub params: EpoReleasedParams,
    psi: f64,
    penalty: f64,
    weights: [f64; 2],
}

impl EpoReleased {
    /// The objective at the start of training.
    pub fn new(params: EpoReleasedParams) -> Self {
        Self { params, psi: 0.0, penalty: 0.0, weights: [0.0; 2] }
    }
}

impl Objective for EpoReleased {
    fn begin(&mut self, cost: CostReading) {
        self.psi = penalty_factor(cost.excess(), self.params.mu, self.params.psi_max);
    }

    fn begin_pass(&mut self, whole: &Minibatch<'_>) {
        let surr =
            [0, 1].map(|k| cost_surrogate(whole, CostClip::None, self.params.clip, |i| whole.adv_c[k][i]));
        let alpha = self.params.alpha;
        let share = [self.psi * alpha, self.psi * (1.0 - alpha)];
        self.penalty = share[0] * softplus(surr[0]) + share[1] * softplus(surr[1]);
        self.weights = [share[0] * sigmoid(surr[0]), share[1] * sigmoid(surr[1])];
    }

    fn reads_current_logp(&self) -> bool {
        true
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let mut loss = clipped_surrogate(mb, self.params.clip, |i| mb.adv_r[i], dlogp);
        for (k, w) in self.weights.into_iter().enumerate() {
            loss += w * add_cost_gradient(mb, CostClip::None, self.params.clip, w, |i| mb.adv_c[k][i], dlogp);
        }
        // the released code divides by 1 + e^{…}, without the factor 1/μ
        let scale = if self.params.normalize_loss { 1.0 / (1.0 + self.psi * self.params.mu) } else { 1.0 };
        dlogp.iter_mut().for_each(|g| *g *= scale);
        scale * loss
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        let weight = self.weights[0] + self.weights[1];
        vec![
            (ALPHA, self.params.alpha),
            (MU, self.params.mu),
            (PSI, self.psi),
            (PENALTY, self.penalty),
            (COST_WEIGHT, weight),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_by_hand() {
        // J_c − d = 1, μ = 10: Ψ = e/10.  One sample, ρ = 1.5, A_r = 1, A_N = 2, A_W = −2:
        // sp(3) = 3.048587, sp(−3) = 0.048587, σ(3) = 0.952574, σ(−3) = 0.047426; half of each
        let logp = [1.5_f64.ln()];
        let adv_c = [vec![2.0], vec![-2.0]];
        let mb = Minibatch { logp: &logp, logp_old: &[0.0], adv_r: &[1.0], adv_c: &adv_c };
        let params = EpoReleasedParams { normalize_loss: false, ..EpoReleasedParams::default() };
        let mut obj = EpoReleased::new(params);
        obj.begin(CostReading::new(26.0, 25.0).unwrap());
        obj.begin_pass(&mb);
        let psi = 0.271_828_182_8;
        assert!((obj.psi - psi).abs() < 1e-9, "{}", obj.psi);
        assert!((obj.penalty - psi * 0.5 * 3.097_174).abs() < 1e-6, "{}", obj.penalty);
        let mut g = [0.0];
        let loss = obj.loss(&mb, &mut g);
        let cost_term = psi * 0.5 * (0.952_574 * 3.0 - 0.047_426 * 3.0); // unclipped: ρA = ±3
        assert!((loss - (-1.2 + cost_term)).abs() < 1e-6, "{loss}");
        assert!((g[0] - cost_term).abs() < 1e-6, "the reward is clipped, the cost is not: {}", g[0]);
    }

    #[test]
    fn the_factor_is_capped_in_episode_units() {
        let params = EpoReleasedParams { normalize_loss: false, ..EpoReleasedParams::default() };
        let mut obj = EpoReleased::new(params);
        obj.begin(CostReading::new(400.0, 25.0).unwrap());
        assert!((obj.psi - 14.841_315_9).abs() < 1e-6, "e⁵/10, got {}", obj.psi);
    }
}
