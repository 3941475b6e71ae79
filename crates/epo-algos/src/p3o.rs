//! P3O: an exact penalty, that is a hinge on the clipped cost surrogate with a large constant factor.
//!
//! ```text
//! L(θ) = −E[min(ρ A_r, clip(ρ) A_r)] + κ max(0, E[max(ρ A_c, clip(ρ) A_c)] + (1−γ)(J_c − d))
//! κ ← min(κ_max, κ_growth κ)       once per epoch
//! ```
//! γ is the discount of the cost; `violation_scale` replaces 1−γ. Source: Zhang et al., IJCAI 2022.
//! Deviations: none by default. OmniSafe's version neither clips nor scales by (1−γ):
//! `cost_clip = "none"`, `violation_scale = 1`. Then |J_c − d| is so much larger than the surrogate
//! that the hinge is a plain switch with weight κ.
//!
//! The hinge is evaluated once per pass, on the whole batch. On 64 samples the surrogate is so
//! noisy that a feasible policy would be penalised in a third of the minibatches.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{check_clip, not_negative, positive, require};
use crate::objective::{from_state, to_state};
use crate::report::{KAPPA, KL};
use crate::{
    AlgoInfo, AlgoSpec, CostClip, CostCritic, Discount, Method, Minibatch, Objective, RestoreError,
    UpdateConfig, UpdateError, add_cost_gradient, auto, clipped_surrogate, cost_surrogate,
};

epo_core::parameters! {
    /// Parameters of P3O.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct P3oParams {
        /// Half-width ε of the clip of the probability ratio.
        pub clip: f64 = 0.2,
        /// Clip of the cost surrogate: `max` (the paper's), `min` or `none` (OmniSafe's).
        pub cost_clip: CostClip = CostClip::Max,
        /// Factor on the violation J_c − d: a positive number, or `auto` for 1 − γ of the cost, as in the paper.
        /// OmniSafe uses 1.
        #[serde(with = "auto")]
        pub violation_scale: Option<f64> = None,
        /// Penalty factor κ in the first epoch.
        pub kappa: f64 = 20.0,
        /// Factor on κ from one epoch to the next. 1 keeps κ constant.
        pub kappa_growth: f64 = 1.0,
        /// Upper bound on the penalty factor κ.
        pub kappa_max: f64 = 100.0,
    }
}

impl AlgoSpec for P3oParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "p3o",
        label: "P3O",
        folder: "P3O",
        summary: "PPO with an exact penalty on a clipped cost surrogate (Zhang et al. 2022)",
        reads_limit: true,
        headlines: &[("κ", KAPPA), ("KL", KL)],
    };

    fn preset(_family: TaskFamily) -> Self {
        Self::default()
    }

    fn cost_critics(&self) -> &'static [CostCritic] {
        &[CostCritic::Value]
    }

    fn check(&self) -> Result<(), UpdateError> {
        check_clip(self.clip)?;
        positive(&[
            ("algo.kappa_growth", self.kappa_growth),
            ("algo.violation_scale", self.violation_scale.unwrap_or(1.0)),
        ])?;
        not_negative(&[("algo.kappa", self.kappa), ("algo.kappa_max", self.kappa_max)])?;
        require(&[("algo.kappa", self.kappa)], |v| v <= self.kappa_max, "must not exceed kappa_max")
    }

    fn method(&self, _update: &UpdateConfig, discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(P3o::new(self.clone(), discount.gamma_c)))
    }
}

/// The objective of P3O with its penalty factor.
#[derive(Clone, Debug)]
pub struct P3o {
    /// Parameters of the algorithm.
    pub params: P3oParams,
    scale: f64,
    kappa: f64,
    violation: f64,
    /// Weight of the cost in this pass: κ if the hinge is active, 0 otherwise.
    weight: f64,
}

impl P3o {
    /// The objective at the start of training. `gamma` is the discount of the cost.
    pub fn new(params: P3oParams, gamma: f64) -> Self {
        // every `begin` multiplies κ by the growth, also the first one, so κ starts one factor
        // lower
        let kappa = params.kappa / params.kappa_growth;
        let scale = params.violation_scale.unwrap_or(1.0 - gamma);
        Self { scale, kappa, violation: 0.0, weight: 0.0, params }
    }
}

impl Objective for P3o {
    fn begin(&mut self, cost: CostReading) {
        self.kappa = (self.kappa * self.params.kappa_growth).min(self.params.kappa_max);
        self.violation = self.scale * cost.excess();
    }

    fn begin_pass(&mut self, whole: &Minibatch<'_>) {
        let P3oParams { clip, cost_clip, .. } = self.params;
        let hinge = cost_surrogate(whole, cost_clip, clip, |i| whole.adv_c[0][i]) + self.violation;
        self.weight = if hinge > 0.0 { self.kappa } else { 0.0 };
    }

    fn reads_current_logp(&self) -> bool {
        true
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let P3oParams { clip, cost_clip, .. } = self.params;
        let reward_loss = clipped_surrogate(mb, clip, |i| mb.adv_r[i], dlogp);
        let surr_c = add_cost_gradient(mb, cost_clip, clip, self.weight, |i| mb.adv_c[0][i], dlogp);
        reward_loss + self.weight * (surr_c + self.violation)
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        vec![(KAPPA, self.kappa)]
    }

    fn state(&self) -> Value {
        to_state(&self.kappa)
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.kappa = from_state(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(params: P3oParams, j_c: f64, rho: f64) -> (f64, f64) {
        let mut obj = P3o::new(params, 0.9);
        obj.begin(CostReading::new(j_c, 25.0).unwrap());
        let mut g = [0.0];
        let mb = Minibatch { logp: &[rho.ln()], logp_old: &[0.0], adv_r: &[2.0], adv_c: &[vec![1.0]] };
        obj.begin_pass(&mb);
        (obj.loss(&mb, &mut g), g[0])
    }

    #[test]
    fn the_hinge_by_hand() {
        // ε = 0.2, κ = 20, γ = 0.9, A_r = 2, A_c = 1
        // J_c = 35, ρ = 1.1: −2.2 + 20·(1.1 + 1) = 39.8, gradient −2.2 + 22 = 19.8
        // J_c = 35, ρ = 0.5: −1 + 20·(0.8 + 1) = 35, gradient −1: the cost is clipped
        // J_c = 15, ρ = 1.1: 1.1 − 1 > 0: −2.2 + 20·0.1 = −0.2, gradient 19.8
        // J_c = 13, ρ = 1.1: 1.1 − 1.2 < 0: no penalty: −2.2, gradient −2.2
        for (j_c, rho, want) in [
            (35.0, 1.1, (39.8, 19.8)),
            (35.0, 0.5, (35.0, -1.0)),
            (15.0, 1.1, (-0.2, 19.8)),
            (13.0, 1.1, (-2.2, -2.2)),
        ] {
            let (l, g) = loss(P3oParams::default(), j_c, rho);
            assert!((l - want.0).abs() < 1e-9 && (g - want.1).abs() < 1e-9, "J_c={j_c} ρ={rho}: {l} {g}");
        }
    }

    #[test]
    fn the_form_of_omnisafe() {
        // −1 + 20·(0.5 + 10) = 209, gradient −1 + 10: neither clipped nor scaled
        let params =
            P3oParams { cost_clip: CostClip::None, violation_scale: Some(1.0), ..P3oParams::default() };
        let (l, g) = loss(params, 35.0, 0.5);
        assert!((l - 209.0).abs() < 1e-9 && (g - 9.0).abs() < 1e-9, "{l} {g}");
    }

    #[test]
    fn kappa_grows_to_its_bound() {
        let params = P3oParams { kappa_growth: 2.0, ..P3oParams::default() };
        let mut obj = P3o::new(params, 0.99);
        let kappas: Vec<f64> = (0..4)
            .map(|_| {
                obj.begin(CostReading::new(0.0, 25.0).unwrap());
                obj.kappa
            })
            .collect();
        assert_eq!(kappas, [20.0, 40.0, 80.0, 100.0]);
    }

    /// This test fails if the hinge is computed on a minibatch instead of the whole batch.
    #[test]
    fn the_hinge_is_that_of_the_whole_batch() {
        let mut obj = P3o::new(P3oParams::default(), 0.99);
        obj.begin(CostReading::new(25.0, 25.0).unwrap());
        let batch = |adv_c: Vec<f64>| [adv_c];
        let (whole, part) = (batch(vec![1.0, -3.0]), batch(vec![1.0]));
        let zeros = [0.0; 2];
        obj.begin_pass(&Minibatch { logp: &zeros, logp_old: &zeros, adv_r: &zeros, adv_c: &whole });
        let mb = Minibatch { logp: &[0.0], logp_old: &[0.0], adv_r: &[0.0], adv_c: &part };
        let mut g = [0.0];
        assert_eq!((obj.loss(&mb, &mut g), g[0]), (0.0, 0.0), "E[A_c] of the batch is −1: no penalty");
        obj.begin_pass(&Minibatch {
            logp: &zeros,
            logp_old: &zeros,
            adv_r: &zeros,
            adv_c: &batch(vec![3.0, -1.0]),
        });
        assert_eq!((obj.loss(&mb, &mut g), g[0]), (20.0, 20.0), "κ A_c");
    }
}
