//! Random CMDPs from a seed. Their limits are feasible, and at least one constraint binds at the optimum.

use epo_core::{Purpose, Stream};

use crate::{Cmdp, TabularPolicy, best_response};

/// The sizes and the difficulty of a random CMDP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomCmdp {
    /// S, the number of states.
    pub states: usize,
    /// A, the number of actions.
    pub actions: usize,
    /// Number of possible next states per state and action. If it equals `states`, all states are possible.
    pub branching: usize,
    /// Number of constraints.
    pub constraints: usize,
    /// Position of the limits, from 0 (cost of the policy with the least total cost) to 1 (cost of the unconstrained
    /// optimum). Smaller values are stricter.
    pub tightness: f64,
    /// γ, the discount factor.
    pub gamma: f64,
}

impl RandomCmdp {
    /// Draws random sizes: 2–10 states, 2–4 actions, tightness 0.1–0.9, and γ from 0.5, 0.8, 0.9 and 0.95.
    pub fn draw(seed: u64, constraints: usize) -> Self {
        let mut rng = Stream::new(seed, Purpose::Problem, 0);
        let states = 2 + rng.below(9);
        Self {
            states,
            actions: 2 + rng.below(3),
            branching: 1 + rng.below(states),
            constraints,
            tightness: 0.1 + 0.8 * rng.uniform(),
            gamma: [0.5, 0.8, 0.9, 0.95][rng.below(4)],
        }
    }

    /// Returns the random CMDP for `seed`.
    ///
    /// Transition probabilities are random. Rewards are uniform in 0..1. A cost is 0 with probability ½, otherwise
    /// uniform in 0..1.
    ///
    /// The limits are dᵢ = Jᵢ(frugal) + tightness · |Jᵢ(best) − Jᵢ(frugal)|. Here "frugal" is the policy with the least
    /// total cost, and "best" is the unconstrained optimum.
    ///
    /// - At least one limit excludes the unconstrained optimum. Random draws without such a conflict are rejected.
    /// - The difference |Jᵢ(best) − Jᵢ(frugal)| is replaced by a tenth of the largest Jᵢ(best) − Jᵢ(frugal) if it is
    ///   smaller. The frugal policy is then strictly feasible (Slater's condition).
    /// - Every constraint after the first multiplies the tightness by its own random factor from 0.5–1. Otherwise two
    ///   limits could bind at the same point, and λ* would not be unique.
    pub fn build(&self, seed: u64) -> Cmdp {
        (1..)
            .find_map(|attempt| self.attempt(seed, attempt))
            .unwrap_or_else(|| unreachable!("endless search"))
    }

    fn attempt(&self, seed: u64, attempt: u32) -> Option<Cmdp> {
        let mut rng = Stream::new(seed, Purpose::Problem, attempt);
        let (n, m) = (self.states, self.actions);
        let mut kernel = vec![0.0; n * m * n];
        let mut order: Vec<usize> = (0..n).collect();
        for row in kernel.chunks_mut(n) {
            rng.shuffle(&mut order);
            let to = &order[..self.branching.min(n)];
            to.iter().for_each(|&s| row[s] = 1e-3 + rng.uniform());
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|p| *p /= sum);
        }
        let reward: Vec<f64> = (0..n * m).map(|_| rng.uniform()).collect();
        let cost = |rng: &mut Stream| if rng.uniform() < 0.5 { 0.0 } else { rng.uniform() };
        let costs: Vec<Vec<f64>> =
            (0..self.constraints).map(|_| (0..n * m).map(|_| cost(&mut rng)).collect()).collect();
        let thrift: Vec<f64> = (0..n * m).map(|i| -costs.iter().map(|c| c[i]).sum::<f64>()).collect();
        let mut initial = vec![0.0; n];
        initial[0] = 1.0;
        let name = format!("random-{seed}");
        let limits = vec![0.0; self.constraints];
        let cmdp = Cmdp::new(name, self.gamma, initial, kernel, reward, costs, limits).ok()?;
        let costs_of = |payoff: &[f64]| {
            let (action, _) = best_response(&cmdp, payoff, &vec![true; n * m]);
            TabularPolicy::deterministic(m, &action).evaluate(&cmdp).j_c
        };
        let (frugal, best) = (costs_of(&thrift), costs_of(cmdp.reward()));
        let conflict = frugal.iter().zip(&best).map(|(f, b)| b - f).fold(0.0, f64::max);
        if conflict < 0.05 {
            return None;
        }
        let limit = |i: usize| {
            let own = if i == 0 { 1.0 } else { 0.5 + 0.5 * rng.uniform() };
            frugal[i] + own * self.tightness * (best[i] - frugal[i]).abs().max(0.1 * conflict)
        };
        let limits: Vec<f64> = (0..self.constraints).map(limit).collect();
        Some(cmdp.with_limits(&limits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimum;

    #[test]
    fn the_seed_names_the_cmdp_and_its_limits_bind() {
        for seed in 0..20 {
            for constraints in 1..=3 {
                let kind = RandomCmdp::draw(seed, constraints);
                let cmdp = kind.build(seed);
                assert_eq!(cmdp, kind.build(seed));
                assert_ne!(cmdp, kind.build(seed + 1));
                let best = optimum(&cmdp).unwrap();
                assert!(best.multipliers.iter().any(|l| *l > 1e-4), "{kind:?}: {:?}", best.multipliers);
            }
        }
    }
}
