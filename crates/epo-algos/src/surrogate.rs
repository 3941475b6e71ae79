//! Clipped surrogates and their derivatives with respect to `ln π`.
//!
//! ```text
//! reward, maximised   L_r = E[min(ρ A, clip(ρ, 1±ε) A)]                            (PPO)
//! cost, minimised     L_c = E[max(ρ A, clip(ρ, 1±ε) A)]   max:  pessimistic, as P3O and APPO
//!                         = E[min(ρ A, clip(ρ, 1±ε) A)]   min:  literal eq. 166 of the EPO paper
//!                         = E[ρ A]                        none: OmniSafe's P3O, EPO's release
//! ρ = π(a|s) / π_old(a|s),   ∂ρ/∂ ln π = ρ
//! ```
//! `min` on a quantity that is minimised removes the corrective gradient and never bounds the step, as the four rows of
//! the test `cost_clip_truth_table` show.

use serde::{Deserialize, Serialize};

use crate::Minibatch;

/// The clip of the cost surrogate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostClip {
    /// `max(ρA, clip(ρ)A)`: the larger cost counts. The clip limits how far the cost is lowered, but never
    /// removes a corrective gradient.
    Max,
    /// `min(ρA, clip(ρ)A)`, as the EPO paper prints it.
    Min,
    /// `ρA`, without a clip.
    None,
}

impl CostClip {
    /// The term of one sample, and its derivative with respect to `ln π`.
    pub fn term(self, rho: f64, adv: f64, clip: f64) -> (f64, f64) {
        match self {
            Self::Max => larger_term(rho, adv, clip),
            Self::Min => smaller_term(rho, adv, clip),
            Self::None => (rho * adv, rho * adv),
        }
    }
}

/// `min(ρA, clip(ρ)A)` and its derivative with respect to `ln π`: pessimistic for a quantity that is maximised.
fn smaller_term(rho: f64, adv: f64, clip: f64) -> (f64, f64) {
    let (plain, clipped) = (rho * adv, rho.clamp(1.0 - clip, 1.0 + clip) * adv);
    if plain <= clipped { (plain, plain) } else { (clipped, 0.0) }
}

/// `max(ρA, clip(ρ)A)` and its derivative with respect to `ln π`: pessimistic for a quantity that is minimised.
fn larger_term(rho: f64, adv: f64, clip: f64) -> (f64, f64) {
    let (plain, clipped) = (rho * adv, rho.clamp(1.0 - clip, 1.0 + clip) * adv);
    if plain >= clipped { (plain, plain) } else { (clipped, 0.0) }
}

/// Returns the loss `−E[min(ρA, clip(ρ)A)]` and writes its derivative to `dlogp`.
///
/// ```
/// use epo_algos::{Minibatch, clipped_surrogate};
/// // ρ = 2, A = 1, ε = 0.2: the gain is capped at 1.2 and the gradient is gone
/// let mb = Minibatch { logp: &[2_f64.ln()], logp_old: &[0.0], adv_r: &[1.0], adv_c: &[] };
/// let mut dlogp = [f64::NAN];
/// assert_eq!(clipped_surrogate(&mb, 0.2, |i| mb.adv_r[i], &mut dlogp), -1.2);
/// assert_eq!(dlogp, [0.0]);
/// ```
pub fn clipped_surrogate(
    mb: &Minibatch<'_>,
    clip: f64,
    adv: impl Fn(usize) -> f64,
    dlogp: &mut [f64],
) -> f64 {
    let n = mb.len() as f64;
    let mut sum = 0.0;
    for i in 0..mb.len() {
        let (value, grad) = smaller_term(mb.ratio(i), adv(i), clip);
        sum += value;
        dlogp[i] = -grad / n;
    }
    -sum / n
}

/// Returns the cost surrogate `L_c`.
pub fn cost_surrogate(mb: &Minibatch<'_>, form: CostClip, clip: f64, adv: impl Fn(usize) -> f64) -> f64 {
    (0..mb.len()).map(|i| form.term(mb.ratio(i), adv(i), clip).0).sum::<f64>() / mb.len() as f64
}

/// Adds `weight · ∂L_c/∂ ln π` to `dlogp` and returns `L_c`.
pub fn add_cost_gradient(
    mb: &Minibatch<'_>,
    form: CostClip,
    clip: f64,
    weight: f64,
    adv: impl Fn(usize) -> f64,
    dlogp: &mut [f64],
) -> f64 {
    let n = mb.len() as f64;
    let mut sum = 0.0;
    for i in 0..mb.len() {
        let (value, grad) = form.term(mb.ratio(i), adv(i), clip);
        sum += value;
        dlogp[i] += weight * grad / n;
    }
    sum / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clip_removes_the_incentive_not_the_penalty() {
        // ε = 0.2, worked by hand:  min(ρA, clip(ρ)A)
        //   ρ    A    ρA    clip·A   min    L     dL/dlogp
        //   2   +1   +2     +1.2    +1.2  −1.2     0       gain is capped
        //   2   −1   −2     −1.2    −2    +2      +2       loss is not
        //   ½   +1   +½     +0.8    +½    −½      −½
        //   ½   −1   −½     −0.8    −0.8  +0.8     0
        for (rho, a, loss, grad) in
            [(2.0, 1.0, -1.2, 0.0), (2.0, -1.0, 2.0, 2.0), (0.5, 1.0, -0.5, -0.5), (0.5, -1.0, 0.8, 0.0)]
        {
            let mb = Minibatch { logp: &[f64::ln(rho)], logp_old: &[0.0], adv_r: &[a], adv_c: &[] };
            let mut g = [0.0];
            let got = clipped_surrogate(&mb, 0.2, |_| a, &mut g);
            assert!(
                (got - loss).abs() < 1e-12 && (g[0] - grad).abs() < 1e-12,
                "ρ={rho} A={a}: L={got} g={}",
                g[0]
            );
        }
    }

    #[test]
    fn cost_clip_truth_table() {
        // ε = 0.2; ∂/∂lnπ is ρA inside the clip and 0 where the clip acts
        //                 A     ρ     min value, grad     max value, grad
        let table = [
            /* costly action already cut  */ (1.0, 0.7, (0.7, 0.7), (0.8, 0.0)),
            /* costly action raised       */ (1.0, 1.3, (1.2, 0.0), (1.3, 1.3)),
            /* safe action cut            */ (-1.0, 0.7, (-0.8, 0.0), (-0.7, -0.7)),
            /* safe action already raised */ (-1.0, 1.3, (-1.3, -1.3), (-1.2, 0.0)),
        ];
        for (a, rho, min, max) in table {
            let close = |x: (f64, f64), y: (f64, f64)| (x.0 - y.0).abs() < 1e-12 && (x.1 - y.1).abs() < 1e-12;
            assert!(close(CostClip::Min.term(rho, a, 0.2), min), "min, A={a} ρ={rho}");
            assert!(close(CostClip::Max.term(rho, a, 0.2), max), "max, A={a} ρ={rho}");
            assert_eq!(CostClip::None.term(rho, a, 0.2), (rho * a, rho * a), "none, A={a} ρ={rho}");
        }
    }

    #[test]
    fn cost_gradient_is_added_with_its_weight() {
        let logp = [0.7_f64.ln(), 1.3_f64.ln()];
        let mb = Minibatch { logp: &logp, logp_old: &[0.0; 2], adv_r: &[0.0; 2], adv_c: &[vec![1.0, 1.0]] };
        let mut g = [10.0, 10.0];
        let value = add_cost_gradient(&mb, CostClip::Max, 0.2, 3.0, |i| mb.adv_c[0][i], &mut g);
        assert!((value - 1.05).abs() < 1e-12, "(0.8 + 1.3) / 2, got {value}");
        assert!((g[0] - 10.0).abs() < 1e-12 && (g[1] - (10.0 + 3.0 * 1.3 / 2.0)).abs() < 1e-12, "{g:?}");
    }
}
