//! Counter-examples: small cases in which a statement of the paper needs a condition that the paper does not state.
//!
//! Each case is a short calculation on a CMDP with one or two states. `docs/theory.md` explains them in words.

use serde::Serialize;

use super::trust::Pair;
use crate::penalty::{hinge, phi_slope, softplus};
use crate::{Cmdp, CmdpError, SolveError, TabularPolicy, front, optimum, penalised, stories};

/// A case in which a statement fails without an additional condition.
#[derive(Clone, Debug, Serialize)]
pub struct CounterExample {
    /// Name of the statement.
    pub statement: &'static str,
    /// The condition that the statement needs.
    pub needs: &'static str,
    /// What happens without the condition, with numbers.
    pub found: String,
    /// Whether the computed numbers confirm the case.
    pub ok: bool,
}

/// Computes all counter-examples.
pub fn all() -> Result<Vec<CounterExample>, SolveError> {
    Ok(vec![
        units()?,
        largest_violation()?,
        corner_limit()?,
        exactly_at_the_threshold(),
        deterministic_class(),
        each_constraint()?,
        infeasible()?,
        violated_surrogate(),
        smooth_limit(),
        smooth_sandwich(),
        smooth_regions(),
    ])
}

/// Returns a CMDP with one state and γ = 0. Its J is the expected payoff of one action.
fn bandit(reward: &[f64], costs: &[&[f64]], limits: &[f64]) -> Cmdp {
    let costs = costs.iter().map(|c| c.to_vec()).collect();
    let built: Result<Cmdp, CmdpError> =
        Cmdp::new("bandit", 0.0, vec![1.0], vec![1.0; reward.len()], reward.to_vec(), costs, limits.to_vec());
    built.unwrap_or_else(|e| unreachable!("a table of this file is wrong: {e}"))
}

/// Returns (F_C, J_R) of the policy of [`stories::fast_or_slow`] with `f` discounted fast steps.
fn fast_steps(f: f64) -> (f64, f64) {
    (f - 2.0, 10.0 + 1.1 * f)
}

fn units() -> Result<CounterExample, SolveError> {
    let cmdp = stories::fast_or_slow();
    // up to a constant, the paper's P at μ is (1−γ) times the P of this crate at (1−γ)μ
    let over = |mu_paper: f64| -> Result<f64, SolveError> {
        Ok(penalised(&cmdp, (1.0 - cmdp.gamma()) * mu_paper, 1.0)?.evaluation.excess(&cmdp)[0])
    };
    let (before, after) = (over(9.0)?, over(9.2)?);
    Ok(CounterExample {
        statement: "Corollary 1",
        needs: "the λ* of eq 6 as printed, whose objective lacks 1/(1−γ); it is (1−γ) times the λ* of eq 1",
        found: format!(
            "two states, λ* of eq 1 = 1.1: exact up to μ = 1/(0.1·1.1) = 9.09 instead of 0.91: F_C(μ=9) = {before:.1e}, F_C(μ=9.2) = {after:.3}"
        ),
        ok: before.abs() < 1e-7 && after > 3.0,
    })
}

fn largest_violation() -> Result<CounterExample, SolveError> {
    let cmdp = bandit(&[0.0, 1.0, 1.0], &[&[0.0, 1.0, 0.0], &[0.0, 0.0, 1.0]], &[0.25, 0.25]);
    let best = optimum(&cmdp)?;
    let mu = 0.7;
    let over = TabularPolicy::new(3, vec![0.0, 0.5, 0.5]).evaluate(&cmdp);
    let excess = over.excess(&cmdp);
    let by_max = over.j_r - excess[0].max(excess[1]) / mu;
    let by_sum = penalised(&cmdp, mu, 1.0)?.evaluation.excess(&cmdp);
    let unit_norm = best.multipliers.iter().all(|l| (l - 1.0).abs() < 1e-6);
    Ok(CounterExample {
        statement: "Corollary 1, several constraints",
        needs: "a penalty that sums Φ(F_i⁺); a penalty of the largest violation needs μ < 1/‖λ*‖₁",
        found: format!(
            "λ* = (1, 1), μ = 0.7 < 1/‖λ*‖∞: with Φ(max F_i⁺) the infeasible policy (0, ½, ½) has P = {by_max:.3} > optimum {:.3}; the sum is exact",
            best.value
        ),
        ok: unit_norm && by_max > best.value + 0.1 && by_sum.iter().all(|f| *f < 1e-7),
    })
}

fn corner_limit() -> Result<CounterExample, SolveError> {
    // the corners are (0, 0), (1, 1), (5, 3); the limit is at (1, 1), where the slope changes from 1 to ½
    let cmdp = bandit(&[0.0, 1.0, 3.0], &[&[0.0, 1.0, 5.0]], &[1.0]);
    let (low, high) = front(&cmdp).multipliers(1.0);
    let over =
        |mu: f64| -> Result<f64, SolveError> { Ok(penalised(&cmdp, mu, 1.0)?.evaluation.excess(&cmdp)[0]) };
    let (inside, outside) = (over(1.9)?, over(2.1)?);
    Ok(CounterExample {
        statement: "Corollary 1, \"and not before\"",
        needs: "the smallest λ* if λ* is not unique (if the limit is at a corner of the front)",
        found: format!(
            "every λ* in [{low}, {high}] is a multiplier; exact up to μ = 2 = 1/{low} instead of 1 = 1/{high}: F_C(μ=1.9) = {inside:.1e}, F_C(μ=2.1) = {outside:.2}"
        ),
        ok: low == 0.5 && high == 1.0 && inside < 1e-7 && outside > 3.9,
    })
}

fn exactly_at_the_threshold() -> CounterExample {
    let value = |f: f64| fast_steps(f).1 - hinge(1.0, fast_steps(f).0) * 1.1;
    let (feasible, not) = (value(2.0), value(1.0 / 0.19));
    CounterExample {
        statement: "Corollary 1, μ = 1/λ*",
        needs: "the strict inequality: if μ = 1/λ*, a maximiser can be infeasible",
        found: format!(
            "two states, μ = 1/1.1: f = 2 (feasible) has P = {feasible:.4}, f = 5.26 (F_C = 3.26) has P = {not:.4}"
        ),
        ok: (feasible - not).abs() < 1e-12,
    }
}

fn deterministic_class() -> CounterExample {
    // the only deterministic policies are f = 0 (always slow) and f = 1/.19 (always fast)
    let mu = 0.7;
    let value = |f: f64| fast_steps(f).1 - hinge(1.0, fast_steps(f).0) / mu;
    let (slow, fast) = (value(0.0), value(1.0 / 0.19));
    CounterExample {
        statement: "Corollary 1, parametrised policies Π_θ",
        needs: "a convex set of occupancy measures (all stationary policies); otherwise there is a duality gap",
        found: format!(
            "two states, deterministic policies only, μ = 0.7 < 1/1.1: the infeasible policy has P = {fast:.2}, the feasible policy P = {slow:.2}"
        ),
        ok: fast > slow + 1.0 && mu < 1.0 / 1.1,
    }
}

fn each_constraint() -> Result<CounterExample, SolveError> {
    let cmdp = bandit(&[1.0, 0.9, 0.0], &[&[0.0, 1.0, 0.0], &[2.0, 0.0, 0.0]], &[0.0, 0.0]);
    let at =
        |mu: f64| -> Result<Vec<f64>, SolveError> { Ok(penalised(&cmdp, mu, 0.0)?.evaluation.excess(&cmdp)) };
    let (before, after) = (at(100.0)?, at(5.0)?);
    Ok(CounterExample {
        statement: "Lemma 1, F_C(π_{t+1}) ≤ F_C(π_t), several constraints",
        needs: "a single constraint; with several constraints only Σ Φ(F_i⁺) is non-increasing",
        found: format!(
            "μ 100 → 5, α = 0: F_1 rises from {:.3} to {:.3} while F_2 falls from {:.3} to {:.3}",
            before[0], after[0], before[1], after[1]
        ),
        ok: after[0] > before[0] + 0.5 && after[1] < before[1],
    })
}

fn infeasible() -> Result<CounterExample, SolveError> {
    let cmdp = bandit(&[0.0, 0.0], &[&[3.0, 1.6], &[0.0, 1.6]], &[0.0, 0.0]);
    let at =
        |alpha: f64| -> Result<Vec<f64>, SolveError> { Ok(penalised(&cmdp, 1e-4, alpha)?.evaluation.j_c) };
    let (linear, quadratic) = (at(1.0)?, at(0.0)?);
    let refused = matches!(optimum(&cmdp), Err(SolveError::Infeasible { .. }));
    Ok(CounterExample {
        statement: "Theorem 1",
        needs: "a feasible policy; otherwise μ → 0 leads to the policy with the least penalty, which depends on α",
        found: format!(
            "costs (3, 0) or (1.6, 1.6), limits 0: α = 1 leads to costs {linear:.2?}, α = 0 to {quadratic:.2?}"
        ),
        ok: refused && linear[1] < 1e-3 && quadratic[1] > 0.5,
    })
}

fn violated_surrogate() -> CounterExample {
    let (cmdp, alpha, mu) = (stories::fast_or_slow(), 0.0, 0.1);
    let policy = |p: f64| TabularPolicy::new(2, vec![1.0 - p, p, 1.0, 0.0]);
    let pair = Pair::new(&cmdp, &policy(0.5), &policy(0.51));
    let d = cmdp.limits()[0];
    let error = pair.error(d, mu, alpha);
    let (bound, lacking) = pair.theorem2(pair.delta, d, mu, alpha);
    CounterExample {
        statement: "Theorem 2",
        needs: "L_C ≤ 0, where the surrogate penalty vanishes; for L_C > 0 add (1−α) 2 L_C⁺ e_C / μ",
        found: format!(
            "two states, probability of fast 0.50 → 0.51, L_C = {:.3}, α = 0, μ = 0.1: error {error:.2e}, printed bound {bound:.2e}, repaired bound {:.2e}",
            pair.surrogate_c - d,
            bound + lacking
        ),
        ok: error > 1.5 * bound && error <= bound + lacking,
    }
}

/// Returns the discounted number f of fast steps to which first-order optimisation of eq 25
/// converges in the two-state example.
///
/// It solves λ μ = e^F Φ'(y) σ(F) for f within 0..5.26, by bisection.
pub fn smooth_rest(mu: f64, alpha: f64) -> f64 {
    let pull = |f: f64| crate::penalty::smooth_slope(alpha, f - 2.0) / mu - 1.1;
    let (mut low, mut high) = (0.0, 1.0 / 0.19);
    if pull(low) >= 0.0 {
        return low;
    }
    for _ in 0..200 {
        let mid = 0.5 * (low + high);
        if pull(mid) < 0.0 {
            low = mid;
        } else {
            high = mid;
        }
    }
    low
}

fn smooth_limit() -> CounterExample {
    let rest = [0.6, 1.0 / 2.2, 0.1, 0.01].map(|mu| smooth_rest(mu, 1.0));
    CounterExample {
        statement: "Theorem 1 for the smooth form (eq 25)",
        needs: "a lower bound on μ: the smooth penalty also acts on feasible policies; μ → 0 gives the least cost",
        found: format!(
            "two states, α = 1: μ = 0.6, 1/2.2, 0.1, 0.01 converge to J_C = {rest:.2?}; the optimum has J_C = 2; μ = 0.01 has J_R = {:.1} instead of 12.2",
            fast_steps(rest[3]).1
        ),
        ok: rest[0] > 2.0 && (rest[1] - 2.0).abs() < 1e-9 && rest[2] < 1.5 && rest[3] == 0.0,
    }
}

fn smooth_sandwich() -> CounterExample {
    // compares P_S where first-order optimisation converges with J_R at the constrained optimum
    let mu = 0.4;
    let (f_c, j_r) = fast_steps(smooth_rest(mu, 1.0));
    let p_s = j_r - crate::penalty::smooth(1.0, f_c) / mu;
    CounterExample {
        statement: "Lemma 1 for the smooth form (eq 25), F_R(π̄) ≤ P_S",
        needs: "a penalty that is 0 on feasible policies",
        found: format!("two states, α = 1, μ = 0.4: P_S = {p_s:.2} < 12.2 = J_R(π̄), at F_C = {f_c:.3}"),
        ok: p_s < 12.2 - 0.5,
    }
}

fn smooth_regions() -> CounterExample {
    // ∂Φ'/∂α = 1 − 2y changes sign at y = ½, and ∂Φ/∂α = y − y² at y = 1, where y = ln(1 + e^F)
    let (half, one) = ((0.5_f64.exp() - 1.0).ln(), (1.0_f64.exp() - 1.0).ln());
    let slope_change = phi_slope(1.0, softplus(0.0)) - phi_slope(0.5, softplus(0.0));
    CounterExample {
        statement: "Properties 1 for the smooth form (eq 25)",
        needs: "regions defined by ln(1 + e^F): their boundaries are F = −0.433 and 0.541 instead of ½ and 1",
        found: format!(
            "at the limit itself (F = 0) an increase of α from ½ to 1 changes the slope by {slope_change:.3}; the signs change at F = {half:.3} and {one:.3}"
        ),
        ok: slope_change < -0.1
            && (softplus(half) - 0.5).abs() < 1e-12
            && (softplus(one) - 1.0).abs() < 1e-12,
    }
}
