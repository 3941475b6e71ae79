//! The Penalty Metric Network: the functions that turn a violation into a penalty.
//!
//! ```text
//! filter      F⁺ = max(F, 0), or smooth: sp_β(F) = ln(1 + e^{βF}) / β
//! weighting   Φ(x) = α x + (1 − α) x²                                      near stream + far stream
//! region      near F̂ ≤ ½: α = 1     mid ½ < F̂ ≤ 1: α = ½     far F̂ > 1: α = 0
//! factor      Ψ = e^{min(F̂, ψ_max)} / μ                                  constant for the gradient
//! critics     V_N: (T_N − V_N)²     V_F = u²: T_F + V_F − 2√(T_F V_F) = (√T_F − √V_F)²
//! ```
//! Source: EPO paper, eq_pmn, Properties 1, eq25, eqCostCcritic. `docs/epo.md` explains how the
//! equations of the paper are interpreted.

use serde::{Deserialize, Serialize};

/// Numerically stable `ln(1 + e^x)`.
///
/// ```
/// use epo_algos::pmn::softplus;
/// assert!((softplus(0.0) - 2_f64.ln()).abs() < 1e-15);
/// assert_eq!((softplus(1e4), softplus(-1e4)), (1e4, 0.0));
/// ```
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `1 / (1 + e^{−x})`, the derivative of [`softplus`].
pub fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp(); // never overflows
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

/// The filter layer, which is applied to a violation before it is weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smooth {
    /// `ln(1 + e^{βx}) / β`. It has a gradient everywhere, even within the limit.
    Softplus,
    /// `max(x, 0)`. It has no penalty and no gradient within the limit.
    Relu,
}

impl Smooth {
    /// Value and slope at `x`. `sharpness` is β; ReLU, which is the limit β → ∞, ignores it.
    pub fn apply(self, x: f64, sharpness: f64) -> (f64, f64) {
        match self {
            Self::Softplus => (softplus(sharpness * x) / sharpness, sigmoid(sharpness * x)),
            Self::Relu => (x.max(0.0), f64::from(x > 0.0)),
        }
    }
}

/// The value and the slope of the weighting layer `Φ(x) = αx + (1−α)x²`.
///
/// ```
/// use epo_algos::pmn::weighting_layer;
/// assert_eq!(weighting_layer(3.0, 0.5), (6.0, 3.5)); // ½·3 + ½·9, ½ + 3
/// ```
pub fn weighting_layer(x: f64, alpha: f64) -> (f64, f64) {
    (alpha * x + (1.0 - alpha) * x * x, alpha + 2.0 * (1.0 - alpha) * x)
}

/// The weight α of the region that a normalised violation falls in. Each threshold belongs to the region on its left.
///
/// ```
/// use epo_algos::pmn::alpha_by_region;
/// assert_eq!([0.5, 0.51, 1.0, 1.01].map(|f| alpha_by_region(f, [0.5, 1.0])), [1.0, 0.5, 0.5, 0.0]);
/// ```
pub fn alpha_by_region(f_hat: f64, thresholds: [f64; 2]) -> f64 {
    if f_hat <= thresholds[0] {
        1.0
    } else if f_hat <= thresholds[1] {
        0.5
    } else {
        0.0
    }
}

/// The factor `Ψ = e^{min(F̂, ψ_max)} / μ`, where ψ_max is `exponent_max`. The bound keeps Ψ finite
/// for any violation.
pub fn penalty_factor(f_hat: f64, mu: f64, exponent_max: f64) -> f64 {
    f_hat.min(exponent_max).exp() / mu
}

/// The penalty of one epoch as a function of the normalised violation: `Ψ Φ(filter(F))`.
///
/// Training and `epo theory` both evaluate the penalty here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PenaltyFunction {
    /// Filter of the violation.
    pub smooth: Smooth,
    /// Sharpness β of the softplus.
    pub sharpness: f64,
    /// Weight α of the linear stream.
    pub alpha: f64,
    /// Factor Ψ, a constant for the gradient.
    pub psi: f64,
}

impl PenaltyFunction {
    /// The penalty of a violation, and its derivative with respect to the violation at constant Ψ.
    ///
    /// ```
    /// use epo_algos::pmn::{PenaltyFunction, Smooth};
    /// let penalty = PenaltyFunction { smooth: Smooth::Relu, sharpness: 1.0, alpha: 0.5, psi: 2.0 };
    /// assert_eq!(penalty.at(3.0), (12.0, 7.0)); // 2 (½·3 + ½·9), 2 (½ + 3)
    /// assert_eq!(penalty.at(-1.0), (0.0, 0.0));
    /// ```
    pub fn at(&self, violation: f64) -> (f64, f64) {
        let (x, dx) = self.smooth.apply(violation, self.sharpness);
        let (phi, dphi) = weighting_layer(x, self.alpha);
        (self.psi * phi, self.psi * dphi * dx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::critics::critic_loss;

    const REGIONS: [(&str, [f64; 4]); 3] =
        [("near", [0.01, 0.1, 0.3, 0.49]), ("mid", [0.51, 0.6, 0.8, 0.99]), ("far", [1.01, 1.5, 3.0, 40.0])];

    #[test]
    fn properties_1_penalty_and_gradient_by_region() {
        // raising α: near: more penalty, more gradient; mid: more penalty, less gradient; far: less of both
        for (region, points) in REGIONS {
            for x in points {
                for (lo, hi) in [(0.0, 0.5), (0.5, 1.0), (0.0, 1.0)] {
                    let ((p0, g0), (p1, g1)) = (weighting_layer(x, lo), weighting_layer(x, hi));
                    let holds = match region {
                        "near" => p1 > p0 && g1 > g0,
                        "mid" => p1 > p0 && g1 < g0,
                        _ => p1 < p0 && g1 < g0,
                    };
                    assert!(holds, "{region} x={x} α {lo}→{hi}: penalty {p0}→{p1}, gradient {g0}→{g1}");
                }
            }
        }
    }

    #[test]
    fn properties_1_on_the_thresholds() {
        // at ½ the gradient does not depend on α, at 1 the penalty does not
        assert_eq!(weighting_layer(0.5, 0.0).1, weighting_layer(0.5, 1.0).1);
        assert_eq!(weighting_layer(1.0, 0.0).0, weighting_layer(1.0, 1.0).0);
    }

    #[test]
    fn alpha_takes_the_values_of_the_paper_and_thresholds_belong_to_the_left() {
        for (f, alpha) in [
            (-1e4, 1.0),
            (0.0, 1.0),
            (0.5, 1.0),
            (0.5 + 1e-12, 0.5),
            (1.0, 0.5),
            (1.0 + 1e-12, 0.0),
            (1e4, 0.0),
        ] {
            assert_eq!(alpha_by_region(f, [0.5, 1.0]), alpha, "F̂ = {f}");
        }
    }

    #[test]
    fn the_filter_removes_the_feasible_region() {
        for x in [-1e4, -1.0, -1e-12, 0.0] {
            assert_eq!(Smooth::Relu.apply(x, 1.0), (0.0, 0.0), "x = {x}");
        }
        assert_eq!(Smooth::Relu.apply(0.3, 1.0), (0.3, 1.0));
        let (inside, slope) = Smooth::Softplus.apply(-3.0, 1.0);
        assert!(
            (inside - 0.048_587).abs() < 1e-6 && slope > 0.0,
            "the smooth filter is small inside, not zero: {inside}"
        );
    }

    #[test]
    fn the_smooth_filter_is_finite_far_out_and_sharpens_towards_relu() {
        for x in [-1e4, -709.0, 0.0, 709.0, 1e4] {
            let (v, s) = Smooth::Softplus.apply(x, 1.0);
            assert!(v.is_finite() && (0.0..=1.0).contains(&s), "x={x}: {v} {s}");
        }
        let far = |beta| (Smooth::Softplus.apply(0.2, beta).0 - 0.2).abs();
        assert!(far(1.0) > far(5.0) && far(5.0) > far(50.0) && far(50.0) < 1e-6);
        assert!((Smooth::Softplus.apply(0.0, 5.0).0 - 2_f64.ln() / 5.0).abs() < 1e-15);
    }

    #[test]
    fn slopes_are_the_derivatives() {
        let h = 1e-6;
        for x in [-4.0, -0.3, 0.2, 0.7, 2.5] {
            for beta in [1.0, 5.0] {
                let fd = (Smooth::Softplus.apply(x + h, beta).0 - Smooth::Softplus.apply(x - h, beta).0)
                    / (2.0 * h);
                assert!((fd - Smooth::Softplus.apply(x, beta).1).abs() < 1e-8, "softplus at {x}, β {beta}");
            }
            for alpha in [0.0, 0.5, 1.0] {
                let fd = (weighting_layer(x + h, alpha).0 - weighting_layer(x - h, alpha).0) / (2.0 * h);
                assert!((fd - weighting_layer(x, alpha).1).abs() < 1e-8, "Φ at {x}, α {alpha}");
            }
            let fd = (critic_loss(1.5, x + h).0 - critic_loss(1.5, x - h).0) / (2.0 * h);
            assert!((fd - critic_loss(1.5, x).1).abs() < 1e-7, "root loss at {x}");
        }
    }

    #[test]
    fn the_factor_by_hand_and_its_guard() {
        assert!((penalty_factor(0.0, 10.0, 5.0) - 0.1).abs() < 1e-15);
        assert!((penalty_factor(1.0, 10.0, 5.0) - 0.271_828_182_845_904_5).abs() < 1e-15);
        let cap = 5_f64.exp() / 10.0;
        assert!((penalty_factor(5.0, 10.0, 5.0) - cap).abs() < 1e-12);
        for f in [5.1, 88.0, 710.0, 1e300] {
            assert_eq!(penalty_factor(f, 10.0, 5.0), cap, "F̂ = {f}");
        }
        assert_eq!(penalty_factor(-1e300, 10.0, 5.0), 0.0);
    }

    #[test]
    fn the_root_loss_is_the_papers_and_its_minimum_is_the_square_of_the_mean() {
        for (t, v) in [(4.0_f64, 9.0_f64), (0.0, 2.0), (2.0, 0.0), (3.0, 3.0)] {
            let paper = t + v - 2.0 * (t * v).sqrt();
            assert!((critic_loss(t.sqrt(), v.sqrt()).0 - paper).abs() < 1e-12, "T={t} V={v}");
        }
        // targets √T_F = 0, 1, 5: descend the mean loss
        let roots = [0.0, 1.0, 5.0];
        let mut u = 0.1;
        for _ in 0..200 {
            u -= 0.1 * roots.iter().map(|&r| critic_loss(r, u).1).sum::<f64>() / 3.0;
        }
        assert!((u * u - 4.0).abs() < 1e-9, "(E √T)² = 4, not E T = 26/3: {}", u * u);
        assert!(
            critic_loss(1.0, 0.0).1.is_finite() && critic_loss(1.0, -2.0).1 < 0.0,
            "leads back from u < 0"
        );
    }
}
