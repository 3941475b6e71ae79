//! APPO: PPO with an augmented Lagrangian. The quadratic term damps the oscillation of the multiplier.
//!
//! ```text
//! f = max(0, λ + σ (J_c − d))
//! L(θ) = ( −E[min(ρ A_r, clip(ρ) A_r)] + f E[max(ρ A_c, clip(ρ) A_c)] ) / (1 + f)
//! dual   λ ← max(0, λ + Adam step of size η along J_c − d)       once per epoch, before f is computed
//! ```
//! Source: Dai, Ji, Yang, Zheng & Pan, AAAI 2023, and the authors' code. Deviations: minibatches, a learned
//! standard deviation, the decay of the learning rate and the KL stop are those of the shared loop. The authors
//! step the actor on the full batch and anneal the standard deviation from 0.5 to 0.01. Their code has a
//! function that increases σ but never calls it, so it is left out.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{check_clip, not_negative};
use crate::objective::{from_state, to_state};
use crate::report::{COST_WEIGHT, KL, LAMBDA};
use crate::{
    AlgoInfo, AlgoSpec, CostClip, CostCritic, Discount, Method, Minibatch, Multiplier, Objective,
    RestoreError, UpdateConfig, UpdateError, add_cost_gradient, clipped_surrogate,
};

epo_core::parameters! {
    /// Parameters of APPO.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct AppoParams {
        /// Half-width ε of the clip of the probability ratio.
        pub clip: f64 = 0.2,
        /// Multiplier λ at the start.
        pub lambda_init: f64 = 0.001,
        /// Learning rate η of the Adam optimiser that updates λ, as in the authors' code.
        pub lambda_lr: f64 = 0.2,
        /// Weight σ of the quadratic term. A larger weight damps the oscillation of the multiplier.
        pub sigma: f64 = 0.1,
    }
}

impl AlgoSpec for AppoParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "appo",
        label: "APPO",
        folder: "APPO",
        summary: "PPO with an augmented Lagrangian (Dai et al. 2023)",
        reads_limit: true,
        headlines: &[("λ", LAMBDA), ("KL", KL)],
    };

    fn preset(_family: TaskFamily) -> Self {
        Self::default()
    }

    fn cost_critics(&self) -> &'static [CostCritic] {
        &[CostCritic::Value]
    }

    fn check(&self) -> Result<(), UpdateError> {
        check_clip(self.clip)?;
        not_negative(&[
            ("algo.lambda_init", self.lambda_init),
            ("algo.lambda_lr", self.lambda_lr),
            ("algo.sigma", self.sigma),
        ])
    }

    fn method(&self, _update: &UpdateConfig, _discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(Appo::new(self.clone())))
    }
}

/// The objective of APPO with its multiplier.
#[derive(Clone, Debug)]
pub struct Appo {
    /// Parameters of the algorithm.
    pub params: AppoParams,
    dual: Multiplier,
    /// Weight f of the cost in this epoch.
    factor: f64,
}

impl Appo {
    /// The objective at the start of training.
    pub fn new(params: AppoParams) -> Self {
        let dual = Multiplier::new(params.lambda_init);
        Self { factor: dual.lambda, dual, params }
    }
}

impl Objective for Appo {
    fn begin(&mut self, cost: CostReading) {
        self.dual.step(cost.excess(), self.params.lambda_lr);
        self.factor = (self.dual.lambda + self.params.sigma * cost.excess()).max(0.0);
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let f = self.factor;
        let reward_loss = clipped_surrogate(mb, self.params.clip, |i| mb.adv_r[i], dlogp);
        let surr_c = add_cost_gradient(mb, CostClip::Max, self.params.clip, f, |i| mb.adv_c[0][i], dlogp);
        dlogp.iter_mut().for_each(|g| *g /= 1.0 + f);
        (reward_loss + f * surr_c) / (1.0 + f)
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        vec![(LAMBDA, self.dual.lambda), (COST_WEIGHT, self.factor)]
    }

    fn state(&self) -> Value {
        to_state(&self.dual) // `begin` computes the factor again
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.dual = from_state(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_factor(excess: f64) -> Appo {
        // frozen multiplier 1, σ = 0.1
        let mut obj = Appo::new(AppoParams { lambda_init: 1.0, lambda_lr: 0.0, ..AppoParams::default() });
        obj.begin(CostReading::new(25.0 + excess, 25.0).unwrap());
        obj
    }

    #[test]
    fn the_factor_has_a_kink_at_minus_lambda_over_sigma() {
        assert!((at_factor(20.0).factor - 3.0).abs() < 1e-12, "1 + 0.1·20");
        assert!((at_factor(-9.0).factor - 0.1).abs() < 1e-12, "1 − 0.9");
        assert_eq!(at_factor(-11.0).factor, 0.0, "far within the limit there is no cost term");
    }

    #[test]
    fn the_loss_by_hand() {
        // f = 3, ε = 0.2.  ρ = 1.1: (−1.1·2 + 3·1.1·4)/4 = 2.75, gradient the same
        // ρ = 1.5, A_c = 4 > 0: cost not clipped: (−1.2·2 + 3·1.5·4)/4 = 3.9, gradient 3·6/4 = 4.5
        // ρ = 0.5, A_c = 4: cost clipped at 0.8: (−0.5·2 + 3·0.8·4)/4 = 2.15, gradient −1/4
        let obj = at_factor(20.0);
        for (rho, want) in [(1.1, (2.75, 2.75)), (1.5, (3.9, 4.5)), (0.5, (2.15, -0.25))] {
            let mut g = [0.0];
            let mb =
                Minibatch { logp: &[f64::ln(rho)], logp_old: &[0.0], adv_r: &[2.0], adv_c: &[vec![4.0]] };
            let l = obj.loss(&mb, &mut g);
            assert!((l - want.0).abs() < 1e-9 && (g[0] - want.1).abs() < 1e-9, "ρ={rho}: {l} {}", g[0]);
        }
    }
}
