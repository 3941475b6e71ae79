//! A tabular CMDP as an environment, so that the result of training can be compared with the exact optimum.
//!
//! ```text
//! observation  one-hot of the state          action  its index
//! end          terminated with probability 1 − γ Σ_s' P(s'|s,a) after each step; truncated after max_steps
//! ```
//! The environment replaces discounting by random termination. The expected undiscounted total of an episode then
//! equals the discounted J of the CMDP. Truncation after `max_steps` changes it only by a share of about γ^max_steps.
//!
//! All algorithms of epo constrain the mean episode cost. On this environment they therefore have
//! the same limit as the linear program. Their own discount factors should be close to 1; 1 itself
//! is not allowed.

use std::sync::Arc;

use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Purpose, Step, Stream};

use crate::Cmdp;

/// The environment of a [`Cmdp`]. The cost of a step is the sum over all constraints; the cost terms are its parts.
#[derive(Clone, Debug)]
pub struct TabularEnv {
    cmdp: Arc<Cmdp>,
    spec: EnvSpec,
    rng: Stream,
    state: Option<usize>,
    steps: usize,
    terms: Vec<f64>,
}

impl TabularEnv {
    /// Creates the environment. Episodes are truncated after `max_steps` steps.
    pub fn new(cmdp: Arc<Cmdp>, max_steps: usize) -> Self {
        let spec = EnvSpec {
            id: cmdp.name().to_owned(),
            obs_len: cmdp.n_states(),
            action: ActionSpace::Discrete { n: cmdp.n_actions() },
            max_steps,
            cost_terms: (0..cmdp.costs().len()).map(|i| format!("cost_{i}")).collect(),
        };
        let terms = vec![0.0; cmdp.costs().len()];
        Self { cmdp, spec, rng: Stream::new(0, Purpose::Problem, 0), state: None, steps: 0, terms }
    }

    /// Returns a number of steps after which at most one episode in a million is still running.
    pub fn steps_to_end(cmdp: &Cmdp) -> usize {
        match cmdp.gamma() {
            g if g <= 0.0 => 1,
            g if g < 1.0 => (1e-6_f64.ln() / g.ln()).ceil() as usize,
            _ => cmdp.n_states(), // γ = 1: the states contain the time, so no state occurs twice
        }
    }

    fn observe(state: usize, obs: &mut [f64]) {
        obs.fill(0.0);
        obs[state] = 1.0;
    }
}

/// Returns the first index at which the cumulative sum of the weights exceeds `u`, or `None` if the total does not.
fn draw(u: f64, weights: impl Iterator<Item = f64>) -> Option<usize> {
    let mut sum = 0.0;
    weights.enumerate().find_map(|(i, w)| {
        sum += w;
        (u < sum).then_some(i)
    })
}

impl Env for TabularEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.rng = Stream::new(seed, Purpose::Problem, 0);
        self.steps = 0;
        // rounding can leave a residual probability; it belongs to the last state with positive probability
        let initial = self.cmdp.initial();
        let last = initial.iter().rposition(|p| *p > 0.0).unwrap_or(0);
        let state = draw(self.rng.uniform(), initial.iter().copied()).unwrap_or(last);
        self.state = Some(state);
        Self::observe(state, obs);
        Ok(())
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        self.spec.action.check(action)?;
        let s = self.state.take().ok_or(EnvError::NeedsReset)?;
        let a = action[0] as usize;
        let i = s * self.cmdp.n_actions() + a;
        for (term, table) in self.terms.iter_mut().zip(self.cmdp.costs()) {
            *term = table[i];
        }
        self.steps += 1;
        let gamma = self.cmdp.gamma();
        let u = self.rng.uniform();
        let next = draw(u, self.cmdp.next(s, a).iter().map(|p| gamma * p));
        // after termination the observation stays at the last state; its value is not used
        Self::observe(next.unwrap_or(s), obs);
        let outcome = match next {
            None => Outcome::Terminated,
            Some(_) if self.steps >= self.spec.max_steps => Outcome::Truncated,
            Some(_) => Outcome::Running,
        };
        if !outcome.is_done() {
            self.state = next;
        }
        Ok(Step { reward: self.cmdp.reward()[i], cost: self.terms.iter().sum(), outcome })
    }

    fn cost_terms(&self) -> &[f64] {
        &self.terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TabularPolicy, stories};

    /// Returns the mean return and the mean cost of `n` episodes of the uniform policy, with standard errors.
    fn simulate(cmdp: &Cmdp, n: u64) -> [(f64, f64); 2] {
        let mut env = TabularEnv::new(Arc::new(cmdp.clone()), TabularEnv::steps_to_end(cmdp));
        let mut obs = vec![0.0; cmdp.n_states()];
        let mut sums = [[0.0; 2]; 2];
        for seed in 0..n {
            let mut act = Stream::new(seed, Purpose::Action, 0);
            env.reset(seed, &mut obs).unwrap();
            let mut total = [0.0; 2];
            loop {
                assert_eq!(obs.iter().sum::<f64>(), 1.0);
                let step = env.step(&[act.below(cmdp.n_actions()) as f64], &mut obs).unwrap();
                total = [total[0] + step.reward, total[1] + step.cost];
                assert_ne!(step.outcome, Outcome::Truncated, "one episode in a million");
                if step.outcome.is_done() {
                    break;
                }
            }
            for (sum, x) in sums.iter_mut().zip(total) {
                *sum = [sum[0] + x, sum[1] + x * x];
            }
        }
        let n = n as f64;
        sums.map(|[s, ss]| (s / n, ((ss / n - (s / n).powi(2)) / n).sqrt()))
    }

    #[test]
    fn mean_episode_totals_are_the_discounted_values() {
        for cmdp in stories::all() {
            let uniform =
                TabularPolicy::softmax(cmdp.n_actions(), &vec![0.0; cmdp.n_states() * cmdp.n_actions()]);
            let exact = uniform.evaluate(&cmdp);
            for ((mean, error), want) in simulate(&cmdp, 20_000).into_iter().zip([exact.j_r, exact.j_c[0]]) {
                assert!((mean - want).abs() < 4.5 * error, "{}: {mean} ± {error}, exact {want}", cmdp.name());
            }
        }
    }

    #[test]
    fn an_episode_is_a_function_of_seed_and_actions_and_stops_when_over() {
        let cmdp = Arc::new(stories::hazard_grid());
        let play = |env: &mut TabularEnv| {
            let mut obs = vec![0.0; 15];
            env.reset(5, &mut obs).unwrap();
            let mut seen = vec![obs.clone()];
            while !env.step(&[1.0], &mut obs).unwrap().outcome.is_done() {
                seen.push(obs.clone());
            }
            assert_eq!(env.step(&[1.0], &mut obs), Err(EnvError::NeedsReset));
            assert!(env.step(&[4.0], &mut obs).is_err());
            seen
        };
        let mut env = TabularEnv::new(cmdp.clone(), 50);
        let first = play(&mut env);
        assert_eq!(first, play(&mut env), "a reset must clear all state");
        assert_eq!(first, play(&mut TabularEnv::new(cmdp, 50)));
    }

    #[test]
    fn time_limits_truncate() {
        let mut env = TabularEnv::new(Arc::new(stories::fast_or_slow()), 1);
        let mut obs = [0.0; 2];
        let cut = (0..20).filter(|seed| {
            env.reset(*seed, &mut obs).unwrap();
            env.step(&[0.0], &mut obs).unwrap().outcome == Outcome::Truncated
        });
        assert!(cut.count() > 10, "nine in ten episodes would go on");
    }
}
