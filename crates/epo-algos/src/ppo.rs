//! PPO: the clipped surrogate on the reward alone; the cost is measured and ignored.
//!
//! ```text
//! L(θ) = −E[min(ρ A_r, clip(ρ, 1±ε) A_r)]
//! ```
//! Source: Schulman et al. 2017. Deviations: none; the KL stop, the learning-rate decay and the critics are
//! those of the shared loop, as in OmniSafe.

use epo_core::CostReading;
use serde::{Deserialize, Serialize};

use crate::{Minibatch, Objective, clipped_surrogate};

/// Parameters of PPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PpoParams {
    /// ε, half-width of the ratio clip. 0.2.
    pub clip: f64,
}

impl Default for PpoParams {
    fn default() -> Self {
        Self { clip: 0.2 }
    }
}

/// PPO.
#[derive(Clone, Debug)]
pub struct Ppo {
    /// Its parameters.
    pub params: PpoParams,
}

impl Objective for Ppo {
    fn begin(&mut self, _cost: CostReading) {}

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        clipped_surrogate(mb, self.params.clip, |i| mb.adv_r[i], dlogp)
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
