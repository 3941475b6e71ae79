//! IPO: an interior-point method. The weight of the cost grows as the cost approaches its limit from below.
//!
//! ```text
//! paper    max  L_r + κ ln(d − J_c)          gradient: a cost weight κ / (d − J_c), undefined for J_c ≥ d
//! here     p = κ / (d − J_c)  if J_c < d, at most p_max;   p = p_max if J_c ≥ d
//!          L(θ) = −E[min(ρ A, clip(ρ) A)],   A = (A_r − p A_c/σ_c) / (1 + p),   σ_c = deviation of a step's cost
//! ```
//! Source: Liu, Ding & Liu, AAAI 2020, in the form of OmniSafe's `IPO`. It drops the logarithm, which is undefined where
//! the policy violates the limit. OmniSafe normalises costs before they reach the critic (`cost_normalize`), hence σ_c.
//! Deviation: OmniSafe adds 1e-8 to the denominator; the case `J_c = d` is written out instead, with the same result.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};

use crate::config::{check_clip, not_negative};
use crate::report::{COST_WEIGHT, KL};
use crate::{
    AlgoInfo, AlgoSpec, CostCritic, Discount, Method, Minibatch, Objective, UpdateConfig, UpdateError,
    clipped_surrogate,
};

epo_core::parameters! {
    /// Parameters of IPO.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct IpoParams {
        /// Half-width ε of the clip of the probability ratio.
        pub clip: f64 = 0.2,
        /// Strength κ of the barrier (1/t in the paper). A larger value keeps the cost farther below the limit.
        pub kappa: f64 = 0.01,
        /// Upper bound p_max on the weight of the cost, and its value at and above the limit. Cost advantages are
        /// divided by the standard deviation of the cost of a step.
        pub penalty_max: f64 = 1.0,
    }
}

impl AlgoSpec for IpoParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "ipo",
        label: "IPO",
        folder: "IPO",
        summary: "PPO with an interior-point barrier (Liu et al. 2020)",
        reads_limit: true,
        headlines: &[("KL", KL)],
    };

    fn preset(_family: TaskFamily) -> Self {
        Self::default()
    }

    fn cost_critics(&self) -> &'static [CostCritic] {
        &[CostCritic::Value]
    }

    fn check(&self) -> Result<(), UpdateError> {
        check_clip(self.clip)?;
        not_negative(&[("algo.kappa", self.kappa), ("algo.penalty_max", self.penalty_max)])
    }

    fn method(&self, _update: &UpdateConfig, _discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(Ipo::new(self.clone())))
    }
}

/// The objective of IPO with the weight of this epoch. It keeps no state from one epoch to the next.
#[derive(Clone, Debug)]
pub struct Ipo {
    /// Parameters of the algorithm.
    pub params: IpoParams,
    penalty: f64,
    /// Standard deviation of the cost of a step.
    unit: f64,
}

impl Ipo {
    /// The objective at the start of training.
    pub fn new(params: IpoParams) -> Self {
        Self { params, penalty: 0.0, unit: 1.0 }
    }
}

impl Objective for Ipo {
    fn begin(&mut self, cost: CostReading) {
        let margin = -cost.excess();
        let IpoParams { kappa, penalty_max, .. } = self.params;
        self.unit = if cost.step_std() > 0.0 { cost.step_std() } else { 1.0 }; // without costs, A_c is only noise
        self.penalty = if margin > 0.0 { (kappa / margin).min(penalty_max) } else { penalty_max };
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let (p, unit) = (self.penalty, self.unit);
        let adv = |i: usize| (mb.adv_r[i] - p * mb.adv_c[0][i] / unit) / (1.0 + p);
        clipped_surrogate(mb, self.params.clip, adv, dlogp)
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        vec![(COST_WEIGHT, self.penalty)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(j_c: f64) -> Ipo {
        let mut obj = Ipo::new(IpoParams::default());
        obj.begin(CostReading::new(j_c, 25.0).unwrap());
        obj
    }

    #[test]
    fn the_weight_on_both_sides_of_its_kinks() {
        assert_eq!(at(15.0).penalty, 0.001, "0.01 / 10");
        assert!((at(24.98).penalty - 0.5).abs() < 1e-9, "0.01 / 0.02");
        assert_eq!(at(24.999).penalty, 1.0, "0.01 / 0.001 is above the cap");
        assert_eq!(at(25.0).penalty, 1.0, "on the limit");
        assert_eq!(at(300.0).penalty, 1.0, "infeasible");
    }

    #[test]
    fn the_loss_by_hand() {
        // p = 1: A = (3 − 1)/2 = 1 and (3 − 5)/2 = −1
        for (rho, a_c, want) in [(1.1, 1.0, -1.1), (1.5, 1.0, -1.2), (1.5, 5.0, 1.5), (0.5, 5.0, 0.8)] {
            let mut g = [0.0];
            let mb =
                Minibatch { logp: &[f64::ln(rho)], logp_old: &[0.0], adv_r: &[3.0], adv_c: &[vec![a_c]] };
            let l = at(30.0).loss(&mb, &mut g);
            assert!((l - want).abs() < 1e-12, "ρ={rho} A_c={a_c}: {l}");
        }
    }

    /// This test fails if p_max is applied to raw costs, which makes IPO six times weaker than published.
    #[test]
    fn cost_advantages_are_in_deviations_of_a_steps_cost() {
        // p = 1, σ_c = ¼: A = (3 − 2/¼)/2 = −2.5
        let mut obj = Ipo::new(IpoParams::default());
        obj.begin(CostReading::new(30.0, 25.0).unwrap().with_step_std(0.25));
        let mb = Minibatch { logp: &[0.0], logp_old: &[0.0], adv_r: &[3.0], adv_c: &[vec![2.0]] };
        assert_eq!(obj.loss(&mb, &mut [0.0]), 2.5);
    }
}
