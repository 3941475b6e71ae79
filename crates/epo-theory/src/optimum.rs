//! Exact solutions by linear and quadratic programming over occupancy measures.
//!
//! ```text
//! max_x  r·x − (1/μ) Σ_i Φ(ξ_i)
//! s.t.   Σ_a x(s,a) − γ Σ P(s|s',a') x(s',a') = ρ(s)      multiplier V(s), the value of the Lagrangian MDP
//!        c_i·x − ξ_i ≤ d_i                                multiplier λ_i
//!        x ≥ 0, ξ ≥ 0                                     (the constrained problem itself has no ξ)
//! dual   ρ·V + λ·d + Σ_i max_ξ (λ_i ξ − Φ(ξ)/μ),   V ≥ r − λ·c + γPV,  λ ≥ 0
//! ```
//! The optimal stationary policy is π(a|s) = x(s,a) / Σ_a x(s,a) (Altman 1999, ch. 3). The solver is Clarabel, an
//! interior-point method. This module checks each of its answers: it computes the KKT residual from the tables and
//! returns an error if the residual exceeds 1e-6.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettingsBuilder, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus, ZeroConeT,
};

use crate::linear::dot;
use crate::penalty::phi;
use crate::{Cmdp, PolicyValues, TabularPolicy};

/// Largest accepted KKT residual, relative to 1 + |value|.
const ACCEPTED: f64 = 1e-6;

/// Residual below which no other solver settings are tried, relative to 1 + |value|.
const WANTED: f64 = 1e-11;

/// An exact solution, with its policy and multipliers.
#[derive(Clone, Debug)]
pub struct Optimum {
    /// Optimal value of the program: J_R, minus the penalty if there is one.
    pub value: f64,
    /// The optimal policy. If a constraint binds, it can be stochastic in some states.
    pub policy: TabularPolicy,
    /// Exact values of the policy, computed by linear systems and not by the solver.
    pub evaluation: PolicyValues,
    /// λ_i, one multiplier per constraint, in units of reward per cost.
    pub multipliers: Vec<f64>,
    /// Largest of primal infeasibility, dual infeasibility and duality gap, relative to 1 + |value|.
    pub residual: f64,
}

/// The reason why there is no solution.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
    /// No policy meets the limits.
    #[error("no policy meets the limits; the least total excess is {}, by constraint {excess:?}", excess.iter().sum::<f64>())]
    Infeasible {
        /// (J_Ci − d_i)⁺ for each constraint, of a policy with the least total excess.
        excess: Vec<f64>,
    },
    /// The solver did not find an accurate solution.
    #[error("the solver stopped with {status} and KKT residual {residual:e}")]
    Solver {
        /// Status that the solver reports, or the reason why its answer is rejected.
        status: String,
        /// KKT residual of the answer, computed from the tables.
        residual: f64,
    },
}

/// Parameters μ and α of the penalty Φ/μ.
#[derive(Clone, Copy)]
struct Penalty {
    mu: f64,
    alpha: f64,
}

/// Returns the exact solution of the constrained problem: the largest J_R with J_Ci ≤ d_i.
///
/// ```
/// let best = epo_theory::optimum(&epo_theory::stories::fast_or_slow())?;
/// assert!((best.value - 12.2).abs() < 1e-7); // 10 + 1.1·2
/// assert!((best.multipliers[0] - 1.1).abs() < 1e-7);
/// assert!((best.policy.at(0)[1] - 2.0 / 8.2).abs() < 1e-7); // fast in 24 % of the ready states
/// # Ok::<(), epo_theory::SolveError>(())
/// ```
pub fn optimum(cmdp: &Cmdp) -> Result<Optimum, SolveError> {
    program(cmdp, cmdp.reward(), None)
}

/// Returns the maximiser of P(π, μ) = J_R − (1/μ) Σ_i Φ(F_i⁺) over all stationary policies.
///
/// # Panics
/// If μ is not positive and finite, or α is outside 0..=1.
pub fn penalised(cmdp: &Cmdp, mu: f64, alpha: f64) -> Result<Optimum, SolveError> {
    assert!(mu > 0.0 && mu.is_finite(), "μ is {mu}, it must be positive");
    assert!((0.0..=1.0).contains(&alpha), "α is {alpha}, it must be within 0..=1");
    program(cmdp, cmdp.reward(), Some(Penalty { mu, alpha }))
}

/// Returns a policy with the least total excess Σ_i (J_Ci − d_i)⁺. The excess is 0 if the limits are feasible.
pub fn least_excess(cmdp: &Cmdp) -> Result<Optimum, SolveError> {
    program(cmdp, &vec![0.0; cmdp.reward().len()], Some(Penalty { mu: 1.0, alpha: 1.0 }))
}

/// Solves the program with up to four solver settings and returns the answer with the smallest residual.
///
/// It stops early once the residual is at most [`WANTED`]. The problem is degenerate if the slope of the penalty equals
/// a multiplier. Near such a μ the solver stalls at its smallest tolerance, but succeeds with a larger one.
fn program(cmdp: &Cmdp, reward: &[f64], penalty: Option<Penalty>) -> Result<Optimum, SolveError> {
    let mut best = attempt(cmdp, reward, penalty, (1e-12, true));
    for setting in [(1e-11, false), (1e-10, true), (1e-9, false)] {
        let residual = match &best {
            Ok(found) => found.residual,
            Err(SolveError::Infeasible { .. }) => break,
            Err(SolveError::Solver { residual, .. }) => *residual,
        };
        if residual <= WANTED {
            break;
        }
        let again = attempt(cmdp, reward, penalty, setting);
        if again.as_ref().is_ok_and(|o| o.residual < residual || residual.is_nan()) {
            best = again;
        }
    }
    match best {
        Ok(found) if found.residual > ACCEPTED => {
            Err(SolveError::Solver { status: "too large a residual".into(), residual: found.residual })
        }
        other => other,
    }
}

/// Runs the solver once, with the given tolerance, and with or without equilibration.
fn attempt(
    cmdp: &Cmdp,
    reward: &[f64],
    penalty: Option<Penalty>,
    (tolerance, equilibrate): (f64, bool),
) -> Result<Optimum, SolveError> {
    let (n_x, k) = (reward.len(), cmdp.costs().len());
    let n_slack = if penalty.is_some() { k } else { 0 };
    // scales the objective: the reward gets the factor √μ and the penalty 1/√μ, so neither loses digits to the other
    let weight = penalty.map_or(1.0, |p| p.mu.sqrt());
    let mut q: Vec<f64> = reward.iter().map(|r| -weight * r).collect();
    let mut quadratic = CscMatrix::zeros((n_x + n_slack, n_x + n_slack));
    if let Some(Penalty { mu, alpha }) = penalty {
        q.resize(n_x + k, weight * alpha / mu);
        let slack: Vec<usize> = (n_x..n_x + k).collect();
        let curvature = vec![2.0 * weight * (1.0 - alpha) / mu; k];
        quadratic = CscMatrix::new_from_triplets(n_x + k, n_x + k, slack.clone(), slack, curvature);
    }
    let (a, b) = rows(cmdp, n_slack);
    let cones = [ZeroConeT(cmdp.n_states()), NonnegativeConeT(k + n_x + n_slack)];
    let settings = DefaultSettingsBuilder::default()
        .verbose(false)
        .tol_gap_abs(tolerance)
        .tol_gap_rel(tolerance)
        .tol_feas(tolerance)
        .equilibrate_enable(equilibrate)
        .build()
        .unwrap_or_else(|e| unreachable!("settings are constants: {e}"));
    let mut solver = DefaultSolver::new(&quadratic, &q, &a, &b, &cones, settings)
        .unwrap_or_else(|e| unreachable!("sizes agree by construction: {e}"));
    solver.solve();
    let got = &solver.solution;
    if matches!(got.status, SolverStatus::PrimalInfeasible | SolverStatus::AlmostPrimalInfeasible) {
        let excess = least_excess(cmdp)?.evaluation.excess(cmdp);
        return Err(SolveError::Infeasible { excess: excess.iter().map(|f| f.max(0.0)).collect() });
    }
    let (x, slack) = got.x.split_at(n_x);
    let value_fn: Vec<f64> = got.z[..cmdp.n_states()].iter().map(|v| v / weight).collect();
    let multipliers: Vec<f64> = got.z[cmdp.n_states()..][..k].iter().map(|l| l / weight).collect();
    let residual = residual(cmdp, reward, penalty, x, slack, &value_fn, &multipliers);
    if !residual.is_finite() {
        return Err(SolveError::Solver { status: format!("{:?}", got.status), residual });
    }
    let policy = TabularPolicy::from_occupancy(cmdp.n_actions(), x);
    let evaluation = policy.evaluate(cmdp);
    let value = dot(reward, x) - penalty.map_or(0.0, |p| cost_of(p, slack));
    Ok(Optimum { value, policy, evaluation, multipliers, residual })
}

fn cost_of(Penalty { mu, alpha }: Penalty, slack: &[f64]) -> f64 {
    slack.iter().map(|&y| phi(alpha, y.max(0.0)) / mu).sum()
}

/// Returns `A` and `b` of the solver's form `A (x, ξ) + s = b`. The rows are flow equations, limits and signs.
fn rows(cmdp: &Cmdp, n_slack: usize) -> (CscMatrix<f64>, Vec<f64>) {
    let (n, m, k) = (cmdp.n_states(), cmdp.n_actions(), cmdp.costs().len());
    let n_x = n * m;
    let (mut i, mut j, mut v) = (vec![], vec![], vec![]);
    let mut put = |row: usize, col: usize, value: f64| {
        if value != 0.0 {
            i.push(row);
            j.push(col);
            v.push(value);
        }
    };
    for col in 0..n_x {
        let (s, a) = (col / m, col % m);
        for (to, p) in cmdp.next(s, a).iter().enumerate() {
            put(to, col, f64::from(u8::from(to == s)) - cmdp.gamma() * p);
        }
        for (c, table) in cmdp.costs().iter().enumerate() {
            put(n + c, col, table[col]);
        }
    }
    for c in 0..n_slack {
        put(n + c, n_x + c, -1.0);
    }
    for col in 0..n_x + n_slack {
        put(n + k + col, col, -1.0);
    }
    let mut b = cmdp.initial().to_vec();
    b.extend(cmdp.limits());
    b.resize(n + k + n_x + n_slack, 0.0);
    (CscMatrix::new_from_triplets(b.len(), n_x + n_slack, i, j, v), b)
}

/// Returns the KKT residual, computed from the tables. The header of this file states the dual.
fn residual(
    cmdp: &Cmdp,
    reward: &[f64],
    penalty: Option<Penalty>,
    x: &[f64],
    slack: &[f64],
    v: &[f64],
    lambda: &[f64],
) -> f64 {
    let (n, m) = (cmdp.n_states(), cmdp.n_actions());
    let mut worst: f64 = 0.0;
    let mut see = |r: f64| worst = if r.is_nan() { f64::NAN } else { worst.max(r) };
    // primal feasibility: flow, limits, signs
    let mut flow = cmdp.initial().to_vec();
    for (i, xi) in x.iter().enumerate() {
        flow[i / m] -= xi;
        for (to, p) in cmdp.next(i / m, i % m).iter().enumerate() {
            flow[to] += cmdp.gamma() * p * xi;
        }
        see(-xi);
    }
    (0..n).for_each(|s| see(flow[s].abs()));
    for (i, table) in cmdp.costs().iter().enumerate() {
        let y = slack.get(i).copied().unwrap_or(0.0);
        see(dot(table, x) - y - cmdp.limits()[i]);
        see(-y);
        see(-lambda[i]);
    }
    // dual feasibility: V(s) ≥ r − λ·c + γPV for every action
    for i in 0..x.len() {
        let charged: f64 = cmdp.costs().iter().zip(lambda).map(|(c, l)| l * c[i]).sum();
        see(reward[i] - charged + cmdp.gamma() * dot(cmdp.next(i / m, i % m), v) - v[i / m]);
    }
    // duality gap
    let primal = dot(reward, x) - penalty.map_or(0.0, |p| cost_of(p, slack));
    let mut dual = dot(cmdp.initial(), v) + dot(lambda, cmdp.limits());
    if let Some(Penalty { mu, alpha }) = penalty {
        for l in lambda {
            let over = (l * mu - alpha).max(0.0);
            if alpha < 1.0 {
                dual += over * over / (4.0 * (1.0 - alpha) * mu);
            } else {
                see(over / mu); // with a linear penalty, λ is at most 1/μ
            }
        }
    }
    see((primal - dual).abs());
    worst / (1.0 + primal.abs())
}
