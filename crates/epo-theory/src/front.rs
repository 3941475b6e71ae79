//! The largest reward as an exact function of the limit, by policy iteration. It checks the linear programs
//! independently.
//!
//! ```text
//! front(d) = max {J_R(π) : J_C(π) ≤ d}        concave and piecewise linear; its corners are deterministic policies
//! λ*(d) = slope of the front at d             an interval at a corner
//! max_π P(π, μ) = max_c front(c) − Φ((c − d)⁺)/μ
//! ```
//! The chord method finds the corners. Between two known corners it maximises J_R − λ J_C, where λ is the slope of the
//! line through them. The module supports only one constraint.

use crate::linear::dot;
use crate::penalty::{phi, phi_slope};
use crate::{Cmdp, TabularPolicy};

/// One corner of the front.
#[derive(Clone, Debug)]
pub struct FrontPoint {
    /// J_C, the expected cost.
    pub j_c: f64,
    /// J_R, the expected return.
    pub j_r: f64,
    /// A deterministic policy with these values.
    pub policy: TabularPolicy,
}

/// The front, as the list of its corners from the least cost to the largest reward.
#[derive(Clone, Debug)]
pub struct Front {
    /// The corners, sorted by cost. From left to right, rewards increase and slopes decrease.
    pub corners: Vec<FrontPoint>,
}

/// Smaller advantages, relative to the largest payoff, are treated as rounding errors.
const TIE: f64 = 1e-11;

/// Returns the action per state that maximises the discounted sum of `payoff`, and the values of the states.
///
/// The method is policy iteration. It uses only actions with `allowed[s·A + a]`.
pub fn best_response(cmdp: &Cmdp, payoff: &[f64], allowed: &[bool]) -> (Vec<usize>, Vec<f64>) {
    let m = cmdp.n_actions();
    let scale = payoff.iter().fold(1.0_f64, |top, p| top.max(p.abs()));
    let first = |s: usize| (0..m).find(|a| allowed[s * m + a]).unwrap_or(0);
    let mut action: Vec<usize> = (0..cmdp.n_states()).map(first).collect();
    loop {
        let v = TabularPolicy::deterministic(m, &action).value(cmdp, payoff);
        let q = |s: usize, a: usize| payoff[s * m + a] + cmdp.gamma() * dot(cmdp.next(s, a), &v);
        let mut changed = false;
        for s in 0..cmdp.n_states() {
            let best = (0..m).filter(|a| allowed[s * m + a]).max_by(|&a, &b| q(s, a).total_cmp(&q(s, b)));
            if let Some(best) = best
                && q(s, best) > q(s, action[s]) + TIE * scale
            {
                action[s] = best;
                changed = true;
            }
        }
        if !changed {
            return (action, v);
        }
    }
}

/// Returns a policy that maximises `first`. If several do, it also maximises `second` among them.
fn lexicographic(cmdp: &Cmdp, first: &[f64], second: &[f64]) -> FrontPoint {
    let m = cmdp.n_actions();
    let (_, v) = best_response(cmdp, first, &vec![true; first.len()]);
    let scale = first.iter().fold(1.0_f64, |top, p| top.max(p.abs()));
    let ties: Vec<bool> = (0..first.len())
        .map(|i| first[i] + cmdp.gamma() * dot(cmdp.next(i / m, i % m), &v) >= v[i / m] - 100.0 * TIE * scale)
        .collect();
    corner(cmdp, &best_response(cmdp, second, &ties).0)
}

fn corner(cmdp: &Cmdp, action: &[usize]) -> FrontPoint {
    let policy = TabularPolicy::deterministic(cmdp.n_actions(), action);
    let e = policy.evaluate(cmdp);
    FrontPoint { j_c: e.j_c[0], j_r: e.j_r, policy }
}

/// Returns the front of a CMDP, with all its corners.
///
/// # Panics
/// If the number of constraints is not 1.
pub fn front(cmdp: &Cmdp) -> Front {
    assert_eq!(cmdp.costs().len(), 1, "a front is drawn over one cost");
    let thrift: Vec<f64> = cmdp.costs()[0].iter().map(|c| -c).collect();
    let right = lexicographic(cmdp, cmdp.reward(), &thrift);
    let left = lexicographic(cmdp, &thrift, cmdp.reward());
    let mut corners = vec![left];
    // if both ends are equal up to rounding, the front has only one corner
    if right.j_r > corners[0].j_r + 1e-9 * (1.0 + right.j_r.abs()) {
        between(cmdp, &mut corners, &right);
        corners.push(right);
    }
    Front { corners }
}

/// Appends the corners strictly between the last corner of the list and `right`.
fn between(cmdp: &Cmdp, corners: &mut Vec<FrontPoint>, right: &FrontPoint) {
    let Some(left) = corners.last() else { return };
    let lambda = (right.j_r - left.j_r) / (right.j_c - left.j_c);
    let payoff: Vec<f64> = cmdp.reward().iter().zip(&cmdp.costs()[0]).map(|(r, c)| r - lambda * c).collect();
    let (action, v) = best_response(cmdp, &payoff, &vec![true; payoff.len()]);
    let above = dot(cmdp.initial(), &v) - (right.j_r - lambda * right.j_c);
    let mid = corner(cmdp, &action);
    let inside = left.j_c < mid.j_c && mid.j_c < right.j_c;
    if above > 1e-9 * (1.0 + right.j_r.abs() + lambda * right.j_c) && inside {
        between(cmdp, corners, &mid);
        corners.push(mid);
        between(cmdp, corners, right);
    }
}

impl Front {
    /// Returns front(d), the largest J_R with J_C ≤ d, or `None` if `d` is below the least cost.
    pub fn at(&self, d: f64) -> Option<f64> {
        let c = &self.corners;
        let right = c.iter().position(|p| p.j_c > d);
        match right {
            Some(0) => None,
            None => c.last().map(|p| p.j_r),
            Some(i) => Some(c[i - 1].j_r + self.slope(i - 1) * (d - c[i - 1].j_c)),
        }
    }

    /// Returns the smallest and the largest multiplier λ*(d). They differ only if `d` is the cost of a corner.
    pub fn multipliers(&self, d: f64) -> (f64, f64) {
        let at_corner = |p: &FrontPoint| (p.j_c - d).abs() <= 1e-9 * (1.0 + d.abs());
        let next = self.corners.iter().position(|p| p.j_c > d && !at_corner(p)).unwrap_or(self.corners.len());
        let right = if next < self.corners.len() && next > 0 { self.slope(next - 1) } else { 0.0 };
        match next.checked_sub(1) {
            Some(0) if at_corner(&self.corners[0]) => (right, f64::INFINITY),
            Some(i) if at_corner(&self.corners[i]) => (right, self.slope(i - 1)),
            _ => (right, right),
        }
    }

    /// Returns the slope between the corners `i` and `i + 1`.
    fn slope(&self, i: usize) -> f64 {
        let (p, q) = (&self.corners[i], &self.corners[i + 1]);
        (q.j_r - p.j_r) / (q.j_c - p.j_c)
    }

    /// Returns (J_C, J_R, P) of the maximiser of P(·, μ) for the limit `d`.
    ///
    /// If there are several maximisers, it returns the one with the smallest cost.
    pub fn penalised(&self, d: f64, mu: f64, alpha: f64) -> (f64, f64, f64) {
        let worth = |c: f64, r: f64| (c, r, r - phi(alpha, (c - d).max(0.0)) / mu);
        let (mut c, mut r) = (self.corners[0].j_c, self.corners[0].j_r);
        for (i, next) in self.corners.iter().enumerate().skip(1) {
            let lambda = self.slope(i - 1);
            // up to the limit there is no penalty; beyond it, move on while the front is steeper than the penalty
            let stop = if next.j_c <= d {
                next.j_c
            } else if lambda * mu <= phi_slope(alpha, (c - d).max(0.0)) {
                c.max(d.min(next.j_c))
            } else if alpha < 1.0 {
                next.j_c.min(d + (lambda * mu - alpha) / (2.0 * (1.0 - alpha)))
            } else {
                next.j_c
            };
            r += lambda * (stop - c);
            c = stop;
            if c < next.j_c {
                break;
            }
        }
        worth(c, r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stories;

    #[test]
    fn the_two_state_front_by_hand() {
        let f = front(&stories::fast_or_slow());
        assert_eq!(f.corners.len(), 2);
        assert!((f.at(2.0).unwrap() - 12.2).abs() < 1e-12 && f.at(-0.1).is_none());
        let (low, high) = f.multipliers(2.0);
        assert!((low - 1.1).abs() < 1e-12 && low == high);
        assert_eq!(f.multipliers(9.0), (0.0, 0.0), "a limit that never binds");
        assert_eq!(f.multipliers(0.0).1, f64::INFINITY, "at the least cost no multiplier is too large");
        // α = 0: F = ½λμ; α = ½: F = λμ − ½; α = 1: F is 0 or the next corner
        assert!((f.penalised(2.0, 1.0, 0.0).0 - 2.55).abs() < 1e-12);
        assert!((f.penalised(2.0, 1.0, 0.5).0 - 2.6).abs() < 1e-12);
        assert!((f.penalised(2.0, 0.9, 1.0).0 - 2.0).abs() < 1e-12, "0.9 < 1/1.1");
        assert!((f.penalised(2.0, 0.92, 1.0).0 - 1.0 / 0.19).abs() < 1e-12, "0.92 > 1/1.1");
    }
}
