//! The penalty of the paper as a function of the violation F. Training uses the same code, [`epo_algos::pmn`].
//!
//! ```text
//! hinge    Φ(y) = α y + (1−α) y²,  y = F⁺            ∂Φ/∂α = y − y²,  ∂Φ'/∂α = 1 − 2y
//! smooth   e^F Φ(ln(1 + e^F)), with e^F constant for the gradient (eq 25)
//! ```

use epo_algos::pmn::{PenaltyFunction, Smooth, alpha_by_region, penalty_factor, weighting_layer};

pub use epo_algos::pmn::softplus;

/// Returns Φ(y).
pub fn phi(alpha: f64, y: f64) -> f64 {
    weighting_layer(y, alpha).0
}

/// Returns the derivative Φ'(y).
pub fn phi_slope(alpha: f64, y: f64) -> f64 {
    weighting_layer(y, alpha).1
}

/// Returns the hinge penalty Φ(F⁺) with μ = 1.
fn hinge_function(alpha: f64) -> PenaltyFunction {
    PenaltyFunction { smooth: Smooth::Relu, sharpness: 1.0, alpha, psi: 1.0 }
}

/// Returns the smooth penalty of eq 25 with μ = 1. Its constant factor e^F is evaluated at the violation `f`.
fn smooth_function(alpha: f64, f: f64) -> PenaltyFunction {
    let psi = penalty_factor(f, 1.0, f64::INFINITY);
    PenaltyFunction { smooth: Smooth::Softplus, sharpness: 1.0, alpha, psi }
}

/// Returns Φ(F⁺), the penalty of the violation `f`.
pub fn hinge(alpha: f64, f: f64) -> f64 {
    hinge_function(alpha).at(f).0
}

/// Returns dΦ(F⁺)/dF. At F = 0, where the derivative jumps, it returns 0, the slope on the feasible side.
pub fn hinge_slope(alpha: f64, f: f64) -> f64 {
    hinge_function(alpha).at(f).1
}

/// Returns e^F Φ(ln(1 + e^F)), which is μ times the penalty of eq 25.
pub fn smooth(alpha: f64, f: f64) -> f64 {
    smooth_function(alpha, f).at(f).0
}

/// Returns e^F Φ'(y) σ(F), the slope of [`smooth`] with the factor e^F held constant.
///
/// A first-order optimiser uses this slope, because eq 25 treats the factor as a constant.
pub fn smooth_slope(alpha: f64, f: f64) -> f64 {
    smooth_function(alpha, f).at(f).1
}

/// Returns the weight α of the paper for the violation `f`: 1 up to F = ½, ½ up to F = 1, and 0 above.
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
