//! Tank: the agent keeps a tank full without letting it overflow.
//!
//! ```text
//! level   x ← x + PUMP (a + w),  a ∈ [−1, 1] is the pump rate, w ~ U(−½, ½) is the weather
//! reward  r = x                  a fuller tank gives more reward
//! cost    c = 1[x > 1]           the tank overflows
//! end     terminated when the tank is empty (x < 0), truncated after MAX_STEPS
//! ```

use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Purpose, Step, Stream};

/// Change of the level in one step at full pump rate.
const PUMP: f64 = 0.1;
/// Number of steps of an episode.
const MAX_STEPS: usize = 200;

/// Returns a new environment.
pub fn make() -> Result<Box<dyn Env>, EnvError> {
    let spec = EnvSpec {
        id: "Tank-v0".to_owned(),
        obs_len: 2,
        action: ActionSpace::symmetric(1),
        max_steps: MAX_STEPS,
        cost_terms: vec![],
    };
    let weather = Stream::new(0, Purpose::Problem, 0);
    Ok(Box::new(Tank { spec, weather, level: 0.0, steps: 0, running: false }))
}

struct Tank {
    spec: EnvSpec,
    weather: Stream,
    level: f64,
    steps: usize,
    running: bool,
}

impl Tank {
    fn observe(&self, obs: &mut [f64]) {
        obs.copy_from_slice(&[self.level, 1.0 - self.steps as f64 / self.spec.max_steps as f64]);
    }
}

impl Env for Tank {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        // All randomness comes from the seed, and no state is kept from the previous episode.
        self.weather = Stream::new(seed, Purpose::Problem, 0);
        self.level = 0.4 + 0.2 * self.weather.uniform();
        (self.steps, self.running) = (0, true);
        self.observe(obs);
        Ok(())
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        if !self.running {
            return Err(EnvError::NeedsReset);
        }
        self.spec.action.check(action)?;
        self.level += PUMP * (action[0].clamp(-1.0, 1.0) + self.weather.uniform() - 0.5);
        self.steps += 1;
        let outcome = match (self.level < 0.0, self.steps == self.spec.max_steps) {
            (true, _) => Outcome::Terminated,
            (false, true) => Outcome::Truncated,
            (false, false) => Outcome::Running,
        };
        self.running = !outcome.is_done();
        self.observe(obs);
        Ok(Step { reward: self.level, cost: f64::from(self.level > 1.0), outcome })
    }
}
