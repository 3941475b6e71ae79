//! A Lagrange multiplier that Adam updates, as in OmniSafe and in the code of APPO's authors.
//!
//! ```text
//! minimise −λ (J_c − d) over λ:   g = −(J_c − d)
//! m ← β₁ m + (1−β₁) g,   v ← β₂ v + (1−β₂) g²,   λ ← max(0, λ − η m̂ / (√v̂ + 1e-8)),   β = (0.9, 0.999)
//! ```
//! η is `lr`. A step of Adam has a size of about η for any violation, so λ takes about 1/η epochs
//! from 0 to 1.

use serde::{Deserialize, Serialize};

/// A multiplier λ and the moments of its Adam optimiser. It is part of the training state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multiplier {
    /// The multiplier λ, at least 0.
    pub lambda: f64,
    m: f64,
    v: f64,
    steps: i32,
}

impl Multiplier {
    /// A multiplier that starts at `lambda`, or at 0 if that is negative.
    pub fn new(lambda: f64) -> Self {
        Self { lambda: lambda.max(0.0), m: 0.0, v: 0.0, steps: 0 }
    }

    /// Makes one step of about `lr`: upwards if `excess = J_c − d` is positive.
    ///
    /// ```
    /// let mut dual = epo_algos::Multiplier::new(0.0);
    /// dual.step(15.0, 0.035); // the first step of Adam is lr · sign
    /// assert!((dual.lambda - 0.035).abs() < 1e-9);
    /// ```
    pub fn step(&mut self, excess: f64, lr: f64) {
        const BETA: [f64; 2] = [0.9, 0.999];
        let g = -excess;
        self.steps += 1;
        self.m = BETA[0] * self.m + (1.0 - BETA[0]) * g;
        self.v = BETA[1] * self.v + (1.0 - BETA[1]) * g * g;
        let m_hat = self.m / (1.0 - BETA[0].powi(self.steps));
        let v_hat = self.v / (1.0 - BETA[1].powi(self.steps));
        self.lambda = (self.lambda - lr * m_hat / (v_hat.sqrt() + 1e-8)).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steps_by_hand() {
        // g = −2, then g = 1, lr = 1:  m = −0.2, v = 0.004 → λ = 0 + 2/2 = 1
        // m = −0.18 + 0.1 = −0.08, m̂ = −0.08/0.19;  v = 0.003996 + 0.001 = 0.004996, v̂ = 0.004996/0.001999
        let mut dual = Multiplier::new(0.0);
        dual.step(2.0, 1.0);
        assert!((dual.lambda - 1.0).abs() < 1e-7, "{}", dual.lambda);
        dual.step(-1.0, 1.0);
        let want = 1.0 + (0.08 / 0.19) / (0.004996_f64 / 0.001999).sqrt();
        assert!((dual.lambda - want).abs() < 1e-7, "{} {want}", dual.lambda);
    }

    #[test]
    fn the_multiplier_is_never_negative_and_constant_at_the_limit() {
        let mut dual = Multiplier::new(0.01);
        dual.step(0.0, 0.035);
        assert_eq!(dual.lambda, 0.01, "without excess the step is 0/(0 + 1e-8)");
        for _ in 0..5 {
            dual.step(-25.0, 0.035);
        }
        assert_eq!(dual.lambda, 0.0);
    }
}
