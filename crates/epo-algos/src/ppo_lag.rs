//! PPO-Lagrangian: PPO on a mixture of both advantages. The weight of the cost rises while the cost exceeds the limit.
//!
//! ```text
//! max_θ min_{λ≥0}  J_r(θ) − λ (J_c(θ) − d)
//! policy   L(θ) = −E[min(ρ A, clip(ρ, 1±ε) A)],   A = (A_r − λ A_c) / (1 + λ)
//! dual     λ ← max(0, λ + Adam step of size η along J_c − d)       once per epoch, before the policy
//! ```
//! Source: Ray, Achiam & Amodei 2019, in the form of OmniSafe's `PPOLag`. Deviations: none from that; Ray et
//! al. pass λ through a softplus.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{check_clip, not_negative};
use crate::objective::{from_state, to_state};
use crate::report::{KL, LAMBDA};
use crate::{
    AlgoInfo, AlgoSpec, CostCritic, Discount, Method, Minibatch, Multiplier, Objective, RestoreError,
    UpdateConfig, UpdateError, clipped_surrogate,
};

epo_core::parameters! {
    /// Parameters of PPO-Lagrangian.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct PpoLagParams {
        /// Half-width ε of the clip of the probability ratio.
        pub clip: f64 = 0.2,
        /// Multiplier λ at the start.
        pub lambda_init: f64 = 0.001,
        /// Learning rate η of the Adam optimiser that updates λ. At 0.035, λ takes about thirty
        /// epochs from 0 to 1.
        pub lambda_lr: f64 = 0.035,
    }
}

impl AlgoSpec for PpoLagParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "ppo-lag",
        label: "PPO-Lag",
        folder: "PPOLag",
        summary: "PPO with a Lagrange multiplier on the cost (Ray et al. 2019)",
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
        not_negative(&[("algo.lambda_init", self.lambda_init), ("algo.lambda_lr", self.lambda_lr)])
    }

    fn method(&self, _update: &UpdateConfig, _discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(PpoLag::new(self.clone())))
    }
}

/// The objective of PPO-Lagrangian with its multiplier.
#[derive(Clone, Debug)]
pub struct PpoLag {
    /// Parameters of the algorithm.
    pub params: PpoLagParams,
    dual: Multiplier,
}

impl PpoLag {
    /// The objective at the start of training.
    pub fn new(params: PpoLagParams) -> Self {
        Self { dual: Multiplier::new(params.lambda_init), params }
    }
}

impl Objective for PpoLag {
    fn begin(&mut self, cost: CostReading) {
        self.dual.step(cost.excess(), self.params.lambda_lr);
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let lambda = self.dual.lambda;
        let adv = |i: usize| (mb.adv_r[i] - lambda * mb.adv_c[0][i]) / (1.0 + lambda);
        clipped_surrogate(mb, self.params.clip, adv, dlogp)
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        vec![(LAMBDA, self.dual.lambda)]
    }

    fn state(&self) -> Value {
        to_state(&self.dual)
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.dual = from_state(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(lambda: f64, rho: f64, a_r: f64, a_c: f64) -> (f64, f64) {
        let obj = PpoLag::new(PpoLagParams { lambda_init: lambda, ..PpoLagParams::default() });
        let mut g = [0.0];
        let mb = Minibatch { logp: &[rho.ln()], logp_old: &[0.0], adv_r: &[a_r], adv_c: &[vec![a_c]] };
        (obj.loss(&mb, &mut g), g[0])
    }

    #[test]
    fn the_mixed_advantage_by_hand() {
        // λ = 3: A = (5 − 3·1)/4 = ½, and (5 − 3·3)/4 = −1; ε = 0.2
        for (rho, a_c, want) in [
            (1.1, 1.0, (-0.55, -0.55)),
            (1.5, 1.0, (-0.6, 0.0)),
            (1.5, 3.0, (1.5, 1.5)),
            (0.5, 3.0, (0.8, 0.0)),
        ] {
            let (l, g) = loss(3.0, rho, 5.0, a_c);
            assert!((l - want.0).abs() < 1e-12 && (g - want.1).abs() < 1e-12, "ρ={rho} A_c={a_c}: {l} {g}");
        }
    }

    #[test]
    fn without_a_multiplier_it_is_ppo() {
        assert_eq!(loss(0.0, 1.1, 2.0, 1e9).0, -1.1 * 2.0);
    }

    #[test]
    fn the_multiplier_follows_the_excess() {
        let mut obj = PpoLag::new(PpoLagParams::default());
        let reading = |j| CostReading::new(j, 25.0).unwrap();
        obj.begin(reading(40.0));
        assert!((obj.dual.lambda - 0.036).abs() < 1e-9, "0.001 + 0.035, got {}", obj.dual.lambda);
        for _ in 0..20 {
            obj.begin(reading(0.0));
        }
        assert_eq!(obj.dual.lambda, 0.0);
    }
}
