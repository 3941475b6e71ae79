//! Checks of Properties 1, Lemma 1, Theorem 1 and Corollary 1.
//!
//! All maximisers are global over all stationary policies; the programs of [`crate::optimum`] compute them. Values are
//! those of the returned policies, evaluated by linear systems.

use epo_core::{Purpose, Stream};

use super::{Check, Tally};
use crate::linear::dot;
use crate::penalty::{hinge, hinge_slope};
use crate::{Cmdp, Optimum, PolicyValues, RandomCmdp, SolveError, TabularPolicy, optimum, penalised};

/// Returns the gradient of J_C with respect to the logits of a softmax policy: x(s) π(a|s) A(s,a).
fn cost_gradient(cmdp: &Cmdp, policy: &TabularPolicy) -> Vec<f64> {
    let (e, m) = (policy.evaluate(cmdp), cmdp.n_actions());
    let adv = PolicyValues::advantage(cmdp, &cmdp.costs()[0], &e.v_c[0]);
    (0..adv.len()).map(|i| e.visits[i / m] * policy.probabilities()[i] * adv[i]).collect()
}

/// Checks Properties 1: in each region, the signs of the changes of Φ and |∇_θ Φ| when α increases.
pub(super) fn properties1(n: usize, progress: &mut dyn FnMut(usize)) -> Result<Vec<Check>, SolveError> {
    let mut gradient =
        Tally::new("policy-gradient", 1e-6, "|∇_θ J_C − central differences|, softmax policies");
    let mut signs = Tally::new(
        "properties-1",
        1e-12,
        "larger α: near Φ↑ |∇Φ|↑, mid Φ↑ |∇Φ|↓, far Φ↓ |∇Φ|↓ (no change is also accepted)",
    );
    let mut strict =
        Tally::new("properties-1-strict", 0.0, "the same with strict changes, for F inside the regions");
    for i in 0..n {
        let cmdp = RandomCmdp::draw(i as u64, 1).build(i as u64);
        let mut rng = Stream::new(i as u64, Purpose::Random, 1);
        let logits: Vec<f64> = cmdp.reward().iter().map(|_| rng.normal()).collect();
        let policy = TabularPolicy::softmax(cmdp.n_actions(), &logits);
        let grad = cost_gradient(&cmdp, &policy);
        for (j, g) in grad.iter().enumerate() {
            let at = |h: f64| {
                let mut moved = logits.clone();
                moved[j] += h;
                TabularPolicy::softmax(cmdp.n_actions(), &moved).evaluate(&cmdp).j_c[0]
            };
            gradient.see((g - (at(1e-5) - at(-1e-5)) / 2e-5).abs(), || cmdp.name().to_owned());
        }
        let norm = dot(&grad, &grad).sqrt();
        // A triple is F, the sign of the change of the penalty, and the sign of the change of the slope. The limit d is
        // chosen so that J_C − d = F.
        let (a, b) = (rng.uniform(), rng.uniform());
        let (low, high) = (a.min(b), a.max(b));
        let u = rng.uniform();
        let inside = |f: f64| f > 0.0 && f != 0.5 && f != 1.0;
        let near = [(-u, 1.0, 1.0), (0.0, 1.0, 1.0), (0.5 * u, 1.0, 1.0), (0.5, 1.0, 1.0)];
        let rest = [(0.5 + 0.5 * u, 1.0, -1.0), (1.0, 1.0, -1.0), (1.0 + 2.0 * u, -1.0, -1.0)];
        for (f, penalty, slope) in near.into_iter().chain(rest) {
            let rise = penalty * (hinge(high, f) - hinge(low, f));
            let steeper = slope * norm * (hinge_slope(high, f) - hinge_slope(low, f));
            let case = || format!("{}, F {f:.3}, α {low:.3} → {high:.3}", cmdp.name());
            signs.see(-rise.min(steeper), case);
            if inside(f) {
                strict.see(-rise.min(steeper), case);
            }
        }
        progress(i);
    }
    let note = "no change with α at F ≤ 0 (both), at F = ½ (gradient) and at F = 1 (penalty)";
    Ok(vec![gradient.finish(""), signs.finish(note), strict.finish("")])
}

/// Returns the unit of the residuals, 1 + |value|.
fn scale(best: &Optimum) -> f64 {
    1.0 + best.value.abs()
}

/// Returns the largest entry, at least 0. For multipliers this is ‖λ*‖∞.
fn largest(lambda: &[f64]) -> f64 {
    lambda.iter().copied().fold(0.0, f64::max)
}

/// Returns the total penalty Σ_i Φ(F_i⁺).
fn total_penalty(cmdp: &Cmdp, e: &PolicyValues, alpha: f64) -> f64 {
    e.excess(cmdp).iter().map(|&f| hinge(alpha, f)).sum()
}

/// Checks Lemma 1 for decreasing μ and α = 0, ½, 1. It consists of the lower and upper bound of P and the monotonicity
/// of P, F_R and F_C.
pub(super) fn lemma1(n: usize, progress: &mut dyn FnMut(usize)) -> Result<Vec<Check>, SolveError> {
    const M: [f64; 8] = [100.0, 10.0, 3.0, 1.3, 0.8, 0.4, 0.1, 0.01]; // values of μ‖λ*‖∞
    let tally = |name, text| Tally::new(name, 1e-8, text);
    let mut lower = tally("lemma-1-lower", "F_R(π̄) − P(π_t, μ_t) ≤ 0");
    let mut upper = tally("lemma-1-upper", "P(π_t, μ_t) − F_R(π_t) ≤ 0");
    let mut p_down = tally("lemma-1-P", "P(π_{t+1}, μ_{t+1}) − P(π_t, μ_t) ≤ 0");
    let mut r_down = tally("lemma-1-F_R", "F_R(π_{t+1}) − F_R(π_t) ≤ 0");
    let mut c_down = tally("lemma-1-F_C", "F_C⁺(π_{t+1}) − F_C⁺(π_t) ≤ 0, one constraint");
    let mut sum_down = tally("lemma-1-sum", "Σ_i Φ(F_i⁺(π_{t+1})) − Σ_i Φ(F_i⁺(π_t)) ≤ 0, two constraints");
    for i in 0..n {
        for k in [1, 2] {
            let cmdp = RandomCmdp::draw(i as u64, k).build(i as u64);
            let best = optimum(&cmdp)?;
            for alpha in [0.0, 0.5, 1.0] {
                let mut last: Option<(f64, f64, f64, f64)> = None;
                for m in M {
                    let mu = m / largest(&best.multipliers);
                    let e = penalised(&cmdp, mu, alpha)?.evaluation;
                    let pen = total_penalty(&cmdp, &e, alpha);
                    let (p, f_c) = (e.j_r - pen / mu, e.excess(&cmdp)[0].max(0.0));
                    let case = || format!("{}, {k} constraints, α {alpha}, μ {m}/λ*", cmdp.name());
                    let unit = scale(&best);
                    lower.see((best.value - p) / unit, case);
                    upper.see((p - e.j_r) / unit, case);
                    if let Some((p0, r0, c0, pen0)) = last {
                        p_down.see((p - p0) / unit, case);
                        r_down.see((e.j_r - r0) / unit, case);
                        if k == 1 {
                            c_down.see((f_c - c0) / unit, case);
                        } else {
                            sum_down.see((pen - pen0) / unit, case);
                        }
                    }
                    last = Some((p, e.j_r, f_c, pen));
                }
            }
        }
        progress(i);
    }
    Ok([lower, upper, p_down, r_down, c_down, sum_down].into_iter().map(|t| t.finish("")).collect())
}

/// Checks Theorem 1: for μ → 0 the maximiser of P converges to the optimum of the constrained problem.
pub(super) fn theorem1(n: usize, progress: &mut dyn FnMut(usize)) -> Result<Vec<Check>, SolveError> {
    let mut gap = Tally::new(
        "theorem-1-value",
        1e-5,
        "|J_R(π_t) − LP value| at μ = 1e-5/(l·max(1, l)), l = ‖λ*‖∞, α = 0, ½, 1",
    );
    let mut feasible = Tally::new("theorem-1-feasible", 1e-5, "largest F_i(π_t) at the same μ");
    let mut rate = Tally::new(
        "theorem-1-rate",
        1e-3,
        "|F_i(π_t)/(½ μ λ_i*) − 1| at μ = 1e-4/‖λ*‖∞, α = 0, binding constraints",
    );
    for i in 0..n {
        for k in [1, 2] {
            let cmdp = RandomCmdp::draw(i as u64, k).build(i as u64);
            let best = optimum(&cmdp)?;
            let top = largest(&best.multipliers);
            let mu = 1e-5 / (top * top.max(1.0));
            for alpha in [0.0, 0.5, 1.0] {
                let e = penalised(&cmdp, mu, alpha)?.evaluation;
                let case = || format!("{}, {k} constraints, α {alpha}", cmdp.name());
                gap.see((e.j_r - best.value).abs() / scale(&best), case);
                feasible.see(largest(&e.excess(&cmdp)), case);
            }
            // this μ is larger than the one above: F must be well above the solver's error, and below the next corner
            // of the front
            let mu = 1e-4 / top;
            let e = penalised(&cmdp, mu, 0.0)?.evaluation;
            for (f, lambda) in e.excess(&cmdp).iter().zip(&best.multipliers).filter(|(_, l)| **l > 0.1 * top)
            {
                rate.see((f / (0.5 * mu * lambda) - 1.0).abs(), || {
                    format!("{}, {k} constraints", cmdp.name())
                });
            }
        }
        progress(i);
    }
    Ok(vec![
        gap.finish(""),
        feasible.finish(""),
        rate.finish("a quadratic penalty is not exact for any μ > 0"),
    ])
}

/// Returns the largest violation of the penalised maximiser, or 0 if it meets all limits.
fn violation(cmdp: &Cmdp, mu: f64, alpha: f64) -> Result<f64, SolveError> {
    Ok(largest(&penalised(cmdp, mu, alpha)?.evaluation.excess(cmdp)))
}

/// Returns the largest μ at which the maximiser meets the limits, by bisection between `exact` and `not`.
///
/// At `exact` the maximiser meets the limits; at `not` it violates one. Violations up to 1e-5 (α = 1) or 1e-4 (other α)
/// are ignored, because they can be solver error.
///
/// With a linear penalty (α = 1), the violation jumps to the next corner of the front just above the threshold. The
/// ignored violations then cause no error. With a mixed penalty it grows from 0, and the relative error of μ is about
/// 2e-4.
pub(crate) fn threshold(cmdp: &Cmdp, alpha: f64, mut exact: f64, mut not: f64) -> Result<f64, SolveError> {
    let counts = if alpha == 1.0 { 1e-5 } else { 1e-4 };
    while (not - exact) > 1e-7 * exact {
        let mid = 0.5 * (exact + not);
        if violation(cmdp, mid, alpha)? <= counts {
            exact = mid;
        } else {
            not = mid;
        }
    }
    Ok(0.5 * (exact + not))
}

/// Checks Corollary 1: the linear penalty is exact for μ < 1/‖λ*‖∞, and not exact for larger μ.
pub(super) fn corollary1(n: usize, progress: &mut dyn FnMut(usize)) -> Result<Vec<Check>, SolveError> {
    let mut exact =
        Tally::new("corollary-1-exact", 1e-7, "F_C and |J_R − LP value| at μ = 0.99/‖λ*‖∞, α = 1");
    let mut before =
        Tally::new("corollary-1-not-before", 0.0, "at μ = 1.01/‖λ*‖∞ every maximiser violates a limit");
    let mut found = Tally::new("corollary-1-threshold", 1e-4, "|μ̂ ‖λ*‖∞ − 1|, μ̂ by bisection, α = 1");
    let mut half = Tally::new("corollary-1-alpha", 1e-3, "|μ̂ ‖λ*‖∞/α − 1|, α = ½: exact for every α > 0");
    let mut least = f64::INFINITY;
    for i in 0..n {
        for k in [1, 2] {
            let cmdp = RandomCmdp::draw(i as u64, k).build(i as u64);
            let best = optimum(&cmdp)?;
            let top = largest(&best.multipliers);
            let case = || format!("{}, {k} constraints", cmdp.name());
            let e = penalised(&cmdp, 0.99 / top, 1.0)?.evaluation;
            exact.see((e.j_r - best.value).abs() / scale(&best), case);
            exact.see(largest(&e.excess(&cmdp)) / scale(&best), case);
            let over = violation(&cmdp, 1.01 / top, 1.0)?;
            least = least.min(over);
            before.see(f64::from(u8::from(over <= 1e-5)), case);
            found.see((threshold(&cmdp, 1.0, 0.5 / top, 2.0 / top)? * top - 1.0).abs(), case);
            half.see((threshold(&cmdp, 0.5, 0.25 / top, 1.0 / top)? * top / 0.5 - 1.0).abs(), case);
        }
        progress(i);
    }
    let note = format!("the smallest violation at μ = 1.01/‖λ*‖∞ is {least:.2e}");
    Ok(vec![exact.finish(""), before.finish(note), found.finish(""), half.finish("")])
}
