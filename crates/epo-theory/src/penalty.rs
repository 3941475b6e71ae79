//! The penalty of the paper and its smooth form, as functions of the violation F.
//!
//! ```text
//! Φ(y) = α y + (1−α) y²,  y = F⁺        ∂Φ/∂α = y − y²,  ∂Φ'/∂α = 1 − 2y
//! smooth: y = ln(1 + e^F), times e^F/μ held constant for the gradient (eq 25)
//! ```

/// Φ(y).
pub fn phi(alpha: f64, y: f64) -> f64 {
    alpha * y + (1.0 - alpha) * y * y
}

/// Φ'(y).
pub fn phi_slope(alpha: f64, y: f64) -> f64 {
    alpha + 2.0 * (1.0 - alpha) * y
}

/// Φ(F⁺), the penalty of a violation F.
pub fn hinge(alpha: f64, f: f64) -> f64 {
    phi(alpha, f.max(0.0))
}

/// dΦ(F⁺)/dF; 0 at the kink, the side from which a feasible policy sees it.
pub fn hinge_slope(alpha: f64, f: f64) -> f64 {
    if f > 0.0 { phi_slope(alpha, f) } else { 0.0 }
}

/// ln(1 + e^F), without overflow.
pub fn softplus(f: f64) -> f64 {
    f.max(0.0) + (-f.abs()).exp().ln_1p()
}

/// e^F Φ(ln(1 + e^F)): μ times the penalty of eq 25.
pub fn smooth(alpha: f64, f: f64) -> f64 {
    f.exp() * phi(alpha, softplus(f))
}

/// e^F Φ'(y) σ(F): what a first-order optimiser sees of [`smooth`], with the factor e^F held constant.
pub fn smooth_slope(alpha: f64, f: f64) -> f64 {
    f.exp() * phi_slope(alpha, softplus(f)) / (1.0 + (-f).exp())
}

/// The weight α that the paper gives to a violation: 1 near the boundary, ½ in the middle, 0 far.
pub fn region_alpha(f: f64) -> f64 {
    if f <= 0.5 {
        1.0
    } else if f <= 1.0 {
        0.5
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_hand() {
        assert_eq!(phi(0.5, 2.0), 3.0); // ½·2 + ½·4
        assert_eq!(phi_slope(0.5, 2.0), 2.5); // ½ + 2
        assert_eq!((hinge(0.3, -1.0), hinge_slope(1.0, 0.0)), (0.0, 0.0));
        assert!((softplus(0.0) - 2.0_f64.ln()).abs() < 1e-15);
        assert!((smooth_slope(1.0, 0.0) - 0.5).abs() < 1e-15);
        assert_eq!((softplus(1e4), softplus(-1e4)), (1e4, 0.0));
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
                let fixed = |g: f64| f.exp() * phi(alpha, softplus(g));
                let numeric = (fixed(f + h) - fixed(f - h)) / (2.0 * h);
                assert!((smooth_slope(alpha, f) - numeric).abs() < 1e-7, "smooth: α {alpha} F {f}");
            }
        }
    }
}
