//! A small environment that trains in milliseconds and can be told to misbehave.

use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Purpose, Step, Stream};

/// Task id of the environment.
pub(crate) const ID: &str = "AttackWalk-v0";
/// Environment variable with the misbehaviour: `panic`, `abort`, `segfault` or `hang`, in the 40th step of an episode.
pub(crate) const MISBEHAVE: &str = "EPO_ATTACK_ENV";

/// What an environment does wrong, and in which step of its life, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Observation(f64),
    Reward(f64),
    Cost(f64),
}

/// A random walk on a line. A position above 1 has a cost.
#[derive(Debug)]
pub(crate) struct Walk {
    spec: EnvSpec,
    noise: Stream,
    x: f64,
    t: u64,
    /// Number of steps since the environment was made.
    steps: u64,
    fault: Option<(u64, Fault)>,
    misbehave: Option<String>,
}

impl Walk {
    /// An environment that returns a bad number in step `fault.0` of its life, if `fault` is given.
    pub(crate) fn new(fault: Option<(u64, Fault)>) -> Self {
        let action = ActionSpace::symmetric(1);
        let spec = EnvSpec { id: ID.into(), obs_len: 2, action, max_steps: 50, cost_terms: vec![] };
        let misbehave = std::env::var(MISBEHAVE).ok();
        Self { spec, noise: Stream::new(0, Purpose::Problem, 0), x: 0.0, t: 0, steps: 0, fault, misbehave }
    }

    fn misbehave(&self) {
        match self.misbehave.as_deref() {
            Some("panic") => panic!("the environment of a user panics"),
            Some("abort") => std::process::abort(),
            Some("segfault") => {
                let me = rustix::process::getpid();
                let _ = rustix::process::kill_process(me, rustix::process::Signal::SEGV);
            }
            Some("hang") => loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            },
            _ => {}
        }
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
        (self.t, self.steps) = (self.t + 1, self.steps + 1);
        if self.t == 40 {
            self.misbehave();
        }
        self.x = 0.9 * self.x + 0.3 * action[0].clamp(-1.0, 1.0) + 0.1 * self.noise.normal();
        obs.copy_from_slice(&[self.x, self.t as f64 / 50.0]);
        let outcome = if self.t == 50 { Outcome::Truncated } else { Outcome::Running };
        let mut step = Step { reward: self.x, cost: f64::from(self.x > 1.0), outcome };
        match self.fault {
            Some((at, Fault::Observation(value))) if at == self.steps => obs[0] = value,
            Some((at, Fault::Reward(value))) if at == self.steps => step.reward = value,
            Some((at, Fault::Cost(value))) if at == self.steps => step.cost = value,
            _ => {}
        }
        Ok(step)
    }
}
