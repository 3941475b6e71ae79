//! The penalty of the paper as a function of the violation F. It is the function that training uses, [`epo_algos::pmn`].
//!
//! ```text
//! hinge    Φ(y) = α y + (1−α) y²,  y = F⁺            ∂Φ/∂α = y − y²,  ∂Φ'/∂α = 1 − 2y
//! smooth   e^F Φ(ln(1 + e^F)), with e^F constant for the gradient (eq 25)
//! ```

use epo_algos::pmn::{PenaltyFunction, Smooth, alpha_by_region, penalty_factor, penalty_metric};

pub use epo_algos::pmn::softplus;

/// Φ(y).
pub fn phi(alpha: f64, y: f64) -> f64 {
    penalty_metric(y, alpha).0
}

/// Φ'(y).
pub fn phi_slope(alpha: f64, y: f64) -> f64 {
    penalty_metric(y, alpha).1
}

/// The hinge penalty Φ(F⁺) with μ = 1.
fn hinge_function(alpha: f64) -> PenaltyFunction {
    PenaltyFunction { smooth: Smooth::Relu, sharpness: 1.0, alpha, psi: 1.0 }
}

/// The smooth penalty of eq 25 with μ = 1 at the violation `f`, which decides the factor e^F.
fn smooth_function(alpha: f64, f: f64) -> PenaltyFunction {
    let psi = penalty_factor(f, 1.0, 1.0, f64::INFINITY);
    PenaltyFunction { smooth: Smooth::Softplus, sharpness: 1.0, alpha, psi }
}

/// Φ(F⁺), the penalty of a violation F.
pub fn hinge(alpha: f64, f: f64) -> f64 {
    hinge_function(alpha).at(f).0
}

/// dΦ(F⁺)/dF. At the kink it is 0, the slope on the feasible side.
pub fn hinge_slope(alpha: f64, f: f64) -> f64 {
    hinge_function(alpha).at(f).1
}

/// e^F Φ(ln(1 + e^F)), which is μ times the penalty of eq 25.
pub fn smooth(alpha: f64, f: f64) -> f64 {
    smooth_function(alpha, f).at(f).0
}

/// e^F Φ'(y) σ(F): the slope of [`smooth`] that a first-order optimiser sees, with the factor e^F held constant.
pub fn smooth_slope(alpha: f64, f: f64) -> f64 {
    smooth_function(alpha, f).at(f).1
}

/// The weight α that the paper gives to a violation: 1 near the limit, ½ in the middle, 0 far from it.
pub fn region_alpha(f: f64) -> f64 {
    alpha_by_region(f, [0.5, 1.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_hand() {
        assert_eq!((hinge(0.5, 2.0), hinge_slope(0.5, 2.0)), (3.0, 2.5)); // ½·2 + ½·4, ½ + 2
        assert_eq!((hinge(0.3, -1.0), hinge_slope(1.0, 0.0)), (0.0, 0.0));
        assert!((smooth(1.0, 0.0) - 2.0_f64.ln()).abs() < 1e-15);
        assert!((smooth_slope(1.0, 0.0) - 0.5).abs() < 1e-15);
        // e · (½ y + ½ y²), y = ln(1 + e) = 1.313262
        assert!((smooth(0.5, 1.0) - 4.128_958_6).abs() < 1e-6, "{}", smooth(0.5, 1.0));
        assert_eq!([0.5, 0.6, 1.0, 1.1].map(region_alpha), [1.0, 0.5, 0.5, 0.0]);
    }

    #[test]
    fn slopes_are_derivatives() {
        let h = 1e-6;
        for alpha in [0.0, 0.3, 1.0] {
            for f in [-1.3, 0.2, 0.7, 1.9] {
                let numeric = (hinge(alpha, f + h) - hinge(alpha, f - h)) / (2.0 * h);
                assert!((hinge_slope(alpha, f) - numeric).abs() < 1e-8, "α {alpha} F {f}");
                // the factor e^F is held constant
                let fixed = |g: f64| smooth_function(alpha, f).at(g).0;
                let numeric = (fixed(f + h) - fixed(f - h)) / (2.0 * h);
                assert!((smooth_slope(alpha, f) - numeric).abs() < 1e-7, "smooth: α {alpha} F {f}");
            }
        }
    }
}
