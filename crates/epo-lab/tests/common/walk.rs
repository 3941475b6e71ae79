//! A small environment that trains in milliseconds. `epo-attack` uses it too.

use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Purpose, Step, Stream};

/// Changes what a step returns. Arguments: the number of the step in its episode, from 1, the observation, the result.
pub(crate) type Change = Box<dyn FnMut(usize, &mut [f64], &mut Step) + Send>;

/// A random walk on a line. The observation is the position and the fraction of the episode that has passed. The reward
/// is the position, and a position above 1 has a cost of 1. Long episodes continue over several epochs.
pub(crate) struct Walk {
    pub(crate) spec: EnvSpec,
    noise: Stream,
    x: f64,
    t: usize,
    pub(crate) change: Option<Change>,
}

impl Walk {
    pub(crate) fn new(action: ActionSpace, max_steps: usize) -> Self {
        let spec = EnvSpec { id: "Walk".into(), obs_len: 2, action, max_steps, cost_terms: vec![] };
        Self { spec, noise: Stream::new(0, Purpose::Problem, 0), x: 0.0, t: 0, change: None }
    }
}

impl Env for Walk {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.noise = Stream::new(seed, Purpose::Problem, 0);
        (self.x, self.t) = (self.noise.normal(), 0);
        obs.copy_from_slice(&[self.x, 0.0]);
        Ok(())
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        self.spec.action.check(action)?;
        self.t += 1;
        let push = match self.spec.action {
            ActionSpace::Box { .. } => action[0].clamp(-1.0, 1.0),
            ActionSpace::Discrete { n } => action[0] * 2.0 / (n - 1) as f64 - 1.0,
        };
        self.x = 0.9 * self.x + 0.3 * push + 0.1 * self.noise.normal();
        obs.copy_from_slice(&[self.x, self.t as f64 / self.spec.max_steps as f64]);
        let outcome = match self.x < -2.5 {
            true => Outcome::Terminated,
            false if self.t == self.spec.max_steps => Outcome::Truncated,
            false => Outcome::Running,
        };
        let mut step = Step { reward: self.x, cost: f64::from(self.x > 1.0), outcome };
        if let Some(change) = &mut self.change {
            change(self.t, obs, &mut step);
        }
        Ok(step)
    }
}
