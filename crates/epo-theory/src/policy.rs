//! Stationary policies and their exact evaluation by linear systems.
//!
//! ```text
//! V = (I − γP_π)⁻¹ r_π,   x = ρ (I − γP_π)⁻¹,   Q = r + γPV,   J = ρ·V
//! ```

use crate::Cmdp;
use crate::linear::{dot, solve};

/// A stationary policy. The probability π(a|s) is stored at index `s·A + a`.
#[derive(Clone, Debug, PartialEq)]
pub struct TabularPolicy {
    n_actions: usize,
    prob: Vec<f64>,
}

impl TabularPolicy {
    /// Creates a policy from its probabilities. The probabilities of each state must sum to 1.
    ///
    /// # Panics
    /// If the probabilities of a state do not sum to 1.
    pub fn new(n_actions: usize, prob: Vec<f64>) -> Self {
        for row in prob.chunks(n_actions) {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-9, "a policy's row sums to 1, not {row:?}");
        }
        Self { n_actions, prob }
    }

    /// Returns the deterministic policy that plays `action[s]` in state `s`.
    pub fn deterministic(n_actions: usize, action: &[usize]) -> Self {
        let mut prob = vec![0.0; n_actions * action.len()];
        for (s, &a) in action.iter().enumerate() {
            prob[s * n_actions + a] = 1.0;
        }
        Self { n_actions, prob }
    }

    /// Returns the softmax policy: π(a|s) is proportional to exp(l), where l is `logits[s·A + a]`.
    pub fn softmax(n_actions: usize, logits: &[f64]) -> Self {
        let mut prob = logits.to_vec();
        for row in prob.chunks_mut(n_actions) {
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter_mut().for_each(|p| *p = (*p - top).exp());
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|p| *p /= sum);
        }
        Self { n_actions, prob }
    }

    /// Returns the policy of the occupancy measure `x`. It is uniform in states that `x` does not visit.
    pub fn from_occupancy(n_actions: usize, x: &[f64]) -> Self {
        let mut prob = x.to_vec();
        for row in prob.chunks_mut(n_actions) {
            row.iter_mut().for_each(|p| *p = p.max(0.0));
            let sum: f64 = row.iter().sum();
            // a smaller sum is rounding error: the state is not visited, and the ratio would be noise
            if sum > 1e-7 {
                row.iter_mut().for_each(|p| *p /= sum);
            } else {
                row.fill(1.0 / n_actions as f64);
            }
        }
        Self { n_actions, prob }
    }

    /// Returns π(·|s), the action probabilities in state `s`.
    pub fn at(&self, s: usize) -> &[f64] {
        &self.prob[s * self.n_actions..(s + 1) * self.n_actions]
    }

    /// Returns all probabilities; π(a|s) is at index `s·A + a`.
    pub fn probabilities(&self) -> &[f64] {
        &self.prob
    }

    /// Returns D_KL(self ‖ other) in state `s`. It is infinite if `other` never plays an action that `self` plays.
    pub fn kl(&self, other: &Self, s: usize) -> f64 {
        let term = |(&p, &q): (&f64, &f64)| if p > 0.0 { p * (p / q).ln() } else { 0.0 };
        self.at(s).iter().zip(other.at(s)).map(term).sum()
    }

    /// Returns the matrix I − γP_π, row-major.
    fn system(&self, cmdp: &Cmdp) -> Vec<f64> {
        let n = cmdp.n_states();
        let mut a = vec![0.0; n * n];
        for s in 0..n {
            for (action, &p) in self.at(s).iter().enumerate().filter(|(_, p)| **p != 0.0) {
                for (to, &q) in cmdp.next(s, action).iter().enumerate() {
                    a[s * n + to] -= cmdp.gamma() * p * q;
                }
            }
            a[s * n + s] += 1.0;
        }
        a
    }

    /// Returns V(s) for the payoff table `payoff` (index `s·A + a`), such as the reward or a cost.
    pub fn value(&self, cmdp: &Cmdp, payoff: &[f64]) -> Vec<f64> {
        let expected = |s: usize| dot(self.at(s), &payoff[s * self.n_actions..][..self.n_actions]);
        let mut v: Vec<f64> = (0..cmdp.n_states()).map(expected).collect();
        solve(&mut self.system(cmdp), &mut v);
        v
    }

    /// Returns the exact values of this policy, from linear systems.
    pub fn evaluate(&self, cmdp: &Cmdp) -> PolicyValues {
        let (n, a) = (cmdp.n_states(), self.system(cmdp));
        let mut transposed: Vec<f64> = (0..n * n).map(|i| a[(i % n) * n + i / n]).collect();
        let mut visits = cmdp.initial().to_vec();
        solve(&mut transposed, &mut visits);
        let v_r = self.value(cmdp, cmdp.reward());
        let v_c: Vec<Vec<f64>> = cmdp.costs().iter().map(|c| self.value(cmdp, c)).collect();
        PolicyValues {
            j_r: dot(cmdp.initial(), &v_r),
            j_c: v_c.iter().map(|v| dot(cmdp.initial(), v)).collect(),
            visits,
            v_r,
            v_c,
        }
    }
}

/// The exact values of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyValues {
    /// J_R, the expected discounted return.
    pub j_r: f64,
    /// J_Ci, the expected discounted cost of each constraint.
    pub j_c: Vec<f64>,
    /// Discounted number of visits of each state: Σ_t γᵗ P(s_t = s), which is d^π(s)/(1−γ).
    pub visits: Vec<f64>,
    /// V_R(s), the reward value of each state.
    pub v_r: Vec<f64>,
    /// V_Ci(s), the cost value of each state, per constraint.
    pub v_c: Vec<Vec<f64>>,
}

impl PolicyValues {
    /// Returns the advantages A(s,a) = payoff(s,a) + γ Σ P(s'|s,a) V(s') − V(s).
    ///
    /// `v` is the value table that belongs to `payoff`, such as [`v_r`](Self::v_r) for the reward.
    pub fn advantage(cmdp: &Cmdp, payoff: &[f64], v: &[f64]) -> Vec<f64> {
        let m = cmdp.n_actions();
        (0..payoff.len())
            .map(|i| payoff[i] + cmdp.gamma() * dot(cmdp.next(i / m, i % m), v) - v[i / m])
            .collect()
    }

    /// Returns J_Ci − d_i for each constraint. Positive values are violations.
    pub fn excess(&self, cmdp: &Cmdp) -> Vec<f64> {
        self.j_c.iter().zip(cmdp.limits()).map(|(j, d)| j - d).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stories;

    #[test]
    fn the_two_state_example_by_hand() {
        // always fast: the states are ready, cooling, ready, …; "ready" has 1 + .81 + … = 1/.19 discounted visits,
        // each with reward 3 and cost 1
        let cmdp = stories::fast_or_slow();
        let fast = TabularPolicy::deterministic(2, &[1, 0]).evaluate(&cmdp);
        assert!((fast.visits[0] - 1.0 / 0.19).abs() < 1e-12);
        assert!((fast.j_r - 3.0 / 0.19).abs() < 1e-12 && (fast.j_c[0] - 1.0 / 0.19).abs() < 1e-12);
        // always slow: reward 1 in every step
        let slow = TabularPolicy::deterministic(2, &[0, 0]).evaluate(&cmdp);
        assert!((slow.j_r - 10.0).abs() < 1e-12 && slow.j_c[0].abs() < 1e-12);
        // A(ready, fast) of the slow policy is 3 + .9·V(cooling) − 10 with V(cooling) = .9·10 = 9
        let adv = PolicyValues::advantage(&cmdp, cmdp.reward(), &slow.v_r);
        assert!((adv[1] - 1.1).abs() < 1e-12, "{adv:?}");
    }

    #[test]
    fn kl_by_hand_and_infinite_where_support_is_missing() {
        let p = TabularPolicy::new(2, vec![0.5, 0.5]);
        let q = TabularPolicy::new(2, vec![0.25, 0.75]);
        let want = 0.5 * 2.0_f64.ln() + 0.5 * (2.0_f64 / 3.0).ln();
        assert!((p.kl(&q, 0) - want).abs() < 1e-15);
        assert_eq!(p.kl(&TabularPolicy::deterministic(2, &[0]), 0), f64::INFINITY);
    }
}
