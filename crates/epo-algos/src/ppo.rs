//! PPO: the clipped surrogate of the reward alone. The cost is measured and ignored.
//!
//! ```text
//! L(θ) = −E[min(ρ A_r, clip(ρ, 1±ε) A_r)]
//! ```
//! Source: Schulman et al. 2017. Deviations: none; the KL stop, the learning-rate decay and the critics are
//! those of the shared loop, as in OmniSafe.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};

use crate::config::check_clip;
use crate::{
    AlgoInfo, AlgoSpec, CostCritic, Discount, Method, Minibatch, Objective, UpdateConfig, UpdateError,
    clipped_surrogate, report,
};

epo_core::parameters! {
    /// Parameters of PPO.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct PpoParams {
        /// Half-width ε of the clip of the probability ratio: gains count up to 1 ± ε.
        pub clip: f64 = 0.2,
    }
}

impl AlgoSpec for PpoParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "ppo",
        label: "PPO",
        folder: "PPO",
        summary: "proximal policy optimisation; measures the cost and ignores it (Schulman et al. 2017)",
        reads_limit: false,
        headlines: &[("KL", report::KL)],
    };

    fn preset(_family: TaskFamily) -> Self {
        Self::default()
    }

    fn cost_critics(&self) -> &'static [CostCritic] {
        &[]
    }

    fn check(&self) -> Result<(), UpdateError> {
        check_clip(self.clip)
    }

    fn method(&self, _update: &UpdateConfig, _discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(Ppo { params: self.clone() }))
    }
}

/// The objective of PPO.
#[derive(Clone, Debug)]
pub struct Ppo {
    /// Parameters of the algorithm.
    pub params: PpoParams,
}

impl Objective for Ppo {
    fn begin(&mut self, _cost: CostReading) {}

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        clipped_surrogate(mb, self.params.clip, |i| mb.adv_r[i], dlogp)
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reward_counts() {
        // ρ = 1.1 inside the clip: L = −(1.1·2 + 1.1·(−1)) / 2 = −0.55, gradient −ρA/2
        let logp = [1.1_f64.ln(); 2];
        let costs = [vec![1e6, -1e6]];
        let mb = Minibatch { logp: &logp, logp_old: &[0.0; 2], adv_r: &[2.0, -1.0], adv_c: &costs };
        let mut g = [0.0; 2];
        let loss = Ppo { params: PpoParams::default() }.loss(&mb, &mut g);
        assert!((loss + 0.55).abs() < 1e-12, "{loss}");
        assert!((g[0] + 1.1).abs() < 1e-12 && (g[1] - 0.55).abs() < 1e-12, "{g:?}");
    }
}
